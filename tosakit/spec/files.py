"""Check files: also those that cannot be loaded."""

from dataclasses import dataclass
from pathlib import Path

from tosakit.errors import InvalidModel
from tosakit.io.reader import load
from tosakit.ir.program import Program
from tosakit.spec.check import Report, examine
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.scan import scan
from tosakit.spec.target import Target


@dataclass(frozen=True)
class FileReport:
    """What is wrong with one file; ``report`` and ``program`` are None where it cannot be loaded."""

    diagnostics: tuple[Diagnostic, ...]
    program: Program | None = None
    report: Report | None = None

    @property
    def has_errors(self) -> bool:
        """True where the file breaks the specification, or exceeds the target."""
        return any(diagnostic.severity == "error" for diagnostic in self.diagnostics)


def check_file(source: Path | bytes, target: Target) -> FileReport:
    """Everything wrong with a file. Raises for no file; one that cannot be read has a diagnostic that says why."""
    data = source
    if isinstance(data, Path):
        try:
            data = data.read_bytes()
        except OSError as error:
            return FileReport((_about("UnreadableFile", f"cannot read the file: {error.strerror or error}"),))
    try:
        program = load(data)
    except InvalidModel as error:
        found = scan(data) if data[4:8] == b"TOSA" else []
        if any(diagnostic.severity == "error" for diagnostic in found):
            return FileReport(tuple(found))
        return FileReport((_about("InvalidFile", str(error).removeprefix("<bytes>: ")),))
    report = examine(program, target)
    misplaced = scan(data) if program.notes else []  # the reader put the operators into order
    return FileReport((*misplaced, *report.diagnostics), program, report)


def _about(code: str, message: str) -> Diagnostic:
    return Diagnostic(code, "error", "", None, None, (), message)
