"""``check``: everything that is wrong with a program, for a target or for none, and what the program needs."""

from collections.abc import Iterable
from dataclasses import dataclass

from tosakit._gc import collector_paused
from tosakit.ir.graph import AnyOp, Graph
from tosakit.ir.program import Program
from tosakit.ir.text import format_operator
from tosakit.numerics.program_intervals import assumptions
from tosakit.spec.coarse import RangeCheck
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.levels import CODES
from tosakit.spec.memory import Memory
from tosakit.spec.target import VERSIONS, Needs, Target, least
from tosakit.spec.verify import Located, locate, walk

HOPS = 2
"""How far the neighbourhood of an operator reaches."""


_LEVEL_CODES = [code for code in CODES.values() if code != "WrongRank"]
TARGET_CODES = ("MissingProfile", "MissingExtension", "NonConstantOperand", *_LEVEL_CODES)
"""Errors that leave no doubt what the values of an operator are; after others nobody asks.

WrongRank is not only a level's: a shift of four axes has it too.
"""


@dataclass(frozen=True)
class Report:
    """What :func:`examine` found: diagnostics with the blocks they are about, and what the program needs."""

    located: tuple[Located, ...]
    needs: Needs

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The diagnostics, in program order."""
        return [located.diagnostic for located in self.located]


def check(
    program: Program,
    *,
    profiles: Iterable[str] | None = None,
    extensions: Iterable[str] | None = None,
    level: str | None = None,
    spec: str | None = None,
) -> list[Diagnostic]:
    """Everything wrong with ``program``, block by block in program order. Raises for no program that loads.

    ``profiles`` ("pro-int", "pro-fp"), ``extensions`` ("int16", ...), ``level`` ("8k", "none") and ``spec`` ("1.0",
    "1.1") say what it may use; without profiles and extensions it may use any. With only one of the two given, every
    profile, or no extension, is added. Errors are what the specification or the target forbids, warnings what is
    unusual, what needs an extension, and what interval analysis cannot exclude. Raises InvalidArgument for unknown
    names.
    """
    return examine(program, Target.of(profiles, extensions, level, spec)).diagnostics


def needs(program: Program) -> Needs:
    """The least profiles, extensions, level and version that have all that a program uses."""
    memory = Memory()
    for _ in walk(program, Target(), memory):
        pass
    return _needs(memory)


@collector_paused()
def examine(program: Program, target: Target) -> Report:
    """Everything wrong with ``program`` for a target, and what it needs."""
    memory = Memory()
    located: list[Located] = []
    failed: dict[Graph | None, None] = {}
    for found in walk(program, target, memory):
        located.append(found)
        if found.diagnostic.severity == "error" and found.diagnostic.code not in TARGET_CODES:
            failed[found.block] = None
    judged = {id(block): block for block in program.blocks if block not in failed}
    located = [found for found in located if id(found.block) not in judged or found.diagnostic.code != "TableSlope"]
    ranges = RangeCheck(memory, {} if failed else assumptions(program))
    for block in judged.values():
        for index, op, finding in ranges.findings(memory.places.get(block, ())):
            located.append(locate(block, index, op, finding))
    order = {id(block): index for index, block in enumerate(program.blocks)}
    located.sort(key=lambda found: _place(found, order))
    return Report(tuple(located), _needs(memory))


def _place(found: Located, order: dict[int, int]) -> tuple[int, int]:
    index = found.diagnostic.op_index
    return order.get(id(found.block), -1), -1 if index is None else index


def _needs(memory: Memory) -> Needs:
    return Needs(least(memory.requirements), "none" if memory.beyond else "8K", VERSIONS[memory.minor])


def neighbourhood(block: Graph, index: int) -> list[str]:
    """The operator at ``index`` and what is at most two steps before or behind it, as text, in program order.

    A line starts with ``>`` for the operator itself. Constants are shown only where the operator itself reads them.
    """
    operators = block.ops
    centre = operators[index]
    near: dict[AnyOp, None] = {centre: None}
    edge = [centre]
    for hop in range(HOPS):
        reached: list[AnyOp] = []
        for op in edge:
            before = [t.producer for t in op.inputs if t.producer is not None]
            behind = [user for tensor in op.outputs for user in tensor.users]
            for other in (*before, *behind):
                constant = not other.inputs and other in before
                if other not in near and other not in (block.entry, block.exit) and (hop == 0 or not constant):
                    near[other] = None
                    reached.append(other)
        edge = [op for op in reached if op.inputs]
    return [("> " if op is centre else "  ") + format_operator(op) for op in operators if op in near]
