"""Measure whether two programs compute the same: both run in the reference model on the same boundary-heavy inputs."""

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from tosakit.engine.rule import BoundaryChange, RenamedOutput, StateLink
from tosakit.errors import InvalidArgument, NotEquivalent
from tosakit.io.reader import load
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program, Version
from tosakit.ir.types import INTEGER_RANGES, Array, numpy_dtype
from tosakit.oracle.cost import default_vectors
from tosakit.oracle.demands import demands_on_inputs, narrowed
from tosakit.oracle.difference import OutputDifference, Tally
from tosakit.oracle.inputs import InputSpec, input_vectors
from tosakit.oracle.packing import run_packed
from tosakit.oracle.refmodel import ReferenceModel, RunResult, Status
from tosakit.oracle.state import run_original, run_rewritten

_MODEL_VERSIONS = {0: Version(1, 0, 0), 1: Version(1, 1, 0, draft=True)}
"""The version of each minor number that the reference model of tosa-tools 2026.8 reads."""

Source = Program | str | os.PathLike[str]
Progress = Callable[[int, int], None]


class Verdict(Enum):
    """What a comparison says."""

    EQUAL = "equal"
    DIFFERENT = "different"
    INVALID = "invalid"
    """The second program is unpredictable, fails, hangs or crashes where the first is valid."""
    UNKNOWN = "unknown"
    """Nothing was compared: the first program is valid for none of the vectors, or has no outputs."""


@dataclass(frozen=True)
class Equivalence:
    """Result of :func:`check_equivalence`. ``skipped`` vectors are those for which the first program was not valid."""

    verdict: Verdict
    vectors: int
    skipped: int
    seed: int
    outputs: tuple[OutputDifference, ...]
    message: str = ""

    @property
    def equal(self) -> bool:
        """True only where every output of every compared vector is identical and at least one vector was compared."""
        return self.verdict is Verdict.EQUAL

    @property
    def max_difference(self) -> float:
        """Largest difference over all outputs, in LSB."""
        return max((output.max_difference for output in self.outputs), default=0.0)

    @property
    def sqnr_db(self) -> float:
        """Smallest SQNR over all outputs, in dB."""
        return min((output.sqnr_db for output in self.outputs), default=math.inf)

    def __str__(self) -> str:
        text = f"{self.verdict.value}; {self.vectors} vectors, {self.skipped} skipped, seed {self.seed}"
        if self.verdict is Verdict.DIFFERENT:
            text += f"; at most {self.max_difference:g} LSB apart, SQNR {self.sqnr_db:.1f} dB"
        return f"{text}; {self.message}" if self.message else text


def input_specs(program: Program) -> list[InputSpec]:
    """What each input of the main block must be, in file order: those that operators take some values of hold such.

    Raises InvalidArgument for an unranked one.
    """
    for tensor in program.main.inputs:
        if tensor.extras.is_unranked:
            raise InvalidArgument(f'input "{tensor.name}" has no rank; give it a static shape')
    demands = demands_on_inputs(program)
    return [narrowed(InputSpec(t.name, t.dtype, t.shape), demands.get(t)) for t in program.main.inputs]


