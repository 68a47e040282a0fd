"""Every shipped rule and transform keeps its promises on random programs, in front of and behind the clean-ups."""

from typing import Any

import pytest
from hypothesis import strategies as st

import rewrites
from tests.support.programs import copied
from tests.support.strides import cases, convolution
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Step
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.testing import Seeded, assert_rule_holds, strategies
from tosakit.testing.mutation import Mutation
from tosakit.testing.special import narrow_operands, wide_multipliers

pytestmark = pytest.mark.refmodel


def split(program: Program) -> Program:
    """The program with every INT48 bias behind its convolution."""
    rule = rewrites.SPLIT_INT48_BIAS
    return run_steps(program, [rule], options={rule.name: rule.options("all")}).program


def changed(drawn: st.SearchStrategy[Program], mutation: Mutation) -> st.SearchStrategy[Program]:
    """What a mutation makes of a program, or the program."""
    seeds = st.integers(0, 1 << 16)
    return st.builds(lambda program, seed: mutation(Seeded(seed), program) or program, drawn, seeds)


def options(step: Step) -> Any:
    """The options with which a rule acts wherever it can."""
    chosen = step.options()
    return type(chosen)(when="all") if hasattr(chosen, "when") else chosen


CONVOLUTIONS = strategies.seeded(rewrites.SPLIT_INT48_BIAS, options=options(rewrites.SPLIT_INT48_BIAS))
READERS = st.sampled_from([ops.ReduceSum, ops.Abs, ops.Clz, ops.Sub]).flatmap(strategies.operators)
STATE = st.sampled_from([ops.VariableRead, ops.VariableWrite]).flatmap(strategies.operators)

PROGRAMS: dict[str, st.SearchStrategy[Program]] = {
    "fuse_int48_bias": st.one_of(CONVOLUTIONS.map(split), strategies.seeded(rewrites.FUSE_INT48_BIAS)),
    "insert_int16_rescale": st.one_of(
        strategies.programs(most=4), changed(strategies.programs(most=4), narrow_operands)
    ),
    "intdiv_as_arithmetic": st.one_of(
        strategies.operators(ops.IntDiv).map(lambda program: copied(program, [DType.INT8])),
        strategies.programs(most=4),
    ),
    "keep_rescale_apart": READERS.map(copied),
    "legalize_int48_rescale": changed(CONVOLUTIONS, wide_multipliers),
    "shorten_long_strides": cases().map(convolution),
    "variables_as_inputs": st.one_of(STATE, strategies.programs(most=4)),
}
"""Programs for rules that repair illegal ones, and where seeds alone say too little."""

SHARES: dict[str, dict[str, float]] = {
    "merge_axes": {"fires": 0},  # neither the programs drawn nor the reference model have more than six axes
    "variables_as_inputs": {"checked": 0},  # the reference model has no variables
}


@pytest.mark.parametrize("step", rewrites.RULES, ids=lambda step: step.name)
def test_it_holds_on_random_programs(step: Step) -> None:
    others = [other for other in rewrites.CLEAN_UP if other is not step]
    assert_rule_holds(
        step,
        PROGRAMS.get(step.name),
        options=options(step),
        others=others,
        examples=8,
        **{"fires": 0.12, "leaves": 0.12, **SHARES.get(step.name, {})},
    )
