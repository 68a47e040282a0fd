"""Multiply by two where a rescaled tensor is added to itself.

    x ─┬─▶ RESCALE (m, s) ─▶ ADD ─▶ y             x ─▶ RESCALE (m, s) ─▶ MUL 2 ─▶ y
       └─▶ RESCALE (m, s) ─▶

v + v = 2 * v, and TOSA demands of both that it fits INT32. Vela 5.2 was reported to make x of x + x on Ethos-U55 where
both operands have one scale that is no power of two; the product is cheaper there too.
"""

from dataclasses import dataclass

import numpy as np

from rewrites._when import ForEthosU55
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor

LEFT = Capture(ops.Rescale, operands=(None,) * 5)
RIGHT = Capture(ops.Rescale, operands=(None,) * 5)
ADD = Capture(ops.Add, operands=(LEFT, RIGHT))


@dataclass(frozen=True)
class Plan:
    """What is doubled."""

    value: Tensor


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """Two RESCALEs of one tensor by the same numbers, whose multipliers are not all powers of two."""
    left, right = match[LEFT], match[RIGHT]
    wanted = context.options.acts(context.target)
    if not wanted or left.inputs[0] is not right.inputs[0] or left.output.dtype != DType.INT32:
        return None
    for op in (left, right):
        if not all(t.is_constant for t in op.inputs[1:]):
            return Refusal(f"{describe(op)} has operands that are no constants, so whether both scales agree is open")
    multiplier = left.inputs[1].values()
    if not _alike(left, right) or not np.any(multiplier & (multiplier - 1)):
        return None
    return Plan(left.output)


def _alike(left: AnyOp, right: AnyOp) -> bool:
    constants = zip(left.inputs[1:], right.inputs[1:], strict=True)
    return left.attrs == right.attrs and all(np.array_equal(a.values(), b.values()) for a, b in constants)


def replacement(match: Match, plan: Plan) -> Replacement:
    """One product."""
    add, value = match[ADD], plan.value
    builder = Builder(add.output.name, location=add.location, origin=RULE.name)
    two = builder.number(2, DType.INT32, len(value.shape), "two")
    shift = builder.number(0, DType.INT8, name="shift")
    product = builder.op(ops.Mul(), (value, two, shift), DType.INT32, add.output.shape)
    return Replacement(builder.ops, {add.output: product}, covers=(add, *dict.fromkeys((match[LEFT], match[RIGHT]))))


RULE = Rule(
    name="double_as_mul",
    pattern=ADD,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Multiply by two where a rescaled tensor is added to itself.",
    options=ForEthosU55,
)
