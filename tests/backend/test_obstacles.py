"""What the target tables have against a program: in words, and in agreement with the installed Vela."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from tests.backend.compare_vela import disagreements, legal
from tests.support.build import Net
from tests.support.indices import indexed
from tests.support.operator_variations import INTEGERS
from tests.support.single_operators import FORMS, Types, build, every_row
from tosakit.backend.obstacle import Obstacle
from tosakit.backend.obstacles import TABLE, find_obstacles
from tosakit.backend.targets import FAMILIES as FAMILY_NAMES
from tosakit.backend.targets import OPERATORS
from tosakit.catalogue import load_catalogue
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.program import Program
from tosakit.spec.signature import signature

U55, U65, U85 = "ethos-u55-128", "ethos-u65-256", "ethos-u85-256"
ALL = (U55, U65, U85)
INT8: Types = {
    **dict.fromkeys(("in_t", "weight_t", "in_zp_t", "weight_zp_t", "in_out_t", "A_t", "B_t"), DType.INT8),
    **dict.fromkeys(("out_t", "acc_t"), DType.INT32),
}
INT32: Types = dict.fromkeys(("in_out_t", "acc_t"), DType.INT32)


def single(name: str, types: Types = INT8, **form: Any) -> Program:
    return build(name, types, FORMS[name](types, **form))


def refused(program: Program, accelerator: str = U55) -> list[Obstacle]:
    return [obstacle for obstacle in find_obstacles(program, accelerator) if obstacle.kind == "refused"]


DEEP = {"kernel": (2, 1, 1), "out": (2, 4, 4), "stride": (1,) * 3, "dilation": (1,) * 3, "pad": (0,) * 6}
PADDED = {"pad": (1,) * 4}
THIN = {"kernel": (1, 1), "oc": 1}

LIMITS: list[tuple[str, Types, dict[str, Any], dict[str, Any], str]] = [
    ("ARGMAX", INT8, {"shape": (1, 3, 4, 127)}, {"shape": (1, 3, 4, 128)}, "128 elements, the target takes up to 127"),
    ("ARGMAX", INT8, {"axis": 3}, {"axis": 1}, "axis 1 is not the last of [1, 4, 5, 8]"),
    ("ARGMAX", INT8, {"shape": (3, 4, 7), "axis": 2}, {"shape": (2, 3, 4, 7)}, "a batch of 2"),
    ("CLAMP", INT8, {"shape": (1, 2, 1, 2, 1, 2)}, {"shape": (1, 2, 1, 2, 1, 2, 1)}, "rank 7"),
    ("CONV3D", INT8, {"kernel": (3, 3)}, DEEP, "2 taps in depth"),
    ("AVG_POOL2D", INT8, {"kernel": (8, 8), **PADDED}, {"kernel": (9, 9), **PADDED}, "the target takes up to 8"),
    ("CONV2D", INT8, {"stride": (4, 4)}, {"stride": (4, 4), "dilation": (2, 2)}, "stride is [4, 4]"),
    ("CONV2D", INT8, {"stride": (3, 3), **PADDED}, {"stride": (4, 4), **PADDED}, "padding by [1, 1, 1, 1]"),
    ("CONV2D", INT8, {"stride": (4, 4), "dilation": (4, 4)}, {"stride": (4, 4), "dilation": (3, 3)}, "dilation of [3,"),
    ("DEPTHWISE_CONV2D", INT8, {"stride": (3, 3)}, {"stride": (4, 4)}, "stride is [4, 4], the target takes up to 3"),
    ("CONV2D", INT8, {"ic": 1 << 16, **THIN}, {"ic": (1 << 16) + 1, **THIN}, "65537 channels"),
    ("CONV2D", INT8, {}, {"dynamic": ("weight",)}, 'weight "weight" is no constant'),
    ("CONV2D", INT8, {}, {"dynamic": ("input_zp",)}, 'input_zp "input_zp" is no constant'),
    ("TRANSPOSE_CONV2D", INT8, {"stride": (2, 2)}, {"stride": (2, 1)}, "stride is [2, 1]"),
    ("REVERSE", INT8, {"axis": 2}, {"axis": 3}, "axis 3 is the last of [1, 4, 5, 8]"),
    ("TRANSPOSE", INT32, {"shape": (1, 2, 3, 16384)}, {"shape": (1, 2, 3, 16385)}, "up to 16384 channels"),
    ("MATMUL", INT8, {"h": 65537, "w": 1, "c": 1}, {"c": 65537, "w": 1, "h": 1}, "longer than 65536"),
    ("PAD", INT8, {}, {"dynamic": ("padding",)}, 'padding "padding" is no constant'),
]
"""Operator, types, a form that Ethos-U55 takes, one that it does not, and what is said about it."""


@pytest.mark.parametrize(("name", "types", "fits", "exceeds", "message"), LIMITS)
def test_a_limit_is_named_with_its_values(
    name: str, types: Types, fits: dict[str, Any], exceeds: dict[str, Any], message: str
) -> None:
    assert refused(single(name, types, **fits)) == []
    [obstacle] = refused(single(name, types, **exceeds))
    assert message in obstacle.message
    assert obstacle.operator.startswith(f'{name} -> "')


NEAREST: Types = {"in_t": DType.INT8, "out_t": DType.INT8}


@pytest.mark.parametrize(
    ("scale", "offset", "border", "taken"),
    [
        ((2, 1, 2, 1), (0, 0), (0, 0), True),  # corners aligned
        ((2, 1, 2, 1), (0, 0), (1, 1), False),
        ((4, 2, 4, 2), (-1, -1), (1, 1), True),  # half-pixel centres
        ((4, 2, 4, 2), (0, 0), (2, 2), False),
        ((8, 1, 8, 1), (0, 0), (0, 0), True),
        ((16, 1, 16, 1), (0, 0), (0, 0), False),
        ((3, 1, 3, 1), (0, 0), (0, 0), False),
        ((1, 1, 1, 1), (0, 0), (0, 0), True),
    ],
)
def test_what_ethos_u55_resizes(scale: Any, offset: Any, border: Any, taken: bool) -> None:
    form = {"scale": scale, "offset": offset, "border": border, "size": (5, 5)}
    nearest = single("RESIZE", NEAREST, mode=ResizeMode.NEAREST, **form)
    assert bool(refused(nearest)) is not taken
    copies = scale == (1, 1, 1, 1)
    assert bool(refused(single("RESIZE", INT8, mode=ResizeMode.BILINEAR, **form))) is not copies
    assert refused(nearest, U85) == []


def test_a_type_that_is_not_taken_names_the_rule_that_helps() -> None:
    both = {"in_t": DType.INT32, "out_t": DType.BOOL}
    [obstacle] = refused(single("GREATER", both))
    assert str(obstacle) == (
        'GREATER -> "output": "output" is BOOL, a type that the target does not have. '
        "The rules bool_interface_as_int8 and bool_as_int32 help"
    )
    assert (obstacle.block, obstacle.index, obstacle.tensors) == ("main", 0, ("output",))
    assert refused(single("GREATER", both), U85) == []
    [obstacle] = refused(single("ADD", {"in_out_t": DType.FP32}))
    assert str(obstacle).endswith("No rewrite is known")


@pytest.mark.parametrize("scatter", [False, True])
def test_rows_that_constants_name_can_be_moved(scatter: bool) -> None:
    program = indexed((1, 4, 2), np.array([[3, 1]]), scatter=scatter)
    [obstacle] = refused(program)
    assert str(obstacle).endswith("The rule constant_indices_as_movement helps")
    assert refused(program, U85) == []


def accumulator(*dtypes: DType, output: bool = False, identity: bool = False) -> Program:
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 8)), np.ones((8, 8), np.int64), np.zeros(8, np.int64))
    read = net.identity(acc) if identity else acc
    results = [net.rescale(read, dtype, 1 << 14, 20, f"y{i}") for i, dtype in enumerate(dtypes)]
    return net.program(*results, *([acc] if output else []))


def test_an_int48_accumulator_has_one_reader() -> None:
    assert refused(accumulator(DType.INT16)) == []
    assert refused(accumulator(DType.INT32, identity=True)) == []
    [obstacle] = refused(accumulator(DType.INT16, DType.INT32))
    assert obstacle.message == 'its INT48 result "acc" has 2 readers, the target takes one RESCALE'
    assert obstacle.entry.rules == ("single_rescale_per_accumulator",)
    [obstacle] = refused(accumulator(DType.INT16, output=True))
    assert obstacle.message == 'its INT48 result "acc" is an output'
    assert refused(accumulator(DType.INT16, DType.INT32, output=True), U85) == []


def test_int48_comes_from_convolutions_only() -> None:
    net = Net()
    program = net.program(net.rescale(net.input("x", DType.INT48, (1, 4)), DType.INT16, 1 << 14, 20))
    assert [o.message for o in refused(program)] == ['"x" is INT48 and no accumulator of a convolution']
    assert refused(program, U85) == []


def test_what_no_output_depends_on_is_no_obstacle() -> None:
    net = Net()
    x = net.input("x", DType.INT32, (4,))
    net.op(ops.Greater(), (x, x), DType.BOOL, (4,), "unused")
    assert refused(net.program(net.add(x, x))) == []


def test_an_input_that_is_an_output_is_refused_everywhere() -> None:
    net = Net()
    x = net.input("x", DType.INT32, (4,))
    program = net.program(net.add(x, x), x)
    for accelerator in ALL:
        [obstacle] = refused(program, accelerator)
        assert (obstacle.operator, obstacle.index, obstacle.tensors) == ('output "x"', None, ("x",))


def test_floating_point_is_refused_everywhere() -> None:
    for accelerator in ALL:
        assert refused(single("ADD", {"in_out_t": DType.FP32}), accelerator)
        assert refused(single("EXP", {"in_out_t": DType.FP32}), accelerator)


def test_illegal_operators_are_left_to_the_verifier() -> None:
    net = Net()
    program = net.program(net.op(ops.Conv2d(), (net.input("x", DType.INT8, (3,)),), DType.INT32, (3,), "y"))
    assert find_obstacles(program, U55) == []


def test_the_table_names_what_exists() -> None:
    steps = load_catalogue().steps
    for entry in TABLE:
        assert all(rule in steps for rule in entry.rules), entry.graph
        assert all(not name or signature(name) for name in entry.operators), entry.graph
        assert all(name in FAMILY_NAMES for name in entry.families), entry.graph
    assert all(signature(name) for name in OPERATORS)


@pytest.mark.vela
@pytest.mark.skipif(importlib.util.find_spec("fcntl") is None, reason="the pool of compilers forks")
def test_the_table_agrees_with_vela_on_every_operator_and_integer_type() -> None:
    """Ethos-U85 on every fourth; ``python -m tests.backend.compare_vela operators variations`` goes through all."""
    integer = [
        (name, program)
        for name, program in every_row()
        if all(t.dtype in (*INTEGERS, DType.SHAPE) for op in program.main.ops for t in (*op.inputs, *op.outputs))
    ]
    accelerators = {True: (U55, U85), False: (U55,)}
    programs = [
        (name, program, accelerators[index % 4 == 0]) for index, (name, program, _) in enumerate(legal(integer))
    ]
    lines, compared, late = disagreements(programs)
    assert lines == []
    assert late == 0
    assert compared > 150
