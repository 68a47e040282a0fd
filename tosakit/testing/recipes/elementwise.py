"""Elementwise operators: broadcasting, and constants in the ranges that CLAMP, shifts, INTDIV and TABLE ask for."""

import numpy as np

from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import Tensor
from tosakit.ir.types import BITS, INTEGER_RANGES, encode, numpy_dtype
from tosakit.numerics.intervals import Intervals
from tosakit.testing import values
from tosakit.testing.making import Making
from tosakit.testing.sketch import Unfit


def broadcast(m: Making) -> tuple[Tensor, ...]:
    """Operators whose operands broadcast."""
    spread(m)
    return m.finish()


def spread(m: Making) -> None:
    """Settle the operands that broadcast."""
    names = [a.name for a in m.arguments if a.shape in ("shape1", "shape2", "shape3")]
    settled = [m.take(name).shape for name in names if name in m.given]
    if len(dict.fromkeys(map(len, settled))) > 1:
        raise Unfit("the operands have different ranks")
    whole = tuple(map(max, *settled)) if len(settled) > 1 else settled[0] if settled else m.sketch.shape(0)
    for name in names:
        m.take(name, shape=[1 if m.choices.flag(0.2) else size for size in whole] if m.choices.flag() else whole)


def clamp(m: Making) -> tuple[Tensor, ...]:
    """CLAMP: two bounds in order."""
    m.take("input")
    dtype = m.dtype("input")
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        ends = sorted(m.choices.pick([low, high, 0, m.choices.integer(low, high)]) for _ in range(2))
    else:
        ends = sorted(m.choices.integer(-3, 3) for _ in range(2))
    first, last = (encode(np.asarray([end], numpy_dtype(dtype)), dtype) for end in ends)
    return m.finish(min_val=first, max_val=last)


def shift(m: Making) -> tuple[Tensor, ...]:
    """Shifts: constant amounts below the width."""
    x = m.take("input1")
    shape = [1 if m.choices.flag(0.2) else size for size in x.shape]
    m.constant("input2", values.values(m.choices, x.dtype, shape, 0, BITS[x.dtype] - 1))
    return m.finish()


def intdiv(m: Making) -> tuple[Tensor, ...]:
    """INTDIV by a constant that is neither 0 nor, for the sake of -2^31, -1."""
    x = m.take("input1")
    divisor = values.values(m.choices, x.dtype, [1 if m.choices.flag(0.2) else size for size in x.shape])
    m.constant("input2", np.where((divisor == 0) | (divisor == -1), 2, divisor).astype(divisor.dtype))
    return m.finish()


def mul(m: Making) -> tuple[Tensor, ...]:
    """MUL: a shift for INT32 operands only, mostly one that keeps products inside INT32."""
    spread(m)
    shifts = [0]
    if m.dtype("input1") == DType.INT32:
        left, right = (Intervals().of(m.take(name)) for name in ("input1", "input2"))
        varies = left.lowest < left.highest or right.lowest < right.highest
        shifts = [31, 20, 0] if varies or left.magnitude * right.magnitude < 1 << 31 else [31, 20]
    m.constant("shift", [m.choices.pick(shifts)])
    return m.finish()


def power(m: Making) -> tuple[Tensor, ...]:
    """POW: the base is positive."""
    x = m.take("input2")
    base = np.abs(m.choices.rng().normal(0.0, 2.0, [1 if m.choices.flag(0.2) else size for size in x.shape])) + 0.5
    m.constant("input1", base.astype(numpy_dtype(x.dtype)))
    return m.finish()


def table(m: Making) -> tuple[Tensor, ...]:
    """TABLE: 256 entries, or 513 that differ by an INT16 from one to the next."""
    if m.dtype("input1") == DType.INT8:
        m.constant("table", values.values(m.choices, DType.INT8, [256]))
    else:
        m.constant("table", values.values(m.choices, DType.INT16, [513], -(1 << 14), (1 << 14) - 1))
    return m.finish()


def _zero_point(m: Making, dtype: DType, unsigned: bool) -> int:
    """A zero point of a side of RESCALE; of an unsigned INT16 it is 0 or 32768."""
    if unsigned and dtype == DType.INT16:
        return m.choices.pick([0, -(1 << 15)])
    return values.zero_point(m.choices, dtype)


def rescale(m: Making) -> tuple[Tensor, ...]:
    """RESCALE in all legal forms."""
    x, c = m.take("input"), m.choices
    source, target = m.dtype("input"), m.dtype("output")
    scale32 = source != DType.INT48 and c.flag()
    per_channel = bool(x.shape) and c.flag()
    steered = source == DType.INT48 or (source == DType.INT32 and c.flag(0.3))
    magnitude = Intervals().of(x).magnitude if steered else None
    pairs = [
        values.scale_pair(c, source, scale32=scale32, magnitude=magnitude)
        for _ in range(x.shape[-1] if per_channel else 1)
    ]
    if source == target and c.flag(0.3):
        pairs = [values.one(scale32)] * len(pairs)
    m.put("multiplier", m.sketch.const([pair[0] for pair in pairs], DType.INT32 if scale32 else DType.INT16))
    m.constant("shift", [pair[1] for pair in pairs])
    unsigned = (False, False)
    if {source, target} <= {DType.INT8, DType.INT16} and c.flag(0.2):
        unsigned = c.pick([(True, False), (False, True)])
    zeros = [_zero_point(m, source, unsigned[0]), _zero_point(m, target, unsigned[1])]
    if source == target and not any(unsigned) and c.flag():
        zeros[1] = zeros[0]
    m.constant("input_zp", zeros[:1])
    m.constant("output_zp", zeros[1:])
    modes = [RoundingMode.SINGLE_ROUND] * 3 + [RoundingMode.DOUBLE_ROUND] * scale32
    return m.finish(
        scale32=scale32,
        rounding_mode=c.pick(modes),
        per_channel=per_channel,
        input_unsigned=unsigned[0],
        output_unsigned=unsigned[1],
    )
