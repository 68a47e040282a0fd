"""check_equivalence: status first, then numbers, and never a tolerance."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.support.build import Net
from tosakit.engine.rule import BoundaryChange
from tosakit.errors import InvalidArgument, NotEquivalent, Unsupported
from tosakit.io.writer import save
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import Graph, Tensor, TensorExtras
from tosakit.ir.program import Program, Region, SoftwareVersion, Version
from tosakit.ir.types import encode
from tosakit.oracle.equivalence import Verdict, check_equivalence
from tosakit.oracle.refmodel import ReferenceModel

pytestmark = pytest.mark.refmodel

I8, I16, I32, I48, FP32 = DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.FP32


def plus(constant: int, dtype: DType = I32, shape: tuple[int, ...] = (4,)) -> Program:
    """y = x + constant."""
    net = Net()
    x = net.input("x", dtype, shape)
    return net.program(net.add(x, net.const(np.full((1,) * len(shape), constant), dtype), "y"))


def same(dtype: DType = I32, shape: tuple[int, ...] = (4,), name: str = "y") -> Program:
    """y = x."""
    net = Net()
    return net.program(net.identity(net.input("x", dtype, shape), name))


def rescaled(multiplier: int, shift: int, *, scale32: bool = True) -> Program:
    """y = RESCALE(x), INT32 to INT32."""
    net = Net()
    return net.program(net.rescale(net.input("x", I32, (4,)), I32, multiplier, shift, scale32=scale32))


def accumulator(bias: int = 0, weight: int = 127, channels: int = 1024) -> Net:
    """A convolution that exceeds INT32 by far at the input limits, with its INT48 result "acc"."""
    net = Net()
    x = net.input("x", I16, (1, 1, 1, channels))
    net.conv2d(x, np.full((1, channels), weight), [bias], "acc")
    return net


# ---------------------------------------------------------------- status first
def test_an_unpredictable_original_is_never_equal() -> None:
    """Field report O1: the model's Python binding gives zeros then, which another program may give rightly."""
    before = accumulator(bias=2**46)
    before_program = before.program(before.rescale(before.graph.tensor("acc"), I32, 1 << 14, 14))
    zeros = Net()
    zeros.input("x", I16, (1, 1, 1, 1024))
    after = zeros.program(zeros.const(np.zeros((1, 1, 1, 1), np.int32), I32, "y"))

    found = check_equivalence(before_program, after, vectors=14)

    assert found.verdict is Verdict.UNKNOWN
    assert not found.equal
    assert (found.vectors, found.skipped) == (0, 14)
    assert found.message.startswith("nothing could be compared; the first program is unpredictable: REQUIRE")
    assert str(found).startswith("unknown; 0 vectors, 14 skipped, seed 0; nothing could be compared")


def test_a_result_that_is_unpredictable_where_the_original_is_valid_is_invalid() -> None:
    found = check_equivalence(same(), rescaled(1 << 30, 30), vectors=4)  # legal on 30 bits only
    assert found.verdict is Verdict.INVALID
    assert found.message.startswith("the second program is unpredictable where the first is valid: REQUIRE")


def test_two_unpredictable_programs_are_not_equal_either() -> None:
    beyond = [np.full(4, 2**30, np.int32)]
    assert check_equivalence(rescaled(1 << 30, 30), rescaled(1 << 30, 30), inputs=[beyond]).verdict is Verdict.UNKNOWN


def test_vectors_where_only_the_original_is_unpredictable_are_skipped_and_counted() -> None:
    found = check_equivalence(rescaled(1 << 30, 30), same(), vectors=20)
    assert found.equal
    assert found.vectors + found.skipped == 20
    assert found.skipped > 5
    assert str(found) == f"equal; {found.vectors} vectors, {found.skipped} skipped, seed 0"


def test_an_illegal_program_is_no_comparison() -> None:
    illegal = plus(0, I16)  # TOSA has no ADD on INT16
    assert check_equivalence(illegal, same(I16), vectors=2).message.startswith(
        "nothing could be compared; the first program is error"
    )
    assert check_equivalence(same(I16), illegal, vectors=2).verdict is Verdict.INVALID


