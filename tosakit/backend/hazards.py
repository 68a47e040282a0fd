"""What Vela 5.2 is known to compile into something else without a word, found before it runs.

Each hazard was established by inspecting the bytes Vela emits, or is an open upstream report; see docs/known-issues.md.
A ``refuse`` hazard has a rewrite that helps or no correct form at all; a ``warn`` hazard is reported by others and
could not be confirmed without hardware.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tosakit.engine.rule import describe
from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program
from tosakit.ir.types import BITS
from tosakit.numerics.intervals import Intervals
from tosakit.numerics.program_intervals import program_intervals

CONVOLUTIONS = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d)
BIAS_BITS = 40
"""Bits of an INT48 bias that Ethos-U55 and U65 keep."""
_MOVES = (ops.Identity, ops.Reshape, ops.Transpose, ops.Slice, ops.Reverse, ops.Concat, ops.Tile, ops.Pad)

Severity = Literal["refuse", "warn"]


@dataclass(frozen=True)
class Hazard:
    """One operator that Vela would compile wrongly, or may."""

    severity: Severity
    operator: str
    message: str
    helps: str

    def __str__(self) -> str:
        return f"{self.operator}: {self.message}. {self.helps}"


Found = tuple[str, str]
"""What is wrong at an operator, with the values, and what helps."""


@dataclass(frozen=True)
class KnownIssue:
    """A kind of hazard: where it is known to happen, and how to find it at an operator."""

    families: tuple[str, ...]
    severity: Severity
    graph: str
    find: Callable[[AnyOp, Intervals], Found | None]


U55, U65, U85 = "ethos-u55", "ethos-u65", "ethos-u85"


def family(accelerator: str) -> str:
    """``ethos-u55``, ``ethos-u65`` or ``ethos-u85`` from an accelerator configuration's name."""
    return accelerator.rpartition("-")[0]


def find_hazards(program: Program, accelerator: str) -> list[Hazard]:
    """Every known silent miscompile that Vela would make of this program on this accelerator, in program order.

    O(size of the program). An operator that is not as TOSA has it is none: the verifier and Vela speak about those.
    """
    issues = [issue for issue in KNOWN_ISSUES if family(accelerator) in issue.families]
    intervals = program_intervals(program)
    return list(_hazards(program, issues, intervals))


def _hazards(program: Program, issues: list[KnownIssue], intervals: Intervals) -> Iterator[Hazard]:
    for block in program.blocks:
        for op in block.ops:
            for issue in issues:
                found = issue.find(op, intervals)
                if found is not None:
                    yield Hazard(issue.severity, describe(op), *found)


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


def _bias_bits(op: AnyOp, _: Intervals) -> Found | None:
    limit = 1 << (BIAS_BITS - 1)
    if not isinstance(op.attrs, CONVOLUTIONS) or len(op.inputs) < 3 or op.inputs[2].dtype != DType.INT48:
        return None
    values = _values(op.inputs[2])
    if values is None:
        return None
    outside = values[(values < -limit) | (values >= limit)]
    if not outside.size:
        return None
    what = f"bias value {outside[0]} is outside the {BIAS_BITS} bits that the target keeps of an INT48 bias"
    return what, "The rule split_int48_bias adds it in INT32 instead"


def _fused_rescales(op: AnyOp, _: Intervals) -> Found | None:
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
    what = f"it follows an INT48 to INT32 RESCALE of exactly one, so its multiplier {cut[0]} is cut to its low 15 bits"
    return what, "Run legalize_int48_rescale with form=one-step on the original, or use a shift other than 14 there"


def _scale32(op: AnyOp) -> bool:
    return isinstance(op.attrs, ops.Rescale) and op.attrs.scale32


def _lost_state(op: AnyOp, _: Intervals) -> Found | None:
    if not isinstance(op.attrs, Foreign) or not any(t.extras.variable for t in op.inputs + op.outputs):
        return None
    what = "it reads or writes a VARIABLE but is an IDENTITY in the file; Vela compiles it and loses the state"
    return what, "The transform variables_as_inputs makes the state a graph input and output"


def _may_be_unpredictable(op: AnyOp, intervals: Intervals) -> Found | None:
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
    what = (
        f"its input less the zero point may reach from {low[at[0]]} to {high[at[0]]}, outside the {-allowed} to "
        f"{allowed - 1} that shift {allowed.bit_length()} allows; TOSA calls that unpredictable, Vela does not check"
    )
    return what, "Narrow the input with CLAMP, or use a larger shift"


def _read_range(op: AnyOp, intervals: Intervals) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What a RESCALE reads, by channel where that is known."""
    x = op.inputs[0]
    if isinstance(op.attrs, ops.Rescale) and op.attrs.input_unsigned:
        return np.array([0]), np.array([(1 << BITS[x.dtype]) - 1])
    interval = intervals.of(x)
    return np.atleast_1d(np.asarray(interval.low, np.int64)), np.atleast_1d(np.asarray(interval.high, np.int64))


def _shared_rescale(op: AnyOp, _: Intervals) -> Found | None:
    if not _is_rescale(op) or op.output.dtype != DType.INT32 or op.inputs[0].dtype not in (DType.INT8, DType.INT16):
        return None
    readers = len(op.output.users)
    if readers < 2:
        return None
    return f"it has {readers} readers; a merged RESCALE was reported to give zeros", "Give every reader its own RESCALE"


def _reduce_sum(op: AnyOp, _: Intervals) -> Found | None:
    if not isinstance(op.attrs, ops.ReduceSum) or not op.inputs:
        return None
    source = _source(op.inputs[0])
    if not _is_rescale(source) or source is None or source.inputs[0].dtype != DType.INT16:
        return None
    what = "sums of int16 values were reported to give zeros (open upstream)"
    return what, "Compare on the device before you rely on it"


def _source(tensor: Tensor) -> AnyOp | None:
    """The operator whose values a tensor holds, moved about."""
    op = tensor.producer
    while op is not None and isinstance(op.attrs, _MOVES) and op.inputs:
        op = op.inputs[0].producer
    return op


def _doubled_input(op: AnyOp, _: Intervals) -> Found | None:
    if not isinstance(op.attrs, ops.Add) or len(op.inputs) != 2:
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
    what = f"x + x with one scale, multiplier {one[0][0]}, no power of two, was reported to return x (open upstream)"
    return what, "Multiply by two in the scale of a RESCALE instead"


KNOWN_ISSUES: tuple[KnownIssue, ...] = (
    KnownIssue((U55, U65), "refuse", "an INT48 bias outside [-2^39, 2^39)", _bias_bits),
    KnownIssue(
        (U85,),
        "refuse",
        "RESCALE INT48 to INT32 of exactly (2^14, 14), then RESCALE to INT16 with a 31-bit multiplier",
        _fused_rescales,
    ),
    KnownIssue((U55, U65, U85), "refuse", "VARIABLE_READ or VARIABLE_WRITE written as IDENTITY", _lost_state),
    KnownIssue(
        (U55, U65, U85), "warn", "RESCALE whose input may leave the range its shift allows", _may_be_unpredictable
    ),
    KnownIssue((U55, U65), "warn", "one widening RESCALE with several readers", _shared_rescale),
    KnownIssue(
        (U55,), "warn", "x + x, both operands rescaled from one tensor by one scale, no power of two", _doubled_input
    ),
    KnownIssue((U85,), "warn", "REDUCE_SUM of int16 values", _reduce_sum),
)
"""What is looked for; docs/known-issues.md lists the same."""
