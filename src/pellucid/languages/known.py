"""The interfaces of a language: texts whose distribution is known, and perhaps which of their words decide others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

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


class KnownText(Protocol):
    """Texts whose distribution is known, and with it the best loss that any model can reach.

    skills: those that predicting a character may need; one is SPELLING, to finish a word or a phrase.
    """

    skills: Sequence[str]

    def log_probability(self, text: str) -> float:
        """log p(document) in nats; -inf for a document that the corpus cannot contain."""

    def words_of(self, text: str, word_length: WordLength) -> Iterable[tuple[str, Mapping[NextWord, float]]]:
        """Each word of a document, and p(word | the words before it). Raises DataError for an impossible document."""

    def words_on(self, prefix: str, word_length: WordLength) -> Mapping[NextWord, float]:
        """p(next word | these complete words); {} if no document begins like this."""

    def next_character_distribution(self, prefix: str) -> Mapping[str, float]:
        """p(next character | prefix); "" is the end of the document; {} if no document begins like this."""

    def skills_of(self, text: str) -> Sequence[int]:
        """The index in `skills` of each character of a document. Raises DataError for an impossible document."""


@runtime_checkable
class DecidedText(KnownText, Protocol):
    """Texts of which it is known, too, where a few earlier words decide what comes."""

    def decided_pieces(self, text: str) -> Sequence[Decided]:
        """The pieces of a document that a few earlier ones decide, in order. Raises DataError for an impossible one."""

    def likeliest(self, beginning: str) -> str:
        """The document that goes on with what is likeliest, again and again. DataError if none begins like this."""
