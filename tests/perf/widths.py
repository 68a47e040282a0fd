"""How wide intervals are against what samples reach, by operator: ``python -m tests.perf.widths [FILE ...]``.

Runs every tensor of the files (default: the int8 and int16 models of the corpus beside the checkout) in the reference
model on boundary-heavy inputs and prints, for each operator, which part of its interval's width they reach.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tosakit.errors import TosakitError
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.program_intervals import program_intervals
from tosakit.oracle.inputs import InputSpec, input_vectors
from tosakit.oracle.refmodel import ReferenceModel, Status

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "models"

VECTORS = 14


def shares(path: Path) -> dict[str, list[float]]:
    """For each operator of a file the parts of its results' widths that samples reach; none where it does not run."""
    program = load(path)
    graph, intervals = program.main, program_intervals(program)
    results = [
        tensor
        for op in graph.ops
        for tensor in op.outputs
        if op.inputs and tensor.dtype in INTEGER_RANGES and tensor.dtype != DType.SHAPE
    ]
    widths = [intervals.of(tensor).highest - intervals.of(tensor).lowest for tensor in results]
    graph.set_outputs(results)
    specs = [InputSpec(x.name, x.dtype, x.shape) for x in graph.inputs]
    found: dict[str, list[float]] = {}
    runs = ReferenceModel().run_many(dumps(program), list(input_vectors(specs, VECTORS, 0)))
    valid = [run.outputs for run in runs if run.status is Status.VALID]
    for tensor, width, *arrays in zip(results, widths, *valid, strict=True):
        if width and arrays and tensor.producer is not None:
            reached = max(int(a.max()) for a in arrays) - min(int(a.min()) for a in arrays)
            found.setdefault(tensor.producer.name, []).append(reached / width)
    return found


def main(files: Sequence[str]) -> None:
    """Print the table."""
    paths = [Path(name) for name in files] or sorted((*CORPUS.glob("*_a8w8.tosa"), *CORPUS.glob("*_a16w8.tosa")))
    total: dict[str, list[float]] = {}
    for path in paths:
        try:
            for name, parts in shares(path).items():
                total.setdefault(name, []).extend(parts)
        except TosakitError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
    print("| operator | tensors | median | least |\n|---|---|---|---|")
    for name, parts in sorted(total.items()):
        print(f"| {name} | {len(parts)} | {np.median(parts):.2f} | {min(parts):.2f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
