"""Every hazard fires on the smallest graph that has it, and not on its legal neighbours; the documentation agrees."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.build import Net
from tests.support.single_operators import FORMS, build
from tosakit.backend.hazards import KNOWN_ISSUES
from tosakit.backend.obstacle import Obstacle
from tosakit.backend.obstacles import find_obstacles
from tosakit.backend.vela import ACCELERATORS
from tosakit.io.reader import load
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import Graph, Op, Tensor, TensorExtras
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program, Region

ROOT = Path(__file__).parents[2]
I8, I16, I32, I48 = DType.INT8, DType.INT16, DType.INT32, DType.INT48
U55, U65, U85 = "ethos-u55-128", "ethos-u65-512", "ethos-u85-256"
ALL = (U55, U65, U85)


def where(program: Program) -> list[str]:
    """The accelerators on which anything is found."""
    return [accelerator for accelerator in ALL if find_obstacles(program, accelerator, KNOWN_ISSUES)]


def only(program: Program, accelerator: str) -> Obstacle:
    [hazard] = find_obstacles(program, accelerator, KNOWN_ISSUES)
    return hazard


# ---------------------------------------------------------------- INT48 bias beyond 40 bits
def biased(*bias: int) -> Program:
    net = Net()
    x = net.input("x", I16, (1, 2, 2, 1))
    acc = net.conv2d(x, np.ones((len(bias), 1), np.int8), list(bias))
    return net.program(net.rescale(acc, I16, 1 << 14, 20, "y"))


@pytest.mark.parametrize("value", [2**39, -(2**39) - 1, 2**40 + 5, 2**46])
def test_a_bias_beyond_40_bits_is_refused_for_u55_and_u65(value: int) -> None:
    program = biased(1, value)
    assert where(program) == [U55, U65]
    hazard = only(program, U55)
    assert (hazard.kind, hazard.operator) == ("miscompiled", 'CONV2D -> "acc"')
    assert str(hazard) == (
        f'CONV2D -> "acc": bias value {value} is outside the 40 bits that the target keeps of an INT48 bias. '
        "The rule split_int48_bias helps"
    )


def test_a_bias_of_40_bits_is_fine() -> None:
    assert where(biased(2**39 - 1, -(2**39))) == []


@pytest.mark.parametrize("kind", [ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d])
def test_every_convolution_has_a_bias(kind: type[ops.Conv3d]) -> None:
    net = Net()
    depth = (1,) if kind is ops.Conv3d else ()
    x = net.input("x", I16, (1, *depth, 2, 2, 1))
    net.convolution(kind, x, np.ones((1,) * (4 + len(depth)), np.int8), [2**41])
    assert where(net.program(net.graph.tensor("acc"))) == [U55, U65]


# ---------------------------------------------------------------- fused RESCALEs
def two_steps(shift: int = 14, multiplier: int = 0x4ABCDEF1, out: DType = I16, between: bool = False) -> Program:
    net = Net()
    x = net.input("x", I16, (1, 2, 2, 1))
    wide = net.rescale(net.conv2d(x, np.ones((1, 1), np.int8), [0]), I32, 1 << 14, shift, "wide")
    wide = net.identity(wide) if between else wide
    return net.program(net.rescale(wide, out, multiplier, 40, "y", scale32=True))


def test_a_31_bit_multiplier_behind_a_rescale_of_exactly_one_is_refused_for_u85() -> None:
    assert where(two_steps()) == [U85]
    hazard = only(two_steps(), U85)
    assert (hazard.kind, hazard.operator) == ("miscompiled", 'RESCALE -> "y"')
    assert "its multiplier 1253891825 is cut to its low 15 bits" in hazard.message
    assert "unfuse_rescale_pair" in hazard.helps


@pytest.mark.parametrize(
    "program",
    [
        two_steps(shift=13),
        two_steps(shift=15),
        two_steps(multiplier=0x7FFF),
        two_steps(out=I8),
        two_steps(between=True),
    ],
    ids=["shift 13", "shift 15", "15-bit multiplier", "INT8 result", "not directly behind it"],
)
def test_its_neighbours_are_fine(program: Program) -> None:
    assert where(program) == []


# ---------------------------------------------------------------- shifts that round down
def shifted(round_it: bool, amounts: Sequence[int], dtype: DType = I32) -> Program:
    net = Net()
    by = net.const([amounts], dtype)
    return net.program(
        net.op(ops.ArithmeticRightShift(round_it), (net.input("x", dtype, (1, 2)), by), dtype, (1, 2), "y")
    )


def test_a_shift_that_rounds_down_is_refused_for_u55_and_u65() -> None:
    assert where(shifted(False, [0, 1])) == [U55, U65]
    hazard = only(shifted(False, [0, 1]), U65)
    assert (hazard.kind, hazard.helps) == ("miscompiled", "The rule shift_by_rounding_shift helps")
    for fine in (shifted(True, [0, 1]), shifted(False, [0, 0]), shifted(False, [0, 1], I8)):
        assert where(fine) == []


# ---------------------------------------------------------------- a CAST that saturates
def narrowed(low: int, high: int) -> Program:
    net, builder = Net(), Builder("x")
    x = builder.clamp(net.input("x", I16, (4,)), low, high)
    net.take(builder)
    return net.program(net.op(ops.Cast(), (x,), I8, (4,), "y"))


@pytest.mark.parametrize(("low", "high", "wrong"), [(-128, 127, False), (-129, 127, True), (-128, 128, True)])
def test_a_cast_of_values_that_may_not_fit_is_refused_for_u55_and_u65(low: int, high: int, wrong: bool) -> None:
    program = narrowed(low, high)
    assert where(program) == ([U55, U65] if wrong else [])
    if wrong:
        assert f"it reads values from {low} to {high}; INT8 holds the low bits" in only(program, U65).message


# ---------------------------------------------------------------- state as IDENTITY
def stateful(variable: bool) -> Program:
    graph = Graph("main")
    cell = graph.add_tensor(Tensor("cell", I8, (4,), extras=TensorExtras(variable=variable, variable_name="v")))
    if not variable:
        graph.set_inputs([cell])
    read = graph.add_op(Op(Foreign(ops.Identity.NUMBER, 0, ops.VariableRead()), (cell,), (Tensor("read", I8, (4,)),)))
    graph.set_outputs(read.outputs)
    return Program([Region("main", [graph])])


def test_state_that_is_written_as_identity_is_refused_everywhere() -> None:
    assert where(stateful(variable=True)) == list(ALL)
    hazard = only(stateful(variable=True), U85)
    assert (hazard.kind, hazard.operator) == ("miscompiled", 'IDENTITY with VARIABLE_READ attributes -> "read"')
    assert where(stateful(variable=False)) == []


# ---------------------------------------------------------------- ranges that RESCALE demands
def scaled(
    dtype: DType, multiplier: int | list[int], shift: int | list[int], *, low: int | None = None, high: int = 0
) -> Program:
    net = Net()
    x = net.input("x", dtype, (1, 2, 2, 2))
    if low is not None:
        builder = Builder("clamped")
        x = builder.clamp(x, low, high)
        net.take(builder)
    return net.program(net.rescale(x, I32, multiplier, shift, "y", scale32=True))


@pytest.mark.parametrize(
    ("program", "reach", "allowed"),
    [
        (scaled(I32, 1 << 30, 30), "-2147483648 to 2147483647", "-536870912 to 536870911 that shift 30"),
        (scaled(I16, 1 << 30, 15), "-32768 to 32767", "-16384 to 16383 that shift 15"),
        (scaled(I8, 1 << 30, 7), "-128 to 127", "-64 to 63 that shift 7"),
        (scaled(I16, 1 << 30, 9, low=-256, high=256), "-256 to 256", "-256 to 255 that shift 9"),
        (scaled(I16, [1 << 30, 1 << 30], [20, 15]), "-32768 to 32767", "-16384 to 16383 that shift 15"),
    ],
    ids=["INT32", "INT16", "INT8", "one too many", "one channel"],
)
def test_values_outside_the_range_of_the_shift_are_warned_about(program: Program, reach: str, allowed: str) -> None:
    assert where(program) == list(ALL)
    hazard = only(program, U85)
    assert hazard.kind == "suspected"
    assert f"may reach from {reach}, outside the {allowed} allows" in hazard.message


@pytest.mark.parametrize(
    "program",
    [
        scaled(I32, 1 << 30, 32),
        scaled(I16, 1 << 30, 16),
        scaled(I8, 1 << 30, 8),
        scaled(I16, 1 << 30, 9, low=-256, high=255),
    ],
    ids=["INT32", "INT16", "INT8", "clamped"],
)
def test_values_inside_the_range_are_not(program: Program) -> None:
    assert where(program) == []


def test_the_zero_point_counts_and_channels_are_looked_at_one_by_one() -> None:
    net = Net()
    x = net.input("x", I8, (1, 2))
    builder = Builder("y")
    y = builder.rescale(x, I32, 1 << 30, 8, scale32=True, input_zp=1)
    net.take(builder)
    assert "may reach from -129 to 126" in only(net.program(y), U85).message

    net = Net()
    wide = net.rescale(net.input("x", I8, (1, 2)), I32, [1 << 30, 1 << 30], [30, 20], "wide", scale32=True)
    fits = net.rescale(wide, I32, [1 << 9, 1 << 30], [9, 30], "y", scale32=True)  # 2^8 and 2^29, as the channels need
    assert where(net.program(fits)) == []


def test_16_bit_multipliers_demand_no_range() -> None:
    net = Net()
    assert where(net.program(net.rescale(net.input("x", I32, (4,)), I32, 1 << 14, 14))) == []


# ---------------------------------------------------------------- merged RESCALEs and x + x
def doubled(multipliers: tuple[int, int] = (1431655765, 1431655765), *, shared: bool = False) -> Program:
    net = Net()
    x = net.input("x", I16, (4,))
    left = net.rescale(x, I32, multipliers[0], 30, "left", scale32=True)
    right = left if shared else net.rescale(x, I32, multipliers[1], 30, "right", scale32=True)
    return net.program(net.rescale(net.add(left, right), I16, 1 << 14, 18, "y"))


def test_x_plus_x_with_a_scale_that_is_no_power_of_two_is_warned_about_on_u55() -> None:
    assert where(doubled()) == [U55]
    hazard = only(doubled(), U55)
    assert (hazard.kind, hazard.operator) == ("suspected", 'ADD -> "sum"')
    assert "multiplier 1431655765" in hazard.message


@pytest.mark.parametrize(
    "multipliers", [(1 << 30, 1 << 30), (1431655765, 1431655764)], ids=["power of two", "two scales"]
)
def test_other_sums_are_fine(multipliers: tuple[int, int]) -> None:
    assert where(doubled(multipliers)) == []


def test_a_widening_rescale_with_several_readers_is_warned_about_on_u55_and_u65() -> None:
    net = Net()
    wide = net.rescale(net.input("x", I8, (4,)), I32, 1 << 30, 30, "wide", scale32=True)
    program = net.program(*(net.rescale(wide, I8, 1 << 14, 14, name) for name in ("a", "b")))
    assert where(program) == [U55, U65]
    assert "2 readers" in only(program, U65).message

    from_accumulator = Net()
    acc = from_accumulator.conv2d(from_accumulator.input("x", I16, (1, 2, 2, 1)), np.ones((1, 1), np.int8), [0])
    narrow = from_accumulator.rescale(acc, I32, 1 << 14, 15, "narrow")
    readers = [from_accumulator.rescale(narrow, I16, 1 << 14, 18, name) for name in ("a", "b")]
    assert where(from_accumulator.program(*readers)) == []


# ---------------------------------------------------------------- sums of int16
@pytest.mark.parametrize("between", [False, True], ids=["directly", "behind a RESHAPE"])
def test_sums_of_int16_are_warned_about_on_u85(between: bool) -> None:
    def program(dtype: DType) -> Program:
        net = Net()
        wide = net.rescale(net.input("x", dtype, (1, 4)), I32, 1 << 30, 30, "wide", scale32=True)
        if between:
            builder = Builder("moved")
            shape = builder.const_shape((1, 4))
            net.take(builder)
            wide = net.op(ops.Reshape(), (wide, shape), I32, (1, 4), "moved")
        return net.program(net.op(ops.ReduceSum(axis=1), (wide,), I32, (1, 1), "y"))

    assert where(program(I16)) == [U85]
    assert only(program(I16), U85).operator == 'REDUCE_SUM -> "y"'
    assert where(program(I8)) == []


# ---------------------------------------------------------------- all together
@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "corpus").glob("*.tosa")), ids=lambda path: path.stem)
def test_nothing_in_ordinary_models_is_refused(path: Path) -> None:
    program = load(path)
    assert not [
        h
        for accelerator in ACCELERATORS
        for h in find_obstacles(program, accelerator, KNOWN_ISSUES)
        if h.kind == "miscompiled"
    ]


NEAREST = {"in_t": DType.INT8, "out_t": DType.INT8}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"scale": (2, 1, 4, 1)}, "the factors of scale [2, 1, 4, 1] differ"),
        ({"scale": (3, 1, 4, 1)}, "the factors of scale [3, 1, 4, 1] differ"),
        ({"scale": (4, 2, 4, 2), "offset": (-1, -1), "border": (3, 3)}, "offset [-1, -1] and border [3, 3]"),
        ({"scale": (2, 1, 2, 1)}, None),
        ({"scale": (4, 2, 4, 2), "offset": (-1, -1), "border": (1, 1)}, None),
        ({"scale": (1, 1, 4, 1), "size": (1, 5)}, None),
        ({"scale": (1, 1, 1, 1)}, None),
    ],
)
def test_nearest_resize_that_is_compiled_as_another(form: Any, message: str | None) -> None:
    program = build("RESIZE", NEAREST, FORMS["RESIZE"](NEAREST, mode=ResizeMode.NEAREST, **form))
    assert where(program) == ([U55, U65] if message else [])
    if message:
        assert message in only(program, U55).message


def malformed() -> Sequence[Program]:
    """Operators that are not as TOSA has them."""
    programs = []
    for attrs in (ops.Add(), ops.ReduceSum(axis=0), ops.Rescale(True, ops.RoundingMode.SINGLE_ROUND, False)):
        net = Net()
        programs.append(net.program(net.op(attrs, (), I32, (), "nothing_read")))
    net = Net()
    x = net.input("x", I32, (4,))
    programs.append(net.program(net.rescale(x, I16, [], [], scale32=True, per_channel=True)))
    net = Net()
    programs.append(net.program(net.rescale(net.input("x", I32, (4,)), I16, [1, 1, 1], [20, 20, 20], scale32=True)))
    for shift in (-5, 0, 1):
        net = Net()
        programs.append(net.program(net.rescale(net.input("x", I32, (4,)), I16, 1, shift, scale32=True)))
    net = Net()
    programs.append(net.program(net.rescale(net.input("x", DType.FP32, (4,)), I16, 1, 1, scale32=True)))
    net = Net()
    bias = Tensor("bias", I48, (4,), b"short")
    net.graph.add_op(Op(ops.Const(), (), (bias,)))
    programs.append(net.program(net.conv2d(net.input("x", I16, (1, 1, 1, 1)), np.ones((4, 1), np.int8), bias)))
    return programs


@pytest.mark.parametrize("program", malformed())
def test_operators_that_are_not_as_tosa_has_them_are_left_to_the_verifier(program: Program) -> None:
    for accelerator in ALL:
        assert find_obstacles(program, accelerator, KNOWN_ISSUES) == []


def test_the_documentation_lists_exactly_what_is_looked_for() -> None:
    page = (ROOT / "docs" / "known-issues.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    of_vela = rows[rows.index(["accelerator", "graph", "what happens", "what we do"]) + 2 :]
    documented = {row[1]: (row[0], row[3]) for row in of_vela if len(row) == 4}
    families = {"ethos-u55": "U55", "ethos-u65": "U65", "ethos-u85": "U85"}
    for issue in KNOWN_ISSUES:
        accelerators, what = documented.pop(issue.graph)
        names = ", ".join(families[family] for family in issue.families)
        assert accelerators == ("all" if len(issue.families) == 3 else names), issue.graph
        assert re.match("refused" if issue.kind == "miscompiled" else "warned", what), issue.graph
    assert documented == {}
