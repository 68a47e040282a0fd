"""Measure tosakit beside its peers, and print what it must reach: speed, growth, memory.

Run ``python tests/perf/benchmarks.py``; ``--million`` adds a graph of a million operators, ``--peers`` the slow peers
(tosa-opt takes minutes at 96,000 operators; onnx if installed). CPU seconds; peers and tosakit take turns in one
process, medians count. Absolute times are those of the machine at hand; ratios and growth are what is compared.
"""

import argparse
import gc
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.perf import graphs, peers
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.spec.check import check

MIB = 1 << 20
COMPARED = (12_000, 96_000)
ONNX_WARM_UP = 120
"""Nodes of a first model for onnxscript, whose imports do not count."""


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and result."""
    gc.collect()
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def line(what: str, value: str, target: str, good: bool | None = None) -> None:
    """One row of the table."""
    verdict = "" if good is None else "  ok" if good else "  MISSED"
    print(f"{what:58}{value:>26}   {target}{verdict}", flush=True)


class Files:
    """The chains as files: written by tosa_serializer where it can, as converters do, and by tosakit."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def ours(self, operators: int) -> Path:
        """A chain as tosakit writes it."""
        path = self.directory / f"tosakit{operators}.tosa"
        if not path.exists():
            save(graphs.chain(operators), path)
        return path

    def theirs(self, operators: int) -> Path:
        """A chain as tosa_serializer writes it."""
        path = self.directory / f"serializer{operators}.tosa"
        if not path.exists():
            peers.serializer_save(peers.serializer_load(self.ours(operators)), path)
        return path


def stages(path: Path, out: Path) -> tuple[dict[str, float], int]:
    """CPU seconds of each stage of a whole rewrite, and the number of rewrites."""
    seconds: dict[str, float] = {}
    seconds["load"], program = cpu(lambda: load(path))
    seconds["rules"], result = cpu(lambda: run_steps(program, [graphs.RULE]))
    seconds["order"], _ = cpu(lambda: program.main.ops)
    seconds["save"], _ = cpu(lambda: save(program, out))
    return seconds, len(result.events)


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    """Column by column."""
    return {name: median(row[name] for row in rows) for name in rows[0]}


def compare(files: Files, operators: int, runs: int, slow_peers: bool) -> None:
    """Load and save beside the C++ serializer and the accessors; the whole rewrite beside tosa-opt and onnx."""
    out = files.directory / "out.tosa"
    module = peers.accessors()
    for writer, path in (("tosa_serializer", files.theirs(operators)), ("tosakit", files.ours(operators))):
        rows: list[dict[str, float]] = []
        for _ in range(runs):
            row: dict[str, float] = {}
            row["C++ load"], serializer = cpu(lambda: peers.serializer_load(path))
            row["C++ save"], _ = cpu(lambda: peers.serializer_save(serializer, out))
            row["load"], program = cpu(lambda: load(path))
            row["save"], _ = cpu(lambda: save(program, out))
            row["walk"], _ = cpu(lambda: peers.walk(module, path.read_bytes()))
            rows.append(row)
        mid = medians(rows)
        ratio = (mid["load"] + mid["save"]) / (mid["C++ load"] + mid["C++ save"])
        numbers = f"{mid['load']:.3f}+{mid['save']:.3f} s"
        what = f"{operators:,} operators, file of {writer}: load+save"
        line(what, numbers, f"C++ {mid['C++ load']:.3f}+{mid['C++ save']:.3f} s")
        line("  times the C++ serializer", f"{ratio:.2f}", "<= 3, aim 2", ratio <= 3)
        walk = mid["walk"] / mid["load"]
        line("  faster than walking it with the accessors (load)", f"{walk:.1f}x", ">= 5", walk >= 5)
    rewriting(files, operators, runs, slow_peers)


