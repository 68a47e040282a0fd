"""GATHER and SCATTER programs for tests, and what numpy makes of them."""

import numpy as np
import numpy.typing as npt

from tests.support.build import Net
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program

Indices = npt.NDArray[np.int64]


def indexed(
    shape: tuple[int, int, int],
    indices: Indices | tuple[int, int],
    dtype: DType = DType.INT8,
    *,
    scatter: bool = False,
    table: npt.NDArray[np.int64] | None = None,
) -> Program:
    """One GATHER or SCATTER of [N,K,C]; indices [N,W] are constants, or an input where only their shape is given.

    A ``table`` makes the values a constant.
    """
    net = Net()
    values: Tensor = net.input("values", dtype, shape) if table is None else net.const(table, dtype, "values")
    given = isinstance(indices, np.ndarray)
    rows = net.const(indices, DType.INT32, "indices") if given else net.input("indices", DType.INT32, tuple(indices))
    short = (shape[0], rows.shape[1], shape[2])
    if not scatter:
        return net.program(net.op(ops.Gather(), (values, rows), dtype, short, "y"))
    written = net.input("written", dtype, short)
    return net.program(net.op(ops.Scatter(), (values, rows, written), dtype, shape, "y"))


def drawn_indices(rng: np.random.Generator, batch: int, count: int, width: int, *, distinct: bool = True) -> Indices:
    """Indices below ``count``, [batch, width]; with ``distinct`` (width at most count) none comes twice in a batch."""
    lines = [rng.choice(count, width, replace=not distinct) for _ in range(batch)]
    return np.stack(lines).astype(np.int64)
