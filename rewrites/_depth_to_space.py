"""Depth to space: phases that stand side by side on the channels become rows and columns."""

from tosakit.ir.build import Builder
from tosakit.ir.graph import Tensor


def depth_to_space(
    builder: Builder, x: Tensor, block: tuple[int, int], start: tuple[int, int], size: tuple[int, int]
) -> Tensor:
    """[N,Q,R,sy*sx*C], channels in the order (row, column, C), as [N,Q*sy,R*sx,C] cut to ``size`` at ``start``."""
    batch, rows, columns, depth = x.shape
    sy, sx = block
    channels = depth // (sy * sx)
    if sy > 1:
        x = builder.reshape(x, (batch * rows, columns, sy, sx * channels))
        x = builder.transpose(x, (0, 2, 1, 3))
    if sy * sx > 1:
        x = builder.reshape(x, (batch, rows * sy, columns * sx, channels))
    wanted = (batch, *size, channels)
    return x if x.shape == wanted else builder.slice(x, (0, *start, 0), wanted)
