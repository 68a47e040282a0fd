"""The inverse of the bias split, and every ADD that a bias can stand for exactly."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.fuse_int48_bias import RULE
from rewrites.split_int48_bias import RULE as SPLIT
from tests.support.build import Net, canonical
from tests.support.rules import EVERY_INT16, apply, kept, names, refusal, run
from tosakit.engine.contract import Exact
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

CORPUS = Path(__file__).parents[1] / "corpus"
SHARED = Path(__file__).parents[3] / "shared" / "corpus"


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE)


class _Chain:
    """CONV2D -> RESCALE to INT32 -> ADD of a constant, with two channels; tests add the readers."""

    def __init__(
        self,
        constant: object,
        *,
        pair: tuple[object, object] = (1 << 14, 14),
        bias: object = (0, 0),
        swapped: bool = False,
        weight: int = 3,
    ) -> None:
        self.net = Net()
        x = self.net.input("x", DType.INT16, (1, 4, 4, 2))
        self.acc = self.net.conv2d(x, [[weight, 4], [-5, 6]], np.asarray(bias))
        self.narrow = self.net.rescale(self.acc, DType.INT32, *pair, "narrow")  # type: ignore[arg-type]
        self.constant = self.net.const(np.asarray(constant), DType.INT32, "c")
        operands = (self.constant, self.narrow) if swapped else (self.narrow, self.constant)
        self.total = self.net.add(*operands, "total")

    def rescaled(self, name: str = "y") -> Tensor:
        return self.net.rescale(self.total, DType.INT16, [20000, 30000], [20, 21], name)


BY_CHANNEL = [[[[1000, -7]]]]


class TestInverse:
    def test_the_original_comes_back(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4], [5, 6]], [1 << 29, 2])
        y = net.rescale(net.identity(acc), DType.INT16, [20000, 30000], [20, 21], "y")
        z = net.rescale(acc, DType.INT32, 16384, 16, "z")
        program = net.program(y, z, y)
        split = run_steps(program.clone(), [SPLIT], options={SPLIT.name: SPLIT.options("all")}).program
        assert canonical(split) != canonical(program)
        back = kept(apply(RULE, split))
        assert [event.contract for event in back.events] == [Exact()]
        assert names(back.program) == ["CONV2D", "RESCALE", "RESCALE"]  # the IDENTITY is gone for good
        assert [t.name for t in back.program.main.outputs] == ["y", "z", "y"]
        assert check_equivalence(program, back.program, vectors=16).equal

    def test_a_real_model_comes_back(self) -> None:
        program = load(CORPUS / "dscnn_kws_a16w8.tosa")
        split = run_steps(program.clone(), [SPLIT], options={SPLIT.name: SPLIT.options("all")})
        assert len(split.events) == 10
        assert canonical(split.program) != canonical(program)
        back = apply(RULE, split.program)
        assert [event.contract for event in back.events] == [Exact()] * 10
        assert canonical(back.program) == canonical(program)

    def test_the_pre_shifted_form_keeps_its_first_rescale(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, EVERY_INT16.shape), [[3]], [(1 << 40) + 5])
        program = net.program(net.rescale(acc, DType.INT16, 23272, 45))
        split = run_steps(program.clone(), [SPLIT], options={SPLIT.name: SPLIT.options("all")}).program
        result = kept(apply(RULE, split))
        assert names(result.program) == ["CONV2D", "RESCALE", "RESCALE"]
        assert result.program.main.ops[-1].inputs[0].dtype == DType.INT32
        assert np.array_equal(run(split, EVERY_INT16).outputs[0], run(result.program, EVERY_INT16).outputs[0])


class TestFires:
    @pytest.mark.parametrize("swapped", [False, True])
    @pytest.mark.parametrize("constant", [BY_CHANNEL, [[[[5]]]], np.full((1, 4, 4, 2), 9).tolist()])
    def test_directly(self, constant: object, swapped: bool) -> None:
        chain = _Chain(constant, bias=[11, -12], swapped=swapped)
        result = kept(apply(RULE, chain.net.program(chain.rescaled())))
        assert names(result.program) == ["CONV2D", "RESCALE"]
        conv, last = (op for op in result.program.main.ops if op.name in ("CONV2D", "RESCALE"))
        wanted = np.asarray(constant).reshape(-1, np.asarray(constant).shape[-1])[0] + [11, -12]
        assert conv.inputs[2].values().tolist() == wanted.tolist()
        assert [t.dtype.name for t in last.inputs] == ["INT48", "INT16", "INT8", "INT48", "INT16"]

    def test_a_reader_that_needs_int32_keeps_the_first_rescale(self) -> None:
        chain = _Chain(BY_CHANNEL)
        wide = chain.net.rescale(chain.total, DType.INT16, 1 << 30, 40, "z", scale32=True)
        result = kept(apply(RULE, chain.net.program(chain.rescaled(), wide)))
        assert names(result.program) == ["CONV2D", "RESCALE", "RESCALE", "RESCALE"]

    def test_a_sum_that_is_an_output_keeps_its_name(self) -> None:
        chain = _Chain(BY_CHANNEL)
        result = kept(apply(RULE, chain.net.program(chain.rescaled(), chain.total)))
        assert [t.name for t in result.program.main.outputs] == ["y", "total"]

    def test_any_scale_for_which_the_bias_is_an_integer(self) -> None:
        chain = _Chain([[[[1000, -9]]]], pair=([1 << 13, 3 << 12], [20, 20]))
        result = kept(apply(RULE, chain.net.program(chain.rescaled())))
        [conv] = [op for op in result.program.main.ops if op.name == "CONV2D"]
        assert conv.inputs[2].values().tolist() == [1000 << 7, -(3 << 8)]

    def test_one_rescale_per_accumulator_where_the_target_wants_it(self) -> None:
        chain = _Chain(BY_CHANNEL)
        program = chain.net.program(chain.rescaled("y"), chain.rescaled("z"))
        assert names(apply(RULE, program).program) == ["CONV2D", "RESCALE", "RESCALE"]
        assert names(apply(RULE, program, target="ethos-u55-128").program) == ["CONV2D"] + ["RESCALE"] * 3

    def test_a_shared_bias_is_not_changed(self) -> None:
        chain = _Chain(BY_CHANNEL, bias=[3, 4])
        x, weight, bias, *zero_points = chain.acc.producer.inputs  # type: ignore[union-attr]
        attrs = chain.acc.producer.attrs  # type: ignore[union-attr]
        other = chain.net.op(attrs, (x, weight, bias, *zero_points), DType.INT48, chain.acc.shape, "other")
        program = chain.net.program(chain.rescaled(), chain.net.rescale(other, DType.INT16, 20000, 20, "z"))
        result = kept(apply(RULE, program))
        assert result.program.main.tensor("other").producer.inputs[2].values().tolist() == [3, 4]  # type: ignore[union-attr]
        assert check_equivalence(program, result.program, vectors=16).equal


class TestRefuses:
    def test_a_rescale_that_is_read_elsewhere(self) -> None:
        chain = _Chain(BY_CHANNEL)
        reason = refusal(apply(RULE, chain.net.program(chain.rescaled(), chain.narrow)))
        assert 'RESCALE -> "narrow" is also read by OUTPUT' in reason

    def test_an_accumulator_that_is_read_elsewhere(self) -> None:
        chain = _Chain(BY_CHANNEL)
        other = chain.net.rescale(chain.acc, DType.INT16, 20000, 20, "other")
        reason = refusal(apply(RULE, chain.net.program(chain.rescaled(), other)))
        assert 'CONV2D -> "acc" is also read by RESCALE -> "other"' in reason

    def test_a_constant_that_is_no_integer_in_the_accumulator(self) -> None:
        chain = _Chain([[[[1000, -10]]]], pair=([1 << 13, 3 << 12], [20, 20]))
        reason = refusal(apply(RULE, chain.net.program(chain.rescaled())))
        assert "in channel 1: -10 * 2^20 / 12288 is no integer" in reason

    def test_a_constant_that_varies_in_space(self) -> None:
        chain = _Chain(np.arange(32).reshape(1, 4, 4, 2))
        assert "varies over more than channels" in refusal(apply(RULE, chain.net.program(chain.rescaled())))

    def test_a_constant_that_broadcasts_the_accumulator(self) -> None:
        chain = _Chain(np.ones((3, 1, 1, 2), np.int64))
        assert "does not fit [1, 4, 4, 2]" in refusal(apply(RULE, chain.net.program(chain.rescaled())))

    def test_a_bias_that_leaves_int48_or_the_40_bits_of_a_target(self) -> None:
        chain = _Chain([[[[1 << 30, 0]]]], pair=(1 << 14, 14 + 16), bias=[1 << 46, 0])
        program = chain.net.program(chain.rescaled())
        reason = refusal(apply(RULE, program))
        assert str((1 << 46) + (1 << 46)) in reason
        chain = _Chain([[[[1 << 30, 0]]]], pair=(1 << 14, 14 + 10))
        program = chain.net.program(chain.rescaled())
        assert "ethos-u55-128 keeps 40 bits" in refusal(apply(RULE, program, target="ethos-u55-128"))
        kept(apply(RULE, program))

    @pytest.mark.parametrize("constant", [(1 << 30) - 1, -(1 << 30)])
    def test_an_accumulator_that_could_leave_int48_with_the_bias(self, constant: int) -> None:
        chain = _Chain([[[[0, constant]]]], pair=(1 << 14, 14 + 17), weight=127)
        assert "outside INT48" in refusal(apply(RULE, chain.net.program(chain.rescaled())))

    def test_what_ethos_u85_would_miscompile(self) -> None:
        chain = _Chain(BY_CHANNEL)
        program = chain.net.program(chain.net.rescale(chain.total, DType.INT16, 0x4ABCDEF1, 50, scale32=True))
        assert "would cut the 31-bit multiplier" in refusal(apply(RULE, program, target="ethos-u85-256"))
        kept(apply(RULE, program))

    def test_an_illegal_first_rescale(self) -> None:
        net = Net()
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], [1])
        narrow = net.rescale(acc, DType.INT32, 1 << 30, 30, "narrow", scale32=True)
        program = net.program(net.add(narrow, net.const([[[[1]]]], DType.INT32)))
        assert "legalize_int48_rescale" in refusal(apply(RULE, program))

    def test_a_computed_bias(self) -> None:
        net = Net()
        bias = net.input("bias", DType.INT48, (1,))
        acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 2)), [[3, 4]], bias)
        narrow = net.rescale(acc, DType.INT32, 1 << 14, 14, "narrow")
        program = net.program(net.add(narrow, net.const([[[[1]]]], DType.INT32)))
        assert '"bias" is no constant' in refusal(apply(RULE, program))


def test_additions_of_anything_else_are_not_its_business() -> None:
    net = Net()
    x = net.input("x", DType.INT16, (1, 4, 4, 2))
    acc = net.conv2d(x, [[3, 4]], [1])
    narrow = net.rescale(acc, DType.INT32, 1 << 14, 14, "narrow")
    other = net.rescale(net.conv2d(x, [[1, 1]], [1], "b"), DType.INT32, 1 << 14, 14, "m")
    wide = net.rescale(x, DType.INT32, 1 << 14, 14, "wide")
    sums = (
        net.add(narrow, other, "s1"),
        net.add(wide, net.const([[[[1]]]], DType.INT32), "s2"),
        net.add(net.input("i", DType.INT32, (1, 1)), net.const([[1]], DType.INT32), "s3"),
    )
    result = apply(RULE, net.program(*sums))
    assert not result.events
    assert not result.refusals


@st.composite
def _chains(draw: st.DrawFn) -> Program:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind, rank = draw(st.sampled_from([(ops.Conv2d, 4), (ops.Conv3d, 5), (ops.DepthwiseConv2d, 4)]))
    net = Net()
    x = net.input("x", DType.INT16, (1, *(2,) * (rank - 2), 2))
    shape = (1, 1, 2, 1) if kind is ops.DepthwiseConv2d else (2, *(1,) * (rank - 2), 2)
    bits = draw(st.sampled_from([8, 20, 40]))
    bias = rng.integers(-(1 << bits), 1 << bits, draw(st.sampled_from([1, 2])))
    acc = net.convolution(kind, x, rng.integers(-128, 128, shape), bias)
    shift = draw(st.sampled_from([14, 14, 16, 24]))
    multiplier = draw(st.sampled_from([1 << 14, 1 << 14, 3 << 12]))
    narrow = net.rescale(acc, DType.INT32, multiplier, shift, "narrow")
    varied = (*(1,) * (rank - 1), 2) if draw(st.booleans()) else acc.shape
    constant = rng.integers(-500, 500, varied) * draw(st.sampled_from([1, 3]))
    total = net.add(narrow, net.const(constant if draw(st.booleans()) else np.full(varied, 7), DType.INT32), "total")
    readers = [net.rescale(total, DType.INT16, int(rng.integers(1 << 15)), 24, f"y{n}") for n in range(2)]
    extra = [total] if draw(st.booleans()) else []
    return net.program(*readers[: draw(st.integers(1, 2))], *extra)


def test_whatever_the_graph_results_are_identical() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(_chains())
    def check(program: Program) -> None:
        result = apply(RULE, program)
        seen["fired"] += len(result.events)
        seen["refused"] += len(result.refusals)
        if result.events:
            same = check_equivalence(program, result.program, vectors=3)
            seen["compared"] += same.vectors
            assert not same.vectors or same.equal, same

    check()
    assert seen["fired"] >= 10, seen
    assert seen["refused"] >= 5, seen
    assert seen["compared"] >= 20, seen


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpus is not beside this checkout")
def test_every_a16w8_model_comes_back() -> None:
    seen: Counter[str] = Counter()
    for path in sorted(SHARED.glob("models*/*a16w8*.tosa")):
        program = load(path)
        assert not apply(RULE, program).events  # nothing to fuse before anything was split
        split = run_steps(program.clone(), [SPLIT], options={SPLIT.name: SPLIT.options("all")})
        back = apply(RULE, split.program)
        assert len(back.events) == len(split.events)
        assert not back.refusals
        if all(event.contract == Exact() for event in split.events):
            assert canonical(back.program) == canonical(program), path
            seen["back"] += bool(split.events)
        else:
            kept(back, vectors=3)
            seen["pre-shifted"] += 1
    assert seen["back"] >= 25, seen
    assert seen["pre-shifted"] >= 1, seen
