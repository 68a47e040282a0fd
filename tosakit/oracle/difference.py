"""How far two arrays are apart: exact, and without any tolerance."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidArgument
from tosakit.ir.types import Array


def distances(before: Array, after: Array) -> npt.NDArray[np.float64]:
    """``|after - before|`` element by element; 0 for equal elements and for no others.

    Integers of up to 64 bits are subtracted as integers. NaN equals NaN and is infinitely far from any number, an
    infinity equals itself only, zeros of either sign are equal. Raises InvalidArgument where the shapes differ.
    """
    if before.shape != after.shape:
        raise InvalidArgument(f"arrays of shape {list(before.shape)} and {list(after.shape)} cannot be compared")
    if before.dtype.kind in "biu" and after.dtype.kind in "biu":
        first, second = before.astype(np.int64), after.astype(np.int64)
        high, low = np.maximum(first, second).view(np.uint64), np.minimum(first, second).view(np.uint64)
        with np.errstate(over="ignore"):  # wraps around, and the difference of two int64 fits uint64
            return np.asarray(high - low, np.float64)
    one, other = np.asarray(before, np.float64), np.asarray(after, np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    return np.nan_to_num(gap, nan=math.inf, posinf=math.inf)


@dataclass(frozen=True)
class OutputDifference:
    """How far one output is apart over all compared vectors.

    ``max_difference`` is in LSB of the first program's integer output, absolute for other dtypes. ``sqnr_db`` is the
    ratio of signal to difference: infinite where there is none, minus infinite where there is nothing else.
    """

    name: str
    max_difference: float
    fraction_different: float
    sqnr_db: float


@dataclass
class Tally:
    """Differences of one output, gathered vector by vector. ``zero_point`` is the value that stands for no signal."""

    name: str
    zero_point: float = 0.0
    worst: float = 0.0
    count: int = 0
    different: int = 0
    signal: float = 0.0
    noise: float = 0.0

    def add(self, before: Array, after: Array) -> None:
        """Compare two arrays of one shape."""
        gap = distances(before, after)
        self.worst = max(self.worst, float(gap.max(initial=0.0)))
        self.count += gap.size
        self.different += int(np.count_nonzero(gap))
        values = np.asarray(before, np.float64) - self.zero_point
        self.signal += float(np.square(values[np.isfinite(values)]).sum())
        self.noise += float(np.square(gap).sum())

    def result(self) -> OutputDifference:
        """The summary over everything added."""
        if self.noise == 0.0:
            sqnr = math.inf
        elif self.signal == 0.0 or math.isinf(self.noise):
            sqnr = -math.inf
        else:
            sqnr = 10.0 * math.log10(self.signal / self.noise)
        return OutputDifference(self.name, self.worst, self.different / self.count if self.count else 0.0, sqnr)
