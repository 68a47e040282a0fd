"""An int16 MATMUL in bytes keeps its bound on all inputs, and refuses where a sum could pass INT32."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.int16_matmul_as_int8 import RULE
from tests.support.build import Net
from tests.support.rules import EVERY_INT16, apply, bound, differences, kept, names, refusal, run
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

SHARED = Path(__file__).parents[3] / "shared" / "corpus" / "models"


def _net(
    terms: int = 8, shift: int = 31, multiplier: int = 21000, *, rows: int = 3, dtype: DType = DType.INT16
) -> Program:
    net = Net()
    a, b = net.input("a", DType.INT16, (2, rows, terms)), net.input("b", DType.INT16, (2, terms, 4))
    return net.program(net.rescale(net.matmul(a, b), dtype, multiplier, shift, "y"))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(14, 46), st.integers(1, 32767))
def test_it_fires_within_its_bound_or_refuses(terms: int, shift: int, multiplier: int) -> None:
    program = _net(terms, shift, multiplier)
    result = apply(RULE, program, when="all")
    if result.events:
        kept(result, vectors=10)
        assert bound(result) == 1
        assert "INT8" in {t.dtype.name for op in result.program.main.ops if op.name == "MATMUL" for t in op.inputs[:2]}
    else:
        assert "guard bit" in refusal(result)
        assert (terms << 30) * multiplier >> shift > 1 << 27  # no room for one guard bit


def test_both_happen_in_the_range_that_is_drawn() -> None:
    assert apply(RULE, _net(8, 40), when="all").events
    assert not apply(RULE, _net(40, 18), when="all").events


@pytest.mark.parametrize(("multiplier", "fires"), [(16383, False), (15000, True)])
def test_the_last_guard_bit_leaves_room_in_the_last_rescale(multiplier: int, fires: bool) -> None:
    """One term reaches 1.09e9 in bytes: times 2 * m / 2^16 that is 5.45e8, just past 2^29, or 4.99e8."""
    result = apply(RULE, _net(1, 16, multiplier, dtype=DType.INT32), when="all")
    assert bool(result.events) is fires
    if not fires:
        assert "no guard bit is left" in refusal(result)


def test_every_int16_value_splits_into_its_bytes() -> None:
    net = Net()
    a = net.input("a", DType.INT16, (1, 1 << 16, 1))
    one = net.const([[[1 << 8]]], DType.INT16, "one")
    program = net.program(net.rescale(net.matmul(a, one), DType.INT32, 1 << 14, 22, "y"))
    result = apply(RULE, program, when="all")
    x = EVERY_INT16.reshape((1, 1 << 16, 1))
    assert differences(run(program, x).outputs, run(result.program, x).outputs) <= bound(result)


def test_it_acts_only_where_a_target_needs_it() -> None:
    for target in ("", "ethos-u85-256"):
        assert not apply(RULE, _net(), target=target).events
    assert apply(RULE, _net(shift=36), target="ethos-u55-128").events


def test_it_refuses_a_product_that_is_an_output() -> None:
    program = _net(shift=36)
    program.main.set_outputs([*program.main.outputs, program.main.tensor("acc")])
    assert "is a block output" in refusal(apply(RULE, program, when="all"))


def test_it_refuses_sums_of_bytes_beyond_int32() -> None:
    """33,025 products of 255 and 255 are the last to stay inside."""
    assert apply(RULE, _net(33025, 60, rows=1), when="all").events
    assert "past INT32" in refusal(apply(RULE, _net(33026, 60, rows=1), when="all"))


def test_the_operators_are_those_of_the_picture() -> None:
    counts = names(apply(RULE, _net(shift=36), when="all").program)
    assert counts.count("MATMUL") == 4
    assert counts.count("SUB") == 2


@pytest.mark.shared
@pytest.mark.vela
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
@pytest.mark.parametrize("name", ["matmul_a16w8", "bmm_a16w8", "transformer_block_a16w8"])
def test_vela_takes_real_nets_for_ethos_u55(name: str, tmp_path: Path) -> None:
    from tosakit.backend.vela import compile_for_ethos_u

    program = load(SHARED / f"{name}.tosa")
    result = run_steps(program.clone(), [RULE], target="ethos-u55-128")
    assert result.events
    save(result.program, tmp_path / "m.tosa")
    assert compile_for_ethos_u(tmp_path / "m.tosa", "ethos-u55-128", output_dir=tmp_path).accepted
    same = check_equivalence(program, result.program, vectors=4)
    assert same.sqnr_db > 60
