"""Checks of lesson 10: each has the name of its exercise, and answers with a sentence.

Each begins with an example in which known mistakes show, and goes on to random ones of other sizes and to extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from lesson_01 import Tensor, backward
from pellucid.course.checks import Wrong, call, draws, expect


def layer_norm(lesson: ModuleType) -> None:
    vector = np.array([1.0, 4.0, 7.0, 4.0])  # mean 4, variance 4.5
    ones = np.ones(4)
    try:
        answer = lesson.layer_norm(vector.copy(), ones.copy(), 0.0)
    except (ValueError, IndexError) as error:
        raise Wrong(f"a single vector of 4 numbers: Python says “{error}”; the numbers of a vector lie along the last "
                    "axis, however many axes there are: that is axis -1") from None  # fmt: skip
    centred = vector - 4.0
    if answer is not None and np.shape(answer) == (4,) and np.allclose(answer, centred / 4.5):
        raise Wrong(
            f"the outputs have a standard deviation of {np.std(answer):.2f}, not 1: numbers whose standard deviation "
            "is 2.12 must be divided by 2.12, and you divide by its square, the variance"
        )
    expect(
        answer,
        centred / np.sqrt(4.5),
        "the norm of (1, 4, 7, 4)",
        [
            (centred / np.sqrt(6.0), "the norm of (1, 4, 7, 4): your mean square is 0.75, not 1: you estimate the "
             "variance of a population from a sample (divisor 3), but these 4 numbers are all there are"),
            (vector / np.sqrt(4.5), "the norm of (1, 4, 7, 4): your output has the mean 1.89, not 0: the mean is "
             "still in it"),
        ],
    )  # fmt: skip
    x = np.random.default_rng(0).normal(size=(2, 3, 5)) * np.arange(1, 7).reshape(2, 3, 1)
    gain = np.linspace(0.5, 1.5, 5)

    def norm_over(axes: int | tuple[int, ...]) -> np.ndarray:
        return gain * (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)

    leak = "a token's output then depends on other tokens, the future ones included"
    expect(
        lesson.layer_norm(x.copy(), gain.copy(), 0.0),
        norm_over(-1),
        "2 texts of 3 vectors of 5 numbers",
        [
            (norm_over((0, 1, 2)), f"you take one mean and one deviation for the whole array: {leak}"),
            (norm_over(1), f"you take means over the positions: {leak}"),
            (norm_over((0, 1)), f"you take means over texts and positions, as batch norm does: {leak}"),
            (norm_over((1, 2)), f"you take one mean and one deviation for a whole text: {leak}"),
            (norm_over(-1) / gain, "every output is right but for the gain: number i is still to be multiplied by "
             "gain i"),
        ],
    )  # fmt: skip
    short = np.array([1e-3, -1e-3])  # variance 1e-6
    expect(
        lesson.layer_norm(short.copy(), np.ones(2), 3e-6),
        short / 2e-3,
        "the norm of (0.001, -0.001) with ε = 3e-6",
        [
            (short / 1e-3, "a vector of zeros would become 0/0: ε is still to be added to the variance"),
            (short / (1e-3 + 3e-6), "your ε stands beside the root; it belongs under it, to the variance"),
        ],
    )
    rng = draws("layer_norm")
    for before in ((), (4,), (2, 1, 3)):
        shape = (*before, int(rng.integers(2, 9)))
        x, gain, epsilon = rng.normal(size=shape) + 3.0, rng.normal(size=shape[-1]), float(rng.uniform(0.1, 1.0))
        centred = x - x.mean(-1, keepdims=True)
        right = gain * centred / np.sqrt(x.var(-1, keepdims=True) + epsilon)
        what = f"an array {shape} with ε = {epsilon:.2f}"
        slips = [(gain * centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5), f"{what}: you take ε to be 1e-5")]
        expect(call(what, lesson.layer_norm, x, gain, epsilon), right, what, slips)
    x = (10_000 + rng.normal(size=(20, 8))).astype(np.float32)
    centred = x - x.mean(-1, keepdims=True, dtype=float)
    right = centred / centred.std(-1, keepdims=True)
    what = "float32 numbers near 10,000"
    answer = call(what, lesson.layer_norm, x, np.ones(8, np.float32), 0.0)
    if np.shape(answer) != x.shape or not np.allclose(answer, right, atol=0.03):
        raise Wrong(f"{what}: the deviations are off. The mean of squares minus the square of the mean is the small "
                    "difference of two numbers near 100,000,000, of which float32 keeps 7 digits (lesson 5); subtract "
                    "the mean first, then square")  # fmt: skip


def pull_layer_norm(lesson: ModuleType) -> None:
    rng = np.random.default_rng(1)
    x, r = rng.normal(size=(2, 3, 5)) * 3, rng.normal(size=(2, 3, 5))
    gain = np.linspace(0.5, 2.5, 5)
    tape_x, tape_gain = Tensor(x), Tensor(gain)
    centred = tape_x - tape_x.mean(-1, keepdims=True)
    output = tape_gain * centred * ((centred**2).mean(-1, keepdims=True) + 1e-5) ** -0.5
    backward((output * Tensor(r)).sum())
    to_x, to_gain = _both(lesson.pull_layer_norm(r.copy(), x.copy(), gain.copy()))

    std = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    normal = (x - x.mean(-1, keepdims=True)) / std
    g = r * gain
    slip = float(np.abs((g / std).sum(-1)).max())
    right_without_gain = (r - r.mean(-1, keepdims=True) - normal * (r * normal).mean(-1, keepdims=True)) / std
    expect(
        to_x,
        tape_x.gradient,
        "what x gets",
        [
            (g / std, "you treat the mean and the deviation as constants, but both move with x. If all numbers of a "
             f"vector grow alike, the norm's output stays; so what x gets must sum to 0, and your largest sum is "
              f"{slip:.2f}"),
            ((g - g.mean(-1, keepdims=True)) / std, "you let the mean move with x, but not the deviation. Make a "
             "vector twice as long, and the output stays; so x · (what x gets) must be 0, and yours is "
             f"{float(np.abs((x * (g - g.mean(-1, keepdims=True)) / std).sum(-1)).max()):.2f} at its largest"),
            ((g - normal * (g * normal).mean(-1, keepdims=True)) / std, "you let the deviation move with x, but not "
             "the mean: what x gets must sum to 0 over each vector"),
            ((g - g.mean() - normal * (g * normal).mean()) / std, "the right formula, with means over the whole "
             "array: each vector is normalised by itself, so each has means of its own"),
            ((g - g.mean(-1, keepdims=True) - normal * (g * normal).sum(-1, keepdims=True)) / std, "you take away the "
             f"part along n {x.shape[-1]} times: it is n times the *mean* of g ⊙ n, since n · n = D"),
            (_pulled(r, x, gain, 0.0)[0], "your σ is without ε, which stands under its root in `layer_norm`"),
            (right_without_gain, "on its way back, the cotangent passes the gain first: yours arrives at x without it"),
        ],
    )  # fmt: skip
    n_vectors = "the gain is one for all vectors of the array, so what it gets is a sum over them"
    if np.shape(to_gain) == x.shape:
        raise Wrong(f"what the gain gets has the shape (2, 3, 5), and (5) is expected: {n_vectors}")
    expect(
        to_gain,
        tape_gain.gradient,
        "what the gain gets",
        [
            (tape_gain.gradient / 6, f"{n_vectors}, not their mean"),
            (tape_gain.gradient * gain, "the gain itself is no part of what it gets: the output is gain · n, so each "
             "number of the gain gets r · n"),
        ],
    )  # fmt: skip
    rng = draws("pull_layer_norm")
    for before in ((), (4,), (2, 1, 3)):
        shape = (*before, int(rng.integers(2, 9)))
        x, r, gain = rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=shape[-1])
        gain[0] = 0.0
        epsilon = float(rng.uniform(0.1, 1.0))
        what = f"an array {shape} with ε = {epsilon:.2f}"
        to_x, to_gain = _both(call(what, lesson.pull_layer_norm, r, x, gain, epsilon))
        if np.shape(to_gain) == gain.shape and np.isnan(np.asarray(to_gain, float)[0]):
            raise Wrong("where a gain is 0, you have NaN: n comes from x, and can't be had back from what the gain has "
                        "made of it")  # fmt: skip
        slips = [[(wrong[i], f"{what}: you take ε to be {e:g}") for e in (1e-5, 0.0)
                  for wrong in [_pulled(r, x, gain, e)]] for i in range(2)]  # fmt: skip
        right = _pulled(r, x, gain, epsilon)
        expect(to_x, right[0], f"{what}: what x gets", slips[0], tolerance=1e-7)
        expect(to_gain, right[1], f"{what}: what the gain gets", slips[1], tolerance=1e-7)
    far, r, gain = rng.normal(size=(6, 8)) + 1e7, rng.normal(size=(6, 8)), rng.normal(size=8)
    to_x, _ = _both(call("numbers near 10,000,000", lesson.pull_layer_norm, r, far, gain))
    right = _pulled(r, far, gain, 1e-5)[0]
    if np.shape(to_x) != right.shape or not np.allclose(to_x, right, atol=1e-5 * np.abs(right).max()):
        raise Wrong("numbers near 10,000,000: what x gets is off. Two large numbers that are nearly equal have lost "
                    "their digits when they are subtracted: is your variance a mean of squares minus the square of a "
                    "mean, or your derivative a quotient of small differences?")  # fmt: skip


def _both(answer: Any) -> tuple[Any, Any]:
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong("two things are expected: what x gets, and what the gain gets")
    return answer[0], answer[1]


def _pulled(r: np.ndarray, x: np.ndarray, gain: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """What x and gain get, vector by vector, each by its Jacobian."""
    D = x.shape[-1]
    to_x, to_gain = np.zeros(x.shape), np.zeros(D)
    for place in np.ndindex(x.shape[:-1]):
        std = np.sqrt(x[place].var() + epsilon)
        normal = (x[place] - x[place].mean()) / std
        J = np.diag(gain) @ (np.eye(D) - 1 / D - np.outer(normal, normal) / D) / std
        to_x[place] = r[place] @ J
        to_gain += r[place] * normal
    return to_x, to_gain


def pre_norm_block(lesson: ModuleType) -> None:
    x = np.array([[2.0, -1.0, 3.0], [0.5, 4.0, 1.0]])

    def attention_norm(x: np.ndarray) -> np.ndarray:
        return x / 2

    def attention(x: np.ndarray) -> np.ndarray:
        return x**2

    def feed_forward_norm(x: np.ndarray) -> np.ndarray:
        return x - 1

    def feed_forward(x: np.ndarray) -> np.ndarray:
        return 3 * x

    middle = x + attention(attention_norm(x))
    right = middle + feed_forward(feed_forward_norm(middle))
    after = attention_norm(x + attention(x))
    replaced = feed_forward(feed_forward_norm(attention(attention_norm(x))))
    behind = x + attention_norm(attention(x))
    n1 = attention_norm(x)
    n2 = feed_forward_norm(n1 + attention(n1))
    expect(
        lesson.pre_norm_block(x.copy(), attention_norm, attention, feed_forward_norm, feed_forward),
        right,
        "a block of four simple functions",
        [
            (feed_forward_norm(after + feed_forward(after)), "this is post-norm: you normalise the sum, so there is "
             "no path of pure additions from the embedding to the output any more"),
            (replaced, "each sublayer's output takes the place of x, and x itself is lost: a block adds to x"),
            (x + attention(n1) + feed_forward(feed_forward_norm(x)), "the feed-forward layer reads the x from before "
             "attention: it cannot use what attention has just found"),
            (behind + feed_forward_norm(feed_forward(behind)), "you normalise what a sublayer *returns*; it is what a "
             "sublayer reads that must not grow"),
            (n2 + feed_forward(n2), "you add to the normalised x: x itself must pass the block unchanged, only what a "
             "sublayer *reads* is normalised"),
            (middle + feed_forward(attention_norm(middle)), "both sublayers read through the first norm; each has one "
             "of its own"),
            (_middle(x, feed_forward_norm, feed_forward) + attention(
                attention_norm(_middle(x, feed_forward_norm, feed_forward))), "feed-forward comes first: it can use "
             "what attention has found only if it comes second"),
        ],
    )  # fmt: skip
    rng = draws("pre_norm_block")
    matrices = rng.normal(size=(4, 4, 4))
    parts = [lambda x, W=W: x @ W for W in matrices]
    W = [np.eye(4) + n @ f for n, f in matrices.reshape(2, 2, 4, 4)]
    for shape in ((4,), (3, 1, 2, 4)):
        x = rng.normal(size=shape)
        what = f"a block of four matrices, for an array {shape}"
        expect(call(what, lesson.pre_norm_block, x, *parts), x @ W[0] @ W[1], what)
    r = rng.normal(size=(2, 4))
    tape_x = Tensor(rng.normal(size=(2, 4)))
    try:
        output = lesson.pre_norm_block(tape_x, *(lambda x, W=W: x @ Tensor(W) for W in matrices))
    except (TypeError, ValueError) as error:
        output = error
    if not isinstance(output, Tensor):
        raise Wrong("for Tensors of lesson 1, which the decoder is made of, your block returns none, so nothing can be "
                    "pulled back; `+` adds whatever x is, NumPy's functions add arrays alone")  # fmt: skip
    backward((output * Tensor(r)).sum())
    expect(tape_x.gradient, r @ (W[0] @ W[1]).T, "what x gets on the tape")


def _middle(x: np.ndarray, norm: Callable, sublayer: Callable) -> np.ndarray:
    return x + sublayer(norm(x))


def adam_step(lesson: ModuleType) -> None:
    zero = np.zeros(1)
    answer = lesson.adam_step(np.array([1.0]), np.array([4.0]), zero.copy(), zero.copy(), 1, 0.1)
    if not isinstance(answer, (tuple, list)) or len(answer) != 3:
        raise Wrong("three things are expected: the new parameter, mean and square")
    size = "the first step, at gradient 4 and rate 0.1"
    expect(
        answer[0],
        [0.9],
        size,
        [
            ([1 - 0.1 * 0.4 / np.sqrt(0.016)], f"{size}: it is 3 times too long (0.316 instead of 0.1): both means "
             "began at 0 and are too small, the mean by 10 and the root of the square by 31.6, and nothing corrects "
              "that"),
            ([1 - 0.1 * 4 / np.sqrt(400)], f"{size}: it is 0.02, not 0.1. You follow the notes' slip, where the "
             "corrected square is made of the *mean*, m/(1-β₂ᵗ); for a negative gradient its root would not even "
              "exist"),
            ([1 - 0.1 * 4 / 16], f"{size}: it is 0.025, not 0.1: you divide by the mean square without its root, so a "
             "gradient 10 times as large would make a step a tenth as long"),
            ([1.1], f"{size}: it goes uphill"),
            ([1 - 0.1 * (0.4 / 0.19) / np.sqrt(0.016 / (1 - 0.999**2))], f"{size}: you correct as if two steps had "
             "been made; n counts from 1, so it is 1 now"),
            ([1.0], f"{size}: you do not step at all: you step by the means from before this gradient, which are 0"),
            ([1 - 0.1 * 36 / np.sqrt(15.984 / 0.001)], f"{size}: the new gradient gets the weight β, but it should "
             "get 1 - β: a running mean changes slowly"),
            ([1 - 0.1 * 4 / np.sqrt(0.16)], f"{size}: it is 10 times too long: the square is that of the *mean*, but "
             "it should be that of the gradient"),
            ([1 - 0.1 * 4 / np.sqrt(0.016)], f"{size}: it is 31.6 times too long: you correct the mean, but the "
             "square too began at 0"),
            ([1 - 0.1 * 0.4 / 4], f"{size}: it is 10 times too short: you correct the square, but the mean too began "
             "at 0"),
        ],
        tolerance=1e-6,
    )  # fmt: skip
    p, g = np.array([[1.0, -2.0, 0.5], [3.0, 0.0, 1.0]]), np.array([[0.3, -5.0, 0.0], [2.0, 1e-8, -1.0]])
    mean, square = 0.5 * g + 0.1, g**2 + 0.01
    new_mean, new_square = 0.8 * mean + 0.2 * g, 0.95 * square + 0.05 * g**2
    m, v = new_mean / (1 - 0.8**3), new_square / (1 - 0.95**3)
    answer = lesson.adam_step(p.copy(), g.copy(), mean.copy(), square.copy(), 3, 0.1, (0.8, 0.95))
    expect(answer[1], new_mean, "the mean after the third step", [
        (m, _CORRECTED.format("mean")),
        (0.95 * mean + 0.05 * g, "betas holds β₁, for the mean, and then β₂, for the square: you have swapped them"),
    ])  # fmt: skip
    expect(answer[2], new_square, "the mean square after the third step", [(v, _CORRECTED.format("square"))])
    expect(
        answer[0],
        p - 0.1 * m / (np.sqrt(v) + 1e-8),
        "the parameters after the third step, but for ε",
        [
            (p - 0.1 * (new_mean / 0.2) / (np.sqrt(new_square / 0.05) + 1e-8), "at the third step the weights of the "
             "mean sum to 1 - β³; you correct as if each step were the first"),
            (p - 0.1 * (new_mean / 0.6) / (np.sqrt(new_square / 0.15) + 1e-8), "at the third step the weights of the "
             "mean sum to 1 - β³, not to 3 (1 - β)"),
        ],
        tolerance=1e-6,
    )  # fmt: skip
    tiny = np.array([1e-8])
    answer = lesson.adam_step(np.array([1.0]), tiny, zero.copy(), zero.copy(), 1, 0.1)
    expect(
        answer[0],
        [0.95],
        "a first step at gradient 1e-8",
        [([1 - 0.1 * 1e-8 / np.sqrt(1e-16 + 1e-8)], "at gradient 1e-8 your step is 1e-5, not 0.05: your ε stands "
          "under the root, where it counts as a gradient of 1e-4"),
         ([1 - 0.1 * 1e-8 / (1e-8 + 1e-8 / np.sqrt(0.001))], "at gradient 1e-8 your step is 0.003, not 0.05: the "
          "square under your root is not corrected, only the whole step is, and so ε counts 31.6 times as much")],
    )  # fmt: skip
    rng = draws("adam_step")
    for n in (2, 30, 5000):
        shape = tuple(int(each) for each in rng.integers(1, 5, size=int(rng.integers(1, 4))))
        p, g, mean = rng.normal(size=(3, *shape))
        mean, square = 4 * mean, rng.uniform(0.1, 1.0, size=shape)
        rate, betas, epsilon = float(rng.uniform(0.1, 1)), (float(rng.uniform(0.8, 0.95)), 0.999), 0.3
        new_mean, new_square = betas[0] * mean + (1 - betas[0]) * g, betas[1] * square + (1 - betas[1]) * g**2
        m, v = new_mean / (1 - betas[0] ** n), new_square / (1 - betas[1] ** n)
        what = f"step {n} of parameters {shape}, with ε = {epsilon}"
        answer = call(what, lesson.adam_step, p, g, mean, square, n, rate, betas, epsilon)
        step = m / (np.sqrt(v) + epsilon)
        slips = [
            (p - rate * m / (np.sqrt(v) + 1e-8), f"{what}: you take ε to be 1e-8"),
            (p - rate * np.clip(step, -1, 1), f"{what}: you cut each step at the rate, but Adam's can be longer"),
            (p - rate * new_mean / (np.sqrt(new_square) + epsilon), f"{what}: nothing is corrected here"),
        ]
        expect(answer[0], p - rate * step, f"{what}: the parameters", slips, tolerance=1e-6)
        expect(answer[1], new_mean, f"{what}: the mean", tolerance=1e-6)
        expect(answer[2], new_square, f"{what}: the mean square", tolerance=1e-6)
    g = np.array([3.0, -4.0])
    forgetful = lesson.adam_step(np.ones(2), g, 9 * g, 9 * g, 7, 0.1, (0.0, 0.0))[0]
    expect(forgetful, [0.9, 1.1], "parameters of 1, where both betas are 0 and nothing is remembered")
    still = lesson.adam_step(np.ones(2), np.zeros(2), np.zeros(2), np.zeros(2), 1, 0.1)[0]
    expect(still, [1.0, 1.0], "parameters whose gradient was always 0")


_CORRECTED = "the new {} that you return is corrected already; the next step would correct it again"


def adamw_step(lesson: ModuleType) -> None:
    # Two parameters of 1; the gradients of the first are a thousand times as large.
    p, g = np.array([1.0, 1.0]), np.array([50.0, 0.05])
    mean, square = 0 * g, 0.4 * g**2
    rate, decay, betas = 0.1, 0.5, (0.9, 0.95)

    def adam(g: np.ndarray, beta: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        new_mean, new_square = 0.9 * mean + 0.1 * g, beta * square + (1 - beta) * g**2
        m, v = new_mean / (1 - 0.9**2), new_square / (1 - beta**2)
        return p - rate * m / (np.sqrt(v) + 1e-8), new_mean, new_square

    stepped, new_mean, new_square = adam(g)
    slipped = adam(g + decay * p)[0]
    shrunk = stepped - slipped
    answer = lesson.adamw_step(p.copy(), g.copy(), mean.copy(), square.copy(), 2, rate, decay, betas)
    if not isinstance(answer, (tuple, list)) or len(answer) != 3:
        raise Wrong("three things are expected: the new parameter, mean and square")
    expect(
        answer[0],
        stepped - rate * decay * p,
        "two parameters of 1, at rate 0.1 and decay 0.5",
        [
            (slipped, "you add the decay to the gradient, as if AdamW were Adam with an L2 penalty: Adam then divides "
             f"it by the gradient's size, so decay moves the parameter with large gradients by {shrunk[0]:.4f} and "
             f"the other by {shrunk[1]:.4f}; it must be 0.0500 for both"),
            (stepped - decay * p, "each parameter shrinks by a half in one step: the decay too is multiplied by the "
             "rate"),
            (stepped - rate * decay * stepped, "you let the parameter shrink after Adam's step, and so the step "
             "shrinks too: both are to start from the old parameter"),
            (stepped, "the parameters do not shrink: this is Adam"),
            (adam(g, 0.999)[0] - rate * decay * p, "the decay is right, but Adam's step is one with β₂ = 0.999; here "
             "you were given (0.9, 0.95), and must hand them on"),
            (stepped + rate * decay * p, "the parameters grow: decay draws them towards 0"),
        ],
        tolerance=1e-7,
    )  # fmt: skip
    p = np.array([2.0, -3.0])
    stepped = adam(g)[0]
    answer = lesson.adamw_step(p.copy(), g.copy(), mean.copy(), square.copy(), 2, rate, decay, betas)
    expect(
        answer[0],
        stepped - rate * decay * p,
        "parameters of 2 and -3",
        [
            (
                stepped - rate * decay * np.sign(p),
                "every parameter shrinks by the same amount; it should be by the same *share* of itself",
            )
        ],
        tolerance=1e-7,
    )
    expect(answer[1], new_mean, "the mean of the gradient, in which decay has no place", tolerance=1e-7)
    expect(answer[2], new_square, "the mean of the squared gradient, in which decay has no place", tolerance=1e-7)
    rng = draws("adamw_step")
    for n in (1, 7, 500):
        shape = tuple(int(each) for each in rng.integers(1, 5, size=int(rng.integers(1, 4))))
        p, g, mean = rng.normal(size=(3, *shape))
        square, betas = (
            rng.uniform(0.5, 1.0, size=shape),
            (float(rng.uniform(0.8, 0.95)), float(rng.uniform(0.9, 0.99))),
        )
        rate, decay = (float(each) for each in rng.uniform(0.05, 0.4, size=2))
        what = f"step {n} of parameters {shape}, at rate {rate:.2f} and decay {decay:.2f}"
        answer = call(what, lesson.adamw_step, p, g, mean, square, n, rate, decay, betas)
        new_mean, new_square = betas[0] * mean + (1 - betas[0]) * g, betas[1] * square + (1 - betas[1]) * g**2
        right, as_in_2 = (
            p - rate * new_mean / (1 - betas[0] ** k) / (np.sqrt(new_square / (1 - betas[1] ** k)) + 1e-8)
            - rate * decay * p for k in (n, 2)
        )  # fmt: skip
        slips = [(as_in_2, f"{what}: you correct as in step 2")]
        expect(answer[0], right, f"{what}: the parameters", slips, tolerance=1e-6)
        expect(answer[1], new_mean, f"{what}: the mean", tolerance=1e-6)
        expect(answer[2], new_square, f"{what}: the mean square", tolerance=1e-6)
    with np.errstate(all="ignore"):
        answer = lesson.adamw_step(np.ones(2), np.array([3.0, -4.0]), np.zeros(2), np.zeros(2), 1, 0.1, 0.0)
    expect(answer[0], [0.9, 1.1], "parameters of 1 without decay, as gains have")
    p, zero = np.array([4.0, -8.0]), np.zeros(2)
    answer = lesson.adamw_step(p.copy(), zero.copy(), zero.copy(), zero.copy(), 1, 0.5, 1.5)
    slips = [(p, "where the gradient was always 0, your parameters stay; they shrink all the same, as decay asks no "
              "gradient")]  # fmt: skip
    expect(answer[0], p / 4, "parameters of 4 and -8 without a gradient, at rate 0.5 and decay 1.5", slips)


def orthogonalised(lesson: ModuleType) -> None:
    rng = np.random.default_rng(2)
    for rows, columns in ((3, 3), (3, 5), (5, 3)):
        left = np.linalg.qr(rng.normal(size=(rows, rows)))[0][:, :3]
        right = np.linalg.qr(rng.normal(size=(columns, columns)))[0][:3]
        g = left @ np.diag([8.0, 2.0, 0.5]) @ right
        answer = lesson.orthogonalised(g.copy())
        what = f"a gradient ({rows}, {columns}) with the singular values 8, 2 and 0.5"
        if np.shape(answer) == g.shape and not np.allclose(answer, left @ right, atol=1e-6):
            values = np.linalg.svd(np.nan_to_num(np.asarray(answer, float)), compute_uv=False)
            if np.allclose(values, 1.0):
                Y, _, Z = np.linalg.svd(g, full_matrices=False)
                is_turned = rows == columns and np.allclose(answer, Y @ Z.T)
                why = ". NumPy's third result is Z transposed already" if is_turned else ": it takes both Y and Z"
                raise Wrong(f"{what}: they are all 1 now, but the directions are no longer those of the gradient{why}")
        lopsided = "the step would be 16 times as long in one direction as in another, just as the gradient is"
        expect(
            answer,
            left @ right,
            what,
            [
                (g / np.linalg.norm(g), f"{what}: now they are 0.97, 0.24 and 0.06, not 1, 1 and 1: you made the "
                 f"whole matrix of length 1, but {lopsided}"),
                (g / 8.0, f"{what}: now they are 1, 0.25 and 0.06, not 1, 1 and 1: you divide by the largest, but "
                 f"{lopsided}"),
                *((m, f"{what}: now they are {_singular(m)}, not 1, 1 and 1: {why}") for m, why in _other_ways(g)),
                (np.linalg.pinv(g).T, f"{what}: now they are 0.125, 0.5 and 2, not 1, 1 and 1: you divided by each "
                 "singular value twice, so the shortest direction became the longest"),
                *([(answer, f"{what}: now they are {_singular(answer)}, not 1, 1 and 1, or the directions are others")]
                  if np.shape(answer) == g.shape and np.isfinite(answer).all() else []),
            ],
            tolerance=1e-6,
        )  # fmt: skip
    rng = draws("orthogonalised")
    for size in (1.0, 1000.0, 0.001):
        rows, columns = (int(n) for n in rng.choice(np.arange(4, 10), 2, replace=False))
        n = min(rows, columns)
        left, right = np.linalg.qr(rng.normal(size=(rows, n)))[0], np.linalg.qr(rng.normal(size=(columns, n)))[0].T
        what = f"a gradient ({rows}, {columns}) with singular values from {size:g} to {size / 1e4:g}"
        answer = call(what, lesson.orthogonalised, left * np.geomspace(size, size / 1e4, n) @ right)
        if np.shape(answer) == (rows, columns) and not np.allclose(answer, left @ right, atol=1e-5):
            values = np.linalg.svd(np.nan_to_num(np.asarray(answer, float)), compute_uv=False)
            raise Wrong(f"{what}: now they go from {values[0]:.3g} to {values[-1]:.3g}; each should be 1, the smallest "
                        "too, and whatever the size of the gradient")  # fmt: skip
        expect(answer, left @ right, what, tolerance=1e-5)
    wide = np.array([[3.0, 0.0, 0.0], [0.0, 0.5, 0.0]])  # the third input was 0 in all examples
    for g, what in ((wide, "a gradient (2, 3) whose last column is 0"), (wide.T, "one (3, 2) whose last row is 0")):
        answer = call(what, lesson.orthogonalised, g)
        if np.shape(answer) == g.shape and not np.isfinite(answer).all():
            raise Wrong(f"{what}: your matrix has a NaN, though both singular values, 3 and 0.5, are larger than 0. Do "
                        "you divide by the length of a direction that the gradient does not have?")  # fmt: skip
        expect(answer, np.sign(g), what)


def _other_ways(g: np.ndarray) -> list[tuple[np.ndarray, str]]:
    """What else makes numbers, rows or columns equal, with the sentence for it."""
    each = "of length 1 each, but they still point in similar directions"
    return [
        (np.sign(g), "you made each *number* ±1, which is what Adam's first step does; a matrix has directions, too"),
        (g / np.linalg.norm(g, axis=0), f"you made the columns {each}"),
        (g / np.linalg.norm(g, axis=1, keepdims=True), f"you made the rows {each}"),
    ]


def _singular(matrix: np.ndarray) -> str:
    return ", ".join(f"{value:.2f}" for value in np.linalg.svd(matrix, compute_uv=False))


def largest_eigenvalue(lesson: ModuleType) -> None:
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    start = rng.normal(size=4)
    for values in ([6.0, 2.0, 1.0, -3.0], [-5.0, 3.0, 1.0, 0.5]):
        H = axes @ np.diag(values) @ axes.T
        n_products = 0
        asked: list[np.ndarray] = []

        def product(v: np.ndarray, H: np.ndarray = H, asked: list[np.ndarray] = asked) -> np.ndarray:
            nonlocal n_products
            n_products += 1
            if len(asked) < 4:
                asked.append(np.array(v))
            return H @ v

        with np.errstate(all="ignore"):
            try:
                answer = lesson.largest_eigenvalue(product, start.copy(), 1000)
            except RecursionError:
                raise Wrong("1,000 rounds: a function may call itself some hundred times, not a thousand; a loop has "
                            "no such limit") from None  # fmt: skip
        if answer is not None and np.size(answer) == 1 and not np.isfinite(answer):
            raise Wrong(
                f"after {n_products} products you have {float(answer)}: the vector grows by {abs(values[0]):.0f} each "
                "time until no float can hold it, or vanishes where that is below 1; only its direction matters, so "
                "take its length away each time"
            )
        if len(asked) == 4 and np.allclose(np.abs(asked), np.eye(4)):
            raise Wrong("you build H column by column; with a million parameters that takes a million products, and "
                        "power iteration needs about a hundred")  # fmt: skip
        first = H @ start
        top = axes[:, 0]
        expect(
            answer,
            values[0],
            f"eigenvalues {', '.join(f'{v:g}' for v in values)}",
            [
                (-values[0], f"you have {-values[0]:g}, and it is {values[0]:g}: the length of H v has no sign, and a "
                 "valley that bends down is no valley"),
                (start @ first / (start @ start), "that is what one product says: a mix of all eigenvalues. Feed the "
                 "result in again, and the largest takes over"),
                (first @ H @ first / (first @ first), "that is what two products say: a mix of all eigenvalues, in "
                 "which the largest counts most. Go on for all rounds"),
                (min(values), f"you have the lowest, {min(values):g}; the largest in size is {values[0]:g}"),
                (max(values), f"you have the highest, {max(values):g}; the largest in size is {values[0]:g}"),
                (values[0] / np.abs(top).max() ** 2, f"you have {values[0] / np.abs(top).max() ** 2:.3g}: v · H v is "
                 f"the eigenvalue {values[0]:g} only if v has length 1"),
                (np.mean(values), "that is the mean of all eigenvalues, the trace over n"),
            ],
            tolerance=1e-5,
        )  # fmt: skip
    if n_products > 1010:
        raise Wrong(f"the eigenvalue is right, but you made {n_products} products in 1,000 rounds: one each is enough")
    _eigenvalue_of_others(lesson)


def _eigenvalue_of_others(lesson: ModuleType) -> None:
    """Where the second eigenvalue is nearly as large; where the eigenvector has zeros, or its numbers sum to 0."""
    rng = draws("largest_eigenvalue")
    n = int(rng.integers(3, 6))
    gaps = np.array([1.0, 0.97, *rng.uniform(0.1, 0.6, size=n - 2)])
    order = rng.permutation(n)
    slow = rng.uniform(0.5, 1.0, size=n)
    slow[0] = 0.05
    cases = []
    for i in range(n):  # each component once is 0 in the eigenvector, and once the only one that is not
        values = rng.uniform(0.5, 2.0, size=n)
        values[i] = 5.0
        cases.append((np.diag(values), rng.uniform(0.5, 1.0, size=n), 5.0, f"a diagonal H, its entry {i} the largest"))
    top = np.eye(n)[0] - np.eye(n)[1]
    for value in (4.0, -4.0):
        H = np.diag([0.0, 0.0, *rng.uniform(-1, 1, size=n - 2)]) + value * np.outer(top, top) / 2
        H = H + 0.7 * (np.eye(n)[0] + np.eye(n)[1])[:, None] * (np.eye(n)[0] + np.eye(n)[1]) / 2
        cases.append((H, rng.uniform(0.5, 1.0, size=n) * np.arange(1, n + 1), value, "an eigenvector (1, -1, 0, …)"))
    cases.append((np.diag(gaps[order]), slow[order], 1.0, "eigenvalues 1 and 0.97, and 1,000 rounds"))
    for H, start, right, what in cases:
        product = _Counted(H)
        answer = call(what, lesson.largest_eigenvalue, product, start, 1000)
        if np.shape(answer) == () and answer is not None and not np.isclose(answer, right, atol=1e-5):
            why = ("a hundred rounds are too few if the second is nearly as large; make as many as n_rounds says"
                   if right == 1.0 else "a number of the vector says nothing where the eigenvector has a 0, nor does "
                   "the sum of all; v · H v counts each as much as it matters")  # fmt: skip
            raise Wrong(f"{what}: you have {float(answer):.4g}, not {right:g}: {why}")
        expect(answer, right, what, tolerance=1e-5)
        if abs(product.first @ start) < 0.999 * np.linalg.norm(product.first) * np.linalg.norm(start):
            raise Wrong("your first product is not that of `start`: begin with it, so that whoever calls can choose")
    with np.errstate(all="ignore"):
        start = np.array([3.0, 4.0])
        answer = lesson.largest_eigenvalue(lambda v: v, start)
    if start[0] != 3:
        raise Wrong("H = 1, whose product returns the very array that it gets: you write into what `product` returns "
                    "(as `v /= …` does), and here that is `start`; make a new array")  # fmt: skip
    expect(answer, 1.0, "H = 1")
    start = slow[order]
    product = _Counted(H)
    call("4 rounds", lesson.largest_eigenvalue, product, start, 4)
    if not 4 <= product.n <= 6:
        raise Wrong(f"4 rounds were asked for, and you made {product.n} products; n_rounds says how many")


class _Counted:
    """A product with H that counts how often it is asked, and remembers for what at first."""

    def __init__(self, H: np.ndarray) -> None:
        self.H, self.n, self.first = H, 0, np.zeros(len(H))

    def __call__(self, v: np.ndarray) -> np.ndarray:
        self.first = np.array(v, dtype=float) if self.n == 0 else self.first
        self.n += 1
        return self.H @ v


def decoder_logits(lesson: ModuleType) -> None:
    rng = np.random.default_rng(4)
    decoder = lesson.new_decoder(vocab_size=7, width=12, n_heads=3, n_layers=2, seed=5)
    for p in decoder.parameters():
        p.value = p.value + 0.3 * rng.normal(size=p.shape)
    rows = rng.integers(6, size=(2, 6))  # token 6 never occurs
    tokens, targets = rows[:, :-1], rows[:, 1:]
    right, gradients = lesson.in_pytorch(tokens, targets, decoder)
    with np.errstate(all="ignore"):
        answer = lesson.decoder_logits(tokens, decoder)
    if hasattr(answer, "value") and np.isnan(answer.value).any():
        raise Wrong(
            "the logits are NaN: either a position sees nothing, not even itself, or a hidden score's -∞ is still "
            "there when the values are weighted; after the softmax it must be a weight of 0"
        )
    changed = tokens.copy()
    changed[:, -1] = (changed[:, -1] + 1) % 6
    if hasattr(answer, "value") and answer.shape == right.shape and not np.allclose(answer.value, right):
        with np.errstate(all="ignore"):
            later = lesson.decoder_logits(changed, decoder).value
        if not np.allclose(answer.value[:, 0], later[:, 0]):
            moved = float(np.abs(answer.value[:, 0] - later[:, 0]).max())
            raise Wrong(
                f"the last token changes the logits at position 0, by up to {moved:.2f}: a position sees those after "
                "it, so in training the model reads the answer"
            )
    with np.errstate(all="ignore"):
        cases = [(_variant(lesson, tokens, decoder, **{name: True}), sentence) for name, sentence in _SLIPS.items()]
    log_p = right - np.log(np.exp(right).sum(-1, keepdims=True))
    cases.append((log_p, "you return ln p; logits come before the softmax"))
    expect(answer, right, "the logits of a decoder with PyTorch's weights", cases, tolerance=1e-6)

    if not isinstance(answer, lesson.Tensor):
        raise Wrong("the logits are right, but they are no Tensor: nothing can be pulled back from them")
    nats = -lesson.log_softmax(answer)[np.arange(2)[:, None], np.arange(5), targets]
    backward(nats.mean())
    never = decoder.embedding.gradient[6]
    if np.allclose(never, 0) and not np.allclose(gradients[0][6], 0):
        raise Wrong(
            "token 6 is in no text, and its row of the embedding gets the gradient 0: at the output too the embedding "
            "is a weight that learns, and there even a token that never occurs must learn that it is unlikely"
        )
    names = [f"{name} of block {i}" for i, block in enumerate(decoder.blocks) for name in vars(block)]
    names = ["the embedding", *names, "the final gain"]
    for name, p, gradient in zip(names, decoder.parameters(), gradients, strict=True):
        if p.gradient is None or not np.any(p.gradient):
            raise Wrong(f"the logits are right; but no gradient comes to {name}: `.value` is a plain array, and the "
                        "tape ends there")  # fmt: skip
        expect(p.gradient, gradient, f"the logits are right; but the gradient of {name}", tolerance=1e-6)
    for is_extreme in (False, True):
        _another_decoder(lesson, is_extreme)


def _another_decoder(lesson: ModuleType, is_extreme: bool) -> None:
    """Another shape; or matrices with which each position matches itself least of all, by thousands."""
    rng = draws("decoder_logits")
    H, L, B, T = (int(rng.choice(each)) for each in ((1, 2, 4), (3, 4), (1, 3), (3, 6, 7)))
    K, V = int(rng.choice([6, 10])), int(rng.integers(5, 12))
    if is_extreme:
        L, T = 1, T + 1
    decoder = lesson.new_decoder(V, H * K, H, L, seed=int(rng.integers(100)))
    for p in decoder.parameters():
        p.value = p.value + 0.3 * rng.normal(size=p.shape)
    what = f"another decoder (L = {L}, H = {H}, K = {K}, B = {B}, T = {T})"
    if is_extreme:
        what += " with scores down to -1,000 and less"
        for block in decoder.blocks:
            block.W_Q.value, block.W_K.value = 1000 * block.W_Q.value, -1000 * block.W_Q.value
    tokens = rng.integers(V, size=(B, T))
    answer = call(what, lesson.decoder_logits, tokens, decoder)
    changed = tokens.copy()
    changed[:, -1] = (changed[:, -1] + 1) % V
    later = call(what, lesson.decoder_logits, changed, decoder)
    if not isinstance(answer, lesson.Tensor) or not isinstance(later, lesson.Tensor):
        raise Wrong(f"{what}: the logits are no Tensor")
    if np.isnan(answer.value).any():
        raise Wrong(f"{what}: the logits are NaN. A softmax that takes e to the power of scores as they are finds 0/0 "
                    "where all are low, and ∞/∞ where one is high; `log_softmax` does not")  # fmt: skip
    if answer.shape == later.shape and not np.allclose(answer.value[:, :-1], later.value[:, :-1], atol=1e-9):
        moved = float(np.abs(answer.value - later.value)[:, :-1].max())
        raise Wrong(
            f"{what}: the last token changes the logits before it, by up to {moved:.2g}. What you put in "
            "place of a hidden score hides it only if the others are much higher; what is below all numbers?"
        )
    right, _ = lesson.in_pytorch(tokens, changed, decoder)
    expect(answer, right, f"{what}: the logits", tolerance=1e-6)


_SLIPS = {
    "no_final_norm": "the last x goes to the embedding without the final norm: the longer x has grown in the blocks, "
                     "the surer the model would be",
    "values_rotated": "you turn the values too: what a head hands over then depends on where it was found; positions "
                      "belong into the scores alone",
    "not_rotated": "no query or key is turned: this model does not know where a word stands, except by what the mask "
                   "lets it see",
    "by_width": "you divide the scores by √D, but a query and a key have K = D/H numbers: with 3 heads the scores are "
                "√3 times too small",
    "relu_alone": "max(0, u) is not squared in the feed-forward layer",
    "not_scaled": "the scores are not divided by √K",
    "no_W_O": "the heads are joined, but W_O is missing: it mixes what they have gathered",
    "added_twice": "attention's result has x in it already, and the block adds x again",
}  # fmt: skip


def _variant(lesson: ModuleType, tokens: np.ndarray, decoder: object, **slips: bool) -> np.ndarray:
    """The logits by another way, in NumPy alone, with a slip."""
    H = decoder.n_heads
    B, T = tokens.shape

    def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def rotate(x: np.ndarray) -> np.ndarray:
        return lesson.rotate(lesson.Tensor(x)).value

    E = decoder.embedding.value
    x = E[tokens]
    D = x.shape[-1]
    for block in decoder.blocks:
        w = {name: weight.value for name, weight in vars(block).items()}
        n = norm(x, w["attention_gain"])
        q, k, v = (np.einsum("btd,ed->bte", n, w[W]).reshape(B, T, H, -1).swapaxes(1, 2) for W in ("W_Q", "W_K", "W_V"))
        if "not_rotated" not in slips:
            q, k = rotate(q), rotate(k)
        if "values_rotated" in slips:
            v = rotate(v)
        scale = 1.0 if "not_scaled" in slips else np.sqrt(D if "by_width" in slips else D // H)
        scores = np.where(np.tril(np.ones((T, T))) > 0, np.einsum("bhtk,bhsk->bhts", q, k) / scale, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads = weights / weights.sum(-1, keepdims=True) @ v
        joined = heads.swapaxes(1, 2).reshape(B, T, D)
        x = x + (joined if "no_W_O" in slips else joined @ w["W_O"].T) + (n if "added_twice" in slips else 0)
        u = np.maximum(norm(x, w["feed_forward_gain"]) @ w["W_1"].T, 0)
        x = x + (u if "relu_alone" in slips else u**2) @ w["W_2"].T
    return (x if "no_final_norm" in slips else norm(x, decoder.final_gain.value)) @ E.T
