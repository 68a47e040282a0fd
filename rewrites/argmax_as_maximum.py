"""Find ARGMAX as the largest of keys that hold value and index.

    x [.., N, ..] ─▶ ARGMAX ─▶ y [.., ..]

    x ─▶ RESCALE to INT32, times 2^k ─▶ ADD (offset - i) ─▶ MAXIMUM of halves, again and again ─▶ key
    key - (key >> k) * 2^k ─▶ N - 1 - it ─▶ RESHAPE ─▶ y

With 2^k >= N the key (x - lowest) * 2^k + (N - 1 - i) orders by value, and among equal values by the first index, which
is what ARGMAX gives. Its low k bits are N - 1 - i. Keys are at least 0. All keys fit INT32, or the rule refuses; every
index is identical.

Ethos-U55 and U65 take ARGMAX of INT8 along a last axis of up to 127 elements without a batch only.
"""

import math
from dataclasses import dataclass

import numpy as np

from rewrites._halves import reduce_by_halves
from rewrites._int32 import MAXIMUM, number, sub, times
from rewrites._shifts import floor_shift
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp
from tosakit.ir.types import INTEGER_RANGES

ARGMAX = Capture(ops.ArgMax, operands=(None,))
LONGEST = 127
"""Elements that Ethos-U55 and U65 compare."""

MOST_BITS = {DType.INT8: 22, DType.INT16: 14}
"""Largest k: RESCALE demands -2^(29-k) <= x < 2^(29-k); all keys are then below 2^30."""


@dataclass(frozen=True)
class Plan:
    """Bits of the index."""

    bits: int


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An integer ARGMAX that the target refuses, with an axis short enough."""
    argmax = match[ARGMAX]
    x = argmax.inputs[0]
    if x.dtype not in MOST_BITS or not context.options.acts(context.target):
        return None
    if min(x.shape, default=1) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    if context.options.when == "target" and _is_taken(argmax):
        return None
    length = x.shape[argmax.attrs.axis]
    bits = (length - 1).bit_length()
    if bits > MOST_BITS[x.dtype]:
        most = MOST_BITS[x.dtype]
        return Refusal(f"{length} indices need {bits} bits beside a value of {x.dtype.name}; up to {most} fit INT32")
    return Plan(bits)


def _is_taken(argmax: AnyOp) -> bool:
    shape = argmax.inputs[0].shape
    is_last = isinstance(argmax.attrs, ops.ArgMax) and argmax.attrs.axis == len(shape) - 1
    return is_last and argmax.inputs[0].dtype == DType.INT8 and shape[-1] <= LONGEST and math.prod(shape[:-3]) == 1


def replacement(match: Match, plan: Plan) -> Replacement:
    """Keys, their maximum, and its low bits."""
    argmax = match[ARGMAX]
    x, axis = argmax.inputs[0], argmax.attrs.axis
    builder = Builder(argmax.output.name, location=argmax.location, origin=RULE.name)
    length, lowest = x.shape[axis], INTEGER_RANGES[x.dtype][0]
    wide = builder.rescale(x, DType.INT32, 1 << 30, 30 - plan.bits, scale32=True)
    along = [length if position == axis else 1 for position in range(len(x.shape))]
    places = np.arange(length - 1, -1, -1, dtype=np.int64) - (lowest << plan.bits)
    key = builder.add(wide, builder.const(places.reshape(along), DType.INT32, "places"), "keys")
    key = reduce_by_halves(builder, MAXIMUM, key, axis)
    value = floor_shift(builder, key, number(builder, plan.bits, key), low=0)
    rest = sub(builder, key, times(builder, value, 1 << plan.bits, "high"), "rest")
    index = sub(builder, number(builder, length - 1, key), rest, "index")
    return Replacement(builder.ops, {argmax.output: builder.reshape(index, argmax.output.shape)})


RULE = Rule(
    name="argmax_as_maximum",
    pattern=ARGMAX,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Find ARGMAX as the largest of keys that hold value and index.",
    options=ForSmallEthosU,
)
