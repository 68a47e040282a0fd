"""A legal and a broken form for the faults of single operators."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tests.spec.nets import (
    BOOL,
    F32,
    I4,
    I8,
    I16,
    I32,
    I48,
    I64,
    PROPAGATE,
    SHAPE,
    Block,
    Net,
    binary,
    case,
    conv,
    pool,
    rescale,
    resize,
    unary,
)
from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, BlockSize, DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import Tensor, TensorExtras
from tosakit.ir.types import encode


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
