"""Checks of lesson 15: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from lesson_15 import Ring
from pellucid.course.checks import Wrong, draws, expect


def average_gradient(lesson: ModuleType) -> None:
    rng = np.random.default_rng(0)
    counts = [420, 318, 487]
    gradients = [rng.normal(size=(2, 5)) for _ in counts]
    for given, numbers in ((gradients, counts), (gradients[:2], [3, 1])):
        total = sum(count * gradient for count, gradient in zip(numbers, given, strict=True))
        divided = sum(gradient / count for count, gradient in zip(numbers, given, strict=True))
        copies = [each.copy() for each in given]
        try:
            answer = lesson.average_gradient(copies, list(numbers))
        except (ValueError, IndexError) as error:
            raise Wrong(f"{len(given)} devices, and a weight of shape (2, 5): Python says “{error}”. A gradient may "
                        "have any shape; each counts as often as its device has targets") from None  # fmt: skip
        expect(
            answer,
            total / sum(numbers),
            f"devices with {' and '.join(map(str, numbers))} targets",
            [
                (
                    np.mean(given, axis=0),
                    f"this is the mean of the means: a target on the device with {min(numbers)} targets counts "
                    f"{max(numbers) / min(numbers):.2g} times as much as one on the device with {max(numbers)}",
                ),
                (
                    sum(given),
                    "this is the sum of the devices' means: with n devices, the step is about n times too long",
                ),
                (
                    total,
                    f"this is the gradient of the *sum* of all losses; the mean is over {sum(numbers)} targets",
                ),
                (
                    total / len(numbers),
                    "each mean was turned into a sum over its targets, but then divided by the number of devices: "
                    "the loss is a mean over targets",
                ),
                *[
                    (
                        divided / n,
                        "you divide by the counts: a mean is a sum that was divided by its count already, so multiply "
                        "to get the sum back",
                    )
                    for n in (1, len(numbers))
                ],
            ],
        )
        if not all(np.array_equal(copy, each) for copy, each in zip(copies, given, strict=True)):
            raise Wrong("right, but you changed the devices' own gradients, so nobody can use them again")
    rng = draws("average_gradient")
    for shape in ((), (4,), (2, 3, 5)):
        n = int(rng.integers(4, 8))
        given, numbers = rng.normal(size=(n, *shape)), [int(each) for each in rng.integers(1, 900, n)]
        numbers[1] = 0  # the batch was so small that nothing was left for device 1
        right = sum(count * each for count, each in zip(numbers, given, strict=True)) / sum(numbers)
        what = f"{n} devices, the second without a target, and a weight of shape {shape}"
        expect(lesson.average_gradient([np.array(each) for each in given], numbers), right, what)


def ring_all_reduce(lesson: ModuleType) -> None:
    _whose_numbers(lesson, 4)
    rng = draws("ring_all_reduce")
    for n, size in ((4, 3), (3, 2), (2, 5), (int(rng.integers(5, 9)), int(rng.integers(1, 5))), (1, 3)):
        chunks = [rng.normal(size=(n, size)) for _ in range(n)]
        ring = Ring(n)
        given = [each.copy() for each in chunks]
        answer = lesson.ring_all_reduce(given, ring.pass_right)
        if not all(map(np.array_equal, given, chunks)):
            raise Wrong(
                "you write into `chunks`, so the devices' own numbers are lost: `list(chunks)` is a new list of the "
                "same arrays. Begin with a copy of each array"
            )
        expect(
            answer,
            np.stack([sum(chunks)] * n),
            f"{n} device{'s' * (n > 1)} with {n} chunk{'s' * (n > 1)} of {size} numbers",
        )
        least = 2 * (n - 1) * size
        if n == 1:
            if ring.n_rounds:
                raise Wrong("a single device has all sums already, and needs no round")
            continue
        if ring.n_rounds == 0:
            raise Wrong(
                "the sums are right, but nothing was sent: a device reads the others' memory, which no machine can do; "
                "let everything pass through pass_right"
            )
        if max(ring.n_sent) > size * ring.n_rounds:
            raise Wrong(
                f"the sums are right, but with {n} devices each sends {max(ring.n_sent)} numbers, not {least}: "
                "whole arrays go round where one chunk is enough"
            )
        if ring.n_rounds != 2 * (n - 1) or min(ring.n_sent) < least:
            raise Wrong(
                f"the sums are right, but it took {ring.n_rounds} rounds, in which the devices sent "
                f"{ring.n_sent} numbers; {2 * (n - 1)} rounds with {least} for each are expected"
            )
        if any(np.shares_memory(a, b) for i, a in enumerate(answer) for b in answer[:i]):
            raise Wrong(
                "the sums are right, but several devices have one and the same array: if one changes it, all do"
            )
        if np.allclose(lesson.ring_all_reduce([each.copy() for each in chunks], _dead_wire), sum(chunks)):
            raise Wrong(
                "your sums are right even when the wire delivers nothing but zeros: they come from the other devices' "
                "memory. A device may read only its own chunks and what it has received"
            )
    _whose_memory(lesson, 5)
    _last_round(lesson, 3)


class _Owned:
    """A number that lies on a device. Only that device can add to it."""

    def __init__(self, value: float, owner: int) -> None:
        self.value, self.owner = float(value), owner

    def __add__(self, other: object) -> _Owned:
        if isinstance(other, _Owned) and other.owner != self.owner:
            raise Wrong(
                f"device {self.owner} adds a number that lies on device {other.owner}. It may read its own chunks and "
                "what `pass_right` has brought it; the memory of another machine it cannot see"
            )
        return _Owned(self.value + float(other), self.owner)

    __radd__ = __add__

    def __float__(self) -> float:
        return self.value


def _whose_memory(lesson: ModuleType, n: int) -> None:
    """Raise Wrong if a device takes a number from another device's memory, and not from the wire."""

    def on_device(values: object, owner: int) -> np.ndarray:
        array = np.array(values, dtype=object)
        return np.array([_Owned(float(each), owner) for each in array.ravel()], dtype=object).reshape(array.shape)

    def pass_right(messages):
        for i, message in enumerate(messages):
            for each in np.array(message, dtype=object).ravel():
                if isinstance(each, _Owned) and each.owner != i:
                    raise Wrong(
                        f"device {i} hands over a number that lies on device {each.owner}: it can send what it "
                        "has or has received"
                    )
        return [on_device(messages[i - 1], i) for i in range(len(messages))]

    try:
        answer = lesson.ring_all_reduce([on_device(np.full((n, 2), i), i) for i in range(n)], pass_right)
    except TypeError:  # arrays of floats hold no such numbers; `_last_round` looks at them
        return
    for i, chunks in enumerate(answer):
        for each in np.array(chunks, dtype=object).ravel():
            if isinstance(each, _Owned) and each.owner != i:
                raise Wrong(
                    f"in the end, device {i} holds a number that it took from device {each.owner} without the wire; "
                    "all that it gets comes through `pass_right`"
                )


