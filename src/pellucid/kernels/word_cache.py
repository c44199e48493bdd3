"""Encoding text word by word, where each word is encoded once: words come again."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

REMEMBERED_CHARACTERS = 1 << 22  # then everything is forgotten, so that memory does not grow with the text

# Bytes of UTF-8 with which a blank may begin, and end: those of Unicode's blanks, which some other characters share.
BEGINS_BLANK, ENDS_BLANK = (np.zeros(256, dtype=bool) for _ in range(2))
BEGINS_BLANK[[*b"\t\n\v\f\r ", 0xC2, 0xE1, 0xE2, 0xE3]] = True
ENDS_BLANK[[*b"\t\n\v\f\r ", *range(0x80, 0x8B), 0x9F, 0xA0, 0xA8, 0xA9, 0xAF]] = True
IS_CUT = np.zeros(256, dtype=bool)
IS_CUT[[*b" \n"]] = True


def cut_before_blanks(text: str, cut: Callable[[str], list[str]]) -> list[str]:
    """The text cut before each space and each new line, which takes half as long as a search for words.

    A word ends there if what precedes is no blank, or what follows is none. Where that is not sure, `cut` does it.
    """
    bytes_N = np.frombuffer(text.encode(errors="surrogatepass"), dtype=np.uint8)
    between_blanks = ENDS_BLANK[bytes_N[:-2]] & IS_CUT[bytes_N[1:-1]] & BEGINS_BLANK[bytes_N[2:]]
    ends_on_two = len(bytes_N) > 1 and ENDS_BLANK[bytes_N[-2]] and IS_CUT[bytes_N[-1]]
    if between_blanks.any() or ends_on_two or "\0" in text:
        return cut(text)
    return text.replace(" ", "\0 ").replace("\n", "\0\n").split("\0")


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
        words_of = [cut_before_blanks(text, self._cut) for text in texts]
        ids_of = [self._known_ids(words) for words in words_of]
        with_new_words = [i for i, ids in enumerate(ids_of) if ids is None]
        if with_new_words:
            self._remember(set().union(*(words_of[i] for i in with_new_words)).difference(self._ids_of_word))
            for i in with_new_words:
                ids_of[i] = self._known_ids(words_of[i])
        return [np.frombuffer(ids, dtype=np.uint32) for ids in ids_of if ids is not None]

    def _known_ids(self, words: list[str]) -> bytes | None:
        try:
            return b"".join(map(self._ids_of_word.__getitem__, words))
        except KeyError:
            return None

    def _remember(self, words: set[str]) -> None:
        new = list(words)
        for word, ids in zip(new, self._encode_words(new), strict=True):
            self._ids_of_word[word] = np.array(ids, dtype=np.uint32).tobytes()
        self._n_characters += sum(map(len, new))
