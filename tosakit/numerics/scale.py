"""Real scales as the integer pairs RESCALE takes: ``scale ~ multiplier * 2**-shift``.

TOSA 1.0 gives RESCALE a 15-bit multiplier (``scale32`` false, here ``width`` 16) or a 31-bit one (``scale32`` true,
``width`` 32), never negative, and a shift of 2 to 62. :func:`multiplier_and_shift` finds the closest such pair.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tosakit.errors import InvalidArgument

MIN_SHIFT = 2
MAX_SHIFT = 62

_MULTIPLIER_BITS = {16: 15, 32: 31}
_MANTISSA_BITS = 62

_Pick: TypeAlias = Callable[[Any, Any], Any]
ScaleLike: TypeAlias = ArrayLike | Fraction | Sequence[Fraction]


class ScaleUnderflowWarning(UserWarning):
    """A scale is so small that its multiplier is 0: the RESCALE is legal, but always gives its output zero point."""


class MultiplierShift(NamedTuple):
    """The pairs found for an array of scales; each field has the shape of that array (shape () for a single scale).

    The shift has the dtype of the RESCALE constant; so has the multiplier with width 32, while one of width 16 fits
    int16 and still has to be cast. Widen before you compute: ``1 << shift`` wraps around in int8.
    :func:`effective_scale` does it right.
    """

    multiplier: NDArray[np.int32]
    shift: NDArray[np.int8]
    relative_error: NDArray[np.float64]
    """``|multiplier * 2**-shift - scale| / scale``, to two units in the last place (for Fractions to ``2**-61``).

    It is 0 only where the pair equals the scale.
    """


def multiplier_and_shift(scale: ScaleLike, width: int) -> MultiplierShift:
    """Return the RESCALE multiplier and shift closest to each scale, and how far off they are.

    No other legal pair is closer to the scale. A scale halfway between two pairs takes the larger one, as RESCALE
    itself rounds halves up; of pairs with the same value, the one with the largest multiplier is returned. The relative
    error is at most ``2**-15`` (width 16) or ``2**-31`` (width 32) for scales down to ``2**-48`` or ``2**-32``; below
    that the shift stays at 62 and the multiplier loses bits, by one rounding to nearest and never by truncation.

    At the top of the range, a scale that rounds to a power of two whose shift would be 1 is an error: with width 16,
    scales below 8191.875 still round to (32767, 2), which is 8191.75, and scales from there on are too large.

    Args:
        scale: one real scale or an array of them, any shape: numbers, Fractions, float or integer arrays. Each is taken
            as the exact number it is.
        width: bits of the RESCALE multiplier constant: 16 (``scale32`` false) or 32 (``scale32`` true).

    Raises:
        InvalidArgument: a scale is not finite and positive, or too large; or ``width`` is neither 16 nor 32.

    Warns:
        ScaleUnderflowWarning: a scale below ``2**-63`` got multiplier 0.
    """
    bits = _multiplier_bits(width)
    scales = _as_array(scale)
    mantissa, exponent = _normalise(scales)
    multiplier, shift, dropped = _closest(mantissa, exponent, bits, np.minimum, np.maximum)
    _check(scales, multiplier, shift, width)
    relative_error = np.abs((multiplier << dropped) - mantissa) / mantissa
    return MultiplierShift(
        np.asarray(multiplier, np.int32), np.asarray(shift, np.int8), np.asarray(relative_error, np.float64)
    )


def closest_pair(numerator: int, denominator: int, width: int) -> tuple[int, int]:
    """The multiplier and shift that :func:`multiplier_and_shift` finds for one scale, a positive one, without arrays.

    The fraction need not be in lowest terms. Says nothing of a scale that underflows.

    Raises:
        InvalidArgument: the scale is too large, or ``width`` is neither 16 nor 32.
    """
    multiplier, shift, _ = _closest(*_normalise_exact(numerator, denominator), _multiplier_bits(width), min, max)
    if shift < MIN_SHIFT:
        raise _too_large(f"scale {Fraction(numerator, denominator)}", width)
    return multiplier, shift


def closest_pairs(scales: Sequence[tuple[int, int]], width: int) -> tuple[list[int], list[int]]:
    """The multipliers and shifts that :func:`multiplier_and_shift` finds for scales given as fractions, by channel.

    The scales are positive; the fractions need not be in lowest terms.

    Raises:
        InvalidArgument: a scale is too large, or ``width`` is neither 16 nor 32.

    Warns:
        ScaleUnderflowWarning: as :func:`multiplier_and_shift`.
    """
    bits = _multiplier_bits(width)
    found = [_closest(*_normalise_exact(*scale), bits, min, max) for scale in scales]
    multipliers, shifts = [multiplier for multiplier, _, _ in found], [shift for _, shift, _ in found]
    if min(shifts) < MIN_SHIFT or min(multipliers) == 0:
        exact = np.array([Fraction(*scale) for scale in scales], np.object_)
        _check(exact, np.array(multipliers), np.array(shifts), width)
    return multipliers, shifts


def max_scale(width: int) -> float:
    """Return the largest scale that a multiplier of ``width`` bits represents: 8191.75 (16) or 536870911.75 (32).

    Raises:
        InvalidArgument: ``width`` is neither 16 nor 32.
    """
    return float(((1 << _multiplier_bits(width)) - 1) / (1 << MIN_SHIFT))


def effective_scale(multiplier: ArrayLike, shift: ArrayLike) -> NDArray[np.float64]:
    """Return ``multiplier * 2**-shift``, exactly, for int32 and int8 values, legal in a RESCALE or not.

    Raises:
        InvalidArgument: an argument does not hold integers of these ranges, or the shapes do not broadcast.
    """
    m, s = integers("multiplier", multiplier), integers("shift", shift)
    require_within("a multiplier", m, -(1 << 31), (1 << 31) - 1, "INT32")
    require_within("a shift", s, -128, 127, "INT8")
    require_broadcast(multiplier=m, shift=s)
    return np.asarray(np.ldexp(m.astype(np.float64), -s), np.float64)


def scale_error(scale: ScaleLike, multiplier: ArrayLike, shift: ArrayLike) -> NDArray[np.float64]:
    """Return the relative error ``|multiplier * 2**-shift - scale| / scale`` of given pairs, correctly rounded.

    Takes pairs as :func:`effective_scale` does; the arguments broadcast. Costs microseconds per element, so prefer the
    error that :func:`multiplier_and_shift` returns where the pair comes from there.

    Raises:
        InvalidArgument: a scale is not finite and positive, a multiplier or shift not an integer, or shapes do not fit.
    """
    exact, effective = exact_scales(scale), effective_scale(multiplier, shift)
    shape = require_broadcast(scale=exact, multiplier_and_shift=effective)
    wanted = np.broadcast_to(exact, shape).ravel().tolist()
    found = np.broadcast_to(effective, shape).ravel().tolist()
    errors = [to_float(abs(Fraction(pair) / scale - 1)) for scale, pair in zip(wanted, found, strict=True)]
    return np.array(errors, np.float64).reshape(shape)


def exact_scales(scale: ScaleLike) -> NDArray[np.object_]:
    """Return the scales as an object array of Fractions, with the same shape and the same values.

    Raises:
        InvalidArgument: a scale is not a finite and positive number.
    """
    scales = _as_array(scale)
    exact = np.empty(scales.shape, np.object_)
    values = [_exact(value) for value in scales.ravel().tolist()]
    invalid = [value is None or value <= 0 for value in values]
    if any(invalid):
        _require_positive(scales, np.array(invalid, np.bool_).reshape(scales.shape))
    exact.flat[:] = values
    return exact


def integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Return ``values`` as int64, or raise InvalidArgument (with ``name``) if they are not integers of 64 bits."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidArgument(f"{name} is a ragged list; pass an integer or a rectangular array of them") from None
    if array.size == 0:
        return np.zeros(array.shape, np.int64)
    if array.dtype.kind not in "iu" or (array.dtype == np.uint64 and np.any(array > np.iinfo(np.int64).max)):
        raise InvalidArgument(f"{name} must hold integers of at most 64 bits, not {array.dtype} like {array.flat[0]}")
    return array.astype(np.int64)


def require_broadcast(**arrays: NDArray[np.generic]) -> tuple[int, ...]:
    """Return the common shape of the arrays, or raise InvalidArgument with the name and shape of each."""
    shapes = dict.fromkeys(array.shape for array in arrays.values())
    try:
        return next(iter(shapes)) if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise InvalidArgument(
            f"shapes do not fit together: {listed}; pass one value, or one for each channel"
        ) from None


def require_within(what: str, values: NDArray[np.int64], low: int, high: int, home: str) -> None:
    """Raise InvalidArgument with the first value outside [low, high], the range that ``home`` names."""
    if values.size and (values.min() < low or values.max() > high):
        outside = (values < low) | (values > high)
        raise InvalidArgument(f"{what}, {values[outside][0]}, is outside {home} ([{low}, {high}])")


def to_float(value: Fraction) -> float:
    """Return the float nearest to a number that is not negative, infinity if it is beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _multiplier_bits(width: int) -> int:
    if width not in _MULTIPLIER_BITS:
        raise InvalidArgument(f"{width!r} is not the width of a RESCALE multiplier; pass 16 or 32")
    return _MULTIPLIER_BITS[width]


