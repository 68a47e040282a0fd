"""The engine: what it promises to rules, and what it demands of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tosakit.engine.contract import Exact, WithinLsb
from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.engine.pattern import AnyValue, Capture, Match
from tosakit.engine.rule import Context, Event, Outcome, Refusal, Refused, Replacement, Rule, Transform
from tosakit.errors import InvalidModel, RuleBug
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.operator import Attributes, Entry, Foreign
from tosakit.ir.program import Program
from tosakit.ir.text import format_graph, parse_program

X = AnyValue()
ABS = Capture(ops.Abs, operands=(X,))
CLZ = Capture(ops.Clz, operands=(X,))
INNER = Capture(ops.Abs, operands=(X,), single_reader=True)
OUTER = Capture(ops.Abs, operands=(INNER,))

Answer = Callable[[Match, Context], Any]


def always(match: Match, context: Context) -> bool:
    return True


def rule(
    name: str,
    pattern: Capture[Attributes],
    replacement: Callable[[Match, Any], Any],
    precondition: Answer = always,
    **more: Any,
) -> Rule[Any]:
    return Rule(name, pattern, precondition, replacement, more.pop("contract", Exact()), name, **more)


def to(attrs: Attributes, capture: Capture[Any]) -> Callable[[Match, Any], Replacement]:
    """Replace the captured operator by another one on the same operand."""

    def replacement(match: Match, plan: Any) -> Replacement:
        old = match[capture].output
        builder = Builder(old.name)
        return Replacement(builder.ops, {old: builder.op(attrs, [match.value(X)], old.dtype, old.shape)})

    return replacement


def drop_inner(match: Match, plan: Any) -> Replacement:
    """ABS of ABS is ABS."""
    old = match[OUTER].output
    builder = Builder(old.name)
    return Replacement(builder.ops, {old: builder.op(ops.Abs(), [match.value(X)], old.dtype, old.shape)})


ABS_TO_CLZ = rule("abs_to_clz", ABS, to(ops.Clz(), ABS))
CLZ_TO_ABS = rule("clz_to_abs", CLZ, to(ops.Abs(), CLZ))
FUSE_ABS = rule("fuse_abs", OUTER, drop_inner)


def chain(*names: str) -> Program:
    """Operators of one operand behind each other."""
    lines = [f"%t{i + 1}: INT32[2] = {name}(%t{i})" for i, name in enumerate(names)]
    return parse_program(f"block (%t0: INT32[2]) -> (%t{len(names)}) {{" + "\n".join(lines) + "}")


def kinds(program: Program) -> list[str]:
    return [op.attrs.NAME for op in program.main.ops]


def test_rules_fire_until_nothing_matches() -> None:
    program = chain(*["ABS"] * 50)
    result = run_steps(program, [FUSE_ABS])
    assert kinds(program) == ["ABS"]
    assert result.rules_fired == {"fuse_abs": 49}
    assert [t.name for t in program.main.outputs] == ["t50"]
    assert not result.stopped


def test_a_long_chain_takes_linear_work() -> None:
    """Preconditions are counted: a rewrite must not send the whole block back to work."""
    asked = 0

    def count(match: Match, context: Context) -> bool:
        nonlocal asked
        asked += 1
        return True

    length = 2000
    program = chain(*["ABS"] * length)
    result = run_steps(program, [rule("fuse_abs", OUTER, drop_inner, count)])
    assert len(result.events) == length - 1
    assert asked < 3 * length


def test_events_say_what_happened() -> None:
    result = run_steps(chain("ABS", "CLZ"), [ABS_TO_CLZ])
    [event] = result.events
    assert (event.rule, event.block, event.operators) == ("abs_to_clz", "main", ('ABS -> "t1"',))
    assert event.contract == Exact()
    assert [record.attrs.NAME for record in event.before] == ["ABS"]
    assert [record.attrs.NAME for record in event.after] == ["CLZ"]
    [(old, new)] = event.values.items()
    assert (old, new) == (event.before[0].outputs[0], event.after[0].outputs[0])
    assert new.name == "t1"


def test_the_bound_of_the_match_at_hand_wins() -> None:
    def replacement(match: Match, plan: Any) -> Replacement:
        made = to(ops.Clz(), ABS)(match, plan)
        return Replacement(made.ops, made.values, contract=WithinLsb(0.25, because="test"))

    [event] = run_steps(chain("ABS"), [rule("r", ABS, replacement, contract=WithinLsb(1, because="test"))]).events
    assert event.contract == WithinLsb(0.25, because="test")


def test_the_first_rule_in_order_goes_first() -> None:
    other = rule("abs_to_identity", ABS, to(ops.Identity(), ABS))
    for rules in ([ABS_TO_CLZ, other], [other, ABS_TO_CLZ]):
        result = run_steps(chain("ABS"), rules)
        assert result.rules_fired == {rules[0].name: 1}


def test_neighbouring_rules_run_together_and_transforms_alone() -> None:
    """What one rule makes is work for the other, in either order; a transform between them cuts the set."""
    fuse_then = [FUSE_ABS, rule("identity_to_abs", Capture(ops.Identity, operands=(X,)), identity_to_abs)]
    for rules in (fuse_then, fuse_then[::-1]):
        program = chain("ABS", "IDENTITY", "ABS", "IDENTITY")
        run_steps(program, rules)
        assert kinds(program) == ["ABS"]
    nothing = Transform("nothing", lambda program, context: Outcome(), Exact(), "nothing")
    program = chain("ABS", "IDENTITY", "ABS")
    run_steps(program, [fuse_then[0], nothing, fuse_then[1]])
    assert kinds(program) == ["ABS", "ABS", "ABS"]


def identity_to_abs(match: Match, plan: Any) -> Replacement:
    old = match.root.output
    builder = Builder(old.name)
    return Replacement(builder.ops, {old: builder.op(ops.Abs(), [match.value(X)], old.dtype, old.shape)})


def test_a_rewrite_far_from_the_root_is_seen() -> None:
    """The pattern reaches three operators up, and what it waits for appears at its far end."""
    top = Capture(ops.Clz, operands=(X,))
    root = Capture(ops.Identity, operands=(Capture(ops.Identity, operands=(Capture(ops.Identity, operands=(top,)),)),))

    def replacement(match: Match, plan: Any) -> Replacement:
        old = match[root].output
        builder = Builder(old.name)
        return Replacement(builder.ops, {old: builder.op(ops.BitwiseNot(), [match.value(X)], old.dtype, old.shape)})

    program = chain("ABS", "IDENTITY", "IDENTITY", "IDENTITY")
    result = run_steps(program, [rule("deep", root, replacement), ABS_TO_CLZ])
    assert result.rules_fired == {"abs_to_clz": 1, "deep": 1}
    assert kinds(program) == ["BITWISE_NOT"]


def test_a_reader_that_goes_leaves_work_for_the_other() -> None:
    """The inner ABS has two readers; one is rewritten away, then the other's pattern fits."""
    program = parse_program("""
        block (%x: INT32[2]) -> (%a, %y) {
          %i: INT32[2] = ABS(%x)
          %a: INT32[2] = ABS(%i)
          %y: INT32[2] = CLZ(%i)
        }""")
    bypass = rule("bypass", Capture(ops.Clz, operands=(Capture(ops.Abs, operands=(X,)),)), bypass_abs)
    result = run_steps(program, [FUSE_ABS, bypass])
    assert result.rules_fired == {"bypass": 1, "fuse_abs": 1}
    assert kinds(program) == ["ABS", "IDENTITY"]


