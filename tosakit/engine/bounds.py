"""How far the rewrites of a run can move the outputs of a program: their bounds, carried through the graph.

A rewrite m replaces the value ``old`` by ``new``, within n of it for the same operands. Compared with the program
before any rewrite, ``new`` is off by n and by what ``old`` was off already: the error of the operands that it read,
carried through the operators that it stood for. n holds for operands in the ranges that the rewrite was proved for;
where rewrites that were made later, but further up, may have moved them out of these, their errors also go through the
new operators, and both are added. Everything else carries the errors of its operands
(:mod:`tosakit.numerics.deviation`); control flow and variables those of what they run and hold (:mod:`._flow_errors`).

Where a rule replaces what TOSA does not define, n is the distance to the real meaning, and the bound is to a program in
which such operators round to nearest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tosakit.engine._block_errors import NOTHING, Changes, Off, same, worst
from tosakit.engine._flow_errors import RunErrors
from tosakit.engine.contract import ChangesPrecision, Exact, WithinLsb
from tosakit.engine.rule import Event, StateLink
from tosakit.errors import TosakitError
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.deviation import Error, Unbounded
from tosakit.numerics.program_intervals import program_intervals
from tosakit.numerics.real_deviation import UNIT_BITS, RealArithmetic

MOST_RUNS = 32
"""Runs of a program with variables that are followed until their errors no longer grow."""


@dataclass(frozen=True)
class OutputBound:
    """How far an output can be from what it was, in LSB; None where that is not known, and ``because`` says why.

    ``real``, behind a change of precision: how far it can be from what the program that was changed means in exact real
    arithmetic, in LSB of the output; None where there is no such bound, and ``real_because`` says why.
    """

    name: str
    lsb: int | None
    because: str = ""
    real: float | None = None
    real_because: str = ""


@dataclass(frozen=True)
class RealBounds:
    """How far the outputs of a program are from real arithmetic behind its change of precision, in LSB.

    ``event`` is the last of that change. Where there is no number there is the reason.
    """

    event: Event
    outputs: Sequence[float | Unbounded]


def real_bounds(program: Program, real: RealArithmetic, event: Event) -> RealBounds:
    """Bounds of a program whose precision has just changed, the last event of which is ``event``.

    ``real`` knows what the operators of the program stand for, and the intervals of the program as it is.
    """
    try:
        changes = Changes(program, (), real.intervals, real.deviation)
        found = _over_runs(changes, (), UNIT_BITS)
    except TosakitError as problem:
        return RealBounds(event, [Unbounded(str(problem)) for _ in program.main.outputs])
    return RealBounds(
        event, [Unbounded(bound.because) if bound.lsb is None else bound.lsb / (1 << UNIT_BITS) for bound in found]
    )


def output_bounds(
    program: Program, events: Sequence[Event], state: Sequence[StateLink] = (), real: Sequence[RealBounds] = ()
) -> list[OutputBound]:
    """A proved bound for each output of the main block of a program that the rewrites of ``events`` have made.

    ``program`` is the one that the events were recorded on, in the order in which they happened; ``state`` tells which
    of its outputs are its inputs in the next run, ``real`` what its changes of precision came to. A bound holds for
    every run, however many there were before.
    O(operators), as often as loops and variables take until their errors no longer grow.
    """
    bounds = _lsb_bounds(program, events, state)
    if not any(isinstance(event.contract, ChangesPrecision) for event in events):
        return bounds
    if len(real) != 1:
        because = "precision changed more than once" if real else "the change of precision does not say what it means"
        return [replace(bound, real_because=because) for bound in bounds]
    [place] = [number for number, event in enumerate(events) if event is real[0].event]
    later = _lsb_bounds(program, events[place + 1 :], state)
    known = [*real[0].outputs, *[Unbounded("it was added later")] * len(bounds)]
    return [replace(bound, **_real(one, other)) for bound, one, other in zip(bounds, known, later, strict=False)]


def _real(changed: float | Unbounded, later: OutputBound) -> dict[str, Any]:
    """The bound behind the change of precision, and what later rewrites add to it."""
    if isinstance(changed, Unbounded):
        return {"real_because": changed.because}
    return {"real_because": later.because} if later.lsb is None else {"real": changed + later.lsb}


def _lsb_bounds(program: Program, events: Sequence[Event], state: Sequence[StateLink]) -> list[OutputBound]:
    inexact = [event for event in events if not isinstance(event.contract, Exact)]
    outputs = program.main.outputs
    if not inexact:
        return [OutputBound(tensor.name, 0) for tensor in outputs]
    for event in inexact:
        if not isinstance(event.contract, WithinLsb) or not event.values or math.isinf(event.contract.lsb):
            return [OutputBound(tensor.name, None, f"{event.rule}: {event.contract}") for tensor in outputs]
    try:
        changes = Changes(program, events, program_intervals(program))
        if lost := changes.lost():
            return [OutputBound(tensor.name, None, lost.because) for tensor in outputs]
        return _over_runs(changes, state, 0)
    except TosakitError as problem:
        return [OutputBound(tensor.name, None, str(problem)) for tensor in outputs]


def _over_runs(changes: Changes, state: Sequence[StateLink], bits: int) -> list[OutputBound]:
    """Run the program until what it leaves in its variables is no further off than what it found in them.

    Bounds are in units of ``2**-bits`` LSB.
    """
    outputs = changes.program.main.outputs
    held: dict[str, Off] = {}
    first: list[OutputBound] = []
    runs = 0
    while True:
        run = RunErrors(changes, held, state)
        found = [_output(tensor, run.main.of(tensor), bits) for tensor in outputs]
        first = first or ([] if run.untracked else found)
        after = {key: worst([held.get(key, NOTHING), off]) for key, off in run.left().items()}
        growing = [key for key, off in after.items() if not same(off, held.get(key, NOTHING))]
        if not growing:
            return [_with_first(bound, once, bits) for bound, once in zip(found, first or found, strict=True)]
        runs += 1
        if runs > MOST_RUNS:
            because = [Unbounded(f'the error in "{key}" grows from run to run') for key in growing]
            after.update((key, Off(why, len(changes.events))) for key, why in zip(growing, because, strict=True))
        held.update(after)


def _with_first(bound: OutputBound, once: OutputBound, bits: int) -> OutputBound:
    """The bound; where there is none over many runs, also that of a single one."""
    if bound.lsb is not None or once.lsb is None:
        return bound
    limit = f"{once.lsb / (1 << bits):g}"
    return OutputBound(bound.name, None, f"{bound.because}; a run from the same state is within {limit} LSB")


def _output(tensor: Tensor, off: Off, bits: int) -> OutputBound:
    error: Error = off.error
    if isinstance(error, Unbounded):
        return OutputBound(tensor.name, None, error.because)
    largest, (low, high) = int(np.max(error)), INTEGER_RANGES.get(tensor.dtype, (0, 1))
    if largest >= (high - low) << bits:
        return OutputBound(tensor.name, None, f"it grows to the whole range of {tensor.dtype.name} on the way")
    return OutputBound(tensor.name, largest)
