"""Inputs that are indices are drawn as rows that exist, so that programs with GATHER and SCATTER can be compared."""

import numpy as np

from tests.support.build import Net
from tests.support.rows import gather, scatter
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.oracle.equivalence import check_equivalence, input_specs
from tosakit.oracle.indices import Indices, index_inputs
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
    assert index_inputs(program) == {flat: Indices(4, distinct=False)}
    [spec, *_] = input_specs(program)
    assert (spec.low, spec.high) == (0, 3)


def test_rows_are_distinct_as_far_as_there_is_room() -> None:
    spec = InputSpec("i", DType.INT32, (3, 4), 0, 4, distinct=True)
    for [array] in input_vectors([spec], 30, seed=0):
        assert all(len(set(row)) == 4 for row in array.tolist())
    [[crowded]] = input_vectors([InputSpec("i", DType.INT32, (1, 4), 0, 2, distinct=True)], 1, seed=0)
    assert np.isin(crowded, [0, 1, 2]).all()
