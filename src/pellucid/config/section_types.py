"""The types that a section may have, by the JSON Schema, and the keys to drop when the type changes."""

import functools
from typing import Any

from pellucid.config.base import Section
from pellucid.config.yaml_source import Path

NOT_RESTRICTING = ("title", "description", "default")  # entries of the JSON Schema that allow any value


@functools.cache
def json_schema(section: type[Section]) -> dict[str, Any]:
    return section.model_json_schema()


def schema_at(location: Path, section: type[Section]) -> dict[str, Any]:
    """The JSON Schema at one of pydantic's locations, where the `type` follows the key of a section with types."""
    root = schema = json_schema(section)
    for key in location:
        if key in root["$defs"]:  # pydantic names a section by its class if the value may also be a word
            schema = root["$defs"][key]
            continue
        variants = schema.get("discriminator", {}).get("mapping", {})
        named = schema.get("additionalProperties")  # of sections whose keys are names, as a tour's `measures`
        named = named if isinstance(named, dict) else {}
        inner = schema.get("items", {}) if isinstance(key, int) else schema.get("properties", {}).get(key, named)
        schema = {"$ref": variants[key]} if key in variants else inner
        schema = schema.get("anyOf", [schema])[0]  # a section, or null
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema


def types_at(location: Path, section: type[Section]) -> dict[str, dict[str, Any]]:
    """The types that the section at a location may have, in the schema's order, and the schemas of their keys."""
    schema = schema_at(location, section)
    names = schema.get("discriminator", {}).get("mapping", {})
    order = [variant["$ref"] for variant in schema.get("oneOf", ())]
    root = json_schema(section)["$defs"]
    in_order = sorted(names, key=lambda name: order.index(names[name]))
    return {name: root[names[name].rsplit("/", 1)[-1]]["properties"] for name in in_order}


def keys_left_out(path: Path, data: dict[str, Any], new_type: object, section: type[Section]) -> list[str]:
    """The keys of the section at `path` that the new type lacks, or for which it has other choices.

    The list is empty if the type stays the same. A key that no type has is kept, and becomes an error later.
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
        return {name: value for name, value in keys.get(key, {}).items() if name not in NOT_RESTRICTING}

    return [key for key in data if key != "type" and key in old and allowed(old, key) != allowed(new, key)]
