"""What a corpus is: documents to train on, documents held out, and a description that changes when they change.

A document may be longer than the memory, so a corpus gives it in pieces. A fable is one piece; a text file of 2 GB is
one document of some 500,000 pieces.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

Split = Literal["train", "validation"]
SPELLING = "spelling"

# Characters. Longer words are cut, as learning byte pairs takes time with the square of a word's length.
PIECE_LENGTH = 1 << 12
# The end of the last word before a blank. A byte-pair tokenizer never joins the two sides of that place.
LAST_WORD_END = re.compile(r".*\S(?=[ \n])", re.DOTALL)


class Piece(NamedTuple):
    """Some text of a document, and whether the document ends with it."""

    text: str
    ends_document: bool


class Corpus(Protocol):
    """Where text comes from. Every corpus of Pellucid can be read again and again, and reads the same."""

    @property
    def identity(self) -> dict[str, object]:
        """JSON-able. Two corpora with equal identities hold equal text."""

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The documents of a split in their order, each in one piece or more; DataError for unreadable text."""


class NextWord(NamedTuple):
    """A word that may come next, and whether the document ends with it."""

    text: str
    ends_document: bool


# The length of the word that a text begins with; None while the word might still go on after the text.
WordLength = Callable[[str], int | None]


@runtime_checkable
class KnownCorpus(Corpus, Protocol):
    """A corpus whose distribution is known, hence also the best loss that any model can reach. One piece a document.

    skills: what it can take to predict a character; one of them is SPELLING, which a word or phrase begun needs.
    """

    skills: Sequence[str]

    def log_probability(self, text: str) -> float:
        """log p(document) in nats; -inf where the corpus cannot hold it."""

    def words_of(self, text: str, word_length: WordLength) -> Iterable[tuple[str, Mapping[NextWord, float]]]:
        """Each word of a document beside p(word | the whole words before it); DataError where it cannot be held."""

    def words_on(self, prefix: str, word_length: WordLength) -> Mapping[NextWord, float]:
        """p(next word | these whole words); {} where no document begins so."""

    def next_character_distribution(self, prefix: str) -> Mapping[str, float]:
        """p(next character | prefix); "" stands for the end of the document; {} where no document begins so."""

    def skills_of(self, text: str) -> Sequence[int]:
        """For each character of a document the index in `skills`; DataError where it cannot be held."""


def cut_into_pieces(blocks: Iterable[str], separator: str | None = None) -> Iterator[Piece]:
    """Documents out of a stream of text, whose blocks may end anywhere, even inside a separator.

    Documents without a visible character are left out. A document longer than PIECE_LENGTH is cut between words, so
    that its tokens do not depend on the cut; only a longer run without any blank is cut inside a word.
    """
    rest, has_begun = "", False
    for block in blocks:
        rest += block
        if separator is not None:
            *documents, rest = rest.split(separator)
            for document in documents:
                if has_begun or document.strip():
                    yield Piece(document, ends_document=True)
                has_begun = False
        keep = len(separator) - 1 if separator else 0  # these may be the first characters of a separator
        while len(rest) - keep > PIECE_LENGTH:
            word_end = LAST_WORD_END.match(rest, 0, PIECE_LENGTH)
            cut = word_end.end() if word_end else PIECE_LENGTH
            yield Piece(rest[:cut], ends_document=False)
            rest, has_begun = rest[cut:], True
    if has_begun or rest.strip():
        yield Piece(rest, ends_document=True)
