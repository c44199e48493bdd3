"""Products by the faster library are those of PyTorch, with the same gradients."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from pellucid.kernels import products
from pellucid.kernels.products import WAYS, FasterLinear, FasterProducts, fastest, with_faster_products
from pellucid.runtime.distributed import World
from pellucid.training import forward

if not torch.backends.mkldnn.is_available():
    pytest.skip("this PyTorch has no oneDNN", allow_module_level=True)

sizes = st.integers(1, 9)
ways = st.fixed_dictionaries({kind: st.sampled_from(sorted(ways)) for kind, ways in WAYS.items()})


@pytest.fixture(autouse=True)
def nothing_is_chosen(monkeypatch):
    monkeypatch.setattr(products, "CHOSEN", {})


@given(sizes, sizes, sizes, sizes, st.booleans(), st.booleans(), ways, st.integers(0, 2**32 - 1))
def test_a_linear_layer_and_its_gradients_are_pytorchs(B, T, I, O, has_bias, is_strided, chosen, seed):  # noqa: E741
    generator = torch.Generator().manual_seed(seed)
    x_BTI = torch.randn(B, T, I, generator=generator)
    weight_OI = torch.randn(O, I, generator=generator) / I**0.5
    gradient_BTO = torch.randn(B, T, O, generator=generator)
    if is_strided:
        x_BTI, gradient_BTO = x_BTI.mT.contiguous().mT, gradient_BTO[:, :1].expand(-1, T, -1)
    bias_O = torch.randn(O, generator=generator) if has_bias else None
    leaves = [x.requires_grad_() for x in (x_BTI, weight_OI, bias_O) if x is not None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "CHOSEN", {})
        patch.setattr(products, "fastest", lambda ways, factors: chosen[next(k for k in WAYS if WAYS[k] is ways)])
        ours, pytorchs = FasterLinear.apply(x_BTI, weight_OI, bias_O), F.linear(x_BTI, weight_OI, bias_O)
        torch.testing.assert_close(ours, pytorchs)
        gradients = [torch.autograd.grad(y, leaves, gradient_BTO) for y in (ours, pytorchs)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)
    assert all(gradient.is_contiguous() for gradient in gradients[0][1:])  # or PyTorch would copy it


def test_a_frozen_layer_passes_the_gradient_on_and_has_none_itself():
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3)
    FasterLinear.apply(x, weight, None).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(dim=0).expand(4, 3))


@pytest.mark.parametrize("slow", ["first", "second", "third"])
def test_the_way_is_chosen_that_took_the_shortest_time_at_its_best(monkeypatch, slow):
    """Whatever else a machine does, it does not make every turn of a way slower."""
    seconds = {"first": [2, 2, 2], "second": [3, 3, 3], "third": [9, 9, 1.5], slow: [9, 9, 9]}
    turns = {way: iter(times) for way, times in seconds.items()}
    monkeypatch.setattr(products, "timeit", lambda product, number: next(turns[product()]))
    assert fastest({way: lambda way=way: way for way in seconds}, []) == min(seconds, key=lambda way: min(seconds[way]))


def test_each_kind_and_shape_is_measured_once_on_few_rows(monkeypatch):
    measured = []
    monkeypatch.setattr(products, "fastest", lambda ways, factors: measured.append(len(factors[0])) or "oneDNN")
    few, many, wider = torch.randn(8, 4), torch.randn(5000, 4), torch.randn(8, 6)
    weight = torch.randn(3, 4, requires_grad=True)
    for x in (many, few):
        FasterLinear.apply(x, weight, None).sum().backward()
    assert measured == [products.ROWS_MEASURED] * 2  # forwards, and towards the matrix
    FasterLinear.apply(wider, torch.randn(3, 6), None)
    assert measured[2:] == [8]
    for name in products.CHOSEN:
        products.CHOSEN[name] = "a way that another version had"
    FasterLinear.apply(wider, torch.randn(3, 6), None)
    assert measured[3:] == [8]


@pytest.fixture
def calls(monkeypatch):
    """The shapes of all layers that oneDNN computed: it is always the fastest here."""
    shapes, product = [], products.product
    monkeypatch.setattr(products, "FEWEST_MULTIPLICATIONS", 64)
    monkeypatch.setattr(products, "fastest", lambda ways, factors: "oneDNN")
    monkeypatch.setattr(products, "product", lambda x, *rest: shapes.append(tuple(x.shape)) or product(x, *rest))
    return shapes


def test_only_large_products_in_float32_are_replaced(calls):
    layer = nn.Linear(8, 8)
    with FasterProducts():
        layer(torch.ones(2, 8))
        assert calls == [(2, 8)]
        layer(torch.ones(8))
        layer.double()(torch.ones(2, 8, dtype=torch.float64))
        nn.Linear(8, 2)(torch.ones(1, 8))
    layer.float()(torch.ones(2, 8))
    assert calls == [(2, 8)]


def test_a_model_learns_the_same_with_faster_products(calls):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 10))
    tokens = torch.randint(10, (4, 6))
    gradients = []
    for compute in (model, with_faster_products(model)):
        F.cross_entropy(compute(tokens).flatten(0, 1), tokens.flatten()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
        model.zero_grad()
    assert len(calls) == 2 + 2 * 2  # each layer forwards, then the gradients of its input and of its weight
    torch.testing.assert_close(*gradients)


def test_all_ranks_compute_as_the_first_does_whose_choices_are_saved(monkeypatch):
    store, choices = torch.distributed.HashStore(), [{"this": "oneDNN"}, {"this": "PyTorch"}]
    for rank in (0, 1):
        monkeypatch.setattr(forward, "CHOSEN", choices[rank])
        forward.agree_on_products(World(rank, 2, store=store))
    assert choices == [{"this": "oneDNN"}] * 2
