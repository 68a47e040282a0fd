"""Differences of operands between two executions, and how they go through operators that do not round.

With d the difference of an operand and |d| <= e for every channel, linear operators are applied to the interval [-e, e]
itself, zero points left out: ``sum(w*x) - sum(w*x')`` is at most ``sum(|w|)*e``. A product is off by
``(x - x')*y + x'*(y - y')``. Clipping moves no two numbers apart. :mod:`tosakit.numerics.deviation` adds what two
integer executions make of it, :mod:`tosakit.numerics.real_deviation` an integer one and exact real arithmetic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES, byte_size, decode
from tosakit.numerics import _interval_logic, _interval_movement, _interval_ops, _interval_sums
from tosakit.numerics._interval import (
    Bound,
    Handler,
    Interval,
    Lookup,
    add,
    clip,
    constant,
    fit,
    greater,
    last,
    lesser,
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


def by_rule(op: AnyOp, view: "View", rules: "Mapping[type[Attributes], Rule]") -> Error:
    """What the rule of an operator says, at most the width of its result's type; operands must have a bound."""
    rule = rules.get(type(op.attrs))
    if rule is None or len(op.inputs) < len(op.attrs.OPERANDS) or op.output.dtype not in INTEGER_RANGES:
        return Unbounded(f"{op.attrs.NAME} can turn any difference into another")
    result = rule(op, view)
    if isinstance(result, Unbounded):
        return result
    low, high = INTEGER_RANGES[op.output.dtype]
    bound = fit(around(result), last(op.output)).high
    return lesser(bound, (high - low) << view.bits)


def largest(error: Error) -> int:
    """The worst channel."""
    return int(error.max()) if isinstance(error, np.ndarray) else 0 if isinstance(error, Unbounded) else error


def around(error: Bound) -> Interval:
    """Differences of at most ``error``."""
    return Interval(-error, error)


def reach(interval: Interval) -> Bound:
    """The largest absolute value, by channel."""
    return greater(-interval.low, interval.high)


@dataclass(frozen=True)
class View:
    """Differences of operands as intervals, and what operands hold in either execution.

    Differences are in units of ``2**-bits``.
    """

    errors: Errors
    intervals: Intervals
    bits: int = 0

    def off(self, tensor: Tensor) -> Interval:
        """The difference of an operand."""
        error = self.errors(tensor)
        assert not isinstance(error, Unbounded)
        return around(error)

    def is_off(self, tensor: Tensor) -> bool:
        """Whether an operand can differ."""
        return largest(self.errors(tensor)) > 0

    def either(self, tensor: Tensor) -> Interval:
        """What an operand holds in either execution."""
        off = self.off(tensor)
        return add(self.intervals.of(tensor), Interval(off.low >> self.bits, -(off.low >> self.bits)))


Rule = Callable[[AnyOp, View], "Bound | Unbounded"]


def must_agree(op: AnyOp, view: View, slots: tuple[int, ...]) -> Unbounded | None:
    """What is wrong where operands can differ that must not."""
    for slot in slots:
        if slot < len(op.inputs) and view.is_off(op.inputs[slot]):
            names = op.attrs.OPERANDS
            return Unbounded(f"{op.attrs.NAME} has a {names[min(slot, len(names) - 1)]} that can differ")
    return None


def _linear(handler: Handler, *, fixed: tuple[int, ...] = ()) -> Rule:
    """The operator itself on differences; operands at ``fixed`` slots must agree and keep their values."""

    def rule(op: AnyOp, view: View) -> "Bound | Unbounded":
        if (wrong := must_agree(op, view, fixed)) is not None:
            return wrong
        keeps = {op.inputs[slot]: None for slot in fixed if slot < len(op.inputs)}
        result = handler(op, lambda tensor: view.either(tensor) if tensor in keeps else view.off(tensor))
        return Unbounded(f"{op.attrs.NAME} is not understood") if result is None else reach(result)

    return rule


def _same(op: AnyOp, view: View) -> "Bound | Unbounded":
    return must_agree(op, view, (1, 2)) or reach(operand(op, 0, view.off))


def _bilinear(handler: Handler, zero_points: tuple[int, int], addend: int | None) -> Rule:
    """Sums of products ``(x - x')*w + x'*(w - w')``, with the bias of a convolution."""

    def rule(op: AnyOp, view: View) -> "Bound | Unbounded":
        if (wrong := must_agree(op, view, zero_points)) is not None:
            return wrong
        total = NOTHING if addend is None else fit(view.off(op.inputs[addend]), last(op.output))
        for slot in (0, 1):
            if view.is_off(op.inputs[slot]):
                part = handler(*_one_side(op, view, slot, zero_points[slot]))
                if part is None:
                    return Unbounded(f"{op.attrs.NAME} is not understood")
                total = add(total, around(reach(part)))
        return reach(total)

    return rule


def _one_side(op: AnyOp, view: View, slot: int, zero_point: int) -> "tuple[AnyOp, Lookup]":
    """The operator on the difference of one operand, which knows no zero point, and what its operands hold."""
    inputs = list(op.inputs)
    difference, nothing = (Tensor("", op.inputs[n].dtype, op.inputs[n].shape) for n in (slot, zero_point))
    inputs[slot], inputs[zero_point] = difference, nothing
    known = {difference: view.off(op.inputs[slot]), nothing: NOTHING}
    return detached(op.attrs, inputs, op.outputs), lambda tensor: known.get(tensor) or view.either(tensor)


