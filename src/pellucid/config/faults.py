"""Turns pydantic's errors into one line: the wrong key, its place in the file, what is wrong, how to fix it."""

import difflib
import re
import reprlib
from collections.abc import Iterable
from typing import Any

from pydantic_core import ErrorDetails

from pellucid.config.base import BrokenRule, Section
from pellucid.config.section_types import json_schema, schema_at, types_at
from pellucid.config.yaml_source import Path, dotted, shortened
from pellucid.errors import ConfigError

Places = dict[Path, str]  # the place of each key path, as errors name it: `configs/x.yaml:12`

EXAMPLE_OF_A_SECTION = "{type: text, files: [a.txt]}"

_TYPE_NAMES = {
    "a whole number": ("int_type", "int_from_float"),
    "a number": ("float_type",),
    "a finite number": ("finite_number",),
    "text": ("string_type",),
    "true or false": ("bool_type",),
    "a list": ("tuple_type", "list_type"),
    "a section of keys and values": ("dict_type", "model_type", "model_attributes_type"),
}
_LIMITS = {
    "greater than {gt}": "greater_than",
    "of at least {ge}": "greater_than_equal",
    "less than {lt}": "less_than",
    "of at most {le}": "less_than_equal",
}
# pydantic's name of a fault, and for a learner: what is wrong, and how to fix it.
_WORDS = {
    **{kind: ("{value} is of the wrong type", f"give {name}") for name, kinds in _TYPE_NAMES.items() for kind in kinds},
    **{kind: ("{value} is out of range", f"give a value {limit}") for limit, kind in _LIMITS.items()},
    "too_short": ("too few values", "give a longer list"),
    "too_long": ("too many values", "give a shorter list"),
    "missing": ("this key is missing", "add `{key}: ...`"),
    "union_tag_not_found": ("this key is missing", "add `type: ...`, one of {choices}"),
    "union_tag_invalid": ("{value} is not a choice", "use one of {expected_tags}"),
    "literal_error": ("{value} is not a choice", "use {expected}"),
    # the only keys with a pattern are names of folders
    "string_pattern_mismatch": (
        "{value} is not accepted",
        "use letters, digits, '.', '_' and '-', the first a letter or a digit",
    ),
}


def explain(
    errors: list[ErrorDetails], data: dict[str, Any], places: Places, section: type[Section], changed: Iterable[Path]
) -> ConfigError:
    """The error to fix first: an unknown key before a missing one, which it may be; the deepest for several types."""

    def path_of(error: ErrorDetails) -> Path:
        return _path_in_data(error, data, section)

    def rank(error: ErrorDetails) -> tuple[bool, int, bool]:
        return error["type"] != "extra_forbidden", -len(path_of(error)), error["type"] != "literal_error"

    error = min(errors, key=rank)
    kind, path = error["type"], path_of(error)
    if kind == "value_error":
        path, what, fix = _broken_rule(error, path, changed)
    elif kind == "extra_forbidden":
        what, fix = _unknown_key(error, path, section, data)
    elif kind == "union_tag_not_found" and (slips := difflib.get_close_matches("type", error["input"], n=1)):
        path, what, fix = (*path, slips[0]), "unknown key", "did you mean 'type'?"
    else:
        path = (*path, "type") if kind.startswith("union_tag") else path
        what, fix = _what_and_fix(error, path, section)
        if kind == "literal_error":  # the key may also accept values of another type
            others = [other for other in errors if other is not error and path_of(other) == path]
            fix = " or ".join([fix, *(_what_and_fix(other, path, section)[1] for other in others)])
    of_type = (*path[:-1], "type")
    if kind == "missing" and of_type in changed:  # the file is right, but for another type
        return ConfigError(f"{places[of_type]}: {dotted(path)}", what, f"add `{dotted(path)}=...`")
    return ConfigError(_where(path, places), what, fix)


def _where(path: Path, places: Places) -> str:
    nearest = next(path[:n] for n in range(len(path), -1, -1) if path[:n] in places)
    return places[nearest] + (f": {dotted(path)}" if path else "")


def _broken_rule(error: ErrorDetails, path: Path, changed: Iterable[Path]) -> tuple[Path, str, str]:
    """The key to blame for a broken rule of our own, what is wrong, and how to fix it.

    It is the rule's own key, unless only another one that the rule names was changed on the command line.
    """
    rule = error["ctx"]["error"]
    assert isinstance(rule, BrokenRule)
    key, what, fix = rule.key, rule.what, rule.fix
    if not key:
        return path, what, fix
    blamed = (*path, *key.split("."))
    if not any(blamed[: len(change)] == change for change in changed):
        for change in changed:
            rest = ".".join(map(str, change[len(path) :]))
            if change[: len(path)] == path and re.search(rf"\b{re.escape(rest)}\b", f"{what} {fix}"):
                return change, f"{key} {what}" if what[0].isdigit() else what, fix
    return blamed, what, fix


