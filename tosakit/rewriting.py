"""The main job as one call: choose steps, run them, verify the result, check the contracts."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from tosakit.catalogue import Catalogue, load_catalogue, unknown
from tosakit.engine.bounds import OutputBound, output_bounds
from tosakit.engine.driver import RewriteResult, Trace, run_steps
from tosakit.engine.rule import Rule, Step
from tosakit.errors import InvalidArgument, InvalidModel, NotEquivalent, RuleBug, Unsupported
from tosakit.io.reader import load
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import Progress
from tosakit.oracle.structure import same_computation
from tosakit.oracle.verdict import CheckReport, Stage, check_rewrite, promise_of
from tosakit.spec.diagnostics import REPAIRABLE, Diagnostic
from tosakit.spec.verify import verify

Check = Literal["none", "end", "each"]

SHOWN = 10
"""Reasons, findings and refusals that a message lists."""


@dataclass
class Rewriting:
    """What :func:`rewrite` did: the new program, every rewrite and refusal, and what the check found.

    ``diagnostics`` are the verifier's findings about the program as it was loaded. ``stages`` are the rule sets and
    transforms one by one; ``check`` is None until the result is checked. ``bounds`` say how far each output can be from
    what it was, proved from the contracts of the rewrites; none before the result is known to be legal.
    """

    before: Program
    program: Program
    steps: tuple[Step, ...]
    result: RewriteResult
    diagnostics: list[Diagnostic]
    stages: list[Stage] = field(default_factory=list)
    check: CheckReport | None = None
    bounds: list[OutputBound] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """True only where every rewrite that fired promises bit-identical values."""
        return promise_of(self.result.events) == "exact"


def rewrite(
    source: Program | str | os.PathLike[str],
    *,
    pipeline: str | None = None,
    rules: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    target: str = "",
    check: Check = "end",
    vectors: int | None = None,
    seed: int = 0,
    stop_after: int | None = None,
    trace: Trace | None = None,
    progress: Callable[[str], Progress | None] | None = None,
    catalogue: Catalogue | None = None,
    rules_modules: Sequence[str] = (),
) -> Rewriting:
    """Rewrite a program (a path, or a Program, which is left as it is) by a pipeline or by named rules.

    ``options`` maps ``"rule.option"`` to a value. ``target`` is an accelerator such as ``ethos-u85-256``; some rules
    act only where a target needs them. With ``check="end"`` the result is compared with the original in the reference
    model as the contracts of the rewrites demand; ``"each"`` does so after every rule set and transform too.
    ``vectors`` is the number of inputs for that: 64 by default, fewer for a model whose runs are long.

    Raises InvalidArgument for unknown names and values, InvalidModel where the result is not legal TOSA, NotEquivalent
    where a contract is broken, Unsupported where the result cannot be checked, RuleBug where a rule made a legal
    program illegal or broke another promise of its author.
    """
    catalogue = catalogue or load_catalogue(rules_modules)
    steps = catalogue.choose(pipeline, rules)
    chosen = catalogue.options(options or {}, steps)
    before = source if isinstance(source, Program) else load(Path(source))
    done = run(before, steps, options=chosen, target=target, check=check, stop_after=stop_after, trace=trace)
    settle(done, check=check, vectors=vectors, seed=seed, progress=progress)
    return done


def run(
    before: Program,
    steps: Sequence[Step],
    *,
    options: Mapping[str, Any],
    target: str = "",
    check: Check = "end",
    stop_after: int | None = None,
    trace: Trace | None = None,
) -> Rewriting:
    """The first half of :func:`rewrite`: run the steps on a copy of ``before``. :func:`settle` is the second half.

    ``options`` maps a step's name to an instance of its option class. Raises InvalidArgument for an unknown target or
    check, InvalidModel for a program whose errors are not :data:`~tosakit.spec.diagnostics.REPAIRABLE`, RuleBug where
    a rule breaks a promise.
    """
    if check not in ("none", "end", "each"):
        raise InvalidArgument(f'check "{check}" is unknown; it is none, end or each')
    require_target(target)
    diagnostics = verify(before)
    if hopeless := [finding for finding in _errors(diagnostics) if finding.code not in REPAIRABLE]:
        raise InvalidModel(
            "the program is not legal TOSA in a way that no rule repairs; correct what wrote it "
            f"(tosakit check --explain shows each place):\n  {_listed(hopeless)}"
        )
    program = before.clone()
    done = Rewriting(before, program, tuple(steps), RewriteResult(program), diagnostics)
    total, last = done.result, before
    for batch in batches(steps):
        left = None if stop_after is None else max(stop_after - len(total.events), 0)
        try:
            part = run_steps(
                program,
                batch,
                target=target,
                options=options,
                stop_after=left,
                trace=trace,
                for_check=check != "none",
            )
        except RuleBug as error:
            if error.__cause__ is None or not (errors := _errors(diagnostics)):
                raise
            raise InvalidModel(
                f"the program is not legal TOSA, and {error}. Correct it first; if that still fails, the rule is at "
                f"fault:\n  {_listed(errors)}"
            ) from error
        total.events.extend(part.events)
        total.refusals.extend(part.refusals)
        total.boundary.extend(part.boundary)
        total.state.extend(part.state)
        total.renamed.extend(part.renamed)
        total.real.extend(part.real)
        if check != "none":
            last = _record(done, last, part)
        total.stopped = total.stopped or part.stopped
    total.refusals = list(dict.fromkeys(total.refusals))  # rule sets may repeat what others said
    return done


def _record(done: Rewriting, before: Program, part: RewriteResult) -> Program:
    """Keep the stage for the check; returns the program after it."""
    if not part.events:
        if not same_computation(before, done.program):
            raise RuleBug("a transform changed the program but reports no rewrite")
        return before
    after = done.program.clone()
    done.stages.append(Stage(before, after, part))
    return after


def batches(steps: Iterable[Step]) -> list[list[Step]]:
    """The steps as the engine runs them: neighbouring rules together, every transform by itself."""
    found: list[list[Step]] = []
    for is_rule, group in groupby(steps, key=lambda step: isinstance(step, Rule)):
        neighbours = list(group)
        found.extend([neighbours] if is_rule else [[step] for step in neighbours])
    return found


def require_target(target: str) -> None:
    """Raises InvalidArgument where ``target`` is neither an accelerator nor ``""``: no rule would know it."""
    if target:
        from tosakit.backend.vela import ACCELERATORS

        if target not in ACCELERATORS:
            raise InvalidArgument(unknown("target", target, ACCELERATORS))


def settle(
    done: Rewriting,
    *,
    check: Check = "end",
    vectors: int | None = None,
    seed: int = 0,
    progress: Callable[[str], Progress | None] | None = None,
) -> None:
    """The second half of :func:`rewrite`: the result must be legal TOSA and keep what its rewrites promise.

    Sets ``done.check`` and raises as :func:`rewrite` does.
    """
    if vectors is not None and vectors < 1:
        raise InvalidArgument(f"{vectors} vectors given; a check needs at least 1")
    if seed < 0:
        raise InvalidArgument(f"seed {seed} is negative; give a number, 0 or more")
    _refuse_illegal(done)
    done.bounds = output_bounds(done.program, done.result.events, done.result.state, done.result.real)
    if check == "none":
        return
    show = progress or (lambda description: None)
    try:
        if check == "each":
            for stage in done.stages:
                names = ", ".join(dict.fromkeys(event.rule for event in stage.result.events))
                done.check = check_rewrite([stage], vectors=vectors, seed=seed, progress=show(f"checking {names}"))
                _require_kept(done.check)
        done.check = check_rewrite(
            done.stages, bounds=done.bounds, vectors=vectors, seed=seed, progress=show("checking")
        )
    except (Unsupported, InvalidArgument, InvalidModel) as error:
        raise Unsupported(
            f"the result cannot be checked, so it is not kept: {error}. To go without a check, type --check none "
            '(in Python: check="none")'
        ) from error
    _require_kept(done.check)


def _require_kept(check: CheckReport) -> None:
    if not check.kept:
        reasons = _listed(check.reasons)
        raise NotEquivalent(f"the result does not keep what its rewrites promise; nothing was written:\n  {reasons}")


def _refuse_illegal(done: Rewriting) -> None:
    """Errors of the verifier are fatal now: the rules' fault where the original had none, else the user's."""
    errors = _errors(verify(done.program))
    if not errors:
        return
    text = _listed(errors)
    if not _errors(done.diagnostics):
        rules = ", ".join(done.result.rules_fired) or "none"
        raise RuleBug(
            f"the rewritten program is not legal TOSA, the original was (rules that fired: {rules}):\n  {text}"
        )
    refused = "".join(f"\n  {r.rule} refused at {r.operator}: {r.reason}" for r in done.result.refusals[:SHOWN])
    raise InvalidModel(f"the program is not legal TOSA and no rule repaired it:\n  {text}{refused}")


def _errors(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    return [finding for finding in findings if finding.severity == "error"]


def _listed(found: Sequence[Diagnostic | str]) -> str:
    more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return "\n  ".join([*map(str, found[:SHOWN]), *more])
