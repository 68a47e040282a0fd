"""A convolution with shorter strides sums the same products, for every kernel, stride, dilation and padding."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from rewrites.shorten_long_strides import RULE
from tests.support.ethos_u import FAMILIES
from tests.support.rules import apply, kept, names, refusal
from tests.support.strides import Case, cases, convolution
from tests.support.vela_pool import Job, Verdict, compile_all
from tosakit.io.writer import dumps
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

U55, U65, U85 = FAMILIES


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=30)
@given(cases())
def test_every_convolution_is_identical(case: Case) -> None:
    program = convolution(case)
    result = apply(RULE, program, when="all")
    is_long = any(stride > 3 and out > 1 for stride, out in zip(case.stride, case.out, strict=True))
    assert bool(result.events) is is_long
    if is_long:
        assert check_equivalence(program, result.program, vectors=3).equal


PADDED = Case(pad=(1, 1, 1, 1))
DILATED = Case(dilation=(2, 2))
DEPTHWISE = Case(depthwise=True)
STEM = Case(out=(14, 14), kernel=(16, 16), stride=(16, 16), channels=(3, 64))
"""As a vision transformer begins."""


def test_it_acts_where_a_target_needs_it_or_gains_much() -> None:
    for case in (PADDED, DILATED, DEPTHWISE):
        assert apply(RULE, convolution(case), target=U55).events
        assert not apply(RULE, convolution(case), target=U85).events
    for target in FAMILIES:
        assert apply(RULE, convolution(STEM), target=target).events
        assert not apply(RULE, convolution(Case()), target=target).events
    assert not apply(RULE, convolution(STEM), target="").events
    assert not apply(RULE, convolution(Case(dilation=(4, 4))), target=U55).events


def test_what_is_folded_and_what_is_picked() -> None:
    stem = names(apply(RULE, convolution(STEM), target=U55).program)
    assert stem == ["RESHAPE", "RESHAPE", "TRANSPOSE", "RESHAPE", "CONV2D", "RESCALE"]
    few = Case(out=(14, 14), kernel=(3, 3), channels=(64, 8), pad=(1, 1, 1, 1))
    picked = names(apply(RULE, convolution(few), target=U55).program)
    assert picked == ["CONV2D", "RESCALE", "RESHAPE", "SLICE", "RESHAPE", "RESHAPE", "SLICE", "RESHAPE"]


def test_an_accumulator_that_is_an_output_is_folded() -> None:
    program = convolution(PADDED, rescaled=False)
    result = kept(apply(RULE, program, when="all"))
    assert names(result.program)[-1] == "CONV2D"


def test_groups_that_a_kernel_does_not_fill_have_the_zero_point_of_the_weights_there() -> None:
    program = convolution(Case(kernel=(5, 6)), rescaled=False)
    kept(apply(RULE, program, when="all"))


def test_weights_that_are_computed_are_not_folded() -> None:
    few = apply(RULE, convolution(PADDED, loose=True), when="all")
    assert names(few.program)[0] == "CONV2D"
    reason = refusal(apply(RULE, convolution(PADDED, loose=True, rescaled=False), when="all"))
    assert '"acc" is also read by OUTPUT' in reason
    assert '"w" is no constant to fold' in reason


def _compiled(*programs: Program) -> list[Verdict]:
    return compile_all([Job("m", dumps(program), accelerator) for program in programs for accelerator in FAMILIES])


@pytest.mark.vela
def test_vela_takes_the_form() -> None:
    wide = [Case(**{**vars(case), "wide": True}) for case in (PADDED, DILATED, DEPTHWISE)]
    programs = [convolution(case) for case in (PADDED, DILATED, DEPTHWISE, *wide)]
    before = _compiled(*programs)
    assert [verdict.accelerator for verdict in before if verdict.accepted] == [U85] * len(programs)
    after = _compiled(*(apply(RULE, program, target=U55).program for program in programs))
    assert all(verdict.accepted for verdict in after)


@pytest.mark.vela
def test_a_stem_becomes_many_times_cheaper() -> None:
    before, after = (
        _compiled(program) for program in (convolution(STEM), apply(RULE, convolution(STEM), target=U85).program)
    )
    assert all(10 * now.total_cycles < was.total_cycles for was, now in zip(before, after, strict=True))
