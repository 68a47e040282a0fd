"""The number that an illegal RESCALE on INT48 stands for, and the legal forms that come close, each with its bound.

Every bound is against the real number v * m / 2^s + zero point, saturated at the limits of the output's dtype, and
holds for all accumulator values v of the given interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from rewrites._accumulator import (
    clipped_to_int48,
    is_ethos_u85,
    outside_required_range,
    pre_shifts,
    saturates_at,
)
from rewrites._channels import Numbers, columns, extent, farthest, least, most, numbers, of_list, rounded
from tosakit.engine.contract import WithinLsb
from tosakit.engine.rule import Refusal
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import Op
from tosakit.ir.types import INTEGER_RANGES, Array
from tosakit.numerics.intervals import Interval
from tosakit.numerics.rescale import pair_error_bound
from tosakit.numerics.scale import MAX_SHIFT, MIN_SHIFT, closest_pairs

_SHIFTS = (-64, 127)
"""Shifts outside these limits are never part of a scale that RESCALE can express."""

_BOUND_STEPS = 1024
"""Bounds are rounded up to multiples of 1/1024 LSB, so that comparing them with measured doubles is safe."""


@dataclass(frozen=True, eq=False)
class Meaning:
    """Scales m / 2^s, zero point and dtype of the output, and what is scaled."""

    multiplier: Numbers
    shift: Numbers
    output_zp: int
    dtype: DType
    rounding_mode: RoundingMode
    low: Numbers
    high: Numbers

    @cached_property
    def scales(self) -> list[tuple[int, int]]:
        """Numerator and denominator of the exact scale, or of one for each channel."""
        return [(m, 1 << s) if s >= 0 else (m << -s, 1) for m, s in columns(self.multiplier, self.shift)]

    def scales_after(self, pre_shift: int) -> list[tuple[int, int]]:
        """The scales of values that count in units of 2^pre_shift."""
        return [(p << pre_shift, q) for p, q in self.scales] if pre_shift else self.scales

    @property
    def relevant(self) -> list[int]:
        """For each scale, the largest ``|v|`` whose error counts: larger ones saturate, and are off by no more."""
        limit = saturates_at(self.dtype, self.output_zp)
        reach, scales = farthest(self.low, self.high), self.scales
        values = [most(reach)] * len(scales) if isinstance(reach, int) or len(scales) == 1 else reach.tolist()
        return [min(v, -(-limit * q // p)) for v, (p, q) in zip(values, scales, strict=True)]

    def real_values(self, accumulator: Array) -> Array:
        """``v * m / 2^s + zero point`` of accumulator values, each the double nearest to the exact number."""
        multiplier, shift = (np.array(numbers, np.object_, ndmin=1) for numbers in (self.multiplier, self.shift))
        factor = multiplier * 2 ** np.maximum(-shift, 0)
        divisor = 2 ** np.maximum(shift, 0)
        values = np.asarray((accumulator.astype(object) * factor + self.output_zp * divisor) / divisor, np.float64)
        return values.reshape(accumulator.shape)  # of a scalar too


@dataclass(frozen=True, eq=False)
class Form:
    """The last RESCALE's numbers, the shift j of a copy to INT32 before it (None: there is none), and the bound."""

    pre_shift: int | None
    multiplier: Numbers
    shift: Numbers
    rounding_mode: RoundingMode
    contract: WithinLsb


def meaning_of(op: Op[ops.Rescale], interval: Interval) -> Meaning | Refusal:
    """What ``op`` stands for on values of ``interval``; a Refusal where that is not a positive, known scale."""
    if len(op.inputs) != len(op.attrs.OPERANDS):
        return Refusal("operands are missing")
    x, *constants = op.inputs
    for operand, tensor in zip(op.attrs.OPERANDS[1:], constants, strict=True):
        if not tensor.is_constant or tensor.dtype not in INTEGER_RANGES:
            return Refusal(f'{operand} "{tensor.name}" is no integer constant')
    channels = x.shape[-1] if op.attrs.per_channel and x.shape else 1
    extents = [extent(tensor) for tensor in constants]
    for operand, (given, _, _), size in zip(op.attrs.OPERANDS[1:], extents, (channels, channels, 1, 1), strict=True):
        if given != size:
            return Refusal(f"{operand} has {given} values where {size} are needed")
    (_, smallest, _), (_, first, last), (_, _, input_zp), (_, _, output_zp) = extents
    if op.attrs.input_unsigned or op.attrs.output_unsigned:
        return Refusal("RESCALE of INT48 knows no unsigned input or output")
    if op.output.dtype not in (DType.INT8, DType.INT16, DType.INT32):
        return Refusal(f"RESCALE of INT48 to {op.output.dtype.name} does not exist")
    if input_zp:
        return Refusal(f"INT48 has no zero point, and input_zp is {input_zp}")
    low, high = INTEGER_RANGES[op.output.dtype] if op.output.dtype == DType.INT8 else (0, 0)
    if not low <= output_zp <= high:
        return Refusal(f"output_zp {output_zp} is outside [{low}, {high}], the zero points of {op.output.dtype.name}")
    multiplier, shift = numbers(constants[0]), numbers(constants[1])
    if smallest <= 0 or first < _SHIFTS[0] or last > _SHIFTS[1]:
        for channel, (m, s) in enumerate(columns(multiplier, shift)):
            if m <= 0 or not _SHIFTS[0] <= s <= _SHIFTS[1]:
                return Refusal(
                    f"multiplier {m} with shift {s} in channel {channel} is no scale that RESCALE can express"
                )
    return Meaning(
        multiplier,
        shift,
        output_zp,
        op.output.dtype,
        op.attrs.rounding_mode,
        *clipped_to_int48(interval),
    )