def _last_round(lesson: ModuleType, n: int) -> None:
    """Raise Wrong unless what one device receives last is on that device in the end, and on no other."""
    for device in range(n):
        ring = Ring(n)

        def pass_right(messages, ring=ring, device=device):
            received = ring.pass_right(messages)
            if ring.n_rounds == 2 * (n - 1):
                received[device] = received[device] + 100.0
            return received

        answer = lesson.ring_all_reduce([np.ones((n, 2)) for _ in range(n)], pass_right)
        for i, each in enumerate(answer):
            if np.allclose(each, n) == (i == device):
                where = "does not hold it in the end" if i == device else f"is not alone: device {i} holds it, too"
                raise Wrong(
                    f"device {device} receives something in the last round, and {where}. A device reads another's "
                    "memory; all that it gets comes through `pass_right`"
                )


def _dead_wire(messages: list[np.ndarray]) -> list[np.ndarray]:
    return [np.zeros(np.shape(message)) for message in messages]


def _whose_numbers(lesson: ModuleType, n: int) -> None:
    """Device i has 10^i in all places. So the digits of a sum tell whose numbers are in it, and how often."""
    complete, ring, sent = (10**n - 1) // 9, Ring(n), []

    def pass_right(messages):
        sent.append([np.array(message, dtype=float) for message in messages])
        return ring.pass_right(messages)

    answer = lesson.ring_all_reduce([np.full((n, 2), 10.0**i) for i in range(n)], pass_right)
    if answer is None or np.shape(answer) != (n, n, 2):
        expect(answer, np.full((n, n, 2), complete), f"{n} devices with {n} chunks of 2 numbers")
    sums = np.asarray(answer, dtype=float)[:, :, 0].round().astype(int)  # [device, chunk]
    done = sums == complete
    if done.all():
        return
    if np.allclose(answer, complete / n):
        raise Wrong("this is the mean of the devices; the sum is asked for")
    if len(sent) == n - 1 and (done.sum(axis=0) == 1).all():
        raise Wrong(
            f"after {n - 1} rounds each chunk is complete on one device only: the other {n - 1} devices have not "
            "heard of it; a second time round, the finished chunks must be handed on"
        )
    alone = (sums == 10 ** np.arange(n)[:, None]).all(axis=0)
    if sent and alone.any():
        raise Wrong(
            f"with {n} devices, chunk {int(np.flatnonzero(alone)[0])} is on no device more than at the beginning: "
            "if all devices send the same chunk in a round, a chunk never gets round the ring; each must start at "
            "another one"
        )
    if len(sent) == 2 * (n - 1):
        if all((message == complete).all() for message in sent[n - 1]):
            raise Wrong(
                "in the second half you still add what arrives: a complete chunk comes to a device that has a part of "
                "that sum, so this part counts twice"
            )
        if all((message == 10.0 ** ((device - 1) % n)).all() for device, message in enumerate(sent[1])):
            raise Wrong(
                "in the first half you keep what arrives, in place of the device's own numbers: add it, so that the "
                "chunk collects"
            )
        _judge_messages(sent, complete, n)
    device, chunk = np.argwhere(~done)[0]
    digits = [int(digit) for digit in f"{sums[device, chunk]:0{n}d}"[::-1]]
    raise Wrong(
        f"at the end, in chunk {chunk} on device {device}, the numbers of devices 0 to {n - 1} are counted "
        f"{', '.join(map(str, digits[:n]))} times, not once each"
    )


