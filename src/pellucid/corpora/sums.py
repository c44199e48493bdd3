"""The corpus of sums: the pairs of numbers are split, as there are too few to draw ever new ones."""

import random
from collections.abc import Iterator

from pellucid.corpora.corpus import Split
from pellucid.corpora.drawn import Drawn
from pellucid.errors import DataError
from pellucid.languages.sums import Sums
from pellucid.languages.symbols import text_of

MOST_HELD_OUT = 20_000  # documents: of three digits there are 300,000, and their truth would take an hour


class DrawnSums(Drawn):
    """A share of all pairs is held out, each once, in random order; training draws from the others, again and again.

    Validation takes no more than MOST_HELD_OUT of those that are held out.
    """

    language: Sums

    @property
    def identity(self) -> dict[str, object]:
        """All arguments, ready for JSON."""
        is_cut = self._validation_fraction * self.language.n_pairs > MOST_HELD_OUT
        return {**super().identity, **({"most_held_out": MOST_HELD_OUT} if is_cut else {})}

    def documents(self, split: Split) -> Iterator[str]:
        """The sums of a split, written on demand; each call starts over."""
        rng = random.Random(f"{self._kind} {self._seed}")
        pairs = self.language.pairs()
        rng.shuffle(pairs)
        n = max(1, round(len(pairs) * self._validation_fraction))
        chosen = pairs[: min(n, MOST_HELD_OUT)] if split == "validation" else rng.choices(pairs[n:], k=self._size)
        return (text_of(self.language.document(a, b, rng)) for a, b in chosen)

    def fresh(self, n: int, seed: int) -> list[str]:
        """Raises DataError: the pairs are split, so nothing is left that is in neither split."""
        what = "the pairs of sums are split, and all that were not trained on are held out: there are no new ones"
        raise DataError("the corpus", what, "`pellucid evaluate` scores those that are held out")
