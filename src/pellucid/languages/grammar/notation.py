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
    \n, \s               a new line; a blank where it would be lost, at the edge of a cell

A rule whose name is followed by columns is a table. Its texts are plain; the columns are remembered with them:

    animal.kind | call: fact | rival
        1 fox | yapped | crow
        1/2 crow | cawed | fox

    [hero:animal]        draw; then {hero.kind} is the text, and {hero.call} what stands beside it
    [foe:animal={hero.rival}]   remember the row of that text, and write nothing

Without `.kind` the text is remembered as `name`, unless there is a column `name`.

These are fixed texts, of which {moral.work} writes one:

    {moral}: moral
        work | Gather in the sun, and you need not fear the snow.

An option longer than a line continues on lines that are indented further. A rule may name the skill that it takes to
predict its choices, `weather: sky`; a column and fixed texts, that of their holes.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

_MARKS = re.compile(r"\[([^\[\]]+)\]|\{([^{}]+)\}")  # a choice may hold a hole, so choices are looked for first
# Far from where a sum of weights overflows, or a product of probabilities becomes 0.
LEAST_WEIGHT, MOST_WEIGHT = 1e-9, 1e9


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
    """Draw an option of `rule` (its name ends with the text of `selector`, if there is one).

    The rule `animal=fox` is a row of the table `animal`: nothing is drawn or written.
    """

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
    """A rule as it stands in a text: its line, its name, the skill of its choices if it names one, its options.

    columns: the names of a table's columns, and the skill of the holes that they fill, or "". text_as: the name under
    which the text is remembered.
    """

    line: int
    name: str
    skill: str
    options: list[WrittenOption]
    columns: Mapping[str, str] = field(default_factory=dict)
    text_as: str = "name"

    @property
    def fixed(self) -> str:
        """The name of the variable whose fixed texts these are; "" if they are options of a rule."""
        return self.name[1:-1] if self.name.startswith("{") else ""


def read_rules(source: str) -> dict[str, tuple[Option, ...]]:
    """Read rules in the notation above. Raises RuleError for a line that does not follow it."""
    return {rule.name: read_options(rule) for rule in read_written(source) if not rule.fixed}


def fixed_texts(written: Iterable[WrittenRule]) -> dict[str, dict[str, str]]:
    """The fixed texts: variable -> key -> text. Raises RuleError for a key that is written twice."""
    texts: dict[str, dict[str, str]] = {}
    for rule in (rule for rule in written if rule.fixed):
        of_key = texts[rule.fixed] = {}
        for option in rule.options:
            key, text = cells_of(option, 2)
            if key in of_key:
                raise RuleError(option.line, f"the key {key!r} of {rule.name} is written twice", "rename one of them")
            of_key[key] = text
    return texts


def skills_of_holes(written: Iterable[WrittenRule], otherwise: str) -> Callable[[Hole], str]:
    """The skill of knowing the text of a hole, as fixed texts and columns name it."""
    of_column: dict[str, str] = {}
    of_variable: dict[str, str] = {}
    for rule in written:
        of_column |= {name: skill for name, skill in rule.columns.items() if skill}
        if rule.fixed and rule.skill:
            of_variable[rule.fixed] = rule.skill
    return lambda hole: of_variable.get(hole.variable) or of_column.get(hole.attribute, otherwise)


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
            rule = _read_heading(text, number)
            if rule.name in rules:
                what = f"the rule {rule.name!r} is written twice"
                raise RuleError(number, what, f"see line {rules[rule.name].line}")
            rules[rule.name] = rule
        elif rule is None:
            raise RuleError(number, "an option without a rule", "write the name of its rule above it, not indented")
        elif indent == 4 and rule.fixed:
            rule.options.append(WrittenOption(number, 1.0, text))
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


def _read_heading(text: str, line: int) -> WrittenRule:
    if re.match(r"[\d./]+\s", text):
        raise RuleError(line, f"{text[:20]!r} looks like an option, but is not indented", "put four spaces before it")
    heading, *columns = text.split("|")
    name, _, skill = (part.strip() for part in heading.partition(":"))
    text_as = "name"
    if columns:
        name, _, text_as = name.partition(".")
    skills = {column.partition(":")[0].strip(): column.partition(":")[2].strip() for column in columns}
    if not name or "" in skills or len(skills) < len(columns):
        raise RuleError(
            line, f"{text!r} names a rule or column not at all, or a column twice", "give each its own name"
        )
    return WrittenRule(line, name, skill, [], skills, text_as or "name")


def read_options(rule: WrittenRule) -> tuple[Option, ...]:
    """The options of a rule. Raises RuleError for a row that does not fit its table."""
    return tuple(_read_option(rule, option) for option in rule.options)


def _read_option(rule: WrittenRule, written: WrittenOption) -> Option:
    text, *cells = cells_of(written, 1 + len(rule.columns)) if rule.columns else [written.template]
    parts = read_template(text)
    if len(parts) == 1 and isinstance(parts[0], str):
        return Option(written.weight, parts, {rule.text_as: parts[0], **dict(zip(rule.columns, cells, strict=True))})
    if rule.columns:
        raise RuleError(written.line, f"{text!r} cannot be a row of a table", "begin a row with plain text")
    return Option(written.weight, parts, {})


def cells_of(written: WrittenOption, n: int) -> list[str]:
    """The n cells of a row. RuleError if there are more or fewer."""
    cells = [_plain(cell.strip()) for cell in written.template.split("|")]
    if len(cells) != n:
        raise RuleError(written.line, f"{len(cells)} cells, separated by '|', where {n} belong", f"write {n}")
    return cells


def _plain(text: str) -> str:
    return text.replace(r"\n", "\n").replace(r"\s", " ")


def _weight(text: str, line: int) -> float:
    """The weight: a number above 0, or a fraction such as 1/3."""
    numerator, slash, denominator = text.partition("/")
    try:
        weight = float(numerator) / float(denominator if slash else 1)
    except (ValueError, ZeroDivisionError):
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise RuleError(line, f"{text!r} is not a weight", "begin an option with a number above 0 and a blank")
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise RuleError(
            line, f"the weight {text} is out of range", f"choose one from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
        )
    return weight


def read_template(template: str) -> tuple[Part, ...]:
    """Split a template into plain text, choices and holes."""
    template = _plain(template)
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
    return Hole(variable[:1].lower() + variable[1:], attribute or "name", capital=variable[:1].isupper())


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


def family(choice: Choice, names: Collection[str]) -> list[str]:
    """The rules from which a choice may draw or remember, of these names; for a selector, those of all its texts."""
    if choice.selector:
        return [name for name in names if name.startswith(choice.rule) or name + "=" == choice.rule]
    return [name for name in (choice.rule, choice.rule[:1].lower() + choice.rule[1:]) if name in names][:1]


def used_by(option: Option, names: Collection[str]) -> Iterator[str]:
    """The rules that an option uses; all that may follow a selector. Rules that do not exist are left out."""
    return (name for part in option.parts if isinstance(part, Choice) for name in family(part, names))


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


def filled(parts: Sequence[Part], hole: Hole, text: str) -> tuple[Part, ...]:
    """The parts with this text in all holes for the same attribute."""
    texts = {replace(hole, capital=False): text, replace(hole, capital=True): capitalize(text)}
    return join_text([texts.get(part, part) if isinstance(part, Hole) else part for part in parts])