def bypass_abs(match: Match, plan: Any) -> Replacement:
    old = match.root.output
    builder = Builder(old.name)
    return Replacement(builder.ops, {old: builder.op(ops.Identity(), [match.value(X)], old.dtype, old.shape)})


# ------------------------------------------------------------------------------------------------ stopping
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 9])
def test_stop_after(count: int) -> None:
    program = chain(*["ABS"] * 6)
    result = run_steps(program, [FUSE_ABS], stop_after=count)
    assert len(result.events) == min(count, 5)
    assert len(kinds(program)) == 6 - min(count, 5)
    assert result.stopped == (count <= 5)


def test_stop_after_counts_over_steps_and_transforms() -> None:
    many = Transform("many", many_events, Exact(), "three events at once")
    for count, expected in ((1, ["many"] * 3), (3, ["many"] * 3), (4, [*["many"] * 3, "abs_to_clz"])):
        result = run_steps(chain("ABS", "ABS"), [many, ABS_TO_CLZ], stop_after=count)
        assert [event.rule for event in result.events] == expected
        assert result.stopped
    result = run_steps(chain("ABS", "ABS"), [many, ABS_TO_CLZ], stop_after=6)
    assert len(result.events) == 5
    assert not result.stopped


def many_events(program: Program, context: Context) -> Outcome:
    return Outcome([Event("many", "main", (), Exact())] * 3)