def _judge_messages(sent: list[list[np.ndarray]], complete: int, n: int) -> None:
    """Raise Wrong if the second half begins with chunks that are not complete."""
    for device, message in enumerate(sent[n - 1]):
        if not (message == complete).all():
            n_inside = sum(digit != "0" for digit in f"{message.ravel()[0]:.0f}")
            raise Wrong(
                f"the second half begins with round {n}, where device {device} hands over a chunk with the numbers of "
                f"{n_inside} of {n} devices: only complete sums are worth keeping. Either the first half does not hand "
                "on what has just arrived, or the second starts with another chunk"
            )


def stale_step(lesson: ModuleType) -> None:
    history = [np.array([8.0, 1.0]), np.array([4.0, 3.0]), np.array([1.0, 7.0]), np.array([2.0, -5.0])]
    slope = np.array([1.0, 3.0])

    def step(history: list[np.ndarray], delay: int) -> np.ndarray:
        copies = [each.copy() for each in history]
        answer = lesson.stale_step(copies, lambda theta: slope * theta, 0.1, delay)
        if len(copies) != len(history) or not all(map(np.array_equal, copies, history)):
            raise Wrong("you changed the history; return the new parameters, and leave the old ones as they were")
        return answer

    newest = history[-1]
    for delay in (2, 1, 0):
        seen = history[-1 - delay]
        mistakes = [
            (
                newest - 0.1 * slope * newest,
                f"you take the gradient at the newest parameters, as if there were no delay: it was computed from "
                f"those of {delay} steps before",
            ),
            (
                seen - 0.1 * slope * seen,
                "you go back to the old parameters and step from there: the steps since then are lost; only the "
                "*gradient* is old",
            ),
            (
                seen - 0.1 * slope * newest,
                "you step from the old parameters with a new gradient; it is the gradient that is old",
            ),
            (newest + 0.1 * slope * seen, "the sign: your step goes up"),
            (newest - 0.1 * seen, "you subtract the old parameters themselves; call `gradient` with them"),
            (
                newest - 0.1 * slope * np.mean(history[len(history) - 1 - delay :], axis=0),
                "you mix the gradients of all steps since then: the one that arrives was computed at one place",
            ),
        ]
        mistakes += [
            (
                newest - 0.1 * slope * history[-1 - late],
                f"this gradient is late by {late}, not by {delay}; delay 0 is that of the newest parameters",
            )
            for late in (delay - 1, delay + 1)
            if 0 < late < len(history)
        ]
        expect(step(history, delay), newest - 0.1 * slope * seen, f"a step with delay {delay} of four sets", mistakes)
    for n_sets in (2, 3):
        what = f"with {n_sets} sets of parameters and delay 3"
        young = history[:n_sets]
        try:
            answer = step(young, 3)
        except IndexError:
            raise Wrong(
                f"{what} you ask for an index before the beginning of the history: while there are no parameters that "
                "old, the oldest take their place"
            ) from None
        expect(
            answer,
            young[-1] - 0.1 * slope * young[0],
            what,
            [
                (
                    young[-1],
                    f"{what} you take no step: the oldest parameters take the place of those that are missing",
                ),
                (
                    young[-1] - 0.1 * slope * young[-1],
                    f"{what} you take the newest; the oldest there are come nearest. (In Python, index -1 is the last)",
                ),
            ],
        )
    _other_slopes(lesson)