def test_a_crash_ends_the_comparison_at_once(tmp_path: Path) -> None:
    crashing = tmp_path / "model"
    crashing.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    found = check_equivalence(same(), same(), vectors=16, model=ReferenceModel(executable=crashing, jobs=1))
    assert found.verdict is Verdict.UNKNOWN
    assert found.skipped == 16
    assert "the first program is crashed: SIGSEGV" in found.message
    assert (tmp_path / "runs").read_text().count("run") <= 3


# ---------------------------------------------------------------- numbers
def test_equal_means_identical_on_every_vector() -> None:
    found = check_equivalence(plus(3), plus(3))
    assert found.equal
    assert (found.max_difference, found.sqnr_db, found.skipped) == (0.0, math.inf, 64 - found.vectors)
    [output] = found.outputs
    assert (output.name, output.fraction_different) == ("y", 0.0)


def test_one_lsb_is_a_difference() -> None:
    found = check_equivalence(same(), plus(1), inputs=[[np.full(4, 100, np.int32)], [np.full(4, -100, np.int32)]])
    assert found.verdict is Verdict.DIFFERENT
    assert (found.vectors, found.skipped) == (2, 0)
    [output] = found.outputs
    assert (output.max_difference, output.fraction_different) == (1.0, 1.0)
    assert output.sqnr_db == pytest.approx(40.0)
    assert str(found) == "different; 2 vectors, 0 skipped, seed 0; at most 1 LSB apart, SQNR 40.0 dB"


def test_the_worst_output_counts() -> None:
    def program(offset: int) -> Program:
        net = Net()
        x = net.input("x", I32, (2,))
        good = net.identity(x, "good")
        return net.program(good, net.add(x, net.const([offset], I32), "bad"), good)

    found = check_equivalence(program(0), program(7), inputs=[[np.array([1, 2], np.int32)]])
    assert [(o.name, o.max_difference) for o in found.outputs] == [("good", 0.0), ("bad", 7.0), ("good", 0.0)]
    assert found.max_difference == 7.0


def test_int48_outputs_are_compared() -> None:
    """Field report O2: the model's Python binding gives an empty array for them, equal to any other."""
    first, second = accumulator(bias=2**46), accumulator(bias=2**46 + 1)
    before, after = (net.program(net.graph.tensor("acc")) for net in (first, second))
    assert check_equivalence(before, before, vectors=4).equal
    found = check_equivalence(before, after, vectors=4)
    assert (found.verdict, found.max_difference) == (Verdict.DIFFERENT, 1.0)


def test_nan_equals_nan_and_nothing_else() -> None:
    def clamped(mode: NanPropagationMode) -> Program:
        net = Net()
        x = net.input("x", FP32, (3,))
        low, high = encode(np.float32([-10]), FP32), encode(np.float32([10]), FP32)
        return net.program(net.op(ops.Clamp(low, high, mode), (x,), FP32, (3,), "y"))

    keeps, drops = clamped(NanPropagationMode.PROPAGATE), clamped(NanPropagationMode.IGNORE)
    vector = [np.array([1.0, np.nan, 2.0], np.float32)]
    assert check_equivalence(keeps, same(FP32, (3,)), inputs=[vector]).equal
    found = check_equivalence(keeps, drops, inputs=[vector])
    assert (found.verdict, found.max_difference, found.sqnr_db) == (Verdict.DIFFERENT, math.inf, -math.inf)


def test_the_seed_decides_the_inputs_and_nothing_else_does() -> None:
    halved = rescaled(1 << 14, 15, scale32=False)
    first, again = (check_equivalence(same(), halved, vectors=20, seed=5) for _ in range(2))
    other = check_equivalence(same(), halved, vectors=20, seed=6)
    assert first == again
    assert (first.seed, other.seed) == (5, 6)
    assert first.outputs != other.outputs


# ---------------------------------------------------------------- interfaces
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (same(I16), r'different inputs.*"x" INT32 \[4\] against "x" INT16 \[4\]'),
        (same(shape=(2, 2)), r'different inputs.*"x" INT32 \[4\] against "x" INT32 \[2, 2\]'),
        (same(name="z"), r'different outputs.*"y" INT32 \[4\] against "z" INT32 \[4\]'),
    ],
    ids=["dtype", "shape", "name"],
)
def test_programs_with_other_interfaces_are_not_compared(other: Program, message: str) -> None:
    with pytest.raises(NotEquivalent, match=message):
        check_equivalence(same(), other)


