# ruff: noqa: SLF001  (positions of operators and def-use are read here and written by tosakit.ir.graph)
"""Program order: topological, earliest in file order first; stateful operators keep their order among themselves."""

import heapq
from collections.abc import Sequence

from tosakit.errors import InvalidModel
from tosakit.ir.node import AnyOp

CYCLE_SHOWN = 12
"""Operators of a cycle that an error message spells out."""


def is_topological(ops: Sequence[AnyOp]) -> bool:
    """Whether every operator comes after the producers of its operands, going by their positions."""
    for op in ops:
        position = op._position
        for operand in op._inputs:
            producer = operand._producer
            if producer is not None and producer._position >= position:
                return False
    return True


def topological(in_file_order: Sequence[AnyOp], exit_op: AnyOp, block: str) -> list[AnyOp]:
    """Kahn's algorithm, earliest in file order first; stateful operators keep their order among themselves.

    Raises InvalidModel naming a cycle of ``block``.
    """
    rank = {op: index for index, op in enumerate(in_file_order)}
    waiting: dict[AnyOp, int] = {}
    followers: dict[AnyOp, AnyOp] = {}
    previous: AnyOp | None = None
    for op in in_file_order:
        waiting[op] = len({id(p) for t in op._inputs if (p := t._producer) in rank})
        if op.is_stateful:
            if previous is not None:
                followers[previous] = op
                waiting[op] += 1
            previous = op
    ready = [rank[op] for op in in_file_order if not waiting[op]]
    result: list[AnyOp] = []
    while ready:
        op = in_file_order[heapq.heappop(ready)]
        result.append(op)
        readers = dict.fromkeys(u for t in op._outputs if t._producer is op for u in t.users if u is not exit_op)
        for reader in (*readers, *((followers[op],) if op in followers else ())):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, rank[reader])
    if len(result) != len(in_file_order):
        raise InvalidModel(f'block "{block}" has a cycle: {_cycle(waiting, followers)}')
    return result


def _cycle(waiting: dict[AnyOp, int], followers: dict[AnyOp, AnyOp]) -> str:
    """One cycle among the operators that never became ready, as text."""
    before = {after: first for first, after in followers.items()}
    op = next(op for op, count in waiting.items() if count)
    path: dict[AnyOp, None] = {}
    while op not in path:
        path[op] = None
        candidates = [p for t in op._inputs if (p := t._producer) is not None and waiting.get(p)]
        if op in before and waiting.get(before[op]):
            candidates.append(before[op])
        op = candidates[0]
    walked = list(path)
    loop = walked[walked.index(op) :][::-1]
    more = [f"... {len(loop) - CYCLE_SHOWN} more"] if len(loop) > CYCLE_SHOWN else []
    return " -> ".join([*[repr(o) for o in loop[:CYCLE_SHOWN]], *more, repr(loop[0])])
