"""A convolution with shorter strides sums the same products, for every kernel, stride, dilation and padding."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.shorten_long_strides import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES
from tests.support.rules import apply, kept, names, refusal
from tests.support.vela_pool import Job, Verdict, compile_all
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

U55, U65, U85 = FAMILIES
Pair = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A convolution by the size of its result; the size of its operand follows."""

    out: Pair = (2, 2)
    kernel: Pair = (3, 3)
    stride: Pair = (4, 4)
    dilation: Pair = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    channels: Pair = (2, 3)
    batch: int = 1
    depthwise: bool = False
    wide: bool = False

    def size(self, axis: int) -> int:
        """Rows (0) or columns (1) of the operand; TOSA demands that the last window ends at the last one."""
        around = self.pad[2 * axis] + self.pad[2 * axis + 1]
        return (self.out[axis] - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1 - around


def _net(case: Case, *, rescaled: bool = True, loose: bool = False) -> Program:
    net, rng = Net(), np.random.default_rng(3)
    dtype, acc = (DType.INT16, DType.INT48) if case.wide else (DType.INT8, DType.INT32)
    inputs, outputs = case.channels
    x = net.input("x", dtype, (case.batch, case.size(0), case.size(1), inputs))
    shape = (*case.kernel, inputs, 1) if case.depthwise else (outputs, *case.kernel, inputs)
    weight = net.input("w", DType.INT8, shape) if loose else net.const(rng.integers(-127, 128, shape), DType.INT8, "w")
    outputs = inputs if case.depthwise else outputs
    constants = (
        net.const(rng.integers(-900, 900, outputs), acc, "bias"),
        net.const([0 if case.wide else -7], dtype, "x_zp"),
        net.const([0 if case.wide else 3], DType.INT8, "w_zp"),
    )
    kind = ops.DepthwiseConv2d if case.depthwise else ops.Conv2d
    attrs = kind(pad=case.pad, stride=case.stride, dilation=case.dilation, acc_type=acc)
    y = net.op(attrs, (x, weight, *constants), acc, (case.batch, *case.out, outputs), "acc")
    return net.program(net.rescale(y, dtype, 21000, 24) if rescaled else y)


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel, dilation = draw(st.tuples(*[st.integers(1, 5)] * 2)), draw(st.tuples(*[st.sampled_from([1, 1, 2, 3])] * 2))
    pad = draw(st.tuples(*[st.integers(0, 2)] * 4))
    case = Case(
        out=draw(st.tuples(*[st.integers(1, 3)] * 2)),
        kernel=kernel,
        stride=draw(st.tuples(*[st.sampled_from([1, 2, 4, 5, 6, 7, 9])] * 2)),
        dilation=dilation,
        channels=(draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 40]))),
        batch=draw(st.integers(1, 2)),
        depthwise=draw(st.booleans()),
        wide=draw(st.booleans()),
    )
    padded = Case(**{**vars(case), "pad": pad})
    return padded if min(padded.size(0), padded.size(1)) > 0 else case


@settings(max_examples=30)
@given(cases())
def test_every_convolution_is_identical(case: Case) -> None:
    program = _net(case)
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
        assert apply(RULE, _net(case), target=U55).events
        assert not apply(RULE, _net(case), target=U85).events
    for target in FAMILIES:
        assert apply(RULE, _net(STEM), target=target).events
        assert not apply(RULE, _net(Case()), target=target).events
    assert not apply(RULE, _net(STEM), target="").events
    assert not apply(RULE, _net(Case(dilation=(4, 4))), target=U55).events


def test_what_is_folded_and_what_is_picked() -> None:
    stem = names(apply(RULE, _net(STEM), target=U55).program)
    assert stem == ["RESHAPE", "RESHAPE", "TRANSPOSE", "RESHAPE", "CONV2D", "RESCALE"]
    few = Case(out=(14, 14), kernel=(3, 3), channels=(64, 8), pad=(1, 1, 1, 1))
    picked = names(apply(RULE, _net(few), target=U55).program)
    assert picked == ["CONV2D", "RESCALE", "RESHAPE", "SLICE", "RESHAPE", "RESHAPE", "SLICE", "RESHAPE"]


def test_an_accumulator_that_is_an_output_is_folded() -> None:
    program = _net(PADDED, rescaled=False)
    result = kept(apply(RULE, program, when="all"))
    assert names(result.program)[-1] == "CONV2D"


def test_weights_that_are_computed_are_not_folded() -> None:
    few = apply(RULE, _net(PADDED, loose=True), when="all")
    assert names(few.program)[0] == "CONV2D"
    reason = refusal(apply(RULE, _net(PADDED, loose=True, rescaled=False), when="all"))
    assert '"acc" is also read by OUTPUT' in reason
    assert '"w" is no constant to fold' in reason


def _compiled(*programs: Program) -> list[Verdict]:
    return compile_all([Job("m", dumps(program), accelerator) for program in programs for accelerator in FAMILIES])


@pytest.mark.vela
def test_vela_takes_the_form() -> None:
    wide = [Case(**{**vars(case), "wide": True}) for case in (PADDED, DILATED, DEPTHWISE)]
    programs = [_net(case) for case in (PADDED, DILATED, DEPTHWISE, *wide)]
    before = _compiled(*programs)
    assert [verdict.accelerator for verdict in before if verdict.accepted] == [U85] * len(programs)
    after = _compiled(*(apply(RULE, program, target=U55).program for program in programs))
    assert all(verdict.accepted for verdict in after)


@pytest.mark.vela
def test_a_stem_becomes_many_times_cheaper() -> None:
    before, after = (_compiled(program) for program in (_net(STEM), apply(RULE, _net(STEM), target=U85).program))
    assert all(10 * now.total_cycles < was.total_cycles for was, now in zip(before, after, strict=True))
