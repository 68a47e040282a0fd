"""Small programs under construction, and the register of those that break one rule of the specification."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import Graph, Op, Table, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program, Region, Version
from tosakit.ir.types import encode
from tosakit.spec.check import examine
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.memory import Memory
from tosakit.spec.target import Target
from tosakit.spec.verify import walk

I4, I8, I16, I32, I48, I64 = DType.INT4, DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.INT64
F32, BOOL, SHAPE = DType.FP32, DType.BOOL, DType.SHAPE
PROPAGATE = NanPropagationMode.PROPAGATE
Result = tuple[DType, Sequence[int]]


class Block:
    """A block under construction; whatever nothing reads becomes an output."""

    def __init__(self, name: str = "main") -> None:
        self.graph = Graph(name)
        self.has_outputs = True

    def declare(self, dtype: DType, shape: Sequence[int], name: str = "t", **fields: Any) -> Tensor:
        """A tensor that nothing gives yet."""
        return self.graph.add_tensor(Tensor(name, dtype, tuple(shape), **fields))

    def input(self, dtype: DType, *shape: int) -> Tensor:
        """A block input."""
        tensor = self.declare(dtype, shape, "x")
        self.graph.set_inputs([*self.graph.inputs, tensor])
        return tensor

    def raw(self, dtype: DType, shape: Sequence[int], data: bytes | None, table: Table = "tensors") -> Tensor:
        """A constant with these bytes."""
        tensor = Tensor("c", dtype, tuple(shape), data, table=table)
        self.graph.add_op(Op(ops.ConstShape() if dtype == SHAPE else ops.Const(), (), (tensor,)))
        return tensor

    def const(self, values: npt.ArrayLike, dtype: DType) -> Tensor:
        """A constant of the values' shape."""
        return self.raw(dtype, np.shape(values), encode(np.asarray(values), dtype))

    def shape(self, *sizes: int) -> Tensor:
        """A constant shape."""
        return self.raw(SHAPE, (len(sizes),), encode(np.asarray(sizes, np.int64), SHAPE), "shapes")

    def op(self, attrs: Attributes, inputs: Sequence[Tensor], *results: Result) -> tuple[Tensor, ...]:
        """An operator; the results' dtypes and shapes are given."""
        outputs = [
            Tensor("y", dtype, tuple(shape), table="shapes" if dtype == SHAPE else "tensors")
            for dtype, shape in results
        ]
        return self.graph.add_op(Op(attrs, tuple(inputs), outputs)).outputs

    def finish(self) -> Graph:
        """The block with its outputs."""
        if self.has_outputs and not self.graph.outputs:
            produced = [t for op in self.graph.ops for t in op.outputs]
            loose = [t for t in produced if not t.is_used and not t.extras.variable and t.dtype != SHAPE]
            self.graph.set_outputs(list(dict.fromkeys(loose)))
        return self.graph


@dataclass
class Net:
    """A program under construction: the main block, other regions by name, and the minor version."""

    main: Block
    regions: dict[str, Block]
    minor: int = 0
    change: Callable[[Program], None] | None = None
    """What to do to the finished program, where blocks cannot say it."""

    def region(self, name: str) -> Block:
        """Another region with one block."""
        self.regions[name] = Block(name)
        return self.regions[name]

    def program(self) -> Program:
        """The finished program, changed as ``change`` says."""
        regions = [Region(name, [block.finish()]) for name, block in {"main": self.main, **self.regions}.items()]
        program = Program(regions, Version(1, self.minor, 0, self.minor == 1))
        if self.change is not None:
            self.change(program)
        return program


Build = Callable[[Net, bool], None]


@dataclass(frozen=True)
class Case:
    """A builder, the code its broken form shows, and what every form shows besides."""

    code: str
    build: Build
    severity: str
    minor: int
    always: tuple[str, ...]
    target: Target
    values: bool

    def diagnostics(self, broken: bool) -> list[Diagnostic]:
        """What is found; what values can be only where the case is about that."""
        program = self.program(broken)
        if self.values:
            return examine(program, self.target).diagnostics
        return [located.diagnostic for located in walk(program, self.target, Memory())]

    def program(self, broken: bool) -> Program:
        """The broken or the legal form."""
        net = Net(Block(), {}, self.minor)
        self.build(net, broken)
        return net.program()


