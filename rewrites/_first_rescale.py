"""The forms in which one RESCALE reads an INT48 accumulator for several, each with its bound.

``single_rescale_per_accumulator`` says what the forms are and why the bounds hold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rewrites._accumulator import (
    Reader,
    clipped_to_int48,
    outside_required_range,
    pre_shifts,
    saturates_at,
    why_not_shifted,
)
from rewrites._channels import Numbers, clipped, columns, farthest, largest_ratio, least, most, of_list, rounded
from tosakit.engine.contract import Contract, Exact, WithinLsb
from tosakit.engine.rule import Refusal
from tosakit.errors import InvalidArgument
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.intervals import Interval, Intervals
from tosakit.numerics.scale import MAX_SHIFT, closest_pairs


@dataclass(frozen=True, eq=False)
class Pair:
    """Multipliers and shifts of a RESCALE on INT32."""

    multiplier: Numbers
    shift: Numbers
    scale32: bool


@dataclass(frozen=True, eq=False)
class Form:
    """``first`` goes on reading the accumulator (None: a copy shifted by ``pre_shift`` does), the others read that."""

    first: Reader | None
    pre_shift: Numbers
    others: tuple[tuple[Reader, Pair], ...]
    contract: Contract

    @property
    def lsb(self) -> float:
        """The bound."""
        return self.contract.lsb if isinstance(self.contract, WithinLsb) else 0.0


def exact_form(readers: Sequence[Reader], accumulator: Tensor, intervals: Intervals) -> Form | None:
    """A copy, where a reader is one or the accumulator is proved to fit INT32; None where it is not."""
    copy = next((reader for reader in readers if reader.op.output.dtype == DType.INT32 and reader.is_one), None)
    if copy is None and not intervals.of(accumulator).within(*INTEGER_RANGES[DType.INT32]):
        return None
    others = tuple((reader, Pair(reader.multiplier, reader.shift, False)) for reader in readers if reader is not copy)
    return Form(copy, 0, others, Exact())


def closest_form(readers: Sequence[Reader], accumulator: Interval) -> Form | Refusal:
    """Of the other forms, the one with the smallest bound."""
    low, high = clipped_to_int48(accumulator)
    wide = [reader for reader in readers if reader.op.output.dtype == DType.INT32]
    forms = [*(_behind(reader, readers, low, high) for reader in wide), _shifted(readers, low, high)]
    found = [form for form in forms if isinstance(form, Form)]
    if found:
        return min(found, key=lambda form: form.lsb)
    reasons = [form.reason for form in forms if isinstance(form, Refusal)]
    outside = f"the accumulator reaches from {least(low)} to {most(high)}, outside INT32, and "
    return Refusal(outside + "; and ".join(reasons))


def _behind(first: Reader, readers: Sequence[Reader], low: Numbers, high: Numbers) -> Form | Refusal:
    """``first`` stays, the others read its INT32 result."""
    if least(first.multiplier) == 0:
        return Refusal(f"{first.name} has multiplier 0, so nothing can be derived from it")
    low, high = (clipped(_scaled(bound, first), *INTEGER_RANGES[DType.INT32]) for bound in (low, high))
    others: list[tuple[Reader, Pair]] = []
    worst = Fraction(0)
    for reader in readers:
        if reader is first:
            continue
        if least(reader.multiplier) == 0:
            return Refusal(f"{reader.name} has multiplier 0, which is no multiple of the scale of {first.name}")
        ratios = _ratios(reader, first)
        if any([p << (MAX_SHIFT + 1) < q for p, q in ratios]):
            smallest = min([p / q for p, q in ratios])
            return Refusal(f"{reader.name} has {smallest:.3g} times the scale of {first.name}, too little")
        try:
            multipliers, shifts = closest_pairs(ratios, 32)
        except InvalidArgument as error:
            return Refusal(f"{reader.name} cannot be derived from {first.name}: {error}")
        pair = Pair(of_list(multipliers), of_list(shifts), True)
        reason = outside_required_range(
            low, high, pair.multiplier, pair.shift, scale32=True, output_zp=reader.output_zp
        )
        if reason is not None:
            return Refusal(f"{reader.name} cannot be derived from {first.name}: {reason}")
        limit = saturates_at(reader.op.output.dtype, reader.output_zp)
        reach = farthest(low, high) if len(ratios) > 1 else most(farthest(low, high))
        for (p, q), (m, s, value) in zip(ratios, columns(pair.multiplier, pair.shift, reach), strict=True):
            relevant, wanted = min(value, -(-limit * q // p)), p << s  # r, where M / 2^S is m * q
            worst = max(worst, Fraction(wanted + 2 * relevant * abs(m * q - wanted), q << (s + 1)))
        others.append((reader, pair))
    because = f"derived from {first.name}, at most {float(worst):.3g} LSB before the last rounding"
    return Form(first, 0, tuple(others), WithinLsb(float(math.ceil(worst)), because))


def _scaled(values: Numbers, reader: Reader) -> Numbers:
    return rounded(values * reader.multiplier, reader.shift)


def _ratios(reader: Reader, first: Reader) -> list[tuple[int, int]]:
    """Numerator and denominator of the scale of ``reader`` divided by that of ``first``, by channel."""
    numbers = columns(reader.multiplier, reader.shift, first.multiplier, first.shift)
    return [(m << s0, m0 << s) for m, s, m0, s0 in numbers]


def _shifted(readers: Sequence[Reader], low: Numbers, high: Numbers) -> Form | Refusal:
    """A copy of the accumulator in units of 2^j comes first."""
    j = pre_shifts(low, high, 0)
    low, high, error = rounded(low, j), rounded(high, j), 1 << j >> 1
    others: list[tuple[Reader, Pair]] = []
    errors: list[tuple[int, int]] = []
    for reader in readers:
        if (reason := why_not_shifted(reader, low, high, j)) is not None:
            return Refusal(reason)
        errors += [(m * e, s) for m, s, e in columns(reader.multiplier, reader.shift, error)]
        others.append((reader, Pair(reader.multiplier, reader.shift - j, False)))
    worst = largest_ratio(errors)
    because = (
        f"accumulator rounded to multiples of 2^{most(j)}, at most {float(worst):.3g} LSB before the last rounding"
    )
    return Form(None, j, tuple(others), WithinLsb(float(math.ceil(worst)), because))
