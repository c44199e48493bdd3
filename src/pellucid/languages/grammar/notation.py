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

An option longer than a line continues on lines that are indented further. A rule may name the skill that it takes to
predict its choices, `weather: sky`; fables name none.
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


class RuleError(ValueError):
    """A line that does not follow the notation."""

    def __init__(self, line: int, what: str, fix: str) -> None:
        super().__init__(f"line {line}: {what}; {fix}")
        self.line, self.what, self.fix = line, what, fix


@dataclass
class WrittenOption:
    """An option as it stands in a text, from this line on."""

    line: int
    weight: float
    template: str


@dataclass
class WrittenRule:
    """A rule as it stands in a text: its line, its name, the skill of its choices if it names one, its options."""

    line: int
    name: str
    skill: str
    options: list[WrittenOption]


def read_rules(source: str) -> dict[str, tuple[Option, ...]]:
    """Read rules in the notation above. Raises RuleError for a line that does not follow it."""
    return {rule.name: tuple(map(read_option, rule.options)) for rule in read_written(source)}


def read_written(source: str) -> list[WrittenRule]:
    """The rules of a text, with their lines. Raises RuleError."""
    rules: dict[str, WrittenRule] = {}
    rule: WrittenRule | None = None
    for number, line in enumerate(source.splitlines(), start=1):
        text = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        if not text or text.startswith("#"):
            continue
        if line[indent] == "\t":
            raise RuleError(number, "a tab", "indent with spaces: four before an option")
        if indent == 0:
            name, _, skill = (part.strip() for part in text.partition(":"))
            if name in rules:
                raise RuleError(number, f"the rule {name!r} is written twice", f"see line {rules[name].line}")
            rule = rules[name] = WrittenRule(number, name, skill, [])
        elif rule is None:
            raise RuleError(number, "an option without a rule", "write the name of its rule above it, not indented")
        elif indent == 4:
            weight, _, template = text.partition(" ")
            rule.options.append(WrittenOption(number, _weight(weight, number), template))
        elif indent > 4 and rule.options:
            rule.options[-1].template += f" {text}"
        else:
            raise RuleError(number, f"{indent} spaces before an option", "indent it with four")
    for rule in rules.values():
        if not rule.options:
            what = f"the rule {rule.name!r} has no options"
            raise RuleError(rule.line, what, "write some below it: four spaces, a weight and a text")
    return list(rules.values())


def read_option(written: WrittenOption) -> Option:
    """The option that a text describes."""
    parts = read_template(written.template)
    plain = len(parts) == 1 and isinstance(parts[0], str)
    return Option(written.weight, parts, {"name": written.template} if plain else {})


def _weight(text: str, line: int) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise RuleError(line, f"{text!r} is no weight", "begin an option with a number above 0, such as 1")
    return weight


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
