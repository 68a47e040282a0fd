"""``assert_rule_holds``: a sound rule passes with its shares, and each kind of broken rule is caught and made small."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import rewrites
import tosakit
from tests.support.steps import rule, shift_constants, transform
from tosakit.engine.contract import WithinLsb
from tosakit.engine.driver import run_steps
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, Step
from tosakit.errors import RuleBug
from tosakit.io.qparams import apply_qparams, load_qparams
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.graph import Tensor
from tosakit.testing import Seeded, assert_rule_holds
from tosakit.testing.programs import program
from tosakit.testing.special import narrow_operands

pytestmark = pytest.mark.refmodel


def negate_twice(name: str, change: Callable[[Builder, Tensor], Tensor], **settings: Any) -> Rule[Any]:
    """BITWISE_NOT of BITWISE_NOT becomes what ``change`` makes of the first operand; refuses an axis of 1 in front."""
    inner = Capture(ops.BitwiseNot)
    outer = Capture(ops.BitwiseNot, operands=(inner,))

    def precondition(match: Match, context: Context) -> bool | Refusal:
        shape = match[outer].output.shape
        return Refusal(f"the shape is {list(shape)}") if shape[:1] == (1,) else True

    def replacement(match: Match, plan: bool) -> Replacement:
        builder = Builder(match[outer].output.name, origin=name)
        return Replacement(builder.ops, {match[outer].output: change(builder, match[inner].inputs[0])})

    contract = settings.pop("contract", tosakit.Exact())
    return Rule(name, outer, precondition, replacement, contract, "For a test.", **settings)


def identity(builder: Builder, x: Tensor) -> Tensor:
    return builder.identity(x)


def test_a_sound_rule_holds_and_the_tally_says_what_was_seen() -> None:
    tally = assert_rule_holds(
        negate_twice("not_not", identity),
        others=[rewrites.REMOVE_DEAD_CODE, rewrites.DEDUPLICATE_CONSTANTS],
        examples=20,
    )
    assert tally.examples == 20
    assert min(tally.fired, tally.refused) >= 2
    assert tally.vectors >= 10


def once(builder: Builder, x: Tensor) -> Tensor:
    return builder.op(ops.BitwiseNot(), (x,), x.dtype, x.shape)


def illegal(builder: Builder, x: Tensor) -> Tensor:
    return builder.op(ops.Reverse(axis=7), (x,), x.dtype, x.shape)


def again(builder: Builder, x: Tensor) -> Tensor:
    inner = builder.op(ops.BitwiseNot(), (x,), x.dtype, x.shape)
    return builder.op(ops.BitwiseNot(), (inner,), x.dtype, x.shape)


def raises(builder: Builder, x: Tensor) -> Tensor:
    raise KeyError("nothing there")


BROKEN: dict[str, Step] = {
    "contract": negate_twice("wrong", once),
    "illegal": negate_twice("illegal", illegal),
    "raised": negate_twice("raising", raises),
    "no fixed point": transform(shift_constants(0), name="touches_constants"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_rule_is_caught_on_a_small_program_with_a_reproducer(kind: str, tmp_path: Path) -> None:
    step = BROKEN[kind]
    with pytest.raises(AssertionError) as caught:
        assert_rule_holds(step, examples=200, fires=0, leaves=0)
    text = str(caught.value)
    assert text.startswith(f"{step.name}: {kind}: ")
    size = re.search(r"this program of (\d+) operators", text)
    assert size is not None
    assert int(size.group(1)) <= 8
    code = text.partition("To save it:\n\n")[2].replace("fault.tosa", str(tmp_path / "fault.tosa"))
    exec(compile(code, "reproducer", "exec"), {})  # it is ours, and made to be pasted
    saved = tosakit.load(tmp_path / "fault.tosa")
    assert saved.operator_count == int(size.group(1))
    assert f"--rules {step.name}" in text


def test_quantisation_parameters_are_pasted_too(tmp_path: Path) -> None:
    sums = st.integers(0, 9).map(lambda seed: narrow_operands(Seeded(seed), program(Seeded(seed), most=1)))
    broken = replace(rewrites.INSERT_INT16_RESCALE, replacement=lambda match, plan: 1 // 0)  # type: ignore[arg-type]
    with pytest.raises(AssertionError) as caught:
        assert_rule_holds(broken, sums, examples=10, fires=0, leaves=0)
    code = str(caught.value).partition("To save it:\n\n")[2].replace('"fault.', f'"{tmp_path}/fault.')
    exec(compile(code, "reproducer", "exec"), {})  # it is ours, and made to be pasted
    saved = tosakit.load(tmp_path / "fault.tosa")
    apply_qparams(saved, load_qparams(tmp_path / "fault.qparams.json"))
    with pytest.raises(RuleBug, match="failed at"):
        run_steps(saved, [broken])


def test_rules_that_go_on_for_ever_are_caught() -> None:
    with pytest.raises(AssertionError, match=r"raised: .* chase each other"):
        assert_rule_holds(negate_twice("again", again), examples=60)


def test_a_bound_that_is_too_small_is_caught_and_one_that_is_not_passes() -> None:
    def nudged(builder: Builder, x: Tensor) -> Tensor:
        mask = builder.const(np.full([1] * len(x.shape), 3), x.dtype)
        return builder.op(ops.BitwiseXor(), (x, mask), x.dtype, x.shape)

    assert_rule_holds(negate_twice("within", nudged, contract=WithinLsb(3, because="two bits flip")), examples=15)
    beyond = negate_twice("beyond", nudged, contract=WithinLsb(1, because="one bit flips"))
    with pytest.raises(AssertionError, match=r"contract: .*differs by 3 LSB"):
        assert_rule_holds(beyond, examples=15)


def test_too_few_programs_that_fire_or_are_left_alone_say_so() -> None:
    never = rule(ops.Add, lambda builder, op: builder.identity(op.output), when=lambda op: False)
    with pytest.raises(AssertionError, match=r"under_test fires on 0 of 10 programs, fewer than the share 0.1"):
        assert_rule_holds(never, examples=10)
    with pytest.raises(AssertionError, match=r"not_not leaves alone \d+ of 10 programs, fewer than the share 1 "):
        assert_rule_holds(negate_twice("not_not", identity), examples=10, leaves=1)


def test_the_same_run_again_sees_the_same() -> None:
    step = negate_twice("not_not", identity)
    assert assert_rule_holds(step, examples=8) == assert_rule_holds(step, examples=8)
