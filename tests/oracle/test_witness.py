"""Inputs that show what is not proved: found where they exist, and confirmed by the reference model."""

import numpy as np
import pytest

import tosakit
from tests.support.build import Net
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.intervals import Intervals
from tosakit.oracle.ranges import Safety
from tosakit.oracle.steering import pulled

pytestmark = pytest.mark.refmodel

I8, I16, I32, I48 = DType.INT8, DType.INT16, DType.INT32, DType.INT48


def last(program, **inputs):
    return tosakit.ranges(program, search=True, **inputs).operators[-1]


def deep_sum(slack):
    """A convolution of alternating weights, rescaled to INT32, plus what leaves ``slack`` at the top of INT32."""
    net = Net()
    x = net.input("x", I16, (1, 3, 3, 16))
    weight = np.where(np.arange(16) % 3 == 0, -90, 70)
    accumulator = net.conv2d(x, weight[None, :], [5])
    wide = net.rescale(accumulator, I32, 1 << 14, 14)
    most = 32767 * 70 * 10 + 32768 * 90 * 6 + 5
    offset = net.const(np.full((1, 1, 1, 1), INTEGER_RANGES[I32][1] - most + slack), I32)
    return net.program(net.add(wide, offset))


def test_inputs_are_steered_by_the_signs_of_the_weights():
    """Only one value of the sum overflows, by one; no random input would get there."""
    found = last(deep_sum(1))
    assert found.safety is Safety.UNSAFE
    assert found.witness is not None
    [values] = found.witness.inputs.values()
    assert set(values[0, 1, 1].tolist()) == {-32768, 32767}
    safe = last(deep_sum(0))
    assert (safe.safety, safe.witness) == (Safety.SAFE, None)


def test_nothing_is_claimed_where_the_bound_is_not_attained():
    """x less a copy of it is 0, which intervals do not know: the sum is safe, and no input can show otherwise."""
    net = Net()
    x = net.input("x", I32, (1, 4))
    y = net.op(ops.Sub(), (x, net.identity(x)), I32, (1, 4), "zero")
    found = last(net.program(net.add(y, net.const([[1, 1, 1, 1]], I32))), inputs={"x": (-(1 << 30), 1 << 30)})
    assert found.safety in (Safety.SAFE, Safety.UNKNOWN)
    wide = last(net.program(net.add(y, net.const([[1 << 30] * 4], I32))), inputs={"x": (-(1 << 30), 1 << 30)})
    assert (wide.safety, wide.witness) == (Safety.UNKNOWN, None)


@pytest.mark.parametrize("scale32", [True, False])
def test_rescale_out_of_range(scale32):
    net = Net()
    x = net.input("x", I32, (1, 4))
    pair = (1 << 30, 30) if scale32 else (1 << 14, 13)
    y = net.rescale(x, I32, *pair, scale32=scale32, rounding_mode=RoundingMode.SINGLE_ROUND)
    limit = 1 << (29 if scale32 else 30)
    assert last(net.program(y), inputs={"x": (-limit, limit - 1)}).safety is Safety.SAFE
    assert last(net.program(y), inputs={"x": (-limit, limit)}).safety is Safety.UNSAFE


@pytest.mark.parametrize("kind", ["MUL", "SUB", "GATHER", "REDUCE_SUM", "ABS"])
def test_other_operators_are_shown_unsafe(kind):
    net = Net()
    x = net.input("x", I32, (1, 4))
    y = {
        "MUL": lambda: net.op(ops.Mul(), (x, x, net.const([0], I8)), I32, (1, 4), "y"),
        "SUB": lambda: net.op(ops.Sub(), (net.const([[-9]], I32), x), I32, (1, 4), "y"),
        "GATHER": lambda: net.op(ops.Gather(), (net.const(np.zeros((1, 5, 2), np.int64), I8), x), I8, (1, 4, 2), "y"),
        "REDUCE_SUM": lambda: net.op(ops.ReduceSum(axis=1), (x,), I32, (1, 1), "y"),
        "ABS": lambda: net.op(ops.Abs(), (x,), I32, (1, 4), "y"),
    }[kind]()
    found = last(net.program(y))
    assert found.operator.startswith(kind)
    assert found.safety is Safety.UNSAFE
    assert found.witness is not None
    assert found.witness.message


