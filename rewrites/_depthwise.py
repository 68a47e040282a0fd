"""DEPTHWISE_CONV2D of every channel with one kernel."""

import numpy as np
import numpy.typing as npt

from rewrites._accumulator import ACCUMULATORS
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor

LARGEST_INT8 = 127


def depthwise(
    builder: Builder,
    x: Tensor,
    kernel: npt.NDArray[np.int64],
    *,
    stride: tuple[int, ...] = (1, 1),
    pad: tuple[int, ...] = (0, 0, 0, 0),
    input_zp: int = 0,
    name: str = "sums",
) -> Tensor:
    """Sums of ``x`` [N,H,W,C] of INT8 or INT16, less ``input_zp``, times ``kernel`` [KH,KW] of 0 to 255."""
    accumulated, channels = ACCUMULATORS[x.dtype], x.shape[3]
    weight_zp = -128 if kernel.max() > LARGEST_INT8 else 0
    weight = np.broadcast_to(kernel[:, :, None, None] + weight_zp, (*kernel.shape, channels, 1))
    operands = (
        x,
        builder.const(weight, DType.INT8, "weight"),
        builder.const(np.zeros(channels, np.int64), accumulated, "bias"),
        builder.number(input_zp, x.dtype, name="input_zp"),
        builder.number(weight_zp, DType.INT8, name="weight_zp"),
    )
    attrs = ops.DepthwiseConv2d(pad=pad, stride=stride, dilation=(1, 1), acc_type=accumulated)
    axes = zip(x.shape[1:3], kernel.shape, stride, pad[::2], pad[1::2], strict=True)
    rows, columns = ((size + before + after - taps) // step + 1 for size, taps, step, before, after in axes)
    return builder.op(attrs, operands, accumulated, (x.shape[0], rows, columns, channels), name)
