"""From a YAML file and `key=value` overrides to a checked config, or to one line that says what is wrong where."""

from __future__ import annotations

import copy
import difflib
import os
import re
import reprlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pellucid.config.base import Section
from pellucid.config.experiment import ExperimentConfig
from pellucid.config.run import RunConfig
from pellucid.config.shipped import find_config, shipped_configs
from pellucid.config.yaml_source import MAX_CHARACTERS, Path, dotted, parse_yaml, shortened, write_yaml
from pellucid.errors import ConfigError

COMMAND_LINE = "command line"
_EXAMPLE_OF_A_SECTION = "{type: text, files: [a.txt]}"
MAX_BYTES = 4 * MAX_CHARACTERS
MAX_DEPTH = 8

# What a rule of our own says (a ValueError of a validator): the key to blame among several, what is wrong, how to fix.
_RULE = re.compile(r"(?:([a-z_.]+): )?(.*); (.*)", re.DOTALL)

# What pydantic calls a wrong type, and what to call it in front of a learner.
_TYPE_NAMES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a section of keys and values",
    "model_type": "a section of keys and values",
    "model_attributes_type": "a section of keys and values",
    "finite_number": "a finite number",
}


Places = dict[Path, str]  # of each key path: what errors call the place where it stands, as `configs/x.yaml:12`
AnySection = TypeVar("AnySection", bound=Section)


class Change(NamedTuple):
    """A key of a run config and its new value. `place` is what errors call the place that asks for it."""

    path: Path
    value: Any
    place: str

    @property
    def key(self) -> str:
        """As it is written: `model.n_layers`."""
        return ".".join(map(str, self.path))


class LoadedExperiment(NamedTuple):
    """An experiment, and where each of its keys stands, for the errors of the runs that are made of it."""

    config: ExperimentConfig
    places: Places


def load_run_config(file: FilePath, overrides: Sequence[str] = ()) -> RunConfig:
    """Reads a run config and applies overrides such as `optimizer.lr=3e-4`, validated like the file.

    Raises ConfigError with file, line and key path; a misspelled key gets a suggestion.
    """
    file = find_config(file)
    return parse_run_config(_read(file), str(file), overrides)


def parse_run_config(text: str, source: str, overrides: Sequence[str] = ()) -> RunConfig:
    """The same for YAML text; `source` is what errors call it."""
    return _changed_run_config(text, source, map(parse_override, overrides))


def load_changed_run_config(file: FilePath, changes: Iterable[Change]) -> RunConfig:
    """The same with changes from elsewhere, as the runs of an experiment have them; the last one of a key counts."""
    file = find_config(file)
    return _changed_run_config(_read(file), str(file), changes)


def load_experiment(file: FilePath) -> LoadedExperiment:
    """Reads an experiment. Raises ConfigError as `load_run_config` does. The configs of its runs are not looked at."""
    file = find_config(file)
    data, places = _parse_sections(_read(file), str(file))
    _require_kind(ExperimentConfig, data, str(file))
    return LoadedExperiment(_validated(ExperimentConfig, data, places), places)


def _parse_sections(text: str, source: str) -> tuple[dict[str, Any], Places]:
    data, lines = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise ConfigError(source, "no `key: value` lines found", "start from a file in configs/")
    return data, {path: f"{source}:{line}" for path, line in lines.items()}


def _changed_run_config(text: str, source: str, changes: Iterable[Change]) -> RunConfig:
    data, places = _parse_sections(text, source)
    _require_kind(RunConfig, data, source)
    changes = list(changes)
    for change in changes:
        _apply(data, places, change)
    config = _validated(RunConfig, data, places, {change.path for change in changes})
    if len(run_config_to_yaml(config)) > MAX_CHARACTERS:  # a run must be able to read the config that it wrote
        what = f"more than {MAX_CHARACTERS:,} characters once it is written out"
        raise ConfigError(source, what, "name fewer files, by globs for example")
    return config


def _require_kind(section: type[Section], data: dict[str, Any], source: str) -> None:
    """Raises ConfigError if a run config stands where an experiment should, or the other way round."""
    runs, experiments = RunConfig.model_fields.keys(), ExperimentConfig.model_fields.keys()
    n_of_run, n_of_experiment = len(data.keys() & (runs - experiments)), len(data.keys() & (experiments - runs))
    if section is RunConfig and n_of_experiment > n_of_run:
        raise ConfigError(source, "this is an experiment, not the config of a run", "run it with `pellucid experiment`")
    if section is ExperimentConfig and n_of_run > n_of_experiment:
        raise ConfigError(source, "this is the config of one run, no experiment", "run it with `pellucid train`")


def _validated(
    section: type[AnySection], data: dict[str, Any], places: Places, changed: Iterable[Path] = ()
) -> AnySection:
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise _explain(_what_to_fix_first(error.errors(), data), data, places, section, changed) from None


