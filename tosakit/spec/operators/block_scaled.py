"""Operators on values with separate block scales (EXT-MX)."""

from tosakit.ir import ops
from tosakit.ir.enums import BlockSize
from tosakit.spec.call import AnyCall, Call, Codes, Shape, shape_of, show
from tosakit.spec.operators import windows
from tosakit.spec.operators.layout import check_indices, check_new_shape
from tosakit.spec.operators.matmul import check_batch

CAST_FROM = Codes(sizes={"input_scale": "InputDimensionMismatch"})


def _block_size(call: AnyCall) -> int | None:
    """block_size as a number; reported and None where it is no value of the enumeration."""
    value = call.attrs.block_size
    if isinstance(value, BlockSize) and value != BlockSize.UNKNOWN:
        return int(value)
    call.error("UnknownBlockSizeEnum", f"block_size is {int(value)}, it must be BLOCK_SIZE_1 or BLOCK_SIZE_32")
    return None


def _scale_shape(call: AnyCall, shape: Shape | None, block: int | None, name: str) -> Shape | None:
    """Shape of the scales of values of ``shape``: the last size divided by the block size, which must divide it."""
    if not shape or block is None:
        return None
    last = shape[-1]
    if last is None:
        return shape
    if last % block:
        message = f"{name} has shape {show(shape)}, its last size must be a multiple of the block size {block}"
        call.error("WrongBlockSizeDimension", message, name)
        return None
    return (*shape[:-1], last // block)


def _check_scales(call: AnyCall, values: str, scales: str, block: int | None) -> None:
    """Report scales whose shape does not fit their values."""
    if scales not in call.operands:
        return
    expected = _scale_shape(call, shape_of(call.tensor(values)), block, values)
    actual = shape_of(call.tensor(scales))
    if expected is None or actual is None:
        return
    agree = len(expected) == len(actual) and all(
        must is None or has is None or must == has for must, has in zip(expected, actual, strict=True)
    )
    if not agree:
        code = "RankMismatch" if len(expected) != len(actual) else "InputDimensionMismatch"
        message = f"{scales} has shape {show(actual)}, values of shape {show(call_shape(call, values))} need"
        call.error(code, f"{message} {show(expected)}", values, scales)


def call_shape(call: AnyCall, name: str) -> Shape:
    """Shape of an operand, () where unknown."""
    return shape_of(call.tensor(name)) or ()


def cast_from_block_scaled(call: Call[ops.CastFromBlockScaled]) -> None:
    """CAST_FROM_BLOCK_SCALED."""
    _check_scales(call, "input_data", "input_scale", _block_size(call))


def cast_to_block_scaled(call: Call[ops.CastToBlockScaled]) -> None:
    """CAST_TO_BLOCK_SCALED."""
    scales = _scale_shape(call, call.shape("shape"), _block_size(call), "input_data")
    if scales is not None:
        call.bind_shape("out_scale_shape", scales)


def conv2d_block_scaled(call: Call[ops.Conv2dBlockScaled]) -> None:
    """CONV2D_BLOCK_SCALED."""
    block = _block_size(call)
    _check_scales(call, "input_data", "input_scale", block)
    _check_scales(call, "weight_data", "weight_scale", block)
    windows.conv2d_block_scaled(call)


def matmul_t_block_scaled(call: Call[ops.MatMulTBlockScaled]) -> None:
    """MATMUL_T_BLOCK_SCALED."""
    block = _block_size(call)
    _check_scales(call, "A_data", "A_scale", block)
    _check_scales(call, "B_data", "B_scale", block)
    check_batch(call, "MatmulTBlockScaledBroadcastShapeMismatch", "A_data", "B_data")


def reshape_block_scaled(call: Call[ops.ReshapeBlockScaled]) -> None:
    """RESHAPE_BLOCK_SCALED: the values' new shape, the scales follow."""
    block = _block_size(call)
    _check_scales(call, "input", "input_scale", block)
    check_new_shape(call, "new_value_shape", call.shape("value_shape1"), "value_shape2")
    scales = _scale_shape(call, call.shape("value_shape2"), block, "new_value_shape")
    if scales is not None:
        call.bind_shape("scale_shape2", scales)


def row_gather_block_scaled(call: Call[ops.RowGatherBlockScaled]) -> None:
    """ROW_GATHER_BLOCK_SCALED: row_count rows of values and scales from every index."""
    block = _block_size(call)
    _check_scales(call, "values", "values_scale", block)
    values = call.shape("value_shape1")
    if values is None:
        return
    if len(values) != 3:
        call.error("WrongRank", f"values has rank {len(values)} ({show(values)}), it must have rank 3", "values")
        return
    call.bind("K", values[1])
    check_indices(call)
    count, width = call.integers("row_count"), call.size("W")
    batch = call.size("N")
    if None not in (batch, values[0]) and batch != values[0]:
        message = f"indices have batch size {batch}, values {values[0]}"
        call.error("OperandShapeMismatch", message, "values", "indices")
    rows = None if not count or width is None else width * count[0]
    call.bind_shape("value_shape2", (values[0], rows, values[2]))
    if block is not None:
        last = None if values[2] is None or values[2] % block else values[2] // block
        call.bind_shape("scale_shape2", (values[0], rows, last))
