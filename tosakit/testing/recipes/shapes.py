"""Operators on shapes: constant operands for which the result is defined."""

from tosakit.ir.graph import Tensor
from tosakit.testing.making import Making


def _sizes(m: Making, low: int, high: int, length: int) -> list[int]:
    return [m.choices.integer(low, high) for _ in range(length)]


def binary(m: Making) -> tuple[Tensor, ...]:
    """Operators on two shapes of one length: nothing becomes negative, nothing is divided by zero."""
    length = m.choices.integer(1, 4)
    right = _sizes(m, 1, 4, length)
    m.constant("input1", [size + extra for size, extra in zip(right, _sizes(m, 0, 4, length), strict=True)])
    m.constant("input2", right)
    return m.finish()


def unary(m: Making) -> tuple[Tensor, ...]:
    """Operators on one shape."""
    m.constant("input", _sizes(m, 1, 5, m.choices.integer(1, 4)))
    return m.finish()


def assert_equal(m: Making) -> tuple[Tensor, ...]:
    """ASSERT_EQUAL_SHAPE of equal shapes; with ``allow_broadcast`` a 1 equals anything."""
    sizes, broadcast = _sizes(m, 1, 4, m.choices.integer(1, 4)), m.choices.flag()
    left = m.constant("input1", sizes)
    right = m.constant("input2", [1 if broadcast and m.choices.flag(0.3) else size for size in sizes])
    return m.sketch.emit(m.attributes(allow_broadcast=broadcast), [left, right], [])


def concat(m: Making) -> tuple[Tensor, ...]:
    """CONCAT_SHAPE of one to three shapes."""
    for _ in range(m.choices.integer(1, 3)):
        m.constant("input", _sizes(m, 1, 4, m.choices.integer(1, 3)))
    return m.finish()


def slice_(m: Making) -> tuple[Tensor, ...]:
    """SLICE_SHAPE."""
    length = m.choices.integer(1, 5)
    m.constant("input", _sizes(m, 1, 4, length))
    start = m.choices.integer(0, length - 1)
    m.constant("start", [start])
    m.constant("size", [m.choices.integer(1, length - start)])
    return m.finish()
