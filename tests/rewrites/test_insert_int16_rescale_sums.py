"""insert_int16_rescale on convolutions, MATMUL and RESIZE, against naive loops in exact arithmetic."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.int16 import (
    I8,
    I16,
    I32,
    I48,
    SUMS,
    Built,
    Net,
    Scale,
    accumulate,
    activations,
    bound_of,
    by_channel,
    fractions,
    furthest,
    names,
    require_contracts,
    weight_scales,
    weights,
)
from tosakit.engine.contract import Exact
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.operator import Attributes


@pytest.mark.refmodel
@pytest.mark.parametrize("form", ["one-step", "two-step"])
@pytest.mark.parametrize("kind", ["per-tensor", "per-channel"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_that_produced_int16_accumulate_in_int48(name: str, kind: str, form: str) -> None:
    scale_w = weight_scales(name, kind)
    scale_out = {"RESIZE": 0.02, "MATMUL": 0.9}.get(name, 0.5)
    row, built = SUMS[name], accumulate(name, I16, (0.013, scale_w, scale_out), zp=0 if name != "CONV2D" else 3)
    result = built.net.rewrite(form=form)
    assert names(built.net) == [name, "RESCALE"] + (["RESCALE"] if form == "two-step" else [])
    new = next(op for op in built.net.graph.ops if op.name == name)
    assert new.output.dtype == I48
    if row.bias:
        assert new.inputs[2].dtype == I48
        assert new.attrs.acc_type == I48  # type: ignore[attr-defined]
    scales = (
        Fraction(0.013) * (by_channel(name, scale_w) if name != "RESIZE" else Fraction(1, 12)) / Fraction(scale_out)
    )
    worst = Fraction(0)
    for number in range(6):
        arrays = [activations(row.x, number), activations(row.second, 5 - number)][: built.inputs]
        real = fractions(built.accumulators(row, arrays)) * scales
        worst = max(worst, furthest(real, built.net.run(*arrays)[0], I16))
    assert worst <= bound_of(result) <= (Fraction(3, 2) if form == "one-step" else Fraction(51, 100))
    assert worst > Fraction(1, 4)
    require_contracts(result)


@pytest.mark.refmodel
def test_a_bias_on_another_scale_is_brought_to_that_of_the_accumulator() -> None:
    bias = np.array([1000, -7, 3, 2_000_000])
    scales = (0.013, [0.004, 0.003, 0.002, 0.001], 0.5)
    built = accumulate("CONV2D", I16, scales, bias, bias_scale=[0.01, 0.3, 0.0007, 0.00002])
    result = built.net.rewrite()
    row = SUMS["CONV2D"]
    for number in range(6):
        x = activations(row.x, number)
        units = Fraction(0.013) * fractions(np.array(scales[1]))
        real = fractions(row.naive(x, built.w)) * units + fractions(bias) * fractions(
            np.array([0.01, 0.3, 0.0007, 0.00002])
        )
        assert furthest(real / Fraction(0.5), built.net.run(x)[0], I16) <= bound_of(result)
    require_contracts(result)


@pytest.mark.refmodel
@pytest.mark.parametrize("bias_dtype", [I32, I48])
@pytest.mark.parametrize("name", [name for name, row in SUMS.items() if row.bias])
def test_an_int48_result_only_needs_its_bias_and_acc_type_set(name: str, bias_dtype: DType) -> None:
    bias = np.full(SUMS[name].out[-1], -1 if bias_dtype == I32 else -(1 << 40))
    built = accumulate(name, I48, (None, None, None), bias, bias_dtype=bias_dtype)
    scaled = built.net.rescale(built.z, I32, [1 << 14], [30], False)
    built.net.outputs(built.z, scaled)
    result = built.net.rewrite()
    assert isinstance(result.events[0].contract, Exact)
    x = activations(SUMS[name].x, 4)
    assert np.array_equal(built.net.run(x)[0], built.accumulators(SUMS[name], [x]).astype(np.int64))
    require_contracts(result)


SMALL = 60  # weights small enough that int32 holds every accumulator of SUMS


def int32_sum(name: str) -> Built:
    w = None if not SUMS[name].bias else weights(SUMS[name].second, -SMALL, SMALL)
    return accumulate(name, I32, (None, None, None), w=w)


@pytest.mark.refmodel
@pytest.mark.parametrize("name", SUMS)
def test_rescales_of_an_int32_accumulator_read_int48(name: str) -> None:
    built, row = int32_sum(name), SUMS[name]
    m32, s32 = (1 << 30) + 12345, 45
    precise = built.net.rescale(built.z, I16, [m32], [s32], True)
    narrow = built.net.rescale(built.z, I8, [23272], [30], False, output_zp=-5)
    channels = [20000 + 100 * c for c in range(row.out[-1])]
    each = built.net.rescale(built.z, I32, channels, [29] * len(channels), False)
    built.net.outputs(precise, narrow, each)
    result = built.net.rewrite()
    assert names(built.net) == [name, "RESCALE", "RESCALE", "RESCALE"]
    for number in range(6):
        arrays = [activations(row.x, number), activations(row.second, 5 - number)][: built.inputs]
        acc = built.accumulators(row, arrays)
        outputs = built.net.run(*arrays)
        assert furthest(fractions(acc) * Fraction(m32, 1 << s32), outputs[0], I16) <= bound_of(result)
        half_up = [(acc * 23272 + (1 << 29)) // (1 << 30) - 5, (acc * channels + (1 << 28)) // (1 << 29)]
        for got, wanted, low, high in zip(outputs[1:], half_up, (-128, -(1 << 31)), (127, (1 << 31) - 1), strict=True):
            assert np.array_equal(got, np.clip(wanted, low, high))  # the same constants: bit-identical
    require_contracts(result)


@pytest.mark.refmodel
def test_an_int32_accumulator_read_by_16_bit_rescales_only_stays_exact() -> None:
    built = int32_sum("CONV2D")
    built.net.outputs(built.net.rescale(built.z, I16, [23272], [30], False))
    result = built.net.rewrite()
    assert isinstance(result.events[0].contract, Exact)
    require_contracts(result)


@pytest.mark.refmodel
@pytest.mark.parametrize("target", ["", "ethos-u85-256"])
def test_two_steps_keep_all_31_bits_and_never_copy_on_u85(target: str) -> None:
    built, row = int32_sum("CONV2D"), SUMS["CONV2D"]
    m32, s32 = 0x4ABCDEF1, 45
    built.net.outputs(built.net.rescale(built.z, I16, [m32], [s32], True))
    result = built.net.rewrite(form="two-step", target=target)
    rescales = [op for op in built.net.graph.ops if op.name == "RESCALE"]
    first, second = ([int(t.values()[0]) for t in op.inputs[1:3]] for op in rescales)
    assert first == [1 << 14, 15 if target else 14]
    assert second == [m32, s32 - 1 if target else s32]
    for number in range(6):
        x = activations(row.x, number)
        real = fractions(built.accumulators(row, [x])) * Fraction(m32, 1 << s32)
        assert furthest(real, built.net.run(x)[0], I16) <= bound_of(result) < Fraction(501, 1000)
    require_contracts(result)


@pytest.mark.refmodel
@pytest.mark.parametrize("name", [name for name in SUMS if name != "MATMUL"])  # whose products do not fit int32
def test_everything_else_reads_a_copy_where_int32_is_proved_to_hold_it(name: str) -> None:
    built, row = int32_sum(name), SUMS[name]
    moved = built.net.op(ops.Reverse(1), (built.z,), row.out, None, I32)
    scaled = built.net.rescale(built.z, I16, [23272], [30], False)
    built.net.outputs(built.z, moved, scaled, built.z)
    outputs = [t.name for t in built.net.graph.outputs]
    result = built.net.rewrite()
    assert isinstance(result.events[0].contract, Exact)
    assert [t.name for t in built.net.graph.outputs] == outputs
    for number in range(6):
        x = activations(row.x, number)
        acc = built.accumulators(row, [x]).astype(np.int64)
        z, reverse, third, again = built.net.run(x)
        assert np.array_equal(z, acc)
        assert np.array_equal(again, acc)
        assert np.array_equal(reverse, acc[:, ::-1])
        assert np.array_equal(third, np.clip((acc * 23272 + (1 << 29)) >> 30, -32768, 32767))
    require_contracts(result)


@pytest.mark.refmodel
def test_identities_are_looked_through_and_unread_accumulators_are_no_trap() -> None:
    """Field report C10: an accumulator read by a RESCALE, through an IDENTITY, and by the block's outputs."""
    built, row = int32_sum("CONV2D"), SUMS["CONV2D"]
    net = built.net
    hidden = net.op(ops.Identity(), (built.z,), row.out, None, I32)
    seen = net.op(ops.Identity(), (built.z,), row.out, None, I32)
    scaled = [net.rescale(x, I16, [23272], [30], False) for x in (built.z, hidden, seen)]
    net.outputs(*scaled, seen)
    result = net.rewrite()
    assert names(net) == ["CONV2D", "RESCALE", "RESCALE", "RESCALE", "RESCALE", "IDENTITY"]
    assert sum(op.name == "RESCALE" and op.inputs[0].dtype == I48 for op in net.graph.ops) == 4
    x = activations(row.x, 4)
    acc = built.accumulators(row, [x]).astype(np.int64)
    *rescaled, copy = net.run(x)
    assert np.array_equal(copy, acc)
    for array in rescaled:
        assert np.array_equal(array, np.clip((acc * 23272 + (1 << 29)) >> 30, -32768, 32767))
    require_contracts(result)
    unread = int32_sum("CONV2D")
    unread.net.outputs(unread.net.graph.inputs[0])
    assert len(unread.net.rewrite().events) == 1
    assert not unread.net.rewrite().events


