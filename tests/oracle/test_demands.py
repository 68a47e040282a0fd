"""Indices, divisors and amounts of shifts are drawn as TOSA defines them, so that their programs can be compared."""

import numpy as np
import pytest

from tests.support.build import Net
from tests.support.rows import gather, scatter
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.operator import Attributes
from tosakit.oracle.demands import Demand, demands_on_inputs, narrowed
from tosakit.oracle.equivalence import check_equivalence, input_specs
from tosakit.oracle.inputs import InputSpec, input_vectors


def test_every_vector_of_a_gather_or_scatter_can_be_compared() -> None:
    for program in (gather(DType.INT8, (2, 3, 2), 4), scatter(DType.INT16, (2, 5, 2), 4)):
        found = check_equivalence(program, program.clone(), vectors=20)
        assert (found.equal, found.vectors, found.skipped) == (True, 20, 0)


def test_indices_are_found_through_movement_and_take_the_smallest_demand() -> None:
    net = Net()
    flat = net.input("i", DType.INT32, (3,))
    builder = Builder("r")
    indices = builder.reshape(flat, (1, 3))
    net.take(builder)
    small, large = net.input("small", DType.INT8, (1, 4, 2)), net.input("large", DType.INT8, (1, 9, 2))
    outputs = [net.op(ops.Gather(), (v, indices), DType.INT8, (1, 3, 2), f"y_{v.name}") for v in (large, small)]
    program = net.program(*outputs)
    assert demands_on_inputs(program) == {flat: Demand(0, 3)}
    [spec, *_] = input_specs(program)
    assert (spec.low, spec.high) == (0, 3)


def test_rows_are_distinct_as_far_as_there_is_room() -> None:
    spec = InputSpec("i", DType.INT32, (3, 4), 0, 4, distinct=True)
    for [array] in input_vectors([spec], 30, seed=0):
        assert all(len(set(row)) == 4 for row in array.tolist())
    [[crowded]] = input_vectors([InputSpec("i", DType.INT32, (1, 4), 0, 2, distinct=True)], 1, seed=0)
    assert np.isin(crowded, [0, 1, 2]).all()


@pytest.mark.parametrize(
    ("attrs", "dtype", "low", "high"),
    [
        (ops.IntDiv(), DType.INT32, 1, (1 << 31) - 1),
        (ops.LogicalRightShift(), DType.INT8, 0, 7),
        (ops.ArithmeticRightShift(round=True), DType.INT16, 0, 15),
    ],
    ids=str,
)
def test_divisors_and_amounts_are_those_that_tosa_defines(attrs: Attributes, dtype: DType, low: int, high: int) -> None:
    net = Net()
    a, b = net.input("a", dtype, (4, 5)), net.input("b", dtype, (4, 5))
    program = net.program(net.op(attrs, (a, b), dtype, (4, 5), "y"))
    [free, spec] = input_specs(program)
    assert (free.low, spec.low, spec.high) == (None, low, high)
    found = check_equivalence(program, program.clone(), vectors=20)
    assert (found.equal, found.vectors, found.skipped) == (True, 20, 0)


def test_what_is_demanded_twice_meets_both() -> None:
    net = Net()
    x, by = net.input("x", DType.INT32, (4,)), net.input("by", DType.INT32, (4,))
    outputs = [net.op(kind, (x, by), DType.INT32, (4,), "y") for kind in (ops.IntDiv(), ops.LogicalLeftShift())]
    assert demands_on_inputs(net.program(*outputs)) == {by: Demand(1, 31)}


def test_a_range_that_leaves_no_room_stays() -> None:
    negative = InputSpec("d", DType.INT32, (4,), -9, -1)
    assert narrowed(negative, Demand(1, 100)) is negative
    both = narrowed(InputSpec("d", DType.INT32, (4,), -9, 9), Demand(1, 100))
    assert (both.low, both.high) == (1, 9)
