"""Arithmetic on sizes, as the shape operators of TOSA 1.1 have it, in Python integers."""

from collections.abc import Callable, Mapping

from tosakit.ir import ops
from tosakit.ir.operator import Attributes

OF_TWO: Mapping[type[Attributes], Callable[[int, int], int]] = {
    ops.AddShape: lambda a, b: a + b,
    ops.SubShape: lambda a, b: a - b,
    ops.MulShape: lambda a, b: a * b,
    ops.DivCeilShape: lambda a, b: -(-a // b),
    ops.DivFloorShape: lambda a, b: a // b,
    ops.ModShape: lambda a, b: a % b,
    ops.MaxShape: max,
    ops.MinShape: min,
}
"""Of operators on two shapes of one length; they raise ZeroDivisionError for a divisor 0."""

OF_ONE: Mapping[type[Attributes], Callable[[int], int]] = {
    ops.Exp2Shape: lambda a: 1 << min(a, 63),
    ops.Log2CeilShape: lambda a: max(a - 1, 0).bit_length(),
    ops.Log2FloorShape: lambda a: max(a, 1).bit_length() - 1,
}
"""Of operators on one shape, for sizes that are not negative. 2^63 and more is more than a size can be."""
