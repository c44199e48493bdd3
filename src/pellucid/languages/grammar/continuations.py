"""Continuations of a story: the exact distribution of its next character, and of its next word.

The caller defines words. Tokenizers cut a text into words before they cut words into tokens, so the distribution of the
next token follows from that of the next word (see `data/truth.py`).
"""

from collections.abc import Iterator, Mapping, Sequence

from pellucid.languages.grammar.grammar import Fork, Grammar
from pellucid.languages.language import NextWord, WordLength

# One way to continue: the text up to the next choice, that choice (None at the story's end), and the probability.
Way = tuple[str, Fork | None, float]


def ways_on(grammar: Grammar, prefix: str) -> list[Way]:
    """All ways to continue a prefix; their probabilities sum to 1. Empty if no story begins like this."""
    _, end, fork = grammar.read(prefix)
    if fork:
        return _ways_from(fork, prefix[end:])
    return [("", None, 1.0)] if end == len(prefix) else []


def next_character_distribution(grammar: Grammar, prefix: str) -> dict[str, float]:
    """p(next character | prefix); "" is the end of the story; {} if no story begins like this."""
    masses: dict[str, float] = {}
    for text, _, probability in ways_on(grammar, prefix):
        masses[text[:1]] = masses.get(text[:1], 0.0) + probability
    return masses


def words_on(grammar: Grammar, prefix: str, word_length: WordLength) -> dict[NextWord, float]:
    """p(next word | prefix), for a prefix of complete words; {} if no story begins like this."""
    return _first_words(ways_on(grammar, prefix), word_length, is_start=not prefix)


def words_of(
    story: str, drawn: Sequence[tuple[Fork, int]], word_length: WordLength
) -> Iterator[tuple[str, Mapping[NextWord, float]]]:
    """Each word of a story, and p(word | the words before it), for the story with these choices."""
    lengths = [len(fork.write(index)[0]) for fork, index in drawn]
    place, chosen_at = 0, 0  # the last choice that begins before the word, and its position
    start = 0
    while start < len(story):
        while chosen_at + lengths[place] < start:
            chosen_at += lengths[place]
            place += 1
        ways = _ways_from(drawn[place][0], story[chosen_at:start])
        words = _first_words(ways, word_length, is_start=start == 0)
        length = word_length(story[start:])
        word = story[start:] if length is None else story[start : start + length]
        yield word, words
        start += len(word)


def _ways_from(fork: Fork, shown: str) -> list[Way]:
    """The ways to continue at a choice that agree with the text already shown after it."""
    ways = [(text[len(shown) :], after, p) for text, after, p in _options(fork) if text.startswith(shown)]
    total = sum(p for _, _, p in ways)
    return [(text, after, p / total) for text, after, p in ways]


def _options(fork: Fork) -> list[Way]:
    return [(*fork.write(index), fork.probability(index)) for index in fork.allowed()]


def _first_words(ways: list[Way], word_length: WordLength, is_start: bool) -> dict[NextWord, float]:
    """The first words of these ways, each with its probability."""
    words: dict[NextWord, float] = {}
    while ways:
        text, fork, probability = ways.pop()
        length = word_length(text)
        if fork and length is None:
            ways += [(text + more, after, probability * p) for more, after, p in _options(fork)]
        elif is_start or word_length("." + text[:length]) == 1:  # otherwise it would lengthen the word before
            word = NextWord(text[:length], ends_document=length is None)
            words[word] = words.get(word, 0.0) + probability
    total = 1.0 if is_start else sum(words.values())
    return {word: p / total for word, p in words.items()}
