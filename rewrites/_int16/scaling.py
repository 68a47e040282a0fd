"""RESCALEs for real scales: the pair, whether the values at hand allow it, and how far off the result can be.

Bounds are exact rational numbers. A tensor is described by one entry, or by one for each index of its last axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tosakit.errors import InvalidArgument, Unsupported
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.rescale import required_limits
from tosakit.numerics.scale import closest_pairs


@dataclass(frozen=True)
class Held:
    """Integers from ``low`` to ``high``, each within ``error`` (in LSB) of the real value it stands for."""

    low: int
    high: int
    error: Fraction = Fraction(0)

    @property
    def magnitude(self) -> int:
        """Largest absolute value."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Scaling:
    """A RESCALE to ``dtype`` with SINGLE_ROUND: one pair, or one for each index of the last axis."""

    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    scale32: bool
    dtype: DType
    output_zp: int = 0

    def build(self, builder: Builder, x: Tensor) -> Tensor:
        """Add the RESCALE of ``x`` to the builder; returns its result."""
        pairs = self.multiplier, self.shift
        multiplier, shift = pairs if len(self.shift) > 1 else (self.multiplier[0], self.shift[0])
        return builder.rescale(x, self.dtype, multiplier, shift, scale32=self.scale32, output_zp=self.output_zp)


def find_scaling(
    scales: Sequence[Fraction],
    held: Sequence[Held],
    dtype: DType,
    *,
    widths: Sequence[int] = (32, 16),
    output_zp: int = 0,
    whole: bool = False,
) -> tuple[Scaling, tuple[Held, ...]]:
    """Return the RESCALE by ``scales`` of a tensor that holds ``held``, and what its result holds.

    Of the multiplier ``widths`` the first is taken whose range requirements all values keep. ``whole`` says that every
    real result is an integer; an error below one half in front of the rounding then disappears in it. Raises
    Unsupported where no width is legal for all values.
    """
    return _found(tuple(scales), tuple(held), dtype, tuple(widths), output_zp, whole)


@lru_cache(maxsize=1 << 10)
def _found(
    scales: tuple[Fraction, ...],
    held: tuple[Held, ...],
    dtype: DType,
    widths: tuple[int, ...],
    output_zp: int,
    whole: bool,
) -> tuple[Scaling, tuple[Held, ...]]:
    """:func:`find_scaling`, remembered: layers often share their scales, and so do the operands of one operator."""
    reasons = []
    for width in widths:
        try:
            multiplier, shift = closest_pairs([scale.as_integer_ratio() for scale in scales], width)
        except InvalidArgument:
            reasons.append(f"a {width}-bit multiplier cannot hold the scale {float(max(scales)):.6g}")
            continue
        scaling = Scaling(tuple(multiplier), tuple(shift), width == 32, dtype, output_zp)
        try:
            return scaling, after_scaling(scaling, scales, held, whole=whole)
        except Unsupported as error:
            reasons.append(str(error))
    raise Unsupported("; ".join(reasons))


def after_scaling(
    scaling: Scaling, scales: Sequence[Fraction], held: Sequence[Held], *, whole: bool = False
) -> tuple[Held, ...]:
    """Return what a RESCALE that stands for ``scales`` makes of ``held``.

    With V a value, A its real value, R the scale and r the pair's value: V*r is within ``error*R + |V|*|r - R|`` of
    A*R, and rounding adds at most 1/2, or nothing where r is an integer. Values beyond the one that saturates are no
    further off than that one, since both sides only grow. Raises Unsupported where a value breaks a range requirement.
    """
    bottom, top = INTEGER_RANGES[scaling.dtype]
    reach = max(abs(bottom - scaling.output_zp), abs(top - scaling.output_zp))
    results = []
    for channel in range(max(len(scales), len(held), len(scaling.shift))):
        values, scale = held[channel % len(held)], scales[channel % len(scales)]
        pair = channel % len(scaling.shift)
        multiplier, shift = scaling.multiplier[pair], scaling.shift[pair]
        first, last = required_limits(multiplier, shift, scale32=scaling.scale32, output_zp=scaling.output_zp)
        if values.low < first or values.high > last:
            raise Unsupported(
                f"values from {values.low} to {values.high} are outside [{first}, {last}], which RESCALE "
                f"({multiplier}, {shift}) takes"
            )
        numerator, denominator = _carried(values, scale, multiplier, shift, reach)
        if multiplier % (1 << shift):
            vanishes = 2 * numerator < denominator and (whole or (scale.denominator == 1 and values.error == 0))
            numerator, denominator = (0, 1) if vanishes else (2 * numerator + denominator, 2 * denominator)
        ends = [
            ((value * multiplier + (1 << (shift - 1))) >> shift) + scaling.output_zp
            for value in (values.low, values.high)
        ]
        low, high = (min(max(end, bottom), top) for end in ends)
        results.append(Held(low, high, Fraction(numerator, denominator)))
    return tuple(results)


def _carried(values: Held, scale: Fraction, multiplier: int, shift: int, reach: int) -> tuple[int, int]:
    """Numerator and denominator of ``error*R + |V|*|r - R|`` of :func:`after_scaling`."""
    (error, parts), (over, under) = values.error.as_integer_ratio(), scale.as_integer_ratio()
    saturating = min(values.magnitude, -(-reach * under // over))
    apart = saturating * abs(multiplier * under - (over << shift))
    return (error * over << shift) + apart * parts, parts * under << shift
