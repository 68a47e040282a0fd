"""Shorten strides above three: fold an axis into the channels, or compute more and pick.

    x [N,H,W,C] ─▶ CONV2D stride s ─▶ RESCALE ─▶ y [N,OH,OW,OC]

    fold:  x ─▶ PAD ─▶ RESHAPE to groups of s columns [N,H,G,s*C] ─▶ CONV2D stride 1, weights by group and phase ─▶ y
    pick:  x ─▶ CONV2D stride t, a divisor of s ─▶ RESCALE ─▶ RESHAPE to groups of s/t columns ─▶ SLICE the first ─▶ y

Column o*s + k*d of the padded input is phase (k*d) % s of group o + (k*d) // s, so a convolution over groups whose
weights stand at these places, the others being the weights' zero point, sums the same products; x is padded with its
zero point, which adds nothing. Every s/t-th column of stride t is a column of stride s. Rows alike, their phases moved
to the channels by TRANSPOSE. INT48 must not be moved, so a RESCALE stands in front of what is picked.

Ethos-U55 and U65 take strides above three of CONV2D without padding and dilation only, of DEPTHWISE_CONV2D not at all;
and those of CONV2D become about a cycle for every product, on U85 too. The form is the cheapest by an estimate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rewrites._accumulator import is_small_ethos_u
from rewrites._long_strides import (
    LONGEST,
    Axes,
    Axis,
    Ways,
    estimate,
    fold_input,
    fold_weight,
    pick,
    products,
    ways_of,
)
from rewrites._when import ForEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.types import BITS

CONV = Capture(ops.Conv2d, ops.DepthwiseConv2d)

MARGIN, MARGIN_U85 = 8, 16
"""What Vela takes is rewritten where the estimate is so many times below a cycle for every product.

Of 70 random convolutions without padding and dilation none became slower with these; the estimate is coarser for U85.
"""

MOST_CHANNELS = 1 << 16
"""Channels that the targets take."""


@dataclass(frozen=True)
class Plan:
    """Rows and columns, what becomes of each, and the RESCALEs to stand in front of what is picked."""

    axes: Axes
    ways: Ways
    readers: tuple[AnyOp, ...]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An integer convolution with a long stride that the target refuses, or that becomes much cheaper."""
    conv = match[CONV]
    x = conv.inputs[0]
    if conv.output.dtype not in (DType.INT32, DType.INT48) or not conv.output.is_used:
        return None
    if not context.options.acts(context.target):
        return None
    if min(x.shape) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    axes = _axes(conv)
    if not any(axis.is_long for axis in axes):
        return None
    loose = [tensor for tensor in (conv.inputs[1], *conv.inputs[3:]) if not tensor.is_constant]
    other = [r for r in conv.output.users if not isinstance(r.attrs, ops.Rescale) or r.inputs[0] is not conv.output]
    foldable = isinstance(conv.attrs, ops.Conv2d) and not loose
    costs = {
        ways: _cost(conv, axes, ways)
        for ways in ways_of(axes, foldable=foldable, pickable=not other)
        if _channels(conv, axes, ways) <= MOST_CHANNELS
    }
    if not costs:
        reader = f'"{conv.output.name}" is also read by {describe(other[0])}, not to be rescaled'
        return Refusal(f"{reader}, so nothing can be picked behind it; and {_why_not_folded(conv, loose)}")
    best = min(costs, key=lambda ways: costs[ways])
    if context.options.when == "target" and not _is_wanted(conv, axes, costs[best], context.target):
        return None
    return Plan(axes, best, conv.output.users if "pick" in best else ())


def _attrs(conv: AnyOp) -> ops.Conv2d | ops.DepthwiseConv2d:
    assert isinstance(conv.attrs, ops.Conv2d | ops.DepthwiseConv2d)
    return conv.attrs


def _axes(conv: AnyOp) -> Axes:
    attrs, shape, result = _attrs(conv), conv.inputs[0].shape, conv.output.shape
    first = 0 if isinstance(attrs, ops.DepthwiseConv2d) else 1
    taps = conv.inputs[1].shape[first : first + 2]
    rows, columns = (
        Axis(
            size=shape[1 + i],
            taps=taps[i],
            stride=attrs.stride[i],
            dilation=attrs.dilation[i],
            pad=(attrs.pad[2 * i], attrs.pad[2 * i + 1]),
            out=result[1 + i],
        )
        for i in (0, 1)
    )
    return rows, columns


