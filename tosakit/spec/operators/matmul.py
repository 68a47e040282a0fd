"""Matrix multiplication."""

from tosakit.ir import ops
from tosakit.spec.call import AnyCall, Call
from tosakit.spec.operators.zero_points import check_zero_point


def _check_zero_points(call: AnyCall) -> None:
    for name in ("A", "B"):
        check_zero_point(call, f"{name}_zp", call.dtype(name), "InputZeroPointNotZero")


def matmul(call: Call[ops.MatMul]) -> None:
    """MATMUL: [N,H,C] x [N,C,W]; the sizes follow from the signature."""
    _check_zero_points(call)


def matmul_t(call: Call[ops.MatMulT]) -> None:
    """MATMUL_T: [N,H,C] x [D,W,C], D is N or 1."""
    _check_zero_points(call)
    check_batch(call, "BroadcastShapesMismatch", "A", "B")


def check_batch(call: AnyCall, code: str, left: str, right: str) -> None:
    """Report a batch D of the right operand that is neither 1 nor the left operand's N."""
    batch, other = call.size("N"), call.size("D")
    if None not in (batch, other) and other not in (1, batch):
        call.error(code, f"{right} has batch size {other}, it must be 1 or {left}'s {batch}", left, right)
