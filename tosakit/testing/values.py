"""Values for constants: limits, zeros, ones and everything between, and multiplier and shift pairs of RESCALE."""

from collections.abc import Sequence

import numpy as np

from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES, Array, numpy_dtype
from tosakit.testing.choices import Choices

MODERATE = 1 << 20
"""Magnitude up to which INT32, INT48 and INT64 values are drawn mostly, so that sums of some stay inside their type."""

WIDEST = 46
"""Bits of the largest INT48 values drawn, so that a sum with a few others stays inside its type."""

REACH = {DType.INT8: 18, DType.INT16: 18, DType.INT32: 32, DType.INT48: 40}
"""Shift at which a normalised 16-bit multiplier brings values of a dtype to about 8 to 16 bits."""


def limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value an integer constant may have; TOSA leaves -8 out of INT4."""
    low, high = INTEGER_RANGES[dtype]
    return (low + 1 if dtype == DType.INT4 else low), high


def values(
    choices: Choices, dtype: DType, shape: Sequence[int], low: int | None = None, high: int | None = None
) -> Array:
    """An array of a dtype and shape; integers lie from ``low`` to ``high``, by default what the dtype holds.

    One in three arrays holds one value throughout, one in three has limits strewn in. INT32 and wider integers are
    moderate unless bounds are given, but half of the INT48 arrays, which are biases, are of any size up to
    :data:`WIDEST` bits. FP values are standard normal.
    """
    kind, rng = choices.integer(0, 2), choices.rng()
    if dtype == DType.BOOL:
        return np.asarray(rng.random(shape) < (0.0, 1.0, 0.5)[kind])
    if dtype not in INTEGER_RANGES:
        real = np.zeros(shape) if kind == 0 else rng.normal(0.0, 1.0, shape)
        return real.astype(numpy_dtype(dtype))
    first, last = limits(dtype)
    if low is None and dtype in (DType.INT32, DType.INT48, DType.INT64):
        largest = 1 << choices.integer(20, WIDEST) if dtype == DType.INT48 and choices.flag() else MODERATE
        first, last = -largest, largest
    first, last = first if low is None else low, last if high is None else high
    if kind == 0:
        uniform = choices.pick([min(max(value, first), last) for value in (0, 1, -1, first, last)])
        return np.full(shape, uniform, numpy_dtype(dtype))
    drawn = rng.integers(first, last, shape, endpoint=True)
    if kind == 1:
        drawn = np.where(rng.random(shape) < 0.25, rng.choice([first, last], shape), drawn)
    return drawn.astype(numpy_dtype(dtype))


def zero_point(choices: Choices, dtype: DType) -> int:
    """A legal zero point: anything for INT8, 0 for everything else."""
    if dtype != DType.INT8:
        return 0
    return choices.pick([0, -128, 127, choices.integer(-128, 127)])


def one(scale32: bool) -> tuple[int, int]:
    """The multiplier and shift that stand for exactly one."""
    return (1 << 30, 30) if scale32 else (1 << 14, 14)


def scale_pair(choices: Choices, dtype: DType, *, scale32: bool, magnitude: int | None = None) -> tuple[int, int]:
    """Multiplier and shift of a RESCALE that reads ``dtype``: exactly one, a power of two, or any normalised pair.

    Where the ``magnitude`` of what it reads is given, the pair brings it to 6 to 19 bits.
    """
    bits = 31 if scale32 else 15
    kind = choices.integer(0, 4)
    if kind == 0 and (magnitude is None or magnitude < 1 << (29 if scale32 else 31)):
        return one(scale32)
    reach = 31 if scale32 else REACH[dtype]
    if magnitude is not None:
        reach = magnitude.bit_length() + bits - 14
    shift = choices.integer(min(max(reach - 5, 2), 62), min(max(reach + 8, 2), 62))
    if kind == 1:
        return 1 << (bits - 1), shift
    return choices.integer(1 << (bits - 2), (1 << bits) - 1), shift
