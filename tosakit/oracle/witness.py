"""Look for an input that makes an operator break a REQUIRE, and let the reference model confirm it.

The operator and what is above it are cut out of the main block; one that is inside or behind control flow is reached on
each of a few ways through it (:mod:`tosakit.oracle.flatten`), whose conditions must come out so. Inputs are driven to
the ends of their intervals (:mod:`tosakit.oracle.steering`), or drawn boundary-heavy. An input counts where the
operands come out valid and the operator does not, or where the model lets a product or sum wrap around, which an exact
sum of one element shows: the model of tosa-tools 2026.8 does so in MUL without a shift and in the sums of convolutions.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES, Array, numpy_dtype
from tosakit.numerics._interval import Interval
from tosakit.numerics._interval_sums import CONVOLUTIONS
from tosakit.numerics.intervals import Intervals, Range
from tosakit.oracle._pulls import Direction
from tosakit.oracle.contracts import extract
from tosakit.oracle.equivalence import run_vectors
from tosakit.oracle.flatten import Way, ways
from tosakit.oracle.inputs import KINDS, InputSpec, input_vectors
from tosakit.oracle.refmodel import ReferenceModel, RunResult, Status
from tosakit.oracle.steering import directions, pulled
from tosakit.spec.ranges import unproved

_ON_OPERAND = (
    *(ops.Rescale, ops.Table, ops.Gather, ops.Scatter, ops.ArithmeticRightShift),
    *(ops.LogicalLeftShift, ops.LogicalRightShift, ops.Abs, ops.Negate),
)
"""Operators whose REQUIRE is about an operand; that of the others is about their result."""

Inputs = dict[str, Array]


@dataclass(frozen=True)
class Witness:
    """An input for which an operator is not valid, by the names of the main block's inputs; what the model said."""

    inputs: Mapping[str, Array]
    message: str


def find_witness(
    program: Program,
    block: Graph,
    op: AnyOp,
    intervals: Intervals,
    inputs: Mapping[Tensor, Range],
    model: ReferenceModel,
    timeout: float,
    illegal: Container[AnyOp] = (),
) -> Witness | None:
    """An input of the main block that breaks a REQUIRE of ``op``, an operator of ``block``; None where none is found.

    ``inputs`` narrows inputs of the main block, for which ``intervals`` hold; ``illegal`` operators run for none.
    Raises ToolMissing without the reference model.
    """
    above = _above(block, op.inputs)
    if any(other in illegal for other in (*above, op)):
        return None
    if block is program.main and not any(other.is_stateful for other in (*above, op)):
        return _on_way(Way(block, op, intervals, {}), model, timeout)
    if any(other in illegal for other in program.main.ops):
        return None
    open_ways = (way for way in ways(program, op, inputs) if unproved(way.op, way.intervals))
    found = (_on_way(way, model, timeout) for way in open_ways)
    return next((witness for witness in found if witness is not None), None)


def _on_way(way: Way, model: ReferenceModel, timeout: float) -> Witness | None:
    """An input that takes this way and breaks a REQUIRE of the operator at its end."""
    op, block = way.op, way.block
    computed = [tensor for tensor in dict.fromkeys((*op.inputs, *way.conditions)) if not tensor.is_constant]
    above = _above(block, computed)
    records = [other.record for other in above]
    try:
        before, starts = extract(records, computed)
        after, starts_after = extract([*records, op.record], op.outputs[:1])
        candidates = list(_candidates(above, way, starts))
    except TosakitError:  # CUSTOM, dynamic shapes
        return None
    if any(t not in block.inputs for t in (*starts, *starts_after)) or not starts:
        return None
    cut = _Cut(way, computed, before, starts, after, starts_after)
    return _confirmed(cut, candidates, model, timeout)


def _above(block: Graph, tensors: Sequence[Tensor]) -> tuple[AnyOp, ...]:
    """What computes these tensors, in program order, constants left out."""
    found: dict[AnyOp, None] = {}
    todo = list(tensors)
    while todo:
        producer = todo.pop().producer
        if producer is not None and producer is not block.entry and producer not in found and producer.inputs:
            found[producer] = None
            todo.extend(producer.inputs)
    return tuple(other for other in block.ops if other in found)


@dataclass(frozen=True)
class _Cut:
    """Operands and conditions as a program, the operator's result as one, and the tensors that became their inputs."""

    way: Way
    computed: Sequence[Tensor]
    operands: Program
    operand_inputs: Sequence[Tensor]
    result: Program
    result_inputs: Sequence[Tensor]


@dataclass(frozen=True)
class _Candidate:
    """Values of the inputs, and the element of the result that they drive, if any."""

    values: Mapping[Tensor, Array]
    element: tuple[int, ...] | None = None


def _confirmed(cut: _Cut, candidates: Sequence[_Candidate], model: ReferenceModel, timeout: float) -> Witness | None:
    inputs = [[c.values[t] for t in cut.operand_inputs] for c in candidates]
    for candidate, before in zip(candidates, run_vectors(model, cut.operands, inputs, timeout), strict=True):
        if before.status is not Status.VALID:
            continue
        operands = dict(zip(cut.computed, before.outputs, strict=True))
        if any(bool(operands[t].all()) is not truth for t, truth in cut.way.conditions.items() if t in operands):
            continue
        [run] = run_vectors(model, cut.result, [[candidate.values[t] for t in cut.result_inputs]], timeout)
        message = _fault(cut, candidate, operands, run)
        if message is not None:
            return Witness(_complete(cut.way.block, candidate.values), message)
    return None


