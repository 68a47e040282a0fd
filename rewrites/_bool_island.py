"""An island: operators joined by BOOL tensors, up to where integers come in and go out again."""

from collections.abc import Iterator
from dataclasses import dataclass

from tosakit.engine.rule import Refusal, describe
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.movement import MOVES
from tosakit.ir.operator import Attributes, Entry, Exit

COMPARISONS = (ops.Greater, ops.GreaterEqual, ops.Equal)
LOGIC = (ops.LogicalAnd, ops.LogicalOr, ops.LogicalXor, ops.LogicalNot)
REDUCTIONS = (ops.ReduceAll, ops.ReduceAny)
KINDS: tuple[type[Attributes], ...] = (*COMPARISONS, *LOGIC, *REDUCTIONS, *MOVES, ops.Select, ops.Cast)
"""What an island may consist of."""

INTEGERS = (DType.INT8, DType.INT16, DType.INT32)


@dataclass(frozen=True, eq=False)
class Island:
    """The operators, those that others read first, and which of them give integers back."""

    ops: tuple[AnyOp, ...]
    exits: tuple[AnyOp, ...]


def island_of(start: AnyOp) -> Island | Refusal | None:
    """The island around an operator; None where it has no BOOL tensor, is not the island's first, or gives nothing.

    A Refusal names what has no form in integers. O(size of the island).
    """
    if not any(_bools(start)) or any(t.dtype == DType.BOOL and _is_computed(t) for t in start.inputs):
        return None
    found = dict.fromkeys([start])
    todo = [start]
    problem: Refusal | None = None
    while todo:
        op = todo.pop()
        problem = problem or _problem(op)
        for tensor in _bools(op):
            neighbours = () if tensor.is_constant else (tensor.producer, *tensor.users)
            for other in neighbours:
                if other is None or isinstance(other.attrs, Exit | Entry):
                    problem = problem or _boundary(tensor, other)
                elif other not in found:
                    found[other] = None
                    todo.append(other)
    members = _in_order(found)
    if members[0] is not start:
        return None
    exits = tuple(op for op in members if op.outputs and op.output.dtype != DType.BOOL)
    if problem is None and not exits:
        return None
    return problem or Island(members, exits)


def _bools(op: AnyOp) -> Iterator[Tensor]:
    return (tensor for tensor in (*op.inputs, *op.outputs) if tensor.dtype == DType.BOOL)


def _is_computed(tensor: Tensor) -> bool:
    producer = tensor.producer
    return producer is not None and not isinstance(producer.attrs, Entry) and not tensor.is_constant


def _boundary(tensor: Tensor, other: AnyOp | None) -> Refusal:
    if other is None:
        return Refusal(f'the variable "{tensor.name}" is BOOL')
    side = "an input" if isinstance(other.attrs, Entry) else "an output"
    return Refusal(f'"{tensor.name}" is {side} of the graph and BOOL; a rule keeps the type of inputs and outputs')


def _problem(op: AnyOp) -> Refusal | None:
    if not isinstance(op.attrs, KINDS) or len(op.outputs) != 1 or len(op.inputs) < len(op.attrs.OPERANDS):
        return Refusal(f"{describe(op)} reads or gives BOOL and has no form in integers")
    for tensor in (*op.inputs, *op.outputs):
        if tensor.dtype not in (*INTEGERS, DType.BOOL, DType.SHAPE):
            return Refusal(f'"{tensor.name}" of {describe(op)} holds {tensor.dtype.name} values')
        if not tensor.has_shape or min(tensor.shape, default=1) < 1:
            return Refusal(f'"{tensor.name}" has the shape {list(tensor.shape)}, which is not static')
    return None


def _in_order(found: dict[AnyOp, None]) -> tuple[AnyOp, ...]:
    """The operators, each after those whose results it reads."""
    done: dict[AnyOp, None] = {}
    for root in sorted(found, key=lambda op: op.output.name if op.outputs else ""):
        stack = [root]
        while stack:
            op = stack.pop()
            if op in done:
                continue
            missing = [p for t in op.inputs if (p := t.producer) in found and p not in done]
            if missing:
                stack.extend([op, *missing])
            else:
                done[op] = None
    return tuple(done)
