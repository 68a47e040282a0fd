"""What an operator makes of constants: movement, changes of integer width, RESCALE, and arithmetic on shapes."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tosakit.engine.rule import Refusal
from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Op
from tosakit.ir.operator import Attributes
from tosakit.ir.types import BITS, INTEGER_RANGES, Array
from tosakit.numerics.rescale import rescale

Evaluate = Callable[[Any, list[Array]], Array | Refusal | None]
"""From an operator and the values of its operands to those of its result; None where nothing is known."""


def value_of(op: AnyOp) -> Array | Refusal | None:
    """The values of an operator whose operands are all constants, exactly as TOSA has them."""
    evaluate = _EVALUATE.get(type(op.attrs))
    if evaluate is None or len(op.outputs) != 1:
        return None
    try:
        found = evaluate(op, [tensor.values() for tensor in op.inputs])
    except (TosakitError, ValueError) as error:
        return Refusal(f"its value is not known: {error}")
    if isinstance(found, np.ndarray) and found.shape != op.output.shape:
        return Refusal(f"its result would have the shape {list(found.shape)}, not {list(op.output.shape)}")
    return found


# ---------------------------------------------------------------------------------------------- movement
def _slice(op: Op[ops.Slice], values: list[Array]) -> Array:
    x, start, size = values
    return x[tuple(slice(int(a), int(a) + int(n)) for a, n in zip(start, size, strict=True))]


def _pad(op: Op[ops.Pad], values: list[Array]) -> Array:
    x, padding, value = values
    return np.pad(x, padding.reshape(-1, 2).tolist(), constant_values=value.reshape(()))


def _cast(op: Op[ops.Cast], values: list[Array]) -> Array | None:
    """Between integers and BOOL, or from a type of 16 bits to FP32, which has all its values."""
    [x], source, target = values, op.inputs[0].dtype, op.output.dtype
    if source in (DType.FP16, DType.BF16) and target == DType.FP32:
        return x.astype(np.float32)
    if source not in INTEGER_RANGES and source != DType.BOOL:
        return None
    if target == DType.BOOL:
        return np.not_equal(x, 0)
    if target not in INTEGER_RANGES:
        return None
    low, high = INTEGER_RANGES[target]
    return (x.astype(np.int64) - low & (high - low)) + low


def _rescale(op: Op[ops.Rescale], values: list[Array]) -> Array | Refusal | None:
    attrs = op.attrs
    if attrs.input_unsigned or attrs.output_unsigned:
        return None
    x, multiplier, shift, input_zp, output_zp = values
    found = rescale(
        x,
        multiplier,
        shift,
        scale32=attrs.scale32,
        out_bits=BITS[op.output.dtype],
        input_zp=input_zp,
        output_zp=output_zp,
        rounding_mode=attrs.rounding_mode,
        per_channel=attrs.per_channel,
    )
    if found.unpredictable.any():
        where = int(np.argmax(found.unpredictable))
        return Refusal(f"TOSA does not say what it makes of {x.reshape(-1)[where]}, which its range excludes")
    return found.values


# ---------------------------------------------------------------------------------------------- shapes
def _of_shapes(compute: Callable[..., Any]) -> Evaluate:
    def evaluate(op: AnyOp, values: list[Array]) -> Array | Refusal:
        made = np.array([compute(*map(int, sizes)) for sizes in zip(*values, strict=True)], np.int64)
        if made.size and made.min() < 0:
            return Refusal(f"a size would be {made.min()}")
        return made

    return evaluate


def _divided(round_up: bool) -> Callable[[int, int], int]:
    return lambda a, b: -(-a // b) if round_up else a // b


_EVALUATE: Mapping[type[Attributes], Evaluate] = {
    ops.Identity: lambda op, values: values[0],
    ops.Reshape: lambda op, values: values[0].reshape(op.output.shape),
    ops.Transpose: lambda op, values: values[0].transpose(op.attrs.perms),
    ops.Reverse: lambda op, values: np.flip(values[0], op.attrs.axis),
    ops.Concat: lambda op, values: np.concatenate(values, op.attrs.axis),
    ops.Tile: lambda op, values: np.tile(values[0], values[1].tolist()),
    ops.Slice: _slice,
    ops.Pad: _pad,
    ops.Cast: _cast,
    ops.Rescale: _rescale,
    ops.AddShape: _of_shapes(lambda a, b: a + b),
    ops.SubShape: _of_shapes(lambda a, b: a - b),
    ops.MulShape: _of_shapes(lambda a, b: a * b),
    ops.MaxShape: _of_shapes(max),
    ops.MinShape: _of_shapes(min),
    ops.ModShape: _of_shapes(lambda a, b: a % b),
    ops.DivCeilShape: _of_shapes(_divided(round_up=True)),
    ops.DivFloorShape: _of_shapes(_divided(round_up=False)),
    ops.Exp2Shape: _of_shapes(lambda a: 1 << a),
    ops.Log2CeilShape: _of_shapes(lambda a: (a - 1).bit_length()),
    ops.Log2FloorShape: _of_shapes(lambda a: a.bit_length() - 1),
    ops.ConcatShape: lambda op, values: np.concatenate(values),
    ops.SliceShape: lambda op, values: values[0][int(values[1][0]) : int(values[1][0]) + int(values[2][0])],
}

FOLDABLE = tuple(_EVALUATE)
