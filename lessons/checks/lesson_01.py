"""Checks of lesson 1: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from autodiff.operations import sum_of, tanh
from autodiff.tape import gradient
from pellucid.course.checks import Wrong, expect


def push_product(lesson: ModuleType) -> None:
    x_twice = lesson.push_product(3.0, 1.0, 3.0, 1.0)
    expect(
        x_twice,
        6.0,
        "the tangent of x·x at 3",
        [
            (1.0, "x·x at 3: your tangent is 1, not 6: you multiply the two tangents, but where x grows by a little, "
                  "x·x grows by 3 times that on two sides"),
            (7.0, "x·x at 3: your tangent is 7, not 6: you also count the corner, where both changes meet; a tangent "
                  "is a rate, and the corner shrinks faster than the changes themselves"),
            (2.0, "x·x at 3: your tangent is 2, not 6: adding the tangents is right for a sum; in a product, a change "
                  "of x is multiplied by y"),
            (3.0, "x·x at 3: your tangent is 3, not 6: only one of the two factors moves; x·x has x twice"),
            (9.0, "x·x at 3: your tangent is 9, not 6: that is the value of the product, not how fast it grows"),
        ],
    )  # fmt: skip
    expect(
        lesson.push_product(2.0, 5.0, 7.0, 11.0),
        57.0,
        "x = 2 at rate 5, y = 7 at rate 11",
        [(87.0, "x = 2 at rate 5, y = 7 at rate 11: each rate goes with the *other* factor; you took its own")],
    )


def jacobian_from_jvps(lesson: ModuleType) -> None:
    J = np.arange(1.0, 7.0).reshape(2, 3) ** 2
    n_calls = 0

    def jvp(direction: np.ndarray) -> np.ndarray:
        nonlocal n_calls
        n_calls += 1
        if np.shape(direction) != (3,):
            raise Wrong(f"a direction has 3 numbers, one for each input; yours has the shape {np.shape(direction)}")
        return J @ np.asarray(direction, float)

    answer = lesson.jacobian_from_jvps(jvp, 3)
    if answer is not None and np.shape(answer) == (3, 2) and np.allclose(answer, J.T):
        raise Wrong("your Jacobian lies on its side: a pass gives how all outputs change with one input, a column, "
                    "and you laid it down as a row")  # fmt: skip
    if np.shape(answer) == (2,) and np.allclose(answer, J.sum(1)):
        raise Wrong("you went in the direction of all inputs at once: that is the sum of the columns, and nobody can "
                    "tell them apart again; go along one input at a time")  # fmt: skip
    expect(answer, J, "a Jacobian with 2 outputs and 3 inputs")
    if n_calls > 3:
        raise Wrong(f"the Jacobian is right, but you made {n_calls} passes; 3 inputs need 3")


def pull_product(lesson: ModuleType) -> None:
    answer = lesson.pull_product(2.0, 3.0, 5.0)
    if answer is not None and np.shape(answer) == ():
        raise Wrong("x and y get a share each: return a pair of numbers")
    expect(
        answer,
        (10.0, 6.0),
        "what x = 3 and y = 5 get, when x·y gets 2",
        [
            ((6.0, 10.0), "x = 3, y = 5, and x·y gets 2: you give x 6 and y 10, the other way round: if x grows by 1, "
                          "x·y grows by y"),
            ((5.0, 3.0), "you give x the slope 5 and y the slope 3, whatever the result got: it was blamed for 2, so "
                         "each is blamed for twice its slope"),
            ((2 / 3, 2 / 5), "x = 3, y = 5, and x·y gets 2: you divide the 2 by the factors, as if a cake were cut; "
                             "but if x grows by 1, x·y grows by 5, so x gets more than 2"),
            ((2.0, 2.0), "you hand the 2 on as it is: that is right for a sum; in a product, x counts y times"),
        ],
    )  # fmt: skip


def topological_order(lesson: ModuleType) -> None:
    x = lesson.Tensor(3.0)
    a, b = 2.0 * x, x * x
    c = a * b
    y = c + x
    everything = _all_below(y)
    order = lesson.topological_order(y)
    if order is None:
        raise Wrong("your function returns None; is a `return` missing?")
    ids = [id(tensor) for tensor in order]
    if len(set(ids)) < len(ids):
        raise Wrong(f"a graph of {len(everything)} tensors, some used twice: your list has {len(ids)} entries; each "
                    "tensor stands in it once, or it would pass on twice")  # fmt: skip
    if missing := set(everything) - set(ids):
        raise Wrong(f"{len(missing)} of {len(everything)} tensors are missing; also inputs belong to the order")
    place = {key: i for i, key in enumerate(ids)}
    if place[id(y)] == 0:
        raise Wrong("your list begins with the output: inputs come first; `backward` will walk from the end")
    for tensor in everything.values():
        if any(place[id(parent)] > place[id(tensor)] for parent, _ in tensor.parents):
            raise Wrong("a tensor stands before one of its own inputs: walking from the end, it would be reached after "
                        "that input had passed on, before all had arrived")  # fmt: skip
    deep = x
    for _ in range(200):
        deep = deep + 1.0
    if (n := len(lesson.topological_order(deep))) != 401:
        raise Wrong(f"a chain of 200 sums has 401 tensors: the results, the ones that are added, and x; you have {n}; "
                    "tensors of equal value are not the same tensor")  # fmt: skip
    doubled = x
    looks: list[int] = []
    for _ in range(12):
        doubled = _plus(lesson, doubled, doubled)
        doubled.parents = _Counted(doubled.parents, looks)
    lesson.topological_order(doubled)
    if len(looks) > 200:
        raise Wrong(f"12 tensors, each twice the one before: the order is right, but you looked {len(looks):,} times "
                    "for the inputs of a tensor; go down from each tensor once, not each time you meet it")  # fmt: skip


class _Counted(list):
    """Parents that note each time somebody goes through them."""

    def __init__(self, parents, looks):
        super().__init__(parents)
        self.looks = looks

    def __iter__(self):
        self.looks.append(1)
        return super().__iter__()


def _all_below(output):
    found, left = {}, [output]
    while left:
        tensor = left.pop()
        if id(tensor) not in found:
            found[id(tensor)] = tensor
            left += [parent for parent, _ in tensor.parents]
    return found


def _plus(lesson, a, b):
    """A sum on the student's tape, without the functions that are written later."""
    return lesson.Tensor(a.value + b.value, [(a, lambda r: r), (b, lambda r: r)])


