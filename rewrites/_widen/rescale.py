"""RESCALE between the old and the new scales: the forms of numerics behind int48, int32, int16 and int8 values."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from rewrites._widen.exponents import (
    INT16_SHIFT,
    INT32_MAX,
    WIDE_BOUND,
    exponent_cap,
    floor_log2,
    scaled_bound,
    wanted_exponent,
)
from rewrites._widen.families import FACTOR, FACTOR_BITS, scalar
from rewrites._widen.plan import Form
from rewrites._widen.writer import BlockWriter
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.numerics.scale import MAX_SHIFT, closest_pair

INT8_BOUND = 255
"""Largest absolute value of an int8 value minus its zero point."""

INT16_SATURATION = 1 << 15

Pairs: TypeAlias = tuple[list[int], list[int]]
"""Multipliers and shifts."""


@dataclass(frozen=True)
class Operand:
    """What a RESCALE reads in the new graph: a tensor that holds (old value - old zero point) * 2**bits.

    ``bound`` limits the absolute value of (old value - old zero point).
    """

    tensor: Tensor
    bits: int
    zero_point: int
    bound: int


def _scaled(operand: Operand) -> int:
    """Largest absolute value of the tensor itself."""
    return operand.bound << operand.bits if operand.bits >= 0 else operand.bound


def old_scales(op: AnyOp) -> list[Fraction]:
    """The exact scale of each channel of a RESCALE."""
    multipliers = op.inputs[1].values().reshape(-1).tolist()
    shifts = op.inputs[2].values().reshape(-1).tolist()
    pairs = zip(multipliers, shifts, strict=True)
    return [Fraction(max(m, 0) << max(-s, 0), 1 << max(s, 0)) for m, s in pairs]


def pairs_for(scales: Sequence[Fraction], width: int) -> Pairs:
    """The closest legal multiplier and shift of each scale; 0 gives (0, 62). Raises InvalidArgument above the range."""
    ratios = [scale.as_integer_ratio() for scale in scales]
    pairs = [closest_pair(p, q, width) if p > 0 else (0, MAX_SHIFT) for p, q in ratios]
    return [multiplier for multiplier, _ in pairs], [shift for _, shift in pairs]


def convert_rescale(writer: BlockWriter, op: AnyOp) -> None:
    """RESCALE of any signed dtypes, where its operand or result changes."""
    assert isinstance(op.attrs, ops.Rescale)
    source, target = op.inputs[0], op.output
    if source.dtype == DType.INT32 and not source.is_constant and not writer.is_scaled(source):
        if target.dtype != DType.INT8:
            writer.copy(op)
            return
    elif source.dtype not in (DType.INT8, DType.INT32) and target.dtype != DType.INT8:
        writer.copy(op)
        return
    if source.dtype == DType.INT8 and target.dtype in (DType.INT16, DType.INT8) and _stays(writer, op):
        writer.copy(op)
        return
    scales = old_scales(op)
    if target.dtype == DType.INT32:
        _to_int32(writer, op, scales)
    elif target.dtype == DType.INT8 and not _wants_int16(writer, target):
        narrow(writer, op, scales, DType.INT8, target.name, output_zp=_output_zero_point(writer, op))
    elif target.dtype == DType.INT8:
        _to_activation(writer, op, scales)
    else:
        narrow(writer, op, scales, target.dtype, target.name, output_zp=scalar(op.inputs[4]))


def _stays(writer: BlockWriter, op: AnyOp) -> bool:
    """True where int8 data is read as it is and not needed any finer."""
    source, target = op.inputs[0], op.output
    as_it_is = source.is_constant or writer.input_form(source) is Form.INT8
    return as_it_is and (target.dtype == DType.INT16 or not _wants_int16(writer, target))


def _wants_int16(writer: BlockWriter, target: Tensor) -> bool:
    plan = writer.plan
    if plan.form(target) is Form.INT8:
        return False
    return Form.INT16 in (plan.needs.get(target) or {Form.INT16: None})


def _operand(writer: BlockWriter, op: AnyOp) -> Operand:
    """The operand of a RESCALE in the form that exists."""
    old, zero_point = op.inputs[0], scalar(op.inputs[3])
    if old.dtype == DType.INT8:
        if not old.is_constant and writer.input_form(old) is Form.INT8:
            return Operand(writer.plain(old), 0, zero_point, INT8_BOUND)
        bound = INT8_BOUND if old.is_constant else WIDE_BOUND
        return Operand(writer.int16(old, zero_point), FACTOR_BITS, 0, bound)
    if old in writer.accumulators:
        accumulator = writer.accumulators[old]
        return Operand(accumulator.tensor, accumulator.bits, 0, accumulator.bound)
    if old.dtype == DType.INT32:
        at = writer.preferred(old) or 0
        return Operand(writer.int32(old, at), at, 0, writer.bound(old))
    bound = {DType.INT16: 1 << 15, DType.INT48: 1 << 47}.get(old.dtype, 1 << 31)
    return Operand(writer.plain(old), 0, zero_point, bound)


def _to_int32(writer: BlockWriter, op: AnyOp, scales: list[Fraction]) -> None:
    """A widening RESCALE: made on demand at the exponent its reader can use."""
    operand = _operand(writer, op)
    largest = max(scales)
    bound = scaled_bound(operand.bound, largest)
    wanted = wanted_exponent(largest, min(operand.bits or FACTOR_BITS, FACTOR_BITS))
    exponent = min(wanted, max(exponent_cap(bound), 0))
    if operand.tensor.dtype in (DType.INT16, DType.INT8) and largest > 0:
        # a 31-bit multiplier takes every int16 value only with a shift of 16 or more
        exponent = min(exponent, 30 - INT16_SHIFT + operand.bits - floor_log2(largest))
    per_channel = op.attrs.per_channel  # type: ignore[attr-defined]

    def make(at: int) -> Tensor:
        new_scales = _times(scales, Fraction(2) ** (at - operand.bits))
        width = 16 if operand.tensor.dtype == DType.INT48 else 32
        if operand.tensor.dtype == DType.INT32:
            _, shift = pairs_for(new_scales, 32)
            if _scaled(operand) >= 1 << (min(shift) - 1):
                width = 16  # a 31-bit multiplier would not take every value of the operand
        multiplier, shift = pairs_for(new_scales, width)
        if at:
            writer.note(f"exponent {at}")
        return writer.rescale(
            operand.tensor, DType.INT32, multiplier, shift, op.output, writer.own_name(op.output),
            scale32=width == 32, input_zp=operand.zero_point, output_zp=0, per_channel=per_channel, scales=new_scales,
            suffix=f"_times2e{at}".replace("-", "m"),
        )  # fmt: skip

    writer.set_source(op.output, make, exponent, bound)


def _to_activation(writer: BlockWriter, op: AnyOp, scales: list[Fraction]) -> None:
    """A narrowing RESCALE: to int16, with a CLAMP where int8 saturated."""
    target, zero_point = op.output, _output_zero_point(writer, op)
    low, high = saturation(zero_point, clamp_all=writer.settings.clamp_all)
    averages = op.inputs[0].producer in writer.plan.zero_points.averaging  # and so stays between its operands
    needed = not averages and (low, high) != INT16_RANGE and target not in writer.saturated_by_readers
    new = narrow(writer, op, scales, DType.INT16, f"{target.name}_unclamped" if needed else target.name)
    if needed:
        writer.set_saturated(target, new, zero_point, low, high)
    else:
        writer.set_int16(target, new, zero_point)


def _output_zero_point(writer: BlockWriter, op: AnyOp) -> int:
    """The zero point of the result: behind an averaging RESIZE, which took none away, that of its operand."""
    resize = op.inputs[0].producer
    if resize in writer.plan.zero_points.averaging and resize is not None:
        return scalar(op.inputs[4]) + writer.plan.zero_points[resize.inputs[0]]
    return scalar(op.inputs[4])


INT16_RANGE = (-(1 << 15), (1 << 15) - 1)


def saturation(zero_point: int, *, clamp_all: bool) -> tuple[int, int]:
    """The int16 values where the int8 activation of this zero point ends (only the ends at the zero point, if so)."""
    low = (-128 - zero_point) * FACTOR if clamp_all or zero_point == -128 else INT16_RANGE[0]
    high = (127 - zero_point) * FACTOR if clamp_all or zero_point == 127 else INT16_RANGE[1]
    return low, high


def narrow(
    writer: BlockWriter, op: AnyOp, scales: list[Fraction], dtype: DType, name: str, *, output_zp: int = 0
) -> Tensor:
    """RESCALE to int16 activations, or to what the old operator made (int8, int16), from whatever holds the operand.

    Behind int48 one 16-bit multiplier or two steps; behind int32 a 31-bit multiplier, with a CLAMP in front where the
    operand may exceed what its shift takes.
    """
    operand = _operand(writer, op)
    is_activation = dtype == DType.INT16 and op.output.dtype == DType.INT8
    gain = FACTOR if is_activation else 1
    new_scales = _times(scales, gain / Fraction(2) ** operand.bits)
    limit = _scaled(operand)
    wide = operand.tensor.dtype == DType.INT48
    one_step = wide and writer.settings.rescale_form == "one-step"
    pairs = _fitting_int32(limit, new_scales, output_zp) if one_step else None
    value, zero_point = operand.tensor, operand.zero_point
    if pairs is not None:
        (multiplier, shift), scale32 = pairs, False
        writer.note("one 16-bit multiplier")
    else:
        scale32 = True
        if wide:
            value, drop = _to_int32_first(writer, op, operand)
            new_scales = _times(new_scales, Fraction(1 << drop))
            limit = (limit >> drop) + 1
            writer.note(f"two steps, the first by 2^-{drop}")
        multiplier, shift = pairs_for(new_scales, 32)
        if value.dtype == DType.INT32 and limit >= 1 << (min(shift) - 1):
            value, scale32 = _saturated(writer, op, value, shift, new_scales)
            multiplier, shift = pairs_for(new_scales, 32 if scale32 else 16)
    per_channel = op.attrs.per_channel  # type: ignore[attr-defined]
    new = writer.rescale(
        value, dtype, multiplier, shift, op.output, name,
        scale32=scale32, input_zp=zero_point, output_zp=output_zp, per_channel=per_channel, scales=new_scales,
    )  # fmt: skip
    if not is_activation:
        writer.set_plain(op.output, new)
    return new


def _times(scales: Sequence[Fraction], factor: Fraction) -> list[Fraction]:
    return [scale * factor for scale in scales]


def _fitting_int32(limit: int, scales: Sequence[Fraction], output_zp: int) -> Pairs | None:
    """15-bit multipliers, where all values up to ``limit`` give results that fit INT32; else None."""
    try:
        pairs = pairs_for(scales, 16)
    except InvalidArgument:
        return None
    most = INT32_MAX - 1 - abs(output_zp)
    return pairs if all(limit * m <= most << s for m, s in zip(*pairs, strict=True)) else None


def _to_int32_first(writer: BlockWriter, op: AnyOp, operand: Operand) -> tuple[Tensor, int]:
    """The first of two steps: an int48 value in int32, and by how many bits it was shifted down."""
    drop = 1 if writer.settings.fuses_identity else 0
    while (operand.bound << operand.bits >> drop) + 1 > INT32_MAX:
        drop += 1
    value = writer.rescale(
        operand.tensor, DType.INT32, [1 << 14], [14 + drop], op.inputs[0], scale32=False, suffix="_int32"
    )
    return value, drop


def _saturated(
    writer: BlockWriter, op: AnyOp, value: Tensor, shift: Sequence[int], scales: Sequence[Fraction]
) -> tuple[Tensor, bool]:
    """Clamp an int32 value where the result saturates anyway, since a multiplier does not take all its values.

    Also says whether the clamped value fits a 31-bit multiplier, which takes [-2^(s-1), 2^(s-1)); a 15-bit one takes
    any value whose result fits int32.
    """
    smallest = min(scale for scale in scales if scale > 0)
    end = min(int((INT16_SATURATION + 1) / smallest) + 1, INT32_MAX)
    writer.note(f"operand clamped to +-{end}, beyond which the result saturates")
    clamped = value
    for attrs, limit in ((ops.Maximum, -end), (ops.Minimum, end)):  # there is no CLAMP on int32
        ends = writer.const(np.full((1,) * len(value.shape), limit), DType.INT32, f"{op.output.name}_limit")
        operands = (clamped, ends)
        clamped = writer.emit(
            attrs(NanPropagationMode.PROPAGATE), operands, DType.INT32, op.inputs[0], suffix="_in_range"
        )
    return clamped, end < 1 << (min(shift) - 1)
