"""What accumulating operators compute on integers, in numpy: convolutions, MATMUL and bilinear RESIZE of TOSA 1.0.

Products are summed in float64, which is exact for every sum that fits INT48. Zero points are subtracted by the caller.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from tosakit.ir import ops
from tosakit.ir.operator import Attributes
from tosakit.ir.types import Array


def convolve(attrs: Attributes, x: Array, weight: Array, out_shape: tuple[int, ...]) -> Array:
    """Accumulators of a convolution without its bias, int64. ``x`` is [N, spatial.., IC], ``weight`` as TOSA has it."""
    if isinstance(attrs, ops.TransposeConv2d):
        return _transposed(attrs, x, weight, out_shape)
    if isinstance(attrs, ops.DepthwiseConv2d):
        kernel, multiplied = weight.shape[:2], weight
    else:
        kernel, multiplied = weight.shape[1:-1], np.moveaxis(weight, 0, -1)  # [kernel.., IC, OC]
    assert isinstance(attrs, ops.Conv2d | ops.Conv3d | ops.DepthwiseConv2d)
    pads = list(zip(attrs.pad[::2], attrs.pad[1::2], strict=True))
    padded = np.pad(x, [(0, 0), *pads, (0, 0)]).astype(np.float64)
    total = np.zeros(out_shape, np.float64)
    for tap in product(*(range(size) for size in kernel)):
        window = tuple(
            slice(at * dilation, at * dilation + (size - 1) * stride + 1, stride)
            for at, dilation, size, stride in zip(tap, attrs.dilation, out_shape[1:-1], attrs.stride, strict=True)
        )
        seen = padded[(slice(None), *window)]
        if isinstance(attrs, ops.DepthwiseConv2d):
            total += (seen[..., None] * multiplied[tap]).reshape(out_shape)  # channel c*M + m
        else:
            total += seen @ multiplied[tap].astype(np.float64)
    return total.astype(np.int64)


def _transposed(attrs: ops.TransposeConv2d, x: Array, weight: Array, out_shape: tuple[int, ...]) -> Array:
    """Every input adds its window of weights to the output, at ``stride * position + out_pad``."""
    top, _, left, _ = attrs.out_pad
    step_y, step_x = attrs.stride
    total = np.zeros(out_shape, np.float64)
    for tap_y, tap_x in product(range(weight.shape[1]), range(weight.shape[2])):
        added = x.astype(np.float64) @ weight[:, tap_y, tap_x].T.astype(np.float64)
        ys = np.arange(x.shape[1]) * step_y + top + tap_y
        xs = np.arange(x.shape[2]) * step_x + left + tap_x
        in_y, in_x = (ys >= 0) & (ys < out_shape[1]), (xs >= 0) & (xs < out_shape[2])
        total[:, ys[in_y][:, None], xs[in_x]] += added[:, in_y][:, :, in_x]
    return total.astype(np.int64)


def matrix_product(a: Array, b: Array) -> Array:
    """Accumulators of MATMUL, int64."""
    return np.asarray((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))


def interpolate(x: Array, scale: Sequence[int], offset: Sequence[int], size: Sequence[int]) -> Array:
    """Accumulators of RESIZE in BILINEAR mode, int64: pixels times ``scale_y_n * scale_x_n``.

    ``x`` is [N, H, W, C], ``scale`` (y_n, y_d, x_n, x_d), ``offset`` (y, x) and ``size`` (OH, OW).
    """
    unit_y, unit_x = scale[0], scale[2]
    above, below, down = _neighbours(size[0], scale[0], scale[1], offset[0], x.shape[1])
    left, right, across = _neighbours(size[1], scale[2], scale[3], offset[1], x.shape[2])
    down, across = down[:, None, None], across[:, None]
    wide = x.astype(np.int64)
    upper = wide[:, above][:, :, left] * (unit_x - across) + wide[:, above][:, :, right] * across
    lower = wide[:, below][:, :, left] * (unit_x - across) + wide[:, below][:, :, right] * across
    return np.asarray(upper * (unit_y - down) + lower * down)


def _neighbours(count: int, numerator: int, denominator: int, offset: int, limit: int) -> tuple[Array, Array, Array]:
    """Per output position, the input positions on both sides and how far in between it lies, in 1/numerator."""
    place = np.arange(count) * denominator + offset
    first = place // numerator
    return np.maximum(first, 0), np.minimum(first + 1, limit - 1), place - first * numerator
