"""Intervals of accumulators: convolutions, matrix products and REDUCE_SUM.

A weighted sum ``sum(x[i] * w[i])`` with constant weights is largest where every x[i] is at its upper end for positive
weights and at its lower end for negative ones: ``high = sum(max(w, 0)) * x.high + sum(min(w, 0)) * x.low``. Where
the values of x are independent and all of them are inside the input, that bound is attained.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.numerics._interval import (
    LIMIT,
    UNBOUNDED,
    Handler,
    Interval,
    Lookup,
    arrays,
    constant,
    fit,
    hull,
    last,
    product,
    subtract,
    times,
)

CONVOLUTIONS = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d)

_LARGEST_SIZE = (1 << 31) - 1
"""No dimension of a file is larger, so it bounds those known only at run time."""

_BLOCK = 1 << 20
"""Weights that are summed at a time."""

_ZERO = Interval(0, 0)


def accumulator(op: AnyOp, of: Lookup) -> Interval:
    """What a convolution's accumulator holds before the bias, for each output channel; padding adds nothing to it."""
    attrs = op.attrs
    x = _centred(op, 0, 3, of)
    if isinstance(attrs, ops.TransposeConv2d) or any(getattr(attrs, "pad", ())):
        x = hull(x, _ZERO)
    weights, shape = _centred_constant(op.inputs[1], of(op.inputs[4])), op.inputs[1].shape
    if len(shape) != (5 if isinstance(attrs, ops.Conv3d) else 4) or x.magnitude >= LIMIT:
        return UNBOUNDED
    if weights is None:
        return _unknown_weights(attrs, x, shape, _centred(op, 1, 4, of).overall)
    if isinstance(attrs, ops.DepthwiseConv2d):
        taps = weights.reshape(-1, *shape[2:])  # [KH*KW, C, M]: input channel c gives output channels c*M ... c*M+M-1
        if x.is_per_channel and shape[2] != last(op.inputs[0]):
            x = x.overall
        if x.is_per_channel:
            x = Interval(*(np.broadcast_to(bound, taps.shape[1])[:, np.newaxis] for bound in arrays(x)))
        return _interval(*_dot(*_signed_sums(taps, axis=0), x, contract=False))
    if x.is_per_channel and shape[-1] != last(op.inputs[0]):
        x = x.overall
    if isinstance(attrs, ops.TransposeConv2d):
        return _transpose_conv(attrs, x, weights)
    return _weighted_sum(weights.reshape(shape[0], -1, shape[-1]), x)


def _transpose_conv(attrs: ops.TransposeConv2d, x: Interval, weights: NDArray[Any]) -> Interval:
    """An output is reached by the taps of one residue modulo the stride only; each residue has a bound of its own."""
    if len(attrs.stride) != 2 or min(attrs.stride) < 1:
        return UNBOUNDED
    stride_y, stride_x = attrs.stride
    out_channels, kernel_h, kernel_w, in_channels = weights.shape
    result = _ZERO  # outputs that no tap reaches, where the stride is larger than the kernel; x contains 0 anyway
    for y in range(min(stride_y, kernel_h)):
        for x_ in range(min(stride_x, kernel_w)):
            taps = weights[:, y::stride_y, x_::stride_x, :].reshape(out_channels, -1, in_channels)
            result = hull(result, _weighted_sum(taps, x))
    return result


