"""Checks of lesson 12. Every right answer is computed here by plain loops over positions."""

from __future__ import annotations

import math
from itertools import pairwise
from types import ModuleType

import numpy as np
from scipy.special import stdtrit  # the quantiles of Student's t; scipy.stats, which has them too, takes a second

from pellucid.course.checks import Wrong, draws, expect, unchanged

Array = np.ndarray


def _numbers(*shape: int, seed: int = 10, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng(seed).standard_normal(shape)


def _norm(x: Array, gain: Array, deviation: float | None = None) -> Array:
    """One vector less its mean, over its deviation or another number, times the gain."""
    return gain * (x - x.mean()) / (math.sqrt(x.var() + 1e-5) if deviation is None else deviation)


def _is_unchanged(given: Array, before: Array) -> None:
    if not np.array_equal(given, before):
        raise Wrong("the array that you got has changed: `x += …` writes into it, and so does `x[0] = …`. Whoever "
                    "called you still needs it, so make a new one")  # fmt: skip


def _softmax(logits: Array, axis: int = -1) -> Array:
    raised = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return raised / raised.sum(axis=axis, keepdims=True)


# ---- The stream, read off ----


def contributions(lesson: ModuleType) -> None:
    N, D = 4, 7
    parts, gain, direction = 3 * _numbers(N, D) + 2.0, 1 + 0.3 * _numbers(D, seed=1), _numbers(D, seed=2)
    total = parts.sum(axis=0)
    deviation = math.sqrt(total.var() + 1e-5)
    logit = _norm(total, gain) @ direction
    by_itself = np.array([_norm(part, gain) @ direction for part in parts])
    over_parts = np.sqrt(parts.var(axis=0) + 1e-5)
    lost_without = [logit - _norm(total - part, gain) @ direction for part in parts]
    read_after_each = [_norm(stream, gain) @ direction for stream in np.cumsum(parts, axis=0)]
    given = parts.copy()
    answer = lesson.contributions(given, gain, direction)
    _is_unchanged(given, parts)
    if answer is not None and np.shape(answer) == ():
        raise Wrong("you have the logit alone; what each of the 4 parts adds to it is asked")
    if answer is not None and np.shape(answer) == (N, D):
        raise Wrong("you have 7 numbers for each part; their product with `unembedding_D` is one number")
    expect(
        answer,
        [_norm(part, gain, deviation) @ direction for part in parts],
        "the contributions of 4 parts",
        [
            (
                by_itself,
                f"each part was divided by its own deviation: your parts add up to {by_itself.sum():.2f}, but the "
                "logit "
                f"is {logit:.2f}. The norm sees the whole stream, and divides all of it by one number",
            ),
            (
                [_norm(part, gain, deviation**2) @ direction for part in parts],
                "you divide by the variance, as lecture notes N3 have it; a norm divides by the deviation, its root, "
                "so "
                "that the result has deviation 1",
            ),
            (
                [(gain * part / deviation) @ direction for part in parts],
                "no mean was taken off: your numbers add up to another logit. The mean of the sum is the sum of the "
                "means, so each part loses its own",
            ),
            (
                parts @ direction,
                "these are products with the stream as it is; the logit is read after the final norm",
            ),
            (
                [(gain * (part - total.mean()) / deviation) @ direction for part in parts],
                "each part has lost the mean of the whole sum; then the sum loses it 4 times",
            ),
            (
                [(gain * (part - parts.mean(axis=0)) / deviation) @ direction for part in parts],
                "you took the mean over the parts; a norm takes it over the 7 numbers of a vector",
            ),
            (
                [(gain * (part - part.mean()) / over_parts) @ direction for part in parts],
                "you took the deviation over the parts; a norm takes it over the 7 numbers of the whole sum",
            ),
            (
                [_norm(part, np.ones(D), deviation) @ direction for part in parts],
                "the gain is missing: the norm multiplies each of the 7 numbers by its own",
            ),
            (
                lost_without,
                "you say how much of the logit goes if a part is left out; but without it the norm divides by another "
                "number, so these differences do not add up to the logit. Divide each part by the deviation of the sum",
            ),
            (
                np.diff(read_after_each, prepend=0.0),
                "you read the logit after each part and took the differences: each reading divides by another "
                "deviation, so what a part gets depends on its place. There is one deviation, that of the whole sum",
            ),
            (
                [_norm(part, gain, float(parts.std())) @ direction for part in parts],
                f"you divide by the deviation of all {N * D} numbers; the norm sees the 7 numbers of the sum",
            ),
            (
                [_norm(part, gain, float(total.std(ddof=1))) @ direction for part in parts],
                "your deviation has D - 1 in its denominator; that is for samples. A norm takes the mean of D squares",
            ),
        ],
        tolerance=1e-4,
    )
    rng = draws("contributions")
    for N, D in ((int(rng.integers(6, 10)), int(rng.integers(8, 14))), (1, 3)):
        parts, gain, direction = rng.normal(1, 4, (N, D)), rng.uniform(0.5, 1.5, D), rng.normal(size=D)
        deviation = math.sqrt(parts.sum(axis=0).var() + 1e-5)
        right = [_norm(part, gain, deviation) @ direction for part in parts]
        what = f"{N} part{'s' * (N > 1)} of {D} numbers"
        expect(lesson.contributions(parts.copy(), gain, direction), right, f"the contributions of {what}", (), 1e-4)
    N, D = 3, 6
    parts = rng.normal(0, 1e-3, (N, D))
    gain, direction, deviation = rng.uniform(0.5, 1.5, D), rng.normal(size=D), float(parts.sum(axis=0).std())
    alone = [_norm(part, gain, deviation) @ direction for part in parts]
    right = [_norm(part, gain, math.sqrt(deviation**2 + 1e-5)) @ direction for part in parts]
    expect(
        lesson.contributions(parts.copy(), gain, direction),
        right,
        f"the contributions of {N} parts of thousandths",
        [
            (
                alone,
                f"{N} parts of thousandths: your contributions add up to {sum(alone):.2f}, but the logit is "
                f"{sum(right):.2f}. `layer_norm` in your file adds 1e-5 to the variance before it takes the root",
            )
        ],
        1e-4,
    )
    parts, gain, direction = np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]), np.ones(3), rng.normal(size=3)
    right = [_norm(part, gain, math.sqrt(2 / 3 + 1e-5)) @ direction for part in parts]
    with np.errstate(all="ignore"):
        answer = lesson.contributions(parts.copy(), gain, direction)
    if np.shape(answer) == (2,) and np.isnan(answer).any():
        raise Wrong("a sum of 5, 6 and 7: your contributions are NaN. 6 is the mean, so the norm makes 0 of it, and "
                    "0/0 does not tell by what the parts are divided: that is the deviation")  # fmt: skip
    expect(answer, right, "the contributions to a sum of 5, 6 and 7", (), 1e-4)


