"""A CAST that keeps the low bits is identical as arithmetic, for every pair of types."""

from collections.abc import Callable

import numpy as np
import pytest

from rewrites.wrap_narrowing_cast import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tests.support.rules import EVERY_INT16, apply, kept, names, run
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES, encode

U55 = FAMILIES[0]
PROPAGATE = NanPropagationMode.PROPAGATE
NARROWING = ((DType.INT32, DType.INT16), (DType.INT32, DType.INT8), (DType.INT16, DType.INT8))


def _net(source: DType, target: DType, shape: tuple[int, ...] = (2, 4)) -> Program:
    net = Net()
    return net.program(net.op(ops.Cast(), (net.input("x", source, shape),), target, shape, "y"))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize(("source", "target"), NARROWING, ids=str)
def test_random_and_extreme_values(source: DType, target: DType) -> None:
    result = kept(apply(RULE, _net(source, target, (8, 8)), when="all"))
    assert "CAST" not in names(result.program)


@pytest.mark.parametrize("target", [DType.INT16, DType.INT8], ids=lambda dtype: dtype.name)
def test_values_around_every_power_of_two(target: DType) -> None:
    low, high = INTEGER_RANGES[DType.INT32]
    powers = [sign * (1 << bit) + off for bit in range(5, 31) for sign in (-1, 1) for off in (-1, 0, 1)]
    x = np.array([low, low + 1, *powers, high - 1, high], np.int32)
    program = _net(DType.INT32, target, x.shape)
    [before], [after] = (run(p, x).outputs for p in (program, apply(RULE, program, when="all").program))
    assert before.tolist() == after.tolist()


def test_every_int16_value() -> None:
    program = _net(DType.INT16, DType.INT8, EVERY_INT16.shape)
    [before], [after] = (run(p, EVERY_INT16).outputs for p in (program, apply(RULE, program, when="all").program))
    assert np.array_equal(before, after)


@pytest.mark.parametrize(("low", "high"), [(-100, 127), (-128, 128), (-129, 127), (100, 300)])
def test_both_ends_must_be_proved_to_fit(low: int, high: int) -> None:
    net = Net()
    x = net.input("x", DType.INT16, EVERY_INT16.shape)
    ends = (encode(np.array([end]), DType.INT16) for end in (low, high))
    clamped = net.op(ops.Clamp(*ends, nan_mode=PROPAGATE), (x,), DType.INT16, x.shape, "clamped")
    program = net.program(net.op(ops.Cast(), (clamped,), DType.INT8, x.shape, "y"))
    result = apply(RULE, program, when="all")
    assert bool(result.events) is not (low >= -128 and high <= 127)
    [before], [after] = (run(p, EVERY_INT16).outputs for p in (program, result.program))
    assert np.array_equal(before, after)


def test_it_acts_only_where_a_target_needs_it() -> None:
    assert apply(RULE, _net(*NARROWING[0]), target=U55).events
    assert not apply(RULE, _net(*NARROWING[0]), target="ethos-u85-256").events
    assert not apply(RULE, _net(DType.INT8, DType.INT32), target=U55).events


@pytest.mark.vela
def test_vela_takes_the_form() -> None:
    net = Net()
    x, z = net.input("x", DType.INT32, (2, 4)), net.input("z", DType.INT16, (2, 4))
    pairs = ((x, DType.INT8), (x, DType.INT16), (z, DType.INT8))
    program = net.program(*(net.op(ops.Cast(), (t,), dtype, (2, 4), "y") for t, dtype in pairs))
    assert [hazard.helps for hazard in hazards(program, U55)] == ["The rule wrap_narrowing_cast helps"] * 3
    result = apply(RULE, program, target=U55).program
    assert [hazard for hazard in hazards(result, U55) if hazard.kind == "miscompiled"] == []
    assert accepted(result) == list(FAMILIES)