def _unknown_weights(attrs: Attributes, x: Interval, shape: tuple[int, ...], weight: Interval) -> Interval:
    """Weights known by their range alone: every tap adds one product of an input channel and a weight."""
    term = product(x, weight)
    if isinstance(attrs, ops.DepthwiseConv2d):
        multiples = shape[3]
        term = _summed(term, shape[:2], 1)
        if not term.is_per_channel or multiples <= 0:
            return term.overall
        return Interval(np.repeat(term.low, multiples), np.repeat(term.high, multiples))
    kernel = shape[1:-1]
    if isinstance(attrs, ops.TransposeConv2d):  # the term's interval contains 0, so fewer taps are covered too
        if len(attrs.stride) != 2 or min(attrs.stride) < 1:
            return UNBOUNDED
        kernel = tuple(-(-size // stride) if size > 0 else 0 for size, stride in zip(kernel, attrs.stride, strict=True))
    return _summed(term, kernel, shape[-1])


def _matmul(op: AnyOp, of: Lookup) -> Interval:
    """MATMUL [N,H,C] x [N,C,W] and MATMUL_T [N,H,C] x [N,W,C]: sums of C products, an interval for each w."""
    a, b = op.inputs[:2]
    if len(a.shape) != 3 or len(b.shape) != 3:
        return UNBOUNDED
    transposed = isinstance(op.attrs, ops.MatMulT)
    left, right = _centred(op, 0, 2, of), _centred(op, 1, 3, of)
    if max(left.magnitude, right.magnitude) >= LIMIT:
        return UNBOUNDED
    columns = _centred_constant(b, of(op.inputs[3]))
    if columns is not None:
        columns = columns if transposed else columns.transpose(0, 2, 1)
        count, width, size = columns.shape
        sums = _weighted_sum(columns.reshape(count * width, 1, size), left if size == last(a) else left.overall)
        low, high = (np.broadcast_to(bound, count * width).reshape(count, width) for bound in arrays(sums))
        return Interval(low.min(axis=0), high.max(axis=0))
    rows = _centred_constant(a, of(op.inputs[2]))
    if rows is not None:
        count, height, size = rows.shape
        per_size = transposed and size == last(b)
        return _weighted_sum(rows.reshape(count * height, 1, size), right if per_size else right.overall).overall
    if transposed:
        return _summed(
            product(left, right) if last(a) == last(b) else product(left.overall, right.overall), (), last(a)
        )
    if left.is_per_channel:
        return _summed(product(left, right.overall), (), last(a))
    return _summed(product(left, right), (last(a),), 1)


def _reduce_sum(op: AnyOp, of: Lookup) -> Interval:
    x, shape, attrs = of(op.inputs[0]), op.inputs[0].shape, op.attrs
    if not isinstance(attrs, ops.ReduceSum) or not 0 <= attrs.axis < len(shape):
        return UNBOUNDED
    if attrs.axis == len(shape) - 1:
        return _summed(x, (), shape[-1])
    return _summed(fit(x, last(op.output)), (shape[attrs.axis],), 1)


def _centred(op: AnyOp, slot: int, zero_point_slot: int, of: Lookup) -> Interval:
    """The interval of an operand less its zero point."""
    return subtract(of(op.inputs[slot]), of(op.inputs[zero_point_slot]).overall)


def _centred_constant(tensor: Tensor, zero_point: Interval) -> NDArray[Any] | None:
    """Values of a constant operand less its zero point, in the smallest type that is wide enough; None if unknown."""
    if tensor.dtype not in (DType.INT4, DType.INT8, DType.INT16, DType.INT32) or min(tensor.shape, default=0) <= 0:
        return None
    values = constant(tensor)
    if values is None or zero_point.lowest != zero_point.highest or zero_point.magnitude >= 1 << 48:
        return None
    if not zero_point.lowest:
        return values
    narrow = values.dtype == np.int8 and zero_point.magnitude <= 1 << 8
    centred: NDArray[Any] = values.astype("int16" if narrow else "int64") - zero_point.lowest
    return centred


def _summed(terms: Interval, counts: tuple[int, ...], channels: int) -> Interval:
    """The sum of ``counts`` values of each channel (its product), and then of the ``channels`` of the last axis.

    ``channels`` is 1 where channels stay apart. A number of 0 or less is one that is known only at run time.
    """
    if terms.is_per_channel and channels != 1:
        low, high = arrays(terms)
        terms = Interval(sum(low.tolist()), sum(high.tolist()))
    elif channels != 1:
        counts = (*counts, channels)
    for count in counts:
        terms = times(terms, count) if count > 0 else hull(terms, times(terms, _LARGEST_SIZE), _ZERO)
    return terms


def _signed_sums(weights: NDArray[Any], axis: int | tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sums of the positive and of the negative weights along axes."""
    positive = np.maximum(weights, 0).sum(axis=axis, dtype=np.int64)
    return positive, weights.sum(axis=axis, dtype=np.int64) - positive


def _weighted_sum(weights: NDArray[Any], x: Interval) -> Interval:
    """The sums over taps and input channels, ``weights`` being [outputs, taps, channels of x]; shape [outputs]."""
    axes = 1 if x.is_per_channel else (1, 2)
    rows = max(1, _BLOCK // weights[0].size)  # a few outputs at a time: sums are eight times as wide as weights
    blocks = [weights[first : first + rows] for first in range(0, len(weights), rows)]
    sums = [_dot(*_signed_sums(block, axes), x, contract=x.is_per_channel) for block in blocks]
    return _interval(*(sums[0] if len(sums) == 1 else map(np.concatenate, zip(*sums, strict=True))))


def _dot(
    positive: NDArray[np.int64],
    negative: NDArray[np.int64],
    x: Interval,
    *,
    contract: bool,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """``positive * high + negative * low`` and the other way round, summed over the last axis or element by element.

    The result holds int64, or Python's integers where that is not enough.
    """
    low, high = arrays(x) if contract else (x.low, x.high)
    total = positive - negative
    largest = int((total.sum(axis=-1) if contract else total).max()) * x.magnitude
    if largest >= LIMIT:
        positive, negative, low, high = (np.asarray(a, object) for a in (positive, negative, low, high))
    combine = np.matmul if contract else np.multiply
    lower = combine(positive, low) + combine(negative, high)
    upper = combine(positive, high) + combine(negative, low)
    return lower.ravel(), upper.ravel()


def _interval(lower: NDArray[Any], upper: NDArray[Any]) -> Interval:
    """The bounds of each output; of all outputs together where they do not fit int64."""
    if lower.dtype == object:
        return Interval(int(lower.min()), int(upper.max()))
    return Interval(lower, upper)


HANDLERS: Mapping[type[Attributes], Handler] = {
    ops.MatMul: _matmul,
    ops.MatMulT: _matmul,
    ops.ReduceSum: _reduce_sum,
}
