"""Let all readers of equal constants read the first of them.

    CONST a: INT8 [3, 4] ──▶ ADD                 CONST a: INT8 [3, 4] ─┬─▶ ADD
    CONST b: INT8 [3, 4] ──▶ MUL                                       └─▶ MUL

Constants are equal where dtype, shape and bytes are (the bytes alone are not enough: INT16 [0, 0, 0] and INT48 [0] are
the same six), and quantisation parameters and block scales too. Blocks share nothing, because TOSA regions see nothing
from outside. Left alone is every constant that is a block output, or that a RESCALE, a CUSTOM or stateful operator, or
one unknown to tosakit reads: tools around TOSA expect a RESCALE to have constants of its own.
"""

from typing import Any

from tosakit.engine.contract import Exact
from tosakit.engine.rule import Context, Event, Outcome, Transform, describe
from tosakit.ir import ops
from tosakit.ir.graph import Graph, Tensor
from tosakit.ir.program import Program

CONSTANTS = (ops.Const, ops.ConstShape)


def run(program: Program, context: Context) -> Outcome:
    """Merge equal constants within each block, one event for each that goes."""
    return Outcome([event for block in program.blocks for event in _merge(block)])


def _merge(block: Graph) -> list[Event]:
    first: dict[tuple[Any, ...], Tensor] = {}
    events = []
    for op in block.ops:
        if not isinstance(op.attrs, CONSTANTS) or len(op.outputs) != 1:
            continue
        constant = op.output
        if not _may_share(block, constant):
            continue
        kept = first.setdefault(_key(constant), constant)
        if kept is not constant:
            text = describe(op)
            block.replace_uses(constant, kept)
            block.erase(op)
            events.append(Event(TRANSFORM.name, block.name, (text,), TRANSFORM.contract, f'now "{kept.name}"'))
    return events


def _may_share(block: Graph, constant: Tensor) -> bool:
    for user in constant.users:
        if isinstance(user.attrs, ops.Rescale) or user is block.exit or user.is_stateful:
            return False
    return constant.data is not None


def _key(constant: Tensor) -> tuple[Any, ...]:
    extras = constant.extras
    scales = (extras.scale_type, memoryview(extras.scale_data or b""), extras.block_shape)
    kind = (constant.dtype, constant.has_shape, constant.shape, constant.table, extras.is_unranked)
    return (*kind, memoryview(constant.data or b""), *scales, constant.quantization)


TRANSFORM = Transform(
    name="deduplicate_constants",
    run=run,
    contract=Exact(),
    summary="Let all readers of equal constants read the first of them.",
)
