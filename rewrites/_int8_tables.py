"""An INT8 operator of two operands, one of them a single constant: a TABLE of 256 entries."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor

Integers = npt.NDArray[np.int64]
Function = Callable[[Integers, Integers], Integers]
"""What an operator computes of its two operands."""

CODES = np.arange(-128, 128)
"""Every INT8 value, in the order of a TABLE."""


def single_value(tensor: Tensor) -> int | None:
    """The value of a constant whose elements are all the same; else None."""
    if not tensor.is_constant:
        return None
    values = tensor.values().reshape(-1).astype(np.int64)
    return int(values[0]) if values.size and np.all(values == values[0]) else None


def as_table(op: AnyOp, function: Function) -> tuple[Tensor, Integers] | None:
    """The operand to look up and the entries, where an INT8 operator is a TABLE."""
    if op.output.dtype != DType.INT8:
        return None
    left, right = op.inputs[:2]
    for x, other, swapped in ((left, right, False), (right, left, True)):
        value = single_value(other)
        if value is not None and not x.is_constant and x.shape == op.output.shape:
            constant = np.full(CODES.shape, value)
            return x, function(constant, CODES) if swapped else function(CODES, constant)
    return None


def table(builder: Builder, x: Tensor, entries: Integers) -> Tensor:
    """TABLE of an INT8 tensor."""
    return builder.op(ops.Table(), (x, builder.const(entries, DType.INT8, "entries")), DType.INT8, x.shape)
