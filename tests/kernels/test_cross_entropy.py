from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.data.batches import IGNORE_INDEX
from pellucid.kernels import cross_entropy
from pellucid.kernels.cross_entropy import summed_cross_entropy
from pellucid.objectives import next_token as objectives


def library_nats(logits_BTV, targets_BT):
    return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")


next_token_nats = partial(objectives.next_token_nats, cross_entropy=summed_cross_entropy)


def random_predictions(n_rows, width, vocab_size, share_ignored, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits_BTV = 3 * torch.randn(n_rows, width, vocab_size, generator=generator, dtype=dtype)
    targets_BT = torch.randint(vocab_size, (n_rows, width), generator=generator)
    targets_BT[torch.rand(n_rows, width, generator=generator) < share_ignored] = IGNORE_INDEX
    return logits_BTV, targets_BT


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 7)),
    share_ignored=st.sampled_from([0.0, 0.3, 1.0]),
    numbers_at_once=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=60)
def test_loss_and_gradient_are_those_of_cross_entropy_however_many_are_taken_at_once(
    sizes, share_ignored, numbers_at_once, seed
):
    logits_BTV, targets_BT = random_predictions(*sizes, share_ignored, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_entropy, "NUMBERS_AT_ONCE", {"cpu": numbers_at_once})
        ours, theirs = logits_BTV.clone().requires_grad_(), logits_BTV.clone().requires_grad_()
        loss, expected = next_token_nats(ours, targets_BT), library_nats(theirs, targets_BT)
        (loss / 7).backward()
        (expected / 7).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_of_bfloat16_logits_the_loss_is_float32_and_the_gradient_bfloat16():
    logits_BTV, targets_BT = random_predictions(2, 40, 300, 0.2, seed=1)
    short = logits_BTV.bfloat16().requires_grad_()
    exact = short.detach().double().requires_grad_()
    loss, expected = next_token_nats(short, targets_BT), library_nats(exact, targets_BT)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    loss.backward()
    expected.backward()
    assert short.grad.dtype == torch.bfloat16
    torch.testing.assert_close(short.grad.double(), exact.grad, rtol=2**-8, atol=1e-6)


def test_no_float32_copy_of_short_logits_is_ever_made():
    """The largest tensor that the loss asks for has the size of the gradient, or of a piece."""
    logits_BTV, targets_BT = random_predictions(4, 256, 4096, 0.0, seed=2, dtype=torch.float32)
    short = logits_BTV.bfloat16().requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        next_token_nats(short, targets_BT).backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < 3 * short.numel()  # bytes; a float32 copy would be 4 times the number of logits


def test_without_a_gradient_none_is_made():
    logits_BTV, targets_BT = random_predictions(2, 3, 5, 0.0, seed=3)
    assert not next_token_nats(logits_BTV, targets_BT).requires_grad


def test_tokens_that_cannot_come_spoil_nothing_beside_predictions_that_do_not_count():
    logits_BTV, targets_BT = random_predictions(2, 6, 5, 0.5, seed=3)
    logits_BTV[..., 0] = -torch.inf
    targets_BT[targets_BT == 0] = 1
    assert (targets_BT == IGNORE_INDEX).any()
    ours, theirs = logits_BTV.clone().requires_grad_(), logits_BTV.clone().requires_grad_()
    loss, expected = next_token_nats(ours, targets_BT), library_nats(theirs, targets_BT)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, ours), torch.autograd.grad(expected, theirs))