def _path_in_data(error: ErrorDetails, data: Any, section: type[Section]) -> Path:
    """pydantic's location as a key path, without the names of union members, which are not keys of the file."""
    path: list[str | int] = []
    for place, key in enumerate(error["loc"]):
        if types_at(error["loc"][:place], section):  # the next part is the section's type
            continue
        is_index = isinstance(data, list) and isinstance(key, int) and key < len(data)
        if is_index or (isinstance(data, dict) and key in data):
            data = data[key]
            path.append(key)
    if error["type"] == "missing" and isinstance(error["loc"][-1], str):
        path.append(error["loc"][-1])
    return tuple(path)


def _unknown_key(error: ErrorDetails, path: Path, section: type[Section], data: dict[str, Any]) -> tuple[str, str]:
    location, key = error["loc"], str(path[-1])
    keys_here = list(schema_at(location[:-1], section)["properties"])
    types = [name for name, keys in types_at(location[:-2], section).items() if key in keys]
    if types:
        value = str(error["input"]) if re.fullmatch(r"[\w./*-]{1,40}", str(error["input"])) else "..."
        example = f'"{dotted(path[:-1])}={{type: {types[0]}, {key}: {value}}}"'
        return f"{location[-2]} has no such key", f"leave it out, or set type: {' or '.join(types)}, as {example}"
    names = _where_else(key, section, data) if len(path) <= 2 else []
    names = names or difflib.get_close_matches(key, keys_here, n=1, cutoff=0.5)
    meant = " or ".join(map(repr, names))
    return "unknown key", f"did you mean {meant}?" if meant else f"the keys here are {', '.join(keys_here)}"


def _where_else(key: str, section: type[Section], data: dict[str, Any]) -> list[str]:
    """The keys of this name in other sections: `train.steps` for `steps`, `seed` for `train.seed`.

    A section that names no type has the first one.
    """
    matches = [key] if key in json_schema(section)["properties"] else []
    for name in json_schema(section)["properties"]:
        type_ = data[name].get("type") if isinstance(data.get(name), dict) else None
        types = types_at((name,), section)
        first = next(iter(types.values())) if types else schema_at((name,), section).get("properties", {})
        keys = types.get(str(type_), first)
        matches += [f"{name}.{key}"] if key in keys and key != "type" else []
    return matches


def _what_and_fix(error: ErrorDetails, path: Path, section: type[Section]) -> tuple[str, str]:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing" and isinstance(error["loc"][-1], int):
        kind = "too_short"
    elif kind == "union_tag_not_found":
        context = {"choices": ", ".join(types_at(error["loc"], section))}
    elif kind == "union_tag_invalid":
        value = value["type"]
    shown = shortened(reprlib.repr(value))
    types = list(types_at(error["loc"], section)) if kind.startswith("model_") else []
    if types and isinstance(value, str) and ":" not in value:
        return _type_alone(value, types, path)
    if kind not in _WORDS:
        return f"{shown} is not accepted", error["msg"][0].lower() + error["msg"][1:]
    what, fix = (words.format(value=shown, key=path[-1] if path else "", **context) for words in _WORDS[kind])
    if kind.startswith("model_") and ":" in str(value):  # the shell has removed the braces
        fix += f', quoted: "{dotted(path)}={EXAMPLE_OF_A_SECTION}"'
    elif kind == "int_from_float" or (kind == "int_type" and isinstance(value, float)):
        fix += f": {int(value)}" if value.is_integer() else ""
    elif kind in _TYPE_NAMES["a list"] and isinstance(value, str) and path:
        fix += f', as "{dotted(path)}=[{shown[1:-1]}]"'
    return what, fix


def type_or_choice(error: ErrorDetails) -> str:
    """Advice for a value of the wrong type, or that is not a choice."""
    names = {"is_instance_of": "a path", "dict_type": "a dict", "none_required": "None"}
    names |= dict.fromkeys(("iterable_type", "sequence_str"), "a list")
    if error["type"] in names:
        return f"give {names[error['type']]}"
    return _WORDS.get(error["type"], ("", "give another value"))[1].format(**error.get("ctx", {}))


def _type_alone(value: str, types: list[str], path: Path) -> tuple[str, str]:
    """The fault and the fix for `optimizer=sgd`: a type where its section belongs."""
    is_one = value in types
    name = value if is_one else types[0]
    example = f"`{{type: {name}}}`, or {dotted(path)}.type={name} on the command line"
    if is_one:
        return f"{value!r} is a type, not a section", f"write {example}"
    return f"{shortened(repr(value))} is not a choice", f"use one of {', '.join(types)}, as {example}"
