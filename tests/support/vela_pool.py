"""Vela on many files at once: a process that has imported it forks for every file, which saves most of its time."""

import csv
import importlib
import multiprocessing
import os
import re
import signal
import tempfile
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FAMILIES = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
"""One accelerator of each family."""

TIMEOUT = 20.0
"""Seconds that Vela may take for one file."""


@dataclass(frozen=True)
class Job:
    """One file for one accelerator."""

    name: str
    data: bytes
    accelerator: str


@dataclass(frozen=True)
class Verdict:
    """What Vela made of a job; ``reason`` is its refusal, or how it crashed, empty where it accepted."""

    name: str
    accelerator: str
    accepted: bool
    reason: str = ""
    npu_cycles: float = 0.0
    total_cycles: float = 0.0
    timed_out: bool = False


def compile_all(jobs: Iterable[Job], processes: int = 2) -> list[Verdict]:
    """Every job's verdict, in the order of the jobs."""
    with multiprocessing.get_context("fork").Pool(processes, initializer=import_vela) as pool:
        return pool.map(compile_one, list(jobs), chunksize=4)


def import_vela() -> None:
    importlib.import_module("ethosu.vela.vela")


def compile_one(job: Job) -> Verdict:
    """Compile in a child of its own: Vela's native core may die of a signal."""
    with tempfile.TemporaryDirectory(prefix="tosakit-") as scratch:
        folder = Path(scratch)
        model = folder / "m.tosa"
        model.write_bytes(job.data)
        child = os.fork()
        if child == 0:
            _child(model, job.accelerator)
        status = _wait(child)
        log = (folder / "log").read_text(encoding="utf-8", errors="replace")
        summary = next(iter(folder.glob("*_summary_*.csv")), None)
        if status == 0 and summary is not None:
            with summary.open(newline="", encoding="utf-8") as file:
                figures = next(csv.DictReader(file))
            cycles = float(figures["cycles_npu"]), float(figures["cycles_total"])
            return Verdict(job.name, job.accelerator, True, "", *cycles)
        return Verdict(job.name, job.accelerator, False, _reason(status, log), timed_out=status is None)


def _child(model: Path, accelerator: str) -> None:
    """Run Vela's command line in this process, and end it."""
    code = 1
    try:
        log = os.open(model.parent / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(model.parent)
        arguments = [f"--accelerator-config={accelerator}", "--output-format=raw", f"--output-dir={model.parent}"]
        code = importlib.import_module("ethosu.vela.vela").main([*arguments, str(model)]) or 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _wait(child: int) -> int | None:
    """The exit status of the child, negative for a signal; None where it did not end in time."""
    end = time.monotonic() + TIMEOUT
    pause = 0.001
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _reason(status: int | None, log: str) -> str:
    if status is None:
        return f"no result after {TIMEOUT:g} s"
    if status < 0:
        return f"crash: {signal.Signals(-status).name}"
    said = re.findall(r"^(?:RuntimeError|\w[\w.]*Error): (.*(?:\n(?!\s*File).*)*)", log, re.MULTILINE)
    return " ".join(said[-1].split()) if said else f"exit status {status}"
