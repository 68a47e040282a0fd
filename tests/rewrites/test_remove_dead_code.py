"""remove_dead_code: golden text, and what stays is what the outputs need."""

from collections import Counter
from collections.abc import Callable

import networkx as nx
from hypothesis import given, settings

from rewrites.remove_dead_code import TRANSFORM
from tests.support.build import canonical
from tests.support.programs import small_programs
from tosakit.engine.driver import run_steps
from tosakit.ir.program import Program


def test_golden(golden: Callable[..., None]) -> None:
    golden(TRANSFORM)


def test_exactly_what_the_outputs_need_is_left() -> None:
    changed = Counter[bool]()

    @settings(max_examples=400, deadline=None, derandomize=True)
    @given(small_programs())
    def check(program: Program) -> None:
        graph = program.main
        needed = [op for op in graph.ops if nx.has_path(graph, op, graph.exit)]
        before = canonical(program)
        interface = graph.inputs, graph.outputs
        dead = len(graph.ops) - len(needed)
        result = run_steps(program, [TRANSFORM])
        assert list(graph.ops) == needed
        assert len(result.events) == dead
        assert (graph.inputs, graph.outputs) == interface
        assert canonical(program) == before
        assert not run_steps(program, [TRANSFORM]).events
        changed[dead > 0] += 1

    check()
    assert min(changed[True], changed[False]) >= 20, changed
