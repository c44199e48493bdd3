"""The types that a section may have, as the JSON Schema tells them, and how a section changes from one to another."""

from __future__ import annotations

import functools
from typing import Any

from pellucid.config.base import Section
from pellucid.config.yaml_source import Path

TOLD = ("title", "description", "default")  # of a key in the JSON Schema; the rest decides what it may be


@functools.cache
def json_schema(section: type[Section]) -> dict[str, Any]:
    return section.model_json_schema()


def schema_at(location: Path, section: type[Section]) -> dict[str, Any]:
    """The JSON Schema at a location as pydantic tells it, where the `type` follows the key of a section with types."""
    root = schema = json_schema(section)
    for key in location:
        if key in root["$defs"]:  # where a value may be a word or a section, pydantic names the section by its class
            schema = root["$defs"][key]
            continue
        variants = schema.get("discriminator", {}).get("mapping", {})
        inner = schema.get("items", {}) if isinstance(key, int) else schema.get("properties", {}).get(key, {})
        schema = {"$ref": variants[key]} if key in variants else inner
        schema = schema.get("anyOf", [schema])[0]  # a section, or null
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema


def types_at(location: Path, section: type[Section]) -> dict[str, dict[str, Any]]:
    """The types that a section there may have, in the order of the schema, and the JSON Schema of the keys of each."""
    schema = schema_at(location, section)
    names = schema.get("discriminator", {}).get("mapping", {})
    order = [variant["$ref"] for variant in schema.get("oneOf", ())]
    root = json_schema(section)["$defs"]
    in_order = sorted(names, key=lambda name: order.index(names[name]))
    return {name: root[names[name].rsplit("/", 1)[-1]]["properties"] for name in in_order}


def keys_left_out(path: Path, data: dict[str, Any], new_type: object, section: type[Section]) -> list[str]:
    """The keys of the section at `path` that one of the new type does not have, or not with the same choices.

    None, if it stays the same type. A key that no type has stays, to be told as an error.
    """
    location: Path = ()
    types: dict[str, dict[str, Any]] = {}
    for key in path:
        data, location = data[str(key)], (*location, key)
        types = types_at(location, section)
        location = (*location, data.get("type", next(iter(types)))) if types else location
    old, new = types.get(str(location[-1])), types.get(str(new_type))
    if old is None or new is None or old is new:
        return []

    def allowed(keys: dict[str, Any], key: str) -> dict[str, Any]:
        return {name: value for name, value in keys.get(key, {}).items() if name not in TOLD}

    return [key for key in data if key != "type" and key in old and allowed(old, key) != allowed(new, key)]