def _times(lesson, a, b):
    return lesson.Tensor(a.value * b.value, [(a, lambda r: r * b.value), (b, lambda r: r * a.value)])


def backward(lesson: ModuleType) -> None:
    x = lesson.Tensor(3.0)
    lesson.backward(_plus(lesson, x, x**2))
    expect(
        x.gradient,
        7.0,
        "x + x² at 3",
        [
            (6.0, "x + x² at 3: you have 6, not 7: x is used twice, and the second share must not replace the first"),
            (1.0, "x + x² at 3: you have 1, not 7: the share through x² is missing: x² passed on before it had got "
                  "anything; the walk begins at the end of the order"),
            (66.0, "x + x² at 3: you have 66, not 7: you pulled the *values* of the results; what is passed down is "
                   "their gradient"),
            (0.0, "x + x² at 3: you have 0, not 7: the walk has to begin with a 1 at the output"),
        ],
    )  # fmt: skip
    x = lesson.Tensor(np.array([2.0, 1.0]))
    u = _times(lesson, x, x)
    y = _plus(lesson, u, _times(lesson, u, u))
    lesson.backward(y)
    if np.shape(x.gradient) == (2,) and x.gradient[0] not in (36.0, np.nan):
        raise Wrong(f"u = x·x and f = u + u·u at 2: you have {x.gradient[0]:g}, not 36: u is used three times, and may "
                    "pass on only when all three shares have arrived")  # fmt: skip
    expect(x.gradient, [36.0, 6.0], "u = x·x and f = u + u·u at 2 and 1")
    expect(y.gradient, [1.0, 1.0], "what the output itself gets (an array of two ones, if it has two numbers)")
    lesson.backward(y)
    if np.shape(x.gradient) == (2,) and x.gradient[0] > 36.0:
        raise Wrong(f"the same walk a second time gives {x.gradient[0]:g}, not 36 again: the gradients of the first "
                    "are still there; set them to 0")  # fmt: skip
    expect(x.gradient, [36.0, 6.0], "the same walk once more")


def unbroadcast(lesson: ModuleType) -> None:
    r = np.arange(24.0).reshape(2, 3, 4)
    bias = lesson.unbroadcast(r, (4,))
    if np.shape(bias) == (3, 4):
        raise Wrong("a bias (4,) was added to an array (2, 3, 4): NumPy put *two* axes in front of it, and you undid "
                    "one; how many are new follows from both shapes")  # fmt: skip
    expect(
        bias,
        r.sum((0, 1)),
        "the cotangent of a bias (4,) that was added to an array (2, 3, 4)",
        [
            (r.mean((0, 1)), "a bias that is used 6 times: you take the mean of what it gets, but all 6 shares count"),
            (r[0, 0], "a bias that is used 6 times: you hand it the share of its first use alone"),
        ],
    )
    kept = lesson.unbroadcast(r[0], (3, 1))
    if np.shape(kept) == (3, 4):
        raise Wrong("an array (3, 1) gets a cotangent (3, 4): no axis is new here, but its axis of length 1 was used "
                    "four times; all four shares count")  # fmt: skip
    if kept is not None and np.shape(kept) == (3,):
        raise Wrong("an array (3, 1) gets a cotangent (3,): its axis of length 1 is gone; keep it")
    expect(kept, r[0].sum(1, keepdims=True), "the cotangent of an array (3, 1) that was repeated to (3, 4)")
    both = lesson.unbroadcast(r, (3, 1))
    expect(both, r.sum((0, 2)).reshape(3, 1), "the cotangent of an array (3, 1) that was repeated to (2, 3, 4)")
    expect(lesson.unbroadcast(r, (2, 3, 4)), r, "an array that was not repeated at all")
    expect(lesson.unbroadcast(r, ()), 276.0, "the cotangent of a single number that was added to all 24")


