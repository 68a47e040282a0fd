"""What every rewrite must keep, on one program: contract, legality, a fixed point, the same bytes, and any order."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tosakit.engine.rule import Refused, Step
from tosakit.errors import InvalidArgument, InvalidModel, NotEquivalent, RuleBug, TosakitError, Unsupported
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.program import Program
from tosakit.oracle.verdict import check_rewrite
from tosakit.rewriting import Rewriting, run
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.verify import verify


@dataclass(frozen=True)
class Fault:
    """A broken promise: ``kind`` is one of :data:`KINDS`, ``message`` says what happened."""

    kind: str
    message: str


KINDS: Mapping[str, str] = {
    "raised": "the rule raised, or broke a promise that the engine checks",
    "input changed": "the program that was given is not the one it was",
    "changed without a rewrite": "no rewrite is reported, but the program is another one",
    "illegal": "the verifier finds errors that were not there before",
    "not the same twice": "the same program, loaded again, ends in other bytes",
    "no fixed point": "running the steps on their own result changes it again",
    "contract": "the reference model shows a broken contract",
    "order": "with another step in front or behind, the result is illegal or breaks a contract",
}
"""Kinds of faults, in the order they are looked for."""


@dataclass(frozen=True)
class Setting:
    """How steps are run and checked: their options by name, the target, input vectors and their seed."""

    options: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    vectors: int = 4
    seed: int = 0


@dataclass(frozen=True)
class Trial:
    """What steps did to one program. ``unchecked`` says why its contracts could not be checked, "" where they were."""

    fired: Mapping[str, int]
    refusals: tuple[Refused, ...]
    fault: Fault | None
    unchecked: str = ""
    vectors: int = 0
    """Input vectors on which the result was compared with the original."""


def examine(
    program: Program, steps: Sequence[Step], setting: Setting, *, other: Step | None = None, contracts: bool = True
) -> Trial:
    """Run ``steps`` on ``program`` and look for a fault; ``other`` is a step that may come before or after them.

    Without ``contracts`` nothing runs in the reference model, and only the kinds before "contract" are looked for.
    A program that is not legal in a way that no rule repairs, or whose quantisation parameters a rule cannot take, is
    not tried, which ``unchecked`` tells. Raises
    ToolMissing without the reference model.
    """
    original = dumps(program)
    try:
        done = run(program, steps, options=setting.options, target=setting.target)
    except RuleBug as error:
        return Trial({}, (), Fault("raised", str(error)))
    except (InvalidModel, InvalidArgument) as error:
        if isinstance(error.__cause__, RuleBug):  # a rule asked to repair a program refuses what it cannot
            return Trial({}, (), Fault("raised", str(error.__cause__)))
        return Trial({}, (), None, unchecked=str(error))
    result = dumps(done.program)
    fired, refusals = done.result.rules_fired, tuple(done.result.refusals)
    fault = _of_the_text(program, original, done, result) or _of_repetition(
        program, original, steps, setting, done, result
    )
    if fault is not None or not contracts:
        return Trial(fired, refusals, fault)
    fault, unchecked, compared = _of_the_contracts(done, setting)
    if fault is None and other is not None and len(steps) == 1:
        fault = _of_the_order(program, steps[0], other, setting)
    return Trial(fired, refusals, fault, unchecked, compared)


def _of_the_text(program: Program, original: bytes, done: Rewriting, result: bytes) -> Fault | None:
    if dumps(program) != original:
        return Fault("input changed", "the program given to the steps was changed; they get a copy of it")
    if not done.result.events and result != original:
        return Fault("changed without a rewrite", "no rewrite is reported, but the file is another one")
    if new := new_errors(program, done.program):
        return Fault("illegal", f"{sum(new.values())} new errors, the first: {next(iter(new))}")
    return None


def new_errors(before: Program, after: Program) -> Counter[str]:
    """Errors of the verifier in ``after`` that ``before`` has not, as text, by how often they come up.

    Of each code there may be no more than before; a copy of a faulty operator, told by a message that is the same but
    for names, does not count.
    """
    known, found = _errors(before), _errors(after)
    new: Counter[str] = Counter()
    for code, errors in found.items():
        forms, old = Counter(map(_form, errors)), Counter(map(_form, known.get(code, [])))
        if forms.total() > old.total() and len(forms) > len(old):
            new.update(str(error) for error in errors if _form(error) not in old)
    return new


def _errors(program: Program) -> dict[str, list[Diagnostic]]:
    """Errors by code."""
    found: dict[str, list[Diagnostic]] = {}
    for finding in verify(program):
        if finding.severity == "error":
            found.setdefault(finding.code, []).append(finding)
    return found


def _form(error: Diagnostic) -> str:
    return _NAMES.sub("", f"{error.op_type} {error.message}")


_NAMES = re.compile('"[^"]*"')


def _loaded(data: bytes, source: Program) -> Program:
    """The program in ``data``, with the quantisation parameters of ``source``, which files do not hold."""
    program = load(data)
    for block, twin in zip(source.blocks, program.blocks, strict=True):
        for tensor in block.tensors:
            if tensor.quantization is not None:
                twin.annotate(twin.tensor(tensor.name), tensor.quantization)
    return program


def _of_repetition(
    program: Program, original: bytes, steps: Sequence[Step], setting: Setting, done: Rewriting, result: bytes
) -> Fault | None:
    again = run(_loaded(original, program), steps, options=setting.options, target=setting.target, check="none")
    if dumps(again.program) != result:
        return Fault("not the same twice", "the program, saved and loaded, is rewritten into other bytes")
    try:
        more = run(_loaded(result, done.program), steps, options=setting.options, target=setting.target, check="none")
    except RuleBug as error:
        return Fault("no fixed point", f"on their own result the steps fail: {error}")
    if more.result.events or dumps(more.program) != result:
        rules = ", ".join(more.result.rules_fired) or "nothing, but the file is another one"
        return Fault("no fixed point", f"on their own result the steps fire again: {rules}")
    return None


def _of_the_contracts(done: Rewriting, setting: Setting) -> tuple[Fault | None, str, int]:
    """A broken contract, or why they could not be checked, and how many vectors were compared."""
    try:
        report = check_rewrite(done.stages, vectors=setting.vectors, seed=setting.seed)
    except RuleBug as error:
        return Fault("raised", str(error)), "", 0
    except NotEquivalent as error:  # other inputs or outputs than before
        return Fault("contract", str(error)), "", 0
    except (Unsupported, InvalidArgument, InvalidModel) as error:
        return None, str(error), 0
    compared = report.equivalence.vectors if report.equivalence is not None else 0
    if report.breaches:
        return Fault("contract", report.breaches[0]), "", compared
    return None, report.unchecked[0] if report.unchecked else "", compared


def _of_the_order(program: Program, step: Step, other: Step, setting: Setting) -> Fault | None:
    for steps in ((step, other), (other, step)):
        names = " then ".join(one.name for one in steps)
        try:
            done = run(program, steps, options=setting.options, target=setting.target)
        except TosakitError as error:
            return Fault("order", f"{names}: {error}")
        if new := new_errors(program, done.program):
            return Fault("order", f"{names}: {next(iter(new))}")
        if other.name not in done.result.rules_fired:
            continue  # what the step does alone is checked already
        fault, _, _ = _of_the_contracts(done, setting)
        if fault is not None:
            return Fault("order", f"{names}: {fault.message}")
    return None
