"""int8 saturation is made explicit, and left out where readers or intervals make it needless."""

import numpy as np
import pytest

from tests.support.int8 import ONE, Int8Net, values, widen
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.program import Program
from tosakit.ir.types import decode, encode

BIG = (1 << 30, 29)
"""Scale 2: half of the codes saturate."""


def _program(zero_point: int, then: str = "") -> Program:
    net = Int8Net()
    x = net.int8("x", (1, 16, 16, 1))
    y = net.requantize(x, DType.INT8, BIG, "y", input_zp=zero_point, output_zp=zero_point)
    if then == "table":
        y = net.table(net.reshape(y, (256,)), np.arange(-128, 128))
    elif then == "clamp":
        ends = [encode(np.array([end]), DType.INT8) for end in (-50, 60)]
        y = net.op(ops.Clamp(ends[0], ends[1], NanPropagationMode.PROPAGATE), (y,), DType.INT8, y.shape, "clamped")
    elif then == "table and output":
        return net.outputs(net.table(y, np.arange(-128, 128)), y)
    return net.outputs(y)


@pytest.mark.refmodel
@pytest.mark.parametrize("zero_point", [-128, -5, 127])
def test_a_narrowing_rescale_is_followed_by_its_clamp(zero_point: int) -> None:
    made = widen(_program(zero_point))
    [clamp] = made.of("CLAMP")
    ends = [int(decode(bytes(end), DType.INT16, (1,))[0]) for end in (clamp.attrs.min_val, clamp.attrs.max_val)]  # type: ignore[attr-defined]
    assert ends == [(-128 - zero_point) * 128, (127 - zero_point) * 128]
    assert clamp.output.name == "y"
    assert made.same.max_difference <= 0.5


@pytest.mark.refmodel
@pytest.mark.parametrize(("zero_point", "ends"), [(-128, [0, 32767]), (127, [-32768, 0]), (0, None)])
def test_saturating_ends_only(zero_point: int, ends: list[int] | None) -> None:
    made = widen(_program(zero_point), clamp="saturating-ends")
    clamps = made.of("CLAMP")
    found = [
        [int(decode(bytes(end), DType.INT16, (1,))[0]) for end in (op.attrs.min_val, op.attrs.max_val)]  # type: ignore[attr-defined]
        for op in clamps
    ]
    assert found == ([] if ends is None else [ends])


@pytest.mark.refmodel
@pytest.mark.parametrize("then", ["table", "clamp"])
def test_no_clamp_where_every_reader_saturates(then: str) -> None:
    made = widen(_program(-5, then))
    assert len(made.of("CLAMP")) == (then == "clamp")
    every = np.arange(-128, 128).reshape(1, 16, 16, 1)
    [old] = values(made.before, every.astype(np.int8))
    [new] = values(made.program, ((every + 5) * 128).astype(np.int16))
    change = made.result.boundary[-1]
    np.testing.assert_array_equal(new / 128 + change.zero_point, old)


@pytest.mark.refmodel
def test_a_clamp_stays_where_one_reader_needs_it() -> None:
    assert len(widen(_program(-5, "table and output")).of("CLAMP")) == 1


@pytest.mark.refmodel
def test_a_clamp_that_intervals_prove_redundant_is_dropped() -> None:
    net = Int8Net()
    half = net.requantize(net.int8(), DType.INT8, (1 << 30, 32), "half", input_zp=0, output_zp=1)
    made = widen(net.outputs(half))
    assert not made.of("CLAMP")
    assert made.program.main.outputs[0].name == "half"
    assert any("no CLAMP" in event.detail for event in made.result.events)
    assert len(widen(net.outputs(net.requantize(half, DType.INT8, ONE, "y", input_zp=90))).of("CLAMP")) == 1
