"""Operators that TOSA has on int32, or with an int32 result, only: widen the operands, narrow the result."""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from rewrites._int16.plan import (
    Constant,
    Operand,
    Plan,
    Result,
    Widened,
    given,
    held_by,
    only_value,
    real_ratio,
    real_sum,
    require_static,
    scale_of,
    within,
)
from rewrites._int16.scaling import Held, Scaling, find_scaling
from tosakit.engine.contract import Exact, WithinLsb
from tosakit.engine.rule import Context, Reference
from tosakit.errors import Unsupported
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.types import INTEGER_RANGES, Array

HEADROOM_BITS = 11
"""ADD and SUB work on the scale ``2 * max(s1, s2) / 2**12``: operands of up to 27 bits, results of up to 28."""

_Values = Mapping[Tensor, Array]
_ONE = Fraction(1)
_TABLE_ENTRIES = 513
_TABLE_FRACTION_BITS = 7  # an int16 TABLE interpolates: its result counts 2**-7 of an entry


def add_or_subtract(op: AnyOp, context: Context) -> Plan | None:
    """ADD, SUB: both operands on a common scale, where their real values add up."""
    if not _concerns(op, 2, (DType.INT16, DType.INT32)):
        return None
    a, b = op.inputs
    scale_a, scale_b, scale_out = (scale_of(t) for t in (a, b, op.output))
    common = max(scale_a, scale_b) / (1 << HEADROOM_BITS)
    wide_a, held_a = _widen(a, scale_a / common, context)
    wide_b, held_b = _widen(b, scale_b / common, context)
    sign = -1 if isinstance(op.attrs, ops.Sub) else 1
    low, high = (held_b.low, held_b.high) if sign > 0 else (-held_b.high, -held_b.low)
    total = Held(held_a.low + low, held_a.high + high, held_a.error + held_b.error)
    share_a, share_b = scale_a / scale_out, sign * scale_b / scale_out

    def reference(values: _Values) -> _Values:
        return {op.output: real_sum((given(values, a), share_a), (given(values, b), share_b))}

    whole = share_a.denominator == share_b.denominator == 1
    return _narrowed(op, (wide_a, wide_b), total, common / scale_out, reference, whole=whole)


def pick(op: AnyOp, context: Context) -> Plan | None:
    """MAXIMUM, MINIMUM: both operands on the smaller of their scales, where one of them is exact."""
    if not _concerns(op, 2, (DType.INT16, DType.INT32)):
        return None
    a, b = op.inputs
    scale_a, scale_b, scale_out = (scale_of(t) for t in (a, b, op.output))
    common = min(scale_a, scale_b)
    wide_a, held_a = _widen(a, scale_a / common, context)
    wide_b, held_b = _widen(b, scale_b / common, context)
    is_maximum = isinstance(op.attrs, ops.Maximum)
    end = max if is_maximum else min
    picked = Held(end(held_a.low, held_b.low), end(held_a.high, held_b.high), max(held_a.error, held_b.error))
    share_a, share_b = scale_a / scale_out, scale_b / scale_out

    def reference(values: _Values) -> _Values:
        real_a, real_b = real_sum((given(values, a), share_a)), real_sum((given(values, b), share_b))
        return {op.output: np.maximum(real_a, real_b) if is_maximum else np.minimum(real_a, real_b)}

    whole = share_a.denominator == share_b.denominator == 1
    return _narrowed(op, (wide_a, wide_b), picked, common / scale_out, reference, whole=whole)


def compare(op: AnyOp, context: Context) -> Plan | None:
    """EQUAL, GREATER, GREATER_EQUAL: both operands on the smaller of their scales; exact where the scales are equal.

    Otherwise the operand of the larger scale is rounded, and the answer is right wherever the operands lie further
    apart than that can move them. Closer ones count as half true, so that either answer is within 1/2.
    """
    if not _concerns(op, 2, (DType.BOOL,)):
        return None
    a, b = op.inputs
    scale_a, scale_b = scale_of(a), scale_of(b)
    common = min(scale_a, scale_b)
    wide_a, held_a = _widen(a, scale_a / common, context)
    wide_b, held_b = _widen(b, scale_b / common, context)
    margin = held_a.error + held_b.error

    def reference(values: _Values) -> _Values:
        gap = real_sum((given(values, a), scale_a / common), (given(values, b), -scale_b / common))
        if isinstance(op.attrs, ops.Equal):
            truth = gap == 0
        else:
            truth = gap > 0 if isinstance(op.attrs, ops.Greater) else gap >= 0
        return {op.output: np.where((np.abs(gap) <= float(margin)) & (margin > 0), 0.5, truth)}

    contract = (
        WithinLsb(0.5, f"exact for operands more than {float(margin):.6g} LSB of the smaller scale apart, else either")
        if margin
        else Exact()
    )
    return Plan(op.attrs, (wide_a, wide_b), DType.BOOL, (Result(op.output),), contract, reference, (op,))


