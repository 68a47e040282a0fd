"""Seeded test inputs that reach the places where graphs break: limits, zero, +-1, saturation, odd halves, NaN."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidArgument
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES, Array, numpy_dtype

_Rng = np.random.Generator
_Integers = npt.NDArray[np.int64]
Bound = int | _Integers
"""A limit for all values, or one for each index of the last axis."""


@dataclass(frozen=True, eq=False)
class InputSpec:
    """What one input must be: dtype, static shape, and for integers the closed range its values stay in.

    ``distinct``: the values along the last axis differ from each other, as SCATTER has it of its indices, as far as
    the range has room for that.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    low: Bound | None = None
    high: Bound | None = None
    distinct: bool = False

    def bounds(self) -> tuple[_Integers, _Integers]:
        """The closed range of every element of an integer input, flat: the given one, else the dtype's."""
        low, high = INTEGER_RANGES.get(self.dtype, INTEGER_RANGES[DType.INT8])  # MXINT8 is int8 too
        given = low if self.low is None else self.low, high if self.high is None else self.high
        first, last = (np.broadcast_to(np.asarray(bound, np.int64), self.shape).reshape(-1) for bound in given)
        return first, last


def _uniform(rng: _Rng, low: Bound, high: Bound, count: int) -> _Integers:
    return rng.integers(low, high, count, dtype=np.int64, endpoint=True)


def _bell(rng: _Rng, low: _Integers, high: _Integers, divisor: float) -> _Integers:
    first, last = low.astype(np.float64), high.astype(np.float64)
    centre = np.where((low <= 0) & (high >= 0), 0.0, (first + last) / 2)
    drawn = np.rint(rng.normal(centre, np.maximum((last - first) / divisor, 1.0)))
    return np.clip(drawn, -(2.0**62), 2.0**62).astype(np.int64)


def _spikes(rng: _Rng, low: _Integers, high: _Integers) -> _Integers:
    values = np.zeros(low.size, np.int64)
    places = rng.integers(0, max(low.size, 1), max(low.size // 16, 1))
    values[places] = np.where(rng.random(places.size) < 0.5, low[places], high[places])
    return values


def _odd(rng: _Rng, low: _Integers, high: _Integers) -> _Integers:
    first, last = np.clip(low >> 1, -64, 63), np.clip((high - 1) >> 1, -64, 63)
    return _uniform(rng, first, np.maximum(first, last), low.size) * 2 + 1


def _integers(rng: _Rng, kind: int, low: _Integers, high: _Integers) -> _Integers:
    count = low.size
    index = np.arange(count, dtype=np.int64)
    choices: tuple[Callable[[], _Integers], ...] = (
        lambda: np.zeros(count, np.int64),
        lambda: high,
        lambda: low,
        lambda: _bell(rng, low, high, 6.0),
        lambda: _uniform(rng, low, high, count),
        lambda: np.where(index % 2 == 0, low, high),
        lambda: np.where(rng.random(count) < 0.5, low, high),
        lambda: _uniform(rng, -2, 2, count),
        lambda: np.ones(count, np.int64),
        lambda: -np.ones(count, np.int64),
        lambda: _bell(rng, low, high, 64.0),
        lambda: _uniform(rng, np.maximum(low, high - 8), high, count),
        lambda: _spikes(rng, low, high),
        lambda: _odd(rng, low, high),
    )
    return np.clip(choices[kind % KINDS](), low, high)


KINDS = 14
"""Kinds of integer input. That many vectors have every kind once, alike on all inputs; later ones mix them."""

_SPECIALS = np.array([np.inf, -np.inf, np.nan, -0.0])
"""What about one value in sixteen of a FP kind is; types without infinities make of them what they have."""


def _floats(rng: _Rng, kind: int, count: int) -> npt.NDArray[np.float64]:
    choices: tuple[Callable[[], npt.NDArray[np.float64]], ...] = (
        lambda: np.zeros(count),
        lambda: np.ones(count),
        lambda: -np.ones(count),
        lambda: rng.normal(0.0, 1.0, count),
        lambda: rng.uniform(-1.0, 1.0, count),
        lambda: rng.normal(0.0, 8.0, count),
        lambda: rng.normal(0.0, 0.01, count),
        lambda: np.where(rng.random(count) < 1 / 16, rng.choice(_SPECIALS, count), rng.normal(0.0, 1.0, count)),
    )
    return choices[kind % len(choices)]()


def _distinct(rng: _Rng, spec: InputSpec) -> Array:
    """Rows of numbers drawn without putting any back: the same number twice only where there are too few."""
    low, high = (int(bound.min()) for bound in spec.bounds())
    width = spec.shape[-1] if spec.shape else 1
    count = high - low + 1
    rows = [rng.choice(count, width, replace=width > count) + low for _ in range(math.prod(spec.shape[:-1]))]
    return np.array(rows).astype(numpy_dtype(spec.dtype)).reshape(spec.shape)


def _one(rng: _Rng, spec: InputSpec, kind: int) -> Array:
    count = int(np.prod(spec.shape, dtype=np.int64))
    dtype = numpy_dtype(spec.dtype)
    if spec.distinct:
        return _distinct(rng, spec)
    if dtype.kind == "i":
        return _integers(rng, kind, *spec.bounds()).astype(dtype).reshape(spec.shape)
    if spec.dtype == DType.BOOL:
        return (rng.random(count) < (0.0, 1.0, 0.5)[kind % 3]).reshape(spec.shape)
    return _floats(rng, kind, count).astype(dtype).reshape(spec.shape)


def input_vectors(specs: Sequence[InputSpec], count: int, seed: int) -> Iterator[list[Array]]:
    """``count`` deterministic vectors, each one array per spec.

    Every kind of values comes once with all inputs alike, then mixed. Raises InvalidArgument for a shape that is not
    static, a dtype without values, and a negative seed.
    """
    if seed < 0:
        raise InvalidArgument(f"seed {seed} is negative; give a number, 0 or more")
    for spec in specs:
        if any(size < 1 for size in spec.shape):
            raise InvalidArgument(f'input "{spec.name}" has the dynamic shape {list(spec.shape)}; give it a static one')
        numpy_dtype(spec.dtype)
    return _vectors(specs, count, seed)


def _vectors(specs: Sequence[InputSpec], count: int, seed: int) -> Iterator[list[Array]]:
    rng = np.random.default_rng(seed)
    for number in range(count):
        kinds = [number] * len(specs) if number < KINDS else [int(k) for k in rng.integers(0, KINDS, len(specs))]
        yield [_one(rng, spec, kind) for spec, kind in zip(specs, kinds, strict=True)]
