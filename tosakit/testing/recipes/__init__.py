"""How to make each operator: what its prose asks of attributes and constants beyond its signature."""

from collections.abc import Callable

from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.testing.making import Given, Making
from tosakit.testing.recipes import elementwise, flow, layout, shapes, windows
from tosakit.testing.sketch import Sketch

Recipe = Callable[[Making], tuple[Tensor, ...]]

RECIPES: dict[str, Recipe] = {
    "AVG_POOL2D": windows.pool,
    "AVG_POOL2D_ADAPTIVE": windows.adaptive_pool,
    "CONV2D": windows.conv,
    "CONV2D_BLOCK_SCALED": windows.conv2d_block_scaled,
    "CONV3D": windows.conv,
    "DEPTHWISE_CONV2D": windows.conv,
    "FFT2D": windows.fft2d,
    "MATMUL_T": windows.matmul_t,
    "MATMUL_T_BLOCK_SCALED": windows.matmul_t_block_scaled,
    "MAX_POOL2D": windows.pool,
    "MAX_POOL2D_ADAPTIVE": windows.adaptive_pool,
    "RFFT2D": windows.fft2d,
    "TRANSPOSE_CONV2D": windows.transpose_conv2d,
    "RESIZE": windows.resize,
    "ARITHMETIC_RIGHT_SHIFT": elementwise.shift,
    "LOGICAL_LEFT_SHIFT": elementwise.shift,
    "LOGICAL_RIGHT_SHIFT": elementwise.shift,
    "CLAMP": elementwise.clamp,
    "INTDIV": elementwise.intdiv,
    "MUL": elementwise.mul,
    "POW": elementwise.power,
    "TABLE": elementwise.table,
    "RESCALE": elementwise.rescale,
    "CONCAT": layout.concat,
    "PAD": layout.pad,
    "RESHAPE": layout.reshape,
    "RESHAPE_BLOCK_SCALED": layout.reshape_block_scaled,
    "SLICE": layout.slice_,
    "TILE": layout.tile,
    "TRANSPOSE": layout.transpose,
    "GATHER": layout.gather,
    "ROW_GATHER": layout.row_gather,
    "ROW_GATHER_BLOCK_SCALED": layout.row_gather_block_scaled,
    "SCATTER": layout.scatter,
    "CAST_FROM_BLOCK_SCALED": layout.cast_from_block_scaled,
    "CAST_TO_BLOCK_SCALED": layout.cast_to_block_scaled,
    "CONST": flow.const,
    "CONST_SHAPE": flow.const_shape,
    "CUSTOM": flow.custom,
    "COND_IF": flow.cond_if,
    "WHILE_LOOP": flow.while_loop,
    "VARIABLE": flow.variable,
    "VARIABLE_READ": flow.variable_read,
    "VARIABLE_WRITE": flow.variable_write,
    "ASSERT_EQUAL_SHAPE": shapes.assert_equal,
    "CONCAT_SHAPE": shapes.concat,
    "SLICE_SHAPE": shapes.slice_,
}
"""By operator name; what is missing follows from its signature."""


def recipe_of(m: Making) -> Recipe:
    """The recipe of an operator, or what its signature alone asks for."""
    if m.sig.name in RECIPES:
        return RECIPES[m.sig.name]
    if m.sig.name.endswith("_SHAPE"):
        return shapes.unary if len(m.arguments) == 1 else shapes.binary
    if any(argument.shape == "shape2" for argument in m.arguments):
        return elementwise.broadcast
    return Making.finish


def make(sketch: Sketch, kind: type[Attributes], given: Given | None = None) -> tuple[Tensor, ...]:
    """Add an operator of a kind with the operands ``given`` by slot, all else drawn; its results.

    What it reads besides is made too. Raises Unfit where the operands do not suit, or no type of the operator may be
    drawn; nothing is left behind then.
    """
    before = sketch.state
    scaled = kind.NAME.endswith("BLOCK_SCALED") and (kind.NAME not in UNSCALED_TOO or sketch.choices.flag(0.7))
    try:
        m = Making(sketch, kind, given or {}, scaled=scaled)
        return recipe_of(m)(m)
    except Exception:
        sketch.forget(before)
        raise


UNSCALED_TOO = ("RESHAPE_BLOCK_SCALED", "ROW_GATHER_BLOCK_SCALED")
"""Operators whose scales are optional."""
