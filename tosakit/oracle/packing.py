"""Several input vectors in one run of the reference model: copies of a small program side by side in one block.

A run costs a process, about 10 ms, however little it computes. A pack is valid where every copy is; where it is not,
smaller packs tell which copies are to blame, down to runs of the program alone, so every vector gets the result that a
run of its own would give.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tosakit.errors import TosakitError
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program, Region
from tosakit.ir.types import Array
from tosakit.oracle.cost import cost
from tosakit.oracle.refmodel import ReferenceModel, RunResult, Status

COPIES = 16
"""Copies in a pack at most."""
_COST = 2 * 10**6
"""Cost units (see :mod:`tosakit.oracle.cost`) of a pack at most, some milliseconds of the reference model."""
_NARROWER = 4

_STATE = (ops.Custom, ops.Variable, ops.VariableRead, ops.VariableWrite, Foreign)


def run_packed(
    oracle: ReferenceModel, program: Program, inputs: Sequence[Sequence[Array]], timeout: float
) -> Iterator[RunResult]:
    """The result of ``program`` on each vector of ``inputs``, in order, as :meth:`ReferenceModel.run_many` gives it."""
    yield from _run(oracle, program, inputs, timeout, min(width(program), len(inputs)))


def width(program: Program) -> int:
    """Copies that one run may have: 1 for a program with state, an input listed twice, or much work."""
    main = program.main
    if len(dict.fromkeys(main.inputs)) < len(main.inputs) or not main.inputs or not main.outputs:
        return 1
    if any(isinstance(op.attrs, _STATE) for block in program.blocks for op in block.ops):
        return 1
    if any(tensor.producer is None for tensor in main.outputs):
        return 1
    return max(min(COPIES, _COST // max(cost(program), 1)), 1)


def _run(
    oracle: ReferenceModel, program: Program, inputs: Sequence[Sequence[Array]], timeout: float, copies: int
) -> Iterator[RunResult]:
    if copies < 2:
        yield from oracle.run_many(dumps(program), inputs, timeout=timeout)
        return
    groups = [inputs[first : first + copies] for first in range(0, len(inputs), copies)]
    filled = [[*group, *[group[-1]] * (copies - len(group))] for group in groups]
    arrays = [[array for vector in group for array in vector] for group in filled]
    try:
        packed = oracle.run_many(dumps(pack(program, copies)), arrays, timeout=timeout)
    except TosakitError:  # the program alone says what is wrong with it
        yield from oracle.run_many(dumps(program), inputs, timeout=timeout)
        return
    count = len(program.main.outputs)
    for group, result in zip(groups, packed, strict=True):
        if result.status is Status.VALID:
            parts = [result.outputs[first : first + count] for first in range(0, count * len(group), count)]
            yield from (replace(result, outputs=part) for part in parts)
        else:
            narrower = copies // _NARROWER if result.status is Status.UNPREDICTABLE else 1
            yield from _run(oracle, program, group, timeout, min(narrower, len(group)))


def pack(program: Program, copies: int) -> Program:
    """A program whose main block holds ``copies`` of that of ``program``: all inputs, and all outputs, copy by copy.

    Constants are there once. The other regions are those of ``program``.
    """
    main, graph = program.main, Graph(program.main.name)
    shared: dict[Tensor, Tensor] = {}
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for _ in range(copies):
        twins = dict(shared)
        for tensor in main.inputs:
            twins[tensor] = graph.add_tensor(_twin(tensor))
        inputs += [twins[tensor] for tensor in main.inputs]
        graph.set_inputs(inputs)
        for op in main.ops:
            constant = isinstance(op.attrs, ops.Const | ops.ConstShape)
            if constant and op.output in shared:
                continue
            made = graph.add_op(Op(op.attrs, [twins[t] for t in op.inputs], [_twin(t) for t in op.outputs]))
            twins.update(zip(op.outputs, made.outputs, strict=True))
            if constant and op.output not in main.outputs:
                shared[op.output] = made.output
        outputs += [twins[tensor] for tensor in main.outputs]
    graph.set_outputs(outputs)
    first = Region(program.regions[0].name, [graph, *program.regions[0].blocks[1:]])
    return replace(program, regions=[first, *program.regions[1:]])


def _twin(tensor: Tensor) -> Tensor:
    shape = tensor.shape if tensor.has_shape else None
    return Tensor(tensor.name, tensor.dtype, shape, tensor.stored, extras=tensor.extras, table=tensor.table)
