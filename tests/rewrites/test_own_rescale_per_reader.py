"""Copies of widening RESCALEs compute the same, and each has one elementwise reader."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.own_rescale_per_reader import READERS, RULE
from tests.support.build import Net
from tests.support.ethos_u import hazards
from tests.support.rules import apply, kept, names
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

MAXIMUM = ops.Maximum(nan_mode=NanPropagationMode.PROPAGATE)
KINDS = (ops.Add(), ops.Sub(), MAXIMUM)


def _net(kinds: tuple[ops.Add | ops.Sub | ops.Maximum, ...] = KINDS, *, twice: bool = False) -> Program:
    net = Net()
    x, z = net.input("x", DType.INT16, (2, 3)), net.input("z", DType.INT32, (2, 3))
    low = net.rescale(z, DType.INT32, 1 << 14, 20, "low")
    wide = net.rescale(x, DType.INT32, 1 << 14, 12, "wide")
    results = [
        net.op(kind, (wide, wide if twice else low), DType.INT32, (2, 3), f"y{i}") for i, kind in enumerate(kinds)
    ]
    return net.program(*results)


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=10)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5), st.booleans())
def test_every_reader_has_its_own_and_results_are_identical(kinds: list[ops.Add], twice: bool) -> None:
    program = _net(tuple(kinds), twice=twice)
    result = apply(RULE, program, when="all")
    assert len(result.events) == len(kinds) - 1
    assert names(result.program).count("RESCALE") == len(kinds) + 1
    assert all(len(op.output.users) == 1 for op in result.program.main.ops if op.output.name.endswith("rescale"))
    if result.events:
        kept(result, vectors=4)
    assert check_equivalence(program, result.program, vectors=4).equal


LOW = ("low", [[1, 2, 3]], DType.INT32)
EVERY_KIND = {
    ops.Add(): (LOW,),
    ops.Sub(): (LOW,),
    ops.Mul(): (LOW, ("shift", [0], DType.INT8)),
    MAXIMUM: (LOW,),
    ops.Minimum(nan_mode=NanPropagationMode.PROPAGATE): (LOW,),
    ops.ArithmeticRightShift(round=False): (LOW,),
    ops.LogicalLeftShift(): (LOW,),
    ops.Abs(): (),
}
"""Every operator that counts as a reader, with the constants it reads beside."""


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind.NAME)
def test_every_kind_of_reader_counts(kind: Attributes) -> None:
    net = Net()
    wide = net.rescale(net.input("x", DType.INT8, (2, 3)), DType.INT32, 1 << 14, 14, "wide")
    beside = [net.const(values, dtype, name) for name, values, dtype in EVERY_KIND[kind]]
    results = [net.op(kind, (wide, *beside), DType.INT32, (2, 3), f"y{i}") for i in range(2)]
    result = kept(apply(RULE, net.program(*results), when="all"))
    assert names(result.program).count("RESCALE") == 2


def test_no_kind_of_reader_is_left_out() -> None:
    assert [type(kind) for kind in EVERY_KIND] == list(READERS)


def test_the_suspected_miscompile_is_gone() -> None:
    result = apply(RULE, _net(), target="ethos-u55-128")
    assert [h.kind for h in hazards(_net(), "ethos-u55-128")] == ["suspected"]
    assert not hazards(result.program, "ethos-u55-128")


@pytest.mark.parametrize("target", ["", "ethos-u85-256"])
def test_it_acts_only_where_a_target_needs_it(target: str) -> None:
    assert not apply(RULE, _net(), target=target).events


def test_movement_keeps_sharing() -> None:
    net = Net()
    x = net.input("x", DType.INT8, (2, 3))
    wide = net.rescale(x, DType.INT32, 1 << 30, 30, "wide", scale32=True)
    turned = [net.op(ops.Transpose(perms=(1, 0)), (wide,), DType.INT32, (3, 2), f"t{i}") for i in (0, 1)]
    assert not apply(RULE, net.program(*turned), when="all").events
    assert ops.Transpose not in READERS
