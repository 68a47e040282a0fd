"""Write scale one as (2^13, 13) where (2^14, 14) would be fused with the RESCALE behind it.

    acc: INT48 ─▶ RESCALE (2^14, 14) ─▶ INT32 ─▶ RESCALE (m, s), m >= 2^15 ─▶ INT16
    acc: INT48 ─▶ RESCALE (2^13, 13) ─▶ INT32 ─▶ RESCALE (m, s), m >= 2^15 ─▶ INT16

Both give floor(v + 1/2) = v, clipped to INT32. Vela 5.2 fuses the first pair for Ethos-U85 and keeps only the low 15
bits of m; it leaves the second pair as it is (bytes inspected).
"""

from dataclasses import dataclass

from rewrites._accumulator import ONE, ONE_SHIFT
from rewrites._channels import Numbers, constant, extent, numbers
from rewrites._when import ForEthosU85
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp

FIRST = Capture(ops.Rescale, operands=(None,) * 5)
KEPT_BITS = 15
"""Bits of the second multiplier that the fused form keeps."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The multiplier and the shift that are not fused."""

    multiplier: Numbers
    shift: Numbers


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A first RESCALE of exactly (2^14, 14), and one behind it that would lose bits."""
    first = match[FIRST]
    multiplier, shift = first.inputs[1:3]
    if first.attrs.scale32 or first.inputs[0].dtype != DType.INT48 or first.output.dtype != DType.INT32:
        return None
    if not context.options.acts(context.target):
        return None
    behind = [op for op in first.output.users if _narrows(op)]
    if not behind or not multiplier.is_constant or not shift.is_constant:
        return None
    if extent(multiplier)[1:] != (ONE, ONE) or extent(shift)[1:] != (ONE_SHIFT, ONE_SHIFT):
        return None
    for op in behind:
        if not op.inputs[1].is_constant:
            return Refusal(f"the multiplier of {describe(op)} is no constant, so whether bits are lost is not known")
    if all(extent(op.inputs[1])[2] < 1 << KEPT_BITS for op in behind):
        return None
    return Plan(numbers(multiplier) >> 1, numbers(shift) - 1)


def _narrows(op: AnyOp) -> bool:
    is_wide = isinstance(op.attrs, ops.Rescale) and op.attrs.scale32 and len(op.inputs) == len(op.attrs.OPERANDS)
    return is_wide and op.output.dtype == DType.INT16


def replacement(match: Match, plan: Plan) -> Replacement:
    """The same RESCALE with a shift that is not fused."""
    first = match[FIRST]
    builder = Builder(first.output.name, location=first.location, origin=RULE.name)
    constants = (
        constant(builder, plan.multiplier, DType.INT16, "multiplier"),
        constant(builder, plan.shift, DType.INT8, "shift"),
    )
    operands = (first.inputs[0], *constants, *first.inputs[3:])
    kept = builder.op(first.attrs, operands, DType.INT32, first.output.shape, "one")
    return Replacement(builder.ops, {first.output: kept})


RULE = Rule(
    name="unfuse_rescale_pair",
    pattern=FIRST,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Write scale one as (2^13, 13) where (2^14, 14) would be fused with the RESCALE behind it.",
    options=ForEthosU85,
)
