"""Check that each rewrite kept its own contract: the replaced operators against the new ones, on the same inputs.

Contracts speak about the replaced values given identical inputs, so both sides are cut out of their graphs as little
programs. Inputs stay inside the ranges that were proved for them when the rule fired, because its proof rests on those.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np

from tosakit.engine.contract import ChangesPrecision, Exact, WithinLsb
from tosakit.engine.rule import Event
from tosakit.errors import InvalidArgument, InvalidModel, RuleBug, TosakitError, Unsupported
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Graph, Op, OpRecord, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program, Region
from tosakit.ir.types import INTEGER_RANGES, Array
from tosakit.oracle.demands import Demand, demands_on_inputs, narrowed
from tosakit.oracle.difference import distances
from tosakit.oracle.equivalence import run_vectors
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
    events: Sequence[Event],
    model: ReferenceModel,
    *,
    vectors: int,
    seed: int,
    timeout: float = 120.0,
) -> list[Finding]:
    """Check the contract of every rewrite made by a rule; transforms have a check of their own.

    ``timeout`` is in seconds for each run. Raises RuleBug where the reference of a rule fails, ToolMissing without the
    reference model.
    """
    return [
        _check(event, model, vectors, seed + number, timeout)
        for number, event in enumerate(events)
        if event.values and not isinstance(event.contract, ChangesPrecision)
    ]


# ---------------------------------------------------------------- cutting operators out
def extract(
    records: Sequence[OpRecord],
    outputs: Sequence[Tensor],
    *,
    inputs: Container[Tensor] = (),
) -> tuple[Program, list[Tensor]]:
    """A program of its own from operators cut out of a graph, and the original tensors that became its inputs.

    Constants come along, each once; an output that no operator of ``records`` gives (a constant, or what they read)
    gets an IDENTITY. ``inputs`` are no constants, whatever data a file keeps with them. Linear in the number of
    records, which may come in any order.
    Raises InvalidModel for operators that need the rest of their program (control flow, state).
    """
    for record in records:
        if isinstance(record.attrs, (*_CONTROL, Foreign)) or any(t.extras.variable for t in (*record[1], *record[2])):
            raise InvalidModel(f"{record.attrs.NAME} cannot be cut out of its program: it needs the rest of it")
    made = {t: record for record in records for t in record.outputs}
    passed = [t for t in dict.fromkeys(outputs) if t not in made]
    ordered = _in_order(records, made)
    read = dict.fromkeys([*(t for record in ordered for t in record.inputs), *passed])
    twins = {t: _twin(t) for t in (*read, *made)}
    graph = Graph("main")
    outside = [t for t in read if t not in made]
    starts = [t for t in outside if t.data is None or t in inputs]
    graph.set_inputs([graph.add_tensor(twins[t]) for t in starts])
    for tensor in outside:
        if tensor.data is not None and tensor not in inputs:
            graph.add_op(Op(ops.ConstShape() if tensor.table == "shapes" else ops.Const(), (), (twins[tensor],)))
    for record in ordered:
        graph.add_op(Op(record.attrs, [twins[t] for t in record.inputs], [twins[t] for t in record.outputs]))
    for tensor in passed:
        identity: AnyOp = graph.add_op(Op(ops.Identity(), (twins[tensor],), (_twin(tensor, data=False),)))
        twins[tensor] = identity.output
    graph.set_outputs([twins[t] for t in outputs])
    return Program([Region("main", [graph])]), starts


def _twin(tensor: Tensor, *, data: bool = True) -> Tensor:
    content = tensor.data if data else None
    return Tensor(tensor.name, tensor.dtype, tensor.shape, content, extras=tensor.extras, table=tensor.table)


def _in_order(records: Iterable[OpRecord], made: Mapping[Tensor, OpRecord]) -> list[OpRecord]:
    """The records, producers first."""
    done: dict[int, OpRecord] = {}
    opened: dict[int, None] = {}
    stack = list(records)[::-1]
    while stack:
        record = stack.pop()
        if id(record) in done:
            continue
        missing = [made[t] for t in record.inputs if t in made and id(made[t]) not in done]
        if not missing:
            done[id(record)] = record
        elif id(record) in opened:
            raise InvalidModel(f"{record.attrs.NAME} depends on itself")
        else:
            opened[id(record)] = None
            stack.extend([record, *missing])
    return list(done.values())


def _replaced(event: Event) -> list[Tensor]:
    return [old for old, new in event.values.items() if old is not new]


def _new_records(event: Event) -> list[OpRecord]:
    """The new operators, and those of the old ones that live on because the new values come from them."""
    made = {t: record for record in event.before for t in record.outputs}
    records = {t: record for record in event.after for t in record.outputs}
    found = list(event.after)
    todo = [*(t for record in event.after for t in record.inputs), *event.values.values()]
    while todo:
        tensor = todo.pop()
        if tensor in made and tensor not in records:
            record = made[tensor]
            records.update(dict.fromkeys(record.outputs, record))
            found.append(record)
            todo.extend(record.inputs)
    return found


# ---------------------------------------------------------------- one rewrite
@dataclass(frozen=True)
class _Cut:
    """Both sides of one rewrite as programs, and the values of the graph that they start from."""

    before: Program | None
    before_inputs: list[Tensor]
    after: Program
    after_inputs: list[Tensor]
    drawn: list[dict[Tensor, Array]]


def _check(event: Event, model: ReferenceModel, vectors: int, seed: int, timeout: float) -> Finding:
    if not isinstance(event.contract, Exact | WithinLsb):
        return Finding(event, Kept.UNCHECKED, 0.0, f'no check is known for the contract "{event.contract}"')
    try:
        cut = _cut_out(event, vectors, seed)
        return _compare(event, cut, model, timeout)
    except RuleBug:
        raise
    except (InvalidModel, InvalidArgument, Unsupported) as error:
        return Finding(event, Kept.UNCHECKED, 0.0, str(error))


def _cut_out(event: Event, vectors: int, seed: int) -> _Cut:
    """Raises a TosakitError where the two sides cannot be run on the same values."""
    olds = _replaced(event)
    if not olds:
        raise InvalidArgument("it replaces no value")
    before, before_inputs = None, list[Tensor]()
    if event.reference is None:
        before, before_inputs = extract(event.before, olds, inputs=event.ranges)
    news = [event.values[old] for old in olds]
    after, after_inputs = extract(_new_records(event), news, inputs=event.ranges)
    read = _read(event)
    foreign = [t for t in after_inputs if t not in read]
    if foreign and event.reference is None:
        raise InvalidArgument(
            f"the new operators read {foreign[0]!r}, which the replaced ones do not; "
            "the rule must name the operators in between in `covers`"
        )
    cut = dict.fromkeys([*read, *after_inputs])
    limits: dict[Tensor, Demand] = {}
    if before is not None:
        demands = demands_on_inputs(before)
        pairs = zip(before_inputs, before.main.inputs, strict=True)
        limits = {tensor: demands[twin] for tensor, twin in pairs if twin in demands}
    return _Cut(before, before_inputs, after, after_inputs, _draw(event, list(cut), limits, vectors, seed))


def _read(event: Event) -> dict[Tensor, None]:
    """What the replaced operators read from outside, constants apart."""
    made = dict.fromkeys(t for record in event.before for t in record.outputs)
    outside = dict.fromkeys(t for record in event.before for t in record.inputs if t not in made)
    return {t: None for t in outside if t.data is None or t in event.ranges}


def _draw(
    event: Event, cut: Sequence[Tensor], demands: Mapping[Tensor, Demand], vectors: int, seed: int
) -> list[dict[Tensor, Array]]:
    specs = []
    for tensor in cut:
        proved = event.ranges.get(tensor)
        low, high = (None, None) if proved is None else (proved.low, proved.high)
        spec = InputSpec(tensor.name, tensor.dtype, tensor.shape, low, high)
        specs.append(narrowed(spec, demands.get(tensor)))
    count = vectors if specs else 1
    return [dict(zip(cut, vector, strict=True)) for vector in input_vectors(specs, count, seed)]


def _compare(event: Event, cut: _Cut, model: ReferenceModel, timeout: float) -> Finding:
    olds = _replaced(event)
    expected: list[Sequence[Array]] = []
    valid: list[dict[Tensor, Array]] = []
    reason = ""
    if cut.before is None:
        valid, expected = cut.drawn, [_meaning(event, values, olds) for values in cut.drawn]
    else:
        arrays = [[values[t] for t in cut.before_inputs] for values in cut.drawn]
        for values, one in zip(cut.drawn, run_vectors(model, cut.before, arrays, timeout), strict=True):
            if one.status is Status.VALID:
                valid.append(values)
                expected.append(one.outputs)
            else:
                reason = reason or f"the replaced operators are {one.status.value}: {one.message}"
    if not valid:
        return Finding(event, Kept.UNCHECKED, 0.0, reason)
    worst: float | Fraction = 0.0
    arrays = [[values[t] for t in cut.after_inputs] for values in valid]
    for wanted, other in zip(expected, run_vectors(model, cut.after, arrays, timeout), strict=True):
        if other.status is not Status.VALID:
            message = f"the new operators are {other.status.value} where the replaced ones are valid: {other.message}"
            return Finding(event, Kept.BROKEN, math.inf, message)
        for left, right in zip(wanted, other.outputs, strict=True):
            worst = max(worst, _furthest(left, right))
    allowed = event.contract.lsb if isinstance(event.contract, WithinLsb) else 0.0
    if worst > allowed:
        message = f"differs by {float(worst):g} LSB, contract: {event.contract}"
        return Finding(event, Kept.BROKEN, float(worst), message)
    return Finding(event, Kept.KEPT, float(worst))


def _furthest(wanted: Array, got: Array) -> float | Fraction:
    """The largest distance; exact Python numbers are subtracted exactly."""
    if wanted.dtype == object:
        gaps: list[Fraction] = np.abs(wanted - got.astype(object)).reshape(-1).tolist()
        return max(gaps, default=0.0)
    return float(distances(wanted, got).max(initial=0.0))


def _meaning(event: Event, values: Mapping[Tensor, Array], olds: Sequence[Tensor]) -> list[Array]:
    """The real meaning of the replaced values by the rule's reference, saturated at the limits of their dtype."""
    assert event.reference is not None
    where = f"rule {event.rule} at {', '.join(event.operators[:1])}"
    try:
        meaning = event.reference(values)
        results = [np.asarray(meaning[old]) for old in olds]
    except TosakitError:
        raise
    except Exception as error:
        raise RuleBug(f"{where}: its reference failed: {type(error).__name__}: {error}") from error
    for old, real in zip(olds, results, strict=True):
        if real.shape != old.shape:
            shapes = f"the shape {list(real.shape)} to a value of shape {list(old.shape)}"
            raise RuleBug(f"{where}: its reference gives {shapes}")
    return [
        np.clip(real, *INTEGER_RANGES[old.dtype]) if old.dtype in INTEGER_RANGES else real
        for old, real in zip(olds, results, strict=True)
    ]
