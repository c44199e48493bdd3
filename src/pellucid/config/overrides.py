"""Changes of a config: `key=value` on the command line, an entry of an experiment, an argument in Python."""

import copy
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from pellucid.config.base import Section
from pellucid.config.read import OTHER_FILES
from pellucid.config.sections import keys_left_out, possible_at
from pellucid.config.yaml_source import EXAMPLE_OF_A_SECTION, Path, Places, dotted, parse_yaml, shortened
from pellucid.errors import ConfigError

COMMAND_LINE = "command line"
MAX_DEPTH = 8

Note = Callable[[str], None]


class Change(NamedTuple):
    """A key of a run config and its new value. place: the origin of the change, as errors name it."""

    path: Path
    value: Any
    place: str

    @property
    def key(self) -> str:
        """The dotted key: `model.n_layers`."""
        return ".".join(map(str, self.path))


def parse_override(override: str, place: str = COMMAND_LINE) -> Change:
    """The change in an override such as `optimizer.lr=3e-4`. Raises ConfigError if it lacks a dotted key or a value."""
    key, equals, text = override.partition("=")
    path: Path = tuple(key.strip().split("."))
    if not equals or not all(path) or override[0] in "'\"":
        raise ConfigError(place, f"{shortened(repr(override))} is not key=value", _way_to_write(override))
    try:
        is_plain = text[:1] in ("", "*")  # YAML would take a star for an alias, which no config has
        return Change(path, text if is_plain else parse_yaml(text, place)[0], place)
    except ConfigError as error:
        fix = error.fix
        if "*" in text and text[-1] in "]}":
            fix = f"""put single quotes around what begins with a star, as "{shortened(key)}=['*.txt']\""""
        elif text[0] in "{['":
            fix = f'if the shell has split it, quote all of it: "{shortened(key)}={EXAMPLE_OF_A_SECTION}"'
        elif error.what.startswith("not readable"):
            fix = "write one value after `=`, as optimizer.lr=3e-4"
        raise ConfigError(f"{place}: {dotted(path)}", error.what, fix) from None


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


def without_quotes(override: str) -> str | None:
    """The override without single quotes around its value, if it would then be more than a text: cmd.exe keeps them."""
    key, _, value = override.partition("=")
    if re.fullmatch("'[^']+'", value):
        inner = value[1:-1]
        with suppress(ConfigError):
            return None if isinstance(parse_yaml(inner, COMMAND_LINE)[0], str) else f"{key}={inner}"
    return None


def apply_changes(
    data: dict[str, Any], places: Places, changes: Sequence[Change], kind: type[Section], note: Note
) -> None:
    """Make changes, one after another, in the keys of a section and in their places.

    Where a type changes (`model.type=lstm`), the keys go that the new one lacks, but for those that are themselves
    changed; `note` receives them. Raises ConfigError for a key that cannot be there.
    """
    for change in changes:
        path, section = change.path, _section_of(change, data)
        if path[-1] == "type" and len(path) > 1:
            left_out = keys_left_out(section, change.value, possible_at(path[:-1], data, kind))
            left_out = [key for key in left_out if not any(_meet((*path[:-1], key), other.path) for other in changes)]
            for key in left_out:
                del section[key]
            if left_out:
                note(f"{change.key}={change.value} leaves out what another type has: {', '.join(left_out)}")
        section[str(path[-1])] = copy.deepcopy(change.value)  # a later change may modify it
        for old in [key for key in places if key[: len(path)] == path]:
            del places[old]
        for n in range(1, len(path) + 1):
            places.setdefault(path[:n], change.place)


def _section_of(change: Change, data: dict[str, Any]) -> dict[str, Any]:
    """The section whose key changes. One that is not there yet is made."""
    where = f"{change.place}: {dotted(change.path)}"
    if not all(change.path):
        raise ConfigError(where, "a part of this key is empty", "write section.key, as optimizer.lr")
    if len(change.path) > MAX_DEPTH:
        raise ConfigError(where, "nested too deeply", "a run config is three levels deep")
    for key in change.path[:-1]:
        data = data.setdefault(str(key), {})
        if not isinstance(data, dict):
            raise ConfigError(where, f"{shortened(str(key))!r} is a value, not a section", "leave out what follows it")
    return data


def _meet(one: Path, other: Path) -> bool:
    """Whether one of two keys is the other, or inside of it."""
    return all(a == b for a, b in zip(one, other, strict=False))
