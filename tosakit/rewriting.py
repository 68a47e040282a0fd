"""The main job as one call: choose steps, run them, verify the result, check the contracts."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tosakit.catalogue import Catalogue, load_catalogue
from tosakit.engine.driver import RewriteResult, Trace, run_steps
from tosakit.engine.rule import Step
from tosakit.errors import InvalidModel, NotEquivalent, RuleBug
from tosakit.io.reader import load
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import Progress
from tosakit.oracle.verdict import CheckReport, check_rewrite, promise_of
from tosakit.spec.verify import Diagnostic, verify

Check = Literal["none", "end", "each"]


@dataclass
class Rewriting:
    """What :func:`rewrite` did: the new program, every rewrite and refusal, and what the check found.

    ``diagnostics`` are the verifier's findings about the program as it was loaded.
    """

    before: Program
    program: Program
    steps: tuple[Step, ...]
    result: RewriteResult
    diagnostics: list[Diagnostic]
    check: CheckReport | None

    @property
    def exact(self) -> bool:
        """True only where every rewrite that fired promises bit-identical values."""
        return promise_of(self.result) == "exact"


def rewrite(
    source: Program | str | os.PathLike[str],
    *,
    pipeline: str | None = None,
    rules: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    target: str = "",
    check: Check = "end",
    vectors: int = 64,
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
    model as the contracts of the rewrites demand; ``"each"`` does so after every rule set too. Raises InvalidModel
    where the result is not legal TOSA, NotEquivalent where a contract is broken, RuleBug where a rule made a legal
    program illegal.
    """
    catalogue = catalogue or load_catalogue(rules_modules)
    steps = catalogue.choose(pipeline, rules)
    chosen = catalogue.options(options or {})
    before = source if isinstance(source, Program) else load(Path(source))
    diagnostics = verify(before)
    program = before.clone()
    mark = _Mark(before)

    def after_step(current: Program, batch: Sequence[Step]) -> None:
        if check == "each":
            report = mark.advance(current, batch, chosen, target, vectors, seed)
            if not report.kept:
                raise BrokenPromise(report)

    result = run_steps(
        program,
        steps,
        target=target,
        options=chosen,
        stop_after=stop_after,
        trace=trace,
        after_step=after_step,
        for_check=check != "none",
    )
    _refuse_illegal(program, diagnostics, result)
    done = Rewriting(before, program, steps, result, diagnostics, None)
    if check != "none":
        show = progress("checking") if progress else None
        done.check = check_rewrite(before, result, vectors=vectors, seed=seed, progress=show)
        if not done.check.kept:
            raise BrokenPromise(done.check, done)
    return done


class BrokenPromise(NotEquivalent):
    """The result does not keep what its rewrites promise; ``rewriting`` is all that was done, for a report."""

    def __init__(self, check: CheckReport, rewriting: "Rewriting | None" = None) -> None:
        reasons = "\n  ".join(check.reasons)
        super().__init__(f"the result does not keep what its rewrites promise; nothing was written:\n  {reasons}")
        self.rewriting = rewriting


class _Mark:
    """The program as it was after the last step, for ``check="each"``."""

    def __init__(self, before: Program) -> None:
        self.last = before

    def advance(
        self, current: Program, batch: Sequence[Step], options: dict[str, Any], target: str, vectors: int, seed: int
    ) -> CheckReport:
        """Run the batch alone on the last mark and check it; then move the mark."""
        result = run_steps(self.last.clone(), batch, target=target, options=options, for_check=True)
        report = check_rewrite(self.last, result, vectors=vectors, seed=seed)
        self.last = current.clone()
        return report


def _refuse_illegal(program: Program, loaded: Sequence[Diagnostic], result: RewriteResult) -> None:
    """The verifier's errors after rewriting are fatal: the user's where they were there before, else the rules'."""
    errors = [finding for finding in verify(program) if finding.severity == "error"]
    if not errors:
        return
    known = {(finding.code, finding.op_type, finding.tensors) for finding in loaded if finding.severity == "error"}
    new = [finding for finding in errors if (finding.code, finding.op_type, finding.tensors) not in known]
    text = "\n  ".join(str(finding) for finding in (new or errors)[:10])
    if new and not known:
        rules = ", ".join(result.rules_fired) or "none"
        raise RuleBug(
            f"the rewritten program is not legal TOSA, the original was (rules that fired: {rules}):\n  {text}"
        )
    refused = "".join(f"\n  {r.rule} refused at {r.operator}: {r.reason}" for r in result.refusals[:10])
    raise InvalidModel(f"the program is not legal TOSA and no rule repaired it:\n  {text}{refused}")
