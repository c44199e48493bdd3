"""The exact distribution of the next token, where that of the text is known; and the skills that a token takes.

A tokenizer cuts a text into words and encodes each word by itself (see `tokenizer/tokenizer.py`). So the words that may
follow, each with its exact probability, give the token sequences that may follow, and

    p(next token | tokens so far) = Σ p(words that begin with all of these) / Σ p(words that begin with those so far).

The language of the corpus gives the words' probabilities. Nothing here is estimated or sampled.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pellucid.corpora.corpus import KnownConversations, Turn
from pellucid.data.token_truth import NATS_FILE, SKILLS_FILE
from pellucid.languages.language import SPELLING, Language, NextWord
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.tokenizer import WORD

Distribution = Mapping[int, float]
Spellings = list[tuple[tuple[int, ...], float]]  # token sequences of words, each with its probability

# Of each document: the nats of its tokens, and their characters of each skill (tokens, skills).
Truths = Iterator[tuple[NDArray[np.float64], NDArray[np.uint8]]]

UNWRITABLE = -1  # stands for a character that the vocabulary lacks


def write_truth(truths: Truths, directory: Path) -> float:
    """Write the truth of documents, in the order of their token file. Returns the sum of all nats."""
    total: list[float] = []
    with (directory / NATS_FILE).open("wb") as nats_file, (directory / SKILLS_FILE).open("wb") as skills_file:
        for nats, characters in truths:
            nats_file.write(nats.astype("<f8").tobytes())
            skills_file.write(characters.tobytes())
            total += nats.tolist()
    return math.fsum(total)


def truth_of_texts(language: Language, tokenizer: Tokenizer, texts: Iterator[str]) -> Truths:
    """The truth of each text, which is a document."""
    for text in texts:
        yield np.array(nats_of(language, tokenizer, text)), skill_characters(language, tokenizer, text)


def truth_of_answers(
    corpus: KnownConversations, tokenizer: Tokenizer, conversations: Iterator[Sequence[Turn]]
) -> Truths:
    """The truth of questions with answers. Only the answer and its end are scored, under p(answer | question)."""
    from pellucid.tokenizer.chat import encode_turn  # of conversations alone

    for question, answer in conversations:
        known = corpus.answers_to(question.text)
        # Before the answer, the question and the token that marks the assistant; after it, the end of the document.
        around = len(encode_turn(tokenizer, *question).ids) + 1, 1
        characters = skill_characters(known, tokenizer, answer.text)
        yield np.pad(nats_of(known, tokenizer, answer.text), around), np.pad(characters, (around, (0, 0)))


def nats_of(language: Language, tokenizer: Tokenizer, text: str) -> list[float]:
    """−log p of each token of a document, and of its end."""
    ids = [*tokenizer.encode(text), tokenizer.end_of_text]
    distributions = next_token_distributions(language, tokenizer, text)
    return [-math.log(p[id_]) for id_, p in zip(ids, distributions, strict=True)]


def next_token_distributions(language: Language, tokenizer: Tokenizer, text: str) -> Iterator[Distribution]:
    """p(next token | tokens so far) before each token of a document, and before the end_of_text that ends it."""
    # longer: the mass of each token by which the word may go on; whole_mass: that of the word being complete.
    text_before, longer, whole_mass = "", dict[int, float](), 1.0
    for word, words in language.words_of(text, first_word_length):
        spellings = spell(tokenizer, words)
        yield _first_tokens(longer, whole_mass, spellings)
        ids = _spelling(tokenizer, NextWord(word, ends_document=False))
        for n_known in range(1, len(ids)):
            longer, whole_mass = after_tokens(spellings, ids[:n_known])
            # The tokens so far may be a whole word too, as " house" in " houses".
            shorter_word = tokenizer.decode(ids[:n_known]) if whole_mass else ""
            yield _after_word(language, tokenizer, longer, whole_mass, text_before + shorter_word)
        longer, whole_mass = after_tokens(spellings, ids)
        text_before += word
    yield _after_word(language, tokenizer, longer, whole_mass, text_before)


def next_token_distribution(language: Language, tokenizer: Tokenizer, prefix: str) -> Distribution | None:
    """p(next token | the tokens of `prefix`). None where no document's tokens begin like this.

    That happens for a text that the corpus cannot contain, and for one that ends inside a token: " ti" may be encoded
    differently than the beginning of " time".
    """
    start = last_word_start(prefix)
    spellings = spell(tokenizer, language.words_on(prefix[:start], first_word_length))
    longer, whole_mass = after_tokens(spellings, tokenizer.encode(prefix[start:]))
    if not prefix:
        whole_mass = 0.0
    return _after_word(language, tokenizer, longer, whole_mass, prefix) if longer or whole_mass else None


def _after_word(
    language: Language, tokenizer: Tokenizer, longer: Mapping[int, float], whole_mass: float, text_before: str
) -> Distribution:
    """p(next token) after a word that either continues by one of `longer`, or is complete and followed by another."""
    following = language.words_on(text_before, first_word_length) if whole_mass else {}
    return _first_tokens(longer, whole_mass, spell(tokenizer, following))


def spell(tokenizer: Tokenizer, words: Mapping[NextWord, float]) -> Spellings:
    """Words as tokens; a word that ends its document ends with end_of_text.

    Where a character vocabulary lacks a character, UNWRITABLE is the last one: possible in truth, but not in any text.
    """
    return [(_spelling(tokenizer, word), p) for word, p in words.items()]


@lru_cache(maxsize=1 << 14)  # words occur again
def _spelling(tokenizer: Tokenizer, word: NextWord) -> tuple[int, ...]:
    length = tokenizer.writable_length(word.text)
    end = [UNWRITABLE] if length < len(word.text) else [tokenizer.end_of_text] * word.ends_document
    return (*tokenizer.encode(word.text[:length]), *end)


def after_tokens(spellings: Spellings, prefix: Sequence[int]) -> tuple[dict[int, float], float]:
    """The mass of each next token, and of the word's end, summed over the words that begin with these tokens."""
    n_prefix, prefix = len(prefix), tuple(prefix)
    longer: dict[int, float] = {}
    whole_mass = 0.0
    for ids, p in spellings:
        if ids[:n_prefix] != prefix:
            continue
        if len(ids) == n_prefix:
            whole_mass += p
        else:
            longer[ids[n_prefix]] = longer.get(ids[n_prefix], 0.0) + p
    return longer, whole_mass


