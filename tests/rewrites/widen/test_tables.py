"""Tables: every code, both ends, slopes, and smoothing that rounds to the same int8."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites._widen.tables import smoothed, widen_table

CODES = np.arange(-128, 128)
ZERO_POINTS = st.integers(-128, 127)


@settings(max_examples=40, deadline=None)
@given(table=st.lists(ZERO_POINTS, min_size=256, max_size=256), zp_in=ZERO_POINTS, zp_out=ZERO_POINTS)
def test_exact_entries(table: list[int], zp_in: int, zp_out: int) -> None:
    entries = widen_table(table, zp_in, zp_out, smooth=False)
    assert entries.shape == (513,)
    index = CODES - zp_in + 256
    np.testing.assert_array_equal(entries[index], (np.array(table) - zp_out) * 128)
    assert (entries[: index[0]] == entries[index[0]]).all()
    assert (entries[index[-1] :] == entries[index[-1]]).all()
    _fits(entries)


@settings(max_examples=15, deadline=None)
@given(table=st.lists(ZERO_POINTS, min_size=256, max_size=256), zp_in=ZERO_POINTS, zp_out=ZERO_POINTS)
def test_smoothed_entries_round_to_the_same_int8(table: list[int], zp_in: int, zp_out: int) -> None:
    entries = widen_table(table, zp_in, zp_out, smooth=True)
    real = entries[CODES - zp_in + 256] / 128 + zp_out
    np.testing.assert_array_equal(np.rint(real), table)
    _fits(entries)


def _fits(entries: np.ndarray) -> None:
    assert entries.min() >= -(1 << 15)
    assert entries.max() < 1 << 15
    assert np.abs(np.diff(entries)).max() < 1 << 15


def _third(values: np.ndarray) -> float:
    return float(np.square(np.diff(values, n=3)).sum())


@pytest.mark.parametrize("function", [np.tanh, np.exp, lambda x: x * x / 4 - 1], ids=["tanh", "exp", "square"])
def test_smoothing_comes_closer_to_the_function(function: np.ufunc) -> None:
    real = np.clip(100 * function(CODES / 48.0), -128, 127)
    table = np.rint(real).astype(np.int64)
    smooth = smoothed(table)
    inside = (np.abs(real) < 126) & (np.arange(256) > 4) & (np.arange(256) < 251)
    assert np.abs(smooth - table).max() <= 0.49 + 1e-9
    assert _third(smooth) <= _third(table)
    assert np.square(smooth - real)[inside].sum() < 0.5 * np.square(table - real)[inside].sum()


def test_smoothing_is_optimal() -> None:
    """No feasible direction lowers the sum of squared third differences: the gradient vanishes off the walls."""
    table = np.rint(90 * np.sin(CODES / 30.0)).astype(np.int64)
    smooth = smoothed(table)
    difference = np.diff(np.eye(256), n=3, axis=0)
    gradient = difference.T @ (difference @ smooth)
    deviation = smooth - table
    free = np.abs(deviation) < 0.489
    assert free.any()
    assert np.abs(gradient[free]).max() < 1e-4
    assert (gradient[deviation > 0.4899] < 1e-4).all()
    assert (gradient[deviation < -0.4899] > -1e-4).all()


def test_a_constant_table_stays_constant() -> None:
    assert set(widen_table([5] * 256, 3, -4, smooth=True).tolist()) == {9 * 128}
