"""Intervals of the elementwise operators, TABLE and RESCALE among them, in terms of those of their operands."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import AnyOp
from tosakit.ir.operator import Attributes
from tosakit.ir.types import byte_size, decode
from tosakit.numerics._interval import (
    LIMIT,
    UNBOUNDED,
    Bound,
    Handler,
    Interval,
    Lookup,
    add,
    arrays,
    clip,
    constant,
    greater,
    hull,
    last,
    lesser,
    negative,
    operand,
    product,
    subtract,
    times,
)
from tosakit.numerics.scale import MAX_SHIFT, MIN_SHIFT


def _add(op: AnyOp, of: Lookup) -> Interval:
    return add(operand(op, 0, of), operand(op, 1, of))


def _sub(op: AnyOp, of: Lookup) -> Interval:
    if op.inputs[0] is op.inputs[1]:
        return Interval(0, 0)
    return subtract(operand(op, 0, of), operand(op, 1, of))


def _maximum(op: AnyOp, of: Lookup) -> Interval:
    a, b = operand(op, 0, of), operand(op, 1, of)
    return Interval(greater(a.low, b.low), greater(a.high, b.high))


def _minimum(op: AnyOp, of: Lookup) -> Interval:
    a, b = operand(op, 0, of), operand(op, 1, of)
    return Interval(lesser(a.low, b.low), lesser(a.high, b.high))


def _absolute(a: Interval) -> Interval:
    return Interval(greater(0, a.low, -a.high), greater(-a.low, a.high))


def _abs(op: AnyOp, of: Lookup) -> Interval:
    return _absolute(operand(op, 0, of))


def _negate(op: AnyOp, of: Lookup) -> Interval:
    value = subtract(operand(op, 0, of), of(op.inputs[1]).overall)
    return add(negative(value), of(op.inputs[2]).overall)


def _mul(op: AnyOp, of: Lookup) -> Interval:
    """``(a * b + 2**(shift-1)) >> shift``; only int32 operands have a shift."""
    a = operand(op, 0, of)
    if op.inputs[0] is op.inputs[1]:
        a = _absolute(a)  # a square: as if of a value that is never negative
    result = product(a, a if op.inputs[0] is op.inputs[1] else operand(op, 1, of))
    if op.inputs[0].dtype != DType.INT32:
        return result
    shift = of(op.inputs[2]).overall
    if shift.lowest != shift.highest:
        return hull(result, Interval(0, 0))
    s = shift.lowest
    # Shifting by s - 1, adding one and shifting once more is the same number without the large rounding term.
    return Interval(((result.low >> (s - 1)) + 1) >> 1, ((result.high >> (s - 1)) + 1) >> 1) if s > 0 else result


def _arithmetic_right_shift(op: AnyOp, of: Lookup) -> Interval | None:
    """Monotone in the value, and in the shift for each sign, so a corner holds each extreme."""
    bits = {DType.INT8: 8, DType.INT16: 16, DType.INT32: 32}.get(op.output.dtype)
    if bits is None:
        return None
    x, s = operand(op, 0, of), clip(operand(op, 1, of), 0, bits - 1)
    rounded = isinstance(op.attrs, ops.ArithmeticRightShift) and op.attrs.round

    def shifted(value: NDArray[np.int64], shift: NDArray[np.int64]) -> NDArray[np.int64]:
        return (value + ((np.int64(1) << shift) >> 1) * rounded) >> shift

    (x_low, x_high), (s_low, s_high) = arrays(x), arrays(s)
    return Interval(
        lesser(shifted(x_low, s_low), shifted(x_low, s_high)), greater(shifted(x_high, s_low), shifted(x_high, s_high))
    )


def _intdiv(op: AnyOp, of: Lookup) -> Interval:
    """Division towards zero; monotone in both operands while the divisor keeps its sign."""
    x, d = operand(op, 0, of), operand(op, 1, of)
    if d.lowest <= 0 <= d.highest or x.magnitude >= LIMIT:  # 0 is unpredictable, the others make no value larger
        return Interval(-x.magnitude, x.magnitude)
    corners = [np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)) for a in arrays(x) for b in arrays(d)]
    return Interval(lesser(*corners), greater(*corners))


def _clamp(op: AnyOp, of: Lookup) -> Interval | None:
    attrs, dtype = op.attrs, op.output.dtype
    if not isinstance(attrs, ops.Clamp) or min(len(attrs.min_val), len(attrs.max_val)) < byte_size(dtype, (1,)):
        return None
    low, high = (int(decode(data, dtype, (1,))[0]) for data in (attrs.min_val, attrs.max_val))
    return clip(operand(op, 0, of), low, high)


def _clz(_op: AnyOp, _of: Lookup) -> Interval:
    return Interval(0, 32)


def _argmax(op: AnyOp, _of: Lookup) -> Interval | None:
    shape, axis = op.inputs[0].shape, op.attrs.axis if isinstance(op.attrs, ops.ArgMax) else -1
    return Interval(0, shape[axis] - 1) if 0 <= axis < len(shape) and shape[axis] > 0 else None


# -------------------------------------------------------------------------------------------------- TABLE, RESCALE
def _table(op: AnyOp, of: Lookup) -> Interval | None:
    """int8: the entries in reach. int16: linear between entries 128 codes apart, with 7 bits of fraction."""
    wide = op.inputs[0].dtype == DType.INT16
    table, x = constant(op.inputs[1]), operand(op, 0, of)
    if table is None:
        return times(of(op.inputs[1]).overall, 128 if wide else 1)
    if op.inputs[0].dtype not in (DType.INT8, DType.INT16) or table.size != (513 if wide else 256):
        return None
    entries = table.ravel().astype(np.int64)
    low, high = arrays(x)
    if not wide:
        return Interval(
            _over_ranges(np.minimum, entries, low + 128, high + 128),
            _over_ranges(np.maximum, entries, low + 128, high + 128),
        )

    def interpolated(code: NDArray[np.int64]) -> NDArray[np.int64]:
        index = (code >> 7) + 256
        return np.asarray(entries[index] * 128 + (entries[index + 1] - entries[index]) * (code & 127), np.int64)

    ends = interpolated(low), interpolated(high)
    first, final = ((low + 127) >> 7) + 256, (high >> 7) + 256  # the entries that codes in between hit exactly
    smallest, largest = (_over_ranges(ufunc, entries * 128, first, final) for ufunc in (np.minimum, np.maximum))
    return Interval(
        lesser(*ends, np.where(first <= final, smallest, ends[0])),
        greater(*ends, np.where(first <= final, largest, ends[0])),
    )


def _over_ranges(
    ufunc: np.ufunc, values: NDArray[np.int64], first: NDArray[np.int64], final: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Reduce ``values[first:final + 1]`` for each pair of indices; where that is empty the result means nothing."""
    bounds = np.stack([first, final + 1], axis=1).ravel()
    return np.asarray(ufunc.reduceat(np.append(values, values[-1]), bounds)[::2], np.int64)


