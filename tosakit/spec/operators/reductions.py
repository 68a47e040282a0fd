"""Operators along one axis: reductions, ARGMAX, REVERSE."""

from tosakit.ir import ops
from tosakit.spec.call import AnyCall, Call, Codes, Shape

ARGMAX = Codes(result="ArgmaxOutputShapeMismatch", result_rank="ArgmaxOutputRankMismatch")


def check_axis(call: AnyCall, axis: int, shape: Shape | None) -> bool:
    """Whether ``axis`` is an axis of ``shape`` (reported where not, or where it is negative)."""
    if axis < 0:
        call.error("AxisSmallerZero", f"axis is {axis}, it must be 0 or more")
        return False
    if shape is not None and axis >= len(shape):
        call.error("AxisLargerRank", f"axis is {axis}, the operand has rank {len(shape)}")
        return False
    return shape is not None


def reduce(call: AnyCall) -> None:
    """REDUCE_*: the axis stays, with size 1."""
    axis, shape = call.attrs.axis, call.shape("shape1")
    if check_axis(call, axis, shape) and shape is not None:
        call.bind_shape("shape", (*shape[:axis], 1, *shape[axis + 1 :]), {axis: "ShapeOfAxisNotOne"})


def argmax(call: Call[ops.ArgMax]) -> None:
    """ARGMAX: the axis goes."""
    axis, shape = call.attrs.axis, call.shape("shape1")
    if check_axis(call, axis, shape) and shape is not None:
        call.bind_shape("shape", (*shape[:axis], *shape[axis + 1 :]))


def reverse(call: Call[ops.Reverse]) -> None:
    """REVERSE."""
    check_axis(call, call.attrs.axis, call.shape("shape"))
