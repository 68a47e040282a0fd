"""The operators that read or give BOOL, in INT32 arithmetic on 0 and 1; the rule bool_as_int32 has the equations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rewrites._bool_island import LOGIC, MOVES, REDUCTIONS
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes

MAXIMUM = ops.Maximum(nan_mode=NanPropagationMode.PROPAGATE)
MINIMUM = ops.Minimum(nan_mode=NanPropagationMode.PROPAGATE)


@dataclass
class Form:
    """The operators of an island in integers.

    ``fitting`` are the pairs whose difference is proved to fit INT32, ``extremes`` the SELECTs to write as MAXIMUM or
    MINIMUM. ``made`` has the new tensor of every old one, BOOL ones as INT32.
    """

    builder: Builder
    fitting: Mapping[tuple[Tensor, ...], None]
    extremes: Mapping[AnyOp, Attributes]
    made: dict[Tensor, Tensor] = field(default_factory=dict)

    def of(self, op: AnyOp) -> Tensor:
        """The result of one operator, whose operands are made already."""
        if isinstance(op.attrs, ops.Cast):
            return self.cast(op)
        if op in self.extremes:
            return self.binary(self.extremes[op], self.operand(op.inputs[1]), self.operand(op.inputs[2]))
        inputs = [self.operand(tensor) for tensor in op.inputs]
        if isinstance(op.attrs, ops.Select):
            return self.select(op, inputs)
        if isinstance(op.attrs, MOVES):
            return self.builder.op(op.attrs, inputs, DType.INT32, op.output.shape)
        if isinstance(op.attrs, REDUCTIONS):
            return self.reduce(op.attrs, inputs[0], op.output.shape)
        if isinstance(op.attrs, LOGIC):
            return self.logic(op.attrs, inputs)
        return self.compare(op, inputs)

    def operand(self, tensor: Tensor) -> Tensor:
        """The new tensor of an old one; those from outside the island stay."""
        if tensor not in self.made and tensor.dtype == DType.BOOL:
            self.made[tensor] = self.builder.const(tensor.values().astype(np.int64), DType.INT32)
        return self.made.get(tensor, tensor)

    def compare(self, op: AnyOp, inputs: Sequence[Tensor]) -> Tensor:
        """GREATER, GREATER_EQUAL or EQUAL."""
        a, b = inputs
        fits = tuple(op.inputs) in self.fitting
        if isinstance(op.attrs, ops.Equal):
            return self.negation(self.nonzero(self.difference(a, b, fits)))
        if isinstance(op.attrs, ops.GreaterEqual):
            return self.negation(self.positive(self.difference(b, a, fits)))
        return self.positive(self.difference(a, b, fits))

    def difference(self, a: Tensor, b: Tensor, fits: bool) -> Tensor:
        """INT32 with the sign of a - b, and magnitude below 2^31."""
        if fits:
            return self.sub(a, b)
        (a_half, a_rest), (b_half, b_rest) = self.halves(a), self.halves(b)
        sign = self.clamped(self.sub(a_half, b_half))
        return self.builder.add(self.mul(sign, self.number(4, sign)), self.sub(a_rest, b_rest))

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """floor(x / 2), and x less twice that."""
        half = self.binary(ops.ArithmeticRightShift(round=False), x, self.number(1, x))
        return half, self.sub(self.sub(x, half), half)

    def logic(self, attrs: Attributes, inputs: Sequence[Tensor]) -> Tensor:
        """LOGICAL_AND, _OR, _XOR or _NOT."""
        if isinstance(attrs, ops.LogicalNot):
            return self.negation(inputs[0])
        if isinstance(attrs, ops.LogicalXor):
            return self.absolute(self.sub(*inputs))
        return self.binary(MINIMUM if isinstance(attrs, ops.LogicalAnd) else MAXIMUM, *inputs)

    def reduce(self, attrs: Attributes, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """REDUCE_ANY, or REDUCE_ALL as the negation of REDUCE_ANY of the negations."""
        is_all = isinstance(attrs, ops.ReduceAll)
        axis = attrs.axis if isinstance(attrs, ops.ReduceAll | ops.ReduceAny) else 0
        count = self.builder.op(
            ops.ReduceSum(axis=axis), (self.negation(x) if is_all else x,), DType.INT32, shape, "count"
        )
        any_one = self.binary(MINIMUM, count, self.number(1, count))
        return self.negation(any_one) if is_all else any_one

    def cast(self, op: AnyOp) -> Tensor:
        """CAST from or to BOOL."""
        x, target = op.inputs[0], op.output.dtype
        if target == DType.BOOL and x.dtype != DType.BOOL:
            return self.nonzero(self.clamped(self.resized(self.operand(x), DType.INT32)))
        return self.resized(self.operand(x), DType.INT32 if target == DType.BOOL else target)

    def select(self, op: AnyOp, inputs: Sequence[Tensor]) -> Tensor:
        """SELECT of BOOL or of integers."""
        chosen, x, y = inputs
        dtype = x.dtype
        if dtype == DType.INT32 and (op.output.dtype == DType.BOOL or tuple(op.inputs[1:]) in self.fitting):
            return self.builder.add(y, self.mul(chosen, self.sub(x, y)))
        from_x = self.mul(self.resized(chosen, dtype), x)
        from_y = self.mul(self.resized(self.negation(chosen), dtype), y)
        return self.resized(self.builder.add(from_x, from_y), dtype)

    # ------------------------------------------------------------------------------------------ small things
    def binary(self, attrs: Attributes, a: Tensor, b: Tensor) -> Tensor:
        return self.builder.op(attrs, (a, b), DType.INT32, np.broadcast_shapes(a.shape, b.shape))

    def sub(self, a: Tensor, b: Tensor) -> Tensor:
        return self.binary(ops.Sub(), a, b)

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        shift = self.builder.const([0], DType.INT8, "mul_shift")
        return self.builder.op(ops.Mul(), (a, b, shift), DType.INT32, np.broadcast_shapes(a.shape, b.shape))

    def number(self, value: int, like: Tensor) -> Tensor:
        return self.builder.const(np.full((1,) * len(like.shape), value), DType.INT32)

    def clamped(self, x: Tensor) -> Tensor:
        """``x`` between -1 and 1: its sign."""
        return self.binary(MINIMUM, self.binary(MAXIMUM, x, self.number(-1, x)), self.number(1, x))

    def positive(self, x: Tensor) -> Tensor:
        return self.binary(MINIMUM, self.binary(MAXIMUM, x, self.number(0, x)), self.number(1, x))

    def absolute(self, x: Tensor) -> Tensor:
        return self.builder.op(ops.Abs(), (x,), DType.INT32, x.shape)

    def nonzero(self, x: Tensor) -> Tensor:
        """1 where x is not 0; x is above -2^31."""
        return self.binary(MINIMUM, self.absolute(x), self.number(1, x))

    def negation(self, x: Tensor) -> Tensor:
        return self.sub(self.number(1, x), x)

    def resized(self, x: Tensor, dtype: DType) -> Tensor:
        """The same values, which fit, in another integer type."""
        return x if x.dtype == dtype else self.builder.rescale(x, dtype, 1 << 30, 30, scale32=True)
