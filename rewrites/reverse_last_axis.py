"""Reverse a last axis where the target can: as channels of a convolution, or as rows.

    x [..,H,W,C] ─▶ REVERSE last axis ─▶ y

    x ─▶ RESHAPE [1,H,W,C] ─▶ CONV2D 1x1, weights ones on the antidiagonal ─▶ RESCALE of one ─▶ RESHAPE ─▶ y
    x ─▶ RESHAPE [rows,C,1] ─▶ REVERSE axis 1 ─▶ RESHAPE ─▶ y

Output channel c of the convolution is 1 * x[C-1-c], so its sum and the RESCALE by one are exact; RESHAPE does not
change the order of values, so reversing C is the same with an axis of one element behind it.

Ethos-U55 and U65 do not reverse channels. Reversed rows are copied one by one, about 8 cycles for each value of INT8;
the convolution takes C / 128 for each on U55-128, and about C * C / 8 to load its weights. It is for INT8 and INT16.
"""

import math
from dataclasses import dataclass

import numpy as np

from rewrites._accumulator import ACCUMULATORS
from rewrites._selection import select_channels
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType

REVERSE = Capture(ops.Reverse, operands=(None,))

CHANNELS_PER_ROW, MOST_CHANNELS = 32, 512
"""The convolution where there are enough rows for its weights, and not more channels than this."""


@dataclass(frozen=True)
class Plan:
    """Values before the last axis, and whether a convolution is cheaper."""

    rows: int
    by_convolution: bool


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An integer REVERSE of the last axis that the target does not take."""
    reverse = match[REVERSE]
    x = reverse.inputs[0]
    if x.dtype not in (*ACCUMULATORS, DType.INT32) or reverse.attrs.axis != len(x.shape) - 1:
        return None
    if not context.options.acts(context.target):
        return None
    if min(x.shape) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    if context.options.when == "target" and math.prod(x.shape[:-3]) > 1:
        return None
    rows, channels = math.prod(x.shape[:-1]), x.shape[-1]
    few = channels <= min(CHANNELS_PER_ROW * rows, MOST_CHANNELS)
    return Plan(rows, x.dtype in ACCUMULATORS and few)


def replacement(match: Match, plan: Plan) -> Replacement:
    """Another axis, or a convolution."""
    reverse = match[REVERSE]
    x, channels = reverse.inputs[0], reverse.inputs[0].shape[-1]
    builder = Builder(reverse.output.name, location=reverse.location, origin=RULE.name)
    if plan.by_convolution:
        width = x.shape[-2] if len(x.shape) > 1 else 1
        moved = builder.reshape(x, (1, plan.rows // width, width, channels))
        moved = select_channels(builder, moved, np.eye(channels, dtype=np.int64)[::-1])
    else:
        moved = builder.reshape(x, (plan.rows, channels, 1))
        moved = builder.op(ops.Reverse(axis=1), (moved,), x.dtype, moved.shape, "reverse")
    return Replacement(builder.ops, {reverse.output: builder.reshape(moved, x.shape)})


RULE = Rule(
    name="reverse_last_axis",
    pattern=REVERSE,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Reverse a last axis where the target can: as channels of a convolution, or as rows.",
    options=ForSmallEthosU,
)
