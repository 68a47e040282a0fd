"""insert_int16_rescale: what it refuses, in which words, and random nets that it must get right or leave alone."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewrites.insert_int16_rescale import CONVERTERS, RULE, Options
from tests.support.int16 import (
    BINARY,
    BOOL,
    COMPARISONS,
    I8,
    I16,
    I32,
    IDENTITY_TABLE,
    LIMITS,
    SHARED,
    SUMS,
    Net,
    Scale,
    accumulate,
    binary,
    require_contracts,
    table_net,
    weights,
)
from tosakit.engine.contract import Exact, WithinLsb
from tosakit.engine.driver import run_steps
from tosakit.errors import InvalidArgument
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import Array, QuantParams


def with_operand(name: str, dtype: DType) -> Net:
    net = Net()
    a, b = net.input("a", (4,), 0.5), net.input("b", (4,), 0.5, dtype)
    extra = (net.const("shift", [0], I8),) if name == "MUL" else ()
    return net.outputs(net.op(BINARY[name][0], (a, b, *extra), (4,), 0.5))


def unary(attrs: Attributes, shape: Sequence[int], out: Sequence[int], scales: Sequence[Scale]) -> Net:
    net = Net()
    return net.outputs(net.op(attrs, (net.input("x", shape, scales[0]),), out, scales[1]))


def conv_with(**changes: Any) -> Net:
    """A CONV2D to INT16 with one operand or parameter changed."""
    built = accumulate("CONV2D", changes.pop("dtype", I16), changes.pop("scales", (0.5, 0.5, 0.5)))
    net = built.net
    conv = next(op for op in net.graph.ops if op.name == "CONV2D")
    for slot, tensor in changes.items():
        net.graph.set_operand(conv, int(slot[1:]), tensor(net))
    return net


def steep_table() -> Array:
    entries = IDENTITY_TABLE.copy()
    entries[100], entries[101] = -32768, 32767
    return entries


def nearest() -> Net:
    built = accumulate("RESIZE", I32, (0.5, None, 0.5))
    [resize] = [op for op in built.net.graph.ops if op.name == "RESIZE"]
    net = built.net
    net.outputs(net.op(ops.Resize(ResizeMode.NEAREST), resize.inputs, resize.output.shape, 0.5, I32))
    net.graph.erase(resize)
    return net


def on_axis(name: str, tensor: str, axis: int, count: int) -> Net:
    net = accumulate(name, I16, (0.5, 0.5, 0.5)).net
    net.graph.annotate(net.graph.tensor(tensor), QuantParams((0.1,) * count, 0, axis))
    return net


def out_of_range_reader() -> Net:
    built = accumulate("CONV2D", I32, (None, None, None))
    return built.net.outputs(built.net.rescale(built.z, I16, [32767], [2], False))


def long_product() -> Net:
    net = Net()
    operands = (net.input("a", (1, 1, 140_000), 1.0), net.input("b", (1, 140_000, 1), 1.0))
    zeros = (net.const("azp", [0]), net.const("bzp", [0]))
    return net.outputs(net.op(ops.MatMul(), (*operands, *zeros), (1, 1, 1), 1e9))


def opposite() -> Net:
    """A difference that reaches twice as far as either operand, as far as no RESCALE to this scale goes."""
    net = Net()
    clamped = [net.clamp(net.input("x", (4,), 1.0), 0, 32767), net.clamp(net.input("y", (4,), 1.0), -32768, 0)]
    return net.outputs(net.op(ops.Sub(), clamped, (4,), 1 / (2048 * 20)))


TWO_TO_20 = (1.0, 2.0**-20, 1.0)
REFUSALS: dict[str, tuple[Callable[[], Net], list[str]]] = {
    "no scale of an operand": (lambda: binary("ADD", ((4,), (4,)), (0.5, None, 0.5)), ['"b"', "qparams.json"]),
    "no scale of the result": (lambda: binary("MUL", ((4,), (4,)), (0.5, 0.5, None)), ['"z"', "qparams.json"]),
    "no scale to compare": (lambda: binary("GREATER", ((4,), (4,)), (None, 1.0, None), BOOL), ['"a"', "qparams.json"]),
    "no scale, ABS": (lambda: unary(ops.Abs(), (4,), (4,), (None, 0.5)), ['"x"', "qparams.json"]),
    "no scale, REDUCE_SUM": (lambda: unary(ops.ReduceSum(0), (4,), (1,), (0.5, None)), ['"z"', "qparams.json"]),
    "no scale, TABLE": (lambda: table_net(IDENTITY_TABLE, (4,), 0.5, None), ['"z"', "qparams.json"]),
    "no scale, CONV2D input": (lambda: conv_with(scales=(None, 0.5, 0.5)), ['"x"', "qparams.json"]),
    "no scale, CONV2D weight": (lambda: conv_with(scales=(0.5, None, 0.5)), ['"w"', "qparams.json"]),
    "no scale, CONV2D result": (lambda: conv_with(scales=(0.5, 0.5, None)), ['"z"', "qparams.json"]),
    "no scale, MATMUL": (lambda: accumulate("MATMUL", I16, (0.5, None, 0.5)).net, ['"y"', "qparams.json"]),
    "no scale, RESIZE": (lambda: accumulate("RESIZE", I16, (None, None, 0.5)).net, ['"x"', "qparams.json"]),
    "mixed ADD": (lambda: with_operand("ADD", I32), ["INT16 and INT32"]),
    "mixed MUL": (lambda: with_operand("MUL", I32), ["INT16 and INT32"]),
    "mixed MAXIMUM": (lambda: with_operand("MAXIMUM", I8), ["INT16 and INT8"]),
    "INT8 result": (lambda: binary("SUB", ((4,), (4,)), (0.5, 0.5, 0.5), I8), ["to INT8"]),
    "unequal ranks": (lambda: binary("ADD", ((2, 4), (4,)), (0.5, 0.5, 0.5)), ["[2, 4]", "[4]", "equal ranks"]),
    "scales along an axis": (lambda: binary("ADD", ((4,), (4,)), ([0.1] * 4, 0.5, 0.5)), ['"a"', "4 scales"]),  # type: ignore[arg-type]
    "MAXIMUM, ratio 2^20": (lambda: binary("MAXIMUM", ((4,), (4,)), TWO_TO_20), ['"a"', "1.04858e+06", "32768"]),
    "EQUAL, ratio 2^20": (lambda: binary("EQUAL", ((4,), (4,)), (*TWO_TO_20[:2], None), BOOL), ['"a"', "1.04858e+06"]),
    "ADD, tiny result scale": (lambda: binary("ADD", ((4,), (4,)), (1.0, 1.0, 1e-6)), ['"z"', "RESCALE"]),
    "SUB of opposite signs": (opposite, ["134215680", "RESCALE"]),
    "MUL, shift": (lambda: binary("MUL", ((4,), (4,)), (0.5, 0.5, 0.5), shift=3), ['"shift"', "3"]),
    "MUL, huge product": (lambda: binary("MUL", ((4,), (4,)), (64.0, 64.0, 1.0)), ["4096"]),
    "INTDIV by 0": (lambda: binary("INTDIV", ((4,), (4,)), (1.0, 1.0, 1.0)), ['"b"', "can be 0"]),
    "REDUCE_SUM, long axis": (
        lambda: unary(ops.ReduceSum(0), (70000,), (1,), (1.0, 1.0)),
        ["70000", "2293760000", "int32"],
    ),
    "REDUCE_SUM, no axis": (lambda: unary(ops.ReduceSum(3), (4,), (1,), (1.0, 1.0)), ["axis 3"]),
    "TABLE of 256": (lambda: table_net(np.zeros(256, int), (4,), 0.5, 0.5), ['"table"', "[256]", "513"]),
    "TABLE too steep": (lambda: table_net(steep_table(), (4,), 0.5, 0.5), ['"table"', "100 and 101"]),
    "INT16 weights": (
        lambda: conv_with(_1=lambda n: n.const("w16", weights((4, 3, 2, 3)), I16, 0.5)),
        ['"w16"', "INT16"],
    ),
    "input zero point": (lambda: conv_with(_3=lambda n: n.const("izp5", [5])), ['"izp5"', "5"]),
    "weight zero points disagree": (lambda: conv_with(_4=lambda n: n.const("wzp7", [7], I8)), ['"w"', "7"]),
    "bias as data": (lambda: conv_with(_2=lambda n: n.input("bias", (4,), None, I32)), ['"bias"', "not constant"]),
    "bias beyond INT48": (
        lambda: conv_with(scales=(1e-9, 1e-9, 1.0), _2=lambda n: n.const("big", [1 << 30] * 4, I32, 1.0)),
        ['"big"', "INT48"],
    ),
    "INT8 result of a sum": (lambda: conv_with(dtype=I8), ["INT16 to INT8"]),
    "sum, scale too large": (lambda: conv_with(scales=(1.0, 1.0, 1e-4)), ["16-bit", "10000"]),
    "sum beyond RESCALE": (lambda: conv_with(scales=(1.0, 1.0, 1e-2)), ["RESCALE", "by 100 ", "outside"]),
    "INT32 accumulator that may overflow": (
        lambda: accumulate("MATMUL", I32, (None, None, None)).net,
        ['"z"', "4294967296", "int32", "OUTPUT"],
    ),
    "reader beyond RESCALE": (out_of_range_reader, ["32767, 2", "outside"]),
    "MATMUL scales, wrong axis": (lambda: on_axis("MATMUL", "y", 1, 4), ['"y"', "axis 1"]),
    "CONV2D scales, wrong axis": (lambda: on_axis("CONV2D", "w", 3, 3), ['"w"', "axis 3"]),
    "DEPTHWISE scales, wrong axis": (lambda: on_axis("DEPTHWISE_CONV2D", "w", 0, 2), ['"w"', "axis 0"]),
    "sum beyond INT48": (long_product, [str(140_000 << 30), "INT48"]),
    "NEAREST to INT32": (nearest, ["NEAREST", "INT32"]),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_refuses_with_the_reason_and_changes_nothing(kind: str) -> None:
    make, words = REFUSALS[kind]
    net = make()
    before = dumps(net.program)
    result = net.rewrite()
    assert not result.events
    [refusal] = result.refusals
    for word in words:
        assert word in refusal.reason, refusal.reason
    assert dumps(net.program) == before


@pytest.mark.parametrize("tensor", ["a", "b", "z"])
def test_a_zero_point_on_int16_is_an_error_that_names_the_tensor(tensor: str) -> None:
    net = binary("ADD", ((4,), (4,)), (0.5, 0.5, 0.5))
    net.graph.annotate(net.graph.tensor(tensor), QuantParams((0.5,), 5))
    with pytest.raises(InvalidArgument, match=f'"{tensor}" is INT16 with zero point 5'):
        net.rewrite()


def test_a_zero_point_is_an_error_also_where_the_scale_does_not_matter() -> None:
    net = table_net(IDENTITY_TABLE, (4,), 0.5, 0.5)
    net.graph.annotate(net.graph.tensor("x"), QuantParams((0.5,), -1))
    with pytest.raises(InvalidArgument, match='"x" is INT16 with zero point -1'):
        net.rewrite()


def test_a_tensor_without_a_shape_is_refused() -> None:
    net = Net()
    x = net.graph.add_tensor(Tensor("x", I16, None, quantization=QuantParams((0.5,))))
    net.graph.set_inputs([x])
    z = Tensor("z", I16, None, quantization=QuantParams((0.5,)))
    net.graph.add_op(Op(ops.Abs(), (x,), (z,)))
    [refusal] = net.outputs(z).rewrite().refusals
    assert "no shape" in refusal.reason


@st.composite
def nets(draw: st.DrawFn) -> Net:
    """One illegal operator: scales over many octaves, broadcasts, missing parameters, clamped and constant operands."""
    name = draw(st.sampled_from([*BINARY, *COMPARISONS]))
    exponent = draw(st.integers(0, 24))
    scale = st.floats(0.5, 2.0).map(lambda m: m * 2.0**-exponent)
    far = st.floats(0.5, 2.0).flatmap(lambda m: st.integers(-14, 14).map(lambda e: m * 2.0 ** (e - exponent)))
    scales = [draw(scale), draw(st.one_of(scale, scale, far)), draw(st.one_of(scale, scale, far))]
    if name == "MUL":
        scales[2] = draw(st.floats(0.5, 2.0)) * scales[0] * scales[1] * 2.0 ** draw(st.integers(-3, 16))
    missing = draw(st.sampled_from([None] * 9 + [0, 1, 2]))
    given_scales: list[float | None] = [None if i == missing else s for i, s in enumerate(scales)]
    shapes = draw(st.sampled_from([((3, 40), (3, 40)), ((3, 40), (1, 40)), ((3, 1), (1, 40)), ((), ()), ((40,), (1,))]))
    compares = name in COMPARISONS
    net = Net()
    operands: list[Tensor] = []
    for index, shape in enumerate(shapes):
        kind = draw(st.sampled_from(["input", "input", "clamped", "constant"])) if index else "input"
        if kind == "constant":
            drawn = np.resize(np.array(draw(st.lists(st.sampled_from(LIMITS), min_size=4, max_size=4))), shape)
            operands.append(net.const("c", drawn, I16, given_scales[index]))
            continue
        x = net.input(f"x{index}", shape, given_scales[index])
        if kind == "clamped":
            low, high = sorted(draw(st.tuples(st.sampled_from(LIMITS), st.sampled_from(LIMITS))))
            x = net.clamp(x, low, high)
        operands.append(x)
    if draw(st.booleans()) and shapes[0] == shapes[1]:
        operands[1] = operands[0]
    extra = (net.const("shift", [0], I8),) if name == "MUL" else ()
    attrs = BINARY[name][0] if name in BINARY else COMPARISONS[name][0]
    result_scale = None if compares else given_scales[2]
    z = net.op(attrs, (*operands, *extra), np.broadcast_shapes(*shapes), result_scale, BOOL if compares else I16)
    return net.outputs(z)


@pytest.mark.refmodel
def test_fires_within_its_contract_or_changes_nothing() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(nets())
    def check(net: Net) -> None:
        before = dumps(net.program)
        result = net.rewrite()
        if result.refusals:
            seen["refused"] += 1
            assert not result.events
            assert dumps(net.program) == before
            return
        seen["fired"] += 1
        assert isinstance(result.events[0].contract, Exact | WithinLsb)
        seen[type(result.events[0].contract).__name__] += 1
        require_contracts(result, vectors=5)
        after = dumps(net.program)
        again = net.rewrite()
        assert not again.events
        assert not again.refusals
        assert dumps(net.program) == after

    check()
    assert seen["fired"] >= 40, seen
    assert seen["refused"] >= 8, seen
    assert seen["Exact"] >= 4, seen


def test_every_converter_has_a_row_here() -> None:
    covered = {*BINARY, *COMPARISONS, *SUMS, "INTDIV", "ABS", "REDUCE_SUM", "TABLE"}
    assert covered == {kind.NAME for kind in CONVERTERS}


@pytest.mark.shared
@pytest.mark.parametrize("form", ["one-step", "two-step"])
def test_real_int16_files_are_legal_already(form: str) -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared corpus is not here")
    files = sorted(SHARED.glob("*_a16w8*.tosa"))[::6]
    assert files
    for file in files:
        program = load(file)
        result = run_steps(program, [RULE], options={RULE.name: Options(form=form)})  # type: ignore[arg-type]
        assert (result.events, result.refusals) == ([], []), file.name
