"""Loads a config from a YAML file and `key=value` overrides, or says in one line what is wrong, and where."""

import copy
import difflib
import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from pellucid.config.base import Section
from pellucid.config.experiment import ExperimentConfig
from pellucid.config.faults import EXAMPLE_OF_A_SECTION, Places, explain
from pellucid.config.run import RunConfig, run_and_checkpoint, run_meant_by
from pellucid.config.section_types import keys_left_out
from pellucid.config.shipped import DEMO, find_config, find_run, shipped_configs
from pellucid.config.tour import TourConfig
from pellucid.config.yaml_source import FOR_A_TEXT, MAX_CHARACTERS, Path, dotted, parse_yaml, shortened, write_yaml
from pellucid.errors import CheckpointError, ConfigError
from pellucid.files import read_at_most

COMMAND_LINE = "command line"
OTHER_FILES = {  # by suffix: the kind of file, and what it is for
    ".txt": ("a text", "to train on it: `pellucid train own_text corpus.files={file}`"),
    ".rules": ("a grammar", "`pellucid language {file}` describes it, and says how to train on its texts"),
}
MAX_BYTES = 4 * MAX_CHARACTERS
MAX_DEPTH = 8

AnySection = TypeVar("AnySection", bound=Section)


Note = Callable[[str], None]


def _say_nothing(_line: str) -> None:
    pass


class Change(NamedTuple):
    """A key of a run config and its new value. place: the origin of the change, as errors name it."""

    path: Path
    value: Any
    place: str

    @property
    def key(self) -> str:
        """The dotted key: `model.n_layers`."""
        return ".".join(map(str, self.path))


class LoadedExperiment(NamedTuple):
    """An experiment, and the place of each of its keys, for the errors of its runs."""

    config: ExperimentConfig
    places: Places


def load_run_config(file: FilePath, changes: Iterable[str | Change] = (), note: Note = _say_nothing) -> RunConfig:
    """Read a run config and apply changes, such as the override `optimizer.lr=3e-4`, validated like the file.

    The last change of a key counts. A section that gets another type (`model.type=lstm`) keeps the keys that both
    have; `note` receives those left out. Raises ConfigError with file, line and key, and a suggestion for a slip.
    """
    file = find_config(file)
    return parse_run_config(_read(file), str(file), changes, note)


def parse_run_config(
    text: str, source: str, changes: Iterable[str | Change] = (), note: Note = _say_nothing
) -> RunConfig:
    """Read a run config from YAML text, as `load_run_config` does from a file. Errors call the text `source`."""
    changes = list(changes)
    parsed = [parse_override(change) if isinstance(change, str) else change for change in changes]
    for override in changes:
        if isinstance(override, str) and (meant := _without_quotes(override)):
            note(f'the value in {shortened(override)} is a text, quotes and all; if the shell kept them: "{meant}"')
    data, places = _sections(RunConfig, text, source)
    _take_from_base(data, places, parsed)
    changed_paths = {change.path for change in parsed}
    for change in parsed:
        if change.path[-1] == "type":
            _leave_out_keys_of_old_type(data, change, changed_paths, note)
        _apply(data, places, change)
    _read_old_model(data.get("model"), note)
    config = _validated(RunConfig, data, places, changed_paths)
    if len(run_config_to_yaml(config)) > MAX_CHARACTERS:  # a run must be able to read the config that it wrote
        what = f"more than {MAX_CHARACTERS:,} characters once it is written out"
        raise ConfigError(source, what, "name fewer files, by globs for example")
    return config


def load_experiment(file: FilePath) -> LoadedExperiment:
    """Read an experiment. Raises ConfigError as `load_run_config` does. The configs of its runs are not checked."""
    file = find_config(file)
    data, places = _sections(ExperimentConfig, _read(file), str(file))
    return LoadedExperiment(_validated(ExperimentConfig, data, places), places)


def load_tour(file: FilePath) -> TourConfig:
    """Read a tour of the page. Raises ConfigError as `load_run_config` does."""
    file = find_config(file)
    data, places = _sections(TourConfig, _read(file), str(file))
    return _validated(TourConfig, data, places)


