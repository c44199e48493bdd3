"""Linear attention: three ways to read a text, one result, and a state that does not grow."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.model_axes import VOCAB_SIZE, build_away_from_zero, float64, tiny_config
from pellucid.model.kv_cache import NoCache
from pellucid.model.linear_attention import (
    CHUNK,
    LinearAttention,
    feature_map,
    in_chunks,
    in_parallel,
    step_by_step,
)
from pellucid.model.positions import Rotary
from pellucid.model.recompute import recompute_activations
from reference import attention as reference
from reference.positions import rotate
from rounding import assert_equal_to_rounding

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def not_at_all(x_BHTK, _start):
    return x_BHTK


def build_attention(*, n_heads=4, n_kv_heads=2, rotate=not_at_all, dropout=0.0):
    torch.manual_seed(0)
    return LinearAttention(
        d_model=16,
        head_width=16 // n_heads,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        rotate=rotate,
        query_norm=nn.Identity(),
        key_norm=nn.Identity(),
        bias=True,
        output_bias=True,
        dropout=dropout,
    ).double()


def test_no_two_keys_are_orthogonal_so_every_answer_holds_some_of_every_value():
    """Even of keys that point in opposite directions: phi is positive."""
    k = 5 * torch.cat([torch.eye(4), -torch.eye(4)]).double()
    keys, values = feature_map(k), torch.eye(8, dtype=torch.float64)
    assert (keys @ keys.T > 0).all()
    answers, _ = in_parallel(
        *(x.view(1, 1, 1, 8, -1) for x in (keys, keys, values)), torch.zeros(1, 1, 1, 4, 8).double()
    )
    shares = answers[0, 0, 0, -1] / answers[0, 0, 0, -1].sum()
    assert (shares > 0).all()
    assert shares[-1] < 0.5, "less than half of its own"


def test_the_feature_map_is_elu_plus_one():
    x = torch.tensor([-2.0, -0.5, 0.0, 3.0])
    torch.testing.assert_close(feature_map(x), torch.tensor([np.exp(-2.0), np.exp(-0.5), 1.0, 4.0], dtype=x.dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@given(
    length=st.integers(1, 9),
    n_kv_heads=st.integers(1, 2),
    heads_each=st.integers(1, 2),
    width=st.integers(1, 5),
    value_width=st.integers(1, 5),
    chunk=st.integers(1, 10),
    seed=st.integers(0, 2**32 - 2),
)
@settings(deadline=None, max_examples=40)
def test_in_parallel_in_chunks_and_step_by_step_are_the_loop_of_equation_38(
    dtype, length, n_kv_heads, heads_each, width, value_width, chunk, seed
):
    """A last column of ones in the values sums the weights."""
    q = random(2, n_kv_heads, heads_each, length, width, seed=seed, dtype=dtype)
    k = random(2, n_kv_heads, 1, length, width, seed=seed + 1, dtype=dtype)
    v = random(2, n_kv_heads, 1, length, value_width, seed=seed + 2, dtype=dtype)
    v_and_1 = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    nothing = torch.zeros(2, n_kv_heads, 1, width, value_width + 1, dtype=dtype)

    def heads(form, *arguments):
        sums, S = form(feature_map(q), feature_map(k), v_and_1, nothing, *arguments)
        return sums[..., :-1] / (sums[..., -1:] + 1e-6), S / length

    parallel, *others = heads(in_parallel), heads(in_chunks, chunk), heads(step_by_step)
    for other in others:
        torch.testing.assert_close(other, parallel, rtol=0, atol=TOLERANCES[dtype])
    for row, group, head in np.ndindex(2, n_kv_heads, heads_each):
        one_head = (q[row, group, head], k[row, group, 0], v[row, group, 0])
        expected = reference.linear_attention(*(x.double().numpy() for x in one_head))
        np.testing.assert_allclose(parallel[0][row, group, head], expected, rtol=0, atol=TOLERANCES[dtype])


@given(st.integers(1, 8), st.integers(0, 8), st.integers(1, 4), st.integers(0, 2**32 - 2))
@settings(deadline=None, max_examples=40)
def test_every_form_goes_on_from_what_was_read_before(length, n_before, chunk, seed):
    q, k, v = (random(1, 1, 1, n_before + length, 3, seed=seed + i) for i in range(3))
    nothing = torch.zeros(1, 1, 1, 3, 3, dtype=torch.float64)
    whole, S_whole = in_parallel(q, k, v, nothing)
    _, S = in_parallel(*(x[..., :n_before, :] for x in (q, k, v)), nothing)
    rest = tuple(x[..., n_before:, :] for x in (q, k, v))
    for sums, S_after in (in_parallel(*rest, S), in_chunks(*rest, S, chunk), step_by_step(*rest, S)):
        torch.testing.assert_close(sums, whole[..., n_before:, :])
        torch.testing.assert_close(S_after, S_whole)


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(1, 1), (4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("rotates", [False, True])
def test_a_layer_is_the_loops_of_equations_9_and_38(n_heads, n_kv_heads, rotates):
    width = 16 // n_heads
    turn = Rotary(8, width).double().rotate if rotates else not_at_all
    attention = build_attention(n_heads=n_heads, n_kv_heads=n_kv_heads, rotate=turn)
    x = random(2, 5, 16)
    weights = {f"W_{s}": getattr(attention, f"W_{s}").weight.detach().numpy() for s in "QKVO"}
    biases = {f"b_{s}": getattr(attention, f"W_{s}").bias.detach().numpy() for s in "QKVO"}

    def turned(head):
        return rotate(head, 0, 10_000.0) if rotates else head

    def attend(q, k, v):
        return reference.linear_attention(q, k, v, turned, turned)

    output = attention(x, NoCache()).detach().numpy()
    for row in range(2):
        expected = reference.multi_head_attention(
            x[row].numpy(), n_heads=n_heads, n_kv_heads=n_kv_heads, **weights, **biases, attend=attend
        )
        # The table of RoPE is made in float32.
        np.testing.assert_allclose(output[row], expected, rtol=0, atol=1e-6 if rotates else 1e-12)


@torch.no_grad()
def test_a_text_longer_than_a_chunk_read_token_by_token_is_the_text_read_at_once():
    attention = build_attention()
    x = random(2, 2 * CHUNK + 5, 16)
    sums = attention.new_cache(2, 0, like=x)
    pieces = [attention(token, sums) for token in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), attention(x, NoCache()), rtol=0, atol=1e-12)
    assert sums.length == 2 * CHUNK + 5


@torch.no_grad()
def test_the_state_is_as_large_after_a_thousand_tokens_as_before_the_first():
    with float64():
        model = build_away_from_zero(tiny_config(attention="linear", position={"type": "none"}, context_length=1000))

    def n_bytes(state):
        """Also of what a view keeps alive."""
        return [x.untyped_storage().nbytes() for layer in state.layers for x in (layer.S_BGKV, layer.z_BGK)]

    state = model.new_state(3)
    before = n_bytes(state)
    for length in (999, 1):
        model(torch.randint(VOCAB_SIZE, (3, length)), state)
        assert n_bytes(state) == before == 2 * [8 * 3 * 2 * 4 * 4, 8 * 3 * 2 * 4]
    assert state.length == 1000


def test_reordered_sequences_keep_their_own_sums():
    model = build_away_from_zero(tiny_config(attention="linear"))
    tokens_BT, rows = torch.randint(VOCAB_SIZE, (3, 8)), torch.tensor([2, 0, 0])
    with torch.no_grad():
        state = model.new_state(3)
        model(tokens_BT[:, :5], state)
        state.reorder(rows)
        torch.testing.assert_close(model(tokens_BT[rows, 5:], state), model(tokens_BT[rows])[:, 5:])


def test_products_in_bfloat16_leave_the_sums_in_float32():
    """In bfloat16, 256 + 1 is 256: the sums would stop to grow."""
    model = build_away_from_zero(tiny_config(attention="linear", context_length=300))
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 300))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        state = model.new_state(2)
        pieces = [model(piece_BT, state) for piece_BT in tokens_BT.split([299, 1], dim=1)]
        assert state.layers[0].S_BGKV.dtype == state.layers[0].z_BGK.dtype == torch.float32
        assert pieces[0].dtype == torch.bfloat16
        assert_equal_to_rounding(torch.cat(pieces, dim=1), model(tokens_BT), dtype=torch.bfloat16)
    assert_equal_to_rounding(torch.cat(pieces, dim=1), model(tokens_BT).detach(), dtype=torch.bfloat16)


def test_queries_that_want_no_key_give_zeros_and_finite_gradients():
    """Where all of phi(q) is zero to rounding, there is no weight to divide by."""
    attention = build_attention()
    with torch.no_grad():
        attention.W_Q.bias.fill_(-1e4)
    x = random(1, 3, 16).requires_grad_()
    output = attention(x, NoCache())
    torch.testing.assert_close(output, attention.W_O.bias.expand_as(output))
    output.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in attention.parameters())


def test_recomputed_activations_give_the_same_gradients():
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    gradients = []
    for recomputes in (False, True):
        model = build_away_from_zero(tiny_config(attention="linear"))
        if recomputes:
            recompute_activations(model.blocks)
        model(tokens_BT).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("attention", ["linear", {"type": "sliding_window", "window": 2}], ids=["linear", "window"])
def test_the_forward_pass_compiles_to_one_graph(attention):
    model = build_away_from_zero(tiny_config(attention=attention, n_kv_heads=1, qk_norm=True))
    tokens_BT = torch.arange(8).view(2, 4)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens_BT), model(tokens_BT))


def test_dropout_acts_on_the_output_in_training_alone():
    x = random(2, 5, 16)
    dropped, without = build_attention(dropout=0.5), build_attention()
    assert torch.equal(dropped.eval()(x, NoCache()), without(x, NoCache()))
    assert 0.3 < (dropped.train()(x, NoCache()) == 0).double().mean() < 0.7
