"""Languages: texts whose distribution is known, and perhaps which of their words decide others."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from pellucid.errors import DataError

SPELLING = "spelling"


class NextWord(NamedTuple):
    """A word that may come next, and whether the document ends with it."""

    text: str
    ends_document: bool


class Decided(NamedTuple):
    """A piece of a text, from start to end, and the earlier pieces that decide it."""

    start: int
    end: int
    by: Sequence[tuple[int, int]]


# The length of the first word of a text; None if that word might continue after the text.
WordLength = Callable[[str], int | None]


class Language(ABC):
    """Texts whose distribution is known, and with it the best loss that any model can reach.

    identity: all that the texts depend on, ready for JSON; its `type` is the language's name.
    skills: those that predicting a character may need; one is SPELLING, to finish a word or a phrase.
    """

    identity: Mapping[str, object]
    skills: Sequence[str]

    @abstractmethod
    def write(self, rng: random.Random) -> str:
        """Draw a document."""

    @abstractmethod
    def log_probability(self, text: str) -> float:
        """log p(document) in nats; -inf for a text that the language cannot write."""

    @abstractmethod
    def words_of(self, text: str, word_length: WordLength) -> Iterable[tuple[str, Mapping[NextWord, float]]]:
        """Each word of a document, and p(word | the words before it). Raises DataError for an impossible document."""

    @abstractmethod
    def words_on(self, prefix: str, word_length: WordLength) -> Mapping[NextWord, float]:
        """p(next word | these complete words); {} if no document begins like this."""

    @abstractmethod
    def next_character_distribution(self, prefix: str) -> Mapping[str, float]:
        """p(next character | prefix); "" is the end of the document; {} if no document begins like this."""

    @abstractmethod
    def skills_of(self, text: str) -> Sequence[int]:
        """The index in `skills` of each character of a document. Raises DataError for an impossible document."""

    def decided_pieces(self, text: str) -> Sequence[Decided]:
        """The pieces of a document that a few earlier ones decide, in order. Raises DataError for an impossible one."""
        return ()

    def likeliest(self, beginning: str) -> str:
        """The document that goes on with what is likeliest, again and again. DataError if none begins like this."""
        raise DataError("text", "how its language goes on is not known", "take a run of another language")
