"""Directions through operators on windows and along axes; see :mod:`tosakit.oracle.steering`."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from tosakit.ir import ops
from tosakit.ir.enums import ResizeMode
from tosakit.ir.graph import AnyOp
from tosakit.ir.operator import Attributes
from tosakit.numerics.intervals import Intervals

Direction = npt.NDArray[np.float64]
Pull = Callable[[AnyOp, Direction, Intervals], Mapping[int, Direction]]
"""From the direction of the result to those of the operands, by slot."""


# -------------------------------------------------------------------------------------------------- sums
def _weights(op: AnyOp) -> Direction | None:
    weight, zero = op.inputs[1], op.inputs[4]
    if not weight.is_constant or not zero.is_constant:
        return None
    values: Direction = weight.values().astype(np.float64) - float(zero.values().reshape(-1)[0])
    return values


def _bias(op: AnyOp, direction: Direction) -> Direction:
    summed: Direction = direction.sum(axis=tuple(range(direction.ndim - 1)))
    return summed if op.inputs[2].shape == summed.shape else np.full(1, summed.sum())


def _convolution(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    """CONV2D, CONV3D and DEPTHWISE_CONV2D: each tap hands on its share to where it was read, padding apart."""
    attrs, weights = op.attrs, _weights(op)
    assert isinstance(attrs, ops.Conv2d | ops.Conv3d | ops.DepthwiseConv2d)
    if weights is None:
        return {}
    depthwise = isinstance(attrs, ops.DepthwiseConv2d)
    batch, *sizes, channels = op.inputs[0].shape
    padding = list(zip(attrs.pad[::2], attrs.pad[1::2], strict=True))
    padded = np.zeros((batch, *(size + sum(both) for size, both in zip(sizes, padding, strict=True)), channels))
    for tap in np.ndindex(weights.shape[:2] if depthwise else weights.shape[1:-1]):
        steps = zip(tap, attrs.dilation, direction.shape[1:-1], attrs.stride, strict=True)
        place = tuple(slice(k * dilation, k * dilation + size * step, step) for k, dilation, size, step in steps)
        if depthwise:
            part = (direction.reshape(*direction.shape[:3], channels, -1) * weights[tap]).sum(axis=4)
        else:
            part = direction @ np.moveaxis(weights, 0, -2)[tap]
        padded[(slice(None), *place)] += part
    inside = tuple(slice(before, before + size) for size, (before, _) in zip(sizes, padding, strict=True))
    return {0: padded[(slice(None), *inside)], 2: _bias(op, direction)}


def _transpose_conv2d(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    """Each input adds its taps to the outputs from its place times the stride on; out_pad moves these."""
    attrs, weights = op.attrs, _weights(op)
    assert isinstance(attrs, ops.TransposeConv2d)
    if weights is None:
        return {}
    (_, height, width, _), kernel = op.inputs[0].shape, weights.shape[1:3]
    spans = [(size - 1) * step + k for size, step, k in zip((height, width), attrs.stride, kernel, strict=True)]
    reached = np.zeros((direction.shape[0], *spans, direction.shape[3]))
    ranges = zip(spans, direction.shape[1:3], attrs.out_pad[::2], strict=True)
    places = [(max(0, -before), min(span, size - before), before) for span, size, before in ranges]
    (y, y_end, top), (x, x_end, left) = places
    reached[:, y:y_end, x:x_end] = direction[:, y + top : y_end + top, x + left : x_end + left]
    result = np.zeros(op.inputs[0].shape)
    (step_y, step_x) = attrs.stride
    for ky, kx in product(*map(range, kernel)):
        taken = reached[:, ky : ky + (height - 1) * step_y + 1 : step_y, kx : kx + (width - 1) * step_x + 1 : step_x]
        result += taken @ weights[:, ky, kx]
    return {0: result, 2: _bias(op, direction)}


def _matmul(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    """With both operands computed, every product goes to the corner of the intervals that is its extreme."""
    a, b, a_zero, b_zero = op.inputs
    if not a_zero.is_constant or not b_zero.is_constant:
        return {}
    if b.is_constant:
        other = b.values().astype(np.float64) - float(b_zero.values().reshape(-1)[0])
        return {0: direction @ other.transpose(0, 2, 1)}
    if a.is_constant:
        other = a.values().astype(np.float64) - float(a_zero.values().reshape(-1)[0])
        return {1: other.transpose(0, 2, 1) @ direction}
    zeros = [float(zero.values().reshape(-1)[0]) for zero in (a_zero, b_zero)]
    ends = [
        (intervals.of(t).lowest - zero, intervals.of(t).highest - zero) for t, zero in zip((a, b), zeros, strict=True)
    ]
    products = [x * y for x in ends[0] for y in ends[1]]
    best = np.where(direction >= 0, int(np.argmax(products)), int(np.argmin(products)))
    size = np.abs(direction)
    first, second = np.where(best >= 2, size, -size), np.where(best % 2 == 1, size, -size)
    return {
        0: np.broadcast_to(first.sum(axis=2, keepdims=True), a.shape),
        1: np.broadcast_to(second.sum(axis=1, keepdims=True), b.shape),
    }


def _spread(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    """A reduction: every value along the axis."""
    return {0: np.broadcast_to(direction, op.inputs[0].shape)}


def _pool(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    attrs = op.attrs
    assert isinstance(attrs, ops.AvgPool2d | ops.MaxPool2d)
    batch, height, width, channels = op.inputs[0].shape
    (top, bottom, left, right), (sy, sx) = attrs.pad, attrs.stride
    padded = np.zeros((batch, height + top + bottom, width + left + right, channels))
    rows, columns = direction.shape[1:3]
    for y, x in product(*map(range, attrs.kernel)):
        padded[:, y : y + rows * sy : sy, x : x + columns * sx : sx] += direction
    return {0: padded[:, top : top + height, left : left + width]}


def _resize(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    """Each output hands on its weights along both axes to the two inputs it lies between, or to the nearest."""
    attrs = op.attrs
    assert isinstance(attrs, ops.Resize)
    if not all(tensor.is_constant for tensor in op.inputs[1:3]):
        return {}
    scale, offset = (tensor.values().reshape(-1).tolist() for tensor in op.inputs[1:3])
    nearest = attrs.mode == ResizeMode.NEAREST
    sizes = zip(direction.shape[1:3], op.inputs[0].shape[1:3], (scale[:2], scale[2:]), offset, strict=True)
    rows, columns = (_weights_along(*axis, nearest=nearest) for axis in sizes)
    return {0: np.einsum("nhwc,hi,wj->nijc", direction, rows, columns)}


def _weights_along(outputs: int, inputs: int, scale: Sequence[int], offset: int, *, nearest: bool) -> Direction:
    """What each output of one axis takes of each input, [outputs, inputs]."""
    numerator, denominator = scale
    weights = np.zeros((outputs, inputs))
    for place in range(outputs):
        first, rest = divmod(place * denominator + offset, numerator)
        share = (numerator * (2 * rest >= numerator) if nearest else rest) / numerator
        for index, part in ((first, 1 - share), (first + 1, share)):
            weights[place, min(max(index, 0), inputs - 1)] += part
    return weights


# -------------------------------------------------------------------------------------------------- movement
def _transpose(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    assert isinstance(op.attrs, ops.Transpose)
    return {0: direction.transpose(np.argsort(op.attrs.perms))}


def _concat(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    assert isinstance(op.attrs, ops.Concat)
    axis = op.attrs.axis
    cuts = np.cumsum([tensor.shape[axis] for tensor in op.inputs])[:-1]
    return dict(enumerate(np.split(direction, cuts, axis)))


def _slice(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    whole = np.zeros(op.inputs[0].shape)
    start = op.inputs[1].values().reshape(-1).tolist()
    whole[tuple(slice(first, first + size) for first, size in zip(start, direction.shape, strict=True))] = direction
    return {0: whole}


def _pad(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    before = op.inputs[1].values().reshape(-1, 2)[:, 0].tolist()
    places = tuple(slice(first, first + size) for first, size in zip(before, op.inputs[0].shape, strict=True))
    return {0: direction[places]}


def _reverse(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    assert isinstance(op.attrs, ops.Reverse)
    return {0: np.flip(direction, op.attrs.axis)}


def _tile(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    shape = op.inputs[0].shape
    split = [part for whole, size in zip(direction.shape, shape, strict=True) for part in (whole // size, size)]
    return {0: direction.reshape(split).sum(axis=tuple(range(0, 2 * len(shape), 2)))}


def _gather(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    """Rows by constant indices."""
    if not op.inputs[1].is_constant:
        return {}
    result = np.zeros(op.inputs[0].shape)
    indices = op.inputs[1].values()
    np.add.at(result, (np.arange(len(indices))[:, None], indices), direction)
    return {0: result}


def _scatter(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    """Rows that constant indices name come from one operand, all others from the other."""
    if not op.inputs[1].is_constant:
        return {}
    indices = op.inputs[1].values()
    place = np.arange(len(indices))[:, None], indices
    kept = direction.copy()
    kept[place] = 0
    return {0: kept, 2: direction[place]}


PULLS: Mapping[type[Attributes], Pull] = {
    **dict.fromkeys((ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d), _convolution),
    ops.TransposeConv2d: _transpose_conv2d,
    ops.MatMul: _matmul,
    **dict.fromkeys((ops.ReduceSum, ops.ReduceMax, ops.ReduceMin, ops.ReduceAll, ops.ReduceAny), _spread),
    ops.AvgPool2d: _pool,
    ops.MaxPool2d: _pool,
    ops.Resize: _resize,
    ops.Transpose: _transpose,
    ops.Concat: _concat,
    ops.Slice: _slice,
    ops.Pad: _pad,
    ops.Reverse: _reverse,
    ops.Tile: _tile,
    ops.Gather: _gather,
    ops.Scatter: _scatter,
}
