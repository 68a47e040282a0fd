"""Inputs that are indices: which rows GATHER, ROW_GATHER and SCATTER let them name."""

from dataclasses import dataclass, replace

import numpy as np

from tosakit.ir import ops
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program
from tosakit.oracle.inputs import InputSpec

_INDEXED: dict[type, int] = {ops.Gather: 1, ops.RowGather: 1, ops.Scatter: 1}
"""Operand that holds the indices of the second axis of the first operand."""

_MOVES = (ops.Identity, ops.Reshape, ops.Transpose, ops.Slice, ops.Reverse, ops.Tile, ops.Concat)


@dataclass(frozen=True)
class Indices:
    """``rows`` is how many there are: an index is in [0, rows). ``distinct``: no two of a row of indices are alike."""

    rows: int
    distinct: bool


def index_inputs(program: Program) -> dict[Tensor, Indices]:
    """The inputs of the main block that reach an index operand by movement alone, and what they may hold there."""
    block = program.main
    starts = dict.fromkeys(block.inputs)
    found: dict[Tensor, Indices] = {}
    for op in block.ops:
        slot = _INDEXED.get(type(op.attrs))
        if slot is None or slot >= len(op.inputs) or len(op.inputs[0].shape) < 2:
            continue
        demand = Indices(op.inputs[0].shape[1], isinstance(op.attrs, ops.Scatter))
        for tensor in _sources(op.inputs[slot]):
            if tensor in starts and demand.rows > 0:
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


def _both(one: Indices, other: Indices) -> Indices:
    return Indices(min(one.rows, other.rows), one.distinct or other.distinct)


def narrowed(spec: InputSpec, indices: Indices | None) -> InputSpec:
    """``spec``, to be drawn as indices too, where it is given what they may hold."""
    if indices is None:
        return spec
    low = 0 if spec.low is None else np.clip(spec.low, 0, indices.rows - 1)
    high = indices.rows - 1 if spec.high is None else np.clip(spec.high, 0, indices.rows - 1)
    return replace(spec, low=low, high=high, distinct=indices.distinct)
