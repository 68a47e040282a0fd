"""tosakit.rewrite: the main job as one call."""

from pathlib import Path

import numpy as np
import pytest

import tosakit
from tests.support.build import Net
from tests.support.steps import add_again, rule, shift_constants, transform
from tosakit.catalogue import Catalogue
from tosakit.engine.bounds import OutputBound
from tosakit.engine.contract import ChangesPrecision, WithinLsb
from tosakit.engine.rule import Event, Reference, Step
from tosakit.errors import InvalidArgument, InvalidModel, NotEquivalent, RuleBug, Unsupported
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Op, Tensor, TensorExtras
from tosakit.ir.program import Program
from tosakit.oracle.verdict import check_rewrite
from tosakit.rewriting import Rewriting, batches, rewrite

pytestmark = pytest.mark.refmodel

CORPUS = Path(__file__).parent / "corpus"
I16, I32 = DType.INT16, DType.INT32


def sums(count: int = 3) -> Program:
    """x + 1 + 2 + 3 ..."""
    net = Net()
    x = net.input("x", I32, (4,))
    for number in range(1, count + 1):
        x = net.add(x, net.const([number], I32), f"sum{number}")
    return net.program(x)


def run(program: Program, *steps: Step, **settings: object) -> Rewriting:
    """Rewrite by these steps alone."""
    catalogue = Catalogue({step.name: step for step in steps}, {})
    return rewrite(
        program,
        rules=[step.name for step in steps],
        catalogue=catalogue,
        **{"vectors": 6, **settings},  # type: ignore[arg-type]
    )


AGAIN = rule(ops.Add, add_again(0), name="again")
LIE = rule(ops.Add, add_again(-1), name="lie")
MOVE = transform(shift_constants(0), name="move")


# ---------------------------------------------------------------- what comes back
def test_the_program_given_is_left_as_it_is() -> None:
    program = sums()
    before = dumps(program)
    done = run(program, AGAIN)
    assert dumps(program) == before
    assert done.before is program
    assert done.program is done.result.program
    assert (len(done.result.events), done.exact) == (3, True)
    assert done.check is not None
    assert done.check.kept


def test_a_path_is_loaded_and_a_pipeline_run() -> None:
    done = tosakit.rewrite(CORPUS / "resblock_a8w8.tosa", pipeline="int16", vectors=4)
    assert [t.dtype for t in (*done.program.main.inputs, *done.program.main.outputs)] == [I16] * 2
    assert not done.exact
    assert [change.after for change in done.result.boundary] == [I16, I16]


def test_options_reach_the_rule_they_name() -> None:
    path = CORPUS / "resblock_a8w8.tosa"
    done = tosakit.rewrite(path, pipeline="int16", options={"widen_int8_activations.io": "int8"}, check="none")
    assert done.result.boundary == []
    with pytest.raises(InvalidArgument, match=r"split_int48_bias\.when has no effect"):
        tosakit.rewrite(path, pipeline="int16", options={"split_int48_bias.when": "all"}, check="none")


def test_the_same_call_gives_the_same_bytes() -> None:
    first, second = (tosakit.rewrite(CORPUS / "resblock_a8w8.tosa", pipeline="int16", check="none") for _ in range(2))
    assert dumps(first.program) == dumps(second.program)


def test_rules_fire_as_one_set_and_transforms_alone() -> None:
    assert [[step.name for step in batch] for batch in batches([AGAIN, LIE, MOVE, MOVE, AGAIN])] == [
        ["again", "lie"],
        ["move"],
        ["move"],
        ["again"],
    ]


# ---------------------------------------------------------------- stopping early
@pytest.mark.parametrize(("count", "rewrites", "stopped"), [(0, 0, True), (2, 2, True), (3, 3, True), (9, 3, False)])
def test_stop_after_counts_rewrites(count: int, rewrites: int, stopped: bool) -> None:
    done = run(sums(), AGAIN, stop_after=count)
    assert (len(done.result.events), done.result.stopped) == (rewrites, stopped)


def test_stop_after_counts_over_all_steps_and_what_was_done_is_checked() -> None:
    good_then_bad = run(sums(), AGAIN, MOVE, LIE, stop_after=3)
    assert [event.rule for event in good_then_bad.result.events] == ["again"] * 3
    assert good_then_bad.check is not None
    assert good_then_bad.check.kept
    with pytest.raises(NotEquivalent):
        run(sums(), LIE, stop_after=1)
    # with --check each, too, only what was done is checked
    assert run(sums(), AGAIN, MOVE, LIE, stop_after=5, check="each").result.stopped


