"""Masked prediction: what is hidden, and a run from its training to its evaluation beside the exact floor."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pellucid.config.load import parse_run_config
from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.data.both_sides import nats_of
from pellucid.errors import ConfigError
from pellucid.evaluation import masked
from pellucid.objectives.masked import hide
from tiny_run import TINY_RUN

MASK_ID, CONTROLS = 9, (0, 9)
MASKED = [
    "corpus={type: lookup, keys: 4, values: 3, pairs: 3, queries: 3, size: 200, validation_fraction: 0.1}",
    'tokenizer={type: bpe, vocab_size: 300, special_tokens: ["<|endoftext|>", "<|mask|>"]}',
    "objective={type: masked}",
    "model.attention_mask=none",
    "data={packing: documents, documents_see_each_other: false}",
    "model.context_length=24",
]


def test_a_share_is_hidden_and_only_that_is_to_be_predicted_whatever_part_of_the_batch_is_asked_for():
    ids_BT = torch.randint(1, 9, (64, 50), generator=torch.Generator().manual_seed(0))
    ids_BT[:, 0], ids_BT[:, 40:] = 0, 0
    batch = Batch(ids_BT, ids_BT)
    hidden = hide(batch, 0.15, MASK_ID, CONTROLS, (1, 2))
    is_hidden_BT = hidden.inputs_BT == MASK_ID
    assert torch.equal(is_hidden_BT, hidden.targets_BT != IGNORE_INDEX)
    assert torch.equal(hidden.targets_BT[is_hidden_BT], ids_BT[is_hidden_BT])
    assert torch.equal(hidden.inputs_BT[~is_hidden_BT], ids_BT[~is_hidden_BT])
    assert not is_hidden_BT[ids_BT == 0].any()
    share = is_hidden_BT.sum() / (64 * 39)
    assert abs(share - 0.15) < 4 * math.sqrt(0.15 * 0.85 / (64 * 39))
    assert hide(batch, 1e-9, MASK_ID, CONTROLS, (1, 2)).n_losses == 64, "one of each row, at least"
    assert not torch.equal(hide(batch, 0.15, MASK_ID, CONTROLS, (1, 3)).inputs_BT, hidden.inputs_BT)


def test_each_token_is_hidden_once_in_batches_that_fit_into_memory(monkeypatch):
    monkeypatch.setattr(masked, "TOKENS_AT_ONCE", 12)
    tokens, boundaries = np.array([0, 1, 2, 3, 4, 0, 5, 0, 6, 7]), np.array([0, 5, 7, 10])
    places = []
    for batch, places_BT in masked.one_hidden_each(SimpleNamespace(tokens=tokens), boundaries, MASK_ID, 8):
        assert batch.n_tokens <= 12
        is_hidden_BT = batch.inputs_BT == MASK_ID
        assert is_hidden_BT.sum(dim=1).eq(1).all()
        assert batch.targets_BT[is_hidden_BT].tolist() == tokens[places_BT[is_hidden_BT.numpy()] + 1].tolist()
        places += places_BT[is_hidden_BT.numpy()].tolist()
    assert places == [0, 1, 2, 3, 5, 7, 8], "those before 1, 2, 3, 4; 5; 6, 7"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.attention=linear", "model.attention: only explicit and fused attention, uncapped, can see both sides"),
        ("model.attention_soft_cap=5.0", "model.attention_soft_cap: only explicit and fused"),
        ("model.attention_mask=causal", "objective.type: masked needs a model that sees both sides"),
        ("data.documents_see_each_other=true", "data.documents_see_each_other: a document is filled in from its own"),
    ],
)
def test_what_does_not_go_with_both_sides_is_blamed_by_its_key(change, message):
    with pytest.raises(ConfigError, match=f"command line: {message}"):
        parse_run_config(TINY_RUN, "tiny", [*MASKED, change])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of twenty steps in a folder of its own: (its path, its outcome)."""
    from pellucid.runs.train_run import train_run

    place = tmp_path_factory.mktemp("masked")
    config = parse_run_config(TINY_RUN, "tiny", MASKED)
    return place, config, train_run(config, place / "data", place / "run", resume=False, overwrite=False, note=print)


def test_a_run_is_evaluated_with_one_token_hidden_at_a_time_beside_the_exact_floor(trained):
    from pellucid.trained import load_trained_run

    place, _, outcome = trained
    model, _ = load_trained_run(place / "run", "latest")
    texts = list(model.corpus().documents("validation"))
    nats = [n for text in texts for n in nats_of(model.corpus().language, model.tokenizer, text)[:-1]]
    evaluation = outcome.evaluation
    assert evaluation.n_tokens == len(nats)
    assert evaluation.floor_nats_per_token == pytest.approx(sum(nats) / len(nats))
    assert evaluation.chance is None
    assert evaluation.loss > evaluation.floor_nats_per_token
    mask_id, expected = model.tokenizer.control_id("<|mask|>"), 0.0
    for text in texts:
        ids = [model.tokenizer.end_of_text, *model.tokenizer.encode(text)]
        for t in range(1, len(ids)):
            with torch.no_grad():
                logits = model.model(torch.tensor([[*ids[:t], mask_id, *ids[t + 1 :]]]))[0, t]
            expected -= logits.log_softmax(dim=-1)[ids[t]].item()
    assert evaluation.nats == pytest.approx(expected, rel=1e-5)
    samples = (place / "run" / "samples.md").read_text("utf-8")
    assert "[" in samples
    json.dumps(evaluation.to_json())
