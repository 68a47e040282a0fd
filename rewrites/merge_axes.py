"""Merge axes that an operator treats alike, where a tensor has more than six.

    x [A,B,C,D,E,F,G] ─▶ REVERSE axis C ─▶ y

    x ─▶ RESHAPE [A*B, C, D*E*F*G] ─▶ REVERSE axis 1 ─▶ RESHAPE ─▶ y

RESHAPE keeps the order of values, and axes next to each other are one axis to an operator that does the same along
each: all that it does not name, and those along which every operand is whole or every one is repeated. PAD, SLICE and
TILE go axis by axis; a TRANSPOSE of more runs of axes than six moves one run to the front after the other. Of two
RESHAPEs one stays. Only values move.

Vela takes tensors of up to six axes; an input or output of the graph that has more keeps them. The reference model
takes no more either: the check cannot run the original, and says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rewrites._when import ForEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor

HIGHEST_RANK = 6
"""Axes that every Ethos-U takes."""

ELEMENTWISE = (
    *(ops.Abs, ops.Add, ops.ArithmeticRightShift, ops.BitwiseAnd, ops.BitwiseNot, ops.BitwiseOr, ops.BitwiseXor),
    *(ops.Cast, ops.Clamp, ops.Clz, ops.Equal, ops.Greater, ops.GreaterEqual, ops.Identity, ops.IntDiv),
    *(ops.LogicalAnd, ops.LogicalLeftShift, ops.LogicalNot, ops.LogicalOr, ops.LogicalRightShift, ops.LogicalXor),
    *(ops.Maximum, ops.Minimum, ops.Mul, ops.Negate, ops.Rescale, ops.Select, ops.Sub, ops.Table),
)
ALONG_AXIS = (
    *(ops.ArgMax, ops.Concat, ops.ReduceAll, ops.ReduceAny, ops.ReduceMax, ops.ReduceMin, ops.ReduceProduct),
    *(ops.ReduceSum, ops.Reverse),
)
BY_AXIS = (ops.Pad, ops.Slice, ops.Tile)
MERGED = Capture(*ELEMENTWISE, *ALONG_AXIS, *BY_AXIS, ops.Transpose, ops.Reshape)

Runs = tuple[tuple[int, ...], ...]
"""Axes next to each other, by run."""


@dataclass(frozen=True)
class Plan:
    """Axes that stay one each; none for an operator that is cut along one axis at a time."""

    runs: Runs = ()


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An operator with a tensor of more than six axes."""
    op = match[MERGED]
    tensors = (*op.outputs, *op.inputs)
    if max([len(tensor.shape) for tensor in tensors]) <= HIGHEST_RANK or not context.options.acts(context.target):
        return None
    for tensor in tensors:
        if tensor.dtype != DType.SHAPE and min(tensor.shape, default=1) < 1:
            return Refusal(f'"{tensor.name}" has the shape {list(tensor.shape)}, which is not static')
    if isinstance(op.attrs, ops.Reshape):
        return Plan() if len(op.inputs[0].shape) > HIGHEST_RANK and _source(op) is not None else None
    for tensor in op.inputs[1:] if isinstance(op.attrs, BY_AXIS) else ():
        if tensor.dtype == DType.SHAPE and not tensor.is_constant:
            return Refusal(f'"{tensor.name}" is no constant, so which axes can be merged is not known')
    if isinstance(op.attrs, ops.Transpose):
        return Plan(_moved_together(op.attrs.perms))
    if not isinstance(op.attrs, ELEMENTWISE):
        return Plan()
    runs = _alike(op)
    if len(runs) > HIGHEST_RANK:
        shapes = " and ".join(str(list(tensor.shape)) for tensor in _data(op))
        return Refusal(f"{shapes} are repeated along {len(runs)} runs of axes, the target takes {HIGHEST_RANK}")
    return Plan(runs)


def _source(op: AnyOp) -> AnyOp | None:
    """The RESHAPE or constant that a RESHAPE reads."""
    producer = op.inputs[0].producer
    return producer if producer is not None and isinstance(producer.attrs, ops.Reshape | ops.Const) else None


def _data(op: AnyOp) -> list[Tensor]:
    """Operands with the axes of the result; the others are zero points, multipliers, shifts and tables."""
    return [tensor for tensor in op.inputs if len(tensor.shape) == len(op.output.shape)]


def _alike(op: AnyOp) -> Runs:
    """Runs along which each operand is whole or repeated; RESCALE by channel keeps the last axis apart."""
    shape, operands = op.output.shape, _data(op)
    apart = len(shape) - 1 if isinstance(op.attrs, ops.Rescale) and op.attrs.per_channel else len(shape)
    runs: list[tuple[int, ...]] = []
    for axis in range(len(shape)):
        longer = (*runs[-1], axis) if runs and axis != apart else (axis,)
        if not all(_size(t.shape, longer) in (1, _size(shape, longer)) for t in operands):
            longer = (axis,)
        if len(longer) > 1:
            runs.pop()
        runs.append(longer)
    return tuple(runs)


