"""The Vela stage for a program in memory: say what the target tables have against it, then compile."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tosakit.backend.obstacle import Kind, Obstacle
from tosakit.backend.obstacles import find_obstacles
from tosakit.backend.vela import ACCELERATORS, VelaReport, compile_for_ethos_u, vela_version
from tosakit.catalogue import unknown
from tosakit.engine.rule import Refused
from tosakit.errors import InvalidArgument
from tosakit.io.writer import dumps
from tosakit.ir.program import Program


@dataclass(frozen=True)
class Compilation:
    """What became of a program: ``report`` is Vela's answer, None where it was not asked since it would miscompile."""

    accelerator: str
    obstacles: tuple[Obstacle, ...]
    report: VelaReport | None

    @property
    def accepted(self) -> bool:
        """True where there is a command stream."""
        return self.report is not None and self.report.accepted

    def of_kind(self, kind: Kind) -> tuple[Obstacle, ...]:
        """The obstacles that Vela refuses, would silently compile into something else, or is reported to."""
        return tuple(obstacle for obstacle in self.obstacles if obstacle.kind == kind)


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
    refused: Sequence[Refused] = (),
    settings: Mapping[str, Any] | None = None,
) -> Compilation:
    """Look for obstacles and compile; all constants stand inline for Vela.

    The result is ``place/<name>_vela.npz``, or nothing where ``place`` is None. What Vela is known to miscompile it is
    not asked to, but with ``allow_miscompile``; what it is known to refuse it is, since it knows best. ``refused`` are
    the rules that did not help, for the obstacles to say so. ``settings`` are
    options of :func:`~tosakit.backend.vela.compile_for_ethos_u`. Raises InvalidArgument where the place cannot be
    written, and as :func:`require_vela`.
    """
    require_vela(accelerator)
    obstacles = (obstacle.after(refused) for obstacle in find_obstacles(program, accelerator))
    found = Compilation(accelerator, tuple(obstacles), None)
    if found.of_kind("miscompiled") and not allow_miscompile:
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
    return Compilation(accelerator, found.obstacles, report)
