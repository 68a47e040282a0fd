"""What has no int16 form stays int8, between RESCALEs, with a reason; the interface follows."""

from typing import Any

import numpy as np
import pytest

from tests.support.int8 import ONE, Int8Net, values, widen
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import Tensor, TensorExtras
from tosakit.ir.operator import Foreign

PROPAGATE = NanPropagationMode.PROPAGATE


def _island(net: Int8Net, x: Tensor) -> Tensor:
    """BITWISE_NOT, which maps q to -1 - q."""
    return net.op(ops.BitwiseNot(), (x,), x.dtype, x.shape, "not")


@pytest.mark.refmodel
def test_an_island_is_read_and_left_through_rescale() -> None:
    net = Int8Net()
    x = net.requantize(net.int8(), DType.INT8, (1518500250, 31), "in", input_zp=3, output_zp=-20)
    made = widen(
        net.outputs(net.requantize(_island(net, x), DType.INT8, (1518500250, 31), "y", input_zp=19, output_zp=4))
    )
    [island] = made.of("BITWISE_NOT")
    assert island.inputs[0].dtype == DType.INT8
    assert made.reasons == ["TOSA has no BITWISE_NOT on int16 that means the same"]
    assert made.names == ["RESCALE", "BITWISE_NOT", "RESCALE"]  # y cannot leave the int8 range, so no CLAMP
    assert made.same.max_difference <= 1.01


@pytest.mark.refmodel
def test_data_movement_between_islands_stays_int8() -> None:
    net = Int8Net()
    first = net.requantize(net.int8(), DType.INT8, (1518500250, 31), "in", input_zp=3, output_zp=-20)
    moved = net.reshape(net.op(ops.BitwiseNot(), (first,), DType.INT8, first.shape, "a"), (2, 16))
    last = net.op(ops.BitwiseNot(), (moved,), DType.INT8, moved.shape, "b")
    made = widen(net.outputs(net.requantize(last, DType.INT8, ONE, "y", input_zp=-20, output_zp=4)))
    assert made.names == ["RESCALE", "BITWISE_NOT", "RESHAPE", "BITWISE_NOT", "RESCALE", "CLAMP"]
    [reshape] = made.of("RESHAPE")
    assert reshape.output.dtype == DType.INT8


@pytest.mark.refmodel
def test_an_island_next_to_the_interface_keeps_int8_there() -> None:
    net = Int8Net()
    program = net.outputs(net.requantize(_island(net, net.int8()), DType.INT8, ONE, "y", input_zp=4, output_zp=9))
    made = widen(program)
    assert [t.dtype for t in made.program.main.inputs] == [DType.INT8]
    assert [t.dtype for t in made.program.main.outputs] == [DType.INT16]
    assert "only operators that stay int8 read it" in made.reasons


@pytest.mark.refmodel
def test_a_program_of_islands_is_left_alone() -> None:
    net = Int8Net()
    made = widen(net.outputs(_island(net, net.int8())))
    assert not made.result.events
    assert len(made.reasons) == 1
    assert made.names == ["BITWISE_NOT"]


@pytest.mark.refmodel
def test_unsigned_data_stays_int8_as_a_whole() -> None:
    net = Int8Net()
    x = net.int8()
    signed = net.requantize(
        net.reshape(x, (2, 16)), DType.INT8, ONE, "s", input_zp=-128, output_zp=3, input_unsigned=True
    )
    y = net.requantize(signed, DType.INT8, (1518500250, 31), "y", input_zp=3, output_zp=4)
    made = widen(net.outputs(y))
    assert made.program.main.inputs[0].dtype == DType.INT8
    assert made.of("RESHAPE")[0].output.dtype == DType.INT8
    assert made.program.main.outputs[0].dtype == DType.INT16
    assert {"it reads or writes unsigned values", "it holds unsigned values"} <= set(made.reasons)
    assert made.same.max_difference <= 1


