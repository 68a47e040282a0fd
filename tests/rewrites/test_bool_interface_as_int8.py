"""BOOL inputs and outputs as INT8 keep their names, places and values."""

from collections.abc import Callable

import numpy as np
import pytest

from rewrites.bool_interface_as_int8 import TRANSFORM
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import names, run
from tosakit import rewrite
from tosakit.backend.obstacles import find_obstacles
from tosakit.engine.driver import run_steps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program

U55 = FAMILIES[0]


def _net() -> Program:
    """Three inputs, one of them an output, and two results."""
    net = Net()
    p, q, x = (
        net.input(name, dtype, (2, 3)) for name, dtype in zip("pqx", [DType.BOOL, DType.BOOL, DType.INT32], strict=True)
    )
    both = net.op(ops.LogicalXor(), (p, q), DType.BOOL, (2, 3), "both")
    chosen = net.op(ops.Select(), (both, x, x), DType.INT32, (2, 3), "chosen")
    return net.program(both, chosen, q)


def test_golden(golden: Callable[..., None]) -> None:
    golden(TRANSFORM, options={TRANSFORM.name: TRANSFORM.options("all")})


def test_names_places_and_values_stay() -> None:
    program = _net()
    done = rewrite(program, rules=[TRANSFORM.name], options={f"{TRANSFORM.name}.when": "all"})
    assert done.check is not None
    assert done.check.kept
    assert done.exact
    main = done.program.main
    assert [(t.name, t.dtype) for t in main.inputs] == [("p", DType.INT8), ("q", DType.INT8), ("x", DType.INT32)]
    assert [(t.name, t.dtype) for t in main.outputs] == [
        ("both", DType.INT8),
        ("chosen", DType.INT32),
        ("q", DType.INT8),
    ]
    assert [(c.name, c.before, c.after) for c in done.result.boundary] == [
        (name, DType.BOOL, DType.INT8) for name in ("p", "q", "both")
    ]
    again = run_steps(done.program.clone(), [TRANSFORM], options={TRANSFORM.name: TRANSFORM.options("all")})
    assert not again.events


def test_everything_but_zero_is_true() -> None:
    result = run_steps(_net(), [TRANSFORM], options={TRANSFORM.name: TRANSFORM.options("all")})
    p = np.array([[0, 1, -128], [2, 0, 127]], np.int8)
    both = run(result.program, p, np.zeros((2, 3), np.int8), np.zeros((2, 3), np.int32)).outputs[0]
    assert both.tolist() == [[0, 1, 1], [1, 0, 1]]


def test_it_acts_only_where_a_target_needs_it() -> None:
    assert run_steps(_net(), [TRANSFORM], target=U55).events
    for target in ("", "ethos-u85-256"):
        assert not run_steps(_net(), [TRANSFORM], target=target).events


def test_nothing_is_left_of_bool_for_ethos_u55() -> None:
    program = _net()
    found = [obstacle for obstacle in find_obstacles(program, U55) if obstacle.index is not None]
    assert all(TRANSFORM.name in obstacle.helps for obstacle in found)
    done = rewrite(program, pipeline="ethos-u", target=U55)
    assert done.check is not None
    assert done.check.kept
    assert "CAST" not in names(done.program)
    assert [obstacle for obstacle in find_obstacles(done.program, U55) if obstacle.kind == "refused"] == []


@pytest.mark.vela
def test_vela_takes_what_comes_out() -> None:
    program = _net()
    assert accepted(program, U55) == []
    assert accepted(rewrite(program, pipeline="ethos-u", target=U55, check="none").program) == list(FAMILIES)
