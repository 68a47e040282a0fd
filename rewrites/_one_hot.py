"""Rows chosen by their index: one-hot vectors, and products with them digit by digit."""

import numpy as np

from rewrites._bytes import digits_of, put_together
from rewrites._int32 import UNIT, bounded, negation, nonzero, sub
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.numerics.intervals import Interval


def one_hot(builder: Builder, indices: Tensor, interval: Interval, length: int, axis: int) -> Tensor:
    """1 where the index is the position along ``axis``, else 0: INT32.

    ``indices`` is INT32 [N, W]; the result [N, W, length] for axis 2, [N, length, W] for axis 1. TOSA leaves what an
    index outside [0, length) does open; here it counts as the nearest one, so that no difference leaves INT32.
    """
    if interval.lowest < 0 or interval.highest >= length:
        indices = bounded(builder, indices, 0, length - 1)
    apart = list(indices.shape)
    apart.insert(axis, 1)
    along = [length if position == axis else 1 for position in range(3)]
    positions = builder.const(np.arange(length).reshape(along), DType.INT32, "positions")
    distance = sub(builder, builder.reshape(indices, apart), positions, "distance")
    return negation(builder, nonzero(builder, distance))


def rows_of_table(builder: Builder, chosen: Tensor, table: Tensor, dtype: DType) -> Tensor:
    """The same for a constant ``table`` [1, K, C], by CONV2D: its weights are compressed and read once.

    Every row of ``chosen`` [1, W, K] has its 1, so the bias stands for the zero point of the digits.
    """
    _, width, length = chosen.shape
    channels = table.shape[2]
    hot = builder.rescale(chosen, DType.INT8, *UNIT, scale32=True, name="one_hot")
    image = builder.reshape(hot, (1, 1, width, length))
    attrs = ops.Conv2d(pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), local_bound=False, acc_type=DType.INT32)
    no_zero_points = [builder.number(0, DType.INT8, name="zp") for _ in range(2)]
    parts = []
    for digit in digits_of(builder, table):
        kernel = digit.value.values().transpose(2, 0, 1).reshape(channels, 1, 1, length)
        weight = builder.const(np.ascontiguousarray(kernel), DType.INT8, "weight")
        bias = builder.const(np.full(channels, -digit.zero_point), DType.INT32, "bias")
        shape = (1, 1, width, channels)
        parts.append((digit.place, builder.op(attrs, (image, weight, bias, *no_zero_points), DType.INT32, shape)))
    return builder.reshape(put_together(builder, parts, dtype), (1, width, channels))


def rows_at(builder: Builder, chosen: Tensor, values: Tensor, dtype: DType) -> Tensor:
    """The rows of ``values`` [N, K, C] that the one-hot rows of ``chosen`` [N, W, K] name: [N, W, C] of ``dtype``.

    A MATMUL of INT8 for each digit of the values. A row has at most one 1, so each sum is a digit, or 0 for none.
    """
    hot = builder.rescale(chosen, DType.INT8, *UNIT, scale32=True, name="one_hot")
    shape = (*chosen.shape[:2], values.shape[2])
    no_zero_point = builder.number(0, DType.INT8, name="zp")
    parts = []
    for digit in digits_of(builder, values):
        zero_point = builder.number(digit.zero_point, DType.INT8, name="zp")
        operands = (hot, digit.value, no_zero_point, zero_point)
        parts.append((digit.place, builder.op(ops.MatMul(), operands, DType.INT32, shape, "rows")))
    return put_together(builder, parts, dtype)
