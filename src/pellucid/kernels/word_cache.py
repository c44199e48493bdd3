"""Encoding text word by word, each distinct word once: most words occur again."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

REMEMBERED_CHARACTERS = 1 << 22  # then the cache is emptied, so that memory does not grow with the text

# Bytes with which a Unicode blank begins, and ends, in UTF-8; some other characters share them.
BEGINS_BLANK, ENDS_BLANK = (np.zeros(256, dtype=bool) for _ in range(2))
BEGINS_BLANK[[*b"\t\n\v\f\r ", 0xC2, 0xE1, 0xE2, 0xE3]] = True
ENDS_BLANK[[*b"\t\n\v\f\r ", *range(0x80, 0x8B), 0x9F, 0xA0, 0xA8, 0xA9, 0xAF]] = True
IS_CUT = np.zeros(256, dtype=bool)
IS_CUT[[*b" \n"]] = True


def cut_before_blanks(text: str, cut: Callable[[str], list[str]]) -> list[str]:
    """Cut a text before each space and each newline, which takes half as long as a search for words.

    A word ends there unless there are blanks on both sides. Where there may be, `cut` does the work.
    """
    bytes_N = np.frombuffer(text.encode(errors="surrogatepass"), dtype=np.uint8)
    between_blanks = ENDS_BLANK[bytes_N[:-2]] & IS_CUT[bytes_N[1:-1]] & BEGINS_BLANK[bytes_N[2:]]
    ends_on_two = len(bytes_N) > 1 and ENDS_BLANK[bytes_N[-2]] and IS_CUT[bytes_N[-1]]
    if between_blanks.any() or ends_on_two or "\0" in text:
        return cut(text)
    return text.replace(" ", "\0 ").replace("\n", "\0\n").split("\0")


class WordCache:
    """Token ids of texts: `cut` gives a text's words, `encode_words` the ids of each, whatever its neighbours."""

    def __init__(
        self, cut: Callable[[str], list[str]], encode_words: Callable[[list[str]], Iterable[Sequence[int]]]
    ) -> None:
        self._cut, self._encode_words = cut, encode_words
        self._ids_of_word: dict[str, bytes] = {}
        self._n_characters = 0

    def __call__(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The ids of each text. If `encode_words` raises, the cache stays as it was."""
        if self._n_characters > REMEMBERED_CHARACTERS:
            self._ids_of_word.clear()
            self._n_characters = 0
        words_of_texts = [cut_before_blanks(text, self._cut) for text in texts]
        ids_of_texts = [self._known_ids(words) for words in words_of_texts]
        if with_new_words := [i for i, ids in enumerate(ids_of_texts) if ids is None]:
            self._remember(set().union(*(words_of_texts[i] for i in with_new_words)).difference(self._ids_of_word))
            for i in with_new_words:
                ids_of_texts[i] = self._known_ids(words_of_texts[i])
        return [np.frombuffer(ids, dtype=np.uint32) for ids in ids_of_texts if ids is not None]

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
