"""What each operator asks beyond its signature: one function per operator, which also gives the shapes of its results.

A function reads operands and sizes of a :class:`~tosakit.spec.call.Call`, reports what breaks the specification
(ERROR_IF, and REQUIRE where constants already prove it), and binds the sizes that its signature cannot name.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from tosakit.spec.call import AnyCall, Codes, Harmless
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
    zero_points,
)
from tosakit.spec.signature import Argument


class Checks(NamedTuple):
    """The function of one operator (None: the signature says it all), its own codes, and which values it looks at.

    It looks at operands that have to be constants, and at those in ``values``, where they happen to be. It must find
    the same for all constants that ``harmless``, by operand name, says True of.
    """

    run: Callable[[AnyCall], None] | None = None
    codes: Codes = Codes()
    harmless: Mapping[str, Harmless] = MappingProxyType({})
    values: tuple[str, ...] = ()

    def knows(self, argument: Argument) -> bool:
        """True for an operand whose very values may matter."""
        return argument.name in self.values or (bool(argument.constant) and argument.name not in self.harmless)


DEFAULT = Checks()

CHECKS: dict[str, Checks] = {
    "ARGMAX": Checks(reductions.argmax, reductions.ARGMAX),
    "AVG_POOL2D": Checks(windows.avg_pool2d, windows.POOLING, zero_points.of("input", "output")),
    "AVG_POOL2D_ADAPTIVE": Checks(windows.avg_pool2d_adaptive, windows.POOLING, zero_points.of("input", "output")),
    "CONV2D": Checks(windows.conv2d, windows.CONVOLUTION, zero_points.of("input", "weight")),
    "CONV2D_BLOCK_SCALED": Checks(block_scaled.conv2d_block_scaled, windows.CONVOLUTION),
    "CONV3D": Checks(windows.conv3d, windows.CONVOLUTION, zero_points.of("input", "weight")),
    "DEPTHWISE_CONV2D": Checks(windows.depthwise_conv2d, windows.CONVOLUTION, zero_points.of("input", "weight")),
    "FFT2D": Checks(fft.fft2d, fft.FFT2D),
    "MATMUL": Checks(matmul.matmul, harmless=zero_points.of("A", "B")),
    "MATMUL_T": Checks(matmul.matmul_t, harmless=zero_points.of("A", "B")),
    "MATMUL_T_BLOCK_SCALED": Checks(block_scaled.matmul_t_block_scaled),
    "MAX_POOL2D": Checks(windows.max_pool2d, windows.POOLING),
    "MAX_POOL2D_ADAPTIVE": Checks(windows.max_pool2d_adaptive, windows.POOLING),
    "RFFT2D": Checks(fft.fft2d, fft.FFT2D),
    "TRANSPOSE_CONV2D": Checks(windows.transpose_conv2d, windows.CONVOLUTION, zero_points.of("input", "weight")),
    "CLAMP": Checks(elementwise.clamp),
    "ADD": Checks(elementwise.broadcast),
    "ARITHMETIC_RIGHT_SHIFT": Checks(elementwise.shift, values=("input2",)),
    "BITWISE_AND": Checks(elementwise.broadcast),
    "BITWISE_OR": Checks(elementwise.broadcast),
    "BITWISE_XOR": Checks(elementwise.broadcast),
    "INTDIV": Checks(elementwise.intdiv, values=("input2",)),
    "LOGICAL_AND": Checks(elementwise.broadcast),
    "LOGICAL_LEFT_SHIFT": Checks(elementwise.shift, values=("input2",)),
    "LOGICAL_RIGHT_SHIFT": Checks(elementwise.shift, values=("input2",)),
    "LOGICAL_OR": Checks(elementwise.broadcast),
    "LOGICAL_XOR": Checks(elementwise.broadcast),
    "MAXIMUM": Checks(elementwise.broadcast),
    "MINIMUM": Checks(elementwise.broadcast),
    "MUL": Checks(elementwise.mul, elementwise.MUL),
    "POW": Checks(elementwise.broadcast),
    "SUB": Checks(elementwise.broadcast),
    "TABLE": Checks(elementwise.table, harmless=elementwise.HARMLESS_TABLE),
    "NEGATE": Checks(elementwise.negate, harmless=zero_points.of("input1", "output")),
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
    "PAD": Checks(layout.pad, layout.PAD, layout.HARMLESS_PAD),
    "RESHAPE": Checks(layout.reshape, layout.RESHAPE),
    "RESHAPE_BLOCK_SCALED": Checks(block_scaled.reshape_block_scaled, layout.RESHAPE),
    "REVERSE": Checks(reductions.reverse),
    "SLICE": Checks(layout.slice_, layout.SLICE),
    "TILE": Checks(layout.tile, layout.TILE),
    "TRANSPOSE": Checks(layout.transpose, layout.TRANSPOSE),
    "GATHER": Checks(layout.check_indices, values=("indices",)),
    "ROW_GATHER": Checks(layout.row_gather, values=("indices",)),
    "ROW_GATHER_BLOCK_SCALED": Checks(block_scaled.row_gather_block_scaled, values=("indices",)),
    "SCATTER": Checks(layout.scatter, values=("indices",)),
    "RESIZE": Checks(resize.resize, resize.RESIZE),
    "CAST_FROM_BLOCK_SCALED": Checks(block_scaled.cast_from_block_scaled, block_scaled.CAST_FROM),
    "CAST_TO_BLOCK_SCALED": Checks(block_scaled.cast_to_block_scaled),
    "RESCALE": Checks(rescale.rescale, harmless=rescale.HARMLESS),
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
