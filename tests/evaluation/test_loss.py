"""Evaluation: figures that follow from one another, and a loss that does not depend on how the text is batched."""

import math

import numpy as np
import pytest
import torch

import foreign_tokenizers as foreign
from pellucid.config.load import parse_run_config
from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.data.scale import as_bytes
from pellucid.data.token_file import TokenFile
from pellucid.evaluation.loss import Evaluation, Scores, evaluation_of, score
from pellucid.model.build import build_model
from pellucid.recipe import evaluate, prepare_data
from pellucid.tokenizer import Tokenizer
from tiny import CONTEXT_LENGTH, CPU_FLOAT32, VOCAB_SIZE, random_batch, tiny_decoder
from tiny_run import TINY_RUN


def test_the_figures_follow_from_the_nats():
    evaluation = Evaluation(nats=200.0, n_tokens=100, n_bytes=400, floor_nats=160.0)
    assert evaluation.loss_nats_per_token == 2.0
    assert evaluation.perplexity == pytest.approx(math.exp(2.0))
    assert evaluation.bits_per_byte == pytest.approx(0.5 / math.log(2))
    assert evaluation.floor_nats_per_token == 1.6
    assert evaluation.excess_nats_per_token == pytest.approx(0.4)
    assert evaluation.excess_fraction == pytest.approx(0.25)
    assert "floor 1.6000   excess 0.4000 (25.0% of the floor)" in str(evaluation)


def test_the_blank_that_llama_2_puts_before_each_text_is_not_counted_among_its_bytes():
    tokenizer = Tokenizer.from_json(foreign.llama2().to_str())
    texts, end = ["The hen ran.", "She's gone", "\nThe fox"], tokenizer.end_of_text
    tokens = np.array([end, *(id_ for text in texts for id_ in (*tokenizer.encode(text), end))])
    held_out, places = TokenFile("text", tokens, np.flatnonzero(tokens == end)), np.arange(len(tokens) - 1)
    scores = Scores(places, np.ones(len(places)), np.ones(len(places), dtype=bool))
    assert evaluation_of(scores, held_out, tokenizer, None).n_bytes == sum(map(len, texts))
    assert as_bytes(tokens, tokenizer)[1:] == "".join(f"{text}\0" for text in texts).encode()


def test_without_a_known_truth_there_is_no_floor():
    evaluation = Evaluation(nats=200.0, n_tokens=100, n_bytes=400, floor_nats=None)
    assert evaluation.to_json()["floor_nats_per_token"] is None
    assert evaluation.to_json()["excess_fraction"] is None
    assert "floor" not in str(evaluation)
    assert "floor" not in evaluation.table()


def with_places(batches):
    """Batches as they come from a file in which their targets stand one after the other."""
    start = 0
    for batch in batches:
        counts = (batch.targets_BT != IGNORE_INDEX).numpy()
        places = np.full(counts.shape, -1)
        places[counts] = np.arange(start, start + counts.sum())
        start += counts.sum()
        yield batch, places


def test_scores_are_minus_log_p_of_every_target_and_dropout_is_off_meanwhile():
    decoder = tiny_decoder(dropout=0.5).train()
    batches = [random_batch(i) for i in range(3)]
    nats, hits = [], []
    decoder.eval()
    for batch in batches:
        log_p = decoder(batch.inputs_BT).double().log_softmax(-1)
        for b, t in (batch.targets_BT != IGNORE_INDEX).nonzero().tolist():
            nats.append(-log_p[b, t, batch.targets_BT[b, t]].item())
            hits.append(log_p[b, t].argmax().item() == batch.targets_BT[b, t].item())
    decoder.train()
    scores = score(decoder, with_places(batches), CPU_FLOAT32)
    assert scores.nats == pytest.approx(nats, rel=1e-5)
    assert scores.hits.tolist() == hits
    assert scores.places.tolist() == list(range(len(nats)))
    assert decoder.training


def test_the_sum_does_not_depend_on_how_rows_are_batched():
    decoder = tiny_decoder()
    whole = random_batch(0, n_rows=6)
    parts = [Batch(whole.inputs_BT[i : i + 2], whole.targets_BT[i : i + 2]) for i in (0, 2, 4)]
    one, several = (score(decoder, with_places(batches), CPU_FLOAT32).nats for batches in ([whole], parts))
    assert one == pytest.approx(several, rel=1e-5)


