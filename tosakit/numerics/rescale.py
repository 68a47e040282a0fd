"""The integer arithmetic of RESCALE (TOSA 1.0), exactly, and what its data has to satisfy.

Below, S16 stands for ``scale32`` false and S32 for ``scale32`` true. Nothing overflows int64: in S16 the value has 48
bits and the multiplier 15, in S32 they have 32 and 31, so products stay below ``2**62`` and rounding terms at or below
``2**61 + 2**30``.
"""

import math
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tosakit.errors import InvalidArgument, Unsupported
from tosakit.numerics.scale import (
    MAX_SHIFT,
    MIN_SHIFT,
    ScaleLike,
    exact_scales,
    integers,
    require_broadcast,
    require_within,
)

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INT48_MIN, _INT48_MAX = -(1 << 47), (1 << 47) - 1


class Rescaled(NamedTuple):
    """What a RESCALE makes of a tensor; both arrays have its shape."""

    values: NDArray[np.int64]
    unpredictable: NDArray[np.bool_]
    """True where a REQUIRE of the specification does not hold. One such element makes the whole graph unpredictable, so
    the values mean nothing then."""


def rescale(
    values: ArrayLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    *,
    scale32: bool,
    out_bits: int,
    out_unsigned: bool = False,
    input_zp: ArrayLike = 0,
    output_zp: ArrayLike = 0,
    rounding_mode: str | Enum = "SINGLE_ROUND",
    per_channel: bool = False,
) -> Rescaled:
    """Compute RESCALE: ``clip((((value - input_zp) * multiplier + round) >> shift) + output_zp)``.

    The shift is a floor, and ``round`` is ``2**(shift-1)``, so halves go up; DOUBLE_ROUND and a shift above 31 add
    ``2**30`` to it for values at or above the input zero point and subtract ``2**30`` below. The output zero point is
    added before the clip.

    What depends on data (multiplier and shift may be data too) is reported as unpredictable, element by element: a
    negative multiplier; a shift outside [2, 62]; in S16 a value outside int48 or a result outside int32; in S32 a value
    outside int32 or ``[-2**(shift-1), 2**(shift-1))``; a result plus output zero point outside int32. What makes the
    operator itself illegal is an error. Whether the zero points suit the dtypes is not checked.

    Args:
        values: integers of any shape; those of an unsigned tensor as they count, zero-extended (0 to 255 for 8 bits).
        multiplier: int16 (S16) or int32 (S32) values, shape [C] if ``per_channel``, else one value.
        shift: int8 values, same shape.
        scale32: whether the operator has a 31-bit multiplier.
        out_bits: bits of the output dtype: 8, 16 or 32.
        out_unsigned: clip to the unsigned range; the values returned are then unsigned numbers, not bit patterns.
        input_zp: zero point subtracted from the values.
        output_zp: zero point added to the result; with ``out_unsigned``, zero-extended like the values.
        rounding_mode: SINGLE_ROUND or DOUBLE_ROUND, as a name or an enum member of that name.
        per_channel: multiplier and shift follow the last axis of ``values``, of length C.

    Raises:
        InvalidArgument: a shape, dtype, rounding mode, zero point or output type that no RESCALE has; DOUBLE_ROUND in
            S16; values outside int48, which is what the widest tensor holds.
        Unsupported: INEXACT_ROUND, which leaves the result to the implementation.
    """
    double_round = _is_double_round(rounding_mode, scale32)
    low, high = _output_range(out_bits, out_unsigned)
    v = integers("values", values)
    require_within("a value", v, _INT48_MIN, _INT48_MAX, "INT48, the widest dtype of a RESCALE input")
    m, s = _constants(multiplier, shift, scale32)
    _require_channels(m, v.shape, per_channel)
    if not per_channel:
        m, s = m.reshape(()), s.reshape(())
    v = v - _zero_point("input_zp", input_zp)
    zero_point = _zero_point("output_zp", output_zp)

    legal_pair = (m >= 0) & (s >= MIN_SHIFT) & (s <= MAX_SHIFT)
    m, s = np.where(legal_pair, m, 0), np.where(legal_pair, s, MIN_SHIFT)
    smallest, largest = _value_limits(s, scale32)
    defined = legal_pair & (v >= smallest) & (v <= largest)
    v = np.where(defined, v, 0)
    rounding = np.int64(1) << (s - 1)
    if double_round:
        rounding = rounding + np.where(s > 31, np.where(v >= 0, 1 << 30, -(1 << 30)), 0)
    result = (v * m + rounding) >> s
    total = result + zero_point
    for quantity in (result, total):
        defined = defined & (quantity >= _INT32_MIN) & (quantity <= _INT32_MAX)
    return Rescaled(np.asarray(np.clip(total, low, high), np.int64), np.asarray(~defined, np.bool_))


