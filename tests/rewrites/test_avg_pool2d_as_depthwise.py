"""Padded averages by sums and one divisor per place are identical, for every kernel, stride and padding."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.avg_pool2d_as_depthwise import RULE, reciprocals
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tests.support.rules import apply, kept, names, refusal, run
from tests.support.single_operators import FORMS, Types, build
from tosakit import rewrite
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.ir.types import numpy_dtype

U55 = FAMILIES[0]
DTYPES = (DType.INT8, DType.INT16)


def _net(dtype: DType = DType.INT8, zeros: tuple[int, int] = (0, 0), **form: object) -> Program:
    types: Types = {"in_out_t": dtype, "acc_t": DType.INT32}
    made = FORMS["AVG_POOL2D"](types, **form)
    made.values.update(input_zp=[zeros[0]], output_zp=[zeros[1]])  # type: ignore[attr-defined]
    return build("AVG_POOL2D", types, made)


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=20)
@given(st.data())
def test_every_kernel_stride_and_padding_is_identical(data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.integers(low, high)), data.draw(st.integers(low, high))

    kernel, stride = pair(1, 11), pair(1, 4)
    pad = tuple(data.draw(st.integers(0, size - 1)) for size in kernel for _ in range(2))
    axes = zip(kernel, pad[::2], pad[1::2], stride, strict=True)
    out = [max(1, -(-(before + after + 1 - size) // step) + 1) for size, before, after, step in axes]
    out = [size + data.draw(st.integers(0, 2)) for size in out]
    dtype = data.draw(st.sampled_from(DTYPES))
    zeros = pair(-128, 127) if dtype == DType.INT8 else (0, 0)
    program = _net(dtype, zeros, kernel=kernel, stride=stride, pad=pad, out=tuple(out), n=2, c=3)
    result = kept(apply(RULE, program, when="all"), vectors=3)
    assert "AVG_POOL2D" not in names(result.program)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_limits_in_every_place(dtype: DType) -> None:
    program = _net(dtype, kernel=(9, 9), stride=(1, 1), pad=(4, 4, 4, 4), out=(9, 9), c=1)
    result = apply(RULE, program, target=U55)
    low, high = np.iinfo(numpy_dtype(dtype)).min, np.iinfo(numpy_dtype(dtype)).max
    for value in (low, low + 1, -1, 1, high):
        x = np.full((1, 9, 9, 1), value, numpy_dtype(dtype))
        [before], [after] = (run(p, x).outputs for p in (program, result.program))
        assert before.tolist() == after.tolist()


def test_scales_are_those_of_the_specification() -> None:
    multiplier, shift = reciprocals(np.array([1, 2, 3, 64, 65535]))
    assert multiplier.tolist() == [(1 << 30) + 1, (1 << 30) + 1, 1431655766, (1 << 30) + 1, 1073758209]
    assert shift.tolist() == [30, 31, 32, 36, 46]


def test_it_acts_only_where_a_target_needs_it() -> None:
    needed = _net(kernel=(9, 3), pad=(4, 4, 1, 1), stride=(1, 1))
    fine = [_net(kernel=(8, 8), pad=(4, 4, 1, 1), stride=(1, 1)), _net(kernel=(9, 9), stride=(1, 1))]
    assert apply(RULE, needed, target=U55).events
    assert not apply(RULE, needed, target="ethos-u85-256").events
    assert not [program for program in fine if apply(RULE, program, target=U55).events]


def test_it_refuses_sums_that_may_pass_int32() -> None:
    fitting = _net(DType.INT16, kernel=(256, 257), stride=(1, 1), pad=(1, 0, 0, 0), out=(1, 1), c=1)
    assert apply(RULE, fitting, when="all").events
    program = _net(DType.INT16, kernel=(257, 257), stride=(1, 1), pad=(1, 0, 0, 0), out=(1, 1), c=1)
    assert "it averages 65792 elements" in refusal(apply(RULE, program, when="all"))


@pytest.mark.vela
def test_vela_takes_the_form() -> None:
    for dtype in DTYPES:
        program = _net(dtype, kernel=(9, 10), pad=(4, 4, 5, 4), stride=(2, 1), out=(5, 12))
        assert accepted(program, U55) == []
        result = rewrite(program, pipeline="ethos-u", target=U55, check="none").program
        assert hazards(result, U55) == []
        assert accepted(result) == list(FAMILIES)
