"""GATHER and SCATTER graphs for tests."""

import numpy as np
from hypothesis import strategies as st

from tests.support.build import Net
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES

DIGITS = (DType.INT8, DType.INT16, DType.INT32)


def gather(dtype: DType, values: tuple[int, int, int], width: int, *, seed: int | None = None) -> Program:
    """A GATHER of ``width`` rows out of ``values`` [N, K, C]; a ``seed`` makes them constant."""
    net = Net()
    batch, _, channels = values
    rows = net.input("v", dtype, values)
    if seed is not None:
        net = Net()
        low, high = INTEGER_RANGES[dtype]
        rows = net.const(np.random.default_rng(seed).integers(low, high, values, endpoint=True), dtype, "v")
    indices = net.input("i", DType.INT32, (batch, width))
    return net.program(net.op(ops.Gather(), (rows, indices), dtype, (batch, width, channels), "y"))


def scatter(dtype: DType, values: tuple[int, int, int], width: int) -> Program:
    """A SCATTER of ``width`` rows into ``values`` [N, K, C]."""
    net = Net()
    batch, _, channels = values
    rows = net.input("v", dtype, values)
    indices = net.input("i", DType.INT32, (batch, width))
    new = net.input("x", dtype, (batch, width, channels))
    return net.program(net.op(ops.Scatter(), (rows, indices, new), dtype, values, "y"))


shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 4))
"""[N, K, C]."""
