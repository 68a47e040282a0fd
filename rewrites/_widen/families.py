"""Families of TOSA operators that the widening treats alike, and which of their operands are activations."""

from functools import cache

from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes

FACTOR = 128
"""An int8 value q with zero point z becomes the int16 value (q - z) * FACTOR."""

FACTOR_BITS = 7

CONVOLUTIONS = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d)

MATMULS = (ops.MatMul, ops.MatMulT)

AVERAGE_POOLS = (ops.AvgPool2d, ops.AvgPool2dAdaptive)

MOVEMENT = (
    ops.Identity,
    ops.Reshape,
    ops.Transpose,
    ops.Slice,
    ops.Concat,
    ops.Tile,
    ops.Reverse,
    ops.Gather,
    ops.RowGather,
    ops.Scatter,
)
"""Operators that only place elements: they commute with every elementwise function."""

ORDER = (
    *MOVEMENT,
    ops.Pad,
    ops.Select,
    ops.MaxPool2d,
    ops.MaxPool2dAdaptive,
    ops.ReduceMax,
    ops.ReduceMin,
    ops.Clamp,
)
"""Operators that choose among their operands' elements: they commute with every monotone function of one zero point."""

COMPARISONS = (ops.Equal, ops.Greater, ops.GreaterEqual)

REGION_OPS = (ops.CondIf, ops.WhileLoop)

_DATA_SLOTS: dict[type[Attributes], tuple[int, ...]] = {
    ops.Select: (1, 2),
    ops.Scatter: (0, 2),
    ops.MatMul: (0, 1),
    ops.MatMulT: (0, 1),
    ops.Mul: (0, 1),
}
_ALL_OPERANDS = (
    ops.Concat,
    ops.Add,
    ops.Sub,
    ops.Maximum,
    ops.Minimum,
    ops.IntDiv,
    *COMPARISONS,
)


def data_slots(op: AnyOp) -> tuple[int, ...]:
    """Operand slots that hold activations, as opposed to parameters, shapes, indices, weights and conditions."""
    return _slots(type(op.attrs), len(op.inputs))  # type: ignore[arg-type]  # mypy takes no class for hashable


@cache
def _slots(kind: type[Attributes], operands: int) -> tuple[int, ...]:
    if kind in _DATA_SLOTS:
        return tuple(slot for slot in _DATA_SLOTS[kind] if slot < operands)
    if kind in _ALL_OPERANDS or not kind.OPERANDS:
        return tuple(range(operands))
    return (0,) if operands else ()


def data_operands(op: AnyOp) -> tuple[Tensor, ...]:
    """The activations an operator reads, by slot."""
    inputs = op.inputs
    return tuple([inputs[slot] for slot in data_slots(op)])


def is_order_op(op: AnyOp) -> bool:
    """True for an operator on int8 whose results are elements of its operands (perhaps clamped); see ORDER."""
    if isinstance(op.attrs, ops.Resize):
        return op.attrs.mode == ResizeMode.NEAREST
    return isinstance(op.attrs, ORDER)


def int8_operands(op: AnyOp) -> tuple[Tensor, ...]:
    """The activations of dtype INT8 that an operator reads, constants included."""
    return tuple(t for t in data_operands(op) if t.dtype == DType.INT8)


def scalar(tensor: Tensor) -> int:
    """The value of a constant with one element (a zero point, a MUL shift)."""
    return int(tensor.values().reshape(-1)[0])
