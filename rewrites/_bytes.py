"""Integers as int8 digits to the base 256, and what an operator gave for each digit put together again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewrites._int32 import MAXIMUM, UNIT, binary, bounded, number, resized, sub, times
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor

WIDTH = 8
COUNT = {DType.INT8: 1, DType.INT16: 2, DType.INT32: 4}
"""Digits of each type."""

LOW_ZERO_POINT = -128
"""Digits below the highest are 0..255: they are kept as INT8 less 128."""


LARGEST_BY_RESCALE = 16
"""Place of the largest power of two by which one RESCALE multiplies a digit: 255 < 2^(30 - 16 - 1)."""


@dataclass(frozen=True)
class Digit:
    """The INT8 tensor ``value`` less ``zero_point``, worth 2^``place``."""

    value: Tensor
    zero_point: int
    place: int


def digits_of(builder: Builder, x: Tensor) -> list[Digit]:
    """The digits of ``x`` (INT8, INT16 or INT32), the highest first; constants give constants.

    The digit at place p is floor(rest / 2^p) = R((rest - 2^(p-1)) / 2^p) for the rounding R of RESCALE, and the next
    rest is what it leaves, in [0, 2^p). An INT32 below 2^(p-1) - 2^31 is raised to that first, where the highest
    digit is -128 all the same.
    """
    if x.is_constant:
        return _constant_digits(builder, x)
    if COUNT[x.dtype] == 1:
        return [Digit(x, 0, 0)]
    rest = resized(builder, x, DType.INT32)
    digits: list[Digit] = []
    for place in range((COUNT[x.dtype] - 1) * WIDTH, 0, -WIDTH):
        zero_point = LOW_ZERO_POINT if digits else 0
        half = 1 << (place - 1)
        start = rest
        if x.dtype == DType.INT32 and not digits:
            start = binary(builder, MAXIMUM, rest, number(builder, half - (1 << 31), rest))
        start = builder.add(start, number(builder, -half, rest))
        value = builder.rescale(
            start, DType.INT8, UNIT[0], UNIT[1] + place, scale32=True, output_zp=zero_point, name="digit"
        )
        digits.append(Digit(value, zero_point, place))
        rest = sub(builder, rest, _worth(builder, digits[-1]), "rest")
    if x.dtype == DType.INT32:
        rest = bounded(builder, rest, 0, (1 << WIDTH) - 1)  # it is: this says so to whoever knows intervals only
    low = builder.rescale(rest, DType.INT8, *UNIT, scale32=True, output_zp=LOW_ZERO_POINT, name="digit")
    return [*digits, Digit(low, LOW_ZERO_POINT, 0)]


def _worth(builder: Builder, digit: Digit) -> Tensor:
    """What a digit stands for. RESCALE takes values below 2^(shift-1): enough for a digit up to the place 16."""
    by_rescale = min(digit.place, LARGEST_BY_RESCALE)
    lifted = builder.rescale(
        digit.value,
        DType.INT32,
        UNIT[0],
        UNIT[1] - by_rescale,
        scale32=True,
        input_zp=digit.zero_point,
        name="worth",
    )
    return times(builder, lifted, 1 << (digit.place - by_rescale))


def _constant_digits(builder: Builder, x: Tensor) -> list[Digit]:
    rest = x.values().astype(np.int64)
    digits: list[Digit] = []
    for place in range((COUNT[x.dtype] - 1) * WIDTH, -1, -WIDTH):
        zero_point = LOW_ZERO_POINT if digits else 0
        digit = rest >> place
        rest = rest - (digit << place)
        digits.append(Digit(builder.const(digit + zero_point, DType.INT8, "digit"), zero_point, place))
    return digits


def put_together(builder: Builder, parts: Sequence[tuple[int, Tensor]], dtype: DType) -> Tensor:
    """The sum of INT32 tensors, each times 2^place, the highest place first, as ``dtype``, which holds it.

    Parts are digits: the highest in [-128, 127], the others in [0, 255]. Then no sum on the way leaves INT32.
    """
    (place, total), *rest = parts
    total = times(builder, total, 1 << place)
    for place, part in rest:
        total = builder.add(total, times(builder, part, 1 << place))
    return resized(builder, total, dtype)
