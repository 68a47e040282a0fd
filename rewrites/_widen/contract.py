"""The local contract of the widening: every operator on the old grid, against exact arithmetic.

The old graph is cut at its int8 tensors. Each piece that ends in one is run on int8 values, the new piece on the same
values as int16. Where the piece ends in a RESCALE, the old one is run up to the int32 value ``a`` it reads, and the new
result must be near ``128 * a * m / 2^s``, saturated as int8 was: as near as the roundings of both sides allow, by
channel (:mod:`tosakit.numerics.real_deviation`). All other operators must be exact, but for smoothed tables (the same
int8) and pooled averages (both sides rounded). What is allowed is derived from the operators of the piece, so their
multipliers are looked at first: each must be the scale that it stands for, to 15 or 31 bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from rewrites._widen.families import AVERAGE_POOLS, FACTOR, scalar
from rewrites._widen.rescale import old_scales, saturation
from rewrites._widen.writer import BlockWriter, Native, meaning_of
from tosakit.engine.rule import LocalCheck, describe
from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, OpRecord, Tensor
from tosakit.ir.program import Program, Region, Version
from tosakit.ir.types import INTEGER_RANGES, Array
from tosakit.numerics.deviation import Error, Unbounded, detached
from tosakit.numerics.intervals import Intervals
from tosakit.numerics.real_deviation import UNIT_BITS, Meaning, RealArithmetic
from tosakit.oracle.contracts import extract
from tosakit.oracle.inputs import InputSpec, input_vectors
from tosakit.oracle.refmodel import ReferenceModel, Status

_BATCH = 64
"""Pieces that run as one program."""

VECTORS = 8
"""Input vectors per piece; they start with zero, both limits and random values."""

_FLOAT_SLACK = 2.0**-20
"""float64 holds every quantity compared here (at most 2^24) to 2^-28."""

_SMOOTH_LSB = 63
"""A smoothed table entry is within 0.49 * 128 of the int8 one, and rounded once."""
_AVERAGE_LSB = 65
"""An average is rounded to int8 on one side (64 int16 LSB) and to int16 on the other, by a 31-bit reciprocal."""


@dataclass(frozen=True)
class Piece:
    """A part of the program that ends in one int8 activation: the same function in the old and the new graph.

    ``native`` is the new form of the activation, ``inputs`` are the old tensors the new part starts from. ``saturated``
    tells whether the new value keeps to the int8 range by itself (else its readers see to it, or an option frees it).
    """

    op: AnyOp
    old: tuple[OpRecord, ...]
    new: tuple[OpRecord, ...]
    old_target: Tensor
    native: Native
    inputs: Mapping[Tensor, Native]
    saturated: bool
    smooth: bool


def local_contract(writers: Sequence[BlockWriter]) -> LocalCheck:
    """The check for a program widened by these writers; it keeps the operators as they are now."""
    made = [{t: op.record for op in w.graph.ops for t in op.outputs if t.producer is op} for w in writers]

    def check(_before: Program, _after: Program) -> list[str]:
        pieces = [piece for writer, now in zip(writers, made, strict=True) for piece in _pieces(writer, now)]
        meaning, model = meaning_of(writers), ReferenceModel()
        breaches = [f"{describe(piece.op)}: {wrong}" for piece in pieces if (wrong := _wrong_scale(piece, meaning))]
        for first in range(0, len(pieces), _BATCH):
            breaches.extend(_check(pieces[first : first + _BATCH], model, meaning))
        return breaches

    return check


def _pieces(writer: BlockWriter, made: Mapping[Tensor, OpRecord]) -> list[Piece]:
    """The pieces of a block; ``made`` are the new operators by their results."""
    homes = {native.tensor: old for old, native in writer.natives.items() if _is_cut(old, writer.old.entry)}
    pieces = []
    for op in writer.converted:
        if not op.outputs or op.output.dtype != DType.INT8 or op.output not in writer.natives:
            continue
        is_rescale = isinstance(op.attrs, ops.Rescale)
        target = op.inputs[0] if is_rescale else op.output
        native = writer.natives[op.output]
        old = _upstream(lambda t, op=op: _old_record(t, op, writer.old.entry), target)  # type: ignore[misc]
        new = _upstream(lambda t, n=native: made.get(t) if t not in homes or t is n.tensor else None, native.tensor)  # type: ignore[misc]
        read = dict.fromkeys(t for record in new for t in record.inputs)
        inputs = {homes[t]: writer.natives[homes[t]] for t in read if t in homes}
        free = op.output in writer.proved or op.output in writer.saturated_by_readers
        saturated = writer.settings.clamp_all and not free
        piece = Piece(op, tuple(old), tuple(new), target, native, inputs, saturated, writer.settings.smooth)
        pieces.append(piece)
    return pieces


def _is_cut(old: Tensor, entry: AnyOp) -> bool:
    return (old.dtype == DType.INT8 and not old.is_constant) or old.producer is entry


def _old_record(tensor: Tensor, op: AnyOp, entry: AnyOp) -> OpRecord | None:
    """The old operator behind a tensor, up to the tensors that pieces begin with."""
    producer = tensor.producer
    if producer is None or (_is_cut(tensor, entry) and producer is not op):
        return None
    return producer.record


def _upstream(producer: Callable[[Tensor], OpRecord | None], target: Tensor) -> list[OpRecord]:
    """Records of the operators behind ``target``, producers first."""
    order: dict[tuple[Tensor, ...], OpRecord] = {}
    stack: list[tuple[Tensor, bool]] = [(target, False)]
    while stack:
        tensor, done = stack.pop()
        record = producer(tensor)
        if record is None or record.outputs in order:
            continue
        if done:
            order[record.outputs] = record
        else:
            stack.append((tensor, True))
            stack.extend((t, False) for t in record.inputs)
    return list(order.values())


@dataclass(frozen=True)
class _Cut:
    """A piece as two programs of its own; ``vectors`` are values of the old tensors they start from."""

    piece: Piece
    old: Program | None
    old_inputs: list[Tensor]
    new: Program
    new_inputs: list[Tensor]
    vectors: list[dict[Tensor, Array]]


def _cut(piece: Piece) -> _Cut | None:
    """Cut a piece out of its graphs; None where control flow or state is in it, whose values cannot be given."""
    try:
        new, new_inputs = extract(piece.new, [piece.native.tensor])
        old, old_inputs = extract(piece.old, [piece.old_target]) if piece.old else (None, [piece.old_target])
        homes = {native.tensor: tensor for tensor, native in piece.inputs.items()}
        starts = dict.fromkeys([*old_inputs, *(homes.get(t, t) for t in new_inputs)])
        drawn = [t for t in starts if t.data is None]
        vectors = input_vectors([InputSpec(t.name, t.dtype, t.shape) for t in drawn], VECTORS, 0)
    except (InvalidModel, InvalidArgument):
        return None
    return _Cut(piece, old, old_inputs, new, new_inputs, [dict(zip(drawn, v, strict=True)) for v in vectors])


def _check(pieces: Sequence[Piece], model: ReferenceModel, meaning: Meaning) -> list[str]:
    """One sentence for each piece that breaks the contract.

    All pieces run as one program; where that is not valid (one piece may be unpredictable for values that the whole
    program never has), one by one.
    """
    cuts = [cut for piece in pieces if (cut := _cut(piece)) is not None]
    if not cuts:
        return []
    with_old = [cut for cut in cuts if cut.old is not None]
    before = _run_merged([(cut.old, cut.old_inputs) for cut in with_old if cut.old], with_old, model)
    wanted: dict[AnyOp, list[Outcome]] = {cut.piece.op: results for cut, results in zip(with_old, before, strict=True)}
    for cut in cuts:
        if cut.old is None:
            target = cut.piece.old_target
            wanted[cut.piece.op] = [v[target] if target in v else target.values() for v in cut.vectors]
    after = _run_merged([(cut.new, cut.new_inputs) for cut in cuts], cuts, model)
    breaches = []
    for cut, results in zip(cuts, after, strict=True):
        for old, new in zip(wanted[cut.piece.op], results, strict=True):
            if isinstance(old, str):
                continue  # the old operators are not valid for these values, so nothing is promised
            breach = f"not valid where the int8 operators are: {new}" if isinstance(new, str) else None
            breach = breach or _compare(cut.piece, old, np.asarray(new), meaning)
            if breach:
                breaches.append(f"{describe(cut.piece.op)}: {breach}")
                break
    return breaches


Outcome = Array | str
"""The one result of a piece for one vector, or why there is none."""


def _run_merged(
    programs: Sequence[tuple[Program, list[Tensor]]], cuts: Sequence[_Cut], model: ReferenceModel
) -> list[list[Outcome]]:
    """Results of each program for each vector."""
    if not programs:
        return []
    inputs = [
        [[_value(cut, t, vector) for t in tensors] for vector in cut.vectors]
        for cut, (_, tensors) in zip(cuts, programs, strict=True)
    ]
    merged = dumps(_merge([program for program, _ in programs]))
    batches = [[array for piece in inputs for array in piece[number]] for number in range(VECTORS)]
    runs = list(model.run_many(merged, batches))
    if all(run.status is Status.VALID for run in runs):
        return [[run.outputs[index] for run in runs] for index in range(len(programs))]
    return [
        [
            run.outputs[0] if run.status is Status.VALID else f"{run.status.value}: {run.message}"
            for run in model.run_many(dumps(program), arrays)
        ]
        for (program, _), arrays in zip(programs, inputs, strict=True)
    ]


def _merge(programs: Sequence[Program]) -> Program:
    """One program that computes what all of these do, side by side."""
    graph = Graph("main")
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for program in programs:
        part = program.main.clone()
        twins: dict[Tensor, Tensor] = {}
        for tensor in part.tensors:
            twins[tensor] = Tensor(tensor.name, tensor.dtype, tensor.shape, tensor.data, table=tensor.table)
        for tensor in part.inputs:
            inputs.append(graph.add_tensor(twins[tensor]))
        graph.set_inputs(inputs)
        for op in part.ops:
            graph.add_op(Op(op.attrs, [twins[t] for t in op.inputs], [twins[t] for t in op.outputs]))
        outputs.extend(twins[t] for t in part.outputs)
    graph.set_outputs(outputs)
    return Program([Region("main", [graph])], Version(1, 0, 0, False))


def _value(cut: _Cut, tensor: Tensor, vector: Mapping[Tensor, Array]) -> Array:
    """The value of an input of the old or the new program of a piece."""
    homes = {native.tensor: old for old, native in cut.piece.inputs.items()}
    old = homes.get(tensor, tensor)
    zero_point = cut.piece.inputs[old].zero_point if old in cut.piece.inputs and old is not tensor else None
    if zero_point is None:
        return vector[old]
    return np.asarray((vector[old].astype(np.int64) - zero_point) * FACTOR, np.int16)


def _compare(piece: Piece, before: Array, after: Array, meaning: Meaning) -> str | None:
    op, zero_point = piece.op, piece.native.zero_point
    gain = 1 if zero_point is None else FACTOR
    offset = zero_point or 0  # of a result that stays int8, the zero point is part of the value
    low, high = (-128, 127) if zero_point is None else saturation(zero_point, clamp_all=True)
    got = after.astype(np.float64)
    if isinstance(op.attrs, ops.Rescale):
        scales = np.array([float(scale) for scale in old_scales(op)])
        scaled = (before.astype(np.float64) - scalar(op.inputs[3])) * scales * gain
        real = scaled + gain * (scalar(op.inputs[4]) - offset)
        allowed = _allowance(piece, np.asarray(scales * gain, np.float64), meaning) + _FLOAT_SLACK
    else:
        real = (before.astype(np.float64) - offset) * gain
        allowed = np.array(_exactness(op, piece.smooth), np.float64)
    if not piece.saturated:
        got = np.clip(got, low, high)
    excess = np.abs(got - np.clip(real, low, high)) - allowed
    if excess.size and excess.max() > 0:
        at = np.unravel_index(int(excess.argmax()), excess.shape)
        bound = float(np.broadcast_to(allowed, excess.shape)[at])
        return f"{got[at]:g} where {float(np.clip(real, low, high)[at]):g} +- {bound:.3f} is promised"
    return None


def _exactness(op: AnyOp, smooth: bool) -> int:
    if isinstance(op.attrs, ops.Table):
        return _SMOOTH_LSB if smooth else 0
    return _AVERAGE_LSB if isinstance(op.attrs, AVERAGE_POOLS) else 0


# ---------------------------------------------------------------- distances from real arithmetic
def _allowance(piece: Piece, scales: npt.NDArray[np.float64], meaning: Meaning) -> npt.NDArray[np.float64]:
    """How far both sides can be from what they mean in real arithmetic, at the end of the piece, by channel."""
    old_ranges = {t: INTEGER_RANGES[t.dtype] for t in piece.inputs if t.dtype in INTEGER_RANGES}
    intervals = Intervals(old_ranges)
    old = _distance(piece.old, piece.old_target, RealArithmetic(intervals, Meaning()))
    ranges = {}
    for native in piece.inputs.values():
        if native.zero_point is not None:
            ranges[native.tensor] = saturation(native.zero_point, clamp_all=True)
        elif native.tensor.dtype in INTEGER_RANGES:
            ranges[native.tensor] = INTEGER_RANGES[native.tensor.dtype]
    new = _distance(piece.new, piece.native.tensor, RealArithmetic(Intervals(ranges), meaning))
    return np.where(_may_wrap(piece, intervals), np.inf, scales * old + new)


def _may_wrap(piece: Piece, intervals: Intervals) -> npt.NDArray[np.bool_]:
    """Where the int8 operators may leave INT32, by channel: nothing is promised there, and the reference model does not
    tell an accumulator that wrapped around."""
    low, high = INTEGER_RANGES[DType.INT32]
    wraps = np.array(False)
    for record in piece.old:
        if record.inputs and record.outputs[0].dtype == DType.INT32:
            exact = intervals.unclipped(detached(record.attrs, record.inputs, record.outputs))
            outside = np.logical_or(exact.low < low, exact.high > high)
            wraps = wraps | (outside if record.outputs[0] is piece.old_target else outside.any())
    return wraps


def _wrong_scale(piece: Piece, meaning: Meaning) -> str | None:
    """What is wrong with a multiplier and shift of the new piece; None where all are as near as they can be."""
    for record in piece.new:
        meant = meaning.scales.get(record.outputs[0], ())
        if not isinstance(record.attrs, ops.Rescale):
            continue
        for multiplier, shift, scale in zip(*(t.values().reshape(-1) for t in record.inputs[1:3]), meant, strict=False):
            own = Fraction(int(multiplier), 1 << int(shift))
            if abs(own - scale) > max(scale / (1 << (31 if record.attrs.scale32 else 15)), Fraction(1, 1 << 63)):
                return f"a scale of {float(own):g} where {float(scale):g} is meant"
    return None


def _distance(records: Sequence[OpRecord], target: Tensor, real: RealArithmetic) -> npt.NDArray[np.float64]:
    """How far the target of these operators can be from real arithmetic, in LSB; infinite where nothing is known."""
    errors: dict[Tensor, Error] = {}
    for record in records:
        if record.inputs and record.outputs[0].dtype != DType.SHAPE:
            op = detached(record.attrs, record.inputs, record.outputs)
            errors[op.output] = real.deviation(op, lambda tensor: errors.get(tensor, 0))
    found = errors.get(target, 0)
    return np.asarray(np.inf if isinstance(found, Unbounded) else np.asarray(found) / (1 << UNIT_BITS), np.float64)
