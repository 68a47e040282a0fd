"""remove_identity_rescale: golden text, and every value of its operand tried."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.remove_identity_rescale import RULE
from tests.support.build import Net, Zeros
from tests.support.rules import apply, kept
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, RoundingMode
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES, encode
from tosakit.numerics import rescale

Case = tuple[DType, tuple[int, int], list[int], list[int], int, bool, int]
"""Dtype, limits of the operand, multipliers, shifts, zero point, scale32 and rounding mode."""


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE)


def build(
    dtype: DType, limits: tuple[int, int], multiplier: list[int], shift: list[int], zero: int, scale32: bool, mode: int
) -> Program:
    """CLAMP to the limits, RESCALE with one pair or one for each of two channels, REVERSE."""
    net = Net()
    x = net.input("x", dtype, (4, 2))
    low, high = (encode([limit], dtype) for limit in limits)
    clamp = ops.Clamp(min_val=low, max_val=high, nan_mode=NanPropagationMode.PROPAGATE)
    narrow = net.op(clamp, [x], dtype, x.shape, "narrow")
    zeros = Zeros(input_value=zero, output_value=zero)
    r = net.rescale(
        narrow, dtype, multiplier, shift, "r", scale32=scale32, zeros=zeros, rounding_mode=RoundingMode(mode)
    )
    return net.program(net.op(ops.Reverse(axis=0), [r], dtype, r.shape, "y"))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Pairs close to one, on intervals of all lengths."""
    dtype = draw(st.sampled_from([DType.INT8, DType.INT16]))
    ends = st.integers(*INTEGER_RANGES[dtype])
    low, high = sorted((draw(ends), draw(ends)))
    scale32 = draw(st.booleans())
    bits = 30 if scale32 else 14
    multiplier, shift = [], []
    for _ in range(draw(st.integers(1, 2))):
        s = draw(st.integers(2, bits))
        most = (1 << (31 if scale32 else 15)) - 1
        near = 1 << draw(st.integers(0, s))
        off = draw(st.one_of(st.just(0), st.integers(-near, near)))
        multiplier.append(min(max((1 << s) + off, 0), most))
        shift.append(s)
    if draw(st.integers(0, 9)) == 0:
        shift[0] = draw(st.integers(2, 62))
    zero = draw(st.integers(-128, 127)) if dtype == DType.INT8 else 0
    mode = draw(st.sampled_from([RoundingMode.SINGLE_ROUND, RoundingMode.DOUBLE_ROUND])) if scale32 else 1
    return dtype, (low, high), multiplier, shift, zero, scale32, int(mode)


def test_it_fires_exactly_where_no_value_changes() -> None:
    """The whole interval is tried: the rule fires if and only if every value is predictable and comes back."""
    fired = Counter[bool]()

    @settings(max_examples=250, deadline=None)
    @given(cases())
    def check(case: Case) -> None:
        _, (low, high), multiplier, shift, zero, scale32, mode = case
        result = apply(RULE, build(*case))
        every = np.arange(low, high + 1)
        ok = []
        for m, s in zip(multiplier, shift, strict=True):
            name = RoundingMode(mode).name
            y = rescale(every - zero, m, s, scale32=scale32, out_bits=32, rounding_mode=name)
            ok.append(bool(np.all(y.values == every - zero) and not y.unpredictable.any()))
        assert bool(result.events) == all(ok)
        assert len(result.events) + len(result.refusals) <= 1
        fired[bool(result.events)] += 1

    check()
    assert min(fired[True], fired[False]) >= 40, fired


@pytest.mark.refmodel
@pytest.mark.parametrize(
    ("dtype", "limits", "multiplier", "shift", "zero", "scale32", "mode"),
    [
        (DType.INT8, (-128, 127), [1 << 30], [30], -7, True, 1),
        (DType.INT16, (-32768, 32767), [1 << 14, 1 << 13], [14, 13], 0, False, 1),
        (DType.INT8, (-100, 90), [(1 << 20) + 5000], [20], 0, True, 1),
        (DType.INT16, (-32768, 32767), [(1 << 28) + 4000], [28], 0, True, 3),
    ],
)
def test_the_reference_model_agrees(
    dtype: DType, limits: tuple[int, int], multiplier: list[int], shift: list[int], zero: int, scale32: bool, mode: int
) -> None:
    kept(apply(RULE, build(dtype, limits, multiplier, shift, zero, scale32, mode)))
