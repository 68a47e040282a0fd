"""What the rules about INT48 accumulators share: who reads one, and the numbers of the RESCALEs that do.

S16 below is a RESCALE with ``scale32`` false, the only form that TOSA lets read INT48; (m, s) are its multiplier and
shift, and ``R`` is its rounding, ``R(x) = floor(x + 1/2)``.
"""

from dataclasses import dataclass, replace

import numpy as np

from rewrites._channels import (
    Numbers,
    clipped,
    columns,
    constant,
    extent,
    is_one,
    joined,
    least,
    most,
    numbers,
)
from tosakit.backend.targets import BIAS_BITS, SMALL, U85, family
from tosakit.engine.rule import Refusal, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.operator import Exit
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.intervals import Interval
from tosakit.numerics.rescale import required_limits
from tosakit.numerics.scale import MAX_SHIFT, MIN_SHIFT

CONVOLUTIONS = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d)
"""Operators with a bias whose INT16 form accumulates in INT48."""

ACCUMULATORS = {DType.INT8: DType.INT32, DType.INT16: DType.INT48}
"""What a convolution sums INT8 and INT16 up in."""

ONE, ONE_SHIFT = 1 << 14, 14
"""The S16 pair of scale one: it copies every INT48 value that fits INT32."""

BIAS_LOW, BIAS_HIGH = -(1 << (BIAS_BITS - 1)), (1 << (BIAS_BITS - 1)) - 1
"""What Ethos-U55 and U65 keep of a bias; they drop the other bits without a word."""


def is_small_ethos_u(target: str) -> bool:
    """True for Ethos-U55 and U65, which keep few bits of a bias and take one RESCALE per accumulator only."""
    return family(target) in SMALL


def is_ethos_u85(target: str) -> bool:
    """True for Ethos-U85, whose compiler cuts a 31-bit multiplier directly behind the RESCALE (ONE, ONE_SHIFT)."""
    return family(target) == U85


@dataclass(frozen=True, eq=False)
class Reader:
    """A legal RESCALE on INT48. ``multiplier`` and ``shift`` are integers, or have shape [C] over the last axis."""

    op: Op[ops.Rescale]
    multiplier: Numbers
    shift: Numbers
    output_zp: int

    @property
    def is_one(self) -> bool:
        """True where every channel's scale is exactly one."""
        return is_one(self.multiplier, self.shift)

    @property
    def name(self) -> str:
        """The operator, for people."""
        return describe(self.op)


@dataclass(frozen=True, eq=False)
class Readers:
    """All that reads an accumulator: RESCALEs, directly or through the IDENTITY operators listed beside them."""

    rescales: tuple[Reader, ...]
    identities: tuple[AnyOp, ...]

    @property
    def covers(self) -> tuple[AnyOp, ...]:
        """The readers and what lies between them and the accumulator."""
        return (*self.identities, *(reader.op for reader in self.rescales))


def readers_of(accumulator: Tensor) -> Readers | Refusal:
    """Every RESCALE that reads ``accumulator``; a Refusal where something else does, or a RESCALE is not legal."""
    rescales: list[Reader] = []
    identities: list[AnyOp] = []
    tensors = [accumulator]
    for tensor in tensors:  # grows while it runs
        for user in tensor.users:
            if isinstance(user.attrs, ops.Identity):
                identities.append(user)
                tensors.append(user.output)
            elif isinstance(user.attrs, ops.Rescale) and tensor is user.inputs[0]:
                reader = read_rescale(user)  # type: ignore[arg-type]
                if isinstance(reader, Refusal):
                    return reader
                rescales.append(reader)
            elif isinstance(user.attrs, Exit):
                return Refusal(f'the accumulator "{tensor.name}" is a block output, so its value must stay as it is')
            else:
                return Refusal(f'the accumulator "{tensor.name}" is also read by {describe(user)}, not to be rescaled')
    return Readers(tuple(rescales), tuple(identities))


