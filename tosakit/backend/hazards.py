"""What Vela 5.2 is known to compile into something else without a word, found before it runs.

Each issue was established by inspecting the bytes Vela emits, or is an open upstream report that could not be confirmed
without hardware (``suspected``); see docs/known-issues.md.
"""

import numpy as np
import numpy.typing as npt

from tosakit.backend.obstacle import ANY, Entry
from tosakit.backend.targets import BIAS_BITS, FAMILIES, SMALL, U55, U85
from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.movement import source_of
from tosakit.ir.operator import Foreign
from tosakit.ir.types import BITS, INTEGER_RANGES
from tosakit.numerics.intervals import Intervals

CONVOLUTIONS = ("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")
_CAST_TYPES = (DType.INT8, DType.INT16, DType.INT32)


def _values(tensor: Tensor) -> npt.NDArray[np.int64] | None:
    """The integers of a constant, flat; None where it is none, or has too little data."""
    if not tensor.is_constant:
        return None
    try:
        return tensor.values().astype(np.int64).reshape(-1)
    except TosakitError:
        return None


def _is_rescale(op: AnyOp | None) -> bool:
    """A RESCALE with all five operands and its result."""
    return op is not None and isinstance(op.attrs, ops.Rescale) and len(op.inputs) == 5 and len(op.outputs) == 1


