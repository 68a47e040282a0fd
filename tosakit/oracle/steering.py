"""Which end of its interval each input should take to drive one element of a tensor up, or down.

Directions are carried backwards like gradients: a sum hands them on with the signs of its weights, RESCALE with its
scale, a product to the ends of its operands' intervals whose product is the extreme, TABLE towards its extreme entry, a
comparison to either side. What has no direction (EQUAL, bits, GATHER by a computed index) hands on nothing.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.numerics.intervals import Intervals
from tosakit.oracle._pulls import PULLS, Direction, Pull


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
    second = -direction if isinstance(op.attrs, ops.Sub | ops.Greater | ops.GreaterEqual) else direction
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


# -------------------------------------------------------------------------------------------------- BOOL
def _both(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    return {slot: _fold(direction, tensor.shape) for slot, tensor in enumerate(op.inputs)}


def _chosen(op: AnyOp, direction: Direction, intervals: Intervals) -> Mapping[int, Direction]:
    return {slot: _fold(direction, op.inputs[slot].shape) for slot in (1, 2)}


_PULLS: Mapping[type[Attributes], Pull] = {
    **PULLS,
    **dict.fromkeys((ops.Identity, ops.Reshape, ops.Clamp, ops.Cast, ops.ArithmeticRightShift), _same),
    **dict.fromkeys((ops.Negate, ops.LogicalNot), _opposite),
    **dict.fromkeys((ops.Add, ops.Sub, ops.Maximum, ops.Minimum, ops.Greater, ops.GreaterEqual), _add),
    **dict.fromkeys((ops.LogicalAnd, ops.LogicalOr), _both),
    ops.Select: _chosen,
    ops.Mul: _mul,
    ops.Rescale: _rescale,
    ops.Abs: _abs,
    ops.Table: _table,
}
