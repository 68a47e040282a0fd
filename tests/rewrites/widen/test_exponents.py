"""int32 values carry the new bits where there is room, and no value leaves int32 or what a RESCALE takes."""

from fractions import Fraction

import numpy as np
import pytest

from rewrites._widen.exponents import exponent_cap, floor_log2, scaled_bound, wanted_exponent
from tests.support.int8 import ONE, Int8Net, Widened, values, widen
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp
from tosakit.ir.program import Program


def _shifts(made: Widened, dtype: DType) -> list[int]:
    """Shifts of the RESCALEs that make ``dtype``, in order."""
    return [int(op.inputs[2].values()[0]) for op in made.of("RESCALE") if op.output.dtype == dtype]


@pytest.mark.parametrize(
    ("scale", "exponent"),
    [(Fraction(1), 7), (Fraction(1, 2), 8), (Fraction(3, 2), 7), (Fraction(127), 1), (Fraction(128), 0), (1 << 19, 0)],
)
def test_wanted_exponent(scale: Fraction, exponent: int) -> None:
    assert wanted_exponent(Fraction(scale)) == exponent


@pytest.mark.parametrize("bound", [1, 2, 255, 256, 65535, (1 << 31) - 1])
def test_exponent_cap_is_the_largest_that_fits(bound: int) -> None:
    cap = exponent_cap(bound)
    assert bound << cap < 1 << 31
    assert bound << (cap + 1) >= 1 << 31 or bound & (bound - 1) == 0


def test_bounds_include_the_rounding() -> None:
    assert scaled_bound(256, Fraction(1, 3)) >= 86
    assert floor_log2(Fraction(1, 3)) == -2


def _sum(scales: tuple[tuple[int, int], tuple[int, int]], out: tuple[int, int]) -> Program:
    net = Int8Net()
    a, b = net.int8("a"), net.int8("b")
    total = net.op(
        ops.Add(),
        (net.widening(a, 0, "left", scales[0]), net.widening(b, 0, "right", scales[1])),
        DType.INT32,
        a.shape,
        "sum",
    )
    return net.outputs(net.narrowing(total, 0, "y", out))


@pytest.mark.refmodel
def test_scale_one_keeps_all_seven_bits() -> None:
    made = widen(_sum((ONE, ONE), (1 << 30, 31)))
    assert _shifts(made, DType.INT32) == [30, 30]  # exponent 7: 2^30 / 2^30 of the int16 value
    assert _shifts(made, DType.INT16) == [31]
    a = np.full((1, 4, 4, 2), 3, np.int16)
    [result] = values(made.program, a, a * 0)
    assert set(result.reshape(-1).tolist()) == {2}  # half of 3 int16 steps, not of an int8 step


@pytest.mark.refmodel
def test_a_scale_of_20_bits_needs_no_exponent() -> None:
    made = widen(_sum(((1 << 30, 11), (1 << 30, 12)), (1 << 30, 50)))
    assert _shifts(made, DType.INT32) == [18, 19]


@pytest.mark.refmodel
def test_operands_of_a_sum_share_the_finer_exponent() -> None:
    made = widen(_sum((ONE, (1 << 30, 20)), (1 << 30, 40)))
    assert _shifts(made, DType.INT32) == [30, 20]


@pytest.mark.refmodel
def test_products_have_room_for_both_exponents() -> None:
    net = Int8Net()
    a, b = net.int8("a"), net.int8("b")
    wide = (net.widening(a, -128, "left", (1 << 30, 26)), net.widening(b, -128, "right", (1 << 30, 26)))
    product = net.op(ops.Mul(), (*wide, net.const([0], DType.INT8, "shift")), DType.INT32, a.shape, "product")
    made = widen(net.outputs(net.narrowing(product, -128, "y", (1 << 30, 45))))
    extremes = np.array([[32640, 32767], [32767, -32768]] * 8, np.int16).reshape(1, 4, 4, 2)
    values(made.program, extremes, extremes)  # valid also for inputs that no int8 value maps to


