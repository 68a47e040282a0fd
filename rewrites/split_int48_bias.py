"""Take an INT48 bias out of a convolution and add it in INT32 behind it.

    CONV(x, w, b48) ─▶ RESCALE(m, s) ─▶ y

    CONV(x, w, 0) ─▶ RESCALE(2^14, 14+j) ─▶ INT32 ─▶ ADD(b32) ─▶ RESCALE(m, s-j) ─▶ y      b32 = R(b / 2^j)
          │
          └─ every reader is a RESCALE; each gets its own last RESCALE behind the one ADD

With A the accumulator without bias and R(x) = floor(x + 1/2), every channel has the smallest j for which A, A + b and b
are proved to fit INT32 in units of 2^j. Where j is 0, the first RESCALE copies and the last one sees A + b as before:
identical. Elsewhere the last one sees (A + b + e) / 2^j with |e| <= E = 2^(j-1) + |b32 * 2^j - b|; as |R(p) - R(q)| <=
ceil(|p - q|) and clipping moves no two numbers apart, results differ by at most ceil(E * m / 2^s). Ethos-U85 holds all
48 bits, so by default only biases that a target cannot hold are split.
"""

import math
from dataclasses import dataclass

import numpy as np

from rewrites._accumulator import (
    BIAS_HIGH,
    BIAS_LOW,
    CONVOLUTIONS,
    Readers,
    clipped_to_int48,
    narrowed,
    pre_shifts,
    readers_of,
    rescale_again,
    why_not_shifted,
)
from rewrites._channels import Numbers, columns, extent, farthest, largest_ratio, least, most, numbers, rounded
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import PER_MATCH, Contract, Exact, WithinLsb
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType

CONV = Capture(*CONVOLUTIONS, operands=(None,) * 5)


class Options(ForSmallEthosU):
    """``when``: ``target`` splits only what the target cannot hold, ``all`` every bias that is not zero."""


@dataclass(frozen=True, eq=False)
class Plan:
    """``bias`` in units of ``2**pre_shift``, and the readers to move behind the ADD."""

    readers: Readers
    bias: Numbers
    pre_shift: Numbers
    contract: Contract


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """Prove the exact form, or find the pre-shifted one and its bound."""
    conv = match[CONV]
    bias = conv.inputs[2]
    if bias.dtype != DType.INT48 or conv.output.dtype != DType.INT48:
        return None
    if not context.options.acts(context.target):
        return None
    every = context.options.when == "all"
    if not bias.is_constant:
        return Refusal(f'the bias "{bias.name}" is no constant, so nothing is known about its size')
    _, smallest, largest = extent(bias)
    if not (smallest or largest if every else smallest < BIAS_LOW or largest > BIAS_HIGH):
        return None
    readers = readers_of(conv.output)
    if isinstance(readers, Refusal) or not readers.rescales:
        return readers if isinstance(readers, Refusal) else None
    low, high = clipped_to_int48(context.intervals.without_bias(conv))
    values = numbers(bias)
    j = pre_shifts(low, high, values)
    short = rounded(values, j)
    if not most(j):
        return Plan(readers, short, j, Exact())
    for reader in readers.rescales:
        if (reason := why_not_shifted(reader, rounded(low, j) + short, rounded(high, j) + short, j)) is not None:
            return Refusal(f"the accumulator without bias reaches from {least(low)} to {most(high)}, and {reason}")
    slack = (1 << j >> 1) + farthest((short << j) - values, 0)  # E of the docstring
    return Plan(readers, short, j, _bound(readers, slack, j))


def _bound(readers: Readers, slack: Numbers, j: Numbers) -> WithinLsb:
    worst = largest_ratio(
        (m * e, s) for reader in readers.rescales for m, s, e in columns(reader.multiplier, reader.shift, slack)
    )
    because = (
        f"accumulator and bias rounded to multiples of 2^{most(j)} or less, "
        f"{float(worst):.3g} LSB at most before the last rounding"
    )
    return WithinLsb(float(math.ceil(worst)), because)


def replacement(match: Match, plan: Plan) -> Replacement:
    """Zero bias, first RESCALE, ADD, and a last RESCALE for every reader."""
    conv, j = match[CONV], plan.pre_shift
    x, weight, bias, *zero_points = conv.inputs
    accumulator = conv.output
    builder = Builder(accumulator.name, location=conv.location, origin=RULE.name)
    zero = builder.const(np.zeros(bias.shape, np.int64), DType.INT48, "zero_bias")
    bare = builder.op(conv.attrs, (x, weight, zero, *zero_points), DType.INT48, accumulator.shape, name="without_bias")
    narrow = narrowed(builder, bare, j)
    by_channel = (*(1,) * (len(accumulator.shape) - 1), -1)
    addend = builder.const(np.reshape(plan.bias, by_channel), DType.INT32, "bias")
    total = builder.op(ops.Add(), (narrow, addend), DType.INT32, accumulator.shape, name="with_bias")
    values = {reader.op.output: rescale_again(builder, reader, total, pre_shift=j) for reader in plan.readers.rescales}
    return Replacement(builder.ops, values, plan.contract, covers=(conv, *plan.readers.covers))


RULE = Rule(
    name="split_int48_bias",
    pattern=CONV,
    precondition=precondition,
    replacement=replacement,
    contract=WithinLsb(PER_MATCH, because="exact, or the accumulator and the bias are rounded before they are added"),
    summary="Take an INT48 bias out of a convolution and add it in INT32 behind it.",
    options=Options,
)
