"""Operators that move data: padding, slicing, joining, and indices in range."""

import math

import numpy as np

from tosakit.ir.graph import Tensor
from tosakit.testing import values
from tosakit.testing.making import Making
from tosakit.testing.recipes.windows import blocks
from tosakit.testing.sketch import Unfit


def concat(m: Making) -> tuple[Tensor, ...]:
    """CONCAT of one to three tensors."""
    settled = m.given.get("input1", [])
    first = settled[0] if settled else m.sketch.operand(m.dtype("input1"), m.sketch.shape())
    if not first.shape:
        raise Unfit("CONCAT joins nothing of rank 0")
    axis = m.choices.integer(0, len(first.shape) - 1)
    for tensor in settled or [first]:
        m.put("input1", tensor)
    for _ in range(m.choices.integer(0, 2)):
        shape = list(first.shape)
        if m.choices.flag(0.3):
            shape[axis] = m.choices.integer(1, 3)
        m.put("input1", m.sketch.operand(first.dtype, shape))
    return m.finish(axis=axis)


def pad(m: Making) -> tuple[Tensor, ...]:
    """PAD by up to two elements at each end."""
    rank = len(m.take("input1").shape)
    m.constant("padding", [m.choices.integer(0, 2) if m.choices.flag() else 0 for _ in range(2 * rank)])
    return m.finish()


def reshape(m: Making) -> tuple[Tensor, ...]:
    """RESHAPE."""
    m.constant("shape", _factors(m, m.take("input1").shape))
    return m.finish()


def _factors(m: Making, shape: tuple[int, ...]) -> list[int]:
    """A shape with as many elements: sizes in another order, two joined, or all in one."""
    sizes = list(shape)
    kind = m.choices.integer(0, 3)
    if kind == 0 or len(sizes) < 2:
        return [math.prod(sizes)]
    if kind == 1:
        return [*sizes[:-2], sizes[-2] * sizes[-1]]
    if kind == 2:
        return [*sizes[1:], sizes[0]]
    return [1, *sizes] if len(sizes) < 5 else sizes


def slice_(m: Making) -> tuple[Tensor, ...]:
    """SLICE: some of every axis."""
    shape = m.take("input1").shape
    start = [m.choices.integer(0, size - 1) for size in shape]
    m.constant("start", start)
    m.constant("size", [m.choices.integer(1, size - first) for size, first in zip(shape, start, strict=True)])
    return m.finish()


def tile(m: Making) -> tuple[Tensor, ...]:
    """TILE: one axis or two repeated."""
    m.constant("multiples", [m.choices.pick([1, 1, 2, 3]) for _ in m.take("input1").shape])
    return m.finish()


def transpose(m: Making) -> tuple[Tensor, ...]:
    """TRANSPOSE by any permutation."""
    rank = len(m.take("input1").shape)
    return m.finish(perms=tuple(int(axis) for axis in m.choices.rng().permutation(rank)))


def gather(m: Making) -> tuple[Tensor, ...]:
    """GATHER: indices of rows that are there."""
    m.take("values")
    dtype = m.dtype("indices")
    m.constant("indices", values.values(m.choices, dtype, [m.size("N"), m.size("W")], 0, m.size("K") - 1))
    return m.finish()


def scatter(m: Making) -> tuple[Tensor, ...]:
    """SCATTER: no row of a batch is written twice."""
    m.take("values_in")
    if "input" in m.given:
        m.take("input")
    count = m.size("W", 1, m.size("K"))
    if count > m.size("K"):
        raise Unfit("SCATTER has more rows to write than there are")
    rng = m.choices.rng()
    rows = np.stack([rng.permutation(m.size("K"))[:count] for _ in range(m.size("N"))])
    m.constant("indices", rows)
    return m.finish()


def row_gather(m: Making) -> tuple[Tensor, ...]:
    """ROW_GATHER: ``row_count`` rows from every index on."""
    m.take("values")
    _rows(m, m.size("K"))
    return m.finish()


def row_gather_block_scaled(m: Making) -> tuple[Tensor, ...]:
    """ROW_GATHER_BLOCK_SCALED, with scales or without."""
    batch, rows = m.size("N"), m.size("K")
    last = 32 if m.scaled else m.size("C")
    m.take("values", shape=[batch, rows, last])
    if m.scaled:
        m.take("values_scale", shape=[batch, rows, 1])
    _rows(m, rows)
    return m.finish()


def _rows(m: Making, rows: int) -> None:
    count = m.choices.integer(1, rows)
    dtype = m.dtype("indices")
    m.constant("indices", values.values(m.choices, dtype, [m.size("N"), m.size("W")], 0, rows - count))
    m.constant("row_count", [count])


def reshape_block_scaled(m: Making) -> tuple[Tensor, ...]:
    """RESHAPE_BLOCK_SCALED: the last axis keeps whole blocks."""
    sizes = [m.choices.integer(1, 3), m.choices.integer(1, 3), 32]
    m.take("input", shape=sizes)
    if m.scaled:
        m.take("input_scale", shape=[*sizes[:-1], 1])
    m.constant("new_value_shape", m.choices.pick([sizes, [sizes[0] * sizes[1], 32], [sizes[0], sizes[1] * 32]]))
    return m.finish()


def cast_from_block_scaled(m: Making) -> tuple[Tensor, ...]:
    """CAST_FROM_BLOCK_SCALED: a scale for every 32 values."""
    shape = [*(m.choices.integer(1, 3) for _ in range(m.choices.integer(0, 2))), 32 * m.choices.integer(1, 2)]
    m.take("input_data", shape=shape)
    m.take("input_scale", shape=[*shape[:-1], shape[-1] // 32])
    return m.finish()


def cast_to_block_scaled(m: Making) -> tuple[Tensor, ...]:
    """CAST_TO_BLOCK_SCALED."""
    blocks(m, "C")
    m.take("input_data", shape=[*(m.choices.integer(1, 3) for _ in range(m.choices.integer(0, 2))), 32])
    return m.finish()
