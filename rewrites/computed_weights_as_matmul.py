"""Multiply by computed weights as MATMUL, or element by element, and add a computed bias behind a convolution.

    x, w computed ─▶ CONV2D ─▶ y            x ─▶ PAD ─▶ SLICE of every tap ─▶ CONCAT [1, N*OH*OW, KH*KW*C] ─┐
                                            w ─▶ RESHAPE, TRANSPOSE [1, KH*KW*C, OC] ─▶ MATMUL ─▶ ADD bias ─┴─▶ y

    x, w computed ─▶ DEPTHWISE_CONV2D ─▶ y  each tap of x less the zero point ─▶ MUL by that of w ─▶ ADD of all ─▶ y

    bias computed ─▶ CONV2D ─▶ y            CONV2D without bias ─▶ ADD bias ─▶ y

Padding is the zero point of x, which adds nothing, so every sum has the same terms, and TOSA adds the bias last. Sums
and bias are proved to fit INT32 together. Every value is identical.

Vela takes weights and biases of convolutions for Ethos-U55 and U65 as constants only; MATMUL reads what is computed.
"""

import math
from dataclasses import dataclass
from functools import reduce

from rewrites._int32 import UNIT, mul
from rewrites._when import ForSmallEthosU
from tosakit.backend.targets import is_fixed
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.numerics.intervals import Interval

Conv = ops.Conv2d | ops.DepthwiseConv2d
CONV: Capture[Conv] = Capture(ops.Conv2d, ops.DepthwiseConv2d, operands=(None,) * 5)


