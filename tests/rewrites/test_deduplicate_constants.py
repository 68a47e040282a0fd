"""deduplicate_constants: golden text, and the graph computes what it did."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from rewrites.deduplicate_constants import TRANSFORM
from tests.support.build import canonical
from tests.support.programs import CORPUS, SHARED, small_programs
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.ir import ops
from tosakit.ir.program import Program


def test_golden(golden: Callable[..., None]) -> None:
    golden(TRANSFORM)


def test_equal_constants_are_gone_and_nothing_else_changed() -> None:
    changed = Counter[bool]()

    @settings(max_examples=200, deadline=None)
    @given(small_programs())
    def check(program: Program) -> None:
        graph = program.main
        before, interface = canonical(program), (graph.inputs, graph.outputs)
        result = run_steps(program, [TRANSFORM])
        assert (canonical(program), (graph.inputs, graph.outputs)) == (before, interface)
        shared = [op.output for op in graph.ops if op.output.is_constant and op.output.is_used]
        shared = [tensor for tensor in shared if graph.exit not in tensor.users]
        assert len({bytes(tensor.data or b"") for tensor in shared}) == len(shared)
        assert not run_steps(program, [TRANSFORM]).events
        changed[bool(result.events)] += 1

    check()
    assert min(changed[True], changed[False]) >= 20, changed


def check_file(path: Path) -> None:
    program = load(path)
    before = canonical(program)
    rescales = [op for block in program.blocks for op in block.ops if isinstance(op.attrs, ops.Rescale)]
    operands = [op.inputs for op in rescales]
    run_steps(program, [TRANSFORM])
    assert canonical(program) == before
    assert [op.inputs for op in rescales] == operands


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_files(path: Path) -> None:
    check_file(path)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED, reason="no ../shared beside the checkout")
def test_shared_files() -> None:
    for path in SHARED:
        if path.stat().st_size < 100_000:
            check_file(path)
