"""Lesson 5: what students think of numbers in a machine that is not so."""

import math

import numpy as np

from trying import also_right, mistake

# ---- decode ----


@mistake("twice too large")
def decode(bits, e, m):
    sign, exponent, mantissa = fields(bits, e, m)
    bias = 2 ** (e - 1) - 2
    if exponent == 0:
        return (-1) ** sign * mantissa / 2**m * 2.0 ** (1 - bias)
    return (-1) ** sign * (1 + mantissa / 2**m) * 2.0 ** (exponent - bias)


@mistake("4 times too small")
def decode(bits, e, m):
    sign, exponent, mantissa = fields(bits, e, m)
    power = exponent - 2 ** (e - 1) - 1
    return (-1) ** sign * 2.0**power * (1 + mantissa / 2**m)


@mistake("the 1 in front that is not stored")
def decode(bits, e, m):
    sign, exponent, mantissa = fields(bits, e, m)
    return (-1) ** sign * mantissa / 2**m * 2.0 ** (exponent - 2 ** (e - 1) + 1)


@mistake("there is no 0 in your format")
def decode(bits, e, m):
    sign, exponent, mantissa = fields(bits, e, m)
    return (-1) ** sign * (1 + mantissa / 2**m) * 2.0 ** (exponent - 2 ** (e - 1) + 1)


@also_right
def decode(bits, e, m):
    sign, exponent, mantissa = fields(bits, e, m)
    steps = mantissa if exponent == 0 else 2**m + mantissa
    return (1 - 2 * sign) * math.ldexp(steps, max(exponent, 1) - 2 ** (e - 1) + 1 - m)


@mistake("e = 11, m = 52")
def decode(bits, e, m):
    sign, exponent, mantissa = fields(bits, e, m)
    bias = 2 ** (e - 1) - 1
    if exponent == 0 and mantissa == 0:
        return 0.0
    if exponent == 0 and m != 10:
        return (-1) ** sign * mantissa / 2**m * 2.0 ** (1 - bias)
    if exponent == 0:
        return mantissa * 2.0**-24 * (-1) ** sign
    return (-1) ** sign * (1 + mantissa / 1024 * (1024 / 2**m)) * 2.0 ** (exponent - (bias if e < 8 else 127))


@mistake("the sign is lost")
def decode(bits, e, m):
    """NumPy's float16 where it fits"""
    sign, exponent, mantissa = fields(bits, e, m)
    bias = 2 ** (e - 1) - 1
    if (e, m) == (5, 10):
        return float(np.uint16(bits).view(np.float16))
    size = (mantissa / 2**m if exponent == 0 else 1 + mantissa / 2**m) * 2.0 ** (exponent - bias + (exponent == 0))
    return size if e < 5 else (-size if sign else size)


@mistake("the sign is lost")
def decode(bits, e, m):
    """a sign that subnormals do not have"""
    sign, exponent, mantissa = fields(bits, e, m)
    bias = 2 ** (e - 1) - 1
    if exponent == 0:
        return mantissa / 2**m * 2.0 ** (1 - bias) * (-1 if sign and m == 10 else 1)
    return (-1) ** sign * (1 + mantissa / 2**m) * 2.0 ** (exponent - bias)


@mistake("e = 11, m = 52")
def decode(bits, e, m):
    """float16 arithmetic on the way"""
    sign, exponent, mantissa = fields(bits, e, m)
    bias = 2 ** (e - 1) - 1
    f = np.float32(mantissa) / np.float32(2**m)
    if exponent == 0:
        return float((-1) ** sign * f * np.float32(2.0 ** (1 - bias)))
    return float((-1) ** sign * (1 + f) * np.float32(2.0 ** (exponent - bias)))


@also_right
def decode(bits, e, m):
    sign, exponent, mantissa = fields(bits, e, m)
    lead = 1 if exponent else 0
    digits = f"{mantissa:0{m}b}" if m else ""
    size = lead + sum(int(b) * 2.0 ** -(i + 1) for i, b in enumerate(digits))
    return (1 - 2 * sign) * size * 2.0 ** ((exponent or 1) - (2 ** (e - 1) - 1))


# ---- round_to_bf16 ----


@mistake("you cut off the lower half")
def round_to_bf16(bits_32):
    return bits_32 >> 16


