"""Every shipped rule and transform keeps its promises on random programs, in front of and behind the clean-ups."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

import rewrites
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Step
from tosakit.ir import ops
from tosakit.ir.program import Program
from tosakit.testing import Seeded, assert_rule_holds, strategies
from tosakit.testing.mutation import Mutation
from tosakit.testing.special import bool_inside, wide_multipliers

pytestmark = pytest.mark.refmodel
EXAMPLES = {"remove_identity_rescale": 40, "bool_as_int32": 20, "deduplicate_constants": 20}
"""Programs for rules that rarely fire; 8 for the others."""


def split(program: Program) -> Program:
    """The program with every INT48 bias behind its convolution."""
    rule = rewrites.SPLIT_INT48_BIAS
    return run_steps(program, [rule], options={rule.name: rule.options("all")}).program


def changed(mutation: Mutation) -> Callable[[Program], Program]:
    """What a mutation makes of a program, or the program."""
    return lambda program: mutation(Seeded(0), program) or program


CONVOLUTIONS = strategies.seeded(rewrites.SPLIT_INT48_BIAS)
STATE = st.sampled_from([ops.VariableRead, ops.VariableWrite]).flatmap(strategies.operators)

PROGRAMS: dict[str, st.SearchStrategy[Program]] = {
    "bool_as_int32": strategies.seeded(rewrites.BOOL_AS_INT32).map(changed(bool_inside)),
    "fuse_int48_bias": CONVOLUTIONS.map(split),
    "legalize_int48_rescale": CONVOLUTIONS.map(changed(wide_multipliers)),
    "variables_as_inputs": st.one_of(STATE, strategies.programs(most=4)),
}
"""Programs for rules whose pattern says too little, or is illegal."""

SHARES: dict[str, dict[str, float]] = {
    # a target leaves some alone; of integers and of static shape there is none that these cannot rewrite
    "argmax_as_maximum": {"leaves": 0},
    "gather_as_matmul": {"leaves": 0},
    "scatter_as_matmul": {"leaves": 0},
    "constant_indices_as_movement": {"leaves": 0},  # drawn indices are constants, and legal
    "variables_as_inputs": {"checked": 0},  # the reference model has no variables
}

ELSEWHERE = (
    "insert_int16_rescale",
    "unfuse_rescale_pair",
    "own_rescale_per_reader",
    "double_as_mul",
    "identity_for_passed_outputs",
)
"""They need quantisation parameters, RESCALEs that agree, or an output that is an input; their own tests draw them."""


def options(step: Step) -> Any:
    """The options with which a rule acts wherever it can."""
    chosen = step.options()
    return type(chosen)(when="all") if hasattr(chosen, "when") else chosen


STEPS = [step for step in rewrites.RULES if step.name not in ELSEWHERE]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_it_holds_on_random_programs(step: Step) -> None:
    others = [other for other in rewrites.CLEAN_UP if other is not step]
    assert_rule_holds(
        step,
        PROGRAMS.get(step.name),
        options=options(step),
        others=others,
        examples=EXAMPLES.get(step.name, 8),
        **{"fires": 0.03, "leaves": 0.03, **SHARES.get(step.name, {})},
    )