def pull_matmul(lesson: ModuleType) -> None:
    random = np.random.default_rng(0)
    r, x, y = random.normal(size=(3, 3, 3))  # square, so that each product has the right shape
    answer = lesson.pull_matmul(r, x, y)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("return a pair: what x gets, and what y gets")
    turned = "{0} gets the right numbers, but lying on their side: a cotangent has the shape of its value"
    elementwise = "you multiply number by number, but each number of x is used in a whole row of the product"
    expect(
        answer[0],
        r @ y.T,
        "what x gets, if all matrices are 3 by 3",
        [(r @ y, "x gets the product with y, not with y transposed; which index of y does the sum run over?"),
         (y.T @ r, "what x gets: the two matrices are multiplied in the wrong order"),
         (y @ r, "what x gets: the sum runs over the *second* index of R, so R stands in front"),
         (y @ r.T, turned.format("x")),
         (r * y, elementwise)],
    )  # fmt: skip
    expect(
        answer[1],
        x.T @ r,
        "what y gets, if all matrices are 3 by 3",
        [(r @ x.T, "what y gets: the two matrices are multiplied in the wrong order"),
         (x @ r, "what y gets: the sum must run over the rows of x, so x has to be transposed"),
         (r.T @ x, turned.format("y")),
         (r * x, elementwise)],
    )  # fmt: skip
    r, x, y = random.normal(size=(2, 4)), random.normal(size=(2, 3)), random.normal(size=(3, 4))
    for found, name, right in zip(lesson.pull_matmul(r, x, y), "xy", (r @ y.T, x.T @ r), strict=True):
        expect(found, right, f"what {name} gets, if x is 2 by 3 and y is 3 by 4")
    batch = random.normal(size=(5, 2, 4)), random.normal(size=(5, 2, 3)), random.normal(size=(5, 3, 4))
    try:
        found = lesson.pull_matmul(*batch)
    except ValueError:
        raise Wrong("a batch of products: `.T` turns *all* axes round; only the last two are the matrix") from None
    expect(found[0], batch[0] @ batch[2].swapaxes(1, 2), "what x gets, in a batch of five products")
    expect(found[1], batch[1].swapaxes(1, 2) @ batch[0], "what y gets, in a batch of five products")


def gradient_with_checkpoints(lesson: ModuleType) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 3))
    mixing = random.normal(size=(16, 3, 3))  # so that the layers cannot change places
    layers = [lambda t, M=M: lesson.tanh(t @ M) for M in mixing]

    def by_the_tape(start: np.ndarray, which: range, cotangent: np.ndarray | float = 1.0) -> np.ndarray:
        def run(value):
            for i in which:
                value = tanh(value @ mixing[i])
            return sum_of(value * cotangent)

        return gradient(run, start)

    segments = [range(4), range(4, 8), range(8, 12), range(12, 16)]
    starts = [x]
    for segment in segments[:-1]:
        value = starts[-1]
        for i in segment:
            value = np.tanh(value @ mixing[i])
        starts.append(value)
    from_the_first: np.ndarray | float = 1.0
    for start, segment in zip(starts, segments, strict=True):
        from_the_first = by_the_tape(start, segment, from_the_first)
    answer = lesson.gradient_with_checkpoints(layers, x, 4)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("return a pair: the gradient, and how many tensors were alive at most")
    expect(
        answer[0],
        by_the_tape(x, range(16)),
        "the gradient of 16 layers in 4 segments",
        [
            (by_the_tape(starts[-1], segments[-1]), "your gradient is that of the last segment alone: each segment "
                                                    "hands its start's gradient on to the segment before it"),
            (by_the_tape(x, segments[0]), "your gradient is that of the first segment alone: it must begin with what "
                                          "the segments after it have found, not with 1"),
            (from_the_first, "you walk from the first segment to the last; as on any tape, the walk back begins at "
                             "the output, so the last segment comes first"),
        ],
    )  # fmt: skip
    whole = lesson.gradient_with_checkpoints(layers, x, 1)[1]
    if answer[1] > 0.5 * whole:
        raise Wrong(f"with 4 segments {answer[1]} tensors are alive at most, with one {whole}: is an old tape still "
                    "held, or did you keep every layer's value?")  # fmt: skip
    of_one_tape = 1 + 4 * 3  # the start; of each layer its matrix, the product and the tanh
    if answer[1] <= of_one_tape:
        raise Wrong(f"you count {answer[1]} alive at most, but the tape of four layers has {of_one_tape} tensors, and "
                    "the starts of the segments are kept as well")  # fmt: skip
    expect(lesson.gradient_with_checkpoints(layers[:7], x, 3)[0], by_the_tape(x, range(7)), "7 layers in 3 segments")
    twice = [lambda t: t * t + t, lambda t: t * t]
    expect(lesson.gradient_with_checkpoints(twice, x, 2)[0],
           gradient(lambda v: sum_of((v * v + v) ** 2), x), "layers that use their input twice")  # fmt: skip
