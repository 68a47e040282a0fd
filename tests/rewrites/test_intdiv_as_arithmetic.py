"""Division by reciprocal or by bits is identical for every sign and size."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.intdiv_as_arithmetic import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tests.support.rules import apply, names, run
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program

U55 = FAMILIES[0]
LOW, HIGH = -(1 << 31), (1 << 31) - 1
POWERS = [sign * (1 << bit) + off for bit in range(2, 31) for sign in (-1, 1) for off in (-1, 0, 1)]
VALUES = np.array([LOW, LOW + 1, LOW // 2, -7, -1, 0, 1, 6, HIGH // 3, HIGH - 1, HIGH, *POWERS], np.int32)
DIVISORS = [LOW, LOW + 1, -(1 << 30), -1000003, -10, -3, -2, 1, 2, 3, 7, 255, 1431655765, 1431655766, HIGH - 1, HIGH]


def _net(divisor: int | None, shape: tuple[int, ...]) -> Program:
    net = Net()
    a = net.input("a", DType.INT32, shape)
    d = (
        net.input("d", DType.INT32, shape)
        if divisor is None
        else net.const(np.full((1,) * len(shape), divisor), DType.INT32)
    )
    return net.program(net.op(ops.IntDiv(), (a, d), DType.INT32, shape, "y"))


def _agree(program: Program, *inputs: np.ndarray) -> None:
    result = apply(RULE, program, when="all")
    assert "INTDIV" not in names(result.program)
    before, after = (run(p, *inputs) for p in (program, result.program))
    assert before.outputs[0].tolist() == after.outputs[0].tolist()


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("divisor", DIVISORS)
def test_extreme_values_by_constants(divisor: int) -> None:
    _agree(_net(divisor, VALUES.shape), VALUES)


@settings(max_examples=20)
@given(st.data())
def test_any_constant(data: st.DataObject) -> None:
    number = st.one_of(st.integers(LOW + 1, HIGH), st.integers(-40000, 40000))
    divisor = data.draw(number.filter(lambda d: d not in (0, -1)))
    multiples = [divisor * k + off for k in range(-20, 21) for off in (-1, 0, 1)]
    values = [v for v in multiples + data.draw(st.lists(number, min_size=20, max_size=20)) if LOW <= v <= HIGH]
    _agree(_net(divisor, (len(values),)), np.array(values, np.int32))


def test_computed_divisors_bit_by_bit() -> None:
    a, d = (m.reshape(-1) for m in np.meshgrid(VALUES, np.array(DIVISORS, np.int32)))
    _agree(_net(None, a.shape), a, d)


def _small() -> Program:
    """An INT8 value by a computed divisor."""
    net = Net()
    a, d = net.input("a", DType.INT8, (256,)), net.input("d", DType.INT32, (256,))
    wide = net.rescale(a, DType.INT32, 1 << 14, 14, "wide")
    return net.program(net.op(ops.IntDiv(), (wide, d), DType.INT32, (256,), "y"))


def test_only_bits_that_a_quotient_can_have() -> None:
    program = _small()
    result = apply(RULE, program, when="all")
    assert names(result.program).count("ARITHMETIC_RIGHT_SHIFT") == 7
    a, d = np.arange(-128, 128).astype(np.int8), np.array([1, -1, 2, -3, 5, 11, 100, -128] * 32, np.int32)
    [before], [after] = (run(p, a, d).outputs for p in (program, result.program))
    assert before.tolist() == after.tolist()


def test_it_acts_only_where_a_target_needs_it() -> None:
    assert apply(RULE, _net(3, (4,)), target=U55).events
    assert not apply(RULE, _net(3, (4,)), target="ethos-u85-256").events


@pytest.mark.vela
def test_vela_takes_the_forms() -> None:
    for program in (_net(-7, (2, 4)), _small()):
        assert accepted(program, U55) == []
        result = apply(RULE, program, target=U55).program
        assert [hazard for hazard in hazards(result, U55) if "readers" not in hazard.message] == []
        assert accepted(result, U55) == [U55]
