"""A grammar of one's own, from a file: read, checked with lines, and ready as a language.

The notation is that of `notation`. The first rule of the file begins every text. A rule may name the skill of its
choices; without a name it is "choice". What fills a hole takes "recall".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from pellucid.errors import DataError
from pellucid.files import read_at_most, require_regular
from pellucid.languages.grammar.grammar import Grammar
from pellucid.languages.grammar.notation import (
    Choice,
    Hole,
    Option,
    RuleError,
    WrittenRule,
    capitalize,
    family,
    fixed_texts,
    read_options,
    read_written,
    skills_of_holes,
)
from pellucid.languages.grammar.skills import CHOICE, SkillReader
from pellucid.languages.grammar.texts import GrammarTexts
from pellucid.languages.known import SPELLING

MAX_BYTES = 1 << 20
RECALL = "recall"
Known = frozenset[tuple[str, str]]  # the variables, with their attributes, that have certainly been drawn


class OwnGrammar(GrammarTexts):
    """The texts of the rules in `source`. Raises DataError, which names the line `where`:LINE."""

    def __init__(self, source: str, where: str) -> None:
        try:
            written = read_written(source)
            checks = Checks(written)
            checks.check()
        except RuleError as error:
            raise DataError(f"{where}:{error.line}", error.what, error.fix) from None
        self.written = checks.written
        skill_of_rule = {rule.name: rule.skill for rule in self.written if rule.skill}
        self.grammar = Grammar(checks.options, checks.fixed, self.written[0].name)
        self.skill_reader = SkillReader(
            self.grammar, checks.options, skills_of_holes(written, otherwise=RECALL), skill_of_rule
        )
        named = (skill for rule in written for skill in (rule.skill, *rule.columns.values()) if skill)
        self.skills = tuple(dict.fromkeys((CHOICE, *named, RECALL, SPELLING)))

    @classmethod
    def read_file(cls, path: Path) -> OwnGrammar:
        """The grammar in a file. Raises DataError."""
        return cls(read_source(path), str(path))

    @property
    def unused(self) -> list[WrittenRule]:
        """The rules to which the first one never leads."""
        used, new = set(), [self.grammar.start.rule]
        while new:
            name = new.pop()
            if name not in used:
                used.add(name)
                new += [rule for option in self.grammar.source[name] for rule in used_by(option, self.grammar.source)]
        return [rule for rule in self.written if rule.name not in used]


def read_source(path: Path) -> str:
    """The text of a grammar's file. Raises DataError."""
    try:
        require_regular(path)
        return read_at_most(path, MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        raise DataError(f"{path}:{line}", "a character that is not UTF-8", "save the file as UTF-8") from None
    except OSError as error:
        raise DataError(str(path), error.strerror or str(error), "name a text file") from None


def used_by(option: Option, names: Iterable[str]) -> Iterator[str]:
    """The rules that an option uses; all that may follow a selector. Rules that do not exist are left out."""
    return (name for part in option.parts if isinstance(part, Choice) for name in family(part, names))


class Checks:
    """Finds what is wrong with rules before they are used."""

    def __init__(self, written: list[WrittenRule]) -> None:
        self.fixed = fixed_texts(written)
        self.written = [rule for rule in written if not rule.fixed]
        self.rules = {rule.name: rule for rule in self.written}
        self.options = {rule.name: read_options(rule) for rule in self.written}
        self.variables = self._variables()
        self._finished: set[str] = set()
        self._known_after: dict[tuple[str, Known], Known] = {}

    def check(self) -> None:
        """Raise RuleError for the first mistake."""
        if not self.written:
            raise RuleError(1, "there are no rules", "write some; docs/languages.md shows how")
        for rule in self.written:
            for written, option in zip(rule.options, self.options[rule.name], strict=True):
                if not option.parts:
                    raise RuleError(written.line, "an option without a text", "write one after its weight")
                self._marks(written.line, written.template)
                for part in option.parts:
                    if isinstance(part, Choice):
                        self._choice(written.line, part)
        self._ends(self.written[0].name, ())
        for rule in self.written:
            self._ends(rule.name, ())
        self._drawn(self.written[0].name, frozenset())
        for rule in self.written:
            self._begin_differently(rule)

    def _marks(self, line: int, template: str) -> None:
        """Every bracket is closed before another opens, and has something in it."""
        opened = ""
        for place, character in enumerate(template):
            if character in "[{" and not (opened == "[" and character == "{"):
                if opened:
                    raise RuleError(line, f"'{opened}' is not closed before {template[place:][:20]!r}", "close it")
                opened = character
            elif character == "]" or (character == "}" and opened != "["):
                if opened != {"]": "[", "}": "{"}[character]:
                    raise RuleError(line, f"{character!r} closes nothing", "open it, or leave it out")
                opened = ""
        if opened:
            raise RuleError(line, f"{opened!r} is not closed", f"add {'}' if opened == '{' else ']'!r}")
        if "[]" in template or "{}" in template:
            raise RuleError(line, "a bracket with nothing in it", "name a rule, or what was drawn")

    def _choice(self, line: int, choice: Choice) -> None:
        if not choice.rule:
            what = f"[{choice.variable}:] names no rule"
            raise RuleError(line, what, "write one after the colon")
        names = family(choice, self.rules)
        if not names:
            rule = choice.rule.removesuffix("=")
            near = get_close_matches(rule, self.rules, n=1)
            fix = f"did you mean {near[0]!r}?" if near else "write it"
            raise RuleError(line, f"there is no rule {rule!r}", fix)
        if choice.without:
            values = [option.attributes.get(choice.without.attribute) for option in self.options[names[0]]]
            if len(values) < 2:
                raise RuleError(line, f"[{choice.rule}!…] leaves no option", f"give the rule {names[0]!r} another one")
            if len(set(values)) < len(values):
                what = f"the {choice.without.attribute!r} after '!' does not tell the options of {names[0]!r} apart"
                raise RuleError(line, what, "name something that is different, and plain text, in each of them")

    def _ends(self, name: str, above: tuple[str, ...]) -> None:
        """No rule uses itself: texts could become longer and longer."""
        if name in above:
            way = " → ".join((*above[above.index(name) :], name))
            fix = "let it end: a rule may only use rules that do not lead back to it"
            raise RuleError(self.rules[name].line, f"the rule {name!r} uses itself ({way})", fix)
        if name not in self._finished:
            for option in self.options[name]:
                for used in used_by(option, self.rules):
                    self._ends(used, (*above, name))
            self._finished.add(name)

    def _drawn(self, name: str, known: Known) -> Known:
        """All that is certainly drawn after a rule. RuleError for a hole of what may not have been."""
        if (name, known) not in self._known_after:
            after = []
            for written, option in zip(self.rules[name].options, self.options[name], strict=True):
                now = known
                for part in option.parts:
                    if isinstance(part, Hole):
                        self._hole(written.line, part, now)
                    elif isinstance(part, Choice):
                        for hole in filter(None, (part.selector, part.without)):
                            self._hole(written.line, hole, now)
                        if part.selector:
                            self._selector(written.line, part, part.selector)
                        names = family(part, self.rules)
                        now = frozenset.intersection(*(self._drawn(rule, now) for rule in names))
                        if part.variable:
                            each = [option.attributes.keys() for name in names for option in self.options[name]]
                            now |= {(part.variable, attribute) for attribute in set.intersection(*map(set, each))}
                after.append(now)
            self._known_after[name, known] = frozenset.intersection(*after)
        return self._known_after[name, known]

    def _hole(self, line: int, hole: Hole, known: Known) -> None:
        if hole.variable in self.fixed:
            keys = self.fixed[hole.variable]
            if hole.attribute not in keys:
                raise RuleError(line, f"there is no fixed text {hole}", f"write {{{hole.variable}.{next(iter(keys))}}}")
            return
        if hole.variable not in self.variables:
            near = get_close_matches(hole.variable, self.variables, n=1)
            fix = f"did you mean {near[0]!r}?" if near else f"remember it: [{hole.variable}:RULE]"
            raise RuleError(line, f"nothing is called {hole.variable!r}", fix)
        self._values(line, hole)
        if (hole.variable, hole.attribute) not in known:
            fix = "draw it earlier, in every option that leads here"
            raise RuleError(line, f"{hole.variable!r} may not have been drawn yet where {hole} stands", fix)

    def _selector(self, line: int, choice: Choice, hole: Hole) -> None:
        """There is a rule, or a row, for every text that the hole can have."""
        table = choice.rule.removesuffix("=")
        texts = {option.parts[0] for option in self.options.get(table, ()) if option.parts and table != choice.rule}
        for value in self._values(line, hole):
            if choice.rule + value not in self.rules and value not in texts:
                what = f"{hole} may be {value!r}, and there is no "
                what += f"row {value!r} of {table!r}" if table != choice.rule else f"rule {choice.rule + value!r}"
                raise RuleError(line, what, "write one for each text of the hole")

    def _values(self, line: int, hole: Hole) -> set[str]:
        """The texts that a hole can have. RuleError if what is remembered does not have them all."""
        values: set[str] = set()
        drawn = [(rule, option) for rule in self.variables[hole.variable] for option in self.options[rule]]
        columns = {name for _, option in drawn for name in option.attributes}
        for rule in sorted({rule for rule, _ in drawn}):
            for written, option in zip(self.rules[rule].options, self.options[rule], strict=True):
                if not option.attributes:
                    what = f"{hole.variable!r} is drawn from {rule!r}, and this option of it is more than plain text"
                    raise RuleError(written.line, what, "only plain text can be remembered: write each text out")
                if hole.attribute in option.attributes:
                    values.add(option.attributes[hole.attribute])
        if not values:
            near = ", ".join(sorted(columns))
            raise RuleError(
                line, f"{hole} has no {hole.attribute!r}", f"give a table that column, or take one of: {near}"
            )
        return values

    def _variables(self) -> dict[str, set[str]]:
        """The rules from which each variable is drawn."""
        variables: dict[str, set[str]] = {}
        for options in self.options.values():
            for part in (part for option in options for part in option.parts):
                if isinstance(part, Choice) and part.variable:
                    variables.setdefault(part.variable, set()).update(family(part, self.options))
        return variables

    def _begin_differently(self, rule: WrittenRule) -> None:
        """No option begins with the whole beginning of another: the text would not tell which was drawn."""
        if len(rule.options) == 1:
            return
        beginnings = sorted(
            (beginning, written.line)
            for written, option in zip(rule.options, self.options[rule.name], strict=True)
            for beginning in self._beginnings(option)
        )
        for (shorter, line), (longer, other_line) in pairwise(beginnings):
            if longer.startswith(shorter):
                what = f"this option of {rule.name!r} and that of line {min(line, other_line)} both begin with "
                fix = "make their first words differ, or move what they share into the rule that uses them"
                raise RuleError(max(line, other_line), f"{what}{shorter[:40]!r}", fix)

    def _beginnings(self, option: Option, capital: bool = False) -> Iterator[str]:
        """The texts up to the first choice, of an option and of all that begin it."""
        first, *rest = option.parts or ("",)
        if isinstance(first, Choice) and not first.selector and not first.without:
            name = self._plain(first.rule)
            for inner in self.options[name]:
                yield from self._beginnings(Option(1.0, (*inner.parts, *rest)), capital or name != first.rule)
            return
        opening = ""
        for part in option.parts:
            if isinstance(part, Choice):
                break
            opening += str(part)
        yield capitalize(opening) if capital else opening

    def _plain(self, name: str) -> str:
        return name if name in self.rules else name[:1].lower() + name[1:]
