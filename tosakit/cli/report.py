"""The report of ``tosakit rewrite --report``: JSON with a versioned schema, described in docs/report.md."""

import argparse
import hashlib
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from tosakit._version import __version__
from tosakit.backend.vela import VelaReport
from tosakit.cli.compare import equivalence_json
from tosakit.cli.vela import vela_json
from tosakit.engine.contract import ChangesPrecision, Contract, Exact, WithinLsb
from tosakit.errors import InvalidArgument
from tosakit.io.writer import dumps
from tosakit.rewriting import Rewriting

REPORT_VERSION = 1


def build_report(
    options: argparse.Namespace, source: Path | bytes, done: Rewriting, vela: VelaReport | None
) -> dict[str, Any]:
    """Everything ``tosakit rewrite`` did, ready for JSON."""
    data = source.read_bytes() if isinstance(source, Path) else source
    return {
        "report_version": REPORT_VERSION,
        "tosakit_version": __version__,
        "input": {"path": str(options.input), "sha256": hashlib.sha256(data).hexdigest()},
        "output": _output(options, done, vela),
        "steps": [step.name for step in done.steps],
        "target": options.target or options.vela or "",
        "ops_before": done.before.operator_count,
        "ops_after": done.program.operator_count,
        "stopped_early": done.result.stopped,
        "rewrites": [
            {
                "rule": event.rule,
                "block": event.block,
                "operators": list(event.operators),
                "contract": contract_json(event.contract),
                "detail": event.detail,
            }
            for event in done.result.events
        ],
        "refusals": [
            {"rule": r.rule, "block": r.block, "operator": r.operator, "reason": r.reason} for r in done.result.refusals
        ],
        "interface_changes": [
            {
                "name": change.name,
                "before": change.before.name,
                "after": change.after.name,
                "zero_point": change.zero_point,
                "factor": change.factor,
            }
            for change in done.result.boundary
        ],
        "diagnostics": [str(diagnostic) for diagnostic in done.diagnostics],
        "check": _check(done),
        "vela": vela_json(vela) if vela is not None else None,
    }


def _output(options: argparse.Namespace, done: Rewriting, vela: VelaReport | None) -> dict[str, Any] | None:
    failed = done.check is not None and not done.check.kept
    if not options.output or failed or (vela is not None and not vela.accepted):
        return None
    data = dumps(done.program) if options.output == "-" else Path(options.output).read_bytes()
    return {"path": str(options.output), "sha256": hashlib.sha256(data).hexdigest()}


def contract_json(contract: Contract) -> dict[str, Any]:
    """A contract as JSON: its kind, its bound in LSB (null where there is none), and the reason."""
    if isinstance(contract, Exact):
        return {"kind": "exact", "lsb": 0, "because": ""}
    if isinstance(contract, WithinLsb):
        return {"kind": "within_lsb", "lsb": contract.lsb, "because": contract.because}
    because = contract.because if isinstance(contract, ChangesPrecision) else ""
    return {"kind": "changes_precision", "lsb": None, "because": because}


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
                "observed_lsb": finding.observed_lsb if math.isfinite(finding.observed_lsb) else None,
                "message": finding.message,
            }
            for finding in check.findings
        ],
    }


def write_text(place: str, text: str) -> None:
    """Write a text file whole or not at all. Raises InvalidArgument where the place cannot be written."""
    target = Path(place)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent or ".")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(target)
    except OSError as error:
        raise InvalidArgument(f"cannot write {target}: {error.strerror or error}") from None
