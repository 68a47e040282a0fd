"""The bias split: exact where it is proved, bounded where it is not, refused where neither holds."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.split_int48_bias import RULE
from tests.support.build import Net, Zeros
from tests.support.rules import EVERY_INT16, apply, bound, differences, kept, names, refusal, run
from tosakit.engine.contract import Exact
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, RoundingMode
from tosakit.ir.program import Program, Region
from tosakit.oracle.equivalence import check_equivalence
from tosakit.oracle.refmodel import Status

CORPUS = Path(__file__).parents[1] / "corpus"
SHARED = Path(__file__).parents[3] / "shared" / "corpus"
SPLIT = ["CONV2D", "RESCALE", "ADD", "RESCALE"]


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


def _small(bias: list[int], multiplier: int, shift: int, *, weight: int = 3, dtype: DType = DType.INT16) -> Program:
    """Two input channels, one output channel."""
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[weight, weight]], bias)
    return net.program(net.rescale(acc, dtype, multiplier, shift))


def _every(bias: int, weight: int, multiplier: int, shift: int, dtype: DType = DType.INT16) -> Program:
    """A graph that takes every INT16 value at once."""
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, EVERY_INT16.shape), [[weight]], [bias])
    return net.program(net.rescale(acc, dtype, multiplier, shift))


class TestExact:
    @pytest.mark.parametrize(
        ("bias", "multiplier", "shift"), [(1000, 23272, 23), (1 << 29, 16384, 14), (1 << 28, 20000, 12)]
    )
    def test_the_same_16_bit_pair_is_kept_and_results_are_identical(
        self, bias: int, multiplier: int, shift: int
    ) -> None:
        program = _small([bias], multiplier, shift, dtype=DType.INT32)
        result = kept(apply(RULE, program, when="all"))
        assert [event.contract for event in result.events] == [Exact()]
        assert names(result.program) == SPLIT
        first, last = [op for op in result.program.main.ops if op.name == "RESCALE"]
        assert [int(t.values()[0]) for t in first.inputs[1:]] == [1 << 14, 14, 0, 0]
        assert [t.dtype.name for t in first.inputs] == ["INT48", "INT16", "INT8", "INT48", "INT32"]
        assert [int(t.values()[0]) for t in last.inputs[1:]] == [multiplier, shift, 0, 0]
        assert [t.dtype.name for t in last.inputs] == ["INT32", "INT16", "INT8", "INT32", "INT32"]
        assert check_equivalence(program, result.program, vectors=16).equal

    def test_every_input_gives_the_same_output(self) -> None:
        program = _every(-12345, 97, 23272, 23)
        result = apply(RULE, program, when="all")
        before, after = run(program, EVERY_INT16), run(result.program, EVERY_INT16)
        assert before.status is after.status is Status.VALID
        assert np.array_equal(before.outputs[0], after.outputs[0])

    @pytest.mark.parametrize("length", [1, 6])
    @pytest.mark.parametrize(
        ("kind", "shape", "weight_shape"),
        [
            (ops.Conv2d, (1, 5, 6, 4), (6, 2, 3, 4)),
            (ops.TransposeConv2d, (1, 5, 6, 4), (6, 2, 3, 4)),
            (ops.DepthwiseConv2d, (1, 5, 6, 3), (2, 3, 3, 2)),
            (ops.Conv3d, (1, 3, 5, 6, 4), (6, 2, 2, 3, 4)),
        ],
    )
    def test_every_convolution_with_a_bias_of_the_accumulators_rank(
        self, kind: Any, shape: tuple[int, ...], weight_shape: tuple[int, ...], length: int
    ) -> None:
        rng = np.random.default_rng(5)
        net = Net()
        x = net.input("x", DType.INT16, shape)
        weight = rng.integers(-127, 128, weight_shape)
        acc = net.convolution(kind, x, weight, rng.integers(-(10**6), 10**6, length))
        pair = rng.integers(1 << 14, 1 << 15, 6), rng.integers(22, 30, 6)
        result = kept(apply(RULE, net.program(net.rescale(acc, DType.INT16, *pair)), when="all"))
        [add] = [op for op in result.program.main.ops if op.name == "ADD"]
        assert add.inputs[1].shape == (1,) * (len(shape) - 1) + (length,)
        assert add.inputs[1].dtype == DType.INT32
        [conv] = [op for op in result.program.main.ops if isinstance(op.attrs, kind)]
        assert (conv.inputs[2].shape, conv.inputs[2].dtype) == ((length,), DType.INT48)
        assert not conv.inputs[2].values().any()
        assert result.events[0].contract == Exact()

    def test_what_is_proved_for_one_channel_of_the_input_counts(self) -> None:
        net = Net()
        x = net.input("x", DType.INT16, (1, 2, 2, 2))
        narrow = net.rescale(x, DType.INT16, [1 << 14, 1 << 14], [14, 28], "narrow")  # the second channel is in [-2, 2]
        acc = net.conv2d(narrow, [[1, 127]], [2147450600])
        result = kept(apply(RULE, net.program(net.rescale(acc, DType.INT16, 20000, 30)), when="all"))
        assert bound(result) == 0

    def test_a_bias_at_the_edge_of_int32_is_exact_only_where_the_sum_still_fits(self) -> None:
        edge = (1 << 31) - 1
        assert bound(apply(RULE, _small([edge], 16384, 20, weight=0), when="all")) == 0
        assert bound(apply(RULE, _small([edge], 16384, 20, weight=1), when="all")) == 1


class TestPreShifted:
    def test_accumulator_beyond_int32(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 1, 1, 1024)), [[127] * 1024], [5])
        program = net.program(net.rescale(acc, DType.INT16, 1 << 14, 31))
        result = kept(apply(RULE, program, when="all"))
        assert bound(result) == 1
        x = np.full((1, 1, 1, 1024), 32767, np.int16)
        before, after = run(program, x), run(result.program, x)
        assert before.outputs[0].item() == 32511
        assert differences(before.outputs, after.outputs) <= 1

    def test_a_scale_that_may_leave_int32_is_refused_with_the_numbers(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 1, 1, 1024)), [[127] * 1024], [5])
        reason = refusal(apply(RULE, net.program(net.rescale(acc, DType.INT16, 1 << 14, 14)), when="all"))
        assert "-4261412864" in reason
        assert "multiplier 16384 and shift 13" in reason

    @pytest.mark.parametrize("sign", [1, -1])
    def test_the_end_that_the_bias_moves_out_of_range_counts(self, sign: int) -> None:
        """In units of 4 the last RESCALE takes 1073774591 at most, and the sum without bias reaches 16384."""
        largest = 4 * (1073774591 - 16384)
        assert apply(RULE, _small([sign * largest], 32767, 16, weight=1), when="all").events
        reason = refusal(apply(RULE, _small([sign * (largest + 40)], 32767, 16, weight=1), when="all"))
        assert "multiplier 32767 and shift 14" in reason

    def test_a_sum_beyond_int32_is_never_added(self) -> None:
        result = kept(apply(RULE, _small([(1 << 31) - 1], 1 << 14, 20, weight=1), when="all"))
        assert bound(result) == 1
        assert [int(op.inputs[2].values()[0]) for op in result.program.main.ops if op.name == "RESCALE"] == [15, 19]

    @pytest.mark.parametrize("bias", [1 << 31, -(1 << 31) - 1, (1 << 40) + 5, (1 << 47) - 1, -(1 << 47)])
    def test_a_bias_beyond_int32_is_shifted_not_wrapped(self, bias: int) -> None:
        program = _every(bias, 3, 23272, 45)
        result = kept(apply(RULE, program, when="all"))
        before, after = run(program, EVERY_INT16), run(result.program, EVERY_INT16)
        assert before.status is after.status is Status.VALID
        assert differences(before.outputs, after.outputs) <= bound(result)

    @pytest.mark.parametrize(("multiplier", "shift", "worst"), [(32000, 17, 1), (29491, 15, 2)])
    def test_the_bound_is_reached(self, multiplier: int, shift: int, worst: int) -> None:
        program = _every((1 << 31) + 1, 3, multiplier, shift, DType.INT32)
        result = apply(RULE, program, when="all")
        gap = differences(run(program, EVERY_INT16).outputs, run(result.program, EVERY_INT16).outputs)
        assert gap == bound(result) == worst

    def test_the_bias_is_rounded_to_nearest(self) -> None:
        result = apply(RULE, _every((1 << 32) + 3, 3, 16384, 20), when="all")
        [add] = [op for op in result.program.main.ops if op.name == "ADD"]
        assert add.inputs[1].values().item() == (1 << 30) + 1

    @pytest.mark.parametrize(
        ("low", "high", "weight", "bias", "addend"),
        [
            (0, 32767, 127, -(1 << 31), -(1 << 30)),  # the accumulator alone does not fit
            (-32768, 0, 63, 1 << 31, 1 << 30),  # the bias alone does not fit
            (0, 32767, 63, -(1 << 31), -(1 << 31)),
        ],
    )
    def test_a_sum_that_fits_does_not_make_its_terms_fit(
        self, low: int, high: int, weight: int, bias: int, addend: int
    ) -> None:
        net = Net()
        x = net.input("x", DType.INT16, (1, 1, 1, 1024))
        limits = (np.array([value], np.int16).tobytes() for value in (low, high))
        half = net.op(ops.Clamp(*limits, nan_mode=NanPropagationMode.PROPAGATE), (x,), DType.INT16, x.shape, "half")
        acc = net.conv2d(half, [[weight] * 1024], [bias])
        result = kept(apply(RULE, net.program(net.rescale(acc, DType.INT16, 16384, 31)), when="all"))
        [add] = [op for op in result.program.main.ops if op.name == "ADD"]
        assert add.inputs[1].values().item() == addend

    def test_only_the_channels_that_need_it_are_shifted(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, EVERY_INT16.shape), [[1], [1], [127]], [1 << 40, 5, 7])
        y = net.rescale(acc, DType.INT16, [1 << 14, 1 << 14, 25000], [50, 14, 20], "y")
        z = net.rescale(acc, DType.INT32, 1 << 14, 40, "z")
        program = net.program(y, z)
        result = kept(apply(RULE, program, target="ethos-u55-128"))
        first, *last = [op for op in result.program.main.ops if op.name == "RESCALE"]
        assert first.inputs[2].values().tolist() == [14 + 10, 14, 14]
        assert [op.inputs[2].values().tolist() for op in last] == [[40, 14, 20], [30, 40, 40]]
        before, after = run(program, EVERY_INT16).outputs, run(result.program, EVERY_INT16).outputs
        assert np.array_equal(before[0][..., 1:], after[0][..., 1:])
        assert differences(before, after) <= bound(result) == 1

    def test_a_shift_that_has_nothing_to_give_is_refused(self) -> None:
        reason = refusal(apply(RULE, _small([1 << 31], 1, 2), when="all"))
        assert "a shift of 2, too small to take 1 off" in reason


class TestTarget:
    @pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512"])
    @pytest.mark.parametrize(
        ("bias", "fires"),
        [
            ((1 << 39) - 1, False),
            (1 << 39, True),
            (-(1 << 39), False),
            (-(1 << 39) - 1, True),
            ((1 << 40) + 5, True),
            ((1 << 46) + 5, True),
        ],
    )
    def test_only_biases_beyond_40_bits_are_split(self, target: str, bias: int, fires: bool) -> None:
        result = apply(RULE, _small([bias], 16384, 60), target=target)
        assert (len(result.events), len(result.refusals)) == (int(fires), 0)
        if fires:
            kept(result)

    @pytest.mark.parametrize("target", ["", "ethos-u85-256"])
    def test_targets_that_hold_48_bits_need_no_split(self, target: str) -> None:
        assert not apply(RULE, _small([(1 << 46) + 5], 16384, 60), target=target).events

    @pytest.mark.parametrize("bias", [[0, 5], [-5, 0]])
    def test_one_channel_with_a_bias_is_enough(self, bias: list[int]) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 2, 2, 2)), [[3, 3], [1, 2]], bias)
        assert apply(RULE, net.program(net.rescale(acc, DType.INT16, 1 << 14, 20)), when="all").events

    def test_a_zero_bias_is_left_alone(self) -> None:
        result = apply(RULE, _small([0], 16384, 20), when="all")
        assert not result.events
        assert not result.refusals


class TestReaders:
    def test_each_reader_gets_its_own_last_rescale(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4], [5, 6]], [1, 2])
        y = net.rescale(acc, DType.INT16, [20000, 30000], [20, 21], "y")
        z = net.rescale(
            net.identity(net.identity(acc, "i1"), "i2"), DType.INT8, 25000, 26, "z", zeros=Zeros(output_value=-7)
        )
        w = net.rescale(acc, DType.INT32, 16384, 16, "w")
        result = kept(apply(RULE, net.program(y, z, w), when="all"))
        assert names(result.program) == ["CONV2D", "RESCALE", "ADD", "RESCALE", "RESCALE", "RESCALE"]
        assert [t.name for t in result.program.main.outputs] == ["y", "z", "w"]

    def test_a_result_that_is_an_output_and_read_on_keeps_its_name(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        y = net.rescale(acc, DType.INT32, 20000, 20, "y")
        program = net.program(y, net.add(y, y), y)
        result = kept(apply(RULE, program, when="all"))
        assert [t.name for t in result.program.main.outputs] == ["y", "sum", "y"]
        assert check_equivalence(program, result.program, vectors=16).equal

    def test_an_accumulator_that_is_an_output_is_refused(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        program = net.program(net.rescale(net.identity(acc), DType.INT16, 20000, 20), acc)
        assert '"acc" is a block output' in refusal(apply(RULE, program, when="all"))

    def test_an_illegal_reader_is_refused_with_the_rule_that_helps(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        program = net.program(net.rescale(acc, DType.INT16, 1 << 30, 40, scale32=True))
        assert "legalize_int48_rescale" in refusal(apply(RULE, program, when="all"))

    def test_a_reader_without_a_fixed_result_is_refused(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        y = net.rescale(acc, DType.INT16, 20000, 20, rounding_mode=RoundingMode.INEXACT_ROUND)
        assert "INEXACT_ROUND, whose results are not fixed" in refusal(apply(RULE, net.program(y), when="all"))

    def test_a_reader_with_a_computed_multiplier_is_refused(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        multiplier = net.input("m", DType.INT16, (1,))
        constants = [net.const([20], DType.INT8), net.const([0], DType.INT48), net.const([0], DType.INT16)]
        attrs = ops.Rescale(rounding_mode=RoundingMode.SINGLE_ROUND)
        y = net.op(attrs, (acc, multiplier, *constants), DType.INT16, acc.shape, "y")
        assert 'multiplier "m" of RESCALE -> "y" is no constant' in refusal(apply(RULE, net.program(y), when="all"))

    def test_other_readers_are_refused(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        reverse = net.op(ops.Reverse(axis=1), (acc,), DType.INT48, acc.shape, "r")
        program = net.program(
            net.rescale(acc, DType.INT16, 20000, 20), net.rescale(reverse, DType.INT16, 20000, 20, "z")
        )
        assert 'REVERSE -> "r"' in refusal(apply(RULE, program, when="all"))

    def test_one_channel_with_per_channel_set(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [9])
        result = kept(apply(RULE, net.program(net.rescale(acc, DType.INT16, 20000, 20, per_channel=True)), when="all"))
        assert result.program.main.ops[-1].attrs.per_channel  # type: ignore[attr-defined]


class TestBias:
    def test_a_shared_bias_constant_is_not_changed(self) -> None:
        net = Net()
        x = net.input("x", DType.INT16, (1, 4, 4, 2))
        bias = net.const([1 << 40, 5], DType.INT48, "shared")
        wide = net.rescale(net.conv2d(x, [[3, 4], [5, 6]], bias, "a"), DType.INT16, 16384, 50, "y")
        other = net.conv2d(x, [[1, 2], [7, 8]], bias, "b")
        program = net.program(wide, net.rescale(other, DType.INT16, 16384, 50, "z"), other)
        result = apply(RULE, program, target="ethos-u55-128")
        assert len(result.events) == len(result.refusals) == 1
        assert result.program.main.tensor("shared").values().tolist() == [1 << 40, 5]
        assert result.program.main.tensor("b").producer.inputs[2].name == "shared"  # type: ignore[union-attr]

    def test_a_bias_that_is_computed_is_refused(self) -> None:
        net = Net()
        bias = net.input("bias", DType.INT48, (1,))
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], bias)
        program = net.program(net.rescale(acc, DType.INT16, 16384, 20))
        assert '"bias" is no constant' in refusal(apply(RULE, program, when="all"))
        assert '"bias" is no constant' in refusal(apply(RULE, program, target="ethos-u65-256"))
        assert not apply(RULE, program).refusals

    def test_an_int8_convolution_has_nothing_to_split(self) -> None:
        net = Net()
        zero_points = net.const([0], DType.INT8, "zp"), net.const([0], DType.INT8, "wzp")
        operands = (
            net.input("x", DType.INT8, (1, 2, 2, 1)),
            net.const([[[[1]]]], DType.INT8),
            net.const([5], DType.INT32),
            *zero_points,
        )
        attrs = ops.Conv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32)
        acc = net.op(attrs, operands, DType.INT32, (1, 2, 2, 1), "acc")
        result = apply(RULE, net.program(acc), when="all")
        assert not result.events
        assert not result.refusals

    def test_constants_go_into_the_block_of_the_convolution(self) -> None:
        inner = _small([1000], 23272, 23).main
        outer = Net()
        program = outer.program(outer.input("x", DType.INT16, (1,)))
        program.regions.append(Region("branch", [inner]))
        result = apply(RULE, program, when="all")
        main, branch = result.program.blocks
        assert not main.ops
        assert all(branch.owns(t) for op in branch.ops for t in (*op.inputs, *op.outputs))
        assert [op.name for op in branch.ops if op.name != "CONST"] == SPLIT


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[Program, str, str]:
    """Convolutions with one to three readers, biases of every size, on every target."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels = draw(st.integers(1, 3))
    deep = int(rng.choice([1, 2, 600]))
    net = Net()
    weight = rng.integers(-128, 128, (channels, deep)) if draw(st.booleans()) else np.full((channels, deep), 127)
    bits = int(rng.choice([8, 16, 24, 29, 31, 40, 46]))
    bias = rng.integers(-(1 << bits), (1 << bits) + 1, draw(st.sampled_from([1, channels])))
    acc = net.conv2d(net.input("x", DType.INT16, (1, 2, 2, deep)), weight, bias)
    outputs = []
    for number in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from([DType.INT8, DType.INT16, DType.INT16, DType.INT32]))
        size = draw(st.sampled_from([1, channels]))
        pair = rng.integers(0, 1 << 15, size), rng.integers(max(2, bits - 12), 63, size)
        zeros = Zeros(output_value=int(rng.integers(-128, 128)) if dtype == DType.INT8 else 0)
        source = net.identity(acc, f"i{number}") if draw(st.booleans()) else acc
        outputs.append(net.rescale(source, dtype, *pair, f"y{number}", zeros=zeros))
    if draw(st.integers(0, 5)) == 0:
        outputs.append(acc)
    target = draw(st.sampled_from(["", "ethos-u55-128", "ethos-u85-256"]))
    return net.program(*outputs), target, "target" if rng.integers(4) == 0 else "all"


