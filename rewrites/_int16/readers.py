"""The RESCALEs that read an accumulator."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rewrites._channels import columns, extent, numbers
from rewrites._int16.plan import real_channels
from rewrites._int16.scaling import Scaling
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.types import BITS, Array
from tosakit.numerics import MAX_SHIFT, MIN_SHIFT, rescale


@dataclass(frozen=True)
class Reader:
    """A RESCALE of an INT32 accumulator: its constants, and the scales they stand for."""

    op: AnyOp
    scaling: Scaling
    scales: tuple[Fraction, ...]

    @property
    def is_exact(self) -> bool:
        """True where the same constants are legal, and mean the same, on INT48."""
        return not self.scaling.scale32

    def meaning(self, accumulators: Array) -> Array:
        """The integers of an exact reader; otherwise the real numbers its constants stand for."""
        if not self.is_exact:
            return real_channels(accumulators, self.scales, (Fraction(0),)) + self.scaling.output_zp
        return rescale(
            accumulators,
            np.array(self.scaling.multiplier),
            np.array(self.scaling.shift),
            scale32=False,
            out_bits=BITS[self.scaling.dtype],
            output_zp=self.scaling.output_zp,
            per_channel=len(self.scaling.multiplier) > 1,
        ).values


@dataclass(frozen=True)
class Readers:
    """Who reads an accumulator: RESCALEs, directly or through these IDENTITY operators, and the others."""

    rescales: tuple[Reader, ...]
    identities: tuple[AnyOp, ...]
    others: tuple[AnyOp, ...]


def readers_of(accumulator: Tensor) -> Readers:
    """Sort the readers of an INT32 accumulator: those whose constants can be moved to INT48, and all others.

    An IDENTITY is looked through; it counts among the others where something else, or nothing, reads its result.
    """
    rescales: list[Reader] = []
    identities: list[AnyOp] = []
    others: list[AnyOp] = []
    todo = [(user, user) for user in reversed(accumulator.users)]
    while todo:
        user, first = todo.pop()
        if isinstance(user.attrs, ops.Identity) and not user.is_stateful:
            identities.append(user)
            todo.extend((each, first) for each in reversed(user.output.users))
            if not user.output.is_used:
                others.append(first)
            continue
        reader = _reader(user, user.attrs) if isinstance(user.attrs, ops.Rescale) else None
        if reader is None:
            others.append(first)
        else:
            rescales.append(reader)
    return Readers(tuple(rescales), tuple(identities), tuple(others))


def _reader(op: AnyOp, attrs: ops.Rescale) -> Reader | None:
    constants = op.inputs[1:]
    if len(constants) != 4 or len(op.outputs) != 1 or not all(t.is_constant and t.data is not None for t in constants):
        return None
    (size, smallest, _), (shifts, least, most), input_zp, (zero_points, output_zp, _) = map(extent, constants)
    double = attrs.rounding_mode == RoundingMode.DOUBLE_ROUND and attrs.scale32
    wanted = op.output.shape[-1] if attrs.per_channel and op.output.shape else 1
    if (
        attrs.input_unsigned
        or attrs.output_unsigned
        or op.output.dtype not in (DType.INT8, DType.INT16, DType.INT32)
        or not (double or attrs.rounding_mode == RoundingMode.SINGLE_ROUND)
        or not size == shifts == wanted
        or input_zp != (1, 0, 0)
        or zero_points != 1
        or smallest <= 0
        or not MIN_SHIFT <= least <= most <= MAX_SHIFT
    ):
        return None
    pairs = list(columns(numbers(constants[0]), numbers(constants[1])))
    multiplier, shift = zip(*pairs, strict=True)
    scales = tuple(Fraction(m, 1 << s) for m, s in pairs)
    return Reader(op, Scaling(multiplier, shift, attrs.scale32, op.output.dtype, output_zp), scales)
