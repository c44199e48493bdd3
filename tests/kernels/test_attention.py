import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from pellucid.kernels.attention import (
    LONGEST_EXPLICIT_ON_CPU,
    faster_attention,
    fused_attention,
    project_together,
)
from pellucid.model.attention import explicit_attention, project


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def projections(bias=True):
    torch.manual_seed(0)
    return [nn.Linear(8, width, bias=bias).double() for width in (8, 4, 4)]


@pytest.mark.parametrize("bias", [True, False])
def test_one_product_is_three(bias):
    x_BTD, layers = random(2, 5, 8), projections(bias)
    for together, alone in zip(project_together(x_BTD, *layers, 2), project(x_BTD, *layers, 2), strict=True):
        torch.testing.assert_close(together, alone)


def test_a_hook_on_a_projection_is_called():
    x_BTD, layers = random(2, 5, 8), projections()
    seen = []
    layers[1].register_forward_hook(lambda layer, inputs, output: seen.append(output))
    project_together(x_BTD, *layers, 2)
    assert len(seen) == 1


def test_a_projection_that_somebody_has_wrapped_is_called():
    x_BTD, layers = random(2, 5, 8), projections()
    layers[0] = nn.Sequential(layers[0], nn.Tanh())
    layers[2] = parametrizations.weight_norm(layers[2])
    for together, alone in zip(project_together(x_BTD, *layers, 2), project(x_BTD, *layers, 2), strict=True):
        torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("n_keys", [6, 9])
def test_explicit_and_fused_attention_have_the_same_gradients(n_keys):
    gradients = []
    for attend in (explicit_attention, fused_attention):
        q = random(2, 3, 6, 4).requires_grad_()
        k, v = (random(2, 3, n_keys, 4, seed=seed).requires_grad_() for seed in (1, 2))
        output = attend(q, k, v, 0.0)
        gradients.append(torch.autograd.grad((output * random(*output.shape, seed=3)).sum(), (q, k, v)))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("length", "dtype", "trains", "expected"),
    [
        (4, torch.bfloat16, True, explicit_attention),
        (4, torch.bfloat16, False, fused_attention),
        (4, torch.float32, True, fused_attention),
        (LONGEST_EXPLICIT_ON_CPU, torch.bfloat16, True, explicit_attention),
        (LONGEST_EXPLICIT_ON_CPU + 1, torch.bfloat16, True, fused_attention),
    ],
)
def test_the_faster_attention_is_chosen_by_type_length_and_training(length, dtype, trains, expected):
    q, k, v = (random(1, 1, length, 8, seed=seed).to(dtype) for seed in range(3))
    q.requires_grad_(trains)
    others = {explicit_attention, fused_attention} - {expected}
    output = faster_attention(q, k, v, 0.0, explicit=explicit_attention)
    assert torch.equal(output, expected(q, k, v, 0.0))
    assert not any(torch.equal(output, other(q, k, v, 0.0)) for other in others)
