"""Reduce an axis by an elementwise operator: halves against each other, again and again."""

from tosakit.ir.build import Builder
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes


def reduce_by_halves(builder: Builder, attrs: Attributes, x: Tensor, axis: int) -> Tensor:
    """``x`` with ``axis`` reduced to one element by MAXIMUM or MINIMUM; of an odd number one element waits."""
    while (length := x.shape[axis]) > 1:
        half = length // 2
        left, right = _part(builder, x, axis, 0, half), _part(builder, x, axis, length - half, half)
        reduced = builder.op(attrs, (left, right), x.dtype, left.shape, "halves")
        x = reduced if length % 2 == 0 else builder.concat([reduced, _part(builder, x, axis, half, 1)], axis)
    return x


def _part(builder: Builder, x: Tensor, axis: int, first: int, count: int) -> Tensor:
    start, size = [0] * len(x.shape), list(x.shape)
    start[axis], size[axis] = first, count
    return builder.slice(x, start, size)
