"""Shape operators: arithmetic on shapes, evaluated where the operands are known."""

from collections.abc import Callable

from tosakit.ir import ops
from tosakit.numerics.shapes import OF_ONE, OF_TWO
from tosakit.spec.call import AnyCall, Call, Codes, shape_of
from tosakit.spec.operators.reductions import check_axis

SHAPES = Codes(result="OutputShapeRankMismatch")
SLICED = Codes(result="SizeOutputShapeMismatch")


def _length(call: AnyCall, name: str) -> int | None:
    shape = shape_of(call.tensor(name))
    return shape[0] if shape and len(shape) == 1 else None


def _give(call: AnyCall, length: int | None, values: tuple[int, ...] | None) -> None:
    """State the result: its length, and its values where they are known."""
    if length is not None:
        call.bind("length", length)
    if values is not None:
        call.value = values


def _check_lengths(call: AnyCall) -> bool:
    """Whether two shapes may be of one length (reported where not)."""
    lengths = _length(call, "input1"), _length(call, "input2")
    if None in lengths or lengths[0] == lengths[1]:
        return True
    message = f"the operands have lengths {lengths[0]} and {lengths[1]}, they must be equal"
    call.error("InputShapeRankMismatch", message, "input1", "input2")
    return False


def _zip(compute: Callable[[int, int], int]) -> Callable[[AnyCall], None]:
    """Checks of an operator on two shapes of equal length."""

    def check(call: AnyCall) -> None:
        if not _check_lengths(call):
            return
        left, right = call.integers("input1"), call.integers("input2")
        values = None
        if left is not None and right is not None and len(left) == len(right):
            try:
                values = tuple(map(compute, left, right))
            except (ZeroDivisionError, ValueError):
                call.error("DivisionByZero", f"{list(left)} and {list(right)} cannot be divided", "input2")
        _give(call, _length(call, "input1"), values)

    return check


def _map(compute: Callable[[int], int]) -> Callable[[AnyCall], None]:
    """Checks of an operator on one shape."""

    def check(call: AnyCall) -> None:
        operand = call.integers("input")
        known = operand is not None and all(0 <= value < 1 << 31 for value in operand)
        _give(call, _length(call, "input"), tuple(map(compute, operand)) if known and operand is not None else None)

    return check


add = _zip(OF_TWO[ops.AddShape])
sub = _zip(OF_TWO[ops.SubShape])
mul = _zip(OF_TWO[ops.MulShape])
div_ceil = _zip(OF_TWO[ops.DivCeilShape])
div_floor = _zip(OF_TWO[ops.DivFloorShape])
mod = _zip(OF_TWO[ops.ModShape])
maximum = _zip(OF_TWO[ops.MaxShape])
minimum = _zip(OF_TWO[ops.MinShape])
exp2 = _map(OF_ONE[ops.Exp2Shape])
log2_ceil = _map(OF_ONE[ops.Log2CeilShape])
log2_floor = _map(OF_ONE[ops.Log2FloorShape])


def assert_equal(call: Call[ops.AssertEqualShape]) -> None:
    """ASSERT_EQUAL_SHAPE: constants that differ can never pass; with allow_broadcast a 1 equals anything."""
    _check_lengths(call)
    left, right = call.integers("input1"), call.integers("input2")
    if left is None or right is None:
        return
    broadcast = call.attrs.allow_broadcast
    equal = len(left) == len(right) and all(
        a == b or (broadcast and 1 in (a, b)) for a, b in zip(left, right, strict=True)
    )
    if not equal:
        call.error("AssertShapesNotEqual", f"{list(left)} is asserted to equal {list(right)}", "input1", "input2")


def concat(call: Call[ops.ConcatShape]) -> None:
    """CONCAT_SHAPE."""
    lengths: list[int] = []
    for tensor in call.operands["input"]:
        shape = shape_of(tensor)
        if not shape or shape[0] is None:
            return
        lengths.append(shape[0])
    if 0 in lengths:
        call.error("ConcatShapeRankZeroInput", f"the operands have lengths {lengths}, none may be 0", "input")
    _give(call, sum(lengths), None)


def slice_(call: Call[ops.SliceShape]) -> None:
    """SLICE_SHAPE: size entries from start."""
    start, size, length = call.integers("start"), call.integers("size"), _length(call, "input")
    if not start or not size:
        return
    first, count = start[0], size[0]
    if first < 0:
        call.error("StartSmallerZero", f"start is {first}, it must not be negative", "start")
    elif count < 1:
        call.error("SizeSmallerEqualZero", f"size is {count}, it must be positive", "size")
    elif length is not None and first + count > length:
        message = f"{count} entries from {first} pass the end of a shape of length {length}"
        call.error("StartSizeOutsideBounds", message, "start", "size")
    else:
        values = call.integers("input")
        _give(call, count, None if values is None else values[first : first + count])


def dim(call: Call[ops.Dim]) -> None:
    """DIM: the size of one axis."""
    shape = call.shape("shape")
    if check_axis(call, call.attrs.axis, shape) and shape is not None:
        size = shape[call.attrs.axis]
        _give(call, 1, None if size is None else (size,))
