"""What values can be: REQUIREs that interval analysis proves broken, or cannot prove kept.

A finding is an error where every execution breaks the REQUIRE, and a warning, with the interval, where the analysis
only cannot exclude it. A TABLE of INT16 with a step that 16 bits do not hold is an error unless the operand provably
never stands at the step: the table is a constant that nothing else excuses. Real tables with such a step (reciprocals)
have it where the operand never is, and the analysis shows that.

Findings without a code are not for ``check``: they name a REQUIRE of which nothing at all is known.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import BITS, INTEGER_RANGES
from tosakit.numerics._interval import UNBOUNDED, hull, subtract, times
from tosakit.numerics._interval_sums import CONVOLUTIONS
from tosakit.numerics.intervals import Interval, Intervals
from tosakit.spec.call import Finding, constant_array

Ints = npt.NDArray[np.int64]
Rule = Callable[[AnyOp, Intervals], Iterator[Finding]]


_SUMS = (*CONVOLUTIONS, ops.ReduceSum, ops.MatMul, ops.MatMulT)


def unproved(op: AnyOp, intervals: Intervals) -> list[Finding]:
    """Every REQUIRE on the values of an operator that the intervals do not prove: an error is always broken.

    Raises InvalidModel for broken constants above the operator.
    """
    rule = RULES.get(type(op.attrs))
    return [] if rule is None else list(rule(op, intervals))


def suspicions(rule: Rule, op: AnyOp, intervals: Intervals) -> list[Finding]:
    """What a rule has to say to ``check``. Raises as :func:`unproved` does."""
    return [finding for finding in rule(op, intervals) if finding.code]


def _unknown(what: str, tensor: Tensor) -> Finding:
    return Finding("", what, (tensor,), "warning")


def _outside(interval: Interval, low: "int | Ints", high: "int | Ints") -> str:
    """How an interval lies to what is allowed: "" inside, "always" outside for some channel, else "maybe"."""
    below, above = np.asarray(interval.low), np.asarray(interval.high)
    if np.any((below > high) | (above < low)):
        return "always"
    return "maybe" if np.any((below < low) | (above > high)) else ""


def _finding(
    how: str, code: str, what: str, interval: Interval, allowed: str, tensors: tuple[Tensor, ...]
) -> Iterator[Finding]:
    if how:
        verb, severity = ("is", "error") if how == "always" else ("can be", "warning")
        message = f"{what} {verb} {interval.lowest} to {interval.highest}, {allowed}"
        if interval.magnitude >= UNBOUNDED.magnitude:
            message = f"nothing is known of {what}, {allowed}"
        yield Finding(code, message, tensors, cast(Any, severity))


def _result(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """Sums and products whose exact value must fit the result's type."""
    if op.output.dtype not in INTEGER_RANGES:
        return
    low, high = INTEGER_RANGES[op.output.dtype]
    exact = intervals.unclipped(op)
    allowed = f"{op.output.dtype.name} holds {low} to {high}"
    how = _outside(exact, low, high)
    yield from _finding(how, "ResultOverflow", "the exact result", exact, allowed, (op.output,))
    if not how and isinstance(op.attrs, _SUMS):
        some = intervals.partial(op)
        how = "maybe" if _outside(some, low, high) else ""
        yield from _finding(how, "ResultOverflow", "a sum of some of the terms", some, allowed, (op.output,))


