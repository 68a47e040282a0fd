"""Add zero behind a RESCALE that Vela would take into the next operator wrongly.

    x: INT16 ─▶ RESCALE ─▶ INT32 ─▶ REDUCE_SUM ─▶ y         x ─▶ RESCALE ─▶ ADD 0 ─▶ REDUCE_SUM ─▶ y
                                                             or, for scale one: x ─▶ MUL 1 ─▶ INT32 ─▶ REDUCE_SUM ─▶ y

    acc: INT48 ─┬▶ RESCALE of scale one ─▶ ABS ─▶ y         acc ─┬▶ RESCALE of scale one ─▶ ADD 0 ─▶ ABS ─▶ y
                └▶ another reader                                └▶ another reader

v + 0 = v * 1 = v. Behind the ADD or MUL the sum is one of INT32 values, and ABS reads INT32 (bytes inspected).

Vela 5.2 lets Ethos-U85 sum the INT16 values themselves, which was reported to give zeros. Where a convolution cannot
write the INT32 copy of its accumulator itself, because others read the accumulator, Vela drops the copy and ends with a
signal at an operator that reads nothing else: no element-wise operator reads 64 bits.
"""

from dataclasses import dataclass

from rewrites._channels import extent, is_one, numbers
from rewrites._int32 import mul, number
from rewrites._when import ForEthosU85
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp
from tosakit.ir.movement import MOVES, RENAMES, source_of
from tosakit.ir.operator import Attributes

UNARY = (ops.Abs, ops.BitwiseNot, ops.Cast, ops.Clz, ops.Negate)
BINARY = (
    *(ops.Add, ops.ArithmeticRightShift, ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor, ops.Equal, ops.Greater),
    *(ops.GreaterEqual, ops.IntDiv, ops.LogicalLeftShift, ops.LogicalRightShift, ops.Maximum, ops.Minimum, ops.Mul),
    ops.Sub,
)
READER: Capture[Attributes] = Capture(ops.ReduceSum, *UNARY, *BINARY)
ACCUMULATING = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d, ops.MatMul, ops.Resize)


@dataclass(frozen=True)
class Plan:
    """Whether a product with one takes the place of the RESCALE: it copies INT16 values to INT32."""

    multiplies: bool


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An operator that reads one INT32 tensor, a RESCALE that would be lost."""
    reader = match.root
    x = reader.inputs[0]
    if not context.options.acts(context.target) or x.dtype != DType.INT32:
        return None
    is_sum = isinstance(reader.attrs, ops.ReduceSum)
    source = source_of(x, MOVES if is_sum else RENAMES).producer
    if source is None or not isinstance(source.attrs, ops.Rescale):
        return None
    if is_sum:
        wrong = source.inputs[0].dtype == DType.INT16
    else:
        reads_one = isinstance(reader.attrs, UNARY) or reader.inputs[1] is x
        wrong = reads_one and source.output.single_user is not None and _is_dropped(source)
    return Plan(is_sum and source is x.producer and _is_one(source)) if wrong else None


def _is_dropped(rescale: AnyOp) -> bool:
    """A copy of an INT48 accumulator that the accumulating operator cannot write itself."""
    accumulator = rescale.inputs[0]
    if accumulator.dtype != DType.INT48 or not _is_one(rescale):
        return False
    producer = accumulator.producer
    is_read_once = accumulator.single_user is not None
    return not (is_read_once and producer is not None and isinstance(producer.attrs, ACCUMULATING))


def _is_one(rescale: AnyOp) -> bool:
    """Scale one in every channel, of signed values without a zero point."""
    attrs, (_, multiplier, shift, *zero_points) = rescale.attrs, rescale.inputs
    if not isinstance(attrs, ops.Rescale) or attrs.input_unsigned or not all(t.is_constant for t in rescale.inputs[1:]):
        return False
    return is_one(numbers(multiplier), numbers(shift)) and all(
        extent(zero_point)[1:] == (0, 0) for zero_point in zero_points
    )


def replacement(match: Match, plan: Plan) -> Replacement:
    """The same operator on the sum with zero."""
    reader = match.root
    x = reader.inputs[0]
    builder = Builder(reader.output.name, location=reader.location, origin=RULE.name)
    covers = [reader]
    if plan.multiplies and x.producer is not None:
        covers.append(x.producer)
        narrow = x.producer.inputs[0]
        kept = mul(builder, narrow, builder.number(1, narrow.dtype, len(narrow.shape)), "kept")
    else:
        kept = builder.add(x, number(builder, 0, x), "kept")
    operands = [kept if tensor is x else tensor for tensor in reader.inputs]
    y = builder.op(reader.attrs, operands, reader.output.dtype, reader.output.shape)
    return Replacement(builder.ops, {reader.output: y}, covers=covers)


RULE = Rule(
    name="keep_rescale_apart",
    pattern=READER,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Add zero behind a RESCALE that Vela would take into the next operator wrongly.",
    options=ForEthosU85,
)