def _pairs(op: AnyOp) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Constant multipliers and shifts of a RESCALE, where they can be read."""
    multiplier, shift = _values(op.inputs[1]), _values(op.inputs[2])
    if multiplier is None or shift is None or multiplier.shape != shift.shape or not shift.size:
        return None
    return multiplier, shift


def _bias_bits(op: AnyOp, _: Intervals) -> str | None:
    limit = 1 << (BIAS_BITS - 1)
    if len(op.inputs) < 3 or op.inputs[2].dtype != DType.INT48:
        return None
    values = _values(op.inputs[2])
    if values is None:
        return None
    outside = values[(values < -limit) | (values >= limit)]
    if not outside.size:
        return None
    return f"bias value {outside[0]} is outside the {BIAS_BITS} bits that the target keeps of an INT48 bias"


def _fused_rescales(op: AnyOp, _: Intervals) -> str | None:
    if not _is_rescale(op) or not _scale32(op) or (op.inputs[0].dtype, op.output.dtype) != (DType.INT32, DType.INT16):
        return None
    first = op.inputs[0].producer
    pairs = _pairs(op)
    if first is None or not _is_rescale(first) or first.inputs[0].dtype != DType.INT48 or pairs is None:
        return None
    ones = _pairs(first)
    if ones is None or _scale32(first) or np.any(ones[0] != 1 << 14) or np.any(ones[1] != 14):
        return None
    cut = pairs[0][pairs[0] >= 1 << 15]
    if not cut.size:
        return None
    return f"it follows an INT48 to INT32 RESCALE of exactly one, so its multiplier {cut[0]} is cut to its low 15 bits"


def _scale32(op: AnyOp) -> bool:
    return isinstance(op.attrs, ops.Rescale) and op.attrs.scale32


def _ignored_offset(op: AnyOp, _: Intervals) -> str | None:
    scale, offset, border = (_values(tensor) for tensor in op.inputs[1:4])
    if not isinstance(op.attrs, ops.Resize) or op.attrs.mode != ResizeMode.NEAREST:
        return None
    if scale is None or offset is None or border is None or np.array_equal(scale[::2], scale[1::2]):
        return None
    aligned = not np.any(offset) and not np.any(border) and np.all(scale[1::2] == 1)
    centre = scale[::2] // 2 - 1
    half = np.all(scale[1::2] == 2) and np.array_equal(offset, -centre) and np.array_equal(border, centre)
    if aligned or half or op.inputs[0].shape[1:3] == (1, 1):
        return None
    return f"offset {offset.tolist()} and border {border.tolist()} by scale {scale.tolist()} are compiled as others are"


def _one_factor(op: AnyOp, _: Intervals) -> str | None:
    scale = _values(op.inputs[1])
    if not isinstance(op.attrs, ops.Resize) or op.attrs.mode != ResizeMode.NEAREST or scale is None:
        return None
    if scale[0] * scale[3] == scale[1] * scale[2] or min(op.inputs[0].shape[1:3]) == 1:
        return None
    return f"the factors of scale {scale.tolist()} differ, and both axes are enlarged by the larger one"


def _lost_state(op: AnyOp, _: Intervals) -> str | None:
    if not isinstance(op.attrs, Foreign) or not any(t.extras.variable for t in op.inputs + op.outputs):
        return None
    return "it reads or writes a VARIABLE but is an IDENTITY in the file; Vela compiles it and loses the state"


def _rounded_shift(op: AnyOp, _: Intervals) -> str | None:
    if len(op.inputs) != 2 or op.inputs[0].dtype != DType.INT32:
        return None
    amounts = _values(op.inputs[1])
    if not isinstance(op.attrs, ops.ArithmeticRightShift) or op.attrs.round:
        return None
    if amounts is not None and not np.any(amounts):
        return None
    return "it rounds down, and the target rounds to nearest"


def _saturating_cast(op: AnyOp, intervals: Intervals) -> str | None:
    if len(op.inputs) != 1 or len(op.outputs) != 1 or not {op.inputs[0].dtype, op.output.dtype} <= {*_CAST_TYPES}:
        return None
    read, (least, most) = intervals.of(op.inputs[0]), INTEGER_RANGES[op.output.dtype]
    if least <= read.lowest and read.highest <= most:
        return None
    return (
        f"it reads values from {read.lowest} to {read.highest}; {op.output.dtype.name} holds the low bits of them, "
        "and the target saturates"
    )


def _may_be_unpredictable(op: AnyOp, intervals: Intervals) -> str | None:
    if not _is_rescale(op) or not _scale32(op) or op.inputs[0].dtype not in (DType.INT8, DType.INT16, DType.INT32):
        return None
    pairs, zero_point = _pairs(op), _values(op.inputs[3])
    if pairs is None or zero_point is None or zero_point.size != 1 or np.any(pairs[1] < 2):
        return None
    low, high = _read_range(op, intervals)
    low, high = low - zero_point[0], high - zero_point[0]
    limit = np.int64(1) << np.minimum(pairs[1], 32) - 1
    if limit.size > 1 and limit.shape != op.inputs[0].shape[-1:]:
        return None
    low, high, limit = np.broadcast_arrays(low, high, limit)
    at = np.flatnonzero((low < -limit) | (high >= limit))
    if not at.size:
        return None
    allowed = int(limit[at[0]])
    return (
        f"its input less the zero point may reach from {low[at[0]]} to {high[at[0]]}, outside the {-allowed} to "
        f"{allowed - 1} that shift {allowed.bit_length()} allows; TOSA calls that unpredictable, Vela does not check"
    )


def _read_range(op: AnyOp, intervals: Intervals) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What a RESCALE reads, by channel where that is known."""
    x = op.inputs[0]
    if isinstance(op.attrs, ops.Rescale) and op.attrs.input_unsigned:
        return np.array([0]), np.array([(1 << BITS[x.dtype]) - 1])
    interval = intervals.of(x)
    return np.atleast_1d(np.asarray(interval.low, np.int64)), np.atleast_1d(np.asarray(interval.high, np.int64))


def _shared_rescale(op: AnyOp, _: Intervals) -> str | None:
    if not _is_rescale(op) or op.output.dtype != DType.INT32 or op.inputs[0].dtype not in (DType.INT8, DType.INT16):
        return None
    readers = len(op.output.users)
    if readers < 2:
        return None
    return f"it has {readers} readers; a merged RESCALE was reported to give zeros"


