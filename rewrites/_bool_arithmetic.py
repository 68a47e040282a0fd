"""The operators that read or give BOOL, in INT32 arithmetic on 0 and 1; the rule bool_as_int32 has the equations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rewrites._bool_island import LOGIC, REDUCTIONS
from rewrites._int32 import (
    MAXIMUM,
    MINIMUM,
    absolute,
    binary,
    bounded,
    mul,
    negation,
    nonzero,
    number,
    resized,
    sub,
    times,
)
from rewrites._shifts import floor_shift
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.movement import MOVES
from tosakit.ir.operator import Attributes


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
            return binary(self.builder, self.extremes[op], self.operand(op.inputs[1]), self.operand(op.inputs[2]))
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
            return negation(self.builder, nonzero(self.builder, self.difference(a, b, fits)))
        if isinstance(op.attrs, ops.GreaterEqual):
            return negation(self.builder, bounded(self.builder, self.difference(b, a, fits), 0, 1))
        return bounded(self.builder, self.difference(a, b, fits), 0, 1)

    def difference(self, a: Tensor, b: Tensor, fits: bool) -> Tensor:
        """INT32 with the sign of a - b, and magnitude below 2^31."""
        if fits:
            return sub(self.builder, a, b)
        (a_half, a_rest), (b_half, b_rest) = self.halves(a), self.halves(b)
        sign = bounded(self.builder, sub(self.builder, a_half, b_half), -1, 1)
        return self.builder.add(times(self.builder, sign, 4), sub(self.builder, a_rest, b_rest))

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """floor(x / 2), and x less twice that."""
        half = floor_shift(self.builder, x, number(self.builder, 1, x))
        return half, sub(self.builder, sub(self.builder, x, half), half)

    def logic(self, attrs: Attributes, inputs: Sequence[Tensor]) -> Tensor:
        """LOGICAL_AND, _OR, _XOR or _NOT."""
        if isinstance(attrs, ops.LogicalNot):
            return negation(self.builder, inputs[0])
        if isinstance(attrs, ops.LogicalXor):
            return absolute(self.builder, sub(self.builder, inputs[0], inputs[1]))
        return binary(self.builder, MINIMUM if isinstance(attrs, ops.LogicalAnd) else MAXIMUM, inputs[0], inputs[1])

    def reduce(self, attrs: Attributes, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """REDUCE_ANY, or REDUCE_ALL as the negation of REDUCE_ANY of the negations."""
        is_all = isinstance(attrs, ops.ReduceAll)
        axis = attrs.axis if isinstance(attrs, ops.ReduceAll | ops.ReduceAny) else 0
        count = self.builder.op(
            ops.ReduceSum(axis=axis), (negation(self.builder, x) if is_all else x,), DType.INT32, shape, "count"
        )
        any_one = binary(self.builder, MINIMUM, count, number(self.builder, 1, count))
        return negation(self.builder, any_one) if is_all else any_one

    def cast(self, op: AnyOp) -> Tensor:
        """CAST from or to BOOL."""
        x, target = op.inputs[0], op.output.dtype
        if target == DType.BOOL and x.dtype != DType.BOOL:
            x = resized(self.builder, self.operand(x), DType.INT32)
            return nonzero(self.builder, bounded(self.builder, x, -1, 1))
        return resized(self.builder, self.operand(x), DType.INT32 if target == DType.BOOL else target)

    def select(self, op: AnyOp, inputs: Sequence[Tensor]) -> Tensor:
        """SELECT of BOOL or of integers."""
        chosen, x, y = inputs
        dtype = x.dtype
        if dtype == DType.INT32 and (op.output.dtype == DType.BOOL or tuple(op.inputs[1:]) in self.fitting):
            return self.builder.add(y, mul(self.builder, chosen, sub(self.builder, x, y)))
        from_x = mul(self.builder, resized(self.builder, chosen, dtype), x)
        from_y = mul(self.builder, resized(self.builder, negation(self.builder, chosen), dtype), y)
        return resized(self.builder, self.builder.add(from_x, from_y), dtype)
