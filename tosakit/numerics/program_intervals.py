"""Intervals of whole programs: what goes into regions, comes out of control flow, and stays in variables.

The program is run on intervals, from the main block on. COND_IF gives the hull of the branches that its condition
allows. WHILE_LOOP is run until what it carries from turn to turn stays inside its intervals; these are widened on the
way, to whole numbers of bits and at last to the dtype's range, and narrowed once the loop is closed. Where a condition
compares a region's own input of one element with something, that input is narrowed by what the comparison says: so
counters have the range they are counted through. A variable holds its initial value or anything that is ever written.

A region that is run from several places has the hull of what goes in; nothing is known of one that is never run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics._interval import Interval, hull, of_constant
from tosakit.numerics.intervals import Intervals, Range

__all__ = ["assumptions", "cell_key", "most_turns", "program_intervals"]

WIDEN_AFTER = 3
"""Turns of a loop, or runs of a program with variables, that are followed exactly before bounds are widened."""

LARGEST_WORK = 200_000
"""Operators in runs of blocks after which control flow is too much to follow."""

DEEPEST = 32
"""Nested control flow that is followed."""

_LOGIC = 6
"""Steps of logic that are followed from a condition to comparisons."""

Assumed = Mapping[Tensor, Interval]


def program_intervals(program: Program, inputs: Mapping[Tensor, Range] | None = None) -> Intervals:
    """The intervals of all blocks of a program; ``inputs`` as for :class:`Intervals`, which also says what is raised.

    Linear in the size of the program without loops; each loop runs its regions a few times more.
    """
    return Intervals(inputs, assumptions(program, inputs))


def assumptions(program: Program, inputs: Mapping[Tensor, Range] | None = None) -> dict[Tensor, Interval]:
    """Intervals of the inputs of regions, the results of control flow and the variables of a program.

    Empty for a program without any, and for one whose control flow is faulty or too deeply nested to follow.
    """
    cells = list(_cells(program))
    if len(program.regions) < 2 and not cells:
        return {}
    run = _Run(program, Intervals(inputs).given)
    try:
        return run.whole(cells)
    except (_GiveUp, TosakitError, ValueError):  # numpy's where shapes do not match, as in a faulty file
        return {}


def most_turns(program: Program, op: AnyOp, intervals: Intervals, limit: int) -> int | None:
    """How often a WHILE_LOOP runs its body at most, counted on intervals; None where that is more than ``limit``.

    ``intervals`` are those of the program. Takes time in proportion to the turns and the operators of the regions.
    """
    assert isinstance(op.attrs, ops.WhileLoop)
    run = _Run(program, {})
    run.state.update((cell_key(cell), intervals.of(cell)) for cell in _cells(program) if cell.dtype in _RANGES)
    try:
        loop, carried = run.loop(op, op.attrs), _state(intervals, op.inputs)
        for turns in range(limit + 1):
            after = loop.turn(carried, keep=False)
            if after is None:
                return turns
            carried = after
    except (_GiveUp, TosakitError, ValueError):
        return None
    return None


def _cells(program: Program) -> Iterator[Tensor]:
    for block in program.blocks:
        if block.stateful:
            yield from (tensor for tensor in block.tensors if tensor.extras.variable)


class _GiveUp(Exception):
    """The control flow cannot be followed."""


@dataclass
class _Run:
    """One run of a program on intervals. ``found`` gathers what is known in the end."""

    program: Program
    given: Assumed
    state: dict[str, Interval] = field(default_factory=dict)
    written: dict[str, Interval] = field(default_factory=dict)
    found: dict[Tensor, Interval] = field(default_factory=dict)
    active: list[Graph] = field(default_factory=list)
    work: int = 0

    def whole(self, cells: Sequence[Tensor]) -> dict[Tensor, Interval]:
        """Run until no run writes to a variable what it did not hold before; then narrow what was widened too far."""
        dtypes = {cell_key(cell): cell.dtype for cell in cells if cell.dtype in _RANGES}
        for cell in cells:
            if cell.dtype in _RANGES:
                _join(self.state, cell_key(cell), _initial(cell))
        initial, turn = dict(self.state), 0
        while grown := self.grown():
            for key, interval in grown.items():
                self.state[key] = _widened(self.state[key], interval, dtypes[key], turn)
            turn += 1
        wide, self.state = self.state, {key: hull(initial[key], self.written.get(key, initial[key])) for key in dtypes}
        if self.grown():
            self.state = wide
            self.grown()
        self.found.update({cell: self.state[cell_key(cell)] for cell in cells if cell_key(cell) in self.state})
        return self.found

    def grown(self) -> dict[str, Interval]:
        """Run the whole program; the variables that are written what they did not hold, and what they hold then."""
        self.written, self.found, self.active = {}, {}, []
        self.block(self.program.main, {}, keep=True)
        joined = {key: hull(self.state[key], value) for key, value in self.written.items() if key in self.state}
        return {key: interval for key, interval in joined.items() if interval != self.state[key]}

    def block(self, block: Graph, inputs: Assumed, *, keep: bool) -> Intervals:
        """Run a block on intervals of its inputs; with ``keep`` they, and what its control flow gives, are kept."""
        self.work += 1 + len(block.ops)
        if block in self.active or len(self.active) > DEEPEST or self.work > LARGEST_WORK:
            raise _GiveUp
        self.active.append(block)
        known = Intervals(assumed={**inputs, **self.given})
        for op in block.stateful:
            results = self.operator(op, known, keep=keep)
            for tensor, interval in results.items():
                if tensor not in self.given:
                    known.assume(tensor, interval)
            if keep:
                for tensor, interval in results.items():
                    _join(self.found, tensor, interval)
        if keep:
            for tensor, interval in inputs.items():
                _join(self.found, tensor, interval)
        self.active.pop()
        return known

    def operator(self, op: AnyOp, known: Intervals, *, keep: bool) -> dict[Tensor, Interval]:
        """What the results of control flow and of reads of variables hold; writes are taken down."""
        attrs = op.attrs
        if isinstance(attrs, ops.CondIf):
            return self.cond_if(op, attrs, known, keep=keep)
        if isinstance(attrs, ops.WhileLoop):
            return self.while_loop(op, attrs, known, keep=keep)
        for tensor in op.outputs:
            if tensor.extras.variable and tensor.dtype in _RANGES and not isinstance(_meaning(attrs), ops.Variable):
                source = op.inputs[0] if len(op.inputs) == 1 and op.inputs[0].dtype == tensor.dtype else None
                value = _all_of(tensor) if source is None else known.of(source).overall
                if keep:
                    _join(self.written, cell_key(tensor), value)
        reads = op.inputs and op.inputs[0].extras.variable and op.outputs and not op.outputs[0].extras.variable
        if reads and isinstance(_meaning(attrs), ops.VariableRead | ops.Identity):
            cell = self.state.get(cell_key(op.inputs[0]))
            return {op.outputs[0]: cell} if cell is not None and op.outputs[0].dtype in _RANGES else {}
        return {}

    def region(self, name: str, operands: int) -> Graph:
        """The block of a region that takes so many operands."""
        blocks = self.program.region(name).blocks
        if not blocks or blocks[0] is self.program.main or len(blocks[0].inputs) != operands:
            raise _GiveUp
        return blocks[0]

    def cond_if(self, op: AnyOp, attrs: ops.CondIf, known: Intervals, *, keep: bool) -> dict[Tensor, Interval]:
        """The hull of what the possible branches give."""
        condition, operands = op.inputs[0], op.inputs[1:]
        outcome = known.of(condition)
        results: list[dict[Tensor, Interval]] = []
        for name, truth in ((attrs.then_graph, 1), (attrs.else_graph, 0)):
            block = self.region(name, len(operands))
            entering = _refined(_state(known, operands), operands, condition, truth, known)
            if not outcome.lowest <= truth <= outcome.highest or entering is None:
                continue
            inner = self.block(block, _bound_to(block.inputs, entering), keep=keep)
            results.append(_bound_to(op.outputs, _state(inner, block.outputs)))
        if not results:
            raise _GiveUp
        joined = results[0]
        for other in results[1:]:
            joined = {tensor: hull(interval, other[tensor]) for tensor, interval in joined.items()}
        return joined

    def loop(self, op: AnyOp, attrs: ops.WhileLoop) -> "_Loop":
        """The regions of a loop."""
        return _Loop(self, *(self.region(name, len(op.inputs)) for name in (attrs.cond_graph, attrs.body_graph)))

    def while_loop(self, op: AnyOp, attrs: ops.WhileLoop, known: Intervals, *, keep: bool) -> dict[Tensor, Interval]:
        """What the loop carries when its condition fails; the same before every turn, and more than that during it."""
        loop = self.loop(op, attrs)
        start = _state(known, op.inputs)
        carried, turn = start, 0
        while True:
            after = loop.turn(carried, keep=False)
            if after is None or _inside(after, carried):
                break
            grown = _hulls(carried, after)
            carried = [
                None if old is None or new is None else _widened(old, new, tensor.dtype, turn)
                for tensor, old, new in zip(op.inputs, carried, grown, strict=True)
            ]
            turn += 1
        carried = loop.narrowed(start, carried)
        loop.turn(carried, keep=keep)
        leaving = loop.condition(carried, truth=0, keep=False)
        return _bound_to(op.outputs, carried if leaving is None else leaving)


State = list["Interval | None"]
"""What lists of tensors hold; None for those that hold no integers."""


@dataclass
class _Loop:
    """The two regions of a WHILE_LOOP."""

    run: _Run
    cond: Graph
    body: Graph

    def condition(self, carried: State, *, truth: int, keep: bool) -> State | None:
        """What is carried where the condition has this value; None where it never has."""
        inner = self.run.block(self.cond, _bound_to(self.cond.inputs, carried), keep=keep)
        [result] = self.cond.outputs
        outcome = inner.of(result)
        if not outcome.lowest <= truth <= outcome.highest:
            return None
        return _refined(carried, self.cond.inputs, result, truth, inner)

    def turn(self, carried: State, *, keep: bool) -> State | None:
        """What one more turn makes of it; None where there is none."""
        entering = self.condition(carried, truth=1, keep=keep)
        if entering is None:
            return None
        inner = self.run.block(self.body, _bound_to(self.body.inputs, entering), keep=keep)
        return _state(inner, self.body.outputs)

    def narrowed(self, start: State, carried: State) -> State:
        """What the start and one turn of a closed loop give together, where that is closed again."""
        after = self.turn(carried, keep=False)
        less = start if after is None else _hulls(start, after)
        again = self.turn(less, keep=False)
        return less if again is None or _inside(again, less) else carried


# -------------------------------------------------------------------------------------------------- lists of intervals
_RANGES: Mapping[DType, Range] = {**INTEGER_RANGES, DType.BOOL: (0, 1)}


def _state(known: Intervals, tensors: Sequence[Tensor]) -> State:
    return [known.of(tensor) if tensor.dtype in _RANGES else None for tensor in tensors]


def _bound_to(tensors: Sequence[Tensor], state: State) -> dict[Tensor, Interval]:
    if len(tensors) != len(state):
        raise _GiveUp
    return {
        tensor: interval
        for tensor, interval in zip(tensors, state, strict=True)
        if interval is not None and tensor.dtype in _RANGES
    }


def _hulls(first: State, second: State) -> State:
    if len(first) != len(second):
        raise _GiveUp
    return [None if a is None or b is None else hull(a, b) for a, b in zip(first, second, strict=True)]


def _inside(inner: State, outer: State) -> bool:
    return all(
        a is None or b is None or bool(np.all(np.asarray(a.low) >= b.low) and np.all(np.asarray(a.high) <= b.high))
        for a, b in zip(inner, outer, strict=True)
    )


def _widened(old: Interval, new: Interval, dtype: DType, turn: int) -> Interval:
    """The new interval; after a few turns bounds that moved go out to whole bits, then to the end of the dtype."""
    if turn < WIDEN_AFTER or old == new:
        return new
    smallest, largest = _RANGES[dtype]
    low, high = new.lowest, new.highest
    if low < old.lowest:
        low = smallest if turn >= 2 * WIDEN_AFTER else max(smallest, -(1 << (~low).bit_length()) if low < 0 else 0)
    if high > old.highest:
        high = largest if turn >= 2 * WIDEN_AFTER else min(largest, (1 << high.bit_length()) - 1 if high > 0 else 0)
    if turn >= 2 * WIDEN_AFTER:  # bounds that move within channels only must end too
        return Interval(low, high)
    return hull(new, Interval(low, high))


def _join(found: dict[Tensor, Interval] | dict[str, Interval], key: object, interval: Interval) -> None:
    known = found.get(key)  # type: ignore[call-overload]
    found[key] = interval if known is None else hull(known, interval)  # type: ignore[index]


# -------------------------------------------------------------------------------------------------- variables
def cell_key(cell: Tensor) -> str:
    """What the tensors of one variable have in common: its name."""
    return cell.extras.variable_name or f"tensor {cell.name}"


def _all_of(tensor: Tensor) -> Interval:
    return Interval(*_RANGES[tensor.dtype])


def _initial(cell: Tensor) -> Interval:
    """The interval of a variable's initial value; anything where a file gives none."""
    value = of_constant(cell) if cell.data is not None else None
    return _all_of(cell) if value is None else value.overall