def test_a_trace_is_told_every_rewrite_as_it_happens() -> None:
    told: list[Event] = []
    done = run(sums(), AGAIN, trace=told.append)
    assert told == done.result.events


# ---------------------------------------------------------------- checking
def test_a_lie_is_never_returned() -> None:
    with pytest.raises(NotEquivalent) as refused:
        run(sums(), LIE)
    text = str(refused.value)
    assert text.startswith("the result does not keep what its rewrites promise; nothing was written:\n")
    assert 'lie at ADD -> "sum1": differs by 1 LSB, contract: exact' in text


def test_a_lie_goes_through_unchecked_only_where_that_is_asked_for() -> None:
    done = run(sums(), LIE, check="none")
    assert done.check is None
    assert len(done.result.events) == 3


def test_long_lists_of_reasons_are_cut() -> None:
    with pytest.raises(NotEquivalent) as refused:
        run(sums(20), LIE, vectors=1)
    assert str(refused.value).endswith("... and 11 more")


def test_each_looks_at_every_stage() -> None:
    """Two errors that cancel: the whole program is as promised, neither stage is."""
    up = transform(shift_constants(1), name="up")
    down = transform(shift_constants(-1), name="down")
    assert run(sums(), up, down).check is not None
    with pytest.raises(NotEquivalent, match="only exact rewrites were made"):
        run(sums(), up, down, check="each")


def test_each_accepts_stages_between_which_the_program_cannot_run() -> None:
    """An illegal original is repaired in two steps; only the last result has to run."""
    net = Net()
    x = net.input("x", I16, (4,))
    program = net.program(net.add(net.add(x, x, "one"), x, "two"))

    def legal(name: str) -> Step:
        def make(builder: Builder, op: AnyOp) -> Tensor:
            wide = [builder.rescale(t, I32, 1 << 30, 30, scale32=True) for t in op.inputs]
            return builder.rescale(builder.add(*wide), I16, 1 << 14, 14, scale32=False)

        def reference(op: AnyOp) -> Reference:
            return lambda values: {op.output: sum(values[t].astype(np.float64) for t in op.inputs)}

        return rule(ops.Add, make, name=name, when=lambda op: op.output.name == name, reference=reference)

    done = run(program, legal("one"), MOVE, legal("two"), check="each")
    assert done.check is not None
    assert done.check.kept


