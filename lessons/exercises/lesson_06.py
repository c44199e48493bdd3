"""Lesson 6: byte-pair encoding. Write what is missing, then run `pellucid learn 6`.

A token is a number, its id. The first 256 tokens are the bytes; each merge adds one more: 256, 257, and so on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pellucid.plain import BYTES, split_into_words
from pellucid.tokenizer.pieces import visible

Pair = tuple[int, int]

# ---- Given: words, bytes, and how tokens are spelled ----


def byte_ids(text: str) -> list[int]:
    """The ids of a text's bytes: "!" is 0, "a" is 64, "b" is 65."""
    return [BYTES.index(byte) for byte in text.encode()]


def spelled(text: str) -> dict[tuple[int, ...], int]:
    """The different words of a text, each as the ids of its bytes, with how often it occurs."""
    return {tuple(byte_ids(word)): n for word, n in Counter(split_into_words(text)).items()}


def spellings(merges: Mapping[Pair, int]) -> list[bytes]:
    """The bytes of each token, by its id."""
    result = [bytes([byte]) for byte in BYTES]
    for left, right in merges:  # in their order, so both parts are known
        result.append(result[left] + result[right])
    return result


def pieces(ids: Sequence[int], merges: Mapping[Pair, int]) -> list[str]:
    """Each token for people to read: a space is ␣, and part of a character is shown by its bytes."""
    bytes_of = spellings(merges)
    return [visible(bytes_of[i].decode("utf-8", "backslashreplace")) for i in ids]


# ---- Learning ----


def count_pairs(words: Mapping[tuple[int, ...], int]) -> Counter[Pair]:
    """How often each pair of neighbours (left, right) occurs inside words.

    `words` says how often each word occurs: {(71, 64): 3} is the word of the tokens 71 and 64, three times. A pair is
    counted at every place where it stands: (71, 71, 71) has (71, 71) twice.
    """
    # solution:
    counts: Counter[Pair] = Counter()
    for word, n in words.items():
        for pair in pairwise(word):
            counts[pair] += n
    return counts
    # end


def merge(ids: Sequence[int], pair: Pair, new_id: int) -> list[int]:
    """The ids with each occurrence of the pair replaced by new_id, from left to right, as a new list."""
    # solution:
    merged: list[int] = []
    i = 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged
    # end


def learn_merges(text: str, n_merges: int) -> dict[Pair, int]:
    """Merge the most frequent pair, again and again: {pair: id of the new token}, in the order of learning.

    New ids are 256, 257, and so on. Of equally frequent pairs the smallest goes first, (64, 65) before (64, 81) and
    that before (65, 64). Stop after n_merges, or earlier if no pair occurs twice. Begin with `spelled(text)`.
    """
    # solution:
    words = spelled(text)
    merges: dict[Pair, int] = {}
    while len(merges) < n_merges and (counts := count_pairs(words)):
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] < 2:
            break
        merges[best] = 256 + len(merges)
        words = {tuple(merge(word, best, merges[best])): n for word, n in words.items()}
    return merges
    # end


# ---- There and back ----


def encode(text: str, merges: Mapping[Pair, int]) -> list[int]:
    """The token ids of a text, which may be new: in each word, what was learned first is merged first.

    `split_into_words(text)` gives the words, and `byte_ids(word)` what to begin with.
    """
    # solution:
    ids: list[int] = []
    for word in split_into_words(text):
        word_ids = byte_ids(word)
        while possible := [pair for pair in pairwise(word_ids) if pair in merges]:
            earliest = min(possible, key=merges.__getitem__)
            word_ids = merge(word_ids, earliest, merges[earliest])
        ids += word_ids
    return ids
    # end


def decode(ids: Sequence[int], merges: Mapping[Pair, int]) -> str:
    """The text of token ids. What is no complete character becomes the sign U+FFFD, "�".

    `spellings(merges)` has the bytes of each token.
    """
    # solution:
    bytes_of = spellings(merges)
    return b"".join(bytes_of[i] for i in ids).decode(errors="replace")
    # end


# ---- Comparing ----


def bits_per_byte(nats: Sequence[float], text: str) -> float:
    """The bits per byte of a text whose tokens cost these nats. Bytes are those of UTF-8."""
    # solution:
    return sum(nats) / math.log(2) / len(text.encode())
    # end


def floor_in_other_tokens(nats_per_token: float, lengths: Sequence[int], other_lengths: Sequence[int]) -> float:
    """The floor of some documents in nats per token, when another tokenizer cuts them.

    nats_per_token: their floor with the first tokenizer. lengths, other_lengths: the tokens of each document with the
    first tokenizer and with the other, without the control token that ends each document and is predicted like any
    other.
    """
    # solution:
    nats = nats_per_token * (sum(lengths) + len(lengths))
    return nats / (sum(other_lengths) + len(other_lengths))
    # end
