"""How a story may continue: the exact distribution of its next character, and of its next word.

The caller says what a word is. Tokenizers cut a text into words before they cut words into tokens, so the
distribution of the next token follows from that of the next word (see `data/truth.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pellucid.corpora.corpus import NextWord, WordLength
from pellucid.corpora.fables.grammar import Fork, Grammar


class Way(NamedTuple):
    """One way to continue: the text up to the next choice, its probability, and that choice (None: the story ends)."""

    text: str
    probability: float
    fork: Fork | None


def ways_on(grammar: Grammar, prefix: str) -> list[Way]:
    """All ways to continue a prefix; their probabilities sum to 1. Empty if no story begins like this."""
    end = 0
    _, fork = grammar.begin()
    while fork:
        index = fork.find(prefix, end)
        if index is None:
            return _ways_of_openings(grammar, fork, prefix[end:])
        text, fork = _take(grammar, fork, index)
        shown = prefix[end : end + len(text)]
        if not text.startswith(shown):
            return []
        if len(shown) < len(text):
            return [Way(text[len(shown) :], 1.0, fork)]
        end += len(text)
    return [Way("", 1.0, None)] if end == len(prefix) else []


def next_character_distribution(grammar: Grammar, prefix: str) -> dict[str, float]:
    """p(next character | prefix); "" is the end of the story; {} if no story begins like this."""
    masses: dict[str, float] = {}
    for text, probability, _ in ways_on(grammar, prefix):
        masses[text[:1]] = masses.get(text[:1], 0.0) + probability
    return masses


def words_on(grammar: Grammar, prefix: str, word_length: WordLength) -> dict[NextWord, float]:
    """p(next word | prefix), for a prefix of whole words; {} if no story begins like this."""
    words = _first_words(grammar, ways_on(grammar, prefix), word_length)
    return _after_a_whole_word(words, word_length) if prefix else words


def words_of(
    grammar: Grammar, story: str, drawn: Sequence[tuple[Fork, int]], word_length: WordLength
) -> Iterator[tuple[str, Mapping[NextWord, float]]]:
    """Each word of a story, and the distribution of the words that could stand in its place, given those before it.

    `drawn` are the story's choices. The words before are complete: what would make the last one longer is left out.
    """
    texts = [_take(grammar, fork, index) for fork, index in drawn]
    place, chosen_at = 0, 0  # the last choice that begins before the word, and where
    start = 0
    while start < len(story):
        while chosen_at + len(texts[place][0]) < start:
            chosen_at += len(texts[place][0])
            place += 1
        fork, index = drawn[place]
        shown = story[chosen_at:start]
        if len(shown) < len(fork.opening(index)):
            ways = _ways_of_openings(grammar, fork, shown)
        else:
            text, after = texts[place]
            ways = [Way(text[len(shown) :], 1.0, after)]
        words = _first_words(grammar, ways, word_length)
        if start:
            words = _after_a_whole_word(words, word_length)
        length = word_length(story[start:])
        word = story[start:] if length is None else story[start : start + length]
        yield word, words
        start += len(word)


def _first_words(grammar: Grammar, ways: Sequence[Way], word_length: WordLength) -> dict[NextWord, float]:
    """The words with which these ways begin, each with its probability."""
    words: dict[NextWord, float] = {}
    unfinished = list(ways)
    while unfinished:
        text, probability, fork = unfinished.pop()
        length = word_length(text)
        if fork and length is None:
            for index in fork.allowed():
                more, after = _take(grammar, fork, index)
                unfinished.append(Way(text + more, probability * fork.probability(index), after))
        else:
            word = NextWord(text[:length], ends_document=length is None)
            words[word] = words.get(word, 0.0) + probability
    return words


def _after_a_whole_word(words: Mapping[NextWord, float], word_length: WordLength) -> dict[NextWord, float]:
    """Those that begin a new word, instead of making the one before longer."""
    kept = {word: p for word, p in words.items() if word_length("." + word.text) == 1}
    total = sum(kept.values())
    return {word: p / total for word, p in kept.items()}


def _take(grammar: Grammar, fork: Fork, index: int) -> tuple[str, Fork | None]:
    pieces, after = grammar.advance(*fork.take(index))
    return "".join([text for text, _ in pieces]), after


def _ways_of_openings(grammar: Grammar, fork: Fork, shown: str) -> list[Way]:
    ways = []
    for index in fork.allowed():
        if fork.opening(index).startswith(shown):
            text, after = _take(grammar, fork, index)
            ways.append(Way(text[len(shown) :], fork.probability(index), after))
    total = sum(way.probability for way in ways)
    return [way._replace(probability=way.probability / total) for way in ways]
