"""The truth about one text from a corpus that knows it: a whole document, the beginning of one, or an impossible one.

The exact distribution of the next token is known as long as the tokens of some document begin like those so far. Two
things end that. The text may be impossible in the corpus: then there is a first wrong character. Or it stops inside a
word that documents encode as other tokens: " ti" is " t", "i", but " time" may be one token. Then only the distribution
of the next character is known, which does not depend on the tokenizer.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pellucid.data.truth import (
    Distribution,
    after_tokens,
    first_word_length,
    last_word_start,
    next_token_distribution,
    next_token_distributions,
    normalized,
    spell,
)
from pellucid.languages.language import Language
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.tokenizer import WORD


@dataclass(frozen=True)
class TextTruth:
    """The truth about a text of n tokens.

    distributions: p(token | tokens so far) before each token and after the last (n + 1); None where there is none.
    next_characters: p(character | text), "" for the end of the document; {} if the text is impossible.
    possible_length: the number of characters before the first impossible one.
    coverage: the share of the continuations whose tokens begin like the text's; below 1 only inside a word.
    """

    distributions: list[Distribution | None]
    next_characters: Mapping[str, float]
    possible_length: int
    coverage: float

    @property
    def is_possible(self) -> bool:
        return bool(self.next_characters)

    @property
    def is_whole(self) -> bool:
        """Whether the document must end here."""
        return self.next_characters.keys() == {""}


def truth_of_text(language: Language, tokenizer: Tokenizer, text: str) -> TextTruth:
    """The truth about a text. Raises DataError for one that the tokenizer cannot encode."""
    next_characters = language.next_character_distribution(text)
    is_document = "" in next_characters
    return TextTruth(
        distributions=list((next_token_distributions if is_document else along_prefix)(language, tokenizer, text)),
        next_characters=next_characters,
        possible_length=len(text) if next_characters else longest_beginning(language, text),
        coverage=coverage(language, tokenizer, text),
    )


def along_prefix(language: Language, tokenizer: Tokenizer, prefix: str) -> Iterator[Distribution | None]:
    """`next_token_distributions` for the beginning of a document; None once no document's tokens begin like this."""
    for word in WORD.finditer(prefix):
        before = prefix[: word.start()]
        yield next_token_distribution(language, tokenizer, before)
        spellings = spell(tokenizer, language.words_on(before, first_word_length))
        ids = tokenizer.encode(word.group())
        for n_known in range(1, len(ids)):
            longer, whole_mass = after_tokens(spellings, ids[:n_known])
            if whole_mass:  # the tokens so far may be a word too, as " house" in " houses"
                yield next_token_distribution(language, tokenizer, before + tokenizer.decode(ids[:n_known]))
            else:
                yield normalized(longer) if longer else None
    yield next_token_distribution(language, tokenizer, prefix)


def longest_beginning(language: Language, text: str) -> int:
    """The length of the longest possible beginning of a text, by bisection: its own beginnings are possible too."""
    lengths = range(1, len(text) + 1)
    return bisect_left(lengths, True, key=lambda n: not language.next_character_distribution(text[:n]))


def coverage(language: Language, tokenizer: Tokenizer, text: str) -> float:
    """Among documents that begin with this text, the share that also begin with its tokens; 0 if there are none."""
    start = last_word_start(text)
    shown, ids = text[start:], tuple(tokenizer.encode(text[start:]))
    words = language.words_on(text[:start], first_word_length)
    with_text = with_tokens = 0.0
    for word, (spelling, p) in zip(words, spell(tokenizer, words), strict=True):
        with_text += p * word.text.startswith(shown)
        with_tokens += p * (spelling[: len(ids)] == ids)
    return with_tokens / with_text if with_text else 0.0
