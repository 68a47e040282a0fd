"""RESCALE: flags, per-channel lengths, zero points, multipliers and shifts."""

from collections.abc import Mapping

from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.numerics.scale import MAX_SHIFT, MIN_SHIFT
from tosakit.spec.call import Call, Harmless
from tosakit.spec.operators.zero_points import is_harmless

HARMLESS: Mapping[str, Harmless] = {
    "multiplier": lambda _, low, __: low >= 0,
    "shift": lambda _, low, high: low >= MIN_SHIFT and high <= MAX_SHIFT,
    "input_zp": is_harmless,
    "output_zp": is_harmless,
}


def rescale(call: Call[ops.Rescale]) -> None:
    """RESCALE."""
    attrs, source = call.attrs, call.dtype("input")
    if attrs.rounding_mode == RoundingMode.DOUBLE_ROUND and not attrs.scale32:
        call.error("ScaleNotTrue", "rounding_mode is DOUBLE_ROUND, which needs scale32")
    if source == DType.INT48 and attrs.scale32:
        message = "the operand is INT48 and scale32 is true; use 16-bit multipliers with scale32 false"
        call.error("ScaleTrue", message, "input")
    _check_unsigned(call)
    _check_channels(call)
    _check_zero_points(call)
    _check_multipliers(call)


def _check_unsigned(call: Call[ops.Rescale]) -> None:
    attrs, source, target = call.attrs, call.dtype("input"), call.dtype("output_zp")
    wide = {DType.INT32: "I32", DType.INT48: "I48"}.get(source)
    if attrs.input_unsigned and attrs.output_unsigned:
        call.error("RescaleInputUnsignedOutputUnsigned", "input_unsigned and output_unsigned are both true")
    if target == DType.INT32 and attrs.input_unsigned:
        call.error("RescaleI32OutputInputUnsigned", "the result is INT32 and input_unsigned is true")
    if target == DType.INT32 and attrs.output_unsigned:
        call.error("RescaleI32OutputUnsigned", "the result is INT32 and output_unsigned is true")
    if wide and attrs.output_unsigned:
        call.error(f"Rescale{wide}InputOutputUnsigned", f"the operand is {source.name} and output_unsigned is true")
    if wide and attrs.input_unsigned:
        call.error(f"Rescale{wide}InputUnsigned", f"the operand is {source.name} and input_unsigned is true")


def _check_channels(call: Call[ops.Rescale]) -> None:
    shape, length = call.shape("shape"), call.size("NC")
    channels: int | None = 1
    if call.attrs.per_channel:
        if shape == ():
            call.error("RescalePerChannelRank0", "per_channel is true, the operand has rank 0", "input")
            return
        channels = shape[-1] if shape else None
    if None not in (channels, length) and channels != length:
        what = f"the last axis has size {channels}" if call.attrs.per_channel else "per_channel is false"
        message = f"multiplier and shift have {length} values, {what}"
        call.error("OperandShapeMismatch", message, "multiplier", "shift")


def _check_zero_points(call: Call[ops.Rescale]) -> None:
    attrs = call.attrs
    sides = (
        ("input_zp", "Input", call.dtype("input"), attrs.input_unsigned),
        ("output_zp", "Output", call.dtype("output_zp"), attrs.output_unsigned),
    )
    for name, side, dtype, unsigned in sides:
        values = call.integers(name)
        if not values or dtype == DType.INT8:
            continue
        value = values[0]
        if dtype == DType.INT16 and unsigned:
            if value not in (0, -(1 << 15)):
                message = f"{name} is {value & 0xFFFF}, an unsigned 16-bit zero point must be 0 or 32768"
                call.error(f"U16{side}ZeroPointNotValid", message, name)
        elif value:
            message = f"{name} is {value}, it must be 0 for {dtype.name}"
            call.error(f"{side}ZeroPointNotZero", message, name)


def _check_multipliers(call: Call[ops.Rescale]) -> None:
    needed = DType.INT32 if call.attrs.scale32 else DType.INT16
    dtype = call.dtype("multiplier")
    if dtype not in (needed, DType.UNKNOWN):
        scale32 = str(call.attrs.scale32).lower()
        message = f"multiplier is {dtype.name}, with scale32 {scale32} it must be {needed.name}"
        call.error("WrongInputType", message, "multiplier")
    multipliers, shifts = call.integers("multiplier"), call.integers("shift")
    if multipliers and min(multipliers) < 0:
        channel = multipliers.index(min(multipliers))
        message = f"multiplier of channel {channel} is {multipliers[channel]}, it must not be negative"
        call.error("RescaleMultiplierNegative", message, "multiplier")
    for channel, shift in enumerate(shifts or ()):
        if not MIN_SHIFT <= shift <= MAX_SHIFT:
            message = f"shift of channel {channel} is {shift}, it must be {MIN_SHIFT} to {MAX_SHIFT}"
            call.error("RescaleShiftOutOfRange", message, "shift")
            break