def test_vectors_and_seed_are_those_asked_for() -> None:
    done = run(sums(), AGAIN, vectors=5, seed=9)
    assert done.check is not None
    assert done.check.equivalence is not None
    assert (done.check.equivalence.vectors + done.check.equivalence.skipped, done.check.equivalence.seed) == (5, 9)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"vectors": 0}, "0 vectors given; a check needs at least 1"),
        ({"seed": -1}, "seed -1 is negative"),
        ({"check": "never"}, 'check "never" is unknown; it is none, end or each'),
        ({"target": "ethos-u55"}, 'unknown target "ethos-u55"; did you mean ethos-u55-'),
        ({"target": "cortex"}, 'unknown target "cortex"; there are: ethos-u55-32, '),
    ],
)
def test_impossible_settings_are_refused(setting: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        run(sums(), AGAIN, **setting)


# ---------------------------------------------------------------- results that cannot be
def test_an_illegal_result_of_a_legal_program_is_the_rules_fault() -> None:
    def narrow(builder: Builder, op: AnyOp) -> Tensor:
        return builder.rescale(op.inputs[0], I32, 1 << 30, 63, scale32=True)  # shifts end at 62

    with pytest.raises(RuleBug, match=r"not legal TOSA, the original was \(rules that fired: under_test\)(.|\n)*Shift"):
        run(sums(1), rule(ops.Add, narrow))


def test_an_illegal_program_that_no_rule_repairs_is_the_user_s() -> None:
    net = Net()
    program = net.program(net.add(net.input("x", I16, (4,)), net.const([1], I16), "y"))
    with pytest.raises(InvalidModel) as refused:
        tosakit.rewrite(program, pipeline="int16")
    text = str(refused.value)
    assert text.startswith("the program is not legal TOSA and no rule repaired it:\n  error: ")
    assert 'insert_int16_rescale refused at ADD -> "y": ' in text


@pytest.mark.parametrize("operands", [1, 3])
def test_rules_are_not_asked_about_operators_of_no_clear_meaning(operands: int) -> None:
    """A rule may take apart operands without counting them, and read constants without looking for their bytes."""
    net = Net()
    x = net.input("x", I32, (4,))
    program = net.program(net.op(ops.Add(), [x] * operands, I32, (4,), "y"))
    with pytest.raises(InvalidModel, match=r"no rule repairs; (.|\n)*  error: (.|\n)*WrongInputList at .* #0 ADD"):
        run(program, AGAIN)


def test_a_rule_that_an_illegal_program_takes_by_surprise_is_not_to_blame() -> None:
    def surprised(builder: Builder, op: AnyOp) -> Tensor:
        raise KeyError(op.output.name)

    failing = rule(ops.Add, surprised)
    with pytest.raises(RuleBug, match="KeyError"):
        run(sums(1), failing)
    net = Net()
    program = net.program(net.add(net.input("x", I16, (4,)), net.const([1], I16), "y"))
    with pytest.raises(InvalidModel, match=r"not legal TOSA, and rule under_test failed(.|\n)*WrongInputType at .*ADD"):
        run(program, failing)


def test_rules_are_not_asked_about_constants_without_data() -> None:
    net = Net()
    lost = Tensor("lost", I32, (4,))
    net.graph.add_op(Op(ops.Const(), (), (lost,)))
    with pytest.raises(
        InvalidModel, match=r'no rule repairs; (.|\n)*  error: (.|\n)*ConstantWithoutData at .* \("lost"\)'
    ):
        run(net.program(net.add(net.input("x", I32, (4,)), lost)), AGAIN)


def test_a_change_of_precision_needs_a_check() -> None:
    with pytest.raises(NotEquivalent, match="brings no check of its own"):
        run(sums(), rule(ops.Add, add_again(0), ChangesPrecision("for a test")))


def test_a_transform_that_does_not_tell_is_at_fault() -> None:
    def quietly(program: Program) -> list[str]:
        shift_constants(1)(program)
        return []

    with pytest.raises(RuleBug, match="reports no rewrite"):
        run(sums(), transform(quietly))


def test_what_the_oracle_cannot_be_given_is_not_kept_and_says_the_way_out() -> None:
    net = Net()
    x = net.input("x", I32, (-1, 4))
    program = net.program(net.op(ops.Add(), (x, net.const([[1]], I32)), I32, (-1, 4), "y"))
    again = rule(ops.Add, lambda builder, op: builder.op(ops.Add(), op.inputs, I32, (-1, 4)))
    with pytest.raises(Unsupported) as refused:
        run(program, again)
    assert str(refused.value) == (
        'the result cannot be checked, so it is not kept: input "x" has the dynamic shape [-1, 4]; give it a static '
        'one. To go without a check, type --check none (in Python: check="none")'
    )
    assert len(run(program, again, check="none").result.events) == 1


def test_a_program_that_no_rule_touches_needs_no_oracle() -> None:
    net = Net()
    scaled = TensorExtras(scale_type=DType.FP8UE8M0)
    x = net.graph.add_tensor(Tensor("x", DType.FP8E4M3, (1, 32), extras=scaled))
    net.graph.set_inputs([x])
    program = net.program(x)
    done = run(program, AGAIN)
    assert done.check is not None
    assert str(done.check) == "exact; unchanged"


def test_the_check_holds_the_measurement_to_the_proved_bound() -> None:
    """A bound that is too small, as a faulty derivation would give, is a reason not to keep the result."""
    done = run(sums(), rule(ops.Add, add_again(-1), WithinLsb(1.0, "one less"), name="lower"))
    assert done.check is not None
    assert done.check.kept
    assert [bound.lsb for bound in done.bounds] == [3]
    assert "max 3 LSB; proved within 3 LSB" in str(done.check)
    wrong = check_rewrite(done.stages, bounds=[OutputBound(done.bounds[0].name, 2)], vectors=4)
    assert not wrong.kept
    [reason] = wrong.reasons
    assert "differs by up to 3 LSB (seed 0), more than the 2 LSB proved from the contracts" in reason
