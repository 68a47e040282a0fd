"""The forms in which one RESCALE reads an INT48 accumulator for several, each with its bound.

``single_rescale_per_accumulator`` says what the forms are and why the bounds hold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rewrites._accumulator import (
    Integers,
    Reader,
    clipped_to_int48,
    fits_int32,
    outside_required_range,
    pre_shifts,
    rounded,
    saturates_at,
    why_not_shifted,
)
from tosakit.engine.contract import Contract, Exact, WithinLsb
from tosakit.engine.rule import Refusal
from tosakit.errors import InvalidArgument
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.intervals import Interval
from tosakit.numerics.scale import MAX_SHIFT, multiplier_and_shift

NONE = np.zeros(1, np.int64)
"""No pre-shift, in any channel."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Multiplier and shift of a RESCALE on INT32, of shape [1] or [C]."""

    multiplier: Integers
    shift: Integers
    scale32: bool


@dataclass(frozen=True, eq=False)
class Form:
    """``first`` goes on reading the accumulator (None: a copy shifted by ``pre_shift`` does), the others read that."""

    first: Reader | None
    pre_shift: Integers
    others: tuple[tuple[Reader, Pair], ...]
    contract: Contract

    @property
    def lsb(self) -> float:
        """The bound."""
        return self.contract.lsb if isinstance(self.contract, WithinLsb) else 0.0


def best_form(readers: Sequence[Reader], accumulator: Interval) -> Form | Refusal:
    """The exact form where it can be proved, else the one with the smallest bound."""
    low, high = clipped_to_int48(accumulator)
    wide = [reader for reader in readers if reader.op.output.dtype == DType.INT32]
    copy = next((reader for reader in wide if reader.is_one), None)
    if copy is not None or (fits_int32(low) & fits_int32(high)).all():
        others = tuple(
            (reader, Pair(reader.multiplier, reader.shift, False)) for reader in readers if reader is not copy
        )
        return Form(copy, NONE, others, Exact())
    forms = [*(_behind(reader, readers, low, high) for reader in wide), _shifted(readers, low, high)]
    found = [form for form in forms if isinstance(form, Form)]
    if found:
        return min(found, key=lambda form: form.lsb)
    reasons = [form.reason for form in forms if isinstance(form, Refusal)]
    outside = f"the accumulator reaches from {low.min()} to {high.max()}, outside INT32, and "
    return Refusal(outside + "; and ".join(reasons))


def _behind(first: Reader, readers: Sequence[Reader], low: Integers, high: Integers) -> Form | Refusal:
    """``first`` stays, the others read its INT32 result."""
    if np.any(first.multiplier == 0):
        return Refusal(f"{first.name} has multiplier 0, so nothing can be derived from it")
    least, most = INTEGER_RANGES[DType.INT32]
    low, high = (np.clip(_scaled(bound, first), least, most) for bound in (low, high))
    reach = np.maximum(np.abs(low), np.abs(high))
    others: list[tuple[Reader, Pair]] = []
    worst = Fraction(0)
    for reader in readers:
        if reader is first:
            continue
        if np.any(reader.multiplier == 0):
            return Refusal(f"{reader.name} has multiplier 0, which is no multiple of the scale of {first.name}")
        ratios = _ratios(reader, first)
        if min(ratios) < Fraction(1, 1 << (MAX_SHIFT + 1)):
            return Refusal(f"{reader.name} has {float(min(ratios)):.3g} times the scale of {first.name}, too little")
        try:
            found = multiplier_and_shift(ratios, 32)
        except InvalidArgument as error:
            return Refusal(f"{reader.name} cannot be derived from {first.name}: {error}")
        pair = Pair(found.multiplier.astype(np.int64), found.shift.astype(np.int64), True)
        reason = outside_required_range(
            low, high, pair.multiplier, pair.shift, scale32=True, output_zp=reader.output_zp
        )
        if reason is not None:
            return Refusal(f"{reader.name} cannot be derived from {first.name}: {reason}")
        limit = saturates_at(reader.op.output.dtype, reader.output_zp)
        columns = np.broadcast_arrays(np.array(ratios), pair.multiplier, pair.shift, reach)
        for ratio, m, s, value in zip(*(column.tolist() for column in columns), strict=True):
            off = abs(Fraction(m, 1 << s) - ratio)
            worst = max(worst, ratio / 2 + min(value, math.ceil(limit / ratio)) * off)
        others.append((reader, pair))
    because = f"derived from {first.name}, at most {float(worst):.3g} LSB before the last rounding"
    return Form(first, NONE, tuple(others), WithinLsb(float(math.ceil(worst)), because))


def _scaled(values: Integers, reader: Reader) -> Integers:
    return (values * reader.multiplier + (np.int64(1) << (reader.shift - 1))) >> reader.shift


def _ratios(reader: Reader, first: Reader) -> list[Fraction]:
    """The scale of ``reader`` divided by that of ``first``, by channel."""
    numbers = np.broadcast_arrays(reader.multiplier, reader.shift, first.multiplier, first.shift)
    columns = zip(*(array.tolist() for array in numbers), strict=True)
    return [Fraction(m << s0, m0 << s) for m, s, m0, s0 in columns]


def _shifted(readers: Sequence[Reader], low: Integers, high: Integers) -> Form | Refusal:
    """A copy of the accumulator in units of 2^j comes first."""
    j = pre_shifts(low, high, NONE)
    error = np.int64(1) << j >> 1
    others: list[tuple[Reader, Pair]] = []
    worst = Fraction(0)
    for reader in readers:
        if (reason := why_not_shifted(reader, rounded(low, j), rounded(high, j), j)) is not None:
            return Refusal(reason)
        columns = np.broadcast_arrays(reader.multiplier * error, reader.shift)
        worst = max(worst, *(Fraction(n, 1 << s) for n, s in zip(*(c.tolist() for c in columns), strict=True)))
        others.append((reader, Pair(reader.multiplier, reader.shift - j, False)))
    because = (
        f"accumulator rounded to multiples of 2^{j.max()}, at most {float(worst):.3g} LSB before the last rounding"
    )
    return Form(None, j, tuple(others), WithinLsb(float(math.ceil(worst)), because))
