"""Put an IDENTITY between an input of the graph and an output that is the same tensor.

    x ─▶ input and output            x ─▶ IDENTITY ─▶ output x_out

The value is the same. A tensor has one name, so the output gets a new one, which the report tells.

Vela takes no output that no operator writes.
"""

from rewrites._when import ForEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.rule import Context, Event, Outcome, Refused, RenamedOutput, Transform
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.program import Program

NAME = "identity_for_passed_outputs"


def run(program: Program, context: Context) -> Outcome:
    """Give every output of the graph that is an input an operator that writes it."""
    if not context.options.acts(context.target):
        return Outcome()
    graph = program.main
    passed = [t for t in dict.fromkeys(graph.outputs) if t.producer is graph.entry]
    block = graph.name or ""
    refusals = [
        Refused(NAME, block, f'output "{t.name}"', "it is a SHAPE, of which there is no IDENTITY")
        for t in passed
        if t.dtype == DType.SHAPE
    ]
    written: dict[Tensor, Tensor] = {}
    for tensor in passed:
        if tensor.dtype != DType.SHAPE:
            twin = Tensor(f"{tensor.name}_out", tensor.dtype, tensor.shape, quantization=tensor.quantization)
            written[tensor] = graph.add_op(Op(ops.Identity(), (tensor,), (twin,), origin=NAME)).output
    if not written:
        return Outcome(refusals=refusals)
    graph.set_outputs([written.get(t, t) for t in graph.outputs])
    renamed = [RenamedOutput(old.name, new.name) for old, new in written.items()]
    events = [
        Event(NAME, block, (f'output "{one.name}"',), Exact(), f'it is the output "{one.new_name}" now')
        for one in renamed
    ]
    return Outcome(events, refusals, renamed=renamed)


TRANSFORM = Transform(
    NAME,
    run,
    Exact(),
    "Put an IDENTITY between an input of the graph and an output that is the same tensor.",
    ForEthosU,
)
