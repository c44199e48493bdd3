"""The corpus of a grammar of one's own."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pellucid.config.shipped import find_rules
from pellucid.corpora.known import DrawnDocuments
from pellucid.languages.grammar.own import OwnGrammar, read_source

# Part of the corpus's identity: raise it whenever the same rules give other texts.
NOTATION_VERSION = 1


class GrammarCorpus(OwnGrammar, DrawnDocuments):
    """Texts of the rules in a file, split as in `DrawnDocuments`. Raises DataError for rules with a mistake."""

    def __init__(self, file: str, size: int, seed: int, validation_fraction: float) -> None:
        self._file, source = find_rules(Path(file)), read_source(Path(file))
        rules = hashlib.sha256(source.encode()).hexdigest()  # not where they are
        language = {"notation_version": NOTATION_VERSION, "rules_sha256": rules}
        DrawnDocuments.__init__(self, "grammar", language, size, seed, validation_fraction)
        OwnGrammar.__init__(self, source, file)

    def local_files(self) -> Sequence[Path]:
        return [self._file]
