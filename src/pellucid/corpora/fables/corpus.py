"""The Fables corpus: any number of fables, split so that training never sees a validation fable."""

import random
from collections.abc import Iterator
from itertools import islice

from pellucid.corpora.corpus import Piece, Split
from pellucid.corpora.fables.distribution import GRAMMAR_VERSION, Fables
from pellucid.corpora.fables.grammar import Rules
from pellucid.errors import ConfigError


class FablesCorpus(Fables):
    """`size` fables, of which round(size * validation_fraction), but at least one, are for validation.

    A pure function of its arguments and of GRAMMAR_VERSION. Each split has its own random stream. Validation fables
    all differ, and the training stream skips every one of them. Raises ConfigError.
    """

    def __init__(
        self, size: int, world_size: int, seed: int, validation_fraction: float, rules: Rules | None = None
    ) -> None:
        self._n_validation = n_held_out(size, validation_fraction)
        super().__init__(world_size, rules)
        self._size, self._seed, self._validation_fraction = size, seed, validation_fraction

    @property
    def identity(self) -> dict[str, object]:
        """Everything the corpus depends on, ready for JSON."""
        return {
            "type": "fables",
            "grammar_version": GRAMMAR_VERSION,
            "size": self._size,
            "world_size": self.world_size,
            "seed": self._seed,
            "validation_fraction": self._validation_fraction,
        }

    def documents(self, split: Split) -> Iterator[str]:
        """The fables of a split, written on demand; each call starts over."""
        held_out: dict[str, None] = {}
        for text in self._stream("validation"):
            held_out[text] = None
            if len(held_out) == self._n_validation:
                break
        if split == "validation":
            return iter(held_out)
        new = (text for text in self._stream("train") if text not in held_out)
        return islice(new, self._size - self._n_validation)

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The fables of a split, each as one piece."""
        return (Piece(text, ends_document=True) for text in self.documents(split))

    def _stream(self, split: Split) -> Iterator[str]:
        # random.Random hashes a text seed with SHA-512: the same on every machine and Python.
        rng = random.Random(f"fables {self._seed} {split}")
        while True:
            yield self.write(rng)


def n_held_out(size: int, validation_fraction: float, documents: str = "fables") -> int:
    """The number of validation documents among `size`: at least one, but not all. Raises ConfigError."""
    if not 0 < validation_fraction < 1:
        what = f"{validation_fraction} leaves no training or no validation {documents}"
        raise ConfigError("corpus.validation_fraction", what, "choose a fraction between 0 and 1")
    number = max(1, round(size * validation_fraction))
    if size <= number:
        what = f"{size} {documents}, {number} of them for validation, leave none to train on"
        raise ConfigError("corpus.size", what, "make the size larger or the validation_fraction smaller")
    return number
