"""Decide whether a rewritten program keeps what the contracts of the rules that fired promise."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tosakit.engine.bounds import OutputBound
from tosakit.engine.contract import ChangesPrecision, Exact
from tosakit.engine.driver import RewriteResult
from tosakit.engine.rule import Event
from tosakit.errors import RuleBug, TosakitError
from tosakit.ir import ops
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program
from tosakit.oracle.contracts import Finding, Kept, check_events
from tosakit.oracle.cost import default_vectors, state_remark
from tosakit.oracle.equivalence import (
    Equivalence,
    Progress,
    Verdict,
    check_equivalence,
    input_specs,
    run_vectors,
)
from tosakit.oracle.inputs import input_vectors
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.oracle.structure import same_computation
from tosakit.spec.verify import verify

LOCAL_VECTORS = 16
"""Vectors that each rewrite's own contract is checked with, at most."""

_NOT_IN_MODEL = (ops.Custom, ops.Variable, ops.VariableRead, ops.VariableWrite, Foreign)
"""Operators that the reference model has no code for, or may have none."""


@dataclass(frozen=True)
class Stage:
    """One rule set or transform of a run: the program before and after it, and what the engine recorded."""

    before: Program
    after: Program
    result: RewriteResult


@dataclass(frozen=True)
class CheckReport:
    """Outcome of :func:`check_rewrite`. ``kept`` decides whether the result may be written; ``reasons`` says why not.

    ``promise`` is ``exact``, ``within contracts`` or ``changes precision``, the weakest contract among the rewrites.
    ``equivalence`` is None where nothing had to run, because the program is the one it was. ``unchecked`` are those of
    the reasons that name no breach, but what could not be checked. ``bounds`` are those that the measurement was held
    to.
    """

    promise: str
    kept: bool
    equivalence: Equivalence | None
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    bounds: tuple[OutputBound, ...] = ()

    @property
    def breaches(self) -> list[str]:
        """The reasons that say what is broken."""
        return [reason for reason in self.reasons if reason not in self.unchecked]

    @property
    def proved_lsb(self) -> int | None:
        """How far any output can be from what it was, proved; None where that is not known of every output."""
        known = [bound.lsb for bound in self.bounds if bound.lsb is not None]
        return max(known) if known and len(known) == len(self.bounds) else None

    def __str__(self) -> str:
        same = self.equivalence
        if same is None:
            return f"{self.promise}; unchanged"
        if not same.vectors:
            return f"{self.promise}; could not run as a whole, each rewrite checked by itself; seed {same.seed}"
        parts = [self.promise]
        if self.promise != "exact":
            parts.append("identical" if same.equal else f"max {same.max_difference:g} LSB")
            if self.proved_lsb is not None:
                parts.append(f"proved within {self.proved_lsb} LSB")
            if math.isfinite(same.sqnr_db):
                parts.append(f"SQNR {same.sqnr_db:.1f} dB against the original")
        parts.append(f"{same.vectors} vectors, seed {same.seed}")
        if same.skipped:
            parts.append(f"{same.skipped} more skipped, where the original is not valid")
        return "; ".join(parts)


def promise_of(events: Iterable[Event]) -> str:
    """The weakest contract among the rewrites that fired."""
    contracts = [event.contract for event in events]
    if any(isinstance(contract, ChangesPrecision) for contract in contracts):
        return "changes precision"
    return "exact" if all(isinstance(contract, Exact) for contract in contracts) else "within contracts"


def check_rewrite(
    stages: Sequence[Stage],
    *,
    bounds: Sequence[OutputBound] = (),
    vectors: int | None = None,
    seed: int = 0,
    timeout: float = 300.0,
    progress: Progress | None = None,
) -> CheckReport:
    """Check that the stages of a run, made with ``for_check``, keep what their rewrites promise.

    Only exact rewrites: every output of the whole program must be identical. In any case each rewrite is held to its
    own contract, by its replaced operators where a rule made it and by the transform's own check otherwise, and the
    whole program must stay valid wherever the original is; no output may be further from what it was than its proved
    bound among ``bounds``, if any. What cannot be checked is not kept. ``vectors`` and ``timeout`` are those of
    ``check_equivalence``.

    Raises RuleBug where the code of a rule's or transform's own check fails, and what ``check_equivalence`` raises.
    """
    events = [event for stage in stages for event in stage.result.events]
    promise = promise_of(events)
    if not stages:
        return CheckReport(promise, True, None)
    before, after = stages[0].before, stages[-1].after
    count, remark = default_vectors(before) if vectors is None else (vectors, "")
    check = _Check(ReferenceModel(), seed, timeout, count)
    state = [link for stage in stages for link in stage.result.state]
    about_state = "every input vector is a step that goes on from the state of the one before" if state else ""
    check.remarks.extend(text for text in (remark, about_state or state_remark(before)) if text)
    same = check_equivalence(
        before,
        after,
        vectors=check.vectors,
        seed=seed,
        boundary=[change for stage in stages for change in stage.result.boundary],
        state=state,
        renamed=[one for stage in stages for one in stage.result.renamed],
        timeout=timeout,
        model=check.model,
        progress=progress,
    )
    proved = promise == "exact" and same.equal
    if same.verdict is Verdict.INVALID:
        check.reasons.append(same.message)
    elif same.verdict is Verdict.DIFFERENT and promise == "exact":
        gap = f"{same.max_difference:g} LSB (seed {seed})"
        check.reasons.append(f"only exact rewrites were made, but outputs differ by up to {gap}")
    elif same.verdict is Verdict.UNKNOWN:
        check.remarks.append(same.message.partition("\n")[0])
        check.must_run(after)
    if promise != "exact":
        check.reasons.extend(_exceeded(same, bounds))
    for stage in stages:
        check.each(stage, proved)
    return CheckReport(
        promise,
        not check.reasons,
        same,
        tuple(check.findings),
        tuple(check.reasons),
        tuple(check.remarks),
        tuple(check.unchecked),
        tuple(bounds),
    )


