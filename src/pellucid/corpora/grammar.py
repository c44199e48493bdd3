"""The corpus of a grammar of one's own."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pellucid.corpora.known import DrawnDocuments
from pellucid.languages.grammar.own import OwnGrammar, read_source

# Part of the corpus's identity: raise it whenever the same rules give other texts.
NOTATION_VERSION = 1


class GrammarCorpus(OwnGrammar, DrawnDocuments):
    """Texts of the rules in a file, split as in `DrawnDocuments`. Raises DataError for rules with a mistake."""

    def __init__(self, file: str, size: int, seed: int, validation_fraction: float) -> None:
        DrawnDocuments.__init__(self, "grammar", size, seed, validation_fraction)
        self._file, source = Path(file), read_source(Path(file))
        self._sha256 = hashlib.sha256(source.encode()).hexdigest()
        OwnGrammar.__init__(self, source, file)

    @property
    def identity(self) -> dict[str, object]:
        """Everything the corpus depends on, ready for JSON: the rules, not where they are."""
        return {
            "type": "grammar",
            "notation_version": NOTATION_VERSION,
            "rules_sha256": self._sha256,
            "size": self._size,
            "seed": self._seed,
            "validation_fraction": self._validation_fraction,
        }

    def local_files(self) -> Sequence[Path]:
        return [self._file]
