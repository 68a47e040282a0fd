"""Intervals of comparisons, BOOL logic, bits and shifts against every pair of values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.numerics.intervals import Intervals

I8, I32, BOOL = DType.INT8, DType.INT32, DType.BOOL


def logical_right_shift(x, s):
    return ((x.astype(np.int64) & 0xFF) >> s).astype(np.int8).astype(np.int64)


BITS = {
    ops.BitwiseAnd: np.bitwise_and,
    ops.BitwiseOr: np.bitwise_or,
    ops.BitwiseXor: np.bitwise_xor,
}
COMPARISONS = {ops.Equal: np.equal, ops.Greater: np.greater, ops.GreaterEqual: np.greater_equal}
LOGIC = {ops.LogicalAnd: np.logical_and, ops.LogicalOr: np.logical_or, ops.LogicalXor: np.logical_xor}


def interval_of(kind, dtype, given, result=None):
    b = Builder("t")
    operands = [Tensor(f"x{i}", dtype, (1, 3)) for i in range(len(given))]
    y = b.op(kind(), operands, result or dtype, (1, 3))
    found = Intervals(dict(zip(operands, given, strict=True))).of(y)
    return found.lowest, found.highest


ends = st.tuples(st.integers(-128, 127), st.integers(-128, 127)).map(lambda pair: tuple(sorted(pair)))
near = st.tuples(st.integers(-128, 127), st.integers(0, 3)).map(lambda pair: (pair[0], min(pair[0] + pair[1], 127)))


@given(ends | near, ends | near)
@settings(max_examples=150)
def test_bits_never_leave_the_interval(a, b):
    p, q = np.arange(a[0], a[1] + 1)[:, None], np.arange(b[0], b[1] + 1)
    for kind, exact in BITS.items():
        values = exact(p, q)
        low, high = interval_of(kind, I8, (a, b))
        assert low <= values.min() <= values.max() <= high, kind
        if values.size == 1:
            assert low == high
        elif kind is ops.BitwiseAnd and a[0] >= 0 and b[0] >= 0:
            assert (low, high) == (0, min(a[1], b[1]))
    assert interval_of(ops.BitwiseNot, I8, (a,)) == (~a[1], ~a[0])


@given(ends | near, st.tuples(st.integers(0, 7), st.integers(0, 7)).map(lambda pair: tuple(sorted(pair))))
@settings(max_examples=150)
def test_logical_shifts(a, s):
    x, shift = np.arange(a[0], a[1] + 1)[:, None], np.arange(s[0], s[1] + 1)
    values = logical_right_shift(x, shift)
    low, high = interval_of(ops.LogicalRightShift, I8, (a, s))
    assert low <= values.min() <= values.max() <= high
    if a[0] >= 0:
        assert (low, high) == (values.min(), values.max())
    exact = x << shift
    low, high = interval_of(ops.LogicalLeftShift, I8, (a, s))
    fits = exact.min() >= -128 and exact.max() <= 127
    assert (low, high) == ((exact.min(), exact.max()) if fits else (-128, 127))


@given(ends | near, ends | near)
def test_comparisons_are_known_where_all_pairs_agree(a, b):
    p, q = np.arange(a[0], a[1] + 1)[:, None], np.arange(b[0], b[1] + 1)
    for kind, exact in COMPARISONS.items():
        values = exact(p, q)
        assert interval_of(kind, I32, (a, b), BOOL) == (values.min(), values.max()), kind


@pytest.mark.parametrize("kind", LOGIC)
def test_logic(kind):
    for a in ((0, 0), (1, 1), (0, 1)):
        for b in ((0, 0), (1, 1), (0, 1)):
            values = LOGIC[kind](np.arange(a[0], a[1] + 1)[:, None], np.arange(b[0], b[1] + 1)).astype(int)
            assert interval_of(kind, BOOL, (a, b)) == (values.min(), values.max())


def test_truth_of_channels():
    b = Builder("t")
    x = Tensor("x", I32, (1, 3))
    mask = b.op(ops.Greater(), (b.const([[5, 0, -5]], I32), b.clamp(x, -1, 1)), BOOL, (1, 3))
    found = Intervals()
    assert found.of(mask).low.tolist() == [1, 0, 0]
    assert found.of(mask).high.tolist() == [1, 1, 0]
    chosen = b.op(ops.Select(), (mask, b.const([[9, 9, 9]], I32), b.const([[-9, -9, -9]], I32)), I32, (1, 3))
    assert found.of(chosen).low.tolist() == [9, -9, -9]
    assert found.of(chosen).high.tolist() == [9, 9, -9]
    for kind, along, want in ((ops.ReduceAny, 1, (1, 1)), (ops.ReduceAll, 1, (0, 0)), (ops.ReduceAll, 0, (0, 1))):
        result = found.of(b.op(kind(axis=along), (mask,), BOOL, (1, 1) if along else (1, 3)))
        assert (result.lowest, result.highest) == want
    inverse = found.of(b.op(ops.LogicalNot(), (mask,), BOOL, (1, 3)))
    assert inverse.low.tolist() == [0, 0, 1]
    number = found.of(b.op(ops.Cast(), (mask,), I8, (1, 3)))
    assert (number.lowest, number.highest) == (0, 1)
    back = found.of(b.op(ops.Cast(), (b.clamp(x, 2, 7),), BOOL, (1, 3)))
    assert (back.lowest, back.highest) == (1, 1)
