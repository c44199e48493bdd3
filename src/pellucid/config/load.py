"""From a YAML file and `key=value` overrides to a checked config, or to one line that says what is wrong where."""

from __future__ import annotations

import copy
import difflib
import functools
import os
import re
import reprlib
import sys
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pellucid.config.base import Section
from pellucid.config.experiment import ExperimentConfig
from pellucid.config.run import RunConfig, run_and_checkpoint
from pellucid.config.shipped import find_config, shipped_configs
from pellucid.config.yaml_source import MAX_CHARACTERS, Path, dotted, parse_yaml, shortened, write_yaml
from pellucid.errors import CheckpointError, ConfigError

COMMAND_LINE = "command line"
_EXAMPLE_OF_A_SECTION = "{type: text, files: [a.txt]}"
MAX_BYTES = 4 * MAX_CHARACTERS
MAX_DEPTH = 8

# What a rule of our own says (a ValueError of a validator): the key to blame among several, what is wrong, how to fix.
_RULE = re.compile(r"(?:([a-z0-9_.]+): )?(.*); (.*)", re.DOTALL)

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
# What pydantic calls a fault; and for a learner, what is wrong and how to fix it.
_WORDS = {
    **{kind: ("{value} is of the wrong type", f"give {name}") for name, kinds in _TYPE_NAMES.items() for kind in kinds},
    **{kind: ("{value} is out of range", f"give a value {limit}") for limit, kind in _LIMITS.items()},
    "too_short": ("too few values", "give a longer list"),
    "too_long": ("too many values", "give a shorter list"),
    "missing": ("this key is missing", "add `{key}: ...`"),
    "union_tag_not_found": ("this key is missing", "add `type: ...`, one of {choices}"),
    "union_tag_invalid": ("{value} is not a choice", "use one of {expected_tags}"),
    "literal_error": ("{value} is not a choice", "use {expected}"),
    # of the only keys with a pattern: names of folders
    "string_pattern_mismatch": (
        "{value} is not accepted",
        "use letters, digits, '.', '_' and '-', the first a letter or a digit",
    ),
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


def load_run_config(file: FilePath, changes: Iterable[str | Change] = ()) -> RunConfig:
    """Reads a run config and applies changes, such as the override `optimizer.lr=3e-4`, validated like the file.

    The last change of a key counts. Raises ConfigError with file, line and key path, and a suggestion for a slip.
    """
    file = find_config(file)
    return parse_run_config(_read(file), str(file), changes)


def parse_run_config(text: str, source: str, changes: Iterable[str | Change] = ()) -> RunConfig:
    """The same for YAML text; `source` is what errors call it."""
    parsed = [parse_override(change) if isinstance(change, str) else change for change in changes]
    data, places = _sections(RunConfig, text, source)
    _take_from_base(data, places, parsed)
    for change in parsed:
        _apply(data, places, change)
    config = _validated(RunConfig, data, places, {change.path for change in parsed})
    if len(run_config_to_yaml(config)) > MAX_CHARACTERS:  # a run must be able to read the config that it wrote
        what = f"more than {MAX_CHARACTERS:,} characters once it is written out"
        raise ConfigError(source, what, "name fewer files, by globs for example")
    return config


def load_experiment(file: FilePath) -> LoadedExperiment:
    """Reads an experiment. Raises ConfigError as `load_run_config` does. The configs of its runs are not looked at."""
    file = find_config(file)
    data, places = _sections(ExperimentConfig, _read(file), str(file))
    return LoadedExperiment(_validated(ExperimentConfig, data, places), places)


def _sections(kind: type[Section], text: str, source: str) -> tuple[dict[str, Any], Places]:
    """The keys of a file, and where each stands. ConfigError if it is an experiment instead of a run, or vice versa."""
    data, lines = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise ConfigError(source, "no `key: value` lines found", "start from a file in configs/")
    runs, experiments = RunConfig.model_fields.keys(), ExperimentConfig.model_fields.keys()
    n_of_run, n_of_experiment = len(data.keys() & (runs - experiments)), len(data.keys() & (experiments - runs))
    if kind is RunConfig and n_of_experiment > n_of_run:
        raise ConfigError(source, "this is an experiment, not the config of a run", "run it with `pellucid experiment`")
    if kind is ExperimentConfig and n_of_run > n_of_experiment:
        raise ConfigError(source, "this is the config of one run, no experiment", "run it with `pellucid train`")
    return data, {path: f"{source}:{line}" for path, line in lines.items()}


def _validated(
    section: type[AnySection], data: dict[str, Any], places: Places, changed: Iterable[Path] = ()
) -> AnySection:
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise _explain(error.errors(), data, places, section, changed) from None


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


def _take_from_base(data: dict[str, Any], places: Places, changes: list[Change]) -> None:
    """Of a run that starts from another: `tokenizer`, `quantization`, and what `model` lacks, are the other's.

    Raises CheckpointError if they are needed and there is no such run.
    """
    whole = {change.path[0]: change.value for change in changes if len(change.path) == 1}
    start_from = whole.get("start_from", data.get("start_from"))
    missing = {"model", "tokenizer"} - data.keys() - whole.keys()
    is_partial = isinstance(data.get("model"), dict) and "model" not in whole
    if not isinstance(start_from, str) or not start_from or not (missing or is_partial):
        return
    run, _ = run_and_checkpoint(start_from)
    folders = [run, *sorted(run.glob("step-*"), reverse=True)]  # a run may have been copied without its own config.yaml
    folder = next((folder for folder in folders if (folder / "config.yaml").is_file()), None)
    if folder is None and not missing:
        return  # a run that was copied away from its base has a complete section
    if folder is None:
        what = "no checkpoint here" if run.is_dir() else "no such run"
        fix = "name the folder that `pellucid train` wrote; a run that has begun resumes from its own config.yaml"
        raise CheckpointError(str(run), what, fix)
    file = folder / "config.yaml"
    base, _ = _sections(RunConfig, _read(file), str(file))
    taken = {"model": base.get("model"), "tokenizer": {"type": "file", "path": (folder / "tokenizer.json").as_posix()}}
    if base.get("adapter") is None and "quantization" not in data.keys() | whole.keys():
        missing.add("quantization")  # weights with an adapter are merged, and no longer quantized
        taken["quantization"] = base.get("quantization", "none")
    for key in sorted(missing):
        data[key], places[(key,)] = taken[key], str(file)
    if is_partial and isinstance(taken["model"], dict):
        own_type = data["model"].get("type", "decoder")
        if own_type == taken["model"].get("type", "decoder"):
            data["model"] = {**taken["model"], **data["model"]}


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


def _explain(
    errors: list[ErrorDetails], data: dict[str, Any], places: Places, section: type[Section], changed: Iterable[Path]
) -> ConfigError:
    """The fault to fix first: a misspelled key is also a missing one; of several types, the one that fits best."""
    error = min(errors, key=lambda e: (e["type"] != "extra_forbidden", -len(_path_in_data(e, data))))
    kind, path = error["type"], _path_in_data(error, data)
    if kind == "value_error":
        path, what, fix = _broken_rule(error, path, changed)
    elif kind == "extra_forbidden":
        what, fix = _unknown_key(error["loc"], path, section)
    elif kind == "union_tag_not_found" and (slips := difflib.get_close_matches("type", error["input"], n=1)):
        path, what, fix = (*path, slips[0]), "unknown key", "did you mean 'type'?"
    else:
        path = (*path, "type") if kind.startswith("union_tag") else path
        what, fix = _what_and_fix(error, path, section)
        if kind == "literal_error":  # a word or, of another type, something else
            others = [other for other in errors if other is not error and _path_in_data(other, data) == path]
            fix = " or ".join([fix, *(_what_and_fix(other, path, section)[1] for other in others)])
    return ConfigError(_where(path, places), what, fix)


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


def _unknown_key(location: Path, path: Path, section: type[Section]) -> tuple[str, str]:
    key, known = str(path[-1]), list(_schema_at(location[:-1], section)["properties"])
    siblings = _schema_at(location[:-2], section).get("discriminator", {}).get("mapping", {})
    types = [name for name in siblings if key in _schema_at((*location[:-2], name), section)["properties"]]
    if types:
        example = f"{'.'.join(map(str, path[:-1]))}='{{type: {types[0]}, {key}: ...}}'"
        return "unknown key for this type", f"set type: {' or '.join(types)}, as {shortened(example)}"
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return "unknown key", f"did you mean {close[0]!r}?" if close else f"the keys here are {', '.join(known)}"


def _what_and_fix(error: ErrorDetails, path: Path, section: type[Section]) -> tuple[str, str]:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing" and isinstance(error["loc"][-1], int):
        kind = "too_short"
    elif kind == "union_tag_not_found":
        context = {"choices": ", ".join(_schema_at(error["loc"], section)["discriminator"]["mapping"])}
    elif kind == "union_tag_invalid":
        value = value["type"]
    shown = shortened(reprlib.repr(value))
    if kind not in _WORDS:
        return f"{shown} is not accepted", error["msg"][0].lower() + error["msg"][1:]
    what, fix = (words.format(value=shown, key=path[-1] if path else "", **context) for words in _WORDS[kind])
    if kind.startswith("model_") and ":" in str(value):  # a shell has taken the braces
        fix += f", quoted: {dotted(path)}='{_EXAMPLE_OF_A_SECTION}'"
    return what, fix


@functools.cache
def _json_schema(section: type[Section]) -> dict[str, Any]:
    return section.model_json_schema()


def _schema_at(location: Path, section: type[Section]) -> dict[str, Any]:
    """The JSON Schema at a location as pydantic tells it, where the `type` follows the key of a section with types."""
    root = schema = _json_schema(section)
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
