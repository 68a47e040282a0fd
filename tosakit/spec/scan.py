"""What is wrong with the wiring of a file that cannot be loaded, or whose operators had to be sorted.

A program in memory cannot hold a name twice, two producers of a tensor or a cycle, so loading stops at the first of
these. This scan reads the file's tables as they are, with the decoder that tosa-tools ships, and reports all of them.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tosakit.ir import ops
from tosakit.spec.diagnostics import Diagnostic

_UNREADABLE = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError)
"""What flatbuffers accessors raise on bytes that are not the table they expect."""

_SHOWN = 6
"""Operators of a cycle that a message spells out."""


def scan(data: bytes) -> list[Diagnostic]:
    """Faults of wiring in a TOSA flatbuffer; as far as it can be read, nothing where it cannot be."""
    found: list[Diagnostic] = []
    try:
        from tosa.TosaGraph import TosaGraph  # type: ignore[import-untyped]

        graph = TosaGraph.GetRootAs(data, 0)
        for region in map(graph.Regions, range(graph.RegionsLength())):
            for block in map(region.Blocks, range(region.BlocksLength())):
                found.extend(_block(block))
    except _UNREADABLE:
        pass
    return found


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _names(length: int, entry: Any) -> list[str]:
    return [_text(entry(index)) for index in range(length)]


def _block(block: Any) -> Iterator[Diagnostic]:
    name = _text(block.Name())
    tensors = [_text(block.Tensors(i).Name()) for i in range(block.TensorsLength())]
    shapes = [_text(block.Shapes(i).Name()) for i in range(block.ShapesLength())]
    yield from _declarations(name, tensors, shapes)
    variables = {_text(t.Name()): None for t in map(block.Tensors, range(block.TensorsLength())) if t.Variable()}
    operators = [block.Operators(i) for i in range(block.OperatorsLength())]
    kinds = [ops.BY_NUMBER[op.Op()].NAME if op.Op() in ops.BY_NUMBER else f"OP{op.Op()}" for op in operators]
    reads = [_names(op.InputsLength(), op.Inputs) for op in operators]
    gives = [_names(op.OutputsLength(), op.Outputs) for op in operators]
    made: dict[str, int] = {}
    for tensor in _names(block.InputsLength(), block.Inputs):
        made[tensor] = -1
    for index, results in enumerate(gives):
        for tensor in results:
            if tensor in made and tensor not in variables:
                first = made[tensor]
                other = "an input of the block" if first < 0 else f"the result of operator #{first} {kinds[first]}"
                message = f"the result is also {other}"
                yield Diagnostic("DuplicateProducer", "error", name, index, kinds[index], (tensor,), message)
            else:
                made[tensor] = index
    yield from _order(name, kinds, reads, made, variables)


def _declarations(block: str, tensors: Sequence[str], shapes: Sequence[str]) -> Iterator[Diagnostic]:
    for what, names in (("tensor", tensors), ("shape", shapes)):
        seen: dict[str, None] = {}
        for name in names:
            if name in seen:
                message = f"two {what}s are declared under one name"
                yield Diagnostic("DuplicateTensor", "error", block, None, None, (name,), message)
            seen[name] = None
    declared = dict.fromkeys(tensors)
    for name in dict.fromkeys(shapes):
        if name in declared:
            message = "a tensor and a shape are declared under one name"
            yield Diagnostic("NameClash", "error", block, None, None, (name,), message)


def _order(
    block: str,
    kinds: Sequence[str],
    reads: Sequence[Sequence[str]],
    made: Mapping[str, int],
    variables: Mapping[str, None],
) -> Iterator[Diagnostic]:
    """Operators in a cycle, and operators that read what only a later one gives."""
    feeders = [
        [made[name] for name in dict.fromkeys(names) if made.get(name, -1) >= 0 and name not in variables]
        for names in reads
    ]
    looped = _looped(feeders)
    if looped:
        path = _cycle(feeders, looped)
        shown = " -> ".join(f"#{index} {kinds[index]}" for index in path[:_SHOWN]) + (" ..." * (len(path) > _SHOWN))
        message = f"operators depend on each other in a cycle: {shown}"
        yield Diagnostic("Cycle", "error", block, path[0], kinds[path[0]], (), message)
    for index, names in enumerate(reads):
        for name in dict.fromkeys(names):
            source = made.get(name, -1)
            if source > index and name not in variables and not (index in looped and source in looped):
                message = f"the operand is given only later, by operator #{source} {kinds[source]}"
                yield Diagnostic("OperatorOrder", "error", block, index, kinds[index], (name,), message)


def _looped(feeders: Sequence[Sequence[int]]) -> dict[int, None]:
    """Operators that never become ready, less those that only read from a cycle. Linear."""
    left = dict.fromkeys(range(len(feeders)))
    readers: list[list[int]] = [[] for _ in feeders]
    for index, sources in enumerate(feeders):
        for source in sources:
            readers[source].append(index)
    for before, behind in ((feeders, readers), (readers, feeders)):
        waiting = [sum(other in left for other in before[index]) for index in range(len(feeders))]
        ready = [index for index in left if not waiting[index]]
        while ready:
            index = ready.pop()
            if index not in left:
                continue
            del left[index]
            for other in behind[index]:
                waiting[other] -= 1
                if not waiting[other] and other in left:
                    ready.append(other)
    return left


def _cycle(feeders: Sequence[Sequence[int]], looped: Mapping[int, None]) -> list[int]:
    """One cycle, in the direction of the data, starting and ending with the same operator."""
    path: dict[int, None] = {}
    index = next(iter(looped))
    while index not in path:
        path[index] = None
        index = next(source for source in feeders[index] if source in looped)
    walked = list(path)
    return [index, *walked[walked.index(index) :][::-1]]
