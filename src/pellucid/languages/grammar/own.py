"""A grammar of one's own, from a file: read, checked with lines, and ready as a language.

The notation is that of `notation`. The first rule of the file begins every text. A rule may name the skill of its
choices; without a name it is "choice". What fills a hole takes "recall".
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pellucid.config.shipped import find_rules
from pellucid.errors import DataError
from pellucid.files import read_at_most, require_regular
from pellucid.languages.grammar.checks import Checks
from pellucid.languages.grammar.entropy import MOST_STEPS, Mass, TooMuchToRememberError
from pellucid.languages.grammar.grammar import Grammar
from pellucid.languages.grammar.notation import RuleError, read_written, skills_of_holes
from pellucid.languages.grammar.skills import CHOICE, SkillReader
from pellucid.languages.grammar.texts import GrammarTexts
from pellucid.languages.language import SPELLING

# Part of every corpus's identity: raise it whenever the same rules give other texts.
NOTATION_VERSION = 1
MAX_BYTES = 1 << 20
RECALL = "recall"


class OwnGrammar(GrammarTexts):
    """The texts of the rules in `source`. Raises DataError, which names the line `where`:LINE.

    longest: no text has more characters. unused: the rules to which the first one never leads.
    """

    def __init__(self, source: str, where: str) -> None:
        try:
            written = read_written(source)
            checks = Checks(written)
            checks.check()
        except RuleError as error:
            raise DataError(f"{where}:{error.line}", error.what, error.fix) from None
        rules = hashlib.sha256(source.encode()).hexdigest()  # not where they are
        self.identity = {"type": "grammar", "notation_version": NOTATION_VERSION, "rules_sha256": rules}
        self.written, self.longest, self.unused, self._where = checks.written, checks.longest, checks.unused, where
        skill_of_rule = {rule.name: rule.skill for rule in self.written if rule.skill}
        self.grammar = Grammar(checks.options, checks.fixed, self.written[0].name)
        self.skill_reader = SkillReader(
            self.grammar, checks.options, skills_of_holes(written, otherwise=RECALL), skill_of_rule
        )
        named = (skill for rule in written for skill in (rule.skill, *rule.columns.values()) if skill)
        self.skills = tuple(dict.fromkeys((CHOICE, *named, RECALL, SPELLING)))

    @property
    def _mass(self) -> Mass:
        """Raises DataError if too much has to be remembered for an exact entropy."""
        try:
            return self.inside.whole
        except TooMuchToRememberError as error:
            line = next(rule.line for rule in self.written if rule.name == self.grammar.plain(error.rule))
            what = f"too much is remembered in {error.rule!r} to compute the entropy: more than {MOST_STEPS:,} cases"
            raise DataError(f"{self._where}:{line}", what, "remember less, or use it sooner") from None


def read_source(path: Path) -> str:
    """The text of a grammar's file, or of the shipped one of that name. Raises DataError."""
    try:
        file = find_rules(path)
        require_regular(file)
        return read_at_most(file, MAX_BYTES).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        raise DataError(f"{path}:{line}", "a character that is not UTF-8", "save the file as UTF-8") from None
    except OSError as error:
        raise DataError(str(path), error.strerror or str(error), "name a text file") from None
