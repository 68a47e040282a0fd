"""The RESCALEs that read an accumulator."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

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


def rescale_readers(tensor: Tensor) -> list[Reader]:
    """The RESCALEs among the readers of ``tensor`` whose constants can be moved to an INT48 accumulator."""
    readers = []
    for user in tensor.users:
        if isinstance(user.attrs, ops.Rescale) and len(user.inputs) == 5 and len(user.outputs) == 1:
            reader = _reader(user, user.attrs)
            if reader is not None and user.inputs[0] is tensor:
                readers.append(reader)
    return readers


def _reader(op: AnyOp, attrs: ops.Rescale) -> Reader | None:
    constants = op.inputs[1:]
    if not all(t.is_constant and t.data is not None for t in constants):
        return None
    multiplier, shift, input_zp, output_zp = (t.values().astype(np.int64).reshape(-1) for t in constants)
    double = attrs.rounding_mode == RoundingMode.DOUBLE_ROUND and attrs.scale32
    wanted = op.output.shape[-1] if attrs.per_channel and op.output.shape else 1
    if (
        attrs.input_unsigned
        or attrs.output_unsigned
        or op.output.dtype not in (DType.INT8, DType.INT16, DType.INT32)
        or not (double or attrs.rounding_mode == RoundingMode.SINGLE_ROUND)
        or not multiplier.size == shift.size == wanted
        or not input_zp.size == output_zp.size == 1
        or input_zp[0] != 0
        or (multiplier <= 0).any()
        or (shift < MIN_SHIFT).any()
        or (shift > MAX_SHIFT).any()
    ):
        return None
    scaling = Scaling(
        tuple(multiplier.tolist()), tuple(shift.tolist()), attrs.scale32, op.output.dtype, int(output_zp[0])
    )
    scales = tuple(Fraction(m, 1 << s) for m, s in zip(scaling.multiplier, scaling.shift, strict=True))
    return Reader(op, scaling, scales)
