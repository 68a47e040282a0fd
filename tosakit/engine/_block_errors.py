"""Errors of the tensors of one block, worked out on demand; see :mod:`tosakit.engine.bounds`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tosakit.engine.contract import WithinLsb
from tosakit.engine.rule import Event
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Op, OpRecord, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics._interval import add, clip, greater
from tosakit.numerics.deviation import Error, Errors, Unbounded, detached, deviation, largest
from tosakit.numerics.intervals import Interval, Intervals

Through = Callable[[AnyOp, Errors], Error]

_FLOW = (ops.CondIf, ops.WhileLoop)


@dataclass(frozen=True, eq=False)
class Off:
    """How far a tensor can be off; ``last`` is the last inexact rewrite that is part of it, by its number."""

    error: Error = 0
    last: int = -1

    @property
    def is_off(self) -> bool:
        """Whether it can differ at all."""
        return isinstance(self.error, Unbounded) or largest(self.error) > 0


NOTHING = Off()


def worst(several: Sequence[Off]) -> Off:
    """An error that covers all of these."""
    last = max(off.last for off in several)
    for off in several:
        if isinstance(off.error, Unbounded):
            return Off(off.error, last)
    return Off(greater(*(off.error for off in several)), last)  # type: ignore[arg-type]


def same(one: Off, other: Off) -> bool:
    """Whether two errors are the same error of the same rewrites."""
    if isinstance(one.error, Unbounded) or isinstance(other.error, Unbounded):
        return one.error is other.error and one.last == other.last
    return np.array_equal(np.asarray(one.error), np.asarray(other.error)) and one.last == other.last


@dataclass(frozen=True)
class Change:
    """Rewrite number ``number`` put a tensor in the place of ``old``."""

    number: int
    event: Event
    old: Tensor

    @property
    def lsb(self) -> int:
        """Whole units by which the values can differ; half a unit more where the old ones are real numbers."""
        bound = self.event.contract.lsb if isinstance(self.event.contract, WithinLsb) else 0.0
        return math.floor(bound + 0.5) if self.event.reference is not None else math.floor(bound)

    def made(self, new: Tensor) -> bool:
        """Whether the rewrite made the new value, or passed on one that was there before."""
        return any(new in record.outputs for record in self.event.after)


@dataclass
class Changes:
    """What a run of rewrites did to a program, by tensor. ``intervals`` are those of the program as it is now.

    ``through`` says what an operator makes of the errors of its operands; without it, what two executions make of it.
    """

    program: Program
    events: Sequence[Event]
    intervals: Intervals
    through: Through | None = None
    of: dict[Tensor, list[Change]] = field(default_factory=dict)
    records: dict[Tensor, OpRecord] = field(default_factory=dict)
    constants: dict[Tensor, Tensor] = field(default_factory=dict)
    alive: dict[AnyOp, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for block in self.program.blocks:
            self.alive.update(dict.fromkeys((*block.ops, block.entry)))
        for number, event in enumerate(self.events):
            for record in (*event.after, *event.before):
                self.records.update(dict.fromkeys(record.outputs, record))
            for old, new in event.values.items():
                if old is not new:
                    self.of.setdefault(new, []).append(Change(number, event, old))

    def made_of(self, op: AnyOp, errors: Errors) -> Error:
        """What an operator makes of the errors of its operands."""
        return deviation(op, errors, self.intervals) if self.through is None else self.through(op, errors)

    def lost(self) -> Unbounded | None:
        """Transforms do not say what became of a value; one that a rewrite made must still be there behind them."""
        followed = {change.old: None for changes in self.of.values() for change in changes}
        followed.update((t, None) for event in self.events for record in event.before for t in record.outputs)
        transforms = [number for number, event in enumerate(self.events) if not event.values]
        for new, changes in self.of.items():
            gone = new.producer not in self.alive and new not in followed
            late = [n for n in transforms if any(change.lsb and n > change.number for change in changes)]
            if gone and late:
                return Unbounded(f"{self.events[late[0]].rule} does not say what became of rewritten values")
        return None

    def source(self, tensor: Tensor) -> AnyOp | None:
        """What makes a tensor: the operator of the graph, or one that a rewrite has removed."""
        if tensor.producer is not None and tensor.producer in self.alive:
            return tensor.producer
        record = self.records.get(tensor)
        return None if record is None else self.revived(record)

    def revived(self, record: OpRecord) -> AnyOp:
        """A recorded operator, with constants in the place of those that were removed with it."""
        inputs = []
        for tensor in record.inputs:
            gone = tensor.producer is None and tensor.data is not None and not tensor.extras.variable
            if gone and tensor not in self.constants:
                twin = Tensor(tensor.name, tensor.dtype, tensor.shape, tensor.data, table=tensor.table)
                Op(ops.ConstShape() if tensor.table == "shapes" else ops.Const(), (), (twin,))
                self.constants[tensor] = twin
            inputs.append(self.constants.get(tensor, tensor))
        return detached(record.attrs, inputs, record.outputs)


class Outside(Protocol):
    """What a block does not know of itself."""

    def last_written(self, read: AnyOp) -> Tensor | None:
        """The value of the block that a read of a variable gives; None where it comes from an earlier run."""

    def held(self, read: AnyOp) -> Off:
        """How far off the variable is that is read."""

    def results(self, op: AnyOp, operands: Sequence[Off]) -> list[Off]:
        """How far off the results of control flow are."""


@dataclass
class BlockErrors:
    """Errors of the tensors of a block whose inputs are off by ``entering``."""

    changes: Changes
    entering: Mapping[Tensor, Off]
    outside: Outside
    known: dict[Tensor, Off] = field(default_factory=dict)
    flow: dict[AnyOp, list[Off]] = field(default_factory=dict)

    def of(self, tensor: Tensor) -> Off:
        """The error of a tensor, whatever depth it is at."""
        stack, opened = [tensor], dict[Tensor, list[Tensor]]()
        while stack:
            top = stack[-1]
            if top in self.known:
                stack.pop()
                continue
            needs = opened[top] if top in opened else self._needs(top)
            missing = [needed for needed in needs if needed not in self.known]
            if not missing:
                self.known[stack.pop()] = self._settled(top)
            elif top in opened:
                self.known[stack.pop()] = Off(Unbounded("rewrites replaced values by each other in a circle"))
            else:
                opened[top] = missing
                stack.extend(missing)
        return self.known[tensor]

    def _needs(self, tensor: Tensor) -> list[Tensor]:
        source = self.changes.source(tensor)
        needed = [change.old for change in self.changes.of.get(tensor, ()) if change.made(tensor)]
        if source is None or tensor.is_constant or tensor.extras.variable:
            return needed
        if reads_variable(source):
            value = self.outside.last_written(source)
            return needed if value is None else [*needed, value]
        return [*needed, *[operand for operand in source.inputs if not self._is_as_it_was(operand)]]

    def _is_as_it_was(self, tensor: Tensor) -> bool:
        """Whether a tensor is a constant that no rewrite put in the place of something else."""
        return tensor.is_constant and tensor not in self.changes.of

    def _operand(self, tensor: Tensor) -> Off:
        return NOTHING if self._is_as_it_was(tensor) else self.known[tensor]

    def _settled(self, tensor: Tensor) -> Off:
        """The error of a tensor from those it needs."""
        carried = self._carried(tensor)
        changes = self.changes.of.get(tensor)
        if changes is None:
            return carried
        error, last = carried.error, carried.last
        if made := [change for change in changes if change.made(tensor)]:
            error = worst([Off(self._replacing(change, carried)) for change in made]).error
        for change in changes:
            if not change.made(tensor):
                error = worst([Off(error), Off(self._passing(change, tensor, error))]).error
        last = max(last, *(change.number for change in changes if change.lsb), -1)
        return Off(error, max([last, *(self.known[change.old].last for change in made)]))

    def _carried(self, tensor: Tensor) -> Off:
        """The error that the operator above carries on."""
        if tensor.is_constant:
            return NOTHING
        if tensor in self.entering:
            return self.entering[tensor]
        op = self.changes.source(tensor)
        if op is None or tensor.extras.variable:
            known = tensor.extras.variable  # reads answer for it
            return NOTHING if known else Off(Unbounded(f'nothing is recorded of what made "{tensor.name}"'))
        if reads_variable(op):
            value = self.outside.last_written(op)
            return self.outside.held(op) if value is None else self.known[value]
        operands = [self._operand(operand) for operand in op.inputs]
        if isinstance(op.attrs, _FLOW):
            if op not in self.flow:
                self.flow[op] = self.outside.results(op, operands)
            return self.flow[op][op.outputs.index(tensor)]
        last = max((off.last for off in operands), default=-1)
        if isinstance(op.attrs, Foreign) and any(off.is_off for off in operands):
            return Off(Unbounded(f"errors are not carried through {op.attrs.NAME}"), last)
        if tensor is not op.outputs[0]:
            is_off = any(off.is_off for off in operands)
            return Off(Unbounded(f"{op.attrs.NAME} has several results") if is_off else 0, last)
        errors = {operand: off.error for operand, off in zip(op.inputs, operands, strict=True)}
        return Off(self.changes.made_of(op, errors.__getitem__), last)

    def _replacing(self, change: Change, carried: Off) -> Error:
        """The error of a new value: from the old one, or where that has no arithmetic, through the new operators."""
        if change.event.reference is not None:
            if carried.is_off and not self._is_proved_for(change.event):
                return Unbounded(f"{change.event.rule}: operands can leave the range that its bound is proved for")
            return _plus(carried.error, change.lsb)
        old = self.known[change.old].error
        if carried.last > change.number and not self._is_still_proved_for(change.event):
            old = _plus(old, carried.error)
        return _plus(old, change.lsb)

    def _is_still_proved_for(self, event: Event) -> bool:
        """Whether the operands, for all that was rewritten later, lie in the ranges that the bound was proved for."""
        for tensor in _cut(event):
            proved = event.ranges.get(tensor)
            if proved is None:
                return False
            now = self.changes.intervals.of(tensor)
            if np.any(np.asarray(now.low) < proved.low) or np.any(np.asarray(now.high) > proved.high):
                return False
        return True

    def _is_proved_for(self, event: Event) -> bool:
        """Whether the operands before the rewrites lie in the ranges that the rewrite's bound was proved for."""
        for tensor in _cut(event):
            off, proved = self.known.get(tensor), event.ranges.get(tensor)
            if off is None or isinstance(off.error, Unbounded) or proved is None:
                return False
            low, high = INTEGER_RANGES[tensor.dtype]
            before = clip(add(self.changes.intervals.of(tensor), Interval(-off.error, off.error)), low, high)
            if before.lowest < np.max(proved.low) or before.highest > np.min(proved.high):
                return False
        return True

    def _passing(self, change: Change, tensor: Tensor, error: Error) -> Error:
        """The error of a value that now is one which was there before, by what the old operators make of its error."""
        operators = [self.changes.revived(record) for record in change.event.before]
        made = dict.fromkeys(t for op in operators for t in op.outputs)
        read = dict.fromkeys(t for op in operators for t in op.inputs if t not in made)
        others = [t for t in read if t is not tensor and not t.is_constant]
        if others or any(t in self.changes.of for t in made):
            return Unbounded(f"{change.event.rule} put one value in the place of another that depends on more")
        local: dict[Tensor, Error] = {**dict.fromkeys(read, 0), tensor: error}
        for op in operators:
            if any(operand not in local for operand in op.inputs):
                return Unbounded(f"{change.event.rule} does not list its operators in order")
            if isinstance(op.attrs, _FLOW):
                return Unbounded(f"{change.event.rule} put a value in the place of control flow")
            local.update(dict.fromkeys(op.outputs, deviation(op, local.__getitem__, self.changes.intervals)))
        return _plus(local[change.old], change.lsb)


def _cut(event: Event) -> list[Tensor]:
    """The integer tensors that the replaced operators read from outside."""
    made = dict.fromkeys(t for record in event.before for t in record.outputs)
    read = dict.fromkeys(t for record in event.before for t in record.inputs)
    return [t for t in read if t not in made and not t.is_constant and t.dtype in INTEGER_RANGES]


def reads_variable(op: AnyOp) -> bool:
    """Whether an operator reads a variable, however it is spelled."""
    reads = op.inputs and op.inputs[0].extras.variable
    return bool(reads and op.outputs and not op.outputs[0].extras.variable)


def written(ops_: Iterable[AnyOp]) -> list[tuple[Tensor, Tensor | None]]:
    """The variables that operators write, in order, with the values written; None for one that nobody knows."""
    return [
        (cell, op.inputs[0] if len(op.inputs) == 1 and op.inputs[0].dtype == cell.dtype else None)
        for op in ops_
        for cell in op.outputs
        if cell.extras.variable and op.inputs
    ]


def _plus(first: Error, second: Error) -> Error:
    for error in (first, second):
        if isinstance(error, Unbounded):
            return error
    return first + second  # type: ignore[operator]