@pytest.mark.refmodel
def test_long_sums_give_bits_back() -> None:
    net = Int8Net()
    wide = net.widening(net.int8("x", (1, 4096)), 0, "wide", (1 << 30, 22))
    total = net.op(ops.ReduceSum(axis=1), (wide,), DType.INT32, (1, 1), "total")
    made = widen(net.outputs(net.narrowing(total, 0, "y", (1 << 30, 50))))
    assert made.same.max_difference <= 1
    values(made.program, np.full((1, 4096), -32768, np.int16))


@pytest.mark.refmodel
@pytest.mark.parametrize("scale32", [True, False])
def test_a_value_that_may_exceed_the_new_shift_is_saturated_first(scale32: bool) -> None:
    """int32 data that int8 saturated far away: seven bits less room behind the same scale."""
    net = Int8Net()
    x = net.input("x", DType.INT32, (1, 6))
    scale = (1 << 30, 33) if scale32 else (1 << 14, 17)
    y = net.requantize(x, DType.INT8, scale, "y", output_zp=3, scale32=scale32)
    made = widen(net.outputs(y))
    data = np.array([[0, 1000, -1000, 1 << 30, -(1 << 31), (1 << 31) - 1]], np.int32)
    [old], [new] = values(made.before, data), values(made.program, data)
    np.testing.assert_allclose(new / 128 + 3, old, atol=0.51)


@pytest.mark.refmodel
def test_shift_beyond_62_is_rounded_into_range() -> None:
    net = Int8Net()
    wide = net.widening(net.int8(), 0, "wide", (1 << 30, 11))
    product = net.op(ops.Mul(), (wide, wide, net.const([30], DType.INT8, "shift")), DType.INT32, wide.shape, "product")
    made = widen(net.outputs(net.narrowing(product, 0, "y", (1 << 30, 62))))
    assert made.same.max_difference <= 1


def _scales_of_one(made: Widened) -> list[AnyOp]:
    return [
        op
        for op in made.of("RESCALE")
        if op.inputs[0].dtype == DType.INT48
        and op.output.dtype == DType.INT32
        and (int(op.inputs[1].values()[0]), int(op.inputs[2].values()[0])) == (1 << 14, 14)
    ]


@pytest.mark.refmodel
@pytest.mark.parametrize("target", ["", "ethos-u85-256", "ethos-u55-128"])
@pytest.mark.parametrize("moved", [False, True])
def test_int48_to_int32_by_exactly_one_only_where_vela_keeps_it(target: str, moved: bool) -> None:
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), [[[[2, 3]]]], [5])
    if moved:
        acc = net.reshape(acc, (4, 4))
    program = net.outputs(net.narrowing(acc, 0, "y", (1518500250, 36)))
    made = widen(program, target=target, rescale_form="two-step")
    assert len(_scales_of_one(made)) == (target == "ethos-u55-128")


@pytest.mark.refmodel
def test_int32_output_keeps_its_values() -> None:
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), [[[[2, 3]]]], [5], zero_point=8)
    wide = net.widening(net.graph.inputs[0], 8, "wide")
    made = widen(net.outputs(acc, wide, net.op(ops.Add(), (acc, acc), DType.INT32, acc.shape, "twice")))
    assert made.same.max_difference == 0


@pytest.mark.refmodel
@pytest.mark.parametrize("form", ["one-step", "two-step"])
def test_one_accumulator_with_two_readers_and_an_output(form: str) -> None:
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), [[[[2, 3]]]], [5], zero_point=8)
    small = net.narrowing(acc, 4, "small", (1518500250, 36))
    wide = net.requantize(acc, DType.INT32, (1 << 30, 28), "wide")
    again = net.narrowing(wide, 4, "again", (1518500250, 38))
    made = widen(net.outputs(small, again, acc), rescale_form=form)
    assert made.same.max_difference <= 1.01
    assert [t.dtype for t in made.program.main.outputs] == [DType.INT16, DType.INT16, DType.INT32]