def test_a_rescale_that_cannot_move_reads_the_copy() -> None:
    """Constants that are data, an input zero point, a multiplier of 0 or an unsigned result stay behind the copy."""
    for wrong in ("data", "zero point", "multiplier", "unsigned", "size"):
        built = int32_sum("CONV2D")
        net = built.net
        y = net.rescale(built.z, I16, [1 << 14] if wrong != "multiplier" else [0], [20], False)
        rescale = y.producer
        assert rescale is not None
        if wrong == "data":
            net.graph.set_operand(rescale, 1, net.input("m", (1,)))
        elif wrong == "zero point":
            net.graph.set_operand(rescale, 3, net.const("zero", [1], I32))
        elif wrong == "size":
            net.graph.set_operand(rescale, 2, net.const("shifts", [20, 20], I8))
        elif wrong == "unsigned":
            attrs = ops.Rescale(rounding_mode=RoundingMode.SINGLE_ROUND, output_unsigned=True)
            y = net.graph.add_op(Op(attrs, rescale.inputs, (Tensor("u", I16, y.shape),))).output
            net.graph.set_outputs([])
            net.graph.erase(rescale)
        net.outputs(y)
        assert isinstance(net.rewrite().events[0].contract, Exact)
        first, second = (op for op in net.graph.ops if op.name == "RESCALE")
        assert (first.inputs[0].dtype, first.output.dtype) == (I48, I32), wrong
        assert second.inputs[0] is first.output, wrong


