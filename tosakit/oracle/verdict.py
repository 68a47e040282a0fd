"""Decide whether a rewritten program keeps what the contracts of the rules that fired promise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tosakit.engine.contract import ChangesPrecision, Exact
from tosakit.engine.driver import RewriteResult
from tosakit.io.writer import dumps
from tosakit.ir.program import Program
from tosakit.oracle.contracts import Finding, Kept, check_events
from tosakit.oracle.equivalence import (
    Equivalence,
    Progress,
    Verdict,
    check_equivalence,
    input_specs,
)
from tosakit.oracle.inputs import input_vectors
from tosakit.oracle.refmodel import ReferenceModel, Status

LOCAL_VECTORS = 16
"""Vectors that each rewrite's own contract is checked with."""


@dataclass(frozen=True)
class CheckReport:
    """Outcome of :func:`check_rewrite`. ``kept`` decides whether the result may be written; ``reasons`` says why not.

    ``promise`` is ``exact``, ``within contracts`` or ``changes precision``, the weakest contract among the rewrites.
    """

    promise: str
    kept: bool
    equivalence: Equivalence | None
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [self.promise]
        if self.equivalence is not None:
            same = self.equivalence
            if self.promise != "exact" and same.vectors:
                gap = "identical" if same.equal else f"max {same.max_difference:g} LSB"
                parts.append(gap)
                if math.isfinite(same.sqnr_db):
                    parts.append(f"SQNR {same.sqnr_db:.1f} dB against the original")
            parts.append(f"{same.vectors} vectors, seed {same.seed}")
        return "; ".join(parts)


def promise_of(result: RewriteResult) -> str:
    """The weakest contract among the rewrites that fired."""
    contracts = [event.contract for event in result.events]
    if any(isinstance(contract, ChangesPrecision) for contract in contracts):
        return "changes precision"
    return "exact" if all(isinstance(contract, Exact) for contract in contracts) else "within contracts"


def check_rewrite(
    before: Program,
    result: RewriteResult,
    *,
    vectors: int = 64,
    seed: int = 0,
    timeout: float = 300.0,
    progress: Progress | None = None,
) -> CheckReport:
    """Check the result of a rewrite run with ``for_check`` against ``before``, the program it started from.

    Only exact rules fired: every output must be identical. Otherwise every rewrite's own contract is checked, and the
    whole program must stay valid wherever the original is; how far the outputs are apart is reported, not judged.
    """
    promise = promise_of(result)
    reasons: list[str] = []
    remarks: list[str] = []
    findings: list[Finding] = []
    model = ReferenceModel()
    same = check_equivalence(
        before,
        result.program,
        vectors=vectors,
        seed=seed,
        boundary=result.boundary,
        timeout=timeout,
        model=model,
        progress=progress,
    )
    if same.verdict is Verdict.INVALID:
        reasons.append(same.message)
    elif same.verdict is Verdict.DIFFERENT and promise == "exact":
        reasons.append(f"only exact rules fired, but outputs differ by up to {same.max_difference:g} LSB (seed {seed})")
    elif same.verdict is Verdict.UNKNOWN:
        remarks.append(same.message)
        reasons.extend(_runs(result.program, model, min(vectors, LOCAL_VECTORS), seed, timeout))
    if promise != "exact" or same.verdict is not Verdict.EQUAL:
        findings = check_events(result.events, model, vectors=LOCAL_VECTORS, seed=seed)
    for finding in findings:
        where = f"{finding.event.rule} at {', '.join(finding.event.operators[:3])}"
        if finding.kept is Kept.BROKEN:
            reasons.append(f"{where}: {finding.message}")
        elif finding.kept is Kept.UNCHECKED:
            reasons.append(f"{where} cannot be checked: {finding.message}")
    for name, start, local_check in result.local_checks:
        reasons.extend(f"{name}: {breach}" for breach in local_check(start, result.program))
    return CheckReport(promise, not reasons, same, tuple(findings), tuple(reasons), tuple(remarks))


def _runs(program: Program, model: ReferenceModel, vectors: int, seed: int, timeout: float) -> Sequence[str]:
    """Why a program, whose original runs for no input, does not run either; nothing where it runs for some."""
    if any(op.name in ("CUSTOM", "FOREIGN") for block in program.blocks for op in block.ops):
        return ()  # the reference model has no code for them, before or after
    drawn = list(input_vectors(input_specs(program), vectors, seed))
    runs = list(model.run_many(dumps(program), drawn, timeout=timeout))
    if any(run.status is Status.VALID for run in runs):
        return ()
    first = runs[0]
    return (f"neither the original nor the result runs: the result is {first.status.value}: {first.message}",)
