from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pellucid.model.feed_forward import FeedForward, SwiGLU, relu_squared
from reference import feed_forward as reference

ACTIVATIONS = [
    (F.relu, reference.relu),
    (F.gelu, reference.gelu),
    (partial(F.gelu, approximate="tanh"), reference.gelu_tanh),
    (relu_squared, reference.relu_squared),
]


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def weights_of(layer, *subscripts):
    named = dict(layer.named_parameters())
    found = {f"W_{s}": named[f"W_{s}.weight"] for s in subscripts}
    found |= {f"b_{s}": named[f"W_{s}.bias"] for s in subscripts}
    return {name: parameter.detach().numpy() for name, parameter in found.items()}


@pytest.mark.parametrize(("ours", "loop"), ACTIVATIONS)
def test_feed_forward_is_the_loop_of_equation_11(ours, loop):
    layer = FeedForward(d_model=4, d_ff=7, activation=ours, bias=True, dropout=0.0).double()
    x_TD = random(3, 4)
    expected = reference.feed_forward(x_TD.numpy(), loop, **weights_of(layer, "1", "2"))
    np.testing.assert_allclose(layer(x_TD).detach().numpy(), expected, rtol=0, atol=1e-12)


GELU_TANH = partial(F.gelu, approximate="tanh")


@pytest.mark.parametrize(("ours", "loop"), [(F.silu, reference.silu), (GELU_TANH, reference.gelu_tanh)])
def test_swiglu_and_geglu_are_the_loop(ours, loop):
    layer = SwiGLU(d_model=4, d_ff=7, bias=True, dropout=0.0, activation=ours).double()
    x_TD = random(3, 4)
    expected = reference.gated(x_TD.numpy(), loop, **weights_of(layer, "gate", "1", "2"))
    np.testing.assert_allclose(layer(x_TD).detach().numpy(), expected, rtol=0, atol=1e-12)


def test_each_position_is_worked_on_alone():
    layer = SwiGLU(d_model=4, d_ff=7, bias=True, dropout=0.0).double()
    x_BTD = random(2, 5, 4)
    alone = torch.stack([layer(x_BTD[:, t]) for t in range(5)], dim=1)
    torch.testing.assert_close(layer(x_BTD), alone)


@pytest.mark.parametrize("kind", [FeedForward, SwiGLU])
def test_feed_forward_dropout_acts_in_training_alone(kind):
    activation = {"activation": F.gelu} if kind is FeedForward else {}
    layer = kind(d_model=4, d_ff=7, bias=True, dropout=0.5, **activation)
    x_BTD = torch.ones(8, 16, 4)
    evaluated, trained = layer.eval()(x_BTD), layer.train()(x_BTD)
    assert torch.equal(layer.eval()(x_BTD), evaluated)
    kept = trained != 0
    assert 0.35 < kept.float().mean() < 0.65
    torch.testing.assert_close(trained[kept], 2 * evaluated[kept])


def test_relu_squared_is_max_of_0_and_x_squared_with_the_gradient_of_its_finite_differences():
    x = torch.linspace(-2, 2, 9, dtype=torch.float64).requires_grad_()
    torch.testing.assert_close(relu_squared(x), x.clamp(min=0) ** 2)
    assert torch.autograd.gradcheck(relu_squared, x)
