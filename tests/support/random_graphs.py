"""Random integer graphs of TOSA 1.0 for tests: legal by construction, every operator with a result known to be typed.

All tensors are [BATCH, H, W, C], so one run of a graph is a run on BATCH vectors; see :func:`vectors`.
"""

from collections.abc import Callable

import numpy as np

from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.types import INTEGER_RANGES, encode

BATCH = 12
I4, I8, I16, I32, I48 = DType.INT4, DType.INT8, DType.INT16, DType.INT32, DType.INT48
ACCUMULATOR = {I8: I32, I16: I48}
PROPAGATE = NanPropagationMode.PROPAGATE
LARGEST = 2000
"""Elements that a tensor may have and still grow."""


class RandomGraph:
    """Adds one random operator at a time: ``values`` are what it may read, ``steps`` names what was added."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.b = Builder("t")
        self.values: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.steps: list[str] = []

    def step(self, accept: Callable[[AnyOp], bool]) -> None:
        """Add an operator that reads one of ``values``, if it fits and ``accept`` takes it and what it needs."""
        x = self.values[-1 if self.flag() else self.int(0, len(self.values))]  # deep rather than wide
        names = [name for name, dtypes in STEPS.items() if x.dtype in dtypes]
        name = names[self.int(0, len(names))]
        before = len(self.b.ops), len(self.inputs)
        result = STEPS_BY_NAME[name](self, x)
        if result is None or not all(accept(op) for op in self.b.ops[before[0] :]):
            del self.b.ops[before[0] :], self.inputs[before[1] :]
        else:
            self.values.append(result)
            self.steps.append(name)

    def input(self, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        """A new graph input, not among ``values``."""
        self.inputs.append(Tensor(f"input{len(self.inputs)}", dtype, shape))
        return self.inputs[-1]

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def array(self, dtype: DType, *shape: int) -> np.ndarray:
        """Values of a dtype, some of them its limits; INT32 and INT48 stay small enough for sums."""
        low, high = INTEGER_RANGES[dtype]
        low, high = max(low, -(1 << 20)), min(high, 1 << 20)
        low += dtype == I4  # the specification leaves -8 out of int4, and the reference model takes it for nonsense
        values = self.rng.integers(low, high, shape, endpoint=True)
        return np.where(self.rng.random(shape) < 0.2, self.rng.choice([low, high], shape), values)

    def zero_point(self, dtype: DType) -> Tensor:
        return self.b.const([self.int(-128, 128) if dtype == I8 else 0], dtype)

    def like(self, x: Tensor) -> Tensor:
        """Another tensor of the dtype that broadcasts with ``x``: computed or constant."""
        others = [v for v in self.values if v.dtype == x.dtype and v.shape == x.shape]
        if others and self.rng.random() < 0.7:
            return others[self.int(0, len(others))]
        shape = x.shape if self.flag() else (1,) * (len(x.shape) - 1) + x.shape[-1:]
        return self.b.const(self.array(x.dtype, *shape), x.dtype)

    def flat(self, x: Tensor) -> Tensor:
        """``x`` as [BATCH, H*W, C]."""
        shape = BATCH, x.shape[1] * x.shape[2], x.shape[3]
        return self.b.op(ops.Reshape(), (x, self.b.const_shape(shape)), x.dtype, shape)

    def square(self, x: Tensor) -> Tensor:
        """``x`` of rank 3 as [BATCH, N, 1, C]."""
        shape = BATCH, x.shape[1], 1, x.shape[2]
        return self.b.op(ops.Reshape(), (x, self.b.const_shape(shape)), x.dtype, shape)


def _conv2d(g: RandomGraph, x: Tensor) -> Tensor | None:
    acc, weight_dtype = ACCUMULATOR[x.dtype], I4 if x.dtype == I8 and g.int(0, 4) == 0 else I8
    _, h, w, ic = x.shape
    oc, kh, kw = g.int(1, 4), g.int(1, 4), g.int(1, 4)
    pad = tuple(g.int(0, 2) for _ in range(4)) if g.flag() else (0,) * 4
    dilation = g.int(1, 3), g.int(1, 3)
    size = h - 1 + pad[0] + pad[1] - (kh - 1) * dilation[0], w - 1 + pad[2] + pad[3] - (kw - 1) * dilation[1]
    if min(size) < 0:
        return None
    stride = tuple(2 if length % 2 == 0 and g.flag() else 1 for length in size)
    shape = BATCH, size[0] // stride[0] + 1, size[1] // stride[1] + 1, oc
    if weight_dtype == I8 and x.dtype == I8 and g.int(0, 5) == 0:
        weights = g.b.clamp(g.input(I8, (oc, kh, kw, ic)), -100, 60)
    else:
        weights = g.b.const(g.array(weight_dtype, oc, kh, kw, ic), weight_dtype)
    operands = (x, weights, *_bias(g, acc, oc), g.zero_point(x.dtype), g.zero_point(weight_dtype))
    attrs = ops.Conv2d(pad=pad, stride=stride, dilation=dilation, acc_type=acc)
    return g.b.op(attrs, operands, acc, shape)


def _depthwise(g: RandomGraph, x: Tensor) -> Tensor | None:
    acc, (_, h, w, c) = ACCUMULATOR[x.dtype], x.shape
    m, kh, kw, pad = g.int(1, 3), g.int(1, 4), g.int(1, 4), tuple(g.int(0, 2) for _ in range(4))
    shape = BATCH, h + pad[0] + pad[1] - kh + 1, w + pad[2] + pad[3] - kw + 1, c * m
    if min(shape) < 1:
        return None
    weights = g.b.const(g.array(I8, kh, kw, c, m), I8)
    operands = (x, weights, *_bias(g, acc, c * m), g.zero_point(x.dtype), g.zero_point(I8))
    attrs = ops.DepthwiseConv2d(pad=pad, stride=(1, 1), dilation=(1, 1), acc_type=acc)
    return g.b.op(attrs, operands, acc, shape)


def _transpose_conv(g: RandomGraph, x: Tensor) -> Tensor | None:
    acc, (_, h, w, ic) = ACCUMULATOR[x.dtype], x.shape
    oc, kh, kw, stride = g.int(1, 3), g.int(1, 4), g.int(1, 4), (g.int(1, 4), g.int(1, 4))
    out_pad = g.int(1 - kh, 2), g.int(1 - kh, 2), g.int(1 - kw, 2), g.int(1 - kw, 2)
    shape = (
        BATCH,
        (h - 1) * stride[0] + out_pad[0] + out_pad[1] + kh,
        (w - 1) * stride[1] + out_pad[2] + out_pad[3] + kw,
        oc,
    )
    if min(shape) < 1:
        return None
    weights = g.input(I8, (oc, kh, kw, ic)) if g.int(0, 5) == 0 else g.b.const(g.array(I8, oc, kh, kw, ic), I8)
    operands = (x, weights, *_bias(g, acc, oc), g.zero_point(x.dtype), g.zero_point(I8))
    return g.b.op(ops.TransposeConv2d(out_pad=out_pad, stride=stride, acc_type=acc), operands, acc, shape)


def _conv3d(g: RandomGraph, x: Tensor) -> Tensor | None:
    acc, (_, h, w, ic) = ACCUMULATOR[x.dtype], x.shape
    oc, kd, kh, pad = g.int(1, 3), g.int(1, 3), g.int(1, 3), tuple(g.int(0, 2) for _ in range(6))
    deep = g.b.op(ops.Reshape(), (x, g.b.const_shape([BATCH, h, 1, w, ic])), x.dtype, (BATCH, h, 1, w, ic))
    shape = BATCH, h + pad[0] + pad[1] - kd + 1, 1 + pad[2] + pad[3] - kh + 1, w + pad[4] + pad[5], oc
    if min(shape) < 1:
        return None
    weights = g.b.const(g.array(I8, oc, kd, kh, 1, ic), I8)
    operands = (deep, weights, *_bias(g, acc, oc), g.zero_point(x.dtype), g.zero_point(I8))
    attrs = ops.Conv3d(pad=pad, stride=(1, 1, 1), dilation=(1, 1, 1), acc_type=acc)
    y = g.b.op(attrs, operands, acc, shape)
    if acc == I48:
        y = g.b.rescale(y, I32, 1 << 14, 16, scale32=False)
    flat = BATCH, shape[1] * shape[2], shape[3], oc
    return g.b.op(ops.Reshape(), (y, g.b.const_shape(flat)), I32, flat)


def _bias(g: RandomGraph, acc: DType, channels: int) -> tuple[Tensor]:
    return (g.b.const(g.array(acc, 1 if g.int(0, 4) == 0 else channels), acc),)


def _matmul(g: RandomGraph, x: Tensor) -> Tensor:
    a, acc, columns = g.flat(x), ACCUMULATOR[x.dtype], g.int(1, 4)
    zeros = g.zero_point(x.dtype), g.zero_point(x.dtype)
    kind = g.int(0, 3)
    if kind == 0:
        turned = (BATCH, a.shape[2], a.shape[1])
        operands = a, g.b.op(ops.Transpose(perms=(0, 2, 1)), (a,), x.dtype, turned)
        shape = BATCH, a.shape[1], a.shape[1]
    elif kind == 1:
        operands = a, g.b.const(g.array(x.dtype, BATCH, a.shape[2], columns), x.dtype)
        shape = BATCH, a.shape[1], columns
    else:
        operands = g.b.const(g.array(x.dtype, BATCH, columns, a.shape[1]), x.dtype), a
        shape = BATCH, columns, a.shape[2]
    y = g.b.op(ops.MatMul(), (*operands, *zeros), acc, shape)
    if acc == I48:
        y = g.b.rescale(y, I32, 1 << 14, 18, scale32=False)
    return g.square(y)


def _rescale(g: RandomGraph, x: Tensor) -> Tensor:
    scale32 = x.dtype != I48 and g.flag()
    target = [I8, I16, I32][g.int(0, 3)]
    sides = (True, False), (False, True)  # unsigned at one side at most, and only between 8 and 16 bits
    narrow = x.dtype in (I8, I16) and target != I32
    unsigned = sides[g.int(0, 2)] if narrow and g.int(0, 3) == 0 else (False, False)
    count = x.shape[-1] if g.flag() else 1
    bits, reach = (31, 31) if scale32 else (15, {I8: 18, I16: 18, I32: 32, I48: 40}[x.dtype])
    m = g.rng.integers(1 << (bits - 2), 1 << bits, count)
    s = g.rng.integers(max(reach - 8, 2), reach + 6, count)
    operands = (
        x,
        g.b.const(m, I32 if scale32 else I16),
        g.b.const(s, I8),
        _unsigned_zero_point(g) if unsigned[0] and x.dtype == I16 else g.zero_point(x.dtype),
        _unsigned_zero_point(g) if unsigned[1] and target == I16 else g.zero_point(target),
    )
    rounding = RoundingMode.DOUBLE_ROUND if scale32 and g.int(0, 3) == 0 else RoundingMode.SINGLE_ROUND
    return g.b.op(ops.Rescale(scale32, rounding, count > 1, *unsigned), operands, target, x.shape)


def _unsigned_zero_point(g: RandomGraph) -> Tensor:
    return g.b.const([[0, -32768][g.int(0, 2)]], I16)


def _clamp(g: RandomGraph, x: Tensor) -> Tensor:
    low, high = INTEGER_RANGES[x.dtype]
    ends = sorted((g.int(low, high + 1) // 2, g.int(low, high + 1)))
    attrs = ops.Clamp(min_val=encode([ends[0]], x.dtype), max_val=encode([ends[1]], x.dtype), nan_mode=PROPAGATE)
    return g.b.op(attrs, (x,), x.dtype, x.shape)


def clamp_channels(g: RandomGraph, x: Tensor) -> Tensor:
    """``x`` with a CLAMP of its own for each channel, most of them narrow."""
    sides, shape = [], x.shape[:-1]
    for c in range(x.shape[3]):
        start, size = g.b.const_shape([0, 0, 0, c]), g.b.const_shape([*shape, 1])
        side = g.b.op(ops.Slice(), (x, start, size), x.dtype, (*shape, 1))
        low, high = INTEGER_RANGES[x.dtype]
        low = g.int(low, high)
        sides.append(g.b.clamp(side, low, min(high, low + g.int(0, 40))))
    return g.b.op(ops.Concat(axis=3), sides, x.dtype, x.shape)


def _binary(kind: Callable[[], object]) -> Callable[[RandomGraph, Tensor], Tensor]:
    def step(g: RandomGraph, x: Tensor) -> Tensor:
        operands = [x, g.like(x)]
        if g.flag():
            operands.reverse()
        return g.b.op(kind(), operands, x.dtype, x.shape)

    return step


def _mul(g: RandomGraph, x: Tensor) -> Tensor:
    shift = [g.int(20, 36)] if x.dtype == I32 else [0]
    other = x if g.int(0, 4) == 0 else g.like(x)
    return g.b.op(ops.Mul(), (x, other, g.b.const(shift, I8)), I32, x.shape)


def _shift(g: RandomGraph, x: Tensor) -> Tensor:
    bits = {I8: 8, I16: 16, I32: 32}[x.dtype]
    amount = g.b.const(g.rng.integers(0, bits, (1, *x.shape[1:])), x.dtype)
    return g.b.op(ops.ArithmeticRightShift(round=g.flag()), (x, amount), x.dtype, x.shape)


def _intdiv(g: RandomGraph, x: Tensor) -> Tensor:
    divisor = g.rng.integers(1, 50, (1, 1, 1, x.shape[3])) * (g.int(0, 2) * 2 - 1)
    if g.flag():
        divisor[..., 0] *= -1
    return g.b.op(ops.IntDiv(), (x, g.b.const(divisor, I32)), I32, x.shape)


def _negate(g: RandomGraph, x: Tensor) -> Tensor:
    return g.b.op(ops.Negate(), (x, g.zero_point(x.dtype), g.zero_point(x.dtype)), x.dtype, x.shape)


def _pool(g: RandomGraph, x: Tensor) -> Tensor | None:
    kernel = g.int(1, 4), g.int(1, 4)
    pad = tuple(g.int(0, kernel[i // 2]) for i in range(4))
    shape = (
        BATCH,
        x.shape[1] + pad[0] + pad[1] - kernel[0] + 1,
        x.shape[2] + pad[2] + pad[3] - kernel[1] + 1,
        x.shape[3],
    )
    if min(shape) < 1:
        return None
    if g.flag():
        return g.b.op(ops.MaxPool2d(kernel, (1, 1), pad, PROPAGATE), (x,), x.dtype, shape)
    zeros = g.zero_point(x.dtype), g.zero_point(x.dtype)
    return g.b.op(ops.AvgPool2d(kernel, (1, 1), pad, I32), (x, *zeros), x.dtype, shape)


def _table(g: RandomGraph, x: Tensor) -> Tensor:
    if x.dtype == I8:
        return g.b.op(ops.Table(), (x, g.b.const(g.array(I8, 256), I8)), I8, x.shape)
    entries = g.rng.integers(-16384, 16384, 513)  # so that slopes fit int16
    return g.b.op(ops.Table(), (x, g.b.const(entries, I16)), I32, x.shape)


def _resize(g: RandomGraph, x: Tensor) -> Tensor | None:
    scale = [g.int(1, 5), g.int(1, 4), g.int(1, 5), g.int(1, 4)]
    offset, border = [g.int(-1, 2), g.int(-1, 2)], [g.int(-3, 1), g.int(-3, 1)]
    spans = [(x.shape[1 + i] - 1) * scale[2 * i] - offset[i] + border[i] for i in (0, 1)]
    if any(span < 0 or span % scale[2 * i + 1] for i, span in enumerate(spans)):
        return None
    shape = BATCH, spans[0] // scale[1] + 1, spans[1] // scale[3] + 1, x.shape[3]
    operands = (x, *(g.b.const_shape(values) for values in (scale, offset, border)))
    if g.flag():
        return g.b.op(ops.Resize(mode=ResizeMode.NEAREST), operands, x.dtype, shape)
    return g.b.op(ops.Resize(mode=ResizeMode.BILINEAR), operands, ACCUMULATOR[x.dtype], shape)


def _reduce(g: RandomGraph, x: Tensor) -> Tensor:
    axis, shape = g.int(1, 4), list(x.shape)
    shape[axis] = 1
    kinds = (
        ops.ReduceMax(axis=axis, nan_mode=PROPAGATE),
        ops.ReduceMin(axis=axis, nan_mode=PROPAGATE),
        ops.ReduceSum(axis),
    )
    return g.b.op(kinds[g.int(0, 3 if x.dtype == I32 else 2)], (x,), x.dtype, shape)


def _argmax(g: RandomGraph, x: Tensor) -> Tensor:
    axis = g.int(1, 4)
    shape = [size for i, size in enumerate(x.shape) if i != axis]
    y = g.b.op(ops.ArgMax(axis=axis, nan_mode=PROPAGATE), (x,), I32, shape)
    return g.b.op(ops.Reshape(), (y, g.b.const_shape([*shape, 1])), I32, (*shape, 1))


def _unary(attrs: object, result: DType | None = None) -> Callable[[RandomGraph, Tensor], Tensor]:
    return lambda g, x: g.b.op(attrs, (x,), result or x.dtype, x.shape)


def _select(g: RandomGraph, x: Tensor) -> Tensor:
    if x.dtype == I32:
        condition = g.b.op(ops.Greater(), (x, g.like(x)), DType.BOOL, x.shape)
    else:
        condition = g.b.const(g.rng.integers(0, 2, x.shape).astype(bool), DType.BOOL)
    return g.b.op(ops.Select(), (condition, g.like(x), x), x.dtype, x.shape)


def _cast(g: RandomGraph, x: Tensor) -> Tensor | None:
    targets = [dtype for dtype in (I8, I16, I32) if dtype != x.dtype]
    return g.b.op(ops.Cast(), (x,), targets[g.int(0, 2)], x.shape)


def _reshape(g: RandomGraph, x: Tensor) -> Tensor:
    _, h, w, c = x.shape
    shapes = [(BATCH, 1, h, w * c), (BATCH, h * w * c, 1, 1), (BATCH, w, h, c), (BATCH, w * c, 1, h)]
    shape = shapes[g.int(0, 4)]
    return g.b.op(ops.Reshape(), (x, g.b.const_shape(shape)), x.dtype, shape)


def _transpose(g: RandomGraph, x: Tensor) -> Tensor:
    perms = (0, *(int(p) for p in g.rng.permutation(3) + 1))
    return g.b.op(ops.Transpose(perms=perms), (x,), x.dtype, [x.shape[p] for p in perms])


def _slice(g: RandomGraph, x: Tensor) -> Tensor:
    start = [0, *(g.int(0, size) for size in x.shape[1:])]
    size = [BATCH, *(g.int(1, x.shape[i] - start[i] + 1) for i in (1, 2, 3))]
    return g.b.op(ops.Slice(), (x, g.b.const_shape(start), g.b.const_shape(size)), x.dtype, size)


def _concat(g: RandomGraph, x: Tensor) -> Tensor | None:
    axis = g.int(1, 4)
    parts = [x, *(g.like(x) for _ in range(g.int(0, 3)))]
    parts = [part for part in parts if part.shape == x.shape]
    shape = list(x.shape)
    shape[axis] *= len(parts)
    return g.b.op(ops.Concat(axis=axis), parts, x.dtype, shape) if np.prod(shape) < LARGEST else None


def _pad(g: RandomGraph, x: Tensor) -> Tensor | None:
    padding = [0, 0, *(g.int(0, 2) for _ in range(6))]
    shape = [size + padding[2 * i] + padding[2 * i + 1] for i, size in enumerate(x.shape)]
    operands = x, g.b.const_shape(padding), g.b.const(g.array(x.dtype, 1), x.dtype)
    return g.b.op(ops.Pad(), operands, x.dtype, shape) if np.prod(shape) < LARGEST else None


def _tile(g: RandomGraph, x: Tensor) -> Tensor | None:
    multiples = [1, *(g.int(1, 3) for _ in range(3))]
    shape = [size * times for size, times in zip(x.shape, multiples, strict=True)]
    return g.b.op(ops.Tile(), (x, g.b.const_shape(multiples)), x.dtype, shape) if np.prod(shape) < LARGEST else None


def _reverse(g: RandomGraph, x: Tensor) -> Tensor:
    return g.b.op(ops.Reverse(axis=g.int(1, 4)), (x,), x.dtype, x.shape)


def _gather(g: RandomGraph, x: Tensor) -> Tensor:
    flat, count = g.flat(x), g.int(1, 4)
    indices = g.b.const(g.rng.integers(0, flat.shape[1], (BATCH, count)), I32)
    return g.square(g.b.op(ops.Gather(), (flat, indices), x.dtype, (BATCH, count, x.shape[3])))


def _scatter(g: RandomGraph, x: Tensor) -> Tensor:
    flat = g.flat(x)
    count = g.int(1, flat.shape[1] + 1)
    rows = np.stack([g.rng.permutation(flat.shape[1])[:count] for _ in range(BATCH)])
    new = g.b.const(g.array(x.dtype, BATCH, count, x.shape[3]), x.dtype)
    return g.square(g.b.op(ops.Scatter(), (flat, g.b.const(rows, I32), new), x.dtype, flat.shape))


_ALL, _SMALL = (I8, I16, I32), (I8, I16)
_ENTRIES: tuple[tuple[str, tuple[DType, ...], Callable[[RandomGraph, Tensor], Tensor | None]], ...] = (
    ("conv2d", _SMALL, _conv2d),
    ("depthwise", _SMALL, _depthwise),
    ("transpose_conv", _SMALL, _transpose_conv),
    ("conv3d", _SMALL, _conv3d),
    ("matmul", _SMALL, _matmul),
    ("rescale", (*_ALL, I48), _rescale),
    ("rescale again", (I32, I48), _rescale),
    ("clamp", _SMALL, _clamp),
    ("clamp channels", _SMALL, clamp_channels),
    ("add", (I32,), _binary(ops.Add)),
    ("sub", (I32,), _binary(ops.Sub)),
    ("maximum", (I32,), _binary(lambda: ops.Maximum(nan_mode=PROPAGATE))),
    ("minimum", (I32,), _binary(lambda: ops.Minimum(nan_mode=PROPAGATE))),
    ("mul", _ALL, _mul),
    ("shift", _ALL, _shift),
    ("intdiv", (I32,), _intdiv),
    ("abs", (I32,), _unary(ops.Abs())),
    ("clz", (I32,), _unary(ops.Clz())),
    ("not", _ALL, _unary(ops.BitwiseNot())),
    ("negate", _ALL, _negate),
    ("pool", _SMALL, _pool),
    ("table", _SMALL, _table),
    ("resize", _SMALL, _resize),
    ("reduce", _ALL, _reduce),
    ("argmax", _SMALL, _argmax),
    ("identity", (*_ALL, I48), _unary(ops.Identity())),
    ("select", _ALL, _select),
    ("cast", _ALL, _cast),
    ("reshape", _ALL, _reshape),
    ("transpose", _ALL, _transpose),
    ("slice", _ALL, _slice),
    ("concat", _ALL, _concat),
    ("pad", _ALL, _pad),
    ("tile", _ALL, _tile),
    ("reverse", _ALL, _reverse),
    ("gather", _ALL, _gather),
    ("scatter", _ALL, _scatter),
)
STEPS = {name: dtypes for name, dtypes, _ in _ENTRIES}
STEPS_BY_NAME = {name: step for name, _, step in _ENTRIES}


def vectors(rng: np.random.Generator, x: Tensor, low: int, high: int) -> np.ndarray:
    """Values of an input in [low, high]; along axis 0 all low, all high, either of them at random, then anything."""
    values = rng.integers(low, high, x.shape, endpoint=True)
    for row in range(x.shape[0]):
        if row < 2:
            values[row] = (low, high)[row]
        elif row % 3 == 0:
            values[row] = rng.choice([low, high], x.shape[1:])
    return values
