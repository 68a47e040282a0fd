"""Replace what is computed from constants alone by its value.

    constant ─▶ RESHAPE, TRANSPOSE, SLICE, PAD, CONCAT, TILE, REVERSE, IDENTITY ─▶ y
    constant ─▶ CAST between integers or to FP32, RESCALE ─▶ y                            CONST ─▶ y
    CONST_SHAPE ─▶ ADD_SHAPE, MUL_SHAPE, ... ─▶ y                                         CONST_SHAPE ─▶ y

Values are moved, or computed in the exact integer arithmetic of the specification; nothing that rounds in floating
point is folded. Folding repeats itself along a chain.

For a target only shapes are folded, and what leads to weights, a table, a zero point or another operand that Vela
demands to be constant. It joins a RESCALE of a constant with the elementwise operator behind it, and reads a computed
addend faster than a constant one (LayerNorm on U55-128: 6,181 cycles as it is, 14,370 folded).

A constant may be much smaller than what is made of it (TILE, CAST to a wider type): a result that is over ``growth``
bytes larger than its operands stays.
"""

from dataclasses import dataclass

from rewrites._constant_values import FOLDABLE, value_of
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import Array, byte_size

OPERATOR = Capture[Attributes](*FOLDABLE)

DEMANDED = (
    *("weight", "bias", "table", "multiplier", "shift", "scale", "offset", "border", "padding", "pad_const"),
    *("input_zp", "weight_zp", "output_zp", "input1_zp", "A_zp", "B_zp"),
)
"""Operands that Vela demands to be constant."""


@dataclass(frozen=True)
class Options:
    """``growth``: bytes by which a result may be larger than the constants that it is made of."""

    growth: int = 4096


@dataclass(frozen=True, eq=False)
class Plan:
    """The values of the result."""

    values: Array


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An operator with a result that all depends on constants, known exactly, and small enough."""
    op = match[OPERATOR]
    for tensor in op.inputs:
        if not tensor.is_constant:
            return None
    if not op.inputs or op.is_stateful:
        return None
    if not op.output.is_used or (context.target and not _is_demanded(op.output)):
        return None
    before, after = (sum(_bytes(tensor) for tensor in tensors) for tensors in (op.inputs, op.outputs))
    if after > before + context.options.growth:
        return Refusal(
            f"its result has {after} bytes, its operands {before}: over {context.options.growth} more "
            f"(option growth of {RULE.name})"
        )
    found = value_of(op)
    return Plan(found) if not isinstance(found, Refusal) and found is not None else found


def _is_demanded(tensor: Tensor) -> bool:
    """Whether it is a shape, or leads to an operand that must be constant, through what can be folded too."""
    todo, seen = [tensor], {tensor: None}
    for each in todo:  # grows while it runs
        if each.dtype == DType.SHAPE:
            return True
        for user, slot in each.uses:
            if user.attrs.OPERANDS[slot : slot + 1] and user.attrs.OPERANDS[slot] in DEMANDED:
                return True
            if isinstance(user.attrs, FOLDABLE) and all(t in seen or t.is_constant for t in user.inputs):
                todo.extend(t for t in user.outputs if t not in seen)
                seen.update(dict.fromkeys(user.outputs))
    return False


def _bytes(tensor: Tensor) -> int:
    return byte_size(tensor.dtype, tensor.shape)


def replacement(match: Match, plan: Plan) -> Replacement:
    """The constant."""
    op = match[OPERATOR]
    builder = Builder(op.output.name, location=op.location, origin=RULE.name)
    is_shape = op.output.dtype == DType.SHAPE
    made = builder.const_shape(plan.values.tolist()) if is_shape else builder.const(plan.values, op.output.dtype)
    return Replacement(builder.ops, {op.output: made})


RULE = Rule(
    name="fold_constants",
    pattern=OPERATOR,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Replace what is computed from constants alone by its value.",
    options=Options,
)
