"""Make the BOOL inputs and outputs of the graph INT8: 0 is false, everything else true.

    p: BOOL input ─▶ ... ─▶ q: BOOL output        p: INT8 ─▶ CAST to BOOL ─▶ ... ─▶ CAST to INT8 ─▶ q: INT8

TOSA keeps a BOOL in a byte, 0 or 1, and that byte is what the INT8 tensor of the same name holds: whoever feeds the
graph changes nothing but the type. CAST gives true for everything but 0, and 0 or 1 back. An input that is an output
stays one tensor. Every value is identical. bool_as_int32 then takes care of what is between.

Ethos-U55 and U65 take no BOOL at all. BOOL variables, which are no inputs yet, stay as they are.
"""

from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.rule import BoundaryChange, Context, Event, Outcome, Transform
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.program import Program

NAME = "bool_interface_as_int8"


def run(program: Program, context: Context) -> Outcome:
    """Rewrite every BOOL input and output of the main block."""
    graph = program.main
    old = [t for t in dict.fromkeys((*graph.inputs, *graph.outputs)) if t.dtype == DType.BOOL]
    if not context.options.acts(context.target) or not old:
        return Outcome()
    names = [t.name for t in old]
    passed = _inputs(graph)
    _outputs(graph, passed)
    operators = tuple(f'interface "{name}"' for name in names)
    event = Event(NAME, graph.name or "", operators, Exact(), "BOOL is INT8 there: 0 is false, everything else true")
    return Outcome([event], boundary=[BoundaryChange(name, DType.BOOL, DType.INT8, 0, 1) for name in names])


def _inputs(graph: Graph) -> dict[Tensor, Tensor]:
    """Give every BOOL input a CAST; for each BOOL tensor that stands for an input now, that input."""
    twins: dict[Tensor, Tensor] = {}
    inputs = list(graph.inputs)
    for place, old in enumerate(inputs):
        if old.dtype == DType.BOOL:
            inputs[place] = graph.add_tensor(Tensor(f"{old.name}_int8", DType.INT8, old.shape))
            twins[old] = inputs[place]
    graph.set_inputs(inputs)
    for old, new in twins.items():
        graph.swap_names(old, new)
    passed: dict[Tensor, Tensor] = {}
    for old, new in twins.items():
        cast = graph.add_op(Op(ops.Cast(), (new,), (Tensor(f"{new.name}_bool", DType.BOOL, old.shape),), origin=NAME))
        graph.replace_uses(old, cast.output)
        graph.drop_tensor(old)
        passed[cast.output] = new
    return passed


def _outputs(graph: Graph, passed: dict[Tensor, Tensor]) -> None:
    """Give every BOOL output a CAST, but for those that are inputs."""
    made: dict[Tensor, Tensor] = dict(passed)
    for old in dict.fromkeys(graph.outputs):
        if old.dtype == DType.BOOL and old not in made:
            twin = Tensor(f"{old.name}_bool", DType.INT8, old.shape)  # the names are swapped below
            made[old] = graph.add_op(Op(ops.Cast(), (old,), (twin,), origin=NAME)).output
            graph.swap_names(old, made[old])
    graph.set_outputs([made.get(t, t) for t in graph.outputs])
    graph.prune([cast for t in passed if (cast := t.producer) is not None and not t.is_used])


TRANSFORM = Transform(
    NAME,
    run,
    Exact(),
    "Make the BOOL inputs and outputs of the graph INT8: 0 is false, everything else true.",
    ForSmallEthosU,
)
