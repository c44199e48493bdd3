"""Lesson 3: what students think of numbers in a machine that is not so."""

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
