"""Sub-pixel convolution is bit-identical for every kernel, stride and out_pad, and refuses what it cannot rearrange."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.transpose_conv2d_as_conv2d import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import apply, kept, names, refusal
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence
from tosakit.spec.verify import verify

SHARED = Path(__file__).parents[3] / "shared" / "corpus" / "models"


def _net(
    size: tuple[int, int] = (3, 4),
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    out_pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    batch: int = 1,
    per_channel: bool = True,
    bias: int = 2,
    dtype: DType = DType.INT16,
    weight_zp: int = 0,
) -> Program:
    net = Net()
    rng = np.random.default_rng(1)
    acc_type = DType.INT48 if dtype == DType.INT16 else DType.INT32
    x = net.input("x", dtype, (batch, *size, 3))
    weight = net.const(rng.integers(-128, 128, (2, *kernel, 3)), DType.INT8, "weight")
    biases = net.const(rng.integers(-90000, 90000, bias), acc_type, "bias")
    input_zp = net.const([0 if dtype == DType.INT16 else 3], dtype, "x_zp")
    zero_points = (input_zp, net.const([weight_zp], DType.INT8, "w_zp"))
    top, bottom, left, right = out_pad
    shape = (
        batch,
        (size[0] - 1) * stride[0] + top + bottom + kernel[0],
        (size[1] - 1) * stride[1] + left + right + kernel[1],
        2,
    )
    attrs = ops.TransposeConv2d(out_pad=out_pad, stride=stride, acc_type=acc_type)
    acc = net.op(attrs, (x, weight, biases, *zero_points), acc_type, shape, "acc")
    scales = ([21000, 30000], [24, 25]) if per_channel else (21000, 24)
    return net.program(net.rescale(acc, dtype, *scales, "y"))


def test_taps_beyond_the_kernel_are_the_zero_point_of_the_weights() -> None:
    kept(apply(RULE, _net((4, 4), (3, 3), (2, 2), weight_zp=-5), when="all"))


def _outputs(program: Program) -> list[str]:
    return [op.name for op in program.main.ops if op.name.endswith("CONV2D")]


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_kernel_stride_and_out_pad_is_identical(data: st.DataObject) -> None:
    kernel = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    stride = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    size = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    pads = []
    for axis in (0, 1):
        before = data.draw(st.integers(-kernel[axis] + 1, 4))
        after = data.draw(st.integers(-kernel[axis] + 1, 4))
        if (size[axis] - 1) * stride[axis] + before + after + kernel[axis] < 1:
            before = after = 0
        pads += [before, after]
    program = _net(
        size,
        kernel,
        stride,
        (pads[0], pads[1], pads[2], pads[3]),
        batch=data.draw(st.integers(1, 2)),
        per_channel=data.draw(st.booleans()),
        bias=data.draw(st.sampled_from([1, 2])),
        dtype=data.draw(st.sampled_from([DType.INT8, DType.INT16])),
    )
    result = kept(apply(RULE, program, when="all"), vectors=4)
    assert _outputs(result.program) == ["CONV2D"]
    assert check_equivalence(program, result.program, vectors=6).equal


def test_a_kernel_of_the_stride_needs_no_slice() -> None:
    result = apply(RULE, _net(), target="ethos-u55-128")
    assert names(result.program) == ["CONV2D", "RESCALE", "RESHAPE", "TRANSPOSE", "RESHAPE"]


def test_a_scale_for_each_of_one_channel_becomes_one_for_each_phase() -> None:
    net = Net()
    x = net.input("x", DType.INT16, (1, 2, 3, 2))
    constants = (net.const([5], DType.INT48), net.const([0], DType.INT16), net.const([0], DType.INT8))
    weight = net.const(np.arange(8).reshape(1, 2, 2, 2), DType.INT8, "weight")
    attrs = ops.TransposeConv2d(out_pad=(0, 0, 0, 0), stride=(2, 2), acc_type=DType.INT48)
    acc = net.op(attrs, (x, weight, *constants), DType.INT48, (1, 4, 6, 1), "acc")
    program = net.program(net.rescale(acc, DType.INT16, 20000, 20, "y", per_channel=True))
    result = kept(apply(RULE, program, when="all"))
    assert [d for d in verify(result.program) if d.severity == "error"] == []
    assert check_equivalence(program, result.program, vectors=8).equal


def test_it_acts_only_where_a_target_needs_it() -> None:
    for target in ("", "ethos-u85-256"):
        result = apply(RULE, _net(), target=target)
        assert not result.events
        assert not result.refusals


@pytest.mark.vela
def test_vela_takes_int8_of_every_stride() -> None:
    program = _net((3, 4), (3, 3), (3, 2), dtype=DType.INT8)
    assert accepted(program, "ethos-u55-128") == []
    assert accepted(apply(RULE, program, target="ethos-u55-128").program) == list(FAMILIES)
    assert not apply(RULE, _net(dtype=DType.INT8), target="ethos-u55-128").events


def test_several_readers_keep_their_own_rescale() -> None:
    program = _net()
    graph = program.main
    [first] = [op for op in graph.ops if op.name == "RESCALE"]
    wide = Tensor("wide", DType.INT16, first.output.shape)
    graph.add_op(type(first)(first.attrs, first.inputs, (wide,)))
    graph.set_outputs([*graph.outputs, wide])
    result = kept(apply(RULE, program, when="all"))
    assert names(result.program).count("RESCALE") == 2
    assert [t.name for t in result.program.main.outputs] == ["y", "wide"]
    assert check_equivalence(program, result.program, vectors=8).equal


def test_it_refuses_an_accumulator_that_is_an_output() -> None:
    program = _net()
    graph = program.main
    graph.set_outputs([*graph.outputs, graph.tensor("acc")])
    assert "is also read by OUTPUT" in refusal(apply(RULE, program, when="all"))


def test_an_int32_accumulator_that_is_an_output_is_moved_itself() -> None:
    program = _net(stride=(1, 2), dtype=DType.INT8)
    graph = program.main
    graph.set_outputs([*graph.outputs, graph.tensor("acc")])
    result = kept(apply(RULE, program, target="ethos-u55-128"))
    assert "TRANSPOSE_CONV2D" not in names(result.program)
    assert check_equivalence(program, result.program, vectors=4).equal


def test_it_refuses_weights_that_are_computed() -> None:
    net = Net()
    x = net.input("x", DType.INT16, (1, 2, 2, 1))
    weight = net.input("weight", DType.INT8, (1, 2, 2, 1))
    constants = (net.const([0], DType.INT48), net.const([0], DType.INT16), net.const([0], DType.INT8))
    attrs = ops.TransposeConv2d(out_pad=(0, 0, 0, 0), stride=(2, 2), acc_type=DType.INT48)
    acc = net.op(attrs, (x, weight, *constants), DType.INT48, (1, 4, 4, 1), "acc")
    program = net.program(net.rescale(acc, DType.INT16, 1 << 14, 20, "y"))
    assert '"weight" is no constant' in refusal(apply(RULE, program, when="all"))


@pytest.mark.shared
@pytest.mark.vela
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
def test_vela_takes_a_real_net_for_ethos_u55(tmp_path: Path) -> None:
    from tosakit.backend.vela import compile_for_ethos_u

    program = load(SHARED / "transpose_conv_a16w8.tosa")
    result = run_steps(program.clone(), [RULE], target="ethos-u55-128")
    assert result.events
    save(result.program, tmp_path / "m.tosa")
    assert compile_for_ethos_u(tmp_path / "m.tosa", "ethos-u55-128", output_dir=tmp_path).accepted
    assert check_equivalence(program, result.program, vectors=4).equal
