"""Turns pydantic's errors into one line: the wrong key, its place in the file, what is wrong, how to fix it."""

import difflib
import re
import reprlib
from collections.abc import Collection
from typing import Any, get_origin

from pydantic_core import ErrorDetails

from pellucid.config.base import BrokenRule, Section
from pellucid.config.sections import chosen, possible_at, sections_in
from pellucid.config.yaml_source import EXAMPLE_OF_A_SECTION, Path, Places, dotted, shortened
from pellucid.errors import ConfigError

# pydantic's name of a fault, and for a learner: what is wrong; how to fix it.
WORDS = {
    "int_type": "{value} is of the wrong type; give a whole number",
    "int_from_float": "{value} is of the wrong type; give a whole number",
    "float_type": "{value} is of the wrong type; give a number",
    "finite_number": "{value} is of the wrong type; give a finite number",
    "string_type": "{value} is of the wrong type; give text",
    "bool_type": "{value} is of the wrong type; give true or false",
    "tuple_type": "{value} is of the wrong type; give a list",
    "list_type": "{value} is of the wrong type; give a list",
    "dict_type": "{value} is of the wrong type; give a section of keys and values",
    "model_type": "{value} is of the wrong type; give a section of keys and values",
    "model_attributes_type": "{value} is of the wrong type; give a section of keys and values",
    "greater_than": "{value} is out of range; give a value greater than {gt}",
    "greater_than_equal": "{value} is out of range; give a value of at least {ge}",
    "less_than": "{value} is out of range; give a value less than {lt}",
    "less_than_equal": "{value} is out of range; give a value of at most {le}",
    "too_short": "too few values; give a longer list",
    "too_long": "too many values; give a shorter list",
    "missing": "this key is missing; add `{key}: ...`",
    "union_tag_not_found": "this key is missing; add `type: ...`, one of {types}",
    "union_tag_invalid": "{value} is not a choice; use one of {expected_tags}",
    "literal_error": "{value} is not a choice; use {expected}",
    # the only keys with a pattern are names of folders
    "string_pattern_mismatch": "{value} is not accepted; "
    "use letters, digits, '.', '_' and '-', the first a letter or a digit",
}


def explain(
    errors: list[ErrorDetails], data: Any, places: Places, section: type[Section], changed: Collection[Path]
) -> ConfigError:
    """The error to fix first: an unknown key before a missing one, which it may be; the deepest for several types."""

    def rank(error: ErrorDetails) -> tuple[bool, int, bool]:
        return error["type"] != "extra_forbidden", -len(key_path(error, data)), error["type"] != "literal_error"

    error = min(errors, key=rank)
    kind, path = error["type"], key_path(error, data)
    if kind == "value_error":
        path, what, fix = _broken_rule(error["ctx"]["error"], path, changed)
    elif kind == "extra_forbidden":
        what, fix = _unknown_key(path, data, section)
    elif kind == "union_tag_not_found" and (slips := difflib.get_close_matches("type", error["input"], n=1)):
        path, what, fix = (*path, slips[0]), "unknown key", "did you mean 'type'?"
    else:
        what, fix = _what_and_fix(error, path, data, section)
        if kind == "literal_error":  # the key may also accept values of another type
            others = [other for other in errors if other is not error and key_path(other, data) == path]
            fix = " or ".join([fix, *(_what_and_fix(other, path, data, section)[1] for other in others)])
        path = (*path, "type") if kind.startswith("union_tag") else path
    its_type = (*path[:-1], "type")
    if kind == "missing" and its_type in changed:  # the file is right, but for another type
        return ConfigError(f"{places[its_type]}: {dotted(path)}", what, f"add `{dotted(path)}=...`")
    nearest = next(path[:n] for n in range(len(path), -1, -1) if path[:n] in places)
    return ConfigError(places[nearest] + (f": {dotted(path)}" if path else ""), what, fix)


def key_path(error: ErrorDetails, data: Any) -> Path:
    """The path of the wrong key: pydantic's location without the types and classes of sections, which are no keys."""
    path: Path = ()
    may_be_type = True  # a section's type comes before its keys
    for part in error["loc"]:
        is_type = may_be_type and isinstance(data, dict) and part == data.get("type")
        is_key = part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        may_be_type = not is_type
        if is_key and not is_type:
            path, data = (*path, part), data[part]
    is_missing = error["type"] == "missing" and isinstance(error["loc"][-1], str)
    return (*path, error["loc"][-1]) if is_missing else path


