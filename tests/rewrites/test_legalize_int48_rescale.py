"""Illegal RESCALEs on INT48 get the legal form they mean, with a bound that holds, or a reason."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.legalize_int48_rescale import RULE
from tests.support.build import Net, Zeros
from tests.support.rules import EVERY_INT16, apply, bound, kept, names, refusal, run
from tosakit.io.reader import load
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import Op
from tosakit.ir.program import Program
from tosakit.numerics.scale import multiplier_and_shift
from tosakit.oracle.refmodel import Status

CORPUS = Path(__file__).parents[1] / "corpus"
DOUBLE = RoundingMode.DOUBLE_ROUND


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE)


def _graph(
    multiplier: Any, shift: Any, *, weight: Any = ((3, 4), (5, -6)), dtype: DType = DType.INT16, **rescale: Any
) -> Program:
    """CONV2D with two input channels, then a RESCALE of the given, usually illegal, form."""
    net = Net()
    weights = np.asarray(weight)
    acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, weights.shape[1])), weights, [100] * weights.shape[0])
    return net.program(net.rescale(acc, dtype, multiplier, shift, **rescale))


def _every(weight: int, multiplier: int, shift: int, *, dtype: DType = DType.INT16, **rescale: Any) -> Program:
    """A graph that takes every INT16 value at once and has no bias."""
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, EVERY_INT16.shape), [[weight]], [0])
    return net.program(net.rescale(acc, dtype, multiplier, shift, **rescale))


def _rescales(program: Program) -> list[Op[ops.Rescale]]:
    return [op for op in program.main.ops if isinstance(op.attrs, ops.Rescale)]  # type: ignore[misc]


def _pair(op: Op[ops.Rescale]) -> tuple[int, int]:
    return int(op.inputs[1].values()[0]), int(op.inputs[2].values()[0])


class TestOneStep:
    @pytest.mark.parametrize("scale", [0.0027741822493807726, 1 / 3, 2.0**-9, 0.999999, 1 - 2.0**-17, 2.0**-40])
    def test_the_nearest_16_bit_pair(self, scale: float) -> None:
        wide, narrow = multiplier_and_shift(scale, 32), multiplier_and_shift(scale, 16)
        result = kept(apply(RULE, _graph(int(wide.multiplier), int(wide.shift), weight=[[1, 1]], scale32=True)))
        [op] = _rescales(result.program)
        assert _pair(op) == (int(narrow.multiplier), int(narrow.shift))
        assert not op.attrs.scale32
        assert [t.dtype.name for t in op.inputs] == ["INT48", "INT16", "INT8", "INT48", "INT16"]
        assert bound(result) < 0.5 + 32768 * 2.0**-15

    def test_by_channel(self) -> None:
        result = kept(apply(RULE, _graph([0x4ABCDEF1, 0x7FFFFFFF], [39, 45], scale32=True)))
        [op] = _rescales(result.program)
        assert op.attrs.per_channel
        assert op.inputs[1].values().tolist() == [0x4ABD, 1 << 14]
        assert op.inputs[2].values().tolist() == [39 - 16, 45 - 17]

    def test_every_channel_is_proved_with_its_own_scale(self) -> None:
        weight = [[127] * 1024, [1] * 1024]  # the first accumulator is beyond INT32, the second has the larger scale
        result = kept(apply(RULE, _graph([1 << 30, 1 << 30], [40, 30], weight=weight, dtype=DType.INT32, scale32=True)))
        assert bound(result) == 0.5

    def test_one_channel_keeps_per_channel(self) -> None:
        result = kept(apply(RULE, _graph(1 << 30, 45, weight=[[1, 1]], scale32=True, per_channel=True)))
        assert _rescales(result.program)[0].attrs.per_channel

    @pytest.mark.parametrize(
        "wrong",
        [
            {"multiplier_dtype": DType.INT32},
            {"shift_dtype": DType.INT32},
            {"zeros": Zeros(input_dtype=DType.INT32)},
            {"zeros": Zeros(input_dtype=DType.INT16)},
            {"zeros": Zeros(output_dtype=DType.INT32)},
            {"rounding_mode": RoundingMode.UNKNOWN},
            {"rounding_mode": DOUBLE},
        ],
    )
    def test_constants_of_a_wrong_dtype_are_made_anew_and_numbers_stay(self, wrong: dict[str, Any]) -> None:
        result = kept(apply(RULE, _graph(20000, 24, **wrong)))
        [op] = _rescales(result.program)
        assert _pair(op) == (20000, 24)
        assert [t.dtype.name for t in op.inputs] == ["INT48", "INT16", "INT8", "INT48", "INT16"]
        assert op.attrs.rounding_mode == RoundingMode.SINGLE_ROUND
        assert bound(result) == 0.5

    @pytest.mark.parametrize(
        ("multiplier", "shift", "pair"),
        [
            (40000, 24, (20000, 23)),
            (32768, 24, (16384, 23)),
            (1 << 20, 70, (1 << 12, 62)),
            (20000, 65, (2500, 62)),
            (16, 66, (1, 62)),
            (8191, 1, (32764, 3)),
            (1000, -2, (32000, 3)),
        ],
    )
    def test_numbers_out_of_range_become_the_same_scale(
        self, multiplier: int, shift: int, pair: tuple[int, int]
    ) -> None:
        program = _graph(multiplier, shift, weight=[[1, 1]], multiplier_dtype=DType.INT32, dtype=DType.INT32)
        result = kept(apply(RULE, program))
        assert bound(result) == 0.5
        assert _pair(_rescales(result.program)[0]) == pair

    def test_int8_output_with_a_zero_point(self) -> None:
        result = kept(
            apply(RULE, _graph(0x4ABCDEF1, 42, dtype=DType.INT8, scale32=True, zeros=Zeros(output_value=-100)))
        )
        assert _rescales(result.program)[0].inputs[4].values().tolist() == [-100]

    @pytest.mark.parametrize("make", ["matmul", "resize"])
    def test_every_producer_of_int48(self, make: str) -> None:
        net = Net()
        if make == "matmul":
            acc = net.matmul(net.input("a", DType.INT16, (1, 3, 4)), net.input("b", DType.INT16, (1, 4, 2)))
            shift = 58
        else:
            acc = net.upsample(net.input("a", DType.INT16, (1, 3, 4, 2)))
            shift = 33
        result = kept(apply(RULE, net.program(net.rescale(acc, DType.INT16, 0x4ABCDEF1, shift, scale32=True))))
        assert bound(result) < 1.5

    def test_a_scalar_stays_one(self) -> None:
        net = Net()
        scalar = net.const(np.asarray(1 << 40), DType.INT48, "c")
        result = kept(apply(RULE, net.program(net.rescale(scalar, DType.INT32, 0x4ABCDEF1, 45, scale32=True))))
        assert result.program.main.outputs[0].shape == ()


class TestTwoSteps:
    def test_a_provable_accumulator_is_copied(self) -> None:
        result = kept(apply(RULE, _graph(0x4ABCDEF1, 40, scale32=True), form="two-step"))
        first, last = _rescales(result.program)
        assert (_pair(first), first.attrs.scale32, first.output.dtype) == ((1 << 14, 14), False, DType.INT32)
        assert (_pair(last), last.attrs.scale32) == ((0x4ABCDEF1, 40), True)
        assert bound(result) == 0.5

    def test_it_is_exactly_the_intended_rounding(self) -> None:
        program = _every(97, 0x4ABCDEF1, 40, scale32=True)
        result = apply(RULE, program, form="two-step")
        wanted = (EVERY_INT16.astype(np.int64) * 97 * 0x4ABCDEF1 + (1 << 39)) >> 40
        [got] = run(result.program, EVERY_INT16).outputs
        assert np.array_equal(got, np.clip(wanted, -32768, 32767))

    def test_a_wide_accumulator_is_shifted(self) -> None:
        result = kept(apply(RULE, _graph(0x4ABCDEF1, 48, weight=[[127] * 1024], scale32=True), form="two-step"))
        first, last = _rescales(result.program)
        assert (_pair(first), _pair(last)) == ((1 << 14, 15), (0x4ABCDEF1, 47))
        assert 0.5 < bound(result) < 0.51

    def test_double_round_stays(self) -> None:
        result = apply(RULE, _graph(0x4ABCDEF1, 40, scale32=True, rounding_mode=DOUBLE), form="two-step")
        assert [op.attrs.rounding_mode for op in _rescales(result.program)] == [RoundingMode.SINGLE_ROUND, DOUBLE]
        assert bound(kept(result)) == 0.5 + 2.0**-10

    def test_a_value_range_that_is_not_proved_is_refused(self) -> None:
        reason = refusal(apply(RULE, _graph(1 << 30, 18, dtype=DType.INT32, scale32=True), form="two-step"))
        assert "multiplier 1073741824 and shift 18" in reason
        assert "from -229276 to 229469 in channel 0" in reason


class TestTarget:
    def test_ethos_u85_never_gets_the_copy_it_miscompiles(self) -> None:
        program = _graph(0x4ABCDEF1, 40, scale32=True)
        first, last = _rescales(kept(apply(RULE, program, target="ethos-u85-256", form="two-step")).program)
        assert (_pair(first), _pair(last)) == ((1 << 14, 15), (0x4ABCDEF1, 39))
        assert len(_rescales(apply(RULE, program, target="ethos-u85-256").program)) == 1

    @pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256"])
    def test_two_steps_where_they_are_free(self, target: str) -> None:
        result = kept(apply(RULE, _graph(0x4ABCDEF1, 40, scale32=True), target=target))
        assert len(_rescales(result.program)) == 2
        assert bound(result) == 0.5

    def test_one_step_where_they_are_not(self) -> None:
        wide = _graph(0x4ABCDEF1, 48, weight=[[127] * 1024], scale32=True)
        assert len(_rescales(kept(apply(RULE, wide, target="ethos-u55-128")).program)) == 1
        assert len(_rescales(apply(RULE, _graph(0x4ABCDEF1, 40, scale32=True)).program)) == 1
        narrow = _graph(0x4ABCDEF1, 48, dtype=DType.INT8, scale32=True)
        assert len(_rescales(apply(RULE, narrow, target="ethos-u55-128").program)) == 1
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        y = net.rescale(acc, DType.INT16, 0x4ABCDEF1, 40, "y", scale32=True)
        two_readers = net.program(y, net.rescale(acc, DType.INT16, 20000, 24, "z"))
        assert len(_rescales(apply(RULE, two_readers, target="ethos-u55-128").program)) == 2


class TestRefuses:
    @pytest.mark.parametrize(
        ("multiplier", "shift", "options", "reason"),
        [
            (0, 40, {"scale32": True}, "multiplier 0 with shift 40 in channel 0"),
            ([1 << 30, -5], [40, 41], {"scale32": True}, "multiplier -5 with shift 41 in channel 1"),
            (1 << 30, 17, {"scale32": True}, "too large for RESCALE"),
            (3, 67, {"multiplier_dtype": DType.INT32}, "underflows"),
            ([1 << 30] * 3, [40] * 3, {"scale32": True}, "multiplier has 3 values where 2 are needed"),
            (1 << 30, 40, {"scale32": True, "zeros": Zeros(input_value=3)}, "input_zp is 3"),
            (1 << 30, 40, {"scale32": True, "zeros": Zeros(output_value=3)}, "output_zp 3 is outside [0, 0]"),
            (1 << 30, 40, {"scale32": True, "output_unsigned": True}, "unsigned"),
        ],
    )
    def test_what_no_legal_rescale_means(
        self, multiplier: Any, shift: Any, options: dict[str, Any], reason: str
    ) -> None:
        assert reason in refusal(apply(RULE, _graph(multiplier, shift, **options)))

    def test_a_result_that_may_leave_int32(self) -> None:
        reason = refusal(apply(RULE, _graph(1 << 30, 30, weight=[[127] * 1024], scale32=True)))
        assert "from -4261412764 to 4261282916" in reason
        assert "defined from -2147483648 to 2147483647 only" in reason

    def test_a_multiplier_that_is_computed(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        multiplier = net.input("m", DType.INT32, (1,))
        constants = [net.const([40], DType.INT8), net.const([0], DType.INT48), net.const([0], DType.INT16)]
        attrs = ops.Rescale(scale32=True, rounding_mode=RoundingMode.SINGLE_ROUND)
        program = net.program(net.op(attrs, (acc, multiplier, *constants), DType.INT16, acc.shape, "y"))
        assert 'multiplier "m" is no integer constant' in refusal(apply(RULE, program))


def test_legal_rescales_are_left_alone() -> None:
    net = Net()
    acc = net.input("acc", DType.INT48, (1, 2))  # nothing is proved about it, and nothing needs to be
    x = net.rescale(acc, DType.INT32, 1 << 14, 14, "x")
    program = net.program(x, net.rescale(x, DType.INT16, 1 << 30, 31, "y", scale32=True))
    result = apply(RULE, program)
    assert not result.events
    assert not result.refusals


def test_an_illegal_one_without_proof_is_refused_with_the_numbers() -> None:
    net = Net()
    acc = net.input("acc", DType.INT48, (1, 2))
    reason = refusal(apply(RULE, net.program(net.rescale(acc, DType.INT16, 1 << 30, 40, scale32=True))))
    assert str(-(1 << 47)) in reason
    small = net.program(net.rescale(acc, DType.INT16, 1 << 30, 47, "z", scale32=True))
    assert len(apply(RULE, small).events) == 1


def test_results_keep_their_names_and_readers() -> None:
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
    y = net.rescale(acc, DType.INT32, 1 << 30, 40, "y", scale32=True)
    result = apply(RULE, net.program(y, net.add(y, y), y))
    assert [t.name for t in result.program.main.outputs] == ["y", "sum", "y"]
    assert names(result.program) == ["CONV2D", "RESCALE", "ADD"]


@pytest.mark.parametrize("weight", [1, 97, -128])
@pytest.mark.parametrize("form", ["one-step", "two-step"])
@pytest.mark.parametrize("shift", [31, 34, 37, 46])
def test_the_bound_holds_for_every_input(weight: int, form: str, shift: int) -> None:
    multiplier = 0x7FFE0001  # as far from 16 bits as it gets
    program = _every(weight, multiplier, shift, dtype=DType.INT32, scale32=True)
    result = apply(RULE, program, form=form)
    real = EVERY_INT16.astype(np.float64) * weight * multiplier / 2.0**shift
    ran = run(result.program, EVERY_INT16)
    assert ran.status is Status.VALID
    worst = float(np.abs(ran.outputs[0] - real).max())
    assert worst <= bound(result)
    assert bound(result) <= worst + 0.51  # and it is not much larger than it needs to be


@st.composite
def _illegal(draw: st.DrawFn) -> tuple[Program, str, str]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels, deep = int(rng.integers(1, 4)), int(rng.choice([1, 3, 600]))
    net = Net()
    bits = int(rng.choice([6, 30, 44]))
    bias = rng.integers(-(1 << bits), 1 << bits, channels)
    acc = net.conv2d(net.input("x", DType.INT16, (1, 2, 2, deep)), rng.integers(-128, 128, (channels, deep)), bias)
    size = int(rng.choice([1, channels]))
    dtype = draw(st.sampled_from([DType.INT8, DType.INT16, DType.INT32]))
    shift = int(rng.choice([22, 36, 44])) + (bits == 44) * 12
    y = net.rescale(
        acc,
        dtype,
        rng.integers(1 << 20, 1 << int(rng.choice([21, 31])), size) * int(rng.integers(5) > 0),
        rng.integers(shift, shift + int(rng.choice([4, 16])), size),
        scale32=bool(rng.integers(2)),
        multiplier_dtype=DType.INT32,
        rounding_mode=DOUBLE if rng.integers(2) else RoundingMode.SINGLE_ROUND,
        zeros=Zeros(output_value=int(rng.integers(-128, 128)) if dtype == DType.INT8 else 0),
    )
    target = draw(st.sampled_from(["", "ethos-u55-128", "ethos-u85-256"]))
    return net.program(y), target, draw(st.sampled_from(["two-step", "one-step", "auto"]))


def test_whatever_the_graph_contracts_are_kept() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(_illegal())
    def check(drawn: tuple[Program, str, str]) -> None:
        program, target, form = drawn
        result = apply(RULE, program, target=target, form=form)
        assert len(result.events) + len(result.refusals) == 1
        seen["refused"] += len(result.refusals)
        if result.events:
            kept(result, vectors=3)
            seen[f"{len(_rescales(result.program))} steps"] += 1

    check()
    assert seen["1 steps"] >= 6, seen
    assert seen["2 steps"] >= 5, seen
    assert seen["refused"] >= 3, seen


def test_a_real_model_made_illegal() -> None:
    rng = np.random.default_rng(3)
    program = load(CORPUS / "dscnn_kws_a16w8.tosa")
    for op in _rescales(program):
        if op.inputs[0].dtype == DType.INT48:
            builder = Builder(op.output.name)
            multiplier, shift = (tensor.values().astype(np.int64) for tensor in op.inputs[1:3])
            wide = (multiplier << 16) + rng.integers(0, 1 << 16, multiplier.shape)
            y = builder.rescale(op.inputs[0], DType.INT16, wide, shift + 16, scale32=True)
            program.main.splice(op, builder.ops, {op.output: y})
    for target, steps in (("", 1), ("ethos-u55-128", 2)):
        result = kept(apply(RULE, program, target=target), vectors=2)
        assert len(result.events) == 10
        readers = [op for op in _rescales(result.program) if op.inputs[0].dtype == DType.INT48]
        assert {int(op.output.dtype == DType.INT32) + 1 for op in readers} == {steps}
