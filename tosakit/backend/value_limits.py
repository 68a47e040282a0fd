"""Limits of Vela 5.2 that depend on shapes and attributes; each function says what is wrong at an operator, or nothing.

Lengths and factors were found by running Vela on both sides.
"""

import math
from collections.abc import Sequence
from typing import Any

from tosakit.backend.targets import LARGEST_PADDED_POOL
from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.numerics.intervals import Intervals

LONGEST = 1 << 16
"""The longest axis where Vela does not split an operator."""

HIGHEST_RANK = 6
LONGEST_ARGMAX = 127
LONGEST_STRIDE = 3
RESIZE_FACTORS = (2, 4, 8)
WIDEST_INT32_SWAP = 1 << 14
"""Channels of an INT32 TRANSPOSE that swaps height and width."""


def _attrs(op: AnyOp) -> Any:
    return op.attrs


def rank(op: AnyOp, _: Intervals) -> str | None:
    """A tensor of more than six dimensions."""
    for tensor in (*op.outputs, *op.inputs):
        if tensor.dtype != DType.SHAPE and len(tensor.shape) > HIGHEST_RANK:
            return f'"{tensor.name}" has rank {len(tensor.shape)}, the target takes up to {HIGHEST_RANK}'
    return None


def channels(op: AnyOp, _: Intervals) -> str | None:
    """Too many channels for a window to be split."""
    count = op.inputs[0].shape[-1]
    return f"its input has {count} channels, the target takes up to {LONGEST}" if count > LONGEST else None


def argmax(op: AnyOp, _: Intervals) -> str | None:
    """Another than the last axis, too many elements along it, or a batch."""
    shape, axis = op.inputs[0].shape, _attrs(op).axis
    if axis != len(shape) - 1:
        return f"axis {axis} is not the last of {list(shape)}"
    if shape[-1] > LONGEST_ARGMAX:
        return f"its axis has {shape[-1]} elements, the target takes up to {LONGEST_ARGMAX}"
    batch = math.prod(shape[:-3])
    return f"the shape {list(shape)} has a batch of {batch}, the target takes 1" if batch > 1 else None


def conv3d_depth(op: AnyOp, _: Intervals) -> str | None:
    """More than one tap in depth; for INT16 also a stride or padding."""
    attrs, taps = _attrs(op), op.inputs[1].shape[1]
    if taps > 1:
        return f"its kernel has {taps} taps in depth, the target takes 1"
    if op.inputs[0].dtype == DType.INT16 and (attrs.stride[0] > 1 or any(attrs.pad[:2])):
        return (
            f"it has stride {attrs.stride[0]} and padding {list(attrs.pad[:2])} in depth, the target takes 1 and none"
        )
    return None


def padded_pool(op: AnyOp, _: Intervals) -> str | None:
    """Padding around a large kernel."""
    attrs = _attrs(op)
    if max(attrs.kernel) > LARGEST_PADDED_POOL and any(attrs.pad):
        return (
            f"its kernel is {list(attrs.kernel)} and it pads by {list(attrs.pad)}; "
            f"with padding the target takes up to {LARGEST_PADDED_POOL}"
        )
    return None