CASES: list[Case] = []
ANY = Target()
LEVEL_8K = Target.of(level="8k")


def case(
    code: str,
    severity: str = "error",
    minor: int = 0,
    always: tuple[str, ...] = (),
    target: Target = ANY,
    values: bool = False,
) -> Callable[[Build], Build]:
    """Register a builder under a code; ``values`` where it takes interval analysis to find the fault."""

    def register(build: Build) -> Build:
        CASES.append(Case(code, build, severity, minor, always, target, values))
        return build

    return register


def unary(b: Block, attrs: Attributes, dtype: DType, shape: Sequence[int], result: Result) -> None:
    """An operator with one operand, a block input."""
    b.op(attrs, [b.input(dtype, *shape)], result)


def binary(b: Block, attrs: Attributes, left: Result, right: Result, result: Result) -> None:
    """An operator with two operands, both block inputs."""
    b.op(attrs, [b.input(left[0], *left[1]), b.input(right[0], *right[1])], result)


def conv(
    b: Block,
    *,
    dtype: DType = I8,
    weight_dtype: DType = I8,
    acc: DType = I32,
    bias_dtype: DType | None = None,
    bias: int = 2,
    zero_points: tuple[int, int] = (0, 0),
    pad: Sequence[int] = (0, 0, 0, 0),
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    channels: int = 3,
    result: Sequence[int] = (1, 4, 4, 2),
    size: int = 5,
) -> None:
    """CONV2D of [1,size,size,3] with 2 kernels of 2x2."""
    operands = [
        b.input(dtype, 1, size, size, 3),
        b.const(np.ones((2, 2, 2, channels), np.int64), weight_dtype),
        b.const(np.zeros(bias, np.int64), bias_dtype or acc),
        b.const([zero_points[0]], dtype),
        b.const([zero_points[1]], weight_dtype),
    ]
    b.op(ops.Conv2d(tuple(pad), tuple(stride), tuple(dilation), False, acc), operands, (acc, result))


def pool(
    b: Block,
    *,
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    result: Sequence[int] = (1, 4, 4, 3),
    rank: int = 4,
) -> None:
    """MAX_POOL2D of [1,5,5,3]."""
    shape = (1, 5, 5, 3, 1)[:rank]
    unary(b, ops.MaxPool2d(kernel, stride, pad, PROPAGATE), I8, shape, (I8, result))


def rescale(
    b: Block,
    *,
    source: DType = I32,
    target: DType = I8,
    scale32: bool = True,
    rounding: RoundingMode = RoundingMode.SINGLE_ROUND,
    per_channel: bool = False,
    unsigned: tuple[bool, bool] = (False, False),
    multiplier: Sequence[int] = (1 << 14,),
    multiplier_dtype: DType | None = None,
    shift: Sequence[int] = (20,),
    zero_points: tuple[int, int] = (0, 0),
    zero_point_dtype: DType | None = None,
    shape: Sequence[int] = (2, 3),
) -> None:
    """RESCALE, legal by default."""
    operands = [
        b.input(source, *shape),
        b.const(list(multiplier), multiplier_dtype or (I32 if scale32 else I16)),
        b.const(list(shift), I8),
        b.const([zero_points[0]], zero_point_dtype or source),
        b.const([zero_points[1]], target),
    ]
    b.op(ops.Rescale(scale32, rounding, per_channel, *unsigned), operands, (target, shape))


def resize(
    b: Block,
    *,
    scale: Sequence[int] = (2, 1, 2, 1),
    offset: Sequence[int] = (0, 0),
    border: Sequence[int] = (0, 0),
    result: Sequence[int] = (1, 5, 5, 2),
    size: int = 3,
    mode: ResizeMode = ResizeMode.NEAREST,
) -> None:
    """RESIZE of [1,size,3,2]."""
    operands = [b.input(I8, 1, size, 3, 2), b.shape(*scale), b.shape(*offset), b.shape(*border)]
    b.op(ops.Resize(mode), operands, (I8, result))
