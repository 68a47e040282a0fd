"""The command line as a process of its own: pipes, hash seeds, start-up, terminals."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CORPUS
from tosakit.cli.console import progress_bars
from tosakit.io.reader import load

ROOT = Path(__file__).parents[2]
MODEL = CORPUS / "resblock_a8w8.tosa"


def tosakit(
    *arguments: object, cwd: Path, stdin: bytes = b"", **environment: str
) -> "subprocess.CompletedProcess[bytes]":
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "tosakit", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def test_stdin_to_stdout(tmp_path: Path) -> None:
    arguments = ["rewrite", "-", "-o", "-", "--check", "none"]
    ran = tosakit(*arguments, cwd=tmp_path, stdin=MODEL.read_bytes())
    assert ran.returncode == 0
    assert load(ran.stdout).operator_count > 0  # nothing but the model
    assert ran.stderr.decode().splitlines()[-1].endswith("not checked")
    assert list(tmp_path.iterdir()) == []
    with_file = tosakit("rewrite", MODEL, "-o", "out.tosa", "--check", "none", cwd=tmp_path)
    assert with_file.returncode == 0
    assert (tmp_path / "out.tosa").read_bytes() == ran.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_a_pipe_is_read_like_stdin(tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "model.tosa")
    script = f"{sys.executable} -m tosakit show <(cat model.tosa)"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(b"tosa 1.0")


def test_the_same_bytes_and_report_under_any_hash_seed(tmp_path: Path) -> None:
    results = []
    for seed in ("0", "1"):
        ran = tosakit(
            "rewrite", MODEL, "-o", "out.tosa", "--target", "ethos-u55-128", "--check", "none",
            "--report", "r.json", "--trace", "t.jsonl", cwd=tmp_path, PYTHONHASHSEED=seed,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        results.append([(tmp_path / name).read_bytes() for name in ("out.tosa", "r.json", "t.jsonl")])
    assert results[0] == results[1]


@pytest.mark.parametrize("arguments", [["show", CORPUS / "dscnn_kws_a8w8.tosa"], ["rules", "split_int48_bias"]])
def test_a_reader_that_goes_away_is_no_fault(arguments: list[str | Path]) -> None:
    command = [sys.executable, "-m", "tosakit", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        told = child.stderr.read()
        code = child.wait()
    assert (code, told) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_the_user_s(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "tosakit", "rules"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"error: ")
    assert b"No space left" in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_a_terminal_of_another_alphabet_is_no_fault(tmp_path: Path) -> None:
    ran = tosakit("rules", "split_int48_bias", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert ran.returncode == 0
    assert b"\\u25b6" in ran.stdout


SHOWN = str(ROOT / "tests" / "corpus" / "add_a16w8.tosa")


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], ["numpy", "networkx", "rich", "flatbuffers"]),
        (["rewrite", "--help"], ["numpy", "networkx", "rich", "flatbuffers"]),
        (["rewrite", "--pipline", "x"], ["numpy", "networkx", "rich", "flatbuffers"]),
        (["show", SHOWN], ["networkx", "rich", "flatbuffers", "tosakit.ir.text_parser"]),
        (["rewrite", SHOWN, "--check=none"], ["networkx"]),
    ],
)
def test_start_up_imports_nothing_heavy(tmp_path: Path, arguments: list[str], heavy: list[str]) -> None:
    script = (
        "import json, sys\n"
        "from tosakit.cli import main\n"
        f"main({arguments!r})\n"
        f"print(json.dumps([name for name in {heavy!r} if name in sys.modules]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, cwd=tmp_path, env=environment)
    assert json.loads(ran.stdout.splitlines()[-1]) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_bars_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bars() as start:
        assert start("checking") is None
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress_bars() as start:
        update = start("checking")
        assert update is not None
        for done in range(4):
            update(done, 3)
    assert "checking" in sys.stderr.getvalue()  # type: ignore[attr-defined]
