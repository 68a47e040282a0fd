"""A rules module in which nearly everything is wrong, for tests of the command line."""

from tests.support.steps import add_again, rule, shift_constants, transform
from tosakit.engine.contract import ChangesPrecision, WithinLsb
from tosakit.engine.rule import BoundaryChange, Context, Outcome, Transform
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.program import Program


def _crash(builder: Builder, op: AnyOp) -> Tensor:
    raise ZeroDivisionError(f"nothing to divide {op.name} by")


def _illegal(builder: Builder, op: AnyOp) -> Tensor:
    return builder.rescale(op.inputs[0], DType.INT32, 1 << 30, 63, scale32=True)


def _other_type(builder: Builder, op: AnyOp) -> Tensor:
    return builder.rescale(op.inputs[0], DType.INT16, 1 << 14, 14, scale32=False)


def _swap(builder: Builder, op: AnyOp) -> Tensor:
    return builder.add(op.inputs[1], op.inputs[0])


def _silent(program: Program) -> list[str]:
    shift_constants(1)(program)
    return []


def _not_an_outcome(program: Program, context: Context) -> Outcome:
    return Outcome(boundary=[BoundaryChange("x", DType.INT8, DType.INT16, 0, 128)], events=[None])  # type: ignore[list-item]


RULES = (
    rule(ops.Add, add_again(0), name="good"),
    rule(ops.Add, add_again(-1), name="lie"),
    rule(ops.Add, add_again(-1), WithinLsb(1, "for a test"), name="bounded"),
    rule(ops.Add, _crash, name="crash"),
    rule(ops.Add, _illegal, name="illegal"),
    rule(ops.Add, _other_type, name="other_type"),
    rule(ops.Add, _swap, name="ping"),
    rule(ops.Add, _swap, name="pong"),
    transform(_silent, name="silent"),
    transform(shift_constants(1), ChangesPrecision("for a test"), name="unchecked"),
    Transform("broken_outcome", _not_an_outcome, ChangesPrecision("for a test"), "For a test."),
)
