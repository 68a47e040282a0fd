"""Make a program that shows a fault small, and keep it legal: delta debugging on outputs, operators and constants."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

import numpy as np

from tosakit.errors import TosakitError
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program, Region
from tosakit.ir.types import BITS, Array, encode
from tosakit.spec.control_flow import region_names
from tosakit.testing.properties import new_errors

Edit = Callable[[Program], bool]
"""Changes a program; False where there was nothing to change."""

ATTEMPTS = 500


@dataclass(frozen=True)
class Reduction:
    """The smallest program found, and how many candidates were tried; ``complete`` where nothing more could go."""

    program: Program
    tried: int
    complete: bool


def reduce_program(
    program: Program,
    fails: Callable[[Program], bool],
    *,
    attempts: int = ATTEMPTS,
    progress: Callable[[int, int], object] = lambda tried, operators: None,
) -> Reduction:
    """The smallest program found that still ``fails`` and has no verifier error that ``program`` has not.

    In turn: drop dead code, run a region's body alone, leave outputs out, end at an inner result, cut operators out
    (their results become inputs), let readers take an operand instead of a result of its type, make constants uniform;
    until nothing more goes, or ``attempts`` candidates were tried.
    Deterministic where ``fails`` is. ``progress`` is told the candidates tried and the operators left.
    """
    search = _Search(program, fails, attempts, progress)
    complete = search.run()
    return Reduction(search.best, search.tried, complete)


class _Search:
    def __init__(
        self,
        program: Program,
        fails: Callable[[Program], bool],
        attempts: int,
        progress: Callable[[int, int], object],
    ) -> None:
        self.original = program
        self.best = program.clone()
        self.fails = fails
        self.attempts = attempts
        self.progress = progress
        self.tried = 0
        self.seen: dict[bytes, None] = {dumps(program): None}

    def run(self) -> bool:
        """Reduce until a whole round finds nothing, or there are no attempts left."""
        while self.tried < self.attempts:
            passes = (
                *(self.dead_code, self.bodies, self.outputs, self.inner_results),
                *(self.operators, self.bypasses, self.constants),
            )
            if not any([run() for run in passes]):
                return self.tried < self.attempts
        return False

    def attempt(self, *edits: Edit) -> bool:
        """Apply edits to a copy of the best program; keep it where it still fails."""
        if self.tried >= self.attempts:
            return False
        candidate = self.best.clone()
        try:
            if not all(edit(candidate) for edit in edits):
                return False
            tidy(candidate, kept=_dead(self.best))
            data = dumps(candidate)
        except TosakitError:
            return False
        if data in self.seen:
            return False
        self.seen[data] = None
        if new_errors(self.original, candidate):
            return False
        self.tried += 1
        self.progress(self.tried, self.best.operator_count)
        if not self.fails(candidate):
            return False
        self.best = candidate
        return True

    # ---------------------------------------------------------------- passes
    def dead_code(self) -> bool:
        """Drop all that no output needs; a fault may be about just that, so it is tried like anything else."""
        return bool(_dead(self.best)) and self.attempt(_prune)

    def bodies(self) -> bool:
        """Make the body of a region the whole program, with the regions that it runs itself."""
        return any(self.attempt(_alone(region)) for region in range(len(self.best.regions) - 1, 0, -1))

    def outputs(self) -> bool:
        """Keep one output alone, or leave out one after the other."""
        count = len(self.best.main.outputs)
        if count < 2:
            return False
        if any(self.attempt(_keep_outputs([index])) for index in range(count)):
            return True
        found = False
        for index in reversed(range(count)):
            kept = [other for other in range(len(self.best.main.outputs)) if other != index]
            found |= bool(kept) and self.attempt(_keep_outputs(kept))
        return found

    def inner_results(self) -> bool:
        """Let the program end at what an operator inside gives, the first that will do, as by bisection."""
        found, first = False, 0
        while first < len(_computed(self.best.main)) - 1:
            middle = (first + len(_computed(self.best.main)) - 1) // 2
            if self.attempt(_end_at(middle)):
                found = True
            else:
                first = middle + 1
        return found

    def operators(self) -> bool:
        """Cut out runs of operators, half of all at first, then shorter ones down to single operators."""
        found, length = False, max(len(_computed(self.best.main)) // 2, 1)
        while length:
            end = len(_computed(self.best.main))
            while end > 0:
                start = max(end - length, 0)
                found |= self.attempt(_cut(start, end))
                end = min(start, len(_computed(self.best.main)))
            length //= 2
        return found

    def bypasses(self) -> bool:
        """Let the readers of a result take an operand of its type, in every block."""
        found = False
        for block in range(len(list(self.best.blocks))):
            index = len(_computed(_block(self.best, block))) - 1
            while index >= 0:
                found |= self.attempt(_bypass(block, index))
                index = min(index, len(_computed(_block(self.best, block)))) - 1
        return found

    def constants(self) -> bool:
        """Make constants all zero, all one, or all their first value."""
        found = False
        for block in range(len(list(self.best.blocks))):
            for index in range(len(_constants(_block(self.best, block)))):
                found |= any(self.attempt(_refill(block, index, choice)) for choice in range(3))
        return found


# ---------------------------------------------------------------- edits
def _block(program: Program, index: int) -> Graph:
    return list(program.blocks)[index]


def _computed(graph: Graph) -> list[AnyOp]:
    return [op for op in graph.ops if not isinstance(op.attrs, ops.Const | ops.ConstShape)]


def _constants(graph: Graph) -> list[AnyOp]:
    return [op for op in graph.ops if isinstance(op.attrs, ops.Const)]


def _keep_outputs(kept: list[int]) -> Edit:
    def edit(program: Program) -> bool:
        outputs = program.main.outputs
        program.main.set_outputs([outputs[index] for index in kept if index < len(outputs)])
        return len(kept) < len(outputs)

    return edit


def _alone(region: int) -> Edit:
    """Put a region in the place of the first, under its name."""

    def edit(program: Program) -> bool:
        first, body = program.regions[0], program.regions.pop(region)
        if not body.blocks:
            return False
        body.blocks[0].name = program.main.name
        program.regions[0] = Region(first.name, body.blocks)
        return True

    return edit


def _end_at(index: int) -> Edit:
    """Make the results of an operator the only outputs."""

    def edit(program: Program) -> bool:
        graph = program.main
        results = [t for t in _computed(graph)[index].outputs if t.dtype != DType.SHAPE and not t.extras.variable]
        if not results or list(graph.outputs) == results:
            return False
        graph.set_outputs(results)
        return _prune(program)

    return edit


def _cut(start: int, end: int) -> Edit:
    """Replace what the operators from ``start`` to ``end`` give to others by new inputs."""

    def edit(program: Program) -> bool:
        graph = program.main
        gone = dict.fromkeys(_computed(graph)[start:end])
        needed = [t for op in gone for t in op.outputs if any(user not in gone for user in t.users)]
        if any(t.dtype == DType.SHAPE or t.extras.variable for op in gone for t in op.outputs):
            return False
        outputs = [t for t in graph.outputs if t not in needed]
        graph.set_outputs(outputs if outputs else graph.outputs)
        fresh = []
        for tensor in needed:
            if tensor.is_used:
                twin = graph.add_tensor(Tensor(tensor.name, tensor.dtype, tensor.shape, extras=tensor.extras))
                graph.replace_uses(tensor, twin, keep=gone)
                fresh.append(twin)
        graph.set_inputs([*graph.inputs, *fresh])
        for op in reversed(gone):
            graph.erase(op)
        return bool(gone)

    return edit


def _bypass(block: int, index: int) -> Edit:
    def edit(program: Program) -> bool:
        graph = _block(program, block)
        computed = _computed(graph)
        if index >= len(computed) or len(computed[index].outputs) != 1:
            return False
        op = computed[index]
        result = op.output
        for operand in op.inputs:
            if (operand.dtype, operand.shape) == (result.dtype, result.shape) and not operand.extras.variable:
                graph.replace_uses(result, operand)
                return True
        return False

    return edit


def _simpler(array: Array) -> list[Array]:
    """Uniform arrays that are simpler: all zero, all one, all the first value; nothing for all zero."""
    flat = array.reshape(-1)
    candidates = [np.zeros_like(flat), np.ones_like(flat), np.full_like(flat, flat[0])] if flat.size else []
    place = next((at for at, candidate in enumerate(candidates) if np.array_equal(candidate, flat)), len(candidates))
    return candidates[:place]


def _refill(block: int, index: int, choice: int) -> Edit:
    """Put the ``choice``-th simpler array in the place of a constant."""

    def edit(program: Program) -> bool:
        graph = _block(program, block)
        constants = _constants(graph)
        old = constants[index].output
        if old.dtype not in BITS or not old.data or choice >= len(simpler := _simpler(old.values())):
            return False
        data = encode(simpler[choice], old.dtype)
        made = graph.add_op(Op(ops.Const(), (), (Tensor(old.name, old.dtype, old.shape, data),)), like=constants[index])
        graph.replace_uses(old, made.output)
        graph.erase(constants[index])
        return True

    return edit


def _dead(program: Program) -> dict[tuple[int, str], None]:
    """Operators none of whose results is read, by the number of their block and their first result."""
    return {
        (number, op.output.name): None
        for number, block in enumerate(program.blocks)
        for op in block.ops
        if op.outputs and not op.is_stateful and not any(t.is_used for t in op.outputs)
    }


def _prune(program: Program) -> bool:
    return any([block.prune(reversed(block.ops)) for block in program.blocks])


def tidy(program: Program, kept: Container[tuple[int, str]]) -> None:
    """Drop what nothing needs any more: dead operators but those ``kept``, unread inputs, outputs that are inputs."""
    main = program.main
    computed = [t for t in main.outputs if t.producer is not main.entry]
    if computed:
        main.set_outputs(computed)
    for number, block in enumerate(program.blocks):
        block.prune([op for op in reversed(block.ops) if op.outputs and (number, op.output.name) not in kept])
    used = [t for t in dict.fromkeys(main.inputs) if t.is_used]
    unused = [t for t in dict.fromkeys(main.inputs) if not t.is_used]
    main.set_inputs(used)
    for tensor in unused:
        main.drop_tensor(tensor)
    _drop_regions(program)


def _drop_regions(program: Program) -> None:
    reached: dict[str | None, None] = {program.regions[0].name: None}
    stack = [program.regions[0]]
    while stack:
        for name in _named(stack.pop().blocks):
            if name not in reached:
                reached[name] = None
                stack += [region for region in program.regions if region.name == name]
    program.regions[:] = [region for region in program.regions if region.name in reached]


def _named(blocks: list[Graph]) -> Iterator[str]:
    for block in blocks:
        for op in block.ops:
            if not isinstance(op.attrs, Foreign):
                yield from region_names(op)