def _closest(mantissa: Any, exponent: Any, bits: int, lesser: _Pick, greater: _Pick) -> tuple[Any, Any, Any]:
    """Multipliers, shifts, and how many bits of the mantissas were dropped: integers or arrays of them."""
    full_shift = bits - exponent  # of a multiplier with all its bits: 2**(bits-1) <= multiplier < 2**bits
    # One rounding only, from the mantissa straight to the bits that remain. From 63 dropped bits on, nothing does.
    dropped = lesser(_MANTISSA_BITS - bits + greater(full_shift - MAX_SHIFT, 0), _MANTISSA_BITS + 1)
    multiplier = (mantissa + (1 << (dropped - 1))) >> dropped
    carry = multiplier >> bits  # 1 where rounding reached 2**bits, one more than the constant can hold
    return multiplier >> carry, lesser(full_shift - carry, MAX_SHIFT), dropped + carry


def _check(scales: NDArray[np.generic], multiplier: NDArray[Any], shift: NDArray[Any], width: int) -> None:
    """Raise for a scale that is too large, and warn of one that underflows, on behalf of a caller's caller."""
    if np.any(shift < MIN_SHIFT):
        raise _too_large(_first(scales, shift < MIN_SHIFT), width)
    if np.any(multiplier == 0):
        warnings.warn(
            f"{_first(scales, multiplier == 0)} underflows: its RESCALE multiplier rounds to 0 at the largest shift "
            f"({MAX_SHIFT}), so the result is always the output zero point",
            ScaleUnderflowWarning,
            stacklevel=3,
        )


