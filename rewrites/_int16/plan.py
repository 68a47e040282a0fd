"""What ``insert_int16_rescale`` is about to build, and the questions every converter asks of a tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

import numpy as np

from rewrites._int16.scaling import Held, Scaling
from tosakit.engine.contract import Contract, Exact, WithinLsb
from tosakit.engine.rule import Context, Reference
from tosakit.errors import InvalidArgument, Unsupported
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import Array

_STEPS_PER_LSB = 1 << 20
"""Bounds are rounded up to this grid, so that a bound plus an int32 is exact in float64."""


@dataclass(frozen=True)
class Constant:
    """An operand that becomes a new constant."""

    values: Array
    dtype: DType
    name: str

    def build(self, builder: Builder) -> Tensor:
        """Add the constant to the builder."""
        if self.values.size == 1:
            return builder.number(self.values.item(), self.dtype, self.values.ndim, self.name)
        return builder.const(self.values, self.dtype, self.name)


@dataclass(frozen=True)
class Widened:
    """An operand that passes through a RESCALE of its own, also where two operands are the same tensor."""

    tensor: Tensor
    scaling: Scaling

    def build(self, builder: Builder) -> Tensor:
        """Add the RESCALE to the builder."""
        return self.scaling.build(builder, self.tensor)


Operand = Tensor | Constant | Widened


@dataclass(frozen=True)
class Result:
    """An old value, and the RESCALEs that lead to its stand-in from the new operator's result (none: that itself)."""

    old: Tensor
    steps: tuple[Scaling, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A legal operator: its operands, the dtype of its result, and the old values that RESCALEs of it replace.

    ``covers`` are the old operators whose joint function that is.
    """

    attrs: Attributes
    operands: tuple[Operand, ...]
    dtype: DType
    results: tuple[Result, ...]
    contract: Contract
    reference: Reference
    covers: tuple[AnyOp, ...]


def within(bound: Fraction, because: str) -> Contract:
    """The contract of results within ``bound`` LSB of their real values."""
    return WithinLsb(ceil(bound * _STEPS_PER_LSB) / _STEPS_PER_LSB, because) if bound else Exact()


def require_symmetric(tensor: Tensor) -> None:
    """Raise InvalidArgument for a zero point on a type for which TOSA has none."""
    params = tensor.quantization
    if params is not None and params.zero_point != 0 and tensor.dtype not in (DType.INT4, DType.INT8):
        raise InvalidArgument(
            f'tensor "{tensor.name}" is {tensor.dtype.name} with zero point {params.zero_point}; TOSA knows only 0 '
            "there, so quantise it symmetrically and export the model again"
        )


def require_static(tensor: Tensor) -> None:
    """Raise Unsupported for a tensor with a size that is not known."""
    if any(size <= 0 for size in tensor.shape):
        raise Unsupported(f'"{tensor.name}" has shape {list(tensor.shape)}; its sizes must be known')


def scales_of(tensor: Tensor) -> tuple[Fraction, ...]:
    """The exact real scales of a tensor, in the order of their axis. Raises Unsupported where it has none."""
    if tensor.quantization is None:
        raise Unsupported(
            f'tensor "{tensor.name}" has no quantisation parameters, so its scale is not known; give them in memory or '
            "in the sidecar, model.qparams.json beside model.tosa"
        )
    require_symmetric(tensor)
    return tuple(Fraction(scale) for scale in tensor.quantization.scale)


def scale_of(tensor: Tensor) -> Fraction:
    """The one scale of a tensor. Raises Unsupported where it has none or several."""
    scales = scales_of(tensor)
    if len(scales) != 1:
        raise Unsupported(f'tensor "{tensor.name}" has {len(scales)} scales along an axis; here it must have one')
    return scales[0]


def held_by(tensor: Tensor, context: Context) -> Held:
    """What an operand can hold, over all channels."""
    interval = context.intervals.of(tensor)
    return Held(interval.lowest, interval.highest)


def only_value(tensor: Tensor) -> int:
    """The value of a constant with one element. Raises Unsupported for any other tensor."""
    values = tensor.values() if tensor.is_constant else None
    if values is None or values.size != 1:
        raise Unsupported(f'"{tensor.name}" is not a constant of one value')
    return int(values.reshape(()).item())


def given(values: Mapping[Tensor, Array], tensor: Tensor) -> Array:
    """The integers of a tensor in a reference: constant data, else the given values."""
    return np.asarray(values[tensor] if tensor.data is None else tensor.values(), np.int64)


def real_sum(*terms: tuple[Array, Fraction]) -> Array:
    """The sum of integer arrays times rational factors, computed exactly and rounded once to float64."""
    denominator = lcm(*(factor.denominator for _, factor in terms))
    total = sum(array.astype(object) * int(factor * denominator) for array, factor in terms)
    return np.asarray(total / denominator, np.float64)


def real_ratio(dividend: Array, divisor: Array, factor: Fraction) -> Array:
    """``dividend * factor / divisor`` of integer arrays, rounded once to float64."""
    above = dividend.astype(object) * factor.numerator
    return np.asarray(above / (divisor.astype(object) * factor.denominator), np.float64)


def real_channels(integers: Array, scales: Sequence[Fraction], offsets: Sequence[Fraction]) -> Array:
    """``(integers + offset) * scale`` by index of the last axis, or one for all; exact, rounded once to float64."""
    if len(scales) == len(offsets) == 1:
        return _real(integers, scales[0], offsets[0])
    channels = integers.shape[-1]
    columns = [_real(integers[..., c], scales[c % len(scales)], offsets[c % len(offsets)]) for c in range(channels)]
    return np.stack(columns, axis=-1)


def _real(integers: Array, scale: Fraction, offset: Fraction) -> Array:
    slope, constant = scale, scale * offset
    denominator = lcm(slope.denominator, constant.denominator)
    above = integers.astype(object) * int(slope * denominator) + int(constant * denominator)
    return np.asarray(above / denominator, np.float64)
