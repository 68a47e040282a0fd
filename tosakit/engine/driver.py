"""Apply a pipeline of rules and transforms to a program: deterministic, bounded, and counted by the engine."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tosakit._gc import collector_paused
from tosakit.engine.bounds import RealBounds, real_bounds
from tosakit.engine.contract import PER_MATCH, Exact, WithinLsb
from tosakit.engine.pattern import match_at
from tosakit.engine.rule import (
    BoundaryChange,
    Context,
    Event,
    LocalCheck,
    Refusal,
    Refused,
    RenamedOutput,
    Replacement,
    Rule,
    StateLink,
    Step,
    Transform,
    describe,
)
from tosakit.errors import InvalidModel, RuleBug, TosakitError
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Graph, OpRecord, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.intervals import Interval, Intervals
from tosakit.numerics.program_intervals import program_intervals

REWRITES_PER_OPERATOR = 8
"""Rewrites a rule set may make, per operator it starts with or makes, before it is stopped as endless."""

GENERATIONS = 2
"""Operators made in the place of made ones count, for :data:`REWRITES_PER_OPERATOR`, up to this many times over."""


@dataclass
class RewriteResult:
    """A rewritten program, and what happened on the way."""

    program: Program
    events: list[Event] = field(default_factory=list)
    refusals: list[Refused] = field(default_factory=list)
    stopped: bool = False
    """True where ``stop_after`` ended the run early."""
    boundary: list[BoundaryChange] = field(default_factory=list)
    """Inputs and outputs of the program that changed their dtype."""
    state: list[StateLink] = field(default_factory=list)
    """Variables of the program that became inputs and outputs."""
    renamed: list[RenamedOutput] = field(default_factory=list)
    """Outputs of the program that have another name."""
    real: list[RealBounds] = field(default_factory=list)
    """Distances of the program's outputs from real arithmetic, right behind each change of precision."""
    local_checks: list[tuple[str, Program, LocalCheck]] = field(default_factory=list)
    """Local contracts of transforms: name, the program before it ran, and the check (only ``for_check``)."""

    @property
    def rules_fired(self) -> dict[str, int]:
        """Number of rewrites by rule, in order of first use."""
        counts: dict[str, int] = {}
        for event in self.events:
            counts[event.rule] = counts.get(event.rule, 0) + 1
        return counts


Trace = Callable[[Event], None]


@collector_paused()
def run_steps(
    program: Program,
    steps: Sequence[Step],
    *,
    target: str = "",
    options: Mapping[str, Any] | None = None,
    stop_after: int | None = None,
    trace: Trace | None = None,
    after_step: Callable[[Program, Sequence[Step]], None] | None = None,
    for_check: bool = False,
) -> RewriteResult:
    """Run ``steps`` on ``program``, changing it in place. Neighbouring rules run together as one rule set.

    ``options`` maps a step's name to an instance of its option class. ``stop_after`` ends the run after that many
    rewrites; a transform runs whole or not at all. ``after_step`` is called after every rule set and transform.
    ``for_check`` keeps what a check of the contracts needs: value ranges at each rewrite, and a copy of the
    program before each transform with a local contract. Raises RuleBug where a rule breaks a promise or a rule
    set does not come to an end.
    """
    result = RewriteResult(program)
    chosen = dict(options or {})
    for is_rule, group in groupby(steps, key=lambda step: isinstance(step, Rule)):
        for batch in [list(group)] if is_rule else [[step] for step in group]:
            left = None if stop_after is None else max(stop_after - len(result.events), 0)
            if left == 0:
                result.stopped = True
                return _finish(result)
            if is_rule:
                rules = [step for step in batch if isinstance(step, Rule)]
                _run_rules(program, rules, target, chosen, result, left, trace, for_check)
            else:
                for step in batch:
                    if isinstance(step, Transform):
                        _run_transform(program, step, target, chosen, result, trace, for_check)
            if after_step is not None:
                after_step(program, batch)
    return _finish(result)


def _finish(result: RewriteResult) -> RewriteResult:
    """Refusals that several rule sets repeated are told once."""
    result.refusals = list(dict.fromkeys(result.refusals))
    return result


def _run_transform(
    program: Program,
    step: Transform,
    target: str,
    options: dict[str, Any],
    result: RewriteResult,
    trace: Trace | None,
    for_check: bool,
) -> None:
    context = Context(target, options.get(step.name) or step.options(), program_intervals(program))
    before = program.clone() if for_check else program
    try:
        outcome = step.run(program, context)
    except TosakitError:
        raise
    except Exception as error:
        raise RuleBug(f"transform {step.name} failed: {type(error).__name__}: {error}") from error
    result.boundary.extend(outcome.boundary)
    result.state.extend(outcome.state)
    result.renamed.extend(outcome.renamed)
    if outcome.local_check is not None and for_check:
        result.local_checks.append((step.name, before, outcome.local_check))
    result.events.extend(outcome.events)
    if outcome.meaning is not None and outcome.events:
        result.real.append(real_bounds(program, outcome.meaning, outcome.events[-1]))
    result.refusals.extend(outcome.refusals)
    for event in outcome.events:
        if trace is not None:
            trace(event)