def test_dropout_is_on_again_after_an_evaluation_that_failed():
    def damaged():
        yield from with_places([random_batch(0)])
        raise OSError("the disk is gone")

    decoder = tiny_decoder(dropout=0.5).train()
    with pytest.raises(OSError, match="the disk is gone"):
        score(decoder, damaged(), CPU_FLOAT32)
    assert all(module.training for module in decoder.modules())


def test_a_model_that_knows_nothing_scores_the_logarithm_of_the_vocabulary():
    decoder = tiny_decoder()
    with torch.no_grad():
        decoder.embeddings.embedding_VD.zero_()
    scores = score(decoder, with_places([random_batch(0)]), CPU_FLOAT32)
    assert scores.nats == pytest.approx(math.log(VOCAB_SIZE))
    assert len(scores.nats) <= 4 * CONTEXT_LENGTH


@pytest.fixture(scope="module")
def tiny_fables_run(tmp_path_factory):
    """A fresh model, and 40 fables that it has not seen."""
    place = tmp_path_factory.mktemp("fables")
    changes = ["corpus={type: fables, size: 60, validation_fraction: 0.66}", "tokenizer.vocab_size=400"]
    config = parse_run_config(TINY_RUN, "tiny.yaml", [*changes, "model.context_length=512"])
    data = prepare_data(config, place)
    torch.manual_seed(0)
    return config, data, build_model(config.model, data.tokenizer.vocab_size)


def test_an_evaluation_counts_tokens_bytes_and_the_floor_of_what_it_scored(tiny_fables_run):
    config, data, model = tiny_fables_run
    whole = evaluate(config, data, model, CPU_FLOAT32)
    assert whole.n_tokens == data.validation.n_targets
    assert whole.n_bytes == data.manifest.validation.bytes
    assert whole.floor_nats == pytest.approx(data.manifest.validation_nats, rel=1e-12)
    part = evaluate(config, data, model, CPU_FLOAT32, max_tokens=1000)
    assert 0 < part.n_tokens < whole.n_tokens
    assert part.floor_nats == pytest.approx(part.floor_nats_per_token * part.n_tokens)


def test_skills_add_up_to_the_evaluation(tiny_fables_run):
    config, data, model = tiny_fables_run
    for max_tokens in (None, 1000):
        evaluation = evaluate(config, data, model, CPU_FLOAT32, max_tokens)
        scores = evaluation.skills.scores.values()
        assert sum(each.loss_nats for each in scores) == pytest.approx(evaluation.nats, rel=1e-12)
        assert sum(each.floor_nats for each in scores) == pytest.approx(evaluation.floor_nats, rel=1e-12)
        assert sum(each.tokens for each in scores) == pytest.approx(evaluation.n_tokens, rel=1e-12)
        assert evaluation.skills.n_documents > 1
    assert set(evaluation.to_json()["skills"]) == set(data.truth.skills) == set(evaluation.to_row()["skills"])
    assert "recall" in evaluation.table()


def test_the_excess_varies_less_from_fable_to_fable_than_the_loss_but_it_does_vary(tiny_fables_run):
    """The model guesses blindly one time in ten. The floor takes the noise of -ln p out, and leaves ln p/p^."""
    _, data, _ = tiny_fables_run
    floors = data.truth.nats[: data.validation.n_targets]
    losses = -np.log(0.9 * np.exp(-floors) + 0.1 / data.tokenizer.vocab_size)
    loss_F, floor_F = (np.add.reduceat(nats, data.validation.boundaries[:-1]) for nats in (losses, floors))
    assert 1 < (loss_F - floor_F).std() < loss_F.std() / 2


def test_a_model_that_knows_the_truth_has_no_excess_in_any_skill(tiny_fables_run):
    """The truth itself in the place of a model: its loss is the floor, skill by skill."""
    _, data, _ = tiny_fables_run
    places = np.arange(data.validation.n_targets)
    scores = Scores(places, data.truth.nats[places], np.ones(len(places), dtype=bool))
    evaluation = evaluation_of(scores, data.validation, data.tokenizer, data.truth)
    assert evaluation.excess_nats_per_token == 0
    assert all(each.excess_nats == pytest.approx(0, abs=1e-9) for each in evaluation.skills.scores.values())
    assert evaluation.skills.scores["recall"].accuracy == 1
