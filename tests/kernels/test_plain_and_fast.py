"""`model.kernels: plain` and `fast` are the same decoder and the same loss."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from model_axes import VOCAB_SIZE, build_away_from_zero, float64, tiny_configs
from pellucid.config.model import SlidingWindowConfig
from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.kernels.activations import relu_squared as fast_relu_squared
from pellucid.kernels.rotation import rotate_pairs as fast_rotate_pairs
from pellucid.model.feed_forward import relu_squared
from pellucid.model.positions import clock_angles, rotate_pairs
from pellucid.training.build import choose_objective


def loss_and_gradients(config, tokens_BT):
    model = build_away_from_zero(config)
    targets_BT = tokens_BT.roll(-1, dims=1)
    targets_BT[:, -1] = IGNORE_INDEX
    loss = choose_objective(config, model)(model, Batch(tokens_BT, targets_BT)).sum
    loss.backward()
    return loss, {name: parameter.grad for name, parameter in model.named_parameters()}


ATTENTIONS = ["auto", "explicit", "fused", "linear", SlidingWindowConfig(type="sliding_window", window=4)]


@given(tiny_configs, st.sampled_from(ATTENTIONS), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_loss_and_gradients_are_the_same_with_plain_and_fast_kernels(config, attention, seed):
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8), generator=torch.Generator().manual_seed(seed))
    with float64():
        plain, fast = (
            loss_and_gradients(config.model_copy(update={"kernels": kernels, "attention": attention}), tokens_BT)
            for kernels in ("plain", "fast")
        )
    torch.testing.assert_close(plain, fast)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_the_fast_rotation_and_its_gradient_are_the_plain_ones(n_positions, n_pairs, n_others, seed):
    generator = torch.Generator().manual_seed(seed)
    x, upstream = torch.randn(2, 2, 3, n_positions, 2 * n_pairs + n_others, generator=generator, dtype=torch.float64)
    angles = clock_angles(n_positions, 2 * n_pairs, 100.0).double()
    cos_TK, sin_TI = F.pad(angles.cos().repeat(1, 2), (0, n_others), value=1), angles.sin()
    results = []
    for rotate in (rotate_pairs, fast_rotate_pairs):
        leaf = x.clone().requires_grad_()
        turned = rotate(leaf, cos_TK, sin_TI)
        results.append((turned, *torch.autograd.grad((turned * upstream).sum(), leaf)))
        with torch.no_grad():
            torch.testing.assert_close(rotate(x, cos_TK, sin_TI), turned)
    torch.testing.assert_close(*results)


def test_the_fast_relu_squared_has_the_gradient_of_its_finite_differences():
    x = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    torch.testing.assert_close(fast_relu_squared(x), relu_squared(x))
    with torch.no_grad():
        torch.testing.assert_close(fast_relu_squared(x), relu_squared(x))
    assert torch.autograd.gradcheck(fast_relu_squared, x)
