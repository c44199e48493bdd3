"""Products of few rows with a large float32 matrix, on a CPU: it is laid out once in the order in which it is read.

Shapes: B rows or bags, I inputs, O outputs, R rows of all bags, M blocks of a column, P parts of
the outputs.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # numbers in a row of a matrix that int8 gives one constant: see adapters/quantized.py
ROUNDING = 1e-4  # so near to a code are the quotients of a number and its constant
PACKED_FOR_ROWS = 16  # the order for so many rows suits other numbers as well
WIDE, NARROW = 2048, 64  # with AVX2, so many outputs and more are computed in bags of so many
NARROW_INT8 = 192  # outputs in a bag: its rows are short, so that memory is read from one end to the other

Product = Callable[[Tensor], Tensor]


def large_product(weights_OI: Sequence[Tensor], bias_O: Tensor | None) -> Product:
    """x -> x W^T + b for rows x, where W's rows are those of these matrices, one after the other.

    W is copied when it is first needed, once for single rows and once for several: a text that ends with the token
    after its prompt needs neither. Later changes of W are not seen.
    """
    can_sum = "fbgemm" in torch.backends.quantized.supported_engines

    @cache
    @torch.inference_mode(mode=False)  # or a copy made while a text is written could not serve gradients
    def laid_out(is_summed: bool) -> Product:
        weight_OI = torch.cat([weight_OI.detach() for weight_OI in weights_OI])
        if not is_summed:
            return packed_product(weight_OI, bias_O)
        small = int8_of(weight_OI)
        return summed_product(weight_OI, bias_O) if small is None else summed_int8_product(*small, bias_O)

    return lambda x_BI: laid_out(can_sum and x_BI.size(0) == 1)(x_BI)


def packed_product(weight_OI: Tensor, bias_O: Tensor | None) -> Product:
    """For several rows: W is in the order in which oneDNN's kernel reads it."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI, PACKED_FOR_ROWS)
    by_onednn = torch.ops.mkldnn._linear_pointwise.default  # looked up once, as that takes time
    return lambda x_BI: by_onednn(x_BI, packed, bias_O, "none", [], None)


def summed_product(weight_OI: Tensor, bias_O: Tensor | None) -> Product:
    """For a single row: the sum of W's columns, each x_i times, as FBGEMM sums the embeddings of words in a bag.

    That kernel reads memory at its full speed, MKL's for products at two thirds of it. Each bag gives some of the
    outputs; how many bags there are changes no order of additions.
    """
    n_outputs, n_inputs = weight_OI.shape
    weight_RO = in_bags(weight_OI, outputs_per_bag(n_outputs)).contiguous()
    n_bags, rows_R = len(weight_RO) // n_inputs, torch.arange(len(weight_RO), dtype=torch.int32)
    starts_B = rows_R[::n_inputs].clone()

    def product(x_1I: Tensor) -> Tensor:
        x_R = x_1I[0] if n_bags == 1 else x_1I.expand(n_bags, -1).flatten()
        y_1O = torch.embedding_bag(weight_RO, rows_R, starts_B, False, 0, False, x_R)[0]
        y_1O = y_1O if n_bags == 1 else y_1O.view(1, -1)[:, :n_outputs]
        return y_1O if bias_O is None else y_1O.add_(bias_O)

    return product


def in_bags(matrix_OI: Tensor, width: int) -> Tensor:
    """(R, width): the columns of so many outputs, one after the other, then those of the next. Zeros fill the last."""
    n_outputs, n_inputs = matrix_OI.shape
    return F.pad(matrix_OI, (0, 0, 0, -n_outputs % width)).view(-1, width, n_inputs).mT.flatten(0, 1)


def outputs_per_bag(n_outputs: int) -> int:
    """Each thread fills a bag. AVX2 has registers for some hundred sums: it would read a wider bag's rows in pieces."""
    if n_outputs >= WIDE and torch.backends.cpu.get_cpu_capability() == "AVX2":
        return NARROW
    return ceil(n_outputs / torch.get_num_threads())


def int8_of(weight_OI: Tensor) -> tuple[Tensor, Tensor] | None:
    """Codes (O, I) from -127 to 127 and constants (O, M) whose products the matrix is: that of a run in int8."""
    if weight_OI.size(1) % BLOCK:
        return None
    weight_OMS = weight_OI.reshape(len(weight_OI), -1, BLOCK)
    for some_OMS in (weight_OMS[:1, :1], weight_OMS):  # one block tells all other matrices
        constants_OM1 = some_OMS.abs().amax(dim=-1, keepdim=True) / 127
        quotients_OMS = some_OMS / torch.where(constants_OM1 == 0, 1, constants_OM1)
        codes_OMS = quotients_OMS.round()
        if not quotients_OMS.sub_(codes_OMS).abs_().max() <= ROUNDING:
            return None
    return codes_OMS.flatten(1), constants_OM1.squeeze(-1)


def summed_int8_product(codes_OI: Tensor, constants_OM: Tensor, bias_O: Tensor | None) -> Product:
    """`summed_product` in a quarter of the bytes: each block of inputs has a bag of its own, as it has its constants.

    Neither x nor a product is rounded: codes become float32 as they are read.
    """
    scale_and_zero = torch.tensor([[1.0, -128.0]]).view(torch.uint8)  # FBGEMM's rows end in theirs
    n_outputs, n_blocks = constants_OM.shape
    width = min(n_outputs, NARROW_INT8)
    codes_RO = in_bags((codes_OI + 128).to(torch.uint8), width)
    codes_RO8 = torch.cat([codes_RO, scale_and_zero.expand(len(codes_RO), -1)], dim=1)
    constants_PMO = in_bags(constants_OM, width).view(-1, n_blocks, width).contiguous()
    n_parts, rows_R = len(constants_PMO), torch.arange(len(codes_RO), dtype=torch.int32)
    starts_B = rows_R[::BLOCK].clone()
    summed = torch.ops.quantized.embedding_bag_byte_rowwise_offsets.default

    def product(x_1I: Tensor) -> Tensor:
        y_BO: Tensor = summed(codes_RO8, rows_R, starts_B, False, 0, False, x_1I.expand(n_parts, -1).flatten())
        y_1O = y_BO.view_as(constants_PMO).mul_(constants_PMO).sum(dim=1).view(1, -1)[:, :n_outputs]
        return y_1O if bias_O is None else y_1O.add_(bias_O)

    return product
