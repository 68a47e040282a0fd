"""insert_int16_rescale, elementwise: the reference model runs the result, exact arithmetic says what is right."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from rewrites.insert_int16_rescale import RULE
from tests.support.int16 import (
    BINARY,
    BOOL,
    COMPARISONS,
    I8,
    I16,
    I32,
    I48,
    IDENTITY_TABLE,
    LIMITS,
    SCALES,
    SEED,
    SUMS,
    Net,
    accumulate,
    activations,
    binary,
    bound_of,
    codes,
    fractions,
    furthest,
    names,
    pairs_of_codes,
    require_contracts,
    table_net,
)
from tosakit.engine.contract import Exact
from tosakit.io.qparams import apply_qparams, dump_qparams, load_qparams
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Region
from tosakit.ir.types import QuantParams


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE)


@pytest.mark.refmodel
@pytest.mark.parametrize(
    ("name", "scales"),
    [(n, s) for n in BINARY for s in SCALES if n != "MUL" or s[0] * s[1] < 2 * s[2]],  # else products leave int32
    ids=str,
)
def test_binary_operators_mean_the_same_within_their_bound(name: str, scales: tuple[float, float, float]) -> None:
    a, b = pairs_of_codes()
    net = binary(name, (a.shape, b.shape), scales)
    result = net.rewrite()
    assert names(net) == (["MUL", "RESCALE"] if name == "MUL" else ["RESCALE", "RESCALE", name, "RESCALE"])
    assert [(t.name, t.dtype, t.shape) for t in net.graph.outputs] == [("z", I16, a.shape)]
    assert net.graph.outputs[0].quantization == QuantParams((scales[2],))
    s1, s2, s3 = map(Fraction, scales)
    real = np.vectorize(BINARY[name][1], otypes=[object])(fractions(a) * s1, fractions(b) * s2) / s3
    [z] = net.run(a, b)
    assert furthest(real, z, I16) <= bound_of(result)
    require_contracts(result)


@pytest.mark.parametrize(
    ("name", "scales", "bound"),
    [
        ("ADD", (0.5, 0.25, 0.5), 0.5),  # both operands exact on the common scale, one rounding
        ("ADD", (1.0, 1.0, 1.0), 0),  # integers throughout
        ("ADD", (1.0, 0.7, 1.0), 0.5 + 0.5 / 2048),  # the second operand is rounded to 1/2048
        ("SUB", (0.7, 1.0, 0.5), 0.5 + 0.5 / 2048 * 2),
        ("ADD", (5000.0, 1.0, 1.0), 0.5 + 0.5 * 5000 / 2048),  # integers, but the second operand is rounded first
        ("MAXIMUM", (0.5, 0.25, 0.5), 0.5),
        ("MAXIMUM", (0.7, 0.3, 0.7), 0.5 + 0.5 * 3 / 7),
        ("MINIMUM", (0.7, 0.3, 0.3), 0.5),  # narrowed by exactly 1: nothing is rounded again
        ("MINIMUM", (0.7, 0.3, 0.15), 1.0),  # 0.5 LSB of 0.3 is 1 LSB of 0.15, doubled exactly
        ("MUL", (0.5, 0.25, 0.125), 0),
        ("MUL", (0.5, 0.25, 0.5), 0.5),
        ("MUL", (0.3, 0.3, 0.3), 0.5),
    ],
)
def test_bounds_are_the_sum_of_the_roundings(name: str, scales: tuple[float, float, float], bound: float) -> None:
    stated = bound_of(binary(name, ((4,), (4,)), scales).rewrite())
    assert bound <= stated <= Fraction(bound) + Fraction(1, 1 << 14)


@pytest.mark.refmodel
@pytest.mark.parametrize("scales", SCALES, ids=str)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_are_right_wherever_the_scales_can_tell(name: str, scales: tuple[float, float, float]) -> None:
    a, b = pairs_of_codes()
    nearly = np.clip(np.rint(a.astype(np.float64) * scales[0] / scales[1]), -32768, 32767).astype(np.int16)
    a, b = np.concatenate([a, a], axis=1), np.concatenate([b, nearly], axis=1)
    net = binary(name, (a.shape, b.shape), (*scales[:2], None), BOOL)
    operands = net.graph.inputs
    result = net.rewrite()
    assert names(net) == ["RESCALE", "RESCALE", name]
    s1, s2 = map(Fraction, scales[:2])
    real_a, real_b = fractions(a) * s1, fractions(b) * s2
    truth = np.vectorize(COMPARISONS[name][1], otypes=[bool])(real_a, real_b)
    [z] = net.run(a, b)
    assert z.dtype == np.bool_
    near = np.abs((real_a - real_b) / min(s1, s2)) <= Fraction(501, 1000)
    assert np.array_equal(z | near, truth | near)
    if (max(s1, s2) / min(s1, s2)).denominator == 1:
        assert isinstance(result.events[0].contract, Exact)
        assert np.array_equal(z, truth)
    else:
        assert bound_of(result) == Fraction(1, 2)
    reference = result.events[0].reference
    assert reference is not None
    [meaning] = reference(dict(zip(operands, (a, b), strict=True))).values()
    assert np.abs(meaning - z).max() <= bound_of(result)
    assert truth.any()
    assert not truth.all()
    require_contracts(result)


@pytest.mark.refmodel
@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (0.02, 0.5, 0.07), (0.3, 0.001, 0.9)], ids=str)
def test_division_truncates_on_the_grid_of_the_result(scales: tuple[float, float, float]) -> None:
    a, b = pairs_of_codes()
    b = np.where(b > 0, b, 5).astype(np.int16)
    net = Net()
    x, y = net.input("a", a.shape, scales[0]), net.input("b", b.shape, scales[1])
    positive = net.clamp(y, 1, 32767)
    net.outputs(net.op(ops.IntDiv(), (x, positive), a.shape, scales[2]))
    result = net.rewrite()
    assert names(net) == ["CLAMP", "RESCALE", "RESCALE", "INTDIV", "RESCALE"]
    s1, s2, s3 = map(Fraction, scales)
    real = fractions(a) * s1 / (fractions(b) * s2) / s3
    [z] = net.run(a, b)
    assert furthest(real, z, I16) <= bound_of(result) < 2
    if scales == (1.0, 1.0, 1.0):
        assert np.array_equal(z, np.vectorize(int, otypes=[int])(real))
    require_contracts(result)


@pytest.mark.refmodel
@pytest.mark.parametrize("scales", [(0.5, 0.5), (0.3, 0.7), (0.7, 0.3), (1.0, 0.001)], ids=str)
def test_abs(scales: tuple[float, float]) -> None:
    x = np.concatenate([LIMITS, codes(500)]).astype(np.int16)
    net = Net()
    net.outputs(net.op(ops.Abs(), (net.input("x", x.shape, scales[0]),), x.shape, scales[1]))
    result = net.rewrite()
    assert names(net) == ["RESCALE", "ABS", "RESCALE"]
    [z] = net.run(x)
    assert furthest(np.abs(fractions(x)) * Fraction(scales[0]) / Fraction(scales[1]), z, I16) <= bound_of(result)
    if scales[0] == scales[1]:
        assert isinstance(result.events[0].contract, Exact)
        assert z[0] == 32767
    require_contracts(result)


@pytest.mark.refmodel
@pytest.mark.parametrize("dtype", [I16, I32])
@pytest.mark.parametrize(("axis", "shape"), [(0, (40, 3)), (1, (3, 4000)), (2, (2, 3, 5))])
def test_reduce_sum(axis: int, shape: tuple[int, ...], dtype: DType) -> None:
    x = np.resize(np.concatenate([LIMITS, codes(3000)]), shape).astype(np.int16)
    x[:1] = 32767
    x[-1:] = -32768
    net = Net()
    reduced = tuple(1 if i == axis else size for i, size in enumerate(shape))
    scales = (0.01, 0.01 * shape[axis] / 3)
    net.outputs(net.op(ops.ReduceSum(axis), (net.input("x", shape, scales[0]),), reduced, scales[1], dtype))
    result = net.rewrite()
    assert names(net) == ["RESCALE", "REDUCE_SUM", "RESCALE"]
    real = fractions(x.astype(np.int64).sum(axis, keepdims=True)) * Fraction(scales[0]) / Fraction(scales[1])
    [z] = net.run(x)
    assert furthest(real, z, dtype) <= bound_of(result)
    require_contracts(result)


@pytest.mark.refmodel
def test_a_sum_that_may_stay_int32_on_its_scale_needs_no_second_rescale() -> None:
    net = Net()
    net.outputs(net.op(ops.ReduceSum(0), (net.input("x", (7,), 0.25),), (1,), 0.25, I32))
    assert isinstance(net.rewrite().events[0].contract, Exact)
    assert names(net) == ["RESCALE", "REDUCE_SUM"]
    [z] = net.run(np.array([32767] * 7, np.int16))
    assert z.tolist() == [7 * 32767]


@pytest.mark.refmodel
@pytest.mark.parametrize("scales", [(None, 0.5), (0.5, 0.5), (3e-5, 4e-5), (0.5, 0.004)], ids=str)
@pytest.mark.parametrize("kind", ["identity", "random"])
def test_table_interpolates_and_divides_by_128(kind: str, scales: tuple[float | None, float]) -> None:
    rng = np.random.default_rng(SEED)
    entries = IDENTITY_TABLE if kind == "identity" else rng.integers(-16000, 16000, 513)
    x = np.concatenate([LIMITS, codes(2000)]).astype(np.int16)
    net = table_net(entries, x.shape, *scales)
    result = net.rewrite()
    assert names(net) == ["TABLE", "RESCALE"]
    where, rest = np.divmod(x.astype(np.int64) + 32768, 128)
    left, right = fractions(entries[where]), fractions(entries[where + 1])
    real = (left + (right - left) * fractions(rest) / 128) * Fraction(scales[0] or scales[1]) / Fraction(scales[1])
    [z] = net.run(x)
    assert furthest(real, z, I16) <= bound_of(result)
    if kind == "identity" and scales == (None, 0.5):  # field report A10: 32640 must come out, not 32640 * 128
        assert dict(zip(x.tolist(), z.tolist(), strict=True))[16384] == 16384
        assert net.run(np.full(x.shape, 32640, np.int16))[0][0] == 32640
        assert net.run(np.full(x.shape, 32767, np.int16))[0][0] == 32766  # A11: entry 512 is the end at code 32768
    require_contracts(result)


@pytest.mark.refmodel
def test_a_far_overflowing_int32_accumulator_becomes_right() -> None:
    """Field report A3: 1024 products of 32767 and 127 make 4261282816; the INT32 accumulator of the file wraps."""
    net = Net()
    x, w = net.input("x", (1, 1, 1, 1024)), net.const("w", np.full((1, 1, 1, 1024), 127), I8)
    zeros = (net.const("b", [0], I32), net.const("izp", [0]), net.const("wzp", [0], I8))
    attrs = ops.Conv2d((0, 0, 0, 0), (1, 1), (1, 1), acc_type=I32)
    acc = net.op(attrs, (x, w, *zeros), (1, 1, 1, 1), None, I32)
    net.outputs(net.rescale(acc, I16, [1 << 30], [47], True))
    net.rewrite()
    [z] = net.run(np.full((1, 1, 1, 1024), 32767, np.int16))
    assert z.item() == 32511


@pytest.mark.refmodel
def test_same_tensor_twice_gets_two_rescales() -> None:
    for name, expected in (("ADD", 2), ("SUB", 0), ("MUL", None)):
        net = Net()
        x = net.input("x", (len(LIMITS),), 0.5)
        extra = (net.const("shift", [0], I8),) if name == "MUL" else ()
        net.outputs(net.op(BINARY[name][0], (x, x, *extra), x.shape, 0.5))
        net.rewrite()
        assert names(net) == (["MUL", "RESCALE"] if name == "MUL" else ["RESCALE", "RESCALE", name, "RESCALE"])
        codes_in = np.array(LIMITS, np.int16)
        wide = codes_in.astype(np.int64)
        wanted = wide * expected if expected is not None else (wide * wide + 1) // 2
        assert np.array_equal(net.run(codes_in)[0], np.clip(wanted, -32768, 32767))


@pytest.mark.refmodel
def test_broadcast_and_constant_operands() -> None:
    net = Net()
    x = net.input("x", (2, 3, 4), 0.1)
    c = net.const("c", np.array([[[7], [-32768], [32767]]]), I16, 0.02)
    net.outputs(net.op(ops.Add(), (x, c), (2, 3, 4), 0.11))
    result = net.rewrite()
    assert [op.output.shape for op in net.graph.ops if op.name == "RESCALE"] == [(2, 3, 4), (1, 3, 1), (2, 3, 4)]
    data = activations((2, 3, 4), 3)
    real = (fractions(data) * Fraction(0.1) + fractions(c.values()) * Fraction(0.02)) / Fraction(0.11)
    assert furthest(real, net.run(data)[0], I16) <= bound_of(result)
    require_contracts(result)


@pytest.mark.refmodel
def test_narrower_values_leave_headroom_for_a_larger_ratio() -> None:
    """Field report G6: a ratio of 2**18 is refused for full-range operands, not for one that is proved small."""
    for clamped in (False, True):
        net = Net()
        x, y = net.input("x", (3,), 1.0), net.input("y", (3,), 2.0**-18)
        if clamped:
            x = net.clamp(x, -3, 5)
        net.outputs(net.op(ops.Maximum(nan_mode=NanPropagationMode.PROPAGATE), (x, y), (3,), 2.0**-12))
        result = net.rewrite()
        assert len(result.events) == clamped
    [z] = net.run(np.array([5, -3, 0], np.int16), np.array([32767, 32767, -32768], np.int16))
    assert z.tolist() == [5 << 12, 512, 0]
    require_contracts(result)


@pytest.mark.refmodel
def test_a_chain_of_illegal_operators_and_an_output_that_is_read_again() -> None:
    """Field report C3: the block's interface stays; C2: nothing reads itself."""
    net = Net()
    x, y = net.input("x", (5,), 0.5), net.input("y", (5,), 0.25)
    first = net.op(ops.Add(), (x, y), (5,), 0.5)
    second = net.op(ops.Maximum(nan_mode=NanPropagationMode.PROPAGATE), (first, y), (5,), 0.5)
    third = net.op(ops.Abs(), (second,), (5,), 0.5)
    net.outputs(first, third, first, x)
    interface = [(t.name, t.dtype, t.shape) for t in net.graph.outputs]
    result = net.rewrite()
    assert result.rules_fired == {RULE.name: 3}
    assert [(t.name, t.dtype, t.shape) for t in net.graph.outputs] == interface
    a, b = np.array([100, -100, 32767, 3, 0], np.int16), np.array([2, -2, 32767, 0, 0], np.int16)
    outputs = net.run(a, b)
    assert outputs[0].tolist() == outputs[2].tolist() == [101, -101, 32767, 3, 0]
    assert outputs[1].tolist() == [101, 1, 32767, 3, 0]
    require_contracts(result)


