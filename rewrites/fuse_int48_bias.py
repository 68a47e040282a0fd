"""Fold a constant added behind a convolution into the convolution's INT48 bias.

    CONV(x, w, b) ─▶ RESCALE(m, s) ─▶ INT32 ─▶ ADD(c) ─▶ readers
         │                │
         │                └─ only the ADD reads it
         └─ only the RESCALE reads it

    CONV(x, w, b + B) ─▶ RESCALE(m, s) ─▶ INT32 ─▶ readers                                B = c * 2^s / m

With A the accumulator and R(x) = floor(x + 1/2), R((A + B) * m / 2^s) = R(A * m / 2^s) + c exactly where B, which the
first equation defines, is an integer in every channel; elsewhere no bias does what the ADD does, and we refuse. Where
the scale is one and all readers are 16-bit RESCALEs, these read the accumulator themselves and the first RESCALE goes
too: the inverse of ``split_int48_bias``.
"""

from dataclasses import dataclass

import numpy as np

from rewrites._accumulator import (
    BIAS_HIGH,
    BIAS_LOW,
    CONVOLUTIONS,
    Reader,
    clipped_to_int48,
    is_ethos_u85,
    is_small_ethos_u,
    read_rescale,
    rescale_again,
    within_int48,
)
from rewrites._channels import Integers, Numbers, columns, least, most, numbers
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Op, Tensor

ADD = Capture(ops.Add, operands=(None, None))


@dataclass(frozen=True, eq=False)
class Plan:
    """The operators in front of the ADD, the new bias, and the readers that can read the accumulator themselves."""

    conv: AnyOp
    first: Reader
    bias: Integers
    direct: tuple[Reader, ...]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """Find convolution, RESCALE and constant; prove that a bias says the same."""
    add = match[ADD]
    found = _convolution_and_constant(add)
    if found is None or not add.output.is_used:
        return None
    conv, rescale, constant = found
    for op, reader in ((conv, rescale), (rescale, add)):
        others = [user for user in op.output.users if user is not reader]
        if others:
            return Refusal(f"{describe(op)} is also read by {describe(others[0])}, which must not see the constant")
    if not conv.inputs[2].is_constant:
        return Refusal(f'the bias "{conv.inputs[2].name}" is no constant')
    first = read_rescale(rescale)
    if isinstance(first, Refusal):
        return first
    addend = _by_channel(constant, add.output, rescale.output)
    bias = addend if isinstance(addend, Refusal) else _fused(first, addend, numbers(conv.inputs[2]))
    if isinstance(bias, Refusal):
        return bias
    low, high = clipped_to_int48(context.intervals.without_bias(conv))
    low, high = least(low + bias), most(high + bias)
    if not within_int48(low, high):
        return Refusal(f"the accumulator with the fused bias could reach from {low} to {high}, outside INT48")
    if is_small_ethos_u(context.target) and (bias.min() < BIAS_LOW or bias.max() > BIAS_HIGH):
        return Refusal(f"{context.target} keeps 40 bits of a bias, too few for {bias.min()} to {bias.max()}")
    direct = _direct_readers(first, add.output, context.target)
    if is_ethos_u85(context.target) and first.is_one and not direct and any(map(_is_s32, add.output.users)):
        return Refusal(
            f"{context.target} would cut the 31-bit multiplier behind {first.name}; the ADD keeps them apart"
        )
    return Plan(conv, first, bias, direct)


def _convolution_and_constant(add: Op[ops.Add]) -> tuple[AnyOp, Op[ops.Rescale], Tensor] | None:
    for value, constant in (add.inputs, add.inputs[::-1]):
        rescale = value.producer
        if constant.is_constant and value.dtype == DType.INT32 and rescale and isinstance(rescale.attrs, ops.Rescale):
            conv = rescale.inputs[0].producer
            if conv and isinstance(conv.attrs, CONVOLUTIONS) and conv.output.dtype == DType.INT48:
                return conv, rescale, constant  # type: ignore[return-value]
    return None


def _by_channel(constant: Tensor, total: Tensor, narrow: Tensor) -> Numbers | Refusal:
    """The constant as one value, or one per index of the last axis of the tensor it is added to."""
    if total.shape != narrow.shape or len(constant.shape) != len(total.shape):
        return Refusal(f'the constant "{constant.name}" {list(constant.shape)} does not fit {list(narrow.shape)}')
    values = numbers(constant)
    if isinstance(values, int):
        return values
    rows = values.reshape(-1, constant.shape[-1])
    if len(rows) > 1 and (rows != rows[0]).any():
        return Refusal(f'the constant "{constant.name}" of shape {list(constant.shape)} varies over more than channels')
    first: Integers = rows[0]
    return first


def _fused(first: Reader, addend: Numbers, bias: Numbers) -> Integers | Refusal:
    """The bias plus the constant in units of the accumulator, by channel."""
    fused: list[int] = []
    for channel, (m_c, s_c, c_c, b_c) in enumerate(columns(first.multiplier, first.shift, addend, bias)):
        whole, rest = divmod(c_c << s_c, m_c) if m_c else (0, c_c)
        if rest:
            return Refusal(
                f"no bias does what adding {c_c} behind {first.name} does in channel {channel}: "
                f"{c_c} * 2^{s_c} / {m_c} is no integer"
            )
        fused.append(b_c + whole)
    if not within_int48(min(fused), max(fused)):
        return Refusal(f"the fused bias reaches from {min(fused)} to {max(fused)}, outside INT48")
    return np.array(fused, np.int64)


def _direct_readers(first: Reader, total: Tensor, target: str) -> tuple[Reader, ...]:
    """The readers of ``total``, if all of them may read the accumulator in its place; else none."""
    if not first.is_one or (is_small_ethos_u(target) and total.single_user is None):
        return ()
    readers: list[Reader] = []
    for user in total.users:
        if not isinstance(user.attrs, ops.Rescale) or user.inputs[0] is not total:
            return ()
        reader = read_rescale(user)  # type: ignore[arg-type]
        if isinstance(reader, Refusal):
            return ()
        readers.append(reader)
    return tuple(readers)


def _is_s32(op: AnyOp) -> bool:
    return isinstance(op.attrs, ops.Rescale) and op.attrs.scale32


def replacement(match: Match, plan: Plan) -> Replacement:
    """The convolution with the new bias, read directly or through the first RESCALE."""
    conv, total = plan.conv, match[ADD].output
    x, weight, _, *zero_points = conv.inputs
    builder = Builder(conv.output.name, location=conv.location, origin=RULE.name)
    bias = builder.const(plan.bias, DType.INT48, "bias")
    operands = (x, weight, bias, *zero_points)
    accumulator = builder.op(conv.attrs, operands, DType.INT48, conv.output.shape, name="with_bias")
    covers = (conv, plan.first.op, match[ADD])
    if plan.direct:
        values = {reader.op.output: rescale_again(builder, reader, accumulator) for reader in plan.direct}
        return Replacement(builder.ops, values, covers=(*covers, *(reader.op for reader in plan.direct)))
    values = {total: rescale_again(builder, plan.first, accumulator)}
    return Replacement(builder.ops, values, covers=covers)


RULE = Rule(
    name="fuse_int48_bias",
    pattern=ADD,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Fold a constant added behind a convolution into the convolution's INT48 bias.",
)