def _other_slopes(lesson: ModuleType) -> None:
    """Histories of single numbers and of matrices, whose slope is no multiple of the place."""
    rng = draws("stale_step")
    for shape in ((), (2, 3)):
        history = list(rng.normal(size=(int(rng.integers(5, 9)), *shape)))
        asked = []

        def slope(theta: np.ndarray, asked: list = asked) -> np.ndarray:
            asked.append(theta)
            return np.cos(theta) + theta**3

        for delay in (0, 1, len(history) - 1, len(history) + 3):
            asked.clear()
            seen, rate = history[max(len(history) - 1 - delay, 0)], float(rng.uniform(0.01, 0.5))
            what = f"delay {delay}, {len(history)} sets of parameters, and the slope cos θ + θ³"
            answer = lesson.stale_step([np.array(each) for each in history], slope, rate, delay)
            expect(
                answer,
                history[-1] - rate * (np.cos(seen) + seen**3),
                what,
                [
                    (
                        history[-1] - (np.cos(rate * seen) + (rate * seen) ** 3),
                        "you shorten the parameters, and then take the slope there; the rate shortens the step",
                    )
                ],
            )
            if len(asked) > 1:
                raise Wrong(
                    f"the step is right, but you computed the gradient {len(asked)} times; once is enough, and it "
                    "is all the work"
                )


