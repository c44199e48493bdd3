"""Soft targets: the floor, the gradient, and both divergences against a list of all texts of a small language."""

import math
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.data.soft_targets import distributions_along
from pellucid.objectives.distillation import SoftBatch, divergence, from_model, from_truth
from pellucid.objectives.next_token import cross_entropy
from pellucid.post_training.distillation import as_batch, soft_batch
from pellucid.tokenizer.train import train_byte_pairs
from small_languages import SMALL, all_documents

LANGUAGE = SMALL["golden mean"]
TOKENIZER = train_byte_pairs(list(all_documents(LANGUAGE)), vocab_size=300, special_tokens=["<|endoftext|>"])
END, FAULT = TOKENIZER.end_of_text, 0  # and a byte that no document has
A, B = (TOKENIZER.encode(f" {name}")[0] for name in "ab")


def random_p(seed: int, n: int = 3, k: int = 4) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


@given(st.integers(0, 2**32 - 1), st.floats(0, 2))
def test_equation_60_both_divergences_are_those_of_the_sums(seed, m_of_others):
    p_NK = random_p(seed)
    p_NK[1] = torch.tensor([0.25, 0.75, 0, 0], dtype=torch.float64)
    q_NK = random_p(seed + 1) / (1 + m_of_others)
    for p_K, q_K, forward, reverse in zip(
        p_NK, q_NK, divergence(p_NK, q_NK.log()), divergence(p_NK, q_NK.log(), "reverse"), strict=True
    ):
        pairs = [(p, q) for p, q in zip(p_K.tolist(), q_K.tolist(), strict=True) if p]
        m = sum(q for _, q in pairs)
        assert forward.item() == pytest.approx(sum(p * math.log(p / q) for p, q in pairs), abs=1e-12)
        turned = sum(q / m * math.log(q / m / p) for p, q in pairs)
        assert reverse.item() == pytest.approx(turned - math.log(m), abs=1e-12)
        assert min(forward, reverse) >= -1e-12


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_equation_60_the_truth_s_own_logits_lose_nothing_and_have_no_gradient(direction):
    p_NK = random_p(0)
    p_NK[1] = torch.tensor([0.0, 1, 0, 0], dtype=torch.float64)
    batch = SoftBatch(torch.zeros(1, 3).long(), torch.zeros(1, 3).long(), torch.arange(4).expand(1, 3, 4), p_NK[None])
    logits_BTV = p_NK.clamp(min=1e-300).log()[None].requires_grad_()
    loss = from_truth(lambda _: logits_BTV, batch, direction=direction)
    loss.sum.backward()
    assert loss.count == 3
    assert loss.sum.item() == pytest.approx(0, abs=1e-12)
    assert logits_BTV.grad.abs().max() < 1e-12


