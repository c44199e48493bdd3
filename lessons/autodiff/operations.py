"""What a program is made of: operations on arrays, each with the two rules by which derivatives pass it.

An operation y = f(x_1, x_2, ...) is linear near a point: a small change t_i of input i changes y by J_i t_i. The rule
`push` computes J_i t (forward mode), and `pull` computes J_i^T r, where r says how much the final result changes with y
(reverse mode). Neither builds the matrix J_i. (Lecture notes N0, equations 1.4, 1.5, 1.13 and 1.14.)

The rules are written with these operations themselves. So they can be differentiated again, which is all that a
second derivative needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

Value = Any  # a NumPy array or number, or a Traced value
Index = Any  # what NumPy takes between [ and ]


class Traced:
    """A value whose history matters: a Dual (dual.py) or a Node (tape.py). Operators are added at the end of this file.

    `level` tells nested derivatives apart: the innermost one has the highest level, and it acts first. Its method
    `follow` wraps the result of an operation in a record of where it comes from.
    """

    level: int
    value: Value
    __array_ufunc__ = None  # NumPy leaves `array * traced` to us

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(plain(self))


@dataclass(frozen=True)
class Operation:
    """`compute(*inputs)` on arrays, `push(i, tangent, result, *inputs)` and `pull(i, cotangent, result, *inputs)`."""

    compute: Callable[..., Any]
    push: Callable[..., Value]
    pull: Callable[..., Value]

    def __call__(self, *inputs: Value) -> Value:
        """The result. If an input is traced, the innermost derivative takes note of it."""
        traced = [x for x in inputs if isinstance(x, Traced)]
        if not traced:
            return self.compute(*inputs)
        innermost = max(traced, key=lambda x: x.level)
        values = [x.value if is_of_level(x, innermost.level) else x for x in inputs]
        return innermost.follow(self, self(*values), values, inputs)


def is_of_level(x: Value, level: int) -> bool:
    return isinstance(x, Traced) and x.level == level


def plain(x: Value) -> Any:
    """The array inside, without any record."""
    while isinstance(x, Traced):
        x = x.value
    return x


# ---- Operations on each number by itself ----


def elementwise(compute: Callable[..., Any], *slopes: Callable[..., Value]) -> Operation:
    """An operation whose Jacobians are diagonal: `slopes[i](result, *inputs)` is the derivative by input i."""

    def push(i: int, tangent: Value, result: Value, *inputs: Value) -> Value:
        return broadcast_to(multiply(slopes[i](result, *inputs), tangent), np.shape(plain(result)))

    def pull(i: int, cotangent: Value, result: Value, *inputs: Value) -> Value:
        return unbroadcast(multiply(slopes[i](result, *inputs), cotangent), np.shape(plain(inputs[i])))

    return Operation(compute, push, pull)


add = elementwise(np.add, lambda z, x, y: 1.0, lambda z, x, y: 1.0)
multiply = elementwise(np.multiply, lambda z, x, y: y, lambda z, x, y: x)
exp = elementwise(np.exp, lambda z, x: z)
log = elementwise(np.log, lambda z, x: power(x, -1.0))
sin = elementwise(np.sin, lambda z, x: cos(x))
cos = elementwise(np.cos, lambda z, x: -sin(x))
tanh = elementwise(np.tanh, lambda z, x: 1.0 - z * z)
relu = elementwise(lambda x: np.maximum(x, 0.0), lambda z, x: (plain(x) > 0).astype(float))


def power(x: Value, exponent: float) -> Value:
    if exponent == 0:  # a constant, where x is 0 too
        return np.ones(np.shape(plain(x)))
    return elementwise(lambda x: np.power(x, exponent), lambda z, x: exponent * power(x, exponent - 1))(x)


def where(mask: Any, x: Value, y: Value) -> Value:
    """x where the mask is true, y elsewhere. The mask is a constant: it has no derivative."""
    is_x = np.asarray(mask, float)
    return elementwise(lambda x, y: np.where(mask, x, y), lambda z, x, y: is_x, lambda z, x, y: 1.0 - is_x)(x, y)


# ---- Linear operations: a tangent passes like a value, a cotangent by the transposed map ----


def linear(compute: Callable[[Any], Any], transposed: Callable[[Value], Value], x: Value) -> Value:
    """y = J x for a fixed matrix J; `transposed` computes J^T r."""
    return Operation(compute, lambda i, t, *_: linear(compute, transposed, t), lambda i, r, *_: transposed(r))(x)


def sum_of(x: Value, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Value:
    """The sum over all axes or some. Backward, each term gets the cotangent of the sum."""
    shape = np.shape(plain(x))
    kept = np.sum(np.zeros(shape), axis, keepdims=True).shape
    return linear(lambda x: np.sum(x, axis, keepdims=keepdims), lambda r: broadcast_to(reshape(r, kept), shape), x)


def mean(x: Value, axis: int | None = None, keepdims: bool = False) -> Value:
    n_terms = np.size(plain(x)) if axis is None else np.shape(plain(x))[axis]
    return multiply(1.0 / n_terms, sum_of(x, axis, keepdims))


def broadcast_to(x: Value, shape: tuple[int, ...]) -> Value:
    """x repeated along new axes and along those of length 1."""
    old = np.shape(plain(x))
    if old == shape:
        return x
    return linear(lambda x: np.broadcast_to(x, shape), lambda r: unbroadcast(r, old), x)


def unbroadcast(x: Value, shape: tuple[int, ...]) -> Value:
    """The opposite: sums over the axes along which an array of this shape was repeated."""
    n_new = len(np.shape(plain(x))) - len(shape)
    x = sum_of(x, tuple(range(n_new))) if n_new else x
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and np.shape(plain(x))[i] != 1)
    return sum_of(x, repeated, keepdims=True) if repeated else x


def reshape(x: Value, shape: tuple[int, ...]) -> Value:
    old = np.shape(plain(x))
    return linear(lambda x: np.reshape(x, shape), lambda r: reshape(r, old), x)


def swap_axes(x: Value, first: int = -1, second: int = -2) -> Value:
    """Two axes exchanged; by default the last two, which transposes a matrix or each matrix of a batch."""
    return linear(lambda x: np.swapaxes(x, first, second), lambda r: swap_axes(r, first, second), x)


def take(x: Value, index: Index) -> Value:
    """x[index]: a part of x, or rows of a table, where one may be taken twice."""
    shape = np.shape(plain(x))
    return linear(lambda x: np.asarray(x)[index], lambda r: put(r, index, shape), x)


def put(x: Value, index: Index, shape: tuple[int, ...]) -> Value:
    """Zeros, to which x is added at `index`: the opposite of take."""

    def compute(x: Any) -> Any:
        result = np.zeros(shape)
        np.add.at(result, index, x)
        return result

    return linear(compute, lambda r: take(r, index), x)


def concatenate(parts: Sequence[Value], axis: int = -1) -> Value:
    """Arrays side by side. Each is put in its place among zeros, and all are added."""
    shapes = [np.shape(plain(part)) for part in parts]
    axis %= len(shapes[0])
    ends = np.cumsum([shape[axis] for shape in shapes])
    shape = (*shapes[0][:axis], int(ends[-1]), *shapes[0][axis + 1 :])
    places = [(slice(None),) * axis + (slice(end - s[axis], end),) for s, end in zip(shapes, ends, strict=True)]
    return reduce(add, [put(part, place, shape) for part, place in zip(parts, places, strict=True)])


def matmul(x: Value, y: Value) -> Value:
    """x @ y, linear in each of the two: matrices, batches of them, or vectors (a row left, a column right)."""
    if len(np.shape(plain(y))) == 1:
        return sum_of(matmul(x, reshape(y, (-1, 1))), -1)  # of one number each
    if len(np.shape(plain(x))) == 1:
        return sum_of(matmul(reshape(x, (1, -1)), y), -2)
    return product_of_matrices(x, y)


product_of_matrices = Operation(
    np.matmul,
    push=lambda i, t, z, x, y: matmul(t, y) if i == 0 else matmul(x, t),
    pull=lambda i, r, z, x, y: unbroadcast(
        matmul(r, swap_axes(y)) if i == 0 else matmul(swap_axes(x), r), np.shape(plain((x, y)[i]))
    ),
)


# ---- What is made of these ----


def log_softmax(x: Value) -> Value:
    """ln softmax over the last axis. The largest number is subtracted first, so that no exponential overflows."""
    shifted = x - np.max(plain(x), axis=-1, keepdims=True)
    return shifted - log(sum_of(exp(shifted), -1, keepdims=True))


def softmax(x: Value) -> Value:
    return exp(log_softmax(x))


Traced.__add__ = Traced.__radd__ = lambda x, y: add(x, y)
Traced.__mul__ = Traced.__rmul__ = lambda x, y: multiply(x, y)
Traced.__neg__ = lambda x: multiply(-1.0, x)
Traced.__sub__ = lambda x, y: add(x, multiply(-1.0, y))
Traced.__rsub__ = lambda x, y: add(y, multiply(-1.0, x))
Traced.__truediv__ = lambda x, y: multiply(x, power(y, -1.0))
Traced.__rtruediv__ = lambda x, y: multiply(y, power(x, -1.0))
Traced.__pow__, Traced.__getitem__, Traced.T = power, take, property(swap_axes)
Traced.__matmul__, Traced.__rmatmul__ = matmul, lambda x, y: matmul(y, x)