def test_stopping_later_repeats_the_start() -> None:
    """What bisection relies on."""
    texts = []
    for count in range(6):
        program = chain(*["ABS"] * 6)
        events = run_steps(program, [FUSE_ABS], stop_after=count).events
        texts.append((format_graph(program.main), [event.operators for event in events]))
    full = run_steps(chain(*["ABS"] * 6), [FUSE_ABS]).events
    assert [operators for _, operators in texts] == [[e.operators for e in full[:count]] for count in range(6)]


def test_trace_and_after_step() -> None:
    seen: list[Event] = []
    steps: list[list[str]] = []
    program = chain("ABS", "ABS")
    nothing = Transform("nothing", many_events, Exact(), "nothing")
    result = run_steps(
        program,
        [FUSE_ABS, ABS_TO_CLZ, nothing],
        trace=seen.append,
        after_step=lambda current, batch: steps.append([step.name for step in batch]),
    )
    assert seen == result.events
    assert steps == [["fuse_abs", "abs_to_clz"], ["nothing"]]


# ------------------------------------------------------------------------------------------------ refusals
def test_refusals_are_told_once_and_only_where_they_hold() -> None:
    """Once for each operator, in program order, though it is looked at in every sweep and rule set."""
    shy = rule("shy", CLZ, to(ops.Abs(), CLZ), lambda match, context: Refusal("shy"))
    program = chain("CLZ", "ABS", "CLZ")
    result = run_steps(program, [shy, ABS_TO_CLZ])
    assert kinds(program) == ["CLZ", "CLZ", "CLZ"]
    assert [refused.operator for refused in result.refusals] == ['CLZ -> "t1"', 'CLZ -> "t2"', 'CLZ -> "t3"']
    again = run_steps(chain("CLZ"), [shy, Transform("nothing", many_events, Exact(), ""), shy])
    assert again.refusals == [Refused("shy", "main", 'CLZ -> "t1"', "shy")]


def test_a_refusal_that_no_longer_holds_is_forgotten() -> None:
    """CLZ of ABS is refused, but the ABS becomes an IDENTITY, so there is nothing to refuse any more."""
    root = Capture(ops.Clz, operands=(Capture(ops.Abs, operands=(X,)),))
    shy = rule("shy", root, bypass_abs, lambda match, context: Refusal("shy"))
    fired: list[str] = []

    def late(match: Match, context: Context) -> bool | None:
        return True if fired else None

    def first(match: Match, context: Context) -> bool:
        fired.append("first")
        return True

    steps = [
        shy,
        rule("late", ABS, to(ops.Identity(), ABS), late),
        rule("first", Capture(ops.BitwiseNot, operands=(X,)), identity_to_abs, first),
    ]
    assert run_steps(chain("ABS", "CLZ"), steps).refusals
    result = run_steps(chain("ABS", "CLZ", "BITWISE_NOT"), steps)
    assert [event.rule for event in result.events] == ["first", "late", "late"]
    assert not result.refusals


def test_a_refusal_of_an_operator_that_went_is_forgotten() -> None:
    shy = rule("shy", ABS, to(ops.Clz(), ABS), lambda match, context: Refusal("shy"))
    bypass = rule("bypass", Capture(ops.Clz, operands=(Capture(ops.Abs, operands=(X,)),)), bypass_abs)
    assert run_steps(chain("ABS"), [shy]).refusals
    result = run_steps(chain("ABS", "CLZ"), [shy, bypass])
    assert [event.rule for event in result.events] == ["bypass"]
    assert not result.refusals