def mul(op: AnyOp, view: View) -> "Bound | Unbounded":
    """MUL, with the unit of the operands: rounding apart."""
    if (wrong := must_agree(op, view, (2,))) is not None:
        return wrong
    a, b = (operand(op, slot, view.either) for slot in (0, 1))
    e, f = (operand(op, slot, view.off) for slot in (0, 1))
    bound = greater(0, _product(reach(e), reach(b)) + _product(reach(f), reach(a)))
    if op.inputs[0].dtype != DType.INT32:
        return bound
    shift = view.intervals.of(op.inputs[2]).lowest
    return -(-bound >> max(shift, 0))


def _product(a: Bound, b: Bound) -> Any:
    """A product that cannot overflow: of the largest values where channels might."""
    if largest(a) * largest(b) >= 1 << 61:
        return largest(a) * largest(b)
    return a * b


def divided(op: AnyOp, view: View) -> "Bound | Unbounded":
    """INTDIV, with the unit of the operand: rounding apart."""
    divisor = view.intervals.of(op.inputs[1])
    if (wrong := must_agree(op, view, (1,))) is not None:
        return wrong
    if divisor.lowest <= 0 <= divisor.highest:
        return Unbounded("INTDIV has a divisor that can change its sign")
    least = min(abs(divisor.lowest), abs(divisor.highest))
    return -(-reach(operand(op, 0, view.off)) // least)


def _clamp(op: AnyOp, view: View) -> "Bound | Unbounded":
    attrs, dtype = op.attrs, op.output.dtype
    error = reach(operand(op, 0, view.off))
    if not isinstance(attrs, ops.Clamp) or min(len(attrs.min_val), len(attrs.max_val)) < byte_size(dtype, (1,)):
        return error
    low, high = (int(decode(data, dtype, (1,))[0]) for data in (attrs.min_val, attrs.max_val))
    return lesser(error, (high - low) << view.bits)


def _cast(op: AnyOp, view: View) -> "Bound | Unbounded":
    target = INTEGER_RANGES[op.output.dtype]
    if op.inputs[0].dtype not in INTEGER_RANGES or not view.either(op.inputs[0]).within(*target):
        return Unbounded("CAST can drop high bits")
    return reach(operand(op, 0, view.off))


# -------------------------------------------------------------------------------------------------- TABLE
@dataclass(frozen=True)
class Table:
    """The constant entries of a TABLE, and the first and last code that either execution can have.

    Between the entries of a wide one, which are 128 codes apart, its values rise and fall evenly.
    """

    entries: NDArray[np.int64]
    first: int
    last: int
    is_wide: bool

    @property
    def values(self) -> NDArray[np.int64]:
        """What the TABLE gives for each code."""
        if not self.is_wide:
            return self.entries[self.first + 128 : self.last + 129]
        codes = np.arange(self.first, self.last + 1)
        index, entries = (codes >> 7) + 256, self.entries
        return np.asarray(entries[index] * 128 + (entries[index + 1] - entries[index]) * (codes & 127), np.int64)

    @property
    def steepest_step(self) -> int:
        """Largest difference of the values of two codes next to each other."""
        if self.first == self.last:
            return 0
        if not self.is_wide:
            return steepest(self.values, 1)
        return steepest(self.entries[(self.first >> 7) + 256 : (self.last - 1 >> 7) + 258], 1)


def table_of(op: AnyOp, view: View) -> Table | Unbounded:
    """The part of a TABLE that either execution can reach."""
    table, x = constant(op.inputs[1]), op.inputs[0]
    is_wide = x.dtype == DType.INT16
    if table is None or table.size != (513 if is_wide else 256) or x.dtype not in (DType.INT8, DType.INT16):
        return Unbounded("TABLE is no constant")
    reach = clip(view.either(x), *INTEGER_RANGES[x.dtype])
    return Table(table.reshape(-1).astype(np.int64), reach.lowest, reach.highest, is_wide)


def steepest(values: NDArray[np.int64], width: int) -> int:
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

SHARED: "Mapping[type[Attributes], Rule]" = {
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
    ops.Add: _linear(_interval_ops.HANDLERS[ops.Add]),
    ops.Sub: _linear(_interval_ops.HANDLERS[ops.Sub]),
    ops.Maximum: _linear(_interval_ops.HANDLERS[ops.Maximum]),
    ops.Minimum: _linear(_interval_ops.HANDLERS[ops.Minimum]),
    ops.ReduceSum: _linear(_interval_sums.HANDLERS[ops.ReduceSum]),
    ops.Select: _linear(_interval_logic.HANDLERS[ops.Select], fixed=(0,)),
    ops.Abs: _same,
    ops.Negate: _same,
    ops.Clamp: _clamp,
    ops.Cast: _cast,
    ops.MatMul: _bilinear(_interval_sums.HANDLERS[ops.MatMul], (2, 3), None),
    ops.MatMulT: _bilinear(_interval_sums.HANDLERS[ops.MatMulT], (2, 3), None),
    **{kind: _bilinear(accumulator, (3, 4), 2) for kind in CONVOLUTIONS},
}
"""Rules of the operators that do not round: differences go through them in whatever unit they have."""
