"""Inputs of which operators take some values only: rows that exist, divisors, amounts of a shift."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.movement import MOVES
from tosakit.ir.program import Program
from tosakit.ir.types import BITS, INTEGER_RANGES
from tosakit.oracle.inputs import InputSpec

_MOVES = tuple(kind for kind in MOVES if kind is not ops.Pad)
"""What gives no value that it was not given."""


@dataclass(frozen=True)
class Demand:
    """Values between ``low`` and ``high``; ``distinct``: no two of a row are alike."""

    low: int
    high: int
    distinct: bool = False


def _row(op: AnyOp) -> Demand | None:
    """An index of the second axis of the first operand."""
    shape = op.inputs[0].shape
    rows = shape[1] if len(shape) > 1 else 0
    return Demand(0, rows - 1, isinstance(op.attrs, ops.Scatter)) if rows > 0 else None


def _divisor(op: AnyOp) -> Demand | None:
    """Above 0: 0 has no quotient, and -1 none for every dividend."""
    dtype = op.inputs[1].dtype
    return Demand(1, INTEGER_RANGES[dtype][1]) if dtype in INTEGER_RANGES else None


def _amount(op: AnyOp) -> Demand | None:
    """As many bits as there are to shift."""
    dtype = op.inputs[0].dtype
    return Demand(0, BITS[dtype] - 1) if dtype in INTEGER_RANGES else None


_DEMANDS: dict[type, Callable[[AnyOp], Demand | None]] = {
    **dict.fromkeys((ops.Gather, ops.RowGather, ops.Scatter), _row),
    **dict.fromkeys((ops.ArithmeticRightShift, ops.LogicalLeftShift, ops.LogicalRightShift), _amount),
    ops.IntDiv: _divisor,
}
"""What these operators demand of their second operand."""


def demands_on_inputs(program: Program) -> dict[Tensor, Demand]:
    """The inputs of the main block that reach such an operand by movement alone, and what they may hold there."""
    block = program.main
    starts = dict.fromkeys(block.inputs)
    found: dict[Tensor, Demand] = {}
    for op in block.ops:
        ask = _DEMANDS.get(type(op.attrs))
        demand = ask(op) if ask is not None and len(op.inputs) > 1 else None
        if demand is None:
            continue
        for tensor in _sources(op.inputs[1]):
            if tensor in starts:
                found[tensor] = _both(found.get(tensor, demand), demand)
    return found


def _sources(tensor: Tensor) -> list[Tensor]:
    """Where the values of a tensor come from, through operators that only move them."""
    seen = {tensor: None}
    todo, ends = [tensor], []
    while todo:
        each = todo.pop()
        producer = each.producer
        if producer is None or not isinstance(producer.attrs, _MOVES):
            ends.append(each)
            continue
        moved = producer.inputs if isinstance(producer.attrs, ops.Concat) else producer.inputs[:1]
        todo.extend(t for t in moved if t not in seen)
        seen.update(dict.fromkeys(moved))
    return ends


def _both(one: Demand, other: Demand) -> Demand:
    """What meets both, or, where nothing does, one of them."""
    low, high = max(one.low, other.low), min(one.high, other.high)
    return Demand(low, high, one.distinct or other.distinct) if low <= high else one


def narrowed(spec: InputSpec, demand: Demand | None) -> InputSpec:
    """``spec``, to be drawn as what is demanded too, where its own range leaves room for that."""
    if demand is None or min(spec.shape, default=1) < 0:
        return spec
    lowest, highest = spec.bounds()
    if np.any(lowest > demand.high) or np.any(highest < demand.low):
        return spec
    low = demand.low if spec.low is None else np.clip(spec.low, demand.low, demand.high)
    high = demand.high if spec.high is None else np.clip(spec.high, demand.low, demand.high)
    return replace(spec, low=low, high=high, distinct=demand.distinct)
