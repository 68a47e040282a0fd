"""Outputs that are inputs get an operator that writes them, and a name of their own."""

from collections.abc import Callable

import pytest

from rewrites import PIPELINES
from rewrites.identity_for_passed_outputs import TRANSFORM
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import names
from tosakit.engine.driver import run_steps
from tosakit.errors import NotEquivalent
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence
from tosakit.rewriting import rewrite

U55 = FAMILIES[0]


def _net() -> Program:
    net = Net()
    x, z = net.input("x", DType.INT8, (1, 2, 2, 4)), net.input("z", DType.INT8, (1, 2, 2, 4))
    y = net.identity(z, "y")
    return net.program(x, y, y, x)


def test_golden(golden: Callable[..., None]) -> None:
    golden(TRANSFORM, options={TRANSFORM.name: TRANSFORM.options("all")})


def test_names_change_and_places_and_values_do_not() -> None:
    program = _net()
    result = run_steps(program.clone(), [TRANSFORM], target=U55)
    assert names(result.program) == ["IDENTITY", "IDENTITY"]
    assert [t.name for t in result.program.main.outputs] == ["x_out", "y", "y", "x_out"]
    assert [(one.name, one.new_name) for one in result.renamed] == [("x", "x_out")]
    assert check_equivalence(program, result.program, renamed=result.renamed, vectors=4).equal
    with pytest.raises(NotEquivalent, match="different outputs"):
        check_equivalence(program, result.program, vectors=4)


def test_the_check_of_a_whole_run_knows_the_new_names() -> None:
    done = rewrite(_net(), pipeline="ethos-u", target=U55, vectors=4)
    assert done.exact
    assert done.check is not None
    assert done.check.kept
    assert [one.new_name for one in done.result.renamed] == ["x_out"]


def test_it_acts_only_for_ethos_u() -> None:
    assert not run_steps(_net(), [TRANSFORM]).events
    assert run_steps(_net(), [TRANSFORM], target="ethos-u85-256").events


@pytest.mark.vela
def test_vela_takes_it() -> None:
    program = _net()
    assert accepted(program, U55) == []
    assert accepted(run_steps(program.clone(), PIPELINES["ethos-u"], target=U55).program) == list(FAMILIES)
