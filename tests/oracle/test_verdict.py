"""check_rewrite: what decides whether a result may be written."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.build import Net
from tests.support.steps import add_again, rule, shift_constants, transform
from tosakit.engine.contract import ChangesPrecision, Exact, WithinLsb
from tosakit.engine.rule import Event, Step
from tosakit.errors import RuleBug
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import AnyOp, Op, Tensor, TensorExtras
from tosakit.ir.program import Program
from tosakit.oracle.contracts import Kept
from tosakit.oracle.equivalence import Verdict
from tosakit.oracle.verdict import CheckReport, check_rewrite, promise_of
from tosakit.rewriting import run

pytestmark = pytest.mark.refmodel

I16, I32 = DType.INT16, DType.INT32
PRECISION = ChangesPrecision("for a test")
THREE = WithinLsb(3, "for a test")


def checked(
    program: Program, *steps: Step, vectors: int = 14, seed: int = 0, stop_after: int | None = None
) -> CheckReport:
    done = run(program, steps, options={}, stop_after=stop_after)
    return check_rewrite(done.stages, vectors=vectors, seed=seed)


def total(net: Net | None = None) -> tuple[Net, Tensor]:
    """x + 5 on INT32."""
    net = net or Net()
    return net, net.add(net.input("x", I32, (8,)), net.const([5], I32), "total")


def visible() -> Program:
    net, value = total()
    return net.program(net.identity(value, "y"))


def hidden() -> Program:
    """max(x + 5, 2^31 - 1), which is always 2^31 - 1."""
    net, value = total()
    top = net.const([2**31 - 1], I32, "top")
    return net.program(net.op(ops.Maximum(nan_mode=NanPropagationMode.PROPAGATE), (value, top), I32, (8,), "y"))


def not_in_the_model() -> Program:
    """x + 5, and a CUSTOM operator that the reference model cannot run. Two equal constants, one dead operator."""
    net, value = total()
    net.op(ops.Abs(), (value,), I32, (8,), "dead")
    net.const([5], I32, "again")
    return net.program(net.op(ops.Custom("op", "domain", b""), (value,), I32, (8,), "y"))


# ---------------------------------------------------------------- exact
def test_nothing_done_is_nothing_to_run() -> None:
    report = checked(visible(), rule(ops.Abs, add_again(0)))
    assert (report.promise, report.kept, report.equivalence) == ("exact", True, None)
    assert str(report) == "exact; unchanged"


def test_exact_rewrites_are_held_to_identical_outputs_and_to_their_own_values() -> None:
    report = checked(visible(), rule(ops.Add, add_again(0)), seed=7)
    assert report.kept
    assert report.reasons == ()
    assert [finding.kept for finding in report.findings] == [Kept.KEPT]
    assert report.equivalence is not None
    assert report.equivalence.verdict is Verdict.EQUAL
    assert str(report).startswith(f"exact; {report.equivalence.vectors} vectors, seed 7")


def test_a_lie_that_shows_is_told_twice() -> None:
    report = checked(visible(), rule(ops.Add, add_again(-1)))
    assert not report.kept
    whole, local = report.reasons
    assert whole == "only exact rewrites were made, but outputs differ by up to 1 LSB (seed 0)"
    assert local == 'under_test at ADD -> "total": differs by 1 LSB, contract: exact'


def test_a_lie_that_does_not_show_is_told_too() -> None:
    report = checked(hidden(), rule(ops.Add, add_again(-1)))
    assert report.equivalence is not None
    assert report.equivalence.equal
    assert report.reasons == ('under_test at ADD -> "total": differs by 1 LSB, contract: exact',)


def test_a_result_that_is_invalid_where_the_original_is_valid_is_not_kept() -> None:
    def narrow(builder: Builder, op: AnyOp) -> Tensor:
        return builder.rescale(op.inputs[0], I32, 1 << 30, 30, scale32=True)

    report = checked(visible(), rule(ops.Identity, narrow, WithinLsb(10**9, "anything")))
    assert report.reasons[0].startswith("the second program is unpredictable where the first is valid")


# ---------------------------------------------------------------- bounds
def test_bounds_are_checked_by_rewrite_and_outputs_only_reported() -> None:
    report = checked(visible(), rule(ops.Add, add_again(-3), THREE))
    assert report.kept
    assert (report.promise, report.findings[0].observed_lsb) == ("within contracts", 3.0)
    assert str(report).startswith("within contracts; max 3 LSB; SQNR ")
    assert str(report).split("; ")[3].endswith("vectors, seed 0")


def test_a_bound_that_is_too_small_is_not_kept() -> None:
    report = checked(visible(), rule(ops.Add, add_again(-4), THREE))
    assert report.reasons == ('under_test at ADD -> "total": differs by 4 LSB, contract: within 3 LSB (for a test)',)


def test_outputs_that_agree_within_bounds_are_called_identical() -> None:
    assert str(checked(hidden(), rule(ops.Add, add_again(-3), THREE))).startswith("within contracts; identical; ")


def test_the_promise_is_the_weakest_contract() -> None:
    def events(*contracts: object) -> list[Event]:
        return [Event("r", "main", (), contract) for contract in contracts]  # type: ignore[arg-type]

    assert promise_of([]) == "exact"
    assert promise_of(events(Exact(), Exact())) == "exact"
    assert promise_of(events(Exact(), THREE)) == "within contracts"
    assert promise_of(events(PRECISION, THREE)) == "changes precision"


# ---------------------------------------------------------------- transforms
def test_a_change_of_precision_without_a_check_of_its_own_is_not_kept() -> None:
    report = checked(visible(), transform(shift_constants(1), PRECISION))
    assert report.reasons == (
        'whole cannot be checked: it promises "changes precision (for a test)" and brings no check of its own',
    )
    by_rule = checked(visible(), rule(ops.Add, add_again(1), PRECISION))
    assert by_rule.reasons[0].startswith("under_test cannot be checked")


def test_a_transform_s_own_check_decides_and_sees_the_program_before_and_after_it() -> None:
    seen: list[list[int]] = []

    def check(before: Program, after: Program) -> Sequence[str]:
        constants = [op for program in (before, after) for op in program.main.ops if isinstance(op.attrs, ops.Const)]
        seen.append([int(op.output.values()[0]) for op in constants if op.output.users])
        return ["the constant moved"] if len(seen) == 2 else []

    first = transform(shift_constants(1), PRECISION, name="first", local_check=check)
    second = transform(shift_constants(10), PRECISION, name="second", local_check=check)
    report = checked(visible(), first, second)
    assert seen == [[5, 6], [6, 16]]
    assert report.reasons == ("second: the constant moved",)
    assert report.promise == "changes precision"


def test_a_check_that_fails_is_the_transform_s_fault() -> None:
    def check(before: Program, after: Program) -> Sequence[str]:
        raise KeyError("nothing")

    with pytest.raises(RuleBug, match="the check of transform whole failed: KeyError"):
        checked(visible(), transform(shift_constants(1), PRECISION, local_check=check))


def test_a_bound_of_a_transform_without_a_check_is_not_kept() -> None:
    assert checked(visible(), transform(shift_constants(1), THREE)).reasons[0].startswith("whole cannot be checked")


def test_an_exact_transform_is_held_to_its_word_among_inexact_ones() -> None:
    """The outputs change rightly; what the exact transform adds to that must be found all the same."""
    fine = rule(ops.Add, add_again(-3), THREE)
    report = checked(visible(), fine, transform(shift_constants(-2)))
    assert len(report.reasons) == 1
    assert report.reasons[0].startswith(
        "whole: it promises to be exact, but before and after it the program is different"
    )
    assert checked(visible(), fine, transform(shift_constants(0))).kept


def test_a_transform_that_changes_without_telling_is_at_fault() -> None:
    def quietly(program: Program) -> list[str]:
        shift_constants(1)(program)
        return []

    with pytest.raises(RuleBug, match="a transform changed the program but reports no rewrite"):
        checked(visible(), transform(quietly))


# ---------------------------------------------------------------- programs that cannot run
def test_what_the_model_cannot_run_is_checked_rewrite_by_rewrite() -> None:
    from rewrites.deduplicate_constants import TRANSFORM as DEDUPLICATE
    from rewrites.remove_dead_code import TRANSFORM as DEAD_CODE

    report = checked(not_in_the_model(), rule(ops.Add, add_again(0)), DEDUPLICATE, DEAD_CODE)
    assert report.kept
    assert any("the reference model has no CUSTOM" in remark for remark in report.remarks)
    assert str(report) == "exact; could not run as a whole, each rewrite checked by itself; seed 0"

    lie = checked(not_in_the_model(), rule(ops.Add, add_again(1)))
    assert lie.reasons == ('under_test at ADD -> "total": differs by 1 LSB, contract: exact',)


def test_what_cannot_be_checked_at_all_is_not_kept() -> None:
    report = checked(not_in_the_model(), transform(shift_constants(1)))
    assert not report.kept
    assert report.reasons[0].startswith("whole cannot be checked: it promises to be exact, and unknown; 0 vectors")
    assert not report.breaches


def other_flags(builder: Builder, op: AnyOp) -> Tensor:
    return builder.op(ops.Custom("op", "domain", b"other"), op.inputs, I32, (8,))


def test_a_rewrite_that_cannot_be_cut_out_is_not_kept_unless_all_outputs_are_identical() -> None:
    report = checked(not_in_the_model(), rule(ops.Custom, other_flags), stop_after=1)
    assert report.reasons[0].startswith(
        'under_test at CUSTOM -> "y" cannot be checked by itself: the replaced operators'
    )

    net = Net()
    x, yes = net.input("x", I32, (8,)), net.const([True], DType.BOOL)
    program = net.program(net.op(ops.CondIf("same", "same"), (yes, x), I32, (8,), "y"))
    branch = Net("same")
    program.regions.extend(branch.program(branch.identity(branch.input("x", I32, (8,)), "y")).regions)
    again = rule(ops.CondIf, lambda builder, op: builder.op(op.attrs, op.inputs, I32, (8,)))
    proved = checked(program, again, stop_after=1)
    assert proved.kept
    assert any("COND_IF cannot be cut out of its program" in remark for remark in proved.remarks)


def illegal_sum() -> Program:
    net = Net()
    return net.program(net.add(net.input("x", I16, (8,)), net.const([3], I16), "y"))


def legal(builder: Builder, op: AnyOp) -> Tensor:
    wide = [builder.rescale(t, I32, 1 << 30, 30, scale32=True) for t in op.inputs]
    return builder.rescale(builder.add(*wide), I16, 1 << 14, 14, scale32=False)


def never_valid(builder: Builder, op: AnyOp) -> Tensor:
    constant = builder.const(np.full(8, 2**30), I32)
    narrow = builder.rescale(constant, I32, 1 << 30, 30, scale32=True)
    return builder.rescale(narrow, I16, 1 << 14, 14, scale32=False)


def test_the_result_of_an_original_that_cannot_run_must_run() -> None:
    reference = lambda op: lambda values: {op.output: values[op.inputs[0]].astype(float) + 3}  # noqa: E731
    report = checked(illegal_sum(), rule(ops.Add, legal, reference=reference))
    assert report.kept
    assert any("the first program is error" in remark for remark in report.remarks)

    dead = checked(illegal_sum(), rule(ops.Add, never_valid, WithinLsb(10**6, "anything"), reference=reference))
    assert dead.reasons[0].startswith("neither the original nor the result runs: the result is unpredictable")


def test_state_is_said_to_be_compared_from_its_initial_values_only() -> None:
    net, value = total()
    extras = TensorExtras(variable=True, variable_name="v")
    cell = net.graph.add_tensor(Tensor("cell", I32, (8,), bytes(32), extras=extras))
    net.graph.add_op(Op(ops.VariableWrite(), (value,), (cell,)))
    report = checked(net.program(value), rule(ops.Add, add_again(0)))
    assert report.kept
    assert any(remark.startswith("1 variables") for remark in report.remarks)
