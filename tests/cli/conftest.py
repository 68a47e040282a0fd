"""The command line in a folder of its own, in this process, with what it printed."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.build import Net
from tosakit.cli import main
from tosakit.io.writer import save
from tosakit.ir.enums import DType
from tosakit.ir.program import Program

CORPUS = Path(__file__).parents[1] / "corpus"
BAD = "tests.support.bad_rules"
"""Rules that lie, crash and never end: for ``--rules-module``."""


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.err.splitlines()[-1]

    @property
    def no_traceback(self) -> bool:
        return "Traceback" not in self.err


Run = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: empty but for ``model.tosa``, which is x + 1 + 2 + 3 on INT32."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    save(sums(), tmp_path / "model.tosa")
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("rewrite", "model.tosa")`` runs the command line in ``folder``."""

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


@pytest.fixture
def int8_model(folder: Path) -> Path:
    """A copy of a small real int8 model: ``int8.tosa``."""
    return Path(shutil.copy(CORPUS / "resblock_a8w8.tosa", folder / "int8.tosa"))


def sums(count: int = 3) -> Program:
    net = Net()
    x = net.input("x", DType.INT32, (4,))
    for number in range(1, count + 1):
        x = net.add(x, net.const([number], DType.INT32), f"sum{number}")
    return net.program(x)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")