def _reduce_sum(op: AnyOp, _: Intervals) -> str | None:
    source = source_of(op.inputs[0]).producer if op.inputs else None
    if not _is_rescale(source) or source is None or source.inputs[0].dtype != DType.INT16:
        return None
    return "sums of int16 values were reported to give zeros (open upstream)"


def _doubled_input(op: AnyOp, _: Intervals) -> str | None:
    if len(op.inputs) != 2:
        return None
    left, right = (t.producer for t in op.inputs)
    if left is None or right is None or not _is_rescale(left) or not _is_rescale(right):
        return None
    one, other = _pairs(left), _pairs(right)
    if left.inputs[0] is not right.inputs[0] or one is None or other is None:
        return None
    same = all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    if not same or not np.any(one[0] & (one[0] - 1)):
        return None
    return f"x + x with one scale, multiplier {one[0][0]}, no power of two, was reported to return x (open upstream)"


KNOWN_ISSUES: tuple[Entry, ...] = (
    Entry(
        SMALL,
        "miscompiled",
        CONVOLUTIONS,
        "an INT48 bias outside [-2^39, 2^39)",
        "bytes inspected",
        _bias_bits,
        rules=("split_int48_bias",),
    ),
    Entry(
        (U85,),
        "miscompiled",
        ("RESCALE",),
        "RESCALE INT48 to INT32 of exactly (2^14, 14), then RESCALE to INT16 with a 31-bit multiplier",
        "bytes inspected",
        _fused_rescales,
        rules=("unfuse_rescale_pair",),
    ),
    Entry(
        SMALL,
        "miscompiled",
        ("RESIZE",),
        "NEAREST RESIZE with other offsets than those of aligned corners or half-pixel centres",
        "bytes inspected",
        _ignored_offset,
        rules=("resize_nearest_as_movement",),
    ),
    Entry(
        SMALL,
        "miscompiled",
        ("RESIZE",),
        "NEAREST RESIZE by factors that differ",
        "bytes inspected",
        _one_factor,
        rules=("resize_nearest_as_movement",),
    ),
    Entry(
        SMALL,
        "miscompiled",
        ("ARITHMETIC_RIGHT_SHIFT",),
        "ARITHMETIC_RIGHT_SHIFT with round=False",
        "bytes inspected",
        _rounded_shift,
        rules=("shift_by_rounding_shift",),
    ),
    Entry(
        SMALL,
        "miscompiled",
        ("CAST",),
        "CAST to an integer type that may not hold the value",
        "bytes inspected",
        _saturating_cast,
        rules=("wrap_narrowing_cast",),
    ),
    Entry(
        FAMILIES,
        "miscompiled",
        ANY,
        "VARIABLE_READ or VARIABLE_WRITE written as IDENTITY",
        "bytes inspected",
        _lost_state,
        rules=("variables_as_inputs",),
    ),
    Entry(
        FAMILIES,
        "suspected",
        ("RESCALE",),
        "RESCALE whose input may leave the range its shift allows",
        "probed",
        _may_be_unpredictable,
        advice="Narrow the input with CLAMP, or use a larger shift",
    ),
    Entry(
        SMALL,
        "suspected",
        ("RESCALE",),
        "one widening RESCALE with several readers",
        "upstream report",
        _shared_rescale,
        rules=("own_rescale_per_reader",),
    ),
    Entry(
        (U55,),
        "suspected",
        ("ADD",),
        "x + x, both operands rescaled from one tensor by one scale, no power of two",
        "upstream report",
        _doubled_input,
        rules=("double_as_mul",),
    ),
    Entry(
        (U85,),
        "suspected",
        ("REDUCE_SUM",),
        "REDUCE_SUM of int16 values",
        "upstream report",
        _reduce_sum,
        rules=("keep_rescale_apart",),
    ),
)
"""What is looked for; docs/known-issues.md lists the same."""