def test_intervals_follow_every_rewrite() -> None:
    """The range behind a CLAMP is asked for, then the CLAMP becomes a wider one."""
    seen: list[tuple[int, int]] = []
    clamp = Capture(ops.Clamp, operands=(X,))

    def look(match: Match, context: Context) -> None:
        interval = context.intervals.of(match.root.output)
        seen.append((interval.lowest, interval.highest))

    def widen(match: Match, plan: Any) -> Replacement:
        old = match[clamp].output
        builder = Builder(old.name)
        return Replacement(builder.ops, {old: builder.clamp(match.value(X), -50, 50)})

    def narrow(match: Match, context: Context) -> bool | None:
        return True if seen and match[clamp].attrs.max_val[0] == 5 else None

    program = parse_program("""
        block (%x: INT8[1]) -> (%y, %z) {
          %c: INT8[1] = CLAMP(%x) {min_val=-5, max_val=5, nan_mode=PROPAGATE}
          %y: INT8[1] = IDENTITY(%c)
          %b: INT8[1] = BITWISE_NOT(%x)
          %z: INT8[1] = CLZ(%b)
        }""")
    steps = [
        rule("look", Capture(ops.Identity), raises, look),
        rule("widen", clamp, widen, narrow),
        rule("sweep_again", Capture(ops.BitwiseNot, operands=(X,)), identity_to_abs),
    ]
    result = run_steps(program, steps)
    assert [event.rule for event in result.events] == ["sweep_again", "widen"]
    assert seen[0] == (-5, 5)
    assert seen[-1] == (-50, 50)


# ------------------------------------------------------------------------------------------------ options, target
@dataclass(frozen=True)
class Options:
    limit: int = 3


def test_rules_see_their_options_and_the_target() -> None:
    seen: list[tuple[str, int]] = []

    def look(match: Match, context: Context) -> None:
        seen.append((context.target, context.options.limit))

    step = rule("look", ABS, to(ops.Clz(), ABS), look, options=Options)
    run_steps(chain("ABS"), [step])
    run_steps(chain("ABS"), [step], target="ethos-u85-256", options={"look": Options(7)})
    assert seen == [("", 3), ("ethos-u85-256", 7)]


def test_every_block_is_rewritten_on_its_own() -> None:
    program = parse_program("""
        region "main" { block (%x: INT32[2]) -> (%y) { %y: INT32[2] = ABS(%x) } }
        region "other" { block "other" (%x: INT32[2]) -> (%y) { %y: INT32[2] = ABS(%x) } }""")
    result = run_steps(program, [ABS_TO_CLZ])
    assert [event.block for event in result.events] == ["main", "other"]
    assert [op.name for block in program.blocks for op in block.ops] == ["CLZ", "CLZ"]


# ------------------------------------------------------------------------------------------------ faults of rules
def test_rules_that_chase_each_other_are_named() -> None:
    with pytest.raises(
        RuleBug, match=r'block "main": rules chase each other without end; the last to fire: '
    ) as caught:
        run_steps(chain("ABS", "ABS"), [ABS_TO_CLZ, CLZ_TO_ABS])
    assert sorted(str(caught.value).partition("fire: ")[2].split(", ")) == ["abs_to_clz", "clz_to_abs"]


def test_a_rule_that_chases_itself_is_named() -> None:
    with pytest.raises(RuleBug, match=r"without end; the last to fire: again$"):
        run_steps(chain("ABS"), [rule("again", ABS, to(ops.Abs(), ABS))])


def hundred(match: Match, plan: Any) -> Replacement:
    """A hundred ABS in a row, for one."""
    builder = Builder("b")
    old = match[CLZ].output
    value = match.value(X)
    for _ in range(100):
        value = builder.op(ops.Abs(), [value], old.dtype, old.shape)
    return Replacement(builder.ops, {old: value})


def test_rewriting_all_that_a_rewrite_made_is_no_chase() -> None:
    """One operator becomes a hundred, and another rule takes each of these."""
    result = run_steps(chain("CLZ"), [rule("hundred", CLZ, hundred), rule("down", ABS, to(ops.Identity(), ABS))])
    assert result.rules_fired == {"hundred": 1, "down": 100}


