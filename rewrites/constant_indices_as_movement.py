"""Move the rows that constant indices name by SLICE and CONCAT.

    values [N,K,C], indices ─▶ GATHER ─▶ y [N,W,C]
    values [N,K,C], indices, input [N,W,C] ─▶ SCATTER ─▶ y [N,K,C]

    values, input ─▶ each run of rows: SLICE ─▶ CONCAT ─▶ y
    values ─▶ TRANSPOSE ─▶ CONV2D 1x1, a one for each row wanted ─▶ RESCALE of one ─▶ TRANSPOSE ─▶ y

Row w of GATHER is row indices[w] of values. Row k of SCATTER is the row of the input whose index is k, and where there
is none row k of values; an index that comes twice is no legal TOSA. Rows that follow each other in their source are one
SLICE. Where the batches name different rows, all of them stand in one axis. Rows of constants are a CONST at once.

Ethos-U55 and U65 have neither operator. A SLICE of C channels takes about 84 + 2.7 C cycles on U55-128, the convolution
600 + K W C / 128 + 0.4 C (K + W); the cheaper one is taken. The convolution is for GATHER of INT8 and INT16.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rewrites._accumulator import ACCUMULATORS
from rewrites._selection import select_channels
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor

INDEXED = Capture(ops.Gather, ops.Scatter, operands=(None, None))
DTYPES = (DType.INT8, DType.INT16, DType.INT32)

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows of the result: by batch, or one line of all batches; rows from ``first`` on are those of SCATTER's input."""

    rows: Rows
    first: int


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A GATHER or SCATTER of integers by constant indices."""
    op = match[INDEXED]
    values, indices = op.inputs[:2]
    wanted = values.dtype in DTYPES and op.output.is_used and context.options.acts(context.target)
    if not wanted or not indices.is_constant:
        return None
    batch, count = values.shape[:2]
    if min(values.shape) < 1:
        return Refusal(f'"{values.name}" has the shape {list(values.shape)}, which is not static')
    rows = indices.values().astype(np.int64)
    outside = rows[(rows < 0) | (rows >= count)]
    if outside.size:
        return Refusal(f'index {outside[0]} of "{indices.name}" is outside the {count} rows of "{values.name}"')
    if isinstance(op.attrs, ops.Scatter):
        if any(np.unique(line).size < line.size for line in rows):
            return Refusal(f'"{indices.name}" names a row twice')
        rows = _scattered(rows, count)
    if np.all(rows == rows[:1]):
        return Plan(rows[0], count)
    return Plan(_in_one_line(rows, count, indices.shape[1]).reshape(-1), batch * count)


def _scattered(indices: Rows, count: int) -> Rows:
    """The row that each row of SCATTER's result is: of its first operand, or from ``count`` on of its input."""
    rows = np.tile(np.arange(count), (len(indices), 1))
    np.put_along_axis(rows, indices, count + np.arange(indices.shape[1]), axis=1)
    return rows


def _in_one_line(rows: Rows, count: int, width: int) -> Rows:
    """Rows by batch as rows of all batches behind each other, of both sources."""
    batch = np.arange(len(rows))[:, None]
    return np.where(rows < count, batch * count + rows, len(rows) * count + batch * width + rows - count)


def replacement(match: Match, plan: Plan) -> Replacement:
    """A constant, a convolution, or slices."""
    op = match[INDEXED]
    builder = Builder(op.output.name, location=op.location, origin=RULE.name)
    sources = [op.inputs[0], *op.inputs[2:]]
    batch, channels = sources[0].shape[0], sources[0].shape[2]
    if plan.first != sources[0].shape[1]:
        batch = 1
    sizes = [(batch, source.shape[0] * source.shape[1] // batch, channels) for source in sources]
    if all(source.is_constant for source in sources):
        joined = np.concatenate([s.values().reshape(size) for s, size in zip(sources, sizes, strict=True)], axis=1)
        y = builder.const(joined[:, plan.rows].reshape(op.output.shape), op.output.dtype, "rows")
        return Replacement(builder.ops, {op.output: y})
    lined = [s if s.shape == size else builder.reshape(s, size) for s, size in zip(sources, sizes, strict=True)]
    runs = _runs(plan.rows, plan.first)
    by_convolution = _is_cheaper_by_convolution(op, len(runs), plan)
    y = _selected(builder, lined[0], plan.rows) if by_convolution else _sliced(builder, lined, runs, plan.first)
    if y is sources[0]:
        y = builder.identity(y)
    return Replacement(
        builder.ops, {op.output: y if y.shape == op.output.shape else builder.reshape(y, op.output.shape)}
    )


def _runs(rows: Rows, first: int) -> list[tuple[int, int]]:
    """First and last row of every run: rows of one source that follow each other."""
    ends = np.flatnonzero((np.diff(rows) != 1) | (rows[1:] == first)) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(rows, ends)]


def _sliced(builder: Builder, sources: Sequence[Tensor], runs: Sequence[tuple[int, int]], first: int) -> Tensor:
    found: dict[tuple[int, int], Tensor] = {}
    for low, high in runs:
        if (low, high) not in found:
            source, offset = (sources[0], 0) if low < first else (sources[1], first)
            size = (source.shape[0], high - low + 1, source.shape[2])
            found[low, high] = source if size == source.shape else builder.slice(source, (0, low - offset, 0), size)
    pieces = [found[run] for run in runs]
    return builder.concat(pieces, 1)


def _is_cheaper_by_convolution(op: AnyOp, pieces: int, plan: Plan) -> bool:
    """By the cycles for one batch, as the head of this file has them."""
    if isinstance(op.attrs, ops.Scatter) or op.inputs[0].dtype not in ACCUMULATORS:
        return False
    count, width, channels = plan.first, plan.rows.size, op.inputs[0].shape[2]
    convolution = 600 + count * width * channels / 128 + 0.4 * channels * (count + width)
    return convolution < pieces * (84 + 2.7 * channels)


def _selected(builder: Builder, x: Tensor, rows: Rows) -> Tensor:
    batch, count, channels = x.shape
    turned = builder.reshape(builder.transpose(x, (0, 2, 1)), (batch, 1, channels, count))
    chosen = select_channels(builder, turned, np.eye(count, dtype=np.int64)[rows])
    return builder.transpose(builder.reshape(chosen, (batch, channels, rows.size)), (0, 2, 1))


RULE = Rule(
    name="constant_indices_as_movement",
    pattern=INDEXED,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Move the rows that constant indices name by SLICE and CONCAT.",
    options=ForSmallEthosU,
)