def _int32_result(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """ABS, NEGATE and INTDIV of the smallest INT32 leave it; narrower types are computed in INT32."""
    if op.output.dtype == DType.INT32:
        yield from _result(op, intervals)


def _average(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """The sum of a window must fit INT32."""
    attrs, x = op.attrs, op.inputs[0]
    if not isinstance(attrs, ops.AvgPool2d) or x.dtype not in INTEGER_RANGES or len(attrs.kernel) != 2:
        return
    value = hull(subtract(intervals.of(x), intervals.of(op.inputs[1]).overall), Interval(0, 0))
    total = times(value, attrs.kernel[0] * attrs.kernel[1])
    low, high = INTEGER_RANGES[DType.INT32]
    how = "maybe" if _outside(total, low, high) else ""
    yield from _finding(how, "ResultOverflow", "the sum of a window", total, f"INT32 holds {low} to {high}", (x,))


def _rescale(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """The operand less its zero point must fit the shift (scale32), the scaled value must fit INT32 (without)."""
    attrs, source = op.attrs, op.inputs[0]
    shifts = constant_array(op.inputs[2])
    if not isinstance(attrs, ops.Rescale) or source.dtype not in INTEGER_RANGES:
        return
    if shifts is not None and not shifts.size:
        return  # a size that only run time knows
    if shifts is None or (not attrs.scale32 and constant_array(op.inputs[1]) is None):
        yield _unknown("multiplier and shift are no constants, and what they allow is not known", op.inputs[2])
        return
    zero = intervals.of(op.inputs[3])
    value = intervals.of(source)
    if attrs.input_unsigned:
        largest = (1 << BITS[source.dtype]) - 1
        value, zero = Interval(0, largest), Interval(0, largest)
    value = Interval(value.low - zero.highest, value.high - zero.lowest)
    if attrs.scale32:
        half = np.int64(1) << (np.clip(shifts.astype(np.int64), 1, 32) - 1)
        if not attrs.per_channel or half.shape != np.broadcast(np.asarray(value.low), half).shape:
            half, value = half.min(), value.overall
        channel = int(np.argmax(np.maximum(-np.asarray(value.low) - half, np.asarray(value.high) - half + 1)))
        limit = int(half if half.ndim == 0 else half[channel])
        allowed = f"with shift {limit.bit_length()} it must be {-limit} to {limit - 1}"
        how = _outside(value, -half, half - 1)
        yield from _finding(how, "RescaleInputRange", "the operand less input_zp", value, allowed, (source,))
        return
    if attrs.rounding_mode == RoundingMode.INEXACT_ROUND:
        yield _unknown("INEXACT_ROUND leaves open how it rounds, so that the scaled operand is not known", source)
        return
    exact = intervals.unclipped(op)
    shift_back = intervals.of(op.inputs[4])
    low, high = INTEGER_RANGES[DType.INT32]
    scaled = Interval(exact.low - shift_back.highest, exact.high - shift_back.lowest)
    if attrs.output_unsigned:
        low, high = low - (1 << 16), high + (1 << 16)
    how = _outside(scaled, low, high)
    allowed = f"a scaled value must be {low} to {high} before it is clipped"
    yield from _finding(how, "RescaleResultRange", "the scaled operand", scaled, allowed, (source,))


def steep_segments(entries: Ints) -> Ints:
    """Indices of the entries of an INT16 table that differ from the next one by more than INT16 holds."""
    slopes = np.diff(entries.astype(np.int64))
    found: Ints = np.flatnonzero((slopes < -(1 << 15)) | (slopes >= 1 << 15))
    return found


def _table(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """An INT16 table must not have a steep step where the operand can stand; value v reads entry (v + 32768) >> 7."""
    entries = constant_array(op.inputs[1])
    if op.inputs[0].dtype != DType.INT16:
        return
    if entries is None or entries.size != 513:
        yield _unknown("the table is no constant, and its steps are not known", op.inputs[1])
        return
    steep = steep_segments(entries.reshape(-1))
    if not steep.size:
        return
    operand = intervals.of(op.inputs[0])
    first, last = (np.asarray(bound) + (1 << 15) >> 7 for bound in (operand.low, operand.high))
    hit = [int(place) for place in steep if np.any((first <= place) & (place <= last))]
    if hit:
        place = hit[0]
        start = (place << 7) - (1 << 15)
        step = int(entries.reshape(-1)[place + 1]) - int(entries.reshape(-1)[place])
        message = (
            f"entries {place} and {place + 1} differ by {step}, more than INT16 holds, and the operand can be "
            f"{operand.lowest} to {operand.highest}, which includes {start} to {start + 127} between them"
        )
        yield Finding("TableSlope", message, (op.inputs[0], op.inputs[1]))


def _bounded(operand: int, code: str, what: str, limits: Callable[[AnyOp], tuple[int, int] | None]) -> Rule:
    """A computed operand must stay within limits; nothing is said where nothing at all is known of it."""

    def check(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
        tensor, allowed = op.inputs[operand], limits(op)
        if allowed is None or tensor.is_constant or tensor.dtype not in INTEGER_RANGES:
            return
        interval = intervals.of(tensor)
        how = _outside(interval, *allowed)
        text = f"it must be {allowed[0]} to {allowed[1]}"
        if (interval.lowest, interval.highest) != INTEGER_RANGES[tensor.dtype]:
            yield from _finding(how, code, what, interval, text, (tensor,))
        elif how:
            yield _unknown(f"nothing is known of {what}, {text}", tensor)

    return check


def _rows(op: AnyOp) -> tuple[int, int] | None:
    shape = op.inputs[0].shape
    return (0, shape[1] - 1) if len(shape) == 3 and shape[1] > 0 else None


def _width(op: AnyOp) -> tuple[int, int] | None:
    return 0, BITS.get(op.inputs[0].dtype, 1) - 1


_indices = _bounded(1, "GatherIndexOutOfRange", "an index", _rows)


def _scatter(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """SCATTER must not write a row twice; computed indices are not known well enough to tell."""
    yield from _indices(op, intervals)
    indices = op.inputs[1]
    if not indices.is_constant and (len(indices.shape) != 2 or indices.shape[1] != 1):
        yield _unknown("the indices are no constants, and whether one comes twice is not known", indices)


def _divisor(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """INTDIV must not divide by 0, nor the smallest INT32 by -1."""
    tensor = op.inputs[1]
    if tensor.dtype not in INTEGER_RANGES:
        return
    interval = intervals.of(tensor)
    has_zero = bool(np.any((np.asarray(interval.low) <= 0) & (np.asarray(interval.high) >= 0)))
    has_zero = has_zero and not tensor.is_constant
    if has_zero and (interval.lowest, interval.highest) == INTEGER_RANGES[tensor.dtype]:
        yield _unknown("nothing is known of the divisor, it must not be 0", tensor)
    elif has_zero:
        how = "always" if interval.magnitude == 0 else "maybe"
        yield from _finding(how, "DivisionByZero", "the divisor", interval, "it must not be 0", (tensor,))
    elif intervals.of(op.inputs[0]).lowest == INTEGER_RANGES[DType.INT32][0] and interval.lowest <= -1:
        yield from _int32_result(op, intervals)


_SHIFTED = _bounded(1, "ShiftAmountInvalid", "the shift amount", _width)

RULES: Mapping[type[Attributes], Rule] = {
    **dict.fromkeys((ops.Add, ops.Sub, ops.Mul, *_SUMS), _result),
    **dict.fromkeys((ops.Abs, ops.Negate), _int32_result),
    **dict.fromkeys((ops.ArithmeticRightShift, ops.LogicalLeftShift, ops.LogicalRightShift), _SHIFTED),
    ops.Rescale: _rescale,
    ops.Table: _table,
    ops.IntDiv: _divisor,
    ops.AvgPool2d: _average,
    ops.Gather: _indices,
    ops.Scatter: _scatter,
    ops.RowGather: _indices,
}
"""Rules about values by operator class."""