def tensor_parallel_mlp(lesson: ModuleType) -> None:
    rng = np.random.default_rng(1)
    B, D, F, E, n = 5, 6, 12, 4, 3
    x, W_1, b_1, W_2, b_2 = (rng.normal(size=shape) for shape in ((B, D), (F, D), (F,), (E, F), (E,)))
    sent = []

    def all_reduce(parts):
        sent.append([np.array(part, dtype=float) for part in parts])
        return sum(sent[-1])

    answer = lesson.tensor_parallel_mlp(*(each.copy() for each in (x, W_1, b_1, W_2, b_2)), n, all_reduce)
    sums = [len(parts) for parts in sent]
    hidden = np.maximum(0, x @ W_1.T + b_1)
    right = hidden @ W_2.T + b_2
    inputs = np.split(np.arange(D), n)
    too_early = [
        sum(np.maximum(0, x[:, own] @ W_1[:, own].T + bias) for own in inputs) @ W_2.T + b_2 for bias in (b_1, b_1 / n)
    ]
    first = np.arange(F) % (F // n)  # the numbers of the first device, n times
    on_each = x @ W_1.T + b_1

    def result(hidden, W_2=W_2):
        return hidden @ W_2.T + b_2

    early = (
        "max(0, a) + max(0, b) is not max(0, a + b): you set negative numbers to 0 in parts of a sum, before it is "
        "whole"
    )
    expect(
        answer,
        right,
        f"a layer on {n} devices",
        [
            (
                right + (n - 1) * b_2,
                f"each of the {n} devices adds b_2, so the sum has it {n} times: what belongs to the whole result is "
                "added once",
            ),
            *[(each, early) for each in too_early],
            (
                hidden[:, : F // n] @ W_2[:, : F // n].T + b_2,
                f"this is what the first device has, from {F // n} of {F} hidden numbers: the parts were never summed",
            ),
            (right - b_2, "b_2 is missing"),
            (result(np.maximum(0, x @ W_1.T)), "b_1 is missing: it belongs to the hidden numbers, before max(0, ·)"),
            (
                result(np.maximum(0, x @ W_1.T + b_1[first])),
                "each device uses the first part of b_1; it needs the part of its own hidden numbers",
            ),
            (
                result(hidden, W_2[:, first]),
                "each device uses the first columns of W_2; it needs those of its own hidden numbers",
            ),
            (
                result(np.maximum(0, x @ W_1.T + b_1 / n)),
                "you divide b_1 among the devices, but nothing is summed there: the hidden numbers are complete "
                "already",
            ),
            (result(on_each), "max(0, ·) is missing: negative hidden numbers pass"),
            *[
                (np.maximum(0, result(on_each) - b_2) + bias, "max(0, ·) comes before W_2, not after it")
                for bias in (b_2, 0)
            ],
            (np.maximum(0, result(on_each)), "max(0, ·) comes before W_2, not after it"),
        ],
    )
    if not sums:
        raise Wrong(
            "the result is right, but nothing was summed: a device used a whole matrix, or read the others' memory"
        )
    if len(sums) > 1:
        raise Wrong(
            f"the result is right, but there were {len(sums)} sums, over {' and '.join(map(str, sums))} parts, and all "
            f"devices wait for each: a cut of W_1 that gives whole hidden numbers leaves a single sum over {n} parts"
        )
    if sums != [n]:
        raise Wrong(f"the result is right, but you sum {sums[0]} of {n} parts: each of {n} devices has one")
    answer = lesson.tensor_parallel_mlp(x.copy(), W_1, b_1, W_2, b_2, n, lambda parts: 2 * sum(parts))
    if np.allclose(answer, right):
        raise Wrong("the result is right even if `all_reduce` returns something else: you sum the parts yourself, out "
                    "of the devices' memory. What it returns is all that they hear of each other")  # fmt: skip
    _whose_hidden_numbers(lesson, x, W_1, b_1, W_2, b_2, n)
    rng = draws("tensor_parallel_mlp")
    for n in (int(rng.integers(4, 7)), 2, 1):
        B, D, F, E = int(rng.integers(1, 4)), 2 * n, int(rng.integers(1, 4)) * n, int(rng.integers(1, 6))
        given = [rng.normal(size=shape) for shape in ((B, D), (F, D), (F,), (E, F), (E,))]
        x, W_1, b_1, W_2, b_2 = [each.copy() for each in given]
        sent.clear()
        what = f"a layer ({D}, {F}, {E}) on {n} device{'s' * (n > 1)}, with {B} row{'s' * (B > 1)}"
        answer = lesson.tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n, all_reduce)
        if not all(map(np.array_equal, given, (x, W_1, b_1, W_2, b_2))):
            raise Wrong("you changed the weights or the inputs that you were given; the next batch needs them")
        expect(answer, np.maximum(0, x @ W_1.T + b_1) @ W_2.T + b_2, what)
        if [len(parts) for parts in sent] != [n]:
            raise Wrong(
                f"{what}: one sum over {n} part{'s' * (n > 1)} is expected, and there were sums over "
                f"{[len(parts) for parts in sent]}"
            )


def _whose_hidden_numbers(lesson: ModuleType, x, W_1, b_1, W_2, b_2, n: int) -> None:
    """Raise Wrong unless each hidden number is used by one device, and each device uses as many.

    If another column of W_2 changes what a device sends, the device has used this hidden number.
    """
    F = len(W_1)

    def parts_with(W_2: np.ndarray) -> np.ndarray:
        seen = []

        def all_reduce(parts):
            seen.append(np.array(parts, dtype=float))
            return sum(parts)

        lesson.tensor_parallel_mlp(np.abs(x), np.abs(W_1), np.abs(b_1), W_2.copy(), b_2.copy(), n, all_reduce)
        return seen[0]

    before = parts_with(W_2)
    uses = np.zeros((n, F), dtype=bool)
    for f in range(F):
        after = parts_with(W_2 + (np.arange(F) == f))
        uses[:, f] = [not np.allclose(a, b) for a, b in zip(before, after, strict=True)]
    if not uses.any():
        raise Wrong(
            "the result is right, but the sum comes before W_2, so every device needs all of W_2; the other cut of W_1 "
            "lets you cut W_2, too"
        )
    for device, n_used in enumerate(uses.sum(axis=1)):
        if n_used != F // n:
            raise Wrong(
                f"the result is right, but device {device} uses {n_used} of {F} hidden numbers; each of {n} devices "
                f"should have {F // n} of its own, and nothing of the others"
            )


def pipeline_schedule(lesson: ModuleType) -> None:
    some = draws("pipeline_schedule").integers(4, 9, (2, 2)).tolist()
    for p, m in ((4, 2), (3, 5), (2, 2), *some, (1, 4), (5, 1)):
        answer = lesson.pipeline_schedule(p, m)
        if answer is None or len(answer) != 2:
            raise Wrong("two arrays are expected, of forward and of backward passes")
        if not all(isinstance(each, np.ndarray) for each in answer):
            raise Wrong("two arrays are expected; `np.array` makes one of a list of lists")
        if any(each.dtype.kind == "f" and (each == each.round()).all() for each in answer):
            raise Wrong(
                "your slots are whole numbers with a point, and no array can be asked for its place 3.0; `np.zeros` "
                "makes such arrays, unless it is told dtype=int"
            )
        forward, backward = (np.asarray(each, dtype=float) for each in answer)
        for name, each in (("forward", forward), ("backward", backward)):
            if each.shape != (p, m):
                raise Wrong(
                    f"{p} stages, {m} micro-batches: the {name} slots have the shape {each.shape}, not {(p, m)}"
                )
        if any((each != each.round()).any() for each in (forward, backward)):
            raise Wrong(f"{p} stages, {m} micro-batches: slots are whole numbers, and a pass fills one; yours overlap")
        _judge_schedule(forward, backward, p, m)


def _judge_schedule(forward: np.ndarray, backward: np.ndarray, p: int, m: int) -> None:
    what = f"{p} stages, {m} micro-batches: "
    places = [(stage, j) for stage in range(p) for j in range(m)]
    for stage, j in places:
        if stage and forward[stage, j] <= forward[stage - 1, j]:
            raise Wrong(
                f"{what}stage {stage} begins with micro-batch {j} in slot {forward[stage, j]:.0f}, but stage "
                f"{stage - 1} hands it on only after slot {forward[stage - 1, j]:.0f}"
            )
    for j in range(m):
        if backward[-1, j] <= forward[-1, j]:
            raise Wrong(
                f"{what}the last stage goes back with micro-batch {j} in slot {backward[-1, j]:.0f}, but goes forward "
                f"with it in slot {forward[-1, j]:.0f}: before that is done there is no loss yet to start from"
            )
    for stage, j in places[: (p - 1) * m]:
        if backward[stage, j] <= backward[stage + 1, j]:
            raise Wrong(
                f"{what}stage {stage} goes back with micro-batch {j} in slot {backward[stage, j]:.0f}, but its "
                f"gradient comes from stage {stage + 1}, after slot {backward[stage + 1, j]:.0f}: backward passes "
                "run from the last stage to the first"
            )
    for stage in range(p):
        slots = np.concatenate([forward[stage], backward[stage]])
        if len(set(slots)) < len(slots):
            slot = next(each for each in slots if (slots == each).sum() > 1)
            raise Wrong(f"{what}stage {stage} does two things in slot {slot:.0f}; it can do one at a time")
    length = max(forward.max(), backward.max()) - min(forward.min(), 0) + 1
    if length > 2 * (m + p - 1):
        raise Wrong(
            f"{what}it takes {length:.0f} slots, {2 * (m + p - 1)} are enough: a stage that has handed on one "
            "micro-batch can begin with the next at once"
        )
    if forward.min() < 0 or length < 2 * (m + p - 1):
        raise Wrong(f"{what}the slots run from {forward.min():.0f} to {backward.max():.0f}; begin at 0")


def bubble_share(lesson: ModuleType) -> None:
    some = draws("bubble_share").integers(2, 40, (3, 2)).tolist()
    for p, m in ((4, 7), (3, 10), (1, 5), (8, 3), (5, 1), *some):
        expect(
            lesson.bubble_share(p, m),
            (p - 1) / (m + p - 1),
            f"the bubble of {p} stages and {m} micro-batches",
            [
                (
                    (p - 1) / m,
                    f"you divide the {p - 1} slots of waiting by the {m} of work: their *share* is of both together, "
                    f"{m + p - 1}",
                ),
                (
                    (p - 1) / p,
                    f"this is the waiting when a single batch goes through; {m} micro-batches keep the stages busy",
                ),
                (
                    m / (m + p - 1),
                    "this is the share of slots in which a stage works; the bubble is the rest",
                ),
                (
                    p * (p - 1) / (m + p - 1),
                    f"you count the waiting of all {p} stages, but the time of one",
                ),
                *[
                    (p / slots, f"with {p} stages, the last waits for {p - 1} slots before its first work, not for {p}")
                    for slots in (m + p, m + p - 1)
                ],
                (
                    (p - 1) / (m + p),
                    f"the forward half has {m + p - 1} slots: {p - 1} until the last stage begins, then {m}",
                ),
                (2 * (p - 1) / (m + p - 1), "you count the waiting of both halves, but the slots of one"),
                ((p - 1) / (m + p - 1) / 2, "you count the waiting of one half, but the slots of both"),
                *[(n, "this is a number of slots; what share of all slots is it?") for n in (p - 1, 2 * (p - 1))],
                (100 * (p - 1) / (m + p - 1), "this is in percent; a share lies between 0 and 1"),
                (0, f"you say that nobody waits; but the last stage waits {p - 1} slots for its first work"),
            ],
        )


def bytes_per_device(lesson: ModuleType) -> None:
    P, n = 1_000_000, 8
    three = (
        "you count three numbers for each parameter; there are four: its weight, its gradient, and two moments of Adam"
    )
    for stage in (0, 1, 2, 3):
        numbers = [2, 1, 1]
        right = sum(4 * P * each / (n if i < stage else 1) for i, each in enumerate(numbers))
        one_moment = sum(4 * P / (n if i < stage else 1) for i in range(3))
        mistakes = [
            (one_moment, three),
            (right / 4, "this is the number of numbers; each has 4 bytes"),
            (right * n, f"these are the bytes of all devices together, and there are {n}"),
            (right / 1e9, "this is in gigabytes; bytes are asked for"),
        ]
        if stage == 0:
            mistakes += [(P * each, "stage 0 shards nothing: every device has all 16 bytes") for each in (2, 9)]
        if stage > 0:
            mistakes.append((16 * P, f"at stage {stage} you cut nothing"))
        if stage < 3:
            sharded = sum(4 * P * each / n for each in numbers[:stage])
            mistakes.append((sharded, f"at stage {stage}, what is not sharded is on each device as a whole: add it"))
        if 0 < stage < 3:
            alone = sum(4 * P * each / (n if i == stage - 1 else 1) for i, each in enumerate(numbers))
            backwards = sum(4 * P * each / (n if i < stage else 1) for i, each in enumerate([1, 1, 2]))
            mistakes += [
                (
                    16 * P / n,
                    f"at stage {stage} you divide everything by {n}, but only stage 3 shards the weights too",
                ),
                (alone, f"each stage shards what the stage before it does, and more: stage {stage} includes stage 1"),
                (
                    backwards,
                    "the first to be sharded are the moments: they are needed only where their weight is updated",
                ),
            ]
        expect(
            lesson.bytes_per_device(P, n, stage),
            right,
            f"bytes of {P:,} parameters on {n} devices, stage {stage}",
            mistakes,
        )
    rng = draws("bytes_per_device")
    for n in (1, 3, int(rng.integers(5, 100)), int(rng.integers(1000, 5000))):
        P = n * int(rng.integers(100, 1000)) + 1  # n does not divide it
        for stage in (0, 1, 2, 3):
            sharded, whole = (0, 8, 12, 16)[stage], (16, 8, 4, 0)[stage]
            what = f"bytes of {P:,} parameters on {n} device{'s' * (n > 1)}, stage {stage}"
            rounded = "you round; a share is what the division says, though the parts of real arrays are whole numbers"
            up, down = (whole * P + sharded * (P // n + extra) for extra in (1, 0))
            expect(
                lesson.bytes_per_device(P, n, stage),
                whole * P + sharded * P / n,
                what,
                [(up, rounded), (down, rounded), (whole * P + sharded * P // n, rounded)],
                1e-12,
            )
