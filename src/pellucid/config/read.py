"""Reads a section from a YAML file, or says in one line what is wrong, and where."""

import difflib
import errno
from collections.abc import Collection
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import ValidationError

from pellucid.config.base import Section
from pellucid.config.shipped import DEMO, find_config, find_run, shipped_configs
from pellucid.config.yaml_source import FOR_A_TEXT, MAX_CHARACTERS, Path, Places, parse_yaml, shortened
from pellucid.errors import ConfigError
from pellucid.files import read_at_most

OTHER_FILES = {  # by suffix: the kind of file, and what it is for
    ".txt": ("a text", "to train on it: `pellucid train own_text corpus.files={file}`"),
    ".rules": ("a grammar", "`pellucid language {file}` describes it, and says how to train on its texts"),
}
KINDS = (  # keys that only this kind of file has, what it is, and what it is for
    ({"corpus", "optimizer", "schedule", "train"}, "the config of one run", "run it with `pellucid train`"),
    ({"question", "base", "grid", "figures"}, "an experiment", "run it with `pellucid experiment`"),
    ({"minutes", "stops"}, "a tour of the page", "play it with `pellucid serve RUN --tour FILE`"),
)

AnySection = TypeVar("AnySection", bound=Section)


def read_section(kind: type[AnySection], file: FilePath) -> tuple[AnySection, Places]:
    """A section from a file, and the place of each of its keys.

    Raises ConfigError with file, line and key, and a suggestion for a slip.
    """
    file = find_config(file)
    data, places = read_keys(kind, read_text(file), str(file))
    return validated(kind, data, places), places


def read_keys(kind: type[Section], text: str, source: str) -> tuple[dict[str, Any], Places]:
    """The keys in a text that is to be a section, and their places. Raises ConfigError for another kind of file."""
    data, lines = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise ConfigError(source, "no `key: value` lines found", "start from a file in configs/")
    [(own_keys, expected)] = [(keys, what) for keys, what, _ in KINDS if keys & kind.model_fields.keys()]
    for keys, what, fix in KINDS:
        if keys & data.keys() and not own_keys & data.keys():
            raise ConfigError(source, f"this is {what}, not {expected}", fix)
    return data, {path: f"{source}:{line}" for path, line in lines.items()}


def validated(
    kind: type[AnySection], data: dict[str, Any], places: Places, changed: Collection[Path] = ()
) -> AnySection:
    """The section with these keys. Raises ConfigError with the place of what is wrong."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        from pellucid.config.faults import explain  # most configs have none

        raise explain(error.errors(), data, places, kind, changed) from None


def read_text(file: FilePath) -> str:
    """The text of a config. Raises ConfigError for what is no config, with what it is for or what may be meant."""
    if find_run(file) == DEMO:
        raise ConfigError(str(file), "this is a trained run, not a config", "its config is `fables`")
    if file.is_dir():
        what, fix = "a folder", "name a YAML file, or one of `pellucid configs`"
        if (own := file / "config.yaml").is_file():
            what = "the folder of a run"
            fix = f"its config is {own}; to go on with it: `pellucid train {own} --run-dir {file} --resume`"
        raise ConfigError(str(file), f"this is {what}, not a config", fix)
    if file.suffix.lower() in OTHER_FILES:
        kind, fix = OTHER_FILES[file.suffix.lower()]
        what, first = (f"this is {kind}, not a config", "") if file.is_file() else ("no such file", "check the path; ")
        raise ConfigError(str(file), what, first + fix.format(file=file))
    try:
        return read_at_most(file, 4 * MAX_CHARACTERS).decode("utf-8")
    except FileNotFoundError:
        names = ", ".join(sorted(str(path) for path in file.parent.glob("*.yaml") if path.name[0] != "."))
        name = file.with_suffix("").as_posix().removeprefix("configs/").lower()
        shipped = [name for name, _ in shipped_configs()]
        close = [each for each in shipped if each.endswith(f"/{name}")] or difflib.get_close_matches(name, shipped, n=1)
        fix = "choose one of `pellucid configs`" + (f", or of those there: {shortened(names, 200)}" if names else "")
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
