"""What integer operators mean in real arithmetic: exact rational numbers, no rounding, saturation as it is.

An oracle of its own: it shares no code with what it judges.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from math import floor
from typing import Any

import numpy as np

from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES, decode

Array = Any
"""An object array of Fractions, or of Python's bool."""

_exact = np.frompyfunc(Fraction, 1, 1)


def fractions(values: Array) -> Array:
    """Integers as Fractions."""
    return np.asarray(_exact(np.asarray(values).astype(object)), object)


def run(graph: Graph, inputs: Mapping[Tensor, Array]) -> dict[Tensor, Array | None]:
    """Every tensor of a block that can be computed; None where an operator has no meaning on fractions."""
    known: dict[Tensor, Array | None] = dict(inputs)
    for op in graph.ops:
        if op.output.is_constant:
            values = op.output.values()
            known[op.output] = values if values.dtype == bool or op.output.dtype == DType.SHAPE else fractions(values)
            continue
        operands = [known[tensor] for tensor in op.inputs]
        handler = HANDLERS.get(type(op.attrs))
        whole = handler is not None and all(operand is not None for operand in operands)
        known[op.output] = handler(op, *operands) if handler is not None and whole else None
    return known


def _saturate(values: Array, dtype: DType) -> Array:
    low, high = INTEGER_RANGES[dtype]
    return np.minimum(np.maximum(values, low), high)


def _rescale(op: AnyOp, x: Array, m: Array, s: Array, zi: Array, zo: Array) -> Array:
    scale = np.array([Fraction(int(a), 1 << int(b)) for a, b in zip(m.flat, s.flat, strict=True)], object)
    return _saturate((x - zi.flat[0]) * scale + zo.flat[0], op.output.dtype)


def _table(op: AnyOp, x: Array, table: Array) -> Array:
    wide = op.inputs[0].dtype == DType.INT16
    entries = [int(entry) * (128 if wide else 1) for entry in table.flat]

    def one(code: Fraction) -> Fraction:
        place = code / 128 + 256 if wide else code + 128
        first = min(floor(place), len(entries) - 2)
        return entries[first] + (entries[first + 1] - entries[first]) * (place - first)

    return np.asarray(np.frompyfunc(one, 1, 1)(x), object)


def _mul(op: AnyOp, a: Array, b: Array, shift: Array) -> Array:
    return a * b / (1 << int(shift.flat[0]) if op.inputs[0].dtype == DType.INT32 else 1)


def _clamp(op: AnyOp, x: Array) -> Array:
    low, high = (int(decode(bytes(end), op.output.dtype, (1,))[0]) for end in (op.attrs.min_val, op.attrs.max_val))  # type: ignore[attr-defined]
    return np.minimum(np.maximum(x, low), high)


def _negate(op: AnyOp, x: Array, zi: Array, zo: Array) -> Array:
    return _saturate(zo.flat[0] - (x - zi.flat[0]), op.output.dtype)


def _conv2d(op: AnyOp, x: Array, w: Array, bias: Array, zx: Array, zw: Array) -> Array:
    attrs: Any = op.attrs
    depthwise = isinstance(attrs, ops.DepthwiseConv2d)
    x, w = x - zx.flat[0], w - zw.flat[0]
    result = np.full(op.output.shape, Fraction(0), object)
    kernel = w.shape[:2] if depthwise else w.shape[1:3]
    for n, oy, ox in product(*map(range, op.output.shape[:3])):
        for ky, kx in product(*map(range, kernel)):
            y = oy * attrs.stride[0] + ky * attrs.dilation[0] - attrs.pad[0]
            column = ox * attrs.stride[1] + kx * attrs.dilation[1] - attrs.pad[2]
            if 0 <= y < x.shape[1] and 0 <= column < x.shape[2]:
                here = x[n, y, column]
                taps = (here[:, None] * w[ky, kx]).reshape(-1) if depthwise else (w[:, ky, kx] * here).sum(axis=-1)
                result[n, oy, ox] += taps
    return result + bias


def _matmul(op: AnyOp, a: Array, b: Array, za: Array, zb: Array) -> Array:
    return (a - za.flat[0]) @ (b - zb.flat[0])


def _windows(op: AnyOp, x: Array, combine: Callable[[Array], Any]) -> Array:
    attrs: Any = op.attrs
    result = np.empty(op.output.shape, object)
    for n, oy, ox, c in np.ndindex(*op.output.shape):
        y, column = oy * attrs.stride[0] - attrs.pad[0], ox * attrs.stride[1] - attrs.pad[2]
        window = x[n, max(y, 0) : y + attrs.kernel[0], max(column, 0) : column + attrs.kernel[1], c]
        result[n, oy, ox, c] = combine(window)
    return result


