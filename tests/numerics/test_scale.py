"""multiplier_and_shift against brute force, the cases of public bug reports, and exact rational arithmetic."""

import math
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tosakit.errors import InvalidArgument
from tosakit.numerics import (
    MAX_SHIFT,
    MIN_SHIFT,
    ScaleUnderflowWarning,
    effective_scale,
    max_scale,
    multiplier_and_shift,
    scale_error,
)
from tosakit.numerics.scale import closest_pair, closest_pairs

BITS = {16: 15, 32: 31}
WIDTHS = pytest.mark.parametrize("width", [16, 32])
# The largest scale that is an error: halfway between the largest pair and the power of two above it.
LIMIT = {16: 8191.875, 32: 536870911.875}


def least_distance(scale: Fraction, width: int) -> Fraction:
    """Smallest |m * 2**-s - scale| over all legal pairs: for each shift only floor and ceiling can be closest."""
    largest = (1 << BITS[width]) - 1
    numerator, denominator = scale.as_integer_ratio()
    wanted = numerator << MAX_SHIFT
    distances = []  # in units of 2**-62 / denominator, where all pairs and the scale are integers
    for shift in range(MIN_SHIFT, MAX_SHIFT + 1):
        floor = (numerator << shift) // denominator
        for m in (min(floor, largest), min(floor + 1, largest)):
            distances.append(abs((m * denominator << (MAX_SHIFT - shift)) - wanted))
    return Fraction(min(distances), denominator << MAX_SHIFT)


