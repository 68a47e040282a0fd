"""ARGMAX by keys gives the first of the largest, for every axis, length and value."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.argmax_as_maximum import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import apply, kept, names, refusal, run
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.program import Program
from tosakit.ir.types import numpy_dtype
from tosakit.oracle.equivalence import check_equivalence

U55 = "ethos-u55-128"


def _net(shape: tuple[int, ...], axis: int, dtype: DType = DType.INT8) -> Program:
    net = Net()
    x = net.input("x", dtype, shape)
    rest = tuple(size for position, size in enumerate(shape) if position != axis)
    return net.program(
        net.op(ops.ArgMax(axis=axis, nan_mode=NanPropagationMode.PROPAGATE), (x,), DType.INT32, rest, "y")
    )


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=20)
@given(st.data())
def test_every_axis_and_length_is_identical(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    program = _net(shape, axis, data.draw(st.sampled_from([DType.INT8, DType.INT16])))
    result = apply(RULE, program, when="all")
    assert "ARGMAX" not in names(result.program)
    assert check_equivalence(program, result.program, vectors=4).equal


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16], ids=lambda dtype: dtype.name)
def test_ties_and_limits_on_a_long_axis(dtype: DType) -> None:
    length = {DType.INT8: 40000, DType.INT16: 1 << 14}[dtype]
    program = _net((length, 4), 0, dtype)
    result = kept(apply(RULE, program, when="all"), vectors=2)
    low, high = np.iinfo(numpy_dtype(dtype)).min, np.iinfo(numpy_dtype(dtype)).max
    x = np.full((length, 4), low, numpy_dtype(dtype))
    x[7, 0] = x[length - 1, 0] = x[length - 1, 1] = high
    x[5, 2], x[6, 2] = -1, 0
    [before], [after] = (run(p, x).outputs for p in (program, result.program))
    assert before.tolist() == after.tolist() == [7, length - 1, 6, 0]


def test_it_acts_only_where_a_target_needs_it() -> None:
    taken = [_net((1, 127), 1), _net((1, 4, 4, 5), 3)]
    refused = [_net((1, 128), 1), _net((4, 4), 0), _net((2, 4, 4, 5), 3), _net((1, 5), 1, DType.INT16)]
    assert not [program for program in taken if apply(RULE, program, target=U55).events]
    assert all(apply(RULE, program, target=U55).events for program in refused)
    assert not [program for program in refused if apply(RULE, program, target="ethos-u85-256").events]


def test_it_refuses_more_indices_than_fit() -> None:
    program = _net(((1 << 14) + 1,), 0, DType.INT16)
    assert "16385 indices need 15 bits" in refusal(apply(RULE, program, when="all"))


@pytest.mark.vela
def test_vela_takes_a_thousand_classes() -> None:
    program = _net((1, 1000), 1)
    assert accepted(program, U55) == []
    assert accepted(apply(RULE, program, target=U55).program) == list(FAMILIES)