def multiply(op: AnyOp, context: Context) -> Plan | None:
    """MUL: the product of two int16 is int32, at the product of their scales."""
    if [t.dtype for t in (*op.inputs[:2], op.output)] == [DType.INT16, DType.INT16, DType.INT32]:
        return None
    if not _concerns(op, 2, (DType.INT16,)):
        return None
    a, b, shift = op.inputs
    if only_value(shift) != 0:
        raise Unsupported(f'shift "{shift.name}" is {only_value(shift)}; TOSA shifts int32 products only')
    scale_a, scale_b, scale_out = (scale_of(t) for t in (a, b, op.output))
    held_a, held_b = held_by(a, context), held_by(b, context)
    ends = [x * y for x in (held_a.low, held_a.high) for y in (held_b.low, held_b.high)]
    share = scale_a * scale_b / scale_out

    def reference(values: _Values) -> _Values:
        product = given(values, a) * given(values, b)
        return {op.output: real_sum((product, share))}

    operands = (a, b, Constant(np.zeros(1, np.int8), DType.INT8, "shift"))
    return _narrowed(op, operands, Held(min(ends), max(ends)), share, reference, whole=share.denominator == 1)


def absolute(op: AnyOp, context: Context) -> Plan | None:
    """ABS: on int32, where ``|-32768|`` exists."""
    if not _concerns(op, 1, (DType.INT16, DType.INT32)):
        return None
    (x,) = op.inputs
    share = scale_of(x) / scale_of(op.output)
    wide, held = _widen(x, _ONE, context)
    low = 0 if held.low <= 0 <= held.high else min(abs(held.low), abs(held.high))

    def reference(values: _Values) -> _Values:
        return {op.output: real_sum((np.abs(given(values, x)), share))}

    return _narrowed(op, (wide,), Held(low, held.magnitude), share, reference, whole=share.denominator == 1)


def sum_up(op: AnyOp, context: Context) -> Plan | None:
    """REDUCE_SUM: on int32, where the sum over the axis must fit."""
    if not _concerns(op, 1, (DType.INT16, DType.INT32)):
        return None
    (x,) = op.inputs
    axis = op.attrs.axis if isinstance(op.attrs, ops.ReduceSum) else 0
    if not 0 <= axis < len(x.shape):
        raise Unsupported(f"axis {axis} does not exist in shape {list(x.shape)}")
    require_static(x)
    length = x.shape[axis]
    share = scale_of(x) / scale_of(op.output)
    wide, held = _widen(x, _ONE, context)
    total = Held(held.low * length, held.high * length)
    if not _fits_int32(total):
        raise Unsupported(
            f"the sum of {length} values from {held.low} to {held.high} reaches {total.magnitude}, beyond int32"
        )

    def reference(values: _Values) -> _Values:
        return {op.output: real_sum((given(values, x).sum(axis, keepdims=True), share))}

    return _narrowed(op, (wide,), total, share, reference, whole=share.denominator == 1)


def divide(op: AnyOp, context: Context) -> Plan | None:
    """INTDIV: the dividend on the scale on which the quotient counts LSB of the result; it truncates as before."""
    if not _concerns(op, 2, (DType.INT16, DType.INT32)):
        return None
    a, b = op.inputs
    factor = scale_of(a) / (scale_of(b) * scale_of(op.output))
    wide_a, held_a = _widen(a, factor, context)
    wide_b, held_b = _widen(b, _ONE, context)
    if held_b.low <= 0 <= held_b.high:
        raise Unsupported(
            f'divisor "{b.name}" can be 0 (it holds {held_b.low} to {held_b.high}), for which INTDIV is unpredictable; '
            "CLAMP it first"
        )
    smallest = min(abs(held_b.low), abs(held_b.high))
    reach = held_a.magnitude // smallest
    quotient = Held(-reach, reach, held_a.error / smallest + 1)

    def reference(values: _Values) -> _Values:
        return {op.output: real_ratio(given(values, a), given(values, b), factor)}

    return _narrowed(op, (wide_a, wide_b), quotient, _ONE, reference)


