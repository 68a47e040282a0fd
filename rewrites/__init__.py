"""The shipped rewrites: one file per rule, listed here in the order the documentation shows them."""

from collections.abc import Mapping

from rewrites.argmax_as_maximum import RULE as ARGMAX_AS_MAXIMUM
from rewrites.avg_pool2d_as_depthwise import RULE as AVG_POOL2D_AS_DEPTHWISE
from rewrites.bitwise_as_tables import RULE as BITWISE_AS_TABLES
from rewrites.bool_as_int32 import RULE as BOOL_AS_INT32
from rewrites.bool_interface_as_int8 import TRANSFORM as BOOL_INTERFACE_AS_INT8
from rewrites.computed_weights_as_matmul import RULE as COMPUTED_WEIGHTS_AS_MATMUL
from rewrites.cond_if_as_select import TRANSFORM as COND_IF_AS_SELECT
from rewrites.constant_indices_as_movement import RULE as CONSTANT_INDICES_AS_MOVEMENT
from rewrites.conv3d_as_conv2d import RULE as CONV3D_AS_CONV2D
from rewrites.deduplicate_constants import TRANSFORM as DEDUPLICATE_CONSTANTS
from rewrites.double_as_mul import RULE as DOUBLE_AS_MUL
from rewrites.fold_constants import RULE as FOLD_CONSTANTS
from rewrites.fuse_int48_bias import RULE as FUSE_INT48_BIAS
from rewrites.gather_as_matmul import RULE as GATHER_AS_MATMUL
from rewrites.identity_for_passed_outputs import TRANSFORM as IDENTITY_FOR_PASSED_OUTPUTS
from rewrites.insert_int16_rescale import RULE as INSERT_INT16_RESCALE
from rewrites.int16_matmul_as_int8 import RULE as INT16_MATMUL_AS_INT8
from rewrites.int32_reduction_as_halves import RULE as INT32_REDUCTION_AS_HALVES
from rewrites.intdiv_as_arithmetic import RULE as INTDIV_AS_ARITHMETIC
from rewrites.keep_rescale_apart import RULE as KEEP_RESCALE_APART
from rewrites.legalize_int48_rescale import RULE as LEGALIZE_INT48_RESCALE
from rewrites.merge_axes import RULE as MERGE_AXES
from rewrites.own_rescale_per_reader import RULE as OWN_RESCALE_PER_READER
from rewrites.remove_dead_code import TRANSFORM as REMOVE_DEAD_CODE
from rewrites.remove_identity_rescale import RULE as REMOVE_IDENTITY_RESCALE
from rewrites.resize_bilinear_as_conv2d import RULE as RESIZE_BILINEAR_AS_CONV2D
from rewrites.resize_nearest_as_movement import RULE as RESIZE_NEAREST_AS_MOVEMENT
from rewrites.reverse_last_axis import RULE as REVERSE_LAST_AXIS
from rewrites.scatter_as_matmul import RULE as SCATTER_AS_MATMUL
from rewrites.shift_by_rounding_shift import RULE as SHIFT_BY_ROUNDING_SHIFT
from rewrites.shorten_long_strides import RULE as SHORTEN_LONG_STRIDES
from rewrites.single_rescale_per_accumulator import RULE as SINGLE_RESCALE_PER_ACCUMULATOR
from rewrites.split_int48_bias import RULE as SPLIT_INT48_BIAS
from rewrites.transpose_conv2d_as_conv2d import RULE as TRANSPOSE_CONV2D_AS_CONV2D
from rewrites.unfuse_rescale_pair import RULE as UNFUSE_RESCALE_PAIR
from rewrites.variables_as_inputs import TRANSFORM as VARIABLES_AS_INPUTS
from rewrites.widen_int8_activations import TRANSFORM as WIDEN_INT8_ACTIVATIONS
from rewrites.wrap_narrowing_cast import RULE as WRAP_NARROWING_CAST
from tosakit.engine.rule import Step

