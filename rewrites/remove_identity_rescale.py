"""Remove a RESCALE that gives back every value it can be given.

    x ──▶ RESCALE(m, s) ──▶ y ──▶ readers        x ──▶ readers
    │
    └─ the same dtype and zero point on both sides; every possible v = x - zero_point gives v

RESCALE computes R(v) = floor(v * m / 2^s + 1/2), so R(v) = v where -1/2 <= v * (m / 2^s - 1) < 1/2. That is linear in
v, so it holds between two values for which it holds. (DOUBLE_ROUND adds something only for s > 31; then m / 2^s < 1 and
the v farthest from 0 on either side is the worst.) The values x can hold come from interval analysis. It is false
outside the range that S32 demands of v, where the result is unpredictable: (2^30, 30) is the identity on 30 bits only.
A RESCALE that reads an accumulator stays, even as the identity: targets expect one there.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rewrites._channels import numbers, rounded
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.types import BITS, INTEGER_RANGES
from tosakit.numerics.intervals import Intervals
from tosakit.numerics.rescale import required_limits, rescale
from tosakit.numerics.scale import MAX_SHIFT, MIN_SHIFT

RESCALE = Capture(ops.Rescale, operands=(None, None, None, None, None))

ACCUMULATES = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d, ops.MatMul, ops.MatMulT, ops.Resize)
PASSES_ON = (ops.Identity, ops.Reshape, ops.Transpose, ops.Reverse, ops.Slice)


@dataclass(frozen=True)
class Plan:
    """The tensor that is read instead."""

    x: Tensor


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """Prove that the RESCALE changes no value that its operand can hold."""
    op = match[RESCALE]
    x, *constants = op.inputs
    if len(op.outputs) != 1 or len(constants) != 4 or x.dtype not in (DType.INT8, DType.INT16, DType.INT32):
        return None
    if (x.dtype, x.shape) != (op.output.dtype, op.output.shape):
        return None
    if op.attrs.input_unsigned != op.attrs.output_unsigned or op.is_stateful:
        return None
    if not all(tensor.is_constant for tensor in constants):
        return Refusal("its multiplier, shift and zero points are not all constants")
    try:
        _, _, input_zp, output_zp = (tensor.values() for tensor in constants)
        if input_zp.tolist() != output_zp.tolist():
            return None
        keeps: bool | Refusal | None = _pair_keeps(op, context.intervals)
        if keeps is None:
            keeps = _keeps(op, context.intervals)
    except TosakitError as error:
        return Refusal(f"what it computes is not known: {error}")
    if keeps is not True:
        return keeps or None
    accumulator = _accumulator(x)
    if accumulator is not None:
        return Refusal(f"it reads an accumulator ({describe(accumulator)}), and targets expect a RESCALE there")
    return Plan(x)


def _pair_keeps(op: Op[ops.Rescale], intervals: Intervals) -> bool | None:
    """:func:`_keeps` of one pair for all channels, without arrays; None for any other, and for what is refused."""
    attrs, (x, multiplier, shift, input_zp, _) = op.attrs, op.inputs
    if attrs.input_unsigned or attrs.per_channel or attrs.rounding_mode != RoundingMode.SINGLE_ROUND:
        return None
    if multiplier.dtype not in INTEGER_RANGES or shift.dtype not in INTEGER_RANGES:
        return None
    m, s = numbers(multiplier), numbers(shift)
    if not isinstance(m, int) or not isinstance(s, int) or max(len(multiplier.shape), len(shift.shape)) > 1:
        return None
    if not 0 <= m < 1 << (31 if attrs.scale32 else 15) or not MIN_SHIFT <= s <= MAX_SHIFT:
        return None
    first, last = required_limits(m, s, scale32=attrs.scale32)
    value, zero_point = intervals.of(x), int(input_zp.values().item())
    ends = value.lowest - zero_point, value.highest - zero_point
    predictable = [end for end in ends if first <= end <= last]
    if any([rounded(end * m, s) != end for end in predictable]):
        return False
    return True if len(predictable) == len(ends) else None


def _keeps(op: Op[ops.Rescale], intervals: Intervals) -> bool | Refusal:
    """Whether the ends of what the operand can hold stay as they are; a Refusal where they are unpredictable."""
    x, multiplier, shift, _, _ = op.inputs
    values = _differences(op, intervals)
    scaled = rescale(
        values,
        multiplier.values(),
        shift.values(),
        scale32=op.attrs.scale32,
        out_bits=32,
        rounding_mode=op.attrs.rounding_mode,
        per_channel=op.attrs.per_channel,
    )
    if np.any((scaled.values != values) & ~scaled.unpredictable):
        return False
    if np.any(scaled.unpredictable):
        return Refusal(
            f'"{x.name}" holds values from {values.min()} to {values.max()} from its zero point, and the RESCALE is '
            f"unpredictable at {values[scaled.unpredictable][0]}"
        )
    return True


def _differences(op: Op[ops.Rescale], intervals: Intervals) -> npt.NDArray[np.int64]:
    """The least and the greatest ``x - zero_point``, shape [2] or, by channel, [2, C]."""
    x, _, _, input_zp, _ = op.inputs
    zero_point = int(input_zp.values().item())
    if op.attrs.input_unsigned:
        mask = (1 << BITS[x.dtype]) - 1
        low, high = np.asarray(0, np.int64), np.asarray(mask, np.int64)
        zero_point &= mask
    else:
        interval = intervals.of(x)
        low, high = np.asarray(interval.low, np.int64), np.asarray(interval.high, np.int64)
    if op.attrs.per_channel:
        low, high = (np.broadcast_to(bound, x.shape[-1:]) for bound in (low, high))
    return np.stack([low, high]) - zero_point


def _accumulator(x: Tensor) -> AnyOp | None:
    """The operator whose accumulator ``x`` holds, moved about or just brought to INT32; None where it holds none."""
    op = x.producer
    while op is not None and isinstance(op.attrs, PASSES_ON) and op.inputs:
        op = op.inputs[0].producer
    if op is None:
        return None
    from_int48 = isinstance(op.attrs, ops.Rescale) and op.inputs[0].dtype == DType.INT48
    return op if from_int48 or (isinstance(op.attrs, ACCUMULATES) and x.dtype == DType.INT32) else None


def replacement(match: Match, plan: Plan) -> Replacement:
    """Nothing: readers read the operand."""
    return Replacement((), {match[RESCALE].output: plan.x})


RULE = Rule(
    name="remove_identity_rescale",
    pattern=RESCALE,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Remove a RESCALE that gives back every value it can be given.",
)
