"""Distances between arrays: exact for every dtype, without a tolerance."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosakit.errors import InvalidArgument
from tosakit.oracle.difference import Tally, distances

INT64 = np.iinfo(np.int64)


@given(st.lists(st.tuples(st.integers(INT64.min, INT64.max), st.integers(INT64.min, INT64.max)), min_size=1))
def test_integers_are_apart_by_exactly_their_difference(pairs: list[tuple[int, int]]) -> None:
    before, after = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    assert distances(before, after).tolist() == [float(abs(a - b)) for a, b in pairs]


def test_neighbours_that_float64_cannot_tell_apart_are_one_apart() -> None:
    wide = np.array([2**53, 2**62, INT64.min], np.int64)
    assert distances(wide, wide + 1).tolist() == [1.0, 1.0, 1.0]


@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1))
def test_floats_are_equal_only_where_they_are_the_same_number_or_both_nan(pairs: list[tuple[float, float]]) -> None:
    before, after = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    same = [a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs]
    assert (distances(before, after) == 0).tolist() == same


def test_nan_and_infinity_are_infinitely_far_from_everything_else() -> None:
    before = np.array([np.nan, 1.0, np.inf, np.inf, -0.0, np.nan], np.float32)
    after = np.array([0.0, np.nan, -np.inf, np.inf, 0.0, np.nan], np.float32)
    assert distances(before, after).tolist() == [math.inf, math.inf, math.inf, 0.0, 0.0, 0.0]


def test_truth_values_are_one_apart() -> None:
    assert distances(np.array([True, False]), np.array([True, True])).tolist() == [0.0, 1.0]


def test_arrays_of_different_shapes_are_never_compared_by_broadcasting() -> None:
    with pytest.raises(InvalidArgument, match=r"arrays of shape \[2\] and \[1\] cannot be compared"):
        distances(np.zeros(2), np.zeros(1))


def tally(*pairs: tuple[list[float], list[float]], zero_point: float = 0.0) -> Tally:
    total = Tally("y", zero_point)
    for before, after in pairs:
        total.add(np.array(before), np.array(after))
    return total


def test_a_tally_counts_over_all_vectors() -> None:
    result = tally(([1, 2, 3, 4], [1, 2, 3, 4]), ([5, 6, 7, 8], [5, 9, 7, 7])).result()
    assert (result.name, result.max_difference, result.fraction_different) == ("y", 3.0, 0.25)


def test_sqnr_is_signal_over_difference_in_db() -> None:
    assert tally(([100, -100], [101, -101])).result().sqnr_db == pytest.approx(40.0)
    assert tally(([110, -90], [111, -91]), zero_point=10).result().sqnr_db == pytest.approx(40.0)


def test_sqnr_without_difference_and_without_signal_is_infinite() -> None:
    assert tally(([1, 2], [1, 2])).result().sqnr_db == math.inf
    assert tally(([0, 0], [0, 1])).result().sqnr_db == -math.inf
    assert tally(([1, 2], [1, np.nan])).result().sqnr_db == -math.inf


def test_infinite_values_that_agree_do_not_spoil_the_sqnr() -> None:
    result = tally(([np.inf, np.nan, 100.0], [np.inf, np.nan, 101.0])).result()
    assert result.sqnr_db == pytest.approx(40.0)


@pytest.mark.filterwarnings("error")
def test_scalars_at_both_ends_are_subtracted_without_a_warning() -> None:
    low, high = np.asarray(-(1 << 31), np.int32), np.asarray((1 << 31) - 1, np.int32)
    assert distances(low, high) == (1 << 32) - 1
