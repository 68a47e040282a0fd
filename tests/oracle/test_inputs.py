"""Test inputs: deterministic, inside their ranges, and at the places where graphs break."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosakit.errors import InvalidArgument
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES, Array, numpy_dtype
from tosakit.oracle.inputs import KINDS, InputSpec, input_vectors

INTEGERS = [DType.INT4, DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.INT64]
SIZE = 96


def vectors(dtype: DType, count: int = KINDS, seed: int = 0) -> list[Array]:
    return [vector[0] for vector in input_vectors([InputSpec("x", dtype, (SIZE,))], count, seed)]


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype != DType.UNKNOWN], ids=lambda d: d.name)
def test_every_dtype_gets_arrays_of_its_numpy_type_and_shape(dtype: DType) -> None:
    specs = [InputSpec("x", dtype, (3, 4)), InputSpec("scalar", dtype, ())]
    for array, scalar in input_vectors(specs, 2 * KINDS, seed=3):
        assert (array.dtype, array.shape) == (numpy_dtype(dtype), (3, 4))
        assert scalar.shape == ()


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integers_reach_the_places_where_graphs_break(dtype: DType) -> None:
    low, high = INTEGER_RANGES[dtype]
    drawn = vectors(dtype)
    for value in (0, 1, -1, low, high):
        assert any(np.all(array == value) for array in drawn), f"no vector is {value} everywhere"
    assert any(np.array_equal(array, np.where(np.arange(SIZE) % 2, high, low)) for array in drawn), "both limits"
    assert any(np.all(array % 2 != 0) and np.unique(array).size > 2 for array in drawn), "odd: halves of RESCALE"
    assert any(np.all(array >= high - 8) and np.unique(array).size > 2 for array in drawn), "values that saturate"
    assert any(np.unique(array).size > min(SIZE // 2, high - low) - 4 for array in drawn), "values all over the range"


def test_the_same_seed_gives_the_same_vectors_and_another_seed_others() -> None:
    first, again, other = vectors(DType.INT16), vectors(DType.INT16), vectors(DType.INT16, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_more_vectors_begin_with_the_fewer() -> None:
    assert all(np.array_equal(a, b) for a, b in zip(vectors(DType.INT8, 4), vectors(DType.INT8, 20)[:4], strict=True))


def test_inputs_are_of_one_kind_first_and_of_different_kinds_later() -> None:
    specs = [InputSpec("a", DType.INT32, (8,)), InputSpec("b", DType.INT32, (8,))]
    drawn = list(input_vectors(specs, 3 * KINDS, seed=0))
    assert np.all(drawn[1][0] == drawn[1][1])  # both at the upper limit
    assert any(np.all(a == 0) and np.any(b != 0) for a, b in drawn[KINDS:])


@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16, DType.BF16], ids=lambda d: d.name)
def test_floats_include_infinities_nan_and_negative_zero(dtype: DType) -> None:
    values = np.concatenate(vectors(dtype, 3 * KINDS)).astype(np.float64)
    assert np.isnan(values).any()
    assert {np.inf, -np.inf} <= set(values[np.isinf(values)])
    assert np.signbit(values[values == 0]).any()
    assert np.isfinite(values).mean() > 0.9


def test_bool_inputs_are_all_false_all_true_and_mixed() -> None:
    shares = {float(array.mean()) for array in vectors(DType.BOOL)}
    assert {0.0, 1.0} < shares


@given(st.data(), st.sampled_from(INTEGERS))
def test_no_value_leaves_the_range_of_its_channel(data: st.DataObject, dtype: DType) -> None:
    ends = st.integers(*INTEGER_RANGES[dtype])
    pairs = data.draw(st.lists(st.tuples(ends, ends).map(sorted), min_size=1, max_size=4))
    low, high = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    spec = InputSpec("x", dtype, (3, len(pairs)), low, high)
    for [array] in input_vectors([spec], KINDS + 2, data.draw(st.integers(0, 2**40))):
        assert np.all((array >= low) & (array <= high))


def test_the_limits_of_a_given_range_are_reached() -> None:
    drawn = [array for [array] in input_vectors([InputSpec("x", DType.INT32, (4,), 100, 900)], KINDS, 0)]
    assert any(np.all(array == 100) for array in drawn)
    assert any(np.all(array == 900) for array in drawn)


@pytest.mark.parametrize("shape", [(1, -1, 4), (0, 4)])
def test_a_dynamic_shape_is_refused_before_anything_runs(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match=r'input "x" has the dynamic shape .*; give it a static one'):
        input_vectors([InputSpec("x", DType.INT8, shape)], 1, 0)


def test_a_negative_seed_and_a_dtype_without_values_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="seed -1 is negative"):
        input_vectors([], 1, -1)
    with pytest.raises(InvalidArgument, match="UNKNOWN"):
        input_vectors([InputSpec("x", DType.UNKNOWN, (2,))], 1, 0)
