"""Bilinear RESIZE as convolutions is bit-identical, on int8 and int16, and refuses the rest."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.resize_bilinear_as_conv2d import RULE
from rewrites.transpose_conv2d_as_conv2d import RULE as TRANSPOSE_CONV2D
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.resize import Pair, add_resize, legal_axes
from tests.support.rules import apply, kept, names, refusal
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

SHARED = Path(__file__).parents[3] / "shared" / "corpus" / "models"


def _net(
    size: Pair = (3, 4),
    scales: tuple[Pair, Pair] = ((4, 2), (4, 2)),
    offsets: Pair = (-1, -1),
    borders: Pair = (1, 1),
    *,
    wide: bool = True,
    batch: int = 1,
) -> Program:
    net = Net()
    dtype, acc_type = (DType.INT16, DType.INT48) if wide else (DType.INT8, DType.INT32)
    x = net.input("x", dtype, (batch, *size, 3))
    acc = add_resize(net, ResizeMode.BILINEAR, x, scales, offsets, borders, acc_type)
    return net.program(net.rescale(acc, dtype, 1 << 14, 14 + 4, "y"))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_scale_offset_and_border_is_identical(data: st.DataObject) -> None:
    scales, offsets, borders, size = [], [], [], []
    for _ in (0, 1):
        scales.append((data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))))
        for column, drawn in zip(
            (size, offsets, borders), data.draw(st.sampled_from(legal_axes(scales[-1]))), strict=True
        ):
            column.append(drawn)
    program = _net(
        (size[0], size[1]),
        (scales[0], scales[1]),
        (offsets[0], offsets[1]),
        (borders[0], borders[1]),
        wide=data.draw(st.booleans()),
        batch=data.draw(st.integers(1, 2)),
    )
    result = kept(apply(RULE, program, when="all"), vectors=4)
    assert "RESIZE" not in names(result.program)
    assert check_equivalence(program, result.program, vectors=6).equal


def test_it_acts_only_where_a_target_needs_it() -> None:
    copy = _net(scales=((2, 2), (1, 1)), offsets=(0, 0), borders=(0, 0), wide=False)
    assert not apply(RULE, copy, target="ethos-u55-128").events
    aligned = _net(scales=((2, 1), (2, 1)), offsets=(0, 0), borders=(0, 0), wide=False)
    assert apply(RULE, aligned, target="ethos-u55-128").events
    assert not apply(RULE, _net(), target="ethos-u85-256").events
    assert apply(RULE, _net(wide=False), target="ethos-u55-128").events
    assert apply(RULE, _net(), target="ethos-u65-256").events


def test_it_refuses_strides_that_the_target_does_not_take() -> None:
    program = _net((5, 4), scales=((3, 4), (4, 2)), offsets=(0, -1), borders=(0, 1))
    assert "stride [4, 1]" in refusal(apply(RULE, program, when="all"))


@pytest.mark.vela
def test_vela_takes_factors_that_are_not_whole() -> None:
    program = _net((5, 5), ((3, 2), (2, 3)), (0, 0), (0, 1), wide=False)
    result = apply(RULE, program, target="ethos-u55-128")
    assert accepted(result.program) == list(FAMILIES)


HALF_PIXEL_8: tuple[tuple[Pair, Pair], Pair, Pair] = (((16, 2), (16, 2)), (-7, -7), (7, 7))


@pytest.mark.parametrize("wide", [False, True], ids=["INT8", "INT16"])
@pytest.mark.parametrize(
    ("scales", "offsets", "borders", "convolutions"),
    [
        (((127, 1), (1, 1)), (0, 0), (0, 0), 127),
        (((128, 64), (2, 2)), (0, 0), (64, 0), 2),  # 256 and 128
        ((*HALF_PIXEL_8[0],), HALF_PIXEL_8[1], HALF_PIXEL_8[2], 64),
        (((32, 32), (32, 1)), (0, 0), (0, 0), 60),  # f of 0, 8, 16 and 24 have an upper digit only
    ],
)
def test_weights_beyond_int8(
    scales: tuple[Pair, Pair], offsets: Pair, borders: Pair, convolutions: int, wide: bool
) -> None:
    program = _net((2, 2), scales, offsets, borders, wide=wide)
    result = kept(apply(RULE, program, when="all"), vectors=3)
    assert names(result.program).count("DEPTHWISE_CONV2D") == convolutions
    assert check_equivalence(program, result.program, vectors=3).equal


def test_it_refuses_int16_sums_beyond_int32() -> None:
    program = _net((2, 1), ((1 << 10, 1 << 9), (1 << 6, 1 << 6)), (0, 0), (0, 0))
    assert "1024 * 64" in refusal(apply(RULE, program, when="all"))


@pytest.mark.vela
def test_vela_takes_eight_times_in_both_axes() -> None:
    for wide in (False, True):
        result = apply(RULE, _net((2, 2), *HALF_PIXEL_8, wide=wide), target="ethos-u55-128")
        assert accepted(result.program) == list(FAMILIES)


def test_int32_sums_that_are_an_output_are_moved_themselves() -> None:
    program = _net(wide=False)
    program.main.set_outputs([*program.main.outputs, program.main.tensor("resized")])
    result = kept(apply(RULE, program, when="all"), vectors=4)
    assert "RESIZE" not in names(result.program)
    assert check_equivalence(program, result.program, vectors=4).equal


def test_it_refuses_sums_that_are_an_output() -> None:
    program = _net()
    program.main.set_outputs([*program.main.outputs, program.main.tensor("resized")])
    assert "is also read by OUTPUT" in refusal(apply(RULE, program, when="all"))


@pytest.mark.shared
@pytest.mark.vela
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
@pytest.mark.parametrize("name", ["upsample_bilinear_a8w8", "upsample_bilinear_a16w8", "unet_a16w8", "unet_a8w8"])
def test_vela_takes_real_nets_for_ethos_u55(name: str, tmp_path: Path) -> None:
    from tosakit.backend.vela import compile_for_ethos_u

    program = load(SHARED / f"{name}.tosa")
    result = run_steps(program.clone(), [RULE, TRANSPOSE_CONV2D], target="ethos-u55-128")
    assert RULE.name in result.rules_fired
    save(result.program, tmp_path / "m.tosa")
    assert compile_for_ethos_u(tmp_path / "m.tosa", "ethos-u55-128", output_dir=tmp_path).accepted
    assert check_equivalence(program, result.program, vectors=4).equal
