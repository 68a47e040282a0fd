"""GATHER by one-hot products reads the same rows, for every type, extreme values and indices."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.gather_as_matmul import RULE
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rows import DIGITS, gather, shapes
from tests.support.rules import apply, kept, names, refusal, run
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES, numpy_dtype

U55 = "ethos-u55-128"


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=20)
@given(st.sampled_from(DIGITS), shapes, st.integers(1, 5), st.none() | st.integers(0, 9))
def test_every_row_is_identical(dtype: DType, shape: tuple[int, int, int], width: int, seed: int | None) -> None:
    result = kept(apply(RULE, gather(dtype, shape, width, seed=seed), when="all"), vectors=4)
    assert "GATHER" not in names(result.program)


@pytest.mark.parametrize("dtype", DIGITS, ids=lambda dtype: dtype.name)
def test_the_ends_of_the_type_come_through_every_digit(dtype: DType) -> None:
    low, high = INTEGER_RANGES[dtype]
    ends = [low, low + 1, low + 128, low + (1 << 15), -257, -256, -129, -128, -1, 0, 127, 128, 255, 256, high - 1, high]
    values = np.array([v for v in ends if low <= v <= high], numpy_dtype(dtype)).reshape(1, -1, 1)
    program = gather(dtype, values.shape, values.size)
    result = apply(RULE, program, when="all")
    indices = np.arange(values.size, dtype=np.int32).reshape(1, -1)
    [got] = run(result.program, values, indices).outputs
    assert got.tolist() == values.tolist()


def test_an_index_outside_counts_as_the_nearest() -> None:
    result = apply(RULE, gather(DType.INT8, (1, 3, 1), 4), when="all")
    values = np.array([[[5], [6], [7]]], np.int8)
    outside = np.array([[-(1 << 31), -1, 3, (1 << 31) - 1]], np.int32)
    [got] = run(result.program, values, outside).outputs
    assert got.reshape(-1).tolist() == [5, 5, 7, 7]


def test_only_targets_without_gather_need_it() -> None:
    program = gather(DType.INT8, (1, 4, 2), 3)
    assert apply(RULE, program, target=U55).events
    assert not apply(RULE, program, target="ethos-u85-256").events
    assert not apply(RULE, program).events


def test_it_refuses_rows_of_unknown_number() -> None:
    reason = refusal(apply(RULE, gather(DType.INT8, (1, -1, 2), 3), when="all"))
    assert reason == '"v" has the shape [1, -1, 2], which is not static'


@pytest.mark.vela
@pytest.mark.parametrize("seed", [None, 0], ids=["computed", "constant"])
def test_vela_takes_it(seed: int | None) -> None:
    program = gather(DType.INT16, (1, 50, 8), 4, seed=seed)
    assert accepted(program, U55) == []
    assert accepted(apply(RULE, program, target=U55).program) == list(FAMILIES)
