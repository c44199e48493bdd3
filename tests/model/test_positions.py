import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import float64
from pellucid.config.model import StretchConfig
from pellucid.model.positions import Learned, NoPositions, Rotary, Sinusoidal, clock_angles
from pellucid.model.stretch import stretched
from reference import positions as reference

seeds = st.integers(0, 2**32 - 1)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def rotary():
    with float64():
        return Rotary(context_length=64, head_width=6, base=100.0)


def test_sinusoidal_positions_are_equation_4():
    with float64():
        positions = Sinusoidal(context_length=9, d_model=10)
    table = positions.add_to_embeddings(torch.zeros(1, 9, 10, dtype=torch.float64), torch.arange(9))
    np.testing.assert_allclose(table[0].numpy(), reference.sinusoidal(9, 10), rtol=0, atol=1e-14)


def test_rotary_is_equation_5_up_to_the_permutation_of_llama():
    with float64():
        rotary = Rotary(context_length=20, head_width=8, base=10_000.0)
    x = random(2, 3, 5, 8)
    permutation = reference.halves_to_pairs(8)
    rotated = rotary.rotate(x, start=4)
    for batch in range(2):
        for head in range(3):
            expected = reference.rotate_as_in_the_paper(x[batch, head][:, permutation].numpy(), start=4, base=10_000.0)
            np.testing.assert_allclose(rotated[batch, head][:, permutation].numpy(), expected, atol=1e-14)


@given(m=st.integers(0, 31), n=st.integers(0, 31), shift=st.integers(0, 32), seed=seeds)
@settings(deadline=None)
def test_rotary_products_depend_on_the_distance_alone(m, n, shift, seed):
    """The check of equation 5: <R_m q, R_n k> = <R_(m+shift) q, R_(n+shift) k>."""
    with float64():
        rotary = Rotary(context_length=64, head_width=6, base=100.0)
    q, k = random(2, 1, 1, 1, 6, seed=seed)
    near = (rotary.rotate(q, m) * rotary.rotate(k, n)).sum()
    far = (rotary.rotate(q, m + shift) * rotary.rotate(k, n + shift)).sum()
    assert math.isclose(near, far, abs_tol=1e-12)


def test_rotary_products_do_depend_on_the_distance(rotary):
    q, k = random(2, 1, 1, 1, 6)
    products = [float((rotary.rotate(q, m) * k).sum()) for m in range(64)]
    assert len({round(product, 6) for product in products}) == 64


@given(position=st.integers(0, 63), seed=seeds)
@settings(deadline=None)
def test_rotary_keeps_norms(position, seed):
    """The check of equation 5, second half."""
    with float64():
        rotary = Rotary(context_length=64, head_width=6, base=100.0)
    x = random(2, 3, 1, 6, seed=seed)
    torch.testing.assert_close(rotary.rotate(x, position).norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("rotated_width", [2, 6])
def test_partial_rotary_is_rotary_on_the_first_coordinates_and_leaves_the_others(rotated_width):
    x = random(2, 3, 5, 8)
    with float64():
        partial = Rotary(64, 8, 100.0, rotated_width=rotated_width).rotate(x, start=4)
        narrow = Rotary(64, rotated_width, 100.0).rotate(x[..., :rotated_width], start=4)
    assert torch.equal(partial[..., :rotated_width], narrow)
    assert torch.equal(partial[..., rotated_width:], x[..., rotated_width:])


@pytest.mark.parametrize(("linear_in", "growth"), [("turns", 1.0), ("clocks", 2.0)])
def test_a_stretch_is_equation_49_or_55_which_slow_only_slow_clocks(linear_in, growth):
    """Of 16 clocks, some stay, some turn at a fourth of their speed, and some lie between."""
    config = StretchConfig(factor=4.0, trained_length=40, linear_in=linear_in, attention_factor=growth)
    stretch = stretched(**config.model_dump(), base=100.0)
    with float64():
        rotary, unstretched = Rotary(99, 32, 100.0, stretch=stretch), Rotary(99, 32, 100.0)
    x = random(1, 1, 5, 32)
    permutation = reference.halves_to_pairs(32)
    rotated = rotary.rotate(x, start=90)
    expected = reference.rotate_as_in_the_paper(x[0, 0][:, permutation].numpy(), 90, 100.0, config)
    np.testing.assert_allclose(rotated[0, 0][:, permutation].numpy(), expected, atol=1e-13)
    speeds_I = clock_angles(2, 32, 100.0)[1]
    rates_I = stretch.slowed(speeds_I, speeds_I) / speeds_I
    assert (rates_I.max(), rates_I.min()) == (1, 0.25)
    assert rates_I.unique().numel() > 4
    kept = (rates_I == 1).repeat(2)
    assert torch.equal(rotated[..., kept], growth * unstretched.rotate(x, start=90)[..., kept])


def test_rotary_leaves_position_0_where_it_is(rotary):
    x = random(2, 3, 1, 6)
    assert torch.equal(rotary.rotate(x, start=0), x)


def test_rotary_in_bfloat16_is_off_by_a_few_roundings_also_far_into_the_context():
    """bfloat16 keeps 8 bits: sine and cosine, two products and a sum, each rounded."""
    x = random(1, 1, 512, 64).bfloat16()
    with float64():
        exact = Rotary(512, 64).rotate(x.double(), start=0)
    rotated = Rotary(512, 64).rotate(x, start=0)
    assert rotated.dtype == torch.bfloat16
    length_of_pair = torch.hypot(*x.double().chunk(2, dim=-1)).repeat(1, 1, 1, 2)
    assert ((rotated.double() - exact).abs() <= 5 * 2**-9 * length_of_pair).all()


def test_rotary_has_the_gradient_of_its_finite_differences(rotary):
    x = random(1, 2, 3, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rotary.rotate(x, start=7), x)


@pytest.mark.parametrize("kind", [Sinusoidal, Learned])
def test_positions_added_to_a_part_are_those_of_the_whole(kind):
    positions = kind(12, 4)
    for parameter in positions.parameters():
        torch.nn.init.normal_(parameter)
    embeddings = random(2, 12, 4).float()
    whole = positions.add_to_embeddings(embeddings, torch.arange(12))
    assert torch.equal(positions.add_to_embeddings(embeddings[:, 5:9], torch.arange(5, 9)), whole[:, 5:9])
    assert not torch.equal(whole, embeddings)


def test_learned_positions_are_one_vector_per_position():
    positions = Learned(context_length=3, d_model=2)
    with torch.no_grad():
        positions.positions_TD.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    added = positions.add_to_embeddings(torch.full((1, 2, 2), 10.0), torch.tensor([1, 2]))
    assert added.tolist() == [[[13.0, 14.0], [15.0, 16.0]]]


def test_each_encoding_acts_in_one_place_only():
    embeddings, heads = random(2, 4, 6).float(), random(2, 3, 4, 6).float()
    for adds in (Sinusoidal(4, 6), Learned(4, 6), NoPositions()):
        assert adds.rotate(heads, start=0) is heads
    for rotates in (Rotary(4, 6), NoPositions()):
        assert rotates.add_to_embeddings(embeddings, torch.arange(4)) is embeddings


def test_tables_are_no_weights():
    """So that a checkpoint does not hold them and a longer context can load it."""
    for positions in (Sinusoidal(8, 4), Rotary(8, 4), NoPositions()):
        assert not positions.state_dict()
        assert not list(positions.parameters())
