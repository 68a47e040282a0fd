"""Convolutions and pooling: windows that slide over an operand."""

from collections.abc import Sequence

from tosakit.ir import ops
from tosakit.spec.call import AnyCall, Call, Codes, Size
from tosakit.spec.operators.zero_points import check_zero_point

CONVOLUTION = Codes(result="ConvOutputShapeMismatch")
POOLING = Codes(result="PoolingOutputShapeMismatch")


def _at_least(call: AnyCall, code: str, name: str, values: Sequence[int], least: int) -> bool:
    if min(values) >= least:
        return True
    call.error(code, f"{name} is {list(values)}, every entry must be at least {least}")
    return False


def _slide(call: AnyCall, code: str, axis: str, size: Size, pads: Sequence[int], window: Size, stride: int) -> Size:
    """Positions of a window: (size + pads - window) / stride + 1, which must divide exactly."""
    if size is None or window is None:
        return None
    span = size + sum(pads) - window
    if span % stride:
        needs = f"({size} + {pads[0]} + {pads[1]} - {window}) must be a multiple of the stride {stride}"
        call.error(code, f"on axis {axis} {needs}")
        return None
    return span // stride + 1


def _convolve(
    call: AnyCall,
    axes: str,
    pad: Sequence[int] | None,
    stride: Sequence[int] | None,
    dilation: Sequence[int] | None,
) -> None:
    """Bind the sizes of a convolution's result on ``axes``: the window is (kernel - 1) * dilation + 1."""
    if pad is None or stride is None or dilation is None:
        return
    legal = [
        _at_least(call, "PadSmallerZero", "pad", pad, 0),
        _at_least(call, "StrideSmallerOne", "stride", stride, 1),
        _at_least(call, "DilationSmallerOne", "dilation", dilation, 1),
    ]
    if not all(legal):
        return
    for index, axis in enumerate(axes):
        kernel = call.size(f"K{axis}")
        window = None if kernel is None else (kernel - 1) * dilation[index] + 1
        pads = pad[2 * index : 2 * index + 2]
        size = call.size(f"I{axis}")
        call.bind(f"O{axis}", _slide(call, "ConvOutputShapeNonInteger", axis, size, pads, window, stride[index]))


def _check_bias(call: AnyCall, channels: Size) -> None:
    length = call.size("BC")
    if None not in (length, channels) and length not in (1, channels):
        call.error("ConvBiasShapeMismatch", f"bias has {length} values for {channels} output channels", "bias")


def _check_operands(call: AnyCall, channels: Size) -> None:
    _check_bias(call, channels)
    check_zero_point(call, "input_zp", call.dtype("input"), "InputZeroPointNotZero")
    check_zero_point(call, "weight_zp", call.dtype("weight"), "WeightZeroPointNotZero")


def conv2d(call: Call[ops.Conv2d]) -> None:
    """CONV2D."""
    _check_operands(call, call.size("OC"))
    _convolve(call, "HW", call.vector("pad", 4), call.vector("stride", 2), call.vector("dilation", 2))


def conv3d(call: Call[ops.Conv3d]) -> None:
    """CONV3D."""
    _check_operands(call, call.size("OC"))
    _convolve(call, "DHW", call.vector("pad", 6), call.vector("stride", 3), call.vector("dilation", 3))


def depthwise_conv2d(call: Call[ops.DepthwiseConv2d]) -> None:
    """DEPTHWISE_CONV2D: every channel has M results."""
    channels, multiplier = call.size("C"), call.size("M")
    results = None if channels is None or multiplier is None else channels * multiplier
    call.bind("C*M", results)
    _check_operands(call, results)
    _convolve(call, "HW", call.vector("pad", 4), call.vector("stride", 2), call.vector("dilation", 2))