def test_whatever_the_graph_contracts_are_kept() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(_graphs())
    def check(drawn: tuple[Program, str, str]) -> None:
        program, target, when = drawn
        result = apply(RULE, program, target=target, when=when)
        seen["refused"] += len(result.refusals)
        if result.events:
            kept(result, vectors=3)
            seen[type(result.events[0].contract).__name__] += 1
            assert bound(result) != float("inf")

    check()
    assert seen["Exact"] >= 3, seen
    assert seen["WithinLsb"] >= 3, seen
    assert seen["refused"] >= 2, seen


def test_a_real_model_gives_the_same_results() -> None:
    program = load(CORPUS / "dscnn_kws_a16w8.tosa")
    result = apply(RULE, program, when="all")
    assert [event.contract for event in result.events] == [Exact()] * 10
    assert check_equivalence(program, result.program, vectors=4).equal


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpus is not beside this checkout")
def test_every_a16w8_model() -> None:
    forms: Counter[str] = Counter()
    for path in sorted(SHARED.glob("models*/*a16w8*.tosa")):
        program = load(path)
        result = run_steps(program.clone(), [RULE], options={RULE.name: RULE.options("all")}, for_check=True)
        assert not result.refusals
        forms.update(type(event.contract).__name__ for event in result.events)
        if all(event.contract == Exact() for event in result.events):
            assert not result.events or check_equivalence(program, result.program, vectors=2).equal, path
        else:
            kept(result)
    assert forms["Exact"] > 100, forms
    assert forms["WithinLsb"] > 0, forms
