"""Counts of token pairs: all that a bigram model can learn from a text."""

import numpy as np
from numpy.typing import NDArray

from pellucid.data.token_file import TokenFile

PAIRS_AT_ONCE = 1 << 22


def count_pairs(token_file: TokenFile, vocab_size: int) -> NDArray[np.int64]:
    """counts_VV[a, b]: how often token b directly follows token a.

    Every token that is to be learned is counted once, as in an epoch of training with any packing: the first token of
    a document follows an end_of_text, and an end_of_text follows its last.
    """
    counts_VV = np.zeros((vocab_size, vocab_size), dtype=np.int64)
    tokens, is_target = token_file.tokens, token_file.is_target
    for start in range(0, token_file.n_targets, PAIRS_AT_ONCE):
        piece = slice(start, start + PAIRS_AT_ONCE + 1)
        np.add.at(counts_VV, (tokens[piece][:-1], tokens[piece][1:]), 1 if is_target is None else is_target[piece][1:])
    return counts_VV
