"""Compute a TRANSPOSE_CONV2D as a CONV2D with one group of channels per phase (sub-pixel convolution).

    x ─▶ TRANSPOSE_CONV2D[KH,KW] stride (sy,sx) ─▶ RESCALE ─▶ y

    x ─▶ CONV2D to sy*sx*OC channels ─▶ RESCALE ─▶ RESHAPE, TRANSPOSE, RESHAPE (depth to space) ─▶ SLICE ─▶ y

A kernel row k = r + sy*t adds input row i to row p = sy*i + k = sy*(i + t) + r. So row p = sy*q + r is the sum
over t of x[q - t] * w[r + sy*t]: a convolution with T = ceil(KH/sy) taps in reverse order, where taps beyond the kernel
are the weight's zero point and rows outside x add nothing in both forms. out_pad only shifts and cuts the rows p, and
rows nothing adds to hold the bias in both forms. Every sum has the same terms, so every value is identical. INT48 must
not be moved, so the RESCALE stays in front.

Ethos-U55 and U65 take no int16 TRANSPOSE_CONV2D, and int8 ones of stride [1, 1] and [2, 2] only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rewrites._depth_to_space import depth_to_space
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor

CONV = Capture(ops.TransposeConv2d)
TAKEN_STRIDES = ((1, 1), (2, 2))
"""Strides of int8 that Ethos-U55 and U65 take."""


@dataclass(frozen=True)
class Axis:
    """One spatial axis: its stride and taps, the padding of the CONV2D, and the rows of its result to keep."""

    stride: int
    taps: int
    pad: tuple[int, int]
    start: int
    size: int


@dataclass(frozen=True, eq=False)
class Plan:
    """Both axes, and the RESCALEs that read the accumulator; none where it is wanted itself, in INT32."""

    axes: tuple[Axis, Axis]
    readers: tuple[AnyOp, ...]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An integer accumulator of constant weights and bias that only RESCALEs read, or that is INT32."""
    conv = match[CONV]
    needed = conv.output.dtype == DType.INT48 or tuple(conv.attrs.stride) not in TAKEN_STRIDES
    wanted = context.options.acts(context.target) and (context.options.when == "all" or needed)
    if conv.output.dtype not in (DType.INT32, DType.INT48) or not conv.output.is_used or not wanted:
        return None
    x, *constants = conv.inputs
    for tensor in constants:
        if not tensor.is_constant:
            return Refusal(f'operand "{tensor.name}" is no constant, so it cannot be rearranged by phase')
    if min(x.shape) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    obstacles = [_obstacle(reader, conv.output) for reader in conv.output.users]
    if conv.output.dtype == DType.INT48 and any(obstacles):
        return Refusal(next(filter(None, obstacles)))
    top, bottom, left, right = conv.attrs.out_pad
    _, height, width, _ = x.shape
    _, kernel_height, kernel_width, _ = constants[0].shape
    vertical = _axis(height, kernel_height, conv.attrs.stride[0], top, bottom)
    horizontal = _axis(width, kernel_width, conv.attrs.stride[1], left, right)
    return Plan((vertical, horizontal), () if any(obstacles) else conv.output.users)


def _obstacle(reader: AnyOp, accumulator: Tensor) -> str:
    """Why a reader cannot take the accumulator phase by phase; "" where it can."""
    if not isinstance(reader.attrs, ops.Rescale) or reader.inputs[0] is not accumulator:
        return f'the accumulator "{accumulator.name}" is also read by {describe(reader)}, not to be rescaled'
    loose = reader.attrs.per_channel and not all(t.is_constant for t in reader.inputs[1:3])
    return f"{describe(reader)} has scales per channel that are no constants" if loose else ""


def _axis(size: int, kernel: int, stride: int, pad_before: int, pad_after: int) -> Axis:
    """Rows p = -pad_before ... of the full result are wanted; they lie in the groups q = floor(p / stride)."""
    wanted = (size - 1) * stride + pad_before + pad_after + kernel
    first, last = -pad_before, wanted - pad_before - 1
    taps = -(-kernel // stride)
    pad = (taps - 1 - first // stride, last // stride + 1 - size)
    return Axis(stride, taps, pad, first % stride, wanted)


def replacement(match: Match, plan: Plan) -> Replacement:
    """One CONV2D, then per reader a RESCALE and the way from channels to space."""
    conv = match[CONV]
    x, weight, bias, input_zp, weight_zp = conv.inputs
    vertical, horizontal = plan.axes
    phases = vertical.stride * horizontal.stride
    builder = Builder(conv.output.name, location=conv.location, origin=RULE.name)
    by_phase = _by_phase(weight.values(), (vertical, horizontal), int(weight_zp.values().reshape(-1)[0]))
    biases = bias.values() if bias.shape == (1,) else np.tile(bias.values(), phases)
    operands = (
        x,
        builder.const(by_phase, weight.dtype, "weight"),
        builder.const(biases, bias.dtype, "bias"),
        input_zp,
        weight_zp,
    )
    attrs = ops.Conv2d(
        pad=vertical.pad + horizontal.pad,
        stride=(1, 1),
        dilation=(1, 1),
        local_bound=conv.attrs.local_bound,
        acc_type=conv.attrs.acc_type,
    )
    rows, columns = (size + sum(a.pad) - a.taps + 1 for size, a in zip(x.shape[1:3], plan.axes, strict=True))
    accumulator = builder.op(
        attrs, operands, conv.output.dtype, (x.shape[0], rows, columns, by_phase.shape[0]), "conv2d"
    )
    block = (vertical.stride, horizontal.stride)
    start, size = (vertical.start, horizontal.start), (vertical.size, horizontal.size)
    if not plan.readers:
        return Replacement(builder.ops, {conv.output: depth_to_space(builder, accumulator, block, start, size)})
    values: dict[Tensor, Tensor] = {}
    for reader in plan.readers:
        builder.location = reader.location
        old, scales = reader.output, list(reader.inputs[1:3])
        if isinstance(reader.attrs, ops.Rescale) and reader.attrs.per_channel:
            scales = [builder.const(np.tile(t.values(), phases), t.dtype, "scale") for t in scales]
        narrow = builder.op(
            reader.attrs, (accumulator, *scales, *reader.inputs[3:]), old.dtype, accumulator.shape, "rescale"
        )
        values[old] = depth_to_space(builder, narrow, block, start, size)
    return Replacement(builder.ops, values, covers=(conv, *plan.readers))


def _by_phase(weight: npt.NDArray[Any], axes: tuple[Axis, Axis], zero: int) -> npt.NDArray[Any]:
    """Weights [OC,KH,KW,IC] as [sy*sx*OC,TH,TW,IC], taps reversed and filled up with the zero point."""
    channels, height, width, depth = weight.shape
    (sy, ty), (sx, tx) = ((axis.stride, axis.taps) for axis in axes)
    full = np.full((channels, ty * sy, tx * sx, depth), zero, weight.dtype)
    full[:, :height, :width] = weight
    split = full.reshape(channels, ty, sy, tx, sx, depth)[:, ::-1, :, ::-1]
    return np.ascontiguousarray(split.transpose(2, 4, 0, 1, 3, 5)).reshape(sy * sx * channels, ty, tx, depth)


RULE = Rule(
    name="transpose_conv2d_as_conv2d",
    pattern=CONV,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Compute a TRANSPOSE_CONV2D as a CONV2D with one group of channels per phase.",
    options=ForSmallEthosU,
)
