import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives import next_token as next_token_module
from pellucid.objectives.next_token import (
    choose_objective,
    cross_entropies,
    cross_entropy,
    load_balance,
    nats_of,
    next_token,
)
from pellucid.runtime.precision import Precision
from reference import experts as reference
from tiny import CPU_FLOAT32, decoder_config, random_batch, tiny_decoder, tiny_trainer


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_loss_is_the_sum_of_minus_log_p_over_the_targets_that_count(seed, short):
    generator = torch.Generator().manual_seed(seed)
    logits_BTV = torch.randn(2, 3, 5, generator=generator)
    logits_BTV = logits_BTV.bfloat16() if short else logits_BTV
    targets_BT = torch.randint(5, (2, 3), generator=generator)
    targets_BT[0, 1] = IGNORE_INDEX
    naive = 0.0
    for b, t in ((0, 0), (0, 2), (1, 0), (1, 1), (1, 2)):
        p_V = logits_BTV[b, t].double().exp()
        naive -= (p_V[targets_BT[b, t]] / p_V.sum()).log().item()
    nats_N = cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())
    assert nats_N.dtype == torch.float32
    assert nats_N.sum().item() == pytest.approx(naive, rel=1e-5)


def test_of_bfloat16_logits_the_gradient_is_bfloat16():
    short = torch.randn(80, 300, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()
    exact, targets_N = short.detach().double().requires_grad_(), torch.arange(80)
    for logits_NV in (short, exact):
        cross_entropy(logits_NV, targets_N).sum().backward()
    assert short.grad.dtype == torch.bfloat16
    torch.testing.assert_close(short.grad.double(), exact.grad, rtol=2**-8, atol=1e-6)


def test_many_predictions_lose_the_same_in_pieces_and_keep_no_copy_of_their_logits(monkeypatch):
    draw = torch.Generator().manual_seed(3)
    first_NV, targets_N = torch.randn(50, 30, generator=draw).bfloat16(), torch.randint(30, (50,), generator=draw)
    targets_N[7] = IGNORE_INDEX
    found = []
    for at_once in (1 << 24, 200, 1):
        monkeypatch.setattr(next_token_module, "LOGITS_AT_ONCE", at_once)
        kept = []
        logits_NV = first_NV.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda it: it):  # noqa: B023
            nats_N = cross_entropies(logits_NV, targets_N)
        nats_N.sum().backward()
        found.append((nats_N, logits_NV.grad, any(tensor.dtype == torch.float32 for tensor in kept)))
    (nats_N, gradient_NV, keeps), *in_pieces = found
    assert keeps
    for other_nats_N, other_gradient_NV, keeps in in_pieces:
        assert torch.equal(other_nats_N, nats_N)
        assert torch.equal(other_gradient_NV, gradient_NV)
        assert not keeps


# The compiler makes an instance of our autograd functions, and PyTorch warns of that, though nobody else can fix it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    "precision", [CPU_FLOAT32, Precision(CPU_FLOAT32.device, torch.bfloat16)], ids=["fp32", "bf16"]
)
def test_model_and_loss_compile_to_one_graph(precision, monkeypatch):
    """With autocast inside, and without the pieces of many predictions; the backend that compiles nothing is quick."""
    monkeypatch.setattr(next_token_module, "LOGITS_AT_ONCE", 1)
    model, batch = tiny_decoder(), random_batch(0)
    trainer = tiny_trainer(model, precision=precision, forward=torch.compile(model, backend="eager"))
    found = torch.compile(nats_of, backend="eager", fullgraph=True)(trainer.logits, batch.inputs_BT, batch.targets_BT)
    with precision.autocast():
        logits_BTV = model(batch.inputs_BT)
    torch.testing.assert_close(found, cross_entropy(logits_BTV.flatten(0, 1), batch.targets_BT.flatten()))


def test_pretraining_sums_over_the_targets_and_counts_them():
    decoder, batch = tiny_decoder(), random_batch(0)
    loss = next_token(decoder, batch)
    logits_NV, targets_N = decoder(batch.inputs_BT).flatten(0, 1), batch.targets_BT.flatten()
    assert torch.equal(loss.sum, cross_entropy(logits_NV, targets_N).sum())
    assert loss.count == (batch.targets_BT != IGNORE_INDEX).sum()
    assert (loss.penalty, loss.figures) == (0.0, {})


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_load_balance_is_the_loop_of_equation_41_for_each_row_times_its_targets(seed, top_k):
    generator = torch.Generator().manual_seed(seed)
    p_BTE = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64).softmax(dim=-1)
    is_target_BT = torch.rand(3, 4, generator=generator) < 0.6
    is_target_BT[2] = False  # a row that counts nothing
    balance, asked_E = load_balance(p_BTE, is_target_BT, top_k)
    rows = [p_TE[is_target_T].tolist() for p_TE, is_target_T in zip(p_BTE, is_target_BT, strict=True)]
    naive = sum(len(row) * reference.load_balance(row, top_k) for row in rows if row)
    assert balance.item() == pytest.approx(naive, rel=1e-12)
    assert asked_E.sum() == top_k * is_target_BT.sum()


def test_experts_that_are_asked_equally_often_have_a_balance_of_top_k_and_one_for_all_has_all_experts():
    is_target_14 = torch.ones(1, 4, dtype=torch.bool)
    equally, _ = load_balance(0.25 + 1e-9 * torch.eye(4)[None], is_target_14, top_k=1)
    same, asked_E = load_balance(torch.eye(4)[[2, 2, 2, 2]][None], is_target_14, top_k=1)
    assert equally.item() == pytest.approx(4 * 1)  # of each of four targets
    assert same.item() == pytest.approx(4 * 4)
    assert asked_E.tolist() == [0, 0, 4, 0]


def test_the_penalty_is_apart_from_the_loss_and_reaches_the_routers_alone():
    decoder, batch = tiny_decoder(**MOE), random_batch(0)
    loss = choose_objective(decoder_config(**MOE), decoder)(decoder, batch)
    plain = next_token(decoder, batch)
    torch.testing.assert_close(loss.sum, plain.sum)
    torch.testing.assert_close(loss.penalty, 0.5 * loss.figures["balance_loss"])
    last = decoder.sparse_layers()[-1]
    weights = [last.router.weight, *last.experts.parameters(), *last.shared.parameters()]
    of_router, *of_experts = torch.autograd.grad(loss.penalty, weights, allow_unused=True)
    assert of_router.any()
    assert of_experts == [None] * len(of_experts)


def test_the_load_is_the_share_of_the_choices_of_each_layer():
    decoder, batch = tiny_decoder(**MOE), random_batch(0)
    with decoder.sparse_layers()[0].probabilities() as heard:
        loss = choose_objective(decoder_config(**MOE), decoder)(decoder, batch)
    load_LE = loss.figures["expert_load"] / loss.count
    torch.testing.assert_close(load_LE.sum(dim=1), torch.ones(2))
    choices = heard[0].topk(2).indices[batch.targets_BT != IGNORE_INDEX].flatten()
    torch.testing.assert_close(load_LE[0], choices.bincount(minlength=4) / len(choices))


MOE = {"feed_forward": {"type": "moe", "n_experts": 4, "top_k": 2, "load_balance_weight": 0.5, "shared_experts": 1}}