RULES: tuple[Step, ...] = (
    WIDEN_INT8_ACTIVATIONS,
    INSERT_INT16_RESCALE,
    LEGALIZE_INT48_RESCALE,
    SPLIT_INT48_BIAS,
    FUSE_INT48_BIAS,
    SINGLE_RESCALE_PER_ACCUMULATOR,
    TRANSPOSE_CONV2D_AS_CONV2D,
    CONV3D_AS_CONV2D,
    SHORTEN_LONG_STRIDES,
    INT16_MATMUL_AS_INT8,
    RESIZE_BILINEAR_AS_CONV2D,
    RESIZE_NEAREST_AS_MOVEMENT,
    BOOL_INTERFACE_AS_INT8,
    COND_IF_AS_SELECT,
    BOOL_AS_INT32,
    ARGMAX_AS_MAXIMUM,
    INT32_REDUCTION_AS_HALVES,
    MERGE_AXES,
    REVERSE_LAST_AXIS,
    CONSTANT_INDICES_AS_MOVEMENT,
    GATHER_AS_MATMUL,
    SCATTER_AS_MATMUL,
    SHIFT_BY_ROUNDING_SHIFT,
    BITWISE_AS_TABLES,
    AVG_POOL2D_AS_DEPTHWISE,
    WRAP_NARROWING_CAST,
    INTDIV_AS_ARITHMETIC,
    COMPUTED_WEIGHTS_AS_MATMUL,
    VARIABLES_AS_INPUTS,
    IDENTITY_FOR_PASSED_OUTPUTS,
    UNFUSE_RESCALE_PAIR,
    KEEP_RESCALE_APART,
    OWN_RESCALE_PER_READER,
    DOUBLE_AS_MUL,
    FOLD_CONSTANTS,
    REMOVE_IDENTITY_RESCALE,
    DEDUPLICATE_CONSTANTS,
    REMOVE_DEAD_CODE,
)

CLEAN_UP: tuple[Step, ...] = (REMOVE_IDENTITY_RESCALE, REMOVE_DEAD_CODE, DEDUPLICATE_CONSTANTS)
"""What nothing needs goes before constants are merged, since its readers count there."""

PIPELINES: Mapping[str, tuple[Step, ...]] = {
    "int16": (REMOVE_DEAD_CODE, WIDEN_INT8_ACTIVATIONS, INSERT_INT16_RESCALE, LEGALIZE_INT48_RESCALE, *CLEAN_UP),
    "ethos-u": (
        REMOVE_DEAD_CODE,
        BOOL_INTERFACE_AS_INT8,
        FOLD_CONSTANTS,
        VARIABLES_AS_INPUTS,
        IDENTITY_FOR_PASSED_OUTPUTS,
        MERGE_AXES,
        COND_IF_AS_SELECT,
        BOOL_AS_INT32,
        ARGMAX_AS_MAXIMUM,
        INT32_REDUCTION_AS_HALVES,
        REVERSE_LAST_AXIS,
        CONSTANT_INDICES_AS_MOVEMENT,
        GATHER_AS_MATMUL,
        SCATTER_AS_MATMUL,
        SHIFT_BY_ROUNDING_SHIFT,
        BITWISE_AS_TABLES,
        AVG_POOL2D_AS_DEPTHWISE,
        WRAP_NARROWING_CAST,
        INTDIV_AS_ARITHMETIC,
        COMPUTED_WEIGHTS_AS_MATMUL,
        TRANSPOSE_CONV2D_AS_CONV2D,
        CONV3D_AS_CONV2D,
        SHORTEN_LONG_STRIDES,
        INT16_MATMUL_AS_INT8,
        RESIZE_BILINEAR_AS_CONV2D,
        RESIZE_NEAREST_AS_MOVEMENT,
        SINGLE_RESCALE_PER_ACCUMULATOR,
        SPLIT_INT48_BIAS,
        UNFUSE_RESCALE_PAIR,
        KEEP_RESCALE_APART,
        DOUBLE_AS_MUL,
        OWN_RESCALE_PER_READER,
        FOLD_CONSTANTS,
        *CLEAN_UP,
    ),
}
"""They begin without dead code: an operator that nothing needs would keep others from what they could be. Constants are
folded before rules ask for them, and where rules made them."""
