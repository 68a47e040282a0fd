"""Scale one stays scale one on every INT48 value, and Vela's silent cut is gone."""

from collections.abc import Callable

import numpy as np
import pytest

from rewrites.unfuse_rescale_pair import RULE
from tests.support.build import Net
from tests.support.ethos_u import hazards
from tests.support.rules import apply, kept, run
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

U85 = "ethos-u85-256"
WIDE = 0x4ABCDEF1


def _net(multiplier: int = WIDE, first: tuple[int, int] = (1 << 14, 14), channels: int = 1) -> Program:
    net = Net()
    x = net.input("x", DType.INT16, (1, 4, 4, 3))
    acc = net.conv2d(x, np.full((2, 3), 5, np.int8), [7, -70000])
    one = net.rescale(acc, DType.INT32, [first[0]] * channels, [first[1]] * channels, "one")
    return net.program(net.rescale(one, DType.INT16, multiplier, 38, "y", scale32=True))


def _between(first: DType, second: DType) -> Program:
    """A pair that starts from one type and has another in between."""
    net = Net()
    one = net.rescale(net.input("x", first, (6,)), second, 1 << 14, 14, "one")
    return net.program(net.rescale(one, DType.INT16, WIDE, 38, "y", scale32=True))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("channels", [1, 2])
def test_the_miscompile_is_gone_and_every_value_is_kept(channels: int) -> None:
    program = _net(channels=channels)
    assert [h.kind for h in hazards(program, U85)] == ["miscompiled"]
    result = kept(apply(RULE, program, target=U85))
    assert not hazards(result.program, U85)
    assert check_equivalence(program, result.program, vectors=8).equal


def test_the_limits_of_int48_are_kept() -> None:
    net = Net()
    x = net.input("x", DType.INT48, (6,))
    one = net.rescale(x, DType.INT32, 1 << 14, 14, "one")
    program = net.program(one, net.rescale(one, DType.INT16, WIDE, 46, "y", scale32=True))
    result = apply(RULE, program, target=U85)
    assert result.events
    values = np.array([-(1 << 31), (1 << 31) - 1, 0, 1, -1, 123456789], np.int64)
    before, after = (run(p, values) for p in (program, result.program))
    assert before.outputs[0].tolist() == after.outputs[0].tolist() == values.tolist()


@pytest.mark.parametrize("multiplier", [1 << 15, (1 << 16) - 1, (1 << 31) - 1])
def test_every_multiplier_of_more_than_15_bits_counts(multiplier: int) -> None:
    assert apply(RULE, _net(multiplier), target=U85).events


def test_one_reader_that_loses_bits_is_enough() -> None:
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, (1, 2, 2, 3)), np.full((2, 3), 5, np.int8), [0, 0])
    one = net.rescale(acc, DType.INT32, 1 << 14, 14, "one")
    readers = [net.rescale(one, DType.INT16, m, 40, f"y{m}", scale32=True) for m in (100, WIDE, 200)]
    kept(apply(RULE, net.program(*readers), target=U85))


@pytest.mark.parametrize(
    ("program", "target"),
    [
        (_net(), "ethos-u55-128"),
        (_net(), ""),
        (_net(first=(1 << 13, 13)), U85),
        (_net(multiplier=(1 << 15) - 1), U85),
        (_between(DType.INT32, DType.INT32), U85),
        (_between(DType.INT48, DType.INT16), U85),
    ],
    ids=["U55", "no target", "another shift", "no bit lost", "INT32 before", "INT16 between"],
)
def test_it_acts_only_where_bits_are_lost(program: Program, target: str) -> None:
    result = apply(RULE, program, target=target)
    assert not result.events
    assert not result.refusals
