"""Checks of lesson 8: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from lesson_01 import Tensor, backward, tanh
from pellucid.course.checks import Wrong, draws, expect

Array = np.ndarray


EPSILON = 1e-5  # what the 10⁻⁶ in the denominator of equation 38 may change


def _numbers(*shape: int, seed: int = 6, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng(seed).standard_normal(shape)


# ---- A state that is carried along ----


def _states(x_TBD: Array, W: Array, U: Array, b: Array, first: Array | float = 0.0) -> Array:
    """All states (T, B, H), text by text and number by number."""
    T, B, _ = x_TBD.shape
    H = len(W)
    states = np.zeros((T, B, H))
    for n in range(B):
        h = np.zeros(H) + first
        for t in range(T):
            h = np.array([np.tanh(W[i] @ h + U[i] @ x_TBD[t, n] + b[i]) for i in range(H)])
            states[t, n] = h
    return states


def _values(answer: Any, T: int, name: str) -> list[Array]:
    """The plain numbers of a list of states."""
    if answer is None:
        raise Wrong(f"{name} returns None; is a `return` missing?")
    if isinstance(answer, (Tensor, np.ndarray)) or not isinstance(answer, (list, tuple)):
        raise Wrong(f"a list of T states is expected, but {name} returns {type(answer).__name__}")
    if len(answer) != T:
        more = "; the zero state before the first word is not one of them" if len(answer) == T + 1 else ""
        raise Wrong(f"{name}: after {T} words there are {T} states, but you have {len(answer)}{more}")
    return [np.asarray(getattr(each, "value", each)) for each in answer]


def rnn_states(lesson: ModuleType) -> None:
    T, B = 4, 2
    for D, H in ((3, 3), (4, 3)):
        x, W, U, b = _numbers(T, B, D), _numbers(H, H, seed=1), _numbers(H, D, seed=2), _numbers(H, seed=3)
        try:
            answer = lesson.rnn_states(x.copy(), *(Tensor(each) for each in (W, U, b)))
        except ValueError as error:
            if D == H or "core dimension" not in str(error):
                raise
            raise Wrong(
                f"words of {D} numbers and states of {H}: two shapes do not fit. The first state has as many numbers "
                "as W has rows, however many a word has, and a product with U is `x @ U.T`"
            ) from None
        values = _values(answer, T, "rnn_states")
        right = _states(x, W, U, b)
        late = [_states(np.concatenate([np.zeros((n, B, D)), x[:-n]]), W, U, b) for n in (1, 2)]
        no_newest = (
            "each state takes in an earlier word, as in (2.9) of the lecture notes: the last word goes into no state "
            "at all, so whoever guesses the next word never sees the newest word"
        )
        linear, h = [], np.zeros((B, H))
        for t in range(T):
            h = h @ W.T + x[t] @ U.T + b
            linear.append(h)
        mistakes = [
            *((each, no_newest) for each in late),
            (
                np.concatenate([np.zeros((1, B, H)), right[:-1]]),
                "your list begins with the zero state: h_t is the state right *after* word t has been read",
            ),
            (linear, "your states are not between -1 and 1: nothing bends the sum, so this network is one long sum"),
            (
                _states(x, W, U, b, first=1.0),
                "before the first word the state is zero; yours is not",
            ),
            (
                np.tanh(x @ U.T + b),
                "each state begins from zero, so it knows one word only: the state of the word before has to go in",
            ),
        ]
        if D == H:
            mistakes += [
                (_states(x, U, W, b), "W has met the words and U the old state: it is the other way round"),
                (
                    _states(x, W.T, U.T, b),
                    "your matrices lie on their side: with a text in each row, a product with W is `h @ W.T`",
                ),
                (
                    _states(x, W.T, U, b),
                    "your W lies on its side: with a text in each row, a product with W is `h @ W.T`",
                ),
                (_states(x, W, U, np.zeros(H)), "the b is missing"),
            ]
        expect(values, right, f"the states of {B} texts of {T} words", mistakes)
    if not all(isinstance(each, Tensor) for each in answer):
        raise Wrong("the numbers are right, but plain: keep the states as tensors, so that a walk back finds its way")
    parameters = [Tensor(each) for each in (W, U, b)]
    words = Tensor(x)
    try:
        backward(lesson.rnn_states(words, *parameters)[-1].sum())
    except ValueError:
        raise Wrong(
            "the numbers are right, but the walk back stumbles over a shape: begin with a row of zeros for each text, "
            "not with one row for all"
        ) from None
    if not np.abs(words.gradient[0]).max() > 0:
        raise Wrong(
            "the last state changes with the first word, but the walk back does not arrive there: somewhere on the "
            "way a state became a plain number"
        )
    random = draws("rnn_states")
    for T, B, D, H in ((1, 1, 2, 1), (6, 3, 2, 5), (12, 2, 6, 3)):
        x, W, U, b = (random.normal(size=shape) for shape in ((T, B, D), (H, H), (H, D), (H,)))
        given, ours = ([Tensor(each) for each in (x, W, U, b)] for _ in range(2))
        answer = lesson.rnn_states(*given)
        what = f"of {B} texts of {T} words, {D} numbers in a word and {H} in a state"
        expect(_values(answer, T, "rnn_states"), _states(x, W, U, b), f"the states {what}")
        _same_gradients(answer, _on_tape(*ours), given, ours, "xWUb", what)


def _on_tape(x: Tensor, W: Tensor, U: Tensor, b: Tensor, k: int | None = None) -> list[Tensor]:
    h = Tensor(np.zeros((x.shape[1], W.shape[0])))
    states = []
    for t in range(x.shape[0]):
        h = tanh((Tensor(h.value) if k and t % k == 0 else h) @ W.T + x[t] @ U.T + b)
        states.append(h)
    return states


def _same_gradients(
    answer: list[Tensor],
    ours: list[Tensor],
    given: list[Tensor],
    our_inputs: list[Tensor],
    names: Sequence[str],
    what: str,
) -> None:
    found, wanted = _gradients(answer, -1, given), _gradients(ours, -1, our_inputs)
    for name, theirs, right in zip(names, found, wanted, strict=True):
        lost = f"{name} gets no gradient from the last state: on the way, something became a plain number"
        expect(theirs, right, f"what the last state gives to {name}, {what}", [(0 * right, lost)])


# ---- Back through time ----


def jacobian_through_time(lesson: ModuleType) -> None:
    H, n = 4, 3
    W, h = _numbers(H, H, seed=1, scale=0.8), np.tanh(_numbers(n, H, seed=2))
    once = W.copy()
    try:
        lesson.jacobian_through_time(once, h.copy())
    except ValueError as error:
        if "core dimension" not in str(error):
            raise
        raise Wrong(f"{n} states of {H} numbers: two shapes do not fit. A Jacobian has a row and a column for each of "
                    f"the {H} numbers, however many steps there are") from None  # fmt: skip
    if not np.array_equal(once, W):
        raise Wrong("your function has changed the W that it was given: `*=` works in place; make a new array")

    def product(factors: list[Array]) -> Array:
        result = np.eye(H)
        for factor in factors:
            result = factor @ result
        return result

    one = np.array([[(1 - h[0, i] ** 2) * W[i, j] for j in range(H)] for i in range(H)])
    expect(
        lesson.jacobian_through_time(W.copy(), h[:1].copy()),
        one,
        "the Jacobian of a single step",
        [
            (
                W,
                "this is a power of W: between two states there is a tanh, too, and its slope at every step is "
                "below 1 unless the state is 0",
            ),
            (W * (1 - h[0] ** 2), "the slopes of tanh stand on the wrong side of W: W comes first, then the tanh"),
            (one.T, "your Jacobian lies on its side: a row for each number of h_t, a column for each of h_s"),
            (
                (1 - np.tanh(h[0]) ** 2)[:, None] * W,
                "you have taken 1 - tanh(h)², but h is tanh already: where tanh has the value h, its slope is 1 - h²",
            ),
            ((1 - h[0] ** 2)[:, None] * W.T, "your W lies on its side: row i of W makes number i of the new state"),
            (np.diag(1 - h[0] ** 2), "W is missing: these are the slopes of tanh alone"),
            ((1 - h[0])[:, None] * W, "the slope of tanh is 1 - h², and you have taken 1 - h"),
            (
                np.eye(H),
                "one state was given, and you use none: the first is h_{s+1} and the last h_t, so every state given "
                "has a factor",
            ),
            (
                np.diag(np.diag(one)),
                "you multiply entry by entry, so all that is 0 in the identity stays 0; a product of matrices is meant",
            ),
        ],
    )
    factors = [(1 - row**2)[:, None] * W for row in h]
    expect(
        lesson.jacobian_through_time(W.copy(), h.copy()),
        product(factors),
        f"the Jacobian of {n} steps",
        [
            (
                product(factors[::-1]),
                "the factors are in the wrong order: h_s meets the factor of the step after it first, so that one "
                "stands rightmost, and that of h_t leftmost",
            ),
            (np.prod(factors, axis=0), "you multiply entry by entry; a way from h_s to h_t leads over every number "
                                       "between them, and a product of matrices adds up all ways"),
            (
                product([np.diag(1 - row**2) for row in h]) @ W,
                "W stands there once, but every step goes through it: the factor of a step is its slopes times W",
            ),
            (
                np.prod(1 - h**2, axis=0)[:, None] * np.linalg.matrix_power(W, n),
                "you gather the slopes of all steps on the left of all W; between two W stand the slopes of their own "
                "step, and matrices can't change places",
            ),
            (factors[-1], "this is the last step alone"),
            (factors[0], "this is the first step alone"),
            (np.sum(factors, axis=0), "you add the steps; one follows the other, so their slopes are multiplied"),
        ],
    )  # fmt: skip
    try:
        none = lesson.jacobian_through_time(W.copy(), h[:0].copy())
    except (IndexError, TypeError, ValueError):
        raise Wrong(
            "no state is given, and your function looks for the first one: a state changes with itself as 1 with 1, so "
            "without a step the Jacobian is the identity"
        ) from None
    expect(none, np.eye(H), "∂h_s/∂h_s, of no step at all")
    random = draws("jacobian_through_time")
    for H, n in ((1, 3), (3, 2), (6, 9)):
        W, h = random.normal(size=(H, H)), np.tanh(3 * random.normal(size=(n, H)))
        given = W.copy(), h.copy()
        answer = lesson.jacobian_through_time(*given)
        if not (np.array_equal(given[0], W) and np.array_equal(given[1], h)):
            raise Wrong("your function has changed the W or the states that it was given; make new arrays")
        expect(
            answer, product([(1 - row**2)[:, None] * W for row in h]), f"the Jacobian of {n} steps, {H} numbers each"
        )


def _gradients(states: list[Tensor], which: int, inputs: list[Tensor]) -> list[Array]:
    """What the sum of one state gives to some tensors: zeros where the walk does not arrive."""
    for each in inputs:
        each.gradient = np.zeros(each.shape)
    backward(states[which].sum())
    return [each.gradient.copy() for each in inputs]


def truncated_states(lesson: ModuleType) -> None:
    for k in (3, 5):
        _cut_after(lesson, k)
    random = draws("truncated_states")
    for k, T, B, D, H in ((1, 4, 1, 2, 3), (2, 7, 3, 4, 2), (9, 5, 2, 2, 2), (4, 4, 1, 3, 1)):
        x, W, U, b = (random.normal(size=shape) for shape in ((T, B, D), (H, H), (H, D), (H,)))
        given, ours = ([Tensor(each) for each in (x, W, U, b)] for _ in range(2))
        answer = lesson.truncated_states(*given, k)
        what = f"of {B} texts of {T} words, with k = {k}"
        expect(_values(answer, T, "truncated_states"), _states(x, W, U, b), f"the states {what}")
        _same_gradients(answer, _on_tape(*ours, k=k), given, ours, "xWUb", what)


def _cut_after(lesson: ModuleType, k: int) -> None:
    T, B, D, H = 8, 2, 4, 3
    x, W, U, b = _numbers(T, B, D), _numbers(H, H, seed=1), _numbers(H, D, seed=2), _numbers(H, seed=3)
    inputs = [Tensor(each) for each in (x, W, U, b)]
    answer = lesson.truncated_states(*inputs, k)
    values = _values(answer, T, "truncated_states")
    right = _states(x, W, U, b)
    cut = np.concatenate([_states(x[start : start + k], W, U, b) for start in range(0, T, k)])
    expect(
        values,
        right,
        f"the states of {T} words, cut at each {k}",
        [
            (
                cut,
                "you cut the value, too: a new piece has to begin with the state that the last one ended with, not "
                "with zeros. Only the gradient stops there; the memory goes on",
            )
        ],
    )
    if not all(isinstance(each, Tensor) for each in answer):
        raise Wrong("the numbers are right, but plain; keep the states as tensors")
    reaches = [[bool(np.abs(part).max() > 0) for part in _gradients(answer, t, inputs)[0]] for t in range(T)]
    wanted = [[t // k * k <= s <= t for s in range(T)] for t in range(T)]
    if all(reaches[t][s] for t in range(T) for s in range(t + 1)):
        raise Wrong("nothing is cut: the state after the last word still passes a gradient to the first one")
    if not any(reaches[k - 1]):
        raise Wrong(
            f"state {k - 1}, the last of its piece, has no parents: a loss there is cut off from W as well. It is a "
            "plain number only for the piece that comes after it"
        )
    if all(not reaches[t][t - 1] for t in range(1, T)):
        raise Wrong(f"you cut after every word; with k = {k}, a piece has {k} words, and inside it the walk goes on")
    if not all(map(any, reaches)):
        t = reaches.index([False] * T)
        raise Wrong(
            f"state {t} has no parents: it should be computed from word {t}, and the walk back should find that word"
        )
    if reaches != wanted:
        t = next(t for t in range(T) if reaches[t] != wanted[t])
        raise Wrong(
            f"with k = {k}, the walk back from state {t} should end at word {t // k * k}, but yours ends at word "
            f"{reaches[t].index(True)}; pieces begin at {', '.join(map(str, range(0, T, k)))}"
        )
    start = (T - 1) // k * k
    plain = [Tensor(each) for each in (W, U, b)]
    h = Tensor(right[start - 1])
    for t in range(start, T):
        h = tanh(h @ plain[0].T + x[t] @ plain[1].T + plain[2])
    backward(h.sum())
    for name, ours, theirs in zip("WUb", plain, _gradients(answer, T - 1, inputs)[1:], strict=True):
        expect(
            theirs,
            ours.gradient,
            f"what the last state gives to {name}, through its own piece of {T - start} words",
            [(0 * theirs, f"{name} gets no gradient: the state alone is cut, the weights are the same in all pieces")],
        )


# ---- Gates ----


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _lstm_on_tape(x: Array, h: Tensor, c: Tensor, W_x: Tensor, W_h: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    H = h.shape[1]
    sums = x @ W_x.T + h @ W_h.T + b
    i, f, o = ((tanh(sums[:, n * H : (n + 1) * H] * 0.5) + 1.0) * 0.5 for n in (0, 1, 3))
    new_c = f * c + i * tanh(sums[:, 2 * H : 3 * H])
    return o * tanh(new_c), new_c


def lstm_step(lesson: ModuleType) -> None:
    B, D, H = 2, 5, 3
    x, h, c = _numbers(B, D), np.tanh(_numbers(B, H, seed=1)), _numbers(B, H, seed=2)
    W_x, W_h, b = _numbers(4 * H, D, seed=3), _numbers(4 * H, H, seed=4), _numbers(4 * H, seed=5)
    given = [Tensor(each) for each in (h, c, W_x, W_h, b)]
    try:
        answer = lesson.lstm_step(x.copy(), *given)
    except ValueError as error:
        if "broadcast" not in str(error):
            raise
        raise Wrong(f"words of {D} numbers and states of {H}: two of your shapes do not fit. All four sums have as "
                    "many numbers as h") from None  # fmt: skip
    if answer is None:
        raise Wrong("lstm_step returns None; is a `return` missing?")
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong("two tensors are expected: the new h and the new cells")
    new_h, new_c = (np.asarray(getattr(each, "value", each)) for each in answer)
    i, f, g, o = np.split(x @ W_x.T + h @ W_h.T + b, 4, axis=1)
    cells = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    shown = _sigmoid(o) * np.tanh(cells)
    if np.allclose(new_h, cells) and np.allclose(new_c, shown):
        raise Wrong("h comes first, then the cells")
    with_tanh = np.tanh(f) * c + np.tanh(i) * np.tanh(g)
    expect(
        new_c,
        cells,
        "the new cells",
        [
            (
                with_tanh,
                "your gates are between -1 and 1: a gate says what *share* passes, from 0 to 1, so it is a sigmoid. "
                "With a tanh, it may turn a memory into its opposite",
            ),
            (
                _sigmoid(i) * np.tanh(g),
                "the old cells are overwritten: the new ones are added to what the forget gate has kept",
            ),
            (_sigmoid(f) * c, "nothing new comes in: the proposal is missing"),
            (
                _sigmoid(f) * c + (1 - _sigmoid(f)) * np.tanh(g),
                "what the forget gate lets go, you fill up with the proposal. That is a GRU; an LSTM has a gate i of "
                "its own, so a cell may keep everything *and* take something in",
            ),
            (_sigmoid(f) * c + np.tanh(g), "the gate i is missing: everything that is proposed comes in"),
            (c + _sigmoid(i) * np.tanh(g), "the forget gate is missing: your cells can't ever let anything go"),
            (
                _sigmoid(i) * c + _sigmoid(f) * np.tanh(g),
                "you have exchanged the gates: f is for what is kept, i for what comes in",
            ),
            (_sigmoid(f) * c + _sigmoid(i) * _sigmoid(g), "the proposal is not a gate; it is a tanh, from -1 to 1"),
            (_sigmoid(f) * c + _sigmoid(i) * g, "the proposal is a tanh, from -1 to 1; yours is the bare sum"),
            (
                _sigmoid(f) * c + _sigmoid(i) * np.tanh(o),
                "you have taken the fourth part for the proposal; the parts are for i, f, the proposal, o",
            ),
            (
                _sigmoid(f) * h + _sigmoid(i) * np.tanh(g),
                "you keep the old h; what f keeps is the old cells",
            ),
            (
                f * c + i * np.tanh(g),
                "your gates are bare sums; a gate says what share passes, so a sigmoid brings it between 0 and 1",
            ),
            (
                np.tanh(cells),
                "there is no tanh on the line of the cells: they are scaled and added to, and only h gets their tanh",
            ),
        ],
    )
    expect(
        new_h,
        shown,
        "the new h",
        [
            (np.tanh(cells), "the cells are shown whole: the output gate o is missing"),
            (
                _sigmoid(o) * cells,
                "cells may grow beyond 1 by adding up, and h should not: between them stands a tanh",
            ),
            (np.tanh(o) * np.tanh(cells), "the output gate is a share, so a sigmoid"),
            (_sigmoid(o) * np.tanh(c), "you show the old cells; h tells of the new ones"),
            (
                _sigmoid(o) * _sigmoid(cells),
                "a sigmoid makes a share of the cells, never negative; what o shows is their tanh, from -1 to 1",
            ),
        ],
    )
    if not all(isinstance(each, Tensor) for each in answer):
        raise Wrong("the numbers are right, but plain; keep h and the cells as tensors")
    ours = [Tensor(each) for each in (h, c, W_x, W_h, b)]
    for which, name in enumerate(("h", "the cells")):
        found = _gradients(list(answer), which, given)
        wanted = _gradients(list(_lstm_on_tape(x, *ours)), which, ours)
        if not all(np.allclose(a, b) for a, b in zip(found, wanted, strict=True)):
            raise Wrong(
                f"the numbers are right, but the walk back from {name} loses a part of the gradient: somewhere in the "
                "step, a gate or the cells became a plain number"
            )
    kept = "your step has changed the h or the cells that it was given; the next step needs them as they were"
    if not all(np.array_equal(each.value, value) for each, value in zip(given[:2], (h, c), strict=True)):
        raise Wrong(kept)
    random = draws("lstm_step")
    for B, D, H in ((1, 1, 1), (3, 2, 4)):
        shapes = (B, D), (B, H), (B, H), (4 * H, D), (4 * H, H), (4 * H,)
        x, *values = (2 * random.normal(size=shape) for shape in shapes)
        given, ours = ([Tensor(each) for each in values] for _ in range(2))
        answer, right = list(lesson.lstm_step(x, *given)), list(_lstm_on_tape(x, *ours))
        for name, theirs, wanted in zip(("h", "cells"), answer, right, strict=True):
            expect(theirs, wanted, f"the new {name} of {B} texts, {D} numbers in a word and {H} in a state")
        _same_gradients(answer, right, given, ours, ["h", "c", "W_x", "W_h", "b"], "in an LSTM")


# ---- Kernels, and attention without a softmax ----


def square_features(lesson: ModuleType) -> None:
    random = draws("square_features")
    pairs = [(np.array([1.0, 2.0]), np.array([3.0, 0.5])), (_numbers(6), _numbers(6, seed=7)), (_numbers(1),) * 2]
    pairs += [tuple(random.normal(size=(2, n))) for n in (2, 3, 11)]
    pairs += [tuple(random.integers(2, 9, size=(2, n))) for n in (3, 5)]
    for x, y in (*pairs, (np.zeros(3), _numbers(3))):
        with np.errstate(all="ignore"):
            given = x.copy(), y.copy()
            both = [lesson.square_features(each) for each in given]
        if both[0] is None:
            raise Wrong("square_features returns None; is a `return` missing?")
        if not (np.array_equal(given[0], x) and np.array_equal(given[1], y)):
            raise Wrong("your function has changed the x that it was given; make a new array")
        features = [np.asarray(each, dtype=float) for each in both]
        if features[0].ndim != 1:
            raise Wrong(
                f"φ(x) should be one list of numbers; yours has the shape {features[0].shape}, and the product of two "
                "such things is not the sum over all features"
            )
        if len(features[0]) != len(features[1]):
            raise Wrong("two vectors of the same length should have equally many features")
        squares = float(x**2 @ y**2)
        mixed = float(x @ y) ** 2 - squares
        what = f"φ(x)·φ(y) for x = {x.tolist()}, y = {y.tolist()}" if len(x) == 2 else f"φ(x)·φ(y) of {len(x)} numbers"
        if x.dtype.kind == "i":
            what += ", which are whole here; a feature may be none, and an array of integers would cut it off"
        expect(
            float(features[0] @ features[1]),
            float(x @ y) ** 2,
            what,
            [
                (
                    squares + mixed / 2,
                    f"the mixed term counts once, but (x·y)² has it twice: at (1, 2)·(3, ½) you have "
                    f"{squares + mixed / 2:g}, not {squares + mixed:g}. Which number, multiplied with itself, is 2?",
                ),
                (
                    squares + 2 * mixed,
                    "the mixed term counts four times: each of the two vectors brings its factor along, so "
                    "the factors are multiplied",
                ),
                (squares, "you have only the squares; (x·y)² also has the mixed terms, such as x₁y₁ · x₂y₂"),
                (float(x @ y), "this is x·y without the square"),
                (float(abs(x) @ abs(y)) ** 2, "your features have lost their sign: x₁x₂ may be negative"),
                (
                    float(x @ x * (y @ y)),
                    "this is |x|²·|y|²: your feature knows how long a vector is, not where it points",
                ),
                (
                    float(x[:2] @ y[:2]) ** 2,
                    "your features see two numbers only; there may be more, and each pair of them has a mixed term",
                ),
            ],
        )


def _weighted(weights_TT: Array, v_TV: Array) -> Array:
    return np.array([sum(w * v for w, v in zip(row, v_TV, strict=True)) for row in weights_TT])


def attention_by_features(lesson: ModuleType) -> None:
    T, F, V = 5, 3, 2
    q, k = (np.abs(_numbers(T, F, seed=seed, scale=0.6)) + 0.1 for seed in (1, 2))
    v = _numbers(T, V, seed=3)
    products = np.array([[q[t] @ k[s] for s in range(T)] for t in range(T)])
    seen = np.array([[s <= t for s in range(T)] for t in range(T)])
    masked = products * seen

    def shares(table: Array, axis: int = 1) -> Array:
        return table / table.sum(axis=axis, keepdims=True)

    given = q.copy(), k.copy(), v.copy()
    try:
        with np.errstate(all="ignore"):
            answer = lesson.attention_by_features(*given)
    except ValueError as error:
        if "broadcast" not in str(error):
            raise
        raise Wrong(f"{T} positions, {V} numbers in a value: two shapes do not fit. The sums of the rows of weights "
                    "are a column, so keep the axis that you sum over") from None  # fmt: skip
    if not all(np.array_equal(a, b) for a, b in zip(given, (q, k, v), strict=True)):
        raise Wrong("your function has changed the q, k or v that it was given; make new arrays")
    if answer is not None and np.shape(answer) == (T, V) and np.isnan(np.asarray(answer, dtype=float)).any():
        if not np.isnan(np.asarray(answer, dtype=float)[1:]).any():
            raise Wrong("position 0 has no weight at all, so its output is 0/0: a position sees itself, too")
        raise Wrong(
            "there are NaN in the outputs: a mask of -∞ is for scores, of which a softmax then takes the exponential; "
            "these products are weights already, and a hidden key has the weight 0"
        )
    expect(
        answer,
        _weighted(shares(masked), v),
        f"the outputs of {T} positions",
        [
            (
                _weighted(masked, v),
                "the weights of a position don't sum to 1: an output would grow with the length of the text. Divide by "
                "their sum",
            ),
            (
                _weighted(shares(np.exp(products) * seen), v),
                "there is a softmax on top: the products of the features *are* the weights already. With an "
                "exponential over them, the sum can't be regrouped any more",
            ),
            (
                _weighted(shares(products) * seen, v),
                f"the future has taken its share: row 0 of the weights sums to "
                f"{(shares(products) * seen)[0].sum():.2f}. Mask the products, then divide by what is left",
            ),
            (_weighted(shares(products), v), "position 0 looks ahead: mask what comes later"),
            (_weighted(shares(products * seen.T), v), "you hid the past, and position 0 sees all that comes later"),
            (
                _weighted(masked / masked.sum(axis=1), v),
                "you divide column s by the sum of row s: NumPy lays a row of sums over the rows; keep the axis that "
                "you sum over",
            ),
            (
                _weighted(shares(masked, axis=0), v),
                "the columns sum to 1, not the rows: each position that asks has one whole to give away",
            ),
            (
                _weighted(shares(products.T * seen), v),
                "the keys ask here, and the queries answer: row t should hold the products of query t",
            ),
            (
                _weighted(shares((q + 1) @ (k + 1).T * seen), v),
                "the rows of q and k are features already, and you take features of them once more",
            ),
            (
                _weighted(masked / np.arange(1, T + 1)[:, None], v),
                "you divide by the number of words seen, as if all weights were 1; divide by the sum of the weights",
            ),
            (
                _weighted(masked / masked.sum(), v),
                "you divide by the sum of the whole table; each position divides by the sum of its own row",
            ),
        ],
        tolerance=EPSILON,
    )
    random = draws("attention_by_features")
    of_the_page = np.array([[1.0, -0.8]] * 2), np.array([[1.0, 0.2], [0.3, 1.0]]), np.array([[10.0], [20.0]])
    for q, k, v in (of_the_page, *(_signed(random, *shape) for shape in ((1, 2, 3), (4, 1, 1), (9, 5, 4)))):
        products = np.tril(q @ k.T)
        sizes = np.abs(products)
        positive = np.maximum(products, 0)
        sums = products.sum(axis=1, keepdims=True)
        with np.errstate(all="ignore"):
            answer = lesson.attention_by_features(q.copy(), k.copy(), v.copy())
            mistakes = [
                (
                    products @ v / sizes.sum(axis=1, keepdims=True),
                    "some of these weights are negative, as with φ(x) = x, and you divide by the sum of their *sizes*: "
                    "then the weights no longer sum to 1",
                ),
                (
                    products @ v / np.abs(sums),
                    "the sum of the weights may be negative, as with φ(x) = x, and you divide by its size: then they "
                    "sum to -1",
                ),
                (
                    positive @ v / positive.sum(axis=1, keepdims=True),
                    "you make every negative weight 0: that cannot be written as a product of features any more",
                ),
            ]
            if np.shape(answer) == v.shape and np.abs(answer).max() > 1e3 > np.abs(v).max() / np.abs(sums).min():
                raise Wrong("the sum of the weights may be negative, as with φ(x) = x; you keep it above 0")
        (T, F), V = q.shape, v.shape[1]
        what = f"the outputs of {T} positions, {F} features that may be negative, {V} numbers in a value"
        expect(answer, products @ v / sums, what, mistakes, tolerance=EPSILON)


def _signed(random: np.random.Generator, T: int, F: int, V: int) -> tuple[Array, Array, Array]:
    """Features that may be negative, and values; the sum of no position's weights is near 0, and one is negative."""
    while True:
        q, k = random.normal(size=(2, T, F))
        sums = np.tril(q @ k.T).sum(axis=1)
        if np.abs(sums).min() > 0.3 and sums.min() < 0:
            return q, k, random.normal(size=(T, V))


