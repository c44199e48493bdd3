"""Reads YAML into plain values, with the line of every key, and writes it so that it reads back equal.

Differs from PyYAML's defaults where those surprise: `3e-4` is a number, `yes` is a word, `010` is ten, a key may occur
only once, and there are no aliases and no tags: a file is plain data, and as small as it looks.
"""

import re
from typing import Any

import yaml

from pellucid.errors import ConfigError

try:
    from yaml import CSafeDumper as SafeDumper  # in C: four times as fast
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeDumper  # type: ignore[assignment]

Path = tuple[str | int, ...]
Places = dict[Path, str]  # the place of each key path, as errors name it: `configs/x.yaml:12`
MAX_CHARACTERS = 50_000  # PyYAML would take too long for more
FOR_A_TEXT = "is this the right file? To train on a text: `pellucid train own_text corpus.files=FILE`"
EXAMPLE_OF_A_SECTION = "{type: text, files: [a.txt]}"
_HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2's core schema, and without aliases and tags."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            problem = f"alias *{shortened(event.anchor)} found"
        elif event.tag is not None:
            problem = f"tag {shortened(event.tag)} found"
        elif self.check_event(yaml.ScalarEvent) and _HALF_A_CHARACTER.search(event.value):
            problem = "half of a surrogate pair found, which is no character"
        else:
            return super().compose_node(parent, index)
        raise yaml.composer.ComposerError(None, None, problem, event.start_mark)


class _Dumper(SafeDumper):
    """PyYAML's safe dumper, which also quotes text that only `_Loader` would read as a number, such as `1e5`."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if "\x85" in text else None  # an old line break, which would be read back as a space without quotes
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _loader, node: int(node.value.replace("_", "")))
_Loader.yaml_implicit_resolvers = {}
_NUMBER = r"\.[0-9]+|[0-9][0-9_]*\.[0-9_]*|[0-9][0-9_]*(?=[eE])"
for _tag, _pattern in {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9][0-9_]*",
    "float": rf"[-+]?({_NUMBER})([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}.items():
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), None)


def parse_yaml(text: str, source: str) -> tuple[Any, dict[Path, int]]:
    """The value of a YAML text, and the line (from 1) of each key path in it.

    Raises ConfigError, with source and line, for text that is not YAML, a repeated key, an alias or a foreign tag.
    """
    if len(text) > MAX_CHARACTERS:
        what = f"{len(text):,} characters are too many for a config (at most {MAX_CHARACTERS:,})"
        raise ConfigError(source, what, FOR_A_TEXT)
    lines: dict[Path, int] = {(): 1}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _construct(loader, node, (), lines, source), lines
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"the character U+{error.character:04X} may not stand in YAML"
        fix = "take it out and save as plain UTF-8 text"
    except (yaml.MarkedYAMLError, ValueError) as error:  # ValueError: an escape beyond the last character
        line = (getattr(error, "problem_mark", None) or loader.get_mark()).line + 1
        problem = shortened(getattr(error, "problem", None) or str(error), 120)
        what, fix = f"not readable as YAML: {problem}", "fix this line or the one above it"
    except RecursionError:
        line, what, fix = loader.line + 1, "nested too deeply", "a run config is three levels deep"
    raise ConfigError(f"{source}:{line}", what, fix)


def _construct(loader: _Loader, node: Any, path: Path, lines: dict[Path, int], source: str) -> Any:
    """The value of a node of YAML; the lines of its keys go into `lines`."""
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_construct(loader, item, (*path, i), lines, source) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        try:
            value = loader.construct_object(node)
        except ValueError:  # Python refuses numbers of more than 4,300 digits
            value = 2**64
        if isinstance(value, int) and abs(value) >= 2**63:
            where = f"{source}:{lines[path]}" + (f": {dotted(path)}" if path else "")
            raise ConfigError(where, "this number is too large", "give one of at most 18 digits")
        return value
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line, key = key_node.start_mark.line + 1, key_node.value
        if not isinstance(key, str):
            raise ConfigError(f"{source}:{line}", "a key must be a plain word", "write `key: value`")
        key_path = (*path, key)
        if key in values:
            what = f"this key appears twice, first on line {lines[key_path]}"
            raise ConfigError(f"{source}:{line}: {dotted(key_path)}", what, "keep one of the two")
        values[key] = _construct(loader, value_node, key_path, lines, source)
        lines[key_path] = line
    return values


def write_yaml(value: Any) -> str:
    """YAML that `parse_yaml` reads back to an equal value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def dotted(path: Path) -> str:
    """A key path as a dotted key: `("corpus", "files", 0)` becomes `corpus.files.0`."""
    return shortened(".".join(str(key) or "''" for key in path))


def shortened(text: str, most: int = 80) -> str:
    """Text cut to at most `most` characters, for an error's one line."""
    return text if len(text) <= most else text[: most - 1] + "…"