def _channels(conv: AnyOp, axes: Axes, ways: Ways) -> int:
    phases = math.prod(axis.phases for axis, way in zip(axes, ways, strict=True) if way == "fold")
    return conv.inputs[0].shape[3] * phases


def _why_not_folded(conv: AnyOp, loose: Sequence[Tensor]) -> str:
    if isinstance(conv.attrs, ops.DepthwiseConv2d):
        return "it adds up no channels, so none can be folded"
    return f'"{loose[0].name}" is no constant to fold' if loose else f"folded it has more than {MOST_CHANNELS} channels"


def _cost(conv: AnyOp, axes: Axes, ways: Ways) -> int:
    """The estimate. A DEPTHWISE_CONV2D has one way only."""
    if isinstance(conv.attrs, ops.DepthwiseConv2d):
        return 0
    shape, channels = conv.inputs[0].shape, (conv.inputs[0].shape[3], conv.output.shape[3])
    return estimate(shape[0], axes, ways, channels, BITS[conv.inputs[0].dtype] // 8)


def _is_wanted(conv: AnyOp, axes: Axes, cost: int, target: str) -> bool:
    strides = [axis.stride if axis.out > 1 else 1 for axis in axes]
    dilations = [axis.dilation if axis.taps > 1 else 1 for axis in axes]
    if max(dilations) > 2:  # Vela takes the dilation apart first, and the stride with it
        factors = [math.gcd(*pair) for pair in zip(strides, dilations, strict=True)]
        if max(stride // factor for stride, factor in zip(strides, factors, strict=True)) <= LONGEST:
            return False
    padded = any(_attrs(conv).pad) and max(axis.taps for axis in axes) > 1
    channels = (conv.inputs[0].shape[3], conv.output.shape[3])
    if isinstance(conv.attrs, ops.DepthwiseConv2d):
        spread = channels[0] == 1 and channels[1] > 1 and max(dilations) == 1 and not any(_attrs(conv).pad)
        return is_small_ethos_u(target) and not spread
    if max(dilations) > 1 or (padded and is_small_ethos_u(target)):
        return is_small_ethos_u(target)
    margin = MARGIN if is_small_ethos_u(target) else MARGIN_U85
    return margin * cost < products(conv.inputs[0].shape[0], axes, channels)


def replacement(match: Match, plan: Plan) -> Replacement:
    """What is folded in front of the convolution, what is picked behind its readers."""
    conv = match[CONV]
    x, weight, bias, *zero_points = conv.inputs
    builder = Builder(conv.output.name, location=conv.location, origin=RULE.name)
    if "fold" in plan.ways:
        zeros = [int(tensor.values().reshape(-1)[0]) for tensor in zero_points]
        x = fold_input(builder, x, plan.axes, plan.ways, zeros[0])
        folded = fold_weight(weight.values().astype(np.int64), plan.axes, plan.ways, zeros[1])
        weight = builder.const(folded, weight.dtype, "weight")
    rows, columns = (axis.by(way) for axis, way in zip(plan.axes, plan.ways, strict=True))
    attrs = replace(
        _attrs(conv),
        pad=(*rows.pad, *columns.pad),
        stride=(rows.stride, columns.stride),
        dilation=(rows.dilation, columns.dilation),
    )
    shape = (x.shape[0], rows.out, columns.out, conv.output.shape[3])
    accumulator = builder.op(attrs, (x, weight, bias, *zero_points), conv.output.dtype, shape)
    if not plan.readers:
        return Replacement(builder.ops, {conv.output: accumulator})
    values: dict[Tensor, Tensor] = {}
    for reader in plan.readers:
        builder.location = reader.location
        narrow = builder.op(reader.attrs, (accumulator, *reader.inputs[1:]), reader.output.dtype, shape, "rescale")
        values[reader.output] = pick(builder, narrow, plan.axes, plan.ways)
    return Replacement(builder.ops, values, covers=(conv, *plan.readers))


RULE = Rule(
    name="shorten_long_strides",
    pattern=CONV,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Shorten strides above three: fold an axis into the channels, or compute more and pick.",
    options=ForEthosU,
)
