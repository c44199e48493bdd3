"""A scale for text whose floor nobody knows: how well two readers predict it that are no neural network.

One counts n-grams of the model's own tokens and smooths the counts; the other is `xz`, which looks for what it has read
before. Both read the training text, then predict the validation text: a model that does not beat them has learned
little, however low its loss seems. Counted once, and kept beside the tokens in scale.json.

Shapes: N tokens of both texts, one after the other; T targets, the validation tokens but the first; G n-grams, H what
stands before the last token of one.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pellucid.config.base import Section
from pellucid.data.token_file import TokenFile
from pellucid.files import read_at_most, write_whole
from pellucid.tokenizer import Tokenizer

SCALE_FILE = "scale.json"
END = b"\0"  # of a document, as no text has it
MOST_TO_READ = 1 << 22  # tokens: the last ones of a longer training text; a longer validation text is not read
LONGEST = 10  # tokens of an n-gram; in text of BPE tokens, five are about as good
LEAST_GAIN = 0.01  # longer n-grams are counted as long as that saves this share of the nats
BY_HEART = 0.5  # of what held-out text costs: if its training text costs less, a model knows that by heart
UNIT = "bits/byte"

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class Scale(Section):
    """The figures of a counter of `n`-grams and of xz on the validation text.

    Bits per byte are None of ids, which are no text, and there nats per token are compared. training: what the model
    itself reaches, in the unit that is compared, on text that it was trained on, if that was measured.
    """

    n: int
    counter_nats_per_token: float
    counter_bits_per_byte: float | None
    xz_bits_per_byte: float | None
    training: float | None = None

    def beside(self, training: float) -> Scale:
        """With what the model itself reaches on text that it was trained on."""
        return self.model_copy(update={"training": training})

    @property
    def _counter(self) -> float:
        return self.counter_nats_per_token if self.counter_bits_per_byte is None else self.counter_bits_per_byte

    def rows(self, figure: float) -> dict[str, str | None]:
        """For the table of an evaluation with this figure of the model: what it is, and the text."""
        seen, xz, unit = self.training, self.xz_bits_per_byte, "nats/token" if self.xz_bits_per_byte is None else UNIT
        advice = "; more text, model.dropout or fewer steps may help"
        advice = f": learned by heart{advice}" if self.is_by_heart(figure) else ""
        return {
            "counter": f"{self._counter:.4f} {unit} with counts of {self.n} tokens in a row",
            "xz": None if xz is None else f"{xz:.4f} {unit} if it is compressed after the training text",
            "training text": None if seen is None else f"{seen:.4f} {unit}{advice}",
        }

    def is_by_heart(self, figure: float) -> bool:
        """Whether text that the model was trained on costs it less than half of this, what held-out text costs."""
        return self.training is not None and self.training < BY_HEART * figure

    def line(self, figure: float) -> str:
        """Beside the figure of a model, in one line."""
        xz = "" if self.xz_bits_per_byte is None else f", xz {self.xz_bits_per_byte:.4f}"
        line = f"(a counter of {self.n}-grams {self._counter:.4f}{xz})"
        if self.is_by_heart(figure):
            line += f"   learned by heart: {self.training:.4f} on text that it was trained on"
        return line

    def __str__(self) -> str:
        line = f"a counter of {self.n}-grams reaches {self.counter_nats_per_token:.4f} nats/token"
        if self.xz_bits_per_byte is not None:
            line += f" ({self.counter_bits_per_byte:.4f} {UNIT}), xz {self.xz_bits_per_byte:.4f} {UNIT}"
        return f"on the validation text, {line}"


def scale_of(directory: Path, train: TokenFile, validation: TokenFile, tokenizer: Tokenizer) -> Scale | None:
    """The scale of a prepared text: kept in its folder, or made now. None if the validation text is too long."""
    with suppress(OSError, ValueError):
        return Scale.model_validate_json(read_at_most(directory / SCALE_FILE, 1 << 12))
    if validation.n_targets > MOST_TO_READ:
        return None
    read = train.tokens[-MOST_TO_READ:]
    n, nats = count(read, validation.tokens, tokenizer.vocab_size)
    counter, xz = None, None
    if tokenizer.is_text:
        text, held_out = as_bytes(read, tokenizer), as_bytes(validation.tokens, tokenizer)[1:]
        n_bytes = len(held_out) - held_out.count(END)
        counter, xz = nats / math.log(2) / n_bytes, 8 * compressed(text, held_out) / n_bytes
    scale = Scale(
        n=n,
        counter_nats_per_token=nats / validation.n_targets,
        counter_bits_per_byte=counter,
        xz_bits_per_byte=xz,
    )
    with suppress(OSError):  # in a folder of others
        write_whole(directory / SCALE_FILE, scale.model_dump_json() + "\n")
    return scale


def as_bytes(tokens: NDArray[np.integer], tokenizer: Tokenizer) -> bytes:
    """The text of these tokens, with a zero byte, which no text has, at the end of each document."""
    bytes_V = [tokenizer.token_bytes(id_) for id_ in range(tokenizer.vocab_size)]
    bytes_V[tokenizer.end_of_text] = END
    return b"".join(map(bytes_V.__getitem__, tokens.tolist())).replace(END + tokenizer.lead, END)


def compressed(text: bytes, held_out: bytes) -> int:
    """How many bytes longer xz makes its output if the held-out text comes after the other."""
    sees_all = {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": max(4096, len(text + held_out))}
    both, alone = (lzma.compress(each, lzma.FORMAT_RAW, filters=[sees_all]) for each in (text + held_out, text))
    return len(both) - len(alone)


def count(train: NDArray[np.integer], validation: NDArray[np.integer], vocab_size: int) -> tuple[int, float]:
    """The n of the best n-grams, and the nats that validation tokens cost whoever has counted them in training.

    To choose n by the validation text is fair: it would take four bits to name it.
    """
    best = 0, (len(validation) - 1) * math.log(vocab_size)
    for n, nats_T in enumerate(costs(train, validation, vocab_size), 1):
        before, best = best, min(best, (n, float(nats_T.sum())), key=lambda each: each[1])
        if best[1] > (1 - LEAST_GAIN) * before[1]:
            break
    return best


def costs(train: NDArray[np.integer], validation: NDArray[np.integer], vocab_size: int) -> Iterator[Floats]:
    """-ln p of the targets, by n-grams of n = 1, 2, 3 … tokens.

    Interpolated Kneser-Ney smoothing (Ney, Essen and Kneser 1994; Chen and Goodman 1998, section 2.7): equation 50.
    """
    n_train, tokens_N = len(train), np.concatenate([train, validation]).astype(np.int64)
    shorter_N, grams_N = np.zeros(len(tokens_N) + 1, np.int64), numbered(tokens_N)
    p_T = np.full(len(validation) - 1, 1 / vocab_size)  # without a count, all tokens are equally likely
    for n in range(1, min(LONGEST, n_train - 1) + 1):
        trained = grams_N[: n_train - n + 1]  # n-grams by the place of their first token; the others touch validation
        often_G = np.bincount(trained, minlength=grams_N.max() + 1)
        yield -np.log(smoothed(often_G, grams_N, shorter_N, len(trained), p_T))
        # In the place of shorter n-grams, one counts once for each token that stands before it, not for each time.
        longer_N = numbered(grams_N[:-1] * vocab_size + tokens_N[n:])
        ends = grams_N[a_place_of_each(longer_N[: n_train - n]) + 1]
        p_T = smoothed(np.bincount(ends, minlength=len(often_G)), grams_N, shorter_N, len(trained), p_T)
        shorter_N, grams_N = grams_N, longer_N


def smoothed(counts_G: Integers, grams_N: Integers, shorter_N: Integers, n_trained: int, p_T: Floats) -> Floats:
    """p(target | the n - 1 tokens before it) by equation 50, from the counts, and p_T of the n - 2 tokens before it."""
    places = a_place_of_each(grams_N[:n_trained])
    counts, before = counts_G[grams_N[places]], shorter_N[places]
    total_H = np.bincount(before, weights=counts, minlength=shorter_N.max() + 1)
    different_H = np.bincount(before[counts > 0], minlength=len(total_H))
    n1, n2 = max(1, int((counts == 1).sum())), int((counts == 2).sum())
    discount = n1 / (n1 + 2 * n2)
    grams_T, before_T = grams_N[-len(p_T) :], shorter_N[-len(p_T) - 1 : -1]
    total_T = total_H[before_T]
    numerator_T = np.maximum(counts_G[grams_T] - discount, 0) + discount * different_H[before_T] * p_T
    return np.where(total_T > 0, numerator_T / np.maximum(total_T, 1), p_T)


def numbered(keys_N: Integers) -> Integers:
    """Different keys as numbers 0, 1, 2, …"""
    _, numbers_N = np.unique(keys_N, return_inverse=True)
    return numbers_N


def a_place_of_each(numbers: Integers) -> Integers:
    """For each different number in the list one place where it stands."""
    places = np.full(numbers.max() + 1, -1)
    places[numbers] = np.arange(len(numbers))
    return places[places >= 0]
