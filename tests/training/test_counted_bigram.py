"""Counting finds at once what training finds in the end, and both are the entropy of the text."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from pellucid.config.load import load_run_config
from pellucid.config.model import BigramConfig
from pellucid.data.batches import Batch, evaluation_batches
from pellucid.data.pairs import count_pairs
from pellucid.data.token_file import TokenFile
from pellucid.evaluation.loss import score
from pellucid.model.build import build_model
from pellucid.recipe import build_trainer, prepare_data
from pellucid.training.optimizers import adamw
from pellucid.training.trainer import Trainer
from tiny import CPU_FLOAT32
from tiny_run import TINY_RUN, VERSES

V = 6


def entropy_of_next_given_last(tokens):
    """H(next token | last token) of this text itself, in nats per token, by its definition."""
    tokens = tokens.tolist()
    pairs, lasts = Counter(pairwise(tokens)), Counter(tokens[:-1])
    return -sum(n * math.log(n / lasts[a]) for (a, _), n in pairs.items()) / (len(tokens) - 1)


def loss_on(token_file, model):
    batches = evaluation_batches(token_file, 64, 64, from_document_starts=False)
    return score(model, batches, CPU_FLOAT32).nats.mean()


@pytest.fixture(scope="module")
def chain():
    """20,001 tokens, each drawn by the one before it; some never follow some others."""
    rng = np.random.default_rng(0)
    p_VV = rng.dirichlet(np.full(V, 0.5), size=V) * rng.integers(0, 2, (V, V)) + np.eye(V) * 0.1
    p_VV /= p_VV.sum(axis=1, keepdims=True)
    tokens = [0]
    for _ in range(20_000):
        tokens.append(rng.choice(V, p=p_VV[tokens[-1]]))
    return TokenFile("train", np.array(tokens, dtype=np.uint16), np.array([0]))


def test_counted_equals_trained_equals_the_entropy_of_the_text(chain):
    counted, trained = (build_model(BigramConfig(type="bigram", context_length=100), V) for _ in range(2))
    counted.set_counts(torch.from_numpy(count_pairs(chain, V)))
    tokens = torch.from_numpy(chain.tokens.astype(np.int64))
    whole_text = Batch(tokens[:-1].view(-1, 100), tokens[1:].view(-1, 100))
    optimizers = adamw(trained, lr=0.3, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)
    trainer = Trainer(
        trained, trained, optimizers, lambda step: 1 - step / 100, lambda _, rows: whole_text, CPU_FLOAT32
    )
    for _ in range(100):
        trainer.update()
    entropy = entropy_of_next_given_last(chain.tokens)
    assert 0 < entropy < math.log(V)
    assert loss_on(chain, counted) == pytest.approx(entropy, abs=1e-3)
    assert loss_on(chain, trained) == pytest.approx(loss_on(chain, counted), abs=2e-3)


@pytest.mark.parametrize("packing", ["documents", "contiguous"])
def test_a_run_that_counts_starts_at_the_entropy_of_its_training_text(packing, tmp_path, monkeypatch):
    """But for what it sets aside for pairs that never came: at most 1 nat for each row of the table that is used."""
    (tmp_path / "corpus.txt").write_text(VERSES, encoding="utf-8")
    (tmp_path / "tiny.yaml").write_text(TINY_RUN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    model = "model={type: bigram, context_length: 32, counted: true}"
    config = load_run_config(tmp_path / "tiny.yaml", [model, f"data.packing={packing}"])
    data = prepare_data(config, tmp_path / "data")
    loss, tokens = loss_on(data.train, build_trainer(config, data)[0].model), data.train.tokens
    set_aside = len(set(tokens[:-1].tolist())) / data.train.n_targets
    entropy = entropy_of_next_given_last(tokens)
    assert entropy < loss < entropy + set_aside
    assert math.isfinite(loss_on(data.validation, build_trainer(config, data)[0].model))
