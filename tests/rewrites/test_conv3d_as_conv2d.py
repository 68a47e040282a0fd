"""CONV3D as CONV2D is bit-identical for every kernel, stride, dilation and padding, on int8 and int16."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.conv3d_as_conv2d import RULE
from tests.support.build import Net
from tests.support.rules import apply, kept, names, refusal
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

SHARED = Path(__file__).parents[3] / "shared" / "corpus" / "models"
Triple = tuple[int, int, int]


def _net(
    size: Triple = (4, 3, 5),
    kernel: Triple = (3, 2, 2),
    stride: Triple = (1, 1, 1),
    dilation: Triple = (1, 1, 1),
    pad: tuple[int, ...] = (0,) * 6,
    *,
    batch: int = 1,
    wide: bool = True,
) -> Program:
    net = Net()
    rng = np.random.default_rng(2)
    dtype, acc_type = (DType.INT16, DType.INT48) if wide else (DType.INT8, DType.INT32)
    x = net.input("x", dtype, (batch, *size, 2))
    constants = (
        net.const(rng.integers(-128, 128, (3, *kernel, 2)), DType.INT8, "weight"),
        net.const(rng.integers(-9000, 9000, 3), acc_type, "bias"),
        net.const([0 if wide else -7], dtype, "x_zp"),
        net.const([0 if wide else 3], DType.INT8, "w_zp"),
    )
    spatial = [
        (size[a] - 1 + pad[2 * a] + pad[2 * a + 1] - (kernel[a] - 1) * dilation[a]) // stride[a] + 1 for a in range(3)
    ]
    attrs = ops.Conv3d(pad=pad, stride=stride, dilation=dilation, acc_type=acc_type)
    acc = net.op(attrs, (x, *constants), acc_type, (batch, *spatial, 3), "acc")
    return net.program(net.rescale(acc, dtype, [21000, 30000, 17000], [24, 25, 23], "y"))


def _legal(size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> tuple[int, int, int, int]:
    """Size, stride and padding such that the output size divides exactly, as TOSA demands."""
    need = (kernel - 1) * dilation + 1
    size = max(size, need - before - after, 1)
    return size + (-(size - need + before + after)) % stride, stride, before, after


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_convolution_is_identical(data: st.DataObject) -> None:
    kernel = data.draw(st.tuples(*[st.integers(1, 3)] * 3))
    dilation = data.draw(st.tuples(*[st.integers(1, 2)] * 3))
    axes = [
        _legal(
            data.draw(st.integers(1, 5)),
            kernel[a],
            data.draw(st.integers(1, 3)),
            dilation[a],
            data.draw(st.integers(0, 2)),
            data.draw(st.integers(0, 2)),
        )
        for a in range(3)
    ]
    program = _net(
        (axes[0][0], axes[1][0], axes[2][0]),
        kernel,
        (axes[0][1], axes[1][1], axes[2][1]),
        dilation,
        tuple(amount for axis in axes for amount in axis[2:]),
        batch=data.draw(st.integers(1, 2)),
        wide=data.draw(st.booleans()),
    )
    result = kept(apply(RULE, program, when="all"), vectors=4)
    assert "CONV3D" not in names(result.program)
    assert check_equivalence(program, result.program, vectors=6).equal


def test_it_acts_only_where_a_target_needs_it() -> None:
    for target in ("", "ethos-u85-256"):
        assert not apply(RULE, _net(), target=target).events
    flat = _net(kernel=(1, 2, 2))
    deep = [_net(), _net(kernel=(1, 2, 2), pad=(1, 0, 0, 0, 0, 0)), _net((5, 3, 5), (1, 2, 2), (2, 1, 1))]
    assert all(apply(RULE, program, target="ethos-u65-256").events for program in deep)
    assert not apply(RULE, flat, target="ethos-u65-256").events
    assert not apply(RULE, _net((5, 3, 5), (1, 2, 2), (2, 1, 1), wide=False), target="ethos-u65-256").events


def test_it_refuses_an_accumulator_that_is_an_output() -> None:
    program = _net()
    program.main.set_outputs([*program.main.outputs, program.main.tensor("acc")])
    assert "is also read by OUTPUT" in refusal(apply(RULE, program, when="all"))


def test_an_int32_accumulator_that_is_an_output_is_moved_itself() -> None:
    program = _net(wide=False)
    graph = program.main
    graph.set_outputs([*graph.outputs, graph.tensor("acc")])
    result = kept(apply(RULE, program, target="ethos-u55-128"))
    assert "CONV3D" not in names(result.program)
    assert check_equivalence(program, result.program, vectors=4).equal


def test_it_refuses_weights_that_are_computed() -> None:
    net = Net()
    x, weight = net.input("x", DType.INT8, (1, 2, 2, 2, 1)), net.input("weight", DType.INT8, (1, 2, 1, 1, 1))
    constants = (net.const([0], DType.INT32), net.const([0], DType.INT8), net.const([0], DType.INT8))
    attrs = ops.Conv3d(pad=(0,) * 6, stride=(1,) * 3, dilation=(1,) * 3, acc_type=DType.INT32)
    acc = net.op(attrs, (x, weight, *constants), DType.INT32, (1, 1, 2, 2, 1), "acc")
    program = net.program(net.rescale(acc, DType.INT8, 1 << 14, 20, "y"))
    assert '"weight" is no constant' in refusal(apply(RULE, program, when="all"))


@pytest.mark.shared
@pytest.mark.vela
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
@pytest.mark.parametrize("name", ["conv3d_a8w8", "conv3d_a16w8"])
def test_vela_takes_real_nets_for_ethos_u55(name: str, tmp_path: Path) -> None:
    from tosakit.backend.vela import compile_for_ethos_u

    program = load(SHARED / f"{name}.tosa")
    result = run_steps(program.clone(), [RULE], target="ethos-u55-128")
    assert result.events
    save(result.program, tmp_path / "m.tosa")
    assert compile_for_ethos_u(tmp_path / "m.tosa", "ethos-u55-128", output_dir=tmp_path).accepted
    assert check_equivalence(program, result.program, vectors=4).equal