def check_equivalence(
    before: Source,
    after: Source,
    *,
    vectors: int | None = None,
    seed: int = 0,
    boundary: Sequence[BoundaryChange] = (),
    state: Sequence[StateLink] = (),
    renamed: Sequence[RenamedOutput] = (),
    inputs: Iterable[Sequence[Array]] | None = None,
    timeout: float = 300.0,
    model: ReferenceModel | None = None,
    progress: Progress | None = None,
) -> Equivalence:
    """Run both programs on the same inputs and report, status first, how far each output is apart.

    ``vectors`` inputs are drawn with ``seed``: 64 by default, fewer where one run takes long (see
    :mod:`tosakit.oracle.cost`), one where there are no inputs. ``inputs`` replaces them by given ones. ``boundary``
    describes inputs and outputs whose dtype changed on purpose; they are compared on the first program's grid.
    ``state`` names variables of the first program that are inputs and outputs of the second: the vectors are then steps
    in a row, each program goes on from its own state, and what the variables hold after each step is compared too.
    ``renamed`` are outputs that have another name in the second program.
    ``timeout`` is per run, in seconds. There is no tolerance: the caller judges the numbers.

    Raises NotEquivalent where the interfaces differ otherwise, Unsupported for one with block-scaled tensors,
    InvalidArgument for one with dynamic shapes and for impossible numbers, ToolMissing without the reference model.
    """
    if vectors is not None and vectors < 1:
        raise InvalidArgument(f"{vectors} vectors given; a comparison needs at least 1")
    first = before if isinstance(before, Program) else load(Path(before))
    second = after if isinstance(after, Program) else load(Path(after))
    changes = {change.name: change for change in boundary}
    _same_interface(first, second, changes, state, {one.name: one.new_name for one in renamed})
    if inputs is None:
        inputs = _drawn(first, vectors, seed)
    given = [list(vector) for vector in inputs]
    by_step = bool(state) or (_has_variables(first) and not _has_variables(second))
    runs = _Runs(model or ReferenceModel(), timeout, state, by_step, progress or (lambda done, total: None))
    return _compare(runs, first, second, changes, given, seed)


def _drawn(program: Program, vectors: int | None, seed: int) -> Iterable[Sequence[Array]]:
    specs = input_specs(program)
    if not specs:
        return input_vectors(specs, 1, seed)  # every run would be the same
    return input_vectors(specs, default_vectors(program)[0] if vectors is None else vectors, seed)


def _has_variables(program: Program) -> bool:
    return any(tensor.extras.variable for block in program.blocks for tensor in block.tensors)


@dataclass(frozen=True)
class _Runs:
    """How both programs are run: all vectors side by side, or, where there is state, one after the other."""

    model: ReferenceModel
    timeout: float
    state: Sequence[StateLink]
    by_step: bool
    show: Progress

    def first(self, program: Program, vectors: Sequence[Sequence[Array]]) -> list[RunResult]:
        total = 2 * len(vectors)
        if self.by_step:
            return run_original(program, self.state, vectors, self._step(0, total))
        return run_vectors(self.model, program, vectors, self.timeout, lambda done: self.show(done, total))

    def second(self, program: Program, vectors: Sequence[Sequence[Array] | None], total: int) -> list[RunResult]:
        """One result for every vector that is not None, or for those up to the first that is not valid."""
        given = [vector for vector in vectors if vector is not None]
        before = total - len(given)
        if self.by_step:
            return run_rewritten(program, self.state, vectors, self._step(before, total))
        return run_vectors(self.model, program, given, self.timeout, lambda done: self.show(before + done, total))

    def _step(self, done: int, total: int) -> Callable[[Program, Sequence[Array]], RunResult]:
        count = itertools.count(done + 1)

        def step(program: Program, vector: Sequence[Array]) -> RunResult:
            [result] = run_vectors(self.model, program, [vector], self.timeout)
            self.show(next(count), total)
            return result

        return step


def _compare(
    runs: _Runs,
    first: Program,
    second: Program,
    changes: Mapping[str, BoundaryChange],
    inputs: Sequence[Sequence[Array]],
    seed: int,
) -> Equivalence:
    names = [t.name for t in first.main.inputs]
    ones = runs.first(first, inputs)
    valid = [one for one in ones if one.status is Status.VALID]
    skipped = len(inputs) - len(valid)
    if not valid:
        reason = f"the first program is {ones[0].status.value}: {ones[0].message}" if ones else "no inputs are given"
        return Equivalence(Verdict.UNKNOWN, 0, skipped, seed, (), f"nothing could be compared; {reason}")
    translated = [
        _translate(names, vector, changes) if one.status is Status.VALID else None
        for vector, one in zip(inputs, ones, strict=True)
    ]
    others = runs.second(second, translated, len(inputs) + len(valid))
    outputs = [*(t.name for t in first.main.outputs), *(link.output for link in runs.state)]
    tallies = [Tally(name, changes[name].zero_point if name in changes else 0.0) for name in outputs]
    for one, other in zip(valid, others, strict=False):
        if other.status is not Status.VALID:
            message = f"the second program is {other.status.value} where the first is valid: {other.message}"
            return Equivalence(Verdict.INVALID, len(valid), skipped, seed, (), message)
        _add(tallies, one, other, changes)
    if not tallies:
        return Equivalence(Verdict.UNKNOWN, 0, skipped, seed, (), "nothing could be compared; there are no outputs")
    verdict = Verdict.EQUAL if all(tally.different == 0 for tally in tallies) else Verdict.DIFFERENT
    return Equivalence(verdict, len(valid), skipped, seed, tuple(tally.result() for tally in tallies))


