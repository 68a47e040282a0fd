"""Measure whether two programs compute the same: both run in the reference model on the same boundary-heavy inputs."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from tosakit.engine.rule import BoundaryChange
from tosakit.errors import InvalidArgument, NotEquivalent
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES, Array
from tosakit.oracle.inputs import InputSpec, input_vectors
from tosakit.oracle.refmodel import ReferenceModel, RunResult, Status

Source = Program | str | os.PathLike[str]
Progress = Callable[[int, int], None]


class Verdict(Enum):
    """What a comparison says."""

    EQUAL = "equal"
    DIFFERENT = "different"
    INVALID = "invalid"
    """The second program is unpredictable, fails or crashes where the first is valid."""
    UNKNOWN = "unknown"
    """The first program is valid for none of the vectors, so nothing was compared."""


@dataclass(frozen=True)
class OutputDifference:
    """How far one output is apart over all compared vectors.

    ``max_difference`` is in LSB of the first program's integer output, absolute for other dtypes. ``sqnr_db`` is the
    ratio of signal to difference, infinite where there is none.
    """

    name: str
    max_difference: float
    fraction_different: float
    sqnr_db: float


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
        """Largest difference over all outputs."""
        return max((output.max_difference for output in self.outputs), default=0.0)

    @property
    def sqnr_db(self) -> float:
        """Smallest SQNR over all outputs."""
        return min((output.sqnr_db for output in self.outputs), default=math.inf)

    def __str__(self) -> str:
        text = f"{self.verdict.value}; {self.vectors} vectors, {self.skipped} skipped, seed {self.seed}"
        if self.verdict is Verdict.DIFFERENT:
            text += f"; at most {self.max_difference:g} LSB apart, SQNR {self.sqnr_db:.1f} dB"
        return f"{text}; {self.message}" if self.message else text


def input_specs(program: Program) -> list[InputSpec]:
    """What each input of the program's main block must be, in file order."""
    return [InputSpec(t.name, t.dtype, t.shape) for t in program.main.inputs]


@dataclass
class _Tally:
    """Differences of one output, gathered vector by vector."""

    name: str
    zero_point: float = 0.0
    worst: float = 0.0
    count: int = 0
    different: int = 0
    signal: float = 0.0
    noise: float = 0.0

    def add(self, before: Array, after: Array) -> None:
        """Compare two arrays of one shape; NaN equals NaN."""
        if before.dtype == np.bool_:
            first, second = before.astype(np.float64), after.astype(np.float64)
        else:
            first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
        with np.errstate(invalid="ignore"):
            same = (first == second) | (np.isnan(first) & np.isnan(second))
            gap = np.where(same, 0.0, np.abs(first - second))
        gap = np.nan_to_num(gap, nan=math.inf, posinf=math.inf)
        self.worst = max(self.worst, float(gap.max(initial=0.0)))
        self.count += first.size
        self.different += int(np.count_nonzero(~same))
        self.signal += float(np.square(np.nan_to_num(first - self.zero_point, posinf=0.0, neginf=0.0)).sum())
        self.noise += float(np.square(gap).sum())

    def result(self) -> OutputDifference:
        """The summary over everything added."""
        if self.noise == 0.0:
            sqnr = math.inf
        elif self.signal == 0.0:
            sqnr = -math.inf
        else:
            sqnr = 10.0 * math.log10(self.signal / self.noise) if math.isfinite(self.noise) else -math.inf
        return OutputDifference(self.name, self.worst, self.different / self.count if self.count else 0.0, sqnr)


