"""Quantized weights: how near they are to the true ones, and how few bits they take."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

from model_axes import VOCAB_SIZE, build_away_from_zero, tiny_config
from pellucid.adapters.lora import merge
from pellucid.adapters.quantized import (
    NF4_VALUES,
    QuantizedLinear,
    bits_per_weight,
    dequantize_int8,
    dequantize_nf4,
    quantize,
    quantize_constants,
    quantize_int8,
    quantize_nf4,
)
from reference import quantized as reference

FORMATS = ["int8", "nf4", "nf4-double"]

# Sizes that fill the last block and do not, even and odd; whole blocks of zeros; numbers of all sizes.
numbers = st.integers(1, 200).flatmap(
    lambda n: arrays(np.float64, n, elements=st.just(0.0) | st.floats(1e-9, 1e9) | st.floats(-1e9, -1e-9))
)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def unpacked(codes: torch.Tensor, n: int) -> list[int]:
    return [code for byte in codes.tolist() for code in divmod(byte, 16)][:n]


@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_int8_is_the_loops(n):
    x_N = normal(n)
    codes, constants = quantize_int8(x_N)
    assert (codes.tolist(), constants.tolist()) == reference.int8(x_N.tolist())
    assert dequantize_int8(codes, constants).tolist() == reference.from_int8(codes.tolist(), constants.tolist())


@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_nf4_is_the_loops(n):
    x_N = normal(n)
    codes, constants = quantize_nf4(x_N)
    assert len(codes) == math.ceil(n / 2)
    assert (unpacked(codes, n), constants.tolist()) == reference.nf4(x_N.tolist())
    expected = reference.from_nf4(*reference.nf4(x_N.tolist()))
    assert dequantize_nf4(codes, constants, n).tolist() == pytest.approx(expected, abs=1e-7)


def test_double_quantization_is_the_loops():
    layer = nn.Linear(300, 70, bias=False, dtype=torch.float64)  # two blocks of constants, the second one short
    expected = reference.from_double(*reference.nf4(layer.weight.flatten().tolist()))
    found = QuantizedLinear(layer, "nf4-double").weight.flatten().tolist()
    assert found == pytest.approx(expected, abs=1e-7)


@given(numbers)
def test_int8_is_nowhere_further_off_than_half_a_step(x):
    x_N = torch.from_numpy(x)
    codes, constants = quantize_int8(x_N)
    half_a_step = constants.repeat_interleave(64)[: len(x_N)] / 2
    assert ((dequantize_int8(codes, constants) - x_N).abs() <= half_a_step * (1 + 1e-9)).all()


@given(numbers)
def test_nf4_is_nowhere_further_off_than_half_the_widest_gap(x):
    x_N = torch.from_numpy(x)
    codes, constants = quantize_nf4(x_N)
    half_a_gap = constants.repeat_interleave(64)[: len(x_N)] * np.diff(NF4_VALUES).max() / 2
    assert ((dequantize_nf4(codes, constants, len(x_N)) - x_N).abs() <= half_a_gap * (1 + 1e-9)).all()


@given(numbers)
def test_what_is_quantized_again_has_the_same_codes(x):
    x_N = torch.from_numpy(x)
    codes, constants = quantize_int8(x_N)
    assert torch.equal(quantize_int8(dequantize_int8(codes, constants))[0], codes)
    codes, constants = quantize_nf4(x_N)
    again = quantize_nf4(dequantize_nf4(codes, constants, len(x_N)))
    assert torch.equal(again[0], codes)
    assert torch.equal(again[1], constants)


@given(numbers)
def test_a_constant_is_off_by_half_a_step_of_its_own_block_at_most(x):
    constants_M = torch.from_numpy(x).abs()
    found = quantize_constants(constants_M)
    back = dequantize_int8(found["constant_codes"], found["constants_of_constants"], 256) + found["mean_constant"]
    half_a_step = found["constants_of_constants"].max() / 2
    assert ((back - constants_M).abs() <= half_a_step * (1 + 1e-9) + 1e-12 * constants_M.max()).all()


def test_a_block_of_zeros_stays_zeros():
    for to in FORMATS:
        layer = nn.Linear(64, 2, bias=False)
        with torch.no_grad():
            layer.weight[0] = 0
        weight = QuantizedLinear(layer, to).weight
        assert torch.equal(weight[0], torch.zeros(64))
        assert (weight[1] != 0).any()


def test_one_large_number_spoils_its_own_block_alone():
    weight = normal(2, 64)
    spoiled = weight.clone()
    spoiled[0, 0] = 1000.0
    for quantized, back in [(quantize_int8, dequantize_int8), (quantize_nf4, lambda *q: dequantize_nf4(*q, 128))]:
        exact, off = (back(*quantized(each.flatten())).view(2, 64) for each in (weight, spoiled))
        assert torch.equal(exact[1], off[1])
        assert off[0, 1:].count_nonzero() < exact[0, 1:].count_nonzero()


def test_the_sixteen_values_are_quantiles_of_the_normal_distribution():
    """Eight from the half above zero, seven from the half below, and zero; divided by the largest (appendix E)."""
    last = 1 - (1 / 30 + 1 / 32) / 2
    quantile = np.vectorize(NormalDist().inv_cdf)
    above, below = quantile(np.linspace(last, 0.5, 9)[:-1]), -quantile(np.linspace(last, 0.5, 8)[:-1])
    values = np.sort(np.concatenate([above, below, [0.0]])) / above.max()
    assert len(NF4_VALUES) == 16
    np.testing.assert_allclose(NF4_VALUES, values, atol=1e-6)


def test_bits_for_each_weight():
    layer = nn.Linear(1024, 1024)
    bits = {to: bits_per_weight(QuantizedLinear(layer, to)) for to in FORMATS}
    assert bits["int8"] == 8.5
    assert bits["nf4"] == 4.5
    assert bits["nf4-double"] == pytest.approx(4 + 8 / 64 + 32 / (64 * 256) + 32 / 1024**2)
    assert round(bits["nf4-double"], 3) == 4.127


@pytest.mark.parametrize("to", FORMATS)
def test_linear_layers_inside_blocks_are_quantized_and_nothing_else(to):
    model = build_away_from_zero(tiny_config(bias=True, position={"type": "learned"}, activation="swiglu"))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    quantize(model, to)
    after = dict(model.named_parameters())
    missing = before.keys() - after.keys()
    assert len(missing) == 2 * (4 + 3)
    assert all(name.startswith("blocks.") and name.endswith(".weight") and "norm" not in name for name in missing)
    assert all(torch.equal(after[name], before[name]) for name in after)
    for name in missing:
        layer = model.get_submodule(name.removesuffix(".weight"))
        assert isinstance(layer, QuantizedLinear)
        assert 0 < (layer.weight - before[name]).abs().max() < 0.2 * before[name].abs().max()


def test_the_router_of_experts_stays_exact():
    model = build_away_from_zero(tiny_config(feed_forward={"type": "moe", "n_experts": 3, "top_k": 1}))
    quantize(model, "nf4")
    kept = {name.rpartition(".")[0] for name, _ in model.named_parameters() if name.startswith("blocks.")}
    assert not any("W_" in name for name in kept)
    assert any(name.endswith("router") for name in kept)


@pytest.mark.parametrize("to", FORMATS)
def test_the_input_gets_the_gradient_of_the_weights_as_they_count_and_they_get_none(to):
    layer = QuantizedLinear(nn.Linear(10, 6), to)
    x = torch.randn(3, 10, requires_grad=True)
    layer(x).square().sum().backward()
    plain = x.detach().clone().requires_grad_()
    nn.functional.linear(plain, layer.weight, layer.bias).square().sum().backward()
    assert torch.equal(x.grad, plain.grad)
    assert [name for name, parameter in layer.named_parameters() if parameter.requires_grad] == []


@pytest.mark.parametrize("to", FORMATS)
def test_a_quantized_model_computes_with_the_values_its_codes_stand_for(to):
    model = build_away_from_zero(tiny_config(bias=True))
    quantize(model, to)
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    expected = model(tokens_BT)
    merge(model)
    assert not any(isinstance(module, QuantizedLinear) for module in model.modules())
    torch.testing.assert_close(model(tokens_BT), expected)
