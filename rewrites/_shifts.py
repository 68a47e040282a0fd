"""INT32 shifts to the right, and what is left modulo a power of two, by shifts that round to nearest.

Ethos-U55 and U65 have no shift to the right that rounds down.
"""

import numpy as np

from rewrites._int32 import MAXIMUM, MINIMUM, binary, narrowed, number, resized, sub, times
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.types import BITS, INTEGER_RANGES

LOWEST = INTEGER_RANGES[DType.INT32][0]


def rounded_shift(builder: Builder, x: Tensor, by: Tensor) -> Tensor:
    """``floor(x / 2^by + 1/2)``."""
    return binary(builder, ops.ArithmeticRightShift(round=True), x, by)


def floor_shift(builder: Builder, x: Tensor, by: Tensor, low: int = LOWEST) -> Tensor:
    """``floor(x / 2^by)`` for x of at least ``low``; ``by`` is between 0 and 31.

    With h = 2^(by - 1), or 0 where ``by`` is 0, rounding x - h gives floor((x - h + h) / 2^by). What lies below
    h - 2^31 has the same floor as that.
    """
    half = power(builder, by, -1)
    largest = int(half.values().max()) if half.is_constant else 1 << 30
    if low < LOWEST + largest:
        x = binary(builder, MAXIMUM, x, _plus(builder, half, LOWEST))
    return rounded_shift(builder, sub(builder, x, half), by)


def power(builder: Builder, by: Tensor, plus: int, sign: int = 1) -> Tensor:
    """``2^(sign * by + plus)``, which fits, where ``by`` is above 0; else 0."""
    if by.is_constant:
        values = by.values().astype(np.int64)
        exponents = np.where(values > 0, sign * values + plus, 0)
        return builder.const(np.where(values > 0, 1 << exponents, 0), DType.INT32)
    positive = binary(builder, MAXIMUM, by, number(builder, 1, by))
    exponent = _plus(builder, positive, plus) if sign > 0 else sub(builder, number(builder, plus, by), positive)
    one = binary(builder, MINIMUM, by, number(builder, 1, by))
    return binary(builder, ops.LogicalLeftShift(), one, exponent)


def _plus(builder: Builder, x: Tensor, addend: int) -> Tensor:
    """The sum with a number; a constant where x is one."""
    if x.is_constant:
        return builder.const(x.values().astype(np.int64) + addend, DType.INT32)
    return builder.add(x, number(builder, addend, x))


def wrapped(builder: Builder, x: Tensor, dtype: DType, low: int) -> Tensor:
    """x modulo 2^w in INT8 or INT16, w its width, for x of at least ``low``."""
    width = number(builder, BITS[dtype], x)
    rest = sub(builder, x, times(builder, floor_shift(builder, x, width, low), 1 << BITS[dtype]))
    carry = rounded_shift(builder, rest, width)
    return narrowed(builder, sub(builder, rest, times(builder, carry, 1 << BITS[dtype])), dtype)


def widened(builder: Builder, x: Tensor) -> Tensor:
    """x in INT32; a constant where x is one."""
    if x.is_constant:
        return builder.const(x.values().astype(np.int64), DType.INT32)
    return resized(builder, x, DType.INT32)