def _moved_together(perms: Sequence[int]) -> Runs:
    """Runs of operand axes that a TRANSPOSE leaves next to each other, in the order of its result."""
    runs: list[tuple[int, ...]] = []
    for axis in perms:
        if runs and axis == runs[-1][-1] + 1:
            runs[-1] = (*runs[-1], axis)
        else:
            runs.append((axis,))
    return tuple(runs)


def _size(shape: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(shape[axis] for axis in axes)


def replacement(match: Match, plan: Plan) -> Replacement:
    """The operator on fewer axes, between RESHAPEs."""
    op = match[MERGED]
    builder = Builder(op.output.name, location=op.location, origin=RULE.name)
    if isinstance(op.attrs, ops.Reshape):
        source = _source(op)
        assert source is not None
        start = op.inputs[0] if isinstance(source.attrs, ops.Const) else source.inputs[0]
        return Replacement(builder.ops, {op.output: _shaped(builder, start, op.output.shape)}, covers=(source, op))
    if isinstance(op.attrs, ELEMENTWISE):
        y = _elementwise(builder, op, plan.runs)
    elif isinstance(op.attrs, ops.Transpose):
        y = _transposed(builder, op.inputs[0], plan.runs)
    elif isinstance(op.attrs, BY_AXIS):
        y = _by_axis(builder, op)
    else:
        y = _along_axis(builder, op)
    return Replacement(builder.ops, {op.output: builder.reshape(y, op.output.shape)})


def _shaped(builder: Builder, x: Tensor, shape: Sequence[int]) -> Tensor:
    if x.is_constant:
        return builder.const(x.values().reshape(shape), x.dtype)
    return x if x.shape == tuple(shape) else builder.reshape(x, shape)


def _elementwise(builder: Builder, op: AnyOp, runs: Runs) -> Tensor:
    data = _data(op)
    merged = [_shaped(builder, t, [_size(t.shape, run) for run in runs]) if t in data else t for t in op.inputs]
    return builder.op(op.attrs, merged, op.output.dtype, [_size(op.output.shape, run) for run in runs])


def _around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _along_axis(builder: Builder, op: AnyOp) -> Tensor:
    attrs: Any = op.attrs
    operands = [_shaped(builder, t, _around(t.shape, attrs.axis)) for t in op.inputs]
    before, _, behind = operands[0].shape
    rest = math.prod(op.output.shape) // (before * behind)
    shape = (before, behind) if isinstance(attrs, ops.ArgMax) else (before, rest, behind)
    return builder.op(replace(attrs, axis=1), operands, op.output.dtype, shape)


def _by_axis(builder: Builder, op: AnyOp) -> Tensor:
    """PAD, SLICE or TILE along each axis that it changes."""
    x = op.inputs[0]
    shape = list(x.shape)
    for axis, size in enumerate(op.output.shape):
        if shape[axis] != size:
            x = _changed(builder, op, _shaped(builder, x, _around(shape, axis)), axis, size)
            shape[axis] = size
    return x


def _changed(builder: Builder, op: AnyOp, x: Tensor, axis: int, size: int) -> Tensor:
    numbers = op.inputs[1].values().reshape(-1).tolist()
    shape = (x.shape[0], size, x.shape[2])
    if isinstance(op.attrs, ops.Slice):
        return builder.slice(x, (0, numbers[axis], 0), shape)
    if isinstance(op.attrs, ops.Tile):
        return builder.op(ops.Tile(), (x, builder.const_shape([1, numbers[axis], 1])), x.dtype, shape)
    padding = builder.const_shape([0, 0, *numbers[2 * axis : 2 * axis + 2], 0, 0], "padding")
    return builder.op(ops.Pad(), (x, padding, op.inputs[2]), x.dtype, shape)


def _transposed(builder: Builder, x: Tensor, runs: Runs) -> Tensor:
    sizes = {run: _size(x.shape, run) for run in runs}
    order = sorted(runs)
    if len(runs) <= HIGHEST_RANK:
        merged = _shaped(builder, x, [sizes[run] for run in order])
        return builder.transpose(merged, [order.index(run) for run in runs])
    for run in reversed(runs):
        place = order.index(run)
        front = math.prod(sizes[other] for other in order[:place])
        behind = math.prod(sizes[other] for other in order[place + 1 :])
        if place:
            x = builder.transpose(_shaped(builder, x, (front, sizes[run], behind)), (1, 0, 2))
        order = [run, *order[:place], *order[place + 1 :]]
    return x


RULE = Rule(
    name="merge_axes",
    pattern=MERGED,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Merge axes that an operator treats alike, where a tensor has more than six.",
    options=ForEthosU,
)
