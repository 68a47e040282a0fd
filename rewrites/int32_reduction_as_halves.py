"""Compute an INT32 REDUCE_MAX or REDUCE_MIN as MAXIMUM or MINIMUM of halves.

    x [.., 2n, ..] ─▶ REDUCE_MAX ─▶ y         x ─┬─▶ SLICE first half ──┬─▶ MAXIMUM ─▶ ... ─▶ y [.., 1, ..]
                                                └─▶ SLICE second half ─┘

The largest of all is the larger of the largest of both halves. Of an odd number of elements one waits. Every value is
identical.

Ethos-U55 and U65 reduce INT8 and INT16 only.
"""

from dataclasses import dataclass

from rewrites._halves import reduce_by_halves
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType

REDUCTION: Capture[ops.ReduceMax | ops.ReduceMin] = Capture(ops.ReduceMax, ops.ReduceMin, operands=(None,))


@dataclass(frozen=True)
class Plan:
    """The axis to reduce."""

    axis: int


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A reduction of INT32 with a static shape."""
    reduction = match[REDUCTION]
    x = reduction.inputs[0]
    if x.dtype != DType.INT32 or not context.options.acts(context.target):
        return None
    if min(x.shape, default=1) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    return Plan(reduction.attrs.axis)


def replacement(match: Match, plan: Plan) -> Replacement:
    """Halves, or an IDENTITY for an axis of one."""
    reduction = match[REDUCTION]
    builder = Builder(reduction.output.name, location=reduction.location, origin=RULE.name)
    x, kind = reduction.inputs[0], ops.Maximum if isinstance(reduction.attrs, ops.ReduceMax) else ops.Minimum
    y = reduce_by_halves(builder, kind(nan_mode=reduction.attrs.nan_mode), x, plan.axis)
    return Replacement(builder.ops, {reduction.output: builder.identity(x) if y is x else y})


RULE = Rule(
    name="int32_reduction_as_halves",
    pattern=REDUCTION,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Compute an INT32 REDUCE_MAX or REDUCE_MIN as MAXIMUM or MINIMUM of halves.",
    options=ForSmallEthosU,
)