def one_step(meaning: Meaning) -> Form | Refusal:
    """A 16-bit multiplier and shift: the pair itself where it is legal, else the nearest."""
    pair = _nearest(meaning, 16, pre_shift=0)
    if isinstance(pair, Refusal):
        return pair
    reason = outside_required_range(meaning.low, meaning.high, *pair, scale32=False, output_zp=meaning.output_zp)
    if reason is not None:
        return Refusal(f"the accumulator is not proved to keep the result in INT32: {reason}")
    scales = meaning.scales
    bound = _error_bound(scales, *pair, meaning.relevant)
    off = max([abs(m * q - (p << s)) / (p << s) for (m, s), (p, q) in zip(columns(*pair), scales, strict=True)])
    because = f"16-bit multiplier, off by {off:.2g} at most, and one rounding"
    if meaning.rounding_mode == RoundingMode.DOUBLE_ROUND:
        because += ", which DOUBLE_ROUND became"
    return Form(None, *pair, RoundingMode.SINGLE_ROUND, WithinLsb(_up(bound), because))


def two_steps(meaning: Meaning, target: str) -> Form | Refusal:
    """A copy to INT32, shifted by the smallest j that makes it fit, and a 31-bit multiplier with the shift s - j."""
    low, high = meaning.low, meaning.high
    j = max(most(pre_shifts(low, high, 0)), 1 if is_ethos_u85(target) else 0)
    pair = _nearest(meaning, 32, pre_shift=j)
    if isinstance(pair, Refusal):
        return pair
    reason = outside_required_range(rounded(low, j), rounded(high, j), *pair, scale32=True, output_zp=meaning.output_zp)
    if reason is not None:
        return Refusal(f"the second of two steps is not proved to be in range: {reason}")
    double = meaning.rounding_mode == RoundingMode.DOUBLE_ROUND
    mode = RoundingMode.DOUBLE_ROUND if double else RoundingMode.SINGLE_ROUND
    scales = meaning.scales_after(j)
    last = _error_bound(scales, *pair, meaning.relevant, double_round=double)
    bound = Fraction(last) + max([Fraction(p, 2 * q) for p, q in scales]) if j else last
    because = f"accumulator rounded to multiples of 2^{j}, then one rounding" if j else "one rounding"
    return Form(j, *pair, mode, WithinLsb(_up(bound), because))


def _error_bound(
    scales: Sequence[tuple[int, int]],
    multiplier: Numbers,
    shift: Numbers,
    relevant: Sequence[int],
    double_round: bool = False,
) -> float:
    """How far a RESCALE can be from its scales, over all of them; see :func:`pair_error_bound`."""
    pairs = zip(scales, columns(multiplier, shift), relevant, strict=True)
    return max([pair_error_bound(*scale, m, s, v, double_round=double_round) for scale, (m, s), v in pairs])


def _nearest(meaning: Meaning, width: int, pre_shift: int) -> tuple[Numbers, Numbers] | Refusal:
    """Legal pairs for the scales times 2**pre_shift; a pair that is legal as it stands keeps its multiplier."""
    multiplier, shift = meaning.multiplier, meaning.shift - pre_shift
    limit = 1 << (width - 1)
    if most(multiplier) < limit and least(shift) >= MIN_SHIFT and most(shift) <= MAX_SHIFT:
        return multiplier, shift
    scales = meaning.scales_after(pre_shift)
    if any([p << (MAX_SHIFT + 1) < q for p, q in scales]):
        smallest = min([p / q for p, q in scales])
        return Refusal(f"the scale {smallest:.3g} underflows: its multiplier would be 0")
    try:
        multipliers, shifts = closest_pairs(scales, width)
    except InvalidArgument as error:
        return Refusal(str(error))
    for channel, (m, s) in enumerate(columns(multiplier, shift)):
        if m < limit and MIN_SHIFT <= s <= MAX_SHIFT:
            multipliers[channel], shifts[channel] = m, s
    return of_list(multipliers), of_list(shifts)


def _up(bound: float | Fraction) -> float:
    return math.ceil(bound * _BOUND_STEPS) / _BOUND_STEPS