def _exceeded(same: Equivalence, bounds: Sequence[OutputBound]) -> Iterator[str]:
    proved = {bound.name: bound.lsb for bound in bounds}
    for output in same.outputs:
        limit = proved.get(output.name)
        if limit is not None and output.max_difference > limit:
            yield (
                f'output "{output.name}" differs by up to {output.max_difference:g} LSB (seed {same.seed}), more than '
                f"the {limit} LSB proved from the contracts"
            )


class _Check:
    """What was found so far, and how to look further."""

    def __init__(self, model: ReferenceModel, seed: int, timeout: float, vectors: int) -> None:
        self.model = model
        self.seed = seed
        self.timeout = timeout
        self.vectors = vectors
        self.reasons: list[str] = []
        self.remarks: list[str] = []
        self.unchecked: list[str] = []
        self.findings: list[Finding] = []

    def each(self, stage: Stage, proved: bool) -> None:
        """Hold every rewrite of a stage to its own contract; ``proved``: all outputs are known to be as they were."""
        found = check_events(
            stage.result.events,
            self.model,
            vectors=min(LOCAL_VECTORS, self.vectors),
            seed=self.seed,
            timeout=self.timeout,
        )
        self.findings.extend(found)
        for finding in found:
            where = f"{finding.event.rule} at {', '.join(finding.event.operators[:3])}"
            if finding.kept is Kept.BROKEN:
                self.reasons.append(f"{where}: {finding.message}")
            elif finding.kept is Kept.UNCHECKED:
                self.cannot(f"{where} cannot be checked by itself: {finding.message}", proved)
        self._transforms(stage, proved)

    def cannot(self, text: str, proved: bool) -> None:
        """Something could not be checked: a remark where it is ``proved`` all the same, else a reason."""
        if proved:
            self.remarks.append(text)
        else:
            self.reasons.append(text)
            self.unchecked.append(text)

    def _transforms(self, stage: Stage, proved: bool) -> None:
        """The contracts of transforms: their own check, or, where they are exact, the whole program's results."""
        checked: dict[str, None] = {}
        for name, start, local_check in stage.result.local_checks:
            checked[name] = None
            try:
                breaches = local_check(start, stage.after)
            except TosakitError:
                raise
            except Exception as error:
                raise RuleBug(f"the check of transform {name} failed: {type(error).__name__}: {error}") from error
            self.reasons.extend(f"{name}: {breach}" for breach in breaches)
        open_events = [
            event
            for event in stage.result.events
            if event.rule not in checked and (not event.values or isinstance(event.contract, ChangesPrecision))
        ]
        if not open_events or proved:
            return
        name, contract = open_events[0].rule, open_events[0].contract
        if all(isinstance(event.contract, Exact) for event in stage.result.events):
            self._differences(name, stage)
        else:
            self.cannot(f'{name} cannot be checked: it promises "{contract}" and brings no check of its own', False)

    def _differences(self, name: str, stage: Stage) -> None:
        """Whether the two programs of an exact stage are known to compute the same."""
        if same_computation(stage.before, stage.after, stage.result.boundary):
            return
        same = check_equivalence(
            stage.before,
            stage.after,
            vectors=min(LOCAL_VECTORS, self.vectors),
            seed=self.seed,
            boundary=stage.result.boundary,
            state=stage.result.state,
            renamed=stage.result.renamed,
            timeout=self.timeout,
            model=self.model,
        )
        if same.verdict is Verdict.UNKNOWN:
            self.cannot(f"{name} cannot be checked: it promises to be exact, and {same}", False)
        elif not same.equal:
            self.reasons.append(f"{name}: it promises to be exact, but before and after it the program is {same}")

    def must_run(self, program: Program) -> None:
        """A result whose original runs for no input must itself run for some, where the model has its operators."""
        unknown = [op for block in program.blocks for op in block.ops if isinstance(op.attrs, _NOT_IN_MODEL)]
        if unknown:
            self.remarks.append(f"the reference model has no {unknown[0].name}; each rewrite is checked by itself")
            return
        if any(finding.severity == "error" for finding in verify(program)):
            self.remarks.append("the program is not legal yet, so it cannot run")
            return
        drawn = list(input_vectors(input_specs(program), min(LOCAL_VECTORS, self.vectors), self.seed))
        runs = run_vectors(self.model, program, drawn, self.timeout)
        if not any(run.status is Status.VALID for run in runs):
            first = f"the result is {runs[0].status.value}: {runs[0].message}"
            self.cannot(f"neither the original nor the result runs: {first}", False)