@pytest.mark.refmodel
@pytest.mark.parametrize(
    ("attrs", "dtype"),
    [
        (ops.Cast(), DType.INT16),
        (ops.Cast(), DType.FP32),
        (ops.BitwiseNot(), DType.INT8),
    ],
)
def test_casts_and_bits_see_the_old_values(attrs: Any, dtype: DType) -> None:
    net = Int8Net()
    x = net.requantize(net.int8(), DType.INT8, ONE, "in", input_zp=3, output_zp=-20)
    program = net.outputs(net.op(attrs, (x,), dtype, x.shape, "y"))
    made = widen(program)
    drawn = np.random.default_rng(0).integers(-128, 128, (1, 4, 4, 2))
    [old] = values(program, drawn.astype(np.int8))
    if made.program.main.inputs[0].dtype == DType.INT16:
        drawn = (drawn - 3) * 128
    [new] = values(made.program, drawn.astype(np.int16 if made.result.events else np.int8))
    np.testing.assert_array_equal(old, new)


@pytest.mark.refmodel
def test_int32_operators_that_need_the_old_integers_get_them() -> None:
    net = Int8Net()
    wide = net.widening(net.requantize(net.int8(), DType.INT8, ONE, "in", input_zp=3, output_zp=-20), -20, "wide")
    halved = net.op(ops.IntDiv(), (wide, net.const([[[[3]]]], DType.INT32, "three")), DType.INT32, wide.shape, "third")
    made = widen(net.outputs(net.narrowing(halved, 0, "y", (1 << 30, 29)), wide))
    assert any("INTDIV computes on the int32 values as they were" in reason for reason in made.reasons)
    assert made.same.max_difference <= 1


@pytest.mark.refmodel
def test_a_bias_computed_at_run_time_keeps_the_convolution() -> None:
    net = Int8Net()
    bias = net.input("bias", DType.INT32, (1,))
    operands = (
        net.int8(),
        net.const([[[[2, 3]]]], DType.INT8, "weight"),
        bias,
        net.const([-9], DType.INT8, "x_zp"),
        net.const([0], DType.INT8, "w_zp"),
    )
    attrs = ops.Conv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32)
    acc = net.op(attrs, operands, DType.INT32, (1, 4, 4, 1), "acc")
    made = widen(net.outputs(net.narrowing(acc, 0, "y", (1 << 30, 50))))
    assert made.of("CONV2D")[0].attrs == attrs
    assert "its operand bias is computed, not a constant" in made.reasons
    assert made.program.main.outputs[0].dtype == DType.INT16


@pytest.mark.refmodel
def test_weights_that_are_inputs_stay_int8() -> None:
    net = Int8Net()
    weight = net.int8("weight", (1, 1, 1, 2))
    operands = (
        net.int8(),
        weight,
        net.const([3], DType.INT32, "bias"),
        net.const([-9], DType.INT8, "x_zp"),
        net.const([0], DType.INT8, "w_zp"),
    )
    attrs = ops.Conv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32)
    acc = net.op(attrs, operands, DType.INT32, (1, 4, 4, 1), "acc")
    made = widen(net.outputs(net.narrowing(acc, 0, "y", (1518500250, 38))))
    assert [t.dtype for t in made.program.main.inputs] == [DType.INT8, DType.INT16]
    assert made.reasons == ["it holds weights of CONV2D, which stay int8"]
    assert made.same.max_difference <= 1


def test_custom_operators_stay_int8() -> None:
    net = Int8Net()
    x = net.requantize(net.int8(), DType.INT8, ONE, "in", input_zp=3, output_zp=-20)
    made_by = net.op(ops.Custom("magic", "domain", b""), (x,), DType.INT8, x.shape, "magic")
    y = net.requantize(made_by, DType.INT8, ONE, "y", input_zp=5, output_zp=4)
    made = widen(net.outputs(y), runs=False)
    [custom] = made.of("CUSTOM")
    assert (custom.inputs[0].dtype, custom.output.dtype) == (DType.INT8, DType.INT8)
    assert any('CUSTOM operator "magic"' in reason for reason in made.reasons)


