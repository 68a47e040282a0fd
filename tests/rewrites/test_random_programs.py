"""Every shipped rule and transform keeps its promises on random programs, in front of and behind the clean-ups."""

from typing import Any

import pytest
from hypothesis import strategies as st

import rewrites
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Step
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import encode
from tosakit.testing import assert_rule_holds, strategies

pytestmark = pytest.mark.refmodel
EXAMPLES = {"remove_identity_rescale": 40, "bool_as_int32": 20, "deduplicate_constants": 20}
"""Programs for rules that rarely fire; 8 for the others."""


def split(program: Program) -> Program:
    """The program with every INT48 bias behind its convolution."""
    rule = rewrites.SPLIT_INT48_BIAS
    return run_steps(program, [rule], options={rule.name: rule.options("all")}).program


def spoilt(program: Program) -> Program:
    """The program with 32-bit multipliers on INT48, which TOSA forbids."""
    for block in program.blocks:
        for op in block.ops:
            if isinstance(op.attrs, ops.Rescale) and op.inputs[0].dtype == DType.INT48:
                wide = op.inputs[1].values().astype("int64") << 16
                data = encode(wide, DType.INT32)
                multiplier = Tensor("wide", DType.INT32, wide.shape, data)
                block.add_op(Op(ops.Const(), (), (multiplier,)), like=op)
                shift = Tensor(
                    "shift", DType.INT8, wide.shape, encode(op.inputs[2].values().astype("int64") + 16, DType.INT8)
                )
                block.add_op(Op(ops.Const(), (), (shift,)), like=op)
                attrs = ops.Rescale(True, RoundingMode.SINGLE_ROUND, op.attrs.per_channel)
                new = Op(
                    attrs,
                    (op.inputs[0], multiplier, shift, *op.inputs[3:]),
                    (Tensor("r", op.output.dtype, op.output.shape),),
                )
                block.splice(op, [new], {op.output: new.output})
    return program


def legal_shifts(program: Program) -> bool:
    """Every RESCALE on INT48 has room for 16 more bits of shift."""
    rescales = [op for b in program.blocks for op in b.ops if isinstance(op.attrs, ops.Rescale)]
    return all(op.inputs[0].dtype != DType.INT48 or op.inputs[2].values().max() <= 46 for op in rescales)


def bool_inside(program: Program) -> Program:
    """The program with INT8 for every BOOL input and output."""
    main = program.main
    inputs = []
    for old in main.inputs:
        inputs.append(old)
        if old.dtype == DType.BOOL:
            inputs[-1] = main.add_tensor(Tensor("x", DType.INT8, old.shape))
            cast = main.add_op(Op(ops.Cast(), (inputs[-1],), (Tensor("b", DType.BOOL, old.shape),)), like=main.ops[0])
            main.replace_uses(old, cast.output)
    main.set_inputs(inputs)
    casts = {
        t: main.add_op(Op(ops.Cast(), (t,), (Tensor("y", DType.INT8, t.shape),))).output
        for t in dict.fromkeys(main.outputs)
        if t.dtype == DType.BOOL
    }
    main.set_outputs([casts.get(t, t) for t in main.outputs])
    return program


CONVOLUTIONS = strategies.seeded(rewrites.SPLIT_INT48_BIAS)
STATE = st.sampled_from([ops.VariableRead, ops.VariableWrite]).flatmap(strategies.operators)

PROGRAMS: dict[str, st.SearchStrategy[Program]] = {
    "bool_as_int32": strategies.seeded(rewrites.BOOL_AS_INT32).map(bool_inside),
    "fuse_int48_bias": CONVOLUTIONS.map(split),
    "legalize_int48_rescale": CONVOLUTIONS.filter(legal_shifts).map(spoilt),
    "variables_as_inputs": st.one_of(STATE, strategies.programs(most=4)),
}
"""Programs for rules whose pattern says too little, or is illegal."""

SHARES: dict[str, dict[str, float]] = {
    "argmax_as_maximum": {"leaves": 0},  # a target leaves some alone, TOSA has no integer ARGMAX that it cannot rewrite
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
