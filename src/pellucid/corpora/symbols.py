"""Corpora of the languages of symbols: documents with their exact distribution."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pellucid.corpora.corpus import Split
from pellucid.corpora.known import DrawnDocuments
from pellucid.errors import DataError
from pellucid.languages.known import Decided, NextWord, WordLength
from pellucid.languages.sums import Sums
from pellucid.languages.symbols import SymbolLanguage, text_of

# Part of the corpora's identity: raise it whenever a document of one of these languages or its probability changes.
SYMBOLS_VERSION = 1
MOST_HELD_OUT_SUMS = 20_000  # documents: of three digits there are 300,000, and their truth would take an hour


class SymbolCorpus(DrawnDocuments):
    """Documents of a language of symbols. settings: those of the language, for the identity."""

    def __init__(
        self,
        language: SymbolLanguage[Any],
        settings: Mapping[str, object],
        *,
        kind: str,
        size: int,
        seed: int,
        validation_fraction: float,
    ) -> None:
        super().__init__(kind, {"symbols_version": SYMBOLS_VERSION, **settings}, size, seed, validation_fraction)
        self.language, self.skills = language, language.skills

    def write(self, rng: random.Random) -> str:
        return self.language.write(rng)

    def log_probability(self, text: str) -> float:
        return self.language.log_probability(text)

    def words_of(self, text: str, word_length: WordLength) -> Iterator[tuple[str, Mapping[NextWord, float]]]:
        return self.language.words_of(text, word_length)

    def words_on(self, prefix: str, word_length: WordLength) -> Mapping[NextWord, float]:
        return self.language.words_on(prefix, word_length)

    def next_character_distribution(self, prefix: str) -> Mapping[str, float]:
        return self.language.next_character_distribution(prefix)

    def skills_of(self, text: str) -> Sequence[int]:
        return self.language.skills_of(text)

    def decided_pieces(self, text: str) -> Sequence[Decided]:
        return self.language.decided_pieces(text)

    def likeliest(self, beginning: str) -> str:
        return self.language.likeliest(beginning)


class SumsCorpus(SymbolCorpus):
    """Sums. There are too few to draw ever new ones, so the pairs of numbers are split, not the documents.

    A share of all pairs is held out, each once, in random order; training draws from the others, again and again.
    Validation takes no more than MOST_HELD_OUT_SUMS of those that are held out.
    """

    language: Sums

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self._validation_fraction * self.language.n_pairs > MOST_HELD_OUT_SUMS:
            self.identity["most_held_out"] = MOST_HELD_OUT_SUMS

    def documents(self, split: Split) -> Iterator[str]:
        """The sums of a split, written on demand; each call starts over."""
        rng = random.Random(f"{self._kind} {self._seed}")
        pairs = self.language.pairs()
        rng.shuffle(pairs)
        n = max(1, round(len(pairs) * self._validation_fraction))
        chosen = pairs[: min(n, MOST_HELD_OUT_SUMS)] if split == "validation" else rng.choices(pairs[n:], k=self._size)
        return (text_of(self.language.document(a, b)) for a, b in chosen)

    def fresh(self, n: int, seed: int) -> list[str]:
        """Raises DataError: the pairs are split, so nothing is left that is in neither split."""
        what = "the pairs of sums are split, and all that were not trained on are held out: there are no new ones"
        raise DataError("the corpus", what, "`pellucid evaluate` scores those that are held out")
