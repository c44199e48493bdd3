"""Lesson 1: automatic differentiation. Write what is missing, then run `pellucid learn 1`.

At the end of this file stands a small tape, which calls your functions. Lessons 7 and 10 train networks on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray

# ---- Forward: a value and its tangent ----


def push_product(x: float, x_tangent: float, y: float, y_tangent: float) -> float:
    """The tangent of x·y, when x changes at the rate x_tangent and y at the rate y_tangent."""
    # solution:
    return x_tangent * y + x * y_tangent
    # end


def jacobian_from_jvps(jvp: Callable[[Array], Array], n_inputs: int) -> Array:
    """The Jacobian (m, n) of a function with n inputs and m outputs.

    `jvp(v)` computes J v for a direction v of n numbers. Call it as few times as you can.
    """
    # solution:
    return np.stack([jvp(direction) for direction in np.eye(n_inputs)], axis=1)
    # end


# ---- Reverse: who is to blame, and how much ----


def pull_product(cotangent: Array | float, x: Array | float, y: Array | float) -> tuple[Array | float, Array | float]:
    """What x and what y get, when the result of x·y gets `cotangent`.

    Numbers here; the tape below also calls it with arrays of one shape, and each number of them is a product.
    """
    # solution:
    return cotangent * y, x * cotangent
    # end


def topological_order(output: Tensor) -> list[Tensor]:
    """All tensors that the output was computed from, and the output: each once, inputs before results.

    `tensor.parents` is a list of pairs (input, pull), empty for a tensor that was not computed. There may be 2,000 in a
    row: too many for a function that calls itself.
    """
    # solution:
    order: list[Tensor] = []
    seen: set[int] = set()
    to_do = [(output, False)]
    while to_do:
        tensor, inputs_are_done = to_do.pop()
        if inputs_are_done:
            order.append(tensor)
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            to_do.append((tensor, True))
            to_do += [(parent, False) for parent, _ in tensor.parents]
    return order
    # end


def backward(output: Tensor) -> None:
    """Give every tensor below the output its `gradient`, the derivative of the output by it.

    `pull(gradient of the result)` is what one input gets. The output itself gets 1 (in its shape). Gradients left over
    from an earlier walk must not count. The graph stays as it is, so one may walk again.
    """
    # solution:
    order = topological_order(output)
    for tensor in order:
        tensor.gradient = np.zeros(np.shape(tensor.value))
    output.gradient = np.ones(np.shape(output.value))
    for tensor in reversed(order):
        for parent, pull in tensor.parents:
            parent.gradient = parent.gradient + pull(tensor.gradient)
    # end


def unbroadcast(cotangent: Array, shape: tuple[int, ...]) -> Array:
    """The cotangent of an array of this shape that NumPy had repeated to the shape of `cotangent`.

    NumPy adds new axes in front, and repeats axes of length 1.
    """
    # solution:
    n_new = cotangent.ndim - len(shape)
    cotangent = cotangent.sum(axis=tuple(range(n_new)))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1)
    return cotangent.sum(axis=repeated, keepdims=True)
    # end


def pull_matmul(cotangent: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """What the matrices x (n, k) and y (k, m) get, when x @ y gets `cotangent` (n, m).

    There may be more axes in front: batches of products, whose last two axes are the matrices. If x has fewer of them
    than y, `@` takes it several times; leave the sum over these uses to `unbroadcast`, which the tape calls.
    """
    # solution:
    return cotangent @ y.swapaxes(-1, -2), x.swapaxes(-1, -2) @ cotangent
    # end


# ---- Less memory: compute twice what need not be kept ----


def gradient_with_checkpoints(layers: Sequence[Callable[[Tensor], Tensor]], x: Array, n_segments: int) -> Array:
    """The gradient by x of the sum of layers[-1](... layers[0](x)), with a tape for one segment at a time.

    `np.array_split` cuts the layers into segments, none of which is empty. Keep the plain array at the start of each.
    Then, from the last segment to the first, compute the segment on a tape of its own, and walk back through it with
    what the segment after it has found: `output.pulled_back(cotangent)` is `backward` with another start than 1. No
    layer is computed more than twice.
    """
    # solution:
    segments = [[layers[i] for i in part] for part in np.array_split(np.arange(len(layers)), n_segments)]
    starts = [x]
    for segment in segments[:-1]:
        value = starts[-1]
        for layer in segment:
            value = layer(Tensor(value)).value
        starts.append(value)
    cotangent = None
    for segment, start in zip(reversed(segments), reversed(starts), strict=True):
        first = output = Tensor(start)
        for layer in segment:
            output = layer(output)
        output.pulled_back(np.ones(output.shape) if cotangent is None else cotangent)
        cotangent = first.gradient
    return cotangent
    # end


# ---- The tape, which calls your functions ----


class Tensor:
    """An array, the tensors it was computed from, and after `backward` its gradient."""

    __array_ufunc__ = None  # NumPy leaves `array * tensor` to us

    def __init__(self, value: Array | float, parents: Sequence[tuple[Tensor, Callable[[Array], Array]]] = ()) -> None:
        self.value = np.asarray(value, dtype=float)
        self.parents = list(parents)
        self.gradient: Array = np.zeros_like(self.value)

    def pulled_back(self, cotangent: Array) -> None:
        """`backward`, but the output gets `cotangent` instead of 1."""
        backward((self * Tensor(cotangent)).sum())

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __add__(self, other: Tensor | Array | float) -> Tensor:
        other = as_tensor(other)
        pulls = [(each, lambda r, each=each: unbroadcast(r, each.shape)) for each in (self, other)]
        return Tensor(self.value + other.value, pulls)

    def __mul__(self, other: Tensor | Array | float) -> Tensor:
        other = as_tensor(other)
        x, y = self.value, other.value
        return Tensor(
            x * y,
            [
                (self, lambda r: unbroadcast(pull_product(r, x, y)[0], x.shape)),
                (other, lambda r: unbroadcast(pull_product(r, x, y)[1], y.shape)),
            ],
        )

    def __matmul__(self, other: Tensor | Array) -> Tensor:
        other = as_tensor(other)
        x, y = self.value, other.value
        return Tensor(
            x @ y,
            [
                (self, lambda r: unbroadcast(pull_matmul(r, x, y)[0], x.shape)),
                (other, lambda r: unbroadcast(pull_matmul(r, x, y)[1], y.shape)),
            ],
        )

    def __pow__(self, exponent: float) -> Tensor:
        return Tensor(self.value**exponent, [(self, lambda r: r * exponent * self.value ** (exponent - 1))])

    def __neg__(self) -> Tensor:
        return self * -1.0

    def __sub__(self, other: Tensor | Array | float) -> Tensor:
        return self + as_tensor(other) * -1.0

    def __truediv__(self, other: Tensor | Array | float) -> Tensor:
        return self * as_tensor(other) ** -1.0

    def __radd__(self, other: Array | float) -> Tensor:
        return as_tensor(other) + self

    def __rmul__(self, other: Array | float) -> Tensor:
        return as_tensor(other) * self

    def __rsub__(self, other: Array | float) -> Tensor:
        return as_tensor(other) - self

    def __rtruediv__(self, other: Array | float) -> Tensor:
        return as_tensor(other) / self

    def __rmatmul__(self, other: Array) -> Tensor:
        return as_tensor(other) @ self

    def __getitem__(self, index: object) -> Tensor:
        """A part, or rows of a table. A row that was taken twice gets the sum of what both got."""

        def pull(cotangent: Array) -> Array:
            result = np.zeros(self.shape)
            np.add.at(result, index, cotangent)
            return result

        return Tensor(self.value[index], [(self, pull)])

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """The sum over all axes or one. Each term gets what the sum gets."""
        kept = self.value.sum(axis, keepdims=True).shape
        value = self.value.sum(axis, keepdims=keepdims)
        return Tensor(value, [(self, lambda r: np.broadcast_to(np.reshape(r, kept), self.shape))])

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        n_terms = self.value.size if axis is None else self.shape[axis]
        return self.sum(axis, keepdims) * (1.0 / n_terms)

    def reshape(self, *shape: int) -> Tensor:
        return Tensor(self.value.reshape(shape), [(self, lambda r: r.reshape(self.shape))])

    def swap_axes(self, first: int, second: int) -> Tensor:
        return Tensor(self.value.swapaxes(first, second), [(self, lambda r: r.swapaxes(first, second))])

    @property
    def T(self) -> Tensor:
        return self.swap_axes(-1, -2)


def as_tensor(x: Tensor | Array | float) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(x)


def exp(x: Tensor) -> Tensor:
    value = np.exp(x.value)
    return Tensor(value, [(x, lambda r: r * value)])


def log(x: Tensor) -> Tensor:
    return Tensor(np.log(x.value), [(x, lambda r: r / x.value)])


def tanh(x: Tensor) -> Tensor:
    value = np.tanh(x.value)
    return Tensor(value, [(x, lambda r: r * (1 - value**2))])


def relu(x: Tensor) -> Tensor:
    return Tensor(np.maximum(x.value, 0), [(x, lambda r: r * (x.value > 0))])


def where(mask: Array, x: Tensor, other: float) -> Tensor:
    """x where the mask is true, a fixed number elsewhere."""
    return Tensor(np.where(mask, x.value, other), [(x, lambda r: np.where(mask, r, 0.0))])


def concatenate(parts: Sequence[Tensor], axis: int = -1) -> Tensor:
    """Tensors side by side. Each gets back its part."""
    ends = np.cumsum([part.shape[axis] for part in parts])
    pulls = [
        (part, lambda r, end=end, n=part.shape[axis]: np.take(r, range(end - n, end), axis))
        for part, end in zip(parts, ends, strict=True)
    ]
    return Tensor(np.concatenate([part.value for part in parts], axis), pulls)


def log_softmax(x: Tensor) -> Tensor:
    """ln softmax over the last axis; the largest number is subtracted first, so that no exponential overflows."""
    shifted = x - x.value.max(axis=-1, keepdims=True)
    return shifted - log(exp(shifted).sum(axis=-1, keepdims=True))