def _first_tokens(longer: Mapping[int, float], whole_mass: float, spellings: Spellings) -> Distribution:
    """p(next token): either the word before continues, or it is complete and the next one begins."""
    masses: defaultdict[int, float] = defaultdict(float, longer)
    for ids, p in spellings:
        masses[ids[0]] += whole_mass * p
    return normalized(masses)


def normalized(masses: Mapping[int, float]) -> Distribution:
    total = math.fsum(masses.values())
    return {id_: mass / total for id_, mass in masses.items()}


def skill_characters(language: Language, tokenizer: Tokenizer, text: str) -> NDArray[np.uint8]:
    """The number of characters of each skill in each token of a document, end_of_text included: (tokens, skills).

    A token is shared equally among its characters that need more than spelling; if none does, it is spelling. So
    " Hazel", a name from earlier in the text, is entirely recall: without recall it could not be predicted, with it
    the rest follows. The end of a document is spelling.
    """
    skill_of_byte = np.repeat(language.skills_of(text), [len(character.encode()) for character in text])
    ids = tokenizer.encode(text)
    lengths = [len(tokenizer.token_bytes(id_)) for id_ in ids]
    counts = np.zeros((len(ids) + 1, len(language.skills)), dtype=np.int64)
    np.add.at(counts, (np.repeat(np.arange(len(ids)), lengths), skill_of_byte), 1)
    spelling = language.skills.index(SPELLING)
    counts[counts.sum(axis=1) > counts[:, spelling], spelling] = 0
    counts[-1, spelling] = 1
    return np.minimum(counts, 255).astype(np.uint8)


def first_word_length(text: str) -> int | None:
    """The length of a text's first word, as tokenizers see words; None if the word might continue."""
    word = WORD.match(text)
    return word.end() if word and word.end() < len(text) else None


def last_word_start(text: str) -> int:
    """The position at which the last word of a text begins, complete or not."""
    return max((word.start() for word in WORD.finditer(text)), default=0)
