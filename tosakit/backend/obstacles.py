"""Everything that the target tables have against a program."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tosakit.backend.hazards import KNOWN_ISSUES
from tosakit.backend.limits import LIMITS, UNWRITTEN_OUTPUT
from tosakit.backend.obstacle import ANY, Entry, Obstacle
from tosakit.backend.targets import family
from tosakit.engine.rule import describe
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph
from tosakit.ir.operator import Exit
from tosakit.ir.program import Program
from tosakit.numerics.intervals import Intervals
from tosakit.numerics.program_intervals import program_intervals
from tosakit.spec.memory import Memory
from tosakit.spec.target import Target
from tosakit.spec.verify import walk

TABLE: tuple[Entry, ...] = (*LIMITS, *KNOWN_ISSUES)
"""All entries: what is refused, then what is miscompiled or suspected to be."""


def find_obstacles(program: Program, accelerator: str, entries: Sequence[Entry] = TABLE) -> list[Obstacle]:
    """Everything in ``program`` that Vela refuses or miscompiles for this accelerator, in program order.

    O(size of the program). Operators that no output depends on are no obstacle, Vela drops them; neither are operators
    that are not as TOSA has them, the verifier speaks about those. What is refused has one reason, and is not
    miscompiled besides.
    """
    chosen: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if family(accelerator) in entry.families:
            for name in entry.operators:
                chosen[name].append(entry)
    intervals = program_intervals(program)
    wrong: dict[tuple[Graph | None, int | None], None] = {}
    for located in walk(program, Target(), Memory()):
        if located.diagnostic.severity == "error":
            wrong[located.block, located.diagnostic.op_index] = None
    found: list[Obstacle] = []
    for block in program.blocks:
        asked = [(i, op) for i, op in enumerate(block.ops) if (block, i) not in wrong]
        found.extend(_in_block(block, asked, chosen, intervals))
    return [*found, *_outputs(program.main)]


def _in_block(
    block: Graph, ops: Sequence[tuple[int, AnyOp]], chosen: dict[str, list[Entry]], intervals: Intervals
) -> Iterator[Obstacle]:
    live = _live(block)
    name = block.name or ""
    for index, op in ops:
        refused = False
        for entry in (*chosen[op.name], *chosen[ANY[0]]) if op in live else ():
            message = None if refused else entry.find(op, intervals)
            if message is not None:
                refused = refused or entry.kind == "refused"
                yield Obstacle(entry, name, index, describe(op), tuple(t.name for t in op.outputs), message)


def _outputs(block: Graph) -> Iterator[Obstacle]:
    for tensor in dict.fromkeys(block.outputs):
        if tensor.producer is block.entry or tensor.dtype == DType.SHAPE:
            what = "a shape" if tensor.dtype == DType.SHAPE else "an input of the graph, which no operator gives"
            message = f"the output is {what}; Vela refuses that"
            yield Obstacle(UNWRITTEN_OUTPUT, block.name or "", None, f'output "{tensor.name}"', (tensor.name,), message)


def _live(block: Graph) -> dict[AnyOp, None]:
    """Operators that an output depends on, and those with an effect."""
    todo = [t.producer for t in block.outputs] + [op for op in block.ops if _has_effect(op)]
    found: dict[AnyOp, None] = {}
    while todo:
        op = todo.pop()
        if op is not None and op is not block.entry and op not in found and not isinstance(op.attrs, Exit):
            found[op] = None
            todo.extend(t.producer for t in op.inputs)
    return found


def _has_effect(op: AnyOp) -> bool:
    """True for what gives nothing, or writes a variable."""
    return not op.outputs or any(t.extras.variable for t in op.outputs)