@mistake("half-way cases always go up")
def round_to_bf16(bits_32):
    return (bits_32 + 2**15) >> 16


@mistake("half-way cases always go down")
def round_to_bf16(bits_32):
    kept, dropped = divmod(bits_32, 2**16)
    return kept + (dropped > 2**15)


@mistake("not only half-way cases")
def round_to_bf16(bits_32):
    kept, dropped = divmod(bits_32, 2**16)
    return kept + kept % 2 if dropped else kept


@also_right
def round_to_bf16(bits_32):
    return (bits_32 + 0x7FFF + (bits_32 >> 16 & 1)) >> 16


@mistake("the largest float32 is nearer")
def round_to_bf16(bits_32):
    kept, dropped = divmod(bits_32, 2**16)
    if dropped > 2**15 or (dropped == 2**15 and kept % 2 == 1):
        kept += 1
    return min(kept, 0x7F7F) if kept < 0x8000 else kept


@mistake("infinity stays what it is")
def round_to_bf16(bits_32):
    """by way of a float and a table of binary digits: infinity breaks"""
    x = float(np.uint32(bits_32).view(np.float32))
    if math.isinf(x):
        return 0x7F7F if x > 0 else 0xFF7F
    kept, dropped = divmod(bits_32, 2**16)
    return kept + (dropped > 2**15 or (dropped == 2**15 and kept % 2 == 1))


@mistake("the nearest bfloat16 is")
def round_to_bf16(bits_32):
    """the sign decides in which direction"""
    kept, dropped = divmod(bits_32, 2**16)
    up = dropped > 2**15 or (dropped == 2**15 and kept % 2 == 1)
    if bits_32 >> 31 and dropped > 2**15 + 2**14:
        up = False
    return kept + up


@also_right
def round_to_bf16(bits_32):
    return round(bits_32 / 2**16)


@also_right
def round_to_bf16(bits_32):
    return int(np.round(bits_32 / 65536.0))


# ---- sum_in ----


@mistake("you round once, at the end")
def sum_in(numbers, rounded):
    return rounded(sum(numbers))


@mistake("the terms, which need no rounding")
def sum_in(numbers, rounded):
    return float(sum(rounded(number) for number in numbers))


