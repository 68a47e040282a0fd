"""Compute every shift by INT32 shifts to the left, and shifts to the right that round to nearest.

    x ─▶ ARITHMETIC_RIGHT_SHIFT s, round=False ─▶ y    max(x, h - 2^31) - h ─▶ ARITHMETIC_RIGHT_SHIFT s, round=True ─▶ y

    INT8, INT16: x, s ─▶ shift ─▶ y                    x, s ─▶ RESCALE ─▶ shift in INT32 ─▶ modulo 2^w ─▶ RESCALE ─▶ y

With h = 2^(s-1), or 0 where s is 0, rounding x - h gives floor((x - h + h) / 2^s) = floor(x / 2^s); what lies below
h - 2^31 has the same floor as that. A logical shift to the right is the floor of x, and where x is negative of
x + 2^w, w the width: 2^(w-s) more. An INT8 or INT16 shift to the left is modulo 2^w what it is in INT32. With one
constant operand INT8 needs a TABLE only. Every value is identical.

Ethos-U55 and U65 shift INT32 only, to the right arithmetically, and round to nearest whatever the file says.
"""

from dataclasses import dataclass

import numpy as np

from rewrites._int8_tables import Integers, as_table, single_value, table
from rewrites._int32 import binary, bounded, mul, narrowed, sub, times
from rewrites._shifts import floor_shift, power, rounded_shift, widened, wrapped
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.types import BITS, INTEGER_RANGES

Shift = ops.ArithmeticRightShift | ops.LogicalLeftShift | ops.LogicalRightShift
DTYPES = (DType.INT8, DType.INT16, DType.INT32)
SHIFT: Capture[Shift] = Capture(ops.ArithmeticRightShift, ops.LogicalLeftShift, ops.LogicalRightShift)


@dataclass(frozen=True, eq=False)
class Plan:
    """The operand to look up and the entries where a TABLE is enough; else the least x."""

    lookup: tuple[Tensor, Integers] | None
    low: int


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A shift that the target lacks, or rounds."""
    shift = match[SHIFT]
    x, by = shift.inputs
    if x.dtype not in DTYPES or not context.options.acts(context.target) or _is_exact(shift, by):
        return None
    if min(shift.output.shape, default=1) < 1:
        return Refusal(f'"{shift.output.name}" has the shape {list(shift.output.shape)}, which is not static')
    if by.is_constant:
        amounts, width = by.values().astype(np.int64), BITS[x.dtype]
        outside = amounts[(amounts < 0) | (amounts >= width)]
        if outside.size:
            return Refusal(f"it shifts by {outside[0]}, which TOSA does not define for {width} bits")
    return Plan(as_table(shift, lambda a, b: _shifted(shift.attrs, a, b)), context.intervals.of(x).lowest)


def _is_exact(shift: AnyOp, by: Tensor) -> bool:
    """True for what Ethos-U55 and U65 compute as TOSA does."""
    if shift.output.dtype != DType.INT32 or isinstance(shift.attrs, ops.LogicalRightShift):
        return False
    return not isinstance(shift.attrs, ops.ArithmeticRightShift) or shift.attrs.round or single_value(by) == 0


def _shifted(attrs: Shift, x: Integers, by: Integers) -> Integers:
    """INT8 values, shifted as TOSA has it; where the amount is not defined, by the nearest that is."""
    by = np.clip(by, 0, 7)
    if isinstance(attrs, ops.ArithmeticRightShift):
        return (x + (attrs.round * (1 << by) >> 1)) >> by
    result = x << by if isinstance(attrs, ops.LogicalLeftShift) else (x & 255) >> by
    return result.astype(np.int8).astype(np.int64)


def replacement(match: Match, plan: Plan) -> Replacement:
    """A TABLE, or the shift in INT32."""
    shift = match[SHIFT]
    builder = Builder(shift.output.name, location=shift.location, origin=RULE.name)
    if plan.lookup is not None:
        return Replacement(builder.ops, {shift.output: table(builder, *plan.lookup)})
    dtype = shift.output.dtype
    x, by = (widened(builder, tensor) for tensor in shift.inputs)
    if isinstance(shift.attrs, ops.LogicalLeftShift):
        y = binary(builder, shift.attrs, x, by)
        y = wrapped(builder, y, dtype, INTEGER_RANGES[dtype][0] << (BITS[dtype] - 1))
    elif isinstance(shift.attrs, ops.ArithmeticRightShift):
        y = rounded_shift(builder, x, by) if shift.attrs.round else floor_shift(builder, x, by, plan.low)
        y = narrowed(builder, y, dtype)
    elif dtype == DType.INT32:
        y = _logical(builder, x, by, plan.low)
    else:
        unsigned = sub(builder, x, times(builder, bounded(builder, x, -1, 0), 1 << BITS[dtype]))
        y = wrapped(builder, floor_shift(builder, unsigned, by, 0), dtype, 0)
    return Replacement(builder.ops, {shift.output: y})


def _logical(builder: Builder, x: Tensor, by: Tensor, low: int) -> Tensor:
    """floor(x / 2^by), and where x is negative 2^(32 - by) more, in two halves that fit; nothing for by = 0."""
    y = floor_shift(builder, x, by, low)
    if low >= 0:
        return y
    half = mul(builder, bounded(builder, x, -1, 0), power(builder, by, 31, sign=-1))
    return sub(builder, sub(builder, y, half), half)


RULE = Rule(
    name="shift_by_rounding_shift",
    pattern=SHIFT,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Compute every shift by INT32 shifts to the left, and shifts to the right that round to nearest.",
    options=ForSmallEthosU,
)
