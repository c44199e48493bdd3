"""A product with a matrix that was laid out is PyTorch's, for a single row and for several."""

import pytest
import torch
import torch.nn.functional as F

from pellucid.adapters.quantized import dequantize_int8, quantize_int8
from pellucid.kernels import large_products
from pellucid.kernels.large_products import int8_of, large_product, summed_int8_product, summed_product
from pellucid.kernels.products import has_onednn
from rounding import assert_equal_to_rounding

if not has_onednn() or "fbgemm" not in torch.backends.quantized.supported_engines:
    pytest.skip("this CPU, or this PyTorch, lacks the kernels", allow_module_level=True)


def as_int8(weight_OI):
    """The matrix as a run in int8 has it."""
    return dequantize_int8(*quantize_int8(weight_OI.flatten())).view(weight_OI.shape)


@pytest.mark.parametrize("cpu", ["AVX2", "AVX512"])
@pytest.mark.parametrize("n_outputs", [7, 2050])
def test_threads_share_the_outputs_of_a_single_row_s_product_which_does_not_depend_on_them(n_outputs, cpu, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: cpu)
    weight_OI, bias_O, x_1I = torch.randn(n_outputs, 256), torch.randn(n_outputs), torch.randn(1, 256)
    for bias in (None, bias_O):
        products = []
        for n_threads in (1, 2, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda n=n_threads: n)
            products.append(summed_product(weight_OI, bias)(x_1I))
        assert_equal_to_rounding(products[0], F.linear(x_1I, weight_OI, bias), dtype=torch.float32)
        assert all(torch.equal(product, products[0]) for product in products)


@pytest.mark.parametrize("n_outputs", [9, 384, 400])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_matrix_in_int8_is_read_in_int8_and_neither_input_nor_product_is_rounded(has_bias, n_outputs):
    weight_OI, x_1I = as_int8(torch.randn(n_outputs, 192)), torch.randn(1, 192)
    weight_OI[2, :64] = 0  # a constant of 0
    bias_O = torch.randn(n_outputs) if has_bias else None
    y_1O = summed_int8_product(*int8_of(weight_OI), bias_O)(x_1I)
    assert_equal_to_rounding(y_1O, F.linear(x_1I, weight_OI, bias_O), dtype=torch.float32)


def test_only_a_matrix_in_int8_is_taken_for_one():
    weight_OI = torch.randn(9, 192)
    assert int8_of(weight_OI) is None
    assert int8_of(as_int8(weight_OI)[:, :96].contiguous()) is None  # blocks go over the ends of rows
    codes_OI, constants_OM = int8_of(as_int8(weight_OI))
    codes_N, constants_M = quantize_int8(weight_OI.flatten())
    assert torch.equal(codes_OI.flatten(), codes_N.float())
    torch.testing.assert_close(constants_OM.flatten(), constants_M)
    last_differs = as_int8(weight_OI)
    last_differs[-1, -1] += 1e-4
    assert int8_of(last_differs) is None
    last_differs[-1, -1] = torch.nan
    assert int8_of(last_differs) is None


def test_a_matrix_is_laid_out_when_it_is_first_needed_and_once(monkeypatch):
    calls = []
    for name in ("packed_product", "summed_product"):
        monkeypatch.setattr(large_products, name, lambda *_, name=name: calls.append(name) or (lambda x_BI: x_BI))
    product = large_product([torch.ones(2, 2)], None)
    assert calls == []
    for n_rows in (1, 3, 1, 2):
        product(torch.ones(n_rows, 2))
    assert calls == ["summed_product", "packed_product"]
