"""Tools of the files in lessons/checks/: they compare an answer, and say in a sentence what is wrong with it.

    def push_product(lesson):
        expect(lesson.push_product(3.0, 1.0, 3.0, 1.0), 6.0, "the tangent of x·x at 3", [(9.0, "...")])

A check has the name of its exercise, and `lesson` is the student's module. It raises Wrong with one sentence, which is
all that the student sees.
"""

import copy
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

SEED = "PELLUCID_CHECK_SEED"  # the environment variable with which a teacher checks again, on other random instances


class Wrong(Exception):
    """The fault of an answer, in one sentence."""


def draws(exercise: str) -> np.random.Generator:
    """Random numbers for the instances of an exercise: the same each time, until somebody sets another seed."""
    return np.random.default_rng([int(os.environ.get(SEED, "0")), *exercise.encode()])


def expect(
    answer: Any,
    right: Any,
    what: str,
    mistakes: Iterable[tuple[Any, str]] = (),
    tolerance: float = 1e-9,
) -> None:
    """Compare numbers or arrays, and raise Wrong in the first case that holds.

    None, another shape, NaN, a known mistake (a value it leads to, and the sentence for it), another value. The
    tolerance is relative to the largest number of the right answer, and absolute below 1.
    """
    if answer is None:
        raise Wrong(f"{what}: your function returns None; is a `return` missing?")
    try:
        given = np.asarray(_plain(answer), dtype=float)
    except (TypeError, ValueError):
        raise Wrong(f"{what}: expected numbers, but got {type(answer).__name__}") from None
    expected = np.asarray(_plain(right), dtype=float)
    if given.shape != expected.shape:
        raise Wrong(f"{what}: the shape is {_shape(given)}, but {_shape(expected)} is expected")
    if np.isnan(given).any() and not np.isnan(expected).any():
        which = "it" if given.ndim == 0 else "one of its numbers"
        raise Wrong(f"{what}: {which} is NaN; look for 0/0, inf - inf or ln 0")
    if _close(given, expected, tolerance):
        return
    for value, sentence in mistakes:
        wrong = np.asarray(_plain(value), dtype=float)
        if wrong.shape == given.shape and _close(given, wrong, tolerance):
            raise Wrong(sentence)
    if expected.ndim == 0:
        raise Wrong(f"{what}: you have {_apart(given, expected)}")
    place = np.unravel_index(np.nanargmax(np.abs(given - expected)), expected.shape)
    at = ", ".join(str(int(i)) for i in place)
    raise Wrong(f"{what}: at [{at}] you have {_apart(given[place], expected[place])}")


def _apart(given: Any, expected: Any) -> str:
    """Two numbers with six digits, or with as many as it takes to tell one from the other."""
    written = ((f"{given:.{n}g}", f"{expected:.{n}g}") for n in range(6, 18))
    a, b = next((pair for pair in written if pair[0] != pair[1]), (f"{given:.17g}", f"{expected:.17g}"))
    return f"{a}, not {b}"


def _plain(value: Any) -> Any:
    """An array of a PyTorch tensor or of a value on a tape."""
    if hasattr(value, "detach"):
        return value.detach().numpy()
    while hasattr(value, "value"):
        value = value.value
    return value


def _shape(array: np.ndarray[Any, Any]) -> str:
    return f"({', '.join(map(str, array.shape))})" if array.ndim else "that of a single number"


def _close(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerance: float) -> bool:
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    return bool(np.allclose(a, b, rtol=0.0, atol=tolerance * scale, equal_nan=True))


def unchanged(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a function to copies of these arguments; Wrong if it writes into one of them."""
    return _answer(function, arguments, copy.deepcopy(arguments))


def call(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer to copies of the arrays of one more example. A size that is written as a number meets another here."""
    given = tuple(each.copy() if isinstance(each, np.ndarray) else each for each in arguments)
    try:
        with np.errstate(all="ignore"):
            return _answer(function, arguments, given)
    except (ValueError, IndexError, TypeError) as error:
        raise Wrong(f"{what}: the example before went well, but here Python says “{error}”; which size, or number of "
                    "axes, is written as a number and not read from a shape?") from None  # fmt: skip


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], copies: tuple[Any, ...]) -> Any:
    answer = function(*copies)
    if not _same(copies, arguments):
        raise Wrong("your function changes what it is given (as `x += 1` does), and others may still need it: leave it "
                    "as it is, or work on a copy (`x = x + 1`)")  # fmt: skip
    return answer


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or bool(a == b)
