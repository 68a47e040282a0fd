"""Remove operators that no output needs, and tensors that no operator mentions.

    x ──▶ ABS ──▶ y ──▶ block output             x ──▶ ABS ──▶ y ──▶ block output
    │
    └───▶ NEGATE ──▶ z ──▶ CLAMP ──▶ t
                                     │
                                     └─ nobody reads it

Needed are the block outputs, every operator with state or an effect of its own (VARIABLE*, ASSERT_EQUAL_SHAPE, control
flow, CUSTOM, operators unknown to tosakit), and whatever these read. Block inputs, outputs and state cells stay, used
or not.
"""

from tosakit.engine.contract import Exact
from tosakit.engine.rule import Context, Event, Outcome, Transform, describe
from tosakit.ir.graph import Graph
from tosakit.ir.program import Program


def run(program: Program, context: Context) -> Outcome:
    """Remove from every block what nothing needs, one event for each operator and tensor."""
    return Outcome([event for block in program.blocks for event in _clean(block)])


def _clean(block: Graph) -> list[Event]:
    erased = block.prune(reversed(block.ops))
    unused = [t for t in block.tensors if t.producer is None and not t.is_used and not t.extras.variable]
    for tensor in unused:
        block.drop_tensor(tensor)
    removed = [*map(describe, reversed(erased)), *(f'tensor "{tensor.name}"' for tensor in unused)]
    return [Event(TRANSFORM.name, block.name, (text,), TRANSFORM.contract) for text in removed]


TRANSFORM = Transform(
    name="remove_dead_code",
    run=run,
    contract=Exact(),
    summary="Remove operators that no output needs, and tensors that no operator mentions.",
)
