# ruff: noqa: SLF001  (this module shares the storage of tensors, operators and graphs with tosakit.ir.graph)
"""Make whole blocks at once: for readers, which know that what they add is new.

The classes' own constructors and ``Graph.add_op`` check every call; these functions check the same things for all
operators in one pass, at a fraction of the cost. Column arguments have one entry per object.
"""

from collections.abc import Callable, Iterable, KeysView, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from tosakit.errors import InvalidModel
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Data, Graph, Op, Table, Tensor, TensorExtras
from tosakit.ir.operator import Attributes

_new_tensor: Callable[[type[Tensor]], Tensor] = Tensor.__new__
_new_op: Callable[[Any], AnyOp] = Op.__new__


def make_tensors(
    names: list[str],
    dtypes: Iterable[DType],
    shapes: Iterable[tuple[int, ...] | None],
    data: Iterable[Data | None],
    extras: Iterable[TensorExtras],
    table: Table,
) -> list[Tensor]:
    """New tensors of no graph, column by column."""
    tensors = list(map(_new_tensor, repeat(Tensor, len(names))))
    for tensor, name, dtype, shape, content, extra in zip(tensors, names, dtypes, shapes, data, extras, strict=False):
        tensor._name = name
        tensor._dtype = dtype
        tensor._shape = shape
        tensor._data = content
        tensor._extras = extra
        tensor._table = table
        tensor._quantization = tensor._producer = tensor._users = None
    return tensors


def make_ops(
    attrs: Iterable[Attributes],
    inputs: Sequence[tuple[Tensor, ...]],
    outputs: Iterable[tuple[Tensor, ...]],
    locations: Iterable[str | None],
) -> list[AnyOp]:
    """New operators of no graph; they become the producers of their results in :func:`make_graph`."""
    made = list(map(_new_op, repeat(Op, len(inputs))))
    for op, attributes, operands, results, location in zip(made, attrs, inputs, outputs, locations, strict=False):
        op._attrs = attributes
        op._inputs = operands
        op._outputs = results
        op.location = location
        op.origin = None
    return made


def make_graph(
    name: str | None,
    tensors: dict[str, Tensor],
    ops: Sequence[AnyOp],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> Graph:
    """A block of new ``tensors`` (by name; all that the operators touch) and new ``ops``, in file order.

    Raises InvalidModel where a tensor is the result of two operators, or an input is the result of one.
    """
    graph = Graph(name)
    graph._tensors = tensors
    graph._ops = dict.fromkeys(ops)
    early: list[Tensor] = []  # operands that no operator had produced when they were read
    for number, op in enumerate(ops):
        op._id = op._position = number
        for tensor in op._inputs:
            if tensor._producer is None:
                early.append(tensor)
            users = tensor._users
            if users is None:
                tensor._users = op
            elif users is not op:
                tensor._add_user(op)
        for tensor in op._outputs:
            if not tensor._extras.variable:
                if tensor._producer is not None:
                    raise InvalidModel(f'block "{name}": tensor "{tensor._name}" is the result of two operators')
                tensor._producer = op
            elif op._outputs.count(tensor) > 1:
                raise InvalidModel(f'block "{name}": tensor "{tensor._name}" is the result of two operators')
    graph._next_id = len(ops)
    for tensor in inputs:
        if tensor._producer is not None:
            raise InvalidModel(f'block "{name}": input "{tensor._name}" is also made by {tensor._producer.name}')
    in_order = all(tensor._producer is None for tensor in early)
    graph.set_inputs(inputs)
    graph.set_outputs(outputs)
    graph._in_order = in_order
    if in_order:
        graph._set_order(ops)
    return graph


def copy_graph(graph: Graph) -> Graph:
    """An independent copy of a block; see :meth:`Graph.clone`."""
    tensors, ops = list(graph._tensors.values()), graph.ops
    copies = make_tensors(
        list(graph._tensors),
        [tensor._dtype for tensor in tensors],
        [tensor._shape for tensor in tensors],
        [tensor._data for tensor in tensors],
        [tensor._extras for tensor in tensors],
        "tensors",
    )
    for tensor, copy in zip(tensors, copies, strict=True):
        copy._table = tensor._table
        copy._quantization = tensor._quantization
    twins = dict(zip(tensors, copies, strict=True))

    def twins_of(lists: list[tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
        return [tuple([twins[tensor] for tensor in each]) for each in lists]

    attrs, inputs, outputs, locations = op_columns(ops)
    made = make_ops(attrs, twins_of(inputs), twins_of(outputs), locations)
    for op, copied in zip(ops, made, strict=True):
        copied.origin = op.origin
    table = dict(zip(graph._tensors, copies, strict=True))
    return make_graph(graph.graph["name"], table, made, *twins_of([graph.inputs, graph.outputs]))


class TensorColumns(NamedTuple):
    """What files say about tensors, column by column, block after block; ``counts`` is their number in each block."""

    counts: list[int]
    tensors: list[Tensor]
    names: list[str]
    dtypes: list[DType]
    shapes: list[tuple[int, ...] | None]
    data: list[Data | None]
    extras: list[TensorExtras]


def tensor_columns(blocks: Iterable[Graph], table: Table) -> TensorColumns:
    """Take the tensors of one table apart; ``data`` is all that is stored, meaningful or not."""
    by_block = [[t for t in block._tensors.values() if t._table == table] for block in blocks]
    tensors = list(chain.from_iterable(by_block))
    return TensorColumns(
        [len(chosen) for chosen in by_block],
        tensors,
        [t._name for t in tensors],
        [t._dtype for t in tensors],
        [t._shape for t in tensors],
        [t._data for t in tensors],
        [t._extras for t in tensors],
    )


def tensor_names(graph: Graph) -> KeysView[str]:
    """The names of a block's tensors, for questions of membership; each tensor has one of its own."""
    return graph._tensors.keys()


class TypeColumns(NamedTuple):
    """What the tensors of one block are, column by column."""

    tensors: list[Tensor]
    dtypes: list[DType]
    shapes: list[tuple[int, ...]]
    extras: list[TensorExtras]


def type_columns(graph: Graph) -> TypeColumns:
    """Every tensor of a block with its element type, shape and rare fields."""
    tensors = list(graph._tensors.values())
    return TypeColumns(
        tensors,
        [tensor._dtype for tensor in tensors],
        [tensor._shape or () for tensor in tensors],
        [tensor._extras for tensor in tensors],
    )


def unproduced(graph: Graph) -> list[Tensor]:
    """Tensors of a block that neither an operator nor the block's interface gives."""
    return [tensor for tensor in graph._tensors.values() if tensor._producer is None]


class OpColumns(NamedTuple):
    """What files say about operators, column by column."""

    attrs: list[Attributes]
    inputs: list[tuple[Tensor, ...]]
    outputs: list[tuple[Tensor, ...]]
    locations: list[str | None]


def op_columns(ops: Sequence[AnyOp]) -> OpColumns:
    """Take operators apart."""
    return OpColumns(
        [op._attrs for op in ops], [op._inputs for op in ops], [op._outputs for op in ops], [op.location for op in ops]
    )
