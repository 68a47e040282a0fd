"""How far apart the results of one operator can be for operands that are apart: errors of exact integer values.

Operators that do not round carry differences as :mod:`tosakit.numerics._differences` says. Rounding,
``R(p) - R(q) <= ceil(|p - q|)``, takes one unit at most. TABLE goes by its own entries. Comparisons, ARGMAX and bit
operators have no bound unless their operands are equal.
"""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from tosakit.ir import ops
from tosakit.ir.enums import RoundingMode
from tosakit.ir.graph import AnyOp
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
    detached,
    divided,
    largest,
    mul,
    must_agree,
    reach,
    steepest,
    table_of,
)
from tosakit.numerics._interval import Bound, constant, operand
from tosakit.numerics.intervals import Intervals

__all__ = ["Error", "Errors", "Unbounded", "detached", "deviation", "largest"]


def deviation(op: AnyOp, errors: Errors, intervals: Intervals) -> Error:
    """How far apart the first result can be where operands are at most ``errors`` apart.

    ``intervals`` must hold for one of the two executions. Both must be predictable. Stateful operators are the
    caller's business.
    """
    found = [errors(tensor) for tensor in op.inputs]
    for error in found:
        if isinstance(error, Unbounded):
            return error
    if not any(map(largest, found)):
        return 0
    return by_rule(op, View(dict(zip(op.inputs, found, strict=True)).__getitem__, intervals), _RULES)


def _rescale(op: AnyOp, view: View) -> "Bound | Unbounded":
    attrs = op.attrs
    assert isinstance(attrs, ops.Rescale)
    if (wrong := must_agree(op, view, (1, 2, 3, 4))) is not None:
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


def _average(op: AnyOp, view: View) -> "Bound | Unbounded":
    """The multiplier for 1/count is a little more than that, so the rounded mean can be one unit further apart."""
    error = reach(operand(op, 0, view.off))
    fixed = must_agree(op, view, tuple(range(1, len(op.inputs))))
    return fixed or np.asarray(error) + (np.asarray(error) > 0).astype(np.int64)


def _shifted(op: AnyOp, view: View) -> "Bound | Unbounded":
    shift = max(view.intervals.of(op.inputs[1]).lowest, 0)
    return must_agree(op, view, (1,)) or -(-reach(operand(op, 0, view.off)) >> shift)


def _table(op: AnyOp, view: View) -> "Bound | Unbounded":
    """The largest difference between what codes in reach give that are at most the error apart."""
    table = table_of(op, view)
    return table if isinstance(table, Unbounded) else steepest(table.values, view.off(op.inputs[0]).highest)


_RULES: "Mapping[type[Attributes], Rule]" = {
    **SHARED,
    ops.AvgPool2d: _average,
    ops.AvgPool2dAdaptive: _average,
    ops.Mul: mul,
    ops.Rescale: _rescale,
    ops.Table: _table,
    ops.ArithmeticRightShift: _shifted,
    ops.IntDiv: divided,
}
