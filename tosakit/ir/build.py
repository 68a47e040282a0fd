"""Make detached operators for replacements: constants and the operators most rewrites need, with types worked out."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, RoundingMode
from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import encode


class Builder:
    """Collects new operators in order. Results are named after ``hint`` and renamed when the graph takes them.

    ``location`` and ``origin`` are given to every operator made: rewrites say what they derive an operator from.
    """

    def __init__(self, hint: str, *, location: str | None = None, origin: str | None = None) -> None:
        self.hint = hint
        self.location = location
        self.origin = origin
        self.ops: list[AnyOp] = []

    def op(
        self, attrs: Attributes, inputs: Sequence[Tensor], dtype: DType, shape: Sequence[int], name: str = ""
    ) -> Tensor:
        """Add an operator with one result of the given dtype and shape; returns the result."""
        suffix = name or attrs.NAME.lower()
        result = Tensor(f"{self.hint}_{suffix}", dtype, tuple(int(size) for size in shape))
        self.ops.append(Op(attrs, inputs, (result,), location=self.location, origin=self.origin))
        return result

    def const(self, values: npt.ArrayLike, dtype: DType, name: str = "const") -> Tensor:
        """A CONST of the values' shape. Raises InvalidArgument for a value outside the dtype."""
        array = np.asarray(values)
        result = Tensor(f"{self.hint}_{name}", dtype, array.shape, encode(array, dtype))
        self.ops.append(Op(ops.Const(), (), (result,), location=self.location, origin=self.origin))
        return result

    def const_shape(self, sizes: Sequence[int], name: str = "shape") -> Tensor:
        """A CONST_SHAPE holding ``sizes``."""
        data = encode(np.asarray(sizes, np.int64), DType.SHAPE)
        result = Tensor(f"{self.hint}_{name}", DType.SHAPE, (len(sizes),), data, table="shapes")
        self.ops.append(Op(ops.ConstShape(), (), (result,), location=self.location, origin=self.origin))
        return result

    def rescale(
        self,
        x: Tensor,
        dtype: DType,
        multiplier: npt.ArrayLike,
        shift: npt.ArrayLike,
        *,
        scale32: bool,
        input_zp: int = 0,
        output_zp: int = 0,
        rounding_mode: RoundingMode = RoundingMode.SINGLE_ROUND,
        per_channel: bool | None = None,
        name: str = "rescale",
    ) -> Tensor:
        """RESCALE of ``x`` to ``dtype``, with constants of the dtypes the specification demands.

        ``multiplier`` and ``shift`` are numbers, or one per index of the last axis (``per_channel``, by default where
        more than one is given).
        """
        multipliers, shifts = np.atleast_1d(np.asarray(multiplier)), np.atleast_1d(np.asarray(shift))
        if multipliers.shape != shifts.shape or multipliers.ndim != 1:
            raise InvalidArgument(f"multiplier has shape {multipliers.shape}, shift {shifts.shape}; both must be [C]")
        if per_channel is None:
            per_channel = multipliers.size > 1
        operands = (
            x,
            self.const(multipliers, DType.INT32 if scale32 else DType.INT16, "multiplier"),
            self.const(shifts, DType.INT8, "shift"),
            self.const(np.array([input_zp]), x.dtype, "input_zp"),
            self.const(np.array([output_zp]), dtype, "output_zp"),
        )
        attrs = ops.Rescale(scale32=scale32, rounding_mode=rounding_mode, per_channel=per_channel)
        return self.op(attrs, operands, dtype, x.shape, name)

    def add(self, a: Tensor, b: Tensor, name: str = "add") -> Tensor:
        """ADD of two tensors of one dtype and rank, broadcast."""
        return self.op(ops.Add(), (a, b), a.dtype, np.broadcast_shapes(a.shape, b.shape), name)

    def clamp(self, x: Tensor, low: int, high: int, name: str = "clamp") -> Tensor:
        """CLAMP of an integer tensor to [low, high]."""
        attrs = ops.Clamp(
            min_val=encode(np.array([low]), x.dtype),
            max_val=encode(np.array([high]), x.dtype),
            nan_mode=NanPropagationMode.PROPAGATE,
        )
        return self.op(attrs, (x,), x.dtype, x.shape, name)

    def identity(self, x: Tensor, name: str = "identity") -> Tensor:
        """IDENTITY of a tensor."""
        return self.op(ops.Identity(), (x,), x.dtype, x.shape, name)
