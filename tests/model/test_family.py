"""Truths about every kind of model: causality, reading in pieces, reordering, sizes, learning and writing."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from model.family import CONTEXT_LENGTH, FAMILY, family_config
from model.model_axes import VOCAB_SIZE, build_away_from_zero, float64
from pellucid.cost.counts import count_parameters
from pellucid.generation.engine import in_step
from pellucid.generation.in_step import InStep
from pellucid.generation.sampling import Sampling
from pellucid.generation.writing import Writing
from pellucid.model.build import build_model

every_kind = pytest.mark.parametrize("name", FAMILY)

V, D, L, T = VOCAB_SIZE, 8, 2, CONTEXT_LENGTH
NORM = D  # a gain, no bias

PARAMETERS = {
    "decoder": V * D + L * (4 * D**2 + 8 * D**2 + 2 * NORM) + NORM,
    "post-norm decoder": V * D + T * D + L * (4 * D**2 + 8 * D**2 + 2 * NORM),
    "linear decoder": V * D + L * (4 * D**2 + 8 * D**2 + 2 * NORM) + NORM,
    "window decoder": V * D + L * (4 * D**2 + 8 * D**2 + 2 * NORM) + NORM,
    "decoder with experts": V * D + L * (4 * D**2 + 4 * 8 * D**2 + 3 * D + 2 * NORM) + NORM,
    "bigram": V**2,
    "mlp": V * D + (3 * D * 12 + 12) + 12 * D,
    # Each gate has a matrix for what comes up and one for what was before, and two biases.
    "rnn": V * D + 1 * L * (2 * D**2 + 2 * D) + NORM,
    "lstm": V * D + 4 * L * (2 * D**2 + 2 * D) + NORM,
    "gru": V * D + 3 * L * (2 * D**2 + 2 * D) + NORM,
}

# How many of the last tokens a prediction depends on, where these are not all.
TOKENS_SEEN = {"bigram": 1, "mlp": 3, "window decoder": 1 + L * (3 - 1)}


def away_from_zero(name, dtype=torch.float32, **changes):
    """The model with every parameter moved at random, and no dropout."""
    if dtype == torch.float64:
        with float64():
            return build_away_from_zero(family_config(name, **changes)).eval()
    return build_away_from_zero(family_config(name, **changes)).eval()


def random_tokens(n_rows, length, seed=0):
    return torch.randint(V, (n_rows, length), generator=torch.Generator().manual_seed(seed))


@every_kind
def test_no_position_sees_the_future_and_each_sees_as_much_of_the_past_as_its_kind_does(name, monkeypatch):
    """d logits_t / d embedding_s is exactly 0 for s > t, and is not for the s <= t that the model reads.

    Row t of a batch of equal sequences is asked for its logits at t alone, so row t of the gradient is that of
    logits_t. Random weights hide a dependence with probability zero.
    """
    embedded = []
    embedding = F.embedding

    def recorded(*arguments, **options):
        embedded.append(embedding(*arguments, **options))
        embedded[-1].retain_grad()
        return embedded[-1]

    monkeypatch.setattr(F, "embedding", recorded)
    model = away_from_zero(name)
    logits_TTV = model(random_tokens(1, T).repeat(T, 1))
    projection_V = torch.randn(V, generator=torch.Generator().manual_seed(1))
    (logits_TTV.diagonal().mT @ projection_V).sum().backward()
    influence_TT = embedded[0].grad.abs().amax(dim=-1) > 0
    seen = TOKENS_SEEN.get(name, T)
    t, s = torch.arange(T)[:, None], torch.arange(T)
    assert torch.equal(influence_TT, (s <= t) & (s > t - seen))


@every_kind
@given(st.sets(st.integers(1, T - 1)), st.integers(1, 3))
@settings(max_examples=10)
def test_in_whatever_pieces_a_text_is_read_the_logits_are_the_same(name, cuts, n_rows):
    model, tokens_BT = away_from_zero(name, torch.float64), random_tokens(n_rows, T)
    state = model.new_state(n_rows)
    with torch.no_grad():
        pieces = [model(piece_BT, state) for piece_BT in tokens_BT.tensor_split(sorted(cuts), dim=1)]
        assert state.length == T
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens_BT), rtol=0, atol=1e-11)


@every_kind
@given(st.lists(st.integers(0, 2), min_size=1, max_size=4))
@settings(max_examples=6)
def test_a_state_reordered_is_the_state_of_the_rows_in_that_order(name, rows):
    model, before_BT, after_NT = (
        away_from_zero(name, torch.float64),
        random_tokens(3, 5),
        random_tokens(len(rows), 3, 1),
    )
    state = model.new_state(3)
    with torch.no_grad():
        model(before_BT, state)
        state.reorder(torch.tensor(rows))
        logits_NTV = model(after_NT, state)
        expected_NTV = model(torch.cat([before_BT[rows], after_NT], dim=1))[:, 5:]
    assert state.length == 8
    torch.testing.assert_close(logits_NTV, expected_NTV, rtol=0, atol=1e-11)


@every_kind
def test_a_model_has_as_many_parameters_as_its_formula_says(name):
    model = build_model(family_config(name), V)
    assert count_parameters(model).total == PARAMETERS[name] == sum(weight.numel() for weight in model.parameters())


@every_kind
def test_every_parameter_gets_a_gradient(name):
    model = away_from_zero(name)
    F.cross_entropy(model(random_tokens(4, T)).flatten(0, 1), random_tokens(4, T, 1).flatten()).backward()
    assert [each for each, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def best_loss(tokens_BT, n_seen):
    """The loss of a model that gives each token its frequency after the `n_seen` last ones, in these very rows."""
    pairs = [
        (tuple(row[max(0, t + 1 - n_seen) : t + 1]), row[t + 1])
        for row in tokens_BT.tolist()
        for t in range(len(row) - 1)
    ]
    of_pair, of_context = Counter(pairs), Counter(context for context, _ in pairs)
    shares = torch.tensor([of_pair[pair] / of_context[pair[0]] for pair in pairs])
    return -shares.log().mean().item()


@every_kind
def test_one_batch_is_learned_by_heart_as_far_as_what_is_seen_allows(name):
    """With 16 seeds each, all came within 0.014 of the best, but the bigram, which is always 0.138 from it."""
    torch.manual_seed(0)
    model, tokens_BT = build_model(family_config(name), V), random_tokens(2, T + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=100)
    for _ in range(100):
        loss = F.cross_entropy(model(tokens_BT[:, :-1]).flatten(0, 1), tokens_BT[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    best = best_loss(tokens_BT, TOKENS_SEEN.get(name, T))
    assert best - 1e-5 < loss.item() < best + 0.2


@every_kind
def test_writing_goes_on_past_the_context(name):
    """A decoder's window slides; models that keep no positions read on, as far as they please."""
    model, prompt, n_new = away_from_zero(name, torch.float64), [1, 2, 3], 2 * T
    writing = Writing(prompt, n_new, Sampling(0))
    assert len(list(in_step(model, [writing], stop_ids=()))) == n_new
    ids = writing.token_ids
    if model.max_positions > n_new:
        with torch.no_grad():
            logits_TV = model(torch.tensor([prompt + ids]))[0]
        assert logits_TV[len(prompt) - 1 : -1].argmax(dim=-1).tolist() == ids


@every_kind
def test_the_way_that_writes_gives_the_logits_of_the_model(name):
    model, tokens_BT = away_from_zero(name, torch.float64), random_tokens(2, T)
    with torch.inference_mode():
        memory, logits_BTV = InStep(model.eval(), 2, T), model(tokens_BT)
        logits_BV = memory.begin({row: tokens_T[:3].tolist() for row, tokens_T in enumerate(tokens_BT)})
        for t in range(3, T):
            torch.testing.assert_close(logits_BV, logits_BTV[:, t - 1], rtol=0, atol=1e-11)
            logits_BV = memory.step(dict(enumerate(tokens_BT[:, t].tolist())))
