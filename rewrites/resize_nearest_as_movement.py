"""Compute a NEAREST RESIZE by moving rows and columns.

    x ─▶ RESIZE NEAREST scale n/d ─▶ y

    x ─▶ edges repeated ─▶ RESHAPE to groups of Q rows ─▶ the row of each phase: SLICE ─▶ CONCAT ─▶ RESHAPE ─▶ SLICE
      ─▶ the same for the columns ─▶ y

Output row p reads the input row nearest to (p*d + offset) / n. With g = gcd(n, d), P = n/g further rows read Q = d/g
rows further down, so P phases say it all: phase r of group q reads row Q*q + base(r). Rows outside x are its edge rows,
as RESIZE has it. Only values move.

Ethos-U55 and U65 take NEAREST by 2, 4 and 8 only. Of those Vela 5.2 looks at the factor and the size alone: with
corners aligned it emits the same bytes whatever the offset is, which is right for offset 0 only.
"""

import math
from dataclasses import dataclass

from rewrites._edges import rows_of
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import Tensor

RESIZE = Capture(ops.Resize, operands=(None,) * 4)
FACTORS = (2, 4, 8)
"""Factors by which Ethos-U55 and U65 repeat rows and columns."""


@dataclass(frozen=True)
class Axis:
    """One axis: group q of ``len(base)`` output rows reads the rows ``advance`` * q + ``base``."""

    base: tuple[int, ...]
    advance: int
    size: int


@dataclass(frozen=True)
class Plan:
    """Rows and columns."""

    axes: tuple[Axis, Axis]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A NEAREST RESIZE of constant sizes that the target refuses or miscompiles."""
    resize = match[RESIZE]
    x, *constants = resize.inputs
    wanted = resize.output.is_used and context.options.acts(context.target)
    if resize.attrs.mode != ResizeMode.NEAREST or not wanted or x.dtype not in (DType.INT8, DType.INT16):
        return None
    if resize.output.dtype != x.dtype:
        return None
    for tensor in constants:
        if not tensor.is_constant:
            return Refusal(f'"{tensor.name}" is no constant, so which rows are read is not known')
    if min(x.shape) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    scale, offset, border = ([int(v) for v in tensor.values().reshape(-1)] for tensor in constants)
    if context.options.when == "target" and _is_right(x.shape, scale, offset, border):
        return None
    sizes = resize.output.shape[1:3]
    rows, columns = (_axis(scale[2 * a], scale[2 * a + 1], offset[a], sizes[a]) for a in (0, 1))
    return Plan((rows, columns))


def _is_right(shape: tuple[int, ...], scale: list[int], offset: list[int], border: list[int]) -> bool:
    """True where Vela compiles the RESIZE for Ethos-U55 and U65, and by all that is known right.

    It also compiles two factors that differ; what that gives was not established, so these are moved.
    """
    if scale[0] == scale[1] and scale[2] == scale[3] and offset == border == [0, 0]:
        return True
    if shape[0] != 1 or scale[:2] != scale[2:]:
        return False
    numerator, denominator = scale[:2]
    if denominator == 1:
        return numerator in FACTORS and offset == border == [0, 0]
    centre = numerator // 2 - 1
    return (
        denominator == 2 and numerator in [2 * f for f in FACTORS] and (offset, border) == ([-centre] * 2, [centre] * 2)
    )


def _axis(numerator: int, denominator: int, offset: int, size: int) -> Axis:
    """The nearest row of every phase, halves away from it upwards."""
    common = math.gcd(numerator, denominator)
    places = [divmod(row * denominator + offset, numerator) for row in range(numerator // common)]
    base = tuple(row + (2 * rest >= numerator) for row, rest in places)
    return Axis(base[:size], denominator // common, size)


def replacement(match: Match, plan: Plan) -> Replacement:
    """Rows, then columns."""
    resize = match[RESIZE]
    builder = Builder(resize.output.name, location=resize.location, origin=RULE.name)
    y = resize.inputs[0]
    for position, axis in enumerate(plan.axes, start=1):
        y = _take(builder, y, position, axis)
    return Replacement(builder.ops, {resize.output: y})


def _take(builder: Builder, x: Tensor, position: int, axis: Axis) -> Tensor:
    """The rows that an axis of the result reads."""
    phases, first = len(axis.base), min(axis.base)
    groups = -(-axis.size // phases)
    places = [divmod(row - first, axis.advance) for row in axis.base]
    count = max(group for group, _ in places) + groups
    shape, outer, inner = x.shape, math.prod(x.shape[:position]), math.prod(x.shape[position + 1 :])
    x = rows_of(builder, x, position, first, first + count * axis.advance - 1)
    x = _reshaped(builder, x, (outer, count, axis.advance, inner))
    found: dict[tuple[int, int], Tensor] = {}
    for group, row in places:
        if (group, row) not in found:
            size = (outer, groups, 1, inner)
            found[group, row] = x if x.shape == size else builder.slice(x, (0, group, row, 0), size)
    pieces = [found[place] for place in places]
    joined = builder.concat(pieces, 2)
    whole = _reshaped(builder, joined, (*shape[:position], groups * phases, *shape[position + 1 :]))
    wanted = (*shape[:position], axis.size, *shape[position + 1 :])
    return whole if whole.shape == wanted else builder.slice(whole, (0,) * len(wanted), wanted)


def _reshaped(builder: Builder, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else builder.reshape(x, shape)


RULE = Rule(
    name="resize_nearest_as_movement",
    pattern=RESIZE,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Compute a NEAREST RESIZE by moving rows and columns.",
    options=ForSmallEthosU,
)
