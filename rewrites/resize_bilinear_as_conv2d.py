"""Compute an enlarging bilinear RESIZE as one DEPTHWISE_CONV2D per phase.

    x ─▶ RESIZE BILINEAR by (uy, ux) ─▶ RESCALE ─▶ y

    x ─▶ repeat the edges ─┬▶ DEPTHWISE_CONV2D ─▶ RESCALE ─┐
                           └▶ ... one per phase (ry, rx)   ─┴▶ CONCAT ─▶ depth to space ─▶ y

Along an axis with scale n/d = u, offset o: output u*q + r stands at (u*q + r)*d + o = q*n + (r*d + o), so phase r reads
inputs q + i and q + i + 1, i = floor((r*d + o) / n), with weights n - f and f, f = (r*d + o) mod n, for every q. RESIZE
repeats the edges, which is done before. Every sum has the same terms, so every value is identical. INT48 must not be
moved, so the RESCALE stays in front of CONCAT.

Ethos-U55 and U65 take no int16 bilinear RESIZE, and int8 ones only with scale_d one.
"""

from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from rewrites._accumulator import is_small_ethos_u
from rewrites._depth_to_space import depth_to_space
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Tensor

RESIZE = Capture(ops.Resize)
LARGEST_WEIGHT = 127


@dataclass(frozen=True)
class Options:
    """``when``: ``target`` acts for Ethos-U55 and U65 only, and only where they need it; ``all`` always."""

    when: Literal["target", "all"] = "target"


@dataclass(frozen=True)
class Axis:
    """One axis: phases, the first input and the weights of each, and the edge rows to repeat before and after.

    All phases share one window of ``taps`` inputs from q - ``before``.
    """

    phases: int
    taps: int
    weights: tuple[tuple[int, ...], ...]
    before: int
    after: int
    size: int


@dataclass(frozen=True)
class Plan:
    """Both axes, and the RESCALEs that read the sums."""

    axes: tuple[Axis, Axis]
    readers: tuple[AnyOp, ...]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A bilinear RESIZE by whole factors that only RESCALEs read, with weights that fit int8."""
    resize = match[RESIZE]
    x, *constants = resize.inputs
    if resize.attrs.mode != ResizeMode.BILINEAR or resize.output.dtype not in (DType.INT32, DType.INT48):
        return None
    if not resize.output.is_used:
        return None
    for tensor in constants:
        if not tensor.is_constant:
            return Refusal(f'"{tensor.name}" is no constant, so the weights of the phases are not known')
    scale, offset, _ = (tensor.values().reshape(-1).tolist() for tensor in constants)
    needed = x.dtype == DType.INT16 or scale[1] != 1 or scale[3] != 1
    if context.options.when == "target" and not (is_small_ethos_u(context.target) and needed):
        return None
    if min(x.shape) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    if scale[0] % scale[1] or scale[2] % scale[3]:
        return Refusal(f"scales {scale[0]}/{scale[1]} and {scale[2]}/{scale[3]} are not both whole factors")
    if scale[0] * scale[2] > LARGEST_WEIGHT:
        return Refusal(f"weights reach {scale[0]} * {scale[2]}, past the {LARGEST_WEIGHT} of an int8 weight")
    for reader in resize.output.users:
        if not isinstance(reader.attrs, ops.Rescale) or reader.inputs[0] is not resize.output:
            return Refusal(f'"{resize.output.name}" is also read by {describe(reader)}, not to be rescaled')
        if reader.attrs.per_channel and reader.inputs[1].shape != (1,):
            return Refusal(f"{describe(reader)} has a multiplier per channel, which is out of place here")
    wanted = resize.output.shape[1:3]
    axes = [_axis(x.shape[1 + a], wanted[a], scale[2 * a], scale[2 * a + 1], offset[a]) for a in (0, 1)]
    return Plan((axes[0], axes[1]), resize.output.users)


def _axis(size: int, wanted: int, numerator: int, denominator: int, offset: int) -> Axis:
    """The window and weights of every phase."""
    phases = numerator // denominator
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
    return Axis(phases, taps, tuple(weights), -first, groups - 1 + first + taps - size, wanted)


def replacement(match: Match, plan: Plan) -> Replacement:
    """The edges repeated, one DEPTHWISE_CONV2D and RESCALE per phase and reader, and the way from channels to space."""
    resize = match[RESIZE]
    x = resize.inputs[0]
    builder = Builder(resize.output.name, location=resize.location, origin=RULE.name)
    padded = x
    for position, axis in enumerate(plan.axes, start=1):
        padded = _repeat_edges(builder, padded, position, axis)
    vertical, horizontal = plan.axes
    sums = [
        _depthwise(builder, padded, np.outer(rows, columns), resize.output.dtype)
        for rows, columns in product(vertical.weights, horizontal.weights)
    ]
    values: dict[Tensor, Tensor] = {}
    for reader in plan.readers:
        builder.location = reader.location
        old = reader.output
        phases = [builder.op(reader.attrs, (s, *reader.inputs[1:]), old.dtype, s.shape, "rescale") for s in sums]
        joined = phases[0] if len(phases) == 1 else builder.concat(phases, 3)
        block, size = (vertical.phases, horizontal.phases), (vertical.size, horizontal.size)
        values[old] = depth_to_space(builder, joined, block, (0, 0), size)
    if any(new is x for new in values.values()):
        values = {old: builder.identity(new) for old, new in values.items()}
    return Replacement(builder.ops, values, covers=(resize, *plan.readers))


def _repeat_edges(builder: Builder, x: Tensor, position: int, axis: Axis) -> Tensor:
    """``x`` with its first and last row along an axis repeated (or, for a negative count, cut off)."""
    start, size = [0] * 4, list(x.shape)
    start[position] = max(-axis.before, 0)
    size[position] -= start[position] + max(-axis.after, 0)
    middle = x if tuple(size) == x.shape else builder.slice(x, start, size)
    size[position] = 1
    first = builder.slice(x, [0] * 4, size) if axis.before > 0 else None
    start = [0] * 4
    start[position] = x.shape[position] - 1
    last = builder.slice(x, start, size) if axis.after > 0 else None
    pieces = [first] * max(axis.before, 0) + [middle] + [last] * max(axis.after, 0)
    rows = [piece for piece in pieces if piece is not None]
    return rows[0] if len(rows) == 1 else builder.concat(rows, position)


def _depthwise(builder: Builder, x: Tensor, kernel: npt.NDArray[np.int64], acc_type: DType) -> Tensor:
    """DEPTHWISE_CONV2D of every channel with one kernel, without bias or zero points."""
    batch, height, width, channels = x.shape
    weight = np.broadcast_to(kernel[:, :, None, None], (*kernel.shape, channels, 1))
    operands = (
        x,
        builder.const(weight, DType.INT8, "weight"),
        builder.const(np.zeros(channels, np.int64), acc_type, "bias"),
        builder.const(np.zeros(1, np.int64), x.dtype, "input_zp"),
        builder.const(np.zeros(1, np.int64), DType.INT8, "weight_zp"),
    )
    attrs = ops.DepthwiseConv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=acc_type)
    shape = (batch, height - kernel.shape[0] + 1, width - kernel.shape[1] + 1, channels)
    return builder.op(attrs, operands, acc_type, shape, "phase")


RULE = Rule(
    name="resize_bilinear_as_conv2d",
    pattern=RESIZE,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Compute an enlarging bilinear RESIZE as one DEPTHWISE_CONV2D per phase.",
    options=Options,
)
