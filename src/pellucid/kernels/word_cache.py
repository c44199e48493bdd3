"""Encoding text word by word, where each word is encoded once: words come again."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

REMEMBERED_CHARACTERS = 1 << 22  # then everything is forgotten, so that memory does not grow with the text


class WordCache:
    """`cut` gives the words of a text; `encode_words` the ids of each word, which must not depend on its neighbours."""

    def __init__(
        self, cut: Callable[[str], list[str]], encode_words: Callable[[list[str]], Iterable[Sequence[int]]]
    ) -> None:
        self._cut, self._encode_words = cut, encode_words
        self._ids_of_word: dict[str, bytes] = {}
        self._n_characters = 0

    def __call__(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The ids of each text. What `encode_words` raises leaves the cache as it was."""
        if self._n_characters > REMEMBERED_CHARACTERS:
            self._ids_of_word.clear()
            self._n_characters = 0
        words_of = [self._cut(text) for text in texts]
        new = list(set(chain.from_iterable(words_of)).difference(self._ids_of_word))
        for word, ids in zip(new, self._encode_words(new), strict=True):
            self._ids_of_word[word] = np.array(ids, dtype=np.uint32).tobytes()
        self._n_characters += sum(map(len, new))
        return [
            np.frombuffer(b"".join(map(self._ids_of_word.__getitem__, words)), dtype=np.uint32) for words in words_of
        ]