def rewriting(files: Files, operators: int, runs: int, slow_peers: bool) -> None:
    """The whole rewrite, in turn with onnx-ir and onnxscript; beside one round trip of tosa-opt."""
    out, source = files.directory / "out.tosa", files.theirs(operators)
    model: Path | None = None
    missing = ""
    if slow_peers:
        try:
            model = peers.onnx_model(operators, files.directory)
            peers.onnx_rewrite(peers.onnx_model(ONNX_WARM_UP, files.directory))  # imports
        except ImportError as error:
            missing = str(error)
    found, others = [], []
    for _ in range(runs):
        found.append(stages(source, out))
        if model is not None:
            others.append(cpu(lambda: peers.onnx_rewrite(model))[0])
    mid = medians([seconds for seconds, _ in found])
    total, matches = sum(mid.values()), found[0][1]
    shown = " + ".join(f"{seconds:.3f}" for seconds in mid.values())
    line(f"{operators:,} operators: whole rewrite ({', '.join(mid)})", f"{total:.2f} s", f"= {shown}")
    line("  rules, per match", f"{1e6 * mid['rules'] / matches:.1f} us", "")
    if others:
        onnx = median(others) / total
        line("  faster than onnx-ir + onnxscript", f"{onnx:.1f}x", ">= 8, aim 12", onnx >= 8)
    elif slow_peers:
        line("  faster than onnx-ir + onnxscript", "not measured", missing)
    if slow_peers:
        opt = peers.tosa_opt_seconds(source) / total
        good = operators < COMPARED[-1] or opt >= 60
        line("  faster than tosa-opt's bare round trip", f"{opt:.0f}x", ">= 60 at 96,000", good)


def growth(files: Files, sizes: list[int], runs: int) -> None:
    """Growth exponent of each stage from the first size to the last, on files of one layout."""
    rows = {}
    for size in sizes:
        path, repeat = files.ours(size), runs if size < 500_000 else 1
        rows[size] = medians([stages(path, files.directory / "out.tosa")[0] for _ in range(repeat)])
    first, last = sizes[0], sizes[-1]
    for stage in rows[first]:
        if rows[first][stage] > 1e-3:  # order is worked out by the rules already
            exponent = math.log(rows[last][stage] / rows[first][stage]) / math.log(last / first)
            per_op = ", ".join(f"{1e6 * rows[size][stage] / size:.2f}" for size in sizes)
            line(
                f"growth of {stage}, {first:,} to {last:,}",
                f"{exponent:.2f}",
                f"<= 1.10 ({per_op} us/op)",
                exponent <= 1.1,
            )


def sharing(runs: int) -> None:
    """Matches that all read one constant, and values with very many readers."""
    per_match = {}
    for matches in (10_000, 80_000):
        times = [cpu(lambda p=graphs.shared_constants(matches): run_steps(p, [graphs.RULE]))[0] for _ in range(runs)]
        per_match[matches] = 1e6 * median(times) / matches
    ratio = per_match[80_000] / per_match[10_000]
    shown = f"<= 1.5 ({per_match[10_000]:.1f} and {per_match[80_000]:.1f} us)"
    line("one constant read by all: us/match, 80,000 over 10,000", f"{ratio:.2f}", shown, ratio <= 1.5)
    program = graphs.fan_out(100_000)
    seconds, result = cpu(lambda: run_steps(program, [graphs.RULE]))
    line("value with 100,000 readers, in a chain as deep", f"{seconds:.2f} s", f"{len(result.events)} rewrite")


def checking(files: Files, operators: int, runs: int) -> None:
    """``check`` of a program beside loading it."""
    for what, make in (("constants shared", graphs.chain), ("every constant its own", graphs.unshared)):
        path = files.directory / "checked.tosa"
        save(make(operators), path)
        rows: list[dict[str, float]] = []
        for _ in range(runs):
            row: dict[str, float] = {}
            row["load"], program = cpu(lambda: load(path))
            row["check"], _ = cpu(lambda program=program: check(program))
            rows.append(row)
        mid = medians(rows)
        shown = f"{mid['check']:.3f} s, load {mid['load']:.3f} s"
        line(f"{operators:,} operators, {what}: check, times load", f"{mid['check'] / mid['load']:.2f}", shown)


def child(what: str, *arguments: str) -> dict[str, float]:
    """Measure something in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--child", what, *arguments]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def measure(what: str, path: Path, out: Path) -> dict[str, float]:
    """The child's side: memory and time of one rewrite (of a chain, or of big constants), or of the C++ serializer."""
    result: dict[str, float] = {}
    start = next(graphs.status("RssAnon"))
    if what == "serializer":
        result["cpu"], _ = cpu(lambda: peers.serializer_save(peers.serializer_load(path), out))
        return result
    begin = time.perf_counter()
    result["load"], program = cpu(lambda: load(path))
    result["load wall"] = time.perf_counter() - begin
    result["anonymous"] = next(graphs.status("RssAnon")) - start
    result["operators"] = program.operator_count
    result["rules"], _ = cpu(lambda: run_steps(program, [graphs.RULE]))
    result["save"], _ = cpu(lambda: save(program, out))
    anonymous, peak = graphs.status("RssAnon", "VmHWM")
    result["anonymous at the end"], result["peak"] = anonymous - start, peak
    return result