def run_config_to_yaml(config: RunConfig) -> str:
    """The complete config, defaults written out, as YAML that `load_run_config` reads back to an equal config."""
    return write_yaml(config.model_dump(mode="json"))


def _read(file: FilePath) -> str:
    try:
        with open(file, "rb", opener=_open_without_waiting) as stream:
            content = stream.read(MAX_BYTES + 1)  # /dev/zero has no end
        if len(content) > MAX_BYTES:
            raise ConfigError(str(file), f"more than {MAX_BYTES:,} bytes are no run config", "is this the right file?")
        return content.decode("utf-8")
    except FileNotFoundError:
        known = ", ".join(sorted(str(path) for path in file.parent.glob("*.yaml") if path.name[0] != "."))
        close = difflib.get_close_matches(file.as_posix(), [name for name, _ in shipped_configs()], n=1)
        fix = f"configs there: {shortened(known, 200)}" if known else "choose one of `pellucid configs`"
        fix = f"did you mean {close[0]!r}?" if close else fix
        raise ConfigError(str(file), "no such file", fix) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}", f"byte {error.start} is not UTF-8", "save it as UTF-8 text") from None
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise ConfigError(str(file), what, "name a YAML file that you may read") from None


def _open_without_waiting(file: str, flags: int) -> int:
    """A pipe that nobody writes to is empty; without this, opening it would wait for ever. Windows has no such pipe."""
    if sys.platform == "win32":
        return os.open(file, flags)
    descriptor = os.open(file, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def parse_override(override: str) -> Change:
    """`optimizer.lr=3e-4` from the command line. Raises ConfigError if it is no dotted key with a value."""
    key_text, equals, value_text = override.partition("=")
    path: Path = tuple(key_text.split("."))
    if not equals or not all(path):
        what = f"{shortened(repr(override))} is no override"
        raise ConfigError(COMMAND_LINE, what, "write key=value, as optimizer.lr=3e-4")
    try:
        value, _ = parse_yaml(value_text, COMMAND_LINE) if value_text else ("", {})
    except ConfigError as error:
        fix = "write one value after `=`, as optimizer.lr=3e-4"
        if value_text[0] in "{[":
            fix = f"if the shell has split it, quote it: {shortened(key_text)}='{_EXAMPLE_OF_A_SECTION}'"
        raise ConfigError(f"{COMMAND_LINE}: {dotted(path)}", error.what, fix) from None
    return Change(path, value, COMMAND_LINE)


def _apply(data: dict[str, Any], places: Places, change: Change) -> None:
    path, place = change.path, change.place
    where = f"{place}: {dotted(path)}"
    if not all(path):
        raise ConfigError(where, "a part of this key is empty", "write section.key, as optimizer.lr")
    if len(path) > MAX_DEPTH:
        raise ConfigError(where, "nested too deeply", "a run config is three levels deep")
    section = data
    for key in path[:-1]:
        section = section.setdefault(str(key), {})
        if not isinstance(section, dict):
            raise ConfigError(where, f"{shortened(str(key))!r} is a value, not a section", "leave out what follows it")
    section[str(path[-1])] = copy.deepcopy(change.value)  # a later change may reach into it
    for old in [key for key in places if key[: len(path)] == path]:
        del places[old]
    for n in range(1, len(path) + 1):
        places.setdefault(path[:n], place)


def _what_to_fix_first(errors: list[ErrorDetails], data: dict[str, Any]) -> ErrorDetails:
    """A misspelled key is also a missing one: fix the misspelling. Of several types, take the one that fits best."""
    return min(errors, key=lambda e: (e["type"] != "extra_forbidden", -len(_path_in_data(e, data))))


def _explain(
    error: ErrorDetails, data: dict[str, Any], places: Places, section: type[Section], changed: Iterable[Path]
) -> ConfigError:
    path = _path_in_data(error, data)
    if error["type"] == "value_error":
        path, what, fix = _broken_rule(error, path, changed)
        return ConfigError(_where(path, places), what, fix)
    if error["type"] == "union_tag_not_found" and (slips := difflib.get_close_matches("type", error["input"], n=1)):
        error = {**error, "type": "extra_forbidden"}
        path = (*path, slips[0])
    elif error["type"].startswith("union_tag"):
        path = (*path, "type")
    return ConfigError(_where(path, places), *_what_and_fix(error, path, data, section))


def _where(path: Path, places: Places) -> str:
    nearest = next(path[:n] for n in range(len(path), -1, -1) if path[:n] in places)
    return places[nearest] + (f": {dotted(path)}" if path else "")


def _broken_rule(error: ErrorDetails, path: Path, changed: Iterable[Path]) -> tuple[Path, str, str]:
    """The key to blame for a rule of our own, what is wrong, and how to fix it.

    It is the rule's first key, unless that stands unchanged in the file and another one that the rule names does not.
    """
    rule = _RULE.fullmatch(str(error["ctx"]["error"]))
    assert rule, error
    key, what, fix = rule.groups()
    if key is None:
        return path, what, fix
    blamed = (*path, *key.split("."))
    if not any(blamed[: len(change)] == change for change in changed):
        for change in changed:
            rest = ".".join(map(str, change[len(path) :]))
            if change[: len(path)] == path and re.search(rf"\b{re.escape(rest)}\b", f"{what} {fix}"):
                return change, f"{key} {what}" if what[0].isdigit() else what, fix
    return blamed, what, fix


def _path_in_data(error: ErrorDetails, data: Any) -> Path:
    """pydantic's location without the names of union members, which do not stand in the file."""
    path: list[str | int] = []
    for key in error["loc"]:
        is_index = isinstance(data, list) and isinstance(key, int) and key < len(data)
        if is_index or (isinstance(data, dict) and key in data):
            data = data[key]
            path.append(key)
    if error["type"] == "missing" and isinstance(error["loc"][-1], str):
        path.append(error["loc"][-1])
    return tuple(path)


def _what_and_fix(error: ErrorDetails, path: Path, data: dict[str, Any], section: type[Section]) -> tuple[str, str]:
    kind, context, value = error["type"], error.get("ctx", {}), shortened(reprlib.repr(error["input"]))
    if kind == "extra_forbidden" and (types := _types_that_have(path, data, section)):
        example = f"{'.'.join(map(str, path[:-1]))}='{{type: {types[0]}, {path[-1]}: ...}}'"
        return "unknown key for this type", f"set type: {' or '.join(types)}, as {shortened(example)}"
    if kind == "extra_forbidden":
        known = _keys_of_section(path[:-1], data, section)
        close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        fix = f"did you mean {close[0]!r}?" if close else f"the keys here are {', '.join(known)}"
        return "unknown key", fix
    if kind == "too_short" or (kind == "missing" and isinstance(error["loc"][-1], int)):
        return "too few values", "give a longer list"
    if kind == "too_long":
        return "too many values", "give a shorter list"
    if kind == "missing":
        return "this key is missing", f"add `{path[-1]}: ...`"
    if kind == "union_tag_not_found":
        return "this key is missing", f"add `type: ...`, one of {_choices(path, data, section)}"
    if kind == "union_tag_invalid":
        choice = shortened(reprlib.repr(error["input"]["type"]))
        return f"{choice} is not a choice", f"use one of {context['expected_tags']}"
    if kind == "literal_error":
        return f"{value} is not a choice", f"use {context['expected']}"
    if kind.startswith("model_") and ":" in str(error["input"]):  # a shell has taken the braces
        example = f"{dotted(path)}='{_EXAMPLE_OF_A_SECTION}'"
        return f"{value} is of the wrong type", f"give a section of keys and values, quoted: {example}"
    if kind == "string_pattern_mismatch":  # of the only keys with a pattern: names of folders
        return f"{value} is not accepted", "use letters, digits, '.', '_' and '-', the first a letter or a digit"
    if kind in _TYPE_NAMES:
        return f"{value} is of the wrong type", f"give {_TYPE_NAMES[kind]}"
    limits = {"gt": "greater than", "ge": "of at least", "lt": "less than", "le": "of at most"}
    for limit, words in limits.items():
        if limit in context:
            return f"{value} is out of range", f"give a value {words} {context[limit]}"
    return f"{value} is not accepted", error["msg"][0].lower() + error["msg"][1:]


def _choices(path: Path, data: dict[str, Any], section: type[Section]) -> str:
    return ", ".join(_schema_at(path[:-1], data, section).get("discriminator", {}).get("mapping", {}))


def _keys_of_section(path: Path, data: dict[str, Any], section: type[Section]) -> list[str]:
    schema = _schema_at(path, data, section)
    return list(schema.get("properties", ["type"]))  # a section of unknown type has no other key yet


def _types_that_have(path: Path, data: dict[str, Any], section: type[Section]) -> list[str]:
    """The other types of the section at path[:-1] in which its last key is a known one."""
    if len(path) < 2:
        return []
    union = _schema_at(path[:-2], data, section).get("properties", {}).get(path[-2], {})
    definitions = section.model_json_schema()["$defs"]
    variants = union.get("discriminator", {}).get("mapping", {}).items()
    return [name for name, ref in variants if path[-1] in definitions[ref.rsplit("/", 1)[-1]]["properties"]]


def _schema_at(path: Path, data: Any, section: type[Section]) -> dict[str, Any]:
    """The JSON Schema of the section at `path`, the variant being the one whose `type` the data names."""
    root = section.model_json_schema()
    schema: dict[str, Any] = root
    for key in (None, *path):
        if key is not None:
            inner = schema.get("items", {}) if isinstance(key, int) else schema.get("properties", {}).get(key, {})
            schema, data = next((each for each in inner.get("anyOf", ()) if "$ref" in each), inner), data[key]
        variants = schema.get("discriminator", {}).get("mapping", {})
        if isinstance(data, dict) and (variant := str(data.get("type"))) in variants:
            schema = {"$ref": variants[variant]}
        if "$ref" in schema:
            schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema
