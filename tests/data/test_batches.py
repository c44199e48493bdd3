from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.batches import IGNORE_INDEX, Batches, batch_of, evaluation_batches
from pellucid.data.packing import contiguous_rows, document_rows, packed_document_rows
from pellucid.data.token_file import TokenFile
from pellucid.errors import DataError
from reference.packing import best_fit_decreasing

LENGTHS = st.lists(st.integers(0, 20), min_size=1, max_size=30)
CONTEXTS = st.integers(1, 12)
PACKINGS = pytest.mark.parametrize("packing", ["contiguous", "documents"])


def token_file(lengths):
    """Documents of these lengths, in which each token is its own position: 0, 1, 2, …"""
    boundaries = np.cumsum([0, *(length + 1 for length in lengths)])
    return TokenFile("train", np.arange(boundaries[-1] + 1, dtype=np.uint16), boundaries)


def targets_in(batches):
    """All targets that count. Checks that each stands right behind its input, and that padding is end_of_text."""
    targets = []
    for inputs_BT, targets_BT in batches:
        assert inputs_BT.shape == targets_BT.shape
        assert inputs_BT.dtype == targets_BT.dtype == torch.int64
        counts = targets_BT != IGNORE_INDEX
        assert torch.equal(inputs_BT[counts] + 1, targets_BT[counts])
        assert not inputs_BT[~counts].any()
        targets += targets_BT[counts].tolist()
    return targets


def every_target_once(file):
    return list(range(1, len(file.tokens)))


def without_padding(batch):
    """The inputs of each row."""
    return [inputs[targets != IGNORE_INDEX].tolist() for inputs, targets in zip(*batch, strict=True)]


def rows_as_lists(file, rows, width):
    return without_padding(batch_of(file, rows.places(np.arange(len(rows)), width)))


@given(LENGTHS, CONTEXTS)
def test_contiguous_rows_are_equal_windows_of_the_stream(lengths, context_length):
    file = token_file(lengths)
    rows = rows_as_lists(file, contiguous_rows(file, context_length), context_length)
    stream = list(range(file.n_targets))
    assert rows == [stream[i : i + context_length] for i in range(0, len(stream), context_length)]


@given(LENGTHS, CONTEXTS)
def test_document_rows_are_the_documents_cut_only_where_they_are_too_long(lengths, context_length):
    file = token_file(lengths)
    documents = [list(range(a, b)) for a, b in pairwise(file.boundaries.tolist())]
    expected = [d[i : i + context_length] for d in documents for i in range(0, len(d), context_length)]
    assert rows_as_lists(file, document_rows(file, context_length), context_length) == expected


@given(LENGTHS, CONTEXTS)
def test_packed_rows_start_at_documents_and_cut_none_that_fits(lengths, context_length):
    file = token_file(lengths)
    boundaries = set(file.boundaries.tolist())
    rows = packed_document_rows(file, context_length)
    packed = rows_as_lists(file, rows, context_length)
    assert sorted(position for row in packed for position in row) == list(range(file.n_targets))
    length_at = dict(zip(file.boundaries.tolist(), np.diff(file.boundaries).tolist(), strict=False))
    for row, lengths_in_row in zip(packed, np.split(rows.lengths, rows.first_runs[1:-1]), strict=True):
        is_rest_of_long_document = row[0] not in boundaries
        assert not is_rest_of_long_document or row[0] - max(b for b in boundaries if b < row[0]) >= context_length
        starts = np.cumsum([0, *lengths_in_row[:-1]])
        for start, length in list(zip(starts, lengths_in_row, strict=True))[is_rest_of_long_document:]:
            assert length == min(length_at[row[start]], context_length)


@given(st.lists(st.integers(0, 20), min_size=2, max_size=30), st.integers(21, 60))
def test_packing_is_best_fit_decreasing(lengths, context_length):
    file = token_file(lengths)
    rows = packed_document_rows(file, context_length)
    expected = best_fit_decreasing([length + 1 for length in lengths], context_length)  # and its end_of_text
    document_at = {start: i for i, start in enumerate(file.boundaries.tolist())}
    packed = [[document_at[start] for start in row.tolist()] for row in np.split(rows.starts, rows.first_runs[1:-1])]
    assert sorted(packed) == expected
    assert all(row == sorted(row) for row in packed), "in the order of the file"