@pytest.mark.parametrize("foreign", [False, True])
def test_state_stays_int8_in_order(foreign: bool) -> None:
    """READ, compute, WRITE: converted at both ends; a converter writes these as IDENTITY with another table."""
    net = Int8Net()
    x = net.requantize(net.int8("x", (1, 2)), DType.INT8, ONE, "in", input_zp=3, output_zp=-20)
    extras = TensorExtras(variable=True, variable_name="cell")
    cell = net.graph.add_tensor(Tensor("cell", DType.INT8, (1, 2), bytes(2), extras=extras))
    old = Tensor("old", DType.INT8, (1, 2))
    read, write = (
        Foreign(ops.Identity.NUMBER, attrs.NUMBER, attrs) if foreign else attrs
        for attrs in (ops.VariableRead(), ops.VariableWrite())
    )
    net.several(read, (cell,), (old,))
    net.several(write, (x,), (cell,))
    joined = net.concat([old, x], 0)
    made = widen(net.outputs(net.requantize(joined, DType.INT8, ONE, "y", input_zp=-20, output_zp=0)), runs=False)
    stateful = [op for op in made.program.main.ops if op.is_stateful]
    assert [op.attrs for op in stateful] == [read, write]
    touched = [t for op in stateful for t in (*op.inputs, *op.outputs)]
    assert {t.dtype for t in touched} == {DType.INT8}
    assert made.of("CONCAT")[0].output.dtype == DType.INT16
    assert len(made.reasons) == 2


@pytest.mark.refmodel
def test_only_the_island_reads_a_value_rounded_to_int8() -> None:
    net = Int8Net()
    x = net.int8()
    island = net.op(ops.Cast(), (x,), DType.INT16, x.shape, "cast")
    left, right = net.widening(x, 5, "left"), net.requantize(x, DType.INT8, (1518500250, 31), "y", input_zp=9)
    made = widen(net.outputs(island, left, right, x))
    [rounded] = [op for op in made.of("RESCALE") if op.output.dtype == DType.INT8]
    assert [user.name for user in rounded.output.users] == ["CAST"]
    assert len([op for op in made.of("RESCALE") if op.inputs[0].dtype == DType.INT16]) == 4  # one of them shifts z


@pytest.mark.refmodel
def test_dead_results_do_not_bring_a_second_run_about() -> None:
    net = Int8Net()
    x = net.int8()
    dead = net.requantize(x, DType.INT8, ONE, "dead", input_zp=5)
    net.requantize(dead, DType.INT32, ONE, "deader", input_zp=0)
    widen(net.outputs(net.requantize(x, DType.INT8, (1518500250, 31), "y", input_zp=5)), io="int8")
    made = widen(net.outputs(net.op(ops.ArgMax(axis=3, nan_mode=PROPAGATE), (x,), DType.INT32, (1, 4, 4), "argmax")))
    assert made.result.events


@pytest.mark.refmodel
def test_operators_on_int16_are_left_as_they_are() -> None:
    net = Int8Net()
    y = net.requantize(net.int8(), DType.INT8, (1518500250, 31), "y", input_zp=5)
    z = net.input("z", DType.INT16, (1, 4, 4, 2))
    zeros = [net.const([0], DType.INT16, f"zp{i}") for i in range(2)]
    attrs = ops.AvgPool2d(kernel=(2, 2), stride=(1, 1), pad=(0,) * 4, acc_type=DType.INT32)
    pooled = net.op(attrs, (z, *zeros), DType.INT16, (1, 3, 3, 2), "pooled")
    negated = net.op(ops.Negate(), (z, *zeros), DType.INT16, z.shape, "negated")
    product = net.op(ops.Mul(), (z, z, net.const([0], DType.INT8, "shift")), DType.INT32, z.shape, "product")
    made = widen(net.outputs(y, pooled, negated, product))
    assert [op.record.attrs for op in made.of("AVG_POOL2D")] == [attrs]
    assert made.same.max_difference <= 0.51


@pytest.mark.parametrize("slot", [1, 2, 3, 4])
def test_a_rescale_behind_an_accumulator_whose_numbers_are_no_constants_reads_the_old_values(slot: int) -> None:
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), np.full((3, 1, 1, 2), 5), [7, -3, 0])
    scaled = net.requantize(acc, DType.INT32, (1 << 30, 33), "scaled")
    opened = net.input("opened", scaled.producer.inputs[slot].dtype, (1,))  # type: ignore[union-attr]
    net.graph.set_operand(scaled.producer, slot, opened)  # type: ignore[arg-type]
    made = widen(net.outputs(scaled), runs=False)
    assert any("computes on the int32 values as they were" in reason for reason in made.reasons)
    assert [t.dtype for t in made.program.main.inputs] == [DType.INT16, opened.dtype]
    [rescale] = [op for op in made.of("RESCALE") if not op.inputs[slot].is_constant]
    assert (rescale.inputs[0].dtype, rescale.output.dtype) == (DType.INT32, DType.INT32)
