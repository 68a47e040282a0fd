"""Rows that constants name are the same rows when they are moved, for every batch, order and type."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.constant_indices_as_movement import RULE
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.indices import drawn_indices, indexed
from tests.support.rules import apply, names
from tosakit.ir.enums import DType
from tosakit.oracle.equivalence import check_equivalence

U55 = FAMILIES[0]
TYPES = (DType.INT8, DType.INT16, DType.INT32)


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=30)
@given(st.data())
def test_every_selection_is_identical(data: st.DataObject) -> None:
    batch, channels = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    count, scatter = data.draw(st.integers(1, 9)), data.draw(st.booleans())
    width = data.draw(st.integers(1, count if scatter else 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    indices = drawn_indices(rng, batch, count, width, distinct=scatter)
    if data.draw(st.booleans()):
        indices = np.sort(indices[:1], axis=1).repeat(batch, axis=0)  # runs, the same in every batch
    dtype = data.draw(st.sampled_from(TYPES))
    constant = data.draw(st.booleans())
    table = rng.integers(-128, 128, (batch, count, channels)) if constant else None
    program = indexed((batch, count, channels), indices, dtype, scatter=scatter, table=table)
    result = apply(RULE, program, when="all")
    assert not {"GATHER", "SCATTER"} & set(names(result.program))
    assert check_equivalence(program, result.program, vectors=3).equal


def test_rows_that_follow_each_other_are_one_slice() -> None:
    rows = np.array([[2, 3, 4, 0, 2, 3, 4]])
    found = names(apply(RULE, indexed((1, 5, 100), rows, DType.INT32), when="all").program)
    assert (found.count("SLICE"), found.count("CONCAT")) == (2, 1)
    assert names(apply(RULE, indexed((2, 5, 2), np.tile(np.arange(5), (2, 1))), when="all").program) == ["IDENTITY"]


@pytest.mark.parametrize(
    ("shape", "width", "dtype", "convolves"),
    [
        ((1, 100, 64), 10, DType.INT8, False),
        ((1, 16, 32), 8, DType.INT8, True),
        ((1, 16, 32), 8, DType.INT32, False),
        ((2, 16, 32), 8, DType.INT16, True),
        ((1, 1000, 64), 16, DType.INT8, False),
        ((1, 64, 1), 64, DType.INT16, True),
    ],
)
def test_many_rows_are_chosen_by_a_convolution(
    shape: tuple[int, int, int], width: int, dtype: DType, convolves: bool
) -> None:
    indices = drawn_indices(np.random.default_rng(1), shape[0], shape[1], width, distinct=True)
    assert ("CONV2D" in names(apply(RULE, indexed(shape, indices, dtype), target=U55).program)) is convolves


def test_it_leaves_computed_indices_and_what_a_target_takes() -> None:
    assert not apply(RULE, indexed((1, 4, 2), (1, 3)), when="all").events
    program = indexed((1, 4, 2), np.array([[3, 0]]))
    assert apply(RULE, program, target=U55).events
    for target in ("", "ethos-u85-256"):
        assert not apply(RULE, program, target=target).events


@pytest.mark.vela
@pytest.mark.parametrize("scatter", [False, True])
def test_vela_takes_the_form(scatter: bool) -> None:
    for dtype in (DType.INT8, DType.INT32):
        program = indexed((2, 7, 3), np.array([[6, 0, 1, 5], [2, 4, 3, 0]]), dtype, scatter=scatter)
        assert accepted(program, U55) == []
        assert accepted(apply(RULE, program, target=U55).program) == list(FAMILIES)
