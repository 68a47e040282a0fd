"""The report of ``tosakit rewrite --report``: JSON with a versioned schema, described in docs/report.md."""

import hashlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tosakit._version import __version__
from tosakit.backend.compile import Compilation
from tosakit.cli import exit_code_of
from tosakit.cli.compare import equivalence_json, finite
from tosakit.cli.vela import vela_json
from tosakit.cli.vela_comparison import Comparison, comparison_json
from tosakit.engine.bounds import OutputBound
from tosakit.engine.contract import ChangesPrecision, Contract, Exact, WithinLsb
from tosakit.errors import InvalidArgument
from tosakit.rewriting import Rewriting

if TYPE_CHECKING:
    from tosakit.engine.rule import StateLink

REPORT_VERSION = 1

FileJson = dict[str, str | None]
"""A file by its ``path`` and ``sha256``, which is None for a file that was not read."""


@dataclass
class Story:
    """What a run of ``tosakit rewrite`` came to, filled in as it goes on; the rest is None."""

    input: FileJson
    target: str
    steps: list[str]
    done: Rewriting | None = None
    vela: Compilation | None = None
    comparison: Comparison | None = None
    output: FileJson | None = None
    error: Exception | None = None


def file_json(place: str, content: Path | bytes) -> FileJson:
    """A file by its path and the SHA-256 of its bytes."""
    digest = hashlib.sha256()
    if isinstance(content, bytes):
        digest.update(content)
    else:
        with content.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return {"path": place, "sha256": digest.hexdigest()}


def build_report(story: Story) -> dict[str, Any]:
    """Everything ``tosakit rewrite`` did, ready for JSON."""
    done = story.done
    events = done.result.events if done else []
    refusals = done.result.refusals if done else []
    boundary = done.result.boundary if done else []
    return {
        "report_version": REPORT_VERSION,
        "tosakit_version": __version__,
        "input": story.input,
        "output": story.output,
        "error": _error(story.error),
        "steps": story.steps,
        "target": story.target,
        "ops_before": done.before.operator_count if done else None,
        "ops_after": done.program.operator_count if done else None,
        "stopped_early": done.result.stopped if done else False,
        "rewrites": [
            {
                "rule": event.rule,
                "block": event.block,
                "operators": list(event.operators),
                "contract": contract_json(event.contract),
                "detail": event.detail,
            }
            for event in events
        ],
        "refusals": [{"rule": r.rule, "block": r.block, "operator": r.operator, "reason": r.reason} for r in refusals],
        "interface_changes": [
            {
                "name": change.name,
                "before": change.before.name,
                "after": change.after.name,
                "zero_point": change.zero_point,
                "factor": change.factor,
            }
            for change in boundary
        ],
        "renamed_outputs": [{"name": r.name, "new_name": r.new_name} for r in done.result.renamed] if done else [],
        "state": [state_json(link) for link in done.result.state] if done else [],
        "diagnostics": [str(diagnostic) for diagnostic in done.diagnostics] if done else [],
        "bounds": [_bound(bound) for bound in (done.bounds if done else [])],
        "check": _check(done) if done else None,
        "vela": vela_json(story.vela) if story.vela is not None else None,
        "vela_comparison": comparison_json(story.comparison) if story.comparison is not None else None,
    }


def _bound(bound: OutputBound) -> dict[str, Any]:
    return {
        "output": bound.name,
        "lsb": bound.lsb,
        "because": bound.because,
        "real_lsb": bound.real,
        "real_because": bound.real_because,
    }


def _error(error: Exception | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"kind": type(error).__name__, "message": str(error), "exit_code": exit_code_of(error)}


def state_json(link: "StateLink") -> dict[str, Any]:
    """A variable that became an input and an output; ``initial`` as one number where all its values are alike."""
    return {"variable": link.variable, "input": link.input, "output": link.output, "initial": _initial(link)}


def _initial(link: "StateLink") -> list[Any] | float | None:
    if link.initial is None:
        return None
    values = [finite(value) for value in link.initial.reshape(-1).tolist()]
    return values[0] if len(dict.fromkeys(values)) == 1 else values


def contract_json(contract: Contract) -> dict[str, Any]:
    """A contract as JSON: its kind, its bound in LSB (null where there is none), and the reason."""
    if isinstance(contract, Exact):
        return {"kind": "exact", "lsb": 0, "because": ""}
    if isinstance(contract, WithinLsb):
        return {"kind": "within_lsb", "lsb": finite(contract.lsb), "because": contract.because}
    lsb, because = (contract.lsb, contract.because) if isinstance(contract, ChangesPrecision) else (None, "")
    return {"kind": "changes_precision", "lsb": lsb, "because": because}


def _check(done: Rewriting) -> dict[str, Any] | None:
    check = done.check
    if check is None:
        return None
    return {
        "promise": check.promise,
        "kept": check.kept,
        "reasons": list(check.reasons),
        "remarks": list(check.remarks),
        "outputs": equivalence_json(check.equivalence) if check.equivalence is not None else None,
        "rewrites": [
            {
                "rule": finding.event.rule,
                "operators": list(finding.event.operators),
                "kept": finding.kept.value,
                "observed_lsb": finite(finding.observed_lsb),
                "message": finding.message,
            }
            for finding in check.findings
        ],
    }


def write_report(place: str, report: dict[str, Any]) -> None:
    """Write a report to stdout (``-``), or to a file, whole or not at all.

    Raises InvalidArgument where the place cannot be written.
    """
    text = json.dumps(report, indent=1, allow_nan=False) + "\n"
    if place == "-":
        sys.stdout.write(text)
        return
    target = Path(place)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidArgument(f"cannot write the report to {target}: {error.strerror or error}") from None