def _run_rules(
    program: Program,
    rules: Sequence[Rule[Any]],
    target: str,
    options: dict[str, Any],
    result: RewriteResult,
    left: int | None,
    trace: Trace | None,
    for_check: bool,
) -> None:
    intervals = program_intervals(program)
    contexts = {rule.name: Context(target, options.get(rule.name) or rule.options(), intervals) for rule in rules}
    by_kind = _index(rules)
    for graph in program.blocks:
        run = _RuleSetRun(graph, by_kind, contexts, intervals, result, trace, for_check)
        left = run.exhaust(left)
        if left == 0:
            result.stopped = True
            return


def _index(rules: Iterable[Rule[Any]]) -> dict[type[Attributes], list[Rule[Any]]]:
    by_kind: dict[type[Attributes], list[Rule[Any]]] = {}
    for rule in rules:
        for kind in rule.pattern.kinds:
            if kind not in ops.OPERATORS:
                raise RuleBug(
                    f"rule {rule.name} has {kind.__name__} as the root of its pattern; only the operator classes of "
                    "tosakit.ir.ops can be rewritten"
                )
            by_kind.setdefault(kind, []).append(rule)
    return by_kind


def _cut(records: Sequence[OpRecord]) -> dict[Tensor, None]:
    """What the operators read from outside, constants apart."""
    made = dict.fromkeys(t for record in records for t in record.outputs)
    return dict.fromkeys(t for record in records for t in record.inputs if t not in made and t.data is None)


def _open_shape(matched: Sequence[AnyOp]) -> str | None:
    """What to refuse where a rule failed on shapes that are known at run time only, next to what it matched."""
    readers = dict.fromkeys(user for op in matched for t in op.outputs for user in t.users)
    for op in (*matched, *readers):
        for tensor in (*op.inputs, *op.outputs):
            if min(tensor.shape, default=1) < 1:
                return _is_not_static(tensor)
    return None


def _worked_out_in_part(replacement: Replacement) -> str | None:
    """What to refuse where a file says of one value that its shape is open, and of another that it is not."""
    for old, new in replacement.values.items():
        for tensor in (old, new):
            if old.shape != new.shape and min(tensor.shape, default=1) < 1:
                return _is_not_static(tensor)
    return None


def _is_not_static(tensor: Tensor) -> str:
    return f'"{tensor.name}" has the shape {list(tensor.shape)}, which is not static'


