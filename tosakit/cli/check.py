"""``tosakit check``: say everything that is wrong with files, what they need, and what a target has against them."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tosakit.backend.obstacle import Obstacle
from tosakit.backend.targets import VELA_VERSION
from tosakit.cli.console import say
from tosakit.cli.parser import source_of
from tosakit.outlook import PIPELINE, Outlook, outlook
from tosakit.rewriting import require_target
from tosakit.spec.check import neighbourhood
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.files import FileReport, check_file
from tosakit.spec.target import Needs, Target
from tosakit.spec.verify import Located

INVALID = 2
"""Exit code where a file has an error: the input is wrong."""

REFUSED = 1
"""Exit code where no file has an error, but the target would refuse or miscompile one."""


@dataclass(frozen=True)
class _Checked:
    """A file, what is wrong with it, and what the target has against it (None where none was asked for)."""

    name: str
    report: FileReport
    outlook: Outlook | None

    @property
    def is_refused(self) -> bool:
        return self.outlook is not None and any(found.kind != "suspected" for found in self.outlook.obstacles)


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 2 where a file has an error, else 1 where the target refuses or miscompiles one, else 0."""
    target = Target.of(_names(options.profile), _names(options.extension), options.level, options.spec)
    accelerator = options.target or ""
    require_target(accelerator)
    checked: list[_Checked] = []
    for name in options.files:
        report = check_file(source_of(name), target)
        asked = accelerator and report.program is not None and not report.has_errors
        found = outlook(report.program, accelerator) if asked and report.program is not None else None
        checked.append(_Checked(name, report, found))
        if not options.json:
            _print(name, report, explain=options.explain)
            _print_obstacles(checked[-1], accelerator)
    if options.json:
        print(json.dumps({"files": [_file_json(each, accelerator, options.explain) for each in checked]}, indent=1))
    wrong = sum(each.report.has_errors for each in checked)
    refused = sum(each.is_refused for each in checked)
    if len(checked) > 1:
        say(
            f"{len(checked)} files, {wrong} with errors" + (f", {refused} not for {accelerator}" if accelerator else "")
        )
    return INVALID if wrong else REFUSED if refused else 0


def _names(text: str | None) -> list[str] | None:
    """Names with commas; None where the option is not given."""
    return None if text is None else [name for name in text.split(",") if name.strip()]


def _print(name: str, report: FileReport, *, explain: bool) -> None:
    errors = sum(d.severity == "error" for d in report.diagnostics)
    warnings = len(report.diagnostics) - errors
    needs = f"; needs {report.report.needs}" if report.report is not None else ""
    print(f"{name}: {_count(errors, 'error')}, {_count(warnings, 'warning')}{needs}")
    places = _places(report)
    for diagnostic in report.diagnostics:
        print("  " + str(diagnostic).replace("\n", "\n  "))
        if explain:
            print("".join(f"      {line}\n" for line in _neighbours(places.get(id(diagnostic)))), end="")


def _print_obstacles(checked: _Checked, accelerator: str) -> None:
    if not accelerator:
        return
    if checked.outlook is None:
        print(f"  not looked at for {accelerator}: the file must be legal first")
        return
    found, left = checked.outlook.obstacles, checked.outlook.left
    print(f"  {accelerator}, Vela {VELA_VERSION}: {_by_kind(found)}")
    for obstacle in found:
        print(f"  {obstacle.kind}: {obstacle} ({obstacle.entry.established})")
    if found:
        print(f"  after tosakit rewrite --pipeline {PIPELINE} --target {accelerator}: {_by_kind(left)}")


def _by_kind(obstacles: Sequence[Obstacle]) -> str:
    kinds = {kind: sum(o.kind == kind for o in obstacles) for kind in ("refused", "miscompiled", "suspected")}
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count) or "nothing is known against it"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _places(report: FileReport) -> dict[int, Located]:
    """Where each diagnostic about an operator stands, by the identity of the diagnostic."""
    return {} if report.report is None else {id(found.diagnostic): found for found in report.report.located}


def _neighbours(found: Located | None) -> list[str]:
    if found is None or found.block is None or found.diagnostic.op_index is None:
        return []
    return neighbourhood(found.block, found.diagnostic.op_index)


def _file_json(checked: _Checked, accelerator: str, explain: bool) -> dict[str, Any]:
    report = checked.report
    places = _places(report)
    about_target = {
        "target": accelerator,
        "vela_version": VELA_VERSION,
        "obstacles": None if checked.outlook is None else [obstacle_json(o) for o in checked.outlook.obstacles],
        "obstacles_after_pipeline": None
        if checked.outlook is None
        else [obstacle_json(o) for o in checked.outlook.left],
    }
    return {
        "path": checked.name,
        "valid": not report.has_errors,
        "needs": None if report.report is None else _needs_json(report.report.needs),
        "diagnostics": [
            _diagnostic_json(d) | ({"neighbourhood": _neighbours(places.get(id(d)))} if explain else {})
            for d in report.diagnostics
        ],
        **(about_target if accelerator else {}),
    }


def obstacle_json(obstacle: Obstacle) -> dict[str, Any]:
    """What stands in an operator's way on a target, as JSON."""
    return {
        "kind": obstacle.kind,
        "block": obstacle.block,
        "operator_index": obstacle.index,
        "operator": obstacle.operator,
        "tensors": list(obstacle.tensors),
        "message": obstacle.message,
        "rules": list(obstacle.entry.rules),
        "refusals": [{"rule": refused.rule, "reason": refused.reason} for refused in obstacle.refusals],
        "advice": obstacle.entry.advice,
        "established": obstacle.entry.established,
    }


def _needs_json(needs: Needs) -> dict[str, Any]:
    """What a file needs; ``any_of`` lists the least sets of profiles and extensions."""
    return {"any_of": [list(names) for names in needs.alternatives], "level": needs.level, "version": needs.version}


def _diagnostic_json(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "block": diagnostic.block,
        "operator_index": diagnostic.op_index,
        "operator": diagnostic.op_type,
        "tensors": list(diagnostic.tensors),
        "message": diagnostic.message,
    }