def test_what_custom_operators_give_is_not_searched():
    net = Net()
    x = net.input("x", I32, (1,))
    variable = net.op(ops.Custom(), (x,), I32, (1,), "custom")
    found = last(net.program(net.add(variable, variable)))
    assert (found.safety, found.witness) == (Safety.UNKNOWN, None)


def test_what_is_illegal_is_not_searched():
    """INT16 has no ADD, a stride is at least one, and a shape no size below one: nothing runs, nothing fails."""
    net = Net()
    x = net.input("x", I8, (1, 4, 4, 1))
    zeros = net.const([0], I8), net.const([0], I8)
    attrs = ops.TransposeConv2d(out_pad=(0,) * 4, stride=(-5, 1), acc_type=I32)
    operands = (x, net.const(np.ones((1, 1, 1, 1), int), I8), net.const([1 << 30], I32), *zeros)
    y = net.op(attrs, operands, I32, (1, -3, 4, 1), "y")
    few = net.op(attrs, operands[:4], I32, (1, 4, 4, 1), "few")
    sums = [net.op(ops.Add(), (t, t), I32, t.shape, f"sum_{t.name}") for t in (y, few)]
    found = tosakit.ranges(net.program(*sums), search=True).operators
    assert [(op.safety, op.witness) for op in found] == [(Safety.UNKNOWN, None)] * 4


def test_directions_of_a_convolution_are_its_weights():
    """The direction of a channel is the flipped kernel around an element, less the weight's zero point."""
    net = Net()
    x = net.input("x", I8, (1, 4, 5, 2))
    rng = np.random.default_rng(0)
    weight = rng.integers(-9, 9, (3, 2, 3, 2))
    zeros = net.const([0], I8), net.const([3], I8)
    attrs = ops.Conv2d(pad=(1, 0, 1, 1), stride=(2, 1), dilation=(1, 2), acc_type=I32)
    operands = (x, net.const(weight, I8), net.const([0, 0, 0], I32), *zeros)
    y = net.op(attrs, operands, I32, (1, 2, 3, 3), "y")
    found = pulled(y.producer, (0, 1, 1, 2), 1, Intervals())[x]
    want = np.zeros((1, 4, 5, 2))
    for ky in range(2):
        for kx in range(3):
            row, column = 1 * 2 + ky - 1, 1 + kx * 2 - 1
            if 0 <= row < 4 and 0 <= column < 5:
                want[0, row, column] += weight[2, ky, kx] - 3
    assert np.array_equal(found, want)


def test_a_convolution_that_the_model_lets_wrap_around_is_shown_by_the_exact_sum():
    net = Net()
    x = net.input("x", I8, (1, 1, 1, 140000))
    zero = net.const([0], I8)
    weight = net.const(np.full((1, 1, 1, 140000), 127), I8)
    attrs = ops.Conv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=I32)
    y = net.op(attrs, (x, weight, net.const([0], I32), zero, zero), I32, (1, 1, 1, 1), "y")
    found = last(net.program(y))
    assert found.safety is Safety.UNSAFE
    assert found.witness is not None
    assert "wraps around" in found.witness.message


def test_a_matmul_of_two_inputs_goes_to_the_corner_of_both():
    net = Net()
    a, b = net.input("a", I8, (1, 1, 140000)), net.input("b", I8, (1, 140000, 1))
    zeros = net.const([0], I8), net.const([0], I8)
    y = net.op(ops.MatMul(), (a, b, *zeros), I32, (1, 1, 1), "y")
    found = last(net.program(y))
    assert found.safety is Safety.UNSAFE
