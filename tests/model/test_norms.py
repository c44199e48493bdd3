import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pellucid.model.norms import EPSILON, LayerNorm, RMSNorm
from reference import norms as reference

WIDTH = 5


@pytest.fixture
def x_TD():
    return torch.randn(4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 2


def with_random_parameters(norm):
    generator = torch.Generator().manual_seed(1)
    for parameter in norm.double().parameters():
        nn.init.normal_(parameter, generator=generator)
    return norm


def test_layer_norm_is_equation_10(x_TD):
    norm = with_random_parameters(LayerNorm(WIDTH, bias=True))
    expected = reference.layer_norm(x_TD.numpy(), norm.weight.tolist(), norm.bias.tolist())
    np.testing.assert_allclose(norm(x_TD).detach().numpy(), expected, rtol=1e-12)


def test_layer_norm_without_bias_only_scales(x_TD):
    norm = with_random_parameters(LayerNorm(WIDTH, bias=False))
    assert norm.bias is None
    expected = reference.layer_norm(x_TD.numpy(), norm.weight.tolist(), [0.0] * WIDTH)
    np.testing.assert_allclose(norm(x_TD).detach().numpy(), expected, rtol=1e-12)


def test_rms_norm_is_the_loop(x_TD):
    norm = with_random_parameters(RMSNorm(WIDTH))
    expected = reference.rms_norm(x_TD.numpy(), norm.weight.tolist())
    np.testing.assert_allclose(norm(x_TD).detach().numpy(), expected, rtol=1e-12)


def test_rms_norm_is_pytorchs(x_TD):
    ours, theirs = RMSNorm(WIDTH).double(), nn.RMSNorm(WIDTH, eps=EPSILON).double()
    torch.testing.assert_close(ours(x_TD), theirs(x_TD))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [0, 1, 1e18])
def test_the_lean_rms_norm_is_the_same_for_one_vector_and_for_several(dtype, size):
    norm = with_random_parameters(RMSNorm(WIDTH))
    x_TD = (size * torch.randn(3, WIDTH)).to(dtype)
    with torch.inference_mode():
        lean = norm.on_one_token()
        one_by_one_TD = torch.cat([lean(x_1D) for x_1D in x_TD.split(1)])
        for ours_TD in (lean(x_TD), one_by_one_TD):
            assert ours_TD.dtype == dtype
            torch.testing.assert_close(ours_TD, norm(x_TD))


def test_rms_norm_keeps_the_dtype_of_its_input():
    """Queries and keys under autocast are bfloat16; the gain is not, and must not widen them."""
    x_TD = torch.linspace(-3, 3, 50).view(-1, WIDTH).bfloat16()
    normalised = RMSNorm(WIDTH)(x_TD)
    assert normalised.dtype == torch.bfloat16
    torch.testing.assert_close(normalised.float(), RMSNorm(WIDTH)(x_TD.float()), rtol=2**-8, atol=0)


@pytest.mark.parametrize("norm", [LayerNorm(WIDTH, bias=True), RMSNorm(WIDTH)])
@given(scale=st.floats(0.5, 1e4))
@settings(deadline=None)
def test_norms_forget_the_scale_of_their_input(norm, scale):
    x_TD = 10 * torch.randn(4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    norm = norm.double()
    torch.testing.assert_close(norm(scale * x_TD), norm(x_TD), rtol=1e-4, atol=1e-5)


def test_only_layer_norm_forgets_the_mean(x_TD):
    layer_norm, rms_norm = LayerNorm(WIDTH, bias=True).double(), RMSNorm(WIDTH).double()
    torch.testing.assert_close(layer_norm(x_TD + 7), layer_norm(x_TD))
    assert not torch.allclose(rms_norm(x_TD + 7), rms_norm(x_TD))


def test_a_zero_vector_stays_finite():
    for norm in (LayerNorm(WIDTH, bias=True), RMSNorm(WIDTH)):
        assert torch.equal(norm(torch.zeros(1, WIDTH)), torch.zeros(1, WIDTH))