def _fault(cut: _Cut, candidate: _Candidate, operands: Mapping[Tensor, Array], run: RunResult) -> str | None:
    """What is wrong with a run of the operator; None for nothing."""
    if run.status is not Status.VALID:
        broken = run.status is Status.UNPREDICTABLE or "REQUIRE() fails" in run.message
        return run.message if broken else None
    exact = None if candidate.element is None else _exact(cut.way.op, candidate.element, operands)
    if exact is None or candidate.element is None or not run.outputs:
        return None
    got = int(run.outputs[0][candidate.element])
    return None if got == exact else f"the exact result is {exact}, which wraps around to {got}"


def _exact(op: AnyOp, element: tuple[int, ...], operands: Mapping[Tensor, Array]) -> int | None:
    """One element of a product or a sum of products, in exact arithmetic; None for what is not computed here."""
    arrays = [operands[t] if t in operands else t.values() for t in op.inputs]
    whole = [array.astype(object) for array in arrays]
    if isinstance(op.attrs, ops.Mul):
        first, second = (np.broadcast_to(array, op.output.shape)[element] for array in whole[:2])
        shift = int(arrays[2].reshape(-1)[0]) if op.inputs[0].dtype == DType.INT32 else 0
        return int(first * second) if shift == 0 else None
    if isinstance(op.attrs, ops.MatMul):
        row = whole[0][element[0], element[1]] - whole[2].reshape(-1)[0]
        column = whole[1][element[0], :, element[2]] - whole[3].reshape(-1)[0]
        return int((row * column).sum())
    if isinstance(op.attrs, CONVOLUTIONS) and op.inputs[1].is_constant:
        weights = pulled(op, element, 1, Intervals()).get(op.inputs[0])
        bias = whole[2].reshape(-1)[element[-1] if whole[2].size > 1 else 0]
        centred = whole[0] - whole[3].reshape(-1)[0]
        return None if weights is None else int((weights.astype(np.int64).astype(object) * centred).sum() + bias)
    return None


def _complete(block: Graph, vector: Mapping[Tensor, Array]) -> Inputs:
    """Values for every input of the block; the operator does not depend on those that are zero."""
    zeros = {t: np.zeros(t.shape, numpy_dtype(t.dtype)) for t in block.inputs if t not in vector}
    return {t.name: vector[t] if t in vector else zeros[t] for t in block.inputs}


def _candidates(above: Sequence[AnyOp], way: Way, starts: Sequence[Tensor]) -> Iterator[_Candidate]:
    """Steered inputs first, with the conditions less and more important, then each kind of boundary-heavy ones."""
    limits = {t: way.intervals.of(t) for t in starts if t.dtype in INTEGER_RANGES or t.dtype == DType.BOOL}
    wanted: dict[Tensor, Direction] = {t: np.full(t.shape, 1.0 if v else -1.0) for t, v in way.conditions.items()}
    taken = directions(tuple(above), wanted, way.intervals)
    for seeds, element in _seeds(way.op, way.intervals):
        steered = directions(tuple(above), seeds, way.intervals)
        for weight in (0.0, 1e-30, 1e30) if wanted else (0.0,):
            towards = {t: _sum(steered.get(t), taken.get(t), weight) for t in starts}
            yield _Candidate({t: _driven(t, limits.get(t), towards[t]) for t in starts}, element)
    specs = [
        InputSpec(t.name, t.dtype, t.shape, limits[t].low, limits[t].high)
        if t in limits and t.dtype != DType.BOOL
        else InputSpec(t.name, t.dtype, t.shape)
        for t in starts
    ]
    for vector in input_vectors(specs, KINDS, 0):
        drawn = dict(zip(starts, vector, strict=True))
        yield _Candidate(drawn)
        if wanted:  # the same, with what the conditions alone depend on steered
            free = {t: _driven(t, limits.get(t), taken[t]) for t in starts if t in taken and taken[t].any()}
            yield _Candidate({**drawn, **free})


def _sum(steered: Direction | None, taken: Direction | None, weight: float) -> Direction | None:
    if steered is None or taken is None or not weight:
        return steered if taken is None or not weight else taken
    return steered + weight * taken


def _driven(tensor: Tensor, limits: Interval | None, direction: Direction | None) -> Array:
    if limits is None:
        return np.zeros(tensor.shape, numpy_dtype(tensor.dtype))
    low, high = (np.broadcast_to(np.asarray(bound, np.int64), tensor.shape) for bound in (limits.low, limits.high))
    rest = np.clip(0, low, high)
    if direction is None:
        return np.asarray(rest, numpy_dtype(tensor.dtype))
    driven = np.where(direction > 0, high, np.where(direction < 0, low, rest))
    return np.asarray(driven, numpy_dtype(tensor.dtype))


def _seeds(op: AnyOp, intervals: Intervals) -> Iterator[tuple[dict[Tensor, Direction], tuple[int, ...] | None]]:
    """Directions of the operands that drive the element furthest out, in the middle of the other axes, up and down."""
    slot = 1 if isinstance(op.attrs, ops.Gather | ops.Scatter) else 0
    about = op.inputs[slot] if isinstance(op.attrs, _ON_OPERAND) else op.output
    exact = intervals.of(about) if about is not op.output else intervals.unclipped(op)
    middle = tuple(size // 2 for size in about.shape[:-1])
    for sign, bound in ((1, exact.high), (-1, exact.low)):
        channel = int(np.argmax(np.asarray(bound) * sign)) if np.ndim(bound) else 0
        element = (*middle, channel) if about.shape else ()
        if about is op.output:
            yield pulled(op, element, sign, intervals), element
        elif not about.is_constant:
            seed = np.zeros(about.shape)
            seed[element] = sign
            yield {about: seed}, None
