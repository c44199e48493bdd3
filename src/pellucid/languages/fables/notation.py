r"""The notation for the rules of a story.

A rule is a name and, indented below it, its options: a weight and a template. To write a rule, draw one of its options.

    weather
        3 a warm wind came up
        1 snow fell on {hero.home}

In a template everything is plain text except

    [weather]            a choice: draw an option of the rule `weather` and write it here
    [Weather]            the same with a capital letter at its start
    [hero:animal]        draw, and remember what was drawn as `hero`
    [other:animal!hero.kind]   draw any except the one whose kind is the hero's
    [gift:some of {n}]   the name of the rule itself depends on what was said: `some of five`
    {hero.home}          a hole: an attribute of `hero`; no choice, the text is determined
    {Hero.he}            the same with a capital letter; {hero} is short for {hero.name}
    \n                   a new line

An option longer than a line continues on lines that are indented further.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_MARKS = re.compile(r"\[([^\]]+)\]|\{([^}]+)\}")  # a choice may hold a hole, so choices are looked for first


@dataclass(frozen=True)
class Hole:
    """Text that is determined by what was drawn before: an attribute of a remembered variable."""

    variable: str
    attribute: str
    capital: bool = False

    def __str__(self) -> str:
        return f"{{{capitalize(self.variable) if self.capital else self.variable}.{self.attribute}}}"


@dataclass(frozen=True)
class Choice:
    """Draw an option of `rule` (its name ends with the text of `selector`, if there is one)."""

    rule: str
    selector: Hole | None = None
    variable: str = ""
    without: Hole | None = None


@dataclass(frozen=True)
class Bind:
    """Remember `attributes` under `variable`; writes nothing."""

    variable: str
    attributes: Mapping[str, str] = field(hash=False)


Part = str | Hole | Choice | Bind


@dataclass(frozen=True)
class Option:
    """One way to write a rule. Only options of plain text carry attributes to be remembered."""

    weight: float
    parts: tuple[Part, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)


def table(rows: Iterable[tuple[float, str, Mapping[str, str]]]) -> tuple[Option, ...]:
    """Options of plain text: (weight, text, attributes)."""
    return tuple(Option(weight, (text,), attributes) for weight, text, attributes in rows)


def read_rules(source: str) -> dict[str, tuple[Option, ...]]:
    """Read rules in the notation above. Raises ValueError if a line does not follow it."""
    rules: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in source.splitlines():
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if not text or text.startswith("#"):
            continue
        if indent == 0:
            if text in rules:
                raise ValueError(f"the rule {text!r} is written twice")
            name, rules[text] = text, []
        elif indent == 4:
            weight, _, template = text.partition(" ")
            rules[name].append((weight, template))
        else:
            weight, template = rules[name][-1]
            rules[name][-1] = (weight, f"{template} {text}")
    return {name: tuple(_option(*option) for option in options) for name, options in rules.items()}


def _option(weight: str, template: str) -> Option:
    parts = read_template(template)
    plain = len(parts) == 1 and isinstance(parts[0], str)
    return Option(float(weight), parts, {"name": template} if plain else {})


def read_template(template: str) -> tuple[Part, ...]:
    """Split a template into plain text, choices and holes."""
    template = template.replace(r"\n", "\n")
    parts: list[Part] = []
    end = 0
    for mark in _MARKS.finditer(template):
        parts.append(template[end : mark.start()])
        parts.append(_read_choice(mark[1]) if mark[1] else _read_hole(mark[2]))
        end = mark.end()
    parts.append(template[end:])
    return join_text(parts)


def _read_hole(mark: str) -> Hole:
    variable, _, attribute = mark.partition(".")
    return Hole(variable[0].lower() + variable[1:], attribute or "name", capital=variable[0].isupper())


def _read_choice(mark: str) -> Choice:
    variable, colon, rule = mark.rpartition(":")
    rule, _, without = rule.partition("!")
    rule, _, selector = rule.partition("{")
    return Choice(
        rule,
        selector=_read_hole(selector.rstrip("}")) if selector else None,
        variable=variable if colon else "",
        without=_read_hole(without) if without else None,
    )


def join_text(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with neighbouring texts joined, and empty ones dropped."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)


def capitalize(text: str) -> str:
    """First letter upper case, the rest unchanged (str.capitalize would lower it)."""
    return text[:1].upper() + text[1:]
