"""Intervals of comparisons, BOOL logic, bit operators and shifts, in terms of those of their operands.

BOOL counts as 0 and 1.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp
from tosakit.ir.operator import Attributes
from tosakit.ir.types import BITS, INTEGER_RANGES
from tosakit.numerics._interval import (
    Handler,
    Interval,
    Lookup,
    arrays,
    clip,
    fit,
    greater,
    hull,
    last,
    lesser,
    operand,
    subtract,
)

_ONE = Interval(1, 1)
_MINUS_ONE = Interval(-1, -1)


def _truth(surely: Any, possibly: Any) -> Interval:
    """0 to 1, narrower where a condition surely holds or cannot."""
    low, high = (np.atleast_1d(np.asarray(bound, np.int64)) for bound in (surely, possibly))
    return Interval(low, high)


def _equal(op: AnyOp, of: Lookup) -> Interval | None:
    if op.inputs[0].dtype not in INTEGER_RANGES:
        return None
    (a_low, a_high), (b_low, b_high) = (arrays(operand(op, slot, of)) for slot in (0, 1))
    return _truth((a_low == b_high) & (a_high == b_low), (a_low <= b_high) & (b_low <= a_high))


def _greater(op: AnyOp, of: Lookup) -> Interval | None:
    if op.inputs[0].dtype not in INTEGER_RANGES:
        return None
    (a_low, a_high), (b_low, b_high) = (arrays(operand(op, slot, of)) for slot in (0, 1))
    return _truth(a_low > b_high, a_high > b_low)


def _greater_equal(op: AnyOp, of: Lookup) -> Interval | None:
    if op.inputs[0].dtype not in INTEGER_RANGES:
        return None
    (a_low, a_high), (b_low, b_high) = (arrays(operand(op, slot, of)) for slot in (0, 1))
    return _truth(a_low >= b_high, a_high >= b_low)


def _logical_and(op: AnyOp, of: Lookup) -> Interval:
    a, b = operand(op, 0, of), operand(op, 1, of)
    return Interval(lesser(a.low, b.low), lesser(a.high, b.high))


def _logical_or(op: AnyOp, of: Lookup) -> Interval:
    a, b = operand(op, 0, of), operand(op, 1, of)
    return Interval(greater(a.low, b.low), greater(a.high, b.high))


def _logical_xor(op: AnyOp, of: Lookup) -> Interval:
    (a_low, a_high), (b_low, b_high) = (arrays(operand(op, slot, of)) for slot in (0, 1))
    known = (a_low == a_high) & (b_low == b_high)
    return Interval(np.where(known, a_low ^ b_low, 0), np.where(known, a_low ^ b_low, 1))


def _logical_not(op: AnyOp, of: Lookup) -> Interval:
    return subtract(_ONE, operand(op, 0, of))


def _reduce_truth(op: AnyOp, of: Lookup) -> Interval:
    """REDUCE_ALL is a minimum and REDUCE_ANY a maximum; along another axis than the last, channel by channel."""
    x, attrs = of(op.inputs[0]), op.attrs
    if not isinstance(attrs, ops.ReduceAll | ops.ReduceAny) or attrs.axis != len(op.inputs[0].shape) - 1:
        return fit(x, last(op.output))
    pick = np.min if isinstance(attrs, ops.ReduceAll) else np.max
    low, high = arrays(x)
    return Interval(int(pick(low)), int(pick(high)))


# -------------------------------------------------------------------------------------------------- bits
def _is_regular(op: AnyOp) -> bool:
    """True for operands and a result of one type, among those that TOSA has for bits."""
    dtypes = [tensor.dtype for tensor in (*op.inputs[:2], op.output)]
    return dtypes[0] in (DType.INT8, DType.INT16, DType.INT32) and all(dtype == dtypes[0] for dtype in dtypes)


def _inverted(x: Interval) -> Interval:
    return subtract(_MINUS_ONE, x)


def _power(*intervals: Interval) -> NDArray[np.int64]:
    """The smallest ``2**k`` of each channel for which all numbers are between ``-2**k`` and ``2**k - 1``."""
    reach = np.zeros(1, np.int64)
    for interval in intervals:
        low, high = arrays(interval)
        reach = np.maximum(reach, np.maximum(np.maximum(high, ~low), 0))
    bits = np.frexp(reach.astype(np.float64))[1]  # never too few: rounding a long number only makes it longer
    return np.asarray(np.int64(1) << bits.astype(np.int64), np.int64)


def _and(a: Interval, b: Interval) -> Interval:
    """A result of at least 0 is at most an operand of at least 0; a negative one is at most both operands."""
    (a_low, a_high), (b_low, b_high) = arrays(a), arrays(b)
    power = _power(a, b)
    both_negative = (a_high < 0) & (b_high < 0)
    high = np.where(both_negative, np.minimum(a_high, b_high), np.maximum(a_high, b_high))
    high = np.where(a_low >= 0, np.minimum(a_high, np.where(b_low >= 0, b_high, a_high)), high)
    high = np.where((b_low >= 0) & (a_low < 0), b_high, high)
    return Interval(np.where((a_low >= 0) | (b_low >= 0), 0, -power), high)


def _bitwise_and(op: AnyOp, of: Lookup) -> Interval | None:
    return _of_bits(op, of, _and, np.bitwise_and)


def _bitwise_or(op: AnyOp, of: Lookup) -> Interval | None:
    return _of_bits(op, of, lambda a, b: _inverted(_and(_inverted(a), _inverted(b))), np.bitwise_or)


def _xor(a: Interval, b: Interval) -> Interval:
    """Bits up to the longest of the operands; the sign where both signs are known."""
    (a_low, a_high), (b_low, b_high) = arrays(a), arrays(b)
    power = _power(a, b)
    alike = ((a_low >= 0) & (b_low >= 0)) | ((a_high < 0) & (b_high < 0))
    unlike = ((a_low >= 0) & (b_high < 0)) | ((a_high < 0) & (b_low >= 0))
    return Interval(np.where(alike, 0, -power), np.where(unlike, -1, power - 1))


def _bitwise_xor(op: AnyOp, of: Lookup) -> Interval | None:
    return _of_bits(op, of, _xor, np.bitwise_xor)


def _of_bits(op: AnyOp, of: Lookup, bound: Any, exact: np.ufunc) -> Interval | None:
    """The bound, and where both operands have one value the exact result."""
    if not _is_regular(op):
        return None
    a, b = operand(op, 0, of), operand(op, 1, of)
    (a_low, a_high), (b_low, b_high), (low, high) = arrays(a), arrays(b), arrays(bound(a, b))
    known = (a_low == a_high) & (b_low == b_high)
    value = exact(a_low, b_low)
    return Interval(np.where(known, value, low), np.where(known, value, high))


def _bitwise_not(op: AnyOp, of: Lookup) -> Interval:
    return _inverted(operand(op, 0, of))


def _logical_left_shift(op: AnyOp, of: Lookup) -> Interval | None:
    """``x << s``; None where bits can be lost at the top."""
    bits = BITS.get(op.output.dtype, 0)
    if not _is_regular(op):
        return None
    (x_low, x_high), (s_low, s_high) = arrays(operand(op, 0, of)), arrays(clip(operand(op, 1, of), 0, bits - 1))
    result = Interval(lesser(x_low << s_low, x_low << s_high), greater(x_high << s_low, x_high << s_high))
    return result if result.within(*INTEGER_RANGES[op.output.dtype]) else None


def _logical_right_shift(op: AnyOp, of: Lookup) -> Interval | None:
    """``x >> s`` of the bit pattern as an unsigned number; only a shift of 0 leaves it negative."""
    bits = BITS.get(op.output.dtype, 0)
    if not _is_regular(op):
        return None
    (x_low, x_high), (s_low, s_high) = arrays(operand(op, 0, of)), arrays(clip(operand(op, 1, of), 0, bits - 1))
    modulus = np.int64(1) << bits
    mixed = (x_low < 0) & (x_high >= 0)
    low = np.where(mixed, 0, np.where(x_low < 0, x_low + modulus, x_low)) >> s_high
    high = np.where(mixed, modulus - 1, np.where(x_high < 0, x_high + modulus, x_high)) >> np.maximum(s_low, 1)
    shifted = Interval(np.where(s_high > 0, low, x_low), np.where(s_high > 0, high, x_high))
    kept = Interval(np.where(s_low == 0, x_low, shifted.low), np.where(s_low == 0, x_high, shifted.high))
    return hull(shifted, kept)


def _to_bool(value: Interval) -> Interval:
    low, high = arrays(value)
    return _truth((low > 0) | (high < 0), (low != 0) | (high != 0))


def _cast(op: AnyOp, of: Lookup) -> Interval | None:
    """Widening keeps values; narrowing drops high bits, and BOOL keeps only whether the value is 0."""
    source, target = op.inputs[0].dtype, op.output.dtype
    if not (source in INTEGER_RANGES or source == DType.BOOL):
        return None
    value = operand(op, 0, of)
    if target == DType.BOOL:
        return _to_bool(value)
    return value if target in INTEGER_RANGES and value.within(*INTEGER_RANGES[target]) else None


def _select(op: AnyOp, of: Lookup) -> Interval:
    """One of two operands, or the one that the condition is known to choose."""
    chosen, a, b = (operand(op, slot, of) for slot in (0, 1, 2))
    if chosen.lowest == 1:
        return a
    if chosen.highest == 0:
        return b
    surely, possibly = arrays(chosen)
    both = hull(a, b)
    return Interval(
        np.where(surely == 1, a.low, np.where(possibly == 0, b.low, both.low)),
        np.where(surely == 1, a.high, np.where(possibly == 0, b.high, both.high)),
    )


HANDLERS: Mapping[type[Attributes], Handler] = {
    ops.Equal: _equal,
    ops.Greater: _greater,
    ops.GreaterEqual: _greater_equal,
    ops.LogicalAnd: _logical_and,
    ops.LogicalOr: _logical_or,
    ops.LogicalXor: _logical_xor,
    ops.LogicalNot: _logical_not,
    ops.ReduceAll: _reduce_truth,
    ops.ReduceAny: _reduce_truth,
    ops.BitwiseAnd: _bitwise_and,
    ops.BitwiseOr: _bitwise_or,
    ops.BitwiseXor: _bitwise_xor,
    ops.BitwiseNot: _bitwise_not,
    ops.LogicalLeftShift: _logical_left_shift,
    ops.LogicalRightShift: _logical_right_shift,
    ops.Cast: _cast,
    ops.Select: _select,
}
