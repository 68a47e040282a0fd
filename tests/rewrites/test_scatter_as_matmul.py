"""SCATTER by one-hot products writes the same rows and leaves the others, for every type."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.scatter_as_matmul import RULE
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rows import DIGITS, scatter, shapes
from tests.support.rules import apply, kept, names, refusal, run
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES, numpy_dtype

U55 = "ethos-u55-128"


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=20)
@given(st.data())
def test_every_row_is_identical(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    width = data.draw(st.integers(1, shape[1]))
    result = kept(apply(RULE, scatter(data.draw(st.sampled_from(DIGITS)), shape, width), when="all"), vectors=4)
    assert "SCATTER" not in names(result.program)


@pytest.mark.parametrize("dtype", DIGITS, ids=lambda dtype: dtype.name)
def test_the_ends_of_the_type_are_written_and_kept(dtype: DType) -> None:
    low, high = INTEGER_RANGES[dtype]
    result = apply(RULE, scatter(dtype, (1, 4, 2), 2), when="all")
    old = np.array([[low, high]] * 4, numpy_dtype(dtype)).reshape(1, 4, 2)
    new = np.array([[[high, low], [low, high]]], numpy_dtype(dtype))
    [got] = run(result.program, old, np.array([[3, 0]], np.int32), new).outputs
    assert got.tolist() == [[[low, high], [low, high], [low, high], [high, low]]]


def test_only_targets_without_scatter_need_it() -> None:
    program = scatter(DType.INT8, (1, 4, 2), 3)
    assert apply(RULE, program, target=U55).events
    assert not apply(RULE, program, target="ethos-u85-256").events
    assert not apply(RULE, program).events


def test_it_refuses_rows_of_unknown_number() -> None:
    reason = refusal(apply(RULE, scatter(DType.INT8, (1, -1, 2), 3), when="all"))
    assert reason == '"v" has the shape [1, -1, 2], which is not static'


@pytest.mark.vela
def test_vela_takes_it() -> None:
    program = scatter(DType.INT16, (1, 9, 4), 3)
    assert accepted(program, U55) == []
    assert accepted(apply(RULE, program, target=U55).program) == list(FAMILIES)
