"""Run one rule on a small program, and check what it promised in the reference model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tosakit.engine.contract import Exact, WithinLsb
from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.engine.rule import Rule
from tosakit.io.writer import dumps
from tosakit.ir.graph import OpRecord
from tosakit.ir.program import Program
from tosakit.oracle.contracts import Kept, check_events
from tosakit.oracle.refmodel import ReferenceModel, RunResult

MODEL = ReferenceModel()

EVERY_INT16: npt.NDArray[np.int16] = np.arange(-(1 << 15), 1 << 15, dtype=np.int16).reshape(1, 256, 256, 1)
"""Every INT16 value once: an input for exhaustive tests of graphs with one input channel."""


def apply(rule: Rule[Any], program: Program, *, target: str = "", **options: Any) -> RewriteResult:
    """Run ``rule`` on a copy of ``program``, with its options set by name; a second run must change nothing."""
    chosen = {rule.name: rule.options(**options)}
    untouched = records(program)
    result = run_steps(program.clone(), [rule], target=target, options=chosen, for_check=True)
    assert records(program) == untouched
    again = run_steps(result.program.clone(), [rule], target=target, options=chosen)
    assert not again.events
    return result


def refusal(result: RewriteResult) -> str:
    """The reason of the only refusal of a run that changed nothing."""
    assert not result.events
    [refused] = result.refusals
    return refused.reason


def kept(result: RewriteResult, *, vectors: int = 16, seed: int = 0) -> RewriteResult:
    """The result itself, after checking the contract of every rewrite in the reference model."""
    assert result.events
    for finding in check_events(result.events, MODEL, vectors=vectors, seed=seed):
        assert finding.kept is Kept.KEPT, finding.message
    return result


def bound(result: RewriteResult) -> float:
    """The bound of the only rewrite, 0 for an exact one."""
    [event] = result.events
    if isinstance(event.contract, Exact):
        return 0.0
    assert isinstance(event.contract, WithinLsb)
    return event.contract.lsb


def run(program: Program, *inputs: npt.ArrayLike) -> RunResult:
    """The program in the reference model on one array for each input."""
    arrays = [np.asarray(array) for array in inputs]
    return MODEL.run(dumps(program), arrays)


def names(program: Program) -> list[str]:
    """The operators of the main block without its constants, in order."""
    return [op.name for op in program.main.ops if op.name not in ("CONST", "CONST_SHAPE")]


def records(program: Program) -> list[OpRecord]:
    """Every operator as it stands now."""
    return [op.record for block in program.blocks for op in block.ops]


def differences(before: Sequence[npt.NDArray[Any]], after: Sequence[npt.NDArray[Any]]) -> float:
    """The largest difference between two lists of integer arrays."""
    return max(float(np.abs(a.astype(np.int64) - b.astype(np.int64)).max()) for a, b in zip(before, after, strict=True))
