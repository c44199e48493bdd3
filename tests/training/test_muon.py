import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pellucid.training.muon import Muon, newton_schulz, orthogonalize

SETTINGS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), n_matrices=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=50)
def test_singular_values_of_any_shape_come_near_one_and_singular_vectors_stay(rows, columns, n_matrices, seed):
    exact = [
        torch.linalg.svd(random(rows, columns, seed=seed + i).double(), full_matrices=False) for i in range(n_matrices)
    ]
    spread = torch.linspace(0.2, 1.0, min(rows, columns), dtype=torch.float64)
    results = orthogonalize([left @ spread.diag() @ right for left, _, right in exact], torch.float64)
    for (left, _, right), result in zip(exact, results, strict=True):
        turned = left.T @ result @ right.T
        torch.testing.assert_close(turned, turned.diag().diag())
        assert turned.diag().min() > 0.6
        assert turned.diag().max() < 1.3


SPECTRA = {
    "one large, the others alike": lambda i: torch.where(i == 0, 1.0, 0.05),
    "one large, the others nearly zero": lambda i: torch.where(i == 0, 1.0, 1e-4),
    "half of the one before": lambda i: 0.5**i,
    "one over n": lambda i: 1 / (1 + i),
    "down to a millionth": lambda i: torch.logspace(0, -6, len(i)),
}


@pytest.mark.parametrize("shape", [(8, 128), (16, 64), (2, 128)])
@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=SPECTRA)
def test_no_direction_is_too_long_in_bfloat16_whatever_the_singular_values(spectrum, shape):
    """When three steps shared one Gram matrix, rounding made some directions a million times too long."""
    rows, columns = shape
    left_NRR, right_NCR = (torch.linalg.qr(random(50, n, rows)).Q for n in (rows, columns))
    wide_NRC = left_NRR * spectrum(torch.arange(rows)) @ right_NCR.mT
    assert torch.linalg.matrix_norm(newton_schulz(wide_NRC, torch.bfloat16).float(), 2).max() < 1.3


def test_updates_are_those_of_torch_one_matrix_at_a_time():
    """Tall, wide and square matrices, the tall and the wide in one product; three steps, so that momentum counts."""
    shapes = [(12, 4), (4, 12), (4, 4), (12, 4), (5, 5)]
    ours, theirs = ([nn.Parameter(random(*shape, seed=i)) for i, shape in enumerate(shapes)] for _ in range(2))
    muon, reference = Muon(ours, **SETTINGS, dtype=torch.bfloat16), torch.optim.Muon(theirs, **SETTINGS)
    for step in range(3):
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            mine.grad = random(*mine.shape, seed=10 * step + i)
            other.grad = mine.grad.clone()
        muon.step()
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        # The two round to bfloat16 in another order: a hundredth of a direction or three, at each of three steps of
        # length lr * sqrt(3) for the tall ones.
        torch.testing.assert_close(mine, other, rtol=0, atol=3 * 0.1 * 3**0.5 * 0.03)


def test_a_matrix_without_a_gradient_stays_as_it_is():
    still, moved = nn.Parameter(random(3, 3)), nn.Parameter(random(3, 3, seed=1))
    before = still.detach().clone()
    moved.grad = random(3, 3, seed=2)
    Muon([still, moved], **SETTINGS, dtype=torch.float32).step()
    assert torch.equal(still, before)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5)])
def test_a_gradient_of_zero_moves_nothing(shape):
    matrix = nn.Parameter(random(*shape))
    before = matrix.detach().clone()
    matrix.grad = torch.zeros(shape)
    Muon([matrix], **{**SETTINGS, "weight_decay": 0.0}, dtype=torch.float32).step()
    assert torch.equal(matrix, before)
