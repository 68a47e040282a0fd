"""What the rules about INT48 accumulators share: who reads one, and the numbers of the RESCALEs that do.

S16 below is a RESCALE with ``scale32`` false, the only form that TOSA lets read INT48; (m, s) are its multiplier and
shift, and ``R`` is its rounding, ``R(x) = floor(x + 1/2)``.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tosakit.backend.targets import BIAS_BITS, SMALL, U85, family
from tosakit.engine.rule import Refusal, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.operator import Exit
from tosakit.ir.types import INTEGER_RANGES, SHORT, Array, decode
from tosakit.numerics.intervals import Interval
from tosakit.numerics.rescale import required_range
from tosakit.numerics.scale import MAX_SHIFT, MIN_SHIFT

Integers = npt.NDArray[np.int64]

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
    """A legal RESCALE on INT48. ``multiplier`` and ``shift`` have shape [1], or [C] over the last axis."""

    op: Op[ops.Rescale]
    multiplier: Integers
    shift: Integers
    output_zp: int

    @property
    def is_one(self) -> bool:
        """True where every channel's scale is exactly one."""
        return bool((self.multiplier == np.int64(1) << self.shift).all())

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
    wrong = faults(op)
    if wrong:
        return Refusal(f"{describe(op)} is not a legal reader of INT48: {wrong[0]}; legalize_int48_rescale repairs it")
    if op.attrs.rounding_mode != RoundingMode.SINGLE_ROUND:
        return Refusal(f"{describe(op)} has {op.attrs.rounding_mode.name}, whose results are not fixed")
    constants = op.inputs[1:]
    for operand, tensor in zip(op.attrs.OPERANDS[1:], constants, strict=True):
        if not tensor.is_constant:
            return Refusal(f'{operand} "{tensor.name}" of {describe(op)} is no constant')
    multiplier, shift, _, output_zp = (integers(tensor) for tensor in constants)
    return Reader(op, multiplier, shift, int(output_zp[0]))


def integers(tensor: Tensor) -> Integers:
    """The values of an integer constant as int64, in one dimension."""
    return tensor.values().reshape(-1).astype(np.int64)


def faults(op: Op[ops.Rescale]) -> list[str]:
    """What makes a RESCALE illegal on INT48 (its dtype apart), one clause each; [] for a legal one."""
    attrs, inputs = op.attrs, op.inputs
    if len(inputs) != len(attrs.OPERANDS):
        return [f"it has {len(inputs)} operands, not {len(attrs.OPERANDS)}"]
    x, result = inputs[0], op.output
    found = ["it has scale32"] if attrs.scale32 else []
    if attrs.rounding_mode in (RoundingMode.UNKNOWN, RoundingMode.DOUBLE_ROUND):
        found.append(f"its rounding mode is {attrs.rounding_mode.name}")
    if attrs.input_unsigned or attrs.output_unsigned:
        found.append("its input or output is unsigned")
    dtypes = (DType.INT16, DType.INT8, x.dtype, result.dtype)
    for operand, tensor, dtype in zip(attrs.OPERANDS[1:], inputs[1:], dtypes, strict=True):
        if tensor.dtype != dtype:
            found.append(f"{operand} has dtype {tensor.dtype.name}, not {dtype.name}")
    channels = x.shape[-1] if attrs.per_channel and x.shape else 1
    for operand, tensor, low, high in (
        ("multiplier", inputs[1], 0, (1 << 15) - 1),
        ("shift", inputs[2], MIN_SHIFT, MAX_SHIFT),
    ):
        if tensor.is_constant:
            size, least, most = _extent(tensor)
            if size != channels:
                found.append(f"{operand} has {size} values where {channels} are needed")
            if size and not low <= least <= most <= high:
                found.append(f"{operand} {least if least < low else most} is outside [{low}, {high}]")
    for operand, tensor, dtype in (("input_zp", inputs[3], x.dtype), ("output_zp", inputs[4], result.dtype)):
        size, least, most = _extent(tensor) if tensor.is_constant else (1, 0, 0)
        if size != 1 or (dtype != DType.INT8 and (least or most)):
            found.append(f"{operand} is {integers(tensor).tolist()}, not [0]")
    return found


def _extent(tensor: Tensor) -> tuple[int, int, int]:
    """How many values a constant has, the smallest and the largest."""
    data = tensor.data
    if isinstance(data, bytes) and len(data) <= SHORT:
        return _short_extent(data, tensor.dtype, tensor.shape)
    return _measured(tensor.values())


def _measured(values: Array) -> tuple[int, int, int]:
    return (values.size, int(values.min()), int(values.max())) if values.size else (0, 0, 0)


@lru_cache(maxsize=1 << 14)
def _short_extent(data: bytes, dtype: DType, shape: tuple[int, ...]) -> tuple[int, int, int]:
    return _measured(decode(data, dtype, shape))


