"""Checks of lesson 12. Every right answer is computed here with NumPy, by plain loops where that is possible."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch

from pellucid.course.checks import Wrong, expect

Array = np.ndarray


def _numbers(*shape: int, seed: int = 12, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng(seed).standard_normal(shape)


def _log_softmax(x: Array) -> Array:
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def _surprise(margin: Array | float) -> Array:
    """-ln σ(margin)."""
    return np.logaddexp(0.0, -np.asarray(margin, dtype=float))


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
    expect(
        lesson.answer_loss(torch.tensor(logits), torch.tensor(targets), torch.tensor(is_answer)),
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
            (nats[~is_answer].mean(), "your mask is turned: you learn the questions and not the answers"),
        ],
    )


def new_adapter(lesson: ModuleType) -> None:
    n_out, n_in, rank = 5, 7, 3
    pair = lesson.new_adapter(n_out, n_in, rank, torch.Generator().manual_seed(12))
    if pair is None:
        raise Wrong("the adapter: your function returns None; is a `return` missing?")
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise Wrong("the adapter: two matrices are expected, A and B")
    A, B = (np.asarray(each.detach() if hasattr(each, "detach") else each, dtype=float) for each in pair)
    if A.shape == (n_out, rank) and B.shape == (rank, n_in):
        raise Wrong("A comes first: it takes the 7 inputs down to 3 numbers; B takes these up to the 5 outputs")
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
        raise Wrong("A is zero and B is random: step 0 is the base, but the lesson, as the paper, begins with B = 0")
    if np.unique(A).size < A.size:
        raise Wrong("the rows of A are not random numbers: equal rows get equal gradients and never become different")
    if not 0.3 < A.std() * n_in**0.5 < 1.8:
        raise Wrong(f"the numbers of A have a deviation of {A.std():.2f}; they should be divided by √I = √7, once")


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
            (alpha / R * change, "the base is missing: the adapter stands beside W, not in its place"),
            (alpha / R * (base + change), "you scale the base as well: α/R belongs to the change alone"),
            (base, "your adapter changes nothing"),
        ]
        if n_in == n_out:
            swapped = (
                "A and B are swapped: first A takes the inputs down to R numbers, then B takes these up. In a layer "
                "with as many outputs as inputs, no shape warns you"
            )
            mistakes += [(base + scale * (x @ B @ A), swapped) for scale in (1.0, alpha / R, alpha)]
            mistakes.append((x @ W + alpha / R * (x @ B @ A), "your matrix is turned: row o of W makes output o"))
        answer = lesson.lora_forward(*map(torch.tensor, (x, W, A, B)), alpha)
        expect(answer, base + alpha / R * change, f"the outputs of {layer} with an adapter", mistakes)


# ---- Learning from preferences ----


def reward_loss(lesson: ModuleType) -> None:
    chosen, rejected = np.array([2.0, 0.5, -1.0, 0.3]), np.array([1.0, 1.2, -1.5, 0.3])
    margin = chosen - rejected
    p = 1 / (1 + np.exp(-margin))
    expect(
        lesson.reward_loss(torch.tensor(chosen), torch.tensor(rejected)),
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
        ],
    )
    answer = lesson.reward_loss(torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor([900.0, 1.0]).double())
    if answer is not None and not np.isfinite(float(answer)):
        raise Wrong(
            "right for small rewards; where the loser's is 900 higher, σ is rounded to 0, and ln 0 is -∞ (lesson 3)"
        )
    expect(answer, (900 + np.log(2)) / 2, "the loss of a pair with rewards 0 and 900, and one with 1 and 1")


def optimal_policy(lesson: ModuleType) -> None:
    beta = 0.4
    reference = np.array([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    rewards = np.array([[0.0, 0.2, 1.0, 0.9], [1.0, 0.3, 0.1, 0.6], [0.2, 0.2, 0.8, 0.0]])
    raised = reference * np.exp(rewards / beta)
    right = raised / raised.sum(axis=1, keepdims=True)

    def shares(x: Array) -> Array:
        return x / x.sum(axis=1, keepdims=True)

    expect(
        lesson.optimal_policy(torch.tensor(reference), torch.tensor(rewards), beta),
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
            (
                _surprise(beta * margin).mean(),
                "this is the mean over the pairs; a loss for each pair is asked for",
            ),
        ],
    )
    if not isinstance(answer, torch.Tensor) or not answer.requires_grad:
        raise Wrong("the losses are right, but no gradient reaches the policy: was it detached, too, or made a number?")
    answer.sum().backward()
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


# ---- Learning from one's own answers ----


def group_advantages(lesson: ModuleType) -> None:
    equal = lesson.group_advantages(torch.tensor([[0.5, 0.5, 0.5], [0.0, 1.0, 0.0]], dtype=torch.float64))
    if equal is not None and np.shape(equal) == (2, 3) and np.isnan(np.asarray(equal, dtype=float)).any():
        raise Wrong(
            "three equal rewards give NaN: their deviation is 0, and 0/0 is no number. One such group would turn "
            "all weights into NaN"
        )
    rewards = np.array([[1.0, 0.0, 0.0, 0.5], [0.9, 1.0, 0.2, 1.0]])
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    s = rewards.std(axis=1, ddof=1, keepdims=True)
    expect(
        lesson.group_advantages(torch.tensor(rewards)),
        centred / (s + 1e-4),
        "the advantages of 2 questions with 4 answers each",
        [
            (
                (rewards - rewards.mean()) / (s + 1e-4),
                "you compare with the mean over all questions: every answer to an easy question then looks good, "
                "even its worst",
            ),
            (
                (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4),
                "you compare with the mean over all questions: every answer to an easy question then looks good, "
                "even its worst",
            ),
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
        ],
    )
    s = 3**-0.5
    right = np.array([[0.0, 0.0, 0.0], [-1 / 3, 2 / 3, -1 / 3]]) / (s + 1e-4)
    expect(
        equal,
        right,
        "the advantages where all three rewards are equal, and of one right answer in three",
        [(right * (s + 1e-4) / s, "right, but for the 1e-4 that is added to s")],
    )


def grpo_objective(lesson: ModuleType) -> None:
    clip = 0.2
    ratio = np.array([0.5, 0.9, 1.0, 1.1, 1.6, 0.5, 0.9, 1.0, 1.1, 1.6])
    advantage = np.array([2.0, 2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, -2.0])
    old = np.log(np.array([0.3, 0.2, 0.5, 0.4, 0.1, 0.3, 0.2, 0.5, 0.4, 0.6]))
    clipped = ratio.clip(1 - clip, 1 + clip)
    swapped = np.minimum(ratio, clipped) * advantage
    expect(
        lesson.grpo_objective(torch.tensor(old + np.log(ratio)), torch.tensor(old), torch.tensor(advantage), clip),
        np.minimum(ratio * advantage, clipped * advantage),
        "ratios from 0.5 to 1.6, five with advantage 2 and five with advantage -2",
        [
            (
                (ratio * advantage).clip(1 - clip, 1 + clip),
                "you clip the product of ratio and advantage, as lecture notes N3 have it: a bad answer then gives "
                "0.8 whatever you do, and is never unlearned. It is the ratio that is clipped",
            ),
            (
                ratio * advantage.clip(1 - clip, 1 + clip),
                "you clip the advantage: all bad answers become good ones, of advantage 0.8",
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
                np.minimum(advantage / ratio, (1 / ratio).clip(1 - clip, 1 + clip) * advantage),
                "your ratio is turned: it should be larger than 1 where the answer has become likelier",
            ),
            (ratio * advantage, "nothing is clipped"),
            (
                -np.minimum(ratio * advantage, clipped * advantage),
                "the sign: this is the loss; what GRPO makes *large* is asked for",
            ),
        ],
    )
