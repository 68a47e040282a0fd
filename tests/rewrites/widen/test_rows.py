"""Every operator row of the widening, against the int8 graph on all of the old grid and the local contract."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.int8 import EVERY_INT8, ONE, Int8Net, values, widen
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import encode

PROPAGATE = NanPropagationMode.PROPAGATE
SMALL = (1518500250, 36)
"""Scale 0.0221, which no 15-bit multiplier equals."""


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(-127, 128, shape)


def _conv2d() -> Program:
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), _weights(3, 2, 2, 2), [100, -2000, 31], zero_point=-7)
    return net.outputs(
        net.requantize(acc, DType.INT8, ([1 << 30, 1518500250, 1 << 30], [38, 37, 36]), "y", output_zp=9)
    )


def _conv_any(kind: type[ops.Conv3d | ops.DepthwiseConv2d | ops.TransposeConv2d], weight_zp: int = 0) -> Program:
    net = Int8Net()
    attrs: Attributes
    if kind is ops.Conv3d:
        x, weight = net.int8("x", (1, 3, 4, 4, 2)), _weights(3, 2, 2, 2, 2)
        attrs, shape = (
            ops.Conv3d(pad=(0,) * 6, stride=(1,) * 3, dilation=(1,) * 3, acc_type=DType.INT32),
            (1, 2, 3, 3, 3),
        )
    elif kind is ops.DepthwiseConv2d:
        x, weight = net.int8("x", (2, 4, 4, 2)), _weights(2, 2, 2, 3)
        attrs = ops.DepthwiseConv2d(pad=(1, 0, 0, 1), stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32)
        shape = (2, 4, 4, 6)
    else:
        x, weight = net.int8("x", (1, 3, 3, 2)), _weights(4, 2, 2, 2)
        attrs, shape = ops.TransposeConv2d(out_pad=(0,) * 4, stride=(2, 2), acc_type=DType.INT32), (1, 6, 6, 4)
    operands = (
        x,
        net.const(weight, DType.INT8, "weight"),
        net.const([-77], DType.INT32, "bias"),  # one bias for all channels
        net.const([5], DType.INT8, "x_zp"),
        net.const([weight_zp], DType.INT8, "weight_zp"),
    )
    acc = net.op(attrs, operands, DType.INT32, shape, "acc")
    return net.outputs(net.narrowing(acc, -100, "y", (1518500250, 37)))


def _matmul() -> Program:
    net = Int8Net()
    a, b = net.int8("a", (2, 3, 5)), net.int8("b", (2, 5, 4))
    zeros = [net.const([z], DType.INT8, f"zp{z}") for z in (3, 120)]
    acc = net.op(ops.MatMul(), (a, b, *zeros), DType.INT32, (2, 3, 4), "acc")
    return net.outputs(net.narrowing(acc, -5, "y", (1518500250, 38)))


def _add(scales: tuple[tuple[int, int], tuple[int, int]], attrs: Attributes) -> Program:
    net = Int8Net()
    a, b = net.int8("a"), net.int8("b", (1, 1, 4, 2))
    left, right = net.widening(a, 3, "left", scales[0]), net.widening(b, -100, "right", scales[1])
    total = net.op(attrs, (left, right), DType.INT32, a.shape, "total")
    log2 = 30 + int(np.ceil(np.log2(max(m / 2.0**s for m, s in scales))))
    return net.outputs(net.narrowing(total, 11, "y", (1073741900, log2)))


def _mul() -> Program:
    net = Int8Net()
    a, b = net.int8("a"), net.int8("b")
    product = net.op(
        ops.Mul(),
        (net.widening(a, -128, "left"), net.widening(b, 4, "right"), net.const([0], DType.INT8, "shift")),
        DType.INT32,
        a.shape,
        "product",
    )
    return net.outputs(net.narrowing(product, -30, "y", (1518500250, 38)))


def _mul_int8() -> Program:
    net = Int8Net()
    a, b = net.int8("a"), net.int8("b")
    product = net.op(ops.Mul(), (a, b, net.const([0], DType.INT8, "shift")), DType.INT32, a.shape, "product")
    return net.outputs(net.narrowing(product, 0, "y", (1518500250, 37)))


def _reduce(attrs: Attributes, scale: tuple[int, int]) -> Program:
    net = Int8Net()
    wide = net.widening(net.int8("x", (1, 4, 8, 2)), -9, "wide")
    total = net.op(attrs, (wide,), DType.INT32, (1, 4, 1, 2), "total")
    return net.outputs(net.narrowing(total, 1, "y", scale))


def _unary(attrs: Attributes) -> Program:
    net = Int8Net()
    wide = net.widening(net.int8(), 17, "wide", (1518500250, 29))
    made = net.op(attrs, (wide,), DType.INT32, wide.shape, "made")
    return net.outputs(net.narrowing(made, -8, "y", (1518500250, 32)))


def _select() -> Program:
    net = Int8Net()
    a, b = net.int8("a"), net.int8("b")
    left, right = net.widening(a, 3, "left"), net.widening(b, 3, "right")
    greater = net.op(ops.Greater(), (left, right), DType.BOOL, a.shape, "greater")
    return net.outputs(net.op(ops.Select(), (greater, a, b), DType.INT8, a.shape, "y"), greater)


def _int8_to_int8(attrs: Attributes, shape: tuple[int, ...]) -> Program:
    """One operator on an int8 tensor whose zero point a RESCALE fixes."""
    net = Int8Net()
    x = net.int8("x", (1, 4, 4, 2))
    y = net.op(attrs, (x,), DType.INT8, shape, "y")
    return net.outputs(net.requantize(y, DType.INT8, (1518500250, 30), "z", input_zp=-19, output_zp=40))


def _pad() -> Program:
    net = Int8Net()
    x = net.int8()
    padding = net.shape([0, 0, 1, 2, 0, 1, 0, 0], "padding")
    y = net.op(ops.Pad(), (x, padding, net.const([-3], DType.INT8, "value")), DType.INT8, (1, 7, 5, 2), "y")
    return net.outputs(net.widening(y, -6, "wide"), y)


def _negate() -> Program:
    net = Int8Net()
    x = net.int8("x", (1, 16, 16, 1))
    zeros = [net.const([z], DType.INT8, f"zp{z}") for z in (5, -9)]
    return net.outputs(net.op(ops.Negate(), (x, *zeros), DType.INT8, x.shape, "y"))


def _gather() -> Program:
    net = Int8Net()
    x = net.int8("x", (2, 5, 3))
    y = net.op(ops.Gather(), (x, net.const([[4, 0], [1, 1]], DType.INT32, "index")), DType.INT8, (2, 2, 3), "y")
    index = net.const([[3, 1], [0, 2]], DType.INT32, "places")
    return net.outputs(net.op(ops.Scatter(), (x, index, y), DType.INT8, (2, 5, 3), "z"))


def _argmax() -> Program:
    net = Int8Net()
    return net.outputs(net.op(ops.ArgMax(axis=2, nan_mode=PROPAGATE), (net.int8(),), DType.INT32, (1, 4, 2), "y"))


def _pooled(input_zp: int, output_zp: int) -> Program:
    net = Int8Net()
    y = net.average(net.int8(), input_zp, output_zp)
    return net.outputs(net.requantize(y, DType.INT8, (1518500250, 31), "z", input_zp=output_zp, output_zp=-1))


def _resize(mode: ResizeMode, scale: tuple[int, int] = (1 << 30, 34)) -> Program:
    net = Int8Net()
    x = net.int8("x", (1, 3, 3, 2))
    y = net.resize(x, mode)
    if mode == ResizeMode.BILINEAR:
        y = net.narrowing(y, 0, "y", scale)
    return net.outputs(net.requantize(y, DType.INT8, (1518500250, 31), "z", input_zp=20, output_zp=-1))


def _rescale(scale32: bool, scale: tuple[int, int], mode: RoundingMode = RoundingMode.SINGLE_ROUND) -> Program:
    net = Int8Net()
    x = net.int8("x", (1, 16, 16, 1))
    return net.outputs(
        net.requantize(x, DType.INT8, scale, "y", input_zp=-3, output_zp=88, scale32=scale32, rounding_mode=mode)
    )


def _moved_accumulator(matmul: bool) -> Program:
    net = Int8Net()
    if matmul:
        zeros = [net.const([z], DType.INT8, f"zp{z}") for z in (3, -20)]
        acc = net.op(
            ops.MatMul(), (net.int8("a", (1, 3, 5)), net.int8("b", (1, 5, 4)), *zeros), DType.INT32, (1, 3, 4), "acc"
        )
        moved = net.op(ops.Transpose(perms=(0, 2, 1)), (acc,), DType.INT32, (1, 4, 3), "moved")
    else:
        acc = net.conv2d_int8(net.int8(), _weights(3, 1, 1, 2), [1, 2, 3], zero_point=-7)
        moved = net.reshape(acc, (16, 3), "moved")
    return net.outputs(net.narrowing(moved, 4, "y", (1518500250, 38)))


def _clamp(low: int, high: int) -> Attributes:
    ends = [encode(np.array([end]), DType.INT8) for end in (low, high)]
    return ops.Clamp(min_val=ends[0], max_val=ends[1], nan_mode=PROPAGATE)


FAR = ((1 << 30, 11), (1518500250, 20))
NEAR = (ONE, (1518500250, 31))
PROGRAMS: dict[str, Callable[[], Program]] = {
    "conv2d per channel": _conv2d,
    "conv3d": lambda: _conv_any(ops.Conv3d),
    "depthwise": lambda: _conv_any(ops.DepthwiseConv2d),
    "transpose conv, weight zero point": lambda: _conv_any(ops.TransposeConv2d, weight_zp=3),
    "matmul": _matmul,
    "mul": _mul,
    "mul int8": _mul_int8,
    "add, 20 bits": lambda: _add(FAR, ops.Add()),
    "add, scale one": lambda: _add(NEAR, ops.Add()),
    "sub, 20 bits": lambda: _add(FAR, ops.Sub()),
    "maximum": lambda: _add(NEAR, ops.Maximum(nan_mode=PROPAGATE)),
    "minimum": lambda: _add(NEAR, ops.Minimum(nan_mode=PROPAGATE)),
    "reduce_sum": lambda: _reduce(ops.ReduceSum(axis=2), (1518500250, 33)),
    "reduce_max int32": lambda: _reduce(ops.ReduceMax(axis=2, nan_mode=PROPAGATE), (1518500250, 31)),
    "abs": lambda: _unary(ops.Abs()),
    "select, greater": _select,
    "clamp": lambda: _int8_to_int8(_clamp(-40, 90), (1, 4, 4, 2)),
    "max_pool": lambda: _int8_to_int8(
        ops.MaxPool2d(kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, nan_mode=PROPAGATE), (1, 2, 2, 2)
    ),
    "reduce_min": lambda: _int8_to_int8(ops.ReduceMin(axis=1, nan_mode=PROPAGATE), (1, 1, 4, 2)),
    "reverse": lambda: _int8_to_int8(ops.Reverse(axis=1), (1, 4, 4, 2)),
    "transpose": lambda: _int8_to_int8(ops.Transpose(perms=(0, 3, 1, 2)), (1, 2, 4, 4)),
    "identity": lambda: _int8_to_int8(ops.Identity(), (1, 4, 4, 2)),
    "pad": _pad,
    "negate": _negate,
    "gather, scatter": _gather,
    "argmax": _argmax,
    "avg_pool, equal zero points": lambda: _pooled(-128, -128),
    "avg_pool, unequal zero points": lambda: _pooled(-10, 15),
    "resize nearest": lambda: _resize(ResizeMode.NEAREST),
    "resize bilinear as data movement": lambda: _resize(ResizeMode.BILINEAR),
    "resize bilinear with a scale": lambda: _resize(ResizeMode.BILINEAR, (1518500250, 35)),
    "rescale S32": lambda: _rescale(True, (1518500250, 30)),
    "rescale S16": lambda: _rescale(False, (23170, 15)),
    "rescale double round": lambda: _rescale(True, (1518500250, 32), RoundingMode.DOUBLE_ROUND),
    "rescale zero scale": lambda: _rescale(True, (0, 30)),
    "accumulator through reshape": lambda: _moved_accumulator(False),
    "matmul accumulator through transpose": lambda: _moved_accumulator(True),
}
FORMS = [{}, {"rescale_form": "two-step", "smooth": True}]
CHANGED_BORDERS = [
    "conv2d per channel",
    "matmul",
    "negate",
    "resize bilinear as data movement",
    "avg_pool, equal zero points",
]


def _int8_activations(program: Program) -> list[str]:
    """Names of computed int8 tensors that are no outputs."""
    results = [t for op in program.main.ops if op.name != "CONST" for t in op.outputs]
    return [t.name for t in results if t.dtype == DType.INT8 and program.main.exit not in t.users]


@pytest.mark.refmodel
@pytest.mark.parametrize("options", FORMS, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_row(name: str, options: dict[str, str | bool]) -> None:
    """``widen`` checks legality, the interface, validity, the local contract, idempotence and determinism."""
    made = widen(PROGRAMS[name](), **options)
    assert made.result.events
    assert not made.result.refusals
    assert not _int8_activations(made.program)
    assert made.same.max_difference <= 1.51  # the int8 graph rounds twice where two int8 operators follow each other


@pytest.mark.refmodel
@pytest.mark.parametrize("name", CHANGED_BORDERS)
def test_row_with_an_int8_interface(name: str) -> None:
    made = widen(PROGRAMS[name](), io="int8")
    assert made.result.events
    assert not made.result.boundary
    assert not _int8_activations(made.program)
    assert {t.dtype for t in (*made.program.main.inputs, *made.program.main.outputs)} == {DType.INT8}
    assert made.same.max_difference <= 1


@pytest.mark.refmodel
@pytest.mark.parametrize(("zp_in", "zp_out"), [(0, 0), (-128, -128), (127, 127), (-128, 127), (3, -60)])
def test_table_is_exact_on_the_old_grid(zp_in: int, zp_out: int) -> None:
    entries = np.random.default_rng(1).permutation(np.arange(-128, 128))
    net = Int8Net()
    x = net.int8("x", (1, 16, 16, 1))
    y = net.table(net.requantize(x, DType.INT8, ONE, "in", input_zp=zp_in, output_zp=zp_in), entries)
    program = net.outputs(net.requantize(y, DType.INT8, ONE, "y", input_zp=zp_out, output_zp=zp_out))
    made = widen(program)
    [int8_result] = values(program, EVERY_INT8)
    [int16_result] = values(made.program, ((EVERY_INT8.astype(np.int64) - zp_in) * 128).astype(np.int16))
    np.testing.assert_array_equal(int16_result, (int8_result.astype(np.int64) - zp_out) * 128)


@pytest.mark.refmodel
def test_between_grid_points_a_table_interpolates() -> None:
    net = Int8Net()
    entries = np.clip(np.arange(-128, 128) * 2, -128, 127)
    program = net.outputs(net.table(net.int8("x", (1, 3)), entries))
    [result] = values(widen(program).program, np.array([[64, 100 * 128, -32768]], np.int16))
    assert result.tolist() == [[128, 127 * 128, -128 * 128]]


@pytest.mark.refmodel
def test_int4_weights_are_unpacked() -> None:
    net = Int8Net()
    weight = np.random.default_rng(2).integers(-8, 8, (3, 1, 1, 3))
    acc = net.conv2d_int8(net.int8("x", (1, 4, 4, 3)), weight, [5, 6, 7], 12, weight_dtype=DType.INT4)
    made = widen(net.outputs(net.narrowing(acc, 0, "y", (1518500250, 34))))
    [conv] = made.of("CONV2D")
    assert conv.inputs[1].dtype == DType.INT8
    np.testing.assert_array_equal(conv.inputs[1].values(), weight)
    assert conv.inputs[4].dtype == DType.INT8


@pytest.mark.refmodel
def test_bias_is_128_times_the_old_one_also_beyond_int32() -> None:
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), [[[[1, 1]]]], [(1 << 31) - 1000])
    made = widen(net.outputs(net.narrowing(acc, 0, "y", (1 << 30, 55))))
    [conv] = made.of("CONV2D")
    assert conv.inputs[2].dtype == DType.INT48
    assert conv.inputs[2].values().tolist() == [((1 << 31) - 1000) * 128]
    assert conv.attrs.acc_type == DType.INT48  # type: ignore[attr-defined]