def test_equation_60_the_gradient_is_the_mean_of_those_of_drawn_labels():
    n, p_NK = 100_000, random_p(1, n=1)
    logits_V = torch.tensor([0.3, -1, 2, 0.5], dtype=torch.float64, requires_grad=True)
    (divergence(p_NK, logits_V.log_softmax(-1)[None])).sum().backward()
    labels_N = torch.multinomial(p_NK[0], n, replacement=True, generator=torch.Generator().manual_seed(2))
    logits_NV = logits_V.detach().expand(n, -1).clone().requires_grad_()
    cross_entropy(logits_NV, labels_N).sum().backward()
    errors_V = (logits_NV.grad.mean(0) - logits_V.grad) / (logits_NV.grad.std(0) / math.sqrt(n))
    assert errors_V.abs().max() < 4
    assert logits_NV.grad.std(0).min() > 0.1, "one label alone says little"


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_of_a_model_the_divergence_is_that_of_softened_distributions_times_the_square(direction, temperature):
    targets_BT = torch.tensor([[5, 1, IGNORE_INDEX]])
    teaching_BTV, learning_BTV = (torch.randn(1, 3, 6, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    batch = Batch(torch.zeros_like(targets_BT), targets_BT)
    options = {"temperature": temperature, "direction": direction}
    loss = from_model(lambda _: learning_BTV, batch, teacher=lambda _: teaching_BTV, **options)
    p, q = (
        torch.distributions.Categorical(logits=logits[0, :2] / temperature) for logits in (teaching_BTV, learning_BTV)
    )
    pair = (p, q) if direction == "forward" else (q, p)
    expected = temperature**2 * torch.distributions.kl_divergence(*pair).sum()
    assert loss.sum.item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss.count == 2


@cache
def row_of(prefix: tuple[int, ...], is_honest: bool) -> torch.Tensor:
    """A model as a table: logits after each prefix; an honest one writes only what the language can."""
    logits_V = torch.full((TOKENIZER.vocab_size,), -torch.inf, dtype=torch.float64)
    generator = torch.Generator().manual_seed(hash(prefix) % 2**31)
    [possible] = list(distributions_along(LANGUAGE, TOKENIZER, [*prefix[1:], END]))[-1:]
    ids = list(possible) if is_honest else [A, B, END, FAULT]
    logits_V[ids] = torch.randn(len(ids), generator=generator, dtype=torch.float64)
    return logits_V


def forward(is_honest: bool, tokens_BT: torch.Tensor) -> torch.Tensor:
    rows = [[row_of(tuple(row[: t + 1]), is_honest) for t in range(len(row))] for row in tokens_BT.tolist()]
    return torch.stack([torch.stack(row) for row in rows])


def texts_of(is_honest: bool, prefix=(END,), ln_q=0.0):
    """Every text that the model can write, up to its first fault or its end, and ln q of it."""
    [possible] = list(distributions_along(LANGUAGE, TOKENIZER, [*prefix[1:], END]))[-1:]
    for id_, each in enumerate(row_of(prefix, is_honest).log_softmax(-1).tolist()):
        if each == -math.inf:
            continue
        if id_ == END or id_ not in possible:
            yield [*prefix[1:], id_], ln_q + each
        else:
            yield from texts_of(is_honest, (*prefix, id_), ln_q + each)


def losses(texts, is_honest, direction):
    """The loss of each text, as training computes it."""
    batches = (soft_batch(LANGUAGE, TOKENIZER, [text]) for text in texts)
    return [from_truth(lambda tokens: forward(is_honest, tokens), batch, direction=direction).sum for batch in batches]


@pytest.fixture(scope="module")
def documents():
    return [([*TOKENIZER.encode(text), END], math.log(p)) for text, p in all_documents(LANGUAGE).items()]


def test_equation_60_over_the_language_s_own_texts_it_is_the_divergence_of_whole_texts(documents):
    """KL(P || Q), the excess: by the chain rule, the sum over places of those of the next token."""
    found = sum(
        math.exp(ln_p) * loss
        for (_, ln_p), loss in zip(documents, losses([ids for ids, _ in documents], False, "forward"), strict=True)
    )
    excess = 0.0
    for ids, ln_p in documents:
        prefixes = [(END, *ids[:t]) for t in range(len(ids))]
        ln_q = sum(row_of(prefix, False).log_softmax(-1)[id_] for prefix, id_ in zip(prefixes, ids, strict=True))
        excess += math.exp(ln_p) * (ln_p - ln_q)
    assert found.item() == pytest.approx(excess.item(), abs=1e-6)  # p is in float32


def test_equation_61_over_the_model_s_own_texts_the_reverse_is_that_of_whole_texts_if_it_makes_no_fault(documents):
    """KL(Q || P)."""
    written = list(texts_of(is_honest=True))
    assert sum(math.exp(ln_q) for _, ln_q in written) == pytest.approx(1)
    ln_p = {tuple(ids): ln_p for ids, ln_p in documents}
    expected = sum(math.exp(ln_q) * (ln_q - ln_p[tuple(ids)]) for ids, ln_q in written)
    found = losses([ids for ids, _ in written], True, "reverse")
    total = sum(math.exp(ln_q) * loss for (_, ln_q), loss in zip(written, found, strict=True))
    assert total.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_equation_61_places_count_as_often_as_the_model_reaches_them_and_none_after_a_fault(direction):
    """Σ q(prefix) D(p, q | prefix) over all prefixes that the language has, in plain Python."""
    written = list(texts_of(is_honest=False))
    found = losses([ids for ids, _ in written], False, direction)
    total = sum(math.exp(ln_q) * loss for (_, ln_q), loss in zip(written, found, strict=True))

    def expected(prefix):
        [p] = list(distributions_along(LANGUAGE, TOKENIZER, [*prefix[1:], END]))[-1:]
        q = row_of(prefix, False).softmax(-1).tolist()
        m = sum(q[id_] for id_ in p)
        if direction == "forward":
            here = sum(share * math.log(share / q[id_]) for id_, share in p.items())
        else:
            here = sum(q[id_] / m * math.log(q[id_] / m / share) for id_, share in p.items()) - math.log(m)
        return here + sum(q[id_] * expected((*prefix, id_)) for id_ in p if id_ != END)

    assert total.item() == pytest.approx(expected((END,)), abs=1e-6)


def test_the_language_follows_a_text_up_to_its_first_fault():
    impossible = [A, B, B, A]  # after a b comes an a
    assert len(list(distributions_along(LANGUAGE, TOKENIZER, impossible))) == 3
    whole = [*TOKENIZER.encode(" a" * LANGUAGE.length), END]
    *_, last = distributions_along(LANGUAGE, TOKENIZER, whole)
    assert last == {END: 1.0}
    assert len(list(distributions_along(LANGUAGE, TOKENIZER, [END, A]))) == 1


def test_rows_begin_after_the_end_of_a_text():
    batch = as_batch([[A, B, END], [A]], END)
    assert batch.inputs_BT.tolist() == [[END, A, B], [END, END, END]]
    assert batch.targets_BT.tolist() == [[A, B, END], [A, IGNORE_INDEX, IGNORE_INDEX]]
