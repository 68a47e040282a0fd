"""``tosakit check``: say everything that is wrong with files, and what they need."""

import argparse
import json
from typing import Any

from tosakit.cli.console import say
from tosakit.cli.parser import source_of
from tosakit.spec.check import neighbourhood
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.files import FileReport, check_file
from tosakit.spec.target import Needs, Target
from tosakit.spec.verify import Located

INVALID = 2
"""Exit code where a file has an error: the input is wrong."""


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 0 where no file has an error, else 2."""
    target = Target.of(_names(options.profile), _names(options.extension), options.level, options.spec)
    reports: list[tuple[str, FileReport]] = []
    for name in options.files:
        report = check_file(source_of(name), target)
        reports.append((name, report))
        if not options.json:
            _print(name, report, explain=options.explain)
    if options.json:
        print(json.dumps({"files": [_file_json(name, r, options.explain) for name, r in reports]}, indent=1))
    wrong = sum(report.has_errors for _, report in reports)
    if len(reports) > 1:
        say(f"{len(reports)} files, {wrong} with errors")
    return INVALID if wrong else 0


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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _places(report: FileReport) -> dict[int, Located]:
    """Where each diagnostic about an operator stands, by the identity of the diagnostic."""
    return {} if report.report is None else {id(found.diagnostic): found for found in report.report.located}


def _neighbours(found: Located | None) -> list[str]:
    if found is None or found.block is None or found.diagnostic.op_index is None:
        return []
    return neighbourhood(found.block, found.diagnostic.op_index)


def _file_json(name: str, report: FileReport, explain: bool) -> dict[str, Any]:
    places = _places(report)
    return {
        "path": name,
        "valid": not report.has_errors,
        "needs": None if report.report is None else _needs_json(report.report.needs),
        "diagnostics": [
            _diagnostic_json(d) | ({"neighbourhood": _neighbours(places.get(id(d)))} if explain else {})
            for d in report.diagnostics
        ],
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
