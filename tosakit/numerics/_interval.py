"""Intervals of integer tensors, their arithmetic, and how the handlers of operators get at their operands.

Arrays hold int64 and never overflow: operands stay below ``2**48``, and where a result could reach ``2**62`` the
channels are joined and Python's integers used instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Tensor

Bound: TypeAlias = "int | NDArray[np.int64]"

LIMIT = 1 << 62
"""Arrays hold only numbers below this one; anything larger is a Python integer."""


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Smallest and largest value of a tensor, both included: integers, or int64 arrays of shape [C].

    An array has one entry for each index of the tensor's last axis. Every tensor of integers has one interval, so code
    that wants channels takes both forms with ``np.broadcast_to(interval.high, channels)``.
    """

    low: Bound
    high: Bound

    @property
    def lowest(self) -> int:
        """Smallest value over all channels."""
        return int(np.minimum.reduce(self.low, axis=None)) if isinstance(self.low, np.ndarray) else self.low

    @property
    def highest(self) -> int:
        """Largest value over all channels."""
        return int(np.maximum.reduce(self.high, axis=None)) if isinstance(self.high, np.ndarray) else self.high

    @property
    def magnitude(self) -> int:
        """Largest absolute value over all channels."""
        return max(abs(self.lowest), abs(self.highest))

    @property
    def overall(self) -> "Interval":
        """One interval that holds for all channels."""
        return Interval(self.lowest, self.highest) if self.is_per_channel else self

    @property
    def is_per_channel(self) -> bool:
        """True where the bounds are arrays over the last axis."""
        return isinstance(self.low, np.ndarray) or isinstance(self.high, np.ndarray)

    @property
    def channels(self) -> int | None:
        """Number of channels that have bounds of their own; None where the bounds are integers."""
        low, high = self.low, self.high
        if isinstance(low, np.ndarray):
            return max(low.size, high.size) if isinstance(high, np.ndarray) else low.size
        return high.size if isinstance(high, np.ndarray) else None

    def within(self, low: int, high: int) -> bool:
        """True where no value of any channel is outside [low, high]."""
        return low <= self.lowest and self.highest <= high

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Interval)
            and np.array_equal(np.asarray(self.low), np.asarray(other.low))
            and np.array_equal(np.asarray(self.high), np.asarray(other.high))
        )

    __hash__ = None  # type: ignore[assignment]


UNBOUNDED = Interval(-(1 << 160), 1 << 160)
"""The answer for a sum whose terms are unknown: 2**63 products of two 48-bit numbers stay inside."""

Lookup = Callable[[Tensor], Interval]
Handler = Callable[[AnyOp, Lookup], "Interval | None"]
"""From an operator, and the intervals of its operands, to the interval of its first result in exact arithmetic, before
any saturation to the result's dtype; None where the dtype's range is the answer."""


# -------------------------------------------------------------------------------------------------- arithmetic
def lesser(*bounds: Bound) -> Bound:
    """Smallest of integers and arrays, channel by channel."""
    for bound in bounds:
        if isinstance(bound, np.ndarray):
            return reduce(np.minimum, bounds)
    return min(bounds)


def greater(*bounds: Bound) -> Bound:
    """Largest of integers and arrays, channel by channel."""
    for bound in bounds:
        if isinstance(bound, np.ndarray):
            return reduce(np.maximum, bounds)
    return max(bounds)


def clip(interval: Interval, low: int, high: int) -> Interval:
    """The interval of ``min(max(value, low), high)``."""
    if interval.within(low, high):
        return interval
    return Interval(lesser(greater(interval.low, low), high), lesser(greater(interval.high, low), high))


def hull(*intervals: Interval) -> Interval:
    """The smallest interval around all of these."""
    return Interval(lesser(*[i.low for i in intervals]), greater(*[i.high for i in intervals]))


def is_zero(a: Interval) -> bool:
    """True where every value is 0, as that of zero points mostly is."""
    return isinstance(a.low, int) and isinstance(a.high, int) and a.low == a.high == 0