def grows(match: Match, plan: Any) -> Replacement:
    """Two for one."""
    builder = Builder("b")
    old = match[ABS].output
    value = builder.op(ops.Abs(), [match.value(X)], old.dtype, old.shape)
    return Replacement(builder.ops, {old: builder.op(ops.Abs(), [value], old.dtype, old.shape)})


def test_a_rule_that_makes_more_of_its_own_kind_is_stopped() -> None:
    with pytest.raises(RuleBug, match=r"without end; the last to fire: grows$"):
        run_steps(chain("ABS"), [rule("grows", ABS, grows)])


def divides(match: Match, plan: Any) -> Replacement:
    raise ZeroDivisionError("division by zero")


def test_a_rule_that_fails_beside_an_open_shape_refuses_with_what_went_wrong() -> None:
    program = parse_program("block (%x: INT32[-1]) -> (%y) { %y: INT32[2] = ABS(%x) }")
    [refused] = run_steps(program, [rule("divides", ABS, divides)]).refusals
    assert '"x" has the shape [-1], which is not static' in refused.reason
    assert "ZeroDivisionError: division by zero" in refused.reason


def test_a_rule_that_fails_on_static_shapes_is_at_fault() -> None:
    with pytest.raises(RuleBug, match=r"rule divides failed at ABS .*: ZeroDivisionError: division by zero"):
        run_steps(chain("ABS"), [rule("divides", ABS, divides)])


def test_a_value_whose_shape_is_open_on_one_side_only_is_not_replaced() -> None:
    program = parse_program("block (%x: INT32[2]) -> (%y) { %y: INT32[-1] = ABS(%x) }")

    def resolved(match: Match, plan: Any) -> Replacement:
        builder = Builder("b")
        return Replacement(builder.ops, {match[ABS].output: builder.identity(match.value(X))})

    result = run_steps(program, [rule("resolved", ABS, resolved)])
    assert not result.events
    assert [refused.reason for refused in result.refusals] == ['"y" has the shape [-1], which is not static']


def wrong_dtype(match: Match, plan: Any) -> Replacement:
    builder = Builder("b")
    old = match[ABS].output
    return Replacement(builder.ops, {old: builder.op(ops.Cast(), [match.value(X)], DType.INT16, old.shape)})


def wrong_shape(match: Match, plan: Any) -> Replacement:
    builder = Builder("b")
    old = match[ABS].output
    return Replacement(builder.ops, {old: builder.op(ops.Abs(), [match.value(X)], old.dtype, (3,))})


def closes_a_cycle(match: Match, plan: Any) -> Replacement:
    """Reads what its own result goes into."""
    builder = Builder("b")
    old = match[ABS].output
    behind = old.users[0].outputs[0]
    return Replacement(builder.ops, {old: builder.op(ops.Identity(), [behind], old.dtype, old.shape)})


def strange_operand(match: Match, plan: Any) -> Replacement:
    builder = Builder("b")
    old = match[ABS].output
    stranger = chain("ABS").main.tensor("t0")
    return Replacement(builder.ops, {old: builder.op(ops.Abs(), [stranger], old.dtype, old.shape)})


def forgets_an_operator(match: Match, plan: Any) -> Replacement:
    builder = Builder("b")
    old = match[ABS].output
    return Replacement([], {old: builder.op(ops.Clz(), [match.value(X)], old.dtype, old.shape)})


def raises(match: Match, plan: Any) -> Replacement:
    raise ZeroDivisionError("oops")


