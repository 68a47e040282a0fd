"""Zero points are inferred by unification, and disagreements are resolved by adding the difference in int32."""

import numpy as np
import pytest

from rewrites._widen.zero_points import infer
from tests.support.int8 import ONE, Int8Net, Widened, values, widen
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import Tensor
from tosakit.ir.types import QuantParams


def _zero_point(made: Widened, name: str) -> int:
    [change] = [change for change in made.result.boundary if change.name == name]
    return change.zero_point


def _quantized(net: Int8Net, x: Tensor, zero_point: int, name: str = "y") -> Tensor:
    """A reader and writer that name zero points: ``zero_point`` for ``x``, 7 for the result."""
    return net.requantize(x, DType.INT8, (1518500250, 31), name, input_zp=zero_point, output_zp=7)


@pytest.mark.refmodel
def test_data_movement_passes_a_zero_point_back_to_the_input() -> None:
    net = Int8Net()
    y = net.op(ops.Transpose(perms=(0, 3, 1, 2)), (net.int8(),), DType.INT8, (1, 2, 4, 4), "moved")
    made = widen(net.outputs(_quantized(net, net.reshape(y, (2, 16)), -37)))
    assert _zero_point(made, "x") == -37
    assert _zero_point(made, "y") == 7


@pytest.mark.refmodel
def test_average_pool_with_equal_zero_points_fixes_nothing() -> None:
    net = Int8Net()
    made = widen(net.outputs(_quantized(net, net.average(net.int8(), -128, -128), -101)))
    assert _zero_point(made, "x") == -101


@pytest.mark.refmodel
def test_average_pool_with_unequal_zero_points_fixes_the_difference() -> None:
    net = Int8Net()
    made = widen(net.outputs(_quantized(net, net.average(net.int8(), -10, 20), -50)))
    assert _zero_point(made, "x") == -80


@pytest.mark.refmodel
def test_average_pool_whose_difference_leads_out_of_int8() -> None:
    """z(x) would be 127 + 100; the pool's own zero points are used, and readers get a conversion."""
    net = Int8Net()
    made = widen(net.outputs(_quantized(net, net.average(net.int8(), 100, 0), 127)))
    assert "ADD" in made.names


@pytest.mark.refmodel
def test_table_decouples_its_input_from_its_output() -> None:
    net = Int8Net()
    x = net.requantize(net.int8(), DType.INT8, ONE, "in", input_zp=3, output_zp=3)
    made = widen(net.outputs(_quantized(net, net.table(x, np.arange(-128, 128)), -90)))
    assert _zero_point(made, "x") == 3
    assert "ADD" not in made.names


@pytest.mark.refmodel
def test_a_pad_constant_is_a_hint_only_and_the_reader_wins() -> None:
    net = Int8Net()
    operands = (net.int8("x", (1, 3)), net.shape([0, 0, 1, 1], "padding"), net.const([55], DType.INT8, "value"))
    padded = net.op(ops.Pad(), operands, DType.INT8, (1, 5), "padded")
    assert _zero_point(widen(net.outputs(padded)), "x") == 55
    net.graph.set_outputs([])
    assert _zero_point(widen(net.outputs(_quantized(net, padded, -5))), "x") == -5


@pytest.mark.refmodel
def test_weights_behind_reshape_are_no_activations() -> None:
    net = Int8Net()
    weight = net.reshape(net.const([[3, -4], [5, 6]], DType.INT8, "flat"), (2, 1, 1, 2))
    operands = (
        net.int8(),
        weight,
        net.const([1, 2], DType.INT32, "bias"),
        net.const([-9], DType.INT8, "x_zp"),
        net.const([0], DType.INT8, "w_zp"),
    )
    attrs = ops.Conv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32)
    acc = net.op(attrs, operands, DType.INT32, (1, 4, 4, 2), "acc")
    made = widen(net.outputs(net.narrowing(acc, 0, "y", (1 << 30, 36))))
    [conv] = made.of("CONV2D")
    assert conv.inputs[1].dtype == DType.INT8
    assert not made.result.refusals
    assert "reshaped" not in {change.name for change in made.result.boundary}


