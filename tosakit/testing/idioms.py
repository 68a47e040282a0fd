"""Chains that converters write around quantised operators, and that random operators hardly ever form."""

from collections.abc import Callable
from typing import NamedTuple

from tosakit.engine.pattern import Capture
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.numerics.intervals import Intervals
from tosakit.testing import values
from tosakit.testing.recipes import make
from tosakit.testing.sketch import Sketch, Unfit

Draw = Callable[[Sketch], tuple[Tensor, ...]]

ARITHMETIC = (ops.Add, ops.Sub, ops.Mul, ops.Maximum, ops.Minimum)
WINDOWS = (ops.Conv2d, ops.DepthwiseConv2d, ops.AvgPool2d, ops.MaxPool2d)
CONVOLUTIONS = (ops.Conv2d, ops.DepthwiseConv2d, ops.TransposeConv2d)


def _value(sketch: Sketch, dtype: DType) -> Tensor:
    """A value of rank four: one at hand, or a new input."""
    if dtype not in sketch.space.dtypes:
        raise Unfit(f"no {dtype.name} may be drawn")
    at_hand = [t for t in sketch.values if t.dtype == dtype and len(t.shape) == 4]
    if at_hand and sketch.choices.flag(0.7):
        return sketch.choices.pick(at_hand)
    return sketch.input(dtype, [sketch.choices.integer(1, 3) for _ in range(4)])


def _rescale(sketch: Sketch, x: Tensor, dtype: DType, pair: tuple[int, int], *, scale32: bool) -> Tensor:
    """RESCALE without zero points, its pair given once or for every channel."""
    times = x.shape[-1] if sketch.choices.flag(0.3) else 1
    multipliers, shifts = [pair[0]] * times, [pair[1]] * times
    return sketch.builder.rescale(x, dtype, multipliers, shifts, scale32=scale32)


def arithmetic(sketch: Sketch) -> tuple[Tensor, ...]:
    """INT8 or INT16 widened by RESCALE, added and the like to itself or another, and narrowed; readers may share."""
    c = sketch.choices
    dtype = c.pick([DType.INT8, DType.INT16])
    x, pair = _value(sketch, dtype), values.scale_pair(c, dtype, scale32=True)
    left = right = _rescale(sketch, x, DType.INT32, pair, scale32=True)
    if c.flag(0.7):
        other = x if c.flag() else sketch.operand(dtype, x.shape)
        right = _rescale(sketch, other, DType.INT32, pair, scale32=True)
    results = []
    for _ in range(c.pick([1, 1, 2])):
        (sum_,) = make(sketch, c.pick(ARITHMETIC), {0: left, 1: right})
        narrowing = values.scale_pair(c, DType.INT32, scale32=True)
        results.append(_rescale(sketch, sum_, dtype, narrowing, scale32=True))
    return tuple(results)


def accumulation(sketch: Sketch) -> tuple[Tensor, ...]:
    """A convolution on INT16 whose sum is copied to INT32, perhaps with a constant added, and then narrowed."""
    c = sketch.choices
    (accumulator,) = make(sketch, c.pick(CONVOLUTIONS), {0: _value(sketch, DType.INT16)})
    if accumulator.dtype != DType.INT48:
        raise Unfit("the accumulator is no INT48")
    multiplier, shift = values.one(scale32=False)
    too_many = max(Intervals().of(accumulator).magnitude.bit_length() - 31, 0)
    pair = multiplier, shift + max(c.pick([0, 0, 2]), too_many)
    total = _rescale(sketch, accumulator, DType.INT32, pair, scale32=False)
    if c.flag(0.4):
        shape = (1, 1, 1, c.pick([total.shape[-1], 1]))
        constant = sketch.const(values.values(c, DType.INT32, shape, -(1 << 12), 1 << 12), DType.INT32)
        (total,) = make(sketch, ops.Add, {0: total, 1: constant} if c.flag(0.7) else {0: constant, 1: total})
    results = []
    for _ in range(c.pick([1, 1, 2])):
        scale32 = c.flag(0.6)
        magnitude = Intervals().of(total).magnitude
        pair = values.scale_pair(c, DType.INT32, scale32=scale32, magnitude=magnitude)
        results.append(_rescale(sketch, total, c.pick([DType.INT16, DType.INT16, DType.INT8]), pair, scale32=scale32))
    return tuple(results)


def wide_accumulation(sketch: Sketch) -> tuple[Tensor, ...]:
    """A convolution on INT16 with so many channels that its sum can leave INT32, narrowed once or twice."""
    c = sketch.choices
    if DType.INT16 not in sketch.space.dtypes:
        raise Unfit("no INT16 may be drawn")
    x = sketch.input(DType.INT16, (1, c.integer(1, 2), c.integer(1, 2), c.pick([520, 1040, 2080])))
    (accumulator,) = make(sketch, c.pick([ops.Conv2d, ops.TransposeConv2d]), {0: x})
    if accumulator.dtype != DType.INT48:
        raise Unfit("the accumulator is no INT48")
    results: tuple[Tensor, ...] = ()
    for _ in range(c.pick([1, 2])):
        results += make(sketch, ops.Rescale, {0: accumulator})
    return results


def windows(sketch: Sketch) -> tuple[Tensor, ...]:
    """A window that moves over an image larger than others, where long strides have several results, and a RESCALE."""
    c = sketch.choices
    dtype = c.pick([DType.INT8, DType.INT16])
    if dtype not in sketch.space.dtypes:
        raise Unfit(f"no {dtype.name} may be drawn")
    x = sketch.input(dtype, (1, c.integer(5, 12), c.integer(5, 12), c.integer(1, 3)))
    (result,) = make(sketch, c.pick(WINDOWS), {0: x})
    return make(sketch, ops.Rescale, {0: result})


def reduction(sketch: Sketch) -> tuple[Tensor, ...]:
    """INT8 or INT16 widened by RESCALE, summed along an axis, and narrowed."""
    c = sketch.choices
    dtype = c.pick([DType.INT8, DType.INT16])
    x = _value(sketch, dtype)
    wide = _rescale(sketch, x, DType.INT32, values.scale_pair(c, dtype, scale32=True), scale32=True)
    (sum_,) = make(sketch, ops.ReduceSum, {0: wide})
    return (_rescale(sketch, sum_, dtype, values.scale_pair(c, DType.INT32, scale32=True), scale32=True),)


class Idiom(NamedTuple):
    """A chain, and the operators it can hold besides constants."""

    draw: Draw
    kinds: tuple[type[Attributes], ...]


IDIOMS = (
    Idiom(arithmetic, (ops.Rescale, *ARITHMETIC)),
    Idiom(reduction, (ops.Rescale, ops.ReduceSum)),
    Idiom(accumulation, (ops.Rescale, ops.Add, *CONVOLUTIONS)),
    Idiom(windows, (ops.Rescale, *WINDOWS)),
    Idiom(wide_accumulation, (ops.Rescale, ops.Conv2d, ops.TransposeConv2d)),
)


def idioms_with(pattern: Capture[Attributes]) -> list[Idiom]:
    """Those that have an operator for every capture of a pattern."""
    return [idiom for idiom in IDIOMS if all(any(kind in idiom.kinds for kind in capture.kinds) for capture in pattern)]
