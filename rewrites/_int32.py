"""Elementwise INT32 arithmetic, broadcast, as every target has it. That results fit is for the caller to prove."""

from tosakit.ir import ops
from tosakit.ir.build import Builder, broadcast
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES

MAXIMUM = ops.Maximum(nan_mode=NanPropagationMode.PROPAGATE)
MINIMUM = ops.Minimum(nan_mode=NanPropagationMode.PROPAGATE)

UNIT = (1 << 30, 30)
"""Multiplier and shift of the scale 1."""


def binary(builder: Builder, attrs: Attributes, a: Tensor, b: Tensor, name: str = "") -> Tensor:
    """An operator on two INT32 tensors of one rank."""
    return builder.op(attrs, (a, b), DType.INT32, broadcast(a.shape, b.shape), name)


def sub(builder: Builder, a: Tensor, b: Tensor, name: str = "") -> Tensor:
    """``a - b``."""
    return binary(builder, ops.Sub(), a, b, name)


def mul(builder: Builder, a: Tensor, b: Tensor, name: str = "") -> Tensor:
    """``a * b`` of two tensors of INT8, INT16 or INT32; the result is INT32."""
    shift = builder.number(0, DType.INT8, name="mul_shift")
    return builder.op(ops.Mul(), (a, b, shift), DType.INT32, broadcast(a.shape, b.shape), name)


def times(builder: Builder, x: Tensor, factor: int, name: str = "") -> Tensor:
    """An INT32 tensor times a number."""
    return x if factor == 1 else mul(builder, x, number(builder, factor, x), name)


def number(builder: Builder, value: int, like: Tensor) -> Tensor:
    """A number that broadcasts to ``like``."""
    return builder.number(value, DType.INT32, len(like.shape))


def bounded(builder: Builder, x: Tensor, low: int, high: int) -> Tensor:
    """``x``, or the nearest number from ``low`` to ``high``: CLAMP does not take INT32."""
    raised = binary(builder, MAXIMUM, x, number(builder, low, x))
    return binary(builder, MINIMUM, raised, number(builder, high, x))


def absolute(builder: Builder, x: Tensor) -> Tensor:
    """``|x|``; x is above -2^31."""
    return builder.op(ops.Abs(), (x,), DType.INT32, x.shape)


def nonzero(builder: Builder, x: Tensor) -> Tensor:
    """1 where x is not 0; x is above -2^31."""
    return binary(builder, MINIMUM, absolute(builder, x), number(builder, 1, x))


def negation(builder: Builder, x: Tensor) -> Tensor:
    """``1 - x``: the other of 0 and 1."""
    return sub(builder, number(builder, 1, x), x)


def resized(builder: Builder, x: Tensor, dtype: DType) -> Tensor:
    """The same values, which fit, in another integer type."""
    return x if x.dtype == dtype else builder.rescale(x, dtype, *UNIT, scale32=True)


def narrowed(builder: Builder, x: Tensor, dtype: DType) -> Tensor:
    """The same values, which fit, in a narrower type, bounded first.

    RESCALE leaves open what it makes of values beyond its range, and intervals alone do not show that these are not.
    """
    return resized(builder, bounded(builder, x, *INTEGER_RANGES[dtype]), dtype)