def test_new_operators_keep_the_locations_of_the_old_ones() -> None:
    built = int32_sum("CONV2D")
    y = built.net.rescale(built.z, I16, [1 << 14], [20], False)
    assert built.z.producer is not None
    assert y.producer is not None
    built.z.producer.location, y.producer.location = "conv.py:1", "rescale.py:2"
    built.net.outputs(y)
    built.net.rewrite()
    assert [(op.name, op.location) for op in built.net.graph.ops if op.name != "CONST"] == [
        ("CONV2D", "conv.py:1"),
        ("RESCALE", "rescale.py:2"),
    ]


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a convolution that comes out even."""

    kernel: int
    stride: int
    dilation: int
    pad: tuple[int, int]
    size: int
    out: int


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    kernel, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    out, before, after = draw(st.integers(1, 4)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    size = (out - 1) * stride + (kernel - 1) * dilation + 1 - before - after
    if size < 1:
        size, before, after = size + before + after, 0, 0
    return Axis(kernel, stride, dilation, (before, after), size, out)


@st.composite
def convolutions(draw: st.DrawFn, kind: type[Attributes], known: bool = True) -> Net:
    """A convolution on int16 of any geometry, to INT16 by its scales or to an INT32 that a RESCALE reads.

    Without ``known`` it is to INT16, and nothing is known of the weights' scale.
    """
    space = [draw(axes()) for _ in range(3 if kind is ops.Conv3d else 2)]
    n, ic, oc = (draw(st.integers(1, 3)) for _ in range(3))
    kernel, size = tuple(a.kernel for a in space), tuple(a.size for a in space)
    out, stride = tuple(a.out for a in space), tuple(a.stride for a in space)
    pad, dilation = tuple(p for a in space for p in a.pad), tuple(a.dilation for a in space)
    attrs: Attributes
    if kind is ops.TransposeConv2d:
        pad = tuple(draw(st.integers(-((a.kernel - 1) // 2), 2)) for a in space for _ in range(2))
        out = tuple((a.size - 1) * a.stride + a.kernel + pad[2 * i] + pad[2 * i + 1] for i, a in enumerate(space))
        attrs = ops.TransposeConv2d(pad, stride, acc_type=I32)
    elif kind is ops.Conv3d:
        attrs = ops.Conv3d(pad, stride, dilation, acc_type=I32)
    elif kind is ops.Conv2d:
        attrs = ops.Conv2d(pad, stride, dilation, acc_type=I32)
    else:
        attrs = ops.DepthwiseConv2d(pad, stride, dilation, acc_type=I32)
    grouped = kind is ops.DepthwiseConv2d
    channels, shape = (ic * oc, (*kernel, ic, oc)) if grouped else (oc, (oc, *kernel, ic))
    axis = 2 if grouped else 0
    direct, rng = not known or draw(st.booleans()), np.random.default_rng(draw(st.integers(0, 1 << 20)))
    along_axis = [0.01 + 0.001 * i for i in range(shape[axis])]
    scale_w: Scale = draw(st.sampled_from([0.01, along_axis])) if direct and known else None
    zp, net = draw(st.sampled_from([0, -7])), Net()
    operands = (
        net.input("x", (n, *size, ic), 0.02),
        net.const("w", rng.integers(-128, 127, shape, endpoint=True), I8, scale_w, axis, zp),
        net.const("b", rng.integers(-(1 << 20), 1 << 20, draw(st.sampled_from([1, channels]))), I32),
        net.const("izp", [0]),
        net.const("wzp", [zp], I8),
    )
    z = net.op(attrs, operands, (n, *out, channels), 0.5 if direct else None, I16 if direct else I32)
    return net.outputs(z if direct else net.rescale(z, I16, [(1 << 30) + 98765], [44], True))


WINDOWS = [ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d]


@pytest.mark.parametrize("kind", WINDOWS)
def test_convolutions_without_a_weight_scale_are_refused_and_stay(kind: type[Attributes]) -> None:
    @settings(max_examples=5, deadline=None, derandomize=True)
    @given(convolutions(kind, known=False))
    def check(net: Net) -> None:
        before = dumps(net.program)
        [refused] = net.rewrite().refusals
        assert '"w"' in refused.reason
        assert dumps(net.program) == before

    check()


@pytest.mark.refmodel
@pytest.mark.parametrize("kind", WINDOWS)
def test_convolutions_of_any_geometry_fire_within_their_contract(kind: type[Attributes]) -> None:
    @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(convolutions(kind))
    def check(net: Net) -> None:
        result = net.rewrite()
        assert result.events
        assert not result.refusals
        require_contracts(result, vectors=3)
        assert not net.rewrite().events

    check()


def test_readers_behind_thousands_of_identities_are_found() -> None:
    """No recursion: a chain may be as long as a file."""
    built, row = int32_sum("CONV2D"), SUMS["CONV2D"]
    net, x = built.net, built.z
    for _ in range(3000):
        x = net.op(ops.Identity(), (x,), row.out, None, I32)
    net.outputs(net.rescale(x, I16, [23272], [30], False))
    result = net.rewrite()
    assert [event.contract for event in result.events] == [Exact()]
    assert names(net) == ["CONV2D", "RESCALE"]
