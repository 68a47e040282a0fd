"""Compute both branches of a COND_IF and choose by SELECT.

    c ─▶ COND_IF ─▶ y            x ─▶ the operators of the then block ─▶ a ─┐
    x ─┘  then, else     ─▶      x ─▶ the operators of the else block ─▶ b ─┴─▶ SELECT (c) ─▶ y

A constant condition needs one branch only, and no SELECT. Otherwise the branch that would not have run is computed too,
so both must be proved to be predictable for whatever reaches them, must keep no state, and may hold no loop, which may
never end. A COND_IF in a branch is taken apart in turn. Regions that nothing names any longer go. Every value is
identical.

Ethos-U55 and U65 have no control flow.
"""

from collections.abc import Container, Iterator, Sequence

from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.rule import Context, Event, Outcome, Refused, Transform, describe
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program, Region
from tosakit.numerics.program_intervals import program_intervals
from tosakit.spec.control_flow import region_calls, region_names
from tosakit.spec.ranges import unproved

NAME = "cond_if_as_select"

SELECTED = (DType.BOOL, DType.INT8, DType.INT16, DType.INT32)
"""What SELECT takes of integers."""


def run(program: Program, context: Context) -> Outcome:
    """Take apart every COND_IF of the main block, and those that were inside."""
    if not context.options.acts(context.target):
        return Outcome()
    events: list[Event] = []
    refusals: dict[str, Refused] = {}
    block = program.main.name or ""
    while found := _next(program.main, refusals):
        operator = describe(found)
        trial = program.clone()  # what the branches do where their condition is not met shows only outside of it
        reason = _why_not(program, found) or _take_apart(trial, operator)
        if reason:
            refusals[operator] = Refused(NAME, block, operator, reason)
        else:
            events.append(Event(NAME, block, (operator,), Exact()))
            program.regions = _reached(trial)
    return Outcome(events, list(refusals.values()))


def _next(block: Graph, refused: Container[str]) -> AnyOp | None:
    candidates = (op for op in block.ops if isinstance(op.attrs, ops.CondIf) and op.outputs)
    return next((op for op in candidates if describe(op) not in refused), None)


def _branches(program: Program, op: AnyOp) -> list[Graph]:
    """The blocks that may run: one where the condition is constant."""
    names = list(region_names(op))
    condition = op.inputs[0]
    if condition.is_constant:
        names = names[:1] if condition.values().reshape(-1)[0] else names[1:]
    return [program.region(name).blocks[0] for name in names]


def _why_not(program: Program, op: AnyOp) -> str:
    """Why the branches cannot stand outside their regions; "" where they can."""
    branches = _branches(program, op)
    for branch in branches:
        for inner in branch.ops:
            if isinstance(inner.attrs, Foreign) or (inner.is_stateful and not isinstance(inner.attrs, ops.CondIf)):
                return f'"{branch.name}" has {describe(inner)}, whose effect is more than its results'
    for tensor in op.outputs if len(branches) > 1 else ():
        if tensor.dtype not in SELECTED:
            return f'"{tensor.name}" is {tensor.dtype.name}; SELECT is used for BOOL, INT8, INT16 and INT32 only'
    return ""


def _take_apart(program: Program, operator: str) -> str:
    """Do it; the reason why the result is not to be used, or ""."""
    op = next(each for each in program.main.ops if describe(each) == operator)
    branches = _branches(program, op)
    builder = Builder(op.output.name, location=op.location, origin=NAME)
    results = [list(_copied(builder, branch, op.inputs[1:])) for branch in branches]
    chosen = results[0]
    if len(results) > 1:
        chosen = [_selected(builder, op.inputs[0], a, b) for a, b in zip(*results, strict=True)]
    program.main.splice(op, builder.ops, dict(zip(op.outputs, chosen, strict=True)))
    program.main.erase(op)
    return _unsafe(program, builder.ops) if len(results) > 1 else ""


def _unsafe(program: Program, copied: Sequence[AnyOp]) -> str:
    """What is not proved to be predictable in operators that always run now, and in the regions that these name."""
    intervals = program_intervals(program)
    todo = [op for op in copied if op in program.main]
    for op in todo:  # grows while it runs; regions that name each other are no legal TOSA
        if found := unproved(op, intervals):
            return f"{describe(op)} would run where its condition is not met, too: {found[0].message}"
        todo.extend(inner for name in region_names(op) for inner in program.region(name).blocks[0].ops)
    return ""


def _copied(builder: Builder, branch: Graph, operands: Sequence[Tensor]) -> Iterator[Tensor]:
    """Add the operators of a block, on ``operands`` for its inputs; its outputs."""
    twins = dict(zip(branch.inputs, operands, strict=True))
    for inner in branch.ops:
        results = [Tensor(t.name, t.dtype, t.shape, t.data, extras=t.extras, table=t.table) for t in inner.outputs]
        twins.update(zip(inner.outputs, results, strict=True))
        inputs = [twins[t] for t in inner.inputs]
        builder.ops.append(Op(inner.attrs, inputs, results, location=inner.location, origin=NAME))
    return (twins[t] for t in branch.outputs)


def _selected(builder: Builder, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    fitting = builder.reshape(condition, [1] * len(a.shape))
    return builder.op(ops.Select(), (fitting, a, b), a.dtype, a.shape)


def _reached(program: Program) -> list[Region]:
    """The regions without those that no control flow names any longer."""
    calls = region_calls({region.name: region for region in program.regions if region.name is not None})
    first = program.regions[0]
    named = {first.name: None}
    todo = [first.name]
    for name in todo:  # grows while it runs
        new = [target for target in calls.get(name or "", ()) if target not in named]
        named.update(dict.fromkeys(new))
        todo.extend(dict.fromkeys(new))
    return [region for region in program.regions if region.name in named]


TRANSFORM = Transform(
    NAME,
    run,
    Exact(),
    "Compute both branches of a COND_IF and choose by SELECT.",
    ForSmallEthosU,
)
