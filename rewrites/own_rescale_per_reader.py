"""Give every reader of a widening RESCALE a RESCALE of its own.

    x ─▶ RESCALE to INT32 ─┬─▶ ADD                x ─┬─▶ RESCALE to INT32 ─▶ ADD
                           └─▶ SUB                  └─▶ RESCALE to INT32 ─▶ SUB

Both copies compute the same. Vela merges such a RESCALE with each elementwise operator that reads it, so on Ethos-U55
and U65 the copies cost nothing; one RESCALE on several readers was reported to give zeros there.
"""

from dataclasses import dataclass

from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes

READERS = (
    *(ops.Add, ops.Sub, ops.Mul, ops.Maximum, ops.Minimum),
    *(ops.ArithmeticRightShift, ops.LogicalLeftShift, ops.Abs),
)
READER: Capture[Attributes] = Capture(*READERS)


@dataclass(frozen=True, eq=False)
class Plan:
    """The RESCALEs to copy, by what they give."""

    shared: dict[Tensor, AnyOp]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An operand from a widening RESCALE that another operator reads first."""
    reader = match.root
    if not context.options.acts(context.target):
        return None
    shared = {t: t.producer for t in reader.inputs if t.producer is not None and _widens(t.producer)}
    shared = {t: op for t, op in shared.items() if t.users[0] is not reader}
    if not shared:
        return None
    for op in shared.values():
        if any(t.extras.variable for t in op.inputs):
            return Refusal(f"{describe(op)} reads a variable, so the copy could read another value")
    return Plan(shared)


def _widens(op: AnyOp) -> bool:
    if not isinstance(op.attrs, ops.Rescale) or len(op.inputs) != len(op.attrs.OPERANDS) or len(op.outputs) != 1:
        return False
    return op.output.dtype == DType.INT32 and op.inputs[0].dtype in (DType.INT8, DType.INT16)


def replacement(match: Match, plan: Plan) -> Replacement:
    """The reader again, on copies."""
    reader = match.root
    builder = Builder(reader.output.name, location=reader.location, origin=RULE.name)
    copies = {t: builder.op(op.attrs, op.inputs, t.dtype, t.shape, "rescale") for t, op in plan.shared.items()}
    inputs = [copies.get(t, t) for t in reader.inputs]
    again = builder.op(reader.attrs, inputs, reader.output.dtype, reader.output.shape)
    return Replacement(builder.ops, {reader.output: again}, covers=(reader, *plan.shared.values()))


RULE = Rule(
    name="own_rescale_per_reader",
    pattern=READER,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Give every reader of a widening RESCALE a RESCALE of its own.",
    options=ForSmallEthosU,
)
