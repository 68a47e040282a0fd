"""How far the rewrites of a run can move the outputs of a program: their bounds, carried through the graph.

A rewrite m replaces the value ``old`` by ``new``, within n of it for the same operands. Compared with the program
before any rewrite, ``new`` is off by n and by what ``old`` was off already: the error of the operands that it read,
carried through the operators that it stood for. Errors of rewrites that were made later, but further up, go through
the new operators instead; where there are any, both are added. Everything else carries the errors of its operands
(:mod:`tosakit.numerics.deviation`).

Where a rule replaces what TOSA does not define, n is the distance to the real meaning, and the bound is to a program in
which such operators round to nearest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tosakit.engine.contract import Exact, WithinLsb
from tosakit.engine.rule import Event
from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Op, OpRecord, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics._interval import add, clip, greater
from tosakit.numerics.deviation import Error, Unbounded, detached, deviation
from tosakit.numerics.intervals import Interval, Intervals
from tosakit.numerics.program_intervals import program_intervals

_STATE = (ops.Variable, ops.VariableRead, ops.VariableWrite, ops.CondIf, ops.WhileLoop, Foreign)


@dataclass(frozen=True)
class OutputBound:
    """How far an output can be from what it was, in LSB; None where that is not known, and ``because`` says why."""

    name: str
    lsb: int | None
    because: str = ""


def output_bounds(program: Program, events: Sequence[Event]) -> list[OutputBound]:
    """A proved bound for each output of the main block of a program that the rewrites of ``events`` have made.

    ``program`` is the one that the events were recorded on, in the order in which they happened. O(operators).
    """
    inexact = [event for event in events if not isinstance(event.contract, Exact)]
    if not inexact:
        return [OutputBound(tensor.name, 0) for tensor in program.main.outputs]
    for event in inexact:
        if not isinstance(event.contract, WithinLsb) or not event.values or math.isinf(event.contract.lsb):
            return [OutputBound(t.name, None, f"{event.rule}: {event.contract}") for t in program.main.outputs]
    carrier = _Carrier(program, events, program_intervals(program))
    return [carrier.output(tensor) for tensor in program.main.outputs]


@dataclass(frozen=True)
class _Change:
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
class _Carrier:
    """Errors of tensors, worked out on demand; ``last`` is the last inexact rewrite that is part of one."""

    program: Program
    events: Sequence[Event]
    intervals: Intervals
    known: dict[Tensor, Error] = field(default_factory=dict)
    last: dict[Tensor, int] = field(default_factory=dict)
    changes: dict[Tensor, list[_Change]] = field(default_factory=dict)
    records: dict[Tensor, OpRecord] = field(default_factory=dict)
    constants: dict[Tensor, Tensor] = field(default_factory=dict)
    alive: dict[AnyOp, None] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for block in self.program.blocks:
            self.alive.update(dict.fromkeys((*block.ops, block.entry)))
        for number, event in enumerate(self.events):
            for record in (*event.after, *event.before):
                self.records.update(dict.fromkeys(record.outputs, record))
            for old, new in event.values.items():
                if old is not new:
                    self.changes.setdefault(new, []).append(_Change(number, event, old))
            if not isinstance(event.contract, Exact):
                self.touched[event.block] = None

    def output(self, tensor: Tensor) -> OutputBound:
        """The bound of an output of the program."""
        try:
            error = self._lost() or self.of(tensor)
        except TosakitError as problem:
            error = Unbounded(str(problem))
        if isinstance(error, Unbounded):
            return OutputBound(tensor.name, None, error.because)
        largest, (low, high) = int(np.max(error)), INTEGER_RANGES.get(tensor.dtype, (0, 1))
        if largest >= high - low:
            return OutputBound(tensor.name, None, f"it grows to the whole range of {tensor.dtype.name} on the way")
        return OutputBound(tensor.name, largest)

    def _lost(self) -> Unbounded | None:
        """Transforms do not say what became of a value; one that a rewrite made must still be there behind them."""
        followed = {change.old: None for changes in self.changes.values() for change in changes}
        followed.update((t, None) for event in self.events for record in event.before for t in record.outputs)
        transforms = [number for number, event in enumerate(self.events) if not event.values]
        for new, changes in self.changes.items():
            gone = new.producer not in self.alive and new not in followed
            late = [n for n in transforms if any(change.lsb and n > change.number for change in changes)]
            if gone and late:
                return Unbounded(f"{self.events[late[0]].rule} does not say what became of rewritten values")
        return None

    def of(self, tensor: Tensor) -> Error:
        """The error of a tensor, whatever depth it is at."""
        stack, opened = [tensor], dict[Tensor, None]()
        while stack:
            top = stack[-1]
            if top in self.known:
                stack.pop()
                continue
            missing = [needed for needed in self._needs(top) if needed not in self.known]
            if not missing:
                self._settle(stack.pop())
            elif top in opened:
                self.known[stack.pop()] = Unbounded("rewrites replaced values by each other in a circle")
            else:
                opened[top] = None
                stack.extend(missing)
        return self.known[tensor]

    def _source(self, tensor: Tensor) -> AnyOp | None:
        """What makes a tensor: the operator of the graph, or one that a rewrite has removed."""
        if tensor.producer is not None and tensor.producer in self.alive:
            return tensor.producer
        record = self.records.get(tensor)
        return None if record is None else self._revived(record)

    def _revived(self, record: OpRecord) -> AnyOp:
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

    def _needs(self, tensor: Tensor) -> list[Tensor]:
        source = self._source(tensor)
        needed = [change.old for change in self.changes.get(tensor, ()) if change.made(tensor)]
        return needed if source is None or tensor.is_constant else [*needed, *source.inputs]

    def _settle(self, tensor: Tensor) -> None:
        """Work out the error of a tensor from those it needs."""
        error, last = self._carried(tensor)
        changes = self.changes.get(tensor, [])
        if made := [change for change in changes if change.made(tensor)]:
            error = _worst([self._replacing(change, error, last) for change in made])
        for change in changes:
            if not change.made(tensor):
                error = _worst([error, self._passing(change, tensor, error)])
        last = max(last, *(change.number for change in changes if change.lsb), -1)
        self.known[tensor] = error
        self.last[tensor] = max([last, *(self.last.get(change.old, -1) for change in made)])

    def _carried(self, tensor: Tensor) -> tuple[Error, int]:
        """The error that the operator above carries on, and the last rewrite above it."""
        if tensor.is_constant:
            return 0, -1
        op = self._source(tensor)
        if op is None:
            known = tensor.extras.variable
            return (0 if known else Unbounded(f'nothing is recorded of what made "{tensor.name}"')), -1
        last = max((self.last.get(operand, -1) for operand in op.inputs), default=-1)
        if isinstance(op.attrs, _STATE):
            return self._state(op), last
        if tensor is not op.outputs[0]:
            return (Unbounded(f"{op.attrs.NAME} has several results") if op.inputs and last >= 0 else 0), last
        return deviation(op, self.known.__getitem__, self.intervals), last

    def _state(self, op: AnyOp) -> Error:
        """Control flow and state have no bound unless nothing differs that goes in or is done inside."""
        differs = any(_is_off(self.known[operand]) for operand in op.inputs)
        if isinstance(op.attrs, ops.CondIf | ops.WhileLoop):
            main = self.program.main.name or ""
            differs = differs or any(block != main for block in self.touched)
        elif not isinstance(op.attrs, Foreign):
            differs = bool(self.touched)
        return Unbounded(f"errors are not carried through {op.attrs.NAME}") if differs else 0

    def _replacing(self, change: _Change, carried: Error, above: int) -> Error:
        """The error of a new value: from the old one, or where that has no arithmetic, through the new operators."""
        if change.event.reference is not None:
            if _is_off(carried) and not self._is_proved_for(change.event):
                return Unbounded(f"{change.event.rule}: operands can leave the range that its bound is proved for")
            return _plus(carried, change.lsb)
        old = self.known[change.old]
        return _plus(_plus(old, carried) if above > change.number else old, change.lsb)

    def _is_proved_for(self, event: Event) -> bool:
        """Whether the operands before the rewrites lie in the ranges that the rewrite's bound was proved for."""
        made = dict.fromkeys(t for record in event.before for t in record.outputs)
        for tensor in dict.fromkeys(t for record in event.before for t in record.inputs):
            if tensor in made or tensor.is_constant or tensor.dtype not in INTEGER_RANGES:
                continue
            error, proved = self.known.get(tensor), event.ranges.get(tensor)
            if error is None or isinstance(error, Unbounded) or proved is None:
                return False
            low, high = INTEGER_RANGES[tensor.dtype]
            before = clip(add(self.intervals.of(tensor), Interval(-error, error)), low, high)
            if before.lowest < np.max(proved.low) or before.highest > np.min(proved.high):
                return False
        return True

    def _passing(self, change: _Change, tensor: Tensor, error: Error) -> Error:
        """The error of a value that now is one which was there before, by what the old operators make of its error."""
        operators = [self._revived(record) for record in change.event.before]
        made = dict.fromkeys(t for op in operators for t in op.outputs)
        read = dict.fromkeys(t for op in operators for t in op.inputs if t not in made)
        others = [t for t in read if t is not tensor and not t.is_constant]
        if any(t in self.changes for t in made) or (others and self.touched):
            return Unbounded(f"{change.event.rule} put one value in the place of another that depends on more")
        local: dict[Tensor, Error] = {**dict.fromkeys(read, 0), tensor: error}
        for op in operators:
            if any(operand not in local for operand in op.inputs):
                return Unbounded(f"{change.event.rule} does not list its operators in order")
            local.update(dict.fromkeys(op.outputs, deviation(op, local.__getitem__, self.intervals)))
        return _plus(local[change.old], change.lsb)


def _is_off(error: Error) -> bool:
    return isinstance(error, Unbounded) or bool(np.any(np.asarray(error) > 0))


def _plus(first: Error, second: Error) -> Error:
    for error in (first, second):
        if isinstance(error, Unbounded):
            return error
    return first + second  # type: ignore[operator]


def _worst(errors: Sequence[Error]) -> Error:
    for error in errors:
        if isinstance(error, Unbounded):
            return error
    return greater(*errors)  # type: ignore[arg-type]
