"""Turn every variable into a graph input and a graph output, to be fed back by the caller.

    VARIABLE s = start                              s: input, in the first run start
    s ─▶ VARIABLE_READ ─▶ r ─▶ ... ─▶ w             s ─▶ ... ─▶ w: output, the input s of the next run
    w ─▶ VARIABLE_WRITE ─▶ s

A read gives what was last written before it in program order, in this run or the one before; with that value as an
input and the last one written as an output, each run computes what it did. A variable that is never written is the
constant it starts as; one that is written before it is read carries nothing from run to run. A written value that is
no result of an operator, or is an output already, gets an IDENTITY. Converters spell both operators as IDENTITY with
the attributes of the variable operator; they are taken alike.

Vela takes no variables, and silently loses those spelled IDENTITY. The report says which output feeds which input.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from rewrites._when import ForEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.rule import Context, Event, Outcome, Refused, StateLink, Transform, describe
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.program import Program
from tosakit.spec.variables import meaning

NAME = "variables_as_inputs"


def run(program: Program, context: Context) -> Outcome:
    """Rewrite all variables of the program, or, where one cannot be, none."""
    if not context.options.acts(context.target):
        return Outcome()
    accesses: dict[Tensor, list[AnyOp]] = {
        cell: [] for block in program.blocks for cell in block.tensors if cell.extras.variable
    }
    for op in [op for block in program.blocks for op in block.stateful]:
        for tensor in dict.fromkeys((*op.inputs, *op.outputs)):
            if tensor in accesses:
                accesses[tensor].append(op)
    refusals = list(_refusals(program, accesses))
    if refusals or not accesses:
        return Outcome(refusals=refusals)
    cells = [_Cell(program.main, cell, ops_of) for cell, ops_of in accesses.items()]
    events = [cell.replace() for cell in cells]
    for op in [op for op in program.main.ops if isinstance(meaning(op.attrs), ops.Variable)]:
        program.main.erase(op)
    return Outcome(events, state=[cell.link for cell in cells if cell.link is not None])


def _refusals(program: Program, accesses: Mapping[Tensor, Sequence[AnyOp]]) -> Iterator[Refused]:
    """Why variables must stay, one reason for each that must."""
    for block in program.blocks:
        for op in block.stateful:
            if _is_move(op) and not any(t.extras.variable for t in (*op.inputs, *op.outputs)):
                yield Refused(NAME, block.name or "", describe(op), "it names no variable of its block")
        for cell in [tensor for tensor in block.tensors if tensor in accesses]:
            if reason := _obstacle(program, block, cell, accesses[cell]):
                yield Refused(NAME, block.name or "", f'variable "{cell.name}"', reason)


def _obstacle(program: Program, block: Graph, cell: Tensor, accesses: Sequence[AnyOp]) -> str:
    """Why a variable must stay; "" where nothing speaks against it."""
    if block is not program.main:
        return f'it belongs to block "{block.name}", whose inputs and outputs are not those of the graph'
    if not cell.has_shape or min(cell.shape, default=1) < 1:
        return f"it has the shape {list(cell.shape)}, which is not static"
    if cell in (*block.outputs, *block.inputs):
        return "it is itself an input or output of the graph"
    for op in accesses:
        is_declaration = isinstance(meaning(op.attrs), ops.Variable) and not op.inputs
        if not is_declaration and not (_is_move(op) and (len(op.inputs), len(op.outputs)) == (1, 1)):
            return f"{describe(op)} uses it, which is no complete VARIABLE_READ or VARIABLE_WRITE"
        if any((t.dtype, t.shape) != (cell.dtype, cell.shape) for t in (*op.inputs, *op.outputs)):
            return f"{describe(op)} passes another type than {cell.dtype.name} {list(cell.shape)}"
    moves = [op for op in accesses if _is_move(op)]
    if moves and not any(_is_write(op) for op in moves) and cell.data is None:
        return "it is read, but neither written nor given an initial value"
    return ""


def _is_write(op: AnyOp) -> bool:
    return isinstance(meaning(op.attrs), ops.VariableWrite)


def _is_move(op: AnyOp) -> bool:
    return isinstance(meaning(op.attrs), ops.VariableWrite | ops.VariableRead)


class _Cell:
    """One variable on its way out of the graph. ``link`` is set where it carries something from run to run."""

    def __init__(self, graph: Graph, cell: Tensor, accesses: Sequence[AnyOp]) -> None:
        self.graph = graph
        self.cell = cell
        self.accesses = accesses
        self.link: StateLink | None = None
        self.title = cell.extras.variable_name or cell.name

    def replace(self) -> Event:
        """Let every read have the value last written; returns what happened."""
        operators = tuple(map(describe, self.accesses)) or (f'variable "{self.cell.name}"',)
        moves = [op for op in self.accesses if _is_move(op)]
        is_written = any(map(_is_write, moves))
        start = None
        if moves and not _is_write(moves[0]):
            start = self._input() if is_written else self._constant()
        value = self._forward(moves, start)
        name, initial = self.cell.name, self.cell.values() if self.cell.data is not None else None
        for op in self.accesses:
            if op not in moves:
                self.graph.erase(op)
        self.graph.drop_tensor(self.cell)
        if start is None or value is None or not is_written:
            return Event(NAME, self.graph.name or "", operators, Exact(), "it carries nothing from run to run")
        with suppress(InvalidArgument):  # another tensor has that name
            self.graph.rename(start, self.title)
        output = self._output(value)
        self.link = StateLink(name, start.name, output.name, initial)
        detail = f'output "{output.name}" feeds input "{start.name}"'
        return Event(NAME, self.graph.name or "", operators, Exact(), detail)

    def _input(self) -> Tensor:
        cell = self.cell
        start = self.graph.add_tensor(Tensor(self.title, cell.dtype, cell.shape, quantization=cell.quantization))
        self.graph.add_input(start)
        return start

    def _constant(self) -> Tensor:
        cell = self.cell
        tensor = Tensor(self.title, cell.dtype, cell.shape, cell.data, quantization=cell.quantization)
        return self.graph.add_op(Op(ops.Const(), (), (tensor,), origin=NAME), like=self.accesses[0]).output

    def _forward(self, moves: Sequence[AnyOp], value: Tensor | None) -> Tensor | None:
        """Take the reads and writes out in order; the value that is left in the end."""
        for op in moves:
            if _is_write(op):
                value = op.inputs[0]
            elif value is not None:
                self.graph.splice(op, [], {op.output: value})
            self.graph.erase(op)
        return value

    def _output(self, value: Tensor) -> Tensor:
        """The value as an output of its own."""
        is_result = value.producer not in (None, self.graph.entry) and not value.is_constant
        if not is_result or value in self.graph.outputs:
            alias = Tensor(f"{self.title}_next", value.dtype, value.shape, quantization=value.quantization)
            value = self.graph.add_op(Op(ops.Identity(), (value,), (alias,), origin=NAME)).output
        self.graph.add_output(value)
        return value


TRANSFORM = Transform(
    NAME,
    run,
    Exact(),
    "Turn every variable into a graph input and a graph output, to be fed back by the caller.",
    ForEthosU,
)