def lens(lesson: ModuleType) -> None:
    N, T, D, V = 3, 4, 6, 5
    x = _numbers(N, T, D) * np.array([0.5, 1.5, 6.0])[:, None, None] + 0.7
    gain, unembedding = 1 + 0.3 * _numbers(D, seed=1), _numbers(V, D, seed=2, scale=0.6)
    logits = np.array([[[u @ _norm(x[n, t], gain) for u in unembedding] for t in range(T)] for n in range(N)])
    right = _softmax(logits)
    of_last = np.array(
        [
            [[u @ _norm(x[n, t], gain, math.sqrt(x[-1, t].var() + 1e-5)) for u in unembedding] for t in range(T)]
            for n in range(N)
        ]
    )
    along_positions = gain * (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    without = _softmax(x @ unembedding.T)
    expect(
        lesson.lens(x.copy(), gain, unembedding),
        right,
        "the lens at 3 points and 4 positions",
        [
            (
                without,
                f"the final norm is missing: at the last point, your largest share is {without[-1].max():.2f} and "
                "should "
                f"be {right[-1].max():.2f}. The stream grows from layer to layer, and only the norm brings it to the "
                "size that the unembedding was trained for",
            ),
            (
                _softmax(of_last),
                "you divide every point by the deviation of the last one. Each point must be read as if it were the "
                "last, so its own deviation counts",
            ),
            (
                logits,
                "these are logits, not probabilities: those of one position must sum to 1",
            ),
            (np.log(right), "these are logarithms; probabilities are asked"),
            (
                np.exp(logits) / np.exp(logits).sum(),
                f"all your numbers together sum to 1; each of the {N} points and {T} positions has a distribution of "
                "its own",
            ),
            (
                _softmax(np.array([[_norm(row, gain) @ unembedding.T for row in table] for table in x.cumsum(axis=0)])),
                "you added the points up; the stream at a point is the sum already, of all that came before",
            ),
            (
                _softmax(logits, axis=1),
                "your shares sum to 1 over the positions; they must over the tokens, the last axis",
            ),
            (
                _softmax(logits, axis=0),
                "your shares sum to 1 over the points; they must over the tokens, the last axis",
            ),
            (
                _softmax(along_positions @ unembedding.T),
                "your norm runs along the positions; it takes mean and deviation of one vector, the last axis",
            ),
            (
                _softmax(np.array([[_norm(row, np.ones(D)) @ unembedding.T for row in table] for table in x])),
                "the gain is missing: the final norm multiplies each of the D numbers by its own",
            ),
        ],
        tolerance=1e-4,
    )
    rng = draws("lens")
    N, T, D, V = map(int, rng.integers((2, 2, 6, 6), (7, 7, 11, 11)))
    x, unembedding = rng.normal(0.5, 3, (N, T, D)), rng.normal(size=(V, D))
    logits = np.array([[unembedding @ _norm(x[n, t], np.ones(D)) for t in range(T)] for n in range(N)])
    what = f"the lens at {N} points and {T} positions, of {V} tokens"
    expect(unchanged(lesson.lens, x, np.ones(D), unembedding), _softmax(logits), what, (), 1e-4)
    # Two positions with logits around 3,000 and -3,000. The best token is not the same.
    axis = _rows_to_length_one(rng.normal(size=(1, 8)) @ (np.eye(8) - 1 / 8))[0]
    unembedding = np.array([1000.0, 700.0, 1300.0])[:, None] * axis
    with np.errstate(all="ignore"):
        answer = lesson.lens(np.array([[axis, -axis]]), np.ones(8), unembedding)
    if np.shape(answer) == (1, 2, 3) and not np.isfinite(np.asarray(answer, dtype=float)).all():
        raise Wrong(
            "right for small logits; at one of 3,000 or -3,000 your softmax gives NaN, since e^3000 is infinite "
            "in a computer, and e^-3000 is 0. Subtract from each row its own largest logit first (lesson 7)"
        )
    expect(
        answer, [[[0, 0, 1], [0, 1, 0]]], "the lens where the logits are about 3,000, and where they are about -3,000"
    )


# ---- Take it out, or put another in its place ----


def knocked_out_difference(lesson: ModuleType) -> None:
    intact = np.array([61.0, 80.0, 95.0, 74.0, 102.0, 88.0, 69.0])
    rise = np.array([21.0, 27.5, 24.0, 30.0, 19.0, 26.0, 23.5])
    _knocked_out(lesson, intact, rise)
    # Fewer fables, two of which need the head so little that they are easier without it.
    expect(
        _by_student(lesson, intact[:4], np.array([3.0, -1.0, 6.0, -2.0])),
        [1.5, 1.96 * math.sqrt(41 / 12)],
        "a rise by 3, -1, 6 and -2 nats",
        [([3.0, 1.96 * math.sqrt(14 / 12)], "two of the four fables are easier without the head: that is a rise below "
                                            "zero, and you made it positive")],
        tolerance=1e-4,
    )  # fmt: skip
    rng = draws("knocked_out_difference")
    rise = -rng.uniform(1, 3, 6)
    half = 1.96 * rise.std(ddof=1) / math.sqrt(6)
    better = "without the head all six fables are easier: that is a rise below zero, and you made it positive"
    answer = _by_student(lesson, rng.normal(90, 20, 6), rise)
    expect(answer, [rise.mean(), half], "six fables that are easier without", [([-rise.mean(), half], better)], 1e-4)
    for n in (int(rng.integers(20, 60)), 2):
        intact, rise = rng.normal(90, 20, n), rng.normal(2, 5, n)
        half = 1.96 * rise.std(ddof=1) / math.sqrt(n)
        what = f"the mean rise over {n} fables, and the half width"
        expect(_by_student(lesson, intact, rise), [rise.mean(), half], what, (), 1e-4)


def _by_student(lesson: ModuleType, intact: Array, rise: Array) -> object:
    """The student's answer. A half width by Student's t, which is right for few fables, is turned into 1.96 errors."""
    given = intact.copy(), intact + rise
    answer = lesson.knocked_out_difference(*given)
    _is_unchanged(given[0], intact)
    _is_unchanged(given[1], intact + rise)
    if answer is not None and np.shape(answer) == (2,):
        n = len(rise)
        error = rise.std(ddof=1) / math.sqrt(n)
        if math.isclose(answer[1], stdtrit(n - 1, 0.975) * error, rel_tol=1e-3):
            return [answer[0], 1.96 * error]
    return answer


def _knocked_out(lesson: ModuleType, intact: Array, rise: Array) -> None:
    without, n = intact + rise, len(rise)
    deviation = rise.std(ddof=1)
    error = deviation / math.sqrt(n)
    unpaired = 1.96 * math.sqrt((intact.var(ddof=1) + without.var(ddof=1)) / n)
    answer = _by_student(lesson, intact, rise)
    if answer is not None and np.shape(answer) != (2,):
        raise Wrong("two numbers are expected: the mean and the half width of its interval")
    mean = rise.mean()
    expect(
        answer,
        [mean, 1.96 * error],
        "the mean rise over 7 fables, and the half width",
        [
            (
                [-mean, 1.96 * error],
                f"your sign is turned: without the head the loss is {mean:.1f} nats higher, so it costs something; you "
                "say that the model is better off without it",
            ),
            (
                [mean, 1.96 * deviation],
                f"±{1.96 * deviation:.1f} says how much the fables differ from each other. The mean of 7 fables is "
                "more "
                "certain than a single fable, and ever more so with more of them",
            ),
            (
                [mean, unpaired],
                f"your half width is {unpaired:.1f}, because some fables are hard for both models. The same fable "
                "stands "
                f"in both lists, so take the differences first: ±{1.96 * error:.1f}",
            ),
            (
                [mean, 1.96 * deviation / n],
                "you divide by F; the *variance* of a mean falls with F, its deviation with √F",
            ),
            ([mean, error], "this is one standard error; 95 % of the time the truth is within 1.96 of them"),
            (
                [mean, 1.96 * rise.std() / math.sqrt(n)],
                "your deviation has F in the denominator; the mean is fitted to the same numbers, so a sample's has "
                "F - 1",
            ),
            ([mean, 1.96 * deviation**2 / math.sqrt(n)], "this is made of the variance; take its root"),
            ([mean - 1.96 * error, mean + 1.96 * error], "these are the ends; the mean and the half width are asked"),
            ([mean, 2 * 1.96 * error], "this is the whole width; the half width, to one side, is asked"),
        ],
        tolerance=1e-5,  # 1.959964 is right, too
    )


def patched(lesson: ModuleType) -> None:
    D = 5
    matrices = [_numbers(D, D, seed=seed, scale=0.5) for seed in (1, 2, 3, 4)]
    layers = [lambda x, W=W: np.tanh(W @ x) for W in matrices]
    x, other = _numbers(D, seed=5), _numbers(D, seed=6)

    def streams(start: Array) -> tuple[list[Array], list[Array]]:
        """The stream before each layer and at the end, and what each layer adds."""
        stream, added = [start], []
        for layer in layers:
            added.append(layer(stream[-1]))
            stream.append(stream[-1] + added[-1])
        return stream, added

    (ours, our_outputs), (theirs, their_outputs) = streams(x), streams(other)

    def run_on(stream: Array, first: int) -> Array:
        for layer in layers[first:]:
            stream = stream + layer(stream)
        return stream

    def without_stream(place: int) -> Array:
        """The mistake of a chain of layers: each reads the output of the one before it."""
        mine, patch = x, other
        for number, layer in enumerate(layers):
            mine, patch = layer(patch if number == place else mine), layer(patch)
        return mine

    for place in (2, 0, 3):
        after = place + 1
        patch_is_late = ours[place] + layers[place](theirs[after])
        frozen = ours[place] + their_outputs[place] + np.sum([np.zeros(D), *our_outputs[place + 1 :]], axis=0)
        patched_twice = ours[place] + np.sum(their_outputs[place:], axis=0)
        right = run_on(ours[place] + their_outputs[place], place + 1)
        given = x.copy(), other.copy()
        try:
            answer = lesson.patched(list(layers), *given, place)
        except ValueError as error:
            if "mismatch" not in str(error):
                raise
            raise Wrong("a layer was asked about a stream of another shape: each text goes through the layers by "
                        "itself, since attention would mix two that are put together") from None  # fmt: skip
        expect(
            answer,
            right,
            f"a net of 4 layers, layer {place} patched",
            [
                (
                    theirs[-1],
                    "you put the other text's whole *stream* in its place, so the end is that of the other text. Only "
                    "what one layer adds is to be replaced; what x has gathered before it stays",
                ),
                (
                    run_on(ours[place] + layers[place](other), place + 1),
                    "the layer has read the beginning of the other text, not what the layers before it have made of it",
                ),
                (
                    frozen,
                    "the layers after the patch add what they added without it: compute them again. What they make of "
                    "the patch is the question",
                ),
                (
                    patched_twice,
                    "all layers from the patch on come from the other text; only one of them should",
                ),
                (
                    run_on(their_outputs[place], place + 1),
                    "the patch took the place of the stream; it must be *added* to it, like any layer's output",
                ),
                (
                    run_on(ours[place] + layers[place](ours[place]) + their_outputs[place], place + 1),
                    "the layer's own output is still there: the patch comes in its place, not on top of it",
                ),
                (
                    run_on(theirs[place] + layers[place](ours[place]), place + 1),
                    "the texts are the wrong way round: x is the text that runs, and `other` gives one output",
                ),
                (ours[-1], "nothing is patched: this is the end of the run on x"),
                (
                    ours[place] + their_outputs[place],
                    "your run ends with the patch; the layers after it still have to read what has become of x",
                ),
                (
                    run_on(patch_is_late, place + 1),
                    "for the patch the layer has read the other text's stream *after* itself; it reads the stream "
                    "before it",
                ),
                (
                    without_stream(place),
                    "each of your layers reads only what the one before it has put out; a layer *adds* its output to "
                    "the stream, and the next one reads the sum",
                ),
                (
                    run_on(ours[place - 1] + their_outputs[place - 1], place) if place else x,
                    f"you have patched layers[{place - 1}]: layers are counted from 0, so it should be layers[{place}]",
                ),
            ],
        )
        _is_unchanged(given[0], x)
        _is_unchanged(given[1], other)
    _patched_elsewhere(lesson)


def _patched_elsewhere(lesson: ModuleType) -> None:
    """Other depths, a stream with positions, a layer that occurs twice, and a list that others still need."""
    rng = draws("patched")
    for n in (int(rng.integers(5, 9)), 1):
        W = 0.5 * rng.normal(size=(n, 4, 4))
        layers = [lambda x, W=each: np.tanh(x @ W) for each in W]
        if n > 1:
            layers[-1] = layers[1]  # the same function: weights may be shared
        for place in {0, 1, n - 1} & set(range(n)):
            x, other = rng.normal(size=(2, 3, 4))
            right, there = x, other
            for number, layer in enumerate(layers):
                right, there = right + layer(there if number == place else right), there + layer(there)
            given, what = list(layers), f"a net of {n} layer{'s' * (n > 1)} and 3 positions, layer {place} patched"
            answer = lesson.patched(given, x.copy(), other.copy(), place)
            if given != layers:
                raise Wrong("you changed the list of layers; whoever called you would go on with a patched net")
            twice = x if n == 1 else _with_all_alike_patched(layers, x, other, place)
            alike = (
                f"{what}: the net has the same layer at two places, and you patched both. `place` says which one "
                "is meant, not what the layer is"
            )
            expect(answer, right, what, [(twice, alike)])


def _with_all_alike_patched(layers: list, x: Array, other: Array, place: int) -> Array:
    for layer in layers:
        x, other = x + layer(other if layer is layers[place] else x), other + layer(other)
    return x


# ---- Depth as time ----


def _velocity(x: Array, time: float) -> Array:
    return np.array([x[1] - 0.5 * x[0], -x[0] * (1 + 3 * time), 0.3 * x[2] + time])


def _euler(x: Array, n: int, step: float | None = None, first: float = 0.0, speed: float | None = None) -> Array:
    for layer in range(n):
        x = x + (1 / n if step is None else step) * _velocity(x, (layer + first) * (1 / n if speed is None else speed))
    return x


def euler(lesson: ModuleType) -> None:
    x, n = np.array([1.0, -0.5, 0.8]), 4
    at_start = x.copy()
    for layer in range(n):
        at_start = at_start + _velocity(x, layer / n) / n
    unmoved = x.copy()
    for _ in range(n):
        unmoved = unmoved + _velocity(unmoved, 0.0) / n
    last_at_one = x.copy()
    for time in np.linspace(0, 1, n):
        last_at_one = last_at_one + _velocity(last_at_one, time) / n
    alone = x.copy()
    for layer in range(n):
        alone = _velocity(alone, layer / n) / n
    given = x.copy()
    try:
        answer = lesson.euler(_velocity, given, n)
    except ValueError as error:
        raise Wrong(f"4 steps of a point in space: Python says “{error}”. The page turns a point of the plane, but x "
                    "may have any shape: add whole arrays, not number by number") from None  # fmt: skip
    expect(
        answer,
        _euler(x, n),
        "4 steps of Euler's method",
        [
            (
                _euler(x, n, step=1.0),
                "each layer takes a step of 1, so 4 layers go on to time 4. The steps share the time from 0 to 1: 1/4 "
                "each",
            ),
            (
                _euler(x, n, step=1.0, speed=1.0),
                "each layer takes a step of 1, so 4 layers go on to time 4. The steps share the time from 0 to 1: 1/4 "
                "each",
            ),
            (
                _euler(x, n, first=1.0),
                "your first layer stands at time 1/4: Euler's method asks for the velocity where a step begins, and "
                "the "
                "first begins at 0",
            ),
            (
                _euler(x, n, speed=1.0),
                "your layers stand at the times 0, 1, 2, 3; the whole way takes 1, so layer l is at l/4",
            ),
            (
                at_start,
                "every layer looks at the x from the beginning; it should look at what the layers before it have made",
            ),
            (
                last_at_one,
                "your layers stand at 0, 1/3, 2/3 and 1. Time 1 is where the last step *ends*; it begins at 3/4",
            ),
            (alone, "x is gone: a layer *adds* its step to x"),
            (x + _velocity(x, 0.0), "this is one long step from the start to the end, not 4 short ones"),
            (unmoved, "every layer has time 0, so all have the same weights; layer l stands at time l/4"),
        ],
    )
    _is_unchanged(given, x)
    rng = draws("euler")
    for n in (7, int(rng.integers(10, 40)), 49, 1):
        start = rng.normal(size=3)
        end = _euler(start, n)
        once_more = end + _velocity(end, 1.0) / n
        what = f"{n} step{'s' * (n > 1)}"
        expect(
            lesson.euler(_velocity, start.copy(), n),
            end,
            what,
            [
                (
                    once_more,
                    f"with {n} layers you take {n + 1} steps: 1/{n} is rounded, so {n} of them need not reach 1 "
                    "exactly. Count the layers, and compute the time from their number",
                )
            ],
        )
    whole = np.array([2, -1, 3])
    try:
        answer = lesson.euler(_velocity, whole.copy(), 5)
    except TypeError:  # NumPy refuses to add fractions to an array of whole numbers: who does so will hear of it
        answer = _euler(whole, 5)
    if np.shape(answer) == (3,) and not (np.asarray(answer, dtype=float) % 1).any():
        raise Wrong("x = (2, -1, 3), an array of whole numbers: yours stays one, and each step is cut to whole "
                    "numbers. Do not write into a copy of x; x plus a step is a new array")  # fmt: skip
    expect(answer, _euler(whole, 5), "5 steps from the whole numbers (2, -1, 3)")
    many = rng.normal(size=(3, 4))
    expect(lesson.euler(_velocity, many.copy(), 5), _euler(many, 5), "5 steps of 4 points at once")


def order_of_error(lesson: ModuleType) -> None:
    depths = np.array([2.0, 3.0, 8.0, 20.0, 64.0])
    errors = np.array([0.31, 0.19, 0.09, 0.031, 0.0115])

    def slope(a: Array, b: Array) -> float:
        a, b = a - a.mean(), b - b.mean()
        return float(a @ b / (a @ a))

    x, y = np.log(depths), np.log(errors)
    answer = lesson.order_of_error(depths.copy(), errors.copy())
    expect(
        answer,
        slope(x, y),
        "five errors that fall about as 1/depth",
        [
            (
                slope(depths, errors),
                f"this is the slope of the values, {slope(depths, errors):.4f}: it says how much the error changes per "
                "layer, and that is not the same at depth 2 and at 64. Powers are straight lines in the logarithms",
            ),
            (
                slope(depths, y),
                "you took the logarithm of the errors alone: there, c·e^(-depth) is a straight line, and a power of "
                "the "
                "depth is not",
            ),
            (
                slope(x, errors),
                "you took the logarithm of the depths alone: errors fall by a factor, not by an amount",
            ),
            (
                slope(y, x),
                "the axes are the wrong way round: you tell how the depth depends on the error",
            ),
            (
                y.mean() - slope(x, y) * x.mean(),
                "this is the intercept, ln c; `np.polyfit` gives the slope first",
            ),
            (
                -slope(x, y),
                "the sign is turned: the error falls with the depth, so the power is negative",
            ),
            (
                (y[-1] - y[0]) / (x[-1] - x[0]),
                "this is the slope from the first point to the last; the best line through all five is asked",
            ),
            (
                float(np.mean(np.diff(y) / np.diff(x))),
                "this is the mean of the slopes between neighbours; the best line through all five is asked. Two that "
                "are close tell little of the slope, but in a mean they say as much as two that are far apart",
            ),
            (
                float(x @ y / (x @ x)),
                "your line goes through the origin; it must be free to start anywhere: that is the c",
            ),
        ],
        tolerance=1e-6,
    )
    rng = draws("order_of_error")
    for power in (0.5, 2.0, -1.5):
        n = int(rng.integers(4, 9))
        depths = rng.permutation(60)[:n] + 2
        errors = depths**power * np.exp(rng.normal(0, 0.4, n))
        x, y = np.log(depths), np.log(errors)
        grow = "these errors grow with the depth, so the power is positive; you made it negative"
        in_order = slope(np.sort(x), -np.sort(-y))
        apart = "you sorted depths and errors, each by itself; an error belongs to its own depth"
        mistakes = [(-abs(slope(x, y)), grow)] if slope(x, y) > 0 else []
        mistakes += [(in_order, apart), (slope(np.sort(x), np.sort(y)), apart)]
        answer = unchanged(lesson.order_of_error, depths, errors)
        expect(answer, slope(x, y), f"{n} errors about as depth^{power:g}", mistakes, 1e-6)
    expect(lesson.order_of_error(np.array([4, 16]), np.array([0.4, 0.05])), -1.5, "two errors, 0.4 and 0.05", (), 1e-6)


def _moved(x: Array, beta: float, step: float, causal: bool, **how: bool) -> Array:
    """One step, token after token; with switches for mistakes."""
    T = len(x)
    result, source = np.zeros_like(x), x.copy()
    for t in range(T):
        rows = range(t, T) if how.get("past") and causal else range(t + 1) if causal else range(T)
        scores = np.array([beta * (source[t] @ source[s]) for s in rows])
        shares = _softmax(scores) if beta else np.full(len(scores), 1 / len(scores))
        mean = sum(share * source[s] for share, s in zip(shares, rows, strict=True))
        moved = mean if how.get("jump") else source[t] + step * mean
        if how.get("towards"):
            moved = source[t] + step * (mean - source[t])
        result[t] = moved if how.get("free") else moved / np.linalg.norm(moved)
        if how.get("in_place"):
            source[t] = result[t]
    return result


def attention_flow_step(lesson: ModuleType) -> None:
    T, D, beta, step = 5, 3, 1.7, 0.6
    x = _numbers(T, D)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    given = x.copy()
    for causal in (False, True):
        scores = beta * x @ x.T
        hidden = np.where(np.tri(T) > 0, scores, -np.inf) if causal else scores
        over_queries = x + step * _softmax(hidden, axis=0) @ x
        late = x + step * (_softmax(scores) * np.tri(T)) @ x
        zeros = x + step * _softmax(scores * np.tri(T)) @ x
        raised = np.exp(hidden)
        sums = x + step * raised @ x
        sums_of_scaled = x + step * (raised / raised.max(axis=1, keepdims=True)) @ x
        scaled = x + step * _softmax(hidden / math.sqrt(D)) @ x
        columns = x + step * _softmax(hidden) @ x
        what = "5 tokens" + (", each sees itself and those before it" if causal else ", without a mask")
        free = _moved(x, beta, step, causal, free=True)
        mean = _moved(x, beta, step, causal, free=True, jump=True)
        along = x + step * (mean - np.sum(mean * x, axis=1, keepdims=True) * x)
        with np.errstate(all="ignore"):
            answer = lesson.attention_flow_step(given, beta, step, causal)
        _is_unchanged(given, x)
        if causal and np.shape(answer) == (T, D) and np.isnan(np.asarray(answer, dtype=float)[0]).all():
            raise Wrong("token 0 is NaN: with your mask it sees nobody, and 0/0 is no share. It sees itself")
        expect(
            answer,
            _moved(x, beta, step, causal),
            what,
            [
                (
                    free,
                    f"your tokens have left the sphere: token 0 has length {np.linalg.norm(free[0]):.2f}. "
                    "Divide each by its length; without that they grow at every step, and with them the scores",
                ),
                (
                    _moved(x, beta, step, causal, past=True),
                    "your mask hides the past: token 0 sees all tokens, and the last one itself alone. Row t "
                    "may see the columns up to t",
                ),
                (
                    _rows_to_length_one(over_queries),
                    "your softmax runs over the queries: the columns sum to 1, so one token takes more than a "
                    "whole and another less",
                ),
                (
                    _moved(x, beta, step, causal, in_place=True),
                    "token 1 already saw the moved token 0: you wrote into the array while the others still "
                    "read it. All tokens of a layer move at once",
                ),
                (
                    _rows_to_length_one(late) if causal else x,
                    "you hid the future after the softmax: it has taken its share already, so the rows don't sum to 1"
                    if causal
                    else "nothing has moved",
                ),
                (
                    _rows_to_length_one(zeros) if causal else x,
                    "you gave the hidden tokens the score 0; e⁰ is 1, so they still have a share. Their score must be "
                    "-∞"
                    if causal
                    else "nothing has moved",
                ),
                *(
                    (
                        _rows_to_length_one(each),
                        "your shares don't sum to 1: divide e^score by the sum over the keys, as a softmax does",
                    )
                    for each in (sums, sums_of_scaled)
                ),
                (
                    _moved(x, beta, step, causal, jump=True),
                    "each token has jumped to the mean; the layer is residual: x plus `step` times the mean",
                ),
                (
                    _moved(x, beta, step, causal, towards=True),
                    "you moved by step · (mean - x); the layer adds step · mean, and the sphere takes care of the "
                    "length",
                ),
                (
                    _rows_to_length_one(along),
                    "you took off the part of the mean that points outwards; for short steps that is the same, but "
                    "here the whole mean is added, as a layer does",
                ),
                (_moved(x, 1.0, step, causal), "`beta` has no effect: it multiplies the scores"),
                (_rows_to_length_one(scaled), "you divide the scores by √D; here `beta` alone scales them"),
                (
                    columns / np.linalg.norm(columns, axis=0, keepdims=True),
                    "your columns have length 1; a token is a row",
                ),
                (columns / np.linalg.norm(columns), "you divided all tokens by one length; each has its own"),
                (
                    _moved(x, beta, step, not causal),
                    "these tokens look ahead, though the mask is on"
                    if causal
                    else "a mask hides tokens, though it is off",
                ),
            ],
        )
    rng = draws("attention_flow_step")
    for T, beta, causal in ((int(rng.integers(7, 12)), 2.5, True), (3, 0.4, False), (4, 0.0, False), (1, 1.0, True)):
        x, step = _rows_to_length_one(rng.normal(size=(T, int(rng.integers(2, 6))))), float(rng.uniform(0.2, 1.5))
        what = f"{T} token{'s' * (T > 1)} in {x.shape[1]} dimensions{', causal' if causal else ''}, with β = {beta:g}"
        slips = [(x, "at β = 0 your tokens rest; but all scores are 0 then, so each looks at all alike, and moves")]
        answer = lesson.attention_flow_step(x.copy(), beta, step, causal)
        expect(answer, _moved(x, beta, step, causal), what, slips if beta == 0 else ())
    _sharp(lesson)


def _sharp(lesson: ModuleType) -> None:
    """At a large β, e^β is infinite in a computer."""
    angles = np.array([0.0, 1.5, np.pi, 4.0, 1.54])  # the third is opposite to the first, the last near the second
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for causal in (False, True):
        with np.errstate(all="ignore"):
            answer = lesson.attention_flow_step(x.copy(), 800.0, 0.5, causal)
        if np.shape(answer) == x.shape and not np.isfinite(np.asarray(answer, dtype=float)).all():
            raise Wrong(
                "right for a small β; at β = 800 your softmax gives NaN, since e^800 is infinite in a computer. "
                "Subtract from each row its own largest score first, as in `lens`"
            )
        expect(answer, _moved(x, 800.0, 0.5, causal), f"β = 800{', causal' if causal else ''}")


# ---- The sink ----


def _by_bayes(states: list[int], k: int, alpha: float) -> Array:
    """The best prediction, by counting."""
    after = [new for old, new in pairwise(states) if old == states[-1]]
    return (np.bincount(after, minlength=k) + alpha) / (len(after) + k * alpha)


def head_with_a_sink(lesson: ModuleType) -> None:
    for states, k, alpha in (([0, 1, 0, 1, 1, 2, 0, 1], 3, 0.5), ([2, 2, 0, 2, 2], 3, 2.0)):
        _one_prediction(lesson, states, k, alpha)
    rng = draws("head_with_a_sink")
    for k in (2, 5):
        states = rng.integers(0, k, int(rng.integers(20, 40))).tolist()
        _one_prediction(lesson, states, k, float(rng.uniform(0.1, 3)))
    for states, what in (([1], "where the chain begins"), ([0, 0, 1, 0, 3], "in a state that it has never left")):
        with np.errstate(all="ignore"):
            answer = _two(lesson.head_with_a_sink(list(states), 4, 0.5))
        if np.isnan(answer[0]).any() or math.isnan(answer[1]):
            raise Wrong(f"{what}, there is a NaN: no earlier step is seen, but the first token always is")
        expect(answer[1], 1.0, f"the weight of the first token {what}")
        expect(answer[0], [0.25] * 4, f"the prediction for 4 states {what}")
    for alpha in (1e-6, 1e5):
        _one_prediction(lesson, [0, 1, 0, 1, 0], 2, alpha)


def _two(answer: object) -> tuple[Array, float]:
    if answer is None:
        raise Wrong("your function returns None; is a `return` missing?")
    if not isinstance(answer, (tuple, list)) or len(answer) != 2 or np.shape(answer[1]) not in ((), (1,)):
        raise Wrong("two things are expected: the probabilities of the states, and the weight of the first token")
    return np.asarray(answer[0], dtype=float), float(np.reshape(answer[1], ()))


def _one_prediction(lesson: ModuleType, states: list[int], k: int, alpha: float) -> None:
    what = f"after {' '.join(map(str, states[-9:]))}, with k = {k} and α = {alpha:.3g}"
    after = [new for old, new in pairwise(states) if old == states[-1]]
    n, sink = len(after), k * alpha
    counts = np.bincount(after, minlength=k)
    n_now = states.count(states[-1])
    p, weight = _two(unchanged(lesson.head_with_a_sink, list(states), k, alpha))
    expect(
        weight,
        sink / (n + sink),
        f"the weight of the first token {what}",
        [
            (
                1 / (1 + n * math.exp(-sink)),
                "your score of the first token is kα, so it weighs e^(kα) times as much as a step; its score is ln(kα)",
            ),
            (
                alpha / (n + alpha),
                "your first token has the weight of a single state; it votes for all k, so it has kα",
            ),
            (k / (n + k), "α has no effect: the score of the first token is ln(kα), not ln k"),
            (1 / (1 + n), "your first token weighs no more than one step: its score is 0, and should be ln(kα)"),
            (
                sink / (n_now + sink),
                f"you count the places where the state is {states[-1]}, also the one now; nothing has come "
                "after that one yet. A step has a beginning and an end",
            ),
            (
                sink / (len(states) - 1 + sink),
                f"all {len(states) - 1} earlier steps are seen; only those from "
                f"{states[-1]}, the state now, tell what comes after it",
            ),
            (n / (n + sink), "this is the weight of the steps; the rest is that of the first token"),
            (sink, "this is no share: a softmax divides by the sum over all that is seen"),
        ],
    )
    expect(
        p,
        _by_bayes(states, k, alpha),
        f"the prediction {what}",
        [
            (
                counts / (n + sink),
                f"your numbers sum to {n / (n + sink):.2f}: the value of the first token is missing. It "
                "votes, too, for all states alike",
            ),
            (
                (counts + sink) / (n + sink),
                f"your numbers sum to {(n + k * sink) / (n + sink):.2f}: the first token gives "
                "each state a whole vote; it has one vote, and each state gets 1/k of it",
            ),
            (
                (n * np.eye(k)[states[-1]] + alpha) / (n + sink),
                "your steps vote for the state that they came from; what counts is where they led",
            ),
            (counts / n if n else np.zeros(k), "these are the counts alone; the first token votes, too"),
        ],
    )


def _rows_to_length_one(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=1, keepdims=True)
