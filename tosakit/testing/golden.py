"""Golden tests: what rules do to small graphs, as text that a person can review.

A golden file holds cases, each a graph before and after, the number of rewrites by rule, and every refusal::

    === fires: an operator that nothing reads goes
    --- before
    block "main" (%x: INT8[4]) -> (%x) {
      %unused: INT8[4] = ABS(%x)
    }
    --- after
    block "main" (%x: INT8[4]) -> (%x) {
    }
    --- rewrites
    remove_dead_code: 1
    --- refusals
    none

A case that ``refuses:`` has no ``after``: its graph must stay exactly as it is. Text in front of the first case is kept
as it stands. Only the titles and the ``before`` graphs are written by hand; the rest is made by running the steps with
``update=True`` and read by whoever reviews the change.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.engine.rule import Step
from tosakit.errors import InvalidArgument
from tosakit.ir.program import Program, Version
from tosakit.ir.text import format_graph, format_program, parse_program
from tosakit.spec.verify import verify

_CASE = re.compile(r"=== (fires|refuses): (.+)")


@dataclass(frozen=True)
class Case:
    """One case of a golden file as it was written: ``line`` is where its ``before`` graph starts."""

    fires: bool
    title: str
    before: str
    line: int


def check_golden(
    path: Path,
    steps: Sequence[Step],
    *,
    options: Mapping[str, Any] | None = None,
    target: str = "",
    update: bool = False,
) -> None:
    """Run ``steps`` on every case of the golden file at ``path`` and compare the whole file, exactly.

    Beyond the text it checks that a ``fires`` case has rewrites and a ``refuses`` case none, that a second run changes
    nothing, and that no legal graph becomes illegal. ``update`` writes the file anew instead of comparing it; these
    checks hold all the same. Raises AssertionError with a diff where something differs, InvalidArgument where the
    file holds no case or a graph cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read the golden file {path}: {error.strerror or error}") from None
    preamble, cases = read_cases(text, str(path))
    parts = [preamble, *(_run_case(case, steps, options, target, str(path)) for case in cases)]
    expected = "\n".join(part for part in parts if part)
    if update:
        path.write_text(expected, encoding="utf-8")
    elif expected != text:
        diff = difflib.unified_diff(text.splitlines(), expected.splitlines(), str(path), "what happens", lineterm="")
        advice = "where this is right, run pytest with --update-golden and review the change"
        raise AssertionError("\n".join([*diff, advice]))


def read_cases(text: str, name: str) -> tuple[str, list[Case]]:
    """The text in front of the first case, and the cases of a golden file. Raises InvalidArgument without any."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("===")]
    if not starts:
        raise InvalidArgument(f"{name}: no case; a case starts with a line such as === fires: what it shows")
    cases = [_read_case(lines[:end], start, name) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    preamble = "".join(f"{line}\n" for line in lines[: starts[0]])
    return preamble.rstrip("\n") + "\n" if preamble.strip() else "", cases


def _read_case(lines: Sequence[str], start: int, name: str) -> Case:
    found = _CASE.fullmatch(lines[start])
    if found is None:
        raise InvalidArgument(f"{name}, line {start + 1}: expected === fires: or === refuses: and a title")
    marks = [number for number in range(start + 1, len(lines)) if lines[number].startswith("---")]
    if not marks or lines[marks[0]] != "--- before":
        raise InvalidArgument(f"{name}, line {start + 2}: expected --- before, with the graph below it")
    end = marks[1] if len(marks) > 1 else len(lines)
    return Case(found.group(1) == "fires", found.group(2), "\n".join(lines[marks[0] + 1 : end]), marks[0] + 1)


def _run_case(case: Case, steps: Sequence[Step], options: Mapping[str, Any] | None, target: str, name: str) -> str:
    """What the steps make of a case, as the text of the case."""
    try:
        program = parse_program("\n" * case.line + case.before)  # so that errors name the line of the file
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}, {error}") from None
    before = as_text(program)
    legal = not _errors(program)
    result = run_steps(program, steps, options=options, target=target)
    after = as_text(program)
    place = f'{name}, "{case.title}"'
    kind = "fires" if case.fires else "refuses"
    if case.fires != bool(result.events):
        raise AssertionError(f"{place}: {len(result.events)} rewrites in a case that {kind}")
    if not case.fires and after != before:
        raise AssertionError(f"{place}: the graph changed without a rewrite being counted:\n{after}")
    again = run_steps(program, steps, options=options, target=target)
    if again.events or as_text(program) != after:
        raise AssertionError(f"{place}: running the steps again still changes the graph:\n{as_text(program)}")
    if legal and (errors := _errors(program)):
        raise AssertionError(f"{place}: the graph was legal and is not any more:\n" + "\n".join(errors))
    sections = [f"=== {kind}: {case.title}\n--- before\n{before}"]
    if case.fires:
        sections.append(f"--- after\n{after}")
    return "".join([*sections, f"--- rewrites\n{_counts(result)}--- refusals\n{_refusals(result)}"])


def as_text(program: Program) -> str:
    """A program as golden files hold it: all values, and no frame where there is just one block."""
    plain = program.version == Version() and program.software_version is None and program.compatibility is None
    if plain and [region.name for region in program.regions] == ["main"] and len(program.regions[0].blocks) == 1:
        return format_graph(program.main, values=None)
    return format_program(program, values=None, header=not plain)


def _errors(program: Program) -> list[str]:
    return [str(finding) for finding in verify(program) if finding.severity == "error"]


def _counts(result: RewriteResult) -> str:
    return "".join(f"{rule}: {count}\n" for rule, count in result.rules_fired.items()) or "none\n"


def _refusals(result: RewriteResult) -> str:
    return "".join(f"{r.rule} at {r.operator}: {r.reason}\n" for r in result.refusals) or "none\n"
