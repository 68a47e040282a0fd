"""How far apart the results of one operator can be for operands that are apart: errors of exact integer values.

With d the difference of an operand between two executions and |d| <= e for every channel, linear operators are applied
to the interval [-e, e] itself, zero points left out: ``sum(w*x) - sum(w*x')`` is at most ``sum(|w|)*e``. A product is
off by ``(x - x')*y + x'*(y - y')``. Rounding, ``R(p) - R(q) <= ceil(|p - q|)``, takes one unit at most, and clipping
moves no two numbers apart. TABLE goes by its own entries. Comparisons, ARGMAX and bit operators have no bound unless
their operands are equal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES, byte_size, decode
from tosakit.numerics import _interval_logic, _interval_movement, _interval_ops, _interval_sums
from tosakit.numerics._interval import (
    Handler,
    Interval,
    Lookup,
    add,
    constant,
    fit,
    greater,
    last,
    operand,
)
from tosakit.numerics._interval_sums import CONVOLUTIONS, accumulator
from tosakit.numerics.intervals import Intervals


@dataclass(frozen=True)
class Unbounded:
    """Nothing can be said; ``because`` says why."""

    because: str


Error: TypeAlias = "int | NDArray[np.int64] | Unbounded"
"""Largest ``|x - x'|``: one integer, or one for each index of the last axis."""

Errors = Callable[[Tensor], Error]


@dataclass(frozen=True, slots=True, eq=False)
class _Detached:
    attrs: Attributes
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def output(self) -> Tensor:
        return self.outputs[0]


