"""Corpora drawn from a known language: documents on demand, split so that training never sees a held-out one."""

import math
import random
from collections.abc import Iterator
from functools import partial
from itertools import islice

from pellucid.corpora.corpus import Corpus, Piece, Split
from pellucid.errors import ConfigError, DataError
from pellucid.languages.language import Language

# Training skips what is held out, which changes its distribution unless that is a small part: this share at most.
MOST_HELD_OUT = 0.1


class Drawn(Corpus):
    """`size` documents of a language, of which round(size * validation_fraction), but at least one, are held out.

    A pure function of its arguments. Each split has its own random stream. Held-out documents all differ, and the
    training stream skips every one of them. What is true of a text is asked of `language`. Raises ConfigError.
    """

    def __init__(self, language: Language, size: int, seed: int, validation_fraction: float) -> None:
        self.language, self._kind = language, str(language.identity["type"])
        self._n_validation = n_held_out(size, validation_fraction, self._kind)
        self._size, self._seed, self._validation_fraction = size, seed, validation_fraction

    @property
    def identity(self) -> dict[str, object]:
        """All arguments, ready for JSON."""
        drawn = {"size": self._size, "seed": self._seed, "validation_fraction": self._validation_fraction}
        return {**self.language.identity, **drawn}

    def documents(self, split: Split) -> Iterator[str]:
        """The documents of a split, written on demand; each call starts over."""
        held_out = self._held_out()
        if split == "validation":
            return iter(held_out)
        new = (text for text in self._stream("train") if text not in held_out)
        return islice(new, self._size - self._n_validation)

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The documents of a split, each as one piece."""
        return (Piece(text, ends_document=True) for text in self.documents(split))

    def fresh(self, n: int, seed: int) -> list[str]:
        """n documents in neither split, as this seed draws them; the same for every corpus of the language.

        None is held out. That one was trained on, or drawn before, is improbable: else the language has too few
        documents, and a DataError says so.
        """
        held_out, rng = self._held_out(), random.Random(f"{self._kind} contest {seed}")
        new = (text for text in iter(lambda: self.language.write(rng), None) if text not in held_out)
        texts = list(islice(new, n))
        n_others = self._size - self._n_validation + n - 1
        share = math.fsum(1 - (1 - self._probability(text)) ** n_others for text in texts) / n
        if share > MOST_HELD_OUT:
            what = f"{share:.0%} of {n:,} new documents would be trained on or drawn before: the language has too few"
            raise DataError("the corpus", what, "take a run of a larger language")
        return texts

    def share_held_out(self) -> float:
        """How probable the held-out documents are in the language, all together."""
        return math.fsum(map(self._probability, self._held_out()))

    def too_small(self, n_new: int) -> dict[str, str]:
        """Why there are too few documents to train on, or for a contest on this many new ones; empty if enough."""
        reasons = dict[str, str]()
        for purpose, draw in (("to train on", self._held_out), ("for a contest", partial(self.fresh, n_new, seed=0))):
            try:
                draw()
            except DataError as error:
                reasons[purpose] = error.what
        return reasons

    def _held_out(self) -> dict[str, None]:
        texts: dict[str, None] = {}
        n_drawn = 0
        for text in self._stream("validation"):
            n_drawn += 1
            texts[text] = None
            if len(texts) == self._n_validation or n_drawn == 100 * self._n_validation:
                break
        if n_drawn > len(texts) or n_drawn <= 100:  # no repetition among more than 100: the language is large enough
            share = math.fsum(map(self._probability, texts))
            if share > MOST_HELD_OUT:
                what = f"{self._n_validation:,} held-out documents are {share:.0%} of all there can be"
                fix = "lower corpus.validation_fraction or corpus.size, or let the language have more documents"
                raise DataError("the corpus", what, fix)
        return texts

    def _stream(self, split: Split) -> Iterator[str]:
        # random.Random hashes a text seed with SHA-512: the same on every machine and Python.
        rng = random.Random(f"{self._kind} {self._seed} {split}")
        while True:
            yield self.language.write(rng)

    def _probability(self, text: str) -> float:
        return math.exp(self.language.log_probability(text))


def n_held_out(size: int, validation_fraction: float, documents: str = "documents") -> int:
    """The number of validation documents among `size`: at least one, but not all. Raises ConfigError."""
    if not 0 < validation_fraction < 1:
        what = f"{validation_fraction} leaves no training or no validation {documents}"
        raise ConfigError("corpus.validation_fraction", what, "choose a fraction between 0 and 1")
    number = max(1, round(size * validation_fraction))
    if size <= number:
        what = f"{size} {documents}, {number} of them for validation, leave none to train on"
        raise ConfigError("corpus.size", what, "make the size larger or the validation_fraction smaller")
    return number
