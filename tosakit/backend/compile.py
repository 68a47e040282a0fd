"""The Vela stage for a program in memory: refuse what Vela is known to get wrong silently, then compile."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tosakit.backend.hazards import Hazard, find_hazards
from tosakit.backend.vela import ACCELERATORS, VelaReport, compile_for_ethos_u, vela_version
from tosakit.catalogue import unknown
from tosakit.errors import InvalidArgument
from tosakit.io.writer import dumps
from tosakit.ir.program import Program


@dataclass(frozen=True)
class Compilation:
    """What became of a program: ``report`` is Vela's answer, None where hazards kept Vela from being asked."""

    accelerator: str
    hazards: tuple[Hazard, ...]
    report: VelaReport | None

    @property
    def accepted(self) -> bool:
        """True where there is a command stream."""
        return self.report is not None and self.report.accepted

    @property
    def refused_hazards(self) -> tuple[Hazard, ...]:
        """What Vela would silently compile into something else."""
        return tuple(hazard for hazard in self.hazards if hazard.severity == "refuse")


def require_vela(accelerator: str) -> None:
    """Raises InvalidArgument for an accelerator Vela does not know, ToolMissing where Vela is not installed."""
    if accelerator not in ACCELERATORS:
        raise InvalidArgument(unknown("accelerator", accelerator, ACCELERATORS))
    vela_version()


def compile_program(
    program: Program,
    accelerator: str,
    *,
    name: str,
    place: Path | None,
    allow_miscompile: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Compilation:
    """Look for hazards and compile; all constants stand inline for Vela.

    The result is ``place/<name>_vela.npz``, or nothing where ``place`` is None. With ``allow_miscompile`` Vela runs in
    spite of hazards. ``settings`` are options of :func:`~tosakit.backend.vela.compile_for_ethos_u`. Raises
    InvalidArgument where the place cannot be written, and as :func:`require_vela`.
    """
    require_vela(accelerator)
    found = Compilation(accelerator, tuple(find_hazards(program, accelerator)), None)
    if found.refused_hazards and not allow_miscompile:
        return found
    with tempfile.TemporaryDirectory(prefix="tosakit-") as scratch:
        model = Path(scratch) / f"{name}.tosa"
        model.write_bytes(dumps(program))
        target = Path(scratch) / "out" if place is None else place
        try:
            report = compile_for_ethos_u(model, accelerator, output_dir=target, **(settings or {}))
        except OSError as error:
            raise InvalidArgument(
                f"cannot write Vela's result to {target}: {error.strerror or error}; choose a folder with --vela-output"
            ) from None
    if place is None:
        report = replace(report, output_path=None)  # it went with the scratch folder
    return Compilation(accelerator, found.hazards, report)
