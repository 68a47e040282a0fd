"""tosakit.ranges: verdicts with numbers, by operator."""

import numpy as np
import pytest

import tosakit
from tests.support.build import Net
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.oracle.ranges import Safety

I8, I16, I32 = DType.INT8, DType.INT16, DType.INT32


def verdicts(program, **inputs):
    return {op.operator.split()[0]: op for op in tosakit.ranges(program, **inputs).operators}


def test_a_sum_is_safe_unknown_or_unsafe():
    net = Net()
    x = net.input("x", I32, (2,))
    program = net.program(net.add(x, net.const([5, 5], I32)))
    found = verdicts(program)["ADD"]
    assert found.safety is Safety.UNKNOWN
    assert found.reasons == (
        "the exact result can be -2147483643 to 2147483652, INT32 holds -2147483648 to 2147483647",
    )
    assert verdicts(program, inputs={"x": (-9, (1 << 31) - 6)})["ADD"].safety is Safety.SAFE
    assert verdicts(program, inputs={"x": ((1 << 31) - 5, (1 << 31) - 1)})["ADD"].safety is Safety.UNSAFE


def test_tensors_have_bounds_by_channel():
    net = Net()
    x = net.input("x", I16, (1, 2, 2, 2))
    program = net.program(net.conv2d(x, [[1, -2], [3, 4]], [10, 20]))
    accumulator = tosakit.ranges(program, {"x": (0, 100)}).tensors[-1]
    assert (accumulator.low, accumulator.high) == ((-190, 20), (110, 720))
    assert (accumulator.lowest, accumulator.highest) == (-190, 720)


def test_a_partial_sum_can_overflow_where_the_whole_cannot():
    """Terms of at least 2^30 each, three of them up and then three down: the sum is small, the way there is not."""
    net = Net()
    x = net.input("x", I32, (1, 6))
    signs = net.const([[1, 1, 1, -1, -1, -1]], I32)
    y = net.op(ops.Mul(), (x, signs, net.const([0], I8)), I32, (1, 6), "signed")
    program = net.program(net.op(ops.ReduceSum(axis=1), (y,), I32, (1, 1), "total"))
    found = verdicts(program, inputs={"x": (1 << 30, (1 << 30) + 9)})["REDUCE_SUM"]
    assert found.safety is Safety.UNKNOWN
    assert "a sum of some of the terms can be" in found.reasons[0]


@pytest.mark.parametrize(("smallest", "safety"), [(-(1 << 31), Safety.UNKNOWN), (-(1 << 31) + 1, Safety.SAFE)])
def test_the_smallest_int32_has_no_opposite(smallest, safety):
    for attrs, more in ((ops.Abs(), ()), (ops.Negate(), (0, 0)), (ops.IntDiv(), (-1,))):
        net = Net()
        x = net.input("x", I32, (1,))
        operands = (x, *(net.const([value], I32) for value in more))
        program = net.program(net.op(attrs, operands, I32, (1,), "y"))
        assert tosakit.ranges(program, {"x": (smallest, 0)}).operators[-1].safety is safety, attrs


def test_what_nothing_is_known_of_is_not_safe():
    net = Net()
    table, index = net.input("table", I8, (1, 4, 2)), net.input("index", I32, (1, 3))
    program = net.program(net.op(ops.Gather(), (table, index), I8, (1, 3, 2), "y"))
    assert verdicts(program)["GATHER"].reasons == ("nothing is known of an index, it must be 0 to 3",)
    assert verdicts(program, inputs={"index": (0, 3)})["GATHER"].safety is Safety.SAFE
    net = Net()
    values, index, new = net.input("v", I8, (1, 4, 2)), net.input("index", I32, (1, 2)), net.input("n", I8, (1, 2, 2))
    program = net.program(net.op(ops.Scatter(), (values, index, new), I8, (1, 4, 2), "y"))
    assert "comes twice" in verdicts(program, inputs={"index": (0, 3)})["SCATTER"].reasons[0]


def test_rounding_that_nobody_defines_is_said_to_be_the_reason():
    net = Net()
    x = net.input("x", I16, (1, 2))
    y = net.rescale(x, I16, 1 << 14, 14, rounding_mode=RoundingMode.INEXACT_ROUND)
    found = verdicts(net.program(y))["RESCALE"]
    assert found.safety is Safety.UNKNOWN
    assert found.reasons == ("INEXACT_ROUND leaves open how it rounds, so that the scaled operand is not known",)


def test_a_window_of_large_values_can_overflow():
    attrs = ops.AvgPool2d(kernel=(300, 300), stride=(1, 1), pad=(0,) * 4, acc_type=I32)
    for dtype, safety in ((I16, Safety.UNKNOWN), (I8, Safety.SAFE)):
        net = Net()
        x, zero = net.input("x", dtype, (1, 300, 300, 1)), net.const([0], dtype)
        program = net.program(net.op(attrs, (x, zero, zero), dtype, (1, 1, 1, 1), "y"))
        assert tosakit.ranges(program).operators[-1].safety is safety


def test_custom_operators_are_unknown_and_float_ones_left_out():
    net = Net()
    x, f = net.input("x", I8, (1,)), net.input("f", DType.FP32, (1,))
    program = net.program(net.op(ops.Custom(), (x,), I8, (1,), "y"), net.op(ops.Exp(), (f,), DType.FP32, (1,), "e"))
    [found] = tosakit.ranges(program).operators
    assert (found.operator, found.safety) == ('CUSTOM -> "y"', Safety.UNKNOWN)


def test_inputs_must_exist_and_fit():
    net = Net()
    program = net.program(net.identity(net.input("x", I8, (1,))))
    with pytest.raises(InvalidArgument, match='no input is named "z"; there are x'):
        tosakit.ranges(program, {"z": (0, 1)})
    with pytest.raises(InvalidArgument, match=r"\[0, 200\] given"):
        tosakit.ranges(program, {"x": (0, 200)})


def test_json_of_numpy_free_numbers():
    net = Net()
    x = net.input("x", I16, (1, 1, 1, 2))
    found = tosakit.ranges(net.program(net.conv2d(x, [[1, -2], [3, 4]], [10, 20])))
    assert all(
        isinstance(n, int) and not isinstance(n, np.integer) for t in found.tensors for n in (t.lowest, t.highest)
    )