def rescale_again(builder: Builder, reader: Reader, x: Tensor, pre_shift: Integers | None = None) -> Tensor:
    """The reader's own RESCALE, reading ``x`` instead: INT48, or INT32 in units of 2^pre_shift (None: of one).

    Constants that stay as they are are read again; an input zero point has the dtype of ``x`` and is made anew.
    """
    old, multiplier, shift, input_zp, output_zp = reader.op.inputs
    attrs = reader.op.attrs
    builder.location = reader.op.location
    if pre_shift is not None and pre_shift.any():
        shifts = reader.shift - pre_shift
        if shifts.size > reader.multiplier.size:
            multipliers = np.broadcast_to(reader.multiplier, shifts.shape)
            multiplier, attrs = builder.const(multipliers, DType.INT16, "multiplier"), replace(attrs, per_channel=True)
        shift = builder.const(shifts, DType.INT8, "shift")
    if x.dtype != old.dtype:
        input_zp = builder.number(0, x.dtype, name="input_zp")
    result = reader.op.output
    return builder.op(attrs, (x, multiplier, shift, input_zp, output_zp), result.dtype, result.shape)


def rounded(values: Integers, shift: Integers | int) -> Integers:
    """``R(values / 2**shift)``."""
    return (values + (np.int64(1) << shift >> 1)) >> shift


def clipped_to_int48(interval: Interval) -> tuple[Integers, Integers]:
    """The bounds as arrays of shape [1] or [C]; an accumulator outside INT48 is unpredictable, so they end there."""
    least, most = INTEGER_RANGES[DType.INT48]
    low, high = (
        np.array([min(max(bound, least), most)], np.int64)
        if isinstance(bound, int)
        else np.minimum(np.maximum(bound, least), most)
        for bound in (interval.low, interval.high)
    )
    return low, high


def fits_int32(values: Integers) -> npt.NDArray[np.bool_]:
    """True, element by element, where a number is an INT32 value."""
    low, high = INTEGER_RANGES[DType.INT32]
    return (values >= low) & (values <= high)


def pre_shifts(low: Integers, high: Integers, addend: Integers) -> Integers:
    """The smallest j of each channel, or the one of all, for which values, ``addend`` and their sum fit INT32.

    They count in units of 2^j; the values reach from ``low`` to ``high``.
    """
    fits: list[npt.NDArray[np.bool_]] = []
    for j in range(20):  # 18 is enough for INT48
        a, b, c = (rounded(values, j) for values in (low, high, addend))
        fits.append(fits_int32(np.minimum(np.minimum(a, c), a + c)) & fits_int32(np.maximum(np.maximum(b, c), b + c)))
        if fits[-1].all():
            break
    shifts: Integers = np.argmax(fits, axis=0)
    return shifts[:1] if (shifts == shifts[0]).all() else shifts


def within_int48(low: int, high: int) -> bool:
    """True where both numbers are INT48 values."""
    least, most = INTEGER_RANGES[DType.INT48]
    return least <= low and high <= most


def outside_required_range(
    low: Integers, high: Integers, multiplier: Integers, shift: Integers, *, scale32: bool, output_zp: int
) -> str | None:
    """Why values between ``low`` and ``high`` (by channel) may break a REQUIRE of RESCALE; None where they cannot."""
    smallest, largest = required_range(multiplier, shift, scale32=scale32, output_zp=output_zp)
    if (low >= smallest).all() and (high <= largest).all():
        return None
    arrays = np.broadcast_arrays(low, high, multiplier, shift, smallest, largest)
    for channel, (at_least, at_most, m, s, first, last) in enumerate(zip(*(a.tolist() for a in arrays), strict=True)):
        if at_least < first or at_most > last:
            where = f" in channel {channel}" if len(arrays[0]) > 1 else ""
            return (
                f"its values reach from {at_least} to {at_most}{where}, but RESCALE with multiplier {m} and shift {s} "
                f"is defined from {first} to {last} only"
            )
    return None


def why_not_shifted(reader: Reader, low: Integers, high: Integers, pre_shift: Integers) -> str | None:
    """Why a reader cannot take INT32 values between ``low`` and ``high``, in units of 2^pre_shift.

    Channels without a pre-shift compute what they always did.
    """
    shift = reader.shift - pre_shift
    least = int(shift.argmin())
    if shift[least] < MIN_SHIFT:
        s, j = (numbers[min(least, numbers.size - 1)] for numbers in (reader.shift, pre_shift))
        return f"{reader.name} has a shift of {s}, too small to take {j} off"
    low, high = np.where(pre_shift > 0, low, 0), np.where(pre_shift > 0, high, 0)
    multiplier = np.broadcast_to(reader.multiplier, shift.shape)
    reason = outside_required_range(low, high, multiplier, shift, scale32=False, output_zp=reader.output_zp)
    return None if reason is None else f"{reader.name} cannot read units of 2^{pre_shift.max()}: {reason}"


def saturates_at(dtype: DType, output_zp: int) -> int:
    """The largest ``|result - zero point|`` that a signed integer output shows before it saturates."""
    low, high = INTEGER_RANGES[dtype]
    return max(output_zp - low, high - output_zp)
