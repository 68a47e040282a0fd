"""Control flow: regions that exist, and lists of tensors that match them."""

from collections.abc import Container, Iterator, Mapping, Sequence

from tosakit.errors import InvalidModel
from tosakit.ir import ops
from tosakit.ir.bulk import op_columns
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.program import Region
from tosakit.spec.call import Finding, element_count, shape_of
from tosakit.spec.dtypes import element_of

Regions = Mapping[str, Region]


def region_names(op: AnyOp) -> tuple[str, ...]:
    """Names of the regions that a control flow operator runs; () for any other operator."""
    attrs = op.attrs
    if isinstance(attrs, ops.CondIf):
        return attrs.then_graph, attrs.else_graph
    if isinstance(attrs, ops.WhileLoop):
        return attrs.cond_graph, attrs.body_graph
    return ()


Calls = Mapping[str, Sequence[str]]
"""Names of the regions that the operators of each region run, those that exist."""


def region_calls(regions: Regions) -> Calls:
    """Which regions the operators of each region run, once for each time they are named."""
    return {name: [target for target in _targets(region) if target in regions] for name, region in regions.items()}


def recursive_regions(calls: Calls) -> dict[str, None]:
    """Names of the regions that run themselves through control flow. Linear.

    Regions that run no region, and regions that none runs, are dropped until none is left to drop.
    """
    runs: dict[str, dict[str, None]] = {name: dict.fromkeys(targets) for name, targets in calls.items()}
    run_by: dict[str, dict[str, None]] = {name: {} for name in calls}
    for name, targets in calls.items():
        for target in targets:
            run_by[target][name] = None
    left = dict.fromkeys(calls)
    stack = [name for name in left if not runs[name] or not run_by[name]]
    while stack:
        name = stack.pop()
        if name not in left:
            continue
        del left[name]
        for others, back in ((runs, run_by), (run_by, runs)):
            for other in others[name]:
                back[other].pop(name, None)
                if not back[other]:
                    stack.append(other)
    return left


def region_depths(calls: Calls, recursive: Container[str]) -> dict[str, int]:
    """How many control flow operators run around each region at most; 0 for one that none runs. Linear.

    Regions that run themselves are left out.
    """
    runs = {
        name: [target for target in targets if target not in recursive]
        for name, targets in calls.items()
        if name not in recursive
    }
    waiting = dict.fromkeys(runs, 0)
    for targets in runs.values():
        for target in targets:
            waiting[target] += 1
    depths = dict.fromkeys(runs, 0)
    ready = [name for name in runs if not waiting[name]]
    while ready:
        name = ready.pop()
        for target in runs[name]:
            depths[target] = max(depths[target], depths[name] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return depths


def _targets(region: Region) -> Iterator[str]:
    for block in region.blocks:
        try:
            operators = block.ops
        except InvalidModel:  # a cycle, reported where the block is checked
            continue
        attributes = op_columns(operators).attrs
        if any(kind in _CONTROL_FLOW for kind in dict.fromkeys(map(type, attributes))):
            for op in operators:
                yield from region_names(op)


_CONTROL_FLOW = (ops.CondIf, ops.WhileLoop)


def check_control_flow(op: AnyOp, regions: Regions) -> Iterator[Finding]:
    """What is wrong with a COND_IF or WHILE_LOOP and the regions it names."""
    blocks: list[Graph | None] = []
    for name in region_names(op):
        region = regions.get(name)
        if region is None or not region.blocks:
            what = "does not exist" if region is None else "has no block"
            yield Finding("UnknownRegion", f'{op.name} runs region "{name}", which {what}')
        blocks.append(region.blocks[0] if region is not None and region.blocks else None)
    first, second = blocks
    if isinstance(op.attrs, ops.CondIf):
        yield from _check_cond_if(op, first, second)
    else:
        yield from _check_while_loop(op, first, second)


def _check_cond_if(op: AnyOp, then_block: Graph | None, else_block: Graph | None) -> Iterator[Finding]:
    condition = op.inputs[0]
    if condition.dtype not in (DType.BOOL, DType.UNKNOWN):
        yield Finding(
            "CondIfCondNotMatchingBool", f"the condition is {condition.dtype.name}, it must be BOOL", (condition,)
        )
    if not _may_hold_one(condition):
        message = f"the condition is {_type(condition)}, it must hold one element"
        yield Finding("CondIfCondShapeNotSizeOne", message, (condition,))
    for block, side, word in ((then_block, "Then", "then"), (else_block, "Else", "else")):
        if block is None:
            continue
        code = f"CondIfInputList{side}GraphMismatch"
        yield from _compare(code, "operands", op.inputs[1:], f"inputs of the {word} region", block.inputs)
        code = f"CondIfOutputList{side}GraphMismatch"
        yield from _compare(code, "results", op.outputs, f"outputs of the {word} region", block.outputs)


def _check_while_loop(op: AnyOp, cond: Graph | None, body: Graph | None) -> Iterator[Finding]:
    yield from _compare("InputListOutputListMismatch", "operands", op.inputs, "results", op.outputs)
    if cond is not None:
        name = "inputs of the condition region"
        yield from _compare("InputListCondGraphMismatch", "operands", op.inputs, name, cond.inputs)
        outputs = cond.outputs
        if len(outputs) != 1 or outputs[0].dtype not in (DType.BOOL, DType.UNKNOWN):
            message = f"the condition region gives {_types(outputs)}, it must give one BOOL"
            yield Finding("CondGraphOutputNotMatchingBool", message)
        elif not _may_hold_one(outputs[0]):
            message = f"the condition region gives {_types(outputs)}, it must hold one element"
            yield Finding("CondGraphOutputShapeNotSizeOne", message)
    if body is not None:
        name = "inputs of the body region"
        yield from _compare("InputListBodyGraphInputMismatch", "operands", op.inputs, name, body.inputs)
        name = "outputs of the body region"
        yield from _compare("InputListBodyGraphOutputMismatch", "operands", op.inputs, name, body.outputs)


def _compare(
    code: str, what: str, own: Sequence[Tensor], other_what: str, other: Sequence[Tensor]
) -> Iterator[Finding]:
    """A finding where two lists of tensors differ in length, or at a place in type or declared shape."""
    if len(own) != len(other):
        yield Finding(code, f"there are {len(own)} {what} and {len(other)} {other_what}")
        return
    for index, (left, right) in enumerate(zip(own, other, strict=True)):
        if DType.UNKNOWN in (left.dtype, right.dtype):
            continue
        if element_of(left) != element_of(right) or left.shape != right.shape:
            message = f"number {index} of the {what} is {_type(left)}, of the {other_what} {_type(right)}"
            yield Finding(code, message, (left,))
            return


def _may_hold_one(tensor: Tensor) -> bool:
    shape = shape_of(tensor)
    return shape is None or element_count(shape) in (None, 1)


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype.name} {list(tensor.shape)}"


def _types(tensors: Sequence[Tensor]) -> str:
    return ", ".join(map(_type, tensors)) or "nothing"