def _broken_rule(rule: BrokenRule, path: Path, changed: Collection[Path]) -> tuple[Path, str, str]:
    """The key to blame for a broken rule of our own, what is wrong, and how to fix it."""
    paths = [(*path, *key.split(".")) for key in rule.keys] or [path]
    blamed = next((each for each in paths if any(each[: len(change)] == change for change in changed)), paths[0])
    is_another = blamed != paths[0] and rule.what[0].isdigit()
    return blamed, f"{rule.keys[0]} {rule.what}" if is_another else rule.what, rule.fix


def _unknown_key(path: Path, data: Any, section: type[Section]) -> tuple[str, str]:
    *above, key = path
    here = data
    for each in above:
        here = here[each]
    possible = possible_at(tuple(above), data, section)
    type_ = chosen(possible, here)
    if others := [name for name, other in possible.items() if key in other.model_fields]:
        value = here[key] if re.fullmatch(r"[\w./*-]{1,40}", str(here[key])) else "..."
        example = f'"{dotted(path[:-1])}={{type: {others[0]}, {key}: {value}}}"'
        return f"{type_} has no such key", f"leave it out, or set type: {' or '.join(others)}, as {example}"
    keys_here = list(possible[type_].model_fields)
    names = _where_else(str(key), data, section) if len(path) <= 2 else []
    names = names or difflib.get_close_matches(str(key), keys_here, n=1, cutoff=0.5)
    meant = " or ".join(map(repr, names))
    return "unknown key", f"did you mean {meant}?" if meant else f"the keys here are {', '.join(keys_here)}"


def _where_else(key: str, data: dict[str, Any], section: type[Section]) -> list[str]:
    """The keys of this name in other sections: `train.steps` for `steps`, `seed` for `train.seed`."""
    matches = [key] if key in section.model_fields else []
    for name, field in section.model_fields.items():
        possible = {} if get_origin(field.annotation) in (tuple, dict) else sections_in(field.annotation)
        if possible and key != "type" and key in possible[chosen(possible, data.get(name))].model_fields:
            matches.append(f"{name}.{key}")
    return matches


def _what_and_fix(error: ErrorDetails, path: Path, data: Any, section: type[Section]) -> tuple[str, str]:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing" and isinstance(error["loc"][-1], int):
        kind = "too_short"
    elif kind == "union_tag_not_found":
        context = {"types": ", ".join(possible_at(path, data, section))}
    elif kind == "union_tag_invalid":
        value = value["type"]
    elif kind.startswith("model_") and isinstance(value, str) and ":" not in value:
        types = list(possible_at(path, data, section))
        if value in types or len(types) > 1:
            return _type_alone(value, types, path)
    shown = shortened(reprlib.repr(value))
    if kind not in WORDS:
        return f"{shown} is not accepted", error["msg"][0].lower() + error["msg"][1:]
    named = {"value": shown, "key": path[-1] if path else "", **context}
    what, fix = (words.format(**named) for words in WORDS[kind].split("; "))
    if kind.startswith("model_") and ":" in str(value):  # the shell has removed the braces
        fix += f', quoted: "{dotted(path)}={EXAMPLE_OF_A_SECTION}"'
    elif fix == "give a whole number" and isinstance(value, float) and value.is_integer():
        fix += f": {int(value)}"
    elif fix == "give a list" and isinstance(value, str) and path:
        fix += f', as "{dotted(path)}=[{shown[1:-1]}]"'
    return what, fix


def _type_alone(value: str, types: list[str], path: Path) -> tuple[str, str]:
    """The fault and the fix for `optimizer=sgd`: a type where its section belongs."""
    name = value if value in types else types[0]
    example = f"`{{type: {name}}}`, or {dotted(path)}.type={name} on the command line"
    if name == value:
        return f"{value!r} is a type, not a section", f"write {example}"
    return f"{shortened(repr(value))} is not a choice", f"use one of {', '.join(types)}, as {example}"