def linear_attention_recurrence(lesson: ModuleType) -> None:
    T, F, V = 5, 3, 2
    q, k = (np.abs(_numbers(T, F, seed=seed, scale=0.6)) + 0.1 for seed in (1, 2))
    v = _numbers(T, V, seed=3)
    products = np.array([[q[t] @ k[s] if s <= t else 0.0 for s in range(T)] for t in range(T)])
    asked_by_keys = np.tril(k @ q.T)
    nothing = np.zeros((F, V)), np.zeros(F)
    try:
        answer = lesson.linear_attention_recurrence(q.copy(), k.copy(), v.copy(), *nothing)
    except ValueError as error:
        if "broadcast" not in str(error) and "mismatch" not in str(error):
            raise
        raise Wrong(
            f"{F} features in q and k, {V} numbers in a value: two of your shapes do not fit. S has the shape (F, V), "
            "and an output as many numbers as a value"
        ) from None
    if answer is None:
        raise Wrong("linear_attention_recurrence returns None; is a `return` missing?")
    if not isinstance(answer, (tuple, list)) or len(answer) != 3:
        raise Wrong("three arrays are expected: the outputs, S and d")
    outputs, S, d = answer
    states = [np.array(sum(np.outer(k[s], v[s]) for s in range(t + 1))) for t in range(T)]
    right = _weighted(products / products.sum(axis=1, keepdims=True), v)
    above, below = _weighted(products, v), products.sum(axis=1)
    blind = [q[t] @ states[t - 1] / (q[t] @ k[:t].sum(axis=0)) for t in range(1, T)]
    given = np.asarray(outputs, dtype=float)
    if given.shape == right.shape and np.allclose(given[1:], blind):
        raise Wrong(
            "you read the state before the word has been added, so a position never sees itself; output 0 has nothing "
            "to look at, though the first word is its own"
        )
    expect(
        given,
        right,
        f"the outputs of {T} words",
        [
            (above, "the normaliser is missing: divide by q·d, the sum of all weights so far"),
            (
                above / np.array([[q[t] @ k[t]] for t in range(T)]),
                "you divide by the newest key's weight alone: the sum of all keys so far is a state, too, and has to "
                "be carried along beside S",
            ),
            (
                v,
                "the state is the newest word's alone, so each output is that word's value: add to S and d, don't "
                "replace them",
            ),
            (above / below[-1], "you divide by d after the last word; each position has its own sum of weights"),
            (
                above / np.arange(1, T + 1)[:, None],
                "you divide by the number of words read, as if all weights were 1; divide by their sum, q·d",
            ),
            (
                above / np.cumsum(k.sum(axis=1))[:, None],
                "you divide by the sum of d alone: the query weighs the features of d as it weighs those of S",
            ),
            (
                _weighted(asked_by_keys / asked_by_keys.sum(axis=1, keepdims=True), v),
                "you store the queries and ask with the keys; a word leaves its key, and asks with its query",
            ),
        ],
        tolerance=EPSILON,
    )
    if np.shape(S) == (V, F):
        raise Wrong("your S lies on its side, as W in the notes: it has a row for each feature of a key")
    expect(
        S,
        states[-1],
        "S after the last word",
        [
            (np.outer(k[-1], v[-1]), "the S that you return holds the last word alone"),
            (nothing[0], "you return the old S"),
        ],
    )
    expect(
        d,
        k.sum(axis=0),
        "d after the last word",
        [(nothing[1], "you return the old d"), (k[-1], "this is the last key")],
    )
    pieces, state = [], nothing
    for start, end in pairwise((0, 2, T)):
        before = [each.copy() for each in state]
        y, *after = lesson.linear_attention_recurrence(q[start:end], k[start:end], v[start:end], *state)
        if not all(np.array_equal(a, b) for a, b in zip(before, state, strict=True)):
            raise Wrong("the state that was handed in has changed: `+=` changes an array in place; make a new one")
        pieces.append(np.asarray(y))
        state = tuple(np.asarray(each) for each in after)
    alone = products[2:, 2:] / products[2:, 2:].sum(axis=1, keepdims=True)
    expect(
        np.concatenate(pieces),
        right,
        "the outputs of a text read in two pieces",
        [
            (
                np.concatenate([right[:2], _weighted(alone, v[2:])]),
                "each call begins from nothing: the second piece of a text has forgotten the first, though its state "
                "was handed over",
            )
        ],
        tolerance=EPSILON,
    )
    expect(state[0], states[-1], "S after two pieces")
    expect(state[1], k.sum(axis=0), "d after two pieces")
    random = draws("linear_attention_recurrence")
    for T, F, V in ((2, 1, 1), (6, 4, 3), (9, 2, 5)):
        q, k, v = _signed(random, T, F, V)
        products = np.tril(q @ k.T)
        sums = products.sum(axis=1, keepdims=True)
        pieces, state = [], (np.zeros((F, V)), np.zeros(F))
        for start, end in pairwise((0, 1, T)):
            y, *state = lesson.linear_attention_recurrence(q[start:end], k[start:end], v[start:end], *state)
            pieces.append(np.asarray(y))
        carried = np.tril(np.abs(q) @ np.abs(k).T).sum(axis=1, keepdims=True)
        size = "some of these features are negative, as with φ(x) = x: the normaliser is q·d, with its sign"
        what = f"the outputs of {T} words read in two pieces, {F} features that may be negative, {V} numbers in a value"
        expect(
            np.concatenate(pieces),
            products @ v / sums,
            what,
            [(products @ v / np.abs(sums), size), (products @ v / carried, size)],
            tolerance=EPSILON,
        )
        whole = np.round(9 * v).astype(int)
        y, *_ = lesson.linear_attention_recurrence(q, k, whole, np.zeros((F, V)), np.zeros(F))
        cut_off = "the values are whole numbers here, and your outputs are, too: an array made like v holds no others"
        right = products @ whole / sums
        expect(y, right, f"the outputs of {T} values that are whole numbers", [(right.astype(int), cut_off)], EPSILON)
        expect(state[0], k.T @ v, f"S after {T} words")
        expect(state[1], k.sum(axis=0), f"d after {T} words")
