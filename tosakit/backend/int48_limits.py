"""Limits of Vela 5.2 about INT48: what may read an accumulator, and what may not be left of it."""

from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Exit
from tosakit.numerics.intervals import Intervals

ACCUMULATING = ("CONV2D", "CONV3D", "DEPTHWISE_CONV2D")
ACCUMULATORS = (*ACCUMULATING, "TRANSPOSE_CONV2D", "MATMUL", "RESIZE")


def loose_accumulator(op: AnyOp, _: Intervals) -> str | None:
    """An INT48 accumulator that is not read by one RESCALE alone."""
    if not op.outputs or op.outputs[0].dtype != DType.INT48:
        return None
    tensor, readers = op.outputs[0], []
    tensors = [tensor]
    for each in tensors:  # grows while it runs
        for user in each.users:
            if isinstance(user.attrs, ops.Identity):
                tensors.append(user.outputs[0])
            else:
                readers.append(user)
    outputs = [user for user in readers if isinstance(user.attrs, Exit)]
    if outputs:
        return f'its INT48 result "{tensor.name}" is an output'
    if len(readers) > 1:
        return f'its INT48 result "{tensor.name}" has {len(readers)} readers, the target takes one RESCALE'
    return None


def free_int48(op: AnyOp, _: Intervals) -> str | None:
    """A RESCALE of INT48 that stands behind no convolution."""
    source = op.inputs[0]
    if source.dtype != DType.INT48:
        return None
    while source.producer is not None and isinstance(source.producer.attrs, ops.Identity):
        source = source.producer.inputs[0]
    if source.producer is not None and source.producer.name in ACCUMULATORS:
        return None
    return f'"{source.name}" is INT48 and no accumulator of a convolution'


ELEMENTWISE = (
    *("ABS", "ADD", "ARITHMETIC_RIGHT_SHIFT", "BITWISE_AND", "BITWISE_NOT", "BITWISE_OR", "BITWISE_XOR", "CAST", "CLZ"),
    *("EQUAL", "GREATER", "GREATER_EQUAL", "INTDIV", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT", "MAXIMUM", "MINIMUM"),
    *("MUL", "NEGATE", "SUB"),
)


def copied_int48(op: AnyOp, _: Intervals) -> str | None:
    """An operator whose only operand is a copy of INT48 that Vela drops: that no accumulating operator writes alone."""
    source = op.inputs[0]
    takes_two = len(op.inputs) > 1 and op.name != "NEGATE"
    while source.producer is not None and isinstance(source.producer.attrs, ops.Identity | ops.Reshape):
        source = source.producer.inputs[0]
    rescale = source.producer
    if (
        rescale is None
        or not isinstance(rescale.attrs, ops.Rescale)
        or (takes_two and op.inputs[1] is not op.inputs[0])
    ):
        return None
    accumulator, multiplier, shift = rescale.inputs[:3]
    if (accumulator.dtype, source.dtype) != (DType.INT48, DType.INT32) or len(source.users) != 1:
        return None
    if not (multiplier.is_constant and shift.is_constant) or not _is_one(multiplier, shift):
        return None
    if len(accumulator.users) == 1 and accumulator.producer is not None and accumulator.producer.name in ACCUMULATORS:
        return None
    return f'all it reads is a copy of the INT48 tensor "{accumulator.name}", at which Vela ends with a signal'


def _is_one(multiplier: Tensor, shift: Tensor) -> bool:
    """Scale one in every channel."""
    pairs = zip(multiplier.values().reshape(-1).tolist(), shift.values().reshape(-1).tolist(), strict=False)
    return all(m == 1 << s for m, s in pairs)
