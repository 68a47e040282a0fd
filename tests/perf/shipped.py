"""Measure every shipped rule, transform and pipeline on graphs made of many copies of small ones.

``python tests/perf/shipped.py [NAME ...]``: microseconds of CPU per rewrite, on the graphs of each step's golden cases,
per operator where nothing is left to do, and per operator that the rewrites made (for transforms, that they say so).
The copies have the same numbers, so that plans which rules remember by their numbers are found from the second one on.
One process, medians of three.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import rewrites
from tests.perf.benchmarks import cpu, line
from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.engine.rule import Rule, Step
from tosakit.io.reader import load
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.program import Program, Region
from tosakit.ir.text import parse_program
from tosakit.testing.golden import read_cases

OPERATORS = 1_200
"""Operators of a program to measure on, about."""

BLOCK = 200
"""Operators of one of its blocks, about: real ones have few outputs, and each copy has its own."""

TARGETS = {"ethos-u": "ethos-u55-128"}
"""What needs one to act. A rule with ``when`` acts everywhere here (``when=all``); others are tried on two targets."""


def tiled(blocks: Sequence[Graph], block_size: int = BLOCK) -> Program:
    """A program of copies of the blocks, some side by side in each of its own."""
    graphs: list[Graph] = []
    while sum(len(graph._ops) for graph in graphs) < OPERATORS:
        graphs.append(_side_by_side(blocks, f"block_{len(graphs)}" if graphs else "main", block_size))
    return Program([Region("main", graphs)])


def _side_by_side(blocks: Sequence[Graph], name: str, size: int) -> Graph:
    graph = Graph(name)
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    copy = 0
    while len(graph._ops) < size:
        for block in blocks:
            copy += 1
            twins = {
                tensor: Tensor(
                    f"{tensor.name}_{copy}",
                    tensor.dtype,
                    tensor._shape,
                    tensor.stored,
                    quantization=tensor.quantization,
                    extras=tensor.extras,
                    table=tensor.table,
                )
                for tensor in block.tensors
            }
            for tensor in block.tensors:
                if tensor.producer in (None, block.entry):
                    graph.add_tensor(twins[tensor])
            for op in block.ops:
                graph.add_op(Op(op.attrs, [twins[t] for t in op.inputs], [twins[t] for t in op.outputs]))
            inputs += [twins[tensor] for tensor in block.inputs]
            outputs += [twins[tensor] for tensor in block.outputs]
    graph.set_inputs(inputs)
    graph.set_outputs(outputs)
    return graph


def golden_blocks(name: str) -> list[Graph]:
    """The graphs on which a rule fires, of those with one block."""
    text = (ROOT / "tests" / "rewrites" / f"{name}.txt").read_text(encoding="utf-8")
    programs = [parse_program(case.before) for case in read_cases(text, name)[1] if case.fires]
    return [program.main for program in programs if len(list(program.blocks)) == 1]


def measure(name: str, steps: Sequence[Step], blocks: Sequence[Graph]) -> None:
    """A line for the rewrites, and one for a second run, which scans and finds nothing."""
    if not blocks:
        line(name, "not measured", "all its golden cases have several blocks")
        return
    # transforms change the first block, which is the one that runs
    program = tiled(blocks, BLOCK if all(isinstance(step, Rule) for step in steps) else OPERATORS)
    is_optional = len(steps) == 1 and hasattr(steps[0].options(), "when")
    options = {name: steps[0].options(when="all")} if is_optional else {}

    def once(changed: Program, target: str) -> tuple[float, RewriteResult]:
        return cpu(lambda: run_steps(changed, steps, target=target, options=options))

    found = []
    for target in dict.fromkeys((TARGETS.get(name, ""), "ethos-u55-128", "ethos-u85-256")):
        runs = [once(program.clone(), target) for _ in range(3)]
        if runs[0][1].events:
            found = runs
            break
    if not found:
        line(name, "does not fire", "")
        return
    matches = len(found[0][1].events)
    per_match = 1e6 * median(seconds for seconds, _ in found) / matches
    made = sum(len(event.after) for event in found[0][1].events)
    per_made = f", {per_match * matches / made:.1f} us/operator made" if made else ""
    done = found[-1][1].program
    per_operator = 1e6 * median(once(done, target)[0] for _ in range(3))
    per_operator /= done.operator_count
    kinds = f"{matches} rewrites in {program.operator_count} operators"
    line(name, f"{per_match:.1f} us/rewrite", f"{per_operator:.2f} us/operator afterwards ({kinds}){per_made}")


def main() -> None:
    """Print the table."""
    chosen = sys.argv[1:]
    corpus = [load(path).main for path in sorted((ROOT / "tests" / "corpus").glob("*.tosa"))]
    for step in rewrites.RULES:
        if not chosen or step.name in chosen:
            measure(step.name, [step], golden_blocks(step.name))
    for name, steps in rewrites.PIPELINES.items():
        if not chosen or name in chosen:
            measure(name, steps, corpus)


if __name__ == "__main__":
    main()