def conv2d_block_scaled(call: Call[ops.Conv2dBlockScaled]) -> None:
    """CONV2D_BLOCK_SCALED: pad, stride and dilation are operands."""
    _check_bias(call, call.size("OC"))
    _convolve(call, "HW", _operand(call, "pad", 4), _operand(call, "stride", 2), _operand(call, "dilation", 2))


def transpose_conv2d(call: Call[ops.TransposeConv2d]) -> None:
    """TRANSPOSE_CONV2D: (size - 1) * stride + out_pads + kernel."""
    _check_operands(call, call.size("OC"))
    pad, stride = call.vector("out_pad", 4), call.vector("stride", 2)
    if pad is None or stride is None or not _at_least(call, "StrideSmallerOne", "stride", stride, 1):
        return
    for index, axis in enumerate("HW"):
        size, kernel, pads = call.size(f"I{axis}"), call.size(f"K{axis}"), pad[2 * index : 2 * index + 2]
        if size is None or kernel is None:
            continue
        if min(pads) <= -kernel:
            message = f"out_pad on axis {axis} is {list(pads)}, it must be above minus the kernel size {kernel}"
            call.error("PadLargerEqualKernel", message)
            continue
        call.bind(f"O{axis}", (size - 1) * stride[index] + sum(pads) + kernel)


def _operand(call: AnyCall, name: str, length: int) -> tuple[int, ...] | None:
    """Values of a shape operand, None where they are unknown or their number is wrong (reported elsewhere)."""
    values = call.integers(name)
    return values if values is not None and len(values) == length else None


def _pool(
    call: AnyCall,
    kernel: Sequence[int] | None,
    stride: Sequence[int] | None,
    pad: Sequence[int] | None,
) -> None:
    """Bind the sizes of a pooling result."""
    if kernel is None or stride is None or pad is None:
        return
    legal = [
        _at_least(call, "KernelSmallerOne", "kernel", kernel, 1),
        _at_least(call, "StrideSmallerOne", "stride", stride, 1),
        _at_least(call, "PadSmallerZero", "pad", pad, 0),
    ]
    for axis, window, pads in (("H", kernel[0], pad[:2]), ("W", kernel[1], pad[2:])):
        if legal[0] and max(pads) >= window:
            message = f"pad on axis {axis} is {list(pads)}, it must be below the window's {window}"
            call.error("PadLargerEqualKernel", message)
            legal.append(False)
    if not all(legal):
        return
    for index, axis in enumerate("HW"):
        pads, size = pad[2 * index : 2 * index + 2], call.size(f"I{axis}")
        code = "PoolingOutputShapeNonInteger"
        call.bind(f"O{axis}", _slide(call, code, axis, size, pads, kernel[index], stride[index]))


def _check_average(call: AnyCall) -> None:
    dtype = call.dtype("input")
    check_zero_point(call, "input_zp", dtype, "InputZeroPointNotZero")
    check_zero_point(call, "output_zp", dtype, "OutputZeroPointNotZero")


def avg_pool2d(call: Call[ops.AvgPool2d]) -> None:
    """AVG_POOL2D."""
    _check_average(call)
    _pool(call, call.vector("kernel", 2), call.vector("stride", 2), call.vector("pad", 4))


def max_pool2d(call: Call[ops.MaxPool2d]) -> None:
    """MAX_POOL2D."""
    _pool(call, call.vector("kernel", 2), call.vector("stride", 2), call.vector("pad", 4))


def avg_pool2d_adaptive(call: Call[ops.AvgPool2dAdaptive]) -> None:
    """AVG_POOL2D_ADAPTIVE: kernel, stride and pad are operands."""
    _check_average(call)
    _pool(call, _operand(call, "kernel", 2), _operand(call, "stride", 2), _operand(call, "pad", 4))


def max_pool2d_adaptive(call: Call[ops.MaxPool2dAdaptive]) -> None:
    """MAX_POOL2D_ADAPTIVE: kernel, stride and pad are operands."""
    _pool(call, _operand(call, "kernel", 2), _operand(call, "stride", 2), _operand(call, "pad", 4))
