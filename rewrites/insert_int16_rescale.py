"""Make operators legal that TOSA does not define on int16, by RESCALE between the scales of their tensors.

::

    x:i16, s1 ──▶ ADD ──▶ z:i16, s3        x ──▶ RESCALE s1/c ──▶ ADD:i32 ──▶ RESCALE c/s3 ──▶ z:i16
    y:i16, s2 ──────┘                      y ──▶ RESCALE s2/c ──────┘            c = 2*max(s1, s2) / 2**12

    x:i16, s1 ──▶ CONV2D ──▶ z:i16, s3     x ──▶ CONV2D:i48 ──▶ RESCALE s1*s2[c]/s3 ──▶ z:i16
    w:i8, s2[c] ────┘                      w ──────┘
                                           └─ bias and acc_type become INT48

A quantised tensor means ``scale * q``, so RESCALE by the ratio of two scales changes the unit and not the meaning, but
for roundings. The contract adds those up: it bounds the distance to the real-valued result, in LSB of z. MAXIMUM,
MINIMUM and comparisons need both operands on the smaller scale; MUL, ABS, REDUCE_SUM, TABLE and sums of products only
RESCALE their result. Where quantisation parameters are missing, or a value could leave the range of int32 or of
RESCALE, the operator stays as it is, with the reason. An INT32 accumulator of int16 products needs no parameters: the
RESCALEs that read it read INT48 instead, and everything else reads a copy, where that is proved to fit int32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from rewrites._int16 import accumulator, elementwise
from rewrites._int16.plan import Plan, require_symmetric
from tosakit.engine.contract import PER_MATCH, WithinLsb
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.errors import Unsupported
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes

NAME = "insert_int16_rescale"

CONVERTERS: Mapping[type[Attributes], Callable[[AnyOp, Context], Plan | None]] = {
    ops.Add: elementwise.add_or_subtract,
    ops.Sub: elementwise.add_or_subtract,
    ops.Maximum: elementwise.pick,
    ops.Minimum: elementwise.pick,
    ops.Equal: elementwise.compare,
    ops.Greater: elementwise.compare,
    ops.GreaterEqual: elementwise.compare,
    ops.Mul: elementwise.multiply,
    ops.IntDiv: elementwise.divide,
    ops.Abs: elementwise.absolute,
    ops.ReduceSum: elementwise.sum_up,
    ops.Table: elementwise.look_up,
    ops.Conv2d: accumulator.convolution,
    ops.Conv3d: accumulator.convolution,
    ops.DepthwiseConv2d: accumulator.convolution,
    ops.TransposeConv2d: accumulator.convolution,
    ops.MatMul: accumulator.matmul,
    ops.Resize: accumulator.resize,
}

OPERATOR = Capture[Attributes](*CONVERTERS)
PATTERN = OPERATOR


@dataclass(frozen=True)
class Options:
    """``form``: how an INT48 accumulator that needs a new multiplier is rescaled.

    ``one-step``: one RESCALE with 15 bits, up to one LSB off at full scale. ``two-step``: to int32 by a power of two,
    then by a 31-bit multiplier; one operator more, ideal rounding where the accumulator fits int32.
    """

    form: Literal["one-step", "two-step"] = "one-step"


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """The plan of the operator's converter; None where the operator is legal as it stands."""
    op = match[OPERATOR]
    if len(op.inputs) != len(op.attrs.OPERANDS) or len(op.outputs) != 1:
        return None  # not an operator as TOSA has it; the verifier says so
    try:
        plan = CONVERTERS[type(op.attrs)](op, context)
    except Unsupported as error:
        return Refusal(str(error))
    if plan is None:
        return None
    shapeless = [t for t in (*op.inputs, op.output) if not t.has_shape]
    if shapeless:
        return Refusal(f'tensor "{shapeless[0].name}" has no shape')
    for tensor in (*op.inputs, op.output):
        require_symmetric(tensor)
    return plan


def replacement(match: Match, plan: Plan) -> Replacement:
    """The legal operator, RESCALEs in front of its operands where it needs them, and one for every result."""
    op = match[OPERATOR]
    builder = Builder(op.output.name, location=op.location, origin=f"{NAME} from {op.name}")
    operands = [x if isinstance(x, Tensor) else x.build(builder) for x in plan.operands]
    made = builder.op(plan.attrs, operands, plan.dtype, op.output.shape)
    values = {}
    for result in plan.results:
        values[result.old] = made
        builder.location = result.old.producer.location if result.old.producer else op.location
        for step in result.steps:
            values[result.old] = step.build(builder, values[result.old])
    return Replacement(builder.ops, values, plan.contract, plan.covers, plan.reference)


RULE = Rule(
    name=NAME,
    pattern=PATTERN,
    precondition=precondition,
    replacement=replacement,
    contract=WithinLsb(PER_MATCH, "roundings and multipliers of the RESCALEs put in"),
    summary="Make int16 operators legal that TOSA does not define, by RESCALE between quantisation scales.",
    options=Options,
)