def _meaning(attrs: Attributes) -> Attributes:
    """The attributes an operator acts by: those it carries where IDENTITY carries another operator's."""
    is_identity = isinstance(attrs, Foreign) and attrs.number == ops.Identity.NUMBER
    return attrs.attributes or attrs if isinstance(attrs, Foreign) and is_identity else attrs


# -------------------------------------------------------------------------------------------------- conditions
def _refined(state: State, tensors: Sequence[Tensor], condition: Tensor, truth: int, known: Intervals) -> State | None:
    """The state where the condition has this value; None where it cannot have it.

    Only a tensor of one element is narrowed: of a larger one the comparison speaks about one element at a time.
    """
    limits = dict.fromkeys(tensors, (-(1 << 70), 1 << 70))
    for smaller, larger, gap in _orders(condition, truth):
        if smaller.dtype not in INTEGER_RANGES:
            continue
        if smaller in limits and _is_single(smaller):
            low, high = limits[smaller]
            limits[smaller] = low, min(high, known.of(larger).highest - gap)
        if larger in limits and _is_single(larger):
            low, high = limits[larger]
            limits[larger] = max(low, known.of(smaller).lowest + gap), high
    refined: State = []
    for tensor, interval in zip(tensors, state, strict=True):
        if interval is None:
            refined.append(None)
            continue
        low, high = limits[tensor]
        if interval.lowest >= low and interval.highest <= high:
            refined.append(interval)
            continue
        low, high = max(low, interval.lowest), min(high, interval.highest)
        if low > high:
            return None
        refined.append(Interval(low, high))
    return refined