_BITS = {DType.INT8: 8, DType.INT16: 16, DType.INT32: 32, DType.INT48: 48}


def _rescale_operand(op: AnyOp, attrs: ops.Rescale, of: Lookup) -> Interval | None:
    """The interval of ``value - input_zp``; None for dtypes that no RESCALE has and a zero point out of this world."""
    bits = _BITS.get(op.inputs[0].dtype)
    if bits is None or (attrs.input_unsigned and bits > 16):
        return None
    x, zero_point = operand(op, 0, of), of(op.inputs[3]).overall
    if attrs.input_unsigned:
        x, zero_point = _zero_extended(x, bits), _zero_extended(zero_point, bits)
    v = subtract(x, zero_point)
    return v if v.magnitude < LIMIT else None


def _rescale_pair(op: AnyOp, attrs: ops.Rescale) -> tuple[Bound, Bound] | None:
    """Multiplier and shift; None where they are not constant, not legal, or the rounding is not specified."""
    m, s = constant(op.inputs[1]), constant(op.inputs[2])
    channels = last(op.output) if attrs.per_channel else 1
    if m is None or s is None or m.size != channels or s.size != channels:
        return None
    if attrs.rounding_mode not in (RoundingMode.SINGLE_ROUND, RoundingMode.DOUBLE_ROUND):
        return None
    if channels == 1:
        one_m, one_s = int(m.item()), int(s.item())
        return (one_m, one_s) if 0 <= one_m < 1 << 31 and MIN_SHIFT <= one_s <= MAX_SHIFT else None
    m, s = m.ravel().astype(np.int64), s.ravel().astype(np.int64)
    if m.min() < 0 or m.max() >= 1 << 31 or s.min() < MIN_SHIFT or s.max() > MAX_SHIFT:
        return None
    return m, s


