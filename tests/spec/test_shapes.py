"""Shape operators are evaluated: what they compute is held against the shapes of readers."""

from collections.abc import Sequence

import pytest

from tests.spec.nets import I8, I32, SHAPE, Block, Net
from tosakit.ir import ops
from tosakit.ir.operator import Attributes
from tosakit.spec.verify import verify

BINARY: list[tuple[Attributes, Sequence[int], Sequence[int], Sequence[int]]] = [
    (ops.AddShape(), [3, 2], [1, 1], [4, 3]),
    (ops.SubShape(), [5, 4], [1, 1], [4, 3]),
    (ops.MulShape(), [2, 1], [2, 3], [4, 3]),
    (ops.DivCeilShape(), [7, 9], [2, 3], [4, 3]),
    (ops.DivFloorShape(), [9, 10], [2, 3], [4, 3]),
    (ops.ModShape(), [11, 13], [7, 5], [4, 3]),
    (ops.MaxShape(), [4, 1], [2, 3], [4, 3]),
    (ops.MinShape(), [4, 9], [8, 3], [4, 3]),
]


def codes(net: Net) -> list[str]:
    return [d.code for d in verify(net.program())]


def reader(net: Net, operator: Attributes, operands: Sequence[Sequence[int]], result: Sequence[int]) -> list[str]:
    """Codes of a RESHAPE of 12 values by the shape that ``operator`` computes, declared as ``result``."""
    shapes = [net.main.shape(*sizes) for sizes in operands]
    (computed,) = net.main.op(operator, shapes, (SHAPE, [len(result)]))
    net.main.op(ops.Reshape(), [net.main.input(I8, 12), computed], (I8, result))
    return codes(net)


@pytest.mark.parametrize(("operator", "left", "right", "result"), BINARY, ids=lambda v: getattr(v, "NAME", None))
def test_binary(operator: Attributes, left: Sequence[int], right: Sequence[int], result: Sequence[int]) -> None:
    assert reader(Net(Block(), {}, 1), operator, [left, right], result) == []
    swapped = list(result)[::-1]
    assert reader(Net(Block(), {}, 1), operator, [left, right], swapped) == ["ReshapeNewShapeOutputMismatch"]


@pytest.mark.parametrize(
    ("operator", "operand", "result"),
    [
        (ops.Exp2Shape(), [2, 0], [4, 1]),
        (ops.Log2CeilShape(), [9, 1, 2], [4, 0, 1]),
        (ops.Log2FloorShape(), [16, 3], [4, 1]),
    ],
    ids=lambda v: getattr(v, "NAME", None),
)
def test_unary(operator: Attributes, operand: Sequence[int], result: Sequence[int]) -> None:
    net = Net(Block(), {}, 1)
    (computed,) = net.main.op(operator, [net.main.shape(*operand)], (SHAPE, [len(result)]))
    net.main.op(ops.AssertEqualShape(), [computed, net.main.shape(*result)])
    net.main.op(ops.Abs(), [net.main.input(I8, 1)], (I8, [1]))
    assert codes(net) == ["WrongInputType"]  # the shapes are equal; ABS has no INT8
    net.main.op(ops.AssertEqualShape(), [computed, net.main.shape(*[size + 1 for size in result])])
    assert codes(net) == ["WrongInputType", "AssertShapesNotEqual"]


def test_division_by_zero_is_reported() -> None:
    net = Net(Block(), {}, 1)
    assert reader(net, ops.DivFloorShape(), [[12], [0]], [12]) == ["DivisionByZero"]


def test_dim_slice_and_concat_compose() -> None:
    net = Net(Block(), {}, 1)
    b = net.main
    x = b.input(I8, 4, 3)
    (rows,) = b.op(ops.Dim(0), [x], (SHAPE, [1]))
    (columns,) = b.op(ops.SliceShape(), [b.shape(9, 3, 9), b.const([1], I32), b.const([1], I32)], (SHAPE, [1]))
    (joined,) = b.op(ops.ConcatShape(), [rows, columns], (SHAPE, [2]))
    b.op(ops.Reshape(), [b.input(I8, 12), joined], (I8, [4, 3]))
    assert codes(net) == []


@pytest.mark.parametrize(
    ("start", "size", "code"),
    [(-1, 1, "StartSmallerZero"), (0, 0, "SizeSmallerEqualZero"), (2, 2, "StartSizeOutsideBounds")],
)
def test_slice_limits(start: int, size: int, code: str) -> None:
    net = Net(Block(), {}, 1)
    b = net.main
    b.op(ops.SliceShape(), [b.shape(1, 2, 3), b.const([start], I32), b.const([size], I32)], (SHAPE, [1]))
    b.op(ops.Reverse(0), [b.input(I8, 1)], (I8, [1]))
    assert codes(net) == [code]
