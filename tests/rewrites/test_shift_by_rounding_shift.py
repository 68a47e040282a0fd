"""Every shift by INT32 shifts that round is identical, for every type, amount and sign."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.shift_by_rounding_shift import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tests.support.rules import apply, kept, names, refusal, run
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import BITS, INTEGER_RANGES, numpy_dtype

U55 = FAMILIES[0]
DTYPES = (DType.INT8, DType.INT16, DType.INT32)
SHIFTS: tuple[Attributes, ...] = (
    ops.ArithmeticRightShift(round=False),
    ops.ArithmeticRightShift(round=True),
    ops.LogicalLeftShift(),
    ops.LogicalRightShift(),
)


def _net(attrs: Attributes, dtype: DType, amounts: list[int] | None = None, shape: tuple[int, ...] = (2, 4)) -> Program:
    """A shift by constants along the last axis, or by an input."""
    net = Net()
    x = net.input("x", dtype, shape)
    by = net.input("by", dtype, shape) if amounts is None else net.const([amounts], dtype, "by")
    return net.program(net.op(attrs, (x, by), dtype, shape, "y"))


def _every_pair(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Values at the limits, around zero and in between, each by every amount: [values, amounts]."""
    low, high = INTEGER_RANGES[dtype]
    near = [low, low + 1, low // 2 - 1, low // 2, -77, -2, -1, 0, 1, 2, 3, 100, high // 2, high - 1, high]
    powers = [sign * (1 << bit) + off for bit in range(3, BITS[dtype] - 1) for sign in (-1, 1) for off in (-1, 0, 1)]
    values = np.array(near + powers, numpy_dtype(dtype))
    amounts = np.arange(BITS[dtype]).astype(numpy_dtype(dtype))
    x, by = np.broadcast_arrays(values[:, None], amounts[None, :])
    return x.copy(), by.copy()


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("attrs", SHIFTS, ids=str)
def test_values_at_the_limits_by_every_amount(attrs: Attributes, dtype: DType) -> None:
    x, by = _every_pair(dtype)
    for program, inputs in (
        (_net(attrs, dtype, None, x.shape), (x, by)),
        (_net(attrs, dtype, by[0].tolist(), x.shape), (x,)),
    ):
        result = apply(RULE, program, when="all")
        taken = dtype == DType.INT32 and names(program)[0] in names(result.program)
        if taken and not result.events:
            continue
        [before], [after] = (run(p, *inputs).outputs for p in (program, result.program))
        assert before.tolist() == after.tolist()


@settings(max_examples=20)
@given(st.data())
def test_computed_amounts_are_identical(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    attrs = data.draw(st.sampled_from([SHIFTS[0], SHIFTS[3]]))
    net, shape = Net(), (2, data.draw(st.integers(1, 9)))
    x, y = net.input("x", dtype, shape), net.input("by", dtype, (data.draw(st.sampled_from([1, 2])), shape[1]))
    builder = Builder("amount")
    if dtype == DType.INT32:
        y = builder.rescale(
            builder.rescale(y, DType.INT8, 1 << 14, 20, scale32=False), DType.INT16, 1 << 14, 14, scale32=False
        )
    by = builder.clamp(y, 0, BITS[dtype] - 1)
    if dtype == DType.INT32:
        by = builder.rescale(by, dtype, 1 << 14, 14, scale32=False)
    net.take(builder)
    program = net.program(net.op(attrs, (x, by), dtype, shape, "y"))
    kept(apply(RULE, program, when="all"), vectors=4)


@pytest.mark.parametrize("attrs", SHIFTS, ids=str)
def test_one_constant_operand_of_int8_is_a_table(attrs: Attributes) -> None:
    result = apply(RULE, _net(attrs, DType.INT8, [5]), when="all")
    assert names(result.program) == ["TABLE"]
    net = Net()
    by = net.input("by", DType.INT8, (2, 4))
    program = net.program(net.op(attrs, (net.const([[-77]], DType.INT8), by), DType.INT8, (2, 4), "y"))
    result = apply(RULE, program, when="all")
    assert names(result.program) == ["TABLE"]
    amounts = np.arange(8, dtype=np.int8).reshape(2, 4)
    [before], [after] = (run(p, amounts).outputs for p in (program, result.program))
    assert before.tolist() == after.tolist()


def test_a_value_that_is_never_negative_needs_less() -> None:
    net = Net()
    x = net.rescale(net.input("x", DType.INT16, (1, 4)), DType.INT32, 1 << 14, 14, "wide")
    squares = net.op(ops.Mul(), (x, x, net.const([0], DType.INT8)), DType.INT32, x.shape, "squares")
    program = net.program(net.op(SHIFTS[3], (squares, net.const([[7]], DType.INT32)), DType.INT32, (1, 4), "y"))
    result = kept(apply(RULE, program, when="all"))
    assert names(result.program) == ["RESCALE", "MUL", "SUB", "ARITHMETIC_RIGHT_SHIFT"]


def test_it_acts_only_where_a_target_needs_it() -> None:
    wrong = [_net(SHIFTS[0], DType.INT32), _net(SHIFTS[3], DType.INT32), _net(SHIFTS[1], DType.INT8)]
    right = [_net(SHIFTS[1], DType.INT32), _net(SHIFTS[2], DType.INT32), _net(SHIFTS[0], DType.INT32, [0])]
    assert all(apply(RULE, program, target=U55).events for program in wrong)
    assert not [program for program in right if apply(RULE, program, target=U55).events]
    assert not [program for program in wrong if apply(RULE, program, target="ethos-u85-256").events]
    assert not apply(RULE, _net(SHIFTS[3], DType.INT64), when="all").events


def test_an_undefined_amount_is_refused() -> None:
    reason = refusal(apply(RULE, _net(SHIFTS[3], DType.INT8, [1, 2, 8, 3]), when="all"))
    assert reason == "it shifts by 8, which TOSA does not define for 8 bits"


@pytest.mark.vela
def test_vela_takes_the_forms() -> None:
    net = Net()
    outputs = []
    for dtype in DTYPES:
        x, by = net.input("x", dtype, (2, 4)), net.input("by", dtype, (2, 4))
        amounts = net.const([[0, 1, 2, 3]], dtype)
        outputs += [net.op(attrs, (x, s), dtype, (2, 4), "y") for attrs in SHIFTS for s in (by, amounts)]
    program = net.program(*outputs)
    assert accepted(program, U55) == []
    assert len(hazards(program, U55)) == 2
    result = apply(RULE, program, target=U55).program
    assert [hazard for hazard in hazards(result, U55) if hazard.kind == "miscompiled"] == []
    assert accepted(result) == list(FAMILIES)
