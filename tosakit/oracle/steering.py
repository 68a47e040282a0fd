"""Which end of its interval each input should take to drive one element of a tensor up, or down.

Directions are carried backwards like gradients: a sum hands them on with the signs of its weights, RESCALE with its
scale, a product to the ends of its operands' intervals whose product is the extreme, TABLE towards its extreme entry.
What has no direction (comparisons, bits, GATHER by a computed index) hands on nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.numerics.intervals import Intervals

Direction = npt.NDArray[np.float64]
Pull = Callable[[AnyOp, Direction, Intervals], Mapping[int, Direction]]
"""From the direction of the result to those of the operands, by slot."""


def directions(
    order: tuple[AnyOp, ...], seeds: Mapping[Tensor, Direction], intervals: Intervals
) -> dict[Tensor, Direction]:
    """Directions of all tensors above ``seeds``; ``order`` are the operators above them, in program order."""
    found = dict(seeds)
    for op in reversed(order):
        pull = _PULLS.get(type(op.attrs))
        if pull is None or len(op.outputs) != 1 or op.output not in found:
            continue
        for slot, direction in pull(op, found[op.output], intervals).items():
            tensor = op.inputs[slot]
            if not tensor.is_constant:
                found[tensor] = found.get(tensor, np.zeros(tensor.shape)) + direction.reshape(tensor.shape)
    return found


def pulled(op: AnyOp, element: tuple[int, ...], sign: int, intervals: Intervals) -> dict[Tensor, Direction]:
    """Directions of an operator's operands that drive one element of its result."""
    seed = np.zeros(op.output.shape)
    seed[element] = sign
    return directions((op,), {op.output: seed}, intervals)


def _fold(direction: Direction, shape: tuple[int, ...]) -> Direction:
    """The sum over the axes along which an operand was broadcast."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and direction.shape[axis] != 1)
    return direction.sum(axis=axes, keepdims=True) if axes else direction


def _ends(intervals: Intervals, tensor: Tensor) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    found = intervals.of(tensor)
    shape = tensor.shape or (1,)
    low, high = (np.broadcast_to(np.asarray(bound, np.float64), shape) for bound in (found.low, found.high))
    return low, high


def _same(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    return {0: direction}


def _opposite(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    return {0: -direction}


def _add(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    second = -direction if isinstance(op.attrs, ops.Sub) else direction
    return {0: _fold(direction, op.inputs[0].shape), 1: _fold(second, op.inputs[1].shape)}


def _mul(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    (a_low, a_high), (b_low, b_high) = (_ends(intervals, tensor) for tensor in op.inputs[:2])
    corners = [(a_low, b_low), (a_low, b_high), (a_high, b_low), (a_high, b_high)]
    products = np.stack([np.broadcast_to(a * b, direction.shape) for a, b in corners])
    best = np.where(direction >= 0, products.argmax(axis=0), products.argmin(axis=0))
    size = np.abs(direction)
    first, second = np.where(best >= 2, size, -size), np.where(best % 2 == 1, size, -size)
    return {0: _fold(first, op.inputs[0].shape), 1: _fold(second, op.inputs[1].shape)}


def _rescale(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    multiplier, shift = op.inputs[1], op.inputs[2]
    if not multiplier.is_constant or not shift.is_constant:
        return {0: direction}
    return {0: direction * np.ldexp(multiplier.values().astype(np.float64), -shift.values().astype(np.int64))}


def _abs(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    low, high = _ends(intervals, op.inputs[0])
    return {0: np.where(high >= -low, direction, -direction)}


def _table(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    x, table = op.inputs
    if not table.is_constant:
        return {}
    found, entries = intervals.of(x), table.values().reshape(-1)
    bits = 7 if entries.size == 513 else 0
    half = 256 if bits else 128
    first, last = (found.lowest >> bits) + half, (found.highest >> bits) + half
    reach = entries[first : last + 1].astype(np.int64)
    middle = (len(reach) - 1) / 2
    up, down = (1.0 if place >= middle else -1.0 for place in (int(reach.argmax()), int(reach.argmin())))
    return {0: np.where(direction >= 0, up, -down) * direction}


# -------------------------------------------------------------------------------------------------- sums
def _weights(op: AnyOp) -> npt.NDArray[np.float64] | None:
    weight, zero = op.inputs[1], op.inputs[4]
    if not weight.is_constant or not zero.is_constant:
        return None
    return weight.values().astype(np.float64) - float(zero.values().reshape(-1)[0])


def _convolution(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    attrs, weights = op.attrs, _weights(op)
    if weights is None or not isinstance(attrs, ops.Conv2d | ops.DepthwiseConv2d):
        return {}
    depthwise = isinstance(attrs, ops.DepthwiseConv2d)
    kernel = weights.shape[:2] if depthwise else weights.shape[1:3]
    batch, height, width, channels = op.inputs[0].shape
    (top, bottom, left, right), (sy, sx), (dy, dx) = attrs.pad, attrs.stride, attrs.dilation
    padded = np.zeros((batch, height + top + bottom, width + left + right, channels))
    rows, columns = direction.shape[1:3]
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            if depthwise:
                wide = direction.reshape(*direction.shape[:3], channels, -1)
                part = (wide * weights[y, x]).sum(axis=4)
            else:
                part = direction @ weights[:, y, x, :]
            place = slice(y * dy, y * dy + rows * sy, sy), slice(x * dx, x * dx + columns * sx, sx)
            padded[:, place[0], place[1]] += part
    bias = op.inputs[2]
    summed = direction.sum(axis=(0, 1, 2))
    return {
        0: padded[:, top : top + height, left : left + width],
        2: summed if bias.shape == summed.shape else summed.sum(keepdims=True),
    }


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


def _reduce_sum(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    return {0: np.broadcast_to(direction, op.inputs[0].shape)}


def _pool(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    attrs = op.attrs
    assert isinstance(attrs, ops.AvgPool2d | ops.MaxPool2d)
    batch, height, width, channels = op.inputs[0].shape
    (top, bottom, left, right), (sy, sx) = attrs.pad, attrs.stride
    padded = np.zeros((batch, height + top + bottom, width + left + right, channels))
    rows, columns = direction.shape[1:3]
    for y in range(attrs.kernel[0]):
        for x in range(attrs.kernel[1]):
            padded[:, y : y + rows * sy : sy, x : x + columns * sx : sx] += direction
    return {0: padded[:, top : top + height, left : left + width]}


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


_PULLS: Mapping[type[Attributes], Pull] = {
    **dict.fromkeys((ops.Identity, ops.Reshape, ops.Clamp, ops.Cast), _same),
    ops.Negate: _opposite,
    ops.Add: _add,
    ops.Sub: _add,
    ops.Maximum: _add,
    ops.Minimum: _add,
    ops.Mul: _mul,
    ops.Rescale: _rescale,
    ops.Abs: _abs,
    ops.Table: _table,
    ops.Conv2d: _convolution,
    ops.DepthwiseConv2d: _convolution,
    ops.MatMul: _matmul,
    ops.ReduceSum: _reduce_sum,
    ops.AvgPool2d: _pool,
    ops.MaxPool2d: _pool,
    ops.Transpose: _transpose,
    ops.Concat: _concat,
    ops.Slice: _slice,
    ops.Pad: _pad,
    ops.Reverse: _reverse,
}
