"""Checks of lesson 2: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import torch

from pellucid.course.checks import Wrong, draws, expect, unchanged


def conditional(lesson: ModuleType) -> None:
    girls_and_boys = np.array([[6, 6], [5, 3]])  # those who sing, those who do not
    right = np.array([[1 / 2, 1 / 2], [5 / 8, 3 / 8]])
    what = "12 girls, of whom 6 sing, and 8 boys, of whom 5 sing"
    with np.errstate(all="ignore"):
        try:
            answer = lesson.conditional(girls_and_boys.copy())
        except TypeError as error:
            if "Cannot cast" not in str(error):
                raise
            raise Wrong(f"{what}: you write shares into the table of counts that you were given, and it holds whole "
                        "numbers; make a new array") from None  # fmt: skip
        expect(
            answer,
            right,
            what,
            [
                (girls_and_boys / 20, f"{what}: you divided by the number of all children, which gives p(a, b); "
                                      "given that it is a girl, only the girls count"),
                (girls_and_boys / [11, 9], f"{what}: you divided each column by its sum, which gives p(a | b): how "
                                           "many of those who sing are girls"),
                (girls_and_boys / [12, 8], f"{what}: the sums of the rows met the columns: (2) is aligned at the "
                                           "right; with keepdims they are (2, 1)"),
            ],
        )  # fmt: skip
        random = draws("conditional")
        for shape in ((1, 5), (3, 1), (3, 6), (4, 4)):
            counts = random.integers(1, 1000, size=shape).astype(float)
            kept = counts.copy()
            answer = lesson.conditional(counts)
            if not np.array_equal(counts, kept):
                raise Wrong("you changed the table that you were given; make a new one")
            expect(answer, kept / kept.sum(axis=1)[:, None], f"a table of {shape[0]} by {shape[1]}")
        empty = np.array([[0.0, 0.0, 0.0], [1e-9, 3e-9, 0.0]])
        what = "a table with a row of zeros and one with sum 0.000000004"
        answer = lesson.conditional(empty)
        if answer is not None and np.isnan(np.asarray(answer, float)).any():
            raise Wrong(f"{what}: you have 0/0 in the first row; an a that never came has no shares, and its row is to "
                        "stay as it is")  # fmt: skip
        expect(answer, np.array([[0, 0, 0], [0.25, 0.75, 0]]), what)


def tiles(lesson: ModuleType) -> None:
    picture = np.arange(24).reshape(4, 6)
    right = np.array([[picture[i : i + 2, j : j + 3] for j in (0, 3)] for i in (0, 2)])
    what = "0 to 23 in 4 rows of 6, in tiles of 2 by 3"
    try:
        answer = lesson.tiles(picture.copy(), 2, 3)
    except ValueError as error:
        if "reshape" not in str(error):
            raise
        raise Wrong(f"{what}: 24 numbers do not fit into the shape of your `reshape`; R = 4 is cut into R/r = 2 times "
                    "r = 2, and C = 6 into C/c = 2 times c = 3") from None  # fmt: skip
    if isinstance(answer, list):
        raise Wrong(f"{what}: you return a list; make one array of its tiles")
    if np.shape(answer) == (2, 2, 2, 3) and np.array_equal(answer, picture.reshape(2, 2, 2, 3)):
        raise Wrong(
            f"{what}: your first tile is {np.asarray(answer)[0, 0].tolist()}; a reshape leaves the numbers in their "
            "row, so it took the first six; the tile has three of the first row and three of the second"
        )
    if np.shape(answer) == (2, 2, 2, 3) and np.array_equal(answer, picture.reshape(2, 2, 2, 3).transpose(1, 0, 2, 3)):
        raise Wrong(f"{what}: you cut the six numbers of a row in the wrong place: an axis of C is cut into C/c tiles "
                    "of c numbers, and the tiles come first")  # fmt: skip
    expect(answer, right, what)
    random = draws("tiles")
    for sizes in ([2, 3, 2, 2], [3, 3, 3, 3], *random.integers(1, 5, size=(3, 4))):
        rows, columns, r, c = (int(n) for n in sizes)
        picture = random.normal(size=(rows * r, columns * c))
        cut = lesson.tiles(picture.copy(), r, c)
        what = f"a picture of {rows * r} by {columns * c} in tiles of {r} by {c}"
        expect(np.shape(cut), (rows, columns, r, c), f"{what}: the shape of the answer")
        for i in range(rows):
            for j in range(columns):
                tile = picture[i * r : (i + 1) * r, j * c : (j + 1) * c]
                expect(cut[i, j], tile, f"{what}: the tile in row {i} and column {j}")
    turned = random.normal(size=(6, 4)).T
    cut = lesson.tiles(turned, 2, 3)
    what = "`x.T`, 4 by 6, in tiles of 2 by 3 (its numbers do not lie row by row in memory, so read it by its indices)"
    expect(cut, [[turned[i : i + 2, j : j + 3] for j in (0, 3)] for i in (0, 2)], what)
    expect(lesson.tiles(np.zeros((6, 8), bool), 6, 8), np.zeros((1, 1, 6, 8)), "a picture that is one tile")


def pair_scores(lesson: ModuleType) -> None:
    random = draws("pair_scores")
    for B, T, S, D, E in ((2, 3, 3, 4, 4), (3, 3, 3, 3, 3), (2, 3, 4, 5, 6), (1, 1, 1, 2, 1)):
        u, W, v = random.normal(size=(B, T, D)), random.normal(size=(D, E)), random.normal(size=(B, S, E))
        right = u @ W @ v.transpose(0, 2, 1)
        what = f"{B} text{'s' * (B > 1)}, {T} asker{'s' * (T > 1)}, {S} answer{'s' * (S > 1)}, D = {D}, E = {E}"
        mistakes = []
        if D == E:
            on_its_side = f"{what}: W lies on its side: its rows belong to the askers and its columns to the answers"
            mistakes.append((u @ W.T @ v.transpose(0, 2, 1), on_its_side))
            mistakes.append((u @ v.transpose(0, 2, 1), f"{what}: W has no part in your scores"))
        mistakes.append((np.broadcast_to(right.sum(axis=0), right.shape), f"{what}: you summed over the texts, too; an "
                                        "asker is paired with the answers of the same text"))  # fmt: skip
        mistakes.append((u @ W @ v.sum(axis=0).T, f"{what}: your answers are summed over the texts; an asker is paired "
                                                  "with those of the same text"))  # fmt: skip
        try:
            answer = unchanged(lesson.pair_scores, u, W, v)
        except ValueError as error:
            if "core dimension" not in str(error):
                raise
            raise Wrong(f"{what}: two axes that `@` is to multiply have different lengths; `.T` turns all three axes "
                        "round, `swapaxes(1, 2)` the last two") from None  # fmt: skip
        if T != S and np.shape(answer) == (B, S, T):
            raise Wrong(f"{what}: your answer is (B, S, T); a row is to belong to an asker")
        if np.shape(answer) == (B, T, B, S) and B > 1:
            raise Wrong(f"{what}: your askers look at the answers of all texts, not of their own alone")
        if np.shape(answer) == (T, S) and B > 1:
            raise Wrong(f"{what}: you summed over the texts, too; keep the letter of the text in the result")
        if np.shape(answer) == (B, T) and S > 1:
            raise Wrong(f"{what}: you have one score for each asker: the letter of the answers must stay in the result")
        if T == S > 1 and answer is not None and np.shape(answer) == right.shape and np.allclose(
            np.swapaxes(answer, 1, 2), right
        ):  # fmt: skip
            raise Wrong(f"{what}: your answer is (B, S, T); a row is to belong to an asker")
        expect(answer, right, what, mistakes)
    W = random.integers(-3, 4, size=(2, 3))
    u, v = random.normal(size=(1, 2, 2)), random.normal(size=(1, 2, 3))
    expect(lesson.pair_scores(u, W, v), u @ W @ v.transpose(0, 2, 1), "a W of whole numbers, with u and v that are not")


def surprise_of_targets(lesson: ModuleType) -> None:
    random = draws("surprise_of_targets")
    for shape in ((3,), (2, 4), (2, 1, 3), ()):
        V = int(random.integers(3, 7))
        logits = torch.tensor(3 * random.normal(size=(*shape, V)), requires_grad=True)
        targets = torch.tensor(random.integers(0, V, size=shape))
        log_p = torch.log_softmax(logits.detach(), -1)
        hot = torch.nn.functional.one_hot(targets, V)
        right = -(log_p * hot).sum(-1)
        kept = logits.detach().clone()
        sizes = ", ".join(map(str, (*shape, V)))
        what = f"logits ({sizes})"
        try:
            answer = lesson.surprise_of_targets(logits, targets)
        except (RuntimeError, IndexError) as error:
            if shape == (3,):
                raise
            said = str(error).splitlines()[0]
            raise Wrong(f"{what}: logits with two axes went well, but here PyTorch says “{said}”; any number of axes "
                        "may stand before the last, or none") from None  # fmt: skip
        if isinstance(answer, torch.Tensor) and not answer.shape and shape and torch.isclose(answer, right.mean()):
            raise Wrong(f"{what}: you have the mean, a single number; each place is to keep its own surprise")
        if answer is not None and np.shape(answer) == (*shape, 1):
            raise Wrong(f"{what}: an axis of length 1 is left over at the end; the result has the shape of the targets")
        expect(
            answer,
            right,
            f"{what}: the surprises",
            [
                (-right, f"{what}: you have the log-probabilities; a surprise is minus that"),
                (right / math.log(2), f"{what}: you have bits; nats are asked for"),
                (torch.exp(-right), f"{what}: you have the probabilities of the targets, not their surprises"),
                (-(logits * hot).sum(-1), f"{what}: you took the logits of the targets, without the softmax over all"),
                ((logits * hot).sum(-1), f"{what}: you took the logits of the targets, without the softmax over all"),
                (-(torch.log_softmax(logits, 0) * hot).sum(-1), f"{what}: your softmax runs over the first axis; the "
                                                                "words of one place are the last axis"),
            ],
            tolerance=1e-5,
        )  # fmt: skip
        if not isinstance(answer, torch.Tensor) or not answer.requires_grad:
            raise Wrong(f"{what}: the surprises are right, but no gradient flows through them: stay in PyTorch, and "
                        "cut nothing off")  # fmt: skip
        if not torch.equal(logits.detach(), kept):
            raise Wrong(f"{what}: you write into the logits that you get; whoever needs them afterwards finds others")
        if answer.dtype != logits.dtype:
            raise Wrong(f"{what}: the logits are {logits.dtype}, and your surprises {answer.dtype}, with other digits; "
                        "leave the numbers in their type")  # fmt: skip
        if not torch.allclose(answer, right, rtol=0.0, atol=1e-10) and torch.equal(answer, answer.float().double()):
            raise Wrong(f"{what}: only the first seven digits are right: the logits have sixteen, and you went through "
                        "numbers that have seven; leave them in their type")  # fmt: skip
        answer.sum().backward()
        expect(logits.grad, log_p.exp() - hot, f"{what}: the gradient of the sum of your surprises", tolerance=1e-5)
    far = torch.tensor([[1000.0, 0.0], [-1000.0, 0.0]])
    expect(
        lesson.surprise_of_targets(far, torch.tensor([1, 0])),
        np.array([1000.0, 1000.0]),
        "logits of ±1000 (never take the logarithm of a probability that has become 0)",
    )


def rounded_with_slope(lesson: ModuleType) -> None:
    random = draws("rounded_with_slope")
    for shape in ((5,), (2, 3), (), (2, 1, 3)):
        x = torch.tensor(4 * random.normal(size=shape), requires_grad=True)
        weights = torch.tensor(random.normal(size=shape))
        kept = x.detach().clone()
        answer = lesson.rounded_with_slope(x)
        if answer is None:
            raise Wrong("your function returns None; is a `return` missing?")
        shown = [float(f"{each:.4g}") for each in kept.flatten()[:3].tolist()]
        expect(
            answer,
            kept.round(),
            f"x = {shown}…: the values",
            [
                (kept, f"x = {shown}…: you return x as it was; the value is to be rounded"),
                (kept.round() - kept, f"x = {shown}…: you return what rounding adds; put it on x"),
                (kept.floor(), f"x = {shown}…: you round down, always; round to the nearest"),
                (kept.trunc(), f"x = {shown}…: you cut the digits off; round to the nearest"),
                (kept + kept.round(), f"x = {shown}…: the whole numbers are added to x; take x away where the tape "
                                      "does not look"),
            ],
        )  # fmt: skip
        if not torch.equal(x.detach(), kept):
            raise Wrong("you changed x itself; return a new tensor")
        if not isinstance(answer, torch.Tensor) or not answer.requires_grad:
            raise Wrong("the values are right, but the tape sees nothing of x: all of it is detached; what you detach "
                        "has no slope, so x must stand somewhere without it")  # fmt: skip
        (answer * weights).sum().backward()
        if x.grad is None:
            raise Wrong("the values are right, but no slope comes back to x: your result is the start of a tape of its "
                        "own; compute it from x, and detach only what is added")  # fmt: skip
        if not x.grad.any():
            raise Wrong("the values are right, but the slope is 0, that of a staircase: the tape has seen the rounding")
        expect(
            x.grad,
            weights,
            "the gradient that x gets",
            [(2 * weights, "the gradient that x gets is twice what it should be: the tape sees x two times")],
        )
    whole = torch.tensor([1e6 + 0.25, -1e6 - 0.25, 0.0], dtype=torch.float64)
    expect(lesson.rounded_with_slope(whole), whole.round(), "numbers of a million")
    large = torch.tensor([3e9 + 0.25, -7e12 - 0.5625], dtype=torch.float64)
    expect(lesson.rounded_with_slope(large), large.round(), "numbers of a billion and more, which do not fit into a "
           "32-bit whole number", tolerance=1e-15)  # fmt: skip
    quarters = random.integers(2_200_000, 4_100_000, size=6) + random.choice([0.25, 0.75], size=6)
    single = torch.tensor(quarters * random.choice([-1, 1], size=6), dtype=torch.float32)
    expect(lesson.rounded_with_slope(single), single.round(), "numbers such as 3,000,000.25, in float32 (the rounded x "
           "plus x is so large that float32 loses the quarter; take the difference first)")  # fmt: skip
    y = torch.tensor([1.3], dtype=torch.float64, requires_grad=True)
    (lesson.rounded_with_slope(y * y) ** 2).sum().backward()
    expect(y.grad, [2 * 2 * 2 * 1.3], "the square of (y² rounded) at y = 1.3: its slope by y")


def paired_error(lesson: ModuleType) -> None:
    random = draws("paired_error")
    for n, sign in ((7, 1), (2, 1), (40, 1), (9, -1)):  # in the last case, what is hard for one is easy for the other
        shared = random.normal(size=n) * 10
        a, b = shared + random.normal(size=n), sign * shared + 0.3 * random.normal(size=n) - 1
        difference = a - b
        error = difference.std(ddof=1) / math.sqrt(n)
        kept = a.copy(), b.copy()
        answer = lesson.paired_error(a, b)
        if answer is None:
            raise Wrong("your function returns None; is a `return` missing?")
        if not isinstance(answer, (tuple, list, np.ndarray)) or len(answer) != 2:
            raise Wrong("return two numbers: the mean of the differences, and its standard error")
        if not (np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])):
            raise Wrong("you changed the losses that you were given")
        what = f"{n} pairs"
        expect(
            answer[0],
            difference.mean(),
            f"{what}: the mean difference",
            [(-difference.mean(), f"{what}: you took b - a; a - b is asked for"),
             (np.abs(difference).mean(), f"{what}: you took the sizes of the differences; their signs must stay")],
        )  # fmt: skip
        unpaired = math.sqrt(a.var(ddof=1) / n + b.var(ddof=1) / n)
        expect(
            answer[1],
            error,
            f"{what}: the standard error",
            [
                (unpaired, f"{what}: you put together the errors of two means, as if the texts were not the same; take "
                           "the differences first, and what both share drops out"),
                (difference.std() / math.sqrt(n), f"{what}: you divided by n, and the standard deviation of a sample "
                                                  "divides by n - 1"),
                (difference.std(ddof=1), f"{what}: that is how much the single differences scatter; their *mean* "
                                         "scatters less"),
                (difference.var(ddof=1) / n, f"{what}: that is the square of the standard error"),
                (difference.std(ddof=1) / n, f"{what}: you divided by n; an error falls with the square root of n"),
                (1.96 * error, f"{what}: that is half of an interval; the standard error is asked for"),
                (2 * error, f"{what}: that is half of an interval; the standard error is asked for"),
                ((a.std(ddof=1) - b.std(ddof=1)) / math.sqrt(n), f"{what}: errors are not subtracted; take the "
                                                                 "differences of the losses first"),
            ],
        )  # fmt: skip
    a, b = np.round(random.normal(size=(2, 30)), 6)
    a = a + 1e8
    mean, error = lesson.paired_error(a.copy(), b.copy())
    expect(mean, (a - b).mean(), "30 pairs with differences about 100,000,000: the mean difference")
    right = (a - b).std(ddof=1) / math.sqrt(30)
    if not abs(float(error) - right) <= 1e-5 * right:
        raise Wrong(f"30 pairs with differences about 100,000,000: your error is {float(error):.4g}, not {right:.4g}: "
                    "is it a small difference of two large numbers, such as the mean square minus the square of the "
                    "mean? Their last digits are rounded; subtract first, then square")  # fmt: skip
    flat = np.full(4, 0.75)
    for a, b, who in ((np.array([1.0, 2.0, 4.0, 1.0]), flat, "b"), (flat, np.array([1.0, 2.0, 4.0, 1.0]), "a")):
        with np.errstate(all="ignore"):
            answer = lesson.paired_error(a, b)
        expect(answer, ((a - b).mean(), math.sqrt(0.5)), f"four texts, and {who} has the same loss on each of them")
    same = np.array([3.0, 1e4, -5.0])
    expect(lesson.paired_error(same + 0.5, same), (0.5, 0.0), "one model is worse by 0.5 on each of three texts")
    for a in random.normal(75, 12, size=(20, 40)):
        with np.errstate(all="ignore"):
            mean, error = lesson.paired_error(a + 0.5, a)
        if not abs(float(error)) < 1e-6:
            raise Wrong(f"one model is worse by 0.5 on each of 40 texts: your error is {float(error):.4g}, not 0: if "
                        "you subtract large numbers, whose last digits are rounded, what is left may be below 0, and "
                        "has no root; take the differences of the losses first")  # fmt: skip
