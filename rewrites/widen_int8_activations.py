"""Turn an int8 model into an int16-activation, int8-weight model.

    q: int8 ──▶ CONV i8 x i8 ──▶ i32 ──▶ RESCALE(m, s), zero point z ──▶ int8
    v: int16 ─▶ CONV i16 x i8 ─▶ i48 ──▶ RESCALE(m', s'), zero point 0 ─▶ CLAMP [(-128-z)*128, (127-z)*128] ──▶ int16

An int8 value q with zero point z becomes v = (q - z) * 128. All real scales change by the same factor 1/128, so no scale
has to be known: accumulators carry 2^7 (a MATMUL's 2^14), int32 values carry 2^e with an e per value, and only RESCALEs
change. int8 saturation, which often is the model's ReLU, is made explicit. What has no int16 form stays an int8 island
between RESCALEs and is reported.
"""

from dataclasses import dataclass
from typing import Literal

from tosakit.engine.contract import ChangesPrecision
from tosakit.engine.rule import BoundaryChange, Context, Event, Outcome, Refused, Transform, describe
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.program import Program

from rewrites._widen.convert import convert
from rewrites._widen.families import FACTOR
from rewrites._widen.plan import Form, Plan, make_plan
from rewrites._widen.writer import NAME, BlockWriter, Settings

CONTRACT = ChangesPrecision(because="int8 activations become int16, 128 times finer")


@dataclass(frozen=True)
class Options:
    """Options of the widening.

    ``io``: dtype of the program's int8 inputs and outputs. ``smooth``: make table entries real-valued, smooth, and still
    the same int8. ``clamp``: keep int8 saturation at both ends, or only at an end that is the zero point (changes the
    function, and undoes clipping calibration). ``rescale_form``: behind INT48, one 16-bit multiplier, or a shift to
    INT32 and a 31-bit multiplier; ``auto`` is one step.
    """

    io: Literal["int16", "int8"] = "int16"
    smooth: bool = False
    clamp: Literal["all", "saturating-ends"] = "all"
    rescale_form: Literal["auto", "one-step", "two-step"] = "auto"


def widen(program: Program, context: Context) -> Outcome:
    """Widen every block the main block reaches, in place. Programs without int8 activations stay as they are."""
    options: Options = context.options
    plan = make_plan(program, keeps_interface=options.io == "int8")
    refusals = [Refused(NAME, b.name, describe(o), plan.islands[o]) for b in plan.blocks for o in b.ops if o in plan.islands]
    if not plan.widens:
        return Outcome(refusals=refusals)
    settings = Settings(
        options.smooth,
        options.clamp == "all",
        "two-step" if options.rescale_form == "two-step" else "one-step",
        not context.target.startswith(("ethos-u55", "ethos-u65")),
    )
    events: list[Event] = []
    refusals = []
    writers = []
    for block in plan.blocks:
        writer = BlockWriter(plan, block, settings)
        writer.begin()
        for op in block.ops:
            convert(writer, op)
        writer.finish()
        writers.append(writer)
        refusals.extend(writer.refused)
    for region in program.regions:
        region.blocks = [next((w.graph for w in writers if w.old is block), block) for block in region.blocks]
    for writer in writers:
        events.extend(_events(writer))
    refusals.extend(_kept_borders(plan))
    return Outcome(events, refusals, _boundary(plan, options))


def _events(writer: BlockWriter) -> list[Event]:
    events = []
    for op, made in writer.converted.items():
        if made.after:
            after = tuple(new.record for new in made.after if new in writer.graph)
            events.append(
                Event(NAME, writer.old.name, (describe(op),), CONTRACT, "; ".join(made.detail), (made.before,), after)
            )
    return events


def _boundary(plan: Plan, options: Options) -> list[BoundaryChange]:
    changes = {}
    for tensor in (*plan.main.inputs, *plan.main.outputs):
        if tensor.dtype == DType.INT8 and plan.border_form(plan.main, tensor) is Form.INT16:
            changes[tensor.name] = BoundaryChange(
                tensor.name, DType.INT8, DType.INT16, plan.zero_points[tensor], FACTOR
            )
    return list(changes.values())


def _kept_borders(plan: Plan) -> list[Refused]:
    return []


TRANSFORM = Transform(
    NAME, widen, CONTRACT, "Turn an int8 model into an int16-activation, int8-weight model.", Options
)