def _is_single(tensor: Tensor) -> bool:
    return all(size == 1 for size in tensor.shape)


def _orders(condition: Tensor, truth: int, depth: int = 0) -> Iterator[tuple[Tensor, Tensor, int]]:
    """``smaller + gap <= larger``, all of which hold where the condition has this value."""
    op = condition.producer
    if op is None or depth > _LOGIC or not _is_single(condition) or len(op.inputs) < len(op.attrs.OPERANDS):
        return
    attrs, depth = op.attrs, depth + 1
    if isinstance(attrs, ops.Greater | ops.GreaterEqual):
        first, second = op.inputs
        strict = isinstance(attrs, ops.Greater)
        yield (second, first, int(strict)) if truth else (first, second, int(not strict))
    elif isinstance(attrs, ops.Equal) and truth:
        yield op.inputs[0], op.inputs[1], 0
        yield op.inputs[1], op.inputs[0], 0
    elif isinstance(attrs, ops.LogicalNot):
        yield from _orders(op.inputs[0], 1 - truth, depth)
    elif (isinstance(attrs, ops.LogicalAnd) and truth) or (isinstance(attrs, ops.LogicalOr) and not truth):
        yield from _orders(op.inputs[0], truth, depth)
        yield from _orders(op.inputs[1], truth, depth)
    elif isinstance(attrs, ops.Identity | ops.Reshape | ops.ReduceAll | ops.ReduceAny):
        yield from _orders(op.inputs[0], truth, depth)
