"""Byte-pair encoding, without a library (equation 1; Sennrich et al. 2016, on bytes as in GPT-2, Radford et al. 2019).

Text is split into words, a word into its bytes. The most frequent pair of neighbours becomes one token, again and
again. Pairs are counted inside words only. The library's rules, which decide the ids:
  * The first 256 ids are the bytes: 188 that print as one character, then the others, each in their order.
  * Of equally frequent pairs, the one of the smallest ids is joined first: by the first id, then by the second.
  * "aaa" holds the pair (a, a) twice, but is joined from the left: (aa, a).
"""

import re
from collections import Counter
from itertools import pairwise
from unicodedata import category

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES = [bytes([byte]) for byte in (*PRINTABLE, *sorted(set(range(256)) - set(PRINTABLE)))]
WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII)


def ascii_of_its_kind(character):
    """A letter, digit, blank or sign in place of any other: all that GPT-2's rule for words looks at."""
    kind = category(character)[0]
    if character.isascii():
        return character
    return "a" if kind == "L" else "0" if kind == "N" else "\n" if character.isspace() else "!"


def split(text):
    """The words of a text, each a tuple of its bytes."""
    spans = [match.span() for match in WORD.finditer("".join(map(ascii_of_its_kind, text)))]
    return [tuple(bytes([byte]) for byte in text[start:end].encode()) for start, end in spans]


def learn(texts, n_merges):
    """The merges, in the order in which they were learned: at most so many, each of a pair that occurs twice."""
    words = Counter(word for text in texts for word in split(text))
    tokens, merges = list(BYTES), []
    while len(merges) < n_merges:
        counts = Counter()
        for word, n_times in words.items():
            for pair in pairwise(word):
                counts[pair] += n_times
        best = min(counts, key=lambda pair: (-counts[pair], *map(tokens.index, pair)), default=None)
        if best is None or counts[best] < 2:
            break
        merges.append(best)
        tokens.append(b"".join(best))
        words = {join(word, best): n_times for word, n_times in words.items()}
    return merges


def join(word, pair):
    """The word with each occurrence of the pair made one token, from left to right."""
    joined = []
    for token in word:
        if joined and (joined[-1], token) == pair:
            joined[-1] += token
        else:
            joined.append(token)
    return tuple(joined)


def encode(text, merges):
    """The ids of a text: in each word every merge is made, wherever it can be, in the order they were learned."""
    tokens = BYTES + [b"".join(pair) for pair in merges]
    ids = []
    for word in split(text):
        for pair in merges:
            word = join(word, pair)
        ids += map(tokens.index, word)
    return ids
