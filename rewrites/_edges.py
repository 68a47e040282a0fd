"""Rows of a tensor, also beyond its edges."""

from tosakit.ir.build import Builder
from tosakit.ir.graph import Tensor


def rows_of(builder: Builder, x: Tensor, position: int, first: int, last: int) -> Tensor:
    """The rows ``first`` to ``last`` along axis ``position``; rows outside ``x`` are its first or last row."""
    size = x.shape[position]
    before = min(max(-first, 0), last - first + 1)
    after = min(max(last - size + 1, 0), last - first + 1)
    pieces = [_cut(builder, x, position, 0, 0)] * before if before else []
    if before + after <= last - first:
        pieces.append(_cut(builder, x, position, first + before, last - after))
    if after:
        pieces += [_cut(builder, x, position, size - 1, size - 1)] * after
    return builder.concat(pieces, position)


def _cut(builder: Builder, x: Tensor, position: int, first: int, last: int) -> Tensor:
    start, size = [0] * len(x.shape), list(x.shape)
    start[position], size[position] = first, last - first + 1
    return x if tuple(size) == x.shape else builder.slice(x, start, size)