def add(a: Interval, b: Interval) -> Interval:
    """The interval of a sum."""
    if is_zero(b):
        return a
    if (a.is_per_channel or b.is_per_channel) and a.magnitude + b.magnitude >= LIMIT:
        a, b = a.overall, b.overall
    return Interval(a.low + b.low, a.high + b.high)


def negative(a: Interval) -> Interval:
    """The interval of ``-a``."""
    return Interval(-a.high, -a.low)


def subtract(a: Interval, b: Interval) -> Interval:
    """The interval of a difference."""
    return a if is_zero(b) else add(a, negative(b))


def times(a: Interval, factor: int) -> Interval:
    """The interval of ``a * factor``, for a factor of at least 0."""
    if a.is_per_channel and a.magnitude * factor >= LIMIT:
        a = a.overall
    return Interval(a.low * factor, a.high * factor)


def product(a: Interval, b: Interval) -> Interval:
    """The interval of the product of two independent values."""
    if (a.is_per_channel or b.is_per_channel) and a.magnitude * b.magnitude >= LIMIT:
        a, b = a.overall, b.overall
    corners = a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high
    return Interval(lesser(*corners), greater(*corners))


def arrays(interval: Interval) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both bounds as int64 arrays of shape [C] or [1]; they must be below ``LIMIT``."""
    low, high = (bound if isinstance(bound, np.ndarray) else [bound] for bound in (interval.low, interval.high))
    return np.asarray(low, np.int64), np.asarray(high, np.int64)


# -------------------------------------------------------------------------------------------------- operands
def fit(interval: Interval, channels: int) -> Interval:
    """The interval itself where it can be read channel by channel with ``channels`` of them, else its overall form."""
    return interval if not interval.is_per_channel or interval.channels == channels else interval.overall


def last(tensor: Tensor) -> int:
    """Length of the last axis; 1 for a scalar, 0 or less where it is known only at run time."""
    return tensor.shape[-1] if tensor.shape else 1


def operand(op: AnyOp, slot: int, of: Lookup) -> Interval:
    """The interval of an operand that is broadcast to the result along the last axis."""
    return fit(of(op.inputs[slot]), last(op.output))


def constant(tensor: Tensor) -> NDArray[Any] | None:
    """Values of a tensor computed from a constant by RESHAPE, TRANSPOSE and IDENTITY alone, else None."""
    chain: list[AnyOp] = []
    while not tensor.is_constant:
        op = tensor.producer
        if op is None or not isinstance(op.attrs, ops.Reshape | ops.Transpose | ops.Identity) or not op.inputs:
            return None
        chain.append(op)
        tensor = op.inputs[0]
    if tensor.data is None:
        return None
    values = tensor.values()
    for op in reversed(chain):
        if isinstance(op.attrs, ops.Transpose):
            if sorted(op.attrs.perms) != list(range(values.ndim)):
                return None
            values = values.transpose(op.attrs.perms)
        elif isinstance(op.attrs, ops.Reshape):
            if any(size < 0 for size in op.output.shape) or np.prod(op.output.shape, dtype=np.int64) != values.size:
                return None
            values = values.reshape(op.output.shape)
    return values


def sizes(tensor: Tensor, count: int) -> list[int] | None:
    """The ``count`` values of a constant shape operand; None where they are known only at run time."""
    values = constant(tensor)
    return None if values is None or values.size != count else [int(value) for value in values.ravel()]


def of_constant(tensor: Tensor) -> Interval | None:
    """The interval of a CONST or CONST_SHAPE, for each index of the last axis; None without data or elements."""
    if tensor.data is None or min(tensor.shape, default=1) <= 0:
        return None
    values = tensor.values()
    if values.size == 1:
        value = int(values.item())
        return Interval(value, value)
    if values.ndim == 1:
        ends = values.astype(np.int64)
        return Interval(ends, ends)
    rows = values.reshape(-1, last(tensor))
    return Interval(rows.min(axis=0).astype(np.int64), rows.max(axis=0).astype(np.int64))
