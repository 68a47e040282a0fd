"""Zero behind a RESCALE changes nothing but what Vela makes of the graph for Ethos-U85."""

from collections.abc import Callable

import numpy as np
import pytest

from rewrites.keep_rescale_apart import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tests.support.rules import apply, kept, names
from tosakit.backend.obstacles import find_obstacles
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program

U85 = FAMILIES[2]
ONE = (1 << 14, 14)


def _sum(dtype: DType = DType.INT16, axis: int = 3, pair: tuple[int, int] = ONE) -> Program:
    net, shape = Net(), (1, 4, 5, 8)
    wide = net.rescale(net.input("x", dtype, shape), DType.INT32, *pair, "wide")
    reduced = tuple(1 if position == axis else size for position, size in enumerate(shape))
    return net.program(net.op(ops.ReduceSum(axis=axis), (wide,), DType.INT32, reduced, "y"))


def _double(net: Net, wide: Tensor) -> Tensor:
    return net.add(wide, wide)


def _magnitude(net: Net, wide: Tensor) -> Tensor:
    return net.op(ops.Abs(), (wide,), DType.INT32, wide.shape, "abs")


def _more(net: Net, wide: Tensor) -> Tensor:
    return net.add(wide, net.const([[[[5]]]], DType.INT32))


def _copied(
    reader: Callable[[Net, Tensor], Tensor], pair: tuple[int, int] = ONE, others: str = "accumulator"
) -> Program:
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, (1, 2, 2, 4)), np.full((4, 4), 127, np.int8), [9] * 4)
    wide = net.rescale(acc, DType.INT32, *pair, "wide")
    outputs = [reader(net, wide)]
    if others:
        outputs.append(net.rescale(acc if others == "accumulator" else wide, DType.INT16, 1 << 14, 28, "other"))
    return net.program(*outputs)


WRONG = [_copied(_double), _copied(_magnitude), _copied(_magnitude, (1 << 13, 13))]
FINE = [
    _copied(_more),
    _copied(_magnitude, others=""),
    _copied(_magnitude, (1 << 14, 15)),
    _copied(_double, others="w"),
]


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize(("pair", "form"), [(ONE, ["MUL"]), ((1 << 14, 12), ["RESCALE", "ADD"])])
def test_sums_are_of_int32(axis: int, pair: tuple[int, int], form: list[str]) -> None:
    program = _sum(axis=axis, pair=pair)
    assert [hazard.helps for hazard in hazards(program, U85)] == ["The rule keep_rescale_apart helps"]
    result = kept(apply(RULE, program, target=U85))
    assert names(result.program) == [*form, "REDUCE_SUM"]
    assert hazards(result.program, U85) == []


def test_a_rescale_that_others_read_stays() -> None:
    program = _sum()
    program.main.set_outputs([*program.main.outputs, program.main.tensor("wide")])
    result = kept(apply(RULE, program, target=U85))
    assert sorted(names(result.program)) == ["MUL", "REDUCE_SUM", "RESCALE"]


@pytest.mark.parametrize("program", WRONG)
def test_nothing_reads_a_copy_of_int48_alone(program: Program) -> None:
    [obstacle] = [found for found in find_obstacles(program, U85) if found.kind == "refused"]
    assert 'a copy of the INT48 tensor "acc"' in obstacle.message
    result = kept(apply(RULE, program, target=U85))
    assert find_obstacles(result.program, U85) == []


def test_it_acts_only_where_a_target_needs_it() -> None:
    assert not [program for program in FINE if apply(RULE, program, target=U85).events]
    assert not [program for program in FINE if find_obstacles(program, U85)]
    assert not apply(RULE, _sum(DType.INT8), target=U85).events
    for target in ("", FAMILIES[0]):
        assert not apply(RULE, _sum(), target=target).events


@pytest.mark.vela
def test_vela_takes_them_then() -> None:
    assert accepted(WRONG[0], U85) == []
    for program in (WRONG[0], FINE[3]):
        assert accepted(apply(RULE, program, target=U85).program, U85) == [U85]