def _sections(kind: type[Section], text: str, source: str) -> tuple[dict[str, Any], Places]:
    """The keys of a file, and their places. ConfigError for an experiment instead of a run, or vice versa."""
    data, lines = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise ConfigError(source, "no `key: value` lines found", "start from a file in configs/")
    runs, experiments = RunConfig.model_fields.keys(), ExperimentConfig.model_fields.keys()
    n_of_run, n_of_experiment = len(data.keys() & (runs - experiments)), len(data.keys() & (experiments - runs))
    if kind is RunConfig and n_of_experiment > n_of_run:
        raise ConfigError(source, "this is an experiment, not the config of a run", "run it with `pellucid experiment`")
    if kind is ExperimentConfig and n_of_run > n_of_experiment:
        raise ConfigError(source, "this is the config of one run, not an experiment", "run it with `pellucid train`")
    return data, {path: f"{source}:{line}" for path, line in lines.items()}


def _validated(
    section: type[AnySection], data: dict[str, Any], places: Places, changed: Iterable[Path] = ()
) -> AnySection:
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise explain(error.errors(), data, places, section, changed) from None


def run_config_to_yaml(config: RunConfig) -> str:
    """The complete config, with defaults, as YAML that `load_run_config` reads back to an equal config."""
    return write_yaml(config.model_dump(mode="json"))


def _read(file: FilePath) -> str:
    if find_run(file) == DEMO:
        raise ConfigError(str(file), "this is a trained run, not a config", "its config is `fables`")
    if file.is_dir():
        what, fix = "a folder", "name a YAML file, or one of `pellucid configs`"
        if (own := file / "config.yaml").is_file():
            what = "the folder of a run"
            fix = f"its config is {own}; to go on with it: `pellucid train {own} --run-dir {file} --resume`"
        raise ConfigError(str(file), f"this is {what}, not a config", fix)
    if file.suffix in OTHER_FILES and file.is_file():
        what, fix = OTHER_FILES[file.suffix]
        raise ConfigError(str(file), f"this is {what}, not a config", fix.format(file=file))
    try:
        return read_at_most(file, MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        names = ", ".join(sorted(str(path) for path in file.parent.glob("*.yaml") if path.name[0] != "."))
        name = file.with_suffix("").as_posix().removeprefix("configs/").lower()
        close = difflib.get_close_matches(name, [name for name, _ in shipped_configs()], n=1)
        fix = "choose one of `pellucid configs`"
        fix = f"{fix}, or of those there: {shortened(names, 200)}" if names else fix
        fix = f"did you mean {close[0]!r}?" if close else fix
        raise ConfigError(str(file), "no such file", fix) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}", f"byte {error.start} is not UTF-8", "save it as UTF-8 text") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise ConfigError(str(file), f"{error.strerror} are too much for a config", FOR_A_TEXT) from None
        what = f"cannot be read: {error.strerror}"
        raise ConfigError(str(file), what, "name a YAML file that you may read") from None


def parse_override(override: str) -> Change:
    """The change in an override such as `optimizer.lr=3e-4`. Raises ConfigError if it lacks a dotted key or a value."""
    key_text, equals, value_text = override.partition("=")
    path: Path = tuple(key_text.strip().split("."))
    if not equals or not all(path) or override[0] in "'\"":
        raise ConfigError(COMMAND_LINE, f"{shortened(repr(override))} is not key=value", _way_to_write(override))
    try:
        is_glob = value_text.startswith("*")  # YAML would take the star for an alias, which no config has
        value, _ = (value_text, {}) if is_glob or not value_text else parse_yaml(value_text, COMMAND_LINE)
    except ConfigError as error:
        fix = error.fix
        if error.what.startswith("not readable"):
            fix = "write one value after `=`, as optimizer.lr=3e-4"
        if "*" in value_text and value_text[-1] in "]}":  # YAML takes a star for an alias
            fix = f"""put single quotes around what begins with a star, as "{shortened(key_text)}=['*.txt']\""""
        elif value_text[0] in "{['":
            fix = f'if the shell has split it, quote all of it: "{shortened(key_text)}={EXAMPLE_OF_A_SECTION}"'
        raise ConfigError(f"{COMMAND_LINE}: {dotted(path)}", error.what, fix) from None
    return Change(path, value, COMMAND_LINE)


def _way_to_write(override: str) -> str:
    """Advice for what is not key=value: a file or a folder to train on, or what a shell has not taken apart."""
    suffix = FilePath(override).suffix
    if os.path.isdir(override):
        return f'to train on the files in it: "corpus.files={override}/*.txt"'
    if suffix in OTHER_FILES or os.path.isfile(override):
        return f"to train on this file: {'corpus.file' if suffix == '.rules' else 'corpus.files'}={override}"
    if override[:1] in ("'", '"'):
        return 'your shell has kept its quote: put double ones around all of it, as "optimizer.lr=3e-4"'
    return "write it without spaces, as optimizer.lr=3e-4"


