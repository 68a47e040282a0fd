"""One minimal program for every diagnostic code: ``broken`` has exactly that fault, its legal sibling has none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, BlockSize, DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import Graph, Op, Table, Tensor, TensorExtras
from tosakit.ir.operator import Attributes, Foreign
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

    def region(self, name: str) -> Block:
        """Another region with one block."""
        self.regions[name] = Block(name)
        return self.regions[name]

    def program(self) -> Program:
        """The finished program."""
        regions = [Region(name, [block.finish()]) for name, block in {"main": self.main, **self.regions}.items()]
        return Program(regions, Version(1, self.minor, 0, self.minor == 1))


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


# -------------------------------------------------------------------- operands, results and their types
@case("WrongInputList")
def _(n: Net, broken: bool) -> None:
    x = n.main.input(F32, 2)
    n.main.op(ops.Abs(), [x, x] if broken else [x], (F32, [2]))


@case("WrongOutputList")
def _(n: Net, broken: bool) -> None:
    x = n.main.input(F32, 2)
    n.main.op(ops.Abs(), [x], *[(F32, [2])] * (2 if broken else 1))


@case("WrongInputType")
def _(n: Net, broken: bool) -> None:
    dtype = I16 if broken else I32
    binary(n.main, ops.Add(), (dtype, [2]), (dtype, [2]), (dtype, [2]))


@case("WrongInputType")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I48, scale32=False, zero_point_dtype=I32 if broken else I48)


@case("WrongInputType")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I32, multiplier_dtype=I16 if broken else I32)


@case("WrongInputType")
def _(n: Net, broken: bool) -> None:
    dtype = I48 if broken else I32
    unary(n.main, ops.Transpose((1, 0)), dtype, [2, 3], (dtype, [3, 2]))


@case("WrongOutputType")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.ArgMax(0, PROPAGATE), I8, [3, 2], (I16 if broken else I32, [2]))


@case("WrongInputShapeType")
def _(n: Net, broken: bool) -> None:
    sizes = n.main.const([6], I32) if broken else n.main.shape(6)
    n.main.op(ops.Reshape(), [n.main.input(I8, 2, 3), sizes], (I8, [6]))


@case("WrongOutputShapeType", minor=1)
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.Dim(0), [n.main.input(I8, 2, 3)], (I32 if broken else SHAPE, [1]))
    n.main.op(ops.Abs(), [n.main.input(F32, 2)], (F32, [2]))


@case("WrongAccumulatorType")
def _(n: Net, broken: bool) -> None:
    operands = [n.main.input(I8, 1, 5, 5, 3), n.main.const([0], I8), n.main.const([0], I8)]
    attrs = ops.AvgPool2d((2, 2), (1, 1), (0, 0, 0, 0), I16 if broken else I32)
    n.main.op(attrs, operands, (I8, [1, 4, 4, 3]))


@case("WrongBiasType")
def _(n: Net, broken: bool) -> None:
    conv(n.main, dtype=I16, acc=I48, bias_dtype=I32 if broken else I48)


@case("NonConstantOperand", "warning")
def _(n: Net, broken: bool) -> None:
    table = n.main.input(I8, 256) if broken else n.main.const([1] * 256, I8)
    n.main.op(ops.Table(), [n.main.input(I8, 2), table], (I8, [2]))


@case("NonConstantOperand", minor=1)
def _(n: Net, broken: bool) -> None:
    count = n.main.input(I32, 1) if broken else n.main.const([2], I32)
    operands = [n.main.input(I8, 1, 4, 3), n.main.input(I32, 1, 2), count]
    n.main.op(ops.RowGather(), operands, (I8, [1, 4, 3]))


@case("NeedsNewerVersion")
def _(n: Net, broken: bool) -> None:
    n.minor = 0 if broken else 1
    binary(n.main, ops.Add(), (I64, [2]), (I64, [2]), (I64, [2]))


@case("NeedsNewerVersion")
def _(n: Net, broken: bool) -> None:
    n.minor = 0 if broken else 1
    n.main.op(ops.AssertEqualShape(), [n.main.shape(2), n.main.shape(2)])
    n.main.op(ops.Abs(), [n.main.input(F32, 2)], (F32, [2]))


@case("UnknownEnumValue")
def _(n: Net, broken: bool) -> None:
    resize(n.main, mode=ResizeMode.UNKNOWN if broken else ResizeMode.NEAREST)


@case("UnknownEnumValue")
def _(n: Net, broken: bool) -> None:
    mode = NanPropagationMode.UNKNOWN if broken else PROPAGATE
    unary(n.main, ops.ReduceMax(0, mode), F32, [2], (F32, [1]))


@case("UnknownEnumValue", "warning")
def _(n: Net, broken: bool) -> None:
    mode = NanPropagationMode.UNKNOWN if broken else PROPAGATE
    unary(n.main, ops.ReduceMax(0, mode), I8, [2], (I8, [1]))


@case("AttributeLength")
def _(n: Net, broken: bool) -> None:
    conv(n.main, pad=(0, 0) if broken else (0, 0, 0, 0))


# -------------------------------------------------------------------- shapes
@case("WrongRank")
def _(n: Net, broken: bool) -> None:
    pool(n.main, rank=3 if broken else 4)


@case("RankMismatch")
def _(n: Net, broken: bool) -> None:
    binary(n.main, ops.Add(), (I32, [1, 4, 4, 2]), (I32, [2] if broken else [1, 1, 1, 2]), (I32, [1, 4, 4, 2]))


@case("DimensionMismatch")
def _(n: Net, broken: bool) -> None:
    binary(n.main, ops.Sub(), (I32, [1, 4]), (I32, [3, 1]), (I32, [3, 5 if broken else 4]))


@case("BroadcastShapesMismatch")
def _(n: Net, broken: bool) -> None:
    binary(n.main, ops.Add(), (I32, [2, 4]), (I32, [3 if broken else 1, 4]), (I32, [2, 4]))


@case("OperandShapeMismatch")
def _(n: Net, broken: bool) -> None:
    conv(n.main, channels=4 if broken else 3)


@case("OperandShapeMismatch")
def _(n: Net, broken: bool) -> None:
    channels = 2 if broken else 3
    rescale(n.main, per_channel=True, multiplier=[1] * channels, shift=[20] * channels)


@case("InvalidDimension")
def _(n: Net, broken: bool) -> None:
    size = -2 if broken else -1
    unary(n.main, ops.Abs(), F32, [size], (F32, [-1]))


# -------------------------------------------------------------------- zero points
@case("InputZeroPointNotZero")
def _(n: Net, broken: bool) -> None:
    conv(n.main, dtype=I16, acc=I48, zero_points=(1 if broken else 0, 5))


@case("InputZeroPointNotZero")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, zero_points=(1 if broken else 0, 5))


@case("WeightZeroPointNotZero")
def _(n: Net, broken: bool) -> None:
    conv(n.main, weight_dtype=I4, zero_points=(5, 1 if broken else 0))


@case("OutputZeroPointNotZero")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I8, target=I16, zero_points=(5, 1 if broken else 0))


@case("U16InputZeroPointNotValid")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I16, unsigned=(True, False), zero_points=(1 if broken else -(1 << 15), 0))


@case("U16OutputZeroPointNotValid")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I8, target=I16, unsigned=(False, True), zero_points=(0, 1 if broken else -(1 << 15)))


# -------------------------------------------------------------------- axes
@case("AxisSmallerZero")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.Reverse(-1 if broken else 0), I8, [2, 3], (I8, [2, 3]))


@case("AxisLargerRank")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.ReduceSum(2 if broken else 1), I32, [2, 3], (I32, [2, 1]))


@case("ArgmaxOutputRankMismatch")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.ArgMax(0, PROPAGATE), I8, [2, 3], (I32, [1, 3] if broken else [3]))


@case("ArgmaxOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.ArgMax(0, PROPAGATE), I8, [2, 3], (I32, [2] if broken else [3]))


@case("ShapeOfAxisNotOne")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.ReduceAny(1), BOOL, [2, 3], (BOOL, [2, 3 if broken else 1]))


# -------------------------------------------------------------------- windows
@case("KernelSmallerOne")
def _(n: Net, broken: bool) -> None:
    pool(n.main, kernel=(0 if broken else 2, 2))


@case("StrideSmallerOne")
def _(n: Net, broken: bool) -> None:
    pool(n.main, stride=(0 if broken else 1, 1))


@case("DilationSmallerOne")
def _(n: Net, broken: bool) -> None:
    conv(n.main, dilation=(1, 0 if broken else 1))


@case("PadSmallerZero")
def _(n: Net, broken: bool) -> None:
    conv(n.main, pad=(0, -1 if broken else 0, 0, 0))


@case("PadSmallerZero")
def _(n: Net, broken: bool) -> None:
    operands = [n.main.input(I8, 2), n.main.shape(1, -1 if broken else 1), n.main.const([0], I8)]
    n.main.op(ops.Pad(), operands, (I8, [4]))


@case("PadLargerEqualKernel")
def _(n: Net, broken: bool) -> None:
    pad = 2 if broken else 1
    pool(n.main, pad=(pad, pad, 0, 0), result=(1, 6, 4, 3))


@case("PadLargerEqualKernel")
def _(n: Net, broken: bool) -> None:
    operands = [
        n.main.input(I8, 1, 3, 3, 1),
        n.main.const(np.ones((1, 2, 2, 1), np.int64), I8),
        n.main.const([0], I32),
        n.main.const([0], I8),
        n.main.const([0], I8),
    ]
    attrs = ops.TransposeConv2d((-2 if broken else -1, 0, 0, 0), (1, 1), False, I32)
    n.main.op(attrs, operands, (I32, [1, 3, 4, 1]))


@case("PoolingOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    pool(n.main, result=(1, 4, 5 if broken else 4, 3))


@case("PoolingOutputShapeNonInteger")
def _(n: Net, broken: bool) -> None:
    pool(n.main, kernel=(2 if broken else 1, 2), stride=(2, 1), result=(1, 3, 4, 3))


@case("ConvOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    conv(n.main, result=(1, 4, 5 if broken else 4, 2))


@case("ConvOutputShapeNonInteger")
def _(n: Net, broken: bool) -> None:
    conv(n.main, stride=(2, 2), size=5 if broken else 4, result=(1, 2, 2, 2))


@case("ConvBiasShapeMismatch")
def _(n: Net, broken: bool) -> None:
    conv(n.main, bias=3 if broken else 1)


# -------------------------------------------------------------------- FFT
def fft(b: Block, imaginary: Sequence[int], result: Sequence[int], size: int = 4) -> None:
    """FFT2D of [1,size,4]."""
    operands = [b.input(F32, 1, size, 4), b.input(F32, *imaginary)]
    b.op(ops.FFT2d(), operands, (F32, result), (F32, result))


@case("KernelNotPowerOfTwo")
def _(n: Net, broken: bool) -> None:
    size = 6 if broken else 8
    fft(n.main, [1, size, 4], [1, size, 4], size)


@case("FFTInputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    fft(n.main, [1, 8 if broken else 4, 4], [1, 4, 4])


@case("FFTOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    width = 4 if broken else 3
    n.main.op(ops.RFFT2d(), [n.main.input(F32, 1, 4, 4)], (F32, [1, 4, width]), (F32, [1, 4, width]))


# -------------------------------------------------------------------- RESIZE
@case("MaxDimExceeded")
def _(n: Net, broken: bool) -> None:
    size = 8194 if broken else 8192
    resize(n.main, size=size, result=(1, 2 * size - 1, 5, 2))


@case("ScaleSmallerEqualZero")
def _(n: Net, broken: bool) -> None:
    resize(n.main, scale=(2, 1, 2, 0 if broken else 1))


@case("ScaleNLargerMax")
def _(n: Net, broken: bool) -> None:
    numerator = 2050 if broken else 2048
    resize(n.main, scale=(2, 1, numerator, numerator // 2))


@case("ScaleDLargerMax")
def _(n: Net, broken: bool) -> None:
    resize(n.main, scale=(2, 1, 1, 16 if broken else 2), result=(1, 5, 2, 2))


@case("OffsetSmallerMin")
def _(n: Net, broken: bool) -> None:
    offset = -3 if broken else -2
    resize(n.main, offset=(offset, 0), border=(offset, 0))


@case("OffsetLargerEqualMax")
def _(n: Net, broken: bool) -> None:
    resize(n.main, offset=(32 if broken else 1, 0), border=(1, 0))


@case("BorderSmallerMin")
def _(n: Net, broken: bool) -> None:
    resize(n.main, border=(-33 if broken else 0, 0))


@case("BorderLargerEqualMax")
def _(n: Net, broken: bool) -> None:
    border = 2 if broken else 1
    resize(n.main, border=(border, 0), offset=(border, 0))


@case("ResizeOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    resize(n.main, result=(1, 6 if broken else 5, 5, 2))


@case("ResizeOutputShapeNonInteger")
def _(n: Net, broken: bool) -> None:
    resize(n.main, scale=(2, 3 if broken else 1, 2, 1))


@case("BatchMismatch")
def _(n: Net, broken: bool) -> None:
    resize(n.main, result=(2 if broken else 1, 5, 5, 2))


@case("ChannelMismatch")
def _(n: Net, broken: bool) -> None:
    resize(n.main, result=(1, 5, 5, 3 if broken else 2))


# -------------------------------------------------------------------- data layout
def concat(b: Block, shapes: Sequence[Sequence[int]], result: Sequence[int]) -> None:
    """CONCAT on axis 0."""
    b.op(ops.Concat(0), [b.input(I8, *shape) for shape in shapes], (I8, result))


@case("ConcatNoInputList")
def _(n: Net, broken: bool) -> None:
    concat(n.main, [] if broken else [[2]], [2])


@case("ConcatInputRankMismatch")
def _(n: Net, broken: bool) -> None:
    concat(n.main, [[2, 3], [2] if broken else [2, 3]], [4, 3])


@case("ConcatInputDimMismatch")
def _(n: Net, broken: bool) -> None:
    concat(n.main, [[2, 3], [2, 4 if broken else 3]], [4, 3])


@case("ConcatShapeSumMismatch")
def _(n: Net, broken: bool) -> None:
    concat(n.main, [[2, 3], [2, 3]], [2 if broken else 4, 3])


@case("PadOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    operands = [n.main.input(I8, 2), n.main.shape(1, 2), n.main.const([0], I8)]
    n.main.op(ops.Pad(), operands, (I8, [4 if broken else 5]))


@case("TensorSizeInputOutputMismatch")
def _(n: Net, broken: bool) -> None:
    size = 5 if broken else 6
    n.main.op(ops.Reshape(), [n.main.input(I8, 2, 3), n.main.shape(size)], (I8, [size]))


@case("ReshapeNewShapeOutputMismatch")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.Reshape(), [n.main.input(I8, 2, 3), n.main.shape(3, 2)], (I8, [2, 3] if broken else [3, 2]))


def slice_(b: Block, start: Sequence[int], size: Sequence[int], result: Sequence[int]) -> None:
    """SLICE of [4,4]."""
    b.op(ops.Slice(), [b.input(I8, 4, 4), b.shape(*start), b.shape(*size)], (I8, result))


@case("StartSmallerZero")
def _(n: Net, broken: bool) -> None:
    slice_(n.main, [-1 if broken else 0, 0], [2, 2], [2, 2])


@case("SizeSmallerEqualZero")
def _(n: Net, broken: bool) -> None:
    slice_(n.main, [0, 0], [0 if broken else 2, 2], [2, 2])


@case("StartSizeOutsideBounds")
def _(n: Net, broken: bool) -> None:
    slice_(n.main, [3 if broken else 2, 0], [2, 2], [2, 2])


@case("SizeOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    slice_(n.main, [0, 0], [2, 2], [2, 3 if broken else 2])


@case("InputSizeStartLengthMismatch")
def _(n: Net, broken: bool) -> None:
    slice_(n.main, [0, 0, 0] if broken else [0, 0], [2, 2], [2, 2])


@case("TileMultiplesOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.Tile(), [n.main.input(I8, 2, 3), n.main.shape(2, 1)], (I8, [4, 6 if broken else 3]))


@case("IndexOutsideBounds")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.Transpose((2 if broken else 1, 0)), I8, [2, 3], (I8, [3, 2]))


@case("IndexUsedTwice")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.Transpose((1, 1 if broken else 0)), I8, [2, 3], (I8, [3, 2]))


@case("TransposePermsOutputShapeMismatch")
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.Transpose((1, 0)), I8, [2, 3], (I8, [2, 3] if broken else [3, 2]))


@case("GatherIndexOutOfRange")
def _(n: Net, broken: bool) -> None:
    indices = n.main.const([[0, 3 if broken else 2]], I32)
    n.main.op(ops.Gather(), [n.main.input(I8, 1, 3, 2), indices], (I8, [1, 2, 2]))


@case("ScatterIndexRepeated")
def _(n: Net, broken: bool) -> None:
    operands = [n.main.input(I8, 1, 3, 2), n.main.const([[1, 1 if broken else 0]], I32), n.main.input(I8, 1, 2, 2)]
    n.main.op(ops.Scatter(), operands, (I8, [1, 3, 2]))


# -------------------------------------------------------------------- elementwise
def clamp(b: Block, low: bytes, high: bytes) -> None:
    """CLAMP of an FP32 tensor."""
    unary(b, ops.Clamp(low, high, PROPAGATE), F32, [2], (F32, [2]))


@case("MaxSmallerMin")
def _(n: Net, broken: bool) -> None:
    clamp(n.main, encode(np.float32(1), F32), encode(np.float32(0 if broken else 2), F32))


@case("ClampBoundInvalid")
def _(n: Net, broken: bool) -> None:
    clamp(n.main, encode(np.float32(np.nan if broken else 1), F32), encode(np.float32(2), F32))


@case("ClampBoundInvalid")
def _(n: Net, broken: bool) -> None:
    clamp(n.main, b"\0" * (2 if broken else 4), encode(np.float32(2), F32))


def mul(b: Block, dtype: DType, shift: npt.ArrayLike) -> None:
    """MUL of two tensors, with a shift."""
    b.op(ops.Mul(), [b.input(dtype, 2), b.input(dtype, 2), b.const(shift, I8)], (I32, [2]))


@case("InputRank1WrongRank")
def _(n: Net, broken: bool) -> None:
    mul(n.main, I32, 3 if broken else [3])


@case("MulShiftInvalid")
def _(n: Net, broken: bool) -> None:
    mul(n.main, I16 if broken else I32, [3])


@case("MulShiftInvalid")
def _(n: Net, broken: bool) -> None:
    mul(n.main, I32, [64 if broken else 63])


@case("ShiftAmountInvalid")
def _(n: Net, broken: bool) -> None:
    amounts = n.main.const([2, 8 if broken else 7], I8)
    n.main.op(ops.LogicalLeftShift(), [n.main.input(I8, 2), amounts], (I8, [2]))


@case("DivisionByZero")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.IntDiv(), [n.main.input(I32, 2), n.main.const([1, 0 if broken else 1], I32)], (I32, [2]))


@case("TableLength")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.Table(), [n.main.input(I16, 2), n.main.const([1] * (512 if broken else 513), I16)], (I32, [2]))


@case("TableSlope", "warning")
def _(n: Net, broken: bool) -> None:
    entries = [-32768] * 256 + [0 if broken else -1] + [0] * 256
    n.main.op(ops.Table(), [n.main.input(I16, 2), n.main.const(entries, I16)], (I32, [2]))


# -------------------------------------------------------------------- RESCALE
@case("ScaleTrue")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I48, scale32=broken)


@case("ScaleNotTrue")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, scale32=not broken, rounding=RoundingMode.DOUBLE_ROUND)


@case("RescaleMultiplierNegative")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, multiplier=[-1 if broken else 0])


@case("RescaleShiftOutOfRange")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, shift=[63 if broken else 62])


@case("RescaleShiftOutOfRange")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, shift=[1 if broken else 2])


@case("RescalePerChannelRank0")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, per_channel=broken, shape=[])


@case("RescaleInputUnsignedOutputUnsigned")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I8, unsigned=(True, broken))


@case("RescaleI32OutputInputUnsigned")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I8, target=I32, unsigned=(broken, False))


@case("RescaleI32InputOutputUnsigned")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I32, unsigned=(False, broken))


@case("RescaleI48InputOutputUnsigned")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I48, scale32=False, unsigned=(False, broken))


@case("RescaleI32InputUnsigned")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I32, unsigned=(broken, False))


@case("RescaleI32OutputUnsigned")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I8, target=I32, unsigned=(False, broken))


@case("RescaleI48InputUnsigned")
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I48, scale32=False, unsigned=(broken, False))


# -------------------------------------------------------------------- shape operators
def reshape_by(b: Block, shape: Tensor, result: Sequence[int]) -> None:
    """RESHAPE of six values, so that a computed shape has a reader."""
    b.op(ops.Reshape(), [b.input(I8, 6), shape], (I8, result))


@case("InputShapeRankMismatch", minor=1)
def _(n: Net, broken: bool) -> None:
    right = n.main.shape(1, 2, 1) if broken else n.main.shape(1, 2)
    (total,) = n.main.op(ops.AddShape(), [n.main.shape(1, 1), right], (SHAPE, [2]))
    reshape_by(n.main, total, [2, 3])


@case("OutputShapeRankMismatch", minor=1)
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.MulShape(), [n.main.shape(2, 1), n.main.shape(1, 3)], (SHAPE, [3 if broken else 2]))
    n.main.op(ops.Abs(), [n.main.input(F32, 2)], (F32, [2]))


@case("ConcatShapeRankZeroInput", minor=1)
def _(n: Net, broken: bool) -> None:
    parts = [n.main.shape(6), n.main.shape() if broken else n.main.shape(1)]
    (joined,) = n.main.op(ops.ConcatShape(), parts, (SHAPE, [1 if broken else 2]))
    reshape_by(n.main, joined, [6] if broken else [6, 1])


@case("AssertShapesNotEqual", minor=1)
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.AssertEqualShape(True), [n.main.shape(2, 3), n.main.shape(2, 4 if broken else 1)])
    n.main.op(ops.Abs(), [n.main.input(F32, 2)], (F32, [2]))


# -------------------------------------------------------------------- block-scaled operators
def block_cast(b: Block, size: int, scales: int, block: BlockSize = BlockSize.BLOCK_SIZE_32) -> None:
    """CAST_FROM_BLOCK_SCALED of [1,size]."""
    operands = [b.input(DType.FP8E4M3, 1, size), b.input(DType.FP8UE8M0, 1, scales)]
    b.op(ops.CastFromBlockScaled(block), operands, (F32, [1, size]))


@case("WrongBlockSizeDimension", minor=1)
def _(n: Net, broken: bool) -> None:
    block_cast(n.main, 48 if broken else 64, 2)


@case("WrongScaledBlockShapeDimension", minor=1)
def _(n: Net, broken: bool) -> None:
    extras = TensorExtras(scale_type=DType.FP8UE8M0, block_shape=BlockShape.BLOCK_SHAPE_32)
    x = n.main.declare(DType.FP8E4M3, [1, 48 if broken else 64], "x", extras=extras)
    n.main.graph.set_inputs([x])
    n.main.graph.set_outputs([x])


@case("UnknownBlockSizeEnum", minor=1)
def _(n: Net, broken: bool) -> None:
    block_cast(n.main, 64, 2, BlockSize.UNKNOWN if broken else BlockSize.BLOCK_SIZE_32)


@case("InputDimensionMismatch", minor=1)
def _(n: Net, broken: bool) -> None:
    block_cast(n.main, 64, 1 if broken else 2)


@case("MatmulTBlockScaledBroadcastShapeMismatch", minor=1)
def _(n: Net, broken: bool) -> None:
    batch, value, scale = 2 if broken else 1, DType.FP8E4M3, DType.FP8UE8M0
    left = [n.main.input(value, 3, 2, 32), n.main.input(scale, 3, 2, 1)]
    right = [n.main.input(value, batch, 4, 32), n.main.input(scale, batch, 4, 1)]
    n.main.op(ops.MatMulTBlockScaled(BlockSize.BLOCK_SIZE_32), left + right, (F32, [3, 2, 4]))


# -------------------------------------------------------------------- control flow
def branch(b: Block, shape: Sequence[int] = (2,), result: Sequence[int] | None = None) -> None:
    """A region that negates its input."""
    unary(b, ops.Abs(), F32, shape, (F32, shape if result is None else result))


def cond_if(n: Net, condition: Result = (BOOL, [1])) -> None:
    """COND_IF of an FP32 [2]."""
    operands = [n.main.input(condition[0], *condition[1]), n.main.input(F32, 2)]
    n.main.op(ops.CondIf("then", "else"), operands, (F32, [2]))


@case("UnknownRegion")
def _(n: Net, broken: bool) -> None:
    cond_if(n)
    branch(n.region("then"))
    if not broken:
        branch(n.region("else"))


@case("RecursiveRegion")
def _(n: Net, broken: bool) -> None:
    cond_if(n)
    branch(n.region("then"))
    inner = n.region("else")
    x = inner.input(F32, 2)
    target = "else" if broken else "then"
    inner.op(ops.CondIf("then", target), [inner.const([True], BOOL), x], (F32, [2]))


@case("CondIfCondNotMatchingBool")
def _(n: Net, broken: bool) -> None:
    cond_if(n, (I8 if broken else BOOL, [1]))
    branch(n.region("then"))
    branch(n.region("else"))


@case("CondIfCondShapeNotSizeOne")
def _(n: Net, broken: bool) -> None:
    cond_if(n, (BOOL, [2 if broken else 1]))
    branch(n.region("then"))
    branch(n.region("else"))


def _branches(code: str, region: str, slot: str) -> None:
    @case(code)
    def _(n: Net, broken: bool) -> None:
        cond_if(n)
        for name in ("then", "else"):
            block = n.region(name)
            if not broken or name != region:
                branch(block)
            elif slot == "input":
                block.input(F32, 2)
                branch(block)
            else:
                block.op(ops.Cast(), [block.input(F32, 2)], (I32, [2]))


_branches("CondIfInputListThenGraphMismatch", "then", "input")
_branches("CondIfInputListElseGraphMismatch", "else", "input")
_branches("CondIfOutputListThenGraphMismatch", "then", "output")
_branches("CondIfOutputListElseGraphMismatch", "else", "output")


def while_loop(
    n: Net,
    *,
    result: Sequence[int] = (2,),
    cond_input: Sequence[int] = (2,),
    condition: Result = (BOOL, [1]),
    body_input: Sequence[int] = (2,),
    body_output: Sequence[int] = (2,),
) -> None:
    """WHILE_LOOP that carries one FP32 [2]."""
    n.main.op(ops.WhileLoop("cond", "body"), [n.main.input(F32, 2)], (F32, result))
    cond, body = n.region("cond"), n.region("body")
    cond.input(F32, *cond_input)
    cond.const(np.ones(condition[1], np.int64), condition[0])
    x = body.input(F32, *body_input)
    if tuple(body_output) == tuple(body_input):
        body.op(ops.Abs(), [x], (F32, body_output))
    else:
        body.const(np.ones(body_output, np.float32), F32)


@case("InputListOutputListMismatch")
def _(n: Net, broken: bool) -> None:
    while_loop(n, result=[3 if broken else 2])


@case("InputListCondGraphMismatch")
def _(n: Net, broken: bool) -> None:
    while_loop(n, cond_input=[3 if broken else 2])


@case("InputListBodyGraphInputMismatch")
def _(n: Net, broken: bool) -> None:
    while_loop(n, body_input=[3 if broken else 2], body_output=[2])


@case("InputListBodyGraphOutputMismatch")
def _(n: Net, broken: bool) -> None:
    while_loop(n, body_output=[3 if broken else 2])


@case("CondGraphOutputNotMatchingBool")
def _(n: Net, broken: bool) -> None:
    while_loop(n, condition=(I8 if broken else BOOL, [1]))


@case("CondGraphOutputShapeNotSizeOne")
def _(n: Net, broken: bool) -> None:
    while_loop(n, condition=(BOOL, [2 if broken else 1]))


# -------------------------------------------------------------------- graph structure
@case("NoOutputs")
def _(n: Net, broken: bool) -> None:
    n.main.has_outputs = not broken
    branch(n.main)


@case("UndeclaredTensor")
def _(n: Net, broken: bool) -> None:
    x = n.main.declare(DType.UNKNOWN, (), table="undeclared") if broken else n.main.input(F32, 2)
    n.main.op(ops.Abs(), [x], (F32, [2]))


@case("UnknownDType")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.Abs(), [n.main.input(DType.UNKNOWN if broken else F32, 2)], (F32, [2]))


@case("NoProducer")
def _(n: Net, broken: bool) -> None:
    x = n.main.declare(F32, [2]) if broken else n.main.input(F32, 2)
    n.main.op(ops.Abs(), [x], (F32, [2]))


@case("UnusedTensor", "warning")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    if broken:
        n.main.declare(F32, [2])


@case("ShapeAtBoundary", "warning")
def _(n: Net, broken: bool) -> None:
    shape = n.main.shape(2)
    branch(n.main)
    if broken:
        n.main.graph.set_outputs([shape])


@case("UnknownOperator", "warning")
def _(n: Net, broken: bool) -> None:
    x = n.main.input(F32, 2)
    n.main.op(Foreign(number=999) if broken else ops.Abs(), [x], (F32, [2]))


@case("EmptyProgram")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    if broken:
        n.program = lambda: Program([Region("main")])  # type: ignore[method-assign]


@case("DuplicateRegion")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    branch(n.region("other"))
    build = n.program

    def program() -> Program:
        made = build()
        made.regions[1].name = "main" if broken else "other"
        return made

    n.program = program  # type: ignore[method-assign]


@case("Cycle")
def _(n: Net, broken: bool) -> None:
    x = n.main.input(F32, 2)
    (y,) = n.main.op(ops.Abs(), [x], (F32, [2]))
    (z,) = n.main.op(ops.Ceil(), [y], (F32, [2]))
    n.main.graph.set_outputs([z])
    if broken and y.producer is not None:
        n.main.graph.set_operand(y.producer, 0, z)


# -------------------------------------------------------------------- constants and variables
@case("ConstantWithoutData")
def _(n: Net, broken: bool) -> None:
    n.main.raw(I8, [2], None if broken else b"\0\1")


@case("ConstantDataTooShort")
def _(n: Net, broken: bool) -> None:
    n.main.raw(I48, [2], b"\0" * (11 if broken else 12))


@case("ConstantDataTooLong", "warning")
def _(n: Net, broken: bool) -> None:
    n.main.raw(I8, [1], b"\0" * (9 if broken else 8))


@case("ConstantShapeUnknown")
def _(n: Net, broken: bool) -> None:
    n.main.raw(I8, [-1 if broken else 2], b"\0\1")


def cell(b: Block, *, variable: bool = True, name: str | None = "state", shape: Sequence[int] = (2,)) -> Tensor:
    """A state cell of INT8."""
    return b.declare(I8, shape, "cell", extras=TensorExtras(variable=variable, variable_name=name))


@case("NotAVariable")
def _(n: Net, broken: bool) -> None:
    x = n.main.input(I8, 2) if broken else cell(n.main)
    n.main.op(ops.VariableRead(), [x], (I8, [2]))


@case("VariableUse")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.Identity() if broken else ops.VariableRead(), [cell(n.main)], (I8, [2]))


@case("VariableTypeMismatch")
def _(n: Net, broken: bool) -> None:
    target = cell(n.main)
    n.main.graph.add_op(Op(ops.VariableWrite(), [n.main.input(I8, 3 if broken else 2)], [target]))


@case("VariableName", "warning")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.VariableRead(), [cell(n.main, name="" if broken else "state")], (I8, [2]))


@case("VariableName")
def _(n: Net, broken: bool) -> None:
    for size, name in ((2, "first"), (3, "first" if broken else "second")):
        n.main.op(ops.VariableRead(), [cell(n.main, name=name, shape=[size])], (I8, [size]))


@case("VariableAsIdentity", "warning")
def _(n: Net, broken: bool) -> None:
    written = Foreign(number=ops.Identity.NUMBER, attribute_type=ops.VariableRead.NUMBER, attributes=ops.VariableRead())
    n.main.op(written if broken else ops.VariableRead(), [cell(n.main)], (I8, [2]))


# -------------------------------------------------------------------- targets: profiles, extensions, versions
@case("MissingProfile", target=Target.of(profiles=["pro-int"]))
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.Reverse(0), F32 if broken else I8, [2], (F32 if broken else I8, [2]))


@case("MissingExtension", target=Target.of(profiles=["pro-int"], extensions=["int4"]))
def _(n: Net, broken: bool) -> None:
    dtype = I16 if broken else I8
    attrs = ops.MaxPool2d((2, 2), (1, 1), (0, 0, 0, 0), PROPAGATE)
    unary(n.main, attrs, dtype, [1, 4, 4, 1], (dtype, [1, 3, 3, 1]))


@case("MissingExtension", target=Target.of(profiles=["pro-int"]))
def _(n: Net, broken: bool) -> None:
    rescale(n.main, rounding=RoundingMode.DOUBLE_ROUND if broken else RoundingMode.SINGLE_ROUND)


@case("MissingExtension", "warning", minor=1, target=Target.of(profiles=["pro-int"]))
def _(n: Net, broken: bool) -> None:
    if broken:
        n.main.op(ops.Dim(0), [n.main.input(I8, 2, 3)], (SHAPE, [1]))
    unary(n.main, ops.Reverse(0), I8, [2], (I8, [2]))


@case("NonConstantOperand", target=Target.of(profiles=["pro-int"]))
def _(n: Net, broken: bool) -> None:
    table = n.main.input(I8, 256) if broken else n.main.const([1] * 256, I8)
    n.main.op(ops.Table(), [n.main.input(I8, 2), table], (I8, [2]))


@case("NeedsNewerVersion", target=Target.of(spec="1.0"))
def _(n: Net, broken: bool) -> None:
    n.minor = 1 if broken else 0
    branch(n.main)


@case("DraftFlagMissing")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    build = n.program

    def program() -> Program:
        made = build()
        made.version = Version(1, 1, 0, not broken)
        return made

    n.program = program  # type: ignore[method-assign]


# -------------------------------------------------------------------- levels
@case("WrongRank", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    shape = [1] * (7 if broken else 6)
    unary(n.main, ops.Abs(), F32, shape, (F32, shape))


@case("WrongRank")
def _(n: Net, broken: bool) -> None:
    shape = [1] * (33 if broken else 32)
    unary(n.main, ops.Abs(), F32, shape, (F32, shape))


@case("LevelKernel", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    size = 8193 if broken else 8192
    attrs = ops.MaxPool2d((size, 1), (1, 1), (0, 0, 0, 0), PROPAGATE)
    unary(n.main, attrs, I8, [1, size, 1, 1], (I8, [1, 1, 1, 1]))


@case("LevelKernel", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:  # a kernel of 2 rows dilated by more than half of what is allowed
    dilation = 4097 if broken else 4096
    conv(n.main, size=5, pad=(dilation, 0, 0, 0), dilation=(dilation, 1), result=(1, 5, 4, 2))


@case("LevelStride", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    attrs = ops.MaxPool2d((1, 1), (8193 if broken else 8192, 1), (0, 0, 0, 0), PROPAGATE)
    unary(n.main, attrs, I8, [1, 1, 1, 1], (I8, [1, 1, 1, 1]))


@case("LevelScale", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    scale = 257 if broken else 256
    resize(n.main, scale=(scale, 1, 2, 1), result=(1, 2 * scale + 1, 5, 2))


@case("LevelTensorSize", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    shape = [1 << 15, 1 << 16] if broken else [(1 << 31) - 1]
    unary(n.main, ops.Reverse(0), I8, shape, (I8, shape))


@case("LevelListSize", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    count = 65 if broken else 64
    n.main.op(ops.Concat(0), [n.main.input(I8, 1)] * count, (I8, [count]))


@case("LevelShapeLength", minor=1, target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    sizes = [2] * (17 if broken else 16)
    n.main.op(ops.AssertEqualShape(), [n.main.shape(*sizes), n.main.shape(*sizes)])
    n.main.op(ops.Abs(), [n.main.input(F32, 2)], (F32, [2]))


@case("LevelNesting", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    depth = 6 if broken else 5
    blocks = [n.main, *[n.region(f"level{number}") for number in range(1, depth)]]
    for number, block in enumerate(blocks, start=1):
        inside = f"level{number}" if number < depth else "leaf"
        operands = [block.const([True], BOOL), block.input(F32, 2)]
        block.op(ops.CondIf(inside, "leaf"), operands, (F32, [2]))
    branch(n.region("leaf"))


# -------------------------------------------------------------------- structure that only check asks for
@case("RegionBlockCount")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    branch(n.region("other"))
    build = n.program

    def program() -> Program:
        made = build()
        if broken:
            made.regions[1].blocks.append(made.regions[1].blocks[0].clone())
        return made

    n.program = program  # type: ignore[method-assign]


# -------------------------------------------------------------------- what values can be
@case("ResultOverflow", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    left = n.main.input(I32, 2)
    if not broken:
        (left,) = n.main.op(ops.ArithmeticRightShift(True), [left, n.main.const([1, 1], I32)], (I32, [2]))
    n.main.op(ops.Add(), [left, n.main.const([1, -1], I32)], (I32, [2]))


@case("ResultOverflow", values=True)
def _(n: Net, broken: bool) -> None:
    largest = n.main.const([(1 << 31) - 1], I32)
    n.main.op(ops.Add(), [largest, n.main.const([1 if broken else -1], I32)], (I32, [1]))


@case("RescaleInputRange", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    rescale(n.main, shift=(31 if broken else 32,))


@case("RescaleInputRange", values=True)
def _(n: Net, broken: bool) -> None:
    operands = [
        n.main.const([1 << 20], I32),
        n.main.const([1 << 30], I32),
        n.main.const([20 if broken else 22], I8),
        n.main.const([0], I32),
        n.main.const([0], I8),
    ]
    n.main.op(ops.Rescale(True, RoundingMode.SINGLE_ROUND), operands, (I8, [1]))


@case("RescaleResultRange", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I48, scale32=False, target=I32, shift=(30 if broken else 31,))


@case("TableSlope", values=True)
def _(n: Net, broken: bool) -> None:
    entries = [-32768] * 256 + [0] * 257  # the step is between inputs -128 and 0
    x = n.main.input(I16, 2)
    if not broken:
        (x,) = n.main.op(ops.Clamp(encode(0, I16), encode(99, I16), PROPAGATE), [x], (I16, [2]))
    n.main.op(ops.Table(), [x, n.main.const(entries, I16)], (I32, [2]))


@case("DivisionByZero", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    low = encode(0 if broken else 1, I8)
    x = n.main.op(ops.Clamp(low, encode(9, I8), PROPAGATE), [n.main.input(I8, 2)], (I8, [2]))[0]
    wide = n.main.op(ops.Cast(), [x], (I32, [2]))[0]
    n.main.op(ops.IntDiv(), [n.main.input(I32, 2), wide], (I32, [2]))


@case("GatherIndexOutOfRange", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    high = encode(4 if broken else 3, I8)
    x = n.main.op(ops.Clamp(encode(0, I8), high, PROPAGATE), [n.main.input(I8, 1, 2)], (I8, [1, 2]))[0]
    wide = n.main.op(ops.Cast(), [x], (I32, [1, 2]))[0]
    n.main.op(ops.Gather(), [n.main.input(I8, 1, 4, 3), wide], (I8, [1, 2, 3]))
