"""Make detached operators for replacements: constants and the operators most rewrites need, with types worked out."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, RoundingMode
from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import encode, encode_number

LONGEST_LIST = 64
"""Tensors that CONCAT takes at level 8K (MAX_TENSOR_LIST_SIZE)."""

_CONST = ops.Const()
_CONST_SHAPE = ops.ConstShape()


@lru_cache(maxsize=1 << 12)
def _encoded_sizes(sizes: tuple[int, ...]) -> bytes:
    return encode(np.array(sizes, np.int64), DType.SHAPE)


@lru_cache(maxsize=1 << 12)
def broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an elementwise result. Raises ValueError where the two do not broadcast."""
    return np.broadcast_shapes(first, second)


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
        result = Tensor(f"{self.hint}_{suffix}", dtype, tuple([int(size) for size in shape]))
        self.ops.append(Op(attrs, inputs, (result,), location=self.location, origin=self.origin))
        return result

    def const(self, values: npt.ArrayLike, dtype: DType, name: str = "const") -> Tensor:
        """A CONST of the values' shape. Raises InvalidArgument for a value outside the dtype."""
        array = np.asarray(values)
        return self._constant(encode(array, dtype), dtype, array.shape, name)

    def number(self, value: int, dtype: DType, rank: int = 1, name: str = "const") -> Tensor:
        """A CONST of one element and ``rank`` axes. Raises InvalidArgument for a value outside the dtype."""
        return self._constant(encode_number(value, dtype), dtype, (1,) * rank, name)

    def _constant(self, data: bytes, dtype: DType, shape: tuple[int, ...], name: str) -> Tensor:
        result = Tensor(f"{self.hint}_{name}", dtype, shape, data)
        self.ops.append(Op(_CONST, (), (result,), location=self.location, origin=self.origin))
        return result

    def const_shape(self, sizes: Sequence[int], name: str = "shape") -> Tensor:
        """A CONST_SHAPE holding ``sizes``."""
        data = _encoded_sizes(tuple(sizes))
        result = Tensor(f"{self.hint}_{name}", DType.SHAPE, (len(sizes),), data, table="shapes")
        self.ops.append(Op(_CONST_SHAPE, (), (result,), location=self.location, origin=self.origin))
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
        wide = DType.INT32 if scale32 else DType.INT16
        if not (isinstance(multiplier, int) and isinstance(shift, int)):
            multipliers, shifts = np.array(multiplier, ndmin=1), np.array(shift, ndmin=1)
            if multipliers.shape != shifts.shape or multipliers.ndim != 1:
                raise InvalidArgument(
                    f"multiplier has shape {multipliers.shape}, shift {shifts.shape}; both must be [C]"
                )
            multiplier, shift = (a.item() if a.size == 1 else a for a in (multipliers, shifts))
        if isinstance(multiplier, int) and isinstance(shift, int):
            pair = self.number(multiplier, wide, name="multiplier"), self.number(shift, DType.INT8, name="shift")
        else:
            pair = self.const(multiplier, wide, "multiplier"), self.const(shift, DType.INT8, "shift")
            per_channel = np.size(multiplier) > 1 if per_channel is None else per_channel
        zero_points = self.number(input_zp, x.dtype, name="input_zp"), self.number(output_zp, dtype, name="output_zp")
        attrs = ops.Rescale(scale32=scale32, rounding_mode=rounding_mode, per_channel=bool(per_channel))
        return self.op(attrs, (x, *pair, *zero_points), dtype, x.shape, name)

    def add(self, a: Tensor, b: Tensor, name: str = "add") -> Tensor:
        """ADD of two tensors of one dtype and rank, broadcast."""
        return self.op(ops.Add(), (a, b), a.dtype, broadcast(a.shape, b.shape), name)

    def clamp(self, x: Tensor, low: int, high: int, name: str = "clamp") -> Tensor:
        """CLAMP of an integer tensor to [low, high]."""
        attrs = ops.Clamp(
            min_val=encode_number(low, x.dtype),
            max_val=encode_number(high, x.dtype),
            nan_mode=NanPropagationMode.PROPAGATE,
        )
        return self.op(attrs, (x,), x.dtype, x.shape, name)

    def reshape(self, x: Tensor, shape: Sequence[int], name: str = "reshape") -> Tensor:
        """RESHAPE of a tensor to a static shape."""
        return self.op(ops.Reshape(), (x, self.const_shape(shape)), x.dtype, shape, name)

    def transpose(self, x: Tensor, perms: Sequence[int], name: str = "transpose") -> Tensor:
        """TRANSPOSE of a tensor: result axis i is operand axis ``perms[i]``."""
        return self.op(ops.Transpose(perms=tuple(perms)), (x,), x.dtype, [x.shape[axis] for axis in perms], name)

    def slice(self, x: Tensor, start: Sequence[int], size: Sequence[int], name: str = "slice") -> Tensor:
        """SLICE of a tensor."""
        operands = (x, self.const_shape(start, "start"), self.const_shape(size, "size"))
        return self.op(ops.Slice(), operands, x.dtype, size, name)

    def concat(self, tensors: Sequence[Tensor], axis: int, name: str = "concat") -> Tensor:
        """CONCAT of tensors of one dtype, alike in all axes but ``axis``; of many, one of CONCATs; of one, itself."""
        if len(tensors) == 1:
            return tensors[0]
        while len(tensors) > LONGEST_LIST:
            groups = [tensors[at : at + LONGEST_LIST] for at in range(0, len(tensors), LONGEST_LIST)]
            tensors = [self.concat(group, axis, name) for group in groups]
        shape = list(tensors[0].shape)
        shape[axis] = sum(t.shape[axis] for t in tensors)
        return self.op(ops.Concat(axis=axis), tensors, tensors[0].dtype, shape, name)

    def pad(self, x: Tensor, before_after: Sequence[tuple[int, int]], value: int, name: str = "pad") -> Tensor:
        """PAD of a tensor with ``value``: how much before and after, per axis."""
        padding = self.const_shape([amount for axis in before_after for amount in axis], "padding")
        shape = [size + sum(axis) for size, axis in zip(x.shape, before_after, strict=True)]
        return self.op(ops.Pad(), (x, padding, self.number(value, x.dtype, name="pad_const")), x.dtype, shape, name)

    def identity(self, x: Tensor, name: str = "identity") -> Tensor:
        """IDENTITY of a tensor."""
        return self.op(ops.Identity(), (x,), x.dtype, x.shape, name)
