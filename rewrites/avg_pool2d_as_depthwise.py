"""Average padded windows by a DEPTHWISE_CONV2D of ones, and divide each place by what it counts.

    x ─▶ AVG_POOL2D[kernel, pad] ─▶ y

    x ─▶ DEPTHWISE_CONV2D of ones [kernel, pad] ─▶ TRANSPOSE, RESHAPE [N, C, OH*OW] ─┐
    y ◀─ TRANSPOSE, RESHAPE ◀─ RESCALE, multiplier and shift of 1 / count per place ◀─┘

AVG_POOL2D does not count what lies in the padding, so windows at the edges have divisors of their own. It sums x less
the zero point, scales by the multiplier and shift that TOSA gives for the count, and adds the zero point: so does the
RESCALE, place by place. Where all places count alike there is one divisor and nothing to move. An INT16 sum of up to
65535 elements fits INT32, so the RESCALE from INT48 copies it. Every value is identical.

Ethos-U55 and U65 pad windows of up to 8 only.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rewrites._accumulator import ACCUMULATORS, ONE, ONE_SHIFT
from rewrites._depthwise import depthwise
from rewrites._when import ForSmallEthosU
from tosakit.backend.targets import LARGEST_PADDED_POOL
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp

POOL = Capture(ops.AvgPool2d, operands=(None, None, None))
MOST_TERMS = (1 << 16) - 1
"""As many INT16 values fit INT32 in sum, zero points of INT8 too."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Both zero points, and how many elements each place [OH, OW] counts."""

    input_zp: int
    output_zp: int
    counts: npt.NDArray[np.int64]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A padded window that the target does not take."""
    pool = match[POOL]
    x, *zero_points = pool.inputs
    wanted = context.options.when == "all" or (any(pool.attrs.pad) and max(pool.attrs.kernel) > LARGEST_PADDED_POOL)
    if x.dtype not in ACCUMULATORS or not wanted or not context.options.acts(context.target):
        return None
    if min(x.shape) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    for tensor in zero_points:
        if not tensor.is_constant:
            return Refusal(f'the zero point "{tensor.name}" is no constant')
    counts = np.outer(*(_counts(pool, axis) for axis in (0, 1)))
    if counts.max() > MOST_TERMS:
        return Refusal(f"it averages {counts.max()} elements, whose sum may pass INT32; up to {MOST_TERMS} fit")
    input_zp, output_zp = (int(tensor.values().reshape(-1)[0]) for tensor in zero_points)
    return Plan(input_zp, output_zp, counts)


def _counts(pool: AnyOp, axis: int) -> npt.NDArray[np.int64]:
    """How many elements along one axis lie in each window."""
    attrs = pool.attrs
    assert isinstance(attrs, ops.AvgPool2d)
    first = np.arange(pool.output.shape[1 + axis]) * attrs.stride[axis] - attrs.pad[2 * axis]
    last = np.minimum(first + attrs.kernel[axis], pool.inputs[0].shape[1 + axis])
    counts: npt.NDArray[np.int64] = last - np.maximum(first, 0)
    return counts


def replacement(match: Match, plan: Plan) -> Replacement:
    """Sums, with the places on the last axis where they differ, and their own scale each."""
    pool = match[POOL]
    attrs, dtype = pool.attrs, pool.output.dtype
    builder = Builder(pool.output.name, location=pool.location, origin=RULE.name)
    ones = np.ones(attrs.kernel, np.int64)
    sums = depthwise(builder, pool.inputs[0], ones, stride=attrs.stride, pad=attrs.pad, input_zp=plan.input_zp)
    if sums.dtype != DType.INT32:
        sums = builder.rescale(sums, DType.INT32, ONE, ONE_SHIFT, scale32=False, name="copy")
    multiplier, shift = reciprocals(plan.counts.reshape(-1))
    if len({*plan.counts.reshape(-1).tolist()}) == 1:
        y = builder.rescale(sums, dtype, multiplier[:1], shift[:1], scale32=True, output_zp=plan.output_zp)
        return Replacement(builder.ops, {pool.output: y})
    batch, rows, columns, channels = sums.shape
    places = builder.reshape(builder.transpose(sums, (0, 3, 1, 2)), (batch, channels, rows * columns))
    scaled = builder.rescale(places, dtype, multiplier, shift, scale32=True, output_zp=plan.output_zp)
    y = builder.transpose(builder.reshape(scaled, (batch, channels, rows, columns)), (0, 2, 3, 1))
    return Replacement(builder.ops, {pool.output: y})


def reciprocals(counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """TOSA's ``reciprocal_scale``: with 2^(k-1) < count <= 2^k, ((2^30 + 1) * 2^k) / count rounded down, and 30 + k."""
    bits = np.array([(count - 1).bit_length() for count in counts.tolist()], np.int64)
    return (((1 << 30) + 1) << bits) // counts, 30 + bits


RULE = Rule(
    name="avg_pool2d_as_depthwise",
    pattern=POOL,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Average padded windows by a DEPTHWISE_CONV2D of ones, and divide each place by what it counts.",
    options=ForSmallEthosU,
)