def _average(op: AnyOp, x: Array, zi: Array, zo: Array) -> Array:
    means = _windows(op, x - zi.flat[0], lambda window: window.sum() / window.size)
    return _saturate(means + zo.flat[0], op.output.dtype)


def _resize(op: AnyOp, x: Array, scale: Array, offset: Array, border: Array) -> Array:
    (yn, yd, xn, xd), (oy, ox) = ([int(value) for value in values.flat] for values in (scale, offset))
    nearest = op.attrs.mode == ResizeMode.NEAREST  # type: ignore[attr-defined]
    result = np.empty(op.output.shape, object)
    for n, row, column in product(*map(range, op.output.shape[:3])):
        (iy, dy), (ix, dx) = divmod(row * yd + oy, yn), divmod(column * xd + ox, xn)
        ys, xs = ([min(max(i + k, 0), size - 1) for k in (0, 1)] for i, size in ((iy, x.shape[1]), (ix, x.shape[2])))
        if nearest:
            result[n, row, column] = x[n, ys[2 * dy >= yn], xs[2 * dx >= xn]]
        else:
            upper, lower = (x[n, y, xs[0]] * (xn - dx) + x[n, y, xs[1]] * dx for y in ys)
            result[n, row, column] = upper * (yn - dy) + lower * dy
    return result


def _slice(op: AnyOp, x: Array, start: Array, size: Array) -> Array:
    return x[tuple(slice(int(a), int(a) + int(b)) for a, b in zip(start.flat, size.flat, strict=True))]


def _pad(op: AnyOp, x: Array, padding: Array, value: Array) -> Array:
    widths = [(int(a), int(b)) for a, b in padding.reshape(-1, 2)]
    return np.pad(x, widths, constant_values=value.flat[0])


def _compare(op: AnyOp, a: Array, b: Array) -> Array:
    return np.asarray(
        a > b if isinstance(op.attrs, ops.Greater) else a >= b if isinstance(op.attrs, ops.GreaterEqual) else a == b,
        bool,
    )


def _shift(op: AnyOp, x: Array, shift: Array) -> Array:
    return x / np.asarray(np.frompyfunc(lambda s: Fraction(1 << int(s)), 1, 1)(shift), object)


HANDLERS: Mapping[type[Attributes], Callable[..., Array]] = {
    ops.Rescale: _rescale,
    ops.Table: _table,
    ops.Mul: _mul,
    ops.Add: lambda op, a, b: a + b,
    ops.Sub: lambda op, a, b: a - b,
    ops.Maximum: lambda op, a, b: np.maximum(a, b),
    ops.Minimum: lambda op, a, b: np.minimum(a, b),
    ops.Abs: lambda op, x: abs(x),
    ops.Negate: _negate,
    ops.Clamp: _clamp,
    ops.ArithmeticRightShift: _shift,
    ops.Conv2d: _conv2d,
    ops.DepthwiseConv2d: _conv2d,
    ops.MatMul: _matmul,
    ops.AvgPool2d: _average,
    ops.MaxPool2d: lambda op, x: _windows(op, x, np.max),
    ops.ReduceSum: lambda op, x: x.sum(axis=op.attrs.axis, keepdims=True),
    ops.ReduceMax: lambda op, x: x.max(axis=op.attrs.axis, keepdims=True),
    ops.ReduceMin: lambda op, x: x.min(axis=op.attrs.axis, keepdims=True),
    ops.Resize: _resize,
    ops.Identity: lambda op, x: x,
    ops.Reshape: lambda op, x, shape: x.reshape(op.output.shape),
    ops.Transpose: lambda op, x: x.transpose(op.attrs.perms),
    ops.Concat: lambda op, *parts: np.concatenate(parts, op.attrs.axis),
    ops.Reverse: lambda op, x: np.flip(x, op.attrs.axis),
    ops.Tile: lambda op, x, count: np.tile(x, [int(c) for c in count.flat]),
    ops.Slice: _slice,
    ops.Pad: _pad,
    ops.Greater: _compare,
    ops.GreaterEqual: _compare,
    ops.Equal: _compare,
    ops.Select: lambda op, c, a, b: np.where(np.broadcast_to(c, op.output.shape), a, b),
}