def quietly(scale, width):
    """Call without the underflow warning, which is tested by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleUnderflowWarning)
        return multiplier_and_shift(scale, width)


def assert_optimal(scales, width):
    found = quietly(scales, width)
    for scale, m, s, error in zip(scales, *(field.tolist() for field in found), strict=True):
        exact = Fraction(scale)
        assert 0 <= m < 1 << BITS[width], (scale, m)
        assert MIN_SHIFT <= s <= MAX_SHIFT, (scale, s)
        assert m >= 1 << (BITS[width] - 1) or s == MAX_SHIFT, (scale, m, s)
        distance = abs(Fraction(m, 1 << s) - exact)
        assert distance == least_distance(exact, width), (scale, m, s)
        assert error == pytest.approx(float(distance / exact), rel=5e-16, abs=0), (scale, m, s)


@pytest.mark.parametrize(
    ("scale", "pair"),
    [
        (1.0, (16384, 14)),
        (1 / 3, (21845, 16)),
        (0.999999, (16384, 14)),  # the mantissa rounds up to 2**15, which int16 does not hold
        (1 - 2**-17, (16384, 14)),
        (1 - 2**-16, (16384, 14)),  # a tie
        (0.0027741822493807726, (23272, 23)),
        (2**-48, (16384, 62)),
        (2**-49 * (1 - 2**-17), (8192, 62)),  # rounded where the multiplier is cut, not before
        (2**-60, (4, 62)),
        (3 * 2**-63, (2, 62)),  # 1.5 units: truncating would lose half a unit
        (2**-63, (1, 62)),
        (8191.75, (32767, 2)),
        (8191.8, (32767, 2)),
        (math.nextafter(8191.875, 0), (32767, 2)),
    ],
)
def test_known_pairs_of_16_bits(scale, pair):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m, s, _ = multiplier_and_shift(scale, 16)
    assert (m, s) == pair


@pytest.mark.parametrize(
    ("scale", "pair"),
    [
        (1.0, (1 << 30, 30)),
        (0.75, (3 << 29, 31)),
        (1 - 2**-33, (1 << 30, 30)),
        (2**-32, (1 << 30, 62)),
        (math.nextafter(536870911.875, 0), ((1 << 31) - 1, 2)),
    ],
)
def test_known_pairs_of_32_bits(scale, pair):
    m, s, _ = multiplier_and_shift(scale, 32)
    assert (m, s) == pair


@pytest.mark.parametrize(
    ("scale", "width"),
    [(8191.875, 16), (8191.9, 16), (8192.0, 16), (1e300, 16), (2**29, 32), (536870911.875, 32), (10**30, 32)],
)
def test_scale_above_the_range_names_the_largest(scale, width):
    with pytest.raises(InvalidArgument, match=f"too large.*{max_scale(width)}"):
        multiplier_and_shift(scale, width)


@WIDTHS
@pytest.mark.parametrize("scale", [0, 0.0, -1, -2.5, math.nan, math.inf, -math.inf, Fraction(-1, 3)])
def test_scale_that_is_not_finite_and_positive(scale, width):
    with pytest.raises(InvalidArgument, match=f"scale {scale} is not a finite positive"):
        multiplier_and_shift(scale, width)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ([1.0, 2.0, 0.0, -3.0], r"scale 0\.0 of channel 2 \(the first of 2\) is not a finite positive"),
        (np.array([0.5, math.nan], np.float32), r"scale nan of channel 1 is not"),
        ([Fraction(1, 3), math.nan], r"scale nan of channel 1 is not"),
        ([[1.0, 2.0], [3.0, -4.0]], r"scale -4\.0 at index \(1, 1\) is not"),
        ([1.0, 9000.0], r"scale 9000\.0 of channel 1 is too large"),
    ],
)
def test_errors_name_the_channel(scales, message):
    with pytest.raises(InvalidArgument, match=message):
        multiplier_and_shift(scales, 16)


@pytest.mark.parametrize("scale", ["1.0", True, 1j, None, [Fraction(1, 2), None], [1.0, [2.0]], [1.0, "a"]])
def test_scale_that_is_no_number(scale):
    with pytest.raises(InvalidArgument, match="scales"):
        multiplier_and_shift(scale, 16)


@pytest.mark.parametrize("width", [0, 8, 15, 31, 48])
def test_width_that_no_multiplier_has(width):
    for call in (lambda: multiplier_and_shift(1.0, width), lambda: max_scale(width)):
        with pytest.raises(InvalidArgument, match=f"{width} is not the width"):
            call()


@WIDTHS
def test_underflow_warns_with_the_scale_and_gives_zero(width):
    with pytest.warns(ScaleUnderflowWarning, match=r"scale 1e-20 of channel 1 \(the first of 2\)"):
        m, s, error = multiplier_and_shift([1.0, 1e-20, 5e-324], width)
    assert m.tolist()[1:] == [0, 0]
    assert s.tolist()[1:] == [62, 62]
    assert error.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("scale", [0.0027, 0.7, 1 - 2**-16, 3.1e-15, 2**-52 * 1.37, 2**-62 * 1.5, 8191.6, 1 / 3])
def test_no_pair_of_16_bits_at_all_is_closer(scale):
    every_multiplier = np.arange(1 << 15)[:, None]
    every_shift = np.arange(MIN_SHIFT, MAX_SHIFT + 1)[None, :]
    distances = np.abs(effective_scale(every_multiplier, every_shift) - scale)
    m, s, _ = multiplier_and_shift(scale, 16)
    assert abs(effective_scale(m, s) - scale) == distances.min()


@WIDTHS
def test_optimal_around_every_tie_and_power_of_two(width):
    bits = BITS[width]
    units = [1 << (bits - 1), (1 << (bits - 1)) + 1, 3 << (bits - 2), (1 << bits) - 2, (1 << bits) - 1]
    scales = []
    for exponent in range(-MAX_SHIFT - 3, -MIN_SHIFT + 1):
        for unit in [*units, 1, 2, 3]:
            for quarter in (0.0, 0.25, 0.5, 0.75):
                scale = math.ldexp(unit + quarter, exponent)
                scales += [math.nextafter(scale, 0), scale, math.nextafter(scale, math.inf)]
    assert_optimal([scale for scale in scales if scale < LIMIT[width]], width)


@WIDTHS
def test_optimal_on_random_scales_of_every_magnitude(width):
    rng = np.random.default_rng(20)
    exponents = rng.uniform(-66, math.log2(LIMIT[width]), 1500)
    assert_optimal([scale for scale in (2.0**exponents).tolist() if scale < LIMIT[width]], width)


positive_floats = st.floats(5e-324, 8191.8) | st.floats(2**-66, 2**-44) | st.floats(0.4999, 1.0001)


@WIDTHS
@given(scale=positive_floats)
@example(scale=5e-324)
@example(scale=2.2250738585072014e-308)
def test_optimal_on_any_float(width, scale):
    assert_optimal([scale], width)


@WIDTHS
@given(
    unit=st.integers(1 << 30, (1 << 31) - 1),
    shift=st.integers(4, 66),
    half=st.sampled_from([0, 1]),
    nudge=st.sampled_from([-1, 0, 1]),
    depth=st.integers(3, 400),
)
def test_fractions_are_rounded_once(width, unit, shift, half, nudge, depth):
    """A Fraction a hair beside a tie or a pair, far below float64 resolution, counts as the number it is."""
    unit >>= 32 - width
    scale = Fraction(2 * unit + half, 1 << (shift + 1)) + Fraction(nudge, 1 << (shift + depth))
    m, s, error = quietly(scale, width)
    distance = abs(Fraction(int(m), 1 << int(s)) - scale)
    assert distance == least_distance(scale, width)
    assert (
        abs(Fraction(float(error)) - distance / scale) <= Fraction(1, 1 << 61) + Fraction(1, 1 << 51) * distance / scale
    )
    assert (error == 0) == (distance == 0)
    if nudge == 0 and s == shift:
        assert m == unit + half


@WIDTHS
@given(scale=st.floats(2**-32, 8191))
def test_relative_error_bound_of_a_full_multiplier(width, scale):
    assert multiplier_and_shift(scale, width).relative_error <= 2.0 ** -BITS[width]


@WIDTHS
@given(st.lists(positive_floats, max_size=8))
def test_an_array_gives_what_each_scale_gives(width, scales):
    together = quietly(scales, width)
    for i, scale in enumerate(scales):
        assert tuple(field[i] for field in together) == quietly(scale, width)


@WIDTHS
@given(
    st.lists(st.tuples(st.integers(1, 1 << 31), st.integers(0, 70)), min_size=1, max_size=8),
    st.integers(1, 100),
)
def test_fractions_by_channel_give_what_each_scale_gives(width, scales, common):
    fractions = [(over * common, common << shift) for over, shift in scales]
    exact = [Fraction(*fraction) for fraction in fractions]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ScaleUnderflowWarning)
        try:
            wanted = multiplier_and_shift(exact, width)
        except InvalidArgument as error:
            with pytest.raises(InvalidArgument, match=f"^{re.escape(str(error))}$"):
                closest_pairs(fractions, width)
            return
        multipliers, shifts = closest_pairs(fractions, width)
        assert len({(str(warning.message), warning.filename) for warning in warned}) == len(warned) / 2
        assert (multipliers, shifts) == (wanted.multiplier.tolist(), wanted.shift.tolist())
        assert [closest_pair(*one, width) for one in fractions] == list(zip(multipliers, shifts, strict=True))


def test_shapes_and_dtypes():
    for scale, shape in [(0.5, ()), ([0.5], (1,)), ([], (0,)), (np.full((2, 3), 0.5), (2, 3))]:
        found = multiplier_and_shift(scale, 32)
        assert [field.shape for field in found] == [shape] * 3
        assert [field.dtype for field in found] == [np.int32, np.int8, np.float64]


def test_every_kind_of_number_is_the_number_it_is():
    tenth32 = np.float32(0.1)
    for scale in (
        tenth32,
        float(tenth32),
        Fraction(float(tenth32)),
        np.array(tenth32),
        np.array(tenth32, np.longdouble),
    ):
        assert multiplier_and_shift(scale, 32)[:2] == (1717986944, 34)
    assert multiplier_and_shift(0.1, 32)[:2] == (1717986918, 34)
    for scale in (3, np.int8(3), np.uint64(3), Fraction(3), np.float16(3)):
        assert multiplier_and_shift(scale, 16)[:2] == (24576, 13)
    mixed = multiplier_and_shift([3, Fraction(1, 3), np.int64(1), 0.5, np.float32(2)], 16)
    assert mixed.multiplier.tolist() == [24576, 21845, 16384, 16384, 16384]
    assert mixed.shift.tolist() == [13, 16, 14, 15, 13]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="longdouble is no wider than 64 bits here")
def test_longdouble_keeps_its_extra_bits():
    tie = np.longdouble(1) + np.longdouble(2) ** -31
    assert multiplier_and_shift(tie, 32).multiplier == (1 << 30) + 1
    assert multiplier_and_shift(tie - np.longdouble(2) ** -62, 32).multiplier == 1 << 30


@WIDTHS
def test_max_scale_is_the_largest_pair(width):
    m, s, error = multiplier_and_shift(max_scale(width), width)
    assert (m, s, error) == ((1 << BITS[width]) - 1, MIN_SHIFT, 0)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-128, 127))
def test_effective_scale_is_exact(multiplier, shift):
    assert Fraction(float(effective_scale(multiplier, shift))) == multiplier * Fraction(2) ** -shift


def test_effective_scale_broadcasts_and_refuses_what_is_no_pair():
    assert effective_scale(np.array([1, 3], np.int32), np.array(62, np.int8)).tolist() == [2**-62, 3 * 2**-62]
    for multiplier, shift, message in [
        (0.5, 2, "multiplier must hold integers"),
        (1 << 31, 2, "outside INT32"),
        (1, 128, "outside INT8"),
        (np.uint64(1 << 63), 2, "multiplier must hold integers"),
        ([1, [2]], 2, "ragged"),
        ([1, 2], [1, 2, 3], r"multiplier \[2\], shift \[3\]"),
    ]:
        with pytest.raises(InvalidArgument, match=message):
            effective_scale(multiplier, shift)


@given(positive_floats, st.integers(0, (1 << 31) - 1), st.integers(2, 62))
def test_scale_error_is_the_exact_error(scale, multiplier, shift):
    exact = abs(Fraction(multiplier, 1 << shift) - Fraction(scale)) / Fraction(scale)
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf
    assert scale_error(scale, multiplier, shift) == expected


def test_scale_error_of_a_16_bit_multiplier():
    scale = 0.0027741822493807726
    assert 2**-16 < scale_error(scale, 23272, 23) < 2**-15
    assert scale_error([scale, 0.25], [23272, 1], [23, 2]).tolist() == [scale_error(scale, 23272, 23), 0.0]
