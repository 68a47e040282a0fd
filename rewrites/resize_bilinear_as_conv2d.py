"""Compute a bilinear RESIZE as one DEPTHWISE_CONV2D per phase.

    x ─▶ RESIZE BILINEAR by (uy, ux) ─▶ RESCALE ─▶ y

    x ─▶ repeat the edges ─┬▶ DEPTHWISE_CONV2D ─▶ RESCALE ─┐
                           └▶ ... one per phase (ry, rx)   ─┴▶ CONCAT ─▶ depth to space ─▶ y

Along an axis with scale n/d and offset o, output p stands at p*d + o, in n-ths of an input. With g = gcd(n, d), P = n/g
outputs further on it stands Q = d/g inputs further on, so output P*q + r reads inputs Q*q + i and Q*q + i + 1,
i = floor((r*d + o) / n), with weights n - f and f, f = (r*d + o) mod n, for every q: a convolution of stride Q. RESIZE
repeats the edges, which is done before. Every sum has the same terms, so every value is identical. INT48 must not be
moved, so the RESCALE stays in front of CONCAT. Weights up to 255 have a zero point of -128; larger ones are two
convolutions or three, whose INT32 sums are added.

Ethos-U55 and U65 take no bilinear RESIZE but the copy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
import numpy.typing as npt

from rewrites._accumulator import ONE, ONE_SHIFT
from rewrites._depth_to_space import depth_to_space
from rewrites._depthwise import depthwise
from rewrites._edges import rows_of
from rewrites._int32 import times
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Tensor

RESIZE = Capture(ops.Resize)
DIGIT = 8
"""Bits of a weight that one convolution has: 0..255, less a zero point of -128."""

LARGEST_INT16_WEIGHT = (1 << 16) - 1
"""Times INT16 values, as many as make their sum pass INT32 otherwise."""

LONGEST_STRIDE = 3


@dataclass(frozen=True)
class Axis:
    """One axis: phases, how far a group of them advances, their weights on one window, and its place.

    Group q of the phases reads the inputs from ``first`` + ``advance`` * q on; the last one ends at ``last``.
    """

    phases: int
    advance: int
    weights: tuple[tuple[int, ...], ...]
    first: int
    last: int
    size: int


@dataclass(frozen=True)
class Plan:
    """Both axes, and the RESCALEs that read the sums; none where the sums themselves, in INT32, are wanted."""

    axes: tuple[Axis, Axis]
    readers: tuple[AnyOp, ...]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A bilinear RESIZE that only RESCALEs read, with weights that fit int8 and strides that the target takes."""
    resize = match[RESIZE]
    x, *constants = resize.inputs
    if resize.attrs.mode != ResizeMode.BILINEAR or resize.output.dtype not in (DType.INT32, DType.INT48):
        return None
    if not resize.output.is_used:
        return None
    for tensor in constants:
        if not tensor.is_constant:
            return Refusal(f'"{tensor.name}" is no constant, so the weights of the phases are not known')
    scale, offset, border = (tensor.values().reshape(-1).tolist() for tensor in constants)
    is_copy = scale[0] == scale[1] and scale[2] == scale[3] and offset == border == [0, 0]
    if not context.options.acts(context.target) or (context.options.when == "target" and is_copy):
        return None
    if min(x.shape) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    if resize.output.dtype == DType.INT48 and scale[0] * scale[2] > LARGEST_INT16_WEIGHT:
        return Refusal(
            f"weights add up to {scale[0]} * {scale[2]}, and INT32 holds INT16 values times {LARGEST_INT16_WEIGHT}"
        )
    obstacles = [_obstacle(reader, resize.output) for reader in resize.output.users]
    if resize.output.dtype == DType.INT48 and any(obstacles):
        return Refusal(next(filter(None, obstacles)))
    wanted = resize.output.shape[1:3]
    rows, columns = (_axis(wanted[a], scale[2 * a], scale[2 * a + 1], offset[a]) for a in (0, 1))
    if max(rows.advance, columns.advance) > LONGEST_STRIDE:
        strides = f"[{rows.advance}, {columns.advance}]"
        return Refusal(f"the convolutions would have stride {strides}, the target takes up to {LONGEST_STRIDE}")
    return Plan((rows, columns), () if any(obstacles) else resize.output.users)