def test_packing_wastes_little():
    rng = np.random.default_rng(0)
    file = token_file(rng.integers(20, 200, size=300))
    rows = packed_document_rows(file, 256)
    assert file.n_targets / (len(rows) * 256) > 0.97


@PACKINGS
@given(lengths=LENGTHS, context_length=CONTEXTS, batch_size=st.integers(1, 9))
def test_an_epoch_brings_every_target_once(packing, lengths, context_length, batch_size):
    file = token_file([*lengths, 12])
    training = Batches(file, context_length, batch_size, seed=3, packing=packing)
    n_rows = len(training.rows)
    n_epochs = batch_size  # after so many epochs a batch ends just where the epoch does
    batches = [training.batch(step) for step in range(n_rows)]
    assert sorted(targets_in(batches)) == sorted(every_target_once(file) * n_epochs)
    assert training.steps_per_epoch * n_epochs == n_rows
    rows = [row for batch in batches for row in without_padding(batch)]
    assert len(rows) == n_rows * n_epochs
    for epoch in range(n_epochs):
        in_epoch = rows[epoch * n_rows : (epoch + 1) * n_rows]
        assert sorted(in_epoch) == sorted(rows[:n_rows]), "each row once per epoch"


@given(lengths=LENGTHS, context_length=CONTEXTS, batch_size=st.integers(1, 4), step=st.integers(0, 50))
def test_a_batch_of_documents_ends_with_its_longest_row_unless_full_width_is_wanted(
    lengths, context_length, batch_size, step
):
    file = token_file([*lengths, 12])
    cut, full = (
        Batches(file, context_length, batch_size, seed=3, packing="documents", full_width=full_width).batch(step)
        for full_width in (False, True)
    )
    width = cut.inputs_BT.size(1)
    assert (cut.targets_BT[:, -1] != IGNORE_INDEX).any(), "no column is padding alone"
    assert full.inputs_BT.shape == (batch_size, context_length)
    assert torch.equal(full.inputs_BT[:, :width], cut.inputs_BT)
    assert torch.equal(full.targets_BT[:, :width], cut.targets_BT)
    assert (full.targets_BT[:, width:] == IGNORE_INDEX).all()


@given(lengths=LENGTHS, context_length=CONTEXTS, update=st.integers(0, 30), batch_size=st.integers(1, 4))
def test_an_update_reads_the_same_rows_in_one_batch_or_in_several(lengths, context_length, update, batch_size):
    file = token_file([*lengths, 12])
    at_once = Batches(file, context_length, 3 * batch_size, seed=3, packing="documents")
    in_parts = Batches(file, context_length, batch_size, seed=3, packing="documents", batches_per_update=3)
    parts = [row for i in range(3) for row in without_padding(in_parts.batch(3 * update + i))]
    assert parts == without_padding(at_once.batch(update))


def test_batches_of_documents_need_little_padding_and_come_in_no_order_of_length():
    """Lengths as those of the fables, of which a full width would pad 23 %."""
    lengths = np.random.default_rng(0).normal(147, 8, size=4000).astype(int)
    batches = Batches(token_file(lengths), 192, 24, seed=0, packing="documents")
    several = [batches.batch(step) for step in range(100, 150)]
    targets = torch.cat([batch.targets_BT.flatten() for batch in several])
    assert (targets == IGNORE_INDEX).float().mean() < 0.02
    widths = [batch.inputs_BT.size(1) for batch in several]
    assert max(widths[:10]) - min(widths[:10]) > 10


@PACKINGS
def test_a_batch_is_a_pure_function_of_seed_step_and_rank(packing):
    file = token_file([5] * 40)

    def batches(**changes):
        return Batches(file, 8, 4, **{"seed": 1, "packing": packing, **changes})

    forwards, backwards = batches(), batches()
    steps = range(30)
    assert all(
        torch.equal(a, b)
        for batch, other in zip(
            [forwards.batch(step) for step in steps],
            reversed([backwards.batch(step) for step in reversed(steps)]),
            strict=True,
        )
        for a, b in zip(batch, other, strict=True)
    )
    assert not torch.equal(batches().batch(7).inputs_BT, batches(seed=2).batch(7).inputs_BT)
    assert not torch.equal(batches().batch(7).inputs_BT, batches().batch(8).inputs_BT)


