"""Operators that move values about and compute none."""

from tosakit.ir import ops
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes

RENAMES: tuple[type[Attributes], ...] = (ops.Identity, ops.Reshape)
"""All values in their order."""

MOVES: tuple[type[Attributes], ...] = (
    *RENAMES,
    *(ops.Transpose, ops.Slice, ops.Reverse, ops.Tile, ops.Concat, ops.Pad),
)
"""Values of the first operand, of every operand of CONCAT, and PAD's own value."""


def source_of(tensor: Tensor, through: tuple[type[Attributes], ...] = MOVES) -> Tensor:
    """The tensor that holds the values of ``tensor`` before such operators moved them; of several the first operand."""
    while tensor.producer is not None and isinstance(tensor.producer.attrs, through) and tensor.producer.inputs:
        tensor = tensor.producer.inputs[0]
    return tensor