class _RuleSetRun:
    """One rule set on one block: a worklist fed by what each rewrite touched."""

    def __init__(
        self,
        graph: Graph,
        by_kind: dict[type[Attributes], list[Rule[Any]]],
        contexts: dict[str, Context],
        intervals: Intervals,
        result: RewriteResult,
        trace: Trace | None,
        for_check: bool,
    ) -> None:
        self.for_check = for_check
        self.graph = graph
        self.by_kind = by_kind
        self.contexts = contexts
        self.intervals = intervals
        self.result = result
        self.trace = trace
        self.refused: dict[tuple[str, AnyOp], Refused] = {}
        self.recent: deque[str] = deque(maxlen=8)
        self.budget = 0
        self.generation: dict[AnyOp, int] = {}
        """How many rewrites lie behind an operator that one made, or left in place."""

    def exhaust(self, left: int | None) -> int | None:
        """Rewrite until no rule fires or ``left`` rewrites are made; returns how many are left.

        A rewrite sends what is next to it back to work; rules may look further, so the block is swept again until
        a whole sweep finds nothing to do.
        """
        self.budget = REWRITES_PER_OPERATOR * (len(self.graph.ops) + 1)
        while left != 0:
            fired = len(self.result.events)
            left = self._sweep(left)
            if len(self.result.events) == fired:
                break
        self.result.refusals.extend(refusal for (_, op), refusal in self.refused.items() if op in self.graph)
        return left

    def _sweep(self, left: int | None) -> int | None:
        """Try every operator once, and again whatever a rewrite touches."""
        by_kind = self.by_kind
        work = deque([op for op in self._ops() if type(op.attrs) in by_kind])
        queued = dict.fromkeys(work)
        while work and left != 0:
            op = work.popleft()
            queued.pop(op, None)
            touched = self._try(op) if op in self.graph else None
            if touched is None:
                continue
            left = None if left is None else left - 1
            self.budget -= 1
            if self.budget < 0:
                raise RuleBug(
                    f'block "{self.graph.name}": rules chase each other without end; the last to fire: {self._last()}'
                )
            for other in reversed(touched):
                if other not in queued:
                    work.appendleft(other)
                    queued[other] = None
        self._ops()
        return left

    def _last(self) -> str:
        return ", ".join(dict.fromkeys(self.recent))

    def _ops(self) -> tuple[AnyOp, ...]:
        """The block's operators in order; where a rewrite has closed a cycle, the rules that fired last are named."""
        try:
            return self.graph.ops
        except InvalidModel as error:
            if not self.recent:
                raise
            raise RuleBug(f"{error}; the last rules to fire: {self._last()}") from error

    def _try(self, op: AnyOp) -> list[AnyOp] | None:
        """Try every rule at ``op``; the operators to look at next where one fired, else None."""
        for rule in self.by_kind[type(op.attrs)]:
            if self.refused:
                self.refused.pop((rule.name, op), None)
            match = match_at(rule.pattern, op)
            if match is None:
                continue
            try:
                plan = rule.precondition(match, self.contexts[rule.name])
                if plan is None:
                    continue
                if isinstance(plan, Refusal):
                    self._refuse(rule, op, plan.reason)
                    continue
                replacement = rule.replacement(match, plan)
            except TosakitError:
                raise
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                if (reason := _open_shape(match.ops)) is None:
                    raise RuleBug(f"rule {rule.name} failed at {describe(op)}: {problem}") from error
                self._refuse(rule, op, f"{reason}, and the rule cannot go on without ({problem})")
                continue
            if isinstance(replacement, Replacement) and (reason := _worked_out_in_part(replacement)) is not None:
                self._refuse(rule, op, reason)
                continue
            self.recent.append(rule.name)
            return self._apply(rule, op, match.ops, replacement)
        return None

    def _refuse(self, rule: Rule[Any], op: AnyOp, reason: str) -> None:
        self.refused[rule.name, op] = Refused(rule.name, self.graph.name, describe(op), reason)

    def _apply(self, rule: Rule[Any], root: AnyOp, matched: tuple[AnyOp, ...], replacement: Replacement) -> list[AnyOp]:
        if not isinstance(replacement, Replacement) or not replacement.values:
            raise RuleBug(f"rule {rule.name} at {describe(root)} replaced no value; it must return a Replacement")
        for old, new in replacement.values.items():
            if (old.dtype, old.shape) != (new.dtype, new.shape):
                raise RuleBug(f"rule {rule.name} replaces {old!r} by {new!r}, of another type; rules must keep types")
        contract = replacement.contract or rule.contract
        if isinstance(contract, WithinLsb) and contract.lsb == PER_MATCH:
            raise RuleBug(f"rule {rule.name} at {describe(root)} states no bound; its contract is one per match")
        covers = tuple(replacement.covers or matched)
        event = Event(
            rule.name,
            self.graph.name,
            tuple([describe(op) for op in covers]),
            contract,
            before=tuple([op.record for op in covers]),
            after=tuple([op.record for op in replacement.ops]),
            values=dict(replacement.values),
            ranges=self._ranges(covers) if self.for_check else {},
            reference=replacement.reference,
        )
        try:
            self.graph.splice(root, replacement.ops, replacement.values)
        except TosakitError as error:
            raise RuleBug(f"rule {rule.name} at {describe(root)}: {error}") from error
        self.intervals.forget(replacement.values.values())
        if not isinstance(contract, Exact):
            self.intervals.forget_assumed()  # other values now go into regions, loops and variables
        self.result.events.append(event)
        if self.trace is not None:
            self.trace(event)
        generation = self.generation[root] = self.generation.get(root, 0) + 1
        for op in replacement.ops:
            self.generation[op] = generation
        if generation <= GENERATIONS:
            self.budget += REWRITES_PER_OPERATOR * len(replacement.ops)
        return self._touched(replacement)

    def _ranges(self, covers: tuple[AnyOp, ...]) -> dict[Tensor, Interval]:
        """Proved ranges of the integer tensors that the covered operators read from outside."""
        cut = _cut([op.record for op in covers])
        return {tensor: self.intervals.of(tensor) for tensor in cut if tensor.dtype in INTEGER_RANGES}

    def _touched(self, replacement: Replacement) -> list[AnyOp]:
        """What some rule may look at again: new operators, readers of new values, and what feeds new operators."""
        near: dict[AnyOp | None, None] = dict.fromkeys(replacement.ops)
        for new in replacement.values.values():
            for user in new.users:
                near[user] = None
        for op in replacement.ops:
            for operand in op.inputs:
                near[operand.producer] = None
        by_kind = self.by_kind
        return [op for op in near if op is not None and type(op.attrs) in by_kind]
