"""Read the rows that a GATHER reads by MATMUL with one-hot vectors.

    values [N, K, C], indices [N, W] ─▶ GATHER ─▶ y [N, W, C]

    indices ─▶ RESHAPE [N, W, 1] ─▶ SUB (0 .. K-1) ─▶ 1 - min(|it|, 1) ─▶ INT8 one-hot [N, W, K] ─┐
    values ─▶ digits to the base 256: one for INT8, two for INT16, four for INT32 ────────────────┴─▶ MATMUL, each
      ─▶ times 256^digit ─▶ ADD ─▶ y

A row of the one-hot tensor has a single 1, so every product is one digit and the sum is the value: identical. A
constant table without a batch, such as an embedding, is the weight of a CONV2D instead, which is up to ten times
cheaper. TOSA leaves an index outside [0, K) open; here it counts as the nearest one. The work is N*W*K*C for each
digit, and the one-hot tensor takes N*W*K elements, which is why a target that has GATHER keeps it.

Ethos-U55 and U65 have no GATHER.
"""

from dataclasses import dataclass

from rewrites._bytes import COUNT
from rewrites._one_hot import one_hot, rows_at, rows_of_table
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.numerics.intervals import Interval

GATHER = Capture(ops.Gather, operands=(None, None))


@dataclass(frozen=True, eq=False)
class Plan:
    """What the indices can be."""

    indices: Interval


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A GATHER of static shape, of integers that have digits."""
    gather = match[GATHER]
    values, indices = gather.inputs
    if values.dtype not in COUNT or indices.dtype != DType.INT32 or not context.options.acts(context.target):
        return None
    for tensor in (values, indices):
        if min(tensor.shape) < 1:
            return Refusal(f'"{tensor.name}" has the shape {list(tensor.shape)}, which is not static')
    return Plan(context.intervals.of(indices))


def replacement(match: Match, plan: Plan) -> Replacement:
    """One-hot rows, times the digits of the values."""
    gather = match[GATHER]
    values, indices = gather.inputs
    builder = Builder(gather.output.name, location=gather.location, origin=RULE.name)
    chosen = one_hot(builder, indices, plan.indices, values.shape[1], axis=2)
    of = rows_of_table if values.is_constant and values.shape[0] == 1 else rows_at
    return Replacement(builder.ops, {gather.output: of(builder, chosen, values, values.dtype)})


RULE = Rule(
    name="gather_as_matmul",
    pattern=GATHER,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Read the rows that a GATHER reads by MATMUL with one-hot vectors.",
    options=ForSmallEthosU,
)
