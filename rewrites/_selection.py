"""Choose channels by a 1x1 convolution whose weights are zeros and ones: exact, and often the cheapest way to move."""

import numpy as np
import numpy.typing as npt

from rewrites._accumulator import ACCUMULATORS
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor


def select_channels(builder: Builder, x: Tensor, weight: npt.NDArray[np.int64]) -> Tensor:
    """``x`` [N,H,W,IC] of INT8 or INT16 with the channels [OC] that ``weight`` [OC,IC] has its only one at.

    The scale of the RESCALE is one, and all values that it reads are those of ``x``, so nothing is rounded.
    """
    accumulated = ACCUMULATORS[x.dtype]
    kernel = builder.const(weight[:, None, None, :], DType.INT8, "selection")
    zero_points = [builder.const(np.zeros(1, np.int64), dtype, "zp") for dtype in (x.dtype, DType.INT8)]
    bias = builder.const(np.zeros(1, np.int64), accumulated, "bias")
    attrs = ops.Conv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=accumulated)
    shape = (*x.shape[:3], len(weight))
    chosen = builder.op(attrs, (x, kernel, bias, *zero_points), accumulated, shape, "chosen")
    bits = 30 if accumulated == DType.INT32 else 14
    return builder.rescale(chosen, x.dtype, 1 << bits, bits, scale32=accumulated == DType.INT32)