def _obstacle(reader: AnyOp, resized: Tensor) -> str:
    """Why a reader cannot take the sums phase by phase; "" where it can."""
    if not isinstance(reader.attrs, ops.Rescale) or reader.inputs[0] is not resized:
        return f'"{resized.name}" is also read by {describe(reader)}, not to be rescaled'
    per_channel = reader.attrs.per_channel and reader.inputs[1].shape != (1,)
    return f"{describe(reader)} has a multiplier per channel, which is out of place here" if per_channel else ""


def _axis(wanted: int, numerator: int, denominator: int, offset: int) -> Axis:
    """The window and weights of every phase."""
    common = math.gcd(numerator, denominator)
    phases, advance = min(numerator // common, wanted), denominator // common
    places = [divmod(phase * denominator + offset, numerator) for phase in range(phases)]
    first = min(index for index, _ in places)
    taps = max(index for index, _ in places) + 2 - first
    weights = []
    for index, fraction in places:
        row = [0] * taps
        row[index - first] += numerator - fraction
        row[index - first + 1] += fraction
        weights.append(tuple(row))
    groups = -(-wanted // phases)
    return Axis(phases, advance, tuple(weights), first, first + (groups - 1) * advance + taps - 1, wanted)


def replacement(match: Match, plan: Plan) -> Replacement:
    """The edges repeated, one DEPTHWISE_CONV2D and RESCALE per phase and reader, and the way from channels to space."""
    resize = match[RESIZE]
    x = resize.inputs[0]
    builder = Builder(resize.output.name, location=resize.location, origin=RULE.name)
    padded = x
    for position, axis in enumerate(plan.axes, start=1):
        padded = rows_of(builder, padded, position, axis.first, axis.last)
    vertical, horizontal = plan.axes
    stride = vertical.advance, horizontal.advance
    sums = [
        _sums(builder, padded, np.outer(rows, columns), stride)
        for rows, columns in product(vertical.weights, horizontal.weights)
    ]
    block, size = (vertical.phases, horizontal.phases), (vertical.size, horizontal.size)
    phases = {reader.output: _rescaled(builder, reader, sums) for reader in plan.readers} or {resize.output: sums}
    values: dict[Tensor, Tensor] = {}
    for old, parts in phases.items():
        joined = builder.concat(parts, 3)
        values[old] = depth_to_space(builder, joined, block, (0, 0), size)
    return Replacement(builder.ops, values, covers=(resize, *plan.readers))


def _sums(builder: Builder, x: Tensor, weights: npt.NDArray[np.int64], stride: tuple[int, int]) -> Tensor:
    """One phase. Weights beyond one convolution are taken digit by digit, to the base 256, and added in INT32."""
    digits = {place: weights >> place & 255 for place in range(0, int(weights.max()).bit_length(), DIGIT)}
    parts = {p: depthwise(builder, x, d, stride=stride, name="phase") for p, d in digits.items() if np.any(d)}
    if [*parts] == [0]:
        return parts[0]
    if x.dtype == DType.INT16:
        parts = {
            p: builder.rescale(t, DType.INT32, ONE, ONE_SHIFT, scale32=False, name="copy") for p, t in parts.items()
        }
    return reduce(builder.add, (times(builder, part, 1 << place) for place, part in parts.items()))


def _rescaled(builder: Builder, reader: AnyOp, sums: Sequence[Tensor]) -> list[Tensor]:
    """A reader's own RESCALE on each phase; its zero point is that of the sums' type."""
    builder.location = reader.location
    old, *others, output_zp = reader.inputs
    made = []
    for phase in sums:
        operands = list(others)
        if phase.dtype != old.dtype:
            operands[-1] = builder.number(0, phase.dtype, name="input_zp")
        made.append(
            builder.op(reader.attrs, (phase, *operands, output_zp), reader.output.dtype, phase.shape, "rescale")
        )
    return made


RULE = Rule(
    name="resize_bilinear_as_conv2d",
    pattern=RESIZE,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Compute a bilinear RESIZE as one DEPTHWISE_CONV2D per phase.",
    options=ForSmallEthosU,
)