def read_rescale(op: Op[ops.Rescale]) -> Reader | Refusal:
    """The numbers of a RESCALE on INT48; a Refusal where it is not legal or its numbers are not constants."""
    wrong = fault(op)
    if wrong is not None:
        return Refusal(f"{describe(op)} is not a legal reader of INT48: {wrong}; legalize_int48_rescale repairs it")
    if op.attrs.rounding_mode != RoundingMode.SINGLE_ROUND:
        return Refusal(f"{describe(op)} has {op.attrs.rounding_mode.name}, whose results are not fixed")
    constants = op.inputs[1:]
    for operand, tensor in zip(op.attrs.OPERANDS[1:], constants, strict=True):
        if not tensor.is_constant:
            return Refusal(f'{operand} "{tensor.name}" of {describe(op)} is no constant')
    multiplier, shift, _, output_zp = constants
    return Reader(op, numbers(multiplier), numbers(shift), least(numbers(output_zp)))


def fault(op: Op[ops.Rescale]) -> str | None:
    """What makes a RESCALE illegal on INT48 (its dtype apart), the first thing only; None for a legal one."""
    attrs, inputs = op.attrs, op.inputs
    if len(inputs) != len(attrs.OPERANDS):
        return f"it has {len(inputs)} operands, not {len(attrs.OPERANDS)}"
    if attrs.scale32:
        return "it has scale32"
    if attrs.rounding_mode in (RoundingMode.UNKNOWN, RoundingMode.DOUBLE_ROUND):
        return f"its rounding mode is {attrs.rounding_mode.name}"
    if attrs.input_unsigned or attrs.output_unsigned:
        return "its input or output is unsigned"
    x, multiplier, shift, input_zp, output_zp = inputs
    dtypes = (DType.INT16, DType.INT8, x.dtype, op.output.dtype)
    for operand, tensor, dtype in zip(attrs.OPERANDS[1:], inputs[1:], dtypes, strict=True):
        if tensor.dtype != dtype:
            return f"{operand} has dtype {tensor.dtype.name}, not {dtype.name}"
    channels = x.shape[-1] if attrs.per_channel and x.shape else 1
    limits = ("multiplier", multiplier, 0, (1 << 15) - 1), ("shift", shift, MIN_SHIFT, MAX_SHIFT)
    for operand, tensor, low, high in limits:
        size, smallest, largest = extent(tensor) if tensor.is_constant else (channels, low, high)
        if size != channels:
            return f"{operand} has {size} values where {channels} are needed"
        if size and not low <= smallest <= largest <= high:
            return f"{operand} {smallest if smallest < low else largest} is outside [{low}, {high}]"
    for operand, tensor in (("input_zp", input_zp), ("output_zp", output_zp)):
        size, smallest, largest = extent(tensor) if tensor.is_constant else (1, 0, 0)
        if size != 1 or (tensor.dtype != DType.INT8 and (smallest or largest)):
            return f"{operand} is {tensor.values().reshape(-1).astype(np.int64).tolist()}, not [0]"
    return None


def rescale_again(builder: Builder, reader: Reader, x: Tensor, pre_shift: Numbers = 0) -> Tensor:
    """The reader's own RESCALE, reading ``x`` instead: INT48, or INT32 in units of 2^pre_shift.

    Constants that stay as they are are read again; an input zero point has the dtype of ``x`` and is made anew.
    """
    old, multiplier, shift, input_zp, output_zp = reader.op.inputs
    attrs = reader.op.attrs
    builder.location = reader.op.location
    if most(pre_shift):
        shifts = reader.shift - pre_shift
        if isinstance(reader.multiplier, int) and not isinstance(shifts, int):
            multipliers = np.full(shifts.shape, reader.multiplier)
            multiplier, attrs = builder.const(multipliers, DType.INT16, "multiplier"), replace(attrs, per_channel=True)
        shift = constant(builder, shifts, DType.INT8, "shift")
    if x.dtype != old.dtype:
        input_zp = builder.number(0, x.dtype, name="input_zp")
    result = reader.op.output
    return builder.op(attrs, (x, multiplier, shift, input_zp, output_zp), result.dtype, result.shape)