def check_equivalence(
    before: Source,
    after: Source,
    *,
    vectors: int = 64,
    seed: int = 0,
    boundary: Sequence[BoundaryChange] = (),
    inputs: Iterable[Sequence[Array]] | None = None,
    timeout: float = 300.0,
    model: ReferenceModel | None = None,
    progress: Progress | None = None,
) -> Equivalence:
    """Run both programs on the same inputs and report, status first, how far each output is apart.

    ``boundary`` describes inputs and outputs whose dtype changed on purpose; they are compared on the first program's
    grid. ``inputs`` replaces the seeded vectors by given ones. There is no tolerance: the caller judges the numbers.
    Raises NotEquivalent where the interfaces differ otherwise, ToolMissing without the reference model.
    """
    if vectors < 1:
        raise InvalidArgument(f"{vectors} vectors given; a comparison needs at least 1")
    first = before if isinstance(before, Program) else load(Path(before))
    second = after if isinstance(after, Program) else load(Path(after))
    changes = {change.name: change for change in boundary}
    _same_interface(first, second, changes)
    if inputs is None:
        inputs = input_vectors(input_specs(first), vectors, seed)
    vectors_used = [list(vector) for vector in inputs]
    return _compare(model or ReferenceModel(), first, second, changes, vectors_used, seed, timeout, progress)


def _compare(
    oracle: ReferenceModel,
    first: Program,
    second: Program,
    changes: Mapping[str, BoundaryChange],
    inputs: Sequence[Sequence[Array]],
    seed: int,
    timeout: float,
    progress: Progress | None,
) -> Equivalence:
    names = [t.name for t in first.main.inputs]
    ones = _run(oracle, first, inputs, timeout, lambda done: progress and progress(done, 2 * len(inputs)))
    valid = [number for number, one in enumerate(ones) if one.status is Status.VALID]
    skipped = len(inputs) - len(valid)
    if not valid:
        reason = f"the first program is {ones[0].status.value}: {ones[0].message}" if ones else "there are no inputs"
        return Equivalence(Verdict.UNKNOWN, 0, skipped, seed, (), f"nothing could be compared; {reason}")
    translated = [_translate(names, inputs[number], changes) for number in valid]
    report = lambda done: progress and progress(len(inputs) + done, len(inputs) + len(valid))  # noqa: E731
    others = _run(oracle, second, translated, timeout, report)
    tallies = [_Tally(t.name, changes[t.name].zero_point if t.name in changes else 0.0) for t in first.main.outputs]
    for number, other in zip(valid, others, strict=True):
        if other.status is not Status.VALID:
            message = f"the second program is {other.status.value} where the first is valid: {other.message}"
            return Equivalence(Verdict.INVALID, len(valid), skipped, seed, (), message)
        _add(tallies, ones[number], other, changes)
    verdict = Verdict.EQUAL if all(tally.different == 0 for tally in tallies) else Verdict.DIFFERENT
    return Equivalence(verdict, len(valid), skipped, seed, tuple(tally.result() for tally in tallies))


def _run(
    oracle: ReferenceModel,
    program: Program,
    inputs: Sequence[Sequence[Array]],
    timeout: float,
    report: Callable[[int], object],
) -> list[RunResult]:
    """One result per vector; a hang, crash or refusal ends the runs and stands for the rest too."""
    results: list[RunResult] = []
    for done, result in enumerate(oracle.run_many(dumps(program), inputs, timeout=timeout), start=1):
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
        arrays.append(values.astype({DType.INT8: np.int8, DType.INT16: np.int16}.get(change.after, np.int32)))
    return arrays


def _add(tallies: Sequence[_Tally], one: RunResult, other: RunResult, changes: Mapping[str, BoundaryChange]) -> None:
    for tally, left, right in zip(tallies, one.outputs, other.outputs, strict=True):
        change = changes.get(tally.name)
        if change is not None:
            right = right.astype(np.float64) / change.factor + change.zero_point  # noqa: PLW2901
        tally.add(left, right)


def _same_interface(first: Program, second: Program, changes: Mapping[str, BoundaryChange]) -> None:
    sides = (("inputs", first.main.inputs, second.main.inputs), ("outputs", first.main.outputs, second.main.outputs))
    for kind, left, right in sides:
        if [t.name for t in left] != [t.name for t in right]:
            raise NotEquivalent(f"{kind} differ: {[t.name for t in left]} against {[t.name for t in right]}")
        for a, b in zip(left, right, strict=True):
            change = changes.get(a.name)
            expected = a.dtype if change is None else change.after
            if b.dtype != expected or a.shape != b.shape:
                raise NotEquivalent(f"{kind} differ: {a!r} against {b!r}")
