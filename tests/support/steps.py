"""Small rules and transforms with known virtues and vices, for tests of what is built on top of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tosakit.engine.contract import Contract, Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Event, LocalCheck, Outcome, Reference, Replacement, Rule, Transform, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import encode

Make = Callable[[Builder, AnyOp], Tensor | Mapping[Tensor, Tensor]]

EXACT = Exact()


def rule(
    kind: type[Attributes],
    make: Make,
    contract: Contract = EXACT,
    *,
    name: str = "under_test",
    operands: Sequence[Capture[Attributes]] = (),
    when: Callable[[AnyOp], bool] = lambda op: True,
    covers: Callable[[AnyOp], list[AnyOp]] | None = None,
    reference: Callable[[AnyOp], Reference] | None = None,
) -> Rule[Any]:
    """A rule that replaces every operator of a kind, where ``when`` agrees, once by what ``make`` builds."""

    def precondition(match: Match, context: Context) -> bool | None:
        return True if match.root.origin != name and when(match.root) else None

    def replacement(match: Match, plan: bool) -> Replacement:
        op = match.root
        builder = Builder(f"{name}_{op.output.name}", origin=name)
        made = make(builder, op)
        values = {op.output: made} if isinstance(made, Tensor) else made
        covered = None if covers is None else covers(op)
        return Replacement(builder.ops, values, covers=covered, reference=reference(op) if reference else None)

    return Rule(name, Capture(kind, operands=operands), precondition, replacement, contract, "For a test.")


def add_again(offset: int) -> Make:
    """ADD of a constant once more, with ``offset`` too much."""

    def make(builder: Builder, op: AnyOp) -> Tensor:
        x, constant = op.inputs
        return builder.add(x, builder.const(constant.values() + offset, constant.dtype))

    return make


def transform(
    change: Callable[[Program], Sequence[str]],
    contract: Contract = EXACT,
    *,
    name: str = "whole",
    local_check: LocalCheck | None = None,
) -> Transform:
    """A transform; ``change`` changes the program and returns the operators it reports, one event each."""

    def run(program: Program, context: Context) -> Outcome:
        events = [Event(name, "main", (operator,), contract) for operator in change(program)]
        return Outcome(events, local_check=local_check)

    return Transform(name, run, contract, "For a test.")


def shift_constants(offset: int) -> Callable[[Program], list[str]]:
    """Add ``offset`` to every constant that an ADD reads."""

    def change(program: Program) -> list[str]:
        told = []
        for block in program.blocks:
            for op in block.ops:
                if isinstance(op.attrs, ops.Add) and op.inputs[1].is_constant:
                    old = op.inputs[1]
                    data = encode(np.asarray(old.values() + offset), old.dtype)
                    new = block.add_op(Op(ops.Const(), (), (Tensor(old.name, old.dtype, old.shape, data),)), like=op)
                    block.set_operand(op, 1, new.output)
                    told.append(describe(op))
        return told

    return change
