"""What the installed Vela says about a program in memory."""

import tempfile
from pathlib import Path

from tosakit.backend.hazards import KNOWN_ISSUES
from tosakit.backend.obstacle import Obstacle
from tosakit.backend.obstacles import find_obstacles
from tosakit.backend.vela import compile_for_ethos_u
from tosakit.io.writer import dumps
from tosakit.ir.program import Program

FAMILIES = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")


def accepted(program: Program, *accelerators: str) -> list[str]:
    """Those of the accelerators (all families where none is given) that Vela compiles the program for."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.tosa"
        model.write_bytes(dumps(program))
        return [
            name
            for name in accelerators or FAMILIES
            if compile_for_ethos_u(model, name, output_dir=Path(folder)).accepted
        ]


def hazards(program: Program, accelerator: str) -> list[Obstacle]:
    """What Vela would compile wrongly, or is suspected to."""
    return find_obstacles(program, accelerator, KNOWN_ISSUES)