def detached(attrs: Attributes, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> AnyOp:
    """An operator to ask about that no graph has, and that its tensors do not know of."""
    return cast(AnyOp, _Detached(attrs, tuple(inputs), tuple(outputs)))


NOTHING = Interval(0, 0)


def deviation(op: AnyOp, errors: Errors, intervals: Intervals) -> Error:
    """How far apart the first result can be where operands are at most ``errors`` apart.

    ``intervals`` must hold for one of the two executions. Both must be predictable. Stateful operators are the
    caller's business.
    """
    found = [errors(tensor) for tensor in op.inputs]
    for error in found:
        if isinstance(error, Unbounded):
            return error
    if all(_largest(error) == 0 for error in found):
        return 0
    rule = _RULES.get(type(op.attrs))
    if rule is None or len(op.inputs) < len(op.attrs.OPERANDS) or op.output.dtype not in INTEGER_RANGES:
        return Unbounded(f"{op.attrs.NAME} can turn any difference into another")
    result = rule(op, _View(errors, intervals))
    if isinstance(result, Unbounded):
        return result
    low, high = INTEGER_RANGES[op.output.dtype]
    settled = fit(_around(result), last(op.output))
    bound = settled.high
    if _largest(bound) > high - low:
        return high - low
    return bound


def _largest(error: Error) -> int:
    return int(np.max(error)) if isinstance(error, np.ndarray) else 0 if isinstance(error, Unbounded) else error


def _around(error: "int | NDArray[np.int64]") -> Interval:
    return Interval(-error, error)


def _reach(interval: Interval) -> "int | NDArray[np.int64]":
    return greater(-interval.low, interval.high)


@dataclass(frozen=True)
class _View:
    """Differences of operands as intervals, and what operands hold in either execution."""

    errors: Errors
    intervals: Intervals

    def off(self, tensor: Tensor) -> Interval:
        error = self.errors(tensor)
        assert not isinstance(error, Unbounded)
        return _around(error)

    def is_off(self, tensor: Tensor) -> bool:
        return _largest(self.errors(tensor)) > 0

    def either(self, tensor: Tensor) -> Interval:
        return add(self.intervals.of(tensor), self.off(tensor))


Rule = Callable[[AnyOp, _View], "int | NDArray[np.int64] | Unbounded"]


def _must_agree(op: AnyOp, view: _View, slots: tuple[int, ...]) -> Unbounded | None:
    for slot in slots:
        if slot < len(op.inputs) and view.is_off(op.inputs[slot]):
            names = op.attrs.OPERANDS
            return Unbounded(f"{op.attrs.NAME} has a {names[min(slot, len(names) - 1)]} that can differ")
    return None


def _linear(handler: Handler, *, fixed: tuple[int, ...] = ()) -> Rule:
    """The operator itself on differences; operands at ``fixed`` slots must agree and keep their values."""

    def rule(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
        if (wrong := _must_agree(op, view, fixed)) is not None:
            return wrong
        keeps = {op.inputs[slot]: None for slot in fixed if slot < len(op.inputs)}
        result = handler(op, lambda tensor: view.either(tensor) if tensor in keeps else view.off(tensor))
        return Unbounded(f"{op.attrs.NAME} is not understood") if result is None else _reach(result)

    return rule


def _same(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    return _must_agree(op, view, (1, 2)) or _reach(operand(op, 0, view.off))


def _bilinear(handler: Handler, zero_points: tuple[int, int], addend: int | None) -> Rule:
    """Sums of products ``(x - x')*w + x'*(w - w')``, with the bias of a convolution."""

    def rule(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
        if (wrong := _must_agree(op, view, zero_points)) is not None:
            return wrong
        total = NOTHING if addend is None else fit(view.off(op.inputs[addend]), last(op.output))
        for slot in (0, 1):
            if view.is_off(op.inputs[slot]):
                part = handler(*_one_side(op, view, slot, zero_points[slot]))
                if part is None:
                    return Unbounded(f"{op.attrs.NAME} is not understood")
                total = add(total, _around(_reach(part)))
        return _reach(total)

    return rule


def _one_side(op: AnyOp, view: _View, slot: int, zero_point: int) -> "tuple[AnyOp, Lookup]":
    """The operator on the difference of one operand, which knows no zero point, and what its operands hold."""
    inputs = list(op.inputs)
    difference, nothing = (Tensor("", op.inputs[n].dtype, op.inputs[n].shape) for n in (slot, zero_point))
    inputs[slot], inputs[zero_point] = difference, nothing
    known = {difference: view.off(op.inputs[slot]), nothing: NOTHING}
    return detached(op.attrs, inputs, op.outputs), lambda tensor: known.get(tensor) or view.either(tensor)


def _mul(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    if (wrong := _must_agree(op, view, (2,))) is not None:
        return wrong
    a, b = (operand(op, slot, view.either) for slot in (0, 1))
    e, f = (operand(op, slot, view.off) for slot in (0, 1))
    bound = greater(0, _product(_reach(e), _reach(b)) + _product(_reach(f), _reach(a)))
    if op.inputs[0].dtype != DType.INT32:
        return bound
    shift = view.intervals.of(op.inputs[2]).lowest
    return -(-bound >> max(shift, 0))


def _product(a: "int | NDArray[np.int64]", b: "int | NDArray[np.int64]") -> Any:
    """A product that cannot overflow: of the largest values where channels might."""
    if _largest(a) * _largest(b) >= 1 << 61:
        return _largest(a) * _largest(b)
    return a * b


def _rescale(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    attrs = op.attrs
    assert isinstance(attrs, ops.Rescale)
    if (wrong := _must_agree(op, view, (1, 2, 3, 4))) is not None:
        return wrong
    if attrs.input_unsigned or attrs.output_unsigned:
        return Unbounded("RESCALE of unsigned numbers wraps around in signed ones")
    m, s = constant(op.inputs[1]), constant(op.inputs[2])
    if m is None or s is None:
        return Unbounded("RESCALE has a multiplier or shift that is no constant")
    error = operand(op, 0, view.off).high
    columns = np.broadcast_arrays(*(np.asarray(array).reshape(-1) for array in (m, s, error)))
    double = attrs.rounding_mode == RoundingMode.DOUBLE_ROUND
    rounded = [_scaled_error(*row, double=double) for row in zip(*(c.tolist() for c in columns), strict=True)]
    low, high = INTEGER_RANGES[op.output.dtype]
    return np.array([min(value, high - low) for value in rounded], np.int64) if len(rounded) > 1 else rounded[0]


def _scaled_error(multiplier: int, shift: int, error: int, *, double: bool) -> int:
    """``ceil(error * m / 2^s)``; the rounding term of DOUBLE_ROUND depends on the sign above a shift of 31."""
    if error == 0:
        return 0
    apart = Fraction(error * abs(multiplier)) / Fraction(2) ** shift
    if double and shift > 31:
        apart += Fraction(1, 1 << (shift - 31))
    return -int(-apart // 1)


def _clamp(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    attrs, dtype = op.attrs, op.output.dtype
    error = _reach(operand(op, 0, view.off))
    if not isinstance(attrs, ops.Clamp) or min(len(attrs.min_val), len(attrs.max_val)) < byte_size(dtype, (1,)):
        return error
    low, high = (int(decode(data, dtype, (1,))[0]) for data in (attrs.min_val, attrs.max_val))
    return _reach(_around(np.minimum(error, high - low) if isinstance(error, np.ndarray) else min(error, high - low)))


def _average(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    """The multiplier for 1/count is a little more than that, so the rounded mean can be one unit further apart."""
    error = _reach(operand(op, 0, view.off))
    fixed = _must_agree(op, view, tuple(range(1, len(op.inputs))))
    return fixed or np.asarray(error) + (np.asarray(error) > 0).astype(np.int64)


def _shifted(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    shift = max(view.intervals.of(op.inputs[1]).lowest, 0)
    return _must_agree(op, view, (1,)) or -(-_reach(operand(op, 0, view.off)) >> shift)


def _intdiv(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    divisor = view.intervals.of(op.inputs[1])
    if (wrong := _must_agree(op, view, (1,))) is not None:
        return wrong
    if divisor.lowest <= 0 <= divisor.highest:
        return Unbounded("INTDIV has a divisor that can change its sign")
    least = min(abs(divisor.lowest), abs(divisor.highest))
    return -(-_reach(operand(op, 0, view.off)) // least)


def _cast(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    target = INTEGER_RANGES[op.output.dtype]
    if op.inputs[0].dtype not in INTEGER_RANGES or not view.either(op.inputs[0]).within(*target):
        return Unbounded("CAST can drop high bits")
    return _reach(operand(op, 0, view.off))


# -------------------------------------------------------------------------------------------------- TABLE
def _table(op: AnyOp, view: _View) -> "int | NDArray[np.int64] | Unbounded":
    """The largest difference between what codes in reach give that are at most the error apart."""
    table, x = constant(op.inputs[1]), op.inputs[0]
    wide = x.dtype == DType.INT16
    if table is None or table.size != (513 if wide else 256) or x.dtype not in (DType.INT8, DType.INT16):
        return Unbounded("TABLE is no constant")
    entries = table.reshape(-1).astype(np.int64)
    first, final = INTEGER_RANGES[x.dtype]
    codes = np.arange(first, final + 1)
    values = entries
    if wide:
        index = (codes >> 7) + 256
        values = entries[index] * 128 + (entries[index + 1] - entries[index]) * (codes & 127)
    reach, errors = view.either(x), view.off(x)
    low, high = max(reach.lowest, first), min(reach.highest, final)
    return _steepest(values[low - first : high - first + 1], errors.highest)


def _steepest(values: NDArray[np.int64], width: int) -> int:
    """Largest difference of two values at most ``width`` places apart."""
    if width >= len(values) - 1:
        return int(values.max() - values.min())
    high, low, span = values, values, 1
    while span < width + 1:  # windows of ``span`` values, doubled or brought up to size
        step = min(span, width + 1 - span)
        high = np.maximum(high[:-step], high[step:])
        low = np.minimum(low[:-step], low[step:])
        span += step
    return int((high - low).max())


_MOVED = _interval_movement.HANDLERS

_RULES: Mapping[type[Attributes], Rule] = {
    **{
        kind: _linear(_MOVED[kind])
        for kind in (ops.Identity, ops.Reshape, ops.Transpose, ops.Slice, ops.Concat, ops.Tile, ops.Reverse)
    },
    **{
        kind: _linear(_MOVED[kind])
        for kind in (ops.MaxPool2d, ops.MaxPool2dAdaptive, ops.ReduceMax, ops.ReduceMin, ops.Pad)
    },
    ops.Gather: _linear(_MOVED[ops.Gather], fixed=(1,)),
    ops.RowGather: _linear(_MOVED[ops.RowGather], fixed=(1, 2)),
    ops.Scatter: _linear(_MOVED[ops.Scatter], fixed=(1,)),
    ops.Resize: _linear(_MOVED[ops.Resize], fixed=(1, 2, 3)),
    ops.AvgPool2d: _average,
    ops.AvgPool2dAdaptive: _average,
    ops.Add: _linear(_interval_ops.HANDLERS[ops.Add]),
    ops.Sub: _linear(_interval_ops.HANDLERS[ops.Sub]),
    ops.Maximum: _linear(_interval_ops.HANDLERS[ops.Maximum]),
    ops.Minimum: _linear(_interval_ops.HANDLERS[ops.Minimum]),
    ops.ReduceSum: _linear(_interval_sums.HANDLERS[ops.ReduceSum]),
    ops.Select: _linear(_interval_logic.HANDLERS[ops.Select], fixed=(0,)),
    ops.Abs: _same,
    ops.Negate: _same,
    ops.Clamp: _clamp,
    ops.Mul: _mul,
    ops.Rescale: _rescale,
    ops.Table: _table,
    ops.ArithmeticRightShift: _shifted,
    ops.IntDiv: _intdiv,
    ops.Cast: _cast,
    ops.MatMul: _bilinear(_interval_sums.HANDLERS[ops.MatMul], (2, 3), None),
    ops.MatMulT: _bilinear(_interval_sums.HANDLERS[ops.MatMulT], (2, 3), None),
    **{kind: _bilinear(accumulator, (3, 4), 2) for kind in CONVOLUTIONS},
}
