"""x + x is two times x, wherever TOSA defines it."""

from collections.abc import Callable

import pytest

from rewrites.double_as_mul import RULE
from tests.support.build import Net
from tests.support.ethos_u import hazards
from tests.support.rules import apply, kept, names
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

U55 = "ethos-u55-128"
SCALES = ([1254950641], [28])


def _net(
    left: tuple[list[int], list[int]] = SCALES,
    right: tuple[list[int], list[int]] | None = SCALES,
    dtype: DType = DType.INT8,
) -> Program:
    """The sum of a tensor scaled in two ways, or, without the second one, added to itself."""
    net = Net()
    x = net.input("x", dtype, (2, 3))
    first = net.rescale(x, DType.INT32, *left, "first", scale32=True)
    second = first if right is None else net.rescale(x, DType.INT32, *right, "second", scale32=True)
    return net.program(net.rescale(net.add(first, second), dtype, 1 << 30, 33, "y", scale32=True))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("right", [SCALES, None], ids=["two", "one"])
@pytest.mark.parametrize("scales", [SCALES, ([3, 1 << 20, 99999], [30, 30, 31])], ids=["tensor", "channel"])
def test_the_suspected_miscompile_is_gone_and_every_value_is_kept(
    dtype: DType, right: tuple[list[int], list[int]] | None, scales: tuple[list[int], list[int]]
) -> None:
    program = _net(scales, None if right is None else scales, dtype)
    result = kept(apply(RULE, program, target=U55))
    assert names(result.program) == ["RESCALE", "MUL", "RESCALE"]
    assert not [h for h in hazards(result.program, U55) if "x + x" in h.message]
    assert check_equivalence(program, result.program, vectors=8).equal


def test_operands_that_round_in_two_ways_are_not_the_same() -> None:
    net = Net()
    x = net.input("x", DType.INT16, (2, 3))
    modes = (RoundingMode.SINGLE_ROUND, RoundingMode.DOUBLE_ROUND)
    left, right = (
        net.rescale(x, DType.INT32, 1254950641, 33, mode.name, scale32=True, rounding_mode=mode) for mode in modes
    )
    assert not apply(RULE, net.program(net.add(left, right)), when="all").events
    assert apply(RULE, net.program(net.add(left, left)), when="all").events


@pytest.mark.parametrize(
    ("program", "target"),
    [
        (_net(), ""),
        (_net(), "ethos-u65-256"),
        (_net(right=([1254950641], [27])), U55),
        (_net(([1 << 30], [29]), ([1 << 30], [29])), U55),
    ],
    ids=["no target", "U65", "other scales", "a power of two"],
)
def test_it_acts_only_on_what_was_reported(program: Program, target: str) -> None:
    result = apply(RULE, program, target=target)
    assert not result.events
    assert not result.refusals
