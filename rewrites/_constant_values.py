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
from tosakit.ir.types import BITS, INTEGER_RANGES, Array, numpy_dtype
from tosakit.numerics.rescale import rescale
from tosakit.numerics.shapes import OF_ONE, OF_TWO

Evaluate = Callable[[Any, list[Array]], Array | Refusal | None]
"""From an operator and the values of its operands to those of its result; None where nothing is known."""

CAST_TO = (DType.INT8, DType.INT16, DType.INT32, DType.INT64)
"""Integers that CAST gives; it keeps the low bits, as numpy does."""

LARGEST_SIZE = (1 << 63) - 1


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
    return x.astype(np.int64).astype(numpy_dtype(target)) if target in CAST_TO else None


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
def _of_shapes(compute: Callable[..., int]) -> Evaluate:
    def evaluate(op: AnyOp, values: list[Array]) -> Array | Refusal:
        try:
            sizes = [compute(*each) for each in zip(*(shape.tolist() for shape in values), strict=True)]
        except ZeroDivisionError:
            return Refusal("it divides a size by 0")
        wrong = [size for size in sizes if not 0 <= size <= LARGEST_SIZE]
        return Refusal(f"a size would be {wrong[0]}") if wrong else np.array(sizes, np.int64)

    return evaluate


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
    **{kind: _of_shapes(compute) for kind, compute in OF_TWO.items()},
    **{kind: _of_shapes(compute) for kind, compute in OF_ONE.items()},
    ops.ConcatShape: lambda op, values: np.concatenate(values),
    ops.SliceShape: lambda op, values: values[0][int(values[1][0]) : int(values[1][0]) + int(values[2][0])],
}

FOLDABLE = tuple(_EVALUATE)
