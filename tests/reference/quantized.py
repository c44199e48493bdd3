"""Quantization, number by number (equations P4 to P6)."""

import math

NF4 = [-1, -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0]
NF4 += [0.07958030, 0.16093020, 0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1]


def blocks(numbers, block):
    """The numbers, so many at a time; the last block may be shorter."""
    return [numbers[start : start + block] for start in range(0, len(numbers), block)]


def int8(numbers, block=64):
    """Codes and constants: c is the largest of a block divided by 127, a code the whole number nearest to x / c."""
    codes, constants = [], []
    for group in blocks(numbers, block):
        c = max(abs(x) for x in group) / 127
        constants.append(c)
        for x in group:
            codes.append(0 if c == 0 else math.floor(x / c + 0.5))
    return codes, constants


def nf4(numbers, block=64):
    """Codes and constants: c is the largest of a block, a code the place of the value nearest to x / c."""
    codes, constants = [], []
    for group in blocks(numbers, block):
        c = max(abs(x) for x in group)
        constants.append(c)
        for x in group:
            distances = [abs(value - (0 if c == 0 else x / c)) for value in NF4]
            codes.append(distances.index(min(distances)))
    return codes, constants


def from_int8(codes, constants, block=64):
    return [c * code for c, group in zip(constants, blocks(codes, block), strict=True) for code in group]


def from_nf4(codes, constants, block=64):
    return [c * NF4[code] for c, group in zip(constants, blocks(codes, block), strict=True) for code in group]


def from_double(codes, constants):
    """NF4 whose constants, less their mean, are int8 in blocks of 256."""
    mean = sum(constants) / len(constants)
    differences = from_int8(*int8([c - mean for c in constants], 256), 256)
    return from_nf4(codes, [mean + difference for difference in differences])
