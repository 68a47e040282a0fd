"""One reader per INT48 accumulator: exact where the accumulator is proved to fit INT32, bounded elsewhere."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.single_rescale_per_accumulator import RULE
from rewrites.split_int48_bias import RULE as SPLIT
from tests.support.build import Net, Zeros
from tests.support.rules import EVERY_INT16, apply, bound, differences, kept, names, refusal, run
from tosakit.engine.contract import Exact, WithinLsb
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

SHARED = Path(__file__).parents[3] / "shared" / "corpus"
U55 = "ethos-u55-128"


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


def _conv(net: Net, *, bias: int = 100, deep: int = 2) -> Tensor:
    weight = np.arange(2 * deep).reshape(2, deep) % 251 - 125
    return net.conv2d(net.input("x", DType.INT16, (1, 4, 4, deep)), weight, [bias, 7])


def _two_readers(bias: int = 100, shift: int = 24) -> Program:
    """What mobilenet_v2 does: INT16 for the next convolution, INT32 for a residual ADD."""
    net = Net()
    acc = _conv(net, bias=bias)
    y = net.rescale(acc, DType.INT16, [23000, 17000], [shift, shift], "y")
    return net.program(y, net.rescale(acc, DType.INT32, [23000, 17000], [shift - 4, shift - 4], "z"))


def _readers(program: Program) -> list[Op[Any]]:
    """What reads INT48."""
    return [op for op in program.main.ops if op.inputs and op.inputs[0].dtype == DType.INT48]


class TestExact:
    def test_a_proved_accumulator_is_copied_and_pairs_stay(self) -> None:
        program = _two_readers()
        result = kept(apply(RULE, program, target=U55))
        assert [event.contract for event in result.events] == [Exact()]
        [first] = _readers(result.program)
        assert [int(t.values()[0]) for t in first.inputs[1:]] == [1 << 14, 14, 0, 0]
        assert names(result.program) == ["CONV2D", "RESCALE", "RESCALE", "RESCALE"]
        for name in "yz":
            before, after = (p.main.tensor(name).producer for p in (program, result.program))
            assert before is not None
            assert after is not None
            assert before.attrs == after.attrs
            assert [t.values().tolist() for t in before.inputs[1:]] == [t.values().tolist() for t in after.inputs[1:]]
            assert [t.dtype.name for t in after.inputs[:4]] == ["INT32", "INT16", "INT8", "INT32"]
        assert check_equivalence(program, result.program, vectors=16).equal

    def test_an_accumulator_that_only_its_upper_end_takes_past_int32_is_not_copied(self) -> None:
        net = Net()
        x = net.input("x", DType.INT16, (1, 2, 2, 1024))
        low, high = (np.array([end], np.int16).tobytes() for end in (0, 32767))
        positive = net.op(ops.Clamp(low, high), (x,), DType.INT16, x.shape, "positive")
        acc = net.conv2d(positive, np.full((1, 1024), 127), [0])
        program = net.program(
            net.rescale(acc, DType.INT16, 23000, 34, "y"), net.rescale(acc, DType.INT16, 17000, 34, "z")
        )
        assert bound(kept(apply(RULE, program, target=U55))) == 1

    def test_a_reader_that_copies_already_needs_no_proof(self) -> None:
        net = Net()
        acc = net.input("acc", DType.INT48, (1, 4))
        y = net.rescale(acc, DType.INT16, 20000, 20, "y")
        copy = net.rescale(acc, DType.INT32, 1 << 13, 13, "copy")
        matrix = net.matmul(net.input("a", DType.INT16, (1, 2, 4096)), net.input("b", DType.INT16, (1, 4096, 2)), "m")
        p = net.rescale(matrix, DType.INT16, 20000, 40, "p")
        q = net.rescale(net.identity(matrix), DType.INT32, [1 << 14, 1 << 12], [14, 12], "q")
        result = kept(apply(RULE, net.program(y, copy, p, q), target=U55))
        assert [event.contract for event in result.events] == [Exact()]
        assert result.program.main.tensor("p").producer.inputs[0].name == "q"  # type: ignore[union-attr]
        assert len(_readers(result.program)) == 3  # a block input of INT48 has no producer to look at

    def test_every_producer_and_readers_behind_identities(self) -> None:
        net = Net()
        matrix = net.matmul(net.input("a", DType.INT16, (1, 2, 1)), net.input("b", DType.INT16, (1, 1, 2)), "m")
        resized = net.upsample(net.input("x", DType.INT16, (1, 3, 4, 2)), "r")
        outputs = []
        for acc in (matrix, resized):
            outputs.append(net.rescale(net.identity(net.identity(acc, "i"), "j"), DType.INT16, 20000, 30, "y"))
            zeros = Zeros(output_value=-9)
            outputs.append(net.rescale(acc, DType.INT8, 20000, 38, "z", zeros=zeros))
        result = kept(apply(RULE, net.program(*outputs), when="all"))
        assert [event.contract for event in result.events] == [Exact(), Exact()]
        assert "IDENTITY" not in names(result.program)
        assert len(_readers(result.program)) == 2

    def test_equal_rescales_are_not_merged(self) -> None:
        net = Net()
        acc = _conv(net)
        same = [net.rescale(acc, DType.INT32, 20000, 20, name) for name in ("y", "z")]
        result = kept(apply(RULE, net.program(net.add(*same)), target=U55))
        [add] = [op for op in result.program.main.ops if op.name == "ADD"]
        assert add.inputs[0].producer is not add.inputs[1].producer

    def test_outputs_that_are_read_on_keep_their_names(self) -> None:
        net = Net()
        acc = _conv(net)
        y, z = (net.rescale(acc, DType.INT32, 20000, shift, name) for name, shift in (("y", 20), ("z", 22)))
        program = net.program(z, net.add(y, z), y, z)
        result = kept(apply(RULE, program, target=U55))
        assert [t.name for t in result.program.main.outputs] == ["z", "sum", "y", "z"]
        assert check_equivalence(program, result.program, vectors=16).equal


class TestBounded:
    def test_behind_the_reader_that_gives_int32(self) -> None:
        program = _two_readers(bias=1 << 38, shift=30)
        result = kept(apply(RULE, program, target=U55))
        assert bound(result) == 1
        [first] = _readers(result.program)
        assert first.output.name == "z"
        derived = result.program.main.tensor("y").producer
        assert derived is not None
        assert derived.attrs.scale32  # type: ignore[attr-defined]
        assert derived.inputs[0].name == "z"

    def test_the_finest_int32_reader_gives_the_others(self) -> None:
        net = Net()
        acc = _conv(net, bias=1 << 38)
        coarse = net.rescale(acc, DType.INT32, 20000, 40, "coarse")
        fine = net.rescale(acc, DType.INT32, 20000, 24, "fine")
        result = kept(apply(RULE, net.program(coarse, fine), target=U55))
        assert _readers(result.program)[0].output.name == "fine"
        assert bound(result) == 1

    def test_a_shifted_copy_where_no_reader_gives_int32(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, EVERY_INT16.shape), [[127]], [1 << 34])
        y = net.rescale(acc, DType.INT16, 1 << 14, 33, "y")
        program = net.program(y, net.rescale(acc, DType.INT16, 20000, 35, "z"))
        result = kept(apply(RULE, program, target=U55))
        [first] = _readers(result.program)
        assert int(first.inputs[2].values()[0]) == 14 + 4
        before, after = run(program, EVERY_INT16).outputs, run(result.program, EVERY_INT16).outputs
        assert differences(before, after) <= bound(result) == 1

    def test_a_coarse_int32_reader_is_worse_than_a_shifted_copy(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, EVERY_INT16.shape), [[127]], [1 << 32])
        coarse = net.rescale(acc, DType.INT32, 1 << 14, 33, "coarse")
        program = net.program(coarse, net.rescale(acc, DType.INT32, 20000, 18, "fine"), coarse)
        result = kept(apply(RULE, program, target=U55))
        before, after = run(program, EVERY_INT16).outputs, run(result.program, EVERY_INT16).outputs
        assert differences(before, after) <= bound(result) <= 2

    def test_channels_that_fit_are_copied_as_they_are(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, EVERY_INT16.shape), [[127], [1]], [1 << 36, 0])
        y = net.rescale(acc, DType.INT16, [1 << 14, 1 << 14], [36, 14], "y")
        program = net.program(y, net.rescale(acc, DType.INT16, [20000, 30000], [37, 15], "z"))
        result = kept(apply(RULE, program, target=U55))
        [first] = _readers(result.program)
        assert first.inputs[2].values().tolist() == [14 + 6, 14]
        before, after = run(program, EVERY_INT16).outputs, run(result.program, EVERY_INT16).outputs
        assert all(np.array_equal(a[..., 1], b[..., 1]) for a, b in zip(before, after, strict=True))
        assert differences(before, after) <= bound(result) == 1


class TestRefuses:
    def test_an_accumulator_that_is_an_output(self) -> None:
        net = Net()
        acc = _conv(net)
        y, z = (net.rescale(acc, DType.INT16, 20000, 20, name) for name in ("y", "z"))
        assert '"acc" is a block output' in refusal(apply(RULE, net.program(y, z, acc), target=U55))

    def test_an_illegal_reader(self) -> None:
        net = Net()
        acc = _conv(net)
        y = net.rescale(acc, DType.INT16, 20000, 20, "y")
        program = net.program(y, net.rescale(acc, DType.INT16, 1 << 30, 40, "z", scale32=True))
        assert "legalize_int48_rescale" in refusal(apply(RULE, program, target=U55))

    def test_scales_no_form_can_give(self) -> None:
        net = Net()
        acc = _conv(net, bias=1 << 40)
        y = net.rescale(acc, DType.INT16, 1 << 14, 50, "y")
        reason = refusal(apply(RULE, net.program(y, net.rescale(acc, DType.INT16, 3, 2, "z")), target=U55))
        assert "outside INT32" in reason
        assert 'RESCALE -> "z" has a shift of 2, too small to take 10 off' in reason

    def test_scales_that_may_leave_int32_in_every_form(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 2, 2, 1)), [[127]], [1 << 34])
        coarse = net.rescale(acc, DType.INT32, 1 << 14, 22, "coarse")
        program = net.program(coarse, net.rescale(acc, DType.INT16, 1 << 14, 14, "y"))
        reason = refusal(apply(RULE, program, target=U55))
        assert 'RESCALE -> "y" cannot be derived from RESCALE -> "coarse": its values reach' in reason
        assert 'RESCALE -> "y" cannot read units of 2^4: its values reach' in reason


class TestLeftAlone:
    def test_no_target(self) -> None:
        result = apply(RULE, _two_readers(), target="")
        assert not result.events
        assert not result.refusals

    def test_what_is_not_exact_on_ethos_u85(self) -> None:
        """U85 takes several readers: one is only cheaper."""
        exact = apply(RULE, _two_readers(), target="ethos-u85-256")
        assert [event.contract for event in exact.events] == [Exact()]
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 2, 2, 1)), [[127]], [1 << 34])
        y, z = net.rescale(acc, DType.INT16, 20000, 40, "y"), net.rescale(acc, DType.INT16, 17000, 41, "z")
        program = net.program(y, z)
        assert isinstance(apply(RULE, program, target=U55).events[0].contract, WithinLsb)
        result = apply(RULE, program, target="ethos-u85-256")
        assert not result.events
        assert not result.refusals

    def test_one_reader(self) -> None:
        net = Net()
        program = net.program(net.rescale(_conv(net), DType.INT16, 20000, 20))
        result = apply(RULE, program, when="all")
        assert not result.events
        assert not result.refusals

    def test_an_output_with_one_reader_is_not_this_rules_business(self) -> None:
        net = Net()
        acc = _conv(net)
        result = apply(RULE, net.program(net.rescale(acc, DType.INT16, 20000, 20), acc), target="ethos-u85-256")
        assert not result.events
        assert not result.refusals


@pytest.mark.parametrize("order", [(RULE, SPLIT), (SPLIT, RULE)])
def test_with_the_bias_split_in_either_order(order: tuple[Any, Any]) -> None:
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, EVERY_INT16.shape), [[3]], [(1 << 40) + 5])
    y = net.rescale(acc, DType.INT16, 23272, 45, "y")
    program = net.program(y, net.rescale(acc, DType.INT16, 17000, 46, "z"))
    result = program.clone()
    for step in order:
        done = run_steps(result, [step], target=U55, for_check=True)
        if done.events:
            kept(done)
    [first] = _readers(result)
    assert first.inputs[0].producer is not None
    assert not first.inputs[0].producer.inputs[2].values().any()
    before, after = run(program, EVERY_INT16).outputs, run(result, EVERY_INT16).outputs
    assert differences(before, after) <= 2


@st.composite
def _graphs(draw: st.DrawFn) -> Program:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    net = Net()
    kind = draw(st.sampled_from(["conv", "deep", "matmul", "resize"]))
    bits = 24
    if kind == "matmul":
        deep = draw(st.sampled_from([1, 8]))
        acc = net.matmul(net.input("a", DType.INT16, (1, 2, deep)), net.input("b", DType.INT16, (1, deep, 3)))
        bits = 33
    elif kind == "resize":
        acc = net.upsample(net.input("x", DType.INT16, (1, 2, 2, 3)))
    else:
        deep = 600 if kind == "deep" else 2
        bits = int(rng.choice([24, 30, 36, 44]))
        bias = rng.integers(-(1 << bits), 1 << bits, 3)
        acc = net.conv2d(net.input("x", DType.INT16, (1, 2, 2, deep)), rng.integers(-128, 128, (3, deep)), bias)
    outputs = []
    for number in range(draw(st.sampled_from([2, 3, 1]))):
        dtype = draw(st.sampled_from([DType.INT8, DType.INT16, DType.INT32]))
        size = int(rng.choice([1, 3]))
        base = bits - 16 + int(rng.integers(0, 16))
        zeros = Zeros(output_value=int(rng.integers(-128, 128)) if dtype == DType.INT8 else 0)
        source = net.identity(acc, f"i{number}") if rng.integers(2) else acc
        pair = rng.integers(1 << 13, 1 << 15, size), rng.integers(base, base + 3, size)
        outputs.append(net.rescale(source, dtype, *pair, f"y{number}", zeros=zeros))
    return net.program(*outputs, *([acc] if rng.integers(10) == 0 else []))


def test_whatever_the_graph_contracts_are_kept() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(_graphs())
    def check(program: Program) -> None:
        result = apply(RULE, program, target=U55)
        seen["refused"] += len(result.refusals)
        seen["left alone"] += not result.events and not result.refusals
        if result.events:
            kept(result, vectors=3)
            seen[type(result.events[0].contract).__name__] += 1
            assert len(_readers(result.program)) == 1

    check()
    assert seen["Exact"] >= 5, seen
    assert seen["WithinLsb"] >= 2, seen
    assert seen["refused"] >= 2, seen
    assert seen["left alone"] >= 2, seen


@pytest.mark.vela
def test_ethos_u55_takes_the_result_and_not_the_original(tmp_path: Path) -> None:
    from tosakit.backend.vela import compile_for_ethos_u

    net = Net()
    acc = _conv(net, deep=16)
    y = net.rescale(acc, DType.INT16, 23000, 26, "y")
    wide = net.rescale(acc, DType.INT32, 23000, 22, "wide")
    program = net.program(y, net.rescale(net.add(wide, wide), DType.INT16, 20000, 20, "z"))
    save(program, tmp_path / "before.tosa")
    save(apply(RULE, program, target=U55).program, tmp_path / "after.tosa")
    before, after = (
        compile_for_ethos_u(tmp_path / f"{name}.tosa", U55, output_dir=tmp_path / name) for name in ("before", "after")
    )
    assert not before.accepted
    assert after.accepted


@pytest.mark.vela
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpus is not beside this checkout")
def test_mobilenet_compiles_for_ethos_u55(tmp_path: Path) -> None:
    from tosakit.backend.vela import compile_for_ethos_u

    program = load(SHARED / "models_large" / "mobilenet_v2_a16w8.tosa")
    result = apply(RULE, program, target=U55)
    assert [event.contract for event in result.events] == [Exact()] * 5
    assert check_equivalence(program, result.program, vectors=2).equal
    save(result.program, tmp_path / "single.tosa")
    assert compile_for_ethos_u(tmp_path / "single.tosa", U55, output_dir=tmp_path / "out").accepted


def test_convolutions_of_other_types_are_left_alone() -> None:
    net = Net()
    x = net.input("x", DType.INT32, (1, 2))
    result = apply(RULE, net.program(net.op(ops.Abs(), (x,), DType.INT32, (1, 2), "a")), when="all")
    assert not result.events