def _scaled(v: Any, m: Any, s: Any, *, double_round: bool) -> Any:
    """``(v * m + rounding) >> s``, which never falls as ``v`` rises; integers, or arrays of int64 or of integers."""
    rounding = 1 << (s - 1)
    if double_round:
        rounding = rounding + (s > 31) * (((v >= 0) * 2 - 1) << 30)
    return (v * m + rounding) >> s


def rescale(op: AnyOp, of: Lookup) -> Interval | None:
    """What a predictable RESCALE gives: bit patterns of the result's dtype where the output is unsigned."""
    attrs, bits = op.attrs, _BITS.get(op.output.dtype)
    if not isinstance(attrs, ops.Rescale) or bits is None:
        return None
    v, pair = _rescale_operand(op, attrs, of), _rescale_pair(op, attrs)
    if v is None or pair is None:
        return None
    m, s = pair
    if not attrs.scale32 and not Interval(m, m).within(0, (1 << 15) - 1):
        return None
    half = 1 << (lesser(s, 32) - 1 if attrs.scale32 else 47)  # REQUIREd of the value
    low, high = (
        _scaled(lesser(greater(bound, -half), half - 1), m, s, double_round=_rounds_twice(attrs))
        for bound in (v.low, v.high)
    )
    zero_point = of(op.inputs[4]).overall
    if not attrs.output_unsigned:
        return add(Interval(low, high), zero_point)
    result = add(Interval(low, high), _zero_extended(zero_point, bits))
    return _bit_pattern(clip(result, 0, (1 << bits) - 1), bits)


def rescale_unclipped(op: AnyOp, of: Lookup) -> Interval:
    """``(((value - input_zp) * m + rounding) >> s) + output_zp`` in exact arithmetic, whatever is required of it."""
    attrs, bits = op.attrs, _BITS.get(op.output.dtype)
    if not isinstance(attrs, ops.Rescale) or bits is None:
        return UNBOUNDED
    v, pair = _rescale_operand(op, attrs, of), _rescale_pair(op, attrs)
    if v is None:
        return UNBOUNDED
    zero_point = of(op.inputs[4]).overall
    if attrs.output_unsigned:
        zero_point = _zero_extended(zero_point, bits)
    if pair is None:
        bound = ((v.magnitude << 31) >> MIN_SHIFT) + 2  # for every legal pair and every rounding
        return add(Interval(-bound, bound), zero_point)
    numbers: tuple[Any, ...] = v.low, v.high, *pair
    fits = v.magnitude * int(np.max(pair[0])) < LIMIT
    v_low, v_high, m, s = numbers if fits else (np.asarray(number, object) for number in numbers)
    low, high = (_scaled(end, m, s, double_round=_rounds_twice(attrs)) for end in (v_low, v_high))
    exact = Interval(low, high) if fits else Interval(int(np.min(low)), int(np.max(high)))
    return add(exact, zero_point)


def _rounds_twice(attrs: ops.Rescale) -> bool:
    return attrs.rounding_mode == RoundingMode.DOUBLE_ROUND


def _zero_extended(x: Interval, bits: int) -> Interval:
    """The unsigned numbers of bit patterns that are given as signed ones."""
    low, high = arrays(x)
    mixed = (low < 0) & (high >= 0)
    modulus = 1 << bits
    return Interval(
        np.where(mixed, 0, np.where(low < 0, low + modulus, low)),
        np.where(mixed, modulus - 1, np.where(high < 0, high + modulus, high)),
    )


def _bit_pattern(x: Interval, bits: int) -> Interval:
    """The signed numbers of bit patterns that are given as unsigned ones."""
    low, high = arrays(x)
    half = 1 << (bits - 1)
    mixed = (low < half) & (high >= half)
    return Interval(
        np.where(mixed, -half, np.where(low >= half, low - 2 * half, low)),
        np.where(mixed, half - 1, np.where(high >= half, high - 2 * half, high)),
    )


HANDLERS: Mapping[type[Attributes], Handler] = {
    ops.Add: _add,
    ops.Sub: _sub,
    ops.Mul: _mul,
    ops.IntDiv: _intdiv,
    ops.Maximum: _maximum,
    ops.Minimum: _minimum,
    ops.Abs: _abs,
    ops.Negate: _negate,
    ops.ArithmeticRightShift: _arithmetic_right_shift,
    ops.Clamp: _clamp,
    ops.Clz: _clz,
    ops.ArgMax: _argmax,
    ops.Table: _table,
    ops.Rescale: rescale,
}
