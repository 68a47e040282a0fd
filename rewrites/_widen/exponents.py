"""Exponents of int32 values: how many of the seven new bits each of them carries, and how large it can get.

Between RESCALEs the int8 graph computes on int32. In the int16 graph such a value holds the old value times ``2**e``.
Bounds are in units of the old int32 value and hold for every int16 input, also one that no int8 value maps to.
"""

from fractions import Fraction

from rewrites._widen.families import FACTOR_BITS
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES

INT32_MAX = INTEGER_RANGES[DType.INT32][1]

WIDE_BOUND = 256
"""Largest absolute value of a widened activation, in int8 steps: 32768 / 128."""

INT16_SHIFT = 16
"""A RESCALE with a 31-bit multiplier takes every int16 value if its shift is at least this."""


def floor_log2(value: Fraction) -> int:
    """Largest integer n with ``2**n <= value``, for a positive value."""
    numerator, denominator = value.as_integer_ratio()
    exponent = numerator.bit_length() - denominator.bit_length()
    return exponent if denominator << max(exponent, 0) <= numerator << max(-exponent, 0) else exponent - 1


def wanted_exponent(largest_scale: Fraction, bits: int = FACTOR_BITS) -> int:
    """Exponent that keeps all ``bits`` extra bits of a value that a RESCALE scales by ``largest_scale``.

    A scale of 2**bits or more makes room for them below the old unit already; then the exponent is 0.
    """
    return max(0, bits - floor_log2(largest_scale)) if largest_scale > 0 else 0


def exponent_cap(bound: int) -> int:
    """Largest exponent at which a value of absolute value up to ``bound`` (old units) fits int32; -1 if none >= 0."""
    return INT32_MAX.bit_length() - bound.bit_length() if bound > 0 else INT32_MAX.bit_length() - 1


def scaled_bound(bound: int, largest_scale: Fraction) -> int:
    """Bound of the result of a RESCALE, its rounding included."""
    return min(-(-bound * largest_scale.numerator // largest_scale.denominator) + 1, 1 << 31)
