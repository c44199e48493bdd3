"""Quantized weights: every number becomes the nearest of 255 (int8) or of 16 (nf4) values, scaled block by block.

A block is 64 consecutive numbers of a matrix, row by row. Each block has its own scale, the constant c, so that a
single large number spoils the precision of 63 others and not of the whole matrix. Only the linear layers inside blocks
are quantized: embeddings and norms are a small part of a large model, and every token passes through them.

Shapes: N numbers, M blocks, S numbers in a block, O outputs, I inputs.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import assert_never

Format = Literal["int8", "nf4", "nf4-double"]

BLOCK = 64
BLOCK_OF_CONSTANTS = 256

# About one 16th of a normal distribution, scaled to a largest value of 1, lies nearest to each of these; zero is one of
# them (equation P5; Dettmers et al. 2023, appendix E).
NF4_VALUES = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


def quantize_int8(x_N: Tensor, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """Codes (N) from -127 to 127 and constants (M): x ≈ c * code, with c the block's largest / 127 (equation P4).

    No error is larger than c / 2. A block of zeros has c = 0.
    """
    blocks_MS = in_blocks(x_N, block)
    constants_M = blocks_MS.abs().amax(dim=1) / 127
    codes_MS = (blocks_MS / not_zero(constants_M)[:, None]).round().clamp(-127, 127).to(torch.int8)
    return codes_MS.flatten()[: len(x_N)], constants_M


def dequantize_int8(codes_N: Tensor, constants_M: Tensor, block: int = BLOCK) -> Tensor:
    return (in_blocks(codes_N, block) * constants_M[:, None]).flatten()[: len(codes_N)]


def quantize_nf4(x_N: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, two of 4 bits in a byte, the first in the upper half, and constants (M), each the largest of its block."""
    blocks_MS = in_blocks(x_N, BLOCK)
    constants_M = blocks_MS.abs().amax(dim=1)
    values = x_N.new_tensor(NF4_VALUES)
    halfway = (values[1:] + values[:-1]) / 2
    codes_MS = torch.bucketize(blocks_MS / not_zero(constants_M)[:, None], halfway)
    upper, lower = codes_MS.to(torch.uint8).view(-1, 2).unbind(dim=1)
    return (16 * upper + lower)[: (len(x_N) + 1) // 2], constants_M


def dequantize_nf4(bytes_N: Tensor, constants_M: Tensor, n: int) -> Tensor:
    """The first `n` numbers: each is its block's constant times the value of its code."""
    codes_N = torch.stack([bytes_N // 16, bytes_N % 16], dim=1).flatten()[:n]
    values_N = constants_M.new_tensor(NF4_VALUES)[codes_N.int()]
    return (in_blocks(values_N, BLOCK) * constants_M[:, None]).flatten()[:n]


def quantize_constants(constants_M: Tensor) -> dict[str, Tensor]:
    """Double quantization (equation P6): the constants, minus their mean, as int8, in blocks of 256.

    That takes them from 32 bits to a little over 8, which is from 0.5 to 0.127 bits per weight.
    """
    mean = constants_M.mean()
    codes_M, constants = quantize_int8(constants_M - mean, BLOCK_OF_CONSTANTS)
    return {"constant_codes": codes_M, "constants_of_constants": constants, "mean_constant": mean}


def quantized(weight: Tensor, to: Format) -> dict[str, Tensor]:
    """The tensors that represent a matrix on disk and in memory, by name."""
    x_N = weight.detach().flatten()
    match to:
        case "int8":
            codes, constants_M = quantize_int8(x_N)
            return {"codes": codes, "constants": constants_M}
        case "nf4" | "nf4-double":
            codes, constants_M = quantize_nf4(x_N)
            constants = {"constants": constants_M} if to == "nf4" else quantize_constants(constants_M)
            return {"codes": codes, **constants}
        case _:
            assert_never(to)


def dequantized(tensors: dict[str, Tensor], to: Format, n: int) -> Tensor:
    """The numbers (n) of a matrix from its tensors, as precise as the format: the inverse of `quantized`."""
    match to:
        case "int8":
            return dequantize_int8(tensors["codes"], tensors["constants"])
        case "nf4":
            return dequantize_nf4(tensors["codes"], tensors["constants"], n)
        case "nf4-double":
            codes_M, constants = tensors["constant_codes"], tensors["constants_of_constants"]
            constants_M = dequantize_int8(codes_M, constants, BLOCK_OF_CONSTANTS) + tensors["mean_constant"]
            return dequantize_nf4(tensors["codes"], constants_M, n)
        case _:
            assert_never(to)


class QuantizedLinear(nn.Module):
    """A linear layer whose frozen matrix is stored in a few bits, and dequantized whenever it is used.

    Its input gets a gradient, its matrix none. PyTorch stores the dequantized matrix for the backward pass; gradient
    checkpointing computes it twice instead, so that only those of one block at a time are in memory.
    """

    def __init__(self, layer: nn.Linear, to: Format) -> None:
        super().__init__()
        self.to_format: Format = to
        self.in_features: int = layer.in_features
        self.out_features: int = layer.out_features
        for name, tensor in quantized(layer.weight, to).items():
            self.register_buffer(name, tensor)
        bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone(), requires_grad=False)
        self.bias: nn.Parameter | None = bias

    @property
    def weight(self) -> Tensor:
        """The dequantized matrix (O, I)."""
        n = self.out_features * self.in_features
        return dequantized(dict(self.named_buffers()), self.to_format, n).view(self.out_features, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def quantize(model: nn.Module, to: Format) -> None:
    """Replace each linear layer inside the blocks by a QuantizedLinear."""
    for name, layer in linear_layers(model).items():
        if isinstance(layer, nn.Linear):
            model.set_submodule(name, QuantizedLinear(layer, to))


def linear_layers(model: nn.Module) -> dict[str, nn.Linear | QuantizedLinear]:
    """The plain or quantized linear layers inside blocks, by name. One that does more, as a router does, is neither."""
    layers = {name: layer for name, layer in model.named_modules() if type(layer) in (nn.Linear, QuantizedLinear)}
    return {name: layer for name, layer in layers.items() if name.startswith("blocks.")}


def code_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The codes and constants of a model's quantized matrices, by name."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, QuantizedLinear)}
    return {f"{name}.{buffer}": tensor for name, layer in layers.items() for buffer, tensor in layer.named_buffers()}


def n_quantized(model: nn.Module) -> int:
    """The number of quantized weights."""
    return sum(m.out_features * m.in_features for m in model.modules() if isinstance(m, QuantizedLinear))


def bits_per_weight(model: nn.Module) -> float:
    """The bits per weight of a model's quantized matrices, constants included."""
    return 8 * sum(tensor.nbytes for tensor in code_tensors(model).values()) / n_quantized(model)


def in_blocks(x_N: Tensor, block: int) -> Tensor:
    """The numbers (N) as blocks (M, S), the last padded with zeros."""
    return F.pad(x_N, (0, -len(x_N) % block)).view(-1, block)


def not_zero(constants_M: Tensor) -> Tensor:
    """The constants with 1 in place of 0, to divide by."""
    return torch.where(constants_M == 0, 1, constants_M)
