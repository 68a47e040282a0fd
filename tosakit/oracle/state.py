"""Programs with variables, step by step: each step's state comes from the step before.

The reference model has no variables, so every step of the original is a program of its own, in which a read gives what
was last written, or the state as a constant, and the values written last are outputs. A program whose variables became
inputs and outputs is fed its own outputs. Both start from the initial values (zeros where there are none).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tosakit.engine.rule import StateLink
from tosakit.errors import Unsupported
from tosakit.ir import ops
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.program import Program, Region
from tosakit.ir.types import Array, encode, numpy_dtype
from tosakit.oracle.refmodel import RunResult, Status
from tosakit.spec.variables import meaning

Run = Callable[[Program, Sequence[Array]], RunResult]
"""One run of a program."""

State = Mapping[str, Array]
"""Values of the variables, by the names of their tensors."""


def initial_state(program: Program, links: Sequence[StateLink]) -> dict[str, Array]:
    """What the linked variables of the original hold before the first run."""
    cells = [program.main.tensor(link.variable) for link in links]
    return {
        cell.name: np.zeros(cell.shape, numpy_dtype(cell.dtype)) if cell.data is None else cell.values()
        for cell in cells
    }


def run_original(
    program: Program, links: Sequence[StateLink], vectors: Sequence[Sequence[Array]], run: Run
) -> list[RunResult]:
    """One step per vector; outputs are those of the program, then the values of the linked variables after the step.

    After a step that is not valid the state is the initial one again.
    """
    results = []
    state = initial_state(program, links)
    for vector in vectors:
        result = run(one_step(program, state), vector)
        results.append(result)
        if result.status is Status.VALID:
            state = dict(zip(state, result.outputs[len(program.main.outputs) :], strict=True))
        else:
            state = initial_state(program, links)
    return results


def one_step(program: Program, state: State) -> Program:
    """The program without variables for one run from ``state``, whose values after it are further outputs.

    Raises Unsupported where variables are used in other blocks than the first.
    """
    main = program.main
    for block in program.blocks:
        if block is not main and any(t.extras.variable for t in block.tensors):
            raise Unsupported(f'block "{block.name}" has variables; only those of the first block can be followed')
    graph = Graph(main.name)
    now: dict[Tensor, Tensor] = {t: graph.add_tensor(_twin(t)) for t in main.inputs}
    graph.set_inputs(list(now.values()))
    cells = [t for t in main.tensors if t.extras.variable]
    for cell in cells:
        value = state.get(cell.name)
        data = cell.data if value is None else encode(value, cell.dtype)
        if data is not None:
            now[cell] = graph.add_op(Op(ops.Const(), (), (_twin(cell, data),))).output
    for op in main.ops:
        acts = meaning(op.attrs)
        if isinstance(acts, ops.VariableRead | ops.VariableWrite):
            now[op.output] = now[op.inputs[0]]
        elif not isinstance(acts, ops.Variable):
            results = [_twin(t, t.data) for t in op.outputs]
            now.update(zip(op.outputs, results, strict=True))
            graph.add_op(Op(op.attrs, [now[t] for t in op.inputs], results))
    after = [now[main.tensor(name)] for name in state]
    named = [graph.add_op(Op(ops.Identity(), (t,), (Tensor("after", t.dtype, t.shape),))).output for t in after]
    graph.set_outputs([*(now[t] for t in main.outputs), *named])
    first, *others = program.regions
    regions = [Region(first.name, [graph, *first.blocks[1:]]), *others]
    return Program(regions, program.version, program.software_version, program.compatibility)


def _twin(tensor: Tensor, data: memoryview | bytes | None = None) -> Tensor:
    """The tensor for another graph; a variable's twin holds a value like any other."""
    extras = replace(tensor.extras, variable=False, variable_name=None)
    return Tensor(tensor.name, tensor.dtype, tensor.shape, data, extras=extras, table=tensor.table)


def run_rewritten(
    program: Program,
    links: Sequence[StateLink],
    vectors: Sequence[Sequence[Array] | None],
    run: Run,
) -> list[RunResult]:
    """One step per vector, fed its own outputs; results as those of :func:`run_original`.

    None among ``vectors``, where the original was not valid, runs nothing and starts again. The first step that is not
    valid is the last.
    """
    inputs = [t.name for t in program.main.inputs]
    outputs = [t.name for t in program.main.outputs]
    sources = [link.output for link in links]
    plain = [name for name in inputs if name not in [link.input for link in links]]
    results: list[RunResult] = []
    fed = _first_fed(program, links)
    for vector in vectors:
        if vector is None:
            fed = _first_fed(program, links)
            continue
        given = {**dict(zip(plain, vector, strict=True)), **fed}
        result = run(program, [given[name] for name in inputs])
        if result.status is not Status.VALID:
            return [*results, result]
        found = dict(zip(outputs, result.outputs, strict=True))
        fed = {link.input: found[link.output] for link in links}
        own = [array for name, array in zip(outputs, result.outputs, strict=True) if name not in sources]
        results.append(RunResult(Status.VALID, (*own, *(fed[link.input] for link in links)), result.message))
    return results


def _first_fed(program: Program, links: Sequence[StateLink]) -> dict[str, Array]:
    types = {t.name: t for t in program.main.inputs}
    return {
        link.input: np.zeros(types[link.input].shape, numpy_dtype(types[link.input].dtype))
        if link.initial is None
        else link.initial
        for link in links
    }