@pytest.mark.refmodel
def test_an_operator_inside_a_region_gets_its_constants_there() -> None:
    net = binary("ADD", ((4,), (4,)), (0.5, 0.25, 0.5))
    net.graph.graph["name"] = "then"
    main = Net()
    cond = main.input("cond", (), None, BOOL)
    a, b = main.input("a", (4,)), main.input("b", (4,))
    main.outputs(main.op(ops.CondIf("then", "then"), (cond, a, b), (4,)))
    main.program.regions.append(Region("then", [net.graph]))
    assert main.rewrite().rules_fired == {RULE.name: 1}
    quarters = np.array([1, 3, -1, -3], np.int16)
    [z] = main.run(np.array(True), np.zeros(4, np.int16), quarters)
    assert z.tolist() == [1, 2, 0, -1]  # halves go up


@pytest.mark.refmodel
def test_parameters_from_a_sidecar_count_like_those_in_memory(tmp_path: Path) -> None:
    in_memory, from_file = binary("ADD", ((4,), (4,)), SCALES[4]), binary("ADD", ((4,), (4,)), (None, None, None))
    sidecar = tmp_path / "model.qparams.json"
    sidecar.write_text(json.dumps({"tensors": {n: {"scale": s} for n, s in zip("abz", SCALES[4], strict=True)}}))
    assert from_file.rewrite().refusals
    apply_qparams(from_file.program, load_qparams(sidecar))
    in_memory.rewrite()
    from_file.rewrite()
    assert dumps(in_memory.program) == dumps(from_file.program)
    assert json.loads(dump_qparams(from_file.program))["tensors"].keys() == set("abz")