def long_stride(op: AnyOp, _: Intervals) -> str | None:
    """A stride above three that Vela cannot take apart.

    A dilation above two is taken apart first, into convolutions of the strides and dilations less their common factor.
    A stride alone is taken apart by CONV2D without padding and dilation, never by DEPTHWISE_CONV2D.
    """
    attrs, result = _attrs(op), op.outputs[0].shape
    depthwise = isinstance(op.attrs, ops.DepthwiseConv2d)
    taps = op.inputs[1].shape[:2] if depthwise else op.inputs[1].shape[1:3]
    strides = [1 if size == 1 else stride for size, stride in zip(result[1:3], attrs.stride, strict=True)]
    dilations = [1 if count == 1 else dilation for count, dilation in zip(taps, attrs.dilation, strict=True)]
    if max(dilations) > 2:
        factors = [math.gcd(*pair) for pair in zip(strides, dilations, strict=True)]
        strides = [stride // factor for stride, factor in zip(strides, factors, strict=True)]
        dilations = [dilation // factor for dilation, factor in zip(dilations, factors, strict=True)]
    if max(strides) <= LONGEST_STRIDE:
        return None
    told = f"its stride is {list(attrs.stride)}, the target takes up to {LONGEST_STRIDE}"
    if depthwise:
        one_channel = op.inputs[0].shape[-1] == 1 and result[-1] > 1 and max(dilations) == 1 and not any(attrs.pad)
        return None if one_channel else told
    if max(dilations) > 1:
        return f"{told} together with a dilation of {list(attrs.dilation)}"
    padded = any(attrs.pad) and max(taps) > 1
    return f"{told} together with padding by {list(attrs.pad)}" if padded else None


def transpose_stride(op: AnyOp, _: Intervals) -> str | None:
    """Strides that do not enlarge both axes by one or both by two; an axis of one element and one tap has none."""
    axes = zip(_attrs(op).stride, op.inputs[0].shape[1:3], op.inputs[1].shape[1:3], strict=True)
    strides = dict.fromkeys(stride for stride, size, taps in axes if size > 1 or taps > 1)
    if len(strides) < 2 and all(stride <= 2 for stride in strides):
        return None
    return f"its stride is {list(_attrs(op).stride)}, the target takes [1, 1] and [2, 2]"


def reversed_channels(op: AnyOp, _: Intervals) -> str | None:
    """The last axis, where nothing but ones stands before the last three."""
    shape, axis = op.inputs[0].shape, _attrs(op).axis
    if axis == len(shape) - 1 and math.prod(shape[:-3]) == 1:
        return f"axis {axis} is the last of {list(shape)}, which the target does not reverse"
    return None


def transpose(op: AnyOp, _: Intervals) -> str | None:
    """An axis too long to be moved, or an INT32 swap of height and width with too many channels."""
    x, perms = op.inputs[0], _attrs(op).perms
    if tuple(perms) == tuple(range(len(perms))):
        return None
    if max(x.shape, default=1) > LONGEST:
        return f"an axis of {list(x.shape)} is longer than {LONGEST}"
    swaps = len(perms) > 2 and tuple(perms[-3:]) == (len(perms) - 2, len(perms) - 3, len(perms) - 1)
    if swaps and x.dtype == DType.INT32 and x.shape[-1] > WIDEST_INT32_SWAP:
        return f"it swaps axes of INT32 {list(x.shape)}, the target does so for up to {WIDEST_INT32_SWAP} channels"
    return None


def matmul(op: AnyOp, _: Intervals) -> str | None:
    """An axis of the second operand too long to be moved."""
    shape = op.inputs[1].shape
    return f"an axis of {list(shape)} is longer than {LONGEST}" if max(shape) > LONGEST else None


def reduced_axis(op: AnyOp, _: Intervals) -> str | None:
    """A sum along another than the last axis with an axis too long to be moved."""
    shape, axis = op.inputs[0].shape, _attrs(op).axis
    if axis != len(shape) - 1 and max(shape) > LONGEST:
        return f"it sums along axis {axis}, and an axis of {list(shape)} is longer than {LONGEST}"
    return None


# ------------------------------------------------------------------------------------------ RESIZE
def resize_bilinear(op: AnyOp, _: Intervals) -> str | None:
    """Everything but a copy, unless to INT48."""
    return None if _attrs(op).mode != ResizeMode.BILINEAR else _resize(op)


def resize_nearest(op: AnyOp, _: Intervals) -> str | None:
    """Everything but a copy, a single pixel, and 2, 4 or 8 times with aligned corners or half-pixel centres."""
    return None if _attrs(op).mode != ResizeMode.NEAREST else _resize(op)


def _resize(op: AnyOp) -> str | None:
    scale, offset, border = (_sizes(tensor) for tensor in op.inputs[1:4])
    if scale is None or offset is None or border is None:
        return "its scale, offset or border is no constant"
    batch, height, width = op.inputs[0].shape[:3]
    bilinear = _attrs(op).mode == ResizeMode.BILINEAR
    if op.outputs[0].dtype == DType.INT48:
        return "its result is INT48"
    if height == width == 1:
        return "it enlarges a single pixel bilinearly" if op.outputs[0].dtype != op.inputs[0].dtype else None
    if scale == [1, 1, 1, 1] and offset == border == [0, 0]:
        return None
    told = f"it is {_attrs(op).mode.name} by scale {scale}, offset {offset} and border {border}"
    if bilinear:
        return f"{told}, the target takes a copy only"
    half = [scale[1], scale[3]] == [2, 2] and offset == [1 - scale[0] // 2, 1 - scale[2] // 2]
    factors = [scale[0] // 2, scale[2] // 2] if half else [scale[0], scale[2]]
    out_height, out_width = op.outputs[0].shape[1:3]
    growth = max((out_height - 1) / max(height - 1, 1), (out_width - 1) / max(width - 1, 1))
    if max(factors) not in RESIZE_FACTORS or not (half or growth == max(factors)):
        return f"{told}, the target takes NEAREST by {list(RESIZE_FACTORS)}, corners aligned or half-pixel centres"
    if any(factor == 1 != size for factor, size in zip(factors, (height, width), strict=True)):
        return f"{told}, the target enlarges both axes or none"
    return f"it has a batch of {batch}, the target takes 1" if batch > 1 else None


def _sizes(tensor: Tensor) -> list[int] | None:
    """The sizes of a shape constant."""
    try:
        return [int(size) for size in _flat(tensor)] if tensor.is_constant else None
    except TosakitError:
        return None


def _flat(tensor: Tensor) -> Sequence[int]:
    values: list[int] = tensor.values().reshape(-1).tolist()
    return values
