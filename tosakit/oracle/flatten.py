"""Ways through the control flow of a program to one of its operators, each as a block without control flow.

COND_IF gives way to the operators of one branch, WHILE_LOOP to those of its regions once for each turn, a read of a
variable to what was written before it or to the initial value, as in a first run. Conditions that intervals decide are
taken as they are; others are tried either way, and an input takes this way only where they come out as it says.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tosakit.engine._block_errors import reads_variable, written
from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program
from tosakit.numerics.intervals import Intervals, Range
from tosakit.numerics.program_intervals import cell_key
from tosakit.spec.variables import meaning

MOST_WAYS = 12
"""Ways that are tried to one operator."""

MOST_OPERATORS = 3000
"""Operators on a way."""

_OPEN_TURNS = 4
"""Turns that are tried of a loop whose condition intervals do not decide."""

_VISITS = (1, 2, 3, 5, 8, 16, 32, 64, 128)
"""Which of the turns that come to an operator are tried."""


@dataclass
class Way:
    """A block with the inputs of the main block that ends in ``op``, a copy of the operator looked for.

    ``intervals`` are those of the block, ``conditions`` the values that these tensors of it must have.
    """

    block: Graph
    op: AnyOp
    intervals: Intervals
    conditions: Mapping[Tensor, bool]


def ways(program: Program, target: AnyOp, inputs: Mapping[Tensor, Range]) -> Iterator[Way]:
    """Ways to ``target``, at most MOST_WAYS; ``inputs`` narrows inputs of the main block."""
    found = 0
    for visit in _VISITS:
        choices: list[bool] | None = []
        reached = False
        while choices is not None and found < MOST_WAYS:
            walk = _Walk(program, target, inputs, visit, choices)
            way = walk.run()
            if way is not None:
                reached, found = True, found + 1
                yield way
            choices = _next(walk.chosen)
        if not reached:
            return


def _next(chosen: Sequence[bool]) -> list[bool] | None:
    """The choices of the next way, in which the last that was taken as true is false."""
    left = list(chosen)
    while left and not left[-1]:
        left.pop()
    return [*left[:-1], False] if left else None


class _Reached(Exception):
    """The operator was found; ``op`` is its copy."""

    def __init__(self, op: AnyOp) -> None:
        super().__init__()
        self.op = op


class _Stuck(Exception):
    """This way leads nowhere."""


@dataclass
class _Walk:
    """One walk through a program; ``chosen`` are the values of the conditions that intervals do not decide."""

    program: Program
    target: AnyOp
    inputs: Mapping[Tensor, Range]
    visit: int
    choices: Sequence[bool]
    chosen: list[bool] = field(default_factory=list)
    graph: Graph = field(default_factory=lambda: Graph("main"))
    conditions: dict[Tensor, bool] = field(default_factory=dict)
    cells: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[Tensor, Tensor] = field(default_factory=dict)
    made: int = 0

    def run(self) -> Way | None:
        """The way, where it comes to the operator."""
        main = self.program.main
        now = {tensor: self.graph.add_tensor(_twin(tensor, tensor.name)) for tensor in main.inputs}
        self.graph.set_inputs([now[tensor] for tensor in main.inputs])
        self.intervals = Intervals({now[tensor]: limits for tensor, limits in self.inputs.items()})
        try:
            self.block(main, now)
        except _Reached as end:
            return Way(self.graph, end.op, self.intervals, self.conditions)
        except (_Stuck, TosakitError, ValueError, KeyError):  # the last two for faulty control flow and state
            return None
        return None

    def block(self, block: Graph, now: dict[Tensor, Tensor]) -> None:
        """Copy the operators of a block; ``now`` has the copies of its tensors."""
        for op in block.ops:
            self.made += 1
            if self.made > MOST_OPERATORS:
                raise _Stuck
            if op is self.target:
                self.visit -= 1
                if self.visit == 0:
                    raise _Reached(self.copy(op, now))
            self.step(op, now)

    def step(self, op: AnyOp, now: dict[Tensor, Tensor]) -> None:
        """Copy an operator, or what it runs."""
        acts = meaning(op.attrs)
        if isinstance(acts, ops.CondIf):
            name = acts.then_graph if self.choose(now[op.inputs[0]], True) else acts.else_graph
            results = self.region(name, [now[tensor] for tensor in op.inputs[1:]])
            now.update(zip(op.outputs, results, strict=True))
        elif isinstance(acts, ops.WhileLoop):
            self.loop(op, acts, now)
        elif reads_variable(op):
            now[op.output] = self.cell(op.inputs[0])
        elif stored := written([op]):
            for cell, value in stored:
                if value is None:
                    raise _Stuck
                self.cells[cell_key(cell)] = now[value]
        elif isinstance(acts, Foreign):
            raise _Stuck
        elif not isinstance(acts, ops.Variable):
            self.copy(op, now)

    def copy(self, op: AnyOp, now: dict[Tensor, Tensor]) -> AnyOp:
        """A copy of an operator; constants are copied once."""
        if op.outputs and op.outputs[0] in self.constants:
            now[op.outputs[0]] = self.constants[op.outputs[0]]
            return op
        results = [_twin(tensor, f"{tensor.name} {self.made}") for tensor in op.outputs]
        new = self.graph.add_op(Op(op.attrs, [now[tensor] for tensor in op.inputs], results))
        now.update(zip(op.outputs, results, strict=True))
        if not op.inputs and op.outputs:
            self.constants[op.outputs[0]] = results[0]
        return new

    def cell(self, cell: Tensor) -> Tensor:
        """What a variable holds."""
        key = cell_key(cell)
        if key not in self.cells:
            if cell.data is None:
                raise _Stuck
            value = Tensor(f"{cell.name} 0", cell.dtype, cell.shape, cell.data)
            self.cells[key] = self.graph.add_op(Op(ops.Const(), (), (value,))).output
        return self.cells[key]

    def loop(self, op: AnyOp, attrs: ops.WhileLoop, now: dict[Tensor, Tensor]) -> None:
        """The turns of a loop."""
        carried, turns = [now[tensor] for tensor in op.inputs], 0
        while True:
            [condition] = self.region(attrs.cond_graph, carried)
            if not self.choose(condition, turns < _OPEN_TURNS):
                break
            carried, turns = self.region(attrs.body_graph, carried), turns + 1
        now.update(zip(op.outputs, carried, strict=True))

    def region(self, name: str, operands: Sequence[Tensor]) -> list[Tensor]:
        """Run a region; returns its outputs."""
        [block] = self.program.region(name).blocks
        now = dict(zip(block.inputs, operands, strict=True))
        self.block(block, now)
        return [now[tensor] for tensor in block.outputs]

    def choose(self, condition: Tensor, otherwise: bool) -> bool:
        """The value of a condition on this way."""
        outcome = self.intervals.of(condition)
        if outcome.lowest == outcome.highest:
            return bool(outcome.lowest)
        number = len(self.chosen)
        truth = self.choices[number] if number < len(self.choices) else otherwise
        if self.conditions.setdefault(condition, truth) != truth:
            raise _Stuck
        self.chosen.append(truth)
        return truth


def _twin(tensor: Tensor, name: str) -> Tensor:
    return Tensor(name, tensor.dtype, tensor.shape, tensor.data, table=tensor.table)
