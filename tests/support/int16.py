"""Nets with one operator that is illegal on int16, and what it means in exact rational arithmetic."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rewrites.insert_int16_rescale import RULE, Options
from tosakit.engine.contract import WithinLsb
from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program, Region
from tosakit.ir.types import INTEGER_RANGES, Array, QuantParams, encode
from tosakit.oracle.contracts import Kept, check_events
from tosakit.oracle.refmodel import ReferenceModel, Status

SHARED = Path(__file__).parents[3] / "shared" / "corpus" / "models"
MODEL = ReferenceModel()
I8, I16, I32, I48, BOOL = DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.BOOL
LIMITS = [-32768, -32767, -16385, -16384, -129, -128, -3, -2, -1, 0, 1, 2, 3, 127, 128, 16383, 16384, 32766, 32767]
SEED = 20240

Scale = float | Sequence[float] | None


class Net:
    """One block, built operator by operator."""

    def __init__(self) -> None:
        self.graph = Graph("main")
        self.program = Program([Region("main", [self.graph])])

    def input(
        self, name: str, shape: Sequence[int], scale: Scale = None, dtype: DType = I16, zp: int = 0, axis: int = 0
    ) -> Tensor:
        tensor = self.graph.add_tensor(Tensor(name, dtype, tuple(shape), quantization=params(scale, zp, axis)))
        self.graph.set_inputs([*self.graph.inputs, tensor])
        return tensor

    def const(
        self, name: str, values: Any, dtype: DType = I16, scale: Scale = None, axis: int = 0, zp: int = 0
    ) -> Tensor:
        array = np.asarray(values)
        table: Literal["shapes", "tensors"] = "shapes" if dtype == DType.SHAPE else "tensors"
        quantization = params(scale, zp, axis)
        tensor = Tensor(name, dtype, array.shape, encode(array, dtype), quantization=quantization, table=table)
        self.graph.add_op(Op(ops.ConstShape() if dtype == DType.SHAPE else ops.Const(), (), (tensor,)))
        return tensor

    def op(
        self, attrs: Attributes, inputs: Sequence[Tensor], shape: Sequence[int], scale: Scale = None, dtype: DType = I16
    ) -> Tensor:
        result = Tensor("z", dtype, tuple(shape), quantization=params(scale))
        self.graph.add_op(Op(attrs, inputs, (result,)))
        return result

    def rescale(
        self,
        x: Tensor,
        dtype: DType,
        multiplier: Sequence[int],
        shift: Sequence[int],
        scale32: bool,
        output_zp: int = 0,
    ) -> Tensor:
        attrs = ops.Rescale(scale32=scale32, rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=len(multiplier) > 1)
        constants = (
            self.const("m", multiplier, I32 if scale32 else I16),
            self.const("s", shift, I8),
            self.const("izp", [0], x.dtype),
            self.const("ozp", [output_zp], dtype),
        )
        return self.op(attrs, (x, *constants), x.shape, None, dtype)

    def clamp(self, x: Tensor, low: int, high: int) -> Tensor:
        ends = (encode(np.array([low]), x.dtype), encode(np.array([high]), x.dtype))
        attrs = ops.Clamp(*ends, nan_mode=NanPropagationMode.PROPAGATE)
        result = Tensor("clamped", x.dtype, x.shape, quantization=x.quantization)
        return self.graph.add_op(Op(attrs, (x,), (result,))).output

    def outputs(self, *tensors: Tensor) -> "Net":
        self.graph.set_outputs(tensors)
        return self

    def rewrite(self, **options: Any) -> RewriteResult:
        target = options.pop("target", "")
        return run_steps(self.program, [RULE], target=target, options={RULE.name: Options(**options)}, for_check=True)

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        result = MODEL.run(dumps(self.program), arrays)
        assert result.status is Status.VALID, result.message
        return result.outputs


def params(scale: Scale, zp: int = 0, axis: int = 0) -> QuantParams | None:
    if scale is None:
        return None
    return QuantParams((scale,), zp) if isinstance(scale, float) else QuantParams(tuple(scale), zp, axis)


def names(net: Net) -> list[str]:
    return [op.name for op in net.graph.ops if op.name not in ("CONST", "CONST_SHAPE")]


def fractions(values: Array) -> Array:
    return np.asarray(np.vectorize(Fraction, otypes=[object])(np.asarray(values).astype(object)))


def furthest(real: Array, got: Array, dtype: DType) -> Fraction:
    """Largest distance between results and saturated real numbers, exactly."""
    low, high = INTEGER_RANGES.get(dtype, (0, 1))
    pairs = zip(np.ravel(np.broadcast_to(real, got.shape)), np.ravel(got).tolist(), strict=True)
    return max((abs(min(max(value, low), high) - int(result)) for value, result in pairs), default=Fraction(0))


def bound_of(result: RewriteResult) -> Fraction:
    [event] = result.events
    return Fraction(event.contract.lsb) if isinstance(event.contract, WithinLsb) else Fraction(0)


def require_contracts(result: RewriteResult, vectors: int = 6) -> None:
    """The engine's own check, with the rule's reference, agrees too."""
    for finding in check_events(result.events, MODEL, vectors=vectors, seed=SEED):
        assert finding.kept is Kept.KEPT, finding.message


def codes(count: int, seed: int = SEED, low: int = -32768, high: int = 32767) -> Array:
    rng = np.random.default_rng(seed)
    drawn = np.concatenate([rng.integers(low, high, count, endpoint=True), rng.integers(-40, 40, count)])
    return np.asarray(np.clip(drawn, low, high))


def pairs_of_codes() -> tuple[Array, Array]:
    """Every pair of boundary values, equal extremes among them, then random ones; as columns [1, N]."""
    first, second = (np.array(column) for column in zip(*itertools.product(LIMITS, LIMITS), strict=True))
    a, b = np.concatenate([first, codes(300, 1)]), np.concatenate([second, codes(300, 2)])
    return a.astype(np.int16)[None], b.astype(np.int16)[None]


BINARY: dict[str, tuple[Attributes, Callable[[Fraction, Fraction], Fraction]]] = {
    "ADD": (ops.Add(), lambda a, b: a + b),
    "SUB": (ops.Sub(), lambda a, b: a - b),
    "MAXIMUM": (ops.Maximum(nan_mode=NanPropagationMode.PROPAGATE), max),
    "MINIMUM": (ops.Minimum(nan_mode=NanPropagationMode.PROPAGATE), min),
    "MUL": (ops.Mul(), lambda a, b: a * b),
}
COMPARISONS: dict[str, tuple[Attributes, Callable[[Fraction, Fraction], bool]]] = {
    "EQUAL": (ops.Equal(), lambda a, b: a == b),
    "GREATER": (ops.Greater(), lambda a, b: a > b),
    "GREATER_EQUAL": (ops.GreaterEqual(), lambda a, b: a >= b),
}
SCALES = [
    (0.5, 0.25, 0.5),
    (0.5, 0.25, 0.25),
    (1.0, 1.0, 1.0),
    (0.013, 0.013, 0.013),
    (0.0123, 0.00077, 0.0131),
    (3.1e-5, 2.9e-4, 3.0e-4),
    (1e-5, 7e-2, 1.1e-3),
    (0.011, 0.012, 1e-4),
    (5000.0, 1.0, 1.0),
]


def binary(
    name: str, shapes: Sequence[Sequence[int]], scales: Sequence[float | None], dtype: DType = I16, shift: int = 0
) -> Net:
    attrs = BINARY[name][0] if name in BINARY else COMPARISONS[name][0] if name in COMPARISONS else ops.IntDiv()
    net = Net()
    a, b = net.input("a", shapes[0], scales[0]), net.input("b", shapes[1], scales[1])
    extra = (net.const("shift", [shift], I8),) if name == "MUL" else ()
    z = net.op(attrs, (a, b, *extra), np.broadcast_shapes(*map(tuple, shapes)), scales[2], dtype)
    return net.outputs(z)


IDENTITY_TABLE = np.clip((np.arange(513) - 256) * 128, -32768, 32767)


def table_net(entries: Array, shape: Sequence[int], table_scale: Scale, out_scale: Scale) -> Net:
    net = Net()
    x, table = net.input("x", shape), net.const("table", entries, I16, table_scale)
    return net.outputs(net.op(ops.Table(), (x, table), shape, out_scale))


@dataclass(frozen=True)
class Sum:
    """An operator that sums products: how to build it, and the naive loop that says what it computes."""

    attrs: Attributes
    x: tuple[int, ...]
    second: tuple[int, ...]
    out: tuple[int, ...]
    naive: Callable[[Array, Array], Array]
    axis: int | None = 0
    bias: bool = True


def loops(out: tuple[int, ...], terms: Callable[..., Any]) -> Array:
    """Sum, for every output position, what ``terms`` yields."""
    total = np.zeros(out, object)
    for place in np.ndindex(*out):
        total[place] = sum(terms(*place))
    return total


def at(x: Array, *place: int) -> int:
    """An element, 0 outside."""
    inside = all(0 <= i < size for i, size in zip(place, x.shape, strict=True))
    return int(x[place]) if inside else 0


def conv2d(x: Array, w: Array) -> Array:
    def terms(n: int, oy: int, ox: int, oc: int) -> Any:
        for ky, kx, ic in np.ndindex(3, 2, 3):
            yield at(x, n, oy * 2 + ky * 1 - 1, ox + kx * 2 - 2, ic) * int(w[oc, ky, kx, ic])

    return loops((1, 3, 5, 4), terms)


def conv3d(x: Array, w: Array) -> Array:
    def terms(n: int, oz: int, oy: int, ox: int, oc: int) -> Any:
        for kz, ky, kx, ic in np.ndindex(2, 1, 2, 2):
            yield at(x, n, oz + kz, oy * 2 + ky, ox + kx - 1, ic) * int(w[oc, kz, ky, kx, ic])

    return loops((1, 2, 2, 4, 3), terms)


def depthwise(x: Array, w: Array) -> Array:
    def terms(n: int, oy: int, ox: int, oc: int) -> Any:
        c, m = divmod(oc, 2)
        for ky, kx in np.ndindex(2, 3):
            yield at(x, n, oy + ky, ox * 2 + kx - 1, c) * int(w[ky, kx, c, m])

    return loops((2, 3, 2, 6), terms)


def transposed(x: Array, w: Array) -> Array:
    total = np.zeros((1, 7, 6, 2), object)
    for n, iy, ix, ic, ky, kx, oc in np.ndindex(1, 3, 4, 3, 3, 2, 2):
        oy, ox = iy * 2 + ky + 1, ix * 2 + kx - 1
        if 0 <= oy < 7 and 0 <= ox < 6:
            total[n, oy, ox, oc] += int(x[n, iy, ix, ic]) * int(w[oc, ky, kx, ic])
    return total


def matmul(a: Array, b: Array) -> Array:
    return loops((2, 3, 5), lambda n, h, w: (int(a[n, h, k]) * int(b[n, k, w]) for k in range(4)))


def resized(x: Array, _: Array) -> Array:
    def terms(n: int, oy: int, ox: int, c: int) -> Any:
        y, x_ = oy * 2 - 1, ox * 1 - 1
        iy, ry, ix, rx = *divmod(y, 4), *divmod(x_, 3)
        for dy, dx in np.ndindex(2, 2):
            weight = (ry if dy else 4 - ry) * (rx if dx else 3 - rx)
            yield weight * int(x[n, min(max(iy + dy, 0), 2), min(max(ix + dx, 0), 1), c])

    return loops((1, 5, 5, 2), terms)


SUMS: dict[str, Sum] = {
    "CONV2D": Sum(
        ops.Conv2d((1, 1, 2, 1), (2, 1), (1, 2), acc_type=I32), (1, 5, 4, 3), (4, 3, 2, 3), (1, 3, 5, 4), conv2d
    ),
    "CONV3D": Sum(
        ops.Conv3d((0, 0, 0, 0, 1, 0), (1, 2, 1), (1, 1, 1), acc_type=I32),
        (1, 3, 3, 4, 2),
        (3, 2, 1, 2, 2),
        (1, 2, 2, 4, 3),
        conv3d,
    ),
    "DEPTHWISE_CONV2D": Sum(
        ops.DepthwiseConv2d((0, 0, 1, 0), (1, 2), (1, 1), acc_type=I32),
        (2, 4, 4, 3),
        (2, 3, 3, 2),
        (2, 3, 2, 6),
        depthwise,
        axis=2,
    ),
    "TRANSPOSE_CONV2D": Sum(
        ops.TransposeConv2d((1, -1, -1, -1), (2, 2), acc_type=I32), (1, 3, 4, 3), (2, 3, 2, 3), (1, 7, 6, 2), transposed
    ),
    "MATMUL": Sum(ops.MatMul(), (2, 3, 4), (2, 4, 5), (2, 3, 5), matmul, axis=2, bias=False),
    "RESIZE": Sum(ops.Resize(ResizeMode.BILINEAR), (1, 3, 2, 2), (), (1, 5, 5, 2), resized, axis=None, bias=False),
}


def weights(shape: Sequence[int], low: int = -128, high: int = 127) -> Array:
    return np.random.default_rng(SEED).integers(low, high, tuple(shape), endpoint=True)


def activations(shape: Sequence[int], kind: int) -> Array:
    rng = np.random.default_rng(SEED + kind)
    count = int(np.prod(shape))
    flat = [
        np.full(count, 32767),
        np.full(count, -32768),
        np.where(np.arange(count) % 2, 32767, -32768),
        rng.choice(LIMITS, count),
        rng.integers(-32768, 32767, count, endpoint=True),
        rng.integers(-99, 99, count),
    ][kind]
    return flat.astype(np.int16).reshape(tuple(shape))


@dataclass
class Built:
    """A net with one sum of products, its parts and what it computes on integers."""

    net: Net
    z: Tensor
    w: Array
    b: Array
    inputs: int

    def accumulators(self, row: Sum, arrays: Sequence[Array]) -> Array:
        second = arrays[1] if self.inputs == 2 else self.w
        return row.naive(arrays[0], second) + (self.b.astype(object) if row.bias else 0)


def accumulate(
    name: str,
    dtype: DType,
    scales: tuple[Scale, Scale, Scale],
    bias: Array | None = None,
    *,
    bias_dtype: DType = I32,
    bias_scale: Scale = None,
    zp: int = 0,
    w: Array | None = None,
) -> Built:
    row, net = SUMS[name], Net()
    x = net.input("x", row.x, scales[0])
    w = weights(row.second) if w is None else w
    channels = row.out[-1]
    b = np.arange(channels) * 70001 - 90000 if bias is None else bias
    if row.bias:
        operands = [
            x,
            net.const("w", w, I8, scales[1], row.axis or 0, zp),
            net.const("b", b, bias_dtype, bias_scale),
            net.const("izp", [0]),
            net.const("wzp", [zp], I8),
        ]
    elif name == "MATMUL":
        second = net.input("y", row.second, scales[1], axis=2)
        operands = [x, second, net.const("azp", [0]), net.const("bzp", [0])]
    else:
        sizes = {"scale": [4, 2, 3, 1], "offset": [-1, -1], "border": [-1, 0]}
        operands = [x, *(net.const(key, values, DType.SHAPE) for key, values in sizes.items())]
    z = net.op(row.attrs, operands, row.out, scales[2], dtype)
    net.outputs(z)
    return Built(net, z, w - zp, b, 2 if name == "MATMUL" else 1)


def weight_scales(name: str, kind: str) -> Scale:
    row = SUMS[name]
    if name == "RESIZE":
        return None
    if kind == "per-tensor" or row.axis is None:
        return 0.0042
    return [0.0042 * (1 + i) for i in range(row.second[row.axis])]


def by_channel(name: str, scale: Scale) -> Array:
    """Exact weight scales by output channel."""
    listed = [scale] if isinstance(scale, float) else list(scale or [1.0])
    repeated = np.repeat(listed, 2 if name == "DEPTHWISE_CONV2D" and len(listed) > 1 else 1)
    return fractions(repeated)