@pytest.mark.refmodel
def test_readers_that_disagree_get_a_conversion() -> None:
    net = Int8Net()
    x = net.int8("x", (1, 16, 16, 1))
    program = net.outputs(_quantized(net, x, 5, "a"), _quantized(net, x, 5, "b"), _quantized(net, x, -60, "c"))
    made = widen(program)
    assert _zero_point(made, "x") == 5
    assert made.names.count("ADD") == 1
    assert any("read with zero point -60" in event.detail for event in made.result.events)
    every = np.arange(-128, 128, dtype=np.int8).reshape(1, 16, 16, 1)
    before = values(program, every)
    after = values(made.program, ((every.astype(np.int64) - 5) * 128).astype(np.int16))
    for old, new in zip(before, after, strict=True):
        assert np.abs(new / 128 + 7 - old).max() <= 0.51


@pytest.mark.refmodel
def test_concat_of_mixed_zero_points_converts_the_minority() -> None:
    net = Int8Net()
    parts = [_quantized(net, net.int8(f"x{i}"), 0, f"p{i}") for i in range(2)]
    other = net.requantize(net.int8("x2"), DType.INT8, ONE, "p2", output_zp=-100)
    joined = net.concat([*parts, other], 3)
    made = widen(net.outputs(_quantized(net, joined, 7)))
    assert made.names.count("ADD") == 1


@pytest.mark.refmodel
def test_a_constant_read_with_two_zero_points_is_cloned() -> None:
    net = Int8Net()
    shared = net.const(np.arange(8).reshape(1, 1, 4, 2) - 4, DType.INT8, "shared")
    joined = [net.concat([_quantized(net, net.int8(f"x{z}"), z, f"i{z}"), shared], 1, f"j{z}") for z in (1, 2)]
    wide = [net.requantize(j, DType.INT32, ONE, f"w{i}", input_zp=7 + i) for i, j in enumerate(joined)]
    made = widen(net.outputs(*wide))
    assert not made.result.refusals


@pytest.mark.refmodel
def test_nothing_fixes_it_so_the_annotation_does() -> None:
    net = Int8Net()
    x = net.int8()
    y = net.table(x, np.arange(-128, 128), "y")
    net.graph.annotate(x, QuantParams((0.5,), 12))
    net.graph.annotate(y, QuantParams((0.25,), -128))
    made = widen(net.outputs(y))
    assert (_zero_point(made, "x"), _zero_point(made, "y")) == (12, -128)
    assert made.program.main.inputs[0].quantization == QuantParams((0.5 / 128,), 0)
    assert made.program.main.outputs[0].quantization == QuantParams((0.25 / 128,), 0)
    assert "Nothing fixes" not in made.result.events[0].detail


@pytest.mark.refmodel
def test_nothing_fixes_it_at_all_so_the_offset_is_reported() -> None:
    net = Int8Net()
    made = widen(net.outputs(net.table(net.int8(), np.arange(-128, 128), "y")))
    assert (_zero_point(made, "x"), _zero_point(made, "y")) == (0, 0)
    assert 'Nothing fixes the zero point of "x", "y"' in made.result.events[0].detail


@pytest.mark.refmodel
def test_a_fact_wins_over_an_annotation() -> None:
    net = Int8Net()
    x = net.int8()
    net.graph.annotate(x, QuantParams((0.5,), 12))
    assert _zero_point(widen(net.outputs(_quantized(net, x, -3))), "x") == -3


@pytest.mark.refmodel
@pytest.mark.parametrize("shift", [34, 35])
def test_resize_and_division_by_its_weights_is_data_movement(shift: int) -> None:
    """With scale 1/16 the RESCALE's output_zp 0 says nothing; with another scale it is the zero point."""
    net = Int8Net()
    x = net.int8("x", (1, 3, 3, 2))
    y = net.narrowing(net.resize(x, ResizeMode.BILINEAR), 0, "y", (1 << 30, shift))
    program = net.outputs(net.requantize(y, DType.INT8, ONE, "z", input_zp=-44, output_zp=-44))
    zero_points = infer({block: block.ops for block in program.blocks}, [])
    assert zero_points[x] == (-44 if shift == 34 else 0)
    made = widen(program)
    assert _zero_point(made, "x") == zero_points[x]
