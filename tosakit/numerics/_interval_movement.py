"""Intervals of the operators that move, choose or average data along axes, in terms of those of operands."""

from collections.abc import Mapping

import numpy as np

from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp
from tosakit.ir.operator import Attributes
from tosakit.numerics._interval import (
    Handler,
    Interval,
    Lookup,
    add,
    arrays,
    fit,
    hull,
    last,
    operand,
    sizes,
    subtract,
    times,
)


def _same(op: AnyOp, of: Lookup) -> Interval:
    return operand(op, 0, of)


def _either(op: AnyOp, of: Lookup) -> Interval:
    """SCATTER: what was there, or what is written over it."""
    return hull(operand(op, 0, of), operand(op, 2, of))


def _reshape(op: AnyOp, of: Lookup) -> Interval:
    """Channels stay apart where one of the two last axes is a multiple of the other, since data is row-major."""
    x, before, after = of(op.inputs[0]), last(op.inputs[0]), last(op.output)
    if not x.is_per_channel or after <= 0 or max(before, after) % min(before, after):
        return x.overall
    low, high = (np.broadcast_to(bound, before) for bound in (x.low, x.high))
    if after >= before:
        return Interval(np.tile(low, after // before), np.tile(high, after // before))
    return Interval(low.reshape(-1, after).min(axis=0), high.reshape(-1, after).max(axis=0))


def _transpose(op: AnyOp, of: Lookup) -> Interval:
    x, rank = of(op.inputs[0]), len(op.inputs[0].shape)
    keeps_last = isinstance(op.attrs, ops.Transpose) and op.attrs.perms[-1:] == (rank - 1,)
    return x if keeps_last else x.overall


def _slice(op: AnyOp, of: Lookup) -> Interval:
    x, channels = of(op.inputs[0]), last(op.output)
    start = sizes(op.inputs[1], len(op.inputs[0].shape))
    if not x.is_per_channel or not start or channels <= 0 or not 0 <= start[-1] <= last(op.inputs[0]) - channels:
        return x.overall
    taken = slice(start[-1], start[-1] + channels)
    low, high = (np.broadcast_to(bound, last(op.inputs[0])) for bound in (x.low, x.high))
    return Interval(low[taken], high[taken])


def _tile(op: AnyOp, of: Lookup) -> Interval:
    x, channels = of(op.inputs[0]), last(op.output)
    if not x.is_per_channel or channels <= 0 or channels % last(op.inputs[0]):
        return x.overall
    copies = channels // last(op.inputs[0])
    return Interval(np.tile(x.low, copies), np.tile(x.high, copies))


def _reverse(op: AnyOp, of: Lookup) -> Interval:
    x = operand(op, 0, of)
    if not x.is_per_channel or not isinstance(op.attrs, ops.Reverse) or op.attrs.axis != len(op.output.shape) - 1:
        return x
    low, high = (np.broadcast_to(bound, last(op.output))[::-1] for bound in (x.low, x.high))
    return Interval(low, high)


def _concat(op: AnyOp, of: Lookup) -> Interval | None:
    if not op.inputs or not isinstance(op.attrs, ops.Concat):
        return None
    if op.attrs.axis != len(op.output.shape) - 1:
        return hull(*(operand(op, slot, of) for slot in range(len(op.inputs))))
    parts = [of(tensor) for tensor in op.inputs]
    lengths = [last(tensor) for tensor in op.inputs]
    if all(part == parts[0] and not part.is_per_channel for part in parts) or min(lengths) <= 0:
        return hull(*(part.overall for part in parts))
    low, high = (
        np.concatenate(
            [np.broadcast_to(np.asarray(bound, np.int64), n) for bound, n in zip(bounds, lengths, strict=True)]
        )
        for bounds in ([part.low for part in parts], [part.high for part in parts])
    )
    return Interval(low, high)


def _pad(op: AnyOp, of: Lookup) -> Interval:
    x, value, shape = of(op.inputs[0]), of(op.inputs[2]).overall, op.inputs[0].shape
    padding = sizes(op.inputs[1], 2 * len(shape))
    if padding is None or min(padding, default=0) < 0:
        return hull(x.overall, value)
    before, after = padding[-2:] or (0, 0)
    if any(padding[:-2]):
        x = hull(x, value)
    if not before and not after:
        return x
    if not x.is_per_channel or last(op.inputs[0]) <= 0:
        return hull(x.overall, value)
    low, high = arrays(x)
    sides = (before, after)
    return Interval(
        np.pad(np.broadcast_to(low, shape[-1]), sides, constant_values=value.lowest),
        np.pad(np.broadcast_to(high, shape[-1]), sides, constant_values=value.highest),
    )


def _resize(op: AnyOp, of: Lookup) -> Interval | None:
    """BILINEAR is a mean of neighbours times the two scale numerators; TOSA leaves dividing by them to a RESCALE."""
    mode, value = op.attrs.mode if isinstance(op.attrs, ops.Resize) else ResizeMode.UNKNOWN, operand(op, 0, of)
    if mode == ResizeMode.NEAREST:
        return value
    if mode != ResizeMode.BILINEAR:
        return None
    scale = sizes(op.inputs[1], 4)
    if scale is None or min(scale) <= 0:
        return hull(value, times(value, 1 << 62))
    return times(value, scale[0] * scale[2])


def _avg_pool2d(op: AnyOp, of: Lookup) -> Interval | None:
    """A mean lies among its values: the multiplier for 1/count is off by less than half a unit of them.

    TOSA takes ``floor((2**30 + 1) * 2**k / count)`` for the multiplier and ``30 + k`` for the shift, so a sum of
    ``count`` values v becomes v times 1 + d with ``|d| <= 2**-29``, which rounds to v while ``|v| < 2**28``.
    Padding is not counted.
    """
    if op.output.dtype not in (DType.INT8, DType.INT16):
        return None
    return add(subtract(operand(op, 0, of), of(op.inputs[1]).overall), of(op.inputs[2]).overall)


def _reduce_extreme(op: AnyOp, of: Lookup) -> Interval:
    """REDUCE_MAX and REDUCE_MIN along another axis than the last keep channels apart."""
    x, attrs = of(op.inputs[0]), op.attrs
    if not isinstance(attrs, ops.ReduceMax | ops.ReduceMin) or attrs.axis != len(op.inputs[0].shape) - 1:
        return fit(x, last(op.output))
    low, high = arrays(x)
    reduce = np.max if isinstance(attrs, ops.ReduceMax) else np.min
    return Interval(int(reduce(low)), int(reduce(high)))


HANDLERS: Mapping[type[Attributes], Handler] = {
    ops.Identity: _same,
    ops.Reshape: _reshape,
    ops.Transpose: _transpose,
    ops.Slice: _slice,
    ops.Concat: _concat,
    ops.Pad: _pad,
    ops.Tile: _tile,
    ops.Reverse: _reverse,
    ops.Gather: _same,
    ops.RowGather: _same,
    ops.Scatter: _either,
    ops.Resize: _resize,
    ops.MaxPool2d: _same,
    ops.MaxPool2dAdaptive: _same,
    ops.AvgPool2d: _avg_pool2d,
    ops.AvgPool2dAdaptive: _avg_pool2d,
    ops.ReduceMax: _reduce_extreme,
    ops.ReduceMin: _reduce_extreme,
}
