"""Compute a CONV3D as a CONV2D: depth taps side by side on the channels, output depths on the batch.

    x [N,D,H,W,C] ─▶ CONV3D [OC,KD,KH,KW,C] ─▶ RESCALE ─▶ y [N,OD,OH,OW,OC]

    x ─▶ PAD depth ─▶ per tap: the depths it reads ─▶ CONCAT [N,OD,H,W,KD*C] ─▶ RESHAPE [N*OD,H,W,KD*C]
      ─▶ CONV2D [OC,KH,KW,KD*C] ─▶ RESCALE ─▶ RESHAPE ─▶ y

acc[n,od,oh,ow,oc] sums x[n, od*sd + kd*dd, ...] * w[oc,kd,...] over kd, kh, kw and c: with kd and c joined to one
channel index and n and od to one batch index that is a 2D convolution, term by term. Depth is padded with the input's
zero point, which adds nothing, as CONV3D pads. Every value is identical. INT48 must not be moved, so the RESCALE stays
in front.

Ethos-U55 and U65 take no CONV3D whose kernel is deeper than one, of INT16 none with a stride or padding in depth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Op, Tensor

CONV = Capture(ops.Conv3d)


@dataclass(frozen=True)
class Plan:
    """The RESCALEs that read the accumulator; none where it is wanted itself, in INT32."""

    readers: tuple[AnyOp, ...]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An integer CONV3D of constant weights whose accumulator only RESCALEs read, or that is INT32."""
    conv = match[CONV]
    x, weight, _, input_zp, _ = conv.inputs
    wanted = context.options.acts(context.target)
    if conv.output.dtype not in (DType.INT32, DType.INT48) or not wanted or not conv.output.is_used:
        return None
    if context.options.when == "target" and _is_taken(conv):
        return None
    for tensor in (weight, input_zp):
        if not tensor.is_constant:
            return Refusal(f'operand "{tensor.name}" is no constant, so it cannot be rearranged')
    if min(x.shape) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    users = conv.output.users
    other = [user for user in users if not isinstance(user.attrs, ops.Rescale) or user.inputs[0] is not conv.output]
    if other and conv.output.dtype == DType.INT48:
        reader = describe(other[0])
        return Refusal(f'the INT48 accumulator "{conv.output.name}" is also read by {reader}, not to be rescaled')
    return Plan(() if other else users)


def _is_taken(conv: Op[ops.Conv3d]) -> bool:
    attrs = conv.attrs
    plain = conv.inputs[0].dtype == DType.INT8 or (attrs.stride[0] == 1 and not any(attrs.pad[:2]))
    return conv.inputs[1].shape[1] == 1 and plain


def replacement(match: Match, plan: Plan) -> Replacement:
    """The rearranged input, one CONV2D, and per reader a RESCALE and a RESHAPE."""
    conv = match[CONV]
    _, weight, bias, input_zp, weight_zp = conv.inputs
    batch, depth, height, width, channels = conv.output.shape
    builder = Builder(conv.output.name, location=conv.location, origin=RULE.name)
    flat = _taps(builder, conv)
    by_tap = np.ascontiguousarray(weight.values().transpose(0, 2, 3, 1, 4))
    kernel = builder.const(by_tap.reshape(*by_tap.shape[:3], -1), weight.dtype, "weight")
    attrs = ops.Conv2d(
        pad=conv.attrs.pad[2:],
        stride=conv.attrs.stride[1:],
        dilation=conv.attrs.dilation[1:],
        local_bound=conv.attrs.local_bound,
        acc_type=conv.attrs.acc_type,
    )
    operands = (flat, kernel, bias, input_zp, weight_zp)
    accumulator = builder.op(attrs, operands, conv.output.dtype, (batch * depth, height, width, channels), "conv2d")
    if not plan.readers:
        return Replacement(builder.ops, {conv.output: builder.reshape(accumulator, conv.output.shape)})
    values: dict[Tensor, Tensor] = {}
    for reader in plan.readers:
        builder.location = reader.location
        old = reader.output
        narrow = builder.op(reader.attrs, (accumulator, *reader.inputs[1:]), old.dtype, accumulator.shape, "rescale")
        values[old] = builder.reshape(narrow, old.shape)
    return Replacement(builder.ops, values, covers=(conv, *plan.readers))


def _taps(builder: Builder, conv: Op[ops.Conv3d]) -> Tensor:
    """The input as [N*OD,H,W,KD*C]: for each output depth the depths its taps read, in the order of the taps."""
    x, weight, _, input_zp, _ = conv.inputs
    taps, stride, dilation = weight.shape[1], conv.attrs.stride[0], conv.attrs.dilation[0]
    before = conv.attrs.pad[0]
    out_depth = conv.output.shape[1]
    # Whole groups of ``stride`` depths behind the last tap, so that every tap's depths are one slice of the groups.
    groups = out_depth + ((taps - 1) * dilation) // stride
    after = max(groups * stride - before - x.shape[1], 0)
    if before or after:
        zero = int(input_zp.values().reshape(-1)[0])
        x = builder.pad(x, [(0, 0), (before, after), (0, 0), (0, 0), (0, 0)], zero)
    if stride > 1:
        x = _groups(builder, x, groups, stride)
    pieces = [_depths(builder, x, tap * dilation, stride, out_depth) for tap in range(taps)]
    joined = builder.concat(pieces, 4)
    batch, _, height, width, channels = joined.shape
    return builder.reshape(joined, (batch * out_depth, height, width, channels))


def _groups(builder: Builder, x: Tensor, groups: int, stride: int) -> Tensor:
    """[N,D,H,W,C] as [N,groups,stride*H,W,C]; depth d is rows (d % stride)*H ... of group d // stride."""
    batch, depth, height, width, channels = x.shape
    if depth > groups * stride:
        x = builder.slice(x, (0,) * 5, (batch, groups * stride, height, width, channels))
    return builder.reshape(x, (batch, groups, stride * height, width, channels))


def _depths(builder: Builder, x: Tensor, first: int, stride: int, count: int) -> Tensor:
    """Depths ``first``, ``first + stride``, ... of the grouped input."""
    batch, _, rows, width, channels = x.shape
    height = rows // stride
    start: Sequence[int] = (0, first // stride, (first % stride) * height, 0, 0)
    size = (batch, count, height, width, channels)
    return x if size == x.shape else builder.slice(x, start, size)


RULE = Rule(
    name="conv3d_as_conv2d",
    pattern=CONV,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Compute a CONV3D as a CONV2D: depth taps on the channels, output depths on the batch.",
    options=ForSmallEthosU,
)
