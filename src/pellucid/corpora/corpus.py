"""The interface of a corpus: training documents, held-out documents, and an identity that changes with them.

A document may be too large for memory, so a corpus gives it in pieces. A fable is one piece; a text file of 2 GB is
one document of about 500,000 pieces.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from pellucid.languages.language import Language

Split = Literal["train", "validation"]

# Characters. Longer words are cut: the time to learn byte pairs grows with the square of a word's length.
PIECE_LENGTH = 1 << 12
# The end of the last word before a space or a newline. Our own byte-pair tokenizers never merge across it. Others join
# a full stop and the newlines after it; but a single space between two words always begins a new token.
LAST_WORD_END = re.compile(r".*\S(?=[ \n])", re.DOTALL)
LAST_SINGLE_SPACE = re.compile(r".*\S(?= \S)", re.DOTALL)


class Piece(NamedTuple):
    """Some text of a document, and whether the document ends with it. goes_on: the document began before it."""

    text: str
    ends_document: bool
    goes_on: bool = False


class Corpus(ABC):
    """A source of text. It can be read many times, and gives the same text each time.

    is_text: whether it is, and not ids that are only written as text: " 12 7 3".
    """

    is_text: ClassVar[bool] = True

    @property
    @abstractmethod
    def identity(self) -> dict[str, object]:
        """A description, ready for JSON: corpora with equal identities have equal text."""

    @abstractmethod
    def pieces(self, split: Split) -> Iterator[Piece]:
        """The documents of a split in order, each in one or more pieces. Raises DataError for unreadable text."""

    def local_files(self) -> Sequence[Path]:
        """The local files that it reads, which somebody may edit meanwhile."""
        return ()

    def notes(self) -> list[str]:
        """Notes, a few words each: what was left out when it was read, and what may be a mistake in it."""
        return []


class Turn(NamedTuple):
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    text: str


class ConversationCorpus(Corpus):
    """A corpus of conversations."""

    @abstractmethod
    def conversations(self, split: Split) -> Iterator[Sequence[Turn]]:
        """The conversations of a split in order. Raises DataError for those that cannot be read."""

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The texts of the turns, for training a tokenizer."""
        texts = (turn.text for turns in self.conversations(split) for turn in turns)
        return chain.from_iterable(cut_into_pieces([text]) for text in texts)


class KnownConversations(ConversationCorpus):
    """Conversations of one question and one answer, where the answer's distribution is known.

    skills: those of all answers.
    """

    skills: Sequence[str]

    @abstractmethod
    def answers_to(self, question: str) -> Language:
        """p(answer | question). Raises DataError for a question that the corpus cannot contain."""


def cut_into_pieces(blocks: Iterable[str], separator: str | None = None) -> Iterator[Piece]:
    """Cut a stream of text into documents. Its blocks may end anywhere, even inside a separator.

    Documents without a visible character are skipped. A document longer than PIECE_LENGTH is cut between words, so
    that its tokens do not depend on the cut. Only a single word longer than that is cut inside.
    """
    rest, has_begun = "", False  # has_begun: what comes next goes on with a document
    for block in blocks:
        rest += block
        if separator is not None:
            *documents, rest = rest.split(separator)
            for document in documents:
                if has_begun or document.strip():
                    yield Piece(document, ends_document=True, goes_on=has_begun)
                has_begun = False
        keep = len(separator) - 1 if separator else 0  # these may be the first characters of a separator
        while len(rest) - keep > PIECE_LENGTH:
            word_end = LAST_SINGLE_SPACE.match(rest, 0, PIECE_LENGTH) or LAST_WORD_END.match(rest, 0, PIECE_LENGTH)
            cut = word_end.end() if word_end else PIECE_LENGTH
            yield Piece(rest[:cut], ends_document=False, goes_on=has_begun)
            rest, has_begun = rest[cut:], True
    if has_begun or rest.strip():
        yield Piece(rest, ends_document=True, goes_on=has_begun)
