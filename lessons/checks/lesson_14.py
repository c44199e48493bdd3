"""Checks of lesson 14. Every right answer is computed here with NumPy, by plain loops where that is possible."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch

from pellucid.course.checks import Wrong, draws, expect
from pellucid.errors import one_line

Array = np.ndarray


def _numbers(*shape: int, seed: int = 12, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng(seed).standard_normal(shape)


def _log_softmax(x: Array) -> Array:
    return x - np.logaddexp.reduce(x, axis=-1, keepdims=True)


def _surprise(margin: Array | float) -> Array:
    """-ln σ(margin)."""
    return np.logaddexp(0.0, -np.asarray(margin, dtype=float))


def _tensors(*arrays: Array) -> list[torch.Tensor]:
    """Copies, so that nobody changes ours, and gradients can be asked for."""
    return [torch.tensor(each, requires_grad=True) for each in arrays]


def _is_finite(answer: object) -> bool:
    return bool(np.isfinite(answer.detach().numpy() if isinstance(answer, torch.Tensor) else answer).all())


def _expect_finite_gradients(answer: torch.Tensor, given: list[torch.Tensor], where: str) -> None:
    """Raise Wrong if a value is right, but its slope is NaN or infinite."""
    if not isinstance(answer, torch.Tensor) or not answer.requires_grad:
        return  # another check has a sentence for it
    answer.sum().backward()
    if any(each.grad is not None and not bool(each.grad.isfinite().all()) for each in given):
        raise Wrong(
            f"{where}: the value is right, but its gradient is NaN, and after one step all weights would be. "
            "`torch.where` computes both of its branches, and 0 times infinity is NaN"
        )


def _expect_a_gradient(answer: object, of: str) -> None:
    """Raise Wrong if nothing can be learned by making this answer, which has the right value, smaller or larger."""
    if not isinstance(answer, torch.Tensor) or not answer.requires_grad:
        raise Wrong(
            f"the value is right, but no gradient reaches {of}: something was made a plain number, or detached, and "
            "nothing could be learned"
        )


def _leaves_alone(function: Callable[..., object], *arguments: object) -> None:
    """Raise Wrong if a function writes into one of its tensors where PyTorch lets it: no gradient was asked for."""
    given = [torch.tensor(each) if isinstance(each, np.ndarray) else each for each in arguments]
    function(*given)
    for tensor, before in zip(given, arguments, strict=True):
        if isinstance(tensor, torch.Tensor) and not np.array_equal(tensor, before):
            raise Wrong("you write into a tensor that you are given, as `x -= …` and `x.sub_(…)` do: the next who "
                        "needs it finds other numbers; make a new one")  # fmt: skip


# ---- Learning from examples ----


def answer_loss(lesson: ModuleType) -> None:
    N, T, V = 3, 7, 5
    logits = _numbers(N, T, V)
    targets = np.random.default_rng(3).integers(V, size=(N, T))
    is_answer = np.zeros((N, T), dtype=bool)
    is_answer[0, 2:4] = is_answer[1, 3:7] = is_answer[2, 1:6] = True
    nats = -np.take_along_axis(_log_softmax(logits), targets[..., None], axis=-1)[..., 0]
    shifted = -np.take_along_axis(_log_softmax(logits)[:, :-1], targets[:, 1:, None], axis=-1)[..., 0]
    answers = [row[counts] for row, counts in zip(nats, is_answer, strict=True)]
    of_all = np.concatenate(answers)
    chosen = np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0][is_answer]
    along_places = np.take_along_axis(_log_softmax(logits.swapaxes(1, 2)).swapaxes(1, 2), targets[..., None], axis=-1)
    answer = lesson.answer_loss(
        torch.tensor(logits, requires_grad=True), torch.tensor(targets), torch.tensor(is_answer)
    )
    expect(
        answer,
        of_all.mean(),
        "the loss of three answers of 2, 4 and 5 tokens",
        [
            (
                nats.mean(),
                "the questions and the padding are in your loss: the model would learn to ask, not only to answer",
            ),
            (
                of_all.sum() / nats.size,
                f"you divide by all {nats.size} tokens, but only {of_all.size} belong to answers: a longer question "
                "would make your loss smaller, though the answer is as surprising as before",
            ),
            (
                np.mean([answer.mean() for answer in answers]),
                "you take the mean of the three answers' means: a token of the answer of 2 tokens then weighs "
                "2.5 times as much as a token of the answer of 5",
            ),
            (
                shifted[is_answer[:, 1:]].mean(),
                "you shift the targets by one more: they are the *next* tokens already, so place t of the logits "
                "belongs to place t of the targets",
            ),
            (of_all.sum() / N, "you divide by the number of answers, not by the number of their tokens"),
            (of_all.sum(), "this is the sum over the answers' tokens; the mean is asked for"),
            (-of_all.mean(), "the sign: a surprise is -ln p, and never negative"),
            (nats[~is_answer].mean(), "your mask is the wrong way round: you learn the questions and not the answers"),
            (-chosen.mean(), "the softmax is missing: logits are no log-probabilities yet"),
            (-np.exp(-of_all).mean(), "this is the mean probability, made negative; a surprise is -ln p"),
            (
                -along_places[..., 0][is_answer].mean(),
                "your softmax runs along the places; at each place, it is the words that share the 1",
            ),
            (of_all.mean() / np.log(2), "this is in bits; nats are asked for"),
        ],
    )
    _expect_a_gradient(answer, "the logits")
    rng = draws("answer_loss")
    for size in (1.0, 2000.0):
        N, T, V = (int(n) for n in rng.integers((2, 5, 3), (6, 12, 9)))
        logits, targets = size * rng.uniform(-1, 1, (N, T, V)), rng.integers(V, size=(N, T))
        is_answer = rng.random((N, T)) < 0.5
        is_answer[0, :3] = True, False, True  # a question may come between two answers
        nats = -np.take_along_axis(_log_softmax(logits), targets[..., None], axis=-1)[..., 0]
        whole = np.zeros_like(is_answer)
        for row, counts in zip(whole, is_answer, strict=True):
            if counts.any():
                row[counts.argmax() : T - counts[::-1].argmax()] = True
        what = f"the loss of a batch ({N}, {T}) of {V} words, with answers in several pieces"
        with np.errstate(all="ignore"):
            [given] = _tensors(logits)
            others = torch.tensor(targets), torch.tensor(is_answer)
            answer = lesson.answer_loss(given, *others)
        if not all(map(np.array_equal, others, (targets, is_answer))):
            raise Wrong("you write into the targets or the mask that you are given: the next who needs them finds "
                        "other ones; `torch.where` makes a new tensor")  # fmt: skip
        if answer is not None and np.shape(answer) == () and not _is_finite(answer):
            raise Wrong(
                "right for small logits; where they differ by thousands, a probability is rounded to 0 or its "
                "e^logit is infinite, and the loss is no number. PyTorch has the logarithm of a softmax at once"
            )
        expect(
            answer,
            nats[is_answer].mean(),
            what,
            [
                (
                    nats[whole].mean(),
                    "you take all places from an answer's first token to its last: here a question stands "
                    "between two answers, and it does not count",
                )
            ],
        )
        _expect_finite_gradients(answer, [given], what)
        slope = np.exp(_log_softmax(logits)) - np.eye(V)[targets]
        if given.grad is None:
            raise Wrong("the loss is right, but no gradient reaches the logits: it was made a number")
        expect(given.grad, slope * is_answer[..., None] / is_answer.sum(), f"the gradient at the logits of {what}")
        _leaves_alone(lesson.answer_loss, logits, targets, is_answer)


def new_adapter(lesson: ModuleType) -> None:
    n_out, n_in, rank = 5, 400, 9
    pair = lesson.new_adapter(n_out, n_in, rank, torch.Generator().manual_seed(12))
    if pair is None:
        raise Wrong("the adapter: your function returns None; is a `return` missing?")
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise Wrong("the adapter: two matrices are expected, A and B")
    for name, each in zip("AB", pair, strict=True):
        if getattr(each, "dtype", None) != torch.float64:
            raise Wrong(
                f"{name} holds {getattr(each, 'dtype', 'no numbers of PyTorch')}; all tensors of this lesson are "
                "float64, and PyTorch multiplies only matrices of one kind"
            )
    if any(each.dim() == 2 and 0 in each.stride() for each in pair):
        raise Wrong("several numbers of yours share one place in memory, as `expand` makes them: whoever changes one "
                    "changes all, and PyTorch refuses to train them; `torch.zeros` makes a place for each")  # fmt: skip
    A, B = (each.detach().numpy() for each in pair)
    if A.shape == (n_out, rank) and B.shape == (rank, n_in):
        raise Wrong("A comes first: it takes the 400 inputs down to 9 numbers; B takes these up to the 5 outputs")
    if A.shape == (n_in, rank):
        raise Wrong("A is on its side: it has a row for each number that it makes, 9, and a column for each input, 400")
    expect(A.shape, (rank, n_in), "the shape of A")
    expect(B.shape, (n_out, rank), "the shape of B")
    if not A.any() and not B.any():
        raise Wrong(
            "A and B are both zero: the gradient of B passes through A, and that of A through B, so both are zero and "
            "stay so. This adapter will never learn"
        )
    if (B @ A).any():
        raise Wrong(
            f"step 0 is not the base: B A has numbers up to {np.abs(B @ A).max():.2f} before anything was learned. One "
            "of the two matrices has to begin at zero"
        )
    if not A.any():
        raise Wrong(
            "A is zero and B is random: step 0 is the base, but the lesson begins with B = 0, as the paper does"
        )
    if np.unique(A).size < A.size:
        raise Wrong("the rows of A are not random numbers: equal rows get equal gradients and never become different")
    if not 0.9 < A.std() * n_in**0.5 < 1.1:
        raise Wrong(
            f"the numbers of A have a deviation of {A.std():.2g}; those of `randn` have 1, and should be divided by "
            "√I = √400, once"
        )
    again, _ = lesson.new_adapter(n_out, n_in, rank, torch.Generator().manual_seed(12))
    if not np.array_equal(A, again.detach().numpy()):
        raise Wrong("the same generator gives another A each time: let `randn` draw from it, or no run can be repeated")
    rng = draws("new_adapter")
    generator = torch.Generator().manual_seed(int(rng.integers(1, 10**6)))
    n_out, n_in, rank = (int(n) for n in rng.integers((3, 900, 4), (9, 1200, 8)))
    (first, B), (second, _) = (lesson.new_adapter(n_out, n_in, rank, generator) for _ in range(2))
    expect(np.shape(first), (rank, n_in), f"the shape of A, for {n_in} inputs and rank {rank}")
    expect(np.asarray(B), np.zeros((n_out, rank)), f"B, for {n_out} outputs and rank {rank}")
    if torch.equal(first, second):
        raise Wrong(
            "two adapters, drawn one after the other, have the same A: it does not come from the generator, so "
            "every layer would begin alike"
        )
    scaled = first.detach().numpy() * n_in**0.5
    if not 0.9 < scaled.std() < 1.1:
        raise Wrong(
            f"with {n_in} inputs the numbers of A have a deviation of {first.std():.2g}; it should be about 1/√I"
        )
    if np.abs(scaled).max() < 2:
        raise Wrong(
            "no number of A is more than 2/√I from 0, and of thousands with a normal distribution some are: draw "
            "them with `torch.randn`"
        )


def lora_forward(lesson: ModuleType) -> None:
    for n_in, n_out, layer in ((6, 6, "a square layer"), (7, 5, "a layer with 7 inputs and 5 outputs")):
        R, alpha = 3, 6.5
        x, W = _numbers(4, n_in), _numbers(n_out, n_in, seed=1)
        A, B = _numbers(R, n_in, seed=2), _numbers(n_out, R, seed=3)
        base, change = x @ W.T, x @ A.T @ B.T
        mistakes = [
            (base + change, "α/R is missing: with α = 6.5 and R = 3 the change should be 2.17 times as large"),
            (base + alpha * change, "you multiply by α, not by α/R: whoever doubles the rank would double the change"),
            (base + R / alpha * change, "you multiply by R/α; it is α/R"),
            (
                base + alpha / math.sqrt(R) * change,
                "you divide α by √3, the root of the rank; in this lesson it is α/R",
            ),
            (alpha / R * change, "the base is missing: the adapter stands beside W, not in its place"),
            (alpha / R * (base + change), "you scale the base as well: α/R belongs to the change alone"),
            (base, "your adapter changes nothing"),
            (
                base + alpha / n_in * change,
                f"you divide α by the number of inputs, {n_in}; R is the rank, the number of rows of A",
            ),
        ]
        if n_in == n_out:
            swapped = (
                "A and B are swapped: first A takes the inputs down to R numbers, then B takes these up. In a layer "
                "with as many outputs as inputs, no shape warns you"
            )
            mistakes += [(base + scale * (x @ B @ A), swapped) for scale in (1.0, alpha / R, alpha)]
            mistakes.append(
                (
                    x @ W + alpha / R * (x @ B @ A),
                    "your W is transposed once too often, or not at all: row o of W makes output o",
                )
            )
        given = [torch.tensor(each) for each in (x, W, A, B)]
        answer = lesson.lora_forward(*given, alpha)
        expect(answer, base + alpha / R * change, f"the outputs of {layer} with an adapter", mistakes)
        if not np.array_equal(given[1].numpy(), W):
            raise Wrong("right, but you changed W itself: the base is frozen, and a second call would add B A again")
        _leaves_alone(lesson.lora_forward, x, W, A, B, alpha)
    rng = draws("lora_forward")
    for n_rows, R, n_out in ((int(rng.integers(2, 6)), int(rng.integers(7, 10)), 2), (1, 1, 4), (3, 2, 5)):
        x, W = rng.normal(size=(n_rows, 6)), rng.normal(size=(n_out, 6))
        A, B, alpha = rng.normal(size=(R, 6)), rng.normal(size=(n_out, R)), float(rng.uniform(2, 20))
        B = 0 * B if R == 2 else B  # as at step 0
        given = _tensors(x, A, B)
        answer = lesson.lora_forward(given[0], torch.tensor(W), given[1], given[2], alpha)
        base, change = x @ W.T, x @ A.T @ B.T
        expect(
            answer,
            base + alpha / R * change,
            f"{n_rows} rows, 6 inputs, {n_out} outputs and rank {R}",
            [
                (base + alpha / n_out * change, f"you divide α by {n_out}, the number of outputs; R is the rank, {R}"),
                (base + alpha / 3 * change, f"you divide α by 3, whatever the rank is; here it is {R}"),
                (base + alpha / 6 * change, f"you divide α by 6, the number of inputs; A has {R} rows, and R is {R}"),
            ],
        )
        _expect_a_gradient(answer, "A and B")
        answer.sum().backward()
        for name, each, right in (
            ("A", given[1], B.sum(axis=0)[:, None] * x.sum(axis=0)),
            ("B", given[2], np.ones((n_out, 1)) * (A @ x.sum(axis=0))),
        ):
            if each.grad is None:
                at_0 = ", and B is 0 at step 0, but not for ever" if R == 2 else ""
                raise Wrong(f"the outputs are right, but no gradient reaches {name}: it would never be trained{at_0}")
            expect(each.grad, alpha / R * right, f"the gradient at {name} of the sum of all outputs")


# ---- Learning from preferences ----


def reward_loss(lesson: ModuleType) -> None:
    chosen, rejected = np.array([2.0, 0.5, -1.0, 0.3]), np.array([1.0, 1.2, -1.5, 0.3])
    margin = chosen - rejected
    p = 1 / (1 + np.exp(-margin))
    bounded = (
        "your surprise has a bound, as it has where a small number keeps a logarithm from ln 0; with rewards 0 and 900 "
        "for winner and loser it is 900 nats. PyTorch has the logarithm of σ as one function"
    )
    learned = lesson.reward_loss(torch.tensor(chosen, requires_grad=True), torch.tensor(rejected, requires_grad=True))
    expect(
        learned,
        _surprise(margin).mean(),
        "the loss of four pairs",
        [
            (
                _surprise(-margin).mean(),
                "your difference is reversed: you are surprised when the better answer wins, and would train a model "
                "to give it the lower reward",
            ),
            (
                -np.log(p.mean()),
                "you take the mean of the probabilities before the logarithm: the pairs are independent, so their "
                "probabilities multiply, and it is the logarithms that add up",
            ),
            (
                1 - p.mean(),
                "this is 1 less the mean probability, not the surprise -ln p: it hardly punishes being sure and wrong",
            ),
            (-p.mean(), "this is a probability; the logarithm is missing"),
            (-margin.mean(), "this is the difference alone: it can be made as small as you like by larger rewards"),
            (
                -np.log(np.exp(chosen) / (np.exp(chosen) + np.exp(rejected).sum())).mean(),
                "each chosen answer is compared with all rejected ones; a pair has two",
            ),
            (_surprise(margin).sum(), "this is the sum over the pairs; the mean is asked for"),
            (-_surprise(margin).mean(), "the sign: this is the mean of ln p, but a surprise is never negative"),
            (
                _surprise(margin.mean()),
                "you take the mean of the differences first; each pair has a surprise of its own, and the mean is of "
                "those",
            ),
            *((-np.log(p + little).mean(), bounded) for little in (1e-8, 1e-7, 1e-6)),
        ],
    )
    _expect_a_gradient(learned, "the rewards")
    _leaves_alone(lesson.reward_loss, chosen, rejected)
    answer = lesson.reward_loss(torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor([900.0, 1.0]).double())
    if answer is not None and not _is_finite(answer):
        raise Wrong(
            "right for small rewards; where the loser's is 900 higher, σ is rounded to 0, and ln 0 is -∞ (lesson 5)"
        )
    if np.shape(answer) == () and answer is not None and 5 < float(answer) < 100:
        raise Wrong(bounded)
    expect(answer, (900 + np.log(2)) / 2, "the loss of a pair with rewards 0 and 900, and one with 1 and 1")
    rng = draws("reward_loss")
    for n, size in ((int(rng.integers(5, 12)), 3.0), (1, 2000.0)):
        margin = size * (1 + rng.random(n)) * np.sign(np.arange(n) - 0.5)  # the first is wrong
        margin[1:2] = 0.0  # as where training begins
        rewards = rng.normal(size=n)
        given = _tensors(rewards + margin, rewards)
        what = f"the loss of {n} pair{'s' * (n > 1)} with differences up to {np.abs(margin).max():.0f}"
        answer = lesson.reward_loss(*given)
        expect(answer, _surprise(margin).mean(), what)
        _expect_finite_gradients(answer, given, what)
        slope = 1 / (1 + np.exp(np.minimum(margin, 700))) / n
        for name, each, right in (("winners", given[0], -slope), ("losers", given[1], slope)):
            if each.grad is None:
                raise Wrong(f"the loss is right, but no gradient reaches the rewards of the {name}")
            what = f"the gradient at the rewards of the {name}"
            if n > 1 and each.grad.shape == (n,) and not np.isclose(each.grad[1], right[1]):
                raise Wrong(f"{what}: for two equal rewards, with which training begins, that of a pair should be "
                            f"{n * right[1]:g}, and yours is {n * float(each.grad[1]):g}; has your formula a corner "
                            "there?")  # fmt: skip
            expect(each.grad, right, what)


def optimal_policy(lesson: ModuleType) -> None:
    beta = 0.4
    reference = np.array([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    rewards = np.array([[0.0, 0.2, 1.0, 0.9], [1.0, 0.3, 0.1, 0.6], [0.2, 0.2, 0.8, 0.0]])
    raised = reference * np.exp(rewards / beta)
    right = raised / raised.sum(axis=1, keepdims=True)

    def shares(x: Array) -> Array:
        return x / x.sum(axis=1, keepdims=True)

    try:
        answer = lesson.optimal_policy(torch.tensor(reference), torch.tensor(rewards), beta)
    except (RuntimeError, IndexError) as error:
        if isinstance(error, NotImplementedError):
            raise
        raise Wrong(f"three questions with four answers each: PyTorch says “{one_line(str(error))}”. Is a size of the "
                    "page's language, 2 or 12, written as a number, or an axis a wrong one?") from None  # fmt: skip
    expect(
        answer,
        right,
        "the best policies for three questions",
        [
            (
                shares(reference * np.exp(rewards * beta)),
                "your factor is e^{βr}: then a higher price would move the policy further from the reference. A high "
                "price should keep it near",
            ),
            (
                shares(np.exp(rewards / beta)),
                "the reference is missing: this is the best policy for a reference that likes all answers alike",
            ),
            (raised, f"row 0 sums to {raised[0].sum():.1f}: divide by Z to get probabilities"),
            (
                raised / raised.sum(),
                "all three rows together sum to 1: each question has a Z of its own",
            ),
            (shares(raised.T).T, "your columns sum to 1; a row is a question, and its answers share the 1"),
            (shares(reference + np.exp(rewards / beta)), "you add to the reference; the factor e^{r/β} multiplies it"),
            (
                shares(np.exp(reference + rewards / beta)),
                "you add probabilities to rewards; it is the *logarithm* of the reference that adds to r/β",
            ),
            (
                np.eye(4)[rewards.argmax(axis=1)],
                "all probability is on the best answer: that is the policy for a price of 0",
            ),
            (np.log(right), "these are logarithms; the probabilities are asked for"),
        ],
    )
    rng = draws("optimal_policy")
    for beta in (0.3, 100.0, 0.001):
        Q, X = (int(n) for n in rng.integers((2, 5), (5, 9)))
        reference = rng.dirichlet(np.ones(X), Q)
        rewards = 2 * rng.random((Q, X)) + 5 * np.arange(Q)[:, None]  # each question is easier than the one before
        if beta < 1:
            reference[:, 0], rewards[:, 0] = 0.0, 5 * Q + 5  # an answer that nobody gives would be the best
            reference /= reference.sum(axis=1, keepdims=True)
        _one_price(lesson, reference, rewards, beta)


def _one_price(lesson: ModuleType, reference: Array, rewards: Array, beta: float) -> None:
    with np.errstate(divide="ignore"):
        scores = np.log(reference) + rewards / beta
        smoothed = np.exp(_log_softmax(np.log(reference + 1e-12) + rewards / beta))
    what = f"the best policies for {len(reference)} questions with {reference.shape[1]} answers, at a price of {beta:g}"
    given = torch.tensor(reference), torch.tensor(rewards)
    answer = lesson.optimal_policy(*given, beta)
    if not (np.array_equal(given[0], reference) and np.array_equal(given[1], rewards)):
        raise Wrong("you write into the reference or the rewards, as `rewards /= …` does: the next who needs them "
                    "finds other ones; make a new tensor")  # fmt: skip
    if np.shape(answer) == reference.shape and not _is_finite(answer):
        raise Wrong(
            f"{what}: there is a NaN. A reward of 1 is a factor of e^{1 / beta:.0f}, which a computer cannot hold: "
            "work with ln π_ref + R/β, and let a softmax of each row take care of the size (lesson 7)"
        )
    expect(
        answer,
        np.exp(_log_softmax(scores)),
        what,
        [
            (
                smoothed,
                "an answer that the reference never gives becomes likely: 0 times any factor is 0. Don't add a small "
                "number to the probabilities",
            ),
            (
                np.eye(reference.shape[1])[np.zeros(len(reference), dtype=int)],
                "an answer that the reference never gives becomes certain: 0 times any factor is 0. Don't add a small "
                "number to the probabilities",
            ),
        ],
    )


def dpo_loss(lesson: ModuleType) -> None:
    P, T, beta = 3, 5, 0.3
    parts = [-np.abs(_numbers(P, T, seed=seed)) for seed in (1, 2, 3, 4)]
    lengths = [(5, 2, 4), (3, 5, 4)]
    for part, length in zip(parts, (*lengths, *lengths), strict=True):
        for row, n in zip(part, length, strict=True):
            row[n:] = 0.0
    tensors = [torch.tensor(part, requires_grad=True) for part in parts]
    chosen, rejected, reference_chosen, reference_rejected = (part.sum(axis=1) for part in parts)
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    n_chosen, n_rejected = np.array(lengths)
    means = (chosen - reference_chosen) / n_chosen - (rejected - reference_rejected) / n_rejected
    answer = lesson.dpo_loss(*tensors, beta)
    expect(
        answer,
        _surprise(beta * margin),
        "the losses of three pairs",
        [
            (
                _surprise(beta * (chosen - rejected)),
                "the reference is forgotten: an answer that was likely from the start then counts as preferred by you",
            ),
            (
                beta * _surprise(margin),
                "β is outside of the logarithm: there it only scales the gradient, like a learning rate. Inside of "
                "σ it says how far the policy has to move for a preference",
            ),
            (
                _surprise(margin),
                "β is missing: your policy would be the best one for a price of 1",
            ),
            (
                _surprise(beta * means),
                "you take the mean of each answer's log-probabilities: ln p of an answer is the *sum* over its tokens. "
                "With means, 5 tokens would count no more than 2",
            ),
            (
                _surprise(beta * margin / T),
                "you take the mean over T = 5 places, the padding included: ln p of an answer is the *sum* over its "
                "tokens",
            ),
            (_surprise(-beta * margin), "your difference is reversed: the rejected answer would become likelier"),
            (_surprise(margin / beta), "you divide by β: solving π* for the reward gives β ln(π/π_ref), a product"),
            (-_surprise(beta * margin), "the sign: this is ln σ, but a surprise is never negative"),
            (
                _surprise(beta * ((chosen + reference_chosen) - (rejected + reference_rejected))),
                "the reference comes with the wrong sign: an answer's implicit reward is its ln π less *its own* "
                "ln π_ref",
            ),
            (
                _surprise(beta * (parts[0] - parts[2] - parts[1] + parts[3])).sum(axis=1),
                "you compare token by token, so the first word of one answer is against the first of the other; "
                "whole answers were compared: first the sums, then σ",
            ),
            (
                _surprise(beta * (chosen / reference_chosen - rejected / reference_rejected)),
                "you divide one logarithm by the other: the logarithm of a ratio is a difference",
            ),
            (
                _surprise(beta * (chosen - reference_chosen) - (rejected - reference_rejected)),
                "β multiplies both implicit rewards, not the chosen answer's alone",
            ),
        ],
    )
    if not isinstance(answer, torch.Tensor) or not answer.requires_grad:
        raise Wrong("the losses are right, but no gradient reaches the policy: was it detached, too, or made a number?")
    answer.sum().backward()
    if not all(each.requires_grad for each in tensors[2:]):
        raise Wrong(
            "the losses are right, but the reference itself is another afterwards: `detach_()` and "
            "`requires_grad_(False)` change the tensor of your caller; `detach()` makes a new one"
        )
    if any(each.grad is not None and bool(each.grad.abs().max() > 0) for each in tensors[2:]):
        raise Wrong(
            "the losses are right, but their gradient passes through the reference: if both are the same network, "
            "the two gradients cancel, and nothing is learned. The reference has to stand still"
        )
    slope = -beta / (1 + np.exp(beta * margin))
    if tensors[0].grad is None or tensors[1].grad is None:
        raise Wrong("the losses are right, but no gradient reaches the policy's log-probabilities")
    expect(tensors[0].grad[:, 0], slope, "the gradient at the chosen answers")
    expect(tensors[1].grad[:, 0], -slope, "the gradient at the rejected answers")
    rng = draws("dpo_loss")
    for P, size in ((int(rng.integers(4, 9)), 1.0), (1, 1.0), (2, 1000.0)):
        T, beta = int(rng.integers(3, 8)), float(rng.uniform(0.1, 0.6)) if size == 1 else 1.0
        parts = -size * rng.random((4, P, T))
        if P > 2:
            parts[:, :, 1] = 0.0  # a token that was certain, with more of the answer after it
            parts[:2, 1] = parts[2:, 1]  # as at the first step: the policy is the reference
        if size > 1:  # the chosen answer is far less likely than it was, then far likelier
            parts[0, 0], parts[1, 0], parts[0, 1], parts[1, 1] = -size, -0.1, -0.1, -size
        tensors = _tensors(*parts)
        chosen, rejected, reference_chosen, reference_rejected = parts.sum(axis=2)
        margin = beta * (chosen - reference_chosen - rejected + reference_rejected)
        what = f"the loss{'es' * (P > 1)} of {P} pair{'s' * (P > 1)} of {T} tokens, with differences up to "
        what += f"{np.abs(margin).max():.0f}"
        answer = lesson.dpo_loss(*tensors, beta)
        if np.shape(answer) == (P,) and not _is_finite(answer):
            raise Wrong(
                f"{what}: there is a number that is none. σ is rounded to 0 there, as in `reward_loss`, or the "
                "probability of a whole answer is: stay with logarithms"
            )
        if P > 2 and isinstance(answer, torch.Tensor):
            cut = parts[:, :, 0]
            short = beta * (cut[0] - cut[2] - cut[1] + cut[3])
            if answer.shape == (P,) and np.allclose(answer.detach(), _surprise(short)):
                raise Wrong("you end an answer at its first 0; but a token that was certain has ln 1 = 0, too, and "
                            "more may come after it. To the sum, a 0 does no harm")  # fmt: skip
        if P == 1 and np.shape(answer) == ():
            raise Wrong("of a single pair you return a number; the losses have the shape (P,), so here (1,)")
        expect(answer, _surprise(margin), what)
        _expect_finite_gradients(answer, tensors[:2], what)
        _leaves_alone(lesson.dpo_loss, *parts, beta)
        slope = tensors[0].grad
        if P > 2 and slope is not None and not np.allclose(slope[1], -beta / 2):
            raise Wrong("where the policy is the reference, as at the first step, the slope at the chosen answer is "
                        f"-β/2; yours is {float(slope[1, 0]) / beta:g}β. Has your formula a corner there?")  # fmt: skip


# ---- Learning from one's own answers ----


def group_advantages(lesson: ModuleType) -> None:
    # As many answers as questions: an axis that was lost or mixed up gives numbers, and a sentence, not an exception.
    equal = lesson.group_advantages(torch.tensor([[0.5, 0.5, 0.5], [0.0, 1.0, 0.0], [1.0, 0.0, 0.5]]).double())
    if equal is not None and np.shape(equal) == (3, 3) and np.isnan(np.asarray(equal, dtype=float)).any():
        raise Wrong(
            "three equal rewards give NaN: their deviation is 0, and 0/0 is no number. One such group would turn "
            "all weights into NaN"
        )
    rewards = np.array([[1.0, 0.0, 0.0, 0.5], [0.9, 1.0, 0.2, 1.0], [0.0, 0.1, 0.8, 0.0], [0.4, 0.7, 0.2, 0.3]])
    mean, s = rewards.mean(axis=1, keepdims=True), rewards.std(axis=1, ddof=1, keepdims=True)
    centred = rewards - mean
    across = (rewards - rewards.mean(axis=0)) / (rewards.std(axis=0, ddof=1) + 1e-4)
    easy = (
        "you compare with the mean over all questions: every answer to an easy question then looks good, even its worst"
    )
    lost = (
        "the mean of question j was taken from column j: without its axis, a mean (Q,) is spread over the rows. It "
        "has to stay a column, (Q, 1)"
    )
    expect(
        lesson.group_advantages(torch.tensor(rewards)),
        centred / (s + 1e-4),
        "the advantages of 4 questions with 4 answers each",
        [
            ((rewards - rewards.mean()) / (s + 1e-4), easy),
            ((rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4), easy),
            (
                centred / (rewards.std(ddof=1) + 1e-4),
                "the mean is that of each question, but your s is that of all questions together",
            ),
            (
                centred / (rewards.std(axis=1, keepdims=True) + 1e-4),
                "your s divides by G; here it divides by G - 1. With 4 answers, your advantages are √(4/3), or 15 %, "
                "too large",
            ),
            (centred / s, "you divide by s alone; the 1e-4 beside it is missing"),
            (centred, "you don't divide by the standard deviation"),
            (centred / (s**2 + 1e-4), "you divide by the variance; s is its root"),
            (across, "you compare with the answers to the other questions; a group is a row"),
            ((rewards - mean.T) / (s.T + 1e-4), lost),
            ((rewards - mean.T) / (s + 1e-4), lost),
            (
                centred / (s.T + 1e-4),
                "the s of question j divides column j: without its axis, s is spread over the rows. It has to stay a "
                "column, (Q, 1)",
            ),
            (rewards / (s + 1e-4), "the mean is not subtracted: every answer with a reward would look good"),
            (rewards - mean / (s + 1e-4), "you divide only the mean by s; the whole difference is divided"),
        ],
    )
    right = np.array([[0.0, 0.0, 0.0], [-1 / 3, 2 / 3, -1 / 3], [0.5, -0.5, 0.0]])
    right /= np.array([[0.0], [3**-0.5], [0.5]]) + 1e-4
    expect(equal, right, "the advantages of 3 questions with 3 answers each, those to the first equally good")
    wide = lesson.group_advantages(torch.tensor(rewards[:2]))
    expect(wide, (centred / (s + 1e-4))[:2], "the advantages of 2 questions with 4 answers each")
    rng = draws("group_advantages")
    one_good = (np.arange(16) == rng.integers(16))[None] * 1.0
    for rewards, what in (
        (one_good, "the advantages of one question with 16 answers, one of which is right"),
        (rng.random((int(rng.integers(3, 7)), int(rng.integers(5, 9)))), "those of random rewards"),
        (1e6 + rng.random((3, 5)), "those of rewards a little above a million"),
        (rng.permutation([0.5, 0.501, 0.5, 0.5])[None], "those of a group in which one has 0.501 and the others 0.5"),
    ):
        given = torch.tensor(rewards)
        answer = lesson.group_advantages(given)
        if not np.array_equal(given, rewards):
            raise Wrong("you write into the rewards that you are given, as `rewards -= …` does: who reports them "
                        "afterwards finds other ones; make a new tensor")  # fmt: skip
        if np.shape(answer) == (16,):
            raise Wrong(f"{what}: the shape is (16,), but (1, 16) is expected; a single question is a row, too")
        deviations = rewards - rewards.mean(axis=1, keepdims=True)
        right = deviations / (rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4)
        expect(answer, right, what, tolerance=1e-6)


def grpo_objective(lesson: ModuleType) -> None:
    clip = 0.25
    ratio = np.array([0.5, 0.9, 1.0, 1.1, 1.6, 0.5, 0.9, 1.0, 1.1, 1.6])
    advantage = np.array([2.0, 2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, -2.0])
    old = np.log(np.array([0.3, 0.2, 0.5, 0.4, 0.1, 0.3, 0.2, 0.5, 0.4, 0.6]))
    clipped = ratio.clip(1 - clip, 1 + clip)
    swapped = np.minimum(ratio, clipped) * advantage

    def clipped_by(ratio: Array, low: float, high: float) -> Array:
        return np.minimum(ratio * advantage, ratio.clip(low, high) * advantage)

    log_p = torch.tensor(old + np.log(ratio), requires_grad=True)
    of_logs = "both are logarithms: the ratio of the probabilities is e to the power of their difference"
    answer = lesson.grpo_objective(log_p, torch.tensor(old), torch.tensor(advantage), clip)
    expect(
        answer,
        clipped_by(ratio, 1 - clip, 1 + clip),
        "ratios from 0.5 to 1.6, five with advantage 2 and five with advantage -2",
        [
            (
                (ratio * advantage).clip(1 - clip, 1 + clip),
                "you clip the product of ratio and advantage, as lecture notes N3 have it: a bad answer then gives "
                "0.75 whatever you do, and is never unlearned. It is the ratio that is clipped",
            ),
            (
                ratio * advantage.clip(1 - clip, 1 + clip),
                "you clip the advantage: all bad answers become good ones, of advantage 0.75",
            ),
            (
                clipped * advantage,
                "you clip, but there is no minimum: a good answer that has become half as likely (ratio 0.5) gets no "
                "gradient, and can't come back",
            ),
            (
                swapped,
                "for negative advantages you take the smaller *ratio*: multiplied by -2, it is the larger product. "
                "Take the smaller of the two products: then a bad answer that has become likelier can be pushed back",
            ),
            (
                np.maximum(ratio * advantage, clipped * advantage),
                "you take the larger product, which is the rosier view: what has gone too far is pushed on, and what "
                "must come back can't",
            ),
            (
                clipped_by(1 / ratio, 1 - clip, 1 + clip),
                "your ratio is upside down: it should be larger than 1 where the answer has become likelier",
            ),
            (
                ratio * advantage,
                "nothing is clipped: what has gone too far already would be paid for going further",
            ),
            (
                -clipped_by(ratio, 1 - clip, 1 + clip),
                "the sign: this is the loss; what GRPO makes *large* is asked for",
            ),
            (clipped_by((old + np.log(ratio)) / old, 1 - clip, 1 + clip), of_logs),
            (clipped_by(np.log(ratio), 1 - clip, 1 + clip), of_logs),
            (
                clipped_by(ratio, 0.0, 1 + clip),
                "your ratio has no lower limit: a bad answer that has become half as likely is still pushed on",
            ),
            (clipped_by(ratio, 0.8, 1.2), "you clip at 0.2, whatever `clip` is"),
            (clipped_by(ratio, -clip, clip), "you clip to ±clip; a ratio is near 1, not near 0"),
        ],
    )
    _leaves_alone(lesson.grpo_objective, old + np.log(ratio), old, advantage, clip)
    _expect_a_gradient(answer, "the policy")
    answer.sum().backward()
    free = ratio * advantage <= clipped * advantage
    expect(log_p.grad, np.where(free, ratio * advantage, 0.0), "the gradient at each log-probability")
    rng = draws("grpo_objective")
    for size in (1.0, 900.0):  # an answer of many tokens may have ln p = -900
        clip, n = float(rng.uniform(0.1, 0.4)), int(rng.integers(3, 8))
        ratio = np.concatenate([[4.0, 4.0, 0.2, 0.2, 30.0], np.exp(rng.normal(0, 1, n))])
        advantage = np.concatenate([[-1.0, 1.0, -1.0, 1.0, -2.0, 0.0], rng.normal(size=n - 1)])
        old = -size * (1 + rng.random(n + 5))
        right = np.minimum(ratio * advantage, ratio.clip(1 - clip, 1 + clip) * advantage)
        what = f"ratios from 0.2 to 30, with ln p around {old.mean():.0f} and clip {clip:.2f}"
        with np.errstate(all="ignore"):
            log_p = torch.tensor(old + np.log(ratio), requires_grad=True)
            answer = lesson.grpo_objective(log_p, torch.tensor(old), torch.tensor(advantage), clip)
        if np.shape(answer) == right.shape and not _is_finite(answer):
            raise Wrong(
                f"{what}: there is a number that is none. e^-900 is 0 in a computer, and 0/0 is NaN: subtract "
                "the logarithms before you take e to their power"
            )
        if np.shape(answer) == right.shape and (first := answer[5].item()) != 0:
            raise Wrong(f"an answer with the advantage 0, as all have in a group of equal rewards, counts {first:.3g}: "
                        "0 times any ratio is 0")  # fmt: skip
        bad = (
            "a bad answer (A = -1) that has become 4 times as likely gives {:.3g}, not -4: how far it has to come back "
        )
        bad += "has no limit"
        if np.shape(answer) == right.shape and not np.isclose(first := answer[0].item(), -4):
            raise Wrong(bad.format(first))
        expect(answer, right, what, tolerance=1e-8)