def narrowed(builder: Builder, accumulator: Tensor, pre_shift: Numbers) -> Tensor:
    """A RESCALE of INT48 to INT32, in units of 2^pre_shift."""
    ones = ONE if isinstance(pre_shift, int) else np.full(pre_shift.shape, ONE)
    return builder.rescale(accumulator, DType.INT32, ones, ONE_SHIFT + pre_shift, scale32=False, name="int32")


def clipped_to_int48(interval: Interval) -> tuple[Numbers, Numbers]:
    """The bounds of an accumulator; one outside INT48 is unpredictable, so they end there."""
    limits = INTEGER_RANGES[DType.INT48]
    if interval.within(*limits):
        return interval.low, interval.high
    return clipped(interval.low, *limits), clipped(interval.high, *limits)


def pre_shifts(low: Numbers, high: Numbers, addend: Numbers) -> Numbers:
    """The smallest j of each channel, or the one of all, for which values, ``addend`` and their sum fit INT32.

    They count in units of 2^j; the values reach from ``low`` to ``high``.
    """
    lowest, highest = least(low), most(high)
    if all([_sums_fit_int32(lowest, highest, extreme, 0) for extreme in (least(addend), most(addend))]):
        return 0
    return joined([_pre_shift(*channel) for channel in columns(low, high, addend)])


def _pre_shift(low: int, high: int, addend: int) -> int:
    j = max(max(abs(low), abs(high), abs(addend)).bit_length() - 32, 0)  # with less, 33 bits are left
    while not _sums_fit_int32(low, high, addend, j):
        j += 1
    return j


def _sums_fit_int32(low: int, high: int, addend: int, j: int) -> bool:
    half = 1 << j >> 1
    a, b, c = (low + half) >> j, (high + half) >> j, (addend + half) >> j
    first, last = INTEGER_RANGES[DType.INT32]
    return first <= min(a, c, a + c) and max(b, c, b + c) <= last


def within_int48(low: int, high: int) -> bool:
    """True where both numbers are INT48 values."""
    first, last = INTEGER_RANGES[DType.INT48]
    return first <= low and high <= last


def outside_required_range(
    low: Numbers, high: Numbers, multiplier: Numbers, shift: Numbers, *, scale32: bool, output_zp: int
) -> str | None:
    """Why values between ``low`` and ``high`` (by channel) may break a REQUIRE of RESCALE; None where they cannot."""
    first, last = required_limits(most(multiplier), least(shift), scale32=scale32, output_zp=output_zp)  # the narrowest
    if first <= least(low) and most(high) <= last:
        return None
    channels = list(columns(low, high, multiplier, shift))
    for channel, (at_least, at_most, m, s) in enumerate(channels):
        first, last = required_limits(m, s, scale32=scale32, output_zp=output_zp)
        if at_least < first or at_most > last:
            where = f" in channel {channel}" if len(channels) > 1 else ""
            return (
                f"its values reach from {at_least} to {at_most}{where}, but RESCALE with multiplier {m} and shift {s} "
                f"is defined from {first} to {last} only"
            )
    return None


def why_not_shifted(reader: Reader, low: Numbers, high: Numbers, pre_shift: Numbers) -> str | None:
    """Why a reader cannot take INT32 values between ``low`` and ``high``, in units of 2^pre_shift.

    Channels without a pre-shift compute what they always did.
    """
    shift = reader.shift - pre_shift
    if least(shift) < MIN_SHIFT:
        s, j = next((s, j) for s, j in columns(reader.shift, pre_shift) if s - j == least(shift))
        return f"{reader.name} has a shift of {s}, too small to take {j} off"
    low, high = low * (pre_shift > 0), high * (pre_shift > 0)
    reason = outside_required_range(low, high, reader.multiplier, shift, scale32=False, output_zp=reader.output_zp)
    return None if reason is None else f"{reader.name} cannot read units of 2^{most(pre_shift)}: {reason}"


def saturates_at(dtype: DType, output_zp: int) -> int:
    """The largest ``|result - zero point|`` that a signed integer output shows before it saturates."""
    low, high = INTEGER_RANGES[dtype]
    return max(output_zp - low, high - output_zp)
