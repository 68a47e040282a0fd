"""TABLE with 256 int8 entries as a TABLE with 513 int16 entries, exact on the old grid or smoothed."""

import numpy as np
import numpy.typing as npt

from rewrites._widen.families import FACTOR

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

ENTRIES = 513

_SLACK = 0.49
"""How far a smoothed entry may be from the int8 entry, in int8 steps: less than the half that changes a rounding."""


def widen_table(table: npt.ArrayLike, zp_in: int, zp_out: int, *, smooth: bool) -> IntArray:
    """The 513 int16 entries of a 256-entry int8 table, for activations ``(q - zero point) * 128``.

    Entry i stands for the int8 code ``q = i - 256 + zp_in``; codes beyond the int8 range, and the 513th entry, repeat
    the nearest entry. The result of the TABLE is 128 times the new activation. Entries differ by at most
    255 * 128 + 126, so every slope fits int16.
    """
    old = np.asarray(table, np.int64).reshape(256)
    real = (smoothed(old) if smooth else old.astype(np.float64)) - zp_out
    entries = np.rint(real * FACTOR).astype(np.int64)
    codes = np.clip(np.arange(ENTRIES) - 256 + zp_in, -128, 127)
    return np.asarray(entries[codes + 128], np.int64)


def smoothed(table: IntArray) -> FloatArray:
    """The real-valued entries within 0.49 of the int8 ones that have the least sum of squared third differences.

    A primal-dual interior point method: quadratic objective, one box constraint per entry. The table itself lies in the
    middle of the box, so there always is a solution; the iterate returned is feasible wherever the method stops.
    """
    count = table.size
    difference = np.diff(np.eye(count), n=3, axis=0)
    hessian = difference.T @ difference
    deviation = np.zeros(count)  # from the table, in [-slack, slack]
    gradient = hessian @ table.astype(np.float64)
    upper_dual, lower_dual = np.ones(count), np.ones(count)
    for _ in range(60):
        to_upper, to_lower = _SLACK - deviation, _SLACK + deviation
        gap = float(upper_dual @ to_upper + lower_dual @ to_lower)
        residual = hessian @ deviation + gradient + upper_dual - lower_dual
        if gap < 1e-7 and float(np.abs(residual).max()) < 1e-7:
            break
        centre = 0.1 * gap / (2 * count)
        weight = upper_dual / to_upper + lower_dual / to_lower
        right = -residual - (centre / to_upper - upper_dual) + (centre / to_lower - lower_dual)
        step = np.linalg.solve(hessian + np.diag(weight), right)
        upper_step = centre / to_upper - upper_dual + upper_dual / to_upper * step
        lower_step = centre / to_lower - lower_dual - lower_dual / to_lower * step
        length = min(
            _longest(to_upper, -step),
            _longest(to_lower, step),
            _longest(upper_dual, upper_step),
            _longest(lower_dual, lower_step),
        )
        deviation = deviation + length * step
        upper_dual, lower_dual = upper_dual + length * upper_step, lower_dual + length * lower_step
    return np.asarray(table + deviation, np.float64)


def _longest(value: FloatArray, step: FloatArray) -> float:
    """The longest step, at most 1, that keeps a positive value positive."""
    shrinking = step < 0
    if not shrinking.any():
        return 1.0
    return float(min(1.0, 0.99 * (value[shrinking] / -step[shrinking]).min()))
