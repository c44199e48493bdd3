"""peft's LoRA and bitsandbytes' NF4, on a CPU, give what ours give."""

import pytest
import torch
from torch import nn

from pellucid.adapters.lora import LoRALinear, add_lora, merge
from pellucid.adapters.quantized import (
    QuantizedLinear,
    dequantize_int8,
    quantize_constants,
    quantize_nf4,
)

peft = pytest.importorskip("peft")
functional = pytest.importorskip("bitsandbytes.functional")

RANK, ALPHA = 4, 12.0


class Stack(nn.Module):
    """Two layers, in `blocks` as our models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        self.blocks.add_module("W_1", nn.Linear(16, 32))
        self.blocks.add_module("W_2", nn.Linear(32, 8, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks.W_2(self.blocks.W_1(x).relu())


@pytest.fixture
def both():
    """Ours and peft's, around the same weights, with the same A and B."""
    ours, theirs = Stack(), Stack()
    theirs.load_state_dict(ours.state_dict())
    add_lora(ours, RANK, ALPHA)
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=["W_1", "W_2"])
    theirs = peft.get_peft_model(theirs, config)
    for name in ("W_1", "W_2"):
        layer, other = ours.blocks.get_submodule(name), theirs.base_model.model.blocks.get_submodule(name)
        assert other.lora_A.default.weight.shape == layer.A_RI.shape
        assert other.lora_B.default.weight.shape == layer.B_OR.shape
        with torch.no_grad():
            layer.B_OR.normal_()
            other.lora_A.default.weight.copy_(layer.A_RI)
            other.lora_B.default.weight.copy_(layer.B_OR)
    return ours, theirs


def test_outputs_and_gradients_are_those_of_peft(both):
    ours, theirs = both
    x = torch.randn(5, 16)
    for model in both:
        model(x).square().sum().backward()
    torch.testing.assert_close(ours(x), theirs(x))
    for name in ("W_1", "W_2"):
        layer, other = ours.blocks.get_submodule(name), theirs.base_model.model.blocks.get_submodule(name)
        torch.testing.assert_close(layer.A_RI.grad, other.lora_A.default.weight.grad)
        torch.testing.assert_close(layer.B_OR.grad, other.lora_B.default.weight.grad)
        assert layer.base.weight.grad is other.base_layer.weight.grad is None


def test_as_many_parameters_learn_as_in_peft(both):
    ours, theirs = both
    assert sum(p.numel() for p in ours.parameters() if p.requires_grad) == theirs.get_nb_trainable_parameters()[0]


def test_merged_weights_are_those_of_peft(both):
    ours, theirs = both
    merge(ours)
    for name, tensor in theirs.merge_and_unload().state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor)


def test_a_and_b_begin_as_in_peft():
    """In the same distribution: A uniform within one over the root of its width, B zero."""
    config = peft.LoraConfig(r=16, target_modules=["W_1"])
    theirs = peft.get_peft_model(Stack(), config).base_model.model.blocks.W_1
    ours = LoRALinear(nn.Linear(16, 32), 16, 16.0)
    for A, B in ((ours.A_RI, ours.B_OR), (theirs.lora_A.default.weight, theirs.lora_B.default.weight)):
        assert 0.9 * 16**-0.5 < A.abs().max() <= 16**-0.5
        assert B.count_nonzero() == 0


@pytest.mark.parametrize("shape", [(64, 64), (32, 96), (300, 64)])
def test_nf4_codes_constants_and_values_are_those_of_bitsandbytes(shape):
    """As one long row: on a CPU, bitsandbytes 0.50 misreads rows that are not whole blocks."""
    layer = nn.Linear(*reversed(shape), bias=False)
    row = layer.weight.detach().view(1, -1)
    theirs, state = functional.quantize_4bit(row, blocksize=64, quant_type="nf4")
    codes, constants = quantize_nf4(row.flatten())
    assert torch.equal(codes, theirs.flatten())
    assert torch.equal(constants, state.absmax)
    values = functional.dequantize_4bit(theirs, state)
    torch.testing.assert_close(QuantizedLinear(layer, "nf4").weight, values.view(shape))


def test_with_double_quantization_the_codes_are_the_same_and_constants_differ_less_than_either_rounds():
    """Theirs have an 8-bit format of their own (`dynamic`); ours are int8, with steps of equal width."""
    weight = torch.randn(512, 512, generator=torch.Generator().manual_seed(1))
    theirs, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=True)
    codes, constants = quantize_nf4(weight.flatten())
    assert torch.equal(codes, theirs.flatten())
    found = quantize_constants(constants)
    torch.testing.assert_close(found["mean_constant"], state.offset)
    assert found["constant_codes"].shape == state.absmax.shape
    assert found["constants_of_constants"].shape == state.state2.absmax.shape
    ours = dequantize_int8(found["constant_codes"], found["constants_of_constants"], 256) + found["mean_constant"]
    others = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    assert (ours - constants).abs().mean() < (others - constants).abs().mean() < 0.01 * constants.mean()