def test_a_missing_output_is_another_interface() -> None:
    net = Net()
    x = net.input("x", I32, (4,))
    with pytest.raises(NotEquivalent, match=r'different outputs.*against "y" INT32 \[4\], "y" INT32 \[4\]'):
        check_equivalence(same(), net.program(*[net.identity(x, "y")] * 2))


def test_outputs_whose_dtype_changed_on_purpose_are_compared_on_the_old_grid() -> None:
    changes = [BoundaryChange(name, I8, I16, -3, 128) for name in ("x", "y")]
    assert check_equivalence(same(I8), same(I16), boundary=changes).equal

    net = Net()
    x = net.input("x", I16, (4,))
    wide = net.rescale(x, I32, 1 << 30, 30, "wide", scale32=True)
    half_up = net.add(wide, net.const([64], I32))
    after = net.program(net.rescale(half_up, I16, 1 << 14, 14, "y"))
    found = check_equivalence(same(I8), after, boundary=changes, inputs=[[np.full(4, 97, np.int8)]])
    assert found.max_difference == 0.5
    assert found.sqnr_db == pytest.approx(20 * math.log10(100 / 0.5))  # 97 is 100 above the zero point


def test_a_change_that_is_not_declared_or_does_not_fit_is_refused() -> None:
    with pytest.raises(NotEquivalent, match="different outputs"):
        check_equivalence(same(I8), same(I16), boundary=[BoundaryChange("x", I8, I16, 0, 128)])
    too_wide = [BoundaryChange(name, I8, I16, 0, 1024) for name in ("x", "y")]
    with pytest.raises(InvalidArgument, match=r'input "x": .* do not fit INT16'):
        check_equivalence(same(I8), same(I16), boundary=too_wide)


def test_a_program_without_inputs_runs_once() -> None:
    net, other = Net(), Net()
    before = net.program(net.op(ops.Abs(), (net.const([-5, 5], I32),), I32, (2,), "y"))
    after = other.program(other.const([5, 5], I32, "y"))
    found = check_equivalence(before, after)
    assert (found.equal, found.vectors) == (True, 1)


def test_a_program_without_outputs_says_nothing() -> None:
    net = Net()
    net.input("x", I32, (4,))
    found = check_equivalence(net.program(), net.program(), vectors=2)
    assert found.verdict is Verdict.UNKNOWN


def test_dynamic_and_block_scaled_interfaces_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidArgument, match='input "x" has the dynamic shape'):
        check_equivalence(same(shape=(-1, 4)), same(shape=(-1, 4)))
    graph = Graph("main")
    extras = TensorExtras(scale_type=DType.FP8UE8M0)
    x = graph.add_tensor(Tensor("x", DType.FP8E4M3, (1, 32), extras=extras))
    graph.set_inputs([x])
    graph.set_outputs([x])
    scaled = Program([Region("main", [graph])])
    with pytest.raises(Unsupported, match="block-scaled"):
        check_equivalence(scaled, scaled, vectors=1)


# ---------------------------------------------------------------- calling it
def test_paths_are_loaded(tmp_path: Path) -> None:
    save(plus(1), tmp_path / "a.tosa")
    assert check_equivalence(tmp_path / "a.tosa", str(tmp_path / "a.tosa"), vectors=2).equal


@pytest.mark.parametrize("version", [Version(1, 0, 7), Version(1, 1, 0), Version(1, 1, 0, draft=True)], ids=str)
def test_what_a_file_says_about_its_version_and_origin_does_not_keep_it_from_running(version: Version) -> None:
    """Field reports E2 and E3: the model refuses files of versions, and of writers, that it does not know."""
    program = same()
    program.version, program.software_version = version, SoftwareVersion(9999, 1, 0)
    assert check_equivalence(program, same(), vectors=2).equal


def test_progress_is_told_from_nothing_to_all() -> None:
    told: list[tuple[int, int]] = []
    check_equivalence(same(), same(), vectors=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6)]


@pytest.mark.parametrize(
    ("setting", "message"), [({"vectors": 0}, "at least 1"), ({"seed": -1}, "seed -1 is negative")]
)
def test_impossible_numbers_are_refused(setting: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_equivalence(same(), same(), **setting)  # type: ignore[arg-type]


def test_no_inputs_given_is_no_comparison() -> None:
    assert check_equivalence(same(), same(), inputs=[]).message == "nothing could be compared; no inputs are given"
