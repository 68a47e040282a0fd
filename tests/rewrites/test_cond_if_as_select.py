"""COND_IF as SELECT gives what the chosen branch gives, and refuses branches that must not run unasked."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from rewrites.cond_if_as_select import TRANSFORM
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import names, run
from tosakit import rewrite
from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.ir import ops
from tosakit.ir.program import Program
from tosakit.ir.text_parser import parse_program
from tosakit.oracle.equivalence import check_equivalence
from tosakit.testing import strategies

ALL = {TRANSFORM.name: TRANSFORM.options("all")}


def apply(program: Program) -> RewriteResult:
    """The transform on a copy; a second run changes nothing."""
    result = run_steps(program.clone(), [TRANSFORM], options=ALL, for_check=True)
    assert not run_steps(result.program.clone(), [TRANSFORM], options=ALL).events
    return result


def two_way(then: str, other: str, dtype: str = "INT8", more: str = "") -> Program:
    """A COND_IF on x [2, 3] whose branches compute %r of %a; ``more`` are further regions."""
    blocks = "".join(
        f'region "{name}" {{\n  block "{name}" (%a: {dtype}[2,3]) -> (%r) {{\n    {body}\n  }}\n}}\n'
        for name, body in (("then", then), ("other", other))
    )
    main = (
        f'tosa 1.0.0\nregion "main" {{\n  block "main" (%c: BOOL[1], %x: {dtype}[2,3]) -> (%y) {{\n'
        f'    %y: {dtype}[2,3] = COND_IF(%c, %x) {{then_graph="then", else_graph="other"}}\n  }}\n}}\n'
    )
    return parse_program(main + blocks + more)


NEGATED = """%zp: INT8[1] = CONST() [0]
    %r: INT8[2,3] = NEGATE(%a, %zp, %zp)"""
TURNED = "%r: INT8[2,3] = REVERSE(%a) {axis=1}"


def test_golden(golden: Callable[..., None]) -> None:
    golden(TRANSFORM, options=ALL)


@settings(max_examples=15)
@given(strategies.operators(ops.CondIf))
def test_random_branches_are_identical_or_left_with_a_reason(program: Program) -> None:
    result = apply(program)
    left = names(result.program).count("COND_IF")
    assert left == len(result.refusals)
    assert all(refused.reason for refused in result.refusals)
    assert check_equivalence(program, result.program, vectors=4).equal


def test_both_branches_are_chosen_from() -> None:
    result = apply(two_way(NEGATED, TURNED))
    assert names(result.program) == ["NEGATE", "REVERSE", "RESHAPE", "SELECT"]
    assert [region.name for region in result.program.regions] == ["main"]
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int8)
    for condition, wanted in ((True, -x), (False, x[:, ::-1])):
        [got] = run(result.program, np.array([condition]), x).outputs
        assert got.tolist() == wanted.tolist()


NESTED = """%i: BOOL[1] = CONST() [true]
    %r: INT8[2,3] = COND_IF(%i, %a) {then_graph="inner", else_graph="inner"}"""
INNER = f'region "inner" {{\n  block "inner" (%a: INT8[2,3]) -> (%r) {{\n    {TURNED}\n  }}\n}}\n'


def test_a_branch_inside_a_branch_is_taken_apart_too() -> None:
    result = apply(two_way(NESTED, NEGATED, more=INNER))
    assert sorted(names(result.program)) == ["NEGATE", "RESHAPE", "REVERSE", "SELECT"]
    assert len(result.program.regions) == 1


GUARDED = "%r: INT32[2,3] = ADD(%a, %a)"
DEEPER = """%s: SHAPE[2] = CONST_SHAPE() [0, 0]
    %n: SHAPE[2] = CONST_SHAPE() [1, 1]
    %g: BOOL[2,3] = GREATER(%a, %a)
    %i: BOOL[1,1] = SLICE(%g, %s, %n)
    %r: INT32[2,3] = COND_IF(%i, %a) {then_graph="inner", else_graph="inner"}"""
GUARDED_INNER = f'region "inner" {{\n  block "inner" (%a: INT32[2,3]) -> (%r) {{\n    {GUARDED}\n  }}\n}}\n'


@pytest.mark.parametrize(("then", "more"), [(GUARDED, ""), (DEEPER, GUARDED_INNER)], ids=["branch", "deeper"])
def test_what_a_condition_may_guard_against_is_not_run_unasked(then: str, more: str) -> None:
    program = two_way(then, "%r: INT32[2,3] = IDENTITY(%a)", "INT32", more)
    result = apply(program)
    assert not result.events
    [refused] = result.refusals
    assert "ADD" in refused.reason
    assert "would run where its condition is not met" in refused.reason


def test_a_loop_is_not_run_unasked() -> None:
    loop = """%r: INT8[2,3] = WHILE_LOOP(%a) {cond_graph="until", body_graph="body"}"""
    more = (
        'region "until" {\n  block "until" (%a: INT8[2,3]) -> (%r) {\n    %r: BOOL[1] = CONST() [false]\n  }\n}\n'
        f'region "body" {{\n  block "body" (%a: INT8[2,3]) -> (%r) {{\n    {TURNED}\n  }}\n}}\n'
    )
    [refused] = apply(two_way(loop, TURNED, more=more)).refusals
    assert refused.reason == '"then" has WHILE_LOOP -> "r", whose effect is more than its results'


def test_only_targets_without_branches_need_it() -> None:
    program = two_way(NEGATED, TURNED)
    assert run_steps(program.clone(), [TRANSFORM], target="ethos-u55-128").events
    assert not run_steps(program.clone(), [TRANSFORM], target="ethos-u85-256").events


@pytest.mark.vela
def test_vela_takes_it_with_the_rest_of_the_pipeline() -> None:
    done = rewrite(two_way(NEGATED, TURNED), pipeline="ethos-u", target=FAMILIES[0], vectors=4)
    assert accepted(done.program) == list(FAMILIES)
