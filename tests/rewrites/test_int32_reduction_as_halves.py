"""Largest and smallest values by halves are identical for every axis and length."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.int32_reduction_as_halves import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import apply, names
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

U55 = FAMILIES[0]
KINDS = (ops.ReduceMax, ops.ReduceMin)


def _net(
    kind: type[ops.ReduceMax] | type[ops.ReduceMin] = ops.ReduceMax,
    shape: tuple[int, ...] = (2, 5, 3),
    axis: int = 1,
    dtype: DType = DType.INT32,
) -> Program:
    net = Net()
    x = net.input("x", dtype, shape)
    reduced = tuple(1 if position == axis else size for position, size in enumerate(shape))
    return net.program(net.op(kind(axis=axis, nan_mode=NanPropagationMode.PROPAGATE), (x,), dtype, reduced, "y"))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=15)
@given(st.data())
def test_every_axis_and_length_is_identical(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    program = _net(data.draw(st.sampled_from(KINDS)), shape, data.draw(st.integers(0, len(shape) - 1)))
    result = apply(RULE, program, when="all")
    assert not [name for name in names(result.program) if name.startswith("REDUCE")]
    assert check_equivalence(program, result.program, vectors=4).equal


def test_it_acts_only_where_a_target_needs_it() -> None:
    assert apply(RULE, _net(), target=U55).events
    for program, target in ((_net(), ""), (_net(), "ethos-u85-256"), (_net(dtype=DType.INT8), U55)):
        result = apply(RULE, program, target=target)
        assert not result.events
        assert not result.refusals


@pytest.mark.vela
def test_vela_takes_the_form() -> None:
    program = _net()
    assert accepted(program, U55) == []
    assert accepted(apply(RULE, program, target=U55).program) == list(FAMILIES)