def _without_quotes(override: str) -> str | None:
    """The override without single quotes around its value, if it would then be more than a text: cmd.exe keeps them."""
    key, _, value = override.partition("=")
    inner = value[1:-1]
    if len(value) < 3 or (value[0], value[-1]) != ("'", "'") or "'" in inner:
        return None
    with suppress(ConfigError):
        if not isinstance(parse_yaml(inner, COMMAND_LINE)[0], str):
            return f"{key}={inner}"
    return None


def _take_from_base(data: dict[str, Any], places: Places, changes: list[Change]) -> None:
    """Fill in missing `tokenizer`, `quantization` and keys of `model` from the run that this one starts from.

    Raises CheckpointError if they are needed and there is no such run.
    """
    changed_sections = {change.path[0]: change.value for change in changes if len(change.path) == 1}
    start_from = changed_sections.get("start_from", data.get("start_from"))
    missing = {"model", "tokenizer"} - data.keys() - changed_sections.keys()
    is_partial = isinstance(data.get("model"), dict) and "model" not in changed_sections
    if not isinstance(start_from, str) or not start_from or not (missing or is_partial):
        return
    run, _ = run_and_checkpoint(start_from)
    folders = [run, *sorted(run.glob("step-*"), reverse=True)]  # a run may have been copied without its own two files
    file, tokenizer = (
        next((folder / name for folder in folders if (folder / name).is_file()), None)
        for name in ("config.yaml", "tokenizer.json")
    )
    if file is None and not missing:
        return  # the section is complete: the run was copied away from its base
    if file is None:
        what = "no checkpoint here" if run.is_dir() else "no such run"
        meant = run_meant_by(run)
        fix = "train it first, or name another run; a run that has begun resumes from its own config.yaml"
        fix = f"did you mean {meant}?" if meant else fix
        raise CheckpointError(str(run), what, fix)
    base, _ = _sections(RunConfig, _read(file), str(file))
    tokenizer = tokenizer or file.with_name("tokenizer.json")
    copied = {"model": base.get("model"), "tokenizer": {"type": "file", "path": tokenizer.as_posix()}}
    if base.get("adapter") is None and "quantization" not in data.keys() | changed_sections.keys():
        missing.add("quantization")  # weights with an adapter are merged, and no longer quantized
        copied["quantization"] = base.get("quantization", "none")
    for key in sorted(missing):
        data[key], places[(key,)] = copied[key], str(file)
    if is_partial and isinstance(copied["model"], dict):
        own_type = data["model"].get("type", "decoder")
        if own_type == copied["model"].get("type", "decoder"):
            data["model"] = {**copied["model"], **data["model"]}


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
    section[str(path[-1])] = copy.deepcopy(change.value)  # a later change may modify it
    for old in [key for key in places if key[: len(path)] == path]:
        del places[old]
    for n in range(1, len(path) + 1):
        places.setdefault(path[:n], place)


def _read_old_model(model: Any, note: Note) -> None:
    """Until November 2026 a model section said which of two forms of its functions it used."""
    if isinstance(model, dict) and model.pop("kernels", None) is not None:
        note("model.kernels has no effect any more: what is written in model/ is what runs")
    if isinstance(model, dict) and model.get("attention") == "auto":
        model["attention"] = "explicit"
        note("model.attention: auto is read as explicit; fused is faster for long texts and on GPUs")


def _leave_out_keys_of_old_type(data: dict[str, Any], change: Change, paths: set[Path], note: Note) -> None:
    """Remove keys that the new type lacks (`model.type=lstm`), except those that are themselves changed."""
    path = change.path[:-1]
    section: Any = data
    for key in path:
        section = section.get(str(key)) if isinstance(section, dict) else None
    if not isinstance(section, dict) or not path:
        return
    stay = {key for key in section for other in paths if all(a == b for a, b in zip((*path, key), other, strict=False))}
    left_out = [key for key in keys_left_out(path, data, change.value, RunConfig) if key not in stay]
    for key in left_out:
        del section[key]
    if left_out:
        note(f"{change.key}={change.value} leaves out what another type has: {', '.join(left_out)}")