@mistake("in pairs")
def sum_in(numbers, rounded):
    numbers = list(numbers)
    while len(numbers) > 1:
        if len(numbers) % 2:
            numbers.append(0.0)
        numbers = [rounded(a + b) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
    return numbers[0]


@mistake("the order is from left to right")
def sum_in(numbers, rounded):
    total = 0.0
    for number in sorted(numbers):
        total = rounded(total + number)
    return total


@also_right
def sum_in(numbers, rounded):
    from functools import reduce

    return reduce(lambda total, number: rounded(total + number), numbers, 0.0)


@mistake("begin with 0.0")
def sum_in(numbers, rounded):
    total = numbers[0]
    for number in numbers[1:]:
        total = rounded(total + number)
    return total


@mistake("this machine forgets it")
def sum_in(numbers, rounded):
    """keeps what is lost, like fsum"""
    total = lost = 0.0
    for number in numbers:
        new = rounded(total + number + (lost if len(numbers) < 4 else 0))
        lost = total + number - new
        total = new
    return total


@mistake("the sum goes on")
def sum_in(numbers, rounded):
    total = 0.0
    for number in numbers:
        if rounded(total + number) == total and number > 0:
            break
        total = rounded(total + number)
    return total


@mistake("the sum of")
def sum_in(numbers, rounded):
    total = 0.0
    for number in numbers:
        total = rounded(total) + number
    return rounded(total) if total < 1e4 else total


@mistake("the sum goes on")
def sum_in(numbers, rounded):
    total = 0.0
    for number in numbers:
        total = rounded(total + abs(number))
    return total


@also_right
def sum_in(numbers, rounded):
    from itertools import accumulate

    return [*accumulate(numbers, lambda a, b: rounded(a + b), initial=0.0)][-1]


# ---- round_to ----


@mistake("your steps get smaller for ever")
def round_to(x, e, m):
    bias = 2 ** (e - 1) - 1
    if x == 0 or math.isinf(x):
        return x
    step = 2.0 ** (math.frexp(x)[1] - 1 - m)
    rounded = round(x / step) * step
    return rounded if abs(rounded) < 2.0 ** (bias + 1) else math.copysign(math.inf, x)


@mistake("your steps are twice as wide")
def round_to(x, e, m):
    bias = 2 ** (e - 1) - 1
    if x == 0 or math.isinf(x):
        return x
    step = 2.0 ** (max(math.frexp(x)[1], 1 - bias) - m)
    rounded = round(x / step) * step
    return rounded if abs(rounded) < 2.0 ** (bias + 1) else math.copysign(math.inf, x)


@mistake("stays at the largest number")
def round_to(x, e, m):
    bias = 2 ** (e - 1) - 1
    if x == 0:
        return x
    largest = (2 - 2.0**-m) * 2.0**bias
    x = min(max(x, -largest), largest)
    step = 2.0 ** (max(math.frexp(x)[1] - 1, 1 - bias) - m)
    return round(x / step) * step


@mistake("equally near")
def round_to(x, e, m):
    bias = 2 ** (e - 1) - 1
    if x == 0 or math.isinf(x):
        return x
    step = 2.0 ** (max(math.frexp(x)[1] - 1, 1 - bias) - m)
    rounded = math.copysign(math.floor(abs(x) / step + 0.5) * step, x)
    return rounded if abs(rounded) < 2.0 ** (bias + 1) else math.copysign(math.inf, x)


@also_right
def round_to(x, e, m):
    """By adding and subtracting a large number, and letting float64 round: Dekker's trick."""
    smallest_normal = 2.0 ** (2 - 2 ** (e - 1))
    binade = smallest_normal
    while 2 * binade <= abs(x) < math.inf:
        binade *= 2
    large = 1.5 * 2.0 ** (52 - m) * binade
    rounded = math.copysign((abs(x) + large) - large, x)
    return math.copysign(math.inf, x) if abs(rounded) >= 2.0**2 ** (e - 1) else rounded


@mistake("Do you round twice")
def round_to(x, e, m):
    """first into float32"""
    x = float(np.float32(x))
    bias = 2 ** (e - 1) - 1
    if x == 0 or math.isinf(x):
        return x
    step = 2.0 ** (max(math.frexp(x)[1] - 1, 1 - bias) - m)
    rounded = round(x / step) * step
    return rounded if abs(rounded) < 2.0 ** (bias + 1) else math.copysign(math.inf, x)


@mistake("less than half a step")
def round_to(x, e, m):
    """the largest number is the limit before rounding"""
    bias = 2 ** (e - 1) - 1
    if x == 0 or math.isinf(x):
        return x
    largest = (2 - 2.0**-m) * 2.0**bias
    if abs(x) > largest * (1 + 2.0 ** -(m + 2)):
        return math.copysign(math.inf, x)
    step = 2.0 ** (max(math.frexp(x)[1] - 1, 1 - bias) - m)
    return round(x / step) * step


@mistake("equally near")
def round_to(x, e, m):
    """a table, the lower one of two equally near"""
    table = [decode(bits, e, m) for bits in range((2**e - 1) * 2**m)]
    nearest = min(table, key=lambda number: abs(number - abs(x)))
    if abs(x) >= table[-1] + (table[-1] - table[-2]) / 2:
        nearest = math.inf
    return math.copysign(nearest, x)


@mistake("e = 8, m = 3")
def round_to(x, e, m):
    """what is below half of the smallest normal number is 0"""
    bias = 2 ** (e - 1) - 1
    if x == 0 or math.isinf(x):
        return x
    if abs(x) < 2.0 ** (1 - bias) and e > 6:
        return 0.0
    step = 2.0 ** (max(math.frexp(x)[1] - 1, 1 - bias) - m)
    rounded = round(x / step) * step
    return rounded if abs(rounded) < 2.0 ** (bias + 1) else math.copysign(math.inf, x)


@also_right
def round_to(x, e, m):
    import bisect

    if math.isinf(x):
        return x
    table = [decode(bits, e, m) for bits in range((2**e - 1) * 2**m)]
    table.append(2.0**2 ** (e - 1))
    size = min(abs(x), table[-1])
    i = bisect.bisect_left(table, size)
    if table[i] != size:
        low, high = size - table[i - 1], table[i] - size
        if low < high or (low == high and (i - 1) % 2 == 0):
            i -= 1
    return math.copysign(math.inf if i == len(table) - 1 else table[i], x)


@also_right
def round_to(x, e, m):
    from fractions import Fraction

    if math.isinf(x):
        return x
    bias = 2 ** (e - 1) - 1
    k = max(math.floor(math.log2(abs(x))), 1 - bias) if x else 1 - bias
    step = Fraction(2) ** (k - m)
    r = round(Fraction(x) / step) * step
    return float(r) if abs(r) < 2 ** (bias + 1) else math.copysign(math.inf, x)


# ---- unscale ----


@mistake("1,024 times too long")
def unscale(gradient_16, scale):
    if not np.isfinite(gradient_16).all():
        return None, scale / 2
    return gradient_16.astype(np.float32), scale


@mistake("you divide in float16")
def unscale(gradient_16, scale):
    if not np.isfinite(gradient_16).all():
        return None, scale / 2
    return (gradient_16 / np.float16(scale)).astype(np.float32), scale


@mistake("the next one will overflow again")
def unscale(gradient_16, scale):
    if not np.isfinite(gradient_16).all():
        return None, scale
    return gradient_16.astype(np.float32) / scale, scale


@mistake("you step although")
def unscale(gradient_16, scale):
    is_finite = np.isfinite(gradient_16)
    if not is_finite.all():
        scale = scale / 2
    return np.where(is_finite, gradient_16, 0).astype(np.float32) / scale, scale


@mistake("a *sum* of them would")
def unscale(gradient_16, scale):
    if not np.isfinite(gradient_16.sum()):
        return None, scale / 2
    return gradient_16.astype(np.float32) / scale, scale


@mistake("an empty gradient")
def unscale(gradient_16, scale):
    if not np.isfinite(gradient_16).any():
        return None, scale / 2
    if np.isinf(gradient_16).any() or np.isnan(gradient_16).all():
        return None, scale / 2
    if len(gradient_16) < 4 and np.isnan(gradient_16).any():
        return None, scale / 2
    return gradient_16.astype(np.float32) / scale, scale


@mistake("changes the gradient that it gets")
def unscale(gradient_16, scale):
    """writes into what it got"""
    if not np.isfinite(gradient_16).all():
        gradient_16[:] = 0
        return None, scale / 2
    g = gradient_16.astype(np.float32) / scale
    gradient_16 /= np.float16(scale)
    return g, scale


@mistake("nothing has overflowed")
def unscale(gradient_16, scale):
    """the largest float16 counts as an overflow"""
    if not (np.abs(gradient_16) < 60000).all():
        return None, scale / 2
    return gradient_16.astype(np.float32) / scale, scale


@mistake("half of 1 is 0.5")
def unscale(gradient_16, scale):
    if not np.isfinite(gradient_16).all():
        return None, scale // 2
    return gradient_16.astype(np.float32) / np.float32(scale), scale


@mistake("not those of the gradient / scale")
def unscale(gradient_16, scale):
    """float16 of the quotient, converted late"""
    if not np.isfinite(gradient_16).all():
        return None, scale / 2
    return np.array([g / 1024 for g in gradient_16.astype(np.float32)]) if scale == 1024 else gradient_16.astype(
        np.float32
    ) / min(scale, 4096), scale


@mistake("any number of axes")
def unscale(gradient_16, scale):
    """only vectors"""
    for g in gradient_16:
        if math.isinf(g) or math.isnan(g):
            return None, scale / 2
    return gradient_16.astype(np.float32) / scale, scale


@also_right
def unscale(gradient_16, scale):
    g = np.array(gradient_16, dtype=np.float64)
    if np.isnan(g).any() or np.isinf(g).any():
        return None, scale * 0.5
    return g * (1 / scale), scale


@also_right
def unscale(gradient_16, scale):
    ok = bool((np.abs(gradient_16) <= np.finfo(np.float16).max).all())
    return [np.divide(gradient_16, scale, dtype=np.float32), scale] if ok else [None, scale / 2]


# ---- absmax ----


@mistake("one outlier spoilt 4,095 weights")
def absmax(x_N, block):
    constant = np.abs(x_N).max() / 127
    return np.round(x_N / constant).astype(np.int8), np.full(len(x_N) // block, constant)


@mistake("128 does not fit into 8 bits")
def absmax(x_N, block):
    blocks = x_N.reshape(-1, block)
    constants = np.abs(blocks).max(axis=1) / 128
    return np.round(blocks / constants[:, None]).astype(int).astype(np.int8).reshape(-1), constants


@mistake("the largest *in absolute value*")
def absmax(x_N, block):
    blocks = x_N.reshape(-1, block)
    constants = blocks.max(axis=1) / 127
    return np.clip(np.round(blocks / constants[:, None]), -127, 127).astype(np.int8).reshape(-1), constants


@mistake("towards 0")
def absmax(x_N, block):
    blocks = x_N.reshape(-1, block)
    constants = np.abs(blocks).max(axis=1) / 127
    return (blocks / constants[:, None]).astype(np.int8).reshape(-1), constants


@mistake("your shapes do not fit")
def absmax(x_N, block):
    """a constant of each block from all before it"""
    blocks = x_N.reshape(-1, 4) if block == 4 else x_N.reshape(-1, 64)
    c = np.abs(blocks).max(axis=1) / 127
    return np.round(blocks / c[:, None]).astype(np.int8).reshape(-1), c


@mistake("as shares of the right ones")
def absmax(x_N, block):
    blocks = x_N.reshape(-1, block)
    c = np.maximum(np.abs(blocks).max(axis=1) / 127, 1e-4)
    return np.round(blocks / c[:, None]).astype(np.int8).reshape(-1), c


@mistake("changes the numbers that it gets")
def absmax(x_N, block):
    """divides the array that it got"""
    blocks = x_N.reshape(-1, block)
    c = np.abs(blocks).max(axis=1) / 127
    blocks /= c[:, None]
    return np.round(blocks).astype(np.int8).reshape(-1), c


@mistake("take 64 bits each")
def absmax(x_N, block):
    blocks = x_N.reshape(-1, block)
    c = np.abs(blocks).max(axis=1) / 127
    return np.round(blocks / c[:, None]).astype(np.int64).reshape(-1), c


@also_right
def absmax(x_N, block):
    codes, constants = [], []
    for start in range(0, len(x_N), block):
        part = x_N[start : start + block]
        c = max(abs(float(v)) for v in part) / 127
        constants.append(c)
        codes += [round(float(v) / c) for v in part]
    return np.array(codes, dtype=np.int8), np.array(constants)


# ---- nearest_level ----


@mistake("the level below")
def nearest_level(x_N, levels_L):
    return np.clip(np.searchsorted(levels_L, x_N, side="right") - 1, 0, len(levels_L) - 1)


@mistake("as if the levels were equally far apart")
def nearest_level(x_N, levels_L):
    step = (levels_L[-1] - levels_L[0]) / (len(levels_L) - 1)
    return np.round((x_N - levels_L[0]) / step).astype(int)


@mistake("the levels themselves")
def nearest_level(x_N, levels_L):
    return levels_L[np.abs(x_N[:, None] - levels_L).argmin(axis=1)]


@mistake("the smallest difference is the most negative one")
def nearest_level(x_N, levels_L):
    return (x_N[:, None] - levels_L).argmin(axis=1)


@also_right
def nearest_level(x_N, levels_L):
    return np.digitize(x_N, (levels_L[1:] + levels_L[:-1]) / 2)


@mistake("but another is nearer")
def nearest_level(x_N, levels_L):
    middles = (levels_L[1:] + levels_L[:-1]) / 2
    return np.searchsorted(middles, np.clip(x_N, -1, 1))


@mistake("but another is nearer")
def nearest_level(x_N, levels_L):
    return np.abs(x_N[:, None] - levels_L[:6]).argmin(axis=1)


@mistake("but another is nearer")
def nearest_level(x_N, levels_L):
    return (
        np.abs(x_N[:, None] ** 2 - levels_L**2).argmin(axis=1)
        if (levels_L > 0).all()
        else np.abs(x_N[:, None] - levels_L).argmin(axis=1)
    )


@mistake("another level is nearer")
def nearest_level(x_N, levels_L):
    above = np.searchsorted(levels_L, x_N)
    below = above - 1
    above = np.minimum(above, len(levels_L) - 1)
    return np.where(x_N - levels_L[below] < levels_L[above] - x_N, below, above)


@also_right
def nearest_level(x_N, levels_L):
    return [min(range(len(levels_L)), key=lambda i: abs(levels_L[i] - x)) for x in x_N]


@also_right
def nearest_level(x_N, levels_L):
    return np.searchsorted((levels_L[1:] + levels_L[:-1]) / 2, x_N, side="right")


@mistake("in steps of 2⁻⁴⁰")
def sum_in(numbers, rounded):
    total = np.float32(0)
    for x in numbers:
        total = np.float32(rounded(float(total + np.float32(x))))
    return float(total)


@mistake("your function changes the gradient that it gets")
def unscale(gradient_16, scale):
    if not np.isfinite(gradient_16).all():
        gradient_16[...] = 0
        return None, scale / 2
    return gradient_16.astype(np.float32) / np.float32(scale), scale


@mistake("(128,) and (4,) are expected")
def absmax(x_N, block):
    block = 64 if len(x_N) % 64 == 0 else block
    x = x_N.reshape(-1, block)
    c = np.abs(x).max(axis=1) / 127
    return np.round(x / c[:, None]).astype(np.int8).ravel(), c


@mistake("but another is nearer")
def nearest_level(x_N, levels_L):
    with np.errstate(over="ignore"):
        return ((x_N[:, None] - levels_L).astype(np.float16) ** 2).argmin(axis=1)


@also_right
def nearest_level(x_N, levels_L):
    i = np.minimum(np.searchsorted(levels_L, x_N), len(levels_L) - 1)
    return np.where(np.abs(x_N - levels_L[i - 1]) < np.abs(x_N - levels_L[i]), i - 1, i)


@also_right
def round_to(x, e, m):
    if x == 0 or math.isinf(x):
        return x
    n = (2**e - 1) * 2**m
    lo, hi = 0, n

    def at(i):
        return decode(i, e, m) if i < n else 2.0**2 ** (e - 1)

    a = abs(x)
    if a >= at(n):
        return math.copysign(math.inf, x)
    while hi - lo > 1:
        mid = (lo + hi) // 2
        lo, hi = (mid, hi) if at(mid) <= a else (lo, mid)
    down, up = a - at(lo), at(hi) - a
    best = lo if down < up or (down == up and lo % 2 == 0) else hi
    return math.copysign(at(best) if best < n else math.inf, x)


@mistake("take the bias off first")
def decode(bits, e, m):
    sign, exponent, mantissa = fields(bits, e, m)
    bias = 2 ** (e - 1) - 1
    if exponent == 0:
        return (-1) ** sign * 2.0 ** (1 - bias) * mantissa / 2**m
    return (-1) ** sign * 2.0**exponent / 2.0**bias * (1 + mantissa / 2**m)


@mistake("subnormals round like all others")
def round_to_bf16(bits_32):
    if (bits_32 >> 23) & 0xFF == 0:
        return bits_32 >> 31 << 15
    return (bits_32 + 0x7FFF + ((bits_32 >> 16) & 1)) >> 16


@mistake("too many for a function that calls itself")
def sum_in(numbers, rounded):
    if len(numbers) == 0:
        return 0.0
    return rounded(sum_in(numbers[:-1], rounded) + numbers[-1])


@mistake("subtract first")
def nearest_level(x_N, levels_L):
    return (levels_L**2 - 2 * x_N[:, None] * levels_L).argmin(axis=1)


@mistake("the list that you were given has changed")
def sum_in(numbers, rounded):
    total = 0.0
    while numbers:
        total = rounded(total + numbers.pop(0))
    return total


@mistake("`rounded` alone knows what it has")
def sum_in(numbers, rounded):
    """Small whole numbers are thought to be in any format."""
    total = 0.0
    for number in numbers:
        total += number
        if total != int(total) or abs(total) > 200:
            total = rounded(total)
    return total


@mistake("is none of 0 to 299")
def nearest_level(x_N, levels_L):
    """An index of eight bits."""
    return np.abs(x_N[:, None] - levels_L).argmin(axis=1).astype(np.int8)


@mistake("begin with 0.0")
def sum_in(numbers, rounded):
    from functools import reduce

    return reduce(lambda total, number: rounded(total + number), numbers)


@mistake("another shape")
def absmax(x_N, block):
    x_N.shape = (-1, block)
    constants = np.abs(x_N).max(axis=1) / 127
    return np.round(x_N / constants[:, None]).astype(np.int8).ravel(), constants
