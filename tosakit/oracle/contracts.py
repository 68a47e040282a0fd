"""Check that each rewrite kept its own contract: the replaced operators against the new ones, on the same inputs.

Contracts speak about the replaced values given identical inputs, so both sides are cut out of their graphs as little
programs. Inputs stay inside the ranges that were proved for them when the rule fired, because its proof rests on those.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tosakit.engine.contract import ChangesPrecision, Exact, WithinLsb
from tosakit.engine.rule import Event
from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Graph, Op, OpRecord, Tensor
from tosakit.ir.program import Program, Region, Version
from tosakit.ir.types import INTEGER_RANGES, Array
from tosakit.oracle.inputs import InputSpec, input_vectors
from tosakit.oracle.refmodel import ReferenceModel, Status

_CONTROL = (ops.CondIf, ops.WhileLoop)


class Kept(Enum):
    """Whether a rewrite kept its contract."""

    KEPT = "kept"
    BROKEN = "broken"
    UNCHECKED = "unchecked"


@dataclass(frozen=True)
class Finding:
    """What the local check of one rewrite found. ``observed_lsb`` is the largest difference seen."""

    event: Event
    kept: Kept
    observed_lsb: float
    message: str = ""


def check_events(
    events: Sequence[Event], model: ReferenceModel, *, vectors: int, seed: int, timeout: float = 120.0
) -> list[Finding]:
    """Check the contract of every rewrite made by a rule; transforms have a check of their own."""
    return [
        _check(event, model, vectors, seed + number, timeout)
        for number, event in enumerate(events)
        if not isinstance(event.contract, ChangesPrecision) and event.before
    ]


def extract(records: Sequence[OpRecord], outputs: Sequence[Tensor]) -> tuple[Program, list[Tensor]]:
    """A program of its own from operators cut out of a graph, and the original tensors that became its inputs.

    Constants come along.
    Raises InvalidModel for operators that need the rest of their program (control flow, state).
    """
    for record in records:
        if isinstance(record.attrs, _CONTROL) or any(t.extras.variable for t in record.inputs + record.outputs):
            raise InvalidModel(f"{record.attrs.NAME} cannot be cut out of its program")
    made = dict.fromkeys(t for record in records for t in record.outputs)
    graph = Graph("main")
    twins: dict[Tensor, Tensor] = {}
    inputs: list[Tensor] = []
    new_ops: list[AnyOp] = []
    for record in records:
        for tensor in (*record.inputs, *record.outputs):
            if tensor in twins:
                continue
            twin = Tensor(tensor.name, tensor.dtype, tensor.shape, tensor.data, table=tensor.table)
            twins[tensor] = twin
            if tensor not in made:
                if tensor.data is None:
                    inputs.append(tensor)
                else:
                    attrs = ops.ConstShape() if tensor.table == "shapes" else ops.Const()
                    new_ops.append(Op(attrs, (), (twin,)))
        new_ops.append(Op(record.attrs, [twins[t] for t in record.inputs], [twins[t] for t in record.outputs]))
    for tensor in inputs:
        graph.add_tensor(twins[tensor])
    graph.set_inputs([twins[t] for t in inputs])
    _add_all(graph, new_ops)
    missing = [t for t in outputs if t not in twins]
    if missing:
        raise InvalidModel(f"{missing[0]!r} is no result of the operators cut out")
    graph.set_outputs([twins[t] for t in outputs])
    return Program([Region("main", [graph])], Version(1, 0, 0, False)), inputs


def _add_all(graph: Graph, new_ops: Sequence[AnyOp]) -> None:
    """Add operators in an order in which every operand exists."""
    waiting = list(new_ops)
    while waiting:
        later = []
        for op in waiting:
            if all(graph.owns(t) for t in op.inputs):
                graph.add_op(op)
            else:
                later.append(op)
        if len(later) == len(waiting):
            raise InvalidModel(f"{later[0]!r} depends on itself")
        waiting = later


def _check(event: Event, model: ReferenceModel, vectors: int, seed: int, timeout: float) -> Finding:
    olds = [old for old, new in event.values.items() if old is not new]
    passed = [old for old in olds if event.values[old] in _reads(event.before) or event.values[old].data is not None]
    olds = [old for old in olds if old not in passed] or olds
    try:
        after, after_inputs = extract(event.after, [event.values[old] for old in olds])
        before, before_inputs = extract(event.before, olds)
    except InvalidModel as error:
        if passed and not event.after:  # values replaced by tensors that were there before
            return _check_pass_through(event, model, vectors, seed, timeout)
        return Finding(event, Kept.UNCHECKED, 0.0, str(error))
    cut = list(dict.fromkeys([*before_inputs, *after_inputs]))
    specs = [_spec(t, event) for t in cut]
    return _run(event, model, (before, before_inputs), (after, after_inputs), olds, cut, specs, vectors, seed, timeout)


def _reads(records: Sequence[OpRecord]) -> dict[Tensor, None]:
    return dict.fromkeys(t for record in records for t in record.inputs)


def _check_pass_through(event: Event, model: ReferenceModel, vectors: int, seed: int, timeout: float) -> Finding:
    """A rule that only lets readers use an existing tensor: compare the old value with that tensor."""
    olds = [old for old, new in event.values.items() if old is not new]
    before, inputs = extract(event.before, olds)
    identities = [
        OpRecord(ops.Identity(), (event.values[old],), (Tensor(old.name, old.dtype, old.shape),)) for old in olds
    ]
    after, after_inputs = extract(identities, [record.outputs[0] for record in identities])
    cut = list(dict.fromkeys([*inputs, *after_inputs]))
    specs = [_spec(t, event) for t in cut]
    return _run(event, model, (before, inputs), (after, after_inputs), olds, cut, specs, vectors, seed, timeout)


def _spec(tensor: Tensor, event: Event) -> InputSpec:
    low, high = event.ranges.get(tensor, (None, None))
    if tensor.dtype in INTEGER_RANGES and low is None:
        low, high = INTEGER_RANGES[tensor.dtype]
    return InputSpec(tensor.name, tensor.dtype, tensor.shape, low, high)


def _run(
    event: Event,
    model: ReferenceModel,
    before: tuple[Program, list[Tensor]],
    after: tuple[Program, list[Tensor]],
    olds: Sequence[Tensor],
    cut: Sequence[Tensor],
    specs: Sequence[InputSpec],
    vectors: int,
    seed: int,
    timeout: float,
) -> Finding:
    allowed = event.contract.lsb if isinstance(event.contract, WithinLsb) else 0.0
    if not isinstance(event.contract, Exact | WithinLsb):
        return Finding(event, Kept.UNCHECKED, 0.0, f"no local check for {event.contract}")
    new_model = dumps(after[0])
    old_model = None if event.reference is not None else dumps(before[0])
    try:
        drawn = [dict(zip(cut, vector, strict=True)) for vector in input_vectors(specs, vectors, seed)]
    except InvalidArgument as error:
        return Finding(event, Kept.UNCHECKED, 0.0, str(error))
    expected: list[list[Array]] = []
    valid: list[dict[Tensor, Array]] = []
    reason = ""
    if old_model is None:
        valid, expected = drawn, [_real(event, values, olds) for values in drawn]
    else:
        runs = model.run_many(old_model, [[values[t] for t in before[1]] for values in drawn], timeout=timeout)
        for values, one in zip(drawn, runs, strict=True):
            if one.status is Status.VALID:
                valid.append(values)
                expected.append([np.asarray(array, np.float64) for array in one.outputs])
            else:
                reason = reason or f"the replaced operators are {one.status.value}: {one.message}"
    if not valid:
        return Finding(event, Kept.UNCHECKED, 0.0, reason)
    worst = 0.0
    others = model.run_many(new_model, [[values[t] for t in after[1]] for values in valid], timeout=timeout)
    for wanted, other in zip(expected, others, strict=True):
        if other.status is not Status.VALID:
            message = f"the new operators are {other.status.value} where the replaced ones are valid: {other.message}"
            return Finding(event, Kept.BROKEN, math.inf, message)
        for left, right in zip(wanted, other.outputs, strict=True):
            gap = np.abs(left - np.asarray(right, np.float64))
            worst = max(worst, float(np.nan_to_num(gap, nan=math.inf).max(initial=0.0)))
    if worst > allowed:
        return Finding(event, Kept.BROKEN, worst, f"differs by {worst:g} LSB, contract: {event.contract}")
    return Finding(event, Kept.KEPT, worst)


def _real(event: Event, values: dict[Tensor, Array], olds: Sequence[Tensor]) -> list[Array]:
    """The real meaning of the replaced values, saturated at the limits of their dtype."""
    if event.reference is None:
        raise InvalidArgument("this rewrite has no reference")
    meaning = event.reference(values)
    results: list[Array] = []
    for old in olds:
        real = np.asarray(meaning[old], np.float64)
        if old.dtype in INTEGER_RANGES:
            real = np.clip(real, *INTEGER_RANGES[old.dtype])
        results.append(real)
    return results