def run_vectors(
    oracle: ReferenceModel,
    program: Program,
    inputs: Sequence[Sequence[Array]],
    timeout: float,
    report: Callable[[int], object] = lambda done: None,
) -> list[RunResult]:
    """One result per vector; a hang, crash or refusal ends the runs and stands for the rest too.

    ``report`` is told how many are done. The file that runs has the operators of ``program``, but a version that the
    model knows, and no claim about the software that wrote it: the model refuses files for these alone.
    """
    version = _MODEL_VERSIONS.get(program.version.minor, program.version)
    runnable = replace(program, version=version, software_version=None, compatibility=None)
    results: list[RunResult] = []
    for done, result in enumerate(run_packed(oracle, runnable, inputs, timeout), start=1):
        results.append(result)
        report(done)
        if result.status in (Status.TIMEOUT, Status.CRASHED, Status.REFUSED):
            results.extend([result] * (len(inputs) - done))
            break
    return results


def _translate(names: Sequence[str], vector: Sequence[Array], changes: Mapping[str, BoundaryChange]) -> list[Array]:
    """The vector for the second program, where inputs changed their dtype."""
    arrays: list[Array] = []
    for name, array in zip(names, vector, strict=True):
        change = changes.get(name)
        if change is None:
            arrays.append(array)
            continue
        low, high = INTEGER_RANGES[change.after]
        values = (array.astype(np.int64) - change.zero_point) * change.factor
        if values.size and (values.min() < low or values.max() > high):
            raise InvalidArgument(f'input "{name}": {values.min()} to {values.max()} do not fit {change.after.name}')
        arrays.append(values.astype(numpy_dtype(change.after)))
    return arrays


def _add(tallies: Sequence[Tally], one: RunResult, other: RunResult, changes: Mapping[str, BoundaryChange]) -> None:
    for tally, left, right in zip(tallies, one.outputs, other.outputs, strict=True):
        change = changes.get(tally.name)
        if change is not None:
            right = right.astype(np.float64) / change.factor + change.zero_point  # noqa: PLW2901
        tally.add(left, right)


def _same_interface(
    first: Program,
    second: Program,
    changes: Mapping[str, BoundaryChange],
    state: Sequence[StateLink],
    renamed: Mapping[str, str],
) -> None:
    fed = [link.input for link in state], [link.output for link in state]
    sides: tuple[tuple[str, Sequence[Tensor], Sequence[Tensor], Mapping[str, str]], ...] = (
        ("inputs", first.main.inputs, [t for t in second.main.inputs if t.name not in fed[0]], {}),
        ("outputs", first.main.outputs, [t for t in second.main.outputs if t.name not in fed[1]], renamed),
    )
    for kind, left, right, names in sides:
        types = [changes[t.name].after if t.name in changes else t.dtype for t in left]
        expected = [_describe(names.get(t.name, t.name), d, t.shape) for t, d in zip(left, types, strict=True)]
        found = [_describe(t.name, t.dtype, t.shape) for t in right]
        if expected != found:
            raise NotEquivalent(
                f"the programs have different {kind}, so nothing can be compared: "
                f"{', '.join(expected) or 'none'} against {', '.join(found) or 'none'}"
            )


def _describe(name: str, dtype: DType, shape: tuple[int, ...]) -> str:
    return f'"{name}" {dtype.name} {list(shape)}'
