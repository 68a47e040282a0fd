"""Constants: their data against type and shape."""

from collections.abc import Iterator

from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Data, Tensor
from tosakit.ir.types import BITS, byte_size
from tosakit.spec.call import Finding, show

PADDING = 8
"""Converters fill constant data up to a multiple of this many bytes."""


def check_constant(op: AnyOp) -> Iterator[Finding]:
    """What is wrong with the data of a CONST or CONST_SHAPE."""
    for tensor in op.outputs:
        if isinstance(op.attrs, ops.ConstShape) and tensor.dtype not in (DType.SHAPE, DType.UNKNOWN):
            message = f"the result of CONST_SHAPE is {tensor.dtype.name}, it must be declared among the shapes"
            yield Finding("WrongOutputShapeType", message, (tensor,))
        if isinstance(op.attrs, ops.Const) and tensor.dtype == DType.SHAPE:
            message = "the result of CONST is a shape value; CONST_SHAPE makes those"
            yield Finding("WrongOutputType", message, (tensor,))
        yield from check_data(tensor, tensor.data, "constant")


def check_data(tensor: Tensor, data: Data | None, what: str) -> Iterator[Finding]:
    """What is wrong with constant data, or with a variable's initial data, for the tensor's type and shape."""
    dtype, shape = tensor.dtype, tensor.shape
    bits = BITS.get(dtype)
    if bits is None:
        return
    if tensor.extras.is_unranked or (shape and min(shape) < 0):
        message = f"the {what} has shape {show(shape)}, every size must be known"
        yield Finding("ConstantShapeUnknown", message, (tensor,))
        return
    need = byte_size(dtype, shape)
    length = 0 if data is None else len(data)
    if need and not length:
        message = f"the {what} has no data, {dtype.name} {show(shape)} needs {need} bytes"
        yield Finding("ConstantWithoutData", message, (tensor,))
    elif length < need:
        message = f"the {what} has {length} bytes of data, {dtype.name} {show(shape)} needs {need}"
        yield Finding("ConstantDataTooShort", message, (tensor,))
    elif length >= need + PADDING:
        message = f"the {what} has {length} bytes of data, {dtype.name} {show(shape)} needs {need}"
        yield Finding("ConstantDataTooLong", message, (tensor,), "warning")
