"""Change programs a little: constants, attributes, shapes, wiring, quantisation parameters, or cut a piece out.

A mutation gives a new program, or None where it found nothing to do or the result would be illegal in a way that the
original is not. Shapes follow from what was changed, by the verifier's inference.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from enum import IntEnum
from typing import Any

import numpy as np

from tosakit.errors import InvalidModel, TosakitError
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program, Region
from tosakit.ir.types import INTEGER_RANGES, Array, QuantParams, encode
from tosakit.oracle.contracts import extract
from tosakit.spec.inference import result_types
from tosakit.testing import values
from tosakit.testing.choices import Choices
from tosakit.testing.properties import new_errors

Mutation = Callable[[Choices, Program], Program | None]

PIECE = 14
"""Operators of a piece that is cut out, at most, constants apart."""

_CONSTANTS = (ops.Const, ops.ConstShape)


def mutated(choices: Choices, program: Program, *, most: int = 4) -> Program:
    """``program`` after one to ``most`` mutations that worked; a large one is cut down to a piece first."""
    best = program
    if len(_computed(program.main)) > PIECE:
        best = piece(choices, program) or program
    for _ in range(choices.integer(1, most)):
        try:
            candidate = choices.pick(MUTATIONS)(choices, best)
            if candidate is not None and not new_errors(best, candidate):
                dumps(candidate)
                best = candidate
        except TosakitError:
            continue
    return best


def piece(choices: Choices, program: Program) -> Program | None:
    """Some result and up to :data:`PIECE` operators that it comes from, as a program of its own.

    None where control flow or state is among them, which need the rest of their program.
    """
    computed = [op for op in _computed(program.main) if op.outputs and op.output.dtype != DType.SHAPE]
    if not computed:
        return None
    last = choices.pick(computed)
    limit = choices.integer(1, PIECE)
    taken: dict[AnyOp, None] = {}
    todo = [last]
    while todo and len(taken) < limit:
        op = todo.pop(0)
        if op in taken or op is program.main.entry or isinstance(op.attrs, _CONSTANTS):
            continue
        taken[op] = None
        todo += [t.producer for t in op.inputs if t.producer is not None]
    outside = [t for op in taken for t in op.outputs if any(user not in taken for user in t.users) or op is last]
    try:
        cut, _ = extract([op.record for op in taken], [t for t in dict.fromkeys(outside) if t.dtype != DType.SHAPE])
    except InvalidModel:
        return None
    return replace(cut, version=program.version)


def constant(choices: Choices, program: Program) -> Program | None:
    """Other values in one constant: a few of them, all of them, or by one."""
    result = program.clone()
    found = [
        (block, op)
        for block in result.blocks
        for op in block.ops
        if isinstance(op.attrs, ops.Const) and op.output.dtype in INTEGER_RANGES and op.output.data
    ]
    if not found:
        return None
    block, op = choices.pick(found)
    old = op.output
    data = encode(_other_values(choices, old.dtype, np.array(old.values(), np.int64)), old.dtype)
    new = block.add_op(Op(ops.Const(), (), (Tensor(old.name, old.dtype, old.shape, data),)), like=op)
    block.replace_uses(old, new.output)
    return result


def _other_values(choices: Choices, dtype: DType, array: Array) -> Array:
    low, high = values.limits(dtype)
    kind = choices.integer(0, 3)
    if kind == 0:
        return np.clip(array + choices.pick([-1, 1]), low, high)
    if kind == 1:
        return np.asarray(values.values(choices, dtype, array.shape), np.int64)
    flat = array.reshape(-1)
    if flat.size:
        place = choices.integer(0, flat.size - 1)
        flat[place] = choices.pick([low, high, 0, 1, -1, choices.integer(low, high)])
    return flat.reshape(array.shape)


def attribute(choices: Choices, program: Program) -> Program | None:
    """Another value in one attribute of one operator, shapes behind it following."""
    found = [op for op in _computed(program.main) if fields(op.attrs)]
    if not found:
        return None
    op = choices.pick(found)
    field = choices.pick(fields(op.attrs))
    value = _other_value(choices, getattr(op.attrs, field.name))
    return None if value is None else retyped(program, attributes={op: replace(op.attrs, **{field.name: value})})


def _other_value(choices: Choices, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, IntEnum):
        return choices.pick([member for member in type(value) if member])
    if isinstance(value, int):
        return max(value + choices.pick([-1, 1]), 0)
    if isinstance(value, tuple) and value:
        place = choices.integer(0, len(value) - 1)
        return tuple(number + (choices.pick([-1, 1]) if at == place else 0) for at, number in enumerate(value))
    return None


def shape(choices: Choices, program: Program) -> Program | None:
    """Another size on one axis of one input, shapes behind it following."""
    found = [t for t in dict.fromkeys(program.main.inputs) if t.shape]
    if not found:
        return None
    tensor = choices.pick(found)
    axis = choices.integer(0, len(tensor.shape) - 1)
    size = choices.pick([1, 2, 3, max(tensor.shape[axis] - 1, 1), tensor.shape[axis] + 1])
    return retyped(program, shapes={tensor: (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])})


def operand(choices: Choices, program: Program) -> Program | None:
    """Another tensor of the same type as one operand of one operator, from further up."""
    result = program.clone()
    graph = result.main
    computed = _computed(graph)
    if not computed:
        return None
    op = choices.pick(computed)
    slots = [slot for slot, t in enumerate(op.inputs) if t.dtype != DType.SHAPE and not t.extras.variable]
    if not slots:
        return None
    slot = choices.pick(slots)
    old = op.inputs[slot]
    above = [*graph.inputs, *(t for other in graph.ops[: graph.ops.index(op)] for t in other.outputs)]
    like = [t for t in above if (t.dtype, t.shape) == (old.dtype, old.shape) and t is not old]
    if not like:
        return None
    graph.set_operand(op, slot, choices.pick(like))
    return result


def output(choices: Choices, program: Program) -> Program | None:
    """One more output, or one less."""
    result = program.clone()
    graph = result.main
    inner = [t for op in _computed(graph) for t in op.outputs if t.dtype != DType.SHAPE and not t.extras.variable]
    inner = [t for t in inner if t not in graph.outputs]
    if inner and choices.flag():
        graph.set_outputs([*graph.outputs, choices.pick(inner)])
    elif len(graph.outputs) > 1:
        gone = choices.integer(0, len(graph.outputs) - 1)
        graph.set_outputs([t for index, t in enumerate(graph.outputs) if index != gone])
    else:
        return None
    return result


def quantization(choices: Choices, program: Program) -> Program | None:
    """Quantisation parameters on every INT8, INT16 and INT32 tensor, of scales that are powers of two or not."""
    result = program.clone()
    for block in result.blocks:
        for tensor in block.tensors:
            if tensor.dtype in (DType.INT8, DType.INT16, DType.INT32) and tensor.extras.variable is False:
                scale = choices.pick([2.0**-7, 2.0**-12, 0.013, 0.00037]) * choices.pick([1.0, 1.0, 3.7])
                block.annotate(tensor, QuantParams((scale,), values.zero_point(choices, tensor.dtype)))
    return result


MUTATIONS: tuple[Mutation, ...] = (
    *(constant, constant, constant, attribute, attribute),
    *(shape, operand, operand, output, quantization, piece),
)


def _computed(graph: Graph) -> list[AnyOp]:
    return [op for op in graph.ops if not isinstance(op.attrs, _CONSTANTS)]


def retyped(
    program: Program,
    *,
    attributes: Mapping[AnyOp, Attributes] | None = None,
    shapes: Mapping[Tensor, tuple[int, ...]] | None = None,
) -> Program:
    """The program with other attributes and input shapes in its main block, every result's shape inferred anew.

    Raises InvalidArgument where an operator does not take what it is given now and for control flow, InvalidModel for
    state.
    """
    main, graph = program.main, Graph(program.main.name)
    twins: dict[Tensor, Tensor] = {}
    for tensor in dict.fromkeys(main.inputs):
        size = (shapes or {}).get(tensor, tensor.shape)
        twins[tensor] = graph.add_tensor(Tensor(tensor.name, tensor.dtype, size, quantization=tensor.quantization))
    graph.set_inputs([twins[t] for t in main.inputs])
    for op in main.ops:
        attrs = (attributes or {}).get(op, op.attrs)
        if any(t not in twins for t in op.inputs):
            raise InvalidModel(f"{op.name} reads state, whose shape does not follow from the inputs")
        operands = [twins[t] for t in op.inputs]
        types = [(t.dtype, t.shape) for t in op.outputs]
        if not isinstance(attrs, _CONSTANTS):
            found = result_types(attrs, operands, minor=program.version.minor)
            types = [
                (known.dtype or dtype, tuple(size or -1 for size in known.shape or ()))
                for known, (dtype, _) in zip(found, types, strict=True)
            ]
        results = [
            Tensor(old.name, dtype, size, old.data, quantization=old.quantization, table=old.table)
            for old, (dtype, size) in zip(op.outputs, types, strict=True)
        ]
        made = graph.add_op(Op(attrs, operands, results, location=op.location))
        twins.update(zip(op.outputs, made.outputs, strict=True))
    graph.set_outputs([twins[t] for t in main.outputs])
    first = Region(program.regions[0].name, [graph, *program.regions[0].blocks[1:]])
    return replace(program, regions=[first, *program.regions[1:]])
