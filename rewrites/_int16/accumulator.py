"""Operators that sum int16 products in INT48: make the accumulator and the bias INT48, and RESCALE from there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import cycle, islice
from math import floor

import numpy as np

from rewrites._int16.meaning import convolve, interpolate, matrix_product
from rewrites._int16.plan import (
    Constant,
    Operand,
    Plan,
    Result,
    given,
    held_by,
    only_value,
    real_channels,
    require_static,
    require_symmetric,
    scale_of,
    scales_of,
    within,
)
from rewrites._int16.readers import readers_of
from rewrites._int16.scaling import Held, Scaling, after_scaling, find_scaling
from tosakit.engine.contract import Exact
from tosakit.engine.rule import Context
from tosakit.errors import Unsupported
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES, Array

_Values = Mapping[Tensor, Array]
_INT32_MAX = INTEGER_RANGES[DType.INT32][1]
_ZERO_INT16 = np.zeros(1, np.int16)
_IDENTITY = Scaling((1 << 14,), (14,), scale32=False, dtype=DType.INT32)
"""The one RESCALE that copies every INT48 value that fits int32."""

Convolution = ops.Conv2d | ops.Conv3d | ops.DepthwiseConv2d | ops.TransposeConv2d


@dataclass(frozen=True)
class _Accumulator:
    """An operator in its legal form.

    Entries are one for all channels or one for each: what the INT48 result holds, the real value of its LSB (empty
    where nothing asks for it), and what rounding the bias took from the real result, in that LSB.
    """

    op: AnyOp
    attrs: Attributes
    operands: tuple[Operand, ...]
    integers: Callable[[_Values], Array]
    held: tuple[Held, ...]
    unit: tuple[Fraction, ...] = ()
    lost: tuple[Fraction, ...] = (Fraction(0),)


def convolution(op: AnyOp, context: Context) -> Plan | None:
    """CONV2D, CONV3D, DEPTHWISE_CONV2D, TRANSPOSE_CONV2D on int16: acc_type, bias and result become INT48."""
    x, weight, bias, input_zp, weight_zp = op.inputs
    attrs, out = op.attrs, op.output
    if x.dtype != DType.INT16 or not isinstance(attrs, Convolution):
        return None
    if (attrs.acc_type, bias.dtype, out.dtype) == (DType.INT48, DType.INT48, DType.INT48):
        return None
    _require_result(op)
    if weight.dtype != DType.INT8:
        raise Unsupported(f'weight "{weight.name}" is {weight.dtype.name}; TOSA multiplies INT16 by INT8 only')
    rank = 5 if isinstance(attrs, ops.Conv3d) else 4
    if not len(x.shape) == len(weight.shape) == len(out.shape) == rank:
        raise Unsupported(f"its input, weight and output have ranks other than {rank}")
    for tensor in (weight, bias):
        if not tensor.is_constant:
            raise Unsupported(f'"{tensor.name}" is not constant, so it has no bound and cannot be given its new type')
    if only_value(input_zp) != 0:
        raise Unsupported(f'input_zp "{input_zp.name}" is {only_value(input_zp)}; int16 has no zero point but 0')
    channels, zero = out.shape[-1], only_value(weight_zp)
    codes = bias.values().astype(np.int64).reshape(-1)
    if codes.size not in (1, channels):
        raise Unsupported(f'bias "{bias.name}" has {codes.size} values for {channels} channels')
    unit: tuple[Fraction, ...] = ()
    lost: tuple[Fraction, ...] = (Fraction(0),)
    if out.dtype == DType.INT16:
        if weight.quantization is not None and weight.quantization.zero_point != zero:
            raise Unsupported(
                f'weight "{weight.name}" has zero point {weight.quantization.zero_point} in its quantisation '
                f"parameters and {zero} in weight_zp; make them agree"
            )
        unit = tuple(scale_of(x) * scale for scale in _weight_scales(attrs, weight))
        if bias.quantization is not None:
            codes, lost = _on_scale(bias, codes, unit)
    interval = context.intervals.without_bias(op)
    held = _plus(interval.low, interval.high, codes, lost)
    weights = weight.values()

    def integers(values: _Values) -> Array:
        centred = weights.astype(np.int64) - zero
        return np.asarray(convolve(attrs, given(values, x), centred, out.shape) + codes)

    operands = (
        x,
        weight,
        Constant(codes, DType.INT48, "bias"),
        Constant(_ZERO_INT16, DType.INT16, "input_zp"),
        Constant(np.array([zero]), DType.INT8, "weight_zp"),
    )
    new_attrs = replace(attrs, acc_type=DType.INT48)
    return _plan(_Accumulator(op, new_attrs, operands, integers, held, unit, lost), context)


def matmul(op: AnyOp, context: Context) -> Plan | None:
    """MATMUL of two int16: the result becomes INT48."""
    a, b, *zero_points = op.inputs
    out = op.output
    if DType.INT16 not in (a.dtype, b.dtype) or out.dtype == DType.INT48:
        return None
    _require_result(op)
    if a.dtype != b.dtype or len(a.shape) != 3 or len(b.shape) != 3:
        raise Unsupported(f"it multiplies {a!r} by {b!r}; TOSA wants two of rank 3 and one type")
    for tensor in zero_points:
        if only_value(tensor) != 0:
            raise Unsupported(f'zero point "{tensor.name}" is {only_value(tensor)}; int16 has no zero point but 0')
    require_static(a)
    reach = a.shape[2] * held_by(a, context).magnitude * held_by(b, context).magnitude
    unit: tuple[Fraction, ...] = ()
    if out.dtype == DType.INT16:
        if b.quantization is not None and b.quantization.axis not in (None, 2):
            raise Unsupported(f'"{b.name}" has scales along axis {b.quantization.axis}, which MATMUL sums over')
        unit = tuple(scale_of(a) * scale for scale in scales_of(b))
    zero = (Constant(_ZERO_INT16, DType.INT16, "A_zp"), Constant(_ZERO_INT16, DType.INT16, "B_zp"))

    def integers(values: _Values) -> Array:
        return matrix_product(given(values, a), given(values, b))

    return _plan(_Accumulator(op, op.attrs, (a, b, *zero), integers, (Held(-reach, reach),), unit), context)


def resize(op: AnyOp, context: Context) -> Plan | None:
    """RESIZE in BILINEAR mode on int16: the result, pixels times scale_y_n * scale_x_n, becomes INT48."""
    x, scale, offset, border = op.inputs
    out = op.output
    bilinear = isinstance(op.attrs, ops.Resize) and op.attrs.mode == ResizeMode.BILINEAR
    if x.dtype != DType.INT16 or out.dtype == (DType.INT48 if bilinear else DType.INT16):
        return None
    if not bilinear:
        raise Unsupported(f"in NEAREST mode it takes INT16 to INT16, not to {out.dtype.name}")
    _require_result(op)
    if len(x.shape) != 4 or len(out.shape) != 4:
        raise Unsupported("its input and output must have rank 4")
    scales, offsets = _sizes(scale, 4), _sizes(offset, 2)
    gain = scales[0] * scales[2]
    held = held_by(x, context)
    unit = (scale_of(x) / gain,) if out.dtype == DType.INT16 else ()

    def integers(values: _Values) -> Array:
        return interpolate(given(values, x), scales, offsets, out.shape[1:3])

    accumulated = Held(held.low * gain, held.high * gain)
    return _plan(_Accumulator(op, op.attrs, (x, scale, offset, border), integers, (accumulated,), unit), context)


def _plan(acc: _Accumulator, context: Context) -> Plan:
    low, high = INTEGER_RANGES[DType.INT48]
    worst = max(acc.held, key=lambda held: held.magnitude)
    if worst.low < low or worst.high > high:
        raise Unsupported(f"its accumulator can reach {worst.magnitude}, beyond INT48")
    if acc.op.output.dtype == DType.INT48:
        return _exact(acc)
    if acc.op.output.dtype == DType.INT32:
        return _for_readers(acc, context)
    return _to_int16(acc, context)


def _exact(acc: _Accumulator) -> Plan:
    """The old result was INT48 already, with a bias or acc_type that does not go with it."""
    out = acc.op.output

    def reference(values: _Values) -> _Values:
        return {out: acc.integers(values)}

    return Plan(acc.attrs, acc.operands, DType.INT48, (Result(out),), Exact(), reference, (acc.op,))


def _to_int16(acc: _Accumulator, context: Context) -> Plan:
    """The old result was INT16 without a RESCALE: the scales of the tensors say which one belongs there."""
    out = acc.op.output
    scale_out = scale_of(out)
    scales = tuple(unit / scale_out for unit in acc.unit)
    steps, after = _steps(scales, acc.held, DType.INT16, 0, context)
    bound = max(held.error for held in after)

    def reference(values: _Values) -> _Values:
        return {out: real_channels(acc.integers(values), scales, acc.lost)}

    contract = within(bound, _because(context))
    return Plan(acc.attrs, acc.operands, DType.INT48, (Result(out, steps),), contract, reference, (acc.op,))


def _for_readers(acc: _Accumulator, context: Context) -> Plan:
    """The old accumulator was INT32: its RESCALEs read INT48 instead, everything else a copy proved to fit int32."""
    out = acc.op.output
    readers = readers_of(out)
    needs_copy = bool(readers.others) or not readers.rescales
    if needs_copy and not all(_fits_int32(held) for held in acc.held):
        raise Unsupported(
            f'its accumulator "{out.name}" can reach {max(held.magnitude for held in acc.held)}, beyond int32, and '
            f"{readers.others[0].name if readers.others else 'nothing'} reads it; only a RESCALE can read INT48"
        )
    results = [Result(out, (_IDENTITY,))] if needs_copy else []
    bounds = [Fraction(0)]
    for reader in readers.rescales:
        if reader.is_exact:
            after_scaling(reader.scaling, reader.scales, acc.held)
            steps: tuple[Scaling, ...] = (reader.scaling,)
        else:
            steps, after = _steps(reader.scales, acc.held, reader.scaling.dtype, reader.scaling.output_zp, context)
            bounds.append(max(held.error for held in after))
        results.append(Result(reader.op.output, steps))

    def reference(values: _Values) -> _Values:
        integers = acc.integers(values)
        return {out: integers} | {reader.op.output: reader.meaning(integers) for reader in readers.rescales}

    contract = within(max(bounds), _because(context))
    covers = (acc.op, *readers.identities, *(reader.op for reader in readers.rescales))
    return Plan(acc.attrs, acc.operands, DType.INT48, tuple(results), contract, reference, covers)


def _steps(
    scales: Sequence[Fraction], held: Sequence[Held], dtype: DType, output_zp: int, context: Context
) -> tuple[tuple[Scaling, ...], tuple[Held, ...]]:
    """RESCALEs from INT48: one with 15 bits, or by a power of two to int32 and then one with 31."""
    try:
        if context.options.form == "one-step":
            only, after = find_scaling(scales, held, dtype, widths=(16,), output_zp=output_zp)
            return (only,), after
        # Vela 5.2 fuses an exact copy with the RESCALE behind it on U85 and drops half the multiplier.
        drop = 1 if context.target.startswith("ethos-u85") else 0
        while not all(_fits_int32(one, drop) for one in held):
            drop += 1
        first = replace(_IDENTITY, shift=(14 + drop,))
        middle = after_scaling(first, (Fraction(1, 1 << drop),), held)
        second, after = find_scaling([scale * (1 << drop) for scale in scales], middle, dtype, output_zp=output_zp)
        return (first, second), after
    except Unsupported as error:
        raise Unsupported(
            f"its accumulator cannot be rescaled by {float(max(scales)):.6g} to {dtype.name}: {error}"
        ) from None


def _because(context: Context) -> str:
    if context.options.form == "one-step":
        return "one rounding, and a multiplier of 15 bits on the accumulator"
    return "one rounding to INT32 and one to the result, with a multiplier of 31 bits"


def _fits_int32(held: Held, drop: int = 0) -> bool:
    return (held.magnitude + (1 << drop >> 1)) >> drop <= _INT32_MAX


def _require_result(op: AnyOp) -> None:
    if op.output.dtype not in (DType.INT16, DType.INT32, DType.INT48):
        raise Unsupported(f"it takes INT16 to {op.output.dtype.name}; INT48 is legal, and INT16 and INT32 are repaired")


def _weight_scales(attrs: Convolution, weight: Tensor) -> tuple[Fraction, ...]:
    """Weight scales by output channel. Raises Unsupported for scales along any other axis."""
    scales = scales_of(weight)
    axis = None if weight.quantization is None else weight.quantization.axis
    if len(scales) == 1:
        return scales
    if isinstance(attrs, ops.DepthwiseConv2d) and axis in (2, 3):  # output channel c*M + m
        multiplier, inputs = weight.shape[3], weight.shape[2]
        return tuple(scale for scale in scales for _ in range(multiplier)) if axis == 2 else scales * inputs
    if isinstance(attrs, ops.DepthwiseConv2d) or axis != 0:
        raise Unsupported(f'weight "{weight.name}" has scales along axis {axis}, which is not the output channel')
    return scales


def _on_scale(bias: Tensor, codes: Array, unit: Sequence[Fraction]) -> tuple[Array, tuple[Fraction, ...]]:
    """A bias with a scale of its own on the scale of the accumulator, and what rounding it took, per channel."""
    require_symmetric(bias)
    own = scales_of(bias)
    count = max(codes.size, len(unit), len(own))
    exact = [int(codes[c % codes.size]) * own[c % len(own)] / unit[c % len(unit)] for c in range(count)]
    rounded = [floor(value + Fraction(1, 2)) for value in exact]
    low, high = INTEGER_RANGES[DType.INT48]
    if min(rounded) < low or max(rounded) > high:
        raise Unsupported(
            f'bias "{bias.name}" is {max(map(abs, rounded))} on the scale of the accumulator, beyond INT48'
        )
    return np.array(rounded, np.int64), tuple(value - code for value, code in zip(exact, rounded, strict=True))


def _plus(low: object, high: object, codes: Array, lost: Sequence[Fraction]) -> tuple[Held, ...]:
    """What the accumulator holds with its bias."""
    lows, highs, addends = (np.asarray(values).reshape(-1).tolist() for values in (low, high, codes))
    errors = [abs(error) for error in lost]
    count = max(len(lows), len(addends), len(errors))
    by_channel = islice(zip(*map(cycle, (lows, highs, addends, errors)), strict=False), count)
    return tuple([Held(at_least + code, at_most + code, error) for at_least, at_most, code, error in by_channel])


def _sizes(tensor: Tensor, count: int) -> tuple[int, ...]:
    values = tensor.values().reshape(-1).tolist() if tensor.is_constant else []
    if len(values) != count:
        raise Unsupported(f'"{tensor.name}" is not a constant of {count} values')
    return tuple(int(value) for value in values)