LEGAL: dict[str, Callable[[Net], Tensor]] = {
    "MUL to INT32": lambda n: n.op(
        ops.Mul(), (n.input("a", (4,)), n.input("b", (4,)), n.const("shift", [0], I8)), (4,), None, I32
    ),
    "TABLE to INT32": lambda n: n.op(ops.Table(), (n.input("a", (4,)), n.const("t", IDENTITY_TABLE)), (4,), None, I32),
    "ADD on INT32": lambda n: n.op(
        ops.Add(), (n.input("a", (4,), None, I32), n.input("b", (4,), None, I32)), (4,), None, I32
    ),
    "SELECT": lambda n: n.op(
        ops.Select(), (n.input("c", (4,), None, BOOL), n.input("a", (4,)), n.input("b", (4,))), (4,)
    ),
    "MATMUL to INT48": lambda n: accumulated(n, "MATMUL"),
    "CONV2D to INT48": lambda n: accumulated(n, "CONV2D"),
    "RESIZE to INT48": lambda n: accumulated(n, "RESIZE"),
}


def accumulated(net: Net, name: str) -> Tensor:
    """A legal INT48 accumulator, in a net of its own."""
    built = accumulate(name, I48, (None, None, None), bias_dtype=I48)
    net.graph, net.program = built.net.graph, built.net.program
    if SUMS[name].bias:
        built.net.rewrite()
    return built.z if built.z.producer in net.graph else net.graph.outputs[0]


@pytest.mark.parametrize("kind", LEGAL)
def test_legal_operators_are_left_alone(kind: str) -> None:
    net = Net()
    net.outputs(LEGAL[kind](net))
    before = dumps(net.program)
    result = net.rewrite()
    assert not result.events
    assert not result.refusals
    assert dumps(net.program) == before
