"""How far integer arithmetic is from real arithmetic, operator by operator.

The real execution computes every operator in exact arithmetic and rounds nowhere; what saturates still does, a TABLE is
linear between its entries, an average is the exact mean. With e the distance of the operands and r the scale that a
RESCALE stands for (its own, unless a rewrite says which it had to approximate), the result of an operator is off by

* RESCALE: ``e*r + |v|*|m/2^s - r| + 1/2``, v being no larger than where the result saturates; no half where 2^s
  divides m. DOUBLE_ROUND adds ``2^(30-s)`` above a shift of 31;
* MUL with a shift: ``(e1*|x2| + e2*|x1|) / 2^shift + 1/2``;
* AVG_POOL2D: ``e + 1/2 + |mean|*2^-29``, since its multiplier for 1/count is off by that much;
* TABLE: the steepest slope times e, at most what entries in reach differ by; and what its entries are off by from those
  they stand for;
* ARITHMETIC_RIGHT_SHIFT: ``e/2^shift`` and a half where it rounds, else one; INTDIV: ``e/|divisor| + 1``.

The other operators do not round (:mod:`tosakit.numerics._differences`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics._differences import (
    SHARED,
    Error,
    Errors,
    Rule,
    Unbounded,
    View,
    by_rule,
    divided,
    largest,
    mul,
    must_agree,
    reach,
    steepest,
    table_of,
)
from tosakit.numerics._interval import Bound, constant, operand, subtract
from tosakit.numerics.intervals import Intervals

__all__ = ["UNIT_BITS", "Meaning", "RealArithmetic"]

UNIT_BITS = 12
"""Errors are integers in units of 2^-12 LSB, rounded up."""

_HALF = 1 << (UNIT_BITS - 1)


@dataclass(frozen=True)
class Meaning:
    """What operators stand for that approximate something, by their results.

    ``scales``: the exact scale, or one for each channel, of a RESCALE. ``off``: how far, in LSB of its results, the
    entries of a TABLE are from those they stand for.
    """

    scales: Mapping[Tensor, Sequence[Fraction]] = field(default_factory=dict)
    off: Mapping[Tensor, int] = field(default_factory=dict)


class RealArithmetic:
    """How far programs of integers are from real arithmetic.

    ``intervals`` must hold for the integer execution, which must be predictable.
    """

    def __init__(self, intervals: Intervals, meaning: Meaning) -> None:
        self.intervals = intervals
        self._meaning = meaning
        self._rescales: dict[Tensor, _Rescaling | Unbounded] = {}

    def deviation(self, op: AnyOp, errors: Errors) -> Error:
        """How far the first result can be off where operands are off by ``errors``, in units of 2^-12 LSB.

        Stateful operators are the caller's business.
        """
        found = [errors(tensor) for tensor in op.inputs]
        for error in found:
            if isinstance(error, Unbounded):
                return error
        if op.output.dtype not in INTEGER_RANGES and op.output.dtype != DType.BOOL:
            return Unbounded(f"{op.attrs.NAME} computes {op.output.dtype.name}")
        if not isinstance(op.attrs, _ROUNDS) and not any(map(largest, found)):
            return 0
        view = View(dict(zip(op.inputs, found, strict=True)).__getitem__, self.intervals, UNIT_BITS)
        if isinstance(op.attrs, ops.Rescale):
            return self._rescale(op, view)
        result = by_rule(op, view, _RULES)
        off = self._meaning.off.get(op.output, 0)
        return result if isinstance(result, Unbounded) else result + (off << UNIT_BITS)

    def _rescale(self, op: AnyOp, view: View) -> Error:
        if (wrong := must_agree(op, view, (1, 2, 3, 4))) is not None:
            return wrong
        if op.output not in self._rescales:
            self._rescales[op.output] = _rescaling(op, self.intervals, self._meaning.scales.get(op.output))
        plan = self._rescales[op.output]
        return plan if isinstance(plan, Unbounded) else plan.off(operand(op, 0, view.off).high)


@dataclass(frozen=True)
class _Rescaling:
    """What a RESCALE makes of errors: each channel's exact scale as a fraction, its own error, and the largest."""

    scales: list[tuple[int, int]]
    own: list[int]
    most: int

    def off(self, error: Bound) -> Bound:
        """The error of the result in the same units."""
        errors = error.tolist() if isinstance(error, np.ndarray) else [error]
        count = max(len(errors), len(self.own))
        rows = zip(errors * (count // len(errors)), self.scales * (count // len(self.own)), strict=True)
        carried = [-(-one * over // under) for one, (over, under) in rows]
        own = self.own * (count // len(self.own))
        found = [min(sum(parts), self.most) for parts in zip(carried, own, strict=True)]
        return np.array(found, np.int64) if count > 1 else found[0]


def _rescaling(op: AnyOp, intervals: Intervals, stands_for: Sequence[Fraction] | None) -> _Rescaling | Unbounded:
    attrs = op.attrs
    assert isinstance(attrs, ops.Rescale)
    if attrs.input_unsigned or attrs.output_unsigned:
        return Unbounded("RESCALE of unsigned numbers wraps around in signed ones")
    m, s = constant(op.inputs[1]), constant(op.inputs[2])
    if m is None or s is None:
        return Unbounded("RESCALE has a multiplier or shift that is no constant")
    value = reach(subtract(operand(op, 0, intervals.of), intervals.of(op.inputs[3])))
    low, high = INTEGER_RANGES[op.output.dtype]
    zero_point = intervals.of(op.inputs[4])
    room = max(high - zero_point.lowest, zero_point.highest - low) + 1
    multiplier, shift, values = (np.asarray(array).reshape(-1).tolist() for array in (m, s, value))
    scales = [(m, 1 << s) for m, s in zip(multiplier, shift, strict=True)]
    if stands_for is not None:
        scales = [(scale.numerator, scale.denominator) for scale in stands_for]
    double = attrs.rounding_mode == RoundingMode.DOUBLE_ROUND
    columns = [multiplier, shift, scales, values]
    count = max(map(len, columns))
    rows = zip(*(column * (count // len(column)) for column in columns), strict=True)
    errors = [_own_error(*row, room=room, double=double) for row in rows]
    return _Rescaling(scales * (count // len(scales)), errors, (high - low) << UNIT_BITS)


def _own_error(multiplier: int, shift: int, meant: tuple[int, int], value: int, *, room: int, double: bool) -> int:
    """One channel: its scale, the fraction that it stands for, the largest value; and the width of the result."""
    over, under = meant
    unit = under << shift  # both scales are integers in units of 1 / unit
    scale, wanted = multiplier * under, over << shift
    apart, least = abs(scale - wanted), min(scale, wanted)
    # value * apart / unit, for no larger a value than room / (least / unit)
    total, parts = (room * apart, least) if least > 0 and value * least > room * unit else (value * apart, unit)
    total <<= UNIT_BITS
    rounds = multiplier % (1 << shift) != 0
    if rounds and double and shift > 31:
        total, parts = (total << shift) + (parts << (UNIT_BITS + 30)), parts << shift
    return -(-total // parts) + _HALF * rounds


def _mul(op: AnyOp, view: View) -> "Bound | Unbounded":
    result = mul(op, view)
    rounds = op.inputs[0].dtype == DType.INT32 and view.intervals.of(op.inputs[2]).highest > 0
    return result if isinstance(result, Unbounded) or not rounds else result + _HALF


def _average(op: AnyOp, view: View) -> "Bound | Unbounded":
    if (wrong := must_agree(op, view, tuple(range(1, len(op.inputs))))) is not None:
        return wrong
    mean = subtract(view.intervals.of(op.inputs[0]), view.intervals.of(op.inputs[1]).overall).magnitude
    return reach(operand(op, 0, view.off)) + _HALF - (-mean << UNIT_BITS >> 29)


def _table(op: AnyOp, view: View) -> "Bound | Unbounded":
    table, error = table_of(op, view), view.off(op.inputs[0]).highest
    if isinstance(table, Unbounded):
        return table
    codes, by_steps = -(-error >> UNIT_BITS), table.steepest_step * error
    return by_steps if codes <= 1 else min(by_steps, steepest(table.values, codes) << UNIT_BITS)


def _shifted(op: AnyOp, view: View) -> "Bound | Unbounded":
    if (wrong := must_agree(op, view, (1,))) is not None:
        return wrong
    shift = view.intervals.of(op.inputs[1])
    rounds = isinstance(op.attrs, ops.ArithmeticRightShift) and op.attrs.round
    own = 0 if shift.highest <= 0 else _HALF if rounds else 2 * _HALF
    return own - (-reach(operand(op, 0, view.off)) >> max(shift.lowest, 0))


def _intdiv(op: AnyOp, view: View) -> "Bound | Unbounded":
    result = divided(op, view)
    return result if isinstance(result, Unbounded) else result + 2 * _HALF


_ROUNDING: "Mapping[type[Attributes], Rule]" = {
    ops.AvgPool2d: _average,
    ops.AvgPool2dAdaptive: _average,
    ops.Mul: _mul,
    ops.Table: _table,
    ops.ArithmeticRightShift: _shifted,
    ops.IntDiv: _intdiv,
}

_ROUNDS = (*_ROUNDING, ops.Rescale)

_RULES: "Mapping[type[Attributes], Rule]" = {**SHARED, **_ROUNDING}
