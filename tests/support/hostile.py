"""Small files that between them use everything a TOSA file can hold: what fuzzers start from."""

from collections.abc import Iterator

import numpy as np

from tests.support.programs import CORPUS
from tosakit.io import writer
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import BlockShape, DType, NanPropagationMode, ResizeMode
from tosakit.ir.graph import Graph, Op, Tensor, TensorExtras
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Compatibility, Program, Region, SoftwareVersion, Version

LARGEST = 16 << 10
"""Bytes up to which a file of the repository's corpus serves as a seed; small files are damaged where it matters."""


def _block(name: str, *attrs: Attributes, data: int = 4) -> Graph:
    """A block that applies each of the attributes to its input and a constant of ``data`` INT8 values."""
    graph = Graph(name)
    x = graph.add_tensor(Tensor("x", DType.INT8, (data,)))
    graph.set_inputs([x])
    builder = Builder("t", location=f"loc({name})")
    constant = builder.const(np.arange(data) % 100, DType.INT8, "weights")
    for number, entry in enumerate(attrs):
        x = builder.op(entry, (x, constant), DType.INT8, (data,), f"v{number}")
    for op in builder.ops:
        graph.add_op(op)
    graph.set_outputs([x, x])
    return graph


def everything() -> Program:
    """Every kind of table and field: regions, shapes, variables, block scales, strings, byte vectors, versions."""
    attrs = (
        ops.Conv2d((1, 2, 3, 4), (1, 1), (2, 2), True, DType.INT32),
        ops.Clamp(b"\x01", b"\x7f", NanPropagationMode.IGNORE),
        ops.Custom("operator", "domain", bytes(range(200))),
        ops.Resize(ResizeMode.BILINEAR),
        ops.Transpose((0, 2, 1)),
        ops.CondIf("then", "else"),
        ops.WhileLoop("then", "else"),
        ops.ReduceSum(-1),
        Foreign(38, ops.VariableRead.NUMBER, ops.VariableRead()),
    )
    main = _block("main", *attrs, data=300)
    cell = TensorExtras(variable=True, variable_name="cell", is_unranked=True)
    state = main.add_tensor(Tensor("state", DType.INT16, None, b"\1\2", extras=cell))
    scales = TensorExtras(scale_type=DType.FP8UE8M0, scale_data=bytes(150), block_shape=BlockShape.BLOCK_SHAPE_32)
    main.add_tensor(Tensor("\u00e4\u65e5\U0001f600", DType.FP8E4M3, (-1, 0), b"", extras=scales))
    main.add_tensor(Tensor("n" * 200, DType.BOOL, ()))
    read = Tensor("read", DType.INT16, (1,))
    main.add_op(Op(ops.VariableRead(), (state,), (read,), location=""))
    builder = Builder("s")
    builder.const_shape([1, 2, 3])
    main.add_op(builder.ops[0])
    compatibility = Compatibility(SoftwareVersion(2026, 8, 0, "rc1"), (1 << 63) + 1)
    regions = [
        Region("main", [main]),
        Region("then", [_block("a", ops.Abs()), _block("b")]),
        Region(None, []),
        Region("else", [Graph(None)]),
    ]
    return Program(regions, Version(1, 1, 0, draft=True), SoftwareVersion(2026, 8, 1, "dev"), compatibility)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each seed, in a fixed order."""
    program = everything()
    inline = dumps(program)
    yield "everything", inline
    yield "outside", b"".join(writer._parts(program, inline_limit=0))
    unknown = Program([Region("main", [_block("main", ops.Add(), Foreign(99, 250, None, 8, memoryview(inline)))])])
    yield "unknown", dumps(unknown)
    yield "empty", dumps(Program())
    for path in CORPUS:
        if path.stat().st_size <= LARGEST:
            yield path.name, path.read_bytes()
