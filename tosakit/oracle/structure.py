"""Whether two programs are the same computation as they stand, so that nothing has to run to know it.

Dead code, names of inner tensors, the order of operators and the sharing of equal constants make no difference; any
other operator, attribute or constant does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tosakit.engine.rule import BoundaryChange
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Data, Graph, Tensor
from tosakit.ir.program import Program

_Key = tuple[Any, ...]


def same_computation(first: Program, second: Program, boundary: Sequence[BoundaryChange] = ()) -> bool:
    """True where every output and every effect comes from the same operators on the same values, in all blocks.

    The interfaces must agree in names, types and order too; ``boundary`` are inputs and outputs of the second that are
    INT8 for BOOL, behind a CAST each. Linear in the size of the programs and their constants.
    """
    numbers: dict[_Key, int] = {}
    bools = {change.name: None for change in boundary if change.before == DType.BOOL and change.factor == 1}
    return _regions(first, numbers, {}) == _regions(second, numbers, bools)


def _regions(program: Program, numbers: dict[_Key, int], bools: Mapping[str, None]) -> list[_Key]:
    return [
        (region.name, *(_block(block, numbers, bools if block is program.main else {}) for block in region.blocks))
        for region in program.regions
    ]


def _block(block: Graph, numbers: dict[_Key, int], bools: Mapping[str, None]) -> _Key:
    """The block's interface with the numbers of its outputs and effects; equal values have equal numbers.

    ``bools`` are inputs and outputs that stand for BOOL: a CAST from or to one has the value of its operand.
    """
    known: dict[Tensor, int] = {}
    types = {t: _type(t, DType.BOOL if t.name in bools else t.dtype) for t in (*block.inputs, *block.outputs)}
    for index, tensor in enumerate(block.inputs):
        known[tensor] = _number(("input", index, types[tensor]), numbers)
    effects: list[int] = []
    for op in block.ops:
        if isinstance(op.attrs, ops.Cast) and _is_border(op, block, bools):
            known[op.output] = known[op.inputs[0]]
            continue
        key = (op.attrs, *(known[t] if t in known else _number(_cell(t), numbers) for t in op.inputs))
        if _has_effect(op):
            key = (len(effects), *key, *(_cell(t) for t in op.outputs if t.extras.variable))
            effects.append(_number(key, numbers))
        for index, tensor in enumerate(op.outputs):
            if not tensor.extras.variable:
                known[tensor] = _number((index, *_type(tensor), _bytes(tensor.data), *key), numbers)
    inputs = tuple((t.name, types[t]) for t in block.inputs)
    outputs = tuple((t.name, known[t] if t in known else _number(_cell(t), numbers)) for t in block.outputs)
    return inputs, outputs, tuple(effects)


def _is_border(cast: AnyOp, block: Graph, bools: Mapping[str, None]) -> bool:
    """True for a CAST between BOOL and an input or output that stands for BOOL."""
    x, y = cast.inputs[0], cast.output
    reads = x.producer is block.entry and x.name in bools and y.dtype == DType.BOOL
    return reads or (y.name in bools and y in block.outputs and x.dtype == DType.BOOL)


def _number(key: _Key, numbers: dict[_Key, int]) -> int:
    return numbers.setdefault(key, len(numbers))


def _has_effect(op: AnyOp) -> bool:
    return op.is_stateful or not op.outputs


def _type(tensor: Tensor, dtype: DType | None = None) -> _Key:
    extras = tensor.extras
    scales = (extras.scale_type, _bytes(extras.scale_data), extras.block_shape)
    return (dtype or tensor.dtype, tensor.has_shape, tensor.shape, tensor.table, extras.is_unranked, scales)


def _cell(tensor: Tensor) -> _Key:
    """A tensor that no operator makes: a state cell, known by its name, or a fault of the file."""
    return ("cell", tensor.name, tensor.extras.variable_name, _type(tensor), _bytes(tensor.data))


def _bytes(data: Data | None) -> memoryview | None:
    return None if data is None else memoryview(data)
