"""Files that cannot be loaded as they are, each with its code and a legal sibling."""

from collections.abc import Callable
from pathlib import Path

from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.program import Program, Region
from tosakit.ir.types import encode

Build = Callable[[bool], bytes | Path]
F32 = DType.FP32


def chain() -> tuple[Graph, AnyOp, AnyOp]:
    """ABS and then CEIL of an FP32 [2], and a shape that nothing reads."""
    graph = Graph("main")
    x = graph.add_tensor(Tensor("x", F32, (2,)))
    graph.set_inputs([x])
    first: AnyOp = graph.add_op(Op(ops.Abs(), (x,), (Tensor("y", F32, (2,)),)))
    second: AnyOp = graph.add_op(Op(ops.Ceil(), first.outputs, (Tensor("z", F32, (2,)),)))
    shape = Tensor("s", DType.SHAPE, (1,), encode([2], DType.SHAPE), table="shapes")
    graph.add_op(Op(ops.ConstShape(), (), (shape,)))
    graph.set_outputs(second.outputs)
    return graph, first, second


def written(graph: Graph) -> bytes:
    """The block as a file."""
    return dumps(Program([Region("main", [graph])]))


def _unreadable(broken: bool) -> bytes | Path:
    return Path(__file__).with_name("no-such-file.tosa") if broken else written(chain()[0])


def _other_format(broken: bool) -> bytes:
    data = written(chain()[0])
    return data[:4] + b"TFL3" + data[8:] if broken else data


def _duplicate_tensor(broken: bool) -> bytes:
    graph = chain()[0]
    graph.add_tensor(Tensor("other", F32, (2,)))._name = "y" if broken else "other"
    return written(graph)


def _name_clash(broken: bool) -> bytes:
    graph = chain()[0]
    graph.add_tensor(Tensor("other", F32, (2,)))._name = "s" if broken else "other"
    return written(graph)


def _two_producers(broken: bool) -> bytes:
    graph, _first, second = chain()
    if broken:
        extra = graph.add_op(Op(ops.Floor(), graph.inputs, (Tensor("w", F32, (2,)),)))
        extra._outputs = second.outputs
    return written(graph)


def _order(broken: bool) -> bytes:
    graph, first, second = chain()
    if broken:
        first._position, second._position = second._position, first._position
        graph._sorted = (second, first, *(op for op in graph._ops if op not in (first, second)))
    return written(graph)


def _cycle(broken: bool) -> bytes:
    graph, first, second = chain()
    if broken:
        order = graph.ops
        graph.set_operand(first, 0, second.output)
        graph._sorted = order
    return written(graph)


FILES: list[tuple[str, Build, str]] = [
    ("UnreadableFile", _unreadable, "cannot read the file"),
    ("InvalidFile", _other_format, "not a TOSA flatbuffer"),
    ("DuplicateTensor", _duplicate_tensor, "two tensors are declared under one name"),
    ("NameClash", _name_clash, "a tensor and a shape are declared under one name"),
    ("DuplicateProducer", _two_producers, "also the result of operator #1 CEIL"),
    ("OperatorOrder", _order, "given only later, by operator #1 ABS"),
    ("Cycle", _cycle, "#0 ABS -> #1 CEIL -> #0 ABS"),
]
"""Code, builder, and words of the message."""
