"""Integers that are the same for all channels, or an array of one for each index of a tensor's last axis.

Arithmetic is written once for both: a Python integer is many times quicker than an array of one element.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.types import SHORT, Array, decode

Integers = npt.NDArray[np.int64]
Numbers: TypeAlias = int | Integers
"""One integer, or an int64 array of shape [C]."""


def numbers(tensor: Tensor) -> Numbers:
    """The values of an integer constant, flattened; the integer itself where there is one only."""
    return of_array(tensor.values())


def of_array(values: Array) -> Numbers:
    """Integers of any type and shape, flattened."""
    return int(values.item()) if values.size == 1 else values.reshape(-1).astype(np.int64)


def of_list(values: Sequence[int]) -> Numbers:
    """One integer, or an array of several."""
    return values[0] if len(values) == 1 else np.array(values, np.int64)


def least(values: Numbers) -> int:
    """The smallest."""
    return values if isinstance(values, int) else int(values.min())


def most(values: Numbers) -> int:
    """The largest."""
    return values if isinstance(values, int) else int(values.max())


def is_one(multiplier: Numbers, shift: Numbers) -> bool:
    """True where every channel's scale ``multiplier / 2**shift`` is exactly one."""
    return all(s >= 0 and m == 1 << s for m, s in columns(multiplier, shift))


def clipped(values: Numbers, low: int, high: int) -> Numbers:
    """The closest numbers in [low, high]."""
    return min(max(values, low), high) if isinstance(values, int) else np.minimum(np.maximum(values, low), high)


def farthest(low: Numbers, high: Numbers) -> Numbers:
    """The largest absolute value between ``low`` and ``high``."""
    if isinstance(low, int) and isinstance(high, int):
        return max(abs(low), abs(high))
    return np.maximum(np.abs(low), np.abs(high))


def joined(values: Sequence[int]) -> Numbers:
    """The one integer where all channels have the same, else an array."""
    return values[0] if min(values) == max(values) else np.array(values, np.int64)


def largest_ratio(ratios: Iterable[tuple[int, int]]) -> Fraction:
    """The largest of the numbers ``n / 2**k``, given as (n, k)."""
    pairs = list(ratios)
    bits = max([k for _, k in pairs])
    return Fraction(max([n << (bits - k) for n, k in pairs]), 1 << bits)


def columns(*values: Numbers) -> Iterator[tuple[int, ...]]:
    """What each channel has; a single tuple where all of ``values`` are integers."""
    lists = [[value] if isinstance(value, int) else value.tolist() for value in values]
    channels = max(len(column) for column in lists)
    return zip(*(column if len(column) == channels else column * channels for column in lists), strict=True)


def constant(builder: Builder, values: Numbers, dtype: DType, name: str) -> Tensor:
    """A CONST of shape [1], or [C]."""
    return builder.number(values, dtype, name=name) if isinstance(values, int) else builder.const(values, dtype, name)


def rounded(values: Numbers, shift: Numbers) -> Numbers:
    """``floor(values / 2**shift + 1/2)``."""
    return (values + (1 << shift >> 1)) >> shift


def extent(tensor: Tensor) -> tuple[int, int, int]:
    """How many values a constant of integers has, the smallest and the largest; (0, 0, 0) without any."""
    data = tensor.data
    if isinstance(data, bytes) and len(data) <= SHORT:
        return _short_extent(data, tensor.dtype, tensor.shape)
    return _measured(tensor.values())


def _measured(values: Array) -> tuple[int, int, int]:
    return (values.size, int(values.min()), int(values.max())) if values.size else (0, 0, 0)


@lru_cache(maxsize=1 << 14)
def _short_extent(data: bytes, dtype: DType, shape: tuple[int, ...]) -> tuple[int, int, int]:
    return _measured(decode(data, dtype, shape))
