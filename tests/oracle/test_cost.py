"""How many vectors a check runs by default: a function of the program alone."""

import numpy as np

from tests.support.build import Net
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor, TensorExtras
from tosakit.ir.program import Program
from tosakit.oracle.cost import BUDGET, FEWEST, VECTORS, cost, default_vectors, state_remark


def convolution(size: int, channels: int) -> Program:
    net = Net()
    x = net.input("x", DType.INT16, (1, size, size, channels))
    acc = net.convolution(ops.Conv2d, x, np.ones((channels, 3, 3, channels), np.int8), [0] * channels)
    return net.program(acc)


def test_a_convolution_costs_its_multiplications_and_its_elements() -> None:
    program = convolution(10, 4)
    results, weights = 8 * 8 * 4, 4 * 3 * 3 * 4
    read = 10 * 10 * 4 + weights + 4 + 1 + 1  # input, weights, bias and two zero points
    assert cost(program) == results * 3 * 3 * 4 + 10 * (read + results)


def test_constants_cost_nothing_by_themselves() -> None:
    net = Net()
    net.input("x", DType.INT8, (1,))
    assert cost(net.program(net.const(np.zeros(1000, np.int8), DType.INT8))) == 0


def test_small_programs_get_the_full_number_without_a_remark() -> None:
    assert default_vectors(convolution(10, 4)) == (VECTORS, "")


def test_large_programs_get_fewer_and_say_so() -> None:
    program = convolution(130, 64)
    count, remark = default_vectors(program)
    assert count == BUDGET // cost(program)
    assert FEWEST < count < VECTORS
    assert remark == f"{count} input vectors instead of 64, because one run takes about 625 M operations"


def test_huge_programs_still_get_a_few() -> None:
    assert default_vectors(convolution(600, 128))[0] == FEWEST


def test_a_program_with_state_says_what_is_not_compared() -> None:
    net = Net()
    net.graph.add_tensor(Tensor("cell", DType.INT8, (4,), extras=TensorExtras(variable=True, variable_name="state")))
    program = net.program(net.identity(net.input("x", DType.INT8, (4,))))
    assert state_remark(program).startswith("1 variables: every run starts from their initial values")
    assert state_remark(convolution(10, 4)) == ""