@dataclass(frozen=True)
class Plan:
    """Both zero points, and whether the weights are computed or the bias alone."""

    input_zp: int
    weight_zp: int
    by_weights: bool


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An INT8 convolution with weights or bias that are no constants."""
    conv = match[CONV]
    x, weight, bias, *zero_points = conv.inputs
    loose = [tensor for tensor in (weight, bias) if not is_fixed(tensor)]
    if not context.options.acts(context.target) or not loose or not conv.output.is_used:
        return None
    if x.dtype not in (DType.INT8, DType.INT16):
        return None
    for tensor in (x, weight):
        if min(tensor.shape) < 1:
            return Refusal(f'"{tensor.name}" has the shape {list(tensor.shape)}, which is not static')
    if (x.dtype, weight.dtype) != (DType.INT8, DType.INT8):
        return Refusal(f'"{loose[0].name}" is no constant, and INT48 sums of INT16 values have no form without it')
    for tensor in zero_points:
        if not tensor.is_constant:
            return Refusal(f'the zero point "{tensor.name}" is no constant')
    input_zp, weight_zp = (int(tensor.values().reshape(-1)[0]) for tensor in zero_points)
    terms = math.prod(weight.shape[:2] if isinstance(conv.attrs, ops.DepthwiseConv2d) else weight.shape[1:])
    sums = terms * _largest(context.intervals.of(x), input_zp) * _largest(context.intervals.of(weight), weight_zp)
    added = _largest(context.intervals.of(bias), 0)
    if sums + added >= 1 << 31:
        return Refusal(f"{terms} products reach {sums} and the bias {added}, which may pass INT32 together")
    return Plan(input_zp, weight_zp, weight in loose)


def _largest(interval: Interval, zero_point: int) -> int:
    """The largest magnitude less the zero point."""
    return max(abs(interval.lowest - zero_point), abs(interval.highest - zero_point))


def replacement(match: Match, plan: Plan) -> Replacement:
    """The sums without the bias, and the bias."""
    conv = match[CONV]
    builder = Builder(conv.output.name, location=conv.location, origin=RULE.name)
    x, weight, bias, *zero_points = conv.inputs
    if not plan.by_weights:
        none = builder.number(0, DType.INT32, name="no_bias")
        sums = builder.op(conv.attrs, (x, weight, none, *zero_points), DType.INT32, conv.output.shape, "sums")
    elif isinstance(conv.attrs, ops.DepthwiseConv2d):
        sums = _depthwise(builder, conv, plan)
    else:
        sums = _matmul(builder, conv, plan)
    return Replacement(builder.ops, {conv.output: builder.add(sums, builder.reshape(bias, (1, 1, 1, bias.shape[0])))})


def _matmul(builder: Builder, conv: AnyOp, plan: Plan) -> Tensor:
    weight, zero_points, shape = conv.inputs[1], conv.inputs[3:], conv.output.shape
    taps = _taps(builder, conv, weight.shape[1:3], plan.input_zp)
    joined = builder.concat(taps, 3)
    rows, terms = math.prod(shape[:3]), joined.shape[3]
    columns = builder.transpose(builder.reshape(weight, (1, weight.shape[0], terms)), (0, 2, 1))
    operands = (builder.reshape(joined, (1, rows, terms)), columns, *zero_points)
    return builder.reshape(builder.op(ops.MatMul(), operands, DType.INT32, (1, rows, shape[3])), shape)


def _depthwise(builder: Builder, conv: AnyOp, plan: Plan) -> Tensor:
    weight, shape = conv.inputs[1], conv.output.shape
    height, width, channels, multiplier = weight.shape
    numbers = builder.rescale(weight, DType.INT32, *UNIT, scale32=True, input_zp=plan.weight_zp, name="numbers")
    products = []
    for place, tap in enumerate(_taps(builder, conv, (height, width), plan.input_zp)):
        values = builder.rescale(tap, DType.INT32, *UNIT, scale32=True, input_zp=plan.input_zp, name="values")
        start = (*divmod(place, width), 0, 0)
        factor = builder.slice(numbers, start, (1, 1, channels, multiplier))
        if multiplier == 1:
            products.append(mul(builder, values, builder.reshape(factor, (1, 1, 1, channels))))
        else:
            values = builder.reshape(values, (*shape[:3], channels, 1))
            products.append(mul(builder, values, builder.reshape(factor, (1, 1, 1, channels, multiplier))))
    return builder.reshape(reduce(builder.add, products), shape)


def _taps(builder: Builder, conv: AnyOp, kernel: tuple[int, ...], zero: int) -> list[Tensor]:
    """What each tap of the kernel reads for every place: [N,OH,OW,C], row by row."""
    attrs, sizes = conv.attrs, conv.output.shape[1:3]
    assert isinstance(attrs, Conv)
    x, padding = conv.inputs[0], [(0, 0)]
    for axis in (0, 1):
        before, size = attrs.pad[2 * axis], conv.inputs[0].shape[1 + axis]
        wanted = (kernel[axis] - 1) * attrs.dilation[axis] + sizes[axis] * attrs.stride[axis]
        padding.append((before, max(wanted - before - size, 0)))
    if any(map(any, padding)):
        x = builder.pad(x, [*padding, (0, 0)], zero)
    taps = []
    for row in range(kernel[0]):
        rows = _every(builder, x, 1, row * attrs.dilation[0], sizes[0], attrs.stride[0])
        for column in range(kernel[1]):
            taps.append(_every(builder, rows, 2, column * attrs.dilation[1], sizes[1], attrs.stride[1]))
    return taps


def _every(builder: Builder, x: Tensor, axis: int, first: int, count: int, step: int) -> Tensor:
    """``count`` elements along an axis, ``step`` apart, from ``first`` on; x has ``step`` - 1 more behind the last."""
    start, size = [0] * 4, list(x.shape)
    start[axis], size[axis] = first, count * step
    if size[axis] != x.shape[axis]:
        x = builder.slice(x, start, size)
    if step == 1:
        return x
    groups = builder.reshape(x, (*size[:axis], count, step, *size[axis + 1 :]))
    of_groups = (*size[:axis], count, 1, *size[axis + 1 :])
    return builder.reshape(builder.slice(groups, [0] * 5, of_groups), (*size[:axis], count, *size[axis + 1 :]))


RULE = Rule(
    name="computed_weights_as_matmul",
    pattern=CONV,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Multiply by computed weights as MATMUL, or element by element, and add a computed bias behind a "
    "convolution.",
    options=ForSmallEthosU,
)
