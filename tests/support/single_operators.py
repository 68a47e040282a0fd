"""Programs of one operator: every operator in every combination of element types, and in many shapes and attributes.

A form is legal TOSA wherever the specification has it, whatever a compiler makes of it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program, Region, Version
from tosakit.ir.types import encode
from tosakit.spec.signature import Argument, BlockScaled, signature

Shape = tuple[int, ...]
Types = Mapping[str, DType]

PROPAGATE = NanPropagationMode.PROPAGATE
MAP: Shape = (1, 4, 5, 8)
"""The shape that operators on any shape get."""


@dataclass(frozen=True)
class Form:
    """Attributes, the shape of every operand and result by name, values of constants, and the operands that are none.

    Operands listed in ``dynamic`` are inputs although the specification has them constant.
    """

    attrs: Attributes
    shapes: Mapping[str, Shape]
    values: Mapping[str, Any] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()
    count: int = 1
    """How many tensors a list operand has."""


def build(name: str, types: Types, form: Form, *, rescaled: bool = False) -> Program:
    """The program of one operator: constants, inputs, the operator, its results as outputs.

    With ``rescaled`` a RESCALE to INT16 stands between an INT48 result and the output.
    """
    found = signature(name)
    assert found is not None
    graph = Graph("main")
    inputs: list[Tensor] = []
    operands: list[Tensor] = []
    for argument in found.inputs:
        for _ in range(form.count if argument.many else 1):
            operands.append(_operand(graph, argument, types, form, inputs))
    results = [Tensor(a.name, _dtype(a, types), form.shapes[a.name]) for a in found.outputs]
    graph.set_inputs(inputs)
    graph.add_op(Op(form.attrs, operands, results))
    if rescaled:
        builder = Builder("narrow")
        results = [builder.rescale(results[0], DType.INT16, 1 << 14, 20, scale32=False)]
        for op in builder.ops:
            graph.add_op(op)
    graph.set_outputs(results)
    return Program([Region("main", [graph])], Version(1, 0, 0, False))


def _dtype(argument: Argument, types: Types) -> DType:
    element = argument.element
    assert element is not None
    return types[element] if isinstance(element, str) else element


def _operand(graph: Graph, argument: Argument, types: Types, form: Form, inputs: list[Tensor]) -> Tensor:
    dtype, name = _dtype(argument, types), argument.name
    constant = name in form.values or argument.constant
    if not constant or name in form.dynamic:
        tensor = graph.add_tensor(Tensor(name, dtype, form.shapes.get(name, (1,))))
        inputs.append(tensor)
        return tensor
    values = np.asarray(form.values.get(name, [0]))
    if dtype == DType.SHAPE:
        tensor = Tensor(name, dtype, (values.size,), encode(values.astype(np.int64), dtype), table="shapes")
        graph.add_op(Op(ops.ConstShape(), (), (tensor,)))
        return tensor
    tensor = Tensor(name, dtype, values.shape, encode(values, dtype))
    graph.add_op(Op(ops.Const(), (), (tensor,)))
    return tensor


def same(attrs: Attributes) -> Callable[..., Form]:
    """All operands and results of one shape; ``second`` is the shape of the second operand."""

    def make(types: Types, shape: Shape = MAP, second: Shape | None = None, third: Shape | None = None) -> Form:
        second, third = second or shape, third or shape
        shapes = {"input": shape, "input1": shape, "input2": second, "input3": third}
        return Form(attrs, {**shapes, "output": np.broadcast_shapes(shape, second, third)})

    return make


def clamp(types: Types, shape: Shape = MAP) -> Form:
    dtype = types["in_out_t"]
    low, high = (encode(np.array([value]), dtype) for value in (-5, 5))
    return Form(ops.Clamp(low, high, PROPAGATE), {"input": shape, "output": shape})


def mul(types: Types, shape: Shape = MAP, second: Shape | None = None, shift: int = 0, **dynamic: Any) -> Form:
    form = same(ops.Mul())(types, shape, second)
    return replace(form, values={"shift": [shift]}, **dynamic)


def table(types: Types, shape: Shape = MAP, **dynamic: Any) -> Form:
    size = 256 if types["in_t"] == DType.INT8 else 513
    values = np.arange(size) // 4
    shapes = {"input1": shape, "output": shape, "table": (size,)}
    return Form(ops.Table(), shapes, {"table": values}, **dynamic)


def negate(types: Types, shape: Shape = MAP, zero: int = 0, **dynamic: Any) -> Form:
    zeros = {"input1_zp": [zero], "output_zp": [zero]}
    return Form(ops.Negate(), {"input1": shape, "output": shape}, zeros, **dynamic)


def reduce(kind: Callable[[int], Attributes]) -> Callable[..., Form]:
    def make(types: Types, shape: Shape = MAP, axis: int = 1) -> Form:
        return Form(kind(axis), {"input": shape, "output": (*shape[:axis], 1, *shape[axis + 1 :])})

    return make


def argmax(types: Types, shape: Shape = MAP, axis: int = 3) -> Form:
    return Form(ops.ArgMax(axis, PROPAGATE), {"input": shape, "output": (*shape[:axis], *shape[axis + 1 :])})


def concat(types: Types, shape: Shape = MAP, axis: int = 1, count: int = 2) -> Form:
    result = (*shape[:axis], count * shape[axis], *shape[axis + 1 :])
    return Form(ops.Concat(axis), {"input1": shape, "output": result}, count=count)


def pad(types: Types, shape: Shape = MAP, before: int = 1, after: int = 2, value: int = 0, **dynamic: Any) -> Form:
    result = tuple(size + before + after for size in shape)
    values = {"padding": [before, after] * len(shape), "pad_const": [value]}
    return Form(ops.Pad(), {"input1": shape, "output": result, "padding": (2 * len(shape),)}, values, **dynamic)


def reshape(types: Types, shape: Shape = MAP, result: Shape | None = None) -> Form:
    result = (int(np.prod(shape)),) if result is None else result
    return Form(ops.Reshape(), {"input1": shape, "output": result}, {"shape": result})


def reverse(types: Types, shape: Shape = MAP, axis: int = 1) -> Form:
    return Form(ops.Reverse(axis), {"input1": shape, "output": shape})


def cut(types: Types, shape: Shape = MAP, start: Shape | None = None, size: Shape | None = None) -> Form:
    start = start or (0,) * len(shape)
    size = size or tuple(max(1, extent - 1) for extent in shape)
    return Form(ops.Slice(), {"input1": shape, "output": size}, {"start": start, "size": size})


def tile(types: Types, shape: Shape = MAP, multiples: Shape | None = None) -> Form:
    multiples = multiples or (1, *(2 for _ in shape[1:]))
    result = tuple(a * b for a, b in zip(shape, multiples, strict=True))
    return Form(ops.Tile(), {"input1": shape, "output": result}, {"multiples": multiples})


def transpose(types: Types, shape: Shape = MAP, perms: Shape = (0, 2, 1, 3)) -> Form:
    return Form(ops.Transpose(perms), {"input1": shape, "output": tuple(shape[axis] for axis in perms)})


def gather(types: Types, n: int = 1, k: int = 6, w: int = 3, c: int = 4) -> Form:
    return Form(ops.Gather(), {"values": (n, k, c), "indices": (n, w), "output": (n, w, c)})


def scatter(types: Types, n: int = 1, k: int = 6, w: int = 3, c: int = 4) -> Form:
    shapes = {"values_in": (n, k, c), "indices": (n, w), "input": (n, w, c), "values_out": (n, k, c)}
    return Form(ops.Scatter(), shapes)


def resize(
    types: Types,
    scale: Shape = (2, 1, 2, 1),
    offset: Shape = (0, 0),
    border: Shape = (0, 0),
    mode: ResizeMode | None = None,
    size: Shape = (4, 4),
    n: int = 1,
    c: int = 8,
) -> Form:
    mode = mode or (ResizeMode.NEAREST if types["in_t"] == types["out_t"] else ResizeMode.BILINEAR)
    result = [
        ((extent - 1) * scale[2 * i] - offset[i] + border[i]) // scale[2 * i + 1] + 1 for i, extent in enumerate(size)
    ]
    values = {"scale": scale, "offset": offset, "border": border}
    return Form(ops.Resize(mode), {"input": (n, *size, c), "output": (n, *result, c)}, values)


def rescale(
    types: Types,
    shape: Shape = MAP,
    multiplier: int = 1 << 14,
    shift: int = 14,
    zeros: tuple[int, int] = (0, 0),
    per_channel: bool = False,
    rounding: RoundingMode = RoundingMode.SINGLE_ROUND,
    unsigned: tuple[bool, bool] = (False, False),
    **dynamic: Any,
) -> Form:
    channels = shape[-1] if per_channel else 1
    scale32 = types["mul_t"] == DType.INT32
    values = {
        "multiplier": [multiplier << 16 if scale32 else multiplier] * channels,
        "shift": [shift + 16 if scale32 else shift] * channels,
        "input_zp": [zeros[0]],
        "output_zp": [zeros[1]],
    }
    attrs = ops.Rescale(scale32, rounding, per_channel, *unsigned)
    shapes = {"input": shape, "output": shape, "multiplier": (channels,), "shift": (channels,)}
    return Form(attrs, shapes, values, **dynamic)


def pool(kind: str) -> Callable[..., Form]:
    def make(
        types: Types,
        kernel: Shape = (2, 2),
        stride: Shape = (2, 2),
        pad: Shape = (0, 0, 0, 0),
        out: Shape = (4, 4),
        n: int = 1,
        c: int = 8,
        **dynamic: Any,
    ) -> Form:
        size = [(o - 1) * s + k - a - b for o, s, k, a, b in zip(out, stride, kernel, pad[::2], pad[1::2], strict=True)]
        shapes = {"input": (n, *size, c), "output": (n, *out, c)}
        if kind == "max":
            return Form(ops.MaxPool2d(kernel, stride, pad, PROPAGATE), shapes)
        return Form(ops.AvgPool2d(kernel, stride, pad, types.get("acc_t", DType.INT32)), shapes, **dynamic)

    return make


def weights(shape: Shape, dtype: DType) -> Any:
    """Small numbers that every element type of weights holds."""
    return (np.arange(np.prod(shape)) % 13 - 6).reshape(shape)


def convolution(kind: str) -> Callable[..., Form]:
    """CONV2D, CONV3D, DEPTHWISE_CONV2D or TRANSPOSE_CONV2D; ``out`` is the size of the result before out_pad."""

    def make(
        types: Types,
        kernel: Shape = (3, 3),
        stride: Shape = (1, 1),
        dilation: Shape = (1, 1),
        pad: Shape = (0, 0, 0, 0),
        out: Shape = (4, 4),
        n: int = 1,
        ic: int = 8,
        oc: int = 8,
        zeros: tuple[int, int] = (0, 0),
        biases: int | None = None,
        **dynamic: Any,
    ) -> Form:
        if kind == "CONV3D" and len(kernel) == 2:
            kernel, stride, dilation, pad, out = (1, *kernel), (1, *stride), (1, *dilation), (0, 0, *pad), (2, *out)
        before, after = pad[::2], pad[1::2]
        acc = types["out_t"]
        axes = zip(out, stride, kernel, dilation, before, after, strict=True)
        size = [(o - 1) * s + 1 + (k - 1) * d - a - b for o, s, k, d, a, b in axes]
        shape, channels = (oc, *kernel, ic), oc
        attrs: Attributes
        if kind == "CONV2D":
            attrs = ops.Conv2d(pad, stride, dilation, False, acc)
        elif kind == "CONV3D":
            attrs = ops.Conv3d(pad, stride, dilation, False, acc)
        elif kind == "DEPTHWISE_CONV2D":
            attrs = ops.DepthwiseConv2d(pad, stride, dilation, False, acc)
            shape, channels = (*kernel, ic, oc), ic * oc
        else:
            attrs = ops.TransposeConv2d(pad, stride, False, acc)
            grown = zip(size, stride, kernel, before, after, strict=True)
            size, out = list(out), tuple((o - 1) * s + k + a + b for o, (_, s, k, a, b) in zip(out, grown, strict=True))
        values = {
            "weight": weights(shape, types["weight_t"]),
            "bias": np.arange(channels if biases is None else biases),
            "input_zp": [zeros[0]],
            "weight_zp": [zeros[1]],
        }
        shapes = {"input": (n, *size, ic), "weight": shape, "bias": values["bias"].shape}
        return Form(attrs, {**shapes, "output": (n, *out, channels)}, values, **dynamic)

    return make


def matmul(types: Types, n: int = 1, h: int = 4, c: int = 8, w: int = 6, zeros: Shape = (0, 0), **dynamic: Any) -> Form:
    values = {"A_zp": [zeros[0]], "B_zp": [zeros[1]]}
    return Form(ops.MatMul(), {"A": (n, h, c), "B": (n, c, w), "output": (n, h, w)}, values, **dynamic)


def fft(kind: type[Attributes]) -> Callable[..., Form]:
    def make(types: Types) -> Form:
        half = 5 if kind is ops.RFFT2d else 8
        names = {"input_real": 8, "input_imag": 8, "output_real": half, "output_imag": half}
        return Form(kind(), {name: (1, 4, width) for name, width in names.items()})

    return make


FORMS: dict[str, Callable[..., Form]] = {
    "ARGMAX": argmax,
    "ARITHMETIC_RIGHT_SHIFT": same(ops.ArithmeticRightShift(round=True)),
    "AVG_POOL2D": pool("avg"),
    "CLAMP": clamp,
    "CONCAT": concat,
    "FFT2D": fft(ops.FFT2d),
    "GATHER": gather,
    "MATMUL": matmul,
    "MAXIMUM": same(ops.Maximum(PROPAGATE)),
    "MAX_POOL2D": pool("max"),
    "MINIMUM": same(ops.Minimum(PROPAGATE)),
    "MUL": mul,
    "NEGATE": negate,
    "PAD": pad,
    "REDUCE_ALL": reduce(ops.ReduceAll),
    "REDUCE_ANY": reduce(ops.ReduceAny),
    "REDUCE_MAX": reduce(lambda axis: ops.ReduceMax(axis, PROPAGATE)),
    "REDUCE_MIN": reduce(lambda axis: ops.ReduceMin(axis, PROPAGATE)),
    "REDUCE_PRODUCT": reduce(ops.ReduceProduct),
    "REDUCE_SUM": reduce(ops.ReduceSum),
    "RESCALE": rescale,
    "RESHAPE": reshape,
    "RESIZE": resize,
    "REVERSE": reverse,
    "RFFT2D": fft(ops.RFFT2d),
    "SCATTER": scatter,
    "SLICE": cut,
    "TABLE": table,
    "TILE": tile,
    "TRANSPOSE": transpose,
    **{name: convolution(name) for name in ("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")},
    **{
        kind.NAME: same(kind())
        for kind in (
            *(ops.Abs, ops.Add, ops.BitwiseAnd, ops.BitwiseNot, ops.BitwiseOr, ops.BitwiseXor, ops.Cast, ops.Ceil),
            *(ops.Clz, ops.Cos, ops.Equal, ops.Erf, ops.Exp, ops.Floor, ops.Greater, ops.GreaterEqual, ops.Identity),
            *(ops.IntDiv, ops.Log, ops.LogicalAnd, ops.LogicalLeftShift, ops.LogicalNot, ops.LogicalOr),
            *(ops.LogicalRightShift, ops.LogicalXor, ops.Pow, ops.Reciprocal, ops.Rsqrt, ops.Select, ops.Sigmoid),
            *(ops.Sin, ops.Sub, ops.Tanh),
        )
    },
}
"""The default form of every operator of TOSA 1.0 that reads tensors."""


def rows(name: str) -> Iterator[Types]:
    """The combinations of element types that TOSA 1.0 has for an operator."""
    found = signature(name)
    assert found is not None
    for row in found.rows:
        types = {key: value for key, value in row.types.items() if not isinstance(value, BlockScaled)}
        if row.since == 0 and name == "RESCALE":
            multipliers = (DType.INT16,) if types["in_t"] == DType.INT48 else (DType.INT16, DType.INT32)
            yield from ({**types, "mul_t": multiplier} for multiplier in multipliers)
        elif row.since == 0:
            yield types


def every_row() -> Iterator[tuple[str, Program]]:
    """Every operator in every combination of element types, in its default form."""
    for name, form in FORMS.items():
        for types in rows(name):
            kinds = " ".join(value.name.lower() for value in types.values())
            yield f"{name} {kinds}", build(name, types, form(types))
