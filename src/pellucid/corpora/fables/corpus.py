"""The Fables corpus: as many fables as you ask for, split so that training never sees a validation fable."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from pellucid.corpora.corpus import NextWord, Piece, Split, WordLength
from pellucid.corpora.fables.continuations import words_of, words_on
from pellucid.corpora.fables.distribution import GRAMMAR_VERSION, Fables
from pellucid.corpora.fables.skills import SKILLS
from pellucid.errors import ConfigError

_INDEX = {skill: index for index, skill in enumerate(SKILLS)}


class FablesCorpus:
    """`size` fables, of which round(size * validation_fraction), but at least one, are for validation.

    A pure function of its arguments and of GRAMMAR_VERSION. Each split has its own random stream. Validation fables
    all differ, and the training stream skips every one of them. Raises ConfigError.
    """

    skills = SKILLS

    def __init__(self, size: int, world_size: int, seed: int, validation_fraction: float) -> None:
        if not 0 < validation_fraction < 1:
            raise ConfigError(
                "corpus.validation_fraction",
                f"{validation_fraction} leaves no training or no validation fables",
                "choose a fraction between 0 and 1",
            )
        n_validation = max(1, round(size * validation_fraction))
        if size <= n_validation:
            raise ConfigError(
                "corpus.size",
                f"{size} fables, {n_validation} of them for validation, leave none to train on",
                "make the size larger or the validation_fraction smaller",
            )
        self.fables = Fables(world_size)
        self._size, self._seed, self._validation_fraction = size, seed, validation_fraction
        self._n_of_split = {"train": size - n_validation, "validation": n_validation}

    @property
    def identity(self) -> dict[str, object]:
        """Everything the corpus depends on, ready for JSON."""
        return {
            "type": "fables",
            "grammar_version": GRAMMAR_VERSION,
            "size": self._size,
            "world_size": self.fables.world_size,
            "seed": self._seed,
            "validation_fraction": self._validation_fraction,
        }

    def documents(self, split: Split) -> Iterator[str]:
        """The fables of a split, written on demand; each call starts over."""
        if split == "validation":
            yield from self._validation()
            return
        held_out = set(self._validation())
        remaining = self._n_of_split["train"]
        for text in self._stream("train"):
            if text not in held_out:
                yield text
                remaining -= 1
            if remaining == 0:
                return

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The same as the Corpus protocol gives documents: each fable is one piece."""
        return (Piece(text, ends_document=True) for text in self.documents(split))

    def log_probability(self, text: str) -> float:
        """Natural logarithm of the probability of one document (nats); minus infinity if it is not a fable."""
        return self.fables.log_probability(text)

    def words_of(self, text: str, word_length: WordLength) -> Iterator[tuple[str, Mapping[NextWord, float]]]:
        """Each word of a fable, and p(word | the words before it). Raises DataError if it is not a fable."""
        return words_of(self.fables.grammar, text, self.fables.read(text), word_length)

    def words_on(self, prefix: str, word_length: WordLength) -> Mapping[NextWord, float]:
        """p(next word | these whole words); {} if no fable begins like this."""
        return words_on(self.fables.grammar, prefix, word_length)

    def next_character_distribution(self, prefix: str) -> Mapping[str, float]:
        """p(next character | prefix), exactly; "" is the end of the fable; {} if no fable begins like this."""
        return self.fables.next_character_distribution(prefix)

    def skills_of(self, text: str) -> list[int]:
        """The index of the skill of each character. Raises DataError if the text is not a fable."""
        return [index for span in self.fables.spans(text) for index in [_INDEX[span.skill]] * (span.end - span.start)]

    def _validation(self) -> list[str]:
        seen: dict[str, None] = {}
        for text in self._stream("validation"):
            seen[text] = None
            if len(seen) == self._n_of_split["validation"]:
                break
        return list(seen)

    def _stream(self, split: Split) -> Iterator[str]:
        # random.Random hashes a text seed with SHA-512: the same on every machine and Python.
        rng = random.Random(f"fables {self._seed} {split}")
        while True:
            yield self.fables.write(rng)
