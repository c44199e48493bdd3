from dataclasses import replace
from itertools import product

import numpy as np

from pellucid.data import pairs
from pellucid.data.batches import IGNORE_INDEX, Batches
from pellucid.data.pairs import count_pairs
from pellucid.data.token_file import TokenFile

V = 5
TOKENS = np.array([0, 1, 2, 1, 0, 3, 3, 3, 4, 1, 0, 2, 0], dtype=np.uint16)
FILE = TokenFile("train", TOKENS, np.flatnonzero(TOKENS == 0))


def scored_in_an_epoch(packing, file):
    """Each pair of a token and its target that training scores, counted one by one."""
    counts_VV = np.zeros((V, V), dtype=int)
    batches = Batches(file, context_length=4, batch_size=1, seed=0, packing=packing)
    for step in range(len(batches.rows)):
        for token, target in zip(*(tensor[0].tolist() for tensor in batches.batch(step)), strict=True):
            counts_VV[token, max(target, 0)] += target != IGNORE_INDEX
    return counts_VV


def test_the_pairs_counted_are_those_that_an_epoch_of_training_scores_whatever_the_packing():
    in_part = replace(FILE, is_target=np.arange(len(TOKENS)) % 3 > 0)
    for file, packing in product((FILE, in_part), ("documents", "contiguous")):
        np.testing.assert_array_equal(count_pairs(file, V), scored_in_an_epoch(packing, file))


def test_a_text_counted_in_pieces_loses_no_pair(monkeypatch):
    in_part = replace(FILE, is_target=np.arange(len(TOKENS)) % 3 > 0)
    whole, part = count_pairs(FILE, V), count_pairs(in_part, V)
    monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", 3)
    np.testing.assert_array_equal(count_pairs(FILE, V), whole)
    np.testing.assert_array_equal(count_pairs(in_part, V), part)
    assert whole.sum() == FILE.n_targets
