"""Elementwise operators: broadcasting, and what CLAMP, MUL, TABLE and the shifts ask of constants."""

from collections.abc import Mapping, Sequence

import numpy as np

from tosakit.errors import InvalidModel
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.types import BITS, INTEGER_RANGES, decode
from tosakit.spec.call import AnyCall, Call, Codes, Harmless, Shape, Size, show
from tosakit.spec.operators.zero_points import check_zero_point

MUL = Codes(rank={"shift": "InputRank1WrongRank"}, sizes={"shift": "InputRank1WrongRank"})


def _broadcast_sizes(sizes: Sequence[Size]) -> tuple[Size, bool]:
    """The broadcast size (None where unknown) and whether the sizes go together."""
    above_one = dict.fromkeys(size for size in sizes if size is not None and size != 1)
    if above_one:
        return next(iter(above_one)), len(above_one) == 1
    return (None if None in sizes else 1), True


def broadcast(call: AnyCall) -> None:
    """Bind the broadcast of shape1, shape2 (and shape3), which must be of one rank."""
    shapes: list[Shape] = []
    for name in ("shape1", "shape2", "shape3")[: sum(1 for name in call.operands if name != "shift")]:
        shape = call.shape(name)
        if shape is None:
            return
        shapes.append(shape)
    text = " and ".join(show(shape) for shape in shapes)
    if len(dict.fromkeys(map(len, shapes))) > 1:
        call.error(
            "RankMismatch", f"operands of shapes {text} have different ranks; RESHAPE one of them", *call.operands
        )
        return
    axes = [_broadcast_sizes(sizes) for sizes in zip(*shapes, strict=True)]
    if not all(fits for _, fits in axes):
        message = f"operands of shapes {text} do not broadcast: sizes must be equal or 1"
        call.error("BroadcastShapesMismatch", message, *call.operands)
        return
    call.bind_shape("shape", [size for size, _ in axes])


def mul(call: Call[ops.Mul]) -> None:
    """MUL: a shift is for INT32 only."""
    broadcast(call)
    shift = call.integers("shift")
    if not shift:
        return
    dtype = call.dtype("input1")
    if dtype == DType.INT32 and not 0 <= shift[0] <= 63:
        call.error("MulShiftInvalid", f"shift is {shift[0]}, it must be 0 to 63", "shift")
    if dtype != DType.INT32 and shift[0]:
        call.error("MulShiftInvalid", f"shift is {shift[0]}, it must be 0 for {dtype.name} operands", "shift")


def shift(call: AnyCall) -> None:
    """ARITHMETIC_RIGHT_SHIFT, LOGICAL_LEFT_SHIFT, LOGICAL_RIGHT_SHIFT: amounts below the operand's width."""
    broadcast(call)
    amounts = call.array("input2")
    width = BITS.get(call.dtype("input1"), 0)
    if amounts is not None and amounts.size and not (amounts.min() >= 0 and amounts.max() < width):
        message = f"shift amounts reach from {amounts.min()} to {amounts.max()}, they must be 0 to {width - 1}"
        call.error("ShiftAmountInvalid", message, "input2")


def intdiv(call: Call[ops.IntDiv]) -> None:
    """INTDIV: no division by a constant 0."""
    broadcast(call)
    divisors = call.array("input2")
    if divisors is not None and not divisors.all():
        call.error("DivisionByZero", "input2 is a constant that holds 0", "input2")


def negate(call: Call[ops.Negate]) -> None:
    """NEGATE: zero points for INT8 only."""
    dtype = call.dtype("input1")
    check_zero_point(call, "input1_zp", dtype, "InputZeroPointNotZero")
    check_zero_point(call, "output_zp", dtype, "OutputZeroPointNotZero")


def clamp(call: Call[ops.Clamp]) -> None:
    """CLAMP: two bounds in the operand's type, in order, no NaN."""
    dtype = call.dtype("input")
    if dtype not in BITS:
        return
    bounds: list[float] = []
    for name, data in (("min_val", call.attrs.min_val), ("max_val", call.attrs.max_val)):
        try:
            value = decode(data, dtype, ())
            bounds.append(int(value) if dtype in INTEGER_RANGES else float(value))
        except InvalidModel as error:
            call.error("ClampBoundInvalid", f"{name} cannot be read: {error}")
    if len(bounds) < 2:
        return
    if any(np.isnan(bounds)):
        call.error("ClampBoundInvalid", f"bounds are {bounds[0]} and {bounds[1]}, they must not be NaN")
    elif bounds[1] < bounds[0]:
        call.error("MaxSmallerMin", f"max_val {bounds[1]} is below min_val {bounds[0]}")


TABLE_LENGTHS = {DType.INT8: 256, DType.INT16: 513}

HARMLESS_TABLE: Mapping[str, Harmless] = {"table": lambda dtype, *_: dtype == DType.INT8}


def table(call: Call[ops.Table]) -> None:
    """TABLE: 256 entries for INT8, 513 for INT16, whose neighbours differ by an INT16."""
    dtype, length = call.dtype("input1"), call.size("TABLE_SIZE")
    needed = TABLE_LENGTHS.get(dtype)
    if needed is None or length is None:
        return
    if length != needed:
        call.error("TableLength", f"table has {length} entries, an {dtype.name} operand needs {needed}", "table")
        return
    entries = call.integers("table") if dtype == DType.INT16 else None
    if entries and len(entries) == needed:
        slopes = np.diff(np.asarray(entries, np.int64))
        worst = int(np.argmax(np.abs(slopes)))
        if not -(1 << 15) <= slopes[worst] < 1 << 15:
            # The operand may never fall between the two: real reciprocal tables have this step at 0.
            message = (
                f"entries {worst} and {worst + 1} differ by {slopes[worst]}, a value between them is unpredictable"
            )
            call.warn("TableSlope", message, "table")
