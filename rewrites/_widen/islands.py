"""Which operators stay int8, and why."""

from fractions import Fraction

from rewrites._widen.families import (
    AVERAGE_POOLS,
    CONVOLUTIONS,
    MATMULS,
    MOVEMENT,
    REGION_OPS,
    is_order_op,
    scalar,
)
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes, Foreign

_PARAMETERS: dict[type[Attributes], tuple[int, ...]] = {
    ops.Rescale: (1, 2, 3, 4),
    **dict.fromkeys(CONVOLUTIONS, (2, 3, 4)),
    **dict.fromkeys(MATMULS, (2, 3)),
    **dict.fromkeys(AVERAGE_POOLS, (1, 2)),
    ops.Negate: (1, 2),
    ops.Table: (1,),
    ops.Pad: (2,),
    ops.Mul: (2,),
}
"""Operands that have to be constants, because their dtype changes with the activations' (the shift: to be read)."""

_LARGEST_SCALE = 1 << 13
"""A 31-bit multiplier of a scale 128 times this takes every int8 and every int16 value."""
_LARGEST_SPREAD = 1 << 15
"""Where the largest channel saturates, the smallest is within what a 15-bit multiplier still takes."""


def reason_to_stay(op: AnyOp) -> str | None:
    """Why an operator that reads or makes int8 activations keeps them int8; None where it has an int16 form."""
    attrs = op.attrs
    if isinstance(attrs, Foreign):
        return "it is an operator of another schema, or one written with another operator's attributes"
    if any(t.extras.variable for t in (*op.inputs, *op.outputs)) or isinstance(
        attrs, ops.Variable | ops.VariableRead | ops.VariableWrite
    ):
        return "VARIABLE state has no int16 form in TOSA 1.0"
    if isinstance(attrs, ops.Custom):
        return f'nothing is known about CUSTOM operator "{attrs.operator_name}"'
    if (reason := open_parameter(op)) is not None:
        return reason
    if isinstance(attrs, ops.Rescale):
        if attrs.input_unsigned or attrs.output_unsigned:
            return "it reads or writes unsigned values"
        return _rescale(op)
    if isinstance(attrs, CONVOLUTIONS):
        return _convolution(op)
    if isinstance(attrs, ops.Mul):
        shift = scalar(op.inputs[2]) if len(op.inputs) > 2 else 0
        return f"its operands are int8 and its shift is {shift}, not 0" if shift else None
    if isinstance(attrs, ops.Table):
        return None if op.inputs[1].shape == (256,) else f"its table has shape {list(op.inputs[1].shape)}, not [256]"
    has_form = (*MATMULS, *AVERAGE_POOLS, *REGION_OPS, ops.Negate, ops.ArgMax, ops.Resize, ops.Dim)
    if isinstance(attrs, has_form) or is_order_op(op):
        return None
    return f"TOSA has no {op.name} on int16 that means the same"


def open_parameter(op: AnyOp) -> str | None:
    """Why an operator cannot be given other parameters: one is missing, or no constant; else None."""
    slots = _PARAMETERS.get(type(op.attrs), ())
    for slot in slots:
        if slot < len(op.inputs) and not op.inputs[slot].is_constant:
            return f"its operand {op.attrs.OPERANDS[slot]} is computed, not a constant"
    if slots and len(op.inputs) <= slots[-1] and not isinstance(op.attrs, ops.Mul):
        return f"it has {len(op.inputs)} operands instead of {len(op.attrs.OPERANDS)}"
    return None


def _rescale(op: AnyOp) -> str | None:
    """A RESCALE whose scale leaves no room for seven more bits in the constants of another."""
    multipliers, shifts = (t.values().reshape(-1).tolist() for t in op.inputs[1:3])
    unit = max([*shifts, 0])
    scales = [m << (unit - s) for m, s in zip(multipliers, shifts, strict=True) if m > 0 and s >= 0]  # in 2^-unit
    least, most = min(scales, default=0), max(scales, default=0)
    if most > _LARGEST_SCALE << unit and op.output.dtype != DType.INT32:
        return f"its scale is {float(Fraction(most, 1 << unit)):g}, and int16 needs one below {_LARGEST_SCALE}"
    if most > least * _LARGEST_SPREAD:
        return f"its channels' scales are up to {float(Fraction(most, least)):g} times apart"
    return None


def _convolution(op: AnyOp) -> str | None:
    weight = op.inputs[1]
    if weight.dtype == DType.INT4 and not is_constant_data(weight):
        return "its int4 weights are computed, and int16 activations take int8 weights only"
    if weight.dtype not in (DType.INT4, DType.INT8):
        return f"int16 activations take int8 weights only, these are {weight.dtype.name}"
    return None


def is_constant_data(tensor: Tensor) -> bool:
    """True for a constant, also behind operators that only move data."""
    while (producer := tensor.producer) is not None and isinstance(producer.attrs, MOVEMENT) and producer.inputs:
        tensor = producer.inputs[0]
    return tensor.is_constant