def _too_large(scale: str, width: int) -> InvalidArgument:
    return InvalidArgument(
        f"{scale} is too large for RESCALE: the largest scale of a {width}-bit multiplier is {max_scale(width)}; "
        "apply a part of it elsewhere" + (" or, unless the input is INT48, use scale32" * (width == 16))
    )


def _as_array(scale: ScaleLike) -> NDArray[np.generic]:
    try:
        array = np.asarray(scale)
    except ValueError:
        raise InvalidArgument("scales are a ragged list; pass a number or a rectangular array of them") from None
    if array.dtype.kind not in "iufO":
        raise InvalidArgument(f"scales must be real numbers, not {array.dtype}")
    return array


def _normalise(scales: NDArray[np.generic]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (mantissa, exponent): ``scale = mantissa * 2**(exponent - 62)`` with ``2**61 <= mantissa < 2**62``.

    A longer mantissa is cut to 62 bits and its last bit set. Cutting alone would round right, since halves go up; the
    bit keeps the error of a scale that no pair equals from reading 0.
    """
    if scales.dtype.kind in "iuf" and scales.dtype.itemsize <= 8:
        values = scales.astype(np.float64)  # exact, or an integer so large that it is refused later
        _require_positive(scales, ~(np.isfinite(values) & (values > 0)))
        fraction, exponent = np.frexp(values)
        return np.ldexp(fraction, _MANTISSA_BITS).astype(np.int64), np.asarray(exponent, np.int64)
    pairs = [_normalise_exact(*value.as_integer_ratio()) for value in exact_scales(scales).ravel().tolist()]
    mantissas, exponents = (np.array([pair[i] for pair in pairs], np.int64).reshape(scales.shape) for i in (0, 1))
    return mantissas, exponents


def _normalise_exact(numerator: int, denominator: int) -> tuple[int, int]:
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << max(-exponent, 0) >= denominator << max(exponent, 0):
        exponent += 1
    up = _MANTISSA_BITS - exponent
    mantissa, rest = divmod(numerator << max(up, 0), denominator << max(-up, 0))
    return mantissa | (rest != 0), exponent


def _exact(value: object) -> Fraction | None:
    """Return a real number as a Fraction, None for NaN and infinities."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, Integral):
        return Fraction(int(value))
    ratio = getattr(value, "as_integer_ratio", None)  # floats of Python and numpy, Fraction, Decimal
    if ratio is None:
        raise InvalidArgument(f"scales must be real numbers, not {value!r}")
    try:
        return Fraction(*ratio())
    except (ValueError, OverflowError):
        return None


def _require_positive(scales: NDArray[np.generic], invalid: NDArray[np.bool_]) -> None:
    if np.any(invalid):
        raise InvalidArgument(
            f"{_first(scales, invalid)} is not a finite positive number; "
            "correct the quantisation parameters it was computed from"
        )


def _first(scales: NDArray[np.generic], selected: NDArray[np.bool_]) -> str:
    """Name the first selected scale: its value and, in an array, its channel."""
    where = tuple(int(i) for i in np.argwhere(selected)[0])
    place = "" if scales.ndim == 0 else f" of channel {where[0]}" if scales.ndim == 1 else f" at index {where}"
    count = int(np.count_nonzero(selected))
    return f"scale {scales[where]}{place}" + (f" (the first of {count})" if count > 1 else "")
