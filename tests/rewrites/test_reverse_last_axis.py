"""Reversing a last axis elsewhere gives the same values in the same places, for every shape and type."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.reverse_last_axis import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import apply, names
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

U55 = FAMILIES[0]
TYPES = (DType.INT8, DType.INT16, DType.INT32)


def _net(shape: tuple[int, ...], dtype: DType = DType.INT8, axis: int = -1) -> Program:
    net = Net()
    x = net.input("x", dtype, shape)
    return net.program(net.op(ops.Reverse(axis=axis % len(shape)), (x,), dtype, shape, "y"))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=15)
@given(st.data())
def test_every_shape_and_type_is_identical(data: st.DataObject) -> None:
    shape = (*data.draw(st.lists(st.integers(1, 5), max_size=4)), data.draw(st.integers(1, 70)))
    program = _net(shape, data.draw(st.sampled_from(TYPES)))
    result = apply(RULE, program, when="all")
    assert result.events
    assert check_equivalence(program, result.program, vectors=3).equal


def test_it_acts_only_where_a_target_needs_it() -> None:
    last = [_net((7,)), _net((1, 4, 5, 8), DType.INT32), _net((3, 4, 7), DType.INT16)]
    taken = [_net((2, 4, 5, 8)), _net((1, 4, 5, 8), axis=2), _net((4,), DType.BOOL)]
    assert all(apply(RULE, program, target=U55).events for program in last)
    assert not [program for program in taken if apply(RULE, program, target=U55).events]
    assert not [program for program in last if apply(RULE, program, target="ethos-u85-256").events]


@pytest.mark.parametrize(
    ("shape", "dtype", "convolves"),
    [
        ((1, 8, 8, 16), DType.INT8, True),
        ((1, 8, 8, 16), DType.INT16, True),
        ((1, 8, 8, 16), DType.INT32, False),
        ((32,), DType.INT8, True),
        ((33,), DType.INT8, False),
        ((100, 512), DType.INT8, True),
        ((100, 513), DType.INT8, False),
    ],
)
def test_it_convolves_where_that_is_cheaper(shape: tuple[int, ...], dtype: DType, convolves: bool) -> None:
    found = names(apply(RULE, _net(shape, dtype), target=U55).program)
    assert ("CONV2D" in found, "REVERSE" in found) == (convolves, not convolves)


@pytest.mark.vela
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_vela_takes_the_form(dtype: DType) -> None:
    program = _net((1, 3, 5, 6), dtype)
    assert accepted(program, U55) == []
    assert accepted(apply(RULE, program, target=U55).program) == list(FAMILIES)
