"""What running a program in the reference model costs, and what it cannot show.

The number of input vectors that a check runs when nobody says follows from the program alone, never from the clock, so
that the same check gives the same numbers anywhere.
"""

import math

from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.program import Program

VECTORS = 64
"""Input vectors of a check, where the program is not too large for so many."""
FEWEST = 4
"""Input vectors of a check at least: zero, both limits, and one at random."""
BUDGET = 10**10
"""Cost units of all runs of one program: about 30 s of one core in the reference model of tosa-tools 2026.8."""
_ELEMENT = 10
"""Cost of an element that goes in or out, against one multiplication (measured, like the budget)."""


def cost(program: Program) -> int:
    """Roughly the multiplications of one run, plus ten for each element read or written. Loop bodies count once."""
    return sum(_cost(op) for block in program.blocks for op in block.ops)


def default_vectors(program: Program) -> tuple[int, str]:
    """How many vectors to run, and why there are fewer than usual ("" where there are not)."""
    one = cost(program)
    count = max(min(VECTORS, BUDGET // max(one, 1)), FEWEST)
    if count == VECTORS:
        return count, ""
    return (
        count,
        f"{count} input vectors instead of {VECTORS}, because one run takes about {one // 10**6:,} M operations",
    )


def state_remark(program: Program) -> str:
    """What a comparison of a program with state says nothing about; "" for one without."""
    cells = sum(tensor.extras.variable for block in program.blocks for tensor in block.tensors)
    if not cells:
        return ""
    return f"{cells} variables: every run starts from their initial values, so what later calls compute is not compared"


def _cost(op: AnyOp) -> int:
    if isinstance(op.attrs, ops.Const | ops.ConstShape):
        return 0
    elements = sum(_size(tensor) for tensor in (*op.inputs, *op.outputs))
    return elements * _ELEMENT + _multiplications(op)


def _multiplications(op: AnyOp) -> int:
    if len(op.inputs) < 2 or not op.outputs:
        return 0
    results, weight = _size(op.output), op.inputs[1].shape
    if isinstance(op.attrs, ops.Conv2d | ops.Conv3d | ops.TransposeConv2d):
        return results * math.prod(weight[1:])
    if isinstance(op.attrs, ops.DepthwiseConv2d):
        return results * math.prod(weight[:2])
    if isinstance(op.attrs, ops.MatMul | ops.MatMulT):
        return results * (op.inputs[0].shape[-1:] or (1,))[0]
    return 0


def _size(tensor: Tensor) -> int:
    return math.prod(max(size, 1) for size in tensor.shape)
