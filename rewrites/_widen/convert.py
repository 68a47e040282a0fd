"""One converter per operator: how it reads and makes widened values. ``CONVERTERS`` is the table of numerics."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from rewrites._widen.exponents import WIDE_BOUND, exponent_cap
from rewrites._widen.families import (
    AVERAGE_POOLS,
    COMPARISONS,
    CONVOLUTIONS,
    FACTOR,
    FACTOR_BITS,
    MATMULS,
    MOVEMENT,
    ORDER,
    REGION_OPS,
    data_operands,
    data_slots,
    scalar,
)
from rewrites._widen.islands import open_parameter
from rewrites._widen.plan import Form, operand_form, region_names, region_operands
from rewrites._widen.rescale import convert_rescale, saturation
from rewrites._widen.tables import widen_table
from rewrites._widen.writer import UNKNOWN_BOUND, BlockWriter
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES, decode, encode

Converter = Callable[[BlockWriter, AnyOp], None]

_PRODUCT_BITS = 2 * FACTOR_BITS


def convert(writer: BlockWriter, op: AnyOp) -> None:
    """Make the new form of one operator."""
    if isinstance(op.attrs, ops.Const | ops.ConstShape):
        return  # made where they are read, as their readers need them
    if op in writer.plan.islands:
        writer.refuse(op, writer.plan.islands[op])
        writer.copy(op)
        return
    previous = writer.at(op)
    converter = CONVERTERS.get(type(op.attrs))
    if converter is not None and open_parameter(op) is None:
        converter(writer, op)
    else:
        _keep(writer, op)
    writer.at(previous)


def _keep(writer: BlockWriter, op: AnyOp) -> None:
    """An operator without an int16 or scaled int32 form, on old values."""
    if any(t.dtype == DType.INT32 and writer.is_scaled(t) for t in op.inputs):
        writer.refuse(op, f"{op.name} computes on the int32 values as they were, without the seven new bits")
    writer.copy(op)


# ---------------------------------------------------------------- int8 -> int8
def _order(writer: BlockWriter, op: AnyOp) -> None:
    """Operators that choose or move elements, on int8 activations, int32 values or anything else."""
    if op.output.dtype == DType.INT32:
        _order_int32(writer, op)
    elif op.output.dtype != DType.INT8 or operand_form(op, writer.plan) is Form.INT8:
        writer.copy(op)
    else:
        zero_point = writer.plan.zero_points[op.output]
        operands = _operands(writer, op, lambda t: writer.int16(t, zero_point))
        attrs = op.attrs
        if isinstance(attrs, ops.Pad):
            value = (scalar(op.inputs[2]) - zero_point) * FACTOR
            operands[2] = writer.number(value, DType.INT16, f"{op.output.name}_pad_const")
        elif isinstance(attrs, ops.Clamp):
            attrs = _scaled_clamp(attrs, DType.INT8, DType.INT16, lambda v: (v - zero_point) * FACTOR)
        _activation(writer, op, attrs, operands, zero_point)


def _operands(writer: BlockWriter, op: AnyOp, activation: Callable[[Tensor], Tensor]) -> list[Tensor]:
    slots = data_slots(op)
    return [activation(t) if slot in slots else writer.plain(t) for slot, t in enumerate(op.inputs)]


def _activation(writer: BlockWriter, op: AnyOp, attrs: Attributes, operands: Sequence[Tensor], zero_point: int) -> None:
    new = writer.emit(attrs, operands, DType.INT16, op.output, op.output.name)
    writer.set_int16(op.output, new, zero_point)


def _scaled_clamp(attrs: ops.Clamp, old: DType, new: DType, scale: Callable[[int], int]) -> ops.Clamp:
    low, high = INTEGER_RANGES[new]
    ends = [min(max(scale(int(decode(bytes(end), old, (1,))[0])), low), high) for end in (attrs.min_val, attrs.max_val)]
    return replace(attrs, min_val=encode(np.array(ends[:1]), new), max_val=encode(np.array(ends[1:]), new))


def _average_pool(writer: BlockWriter, op: AnyOp) -> None:
    if op.output.dtype != DType.INT8:
        writer.copy(op)
        return
    old_in, old_out = scalar(op.inputs[1]), scalar(op.inputs[2])
    zero_points = writer.plan.zero_points
    zp_out = zero_points[op.output]
    zp_in = zp_out - (old_out - old_in)
    if not -128 <= zp_in <= 127:
        zp_in, zp_out = old_in, old_out
    zeros = [writer.number(0, DType.INT16, f"{op.output.name}_{side}_zp") for side in ("input", "output")]
    operands = [writer.int16(op.inputs[0], zp_in), *zeros, *map(writer.plain, op.inputs[3:])]
    if old_in == old_out:
        _activation(writer, op, op.attrs, operands, zp_out)
    else:
        _saturating(writer, op, op.attrs, operands, zp_out)


def _saturating(writer: BlockWriter, op: AnyOp, attrs: Attributes, operands: Sequence[Tensor], zero_point: int) -> None:
    """An operator whose int8 result saturates, followed by a CLAMP that does the same."""
    new = writer.emit(attrs, operands, DType.INT16, op.output, suffix="_unclamped")
    low, high = saturation(zero_point, clamp_all=True)
    writer.set_saturated(op.output, new, zero_point, low, high)


def _negate(writer: BlockWriter, op: AnyOp) -> None:
    if op.output.dtype != DType.INT8:
        _elementwise_int32(writer, op) if op.output.dtype == DType.INT32 else writer.copy(op)
        return
    zeros = [writer.number(0, DType.INT16, f"{op.output.name}_{side}_zp") for side in ("input", "output")]
    operands = [writer.int16(op.inputs[0], scalar(op.inputs[1])), *zeros]
    _saturating(writer, op, op.attrs, operands, scalar(op.inputs[2]))


def _table(writer: BlockWriter, op: AnyOp) -> None:
    if op.output.dtype != DType.INT8:
        writer.copy(op)
        return
    zero_points = writer.plan.zero_points
    zp_in, zp_out = zero_points[op.inputs[0]], zero_points[op.output]
    exact = widen_table(op.inputs[1].values(), zp_in, zp_out, smooth=False)
    entries = widen_table(op.inputs[1].values(), zp_in, zp_out, smooth=True) if writer.settings.smooth else exact
    table = writer.const(entries, DType.INT16, f"{op.output.name}_table")
    operands = (writer.int16(op.inputs[0], zp_in), table)
    fine = writer.emit(ops.Table(), operands, DType.INT32, op.output, suffix="_fine")
    if writer.settings.smooth:
        writer.off[fine] = FACTOR * int(np.abs(entries - exact).max())
    new = writer.rescale(fine, DType.INT16, [1 << 30], [30 + FACTOR_BITS], op.output, op.output.name, scale32=True)
    writer.set_int16(op.output, new, zp_out)


# ---------------------------------------------------------------- int8 -> int32
def _convolution(writer: BlockWriter, op: AnyOp) -> None:
    if op.inputs[0].dtype != DType.INT8:
        writer.copy(op)
        return
    x, weight, bias, input_zp, weight_zp = op.inputs[:5]
    name = op.output.name
    new_weight = _int8_weight(writer, weight)
    wide_bias = bias.values().astype(np.int64) << FACTOR_BITS
    operands = (
        writer.int16(x, scalar(input_zp)),
        new_weight,
        writer.const(wide_bias, DType.INT48, f"{bias.name}_int48"),
        writer.number(0, DType.INT16, f"{name}_input_zp"),
        writer.number(scalar(weight_zp), DType.INT8, f"{name}_weight_zp"),
    )
    attrs = replace(op.attrs, acc_type=DType.INT48)  # type: ignore[call-arg]
    new = writer.emit(attrs, operands, DType.INT48, op.output, name)
    writer.set_accumulator(op.output, new, FACTOR_BITS, accumulator_bound(op))


def accumulator_bound(op: AnyOp) -> int:
    """Largest absolute value of a convolution's old accumulator, for activations up to 256 steps from zero.

    ``256 * sum |w - weight_zp| + |bias|`` of the worst channel; weights known at run time only count as 255.
    """
    weight, bias = op.inputs[1], op.inputs[2]
    taps = int(np.prod(weight.shape[1:], dtype=np.int64))
    if isinstance(op.attrs, ops.DepthwiseConv2d):
        taps = int(np.prod(weight.shape[:2], dtype=np.int64))
    heaviest = 255 * taps
    if weight.is_constant:
        distance = np.abs(weight.values().astype(np.int64) - scalar(op.inputs[4]))
        axes = (0, 1) if isinstance(op.attrs, ops.DepthwiseConv2d) else tuple(range(1, distance.ndim))
        heaviest = int(distance.sum(axis=axes).max(initial=0))
    return WIDE_BOUND * heaviest + int(np.abs(bias.values().astype(np.int64)).max(initial=0))


def _int8_weight(writer: BlockWriter, weight: Tensor) -> Tensor:
    """Weights as int8; int4 ones are unpacked, also in front of operators that move them."""
    if weight.dtype != DType.INT4:
        return writer.plain(weight)
    producer = weight.producer
    if weight.is_constant or producer is None:
        return writer.const(weight.values(), DType.INT8, f"{weight.name}_int8")
    operands = (_int8_weight(writer, producer.inputs[0]), *map(writer.plain, producer.inputs[1:]))
    return writer.emit(producer.attrs, operands, DType.INT8, weight, suffix="_int8")


def _matmul(writer: BlockWriter, op: AnyOp) -> None:
    if op.output.dtype != DType.INT32:
        writer.copy(op)
        return
    a, b, zp_a, zp_b = op.inputs[:4]
    zeros = [writer.number(0, DType.INT16, f"{op.output.name}_{side}_zp") for side in ("A", "B")]
    operands = (writer.int16(a, scalar(zp_a)), writer.int16(b, scalar(zp_b)), *zeros)
    new = writer.emit(op.attrs, operands, DType.INT48, op.output, op.output.name)
    writer.set_accumulator(op.output, new, _PRODUCT_BITS, max(a.shape[-1:] or (1,)) * WIDE_BOUND**2)


def _resize(writer: BlockWriter, op: AnyOp) -> None:
    assert isinstance(op.attrs, ops.Resize)
    if op.inputs[0].dtype != DType.INT8 or op.attrs.mode != ResizeMode.BILINEAR:
        _order(writer, op)
        return
    averaging = op in writer.plan.zero_points.averaging
    zero_point = writer.plan.zero_points[op.inputs[0]] if averaging else 0
    operands = (writer.int16(op.inputs[0], zero_point), *map(writer.plain, op.inputs[1:]))
    new = writer.emit(op.attrs, operands, DType.INT48, op.output, op.output.name)
    bound = UNKNOWN_BOUND
    if op.inputs[1].is_constant:
        scale = op.inputs[1].values()
        bound = WIDE_BOUND * int(scale[0]) * int(scale[2])
    writer.set_accumulator(op.output, new, FACTOR_BITS, bound)


def _argmax(writer: BlockWriter, op: AnyOp) -> None:
    source = op.inputs[0]
    if source.dtype != DType.INT8 or writer.input_form(source) is Form.INT8:
        writer.copy(op)
        return
    new = writer.emit(
        op.attrs, (writer.int16(source, writer.plan.zero_points[source]),), DType.INT32, op.output, op.output.name
    )
    writer.set_plain(op.output, new, max(source.shape, default=1))


def _dim(writer: BlockWriter, op: AnyOp) -> None:
    source = op.inputs[0]
    if source.dtype != DType.INT8 or source.is_constant:
        writer.copy(op)
        return
    result = writer.result(op.output, op.output.dtype)
    writer.add_results(op.attrs, (writer.any_form(source),), (result,))
    writer.set_plain(op.output, result)


# ---------------------------------------------------------------- int32 -> int32
def _common_exponent(writer: BlockWriter, operands: Sequence[Tensor], bound: int) -> int:
    """The finest exponent that any operand carries and that the operands and a result up to ``bound`` have room for."""
    preferred = [e for t in operands if (e := writer.preferred(t)) is not None]
    if not preferred or max(preferred) <= 0:
        return min(preferred, default=0)
    caps = [exponent_cap(writer.bound(t)) for t in operands]
    return max(0, min(max(preferred), exponent_cap(bound), *caps))


def _order_int32(writer: BlockWriter, op: AnyOp) -> None:
    data = data_operands(op)
    if not any(writer.is_scaled(t) for t in data):
        writer.copy(op)
        return
    bound = max(writer.bound(t) for t in data)
    attrs = op.attrs
    pad = scalar(op.inputs[2]) if isinstance(attrs, ops.Pad) and op.inputs[2].is_constant else None
    if isinstance(attrs, ops.Pad) and pad is None:
        _keep(writer, op)
        return
    bound = max(bound, abs(pad or 0))
    exponent = _common_exponent(writer, data, bound)
    operands = _operands(writer, op, lambda t: writer.int32(t, exponent))
    if pad is not None:
        operands[2] = writer.number(_times(pad, exponent), DType.INT32, f"{op.output.name}_pad_const")
    if isinstance(attrs, ops.Clamp):
        attrs = _scaled_clamp(attrs, DType.INT32, DType.INT32, lambda v: _times(v, exponent))
    new = writer.emit(attrs, operands, DType.INT32, op.output, op.output.name)
    writer.set_int32(op.output, new, exponent, bound)


def _times(value: int, exponent: int) -> int:
    scaled = value * Fraction(2) ** exponent
    return int(scaled) if scaled.denominator == 1 else round(scaled)


def _elementwise_int32(writer: BlockWriter, op: AnyOp) -> None:
    """ADD, SUB, MAXIMUM, MINIMUM, ABS, NEGATE, REDUCE_SUM: linear or monotone, so all exponents are equal."""
    data = data_operands(op)
    if op.output.dtype != DType.INT32 or not any(writer.is_scaled(t) for t in data):
        writer.copy(op)
        return
    bounds = [writer.bound(t) for t in data]
    if isinstance(op.attrs, ops.Add | ops.Sub):
        bound = sum(bounds)
    elif isinstance(op.attrs, ops.ReduceSum):
        bound = bounds[0] * max(data[0].shape[op.attrs.axis], 1) if data[0].shape else UNKNOWN_BOUND
    else:
        bound = max(bounds)
    exponent = _common_exponent(writer, data, bound)
    new = writer.emit(
        op.attrs,
        _operands(writer, op, lambda t: writer.int32(t, exponent)),
        DType.INT32,
        op.output,
        op.output.name,
    )
    writer.set_int32(op.output, new, exponent, min(bound, UNKNOWN_BOUND))


def _compare(writer: BlockWriter, op: AnyOp) -> None:
    if not any(t.dtype == DType.INT32 and writer.is_scaled(t) for t in op.inputs):
        writer.copy(op)
        return
    exponent = _common_exponent(writer, op.inputs, max(map(writer.bound, op.inputs)))
    operands = [writer.int32(t, exponent) for t in op.inputs]
    new = writer.emit(op.attrs, operands, op.output.dtype, op.output, op.output.name)
    writer.set_plain(op.output, new)


def _mul(writer: BlockWriter, op: AnyOp) -> None:
    a, b = op.inputs[:2]
    if a.dtype == DType.INT8:
        operands = [writer.int16(a, 0), writer.int16(b, 0), writer.number(0, DType.INT8, f"{op.output.name}_shift")]
        new = writer.emit(op.attrs, operands, DType.INT32, op.output, op.output.name)
        writer.set_int32(op.output, new, _PRODUCT_BITS, WIDE_BOUND**2)
        return
    if op.output.dtype != DType.INT32 or not any(writer.is_scaled(t) for t in (a, b)):
        writer.copy(op)
        return
    if not op.inputs[2].is_constant:
        _keep(writer, op)
        return
    product = writer.bound(a) * writer.bound(b)
    bound = min((product >> scalar(op.inputs[2])) + 1, UNKNOWN_BOUND)
    exponents = [max(writer.preferred(t) or 0, 0) for t in (a, b)]
    room = max(exponent_cap(bound), 0)
    while sum(exponents) > room:
        larger = 0 if exponents[0] >= exponents[1] else 1
        exponents[larger] -= 1
    operands = [writer.int32(a, exponents[0]), writer.int32(b, exponents[1])]
    if a is b and exponents[0] != exponents[1]:
        writer.note(f"exponents {exponents[0]} and {exponents[1]}")
    new = writer.emit(op.attrs, (*operands, writer.plain(op.inputs[2])), DType.INT32, op.output, op.output.name)
    writer.set_int32(op.output, new, sum(exponents), bound)


# ---------------------------------------------------------------- control flow
def _region_op(writer: BlockWriter, op: AnyOp) -> None:
    """COND_IF and WHILE_LOOP: int8 values cross the border as int16, with the zero point of their class."""

    def crossing(tensor: Tensor) -> Tensor:
        if tensor.dtype == DType.INT8 and writer.plan.reason_kept(tensor) is None:
            return writer.int16(tensor, writer.plan.zero_points.at_border(tensor))
        return writer.plain(tensor)

    if not any(t.dtype == DType.INT8 for t in (*op.inputs, *op.outputs)):
        writer.copy(op)
        return
    head = [writer.plain(op.inputs[0])] if isinstance(op.attrs, ops.CondIf) else []
    operands = [*head, *map(crossing, region_operands(op))]
    results = []
    for tensor in op.outputs:
        wide = tensor.dtype == DType.INT8 and writer.plan.reason_kept(tensor) is None
        result = writer.result(tensor, DType.INT16 if wide else tensor.dtype)
        results.append(result)
        if wide:
            writer.set_int16(tensor, result, writer.plan.zero_points.at_border(tensor))
        else:
            writer.set_plain(tensor, result)
    writer.add_results(op.attrs, operands, results)
    writer.note(f"regions {', '.join(region_names(op))}")


CONVERTERS: dict[type[Attributes], Converter] = {
    **dict.fromkeys(MOVEMENT, _order),
    **dict.fromkeys(ORDER, _order),
    **dict.fromkeys(AVERAGE_POOLS, _average_pool),
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **dict.fromkeys(MATMULS, _matmul),
    **dict.fromkeys(COMPARISONS, _compare),
    **dict.fromkeys(REGION_OPS, _region_op),
    **dict.fromkeys((ops.Add, ops.Sub, ops.Maximum, ops.Minimum, ops.Abs, ops.ReduceSum), _elementwise_int32),
    ops.Negate: _negate,
    ops.Table: _table,
    ops.Resize: _resize,
    ops.ArgMax: _argmax,
    ops.Dim: _dim,
    ops.Mul: _mul,
    ops.Rescale: convert_rescale,
}
"""The converter of every operator with an int16 or scaled int32 form; all others keep the old values."""
