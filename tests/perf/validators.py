"""Compare validators on a conformance sample: ``tosakit check``, tosa-opt and the TOSA reference model.

Run ``python tests/perf/validators.py FOLDER``; FOLDER holds ``index.tsv`` and the tests it lists, as unpacked from the
conformance archive. Prints the table of ``docs/check.md``. Every file is judged under the profile, extensions and
version that the index gives it, at level 8K. tosa-opt reads the file, attaches the target and validates strictly; the
reference model runs the file on zeros, and rejects it with any status but VALID.
"""

import argparse
import csv
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tosakit._interface import read_interface
from tosakit.errors import TosakitError
from tosakit.ir.types import numpy_dtype
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.spec.files import check_file
from tosakit.spec.target import Target

Row = dict[str, str]
TIMEOUT = 60.0


def extensions_of(row: Row) -> list[str]:
    """Extensions by the names that options take."""
    return [] if row["extensions_all"] == "-" else row["extensions_all"].split("+")


def by_tosakit(path: Path, row: Row) -> str:
    """What ``check`` says of a file."""
    target = Target.of(row["profiles_any"].split("+")[:1], extensions_of(row), "8k", row["spec"])
    codes = [found.code for found in check_file(path, target).diagnostics if found.severity == "error"]
    if not codes:
        return "accepted"
    return "own kind" if row["label"] in codes else "rejected"


def by_tosa_opt(path: Path, row: Row) -> str:
    """What tosa-opt says of a file; it has no names for kinds."""
    names = [name.removeprefix("ext-").replace("-", "_") for name in extensions_of(row)]
    profile = row["profiles_any"].split("+")[0].replace("-", "_")
    version = "1.0" if row["spec"] == "1.0" else "1.1.draft"
    target = f"profiles={profile} extensions={','.join(names)} level=8k specification_version={version}"
    command = ["tosa-opt", "-", "-o", "/dev/null", "--tosa-deserialize", f"--tosa-deserialize-filename={path}"]
    command += [f"--tosa-attach-target={target}", "--tosa-validate=strict-op-spec-alignment"]
    try:
        done = subprocess.run(command, input=b"module {}", capture_output=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return "crashed"
    if done.returncode < 0 or done.returncode > 127:
        return "crashed"
    return "rejected" if done.returncode or b"error:" in done.stderr else "accepted"


def by_reference_model(path: Path, _: Row) -> str:
    """What the reference model says of a file when it runs on zeros."""
    try:
        inputs = [np.zeros(spec.shape, numpy_dtype(spec.dtype)) for spec in read_interface(path).inputs]
        result = ReferenceModel(level="EIGHTK", jobs=1).run(path, inputs, timeout=TIMEOUT)
    except (TosakitError, ValueError):  # an interface that no input can be made for
        return "cannot run"
    if result.status in (Status.CRASHED, Status.TIMEOUT):
        return "crashed"
    return "accepted" if result.status == Status.VALID else "rejected"


TOOLS: dict[str, Callable[[Path, Row], str]] = {
    "`tosakit check`": by_tosakit,
    "tosa-opt": by_tosa_opt,
    "reference model": by_reference_model,
}


def row_of(name: str, verdicts: list[tuple[Row, str]], seconds: float) -> str:
    """One line of the table."""
    legal = Counter(verdict for row, verdict in verdicts if row["label"] == "positive")
    illegal = Counter(verdict for row, verdict in verdicts if row["label"] != "positive")
    named = f"{illegal['own kind']}" if illegal["own kind"] else "-"
    found = illegal["own kind"] + illegal["rejected"]
    cells = (
        f"{legal['accepted']} of {legal.total()}",
        f"{legal['rejected'] + legal['own kind']}",
        f"{found} of {illegal.total()}",
        named,
        f"{legal['crashed'] + illegal['crashed']}",
        f"{legal['cannot run'] + illegal['cannot run']}",
        f"{1000 * seconds / len(verdicts):.0f} ms",
    )
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take one file of this many")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the other tools at a time")
    options = parser.parse_args()
    with (options.folder / "index.tsv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))[:: options.every]
    files = [(options.folder / row["path"] / "test.tosa", row) for row in rows]
    heads = (
        "tool",
        "legal accepted",
        "legal rejected",
        "illegal rejected",
        "for their kind",
        "crashed",
        "not run",
        "time",
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, judge in TOOLS.items():
        start = time.perf_counter()
        with ThreadPoolExecutor(1 if judge is by_tosakit else options.jobs) as pool:
            verdicts = list(pool.map(lambda file, judge=judge: (file[1], judge(*file)), files))
        print(row_of(name, verdicts, time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
