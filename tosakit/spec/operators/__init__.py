"""What each operator asks beyond its signature: one function per operator, which also gives the shapes of its results.

A function reads operands and sizes of a :class:`~tosakit.spec.call.Call`, reports what breaks the specification
(ERROR_IF, and REQUIRE where constants already prove it), and binds the sizes that its signature cannot name.
"""

from collections.abc import Callable
from typing import NamedTuple

from tosakit.spec.call import AnyCall, Codes
from tosakit.spec.operators import (
    block_scaled,
    elementwise,
    fft,
    layout,
    matmul,
    reductions,
    rescale,
    resize,
    shapes,
    windows,
)


class Checks(NamedTuple):
    """The function of one operator (None: the signature says it all) and its own codes."""

    run: Callable[[AnyCall], None] | None = None
    codes: Codes = Codes()


DEFAULT = Checks()

CHECKS: dict[str, Checks] = {
    "ARGMAX": Checks(reductions.argmax, reductions.ARGMAX),
    "AVG_POOL2D": Checks(windows.avg_pool2d, windows.POOLING),
    "AVG_POOL2D_ADAPTIVE": Checks(windows.avg_pool2d_adaptive, windows.POOLING),
    "CONV2D": Checks(windows.conv2d, windows.CONVOLUTION),
    "CONV2D_BLOCK_SCALED": Checks(block_scaled.conv2d_block_scaled, windows.CONVOLUTION),
    "CONV3D": Checks(windows.conv3d, windows.CONVOLUTION),
    "DEPTHWISE_CONV2D": Checks(windows.depthwise_conv2d, windows.CONVOLUTION),
    "FFT2D": Checks(fft.fft2d, fft.FFT2D),
    "MATMUL": Checks(matmul.matmul),
    "MATMUL_T": Checks(matmul.matmul_t),
    "MATMUL_T_BLOCK_SCALED": Checks(block_scaled.matmul_t_block_scaled),
    "MAX_POOL2D": Checks(windows.max_pool2d, windows.POOLING),
    "MAX_POOL2D_ADAPTIVE": Checks(windows.max_pool2d_adaptive, windows.POOLING),
    "RFFT2D": Checks(fft.fft2d, fft.FFT2D),
    "TRANSPOSE_CONV2D": Checks(windows.transpose_conv2d, windows.CONVOLUTION),
    "CLAMP": Checks(elementwise.clamp),
    "ADD": Checks(elementwise.broadcast),
    "ARITHMETIC_RIGHT_SHIFT": Checks(elementwise.shift),
    "BITWISE_AND": Checks(elementwise.broadcast),
    "BITWISE_OR": Checks(elementwise.broadcast),
    "BITWISE_XOR": Checks(elementwise.broadcast),
    "INTDIV": Checks(elementwise.intdiv),
    "LOGICAL_AND": Checks(elementwise.broadcast),
    "LOGICAL_LEFT_SHIFT": Checks(elementwise.shift),
    "LOGICAL_RIGHT_SHIFT": Checks(elementwise.shift),
    "LOGICAL_OR": Checks(elementwise.broadcast),
    "LOGICAL_XOR": Checks(elementwise.broadcast),
    "MAXIMUM": Checks(elementwise.broadcast),
    "MINIMUM": Checks(elementwise.broadcast),
    "MUL": Checks(elementwise.mul, elementwise.MUL),
    "POW": Checks(elementwise.broadcast),
    "SUB": Checks(elementwise.broadcast),
    "TABLE": Checks(elementwise.table),
    "NEGATE": Checks(elementwise.negate),
    "SELECT": Checks(elementwise.broadcast),
    "EQUAL": Checks(elementwise.broadcast),
    "GREATER": Checks(elementwise.broadcast),
    "GREATER_EQUAL": Checks(elementwise.broadcast),
    "REDUCE_ALL": Checks(reductions.reduce),
    "REDUCE_ANY": Checks(reductions.reduce),
    "REDUCE_MAX": Checks(reductions.reduce),
    "REDUCE_MIN": Checks(reductions.reduce),
    "REDUCE_PRODUCT": Checks(reductions.reduce),
    "REDUCE_SUM": Checks(reductions.reduce),
    "CONCAT": Checks(layout.concat, layout.CONCAT),
    "PAD": Checks(layout.pad, layout.PAD),
    "RESHAPE": Checks(layout.reshape, layout.RESHAPE),
    "RESHAPE_BLOCK_SCALED": Checks(block_scaled.reshape_block_scaled, layout.RESHAPE),
    "REVERSE": Checks(reductions.reverse),
    "SLICE": Checks(layout.slice_, layout.SLICE),
    "TILE": Checks(layout.tile, layout.TILE),
    "TRANSPOSE": Checks(layout.transpose, layout.TRANSPOSE),
    "GATHER": Checks(layout.check_indices),
    "ROW_GATHER": Checks(layout.row_gather),
    "ROW_GATHER_BLOCK_SCALED": Checks(block_scaled.row_gather_block_scaled),
    "SCATTER": Checks(layout.scatter),
    "RESIZE": Checks(resize.resize, resize.RESIZE),
    "CAST_FROM_BLOCK_SCALED": Checks(block_scaled.cast_from_block_scaled, block_scaled.CAST_FROM),
    "CAST_TO_BLOCK_SCALED": Checks(block_scaled.cast_to_block_scaled),
    "RESCALE": Checks(rescale.rescale),
    "ADD_SHAPE": Checks(shapes.add, shapes.SHAPES),
    "ASSERT_EQUAL_SHAPE": Checks(shapes.assert_equal),
    "CONCAT_SHAPE": Checks(shapes.concat, shapes.SHAPES),
    "DIM": Checks(shapes.dim, shapes.SHAPES),
    "DIV_CEIL_SHAPE": Checks(shapes.div_ceil, shapes.SHAPES),
    "DIV_FLOOR_SHAPE": Checks(shapes.div_floor, shapes.SHAPES),
    "EXP2_SHAPE": Checks(shapes.exp2, shapes.SHAPES),
    "LOG2_CEIL_SHAPE": Checks(shapes.log2_ceil, shapes.SHAPES),
    "LOG2_FLOOR_SHAPE": Checks(shapes.log2_floor, shapes.SHAPES),
    "MAX_SHAPE": Checks(shapes.maximum, shapes.SHAPES),
    "MIN_SHAPE": Checks(shapes.minimum, shapes.SHAPES),
    "MOD_SHAPE": Checks(shapes.mod, shapes.SHAPES),
    "MUL_SHAPE": Checks(shapes.mul, shapes.SHAPES),
    "SLICE_SHAPE": Checks(shapes.slice_, shapes.SLICED),
    "SUB_SHAPE": Checks(shapes.sub, shapes.SHAPES),
}
"""Checks by operator name; an operator that is missing here follows from its signature alone."""