def required_range(
    multiplier: ArrayLike, shift: ArrayLike, *, scale32: bool, output_zp: ArrayLike = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest and the largest ``value - input_zp`` for which a RESCALE is predictable, for each pair.

    Both ends are included, and every integer between them is fine too; values outside are reported as unpredictable by
    :func:`rescale`. The arrays returned have the shape of ``multiplier`` and ``shift``.

    Raises:
        InvalidArgument: a pair is not legal (then no value is), or a zero point is out of range.
    """
    m, s = _constants(multiplier, shift, scale32)
    pairs = list(zip(m.ravel().tolist(), s.ravel().tolist(), strict=True))
    for pair_m, pair_s in pairs:
        if pair_m < 0 or not MIN_SHIFT <= pair_s <= MAX_SHIFT:
            raise InvalidArgument(
                f"multiplier {pair_m}, shift {pair_s} is not a legal RESCALE pair: the multiplier must be at least 0 "
                f"and the shift lie in [{MIN_SHIFT}, {MAX_SHIFT}]; compute the pair again from the scale"
            )
    zero_point = _zero_point("output_zp", output_zp)
    limits = [required_limits(pair_m, pair_s, scale32=scale32, output_zp=zero_point) for pair_m, pair_s in pairs]
    smallest, largest = np.array(limits, np.int64).reshape(-1, 2).T
    return smallest.reshape(m.shape), largest.reshape(m.shape)


def required_limits(multiplier: int, shift: int, *, scale32: bool, output_zp: int = 0) -> tuple[int, int]:
    """The answer of :func:`required_range` for one legal pair, which is not checked.

    The larger the multiplier and the smaller the shift, the closer both ends are to zero.
    """
    if scale32:  # results stay within 2**30 + 1 of zero, so neither they nor their sum with a zero point leave int32
        limit = 1 << (min(shift, 32) - 1)
        return -limit, limit - 1
    if not multiplier:
        return _INT48_MIN, _INT48_MAX
    # bottom <= (v*m + rounding) >> s <= top; 2**93 occurs
    bottom, top = max(_INT32_MIN, _INT32_MIN - output_zp), min(_INT32_MAX, _INT32_MAX - output_zp)
    rounding = 1 << (shift - 1)
    first = -(-((bottom << shift) - rounding) // multiplier)
    last = (((top + 1) << shift) - 1 - rounding) // multiplier
    return max(first, _INT48_MIN), min(last, _INT48_MAX)


def rescale_error_bound(
    scale: ScaleLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    max_abs_value: ArrayLike,
    *,
    rounding_mode: str | Enum = "SINGLE_ROUND",
) -> NDArray[np.float64]:
    """Return how far a predictable RESCALE can be from ``value * scale + output_zp``, in output LSB.

    The bound is ``max_abs_value * |multiplier * 2**-shift - scale| + 1/2``, plus ``2**(30-shift)`` for DOUBLE_ROUND
    with a shift above 31: the first part is what the pair is off, the rest what rounding adds. It is computed in exact
    arithmetic and rounded up. It holds in front of the output clip, and behind it against the clipped real number,
    because clipping moves no two numbers apart. All arguments broadcast.

    Args:
        scale: the real scale that the pair stands for.
        multiplier: integers, as in the operator.
        shift: integers, as in the operator.
        max_abs_value: bound of ``|value - input_zp|``, for instance from an interval of the accumulator.
        rounding_mode: SINGLE_ROUND or DOUBLE_ROUND, as for :func:`rescale`.

    Raises:
        InvalidArgument: a scale that is not finite and positive, a negative bound, something that is not an integer,
            shapes that do not broadcast.
        Unsupported: INEXACT_ROUND.
    """
    exact, bounds = exact_scales(scale), integers("max_abs_value", max_abs_value)
    m, s = integers("multiplier", multiplier), integers("shift", shift)
    double_round = _is_double_round(rounding_mode, scale32=True)
    if bounds.size and bounds.min() < 0:
        raise InvalidArgument(f"max_abs_value {bounds.min()} is negative; pass a bound of the absolute value")
    require_within("a shift", s, MIN_SHIFT, MAX_SHIFT, "what RESCALE takes")
    shape = require_broadcast(scale=exact, multiplier=m, shift=s, max_abs_value=bounds)
    columns = (
        (column if column.shape == shape else np.broadcast_to(column, shape)).ravel().tolist()
        for column in (exact, m, s, bounds)
    )
    limits = [
        pair_error_bound(*scale.as_integer_ratio(), *column, double_round=double_round)
        for scale, *column in zip(*columns, strict=True)
    ]
    return np.array(limits, np.float64).reshape(shape)


def pair_error_bound(
    numerator: int, denominator: int, multiplier: int, shift: int, max_abs_value: int, *, double_round: bool = False
) -> float:
    """The answer of :func:`rescale_error_bound` for one pair and a positive scale; nothing is checked."""
    # over the common denominator of scale and pair, with integers, which are quicker than Fractions
    limit = 2 * max_abs_value * abs(multiplier * denominator - (numerator << shift)) + (denominator << shift)
    if double_round and shift > 31:
        limit += denominator << 31
    return _round_up(limit, denominator << (shift + 1))


def _is_double_round(rounding_mode: str | Enum, scale32: bool) -> bool:
    name = getattr(rounding_mode, "name", rounding_mode)
    if name == "INEXACT_ROUND":
        raise Unsupported(
            "RESCALE with INEXACT_ROUND has no single right result, the specification leaves it to the implementation; "
            "set SINGLE_ROUND to fix the result"
        )
    if name not in ("SINGLE_ROUND", "DOUBLE_ROUND"):
        raise InvalidArgument(f"{name!r} is no rounding mode of RESCALE; pass SINGLE_ROUND or DOUBLE_ROUND")
    if name == "DOUBLE_ROUND" and not scale32:
        raise InvalidArgument("RESCALE with DOUBLE_ROUND needs scale32; set SINGLE_ROUND or scale32")
    return bool(name == "DOUBLE_ROUND")


def _output_range(bits: int, unsigned: bool) -> tuple[int, int]:
    if bits not in ((8, 16) if unsigned else (8, 16, 32)):
        raise InvalidArgument(
            f"RESCALE has no {'unsigned' if unsigned else 'signed'} output of {bits!r} bits; "
            "outputs have 8, 16 or, if signed, 32"
        )
    return (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _value_limits(shift: NDArray[np.int64], scale32: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and last ``value - input_zp`` that the operator takes in, before any multiplication."""
    if scale32:
        limit = np.int64(1) << np.asarray(np.minimum(shift, 32) - 1)
        return np.asarray(-limit), np.asarray(limit - 1)
    return np.full(shift.shape, _INT48_MIN, np.int64), np.full(shift.shape, _INT48_MAX, np.int64)


def _constants(multiplier: ArrayLike, shift: ArrayLike, scale32: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    m, s = integers("multiplier", multiplier), integers("shift", shift)
    bits = 32 if scale32 else 16
    require_within("a multiplier", m, -(1 << (bits - 1)), (1 << (bits - 1)) - 1, f"its dtype, INT{bits}")
    require_within("a shift", s, -128, 127, "its dtype, INT8")
    if m.shape != s.shape:
        raise InvalidArgument(f"multiplier has shape {list(m.shape)}, shift {list(s.shape)}; they must be equal")
    return m, s


def _require_channels(multiplier: NDArray[np.int64], shape: tuple[int, ...], per_channel: bool) -> None:
    if not per_channel and (multiplier.size != 1 or multiplier.ndim > 1):
        raise InvalidArgument(
            f"multiplier and shift have shape {list(multiplier.shape)} though per_channel is false; pass one of each"
        )
    if per_channel and multiplier.shape != shape[-1:]:
        raise InvalidArgument(
            f"multiplier and shift have shape {list(multiplier.shape)}, which per_channel does not allow for values of "
            f"shape {list(shape)}; pass one for each index of the last axis"
        )
    if per_channel and not shape:
        raise InvalidArgument("per_channel needs values with at least one axis; these have rank 0")


def _zero_point(name: str, zero_point: ArrayLike) -> int:
    array = integers(name, zero_point)
    if array.size != 1:
        raise InvalidArgument(f"{name} has {array.size} values; a RESCALE has one zero point on each side")
    require_within("a zero point", array, -(1 << 15), (1 << 16) - 1, f"what {name} can be")
    return int(array.item())


def _round_up(numerator: int, denominator: int) -> float:
    """The smallest float that is not below a positive fraction."""
    try:
        nearest = numerator / denominator
    except OverflowError:
        return math.inf
    above, below = nearest.as_integer_ratio()
    return nearest if above * denominator >= numerator * below else math.nextafter(nearest, math.inf)
