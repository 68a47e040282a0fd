"""What values can be: REQUIREs that interval analysis proves broken, or cannot prove kept.

A finding is an error where every execution breaks the REQUIRE, and a warning, with the interval, where the analysis
only cannot exclude it. A TABLE of INT16 with a step that 16 bits do not hold is an error unless the operand provably
never stands at the step: the table is a constant that nothing else excuses. Real tables with such a step (reciprocals)
have it where the operand never is, and the analysis shows that.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import BITS, INTEGER_RANGES
from tosakit.numerics.intervals import Interval, Intervals
from tosakit.spec.call import Finding, constant_array
from tosakit.spec.operator_check import Memory

Ints = npt.NDArray[np.int64]
Rule = Callable[[AnyOp, Intervals], Iterator[Finding]]


Range = tuple[int, int]

_CONSTANTS = (ops.Const, ops.ConstShape)


class RangeCheck:
    """Checks the operators of a block in program order.

    A first pass follows one range for each tensor, in whole bits, and remembers every step, so that operators that
    repeat cost a look-up. Only what it does not settle is worth an analysis of the graph, channel by channel.
    """

    def __init__(self, memory: Memory) -> None:
        self._values = memory.values
        self._verdicts = memory.verdicts
        self._whole = Intervals()
        self._ranges: dict[Tensor, Range] = {}
        self._steps: dict[object, tuple[Range | None, bool]] = {}

    def findings(self, op: AnyOp) -> list[Finding]:
        """What is wrong or suspicious about the values of an operator."""
        kind, outputs = type(op.attrs), op.outputs
        if kind in _CONSTANTS or len(outputs) != 1:
            return []
        rule = RULES.get(kind)
        key = self._key(op, outputs[0])
        step = None if key is None else self._steps.get(key)
        if step is None:
            if rule is None and (key is None or outputs[0].dtype not in INTEGER_RANGES):
                return []
            step = self._step(op, rule, follow=key is not None)
            if key is not None:
                self._steps[key] = step
        found, settled = step
        if found is not None:
            self._ranges[outputs[0]] = found
        if settled or rule is None:
            return []
        try:
            return list(rule(op, self._whole))
        except TosakitError:  # broken constants further up, which are reported there
            return []

    def _key(self, op: AnyOp, output: Tensor) -> object:
        """All that a step depends on; None where that is too much to compare."""
        own = self._verdicts.get(output)
        if own is None:
            return None
        values, ranges = self._values, self._ranges
        key: list[object] = [own]
        for tensor in op.inputs:
            operand = values.get(tensor)
            if operand is None and tensor.is_constant:
                return None
            key.append(operand or ranges.get(tensor))
        return tuple(key)

    def _step(self, op: AnyOp, rule: Rule | None, *, follow: bool) -> tuple[Range | None, bool]:
        """The range of the result, None where its type says it all, and whether the rule is kept."""
        given = {
            tensor: self._ranges.get(tensor) or INTEGER_RANGES[tensor.dtype]
            for tensor in op.inputs
            if tensor.dtype in INTEGER_RANGES and not tensor.is_constant
        }
        output = op.outputs[0]
        try:
            here = Intervals(given)
            settled = rule is None or not list(rule(op, here))
            if not follow or output.dtype not in INTEGER_RANGES:
                return None, settled
            found = here.of(output)
        except TosakitError:
            return None, rule is None
        wide = _widened(found.lowest, found.highest)
        smallest, largest = INTEGER_RANGES[output.dtype]
        return (wide if wide[0] > smallest or wide[1] < largest else None), settled


def _widened(low: int, high: int) -> Range:
    """The range of all numbers with as many bits: repeating operators then have few ranges between them."""
    limit = 1 << max(high.bit_length(), (~low).bit_length())
    return (0 if low >= 0 else -limit), limit - 1


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
        yield Finding(code, message, tensors, cast(Any, severity))


def _result(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """Sums and products whose exact value must fit the result's type."""
    if op.output.dtype not in INTEGER_RANGES:
        return
    low, high = INTEGER_RANGES[op.output.dtype]
    exact = intervals.unclipped(op)
    allowed = f"{op.output.dtype.name} holds {low} to {high}"
    yield from _finding(_outside(exact, low, high), "ResultOverflow", "the exact result", exact, allowed, (op.output,))


def _rescale(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """The operand less its zero point must fit the shift (scale32), the scaled value must fit INT32 (without)."""
    attrs, source = op.attrs, op.inputs[0]
    shifts = constant_array(op.inputs[2])
    if not isinstance(attrs, ops.Rescale) or shifts is None or source.dtype not in INTEGER_RANGES:
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
    if op.inputs[0].dtype != DType.INT16 or entries is None or entries.size != 513:
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
        if (interval.lowest, interval.highest) != INTEGER_RANGES[tensor.dtype]:
            how = _outside(interval, *allowed)
            text = f"it must be {allowed[0]} to {allowed[1]}"
            yield from _finding(how, code, what, interval, text, (tensor,))

    return check


def _rows(op: AnyOp) -> tuple[int, int] | None:
    shape = op.inputs[0].shape
    return (0, shape[1] - 1) if len(shape) == 3 and shape[1] > 0 else None


def _width(op: AnyOp) -> tuple[int, int] | None:
    return 0, BITS.get(op.inputs[0].dtype, 1) - 1


def _divisor(op: AnyOp, intervals: Intervals) -> Iterator[Finding]:
    """INTDIV must not divide by 0."""
    tensor = op.inputs[1]
    if tensor.is_constant or tensor.dtype not in INTEGER_RANGES:
        return
    interval = intervals.of(tensor)
    known = (interval.lowest, interval.highest) != INTEGER_RANGES[tensor.dtype]
    if known and np.any((np.asarray(interval.low) <= 0) & (np.asarray(interval.high) >= 0)):
        how = "always" if interval.magnitude == 0 else "maybe"
        yield from _finding(how, "DivisionByZero", "the divisor", interval, "it must not be 0", (tensor,))


_SHIFTED = _bounded(1, "ShiftAmountInvalid", "the shift amount", _width)

RULES: Mapping[type[Attributes], Rule] = {
    **dict.fromkeys((ops.Add, ops.Sub, ops.Mul, ops.ReduceSum, ops.MatMul, ops.MatMulT), _result),
    **dict.fromkeys((ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d), _result),
    **dict.fromkeys((ops.ArithmeticRightShift, ops.LogicalLeftShift, ops.LogicalRightShift), _SHIFTED),
    ops.Rescale: _rescale,
    ops.Table: _table,
    ops.IntDiv: _divisor,
    ops.Gather: _bounded(1, "GatherIndexOutOfRange", "an index", _rows),
    ops.Scatter: _bounded(1, "GatherIndexOutOfRange", "an index", _rows),
    ops.RowGather: _bounded(1, "GatherIndexOutOfRange", "an index", _rows),
}
"""Rules about values by operator class."""
