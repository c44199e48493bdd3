"""Checks of lesson 5. Right answers come from NumPy's own float16 and float32, or from a list of a format's numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from types import ModuleType

import numpy as np

from pellucid.course.checks import Wrong, draws, expect

Array = np.ndarray


def _is_a_number(answer: object, what: str) -> float:
    if answer is None:
        raise Wrong(f"{what}: your function returns None; is a `return` missing?")
    try:
        return float(answer)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise Wrong(f"{what}: expected a number, but got {type(answer).__name__}") from None


def _fields(bits: int, e: int, m: int) -> str:
    """The bits as one writes them by hand: 0 10001 1000000000."""
    text = f"{bits:0{1 + e + m}b}"
    return f"{text[0]} {text[1 : 1 + e]} {text[1 + e :]}"


@cache
def _numbers(e: int, m: int) -> list[Fraction]:
    """All numbers of a format from 0 on, in their order, without infinity. Steps double from one binade to the next."""
    numbers, step = [Fraction(0)], Fraction(2) ** (2 - 2 ** (e - 1) - m)
    for exponent in range(2**e - 1):
        for _ in range(2**m):
            numbers.append(numbers[-1] + step)
        step *= 2 if exponent else 1
    return numbers[:-1]


# ---- Bits ----


def decode(lesson: ModuleType) -> None:
    for bits, e, m in ((0b0_10001_1000000000, 5, 10), (0b1_01101_0100000000, 5, 10), (0b0_101_11, 3, 2)):
        name = f"{_fields(bits, e, m)} (e = {e}, m = {m})"
        answer = _is_a_number(lesson.decode(bits, e, m), name)
        right = _right_of(bits, e, m)
        size = abs(right)
        if answer == -right:
            raise Wrong(f"{name}: you have {answer:g}, not {right:g}: a sign bit of 1 means minus")
        whole, part = bits >> m & (2**e - 1), bits & (2**m - 1)
        without_1 = part / 2**m * 2.0 ** (whole - 2 ** (e - 1) + 1)
        expect(
            abs(answer),
            size,
            name,
            [
                (without_1, f"{name}: you have {answer:g}, not {right:g}: there is the 1 in front that is not stored, "
                            f"so the mantissa stands for 1 + {part}/{2**m}"),
                (2 * size, f"{name}: you have {answer:g}, not {right:g}, which is twice too large: your bias is 1 too "
                           f"small; with {e} bits, the exponent in the middle, 0{'1' * (e - 1)}, stands for 2⁰"),
                (size / 2, f"{name}: you have {answer:g}, not {right:g}, which is half of it: your bias is 1 too "
                           f"large; with {e} bits, the exponent in the middle, 0{'1' * (e - 1)}, stands for 2⁰"),
                (size / 4, f"{name}: you have {answer:g}, not {right:g}, 4 times too small: lecture notes N4 leave out "
                           "a pair of brackets; the bias is (2^(e-1) - 1), all of which is subtracted"),
                (size * 2.0 ** (2 ** (e - 1) - 16), f"{name}: your bias is 15, as in float16; with {e} bits of "
                                                    f"exponent, it is {2 ** (e - 1) - 1}"),
                ((1 + part / 2**m) * 2.0 ** (whole - (2 ^ (e - 2))), f"{name}: you have {answer:g}, not {right:g}: in "
                                                                         "Python, ^ is no power; write 2 ** 3"),
                (size * 2.0 ** -(2 ** (e - 1)), f"{name}: you have {answer:g}, not {right:g}: your bias is the largest "
                                                f"exponent, of which all its bits are ones; with {e} bits, the one in "
                                                f"the middle, 0{'1' * (e - 1)}, stands for 2⁰"),
                ((1 + part / 1024) * 2.0 ** (whole - 2 ** (e - 1) + 1), f"{name}: you divide the mantissa into 1,024 "
                                                                        f"steps, as in float16; {m} bits have {2**m}"),
                (part * 2.0 ** (whole - 2 ** (e - 1) + 1), f"{name}: the mantissa is a fraction: its first bit stands "
                                                           "for 1/2, the next for 1/4"),
            ],
        )  # fmt: skip
    zero = _is_a_number(lesson.decode(0, 5, 10), "sixteen zeros")
    if zero != 0:
        raise Wrong(
            f"sixteen zeros: you have {zero:g}, not 0: with a 1 in front of every mantissa there is no 0 in your "
            "format; where the exponent is all zeros, no 1 is in front"
        )
    smallest = _is_a_number(lesson.decode(1, 5, 10), "the smallest number of float16")
    expect(
        smallest * 2.0**24,
        1.0,
        "the smallest number of float16, in units of 2⁻²⁴",
        [
            (0.5, "the smallest number of float16: you have 2⁻²⁵, not 2⁻²⁴: subnormals lose the 1 in front, but their "
                  "power of 2 is that of the smallest normal numbers; or there would be a gap between the two"),
            (512.5, "0 00000 0000000001: zero is not the only number without the 1 in front; there is none as long as "
                    "the exponent is all zeros"),
            (0.0, "0 00000 0000000001 is not 0: where the exponent is all zeros, a number is small, but with a "
                  "bit in its mantissa it is not 0 (subnormal)"),
        ],
    )  # fmt: skip
    for e, m in ((3, 2), (2, 3)):
        every = [lesson.decode(bits, e, m) for bits in range((2**e - 1) * 2**m)]
        expect(every, [float(x) for x in _numbers(e, m)], f"all numbers of the format e = {e}, m = {m}, from 0 on")
    bits = int(np.float32(-3.140625).view(np.uint32)) >> 16
    expect(lesson.decode(bits, 8, 7), -3.140625, f"{_fields(bits, 8, 7)}, a bfloat16")
    expect(lesson.decode(0b1_00000_0000000001, 5, 10) * 2.0**24, -1.0, "a negative subnormal, in units of 2⁻²⁴")
    random = draws("decode")
    for e, m in ((2, 1), (4, 3), (6, 9), (8, 23), (11, 52)):
        for exponent in (0, 1, 2**e - 2, *random.integers(2, 2**e - 1, size=3).tolist()):
            mantissa = int(random.integers(2**m))
            bits = (1 << e + m) + (exponent << m) + mantissa
            right = -math.ldexp(mantissa + (2**m if exponent else 0), max(exponent, 1) - 2 ** (e - 1) + 1 - m)
            name = f"{_fields(bits, e, m)} (e = {e}, m = {m})"
            try:
                answer = _is_a_number(lesson.decode(bits, e, m), name)
            except OverflowError:
                raise Wrong(f"{name}: 2 to the power of the whole field is too large for Python's own floats; take the "
                            "bias off first") from None  # fmt: skip
            if answer == -right != 0:
                raise Wrong(f"{name}: the sign is lost; subnormals have one too")
            if answer != right:
                raise Wrong(f"{name}: you have {answer!r}, not {right!r}")


def _right_of(bits: int, e: int, m: int) -> float:
    sign, rest = divmod(bits, 2 ** (e + m))
    return float(_numbers(e, m)[rest]) * (-1) ** sign


# ---- Rounding ----


def round_to_bf16(lesson: ModuleType) -> None:
    cases = {
        0x3F81_4000: (0x3F81, "you make other numbers even, too, not only half-way cases; this one is nearer to the "
                              "odd neighbour"),
        0x3F80_C000: (0x3F81, "you cut off the lower half: that is the neighbour below, not the nearest"),
        0x3F80_4000: (0x3F80, "the lower half is less than half a step, so it is nearer to the number below"),
        0x3F80_8000: (0x3F80, "half-way cases always go up in your function; sums of many such numbers drift up. The "
                              "one whose last bit is 0 is below"),
        0x3F81_8000: (0x3F82, "half-way cases always go down in your function; the one whose last bit is 0 is above"),
        0x3F80_8001: (0x3F81, "this is just above the middle, so the upper neighbour is nearer"),
        0x3F81_7FFF: (0x3F81, "this is just below the middle, so the lower neighbour is nearer"),
        0xBF80_C000: (0xBF81, "a negative number, whose bits are those of the positive one but for the first"),
        0xBF81_8000: (0xBF82, "a negative number, half-way: the even neighbour is taken as well; the sign has no say "
                              "in it"),
        0x3FFF_FFFF: (0x4000, "the mantissa is full: the carry has to go on into the exponent, and 2 is right"),
        0x7F7F_FFFF: (0x7F80, "the largest float32 is nearer to the next bfloat16, which would be infinity"),
        0x0000_8001: (0x0001, "subnormals round like all others"),
        0x7F80_0000: (0x7F80, "infinity stays what it is"),
        0xFF80_0000: (0xFF80, "minus infinity stays what it is"),
    }  # fmt: skip
    for bits, (right, meaning) in cases.items():
        answer = lesson.round_to_bf16(bits)
        name = f"{bits >> 16:016b} {bits & 0xFFFF:016b}"
        number = _is_a_number(answer, name)
        if number and number in (right * 2**16, (bits >> 16) * 2**16):
            raise Wrong(f"{name}: you return 32 bits, the lower half of them 0; a bfloat16 is the upper half alone")
        if number != int(number) or not 0 <= number < 2**16:
            raise Wrong(f"{name}: expected 16 bits as a whole number from 0 to 65,535, but got {answer}")
        if number != right:
            raise Wrong(f"{name}: you have …{int(number) & 0xFF:08b}, not …{right & 0xFF:08b}: {meaning}")
    for bits in draws("round_to_bf16").integers(0, 2**32, size=300).tolist():
        if bits & 0x7F80_0000 != 0x7F80_0000:  # no NaN
            nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            if lesson.round_to_bf16(bits) != nearest:
                raise Wrong(f"{bits:032b}: the nearest bfloat16 is {nearest:016b}")


def sum_in(lesson: ModuleType) -> None:
    def bf16(x: float) -> float:
        bits = int(np.float32(x).view(np.uint32))
        return float(np.uint32(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) << 16).view(np.float32))

    if lesson.sum_in([512.0] + [1.0] * 300, bf16) == 768:
        raise Wrong("512 and then 300 ones in bfloat16: you have 768, not 512: you add the ones first; that is wise, "
                    "but here the order is from left to right")  # fmt: skip
    expect(
        lesson.sum_in([256.0, 1.0, 1.0, 1.0], bf16),
        256.0,
        "256 + 1 + 1 + 1 in bfloat16",
        [
            (260.0, "256 + 1 + 1 + 1 in bfloat16: you have 260, not 256: you round once, at the end; a machine that "
                    "keeps its sum in the format rounds after each addition"),
            (257.0, "256 + 1 + 1 + 1 in bfloat16: you have 257, which is no bfloat16: the last result is not rounded"),
            (259.0, "256 + 1 + 1 + 1 in bfloat16: you have 259, which is no bfloat16: you round nothing, or the terms, "
                    "which need no rounding; it is the sums so far that no longer fit"),
            (258.0, "256 + 1 + 1 + 1 in bfloat16: you have 258, not 256: you add in pairs; that is wise, and the page "
                    "will come to it, but here the order is from left to right"),
        ],
    )  # fmt: skip
    try:
        expect(lesson.sum_in([1.0] * 1000, bf16), 256.0, "1,000 ones in bfloat16")
    except RecursionError:
        raise Wrong("1,000 ones: too many for a function that calls itself once for each; a loop has no such end, and "
                    "the page adds 2,303 numbers") from None  # fmt: skip
    thirds, right = [bf16(1 / 3)] * 30, 0.0
    for third in thirds:
        right = bf16(right + third)
    expect(lesson.sum_in(thirds, bf16), right, "30 thirds in bfloat16")
    back = "256 + 1 + 1 in bfloat16"
    remembered = (
        f"{back}: you have 258, not 256: you remember what was lost and add it later, but this machine forgets it"
    )
    expect(lesson.sum_in([256.0, 1.0, 1.0], bf16), 256.0, back, [(258.0, remembered)])
    nothing = "the sum of no numbers"
    try:
        expect(lesson.sum_in([], bf16), 0.0, nothing)
    except (IndexError, TypeError):
        raise Wrong(f"{nothing} is 0.0, but your function takes the first of them; begin with 0.0") from None
    expect(lesson.sum_in([256.0, 1.0, 8.0, -8.0, 1.0, -256.0], bf16), 0.0,
           "256 + 1 + 8 - 8 + 1 - 256 in bfloat16: what is lost is lost, but the sum goes on")  # fmt: skip
    random = draws("sum_in")
    for rounded, name in ((bf16, "bfloat16"), (lambda x: float(np.float16(x)), "float16")):
        for n, size in ((12, 1.0), (12, 3000.0), (3, 1.0), (3, 20_000.0)):
            numbers = [rounded(x) for x in (size * random.uniform(-0.1, 1, size=n)).tolist()]
            right = 0.0
            for number in numbers:
                right = rounded(right + number)
            what = f"the sum of {n} numbers up to {size:,.0f}, in {name}"
            expect(lesson.sum_in(numbers, rounded), right, what, tolerance=0.0)
    two_bits = "the sum of 12 numbers in a format of two bits, which has no 5: `rounded` alone knows what it has"
    numbers = random.choice([1.0, 2.0, 3.0, 4.0, 6.0], size=12).tolist()
    right, given = 0.0, list(numbers)
    for number in numbers:
        right = _of_two_bits(right + number)
    expect(lesson.sum_in(given, _of_two_bits), right, two_bits, tolerance=0.0)
    if given != numbers:
        raise Wrong("the sum is right, but the list that you were given has changed: look at each number, and leave it "
                    "there")  # fmt: skip
    numbers = (random.integers(2**40, size=12) / 2**40).tolist()
    fine = "the sum of 12 numbers in steps of 2⁻⁴⁰: `rounded` alone says what is lost, and float32 loses more"
    expect(lesson.sum_in(numbers, lambda x: round(x * 2**40) / 2**40), math.fsum(numbers), fine, tolerance=0.0)


def _of_two_bits(x: float) -> float:
    fraction, exponent = math.frexp(x)
    return math.ldexp(round(4 * fraction), exponent - 2)


def round_to(lesson: ModuleType) -> None:
    def answer(x: float, e: int, m: int) -> float:
        return _is_a_number(lesson.round_to(x, e, m), f"{x:g} (e = {e}, m = {m})")

    if (got := answer(3.2, 5, 1)) != 3.0:
        wide = ": your steps are twice as wide; from 2 to 4, with 1 bit, they are 1" if got == 4.0 else ""
        raise Wrong(f"3.2 (e = 5, m = 1): you have {got:g}, not 3{wide}")
    if (got := answer(2.8, 5, 1)) != 3.0:
        below = ": you take the number below, not the nearest" if got == 2.0 else ""
        raise Wrong(f"2.8 (e = 5, m = 1): you have {got:g}, not 3{below}")
    for x, right, way in ((2.5, 2.0, "below"), (3.5, 4.0, "above")):
        if (got := answer(x, 5, 1)) != right:
            raise Wrong(f"{x} (e = 5, m = 1): you have {got:g}, not {right:g}: two numbers are equally near, and the "
                        f"one {way} has a last bit of 0")  # fmt: skip
    tiny = 2.0**-24
    if (got := answer(0.8 * tiny, 5, 10)) != tiny:
        raise Wrong(_of_tiny(got, 0.8))
    if (got := answer(0.3 * tiny, 5, 10)) != 0:
        raise Wrong(_of_tiny(got, 0.3))
    for x, right in ((65_519.0, 65_504.0), (65_520.0, math.inf), (1e9, math.inf), (-1e9, -math.inf)):
        if (got := answer(x, 5, 10)) != right:
            raise Wrong(f"{x:g} in float16: you have {got:g}, not {right:g}" + _of_large(got, right, 65_504.0))
    try:
        got = answer(-math.inf, 5, 10)
    except (OverflowError, ValueError):
        raise Wrong("-∞ stays -∞, but your function raises an error: infinity has no step around it") from None
    if got != -math.inf:
        raise Wrong(f"-∞ stays -∞; you have {got:g}")
    with np.errstate(over="ignore"):
        for e, m in ((5, 10), (3, 2), (2, 3)):
            for x in _tries(e)[:: 9 if m == 10 else 1]:  # a list of all its numbers takes long
                right = float(np.float16(x)) if (e, m) == (5, 10) else _nearest(x, e, m)
                if (got := answer(x, e, m)) != right:
                    raise Wrong(f"{x:.8g} (e = {e}, m = {m}): you have {got:.8g}, not {right:.8g}")
    if (got := answer(0.0, 5, 10)) != 0:
        raise Wrong(f"0 stays 0; you have {got:g}")
    if (got := answer(1 + 2.0**-11 + 2.0**-40, 5, 10)) != 1 + 2.0**-10:
        twice = (
            ": it lies just above the middle of two numbers. Do you round twice, first to float32? Then it lies in the "
        )
        raise Wrong(f"1 + 2⁻¹¹ + 2⁻⁴⁰ in float16: you have {got!r}, not 1 + 2⁻¹⁰{twice}middle")
    random = draws("round_to")
    for e, m in ((8, 3), (7, 4), (5, 2), (4, 3), (2, 1), (6, 1)):
        bias = 2 ** (e - 1) - 1
        exponents = [*random.uniform(1 - bias - m - 2, bias + 1, size=8), 1 - bias, 1 - bias - m]
        largest = (2 - 2.0**-m) * 2.0**bias  # the middle between it and the next is at 1 + 2^-(m+1) of its binade
        middle = largest + 2.0 ** (bias - m - 1)
        for x in (*(2.0 ** np.array(exponents)).tolist(), 0.999 * middle, middle, 1.5 * largest, 5e-324, 1e60):
            for signed in (x, -x):
                right = _rounded(signed, e, m)
                if (got := answer(signed, e, m)) != right:
                    raise Wrong(f"{signed!r} (e = {e}, m = {m}): you have {got!r}, not {right!r}" + (
                        _of_large(got, right, largest) if abs(x) > 0.9 * largest else ""))  # fmt: skip


def _rounded(x: float, e: int, m: int) -> float:
    """The nearest number of a format, by exact fractions, without a list of all numbers."""
    bias = 2 ** (e - 1) - 1
    step = Fraction(2) ** (max(math.frexp(x)[1] - 1, 1 - bias) - m)
    nearest = round(Fraction(x) / step) * step
    return float(nearest) if abs(nearest) < Fraction(2) ** (bias + 1) else math.copysign(math.inf, x)


def _of_tiny(got: float, x: float) -> str:
    what = f"{x} · 2⁻²⁴ in float16: you have {got * 2**24:.6g} · 2⁻²⁴, not {round(x)} · 2⁻²⁴"
    if got == 2.0**-25:
        return what + (": the last step gets halved once too often; subnormals have the power of 2 of the smallest "
                       "normal numbers, 2⁻¹⁴, so their step is 2⁻²⁴")  # fmt: skip
    if 0 < got < 2.0**-24:
        return what + (": your steps get smaller for ever, but an exponent of 5 bits has an end. Below 2⁻¹⁴ the step "
                       "stays 2⁻²⁴, and what is less than half of it is 0")  # fmt: skip
    if got == 0:
        return what + ": below the smallest normal number there are 1,023 more; only what is below half a step is 0"
    return what


def _of_large(got: float, right: float, largest: float) -> str:
    if not math.isinf(got) and math.isinf(right):
        passed = f"has passed the largest number, which is {largest:g}"
        kind = "stays at the largest number" if abs(got) <= largest else passed
        return f": your result {kind}; a machine says ∞, so that nobody takes it for a result"
    if math.isinf(got) and math.isinf(right):
        return ": its sign is lost"
    return ": it is above the largest number, but by less than half a step"


def _tries(e: int) -> list[float]:
    random = np.random.default_rng(3)
    largest = 2.0**2 ** (e - 1)
    sizes = largest ** random.uniform(-1.3, 1.02, size=150)
    signs = random.choice([-1.0, 1.0], size=150)
    return [*(sizes * signs).tolist(), *(largest / 2 * np.arange(-2, 2.125, 0.125)).tolist()]


def _nearest(x: float, e: int, m: int) -> float:
    """The nearest number of a format; one step beyond its end is infinity."""
    table = [float(x) for x in _numbers(e, m)]
    longer = np.array([*table, 2 * table[-1] - table[-2]])
    away = np.abs(longer - min(abs(x), longer[-1]))
    first, *others = np.flatnonzero(away == away.min()).tolist()
    place = next((i for i in (first, *others) if i % 2 == 0), first)
    return math.copysign(math.inf if place == len(table) else float(longer[place]), x)


# ---- Gradients in float16 ----


def unscale(lesson: ModuleType) -> None:
    with np.errstate(all="ignore"):
        _unscale_what_is_finite(lesson)
        _unscale_an_overflow(lesson)
        _unscale_others(lesson)


def _unscale_others(lesson: ModuleType) -> None:
    """Large numbers that are finite, other shapes and scales, and one bad number among many."""
    random = draws("unscale")
    large = np.array([40_000, 40_000, -65_504, 65_504], dtype=np.float16)
    drawn = random.normal(size=(3, 4)).astype(np.float16)
    for scaled, scale, why in (
        (large, 65_536.0, "40,000, 40,000, -65,504 and 65,504 are numbers of float16: nothing has overflowed, though a "
                          "*sum* of them would; look at each number"),
        (drawn, 1.0, "a matrix of small numbers"),
        (drawn, float(random.uniform(2, 5000)), "a scale that is no power of 2"),
        (drawn[:0], 2.0**20, "an empty gradient"),
    ):  # fmt: skip
        given = scaled.copy()
        try:
            gradient, next_scale = _pair(lesson.unscale(given, scale))
        except (ValueError, TypeError):
            raise Wrong(f"an array of shape {scaled.shape}: a gradient may have any number of axes, and of numbers; "
                        "NumPy asks all of them at once") from None  # fmt: skip
        if gradient is None:
            raise Wrong(f"you skip a step that is fine: {why}")
        if not np.array_equal(given, scaled):
            raise Wrong("your function changes the gradient that it gets; work on a copy in float32")
        right = scaled.astype(np.float64) / scale
        found = np.asarray(gradient, dtype=np.float64)
        if found.shape != right.shape or not np.allclose(found, right, rtol=3e-7, atol=0):
            raise Wrong(
                f"a gradient with the scale {scale:g} ({why}): your numbers are not those of the gradient / scale"
            )
        expect(next_scale, scale, f"the next scale, after a step without overflow with {scale:g}")
    for bad in (np.nan, np.inf, -np.inf):
        many = random.normal(size=(20, 30)).astype(np.float16)
        many[7, 11] = bad
        given = many.copy()
        gradient, next_scale = _pair(lesson.unscale(given, 1.0))
        if gradient is not None:
            raise Wrong(f"600 numbers, one of them {bad}: you step although a number has overflowed")
        if not np.array_equal(given, many, equal_nan=True):
            raise Wrong(f"600 numbers, one of them {bad}: your function changes the gradient that it gets")
        expect(next_scale, 0.5, f"the scale after 1, when one of 600 numbers is {bad}",
               [(0.0, "half of 1 is 0.5; `//` rounds it down to 0, and then nothing is learned")])  # fmt: skip


def _pair(answer: object) -> tuple[object, float]:
    if answer is None:
        raise Wrong("your function returns None; two things are expected: the gradient (or None), and the next scale")
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("return a pair: the gradient (or None), and the next scale")
    return answer[0], _is_a_number(answer[1], "the next scale")


def _unscale_what_is_finite(lesson: ModuleType) -> None:
    scale = 1024.0
    scaled = np.array([3.0, -0.25, 2.0**-16, 1000.0, 2.0**-24], dtype=np.float16)
    gradient, next_scale = _pair(lesson.unscale(scaled.copy(), scale))
    right = scaled.astype(np.float64) / scale
    if gradient is None:
        raise Wrong("nothing has overflowed, but you skip the step")
    given = np.asarray(gradient, dtype=np.float64)
    if given.shape == right.shape and np.array_equal(given, scaled.astype(np.float64)):
        raise Wrong("the gradient of 1,024 · loss is 1,024 times too long for the loss: you don't divide by the scale, "
                    "so it acts as a learning rate in hiding")  # fmt: skip
    if given.shape == right.shape and np.array_equal(given, (scaled / np.float16(scale)).astype(np.float64)):
        raise Wrong(f"{int((given == 0).sum())} of 5 numbers became 0: you divide in float16, where they vanish as "
                    "they would have done without a scale; first make float32 of them")  # fmt: skip
    if getattr(gradient, "dtype", None) == np.float16:
        raise Wrong("your gradient is in float16; the small numbers need float32")
    expect(
        given * 2.0**20,
        right * 2.0**20,
        "a gradient with the scale 1,024, in units of 2⁻²⁰",
        [(right * scale**2 * 2.0**20, "the gradient of 1,024 · loss is already 1,024 times too long, and you multiply "
                                      "by the scale once more")],
        tolerance=1e-6,
    )  # fmt: skip
    expect(
        next_scale,
        scale,
        "the next scale, after a step without overflow",
        [(2 * scale, "after a step without overflow you double the scale; here it stays: it was not too "
                     "large, but may soon be")],
    )  # fmt: skip


def _unscale_an_overflow(lesson: ModuleType) -> None:
    scale = 4096.0
    for what, bad in (("∞", np.inf), ("-∞", -np.inf), ("NaN", np.nan)):
        scaled = np.array([1.0, bad, 0.5], dtype=np.float16)
        gradient, next_scale = _pair(lesson.unscale(scaled.copy(), scale))
        if gradient is not None:
            raise Wrong(f"a gradient with {what}: you step although a number has overflowed; nobody knows how large "
                        "it was, so there is no step (None)")  # fmt: skip
        expect(
            next_scale,
            scale / 2,
            f"the next scale, after {what}",
            [(scale, f"after {what} you keep the scale: with the same scale, the next one will overflow again, and "
                     "nothing is learned from then on"),
             (2 * scale, f"after {what} you double the scale, but a larger scale overflows all the more")],
        )  # fmt: skip


# ---- Eight bits, and four ----


def _codes(answer: object, n: int, n_blocks: int) -> tuple[Array, Array]:
    if answer is None:
        raise Wrong("your function returns None; is a `return` missing?")
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("return a pair: the codes, and the constants")
    codes, constants = np.asarray(answer[0], dtype=float), np.asarray(answer[1], dtype=float)
    if codes.shape != (n,) or constants.shape != (n_blocks,):
        if constants.shape == ():
            raise Wrong(f"one constant for all: {n_blocks} are expected, one for each block")
        raise Wrong(f"the codes have the shape {codes.shape} and the constants {constants.shape}; {(n,)} and "
                    f"{(n_blocks,)} are expected")  # fmt: skip
    return codes, constants


def absmax(lesson: ModuleType) -> None:
    x = np.array([0.52, -1.0, 0.26, 0.1, 3.0, 2.0, -1.6, 0.2])
    codes, constants = _codes(lesson.absmax(x.copy(), 4), 8, 2)
    right_constants = np.array([1 / 127, 3 / 127])
    right_codes = np.array([66, -127, 33, 13, 127, 85, -68, 8], dtype=float)
    expect(
        constants,
        right_constants,
        "the constants of [0.52, -1, 0.26, 0.1] and [3, 2, -1.6, 0.2]",
        [
            ([3 / 127, 3 / 127], "both blocks have the same constant: in a matrix, one outlier spoilt 4,095 weights "
                                 "like this; with a constant for each block of 64, it is 63"),
            ([1 / 128, 3 / 128], "you divide by 128, so the code of 3 would be 128; but 128 does not fit into 8 bits, "
                                 "the codes end at 127, and as an int8 it is -128"),
            ([0.52 / 127, 3 / 127], "-1 is the largest *in absolute value* in its block; you took 0.52, and -1 gets no "
                                   "code that is large enough"),
            ([127.0, 127 / 3], "your constants are what one multiplies with to get codes, as in lecture notes N4; ours "
                               "turn codes into numbers, x ≈ constant · code"),
            ([1.0, 3.0], "a constant is one *step*: the largest number is 127 of them"),
            ([3 / 127, 2 / 127], "your first block is 0.52, 0.26, 3, -1.6, a column; a block is a row, of neighbours"),
            ([1.52 / 254, 4.6 / 254], "you share out the way from the smallest number to the largest, but the codes "
                                      "are symmetric about 0: -1 would need -167"),
        ],
    )  # fmt: skip
    expect(
        codes,
        right_codes,
        "the codes of [0.52, -1, 0.26, 0.1] and [3, 2, -1.6, 0.2]",
        [
            (x / np.repeat(right_constants, 4), "your codes are not rounded; only whole numbers fit into 8 bits"),
            (np.abs(right_codes), "the signs are lost: codes run from -127 to 127"),
            (right_codes % 256, "-127 has become 129, as there are no negative numbers in uint8; take int8"),
            (np.trunc(x / np.repeat(right_constants, 4)), "your codes are cut off, not rounded: all numbers move "
                                                          "towards 0, by half a step on average"),
            (np.floor(x / np.repeat(right_constants, 4)), "your codes are rounded down, so all numbers get smaller, by "
                                                          "half a step on average"),
        ],
        tolerance=1e-3,
    )  # fmt: skip
    if (kind := np.asarray(lesson.absmax(x.copy(), 4)[0]).dtype).itemsize > 1:
        raise Wrong(f"your codes are right, but take {8 * kind.itemsize} bits each, as {kind}; as int8 it is 8")
    random = np.random.default_rng(3)
    x = random.standard_normal(4096)
    x[1000] = 100.0
    codes, constants = _codes(lesson.absmax(x.copy(), 64), 4096, 64)
    if (zeros := int((codes == 0).sum())) > 1000:
        raise Wrong(f"{zeros:,} of 4,096 codes are 0: one outlier spoilt 4,095 weights")
    off = np.abs(codes * np.repeat(constants, 64) - x) / np.repeat(constants, 64)
    if off.max() > 0.5 + 1e-6:
        raise Wrong(f"4,096 numbers: one of them is off by {off.max():.2f} steps; rounding costs half a step at most")
    random = draws("absmax")
    for n, block, size in ((12, 3, 1e-6), (64, 64, 1.0), (128, 32, 1.0), (5, 1, 1.0), (16, 8, 1e6)):
        x = (size * random.standard_normal(n)).astype(np.float32)
        given = x.copy()
        what = f"{n} numbers about {size:g}, in blocks of {block}"
        try:
            codes, constants = _codes(lesson.absmax(given, block), n, n // block)
        except ValueError:
            raise Wrong(f"{what}: your shapes do not fit; a row has `block` numbers, whatever that is") from None
        if given.shape != x.shape:
            raise Wrong(f"{what}: your function gives the array that it gets another shape; `x.reshape(…)` makes a new "
                        "one")  # fmt: skip
        if not np.array_equal(given, x):
            raise Wrong(f"{what}: your function changes the numbers that it gets; `/=` writes into them")
        right = np.abs(x.astype(float)).reshape(-1, block).max(axis=1) / 127
        expect(
            constants / right,
            np.ones(n // block),
            f"{what}: the constants, as shares of the right ones",
            tolerance=1e-5,
        )
        off = np.abs(codes - x / np.repeat(right, block))
        if off.max() > 0.5 + 1e-3 or np.abs(codes).max() > 127:
            raise Wrong(f"{what}: a code is {codes[off.argmax()]:g}, where x / constant is "
                        f"{(x / np.repeat(right, block))[off.argmax()]:.3f}")  # fmt: skip


def nearest_level(lesson: ModuleType) -> None:
    levels = np.array([-1.0, -0.4, -0.1, 0.0, 0.2, 0.9])
    x = np.array([-0.95, -0.35, -0.26, 0.04, 0.16, 0.6, 1.0, -0.6, 0.11])
    right = np.array([min(range(6), key=lambda i: abs(levels[i] - number)) for number in x], dtype=float)
    step = 1.9 / 5
    answer = lesson.nearest_level(x.copy(), levels.copy())
    if np.shape(answer) == levels.shape:
        raise Wrong("9 numbers, 6 levels: you return 6 indices, for each level the nearest number; for each number the "
                    "nearest level is asked for")  # fmt: skip
    away = np.abs(x[:, None] - levels)
    expect(
        answer,
        right,
        f"the levels {levels.tolist()} for {x.tolist()}",
        [
            (np.searchsorted(levels, x, side="right") - 1, "0.16 lies between 0 and 0.2, and got 0: you take the level "
                                                           "below, not the nearest; all numbers get smaller"),
            (np.searchsorted(levels, x), "0.04 lies between 0 and 0.2, and got 0.2: you take the level above"),
            (np.round((x + 1) / step), "you round as if the levels were equally far apart; these are closer together "
                                       "near 0, where most weights are"),
            (np.full(9, 5), "each of your indices is 5: the smallest difference is the most negative one; a distance "
                            "has no sign"),
            (away.argmax(axis=1), "you take the level that is furthest away"),
            (away.min(axis=1), "you return the distances; the index of the level is asked for"),
            (levels[right.astype(int)], "you return the levels themselves; what is stored is the index, which needs 4 "
                                        "bits for 16 levels"),
        ],
    )  # fmt: skip
    x = np.random.default_rng(3).standard_normal(500)
    answer = np.asarray(lesson.nearest_level(x.copy(), levels.copy()), dtype=int)
    off = np.abs(levels[answer] - x) - np.abs(levels[:, None] - x).min(axis=0)
    if off.max() > 1e-12:
        raise Wrong(f"500 numbers: for {x[off.argmax()]:.3f}, another level is nearer than yours")
    random = draws("nearest_level")
    for n_levels, low, high in ((16, -1, 1), (2, -3, 5), (21, 4, 9), (1, 0, 1), (7, -900, -100), (9, 0, 1e-6),
                                (8, 1e8, 1e8 + 1), (300, -2, 2)):  # fmt: skip
        levels = np.sort(random.uniform(low, high, size=n_levels))
        x = np.concatenate([random.uniform(low, high, size=40), [low - 10.0, high + 10.0]])
        what = f"{n_levels} level{'s' * (n_levels > 1)} between {low} and {high}"
        try:
            answer = np.asarray(lesson.nearest_level(x.copy(), levels.copy()), dtype=int)
        except (IndexError, ValueError):
            raise Wrong(f"{what}: your function takes an index that is not there; there may be any number of levels, "
                        "and numbers beyond the first and the last") from None  # fmt: skip
        expect(np.shape(answer), x.shape, f"{what}, 42 numbers: the shape of the indices")
        if answer.min() < 0 or answer.max() >= n_levels:
            raise Wrong(f"{what}: your index {answer.min() if answer.min() < 0 else answer.max()} is none of 0 to "
                        f"{n_levels - 1}")  # fmt: skip
        off = np.abs(levels[answer] - x) - np.abs(levels[:, None] - x).min(axis=0)
        if off.max() > 1e-9 + 1e-15 * abs(high):
            place = off.argmax()
            if low > 1e6:
                raise Wrong(f"{what}: you are off by {off.max():.2g}, as the squares of such numbers have lost the "
                            "digits that tell one level from the next; subtract first")  # fmt: skip
            raise Wrong(f"{what}: for {x[place]:.6g} you take {levels[answer[place]]:.6g}, but another is nearer")
    expect(np.shape(lesson.nearest_level(np.zeros(0), levels)), (0,), "no numbers at all: the shape of the indices")
