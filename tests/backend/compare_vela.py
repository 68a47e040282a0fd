"""Compare the target tables with the installed Vela: ``python -m tests.backend.compare_vela [SET ...]``.

The sets are ``operators`` (every operator in every combination of element types), ``variations`` (shapes, attributes
and constants at the limits; takes long), ``corpus`` (quantised real models before and after the ethos-u pipeline) and
``conformance`` (a folder of conformance tests, given by --conformance). Every disagreement is printed; the exit code is
1 where there is one. A crash of Vela counts as a refusal; what it does not answer in time is counted apart.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.support.operator_variations import every_variation
from tests.support.single_operators import every_row
from tests.support.vela_pool import FAMILIES, Job, Verdict, compile_all
from tosakit import rewrite
from tosakit.backend.obstacles import find_obstacles
from tosakit.errors import InvalidModel
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.program import Program
from tosakit.spec.check import check

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"

Named = tuple[str, Program, tuple[str, ...]]
"""A name, a program, and the accelerators to compile it for."""


def quantised(folder: Path) -> list[Path]:
    """The quantised models of a corpus."""
    return sorted(path for path in folder.glob("models*/*.tosa") if "_a8w" in path.name or "_a16w" in path.name)


def legal(programs: Iterable[tuple[str, Program]]) -> Iterator[Named]:
    """Those that the specification allows."""
    for name, program in programs:
        if not any(diagnostic.severity == "error" for diagnostic in check(program)):
            yield name, program, FAMILIES


def corpus(folder: Path) -> Iterator[Named]:
    """Every quantised model as it is, and rewritten for each family."""
    for path in quantised(folder):
        program = load(path)
        yield path.stem, program, FAMILIES
        for accelerator in FAMILIES:
            done = rewrite(program, pipeline="ethos-u", target=accelerator, check="none")
            yield f"{path.stem} rewritten", done.program, (accelerator,)


def conformance(folder: Path) -> Iterator[Named]:
    """Every conformance test that loads and is legal."""
    for path in sorted(folder.rglob("*.tosa")):
        try:
            program = load(path)
        except InvalidModel:
            continue
        yield from legal([(str(path.relative_to(folder)), program)])


def disagreements(programs: Iterable[Named]) -> tuple[list[str], int, int]:
    """A line for each, then the number of verdicts compared and of those that did not come in time."""
    jobs: list[Job] = []
    expected: list[list[str]] = []
    for name, program, accelerators in programs:
        data = dumps(program)
        for accelerator in accelerators:
            jobs.append(Job(name, data, accelerator))
            found = find_obstacles(program, accelerator)
            expected.append([f"{o.operator}: {o.message}" for o in found if o.kind == "refused"])
    verdicts = compile_all(jobs)
    answered = [pair for pair in zip(verdicts, expected, strict=True) if not pair[0].timed_out]
    lines = [_line(verdict, reasons) for verdict, reasons in answered if verdict.accepted == bool(reasons)]
    return lines, len(answered), len(verdicts) - len(answered)


def _line(verdict: Verdict, reasons: list[str]) -> str:
    vela = "accepts" if verdict.accepted else f"refuses ({verdict.reason})"
    table = f"refuses ({reasons[0]})" if reasons else "accepts"
    return f"{verdict.accelerator} {verdict.name}: Vela {vela}, the table {table}"


def main(arguments: list[str] | None = None) -> int:
    """Compare the chosen sets; 1 where there is a disagreement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="*", default=["operators", "corpus"])
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--conformance", type=Path)
    options = parser.parse_args(arguments)
    sets: dict[str, Callable[[], Iterable[Named]]] = {
        "operators": lambda: legal(every_row()),
        "variations": lambda: legal(every_variation()),
        "corpus": lambda: corpus(options.corpus),
        "conformance": lambda: conformance(options.conformance),
    }
    total = 0
    for name in options.sets:
        lines, compared, late = disagreements(sets[name]())
        print(*lines, sep="\n", end="\n" if lines else "")
        print(f"{name}: {compared} verdicts compared, {len(lines)} disagree, {late} did not come in time")
        total += len(lines)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
