"""Decoders that `exchange/rewrites.py` calls equal are equal."""

from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from model.model_axes import VOCAB_SIZE, build_away_from_zero, float64, tiny_config
from pellucid.config.load import load_run_config
from pellucid.config.shipped import find_config
from pellucid.errors import ConfigError
from pellucid.exchange.rewrites import (
    MOST_TURN,
    as_llama,
    layer_norm_as_rms_norm,
    squared_relu_as_swiglu,
    stride,
    widen_heads,
)
from pellucid.model.build import build_model


def logits_of(config, tensors):
    model = build_model(config, VOCAB_SIZE)
    model.load_state_dict(dict(tensors))
    tokens_BT = torch.randint(VOCAB_SIZE, (3, config.context_length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model.eval()(tokens_BT)


def assert_equal(config, rewrite, atol):
    """The rewritten decoder has the logits that it had. Returns its config."""
    tensors = build_away_from_zero(config).state_dict()
    before = logits_of(config, tensors)
    rewritten, new_tensors = rewrite(config, tensors)
    after = logits_of(rewritten, new_tensors)
    assert before.std() > 0.1
    torch.testing.assert_close(after, before, rtol=0, atol=atol)
    return rewritten


@st.composite
def shapes(draw, **fixed):
    """Decoders of all widths, with key/value heads shared or not, tied or not, normalised queries and keys or not."""
    n_kv_heads, group, head_width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.sampled_from([2, 4, 6]))
    drawn = {
        "d_model": draw(st.integers(3, 12)),
        "n_heads": n_kv_heads * group,
        "n_kv_heads": n_kv_heads,
        "head_width": head_width,
        "d_ff": draw(st.integers(1, 13)),
        "norm_epsilon": draw(st.sampled_from([1e-6, 1e-5, 1e-2])),
        "tied_embeddings": draw(st.booleans()),
        "qk_norm": draw(st.sampled_from([False, True, "all_heads"])),
        "logit_soft_cap": draw(st.sampled_from([None, 3.0])),
        "activation": draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "relu_squared", "swiglu"])),
    }
    drawn.update({name: draw(values) for name, values in fixed.items()})
    return tiny_config(**drawn)


def rope(**knobs):
    return st.fixed_dictionaries({"type": st.just("rope"), **knobs})


positions = st.sampled_from([{"type": "rope"}, {"type": "learned"}, {"type": "none"}])


@settings(max_examples=20)
@given(shapes(position=positions))
def test_layer_norm_is_rms_norm_of_what_is_centred(config):
    with float64():
        rewritten = assert_equal(config, layer_norm_as_rms_norm, atol=1e-9)
    assert rewritten.norm == "rms_norm"


@settings(max_examples=20)
@given(shapes(activation=st.just("relu_squared"), bias=st.booleans()))
def test_a_squared_relu_is_a_sharp_gate(config):
    with float64():
        rewritten = assert_equal(config, squared_relu_as_swiglu, atol=1e-5)
    assert rewritten.activation == "swiglu"


def test_the_gate_differs_from_the_squared_relu_by_no_more_than_its_equation_says():
    z = torch.linspace(-4, 4, 1_000_001, dtype=torch.float64)
    c = 2**12
    error = z * torch.nn.functional.silu(c * z) / c - torch.relu(z).square()
    assert 0 < error.abs().max() < 1 / (2 * c**2)


@settings(max_examples=20)
@given(shapes(norm=st.just("rms_norm"), position=rope(base=st.floats(2, 1e6)), bias=st.booleans()), st.integers(1, 40))
def test_a_wider_head_rotates_as_before(config, more):
    width = config.head_width + 2 * more
    with float64():
        rewritten = assert_equal(config, lambda *decoder: widen_heads(*decoder, width), atol=1e-9)
    assert rewritten.head_width == width


@settings(max_examples=20)
@given(
    shapes(
        norm=st.just("rms_norm"),
        bias=st.booleans(),
        head_width=st.sampled_from([4, 8, 12]),
        position=rope(
            base=st.sampled_from([1e3, 1e4, 1e6]),
            rotated_fraction=st.sampled_from([0.5, 1.0]),
            unrotated_last_layers=st.integers(0, 2),
        )
        | st.just({"type": "none"}),
    ),
    st.sampled_from([16, 32, 64, 128]),
)
def test_a_slow_clock_does_not_turn(config, width):
    """Coordinates that did not rotate may turn by MOST_TURN, 6e-8, over the whole context."""
    assume(width != config.head_width and stride(config, width))
    with float64():
        rewritten = assert_equal(config, lambda *decoder: widen_heads(*decoder, width), atol=100 * MOST_TURN)
    assert rewritten.position.unrotated_last_layers == 0
    assert rewritten.position.rotated_fraction == 1


@pytest.mark.parametrize("rewrite", [layer_norm_as_rms_norm, squared_relu_as_swiglu, as_llama])
def test_in_float32_the_logits_agree_to_rounding(rewrite):
    """Two coordinates alone, normalised, are a step from -1 to 1, which turns rounding into anything: so here a few."""
    choices = {"position": {"type": "rope", "unrotated_last_layers": 1}, "activation": "relu_squared", "qk_norm": True}
    assert_equal(tiny_config(**choices, d_model=16, head_width=8), rewrite, atol=1e-5)


@pytest.mark.parametrize("width", [None, 128])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_the_demo_is_a_qwen3_or_a_llama(width, qk_norm):
    """Its own config at an eighth of its width: LayerNorm, squared ReLU, tied embeddings, an unrotated layer."""
    demo = load_run_config(find_config(Path("fables")), []).model
    tiny = type(demo).model_validate({**demo.model_dump(), "d_model": 16, "n_heads": 2, "qk_norm": qk_norm})
    rewritten = assert_equal(tiny, lambda *decoder: as_llama(*decoder, width), atol=2e-5)
    choices = (rewritten.norm, rewritten.activation, rewritten.position.unrotated_last_layers, rewritten.qk_norm)
    assert choices == ("rms_norm", "swiglu", 0, qk_norm)
    assert rewritten.head_width == (width or 32)


def test_what_is_a_llama_already_stays_as_it_is():
    config = tiny_config(norm="rms_norm", activation="swiglu", position={"type": "rope"})
    tensors = build_away_from_zero(config).state_dict()
    assert as_llama(config, tensors) == (config, tensors)


@pytest.mark.parametrize(
    ("knob", "choices"),
    [
        ("activation", {"activation": "gelu"}),
        ("bias", {"bias": True}),
        ("norm_placement", {"norm_placement": "post"}),
        ("position", {"norm": "rms_norm", "position": {"type": "learned"}}),
        ("position", {"position": {"type": "sinusoidal"}}),
        ("attention", {"attention": "linear", "position": {"type": "none"}}),
    ],
)
def test_what_is_no_llama_is_refused_by_its_knob(knob, choices):
    config = tiny_config(**{"activation": "relu_squared", **choices})
    with pytest.raises(ConfigError, match=f"^model.{knob}: .*; train with "):
        as_llama(config, build_away_from_zero(config).state_dict())


def test_a_head_too_narrow_for_slow_clocks_is_refused():
    config = tiny_config(norm="rms_norm", position={"type": "rope", "unrotated_last_layers": 1})
    with pytest.raises(ConfigError, match="^model.position: .* turn .* in a head of 6; "):
        widen_heads(config, build_away_from_zero(config).state_dict(), width=6)
