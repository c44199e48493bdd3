"""Checks of lesson 1: each has the name of its exercise, and answers with a sentence.

What is kept is counted by weak references (autodiff/alive.py), and nobody is asked.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from autodiff.alive import counted
from autodiff.operations import sum_of, tanh
from autodiff.tape import gradient
from autodiff.tape import topological_order as our_order
from pellucid.course.checks import Wrong, draws, expect, unchanged


def our_backward(output: Any) -> None:
    order = our_order(output)
    for tensor in order:
        tensor.gradient = np.zeros(np.shape(tensor.value))
    output.gradient = np.ones(np.shape(output.value))
    while order:
        tensor = order.pop()
        for parent, pull in tensor.parents:
            parent.gradient = parent.gradient + pull(tensor.gradient)


def our_unbroadcast(cotangent: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    padded = (1,) * (np.ndim(cotangent) - len(shape)) + tuple(shape)
    repeated = tuple(i for i, n in enumerate(padded) if n == 1)
    return np.sum(cotangent, repeated, keepdims=True).reshape(shape)


def our_pull_matmul(r: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return r @ y.swapaxes(-1, -2), x.swapaxes(-1, -2) @ r


def pair_of(answer: Any, what: str) -> tuple[Any, Any]:
    if answer is None:
        raise Wrong(f"{what}: your function returns None; is a `return` missing?")
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong(f"{what}: return a pair: what x gets, and what y gets")
    return answer[0], answer[1]


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
    zero = "x = 0 at rate 2, y = 5 at rate 3"
    try:
        answer = lesson.push_product(0.0, 2.0, 5.0, 3.0)
    except ZeroDivisionError:
        raise Wrong(f"{zero}: your function divides by a factor, which may be 0; no division is needed") from None
    expect(answer, 10.0, zero)
    for x, x_tangent, y, y_tangent in draws("push_product").normal(size=(3, 4)).tolist():
        what = f"x = {x:.3g} at rate {x_tangent:.3g}, y = {y:.3g} at rate {y_tangent:.3g}"
        expect(lesson.push_product(x, x_tangent, y, y_tangent), x_tangent * y + x * y_tangent, what, tolerance=1e-12)


def jacobian_from_jvps(lesson: ModuleType) -> None:
    J = np.arange(1.0, 7.0).reshape(2, 3) ** 2
    n_calls = 0

    def jvp(direction: np.ndarray) -> np.ndarray:
        nonlocal n_calls
        n_calls += 1
        if np.shape(direction) != (3,):
            raise Wrong(f"a direction has 3 numbers, one for each input; yours has the shape {np.shape(direction)}")
        return J @ np.asarray(direction, float)

    try:
        answer = lesson.jacobian_from_jvps(jvp, 3)
    except (ValueError, IndexError):
        raise Wrong("a Jacobian with 2 outputs and 3 inputs: your numbers do not fit into your array; it has a row for "
                    "each output, and how many these are, the first call of `jvp` tells") from None  # fmt: skip
    if isinstance(answer, list):
        raise Wrong("you return a list; make an array of it, so that one can multiply by it")
    if answer is not None and np.shape(answer) == (3, 2) and np.allclose(answer, J.T):
        raise Wrong("your Jacobian lies on its side: a pass gives how all outputs change with one input, a column, "
                    "and you laid it down as a row")  # fmt: skip
    if np.shape(answer) == (2,) and np.allclose(answer, J.sum(1)):
        raise Wrong("you went in the direction of all inputs at once: that is the sum of the columns, and nobody can "
                    "tell them apart again; go along one input at a time")  # fmt: skip
    expect(answer, J, "a Jacobian with 2 outputs and 3 inputs")
    if n_calls > 3:
        raise Wrong(f"the Jacobian is right, but you made {n_calls} passes; 3 inputs need 3")
    random = draws("jacobian_from_jvps")
    for n_outputs, n_inputs in ((1, 4), (5, 1), (3, 3), (7, 2)):
        J = random.normal(size=(n_outputs, n_inputs))
        what = f"a Jacobian of shape ({n_outputs}, {n_inputs})"
        try:
            answer = lesson.jacobian_from_jvps(lambda v, J=J: J @ np.asarray(v, float), n_inputs)
        except (ValueError, IndexError):
            raise Wrong(f"{what}: your numbers do not fit into your array; how many outputs there are, the first call "
                        "of `jvp` tells") from None  # fmt: skip
        on_its_side = f"{what}: it lies on its side; a pass gives a column, how all outputs change with one input"
        expect(answer, J, what, [(J.T, on_its_side)])
    expect(
        lesson.jacobian_from_jvps(lambda v: v, 3),
        np.eye(3),
        "the Jacobian of f(x) = x, whose `jvp` hands back the very array that it gets; if yours writes the next "
        "direction into the same array, the columns that it has kept change too",
    )


def pull_product(lesson: ModuleType) -> None:
    _pull_product_of_numbers(lesson)
    zero = "x = 0, y = 5, and x·y gets 2"
    try:
        answer = lesson.pull_product(2.0, 0.0, 5.0)
    except ZeroDivisionError:
        raise Wrong(f"{zero}: your function divides by a factor, which may be 0; no division is needed") from None
    expect(answer, (10.0, 0.0), zero, [((0.0, 0.0), f"{zero}: the product is 0, but it would not stay 0 if x grew: x "
                                                    "gets 10")])  # fmt: skip
    r, x, y = draws("pull_product").normal(size=(3, 2, 4))
    what = "the tape calls your function with arrays too (here of shape (2, 4))"
    given = r.copy(), x.copy(), y.copy()
    try:
        for_x, for_y = pair_of(lesson.pull_product(*given), what)
    except (TypeError, ValueError):
        raise Wrong(f"{what}, but yours takes single numbers alone; `*` takes both") from None
    expect(for_x, r * y, f"{what}: what x gets")
    expect(for_y, r * x, f"{what}: what y gets")
    if not all(map(np.array_equal, given, (r, x, y))):
        raise Wrong(f"{what}: you write into an array that you get; the tape still needs it: make a new one")


def _pull_product_of_numbers(lesson: ModuleType) -> None:
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
    limit = sys.getrecursionlimit()
    _order_of_few(lesson)
    random = draws("topological_order")
    for n in (1, 12, 40):
        tensors = [lesson.Tensor(0.0)]
        for _ in range(n - 1):  # from the newest, from others that were made before it, and from one that is new
            parents = [tensors[-1], *(tensors[i] for i in random.integers(len(tensors), size=2)), lesson.Tensor(0.0)]
            tensors.append(lesson.Tensor(0.0, [(parent, lambda r: r) for parent in parents]))
        _expect_order(lesson.topological_order(tensors[-1]), tensors[-1])
    deep = "a chain of 2,000 sums"
    gc.disable()
    try:
        with counted(lesson.Tensor) as alive:
            chain = lesson.Tensor(0.0)
            for _ in range(2000):
                chain = lesson.Tensor(0.0, [(chain, lambda r: r)])
            order = lesson.topological_order(chain)
            if len(order) != 2001:
                raise Wrong(f"{deep} has 2,001 tensors; your list has {len(order)}")
            del order, chain
            left = alive.now
    except RecursionError:
        raise Wrong(f"{deep}: your function calls itself for each of them, and Python stops at about 1,000 calls that "
                    "wait for each other; let a list hold what waits, and a loop take from its end"
                    ) from None  # fmt: skip
    finally:
        gc.enable()
        sys.setrecursionlimit(limit)
    if left:
        raise Wrong(f"{deep}: the order is right, but when nobody needs it any more, {left:,} tensors are still in "
                    "memory: something of yours holds them, such as a list outside of the function, or a function "
                    "inside it that calls itself: it holds itself, and with itself your list")  # fmt: skip


def _expect_order(order: Any, output: Any) -> None:
    """All tensors once, each after its inputs."""
    if order is None:
        raise Wrong("your function returns None; is a `return` missing?")
    everything = _all_below(output)
    place = {id(tensor): i for i, tensor in enumerate(order)}
    if len(place) == len(order) < len(everything):
        raise Wrong(f"a graph of {len(everything)} tensors, most of them computed from four: your list has "
                    f"{len(order)}; a tensor may have any number of parents, and all belong to the order")  # fmt: skip
    if len(place) < len(order) or place.keys() != everything.keys():
        raise Wrong(f"a graph of {len(everything)} tensors: your list has {len(order)}, {len(place)} different ones; "
                    "each tensor stands in it once")  # fmt: skip
    for tensor in everything.values():
        if any(place[id(parent)] > place[id(tensor)] for parent, _ in tensor.parents):
            raise Wrong(f"a graph of {len(everything)} tensors drawn by chance: a tensor stands before one of its own "
                        "inputs; walking from the end, it would be reached after that input had passed on")  # fmt: skip


def _order_of_few(lesson: ModuleType) -> None:
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
    if len(lesson.topological_order(y)) != len(ids):
        raise Wrong("asked for the order of the same graph again, you give another: you left marks on the tensors, or "
                    "took the graph apart; keep what you need in a list or a set of this call")  # fmt: skip
    deep = x
    for _ in range(200):
        deep = deep + 1.0
    if (n := len(lesson.topological_order(deep))) != 401:
        raise Wrong(f"a chain of 200 sums has 401 tensors: the results, the ones that are added, and x; you have {n}; "
                    "tensors of equal value are not the same tensor")  # fmt: skip
    shared = np.array(1.0)
    if (n := len(lesson.topological_order(_plus(lesson, lesson.Tensor(shared), lesson.Tensor(shared))))) != 3:
        raise Wrong(f"a sum of two tensors that were made of one array has 3 tensors, you have {n}; look for the "
                    "tensor itself among those that you have seen, not for its array")  # fmt: skip
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
    _walk_few(lesson)
    _walk_again(lesson)
    _walk_many(lesson)


def _walk_again(lesson: ModuleType) -> None:
    """The graph is still there, and a part of it may be walked; numbers that are shared stay what they are."""
    random = draws("backward")
    start = random.normal(size=(2, 3))
    x = lesson.Tensor(start)
    u = _times(lesson, x, x)
    y = _plus(lesson, _plus(lesson, u, u), x)  # 2x² + x, whose sums hand the same array to both inputs
    for _ in range(2):
        lesson.backward(y)
        expect(y.gradient, np.ones((2, 3)), "2x² + x: what the output itself gets",
               [(np.full((2, 3), n), "2x² + x: the output got 1, but later its array has changed: a sum hands the same "
                 "array to both inputs, and `+=` writes into it; make a new one with `a = a + b`")
                for n in (2.0, 3.0)])  # fmt: skip
        expect(x.gradient, 4 * start + 1, "2x² + x, at six numbers drawn by chance")
        x.gradient = np.full((2, 3), 100.0)
        if not y.parents:
            raise Wrong("after your walk the graph is gone: leave `parents` as they are, so that one may walk again")
    u.gradient = np.full((2, 3), np.nan)
    lesson.backward(y)
    if np.isnan(x.gradient).any():
        raise Wrong("NaN was left over from a walk that had gone wrong, and your new one still has it: NaN times 0 is "
                    "NaN; put new zeros in its place")  # fmt: skip
    expect(u.gradient, np.full((2, 3), 2.0), "2x² + x: what u = x² gets, which was computed and is no input",
           [(np.zeros((2, 3)), "2x² + x: u = x² was computed and is no input, but it keeps its gradient too: *every* "
                               "tensor below the output has one after the walk")])  # fmt: skip
    lesson.backward(u)
    expect(x.gradient, 2 * start, "a walk that begins at u = x² alone, after one that began at the result")
    lesson.backward(x)
    expect(x.gradient, np.ones((2, 3)), "a walk that begins and ends at x, since nothing was computed: what x gets",
           [(2 * start, "a walk that begins and ends at x: x still has what an earlier walk gave it, but now it is the "
                        "output, and gets 1")])  # fmt: skip
    small, large = lesson.Tensor(1e-15), lesson.Tensor(1e15)
    z = lesson.Tensor(2.0)
    lesson.backward(_times(lesson, _times(lesson, z, large), small))
    expect(z.gradient, 1.0, "(z · 10¹⁵) · 10⁻¹⁵: what z gets, through a share that is tiny on its way", tolerance=1e-12)


def _walk_many(lesson: ModuleType) -> None:
    pulls = 0

    def pull(r: Any) -> Any:
        nonlocal pulls
        pulls += 1
        if pulls > 500:
            raise Wrong("40 tensors, each twice the one before, have 80 shares to pass on, and you have already passed "
                        "on 500: you follow each *way* from the output down by itself, and there are 2⁴⁰; let a tensor "
                        "wait until all its shares have arrived, and pass on their sum")  # fmt: skip
        return r

    first = last = lesson.Tensor(1.0)
    for _ in range(40):
        last = lesson.Tensor(0.0, [(last, pull), (last, pull)])
    lesson.backward(last)
    expect(first.gradient, 2.0**40, "a number that is doubled 40 times")
    first = last = lesson.Tensor(1.0)
    for _ in range(3000):
        last = lesson.Tensor(0.0, [(last, lambda r: r)])
    try:
        lesson.backward(last)
    except RecursionError:
        raise Wrong("a chain of 3,000 tensors: your function calls itself for each of them, and Python stops at about "
                    "1,000; a loop over the order needs no such call") from None  # fmt: skip
    expect(first.gradient, 1.0, "a chain of 3,000 tensors")


def _walk_few(lesson: ModuleType) -> None:
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
    if np.shape(y.gradient) == (2,) and y.gradient[0] > 1.0:
        raise Wrong(f"u = x·x and f = u + u·u: the output got 1, but later its array says {y.gradient[0]:g}: a sum "
                    "hands the same array to both inputs, and `+=` writes into it; make a new one with `a = a + b`"
                    )  # fmt: skip
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
    for is_first in (True, False):  # an input that was not computed stands anywhere in the order
        x, z = lesson.Tensor(3.0), lesson.Tensor(2.0)
        square = _times(lesson, x, x)
        lesson.backward(_plus(lesson, z, square) if is_first else _plus(lesson, square, z))
        expect(
            (x.gradient, z.gradient),
            (6.0, 1.0),
            "x² + z at x = 3: what x and z get",
            [((0.0, 1.0), "x² + z at x = 3: x gets nothing: you stopped at z, which was not computed; the walk goes on "
                          "to the last tensor of the order")],
        )  # fmt: skip


def unbroadcast(lesson: ModuleType) -> None:
    r = np.arange(24.0).reshape(2, 3, 4)
    try:
        bias = lesson.unbroadcast(r, (4,))
    except (ValueError, IndexError):
        raise Wrong("a bias (4,) was added to an array (2, 3, 4), and your axes do not fit: shapes are written below "
                    "each other aligned at the *right*, so what is new stands in front") from None  # fmt: skip
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
    random = draws("unbroadcast")
    for small, large in (((3,), (3, 3)), ((3, 1), (3, 3)), ((1, 3), (3, 3)), ((1, 3, 1), (2, 4, 3, 5)), ((1,), (1, 4)),
                         ((1, 1), (4, 3)), ((5,), (2, 3, 4, 5)), ((), (2, 2, 2, 2)), ((2, 1), (2, 1)), ((1, 4), (0, 4)),
                         ((4, 1, 4, 1), (4, 4, 4, 4))):  # fmt: skip
        r = random.normal(size=large)
        what = f"the cotangent of an array {_tuple(small)} that was repeated to {_tuple(large)}"
        try:
            answer = lesson.unbroadcast(r.copy(), small)
        except (ValueError, IndexError):
            raise Wrong(f"{what}: your axes do not fit; count the new ones first (both shapes tell), then look for "
                        "axes of length 1 among the rest") from None  # fmt: skip
        if np.shape(answer) == small:
            first = f"{what}: what was new stands in *front*, also where both axes are equally long"
            others = [(r.sum(1), first)] if (small, large) == ((3,), (3, 3)) else []
            expect(answer, our_unbroadcast(r, small), what, others)
        raise_other_shape(answer, small, what)


def _tuple(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def raise_other_shape(answer: Any, shape: tuple[int, ...], what: str) -> None:
    if answer is None:
        raise Wrong(f"{what}: your function returns None; is a `return` missing?")
    if np.shape(answer) != shape:
        raise Wrong(f"{what}: you have the shape {_tuple(np.shape(answer))}")


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
    random = draws("pull_matmul")
    for axes, (n, k, m) in (((2, 3), (2, 4, 3)), ((2, 1, 3), (1, 5, 2)), ((4,), (4, 4, 4)), ((1,), (2, 3, 1)),
                            ((), (1, 1, 6)), ((3, 2), (3, 3, 3)), ((0,), (2, 3, 4))):  # fmt: skip
        r, x, y = (random.normal(size=(*axes, *shape)) for shape in ((n, m), (n, k), (k, m)))
        what = f"x {_tuple(x.shape)} times y {_tuple(y.shape)}"
        try:
            answer = lesson.pull_matmul(r.copy(), x.copy(), y.copy())
        except (ValueError, IndexError):
            raise Wrong(f"{what}: your function takes no products with {len(axes)} axes in front; attention in lesson "
                        "9 has two, one for the texts and one for the heads. Exchange the *last* two axes, however "
                        "many there are before them") from None  # fmt: skip
        for found, name, right in zip(pair_of(answer, what), "xy", our_pull_matmul(r, x, y), strict=True):
            expect(found, right, f"{what}: what {name} gets", tolerance=1e-12)
    for x_shape, y_shape in (((4, 3), (2, 5, 3, 2)), ((2, 5, 4, 3), (3, 2)), ((5, 1, 2, 3), (4, 3, 2))):
        x, y = lesson.Tensor(random.normal(size=x_shape)), lesson.Tensor(random.normal(size=y_shape))
        what = f"on the tape, x {_tuple(x_shape)} times y {_tuple(y_shape)}"
        product = x @ y
        weights = random.normal(size=product.shape)
        try:
            our_backward((product * weights).sum())
        except ValueError:
            raise Wrong(f"{what}: one of the two has fewer axes in front, and serves several products; `@` repeats "
                        "it by itself, a loop over both batches does not") from None  # fmt: skip
        for_x = gradient(lambda v, y=y, weights=weights: sum_of(v @ y.value * weights), x.value)
        for_y = gradient(lambda v, x=x, weights=weights: sum_of(x.value @ v * weights), y.value)
        expect(x.gradient, for_x, f"{what}: what x gets from all products")
        expect(y.gradient, for_y, f"{what}: what y gets from all products")


def gradient_with_checkpoints(lesson: ModuleType) -> None:
    _gradient_of_segments(lesson)
    _what_is_kept(lesson)


def _gradient_of_segments(lesson: ModuleType) -> None:
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
    expect(
        unchanged(lesson.gradient_with_checkpoints, layers, x, 4),
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
    random = draws("gradient_with_checkpoints")
    for n_layers, n_segments in ((7, 3), (7, 7), (5, 1), (10, 4)):
        widths = random.integers(1, 6, size=n_layers + 1)
        weights = [random.normal(size=(a, b)) for a, b in pairwise(widths)]
        layers = [lambda t, M=M: lesson.tanh(t @ M) for M in weights]
        x = random.normal(size=(2, widths[0]))

        def whole(value: Any, weights: Sequence[np.ndarray] = weights) -> Any:
            for M in weights:
                value = tanh(value @ M)
            return sum_of(value)

        what = f"{n_layers} layers, of {', '.join(map(str, widths))} numbers, in {n_segments} segments"
        try:
            answer = lesson.gradient_with_checkpoints(layers, x, n_segments)
        except ValueError:
            raise Wrong(f"{what}: shapes do not fit. The layers may change the shape, so what comes out at the end "
                        "need not have that of x; and each layer belongs to one segment, also if the division leaves a "
                        "rest") from None  # fmt: skip
        expect(answer, gradient(whole, x), what)
    twice = [lambda t: t * t + t, lambda t: t * t]
    x = random.normal(size=3)
    expect(lesson.gradient_with_checkpoints(twice, x, 2),
           gradient(lambda v: sum_of((v * v + v) ** 2), x), "layers that use their input twice")  # fmt: skip


def _what_is_kept(lesson: ModuleType) -> None:
    """64 layers: tensors that really live, bytes that are really kept, and how often a layer is computed."""
    n_layers, size = 64, 2000
    n_calls = 0

    def layer(t: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        return lesson.tanh(t * 1.1)

    x = draws("gradient_with_checkpoints").normal(size=size)
    for n_segments in (8, 16):
        n_calls = 0
        of_one_tape = 1 + 3 * n_layers // n_segments  # the start; of each layer 1.1, the product and the tanh
        what = f"{n_layers} layers in {n_segments} segments"
        with counted(lesson.Tensor) as alive:
            answer = lesson.gradient_with_checkpoints([layer] * n_layers, x, n_segments)
            left = alive.now
        if n_calls > 2 * n_layers:
            raise Wrong(f"{what}: you computed a layer {n_calls} times; {2 * n_layers} are enough: once to find the "
                        "starts, which are kept, and once on the tape of its segment")  # fmt: skip
        if alive.most > 1.5 * of_one_tape + 6:
            of_all = 1 + 3 * n_layers
            behind = "all layers hang on one tape that is never cut" if alive.most >= of_all else "an old tape is held"
            raise Wrong(f"{what}: the tape of one segment has {of_one_tape} tensors, but {alive.most} were alive at "
                        f"the same time (counted by weak references), so {behind}. A tensor holds all that it was "
                        "computed from: keep plain arrays (`.value`), no tensors, for each start")  # fmt: skip
        if left:
            raise Wrong(
                f"{what}: your function has returned, and {left} of its tensors are still alive: who holds them?"
            )
        arrays = alive.most_bytes / (8 * size)
        allowed = n_segments + 2 * of_one_tape * 2 / 3 + 14  # each tensor but 1.1 has a value and a gradient
        if arrays > 1.25 * allowed:
            raise Wrong(f"{what}: only {alive.most} tensors were alive, but {arrays:.0f} arrays of the size of x, "
                        f"where about {allowed:.0f} are enough: do you keep the value of every layer? Keep "
                        f"{n_segments}, one for the start of each segment")  # fmt: skip
        del answer
