"""NEAREST RESIZE by movement is identical for every scale, offset and border, and Vela takes it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.resize_nearest_as_movement import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tests.support.resize import Pair, add_resize, legal_axes
from tests.support.rules import apply, kept, names
from tosakit.backend.vela import compile_for_ethos_u
from tosakit.io.writer import save
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

U55 = "ethos-u55-128"
ALIGNED = (0, 0)


def _net(
    size: Pair = (3, 3),
    scales: tuple[Pair, Pair] = ((2, 1), (2, 1)),
    offsets: Pair = ALIGNED,
    borders: Pair = ALIGNED,
    *,
    batch: int = 1,
    dtype: DType = DType.INT8,
) -> Program:
    net = Net()
    x = net.input("x", dtype, (batch, *size, 2))
    return net.program(add_resize(net, ResizeMode.NEAREST, x, scales, offsets, borders, dtype))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=25)
@given(st.data())
def test_every_scale_offset_and_border_is_identical(data: st.DataObject) -> None:
    drawn = []
    for _ in (0, 1):
        scale = (data.draw(st.integers(1, 8)), data.draw(st.integers(1, 5)))
        drawn.append((scale, *data.draw(st.sampled_from(legal_axes(scale)))))
    (scale_y, height, offset_y, border_y), (scale_x, width, offset_x, border_x) = drawn
    program = _net(
        (height, width),
        (scale_y, scale_x),
        (offset_y, offset_x),
        (border_y, border_x),
        batch=data.draw(st.integers(1, 2)),
        dtype=data.draw(st.sampled_from([DType.INT8, DType.INT16])),
    )
    result = apply(RULE, program, when="all")
    assert "RESIZE" not in names(result.program)
    assert check_equivalence(program, result.program, vectors=3).equal


RIGHT = [_net(), _net(scales=((4, 2), (4, 2)), offsets=(-1, -1), borders=(1, 1)), _net(scales=((3, 3), (1, 1)))]
WRONG = [
    _net(offsets=(1, 1), borders=(1, 1)),
    _net(scales=((4, 2), (4, 2)), offsets=(-1, -1), borders=(-1, -1)),
    _net(scales=((3, 1), (3, 1))),
    _net(batch=2),
]


def test_it_acts_only_where_a_target_needs_it() -> None:
    for program in RIGHT:
        assert not apply(RULE, program, target=U55).events
    for program in WRONG:
        kept(apply(RULE, program, target=U55), vectors=4)
        for target in ("", "ethos-u85-256"):
            assert not apply(RULE, program, target=target).events


def test_an_illegal_one_with_the_type_of_bilinear_is_left_alone() -> None:
    net, builder = Net(), Builder("c")
    x = net.input("x", DType.INT16, (1, 2, 2, 1))
    sizes = [builder.const_shape(values) for values in ([2, 1, 2, 1], [0, 0], [1, 1])]
    net.take(builder)
    y = net.op(ops.Resize(ResizeMode.NEAREST), (x, *sizes), DType.INT48, (1, 4, 4, 1), "y")
    assert not apply(RULE, net.program(net.rescale(y, DType.INT16, 1 << 14, 14, "z")), when="all").events


def test_offsets_that_vela_ignores_are_known_and_helped() -> None:
    assert [[h.kind for h in hazards(program, U55)] for program in WRONG[:2]] == [["miscompiled"]] * 2
    for program in WRONG:
        assert not hazards(apply(RULE, program, target=U55).program, U55)
    for program in RIGHT:
        assert not hazards(program, U55)


@pytest.mark.vela
def test_vela_emits_the_same_bytes_for_another_offset(tmp_path: Path) -> None:
    """What the rule is about; where this fails, Vela has learned to look at the offset."""
    streams = []
    for program in (RIGHT[0], WRONG[0]):
        save(program, tmp_path / "m.tosa")
        place = compile_for_ethos_u(tmp_path / "m.tosa", U55, output_dir=tmp_path).output_path
        assert place is not None
        with np.load(place) as found:
            streams.append(found["cmd_data"].tobytes())
    assert streams[0] == streams[1]
    assert not check_equivalence(RIGHT[0], WRONG[0], vectors=4).equal


@pytest.mark.vela
def test_vela_takes_the_form() -> None:
    program = _net((4, 5), ((3, 2), (2, 3)), (-1, 0), (0, 1), batch=2)
    assert accepted(program, U55) == []
    assert accepted(apply(RULE, program, target=U55).program) == list(FAMILIES)
