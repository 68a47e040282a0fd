"""Measure tosakit on synthetic graphs: CPU time per operator of every stage, and how it grows.

Run it as ``python tests/perf/benchmarks.py [--sizes 12000,96000]``. Ratios and growth are what counts; absolute times
are those of the machine at hand. The graph is an int16 chain of RESCALE, ADD with a constant, RESCALE, with their
constants.
"""

import argparse
import gc
import math
import resource
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import networkx as nx
import numpy as np

from tosakit.engine.contract import Exact
from tosakit.engine.driver import run_steps
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Replacement, Rule
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Tensor
from tosakit.ir.program import Program, Region

OPERATORS_PER_LINK = 12


def chain(operators: int) -> Program:
    """An int16 chain of about ``operators`` operators, constants included."""
    graph = Graph("main")
    x = graph.add_tensor(Tensor("input", DType.INT16, (1, 8)))
    graph.set_inputs([x])
    for number in range(operators // OPERATORS_PER_LINK):
        builder = Builder(f"link{number}")
        wide = builder.rescale(x, DType.INT32, 1 << 30, 30, scale32=True, name="wide")
        total = builder.add(wide, builder.const(np.full((1, 8), number % 7), DType.INT32, "term"))
        x = builder.rescale(total, DType.INT16, 1 << 30, 30, scale32=True, name="narrow")
        for op in builder.ops:
            graph.add_op(op)
    graph.set_outputs([x])
    return Program([Region("main", [graph])])


_ADD = Capture(ops.Add)


def _plan(match: Match, _: Context) -> bool | None:
    return None if match[_ADD].origin else True


def _replace(match: Match, _: bool) -> Replacement:
    add = match[_ADD]
    builder = Builder("new", origin="benchmark")
    first = builder.identity(add.inputs[0])
    second = builder.identity(add.inputs[1])
    result = builder.add(first, second)
    return Replacement(builder.ops, {add.output: result})


RULE: Rule[bool] = Rule("benchmark", _ADD, _plan, _replace, Exact(), "Replace each ADD by three operators.")


def _cpu(work: Callable[[], Any], runs: int) -> float:
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return median(times)


def measure(operators: int, runs: int) -> dict[str, float]:
    """CPU seconds of each stage on a chain of ``operators`` operators."""
    data = dumps(chain(operators))
    program = load(data)
    return {
        "load": _cpu(lambda: load(data), runs),
        "clone": _cpu(program.clone, runs),
        "networkx topological sort": _cpu(lambda: list(nx.topological_sort(program.main)), 1),
        "rewrite 1 in 12 to 3": _cpu(lambda: run_steps(program.clone(), [RULE]), runs),
        "order and save": _cpu(lambda: dumps(program.clone()), runs),
    }


def main() -> None:
    """Print microseconds per operator for each size, and the growth exponent from the first to the last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="12000,96000", help="operator counts, with commas")
    parser.add_argument("--runs", type=int, default=3, help="runs of each stage; the median counts")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    results = {size: measure(size, options.runs) for size in sizes}
    print(f"{'stage (us per operator)':32}" + "".join(f"{size:>12,}" for size in sizes) + f"{'growth':>10}")
    for stage in results[sizes[0]]:
        per_op = [1e6 * results[size][stage] / size for size in sizes]
        growth = ""
        if len(sizes) > 1:
            ratio = results[sizes[-1]][stage] / results[sizes[0]][stage]
            growth = f"{math.log(ratio) / math.log(sizes[-1] / sizes[0]):.2f}"
        print(f"{stage:32}" + "".join(f"{value:12.2f}" for value in per_op) + f"{growth:>10}")
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