def look_up(op: AnyOp, context: Context) -> Plan | None:
    """TABLE: int32 in 2**-7 of a table entry. A table without parameters of its own holds codes of the result."""
    if op.inputs[0].dtype != DType.INT16 or op.output.dtype == DType.INT32 or not _concerns(op, 1, (DType.INT16,)):
        return None
    x, table = op.inputs
    if table.dtype != DType.INT16 or table.shape != (_TABLE_ENTRIES,) or not table.is_constant:
        raise Unsupported(
            f'table "{table.name}" is {table.dtype.name} {list(table.shape)}; an INT16 operand needs a constant '
            f"INT16 [{_TABLE_ENTRIES}]"
        )
    entries = table.values().astype(np.int64)
    slopes = np.diff(entries)
    low, high = INTEGER_RANGES[DType.INT16]
    steep = np.flatnonzero((slopes < low) | (slopes > high))
    if steep.size:
        raise Unsupported(
            f'entries {steep[0]} and {steep[0] + 1} of table "{table.name}", {entries[steep[0]]} and '
            f"{entries[steep[0] + 1]}, are too far apart to interpolate: slopes are int16"
        )
    scale_out = scale_of(op.output)
    scale_table = scale_out if table.quantization is None else scale_of(table)
    share = scale_table / scale_out / (1 << _TABLE_FRACTION_BITS)

    def reference(values: _Values) -> _Values:
        codes = given(values, x)
        left, fraction = (codes >> _TABLE_FRACTION_BITS) + 256, codes & ((1 << _TABLE_FRACTION_BITS) - 1)
        steps = (entries[left] << _TABLE_FRACTION_BITS) + (entries[left + 1] - entries[left]) * fraction
        return {op.output: real_sum((steps, share))}

    held = Held(int(entries.min()) << _TABLE_FRACTION_BITS, int(entries.max()) << _TABLE_FRACTION_BITS)
    return _narrowed(op, (x, table), held, share, reference, whole=share.denominator == 1)


def _concerns(op: AnyOp, operands: int, results: tuple[DType, ...]) -> bool:
    """True where an operator on int16 is illegal as it stands. Raises Unsupported where it mixes types."""
    read, out = op.inputs[:operands], op.output
    if all(t.dtype != DType.INT16 for t in (*read, out)):
        return False
    if any(t.dtype != DType.INT16 for t in read) or out.dtype not in results:
        types = " and ".join(t.dtype.name for t in read)
        raise Unsupported(
            f"it takes {types} to {out.dtype.name}; only INT16 to {' or '.join(dtype.name for dtype in results)} can "
            "be made legal, so RESCALE the others first"
        )
    if operands == 2:
        a, b = read
        try:
            fits = len(a.shape) == len(b.shape) and np.broadcast_shapes(a.shape, b.shape) == out.shape
        except ValueError:
            fits = False
        if not fits:
            raise Unsupported(
                f"operands of shape {list(a.shape)} and {list(b.shape)} do not broadcast to {list(out.shape)}; TOSA "
                "wants equal ranks, and sizes that are equal or 1"
            )
    return True


def _widen(tensor: Tensor, scale: Fraction, context: Context) -> tuple[Widened, Held]:
    try:
        scaling, (held,) = find_scaling((scale,), (held_by(tensor, context),), DType.INT32)
    except Unsupported as error:
        raise Unsupported(
            f'operand "{tensor.name}" cannot be widened to INT32 by {float(scale):.6g}, the ratio of its scale to the '
            f"common one: {error}"
        ) from None
    return Widened(tensor, scaling), held


def _narrowed(
    op: AnyOp, operands: tuple[Operand, ...], held: Held, scale: Fraction, reference: Reference, *, whole: bool = False
) -> Plan:
    """The operator on int32, and a RESCALE by ``scale`` to the type of the old result."""
    out = op.output
    if not _fits_int32(held):
        raise Unsupported(f"its INT32 result reaches {held.magnitude}, beyond int32")
    steps: tuple[Scaling, ...] = ()
    if out.dtype != DType.INT32 or scale != 1:
        try:
            scaling, (held,) = find_scaling((scale,), (held,), out.dtype, whole=whole)
        except Unsupported as error:
            raise Unsupported(
                f'its INT32 result cannot be rescaled by {float(scale):.6g} to the scale of "{out.name}": {error}'
            ) from None
        steps = (scaling,)
    contract = within(held.error, "roundings of the operands, the scale and the result")
    return Plan(op.attrs, operands, DType.INT32, (Result(out, steps),), contract, reference, (op,))


def _fits_int32(held: Held) -> bool:
    low, high = INTEGER_RANGES[DType.INT32]
    return low <= held.low and held.high <= high
