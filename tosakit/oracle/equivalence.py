"""Measure whether two programs compute the same: both run in the reference model on the same boundary-heavy inputs."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from tosakit.engine.rule import BoundaryChange
from tosakit.errors import InvalidArgument, NotEquivalent
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program, Version
from tosakit.ir.types import INTEGER_RANGES, Array, numpy_dtype
from tosakit.oracle.cost import default_vectors
from tosakit.oracle.difference import OutputDifference, Tally
from tosakit.oracle.inputs import InputSpec, input_vectors
from tosakit.oracle.refmodel import ReferenceModel, RunResult, Status

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
    """What each input of the main block must be, in file order. Raises InvalidArgument for an unranked one."""
    for tensor in program.main.inputs:
        if tensor.extras.is_unranked:
            raise InvalidArgument(f'input "{tensor.name}" has no rank; give it a static shape')
    return [InputSpec(t.name, t.dtype, t.shape) for t in program.main.inputs]


def check_equivalence(
    before: Source,
    after: Source,
    *,
    vectors: int | None = None,
    seed: int = 0,
    boundary: Sequence[BoundaryChange] = (),
    inputs: Iterable[Sequence[Array]] | None = None,
    timeout: float = 300.0,
    model: ReferenceModel | None = None,
    progress: Progress | None = None,
) -> Equivalence:
    """Run both programs on the same inputs and report, status first, how far each output is apart.

    ``vectors`` inputs are drawn with ``seed``: 64 by default, fewer where one run takes long (see
    :mod:`tosakit.oracle.cost`), one where there are no inputs. ``inputs`` replaces them by given ones. ``boundary``
    describes inputs and outputs whose dtype changed on purpose; they are compared on the first program's grid.
    ``timeout`` is per run, in seconds. There is no tolerance: the caller judges the numbers.

    Raises NotEquivalent where the interfaces differ otherwise, Unsupported for one with block-scaled tensors,
    InvalidArgument for one with dynamic shapes and for impossible numbers, ToolMissing without the reference model.
    """
    if vectors is not None and vectors < 1:
        raise InvalidArgument(f"{vectors} vectors given; a comparison needs at least 1")
    first = before if isinstance(before, Program) else load(Path(before))
    second = after if isinstance(after, Program) else load(Path(after))
    changes = {change.name: change for change in boundary}
    _same_interface(first, second, changes)
    if inputs is None:
        inputs = _drawn(first, vectors, seed)
    given = [list(vector) for vector in inputs]
    return _compare(model or ReferenceModel(), first, second, changes, given, seed, timeout, progress)


def _drawn(program: Program, vectors: int | None, seed: int) -> Iterable[Sequence[Array]]:
    specs = input_specs(program)
    if not specs:
        return input_vectors(specs, 1, seed)  # every run would be the same
    return input_vectors(specs, default_vectors(program)[0] if vectors is None else vectors, seed)


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
    show = progress or (lambda done, total: None)
    ones = run_vectors(oracle, first, inputs, timeout, lambda done: show(done, 2 * len(inputs)))
    valid = [number for number, one in enumerate(ones) if one.status is Status.VALID]
    skipped = len(inputs) - len(valid)
    if not valid:
        reason = f"the first program is {ones[0].status.value}: {ones[0].message}" if ones else "no inputs are given"
        return Equivalence(Verdict.UNKNOWN, 0, skipped, seed, (), f"nothing could be compared; {reason}")
    translated = [_translate(names, inputs[number], changes) for number in valid]
    others = run_vectors(
        oracle, second, translated, timeout, lambda done: show(len(inputs) + done, len(inputs) + len(valid))
    )
    tallies = [Tally(t.name, changes[t.name].zero_point if t.name in changes else 0.0) for t in first.main.outputs]
    for number, other in zip(valid, others, strict=True):
        if other.status is not Status.VALID:
            message = f"the second program is {other.status.value} where the first is valid: {other.message}"
            return Equivalence(Verdict.INVALID, len(valid), skipped, seed, (), message)
        _add(tallies, ones[number], other, changes)
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
    file = dumps(replace(program, version=version, software_version=None, compatibility=None))
    results: list[RunResult] = []
    for done, result in enumerate(oracle.run_many(file, inputs, timeout=timeout), start=1):
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


def _same_interface(first: Program, second: Program, changes: Mapping[str, BoundaryChange]) -> None:
    sides = (("inputs", first.main.inputs, second.main.inputs), ("outputs", first.main.outputs, second.main.outputs))
    for kind, left, right in sides:
        expected = [_describe(t, changes[t.name].after if t.name in changes else t.dtype) for t in left]
        found = [_describe(t, t.dtype) for t in right]
        if expected != found:
            raise NotEquivalent(
                f"the programs have different {kind}, so nothing can be compared: "
                f"{', '.join(expected) or 'none'} against {', '.join(found) or 'none'}"
            )


def _describe(tensor: Tensor, dtype: DType) -> str:
    return f'"{tensor.name}" {dtype.name} {list(tensor.shape)}'
