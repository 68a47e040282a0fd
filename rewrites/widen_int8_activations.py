"""Turn an int8 model into an int16-activation, int8-weight model.

    q: int8 ──▶ CONV i8 x i8 ──▶ i32 ──▶ RESCALE(m, s), zero point z ──▶ int8
    v: int16 ─▶ CONV i16 x i8 ─▶ i48 ──▶ RESCALE(m', s'), zero point 0 ─▶ CLAMP [(-128-z)*128, (127-z)*128] ──▶ int16

An int8 value q with zero point z becomes v = (q - z) * 128. All real scales change by the same factor 1/128, so no
scale has to be known: accumulators carry 2^7 (a MATMUL's 2^14), int32 values carry 2^e with an e per value, and only
RESCALEs change. int8 saturation, which often is the model's ReLU, is made explicit. What has no int16 form stays an
int8 island between RESCALEs and is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rewrites._widen.contract import local_contract
from rewrites._widen.convert import convert
from rewrites._widen.families import FACTOR, REGION_OPS
from rewrites._widen.plan import Form, Plan, make_plan
from rewrites._widen.writer import NAME, BlockWriter, Settings, meaning_of
from tosakit.engine.contract import ChangesPrecision
from tosakit.engine.rule import BoundaryChange, Context, Event, Outcome, Refused, Transform, describe
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.program import Program
from tosakit.numerics.deviation import Error, Unbounded, largest
from tosakit.numerics.program_intervals import program_intervals
from tosakit.numerics.real_deviation import UNIT_BITS, RealArithmetic

CONTRACT = ChangesPrecision(because="int8 activations become int16, 128 times finer")


@dataclass(frozen=True)
class Options:
    """Options of the widening.

    ``io``: dtype of the program's int8 inputs and outputs. ``smooth``: make table entries real-valued and smooth, still
    the same int8. ``clamp``: keep int8 saturation at both ends, or only at an end that is the zero point (changes the
    function, and undoes clipping calibration). ``rescale_form``: behind INT48, one 16-bit multiplier, or a shift to
    INT32 and a 31-bit multiplier; ``auto`` is one step.
    """

    io: Literal["int16", "int8"] = "int16"
    smooth: bool = False
    clamp: Literal["all", "saturating-ends"] = "all"
    rescale_form: Literal["auto", "one-step", "two-step"] = "auto"


def widen(program: Program, context: Context) -> Outcome:
    """Widen every block that the main block reaches, in place. A program without int8 activations stays as it is."""
    options: Options = context.options
    plan = make_plan(program, keeps_interface=options.io == "int8")
    if not plan.widens:
        islands = [(block, op) for block, found in plan.involved.items() for op in found if op in plan.islands]
        return Outcome(refusals=[Refused(NAME, b.name, describe(op), plan.islands[op]) for b, op in islands])
    settings = Settings(
        smooth=options.smooth,
        clamp_all=options.clamp == "all",
        rescale_form="two-step" if options.rescale_form == "two-step" else "one-step",
        fuses_identity=not context.target.startswith(("ethos-u55", "ethos-u65")),
    )
    writers = [_write(plan, block, settings) for block in plan.blocks]
    new_blocks = {writer.old: writer.graph for writer in writers}
    for region in program.regions:
        region.blocks = [new_blocks.get(block, block) for block in region.blocks]
    boundary = _boundary(plan)
    meaning, intervals = meaning_of(writers), program_intervals(program)
    for writer in writers:
        writer.drop_redundant_clamps(intervals)
    real = RealArithmetic(intervals, meaning)
    events = [event for writer in writers for event in _events(writer, real)]
    if boundary:
        events.insert(0, _interface_event(plan, boundary))
    refusals = [refused for writer in writers for refused in writer.refused]
    return Outcome(events, [*refusals, *_kept_borders(plan)], boundary, local_contract(writers), meaning=real)


def _write(plan: Plan, block: Graph, settings: Settings) -> BlockWriter:
    writer = BlockWriter(plan, block, settings)
    writer.begin()
    for op in block.ops:
        convert(writer, op)
    writer.finish()
    return writer


def _events(writer: BlockWriter, real: RealArithmetic) -> list[Event]:
    events = []
    for op, made in writer.converted.items():
        after = [new for new in made.after if new in writer.graph]
        if made.after:
            contract = ChangesPrecision(CONTRACT.because, _distance(after, real))
            records = tuple(new.record for new in after)
            operators = (describe(op),)
            detail = "; ".join(made.detail)
            events.append(Event(NAME, writer.old.name, operators, contract, detail, (made.before,), records))
    return events


def _distance(made: Sequence[AnyOp], real: RealArithmetic) -> float | None:
    """How far the results of new operators are from real arithmetic on the same operands, in LSB; None if unknown."""
    errors: dict[Tensor, Error] = {}
    for op in made:
        if op.inputs and not isinstance(op.attrs, REGION_OPS) and op.output.dtype != DType.SHAPE:
            errors[op.output] = real.deviation(op, lambda tensor: errors.get(tensor, 0))
    inside = dict.fromkeys(tensor for op in made for tensor in op.inputs)
    ends = [error for tensor, error in errors.items() if tensor not in inside]
    found = [largest(error) for error in ends if not isinstance(error, Unbounded)]
    return max(found, default=0) / (1 << UNIT_BITS) if len(found) == len(ends) else None


def _boundary(plan: Plan) -> list[BoundaryChange]:
    tensors = dict.fromkeys((*plan.main.inputs, *plan.main.outputs))
    return [
        BoundaryChange(t.name, DType.INT8, DType.INT16, plan.zero_points[t], FACTOR)
        for t in tensors
        if t.dtype == DType.INT8 and plan.border_form(plan.main, t) is Form.INT16
    ]


def _interface_event(plan: Plan, boundary: Sequence[BoundaryChange]) -> Event:
    """What became of the program's inputs and outputs, and which of them keep an offset nobody knows."""
    known = ", ".join(f'"{change.name}" {change.zero_point}' for change in boundary)
    detail = f"int16 value = (int8 value - zero point) * {FACTOR}; zero points: {known}"
    changed = {change.name for change in boundary}
    unknown = [t for t in dict.fromkeys((*plan.main.inputs, *plan.main.outputs)) if t in plan.zero_points.unknown]
    names = ", ".join(f'"{t.name}"' for t in unknown if t.name in changed)
    if names:
        detail += (
            f". Nothing fixes the zero point of {names}: taken as 0, so int16 values there keep an offset of {FACTOR} "
            "times the zero point; give quantisation parameters to remove it"
        )
    operators = tuple(f'interface "{change.name}"' for change in boundary)
    return Event(NAME, plan.main.name, operators, CONTRACT, detail)


def _kept_borders(plan: Plan) -> list[Refused]:
    """Inputs and outputs that stay int8 although an int16 interface was asked for."""
    if plan.keeps_interface:
        return []
    refused = []
    for kind, tensors in (("INPUT", plan.main.inputs), ("OUTPUT", plan.main.outputs)):
        for tensor in dict.fromkeys(tensors):
            if tensor.dtype == DType.INT8 and plan.border_form(plan.main, tensor) is Form.INT8:
                other = "only operators that stay int8 read it" if kind == "INPUT" else "an int8 operator makes it"
                reason = plan.reason_kept(tensor) or other
                refused.append(Refused(NAME, plan.main.name, f'{kind} -> "{tensor.name}"', reason))
    return refused


TRANSFORM = Transform(NAME, widen, CONTRACT, "Turn an int8 model into an int16-activation, int8-weight model.", Options)
