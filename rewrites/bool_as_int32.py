"""Compute comparisons, logic and selections as INT32 arithmetic, BOOL tensors as 0 and 1.

    a, b ─▶ GREATER ─▶ p: BOOL ─┐                     a, b ─▶ SUB ─▶ MAXIMUM 0 ─▶ MINIMUM 1 ─▶ p: INT32 ─┐
    ... ─▶ EQUAL ─▶ q: BOOL ─▶ LOGICAL_AND ─▶ r       ... ─▶ q: INT32 ──────────▶ MINIMUM ─▶ r: INT32 ◀──┘
    x, y ─────────────────────▶ SELECT(r) ─▶ z        x, y ─▶ ADD of MUL(r, x) and MUL(1 - r, y) ─▶ z

With d = a - b, GREATER is min(max(d, 0), 1), EQUAL is 1 - min(|d|, 1), GREATER_EQUAL is 1 - (b > a). AND is the
minimum, OR the maximum, XOR |p - q|, NOT 1 - p, REDUCE_ANY min(sum, 1). An INT32 SELECT is y + r * (x - y), or the
MAXIMUM or MINIMUM itself where x and y are what is compared.
Where d is not proved to fit INT32, the halves decide and the rest breaks ties: with h = a >> 1 and l = a - 2h it is
d = 4 * clamp(ha - hb, -1, 1) + la - lb, since h never falls as a rises and |la - lb| < 4. Where x - y is not proved to
fit, the two products are added as for INT8 and INT16. Every value is identical.

Ethos-U55 and U65 take no BOOL at all. An island of BOOL tensors is rewritten as a whole or not at all.
"""

from dataclasses import dataclass

from rewrites._bool_arithmetic import Form
from rewrites._bool_island import KINDS, Island, island_of
from rewrites._int32 import MAXIMUM, MINIMUM
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.numerics.intervals import Intervals

ROOT: Capture[Attributes] = Capture(*KINDS)
LARGEST = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Plan:
    """The island, the pairs whose difference fits INT32, and the SELECTs that are a MAXIMUM or MINIMUM."""

    island: Island
    fitting: dict[tuple[Tensor, ...], None]
    extremes: dict[AnyOp, Attributes]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An island without BOOL inputs and outputs of the graph."""
    wanted = context.options.acts(context.target)
    island = island_of(match.root) if wanted else None
    if not isinstance(island, Island):
        return island
    pairs = [op.inputs[-2:] for op in island.ops if len(op.inputs) > 1 and op.inputs[-1].dtype == DType.INT32]
    fitting: dict[tuple[Tensor, ...], None] = {
        (a, b): None for a, b in pairs if a.dtype == DType.INT32 and _fits(a, b, context.intervals)
    }
    extremes = {op: kind for op in island.exits if (kind := _extreme(op)) is not None}
    return Plan(island, fitting, extremes)


def _fits(a: Tensor, b: Tensor, intervals: Intervals) -> bool:
    """True where a - b and b - a are proved to fit INT32."""
    low, high = intervals.of(a), intervals.of(b)
    return max(low.highest - high.lowest, high.highest - low.lowest) <= LARGEST


def _extreme(op: AnyOp) -> Attributes | None:
    """MAXIMUM where a SELECT takes the greater of what its condition compares, MINIMUM where it takes the lesser."""
    if not isinstance(op.attrs, ops.Select) or op.output.dtype != DType.INT32:
        return None
    condition, x, y = op.inputs
    compare = condition.producer
    if compare is None or not isinstance(compare.attrs, ops.Greater | ops.GreaterEqual):
        return None
    if compare.output.shape != op.output.shape:
        return None
    return {(x, y): MAXIMUM, (y, x): MINIMUM}.get((compare.inputs[0], compare.inputs[1]))


def replacement(match: Match, plan: Plan) -> Replacement:
    """The island in INT32, operator by operator."""
    first = match.root
    builder = Builder(first.output.name, location=first.location, origin=RULE.name)
    form = Form(builder, plan.fitting, plan.extremes)
    for op in plan.island.ops:
        if op.output.dtype != DType.BOOL or any(user not in plan.extremes for user in op.output.users):
            builder.location, builder.hint = op.location, op.output.name
            form.made[op.output] = form.of(op)
    return Replacement(
        builder.ops, {op.output: form.made[op.output] for op in plan.island.exits}, covers=plan.island.ops
    )


RULE = Rule(
    name="bool_as_int32",
    pattern=ROOT,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Compute comparisons, logic and selections as INT32 arithmetic, BOOL tensors as 0 and 1.",
    options=ForSmallEthosU,
)