def test_the_order_of_rows_stays_as_it_is_and_the_second_epoch_has_another():
    """Pinned: another order would make a resumed run see other text than the uninterrupted one."""
    batches = Batches(token_file([99]), 10, 5, seed=2**40 + 1)
    assert [batches.batch(step).inputs_BT[:, 0].tolist() for step in range(3)] == [
        [10, 40, 90, 70, 0],
        [80, 60, 50, 20, 30],
        [0, 80, 40, 70, 90],
    ]


@pytest.mark.parametrize("context_length", [1, 2, 20])
@PACKINGS
def test_a_corpus_of_exactly_one_context_is_enough_and_one_token_less_is_an_error(packing, context_length):
    file = token_file([context_length - 1])
    batch = Batches(file, context_length, 2, seed=0, packing=packing).batch(0)
    assert batch.targets_BT.tolist() == [every_target_once(file)] * 2
    with pytest.raises(
        DataError, match=f"train split: its {len(file.tokens)} tokens .*context_length {context_length + 1}"
    ):
        Batches(file, context_length + 1, 2, seed=0, packing=packing)


def test_the_first_token_of_a_document_is_predicted_from_the_end_of_text_before_it():
    """Equation 2: w_0 is the end_of_text, in training and in evaluation."""
    end_of_text = 0
    tokens = np.array([end_of_text, 5, 6, end_of_text, 7, end_of_text], dtype=np.uint16)
    file = TokenFile("train", tokens, np.array([0, 3, 5]))
    trained = batch_of(file, document_rows(file, 8).places(np.arange(2), 8))
    [(evaluated, _)] = evaluation_batches(file, 8, 2, from_document_starts=True)
    for inputs_BT, targets_BT in (trained, evaluated):
        counts = targets_BT != IGNORE_INDEX
        learned = sorted(
            (row[is_there].tolist(), after[is_there].tolist())
            for row, after, is_there in zip(inputs_BT, targets_BT, counts, strict=True)
        )
        assert learned == [([end_of_text, 5, 6], [5, 6, end_of_text]), ([end_of_text, 7], [7, end_of_text])]


@given(LENGTHS, CONTEXTS, st.integers(1, 5), st.booleans())
def test_evaluation_scores_every_target_once(lengths, context_length, batch_size, from_document_starts):
    file = token_file(lengths)
    batches, places = zip(
        *evaluation_batches(file, context_length, batch_size, from_document_starts=from_document_starts), strict=True
    )
    assert sorted(p for each in places for p in each[each >= 0].tolist()) == list(range(file.n_targets))
    for batch, places_BT in zip(batches, places, strict=True):
        counts = batch.targets_BT != IGNORE_INDEX
        assert np.array_equal(counts.numpy(), places_BT >= 0)
        assert np.array_equal(batch.targets_BT[counts].numpy(), file.tokens[places_BT[places_BT >= 0] + 1])
    assert sorted(targets_in(batches)) == every_target_once(file)
    for batch in batches:
        assert len(batch.inputs_BT) <= batch_size
        assert (batch.targets_BT[:, -1] != IGNORE_INDEX).any(), "no column is padding alone"


def test_evaluation_from_document_starts_sees_no_other_document():
    file = token_file([3, 7, 1, 5])
    batches = evaluation_batches(file, 16, 2, from_document_starts=True)
    rows = [
        inputs[targets != IGNORE_INDEX].tolist() for batch, _ in batches for inputs, targets in zip(*batch, strict=True)
    ]
    assert sorted(rows) == [list(range(a, b)) for a, b in pairwise(file.boundaries.tolist())]


@given(LENGTHS, CONTEXTS, st.integers(1, 200), st.booleans())
def test_evaluation_of_a_part_takes_about_as_many_tokens_as_asked(lengths, context_length, max_tokens, from_starts):
    file = token_file(lengths)
    batches = evaluation_batches(file, context_length, 3, from_document_starts=from_starts, max_tokens=max_tokens)
    targets = targets_in(batch for batch, _ in batches)
    assert len(targets) == len(set(targets)) > 0
    if max_tokens >= file.n_targets:
        assert len(targets) == file.n_targets


def test_evaluation_of_a_part_is_spread_over_the_file():
    file = token_file([9] * 1000)
    batches = evaluation_batches(file, 10, 8, from_document_starts=True, max_tokens=1000)
    targets = targets_in(batch for batch, _ in batches)
    assert len(targets) == 1000
    assert min(targets) < 100
    assert max(targets) > 9800
