"""Seeded test inputs that reach the places where integer graphs break: limits, zero, +-1, saturation, odd halves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidArgument
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES, Array, numpy_dtype

_Rng = np.random.Generator


@dataclass(frozen=True)
class InputSpec:
    """What one input must be: dtype, static shape, and for integers the closed range its values stay in."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    low: int | None = None
    high: int | None = None

    def bounds(self) -> tuple[int, int]:
        """The closed range of an integer input: the given one, else the dtype's."""
        low, high = INTEGER_RANGES[self.dtype]
        return (low if self.low is None else self.low), (high if self.high is None else self.high)


def _uniform(rng: _Rng, low: int, high: int, count: int) -> npt.NDArray[np.int64]:
    return rng.integers(low, high, count, dtype=np.int64, endpoint=True)


def _bell(rng: _Rng, low: int, high: int, count: int, divisor: float) -> npt.NDArray[np.int64]:
    centre = 0.0 if low <= 0 <= high else (low + high) / 2
    return np.rint(rng.normal(centre, max((high - low) / divisor, 1.0), count)).astype(np.int64)


def _spikes(rng: _Rng, low: int, high: int, count: int) -> npt.NDArray[np.int64]:
    values = np.zeros(count, np.int64)
    places = rng.integers(0, max(count, 1), max(count // 16, 1)) if count else np.empty(0, np.int64)
    values[places] = np.where(rng.random(places.size) < 0.5, low, high)
    return values


_KINDS = 14
"""Kinds of integer input; the first two rounds give every kind alone, later vectors mix them between inputs."""


def _integers(rng: _Rng, kind: int, low: int, high: int, count: int) -> npt.NDArray[np.int64]:
    index = np.arange(count, dtype=np.int64)
    choices = (
        lambda: np.zeros(count, np.int64),
        lambda: np.full(count, high, np.int64),
        lambda: np.full(count, low, np.int64),
        lambda: _bell(rng, low, high, count, 6.0),
        lambda: _uniform(rng, low, high, count),
        lambda: np.where(index % 2 == 0, low, high),
        lambda: np.where(rng.random(count) < 0.5, low, high),
        lambda: _uniform(rng, -2, 2, count),
        lambda: np.ones(count, np.int64),
        lambda: -np.ones(count, np.int64),
        lambda: _bell(rng, low, high, count, 64.0),
        lambda: _uniform(rng, max(low, high - 8), high, count),
        lambda: _spikes(rng, low, high, count),
        lambda: _uniform(rng, -64, 63, count) * 2 + 1,
    )
    return np.clip(choices[kind % _KINDS](), low, high)


def _floats(rng: _Rng, kind: int, count: int) -> npt.NDArray[np.float64]:
    choices = (
        lambda: np.zeros(count),
        lambda: np.ones(count),
        lambda: -np.ones(count),
        lambda: rng.normal(0.0, 1.0, count),
        lambda: rng.uniform(-1.0, 1.0, count),
        lambda: rng.normal(0.0, 8.0, count),
        lambda: rng.normal(0.0, 0.01, count),
    )
    return choices[kind % len(choices)]()


def _one(rng: _Rng, spec: InputSpec, kind: int) -> Array:
    count = int(np.prod(spec.shape, dtype=np.int64))
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype in INTEGER_RANGES:
        low, high = spec.bounds()
        return _integers(rng, kind, low, high, count).astype(dtype).reshape(spec.shape)
    if spec.dtype == DType.BOOL:
        return (rng.random(count) < (0.0, 1.0, 0.5)[kind % 3]).reshape(spec.shape)
    return _floats(rng, kind, count).astype(dtype).reshape(spec.shape)


def input_vectors(specs: Sequence[InputSpec], count: int, seed: int) -> Iterator[list[Array]]:
    """``count`` deterministic vectors, each one array per spec.

    Every kind of values comes once with all inputs alike, then mixed. Raises InvalidArgument for a shape that is not
    static.
    """
    for spec in specs:
        if any(size < 0 for size in spec.shape):
            raise InvalidArgument(f'input "{spec.name}" has the dynamic shape {list(spec.shape)}; give it a static one')
    rng = np.random.default_rng(seed)
    for number in range(count):
        kinds = [number] * len(specs) if number < _KINDS else [int(k) for k in rng.integers(0, _KINDS, len(specs))]
        yield [_one(rng, spec, kind) for spec, kind in zip(specs, kinds, strict=True)]