def memory(files: Files, sizes: list[int]) -> None:
    """Bytes per operator, in children."""
    for size in sizes:
        found = child("rewrite", str(files.ours(size)), str(files.directory / "out.tosa"))
        count = found["operators"]
        per_op = found["anonymous"] / count
        line(f"{size:,} operators: anonymous memory after load", f"{per_op:.0f} bytes/op", "<= 900", per_op <= 900)
        limit = 2200 * count + 60 * MIB
        shown = f"{found['peak'] / MIB:.0f} MiB"
        line("  peak of the process, file pages included", shown, f"<= {limit / MIB:.0f} MiB", found["peak"] <= limit)


def big(files: Files, gibibytes_with_holes: int) -> None:
    """Files that are nearly all constants."""
    out = files.directory / "out.tosa"
    path = files.directory / "big.tosa"
    save(graphs.big_constants(files.directory, 16, 16 * MIB), path)
    ours, theirs = [], []
    for _ in range(3):
        ours.append(child("rewrite", str(path), str(out)))
        theirs.append(child("serializer", str(path), str(out))["cpu"])
    mid = medians(ours)
    line("256 MiB of constants: load", f"{1000 * mid['load']:.1f} ms", "<= 20 ms", mid["load"] <= 0.02)
    end = mid["anonymous at the end"] / MIB
    line("  anonymous memory of the rewrite", f"{end:.1f} MiB", "<= 40 MiB", end <= 40)
    seconds, limit = mid["load"] + mid["rules"] + mid["save"], median(theirs)
    line("  CPU of load and save", f"{seconds:.3f} s", f"<= {limit:.3f} s (C++)", seconds <= limit)
    for leftover in (path, files.directory / "constants"):
        leftover.unlink()
    save(graphs.big_constants(files.directory, 4 * gibibytes_with_holes, 256 * MIB, holes=True), path)
    found = child("rewrite", str(path), str(out))
    line(
        f"{gibibytes_with_holes} GiB by offset, with holes: load",
        f"{1000 * found['load']:.1f} ms",
        "<= 20 ms",
        found["load"] <= 0.02,
    )
    end = found["anonymous at the end"] / MIB
    line("  anonymous memory of the rewrite", f"{end:.1f} MiB", "<= 40 MiB", end <= 40)
    line("  CPU of load and save", f"{found['load'] + found['save']:.3f} s", "")


def start_up(runs: int) -> None:
    """CPU seconds of whole processes that do next to nothing."""
    model = str(ROOT / "tests" / "corpus" / "add_a16w8.tosa")
    for arguments, limit in ((["--help"], 0.15), (["show", model], 0.5)):
        command = [sys.executable, "-m", "tosakit", *arguments]
        found = [peers.child_seconds(command, cwd=ROOT) for _ in range(runs)]
        seconds = median(found)
        line(f"tosakit {arguments[0]}: whole process", f"{seconds:.2f} s", f"<= {limit} s", seconds <= limit)


def machine() -> None:
    """Where the numbers come from."""
    load_average = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    names = ("numpy", "networkx", "flatbuffers", "tosa-tools")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    print(f"CPython {platform.python_version()}, {versions}; {os.cpu_count()} cores, load average {load_average}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each measurement; the median counts")
    parser.add_argument("--million", action="store_true", help="also measure a graph of a million operators")
    parser.add_argument("--peers", action="store_true", help="also run tosa-opt and onnx")
    parser.add_argument("--child", nargs=3, metavar=("WHAT", "FILE", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, path, out = options.child
        print(json.dumps(measure(what, Path(path), Path(out))))
        return
    machine()
    sizes = [*COMPARED, *([1_000_000] if options.million else [])]
    with tempfile.TemporaryDirectory() as directory:
        files = Files(Path(directory))
        for operators in COMPARED:
            compare(files, operators, options.runs, options.peers)
        growth(files, sizes, options.runs)
        sharing(min(options.runs, 3))
        checking(files, COMPARED[-1], options.runs)
        memory(files, sizes)
        big(files, 6)
    start_up(options.runs)
    machine()


if __name__ == "__main__":
    main()