def raises_early(match: Match, context: Context) -> None:
    raise KeyError("oops")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            rule("broken", ABS, wrong_dtype),
            r"replaces %t1: INT32\[2\] by %b_cast: INT16\[2\], of another type",
        ),
        (
            rule("broken", ABS, wrong_shape),
            r"replaces %t1: INT32\[2\] by %b_abs: INT32\[3\], of another type",
        ),
        (rule("broken", ABS, closes_a_cycle), r'block "main" has a cycle: .*; the last rules to fire: broken'),
        (rule("broken", ABS, strange_operand), r'rule broken at ABS -> "t1": operand .* does not belong to block'),
        (rule("broken", ABS, forgets_an_operator), r'rule broken at ABS -> "t1": .* does not belong to block'),
        (rule("broken", ABS, raises), r'rule broken failed at ABS -> "t1": ZeroDivisionError: oops'),
        (rule("broken", ABS, to(ops.Clz(), ABS), raises_early), r'rule broken failed at ABS -> "t1": KeyError: .oops'),
        (rule("broken", ABS, lambda match, plan: None), r'rule broken at ABS -> "t1" replaced no value'),
        (rule("broken", ABS, lambda match, plan: Replacement([], {})), r'rule broken at ABS -> "t1" replaced no value'),
        (rule("broken", Capture(Foreign), raises), "rule broken has Foreign as the root of its pattern"),
        (rule("broken", Capture(Attributes), raises), "rule broken has Attributes as the root of its pattern"),
        (rule("broken", Capture(Entry), raises), "rule broken has Entry as the root of its pattern"),
    ],
)
def test_broken_rules_are_blamed(broken: Rule[Any], message: str) -> None:
    with pytest.raises(RuleBug, match=message):
        run_steps(chain("ABS", "CLZ"), [broken])


def test_broken_transforms_are_blamed() -> None:
    def fail(program: Program, context: Context) -> Outcome:
        raise ZeroDivisionError("oops")

    with pytest.raises(RuleBug, match="transform broken failed: ZeroDivisionError: oops"):
        run_steps(chain("ABS"), [Transform("broken", fail, Exact(), "")])


def test_errors_about_the_model_pass_through() -> None:
    def fail(match: Match, context: Context) -> None:
        raise InvalidModel("the weights are too short")

    for step in (rule("r", ABS, raises, fail), Transform("t", lambda p, c: fail(None, c), Exact(), "")):  # type: ignore[arg-type,func-returns-value]
        with pytest.raises(InvalidModel, match="the weights are too short"):
            run_steps(chain("ABS"), [step])


def test_a_cycle_of_the_file_is_not_blamed_on_rules() -> None:
    program = chain("ABS", "CLZ")
    program.main.set_operand(program.main.ops[0], 0, program.main.tensor("t2"))
    with pytest.raises(InvalidModel, match="has a cycle"):
        run_steps(program, [ABS_TO_CLZ])


# ------------------------------------------------------------------------------------------ what rules must not touch
FOREIGN = """
block (%x: INT32[2]) -> (%y) {
  declare %cell: INT32[2] <variable, variable_name="state">
  %a: INT32[2] = ABS:NONE(%x)
  %b: INT32[2] = IDENTITY:VARIABLE_READ(%cell)
  %c: INT32[2] = OP999:ATTRIBUTE99(%b)
  %y: INT32[2] = CLZ(%a)
}"""


def test_foreign_operators_are_never_matched() -> None:
    program = parse_program(FOREIGN)
    before = dumps(program)
    identity = Capture(ops.Identity, operands=(None,))
    over = Capture(ops.Clz, operands=(Capture(Foreign, operands=(X,)),))
    result = run_steps(program, [ABS_TO_CLZ, rule("identity", identity, raises), rule("over", over, raises)])
    assert result == RewriteResult(program)
    assert dumps(program) == before


def test_operators_around_foreign_ones_are_rewritten() -> None:
    program = parse_program(FOREIGN)
    result = run_steps(program, [CLZ_TO_ABS])
    assert len(result.events) == 1
    assert [op.attrs.NAME for op in program.main.ops] == ["FOREIGN", "FOREIGN", "FOREIGN", "ABS"]


# ------------------------------------------------------------------------------------------------ determinism
def steps() -> Sequence[Rule[Any] | Transform]:
    return [FUSE_ABS, ABS_TO_CLZ]


def test_two_runs_give_the_same() -> None:
    names = ["ABS", "IDENTITY", "ABS", "ABS", "CLZ", "ABS"] * 20
    outcomes = []
    for _ in range(3):
        program = chain(*names)
        result = run_steps(program, steps())
        outcomes.append((dumps(program), [(event.rule, event.operators) for event in result.events]))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert not run_steps(program, steps()).events
