"""Write the rows that a SCATTER writes by MATMUL with one-hot vectors.

    values_in [N, K, C], indices [N, W], input [N, W, C] ─▶ SCATTER ─▶ y [N, K, C]

    indices ─▶ RESHAPE [N, 1, W] ─▶ SUB (0 .. K-1) ─▶ 1 - min(|it|, 1) ─▶ one-hot [N, K, W]
    one-hot ─▶ REDUCE_SUM ─▶ written [N, K, 1]
    one-hot times the digits of input, as in gather_as_matmul ─▶ new rows, 0 elsewhere ─┐
    values_in, times 1 - written ───────────────────────────────────────────────────────┴─▶ ADD ─▶ y

TOSA forbids an index twice, so ``written`` is 0 or 1 and one of the two addends is 0: the sum fits, and is identical.
An index outside [0, K) is open in TOSA; here it counts as the nearest one.

Ethos-U55 and U65 have no SCATTER.
"""

from dataclasses import dataclass

from rewrites._bytes import COUNT
from rewrites._int32 import mul, negation, resized
from rewrites._one_hot import one_hot, rows_at
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.numerics.intervals import Interval

SCATTER = Capture(ops.Scatter, operands=(None, None, None))


@dataclass(frozen=True, eq=False)
class Plan:
    """What the indices can be."""

    indices: Interval


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A SCATTER of static shape, of integers that have digits."""
    scatter = match[SCATTER]
    values_in, indices, _ = scatter.inputs
    if values_in.dtype not in COUNT or indices.dtype != DType.INT32 or not context.options.acts(context.target):
        return None
    for tensor in scatter.inputs:
        if min(tensor.shape) < 1:
            return Refusal(f'"{tensor.name}" has the shape {list(tensor.shape)}, which is not static')
    return Plan(context.intervals.of(indices))


def replacement(match: Match, plan: Plan) -> Replacement:
    """The new rows where there are some, the old ones elsewhere."""
    scatter = match[SCATTER]
    values_in, indices, rows = scatter.inputs
    builder = Builder(scatter.output.name, location=scatter.location, origin=RULE.name)
    batch, length, _ = values_in.shape
    chosen = one_hot(builder, indices, plan.indices, length, axis=1)
    new = rows_at(builder, chosen, rows, DType.INT32)
    written = builder.op(ops.ReduceSum(axis=2), (chosen,), DType.INT32, (batch, length, 1), "written")
    old = mul(builder, resized(builder, values_in, DType.INT32), negation(builder, written), "old")
    return Replacement(builder.ops, {scatter.output: resized(builder, builder.add(new, old), values_in.dtype)})


RULE = Rule(
    name="scatter_as_matmul",
    pattern=SCATTER,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Write the rows that a SCATTER writes by MATMUL with one-hot vectors.",
    options=ForSmallEthosU,
)
