"""Evaluation: figures that follow from one another, and a loss that does not depend on how the text is batched."""

import math

import pytest
import torch

from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.training.evaluation import Evaluation, total_nats
from tiny import CONTEXT_LENGTH, CPU_FLOAT32, VOCAB_SIZE, random_batch, tiny_decoder


def test_the_figures_follow_from_the_nats():
    evaluation = Evaluation(nats=200.0, n_tokens=100, n_bytes=400, floor_nats=160.0)
    assert evaluation.loss_nats_per_token == 2.0
    assert evaluation.perplexity == pytest.approx(math.exp(2.0))
    assert evaluation.bits_per_byte == pytest.approx(0.5 / math.log(2))
    assert evaluation.floor_nats_per_token == 1.6
    assert evaluation.excess_nats_per_token == pytest.approx(0.4)
    assert evaluation.excess_fraction == pytest.approx(0.25)
    assert "floor 1.6000   excess 0.4000 (25.0% of the floor)" in str(evaluation)


def test_without_a_known_truth_there_is_no_floor():
    evaluation = Evaluation(nats=200.0, n_tokens=100, n_bytes=400, floor_nats=None)
    assert evaluation.to_json()["floor_nats_per_token"] is None
    assert evaluation.to_json()["excess_fraction"] is None
    assert "floor" not in str(evaluation)
    assert "floor" not in evaluation.table()


def test_total_nats_is_the_sum_of_minus_log_p_and_turns_dropout_off_meanwhile():
    decoder = tiny_decoder(dropout=0.5).train()
    batches = [random_batch(i) for i in range(3)]
    naive, n_tokens = 0.0, 0
    decoder.eval()
    for batch in batches:
        log_p = decoder(batch.inputs_BT).double().log_softmax(-1)
        for b, t in (batch.targets_BT != IGNORE_INDEX).nonzero().tolist():
            naive -= log_p[b, t, batch.targets_BT[b, t]].item()
            n_tokens += 1
    decoder.train()
    nats, counted = total_nats(decoder, batches, CPU_FLOAT32)
    assert nats == pytest.approx(naive, rel=1e-5)
    assert counted == n_tokens
    assert decoder.training


def test_the_sum_does_not_depend_on_how_rows_are_batched():
    decoder = tiny_decoder()
    whole = random_batch(0, n_rows=6)
    parts = [Batch(whole.inputs_BT[i : i + 2], whole.targets_BT[i : i + 2]) for i in (0, 2, 4)]
    assert total_nats(decoder, [whole], CPU_FLOAT32)[0] == pytest.approx(total_nats(decoder, parts, CPU_FLOAT32)[0])


def test_a_model_that_knows_nothing_scores_the_logarithm_of_the_vocabulary():
    decoder = tiny_decoder()
    with torch.no_grad():
        decoder.embeddings.embedding_VD.zero_()
    nats, n_tokens = total_nats(decoder, [random_batch(0)], CPU_FLOAT32)
    assert nats / n_tokens == pytest.approx(math.log(VOCAB_SIZE))
    assert n_tokens <= 4 * CONTEXT_LENGTH
