"""RESIZE graphs: sizes that TOSA allows, and the operator with its shape operands."""

import itertools

from tests.support.build import Net
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import Tensor

Pair = tuple[int, int]


def output_size(size: int, scale: Pair, offset: int, border: int) -> int:
    """Output size of one axis, or 0 where TOSA allows none."""
    wanted = (size - 1) * scale[0] - offset + border
    return wanted // scale[1] + 1 if wanted >= 0 and wanted % scale[1] == 0 else 0


def legal_axes(scale: Pair) -> list[tuple[int, int, int]]:
    """Every size from 1 to 5, offset and border of one axis that give an output."""
    n = scale[0]
    every = itertools.product(range(1, 6), range(-n, 2 * n + 1), range(-2 * n, n))
    return [(size, offset, border) for size, offset, border in every if output_size(size, scale, offset, border)]


def add_resize(
    net: Net, mode: ResizeMode, x: Tensor, scales: tuple[Pair, Pair], offsets: Pair, borders: Pair, dtype: DType
) -> Tensor:
    """RESIZE of ``x`` [N, H, W, C] to ``dtype``; scales, offsets and borders are those of H and W."""
    builder = Builder("r")
    shapes = [builder.const_shape([*scales[0], *scales[1]]), builder.const_shape(offsets), builder.const_shape(borders)]
    net.take(builder)
    n, *size, c = x.shape
    out = [output_size(size[axis], scales[axis], offsets[axis], borders[axis]) for axis in (0, 1)]
    return net.op(ops.Resize(mode=mode), (x, *shapes), dtype, (n, *out, c), "resized")
