"""Errors across control flow and variables; see :mod:`tosakit.engine.bounds`.

The branch of a COND_IF and the number of turns of a WHILE_LOOP must be the same before and after the rewrites, so no
condition may be off. Then a result of COND_IF is off by the worst of its possible branches. What a loop carries is off
by what goes in, or by what one more turn makes of that: until another turn adds nothing, or until no further turn can
be made. A read of a variable is off by what the run has written before it, else by what earlier runs left; where a
region writes to it, by the worst of everything that is ever written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tosakit.engine._block_errors import NOTHING, BlockErrors, Changes, Off, reads_variable, same, worst, written
from tosakit.engine.rule import StateLink
from tosakit.errors import InvalidModel
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.program import Program
from tosakit.numerics.deviation import Unbounded
from tosakit.numerics.program_intervals import cell_key, most_turns

MOST_TURNS = 256
"""Turns of a loop that are followed."""

LARGEST_WORK = 50_000
"""Operators in runs of regions that are followed."""


@dataclass
class RunErrors:
    """One run of a program whose variables are off by ``held``, by the names of variables and of linked inputs."""

    changes: Changes
    held: Mapping[str, Off]
    links: Sequence[StateLink] = ()
    main: BlockErrors = field(init=False)
    untracked: dict[str, None] = field(init=False)
    """Variables that regions use, or that something unknown writes to: every read can be of any write."""
    anywhere: dict[str, Off] = field(default_factory=dict)
    """How far off the values are that regions have written, by variable."""
    work: int = 0
    """Operators of regions that were followed."""

    def __post_init__(self) -> None:
        self.untracked = _untracked(self.changes.program)
        inputs = {tensor.name: tensor for tensor in self.changes.program.main.inputs}
        linked = [link.input for link in self.links if link.input in inputs]
        entering = {inputs[name]: self.held.get(name, NOTHING) for name in linked}
        self.main = BlockErrors(self.changes, entering, _Scope(self, self.changes.program.main, ()))

    def left(self) -> dict[str, Off]:
        """How far off the variables are after the run."""
        main = self.changes.program.main
        outputs = {tensor.name: tensor for tensor in main.outputs}
        result = {link.input: self.main.of(outputs[link.output]) for link in self.links if link.output in outputs}
        _ask(self.main, main)
        for cell, value in written(main.stateful):
            key = cell_key(cell)
            off = _off(self.main, value)
            result[key] = worst([result[key], off]) if key in self.untracked and key in result else off
        for key, off in self.anywhere.items():
            result[key] = worst([result[key], off]) if key in result else off
        return result

    def region(self, name: str, above: tuple[Graph, ...]) -> Graph | Unbounded:
        """The block of a region."""
        try:
            [block, *others] = self.changes.program.region(name).blocks
        except (InvalidModel, ValueError):
            return Unbounded(f'there is no region "{name}" of one block')
        if others or block in above:
            return Unbounded(f'region "{name}" runs itself or has several blocks')
        return block


@dataclass
class _Scope:
    """A block in one place of a run, below the blocks ``above``."""

    run: RunErrors
    block: Graph
    above: tuple[Graph, ...]
    sources: dict[AnyOp, Tensor] | None = None

    # ------------------------------------------------------------------------------------------ variables
    def last_written(self, read: AnyOp) -> Tensor | None:
        """The value that a write of the main block put there before the read."""
        if self.above:
            return None
        if self.sources is None:
            self.sources = self._sources()
        return self.sources.get(read)

    def _sources(self) -> dict[AnyOp, Tensor]:
        now: dict[str, Tensor] = {}
        found: dict[AnyOp, Tensor] = {}
        for op in self.block.stateful:
            if reads_variable(op) and (value := now.get(cell_key(op.inputs[0]))) is not None:
                found[op] = value
            for cell, written_value in written([op]):
                if written_value is not None and cell_key(cell) not in self.run.untracked:
                    now[cell_key(cell)] = written_value
        return found

    def held(self, read: AnyOp) -> Off:
        """What earlier runs left; for an operator that is gone nobody knows its place among the writes."""
        if read not in self.run.changes.alive:
            return Off(Unbounded(f"{read.attrs.NAME} was rewritten"))
        return self.run.held.get(cell_key(read.inputs[0]), NOTHING)

    # ------------------------------------------------------------------------------------------ control flow
    def results(self, op: AnyOp, operands: Sequence[Off]) -> list[Off]:
        """How far off the results of COND_IF or WHILE_LOOP are."""
        if op not in self.run.changes.alive:
            return self._unknown(op, Unbounded(f"{op.attrs.NAME} was rewritten"))
        if isinstance(op.attrs, ops.CondIf):
            return self._cond_if(op, op.attrs, operands)
        assert isinstance(op.attrs, ops.WhileLoop)
        return self._while_loop(op, op.attrs, operands)

    def _cond_if(self, op: AnyOp, attrs: ops.CondIf, operands: Sequence[Off]) -> list[Off]:
        if operands[0].is_off:
            return self._unknown(op, Unbounded("the condition of COND_IF can differ, and with it the branch"))
        outcome = self.run.changes.intervals.of(op.inputs[0])
        found: list[list[Off]] = []
        for name, truth in ((attrs.then_graph, 1), (attrs.else_graph, 0)):
            if outcome.lowest <= truth <= outcome.highest:
                inner = self._inside(name, operands[1:])
                if isinstance(inner, Unbounded):
                    return self._unknown(op, inner)
                found.append(inner)
        if any(len(results) != len(op.outputs) for results in found):
            return self._unknown(op, Unbounded("the regions of COND_IF have other results than it has"))
        condition = Off(0, operands[0].last)
        return [worst([condition, *several]) for several in zip(*found, strict=True)]

    def _while_loop(self, op: AnyOp, attrs: ops.WhileLoop, operands: Sequence[Off]) -> list[Off]:
        carried, most = list(operands), None
        for turn in range(MOST_TURNS + 1):
            after = self._turn(attrs, carried)
            if isinstance(after, Unbounded):
                return self._unknown(op, after)
            grown = [worst([old, new]) for old, new in zip(carried, after, strict=True)]
            if all(map(same, grown, carried)):
                return carried
            if turn == 0:
                most = most_turns(self.run.changes.program, op, self.run.changes.intervals, MOST_TURNS)
            if turn == most:
                return carried
            carried = grown
        many = f"it is not proved to end within {MOST_TURNS} turns"
        return self._unknown(op, Unbounded(f"each turn of WHILE_LOOP adds to the error, and {many}"))

    def _turn(self, attrs: ops.WhileLoop, carried: Sequence[Off]) -> list[Off] | Unbounded:
        """What one more turn makes of the errors that a loop carries."""
        condition, body = (self._inside(name, carried) for name in (attrs.cond_graph, attrs.body_graph))
        if isinstance(condition, Unbounded):
            return condition
        if isinstance(body, Unbounded):
            return body
        if any(off.is_off for off in condition):
            return Unbounded("the condition of WHILE_LOOP can differ, and with it the number of turns")
        if len(body) != len(carried):
            return Unbounded("the body of WHILE_LOOP has other results than it has")
        return body

    def _unknown(self, op: AnyOp, problem: Unbounded) -> list[Off]:
        """No result has a bound, and nothing that regions may write."""
        off = Off(problem, len(self.run.changes.events))
        self.run.anywhere.update(dict.fromkeys(self.run.untracked, off))
        return [off for _ in op.outputs]

    def _inside(self, name: str, operands: Sequence[Off]) -> list[Off] | Unbounded:
        """How far off the outputs of a region are whose inputs are off by ``operands``; takes down what it writes."""
        block = self.run.region(name, (*self.above, self.block))
        if isinstance(block, Unbounded):
            return block
        self.run.work += 1 + len(block.ops)
        if self.run.work > LARGEST_WORK:
            return Unbounded("there is too much control flow to follow")
        if len(block.inputs) != len(operands):
            return Unbounded(f'region "{name}" has {len(block.inputs)} inputs, not {len(operands)}')
        scope = _Scope(self.run, block, (*self.above, self.block))
        errors = BlockErrors(self.run.changes, dict(zip(block.inputs, operands, strict=True)), scope)
        _ask(errors, block)
        for cell, value in written(block.stateful):
            off = _off(errors, value)
            known = self.run.anywhere.get(cell_key(cell))
            self.run.anywhere[cell_key(cell)] = off if known is None else worst([known, off])
        return [errors.of(tensor) for tensor in block.outputs]


def _untracked(program: Program) -> dict[str, None]:
    used: dict[str, None] = {}
    for block in program.blocks:
        if block is not program.main:
            used.update(
                (cell_key(t), None) for op in block.stateful for t in (*op.inputs, *op.outputs) if t.extras.variable
            )
        used.update((cell_key(cell), None) for cell, value in written(block.stateful) if value is None)
    return used


def _ask(errors: BlockErrors, block: Graph) -> None:
    """Follow all control flow of a block: what nothing else asks for may write to variables."""
    for op in block.stateful:
        for tensor in op.outputs:
            if not tensor.extras.variable:
                errors.of(tensor)


def _off(errors: BlockErrors, value: Tensor | None) -> Off:
    return Off(Unbounded("nothing is known of what is written to a variable")) if value is None else errors.of(value)
