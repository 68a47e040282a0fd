"""The local check: a rewrite is held to its own contract, whatever the whole program makes of it."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.support.build import Net
from tests.support.steps import Make, add_again, rule
from tosakit.engine.contract import ChangesPrecision, Contract, WithinLsb
from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.engine.pattern import Capture
from tosakit.engine.rule import Reference, Rule
from tosakit.errors import InvalidModel, RuleBug
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, OpRecord, Tensor, TensorExtras
from tosakit.ir.program import Program, Region
from tosakit.ir.types import Array
from tosakit.oracle.contracts import Finding, Kept, check_events, extract
from tosakit.oracle.equivalence import check_equivalence
from tosakit.oracle.refmodel import ReferenceModel

pytestmark = pytest.mark.refmodel

I8, I16, I32 = DType.INT8, DType.INT16, DType.INT32
MODEL = ReferenceModel()


def fired(program: Program, step: Rule[Any]) -> RewriteResult:
    result = run_steps(program.clone(), [step], for_check=True, stop_after=1)
    assert len(result.events) == 1
    return result


def finding(program: Program, step: Rule[Any], vectors: int = 16) -> Finding:
    [found] = check_events(fired(program, step).events, MODEL, vectors=vectors, seed=0)
    return found


def sum_of(constant: int = 5) -> Net:
    net = Net()
    net.add(net.input("x", I32, (8,)), net.const([constant], I32), "sum")
    return net


def simple() -> Program:
    net = sum_of()
    return net.program(net.graph.tensor("sum"))


# ---------------------------------------------------------------- kept and broken
def test_a_rewrite_that_changes_nothing_is_kept() -> None:
    found = finding(simple(), rule(ops.Add, add_again(0)))
    assert (found.kept, found.observed_lsb, found.message) == (Kept.KEPT, 0.0, "")


def test_one_lsb_breaks_an_exact_contract() -> None:
    found = finding(simple(), rule(ops.Add, add_again(1)))
    assert (found.kept, found.observed_lsb) == (Kept.BROKEN, 1.0)
    assert found.message == "differs by 1 LSB, contract: exact"


def test_a_lie_is_found_although_the_outputs_of_the_program_agree() -> None:
    net = sum_of()
    top = net.const([2**31 - 1], I32)
    hidden = net.op(
        ops.Maximum(nan_mode=ops.NanPropagationMode.PROPAGATE), (net.graph.tensor("sum"), top), I32, (8,), "y"
    )
    program = net.program(hidden)
    result = fired(program, rule(ops.Add, add_again(-1)))
    assert check_equivalence(program, result.program, vectors=14).equal
    [found] = check_events(result.events, MODEL, vectors=14, seed=0)
    assert (found.kept, found.observed_lsb) == (Kept.BROKEN, 1.0)


def test_a_bound_holds_to_the_lsb() -> None:
    within = WithinLsb(3, "for a test")
    assert finding(simple(), rule(ops.Add, add_again(3), within)).kept is Kept.KEPT
    found = finding(simple(), rule(ops.Add, add_again(-4), within))
    assert (found.kept, found.observed_lsb) == (Kept.BROKEN, 4.0)
    assert found.message == "differs by 4 LSB, contract: within 3 LSB (for a test)"


def test_new_operators_that_are_unpredictable_break_any_contract() -> None:
    def narrow(builder: Builder, op: AnyOp) -> Tensor:
        total = builder.add(*op.inputs)
        return builder.rescale(total, I32, 1 << 30, 30, scale32=True)  # the identity on 30 bits only

    found = finding(simple(), rule(ops.Add, narrow, WithinLsb(10**9, "whatever comes")))
    assert found.kept is Kept.BROKEN
    assert found.message.startswith("the new operators are unpredictable where the replaced ones are valid: REQUIRE")


def test_original_operators_that_are_unpredictable_somewhere_leave_the_other_vectors() -> None:
    net = Net()
    program = net.program(net.rescale(net.input("x", I32, (8,)), I32, 1 << 30, 30, scale32=True))
    found = finding(program, rule(ops.Rescale, lambda builder, op: builder.identity(op.inputs[0])))
    assert found.kept is Kept.KEPT


def test_values_that_agree_on_nan_are_kept() -> None:
    net = Net()
    x = net.input("x", DType.FP32, (64,))
    program = net.program(net.op(ops.Abs(), (x,), DType.FP32, (64,), "y"))
    again = rule(ops.Abs, lambda builder, op: builder.op(ops.Abs(), op.inputs, DType.FP32, (64,)))
    assert finding(program, again).kept is Kept.KEPT


# ---------------------------------------------------------------- the ranges a proof assumed
def clamped_identity(shape: tuple[int, ...], low: int, high: int) -> Program:
    """RESCALE that is the identity for what CLAMP lets through, and unpredictable for anything else."""
    net = Net()
    builder = Builder("clamped")
    small = builder.clamp(net.input("x", I16, shape), low, high)
    net.take(builder)
    wide = net.rescale(small, I32, 1 << 30, 30, "wide", scale32=True)
    return net.program(net.rescale(wide, I32, 1 << 14, 14, "y"))


def test_inputs_stay_inside_the_range_that_was_proved() -> None:
    """Exact only because an upstream CLAMP keeps the values small."""

    def to_8_bits_and_back(builder: Builder, op: AnyOp) -> Tensor:
        narrow = builder.rescale(op.inputs[0], I8, 1 << 14, 14, scale32=False)
        return builder.rescale(narrow, I32, 1 << 30, 30, scale32=True)

    def last_rescale(program: Program) -> Finding:
        return finding(program, rule(ops.Rescale, to_8_bits_and_back, operands=[Capture(ops.Rescale)]))

    assert last_rescale(clamped_identity((8,), -100, 100)).kept is Kept.KEPT
    found = last_rescale(clamped_identity((8,), -1000, 1000))
    assert (found.kept, found.observed_lsb) == (Kept.BROKEN, 1000.0 - 127.0)


def test_each_channel_stays_inside_its_own_range() -> None:
    """Channel 0 reaches 127, channel 1 far more; a proof that treats them apart must not be blamed."""
    net = Net()
    x = net.input("x", I8, (4, 2))
    wide = net.rescale(x, I32, [1 << 30, 1 << 30], [30, 20], "wide", scale32=True)
    program = net.program(net.op(ops.BitwiseNot(), (wide,), I32, (4, 2), "y"))

    def through_8_bits(builder: Builder, op: AnyOp) -> Tensor:
        # scale one, which TOSA permits for |value| <= 2^8 in channel 0 and 2^29 in channel 1
        same = builder.rescale(op.inputs[0], I32, [1 << 9, 1 << 30], [9, 30], scale32=True)
        return builder.op(ops.BitwiseNot(), (same,), I32, (4, 2))

    assert finding(program, rule(ops.BitwiseNot, through_8_bits)).kept is Kept.KEPT


# ---------------------------------------------------------------- what stands for what
def test_readers_may_be_given_a_tensor_that_was_there_before() -> None:
    net = Net()
    x = net.input("x", I32, (8,))
    program = net.program(net.op(ops.Abs(), (net.identity(x),), I32, (8,), "y"))
    passed_on = rule(ops.Identity, lambda builder, op: op.inputs[0])
    assert finding(program, passed_on).kept is Kept.KEPT


def test_a_tensor_that_was_there_before_must_have_the_same_values() -> None:
    net = Net()
    program = net.program(net.op(ops.BitwiseNot(), (net.input("x", I32, (8,)),), I32, (8,), "y"))
    found = finding(program, rule(ops.BitwiseNot, lambda builder, op: op.inputs[0]))
    assert found.kept is Kept.BROKEN


def test_a_constant_may_stand_for_what_is_always_the_same() -> None:
    def program(low: int) -> Program:
        net = Net()
        builder = Builder("y")
        builder.clamp(net.input("x", I16, (8,)), low, 7)
        net.take(builder)
        return net.program(builder.ops[-1].output)

    sevens = rule(ops.Clamp, lambda builder, op: builder.const(np.full(8, 7), I16))
    assert finding(program(7), sevens).kept is Kept.KEPT
    found = finding(program(5), sevens)
    assert (found.kept, found.observed_lsb) == (Kept.BROKEN, 2.0)


def branches() -> tuple[Program, Callable[[AnyOp], list[AnyOp]]]:
    """x + 5 with two readers, ABS and BITWISE_NOT; covers both."""
    net = sum_of()
    total = net.graph.tensor("sum")
    first = net.op(ops.Abs(), (total,), I32, (8,), "first")
    second = net.op(ops.BitwiseNot(), (total,), I32, (8,), "second")
    return net.program(first, second), lambda op: [op, *op.output.users]


def both(wrong: int) -> Make:
    def make(builder: Builder, op: AnyOp) -> Mapping[Tensor, Tensor]:
        total = builder.add(*op.inputs)
        first, second = (user.output for user in op.output.users)
        flipped = builder.op(ops.BitwiseNot(), (total,), I32, (8,))
        return {
            first: builder.op(ops.Abs(), (total,), I32, (8,)),
            second: builder.add(flipped, builder.const([wrong], I32)) if wrong else flipped,
        }

    return make


def test_every_one_of_several_values_is_compared() -> None:
    program, covers = branches()
    assert finding(program, rule(ops.Add, both(0), covers=covers)).kept is Kept.KEPT
    found = finding(program, rule(ops.Add, both(-1), covers=covers))
    assert (found.kept, found.observed_lsb) == (Kept.BROKEN, 1.0)


def test_a_value_passed_on_is_compared_beside_a_computed_one() -> None:
    net = Net()
    x = net.input("x", I32, (8,))
    first = net.identity(x, "first")
    second = net.op(ops.Abs(), (first,), I32, (8,), "second")
    program = net.program(net.op(ops.BitwiseNot(), (first,), I32, (8,), "y"), second)

    def make(builder: Builder, op: AnyOp) -> Mapping[Tensor, Tensor]:
        magnitude = op.output.users[0]
        return {op.output: op.inputs[0], magnitude.output: builder.op(ops.BitwiseNot(), op.inputs, I32, (8,))}

    step = rule(ops.Identity, make, covers=lambda op: [op, op.output.users[0]])
    assert finding(program, step).kept is Kept.BROKEN  # |x| is not ~x, whatever is right about the other value


def test_replaced_operators_that_live_on_are_run_for_the_new_ones_too() -> None:
    """y = ~(x + 5) becomes -1 - (x + 5), read off the ADD that stays."""
    net = sum_of()
    program = net.program(net.op(ops.BitwiseNot(), (net.graph.tensor("sum"),), I32, (8,), "y"))

    def make(builder: Builder, op: AnyOp) -> Tensor:
        return builder.op(ops.Sub(), (builder.const([-1], I32), op.inputs[0]), I32, (8,))

    covered = rule(ops.BitwiseNot, make, covers=lambda op: [op, op.inputs[0].producer])  # type: ignore[list-item]
    assert finding(program, covered).kept is Kept.KEPT


def test_new_operators_that_read_something_unrelated_cannot_be_checked() -> None:
    net = Net()
    x, other = net.input("x", I32, (8,)), net.input("other", I32, (8,))
    program = net.program(net.op(ops.Abs(), (x,), I32, (8,), "y"), net.identity(other, "z"))
    graph_input: dict[str, Tensor] = {}

    def make(builder: Builder, op: AnyOp) -> Tensor:
        assert op.inputs[0].producer is not None
        graph_input["other"] = op.inputs[0].producer.outputs[1]
        return builder.op(ops.Abs(), (graph_input["other"],), I32, (8,))

    found = finding(program, rule(ops.Abs, make))
    assert found.kept is Kept.UNCHECKED
    assert found.message.startswith("the new operators read %other: INT32[8], which the replaced ones do not")


def test_operators_inside_a_branch_are_checked_like_any_other() -> None:
    def branch(name: str, offset: int) -> Region:
        net = sum_of(offset)
        return Region(name, [net.program(net.graph.tensor("sum")).main])

    net = Net()
    x, condition = net.input("x", I32, (8,)), net.input("condition", DType.BOOL, (1,))
    y = net.op(ops.CondIf("yes", "no"), (condition, x), I32, (8,), "y")
    program = Program([*net.program(y).regions, branch("yes", 1), branch("no", 2)])
    result = run_steps(program.clone(), [rule(ops.Add, add_again(1))], for_check=True)
    assert [event.block for event in result.events] == ["main", "main"]
    found = check_events(result.events, MODEL, vectors=4, seed=0)
    assert [(f.kept, f.observed_lsb) for f in found] == [(Kept.BROKEN, 1.0)] * 2


# ---------------------------------------------------------------- references
def illegal_sum() -> Program:
    """ADD on INT16, which TOSA does not have: nothing can run it."""
    net = Net()
    x = net.input("x", I16, (8,))
    return net.program(net.add(x, net.const([3], I16), "y"))


def legal_sum(builder: Builder, op: AnyOp) -> Tensor:
    wide = [builder.rescale(t, I32, 1 << 30, 30, scale32=True) for t in op.inputs]
    return builder.rescale(builder.add(*wide), I16, 1 << 14, 14, scale32=False)


def means(offset: float | Fraction) -> Callable[[AnyOp], Reference]:
    def reference_of(op: AnyOp) -> Reference:
        x, y = op.inputs[0], op.output

        def reference(values: Mapping[Tensor, Array]) -> Mapping[Tensor, Array]:
            if isinstance(offset, Fraction):
                return {y: values[x].astype(object) + offset}
            return {y: values[x].astype(np.float64) + offset}

        return reference

    return reference_of


def test_without_a_reference_nothing_is_known_about_illegal_operators() -> None:
    found = finding(illegal_sum(), rule(ops.Add, legal_sum))
    assert found.kept is Kept.UNCHECKED
    assert found.message.startswith("the replaced operators are error: ")


def test_a_reference_stands_for_operators_that_cannot_run() -> None:
    """Saturation at the limits of INT16 belongs to the meaning: no vector breaks it."""
    assert finding(illegal_sum(), rule(ops.Add, legal_sum, reference=means(3.0))).kept is Kept.KEPT


def test_a_reference_that_means_something_else_breaks_the_contract() -> None:
    found = finding(illegal_sum(), rule(ops.Add, legal_sum, WithinLsb(0.5, "rounding"), reference=means(3.75)))
    assert (found.kept, found.observed_lsb) == (Kept.BROKEN, 0.75)


def test_exact_references_are_compared_exactly() -> None:
    barely = means(3 + Fraction(1, 2) + Fraction(1, 2**80))
    just = means(3 + Fraction(1, 2))
    half = WithinLsb(0.5, "rounding")
    assert finding(illegal_sum(), rule(ops.Add, legal_sum, half, reference=just)).kept is Kept.KEPT
    assert finding(illegal_sum(), rule(ops.Add, legal_sum, half, reference=barely)).kept is Kept.BROKEN


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda values: {}, "its reference failed: KeyError"),
        (lambda values: 1 / 0, "its reference failed: ZeroDivisionError"),
    ],
    ids=["misses a value", "raises"],
)
def test_a_reference_that_fails_is_the_rule_s_fault(reference: Reference, message: str) -> None:
    with pytest.raises(RuleBug, match=f'rule under_test at ADD -> "y": {message}'):
        finding(illegal_sum(), rule(ops.Add, legal_sum, reference=lambda op: reference))


def test_a_reference_of_another_shape_is_not_compared_by_broadcasting() -> None:
    scalar = lambda op: lambda values: {op.output: np.float64(0)}  # noqa: E731
    with pytest.raises(RuleBug, match=r"its reference gives the shape \[\] to a value of shape \[8\]"):
        finding(illegal_sum(), rule(ops.Add, legal_sum, reference=scalar))


# ---------------------------------------------------------------- what cannot be checked
def test_dynamic_shapes_and_block_scaled_values_cannot_be_checked() -> None:
    net = Net()
    dynamic = net.program(net.op(ops.Abs(), (net.input("x", I32, (-1,)),), I32, (-1,), "y"))
    again = rule(ops.Abs, lambda builder, op: builder.op(ops.Abs(), op.inputs, I32, (-1,)))
    found = finding(dynamic, again)
    assert (found.kept, "dynamic shape" in found.message) == (Kept.UNCHECKED, True)

    graph = Graph("main")
    extras = TensorExtras(scale_type=DType.FP8UE8M0)
    x = graph.add_tensor(Tensor("x", DType.FP8E4M3, (1, 32), extras=extras))
    graph.set_inputs([x])
    y: AnyOp = graph.add_op(Op(ops.Identity(), (x,), (Tensor("y", DType.FP8E4M3, (1, 32), extras=extras),)))
    graph.set_outputs(y.outputs)
    found = finding(Program([Region("main", [graph])]), rule(ops.Identity, lambda builder, op: op.inputs[0]))
    assert (found.kept, "block-scaled" in found.message) == (Kept.UNCHECKED, True)


def test_contracts_about_precision_are_not_for_this_check() -> None:
    result = fired(simple(), rule(ops.Add, add_again(1), ChangesPrecision("for a test")))
    assert check_events(result.events, MODEL, vectors=2, seed=0) == []


def test_a_contract_nobody_knows_is_not_kept() -> None:
    found = finding(simple(), rule(ops.Add, add_again(0), Contract()))
    assert found.kept is Kept.UNCHECKED


def test_operators_of_the_draft_are_checked_like_any_other() -> None:
    net = Net()
    x, zero = net.input("x", I8, (1, 2, 3)), net.const([0], I8)
    program = net.program(net.op(ops.MatMulT(), (x, x, zero, zero), I32, (1, 2, 2), "y"))
    again = rule(ops.MatMulT, lambda builder, op: builder.op(op.attrs, op.inputs, I32, (1, 2, 2)))
    assert finding(program, again).kept is Kept.KEPT


def test_bytes_that_a_file_keeps_with_a_computed_tensor_are_no_constant() -> None:
    """|t| is not t, whatever is stored with t, and although the operator that made it is gone when the check runs."""
    graph = Graph("main")
    x = graph.add_tensor(Tensor("x", I32, (8,)))
    graph.set_inputs([x])
    t = Tensor("t", I32, (8,), np.ones(8, np.int32).tobytes())
    flip: AnyOp = graph.add_op(Op(ops.BitwiseNot(), (x,), (t,)))
    magnitude: AnyOp = graph.add_op(Op(ops.Abs(), (t,), (Tensor("y", I32, (8,)),)))
    graph.set_outputs([magnitude.output])
    program = Program([Region("main", [graph])])
    result = run_steps(program, [rule(ops.Abs, lambda builder, op: builder.identity(op.inputs[0]))], for_check=True)
    graph.set_operand(graph.ops[-1], 0, x)
    graph.erase(flip)
    [found] = check_events(result.events, MODEL, vectors=4, seed=0)
    assert found.kept is Kept.BROKEN


# ---------------------------------------------------------------- cutting out
def records(program: Program, *kinds: str) -> list[OpRecord]:
    return [op.record for op in program.main.ops if op.name in kinds]


def test_inputs_are_listed_once_however_often_they_are_read() -> None:
    net = Net()
    x = net.input("x", I32, (2,))
    double = net.add(x, x, "double")
    program = net.program(net.add(double, x, "y"))
    cut, inputs = extract(records(program, "ADD"), [program.main.tensor("y")])
    assert [t.name for t in inputs] == ["x"]
    assert [[t.name for t in op.inputs] for op in cut.main.ops] == [["x", "x"], ["double", "x"]]


def test_constants_come_along_once() -> None:
    net = Net()
    x, five = net.input("x", I32, (2,)), net.const([5], I32, "five")
    program = net.program(net.add(net.add(x, five, "once"), five, "y"))
    cut, inputs = extract(records(program, "ADD"), [program.main.tensor("y")])
    assert [t.name for t in inputs] == ["x"]
    assert [op.name for op in cut.main.ops] == ["CONST", "ADD", "ADD"]
    assert cut.main.tensor("five").values().tolist() == [5]


def test_records_may_come_in_any_order() -> None:
    net = Net()
    x = net.input("x", I32, (2,))
    for number in range(2000):
        x = net.op(ops.BitwiseNot(), (x,), I32, (2,), f"t{number}")
    program = net.program(x)
    cut, _ = extract(records(program, "BITWISE_NOT")[::-1], [x])
    assert [op.output.name for op in cut.main.ops] == [f"t{number}" for number in range(2000)]


def test_cut_out_operators_leave_their_graph_as_it_is() -> None:
    program = simple()
    before = [op.record for op in program.main.ops]
    extract(records(program, "ADD"), [program.main.tensor("sum")])
    assert [op.record for op in program.main.ops] == before


def test_what_needs_the_rest_of_its_program_cannot_be_cut_out() -> None:
    graph = Graph("main")
    cell = graph.add_tensor(Tensor("cell", I32, (4,), extras=TensorExtras(variable=True, variable_name="v")))
    read: AnyOp = graph.add_op(Op(ops.VariableRead(), (cell,), (Tensor("read", I32, (4,)),)))
    with pytest.raises(InvalidModel, match="VARIABLE_READ cannot be cut out of its program"):
        extract([read.record], [read.output])


def test_operators_in_a_cycle_cannot_be_cut_out() -> None:
    a, b = Tensor("a", I32, (1,)), Tensor("b", I32, (1,))
    loop = [OpRecord(ops.Abs(), (a,), (b,)), OpRecord(ops.Abs(), (b,), (a,))]
    with pytest.raises(InvalidModel, match="ABS depends on itself"):
        extract(loop, [a])
