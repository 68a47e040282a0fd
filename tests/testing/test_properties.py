"""What counts as a new error where the original has some, and what becomes of programs that nothing can be said of."""

import numpy as np
import pytest

import rewrites
from tests.support.build import Net
from tests.support.steps import rule, transform
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import QuantParams
from tosakit.testing import Setting, examine
from tosakit.testing.properties import new_errors


def shifted(*shifts: int) -> Program:
    """RESCALEs of one input, each with a shift; TOSA takes 2 to 62."""
    net = Net()
    x = net.input("x", DType.INT32, (2,))
    return net.program(*(net.rescale(x, DType.INT32, 1 << 30, s, f"y{i}", scale32=True) for i, s in enumerate(shifts)))


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ((30,), (70,), 1),
        ((70, 30), (70, 71), 1),
        ((70, 30, 30), (70, 71, 72), 2),
        ((70, 30), (70, 70), 0),
        ((70, 30), (30, 71), 0),
        ((70,), (70, 70, 70), 0),
        ((70, 71), (30, 30), 0),
    ],
    ids=["the first", "one more", "two more", "a copy", "another in its place", "copies", "repaired"],
)
def test_an_error_is_new_where_there_are_more_that_are_no_copies(
    before: tuple[int, ...], after: tuple[int, ...], count: int
) -> None:
    assert new_errors(shifted(*before), shifted(*after)).total() == count


def test_a_rule_that_breaks_a_second_operator_of_an_illegal_program_is_caught() -> None:
    def wider(builder: Builder, op: AnyOp) -> Tensor:
        return builder.rescale(op.inputs[0], DType.INT32, 1 << 30, 71, scale32=True)

    broken = rule(ops.Rescale, wider, when=lambda op: int(op.inputs[2].values()[0]) == 30)
    trial = examine(shifted(70, 30), [broken], Setting(), contracts=False)
    assert trial.fault is not None
    assert trial.fault.kind == "illegal"
    assert "71" in trial.fault.message


def test_a_program_that_no_rule_repairs_is_not_tried() -> None:
    net = Net()
    x = net.input("x", DType.INT8, (2, 3))
    y = net.op(ops.Reverse(axis=5), (x,), DType.INT8, (2, 3), "y")
    trial = examine(net.program(y), [rule(ops.Reverse, lambda builder, op: op.inputs[0])], Setting())
    assert trial.fault is None
    assert not trial.fired
    assert "not legal TOSA in a way that no rule repairs" in trial.unchecked


def test_a_rule_that_raises_on_an_illegal_program_it_may_be_given_is_caught() -> None:
    def fails(builder: Builder, op: AnyOp) -> Tensor:
        return builder.const(np.array([1 // (int(op.inputs[2].values()[0]) - 70)]), DType.INT32)

    trial = examine(shifted(70), [rule(ops.Rescale, fails)], Setting())
    assert trial.fault is not None
    assert (trial.fault.kind, "failed at RESCALE" in trial.fault.message) == ("raised", True)


def test_a_transform_that_renames_an_output_without_a_word_is_caught() -> None:
    def rename(program: Program) -> list[str]:
        [output] = program.main.outputs
        if output.name == "renamed":
            return []
        program.main.rename(output, "renamed")
        return [output.name]

    trial = examine(shifted(30), [transform(rename)], Setting())
    assert trial.fault is not None
    assert (trial.fault.kind, "the programs have different outputs" in trial.fault.message) == ("contract", True)


def test_quantisation_parameters_that_a_rule_does_not_take_are_no_fault_of_it() -> None:
    net = Net()
    x, y = net.input("x", DType.INT16, (2,)), net.input("y", DType.INT16, (2,))
    total = net.add(x, y)
    for tensor in (x, y, total):
        net.graph.annotate(tensor, QuantParams((0.5,), 1))
    trial = examine(net.program(total), [rewrites.INSERT_INT16_RESCALE], Setting())
    assert trial.fault is None
    assert "INT16 with zero point 1" in trial.unchecked
