"""Mutations towards what few programs hold: state, BOOL inside, inputs passed on, open constants, illegal forms."""

from collections.abc import Callable

import numpy as np

from tosakit.errors import InvalidModel
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import AnyOp, Op, Tensor, TensorExtras
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import QuantParams, encode
from tosakit.spec.signature import signature
from tosakit.testing import values
from tosakit.testing.choices import Choices

_PROPAGATE = NanPropagationMode.PROPAGATE


def stateful(choices: Choices, program: Program) -> Program | None:
    """A variable in the place of an INT8 input, written with a value of its type, where there is one."""
    result = program.clone()
    graph = result.main
    inputs = [t for t in dict.fromkeys(graph.inputs) if t.dtype == DType.INT8 and t.shape]
    if not inputs or not graph.ops:
        return None
    old = choices.pick(inputs)
    extras = TensorExtras(variable=True, variable_name="state")
    data = encode(values.values(choices, old.dtype, old.shape), old.dtype)
    cell = graph.add_tensor(Tensor("state", old.dtype, old.shape, data, extras=extras))
    read = graph.add_op(Op(ops.VariableRead(), (cell,), (Tensor("now", old.dtype, old.shape),)), like=graph.ops[0])
    graph.replace_uses(old, read.output)
    graph.set_inputs([t for t in graph.inputs if t is not old])
    graph.drop_tensor(old)
    try:
        operators = graph.ops
    except InvalidModel:  # control flow, whose order among operators with state is fixed, stands in front
        return None
    like = [t for op in operators for t in op.outputs if (t.dtype, t.shape) == (old.dtype, old.shape)]
    graph.add_op(Op(ops.VariableWrite(), (choices.pick(like),), (cell,)))
    return result


def bool_inside(choices: Choices, program: Program) -> Program | None:
    """INT8 for every BOOL input and output of the main block, and CASTs."""
    result = program.clone()
    main = result.main
    if not any(t.dtype == DType.BOOL for t in (*main.inputs, *main.outputs)) or not main.ops:
        return None
    inputs = []
    for old in main.inputs:
        inputs.append(old)
        if old.dtype == DType.BOOL:
            inputs[-1] = main.add_tensor(Tensor("x", DType.INT8, old.shape))
            cast = main.add_op(Op(ops.Cast(), (inputs[-1],), (Tensor("b", DType.BOOL, old.shape),)), like=main.ops[0])
            main.replace_uses(old, cast.output)
    main.set_inputs(inputs)
    casts = {
        t: main.add_op(Op(ops.Cast(), (t,), (Tensor("y", DType.INT8, t.shape),))).output
        for t in dict.fromkeys(main.outputs)
        if t.dtype == DType.BOOL
    }
    main.set_outputs([casts.get(t, t) for t in main.outputs])
    return result


def passed(choices: Choices, program: Program) -> Program | None:
    """One input more among the outputs."""
    result = program.clone()
    graph = result.main
    inputs = [t for t in dict.fromkeys(graph.inputs) if t.dtype != DType.SHAPE and t not in graph.outputs]
    if not inputs:
        return None
    graph.set_outputs([*graph.outputs, choices.pick(inputs)])
    return result


def opened(choices: Choices, program: Program) -> Program | None:
    """A new input in the place of one constant: weights, indices, or, as EXT-DYNAMIC has it, numbers of a RESCALE."""
    result = program.clone()
    graph = result.main
    found = [
        (op, slot)
        for op in graph.ops
        if (sig := signature(op.name)) is not None
        for slot, (argument, operand) in enumerate(zip(sig.inputs, op.inputs, strict=False))
        if operand.is_constant and argument.constant != "const"
        if operand.dtype not in (DType.SHAPE, DType.INT4, DType.INT48)
    ]
    if not found:
        return None
    op, slot = choices.pick(found)
    old = op.inputs[slot]
    new = graph.add_tensor(Tensor("opened", old.dtype, old.shape))
    graph.set_inputs([*graph.inputs, new])
    graph.set_operand(op, slot, new)
    return result


def wide_multipliers(choices: Choices, program: Program) -> Program | None:
    """32-bit multipliers in every RESCALE on INT48 that has room for 16 more bits of shift; illegal.

    One in three loses more bits of the shift, so that few results stay in range.
    """
    result = program.clone()
    steeper = choices.pick([0, 0, choices.integer(1, 30)])
    found = [(block, op) for block in result.blocks for op in block.ops if _is_narrow_reader(op)]
    for block, op in found:
        multiplier, shift = (np.asarray(op.inputs[slot].values(), np.int64) for slot in (1, 2))
        constants = []
        for name, array, dtype in (
            ("wide", multiplier << 16, DType.INT32),
            ("shift", np.maximum(shift + 16 - steeper, 2), DType.INT8),
        ):
            tensor = Tensor(name, dtype, array.shape, encode(array, dtype))
            constants.append(block.add_op(Op(ops.Const(), (), (tensor,)), like=op).output)
        old = op.attrs
        assert isinstance(old, ops.Rescale)
        attrs = ops.Rescale(True, old.rounding_mode, old.per_channel, old.input_unsigned, old.output_unsigned)
        new: AnyOp = Op(
            attrs, (op.inputs[0], *constants, *op.inputs[3:]), (Tensor("r", op.output.dtype, op.output.shape),)
        )
        block.splice(op, [new], {op.output: new.output})
    return result if found else None


def _is_narrow_reader(op: AnyOp) -> bool:
    if not isinstance(op.attrs, ops.Rescale) or op.inputs[0].dtype != DType.INT48 or op.attrs.scale32:
        return False
    return op.inputs[1].is_constant and op.inputs[2].is_constant and int(op.inputs[2].values().max()) <= 46


def narrow_operands(choices: Choices, program: Program) -> Program | None:
    """One more operator, on INT16 inputs with quantisation parameters, which TOSA has for INT32 only; illegal."""
    result = program.clone()
    graph = result.main
    attrs: Attributes = choices.pick(
        [ops.Add(), ops.Sub(), ops.Maximum(_PROPAGATE), ops.Minimum(_PROPAGATE), ops.Abs(), ops.ReduceSum(0)]
    )
    count = 1 if isinstance(attrs, ops.Abs | ops.ReduceSum) else 2
    shape = (choices.integer(1, 3), choices.integer(1, 4))
    operands = [graph.add_tensor(Tensor(f"narrow{slot}", DType.INT16, shape)) for slot in range(count)]
    graph.set_inputs([*graph.inputs, *operands])
    size = (1, shape[1]) if isinstance(attrs, ops.ReduceSum) else shape
    made: AnyOp = graph.add_op(Op(attrs, operands, (Tensor("sum", DType.INT16, size),)))
    graph.set_outputs([*graph.outputs, made.output])
    for tensor in (*operands, made.output):
        scale = 2.0 ** -choices.integer(8, 13) * choices.pick([1.0, 1.3, 1.9])
        if choices.flag(0.9):  # nothing is known of the others
            graph.annotate(tensor, QuantParams((scale,)))
    return result


_OF_CONSTANTS = (
    *(ops.Identity, ops.Reshape, ops.Transpose, ops.Reverse, ops.Concat, ops.Tile, ops.Slice, ops.Pad),
    *(ops.Cast, ops.Rescale),
)
"""Operators whose values do not matter for the program to be legal."""


def closed(choices: Choices, program: Program) -> Program | None:
    """A constant for every input of the main block that operators read which take any value, and nothing else does."""
    result = program.clone()
    main = result.main
    found = [
        t
        for t in dict.fromkeys(main.inputs)
        if t.is_used and t not in main.outputs and all(isinstance(op.attrs, _OF_CONSTANTS) for op in t.users)
    ]
    for old in found:
        data = encode(values.values(choices, old.dtype, old.shape), old.dtype)
        const = main.add_op(Op(ops.Const(), (), (Tensor("closed", old.dtype, old.shape, data),)), like=main.ops[0])
        main.replace_uses(old, const.output)
    main.set_inputs([t for t in main.inputs if t not in found])
    for old in found:
        main.drop_tensor(old)
    return result if found else None


Special = Callable[[Choices, Program], Program | None]

LEGAL: tuple[Special, ...] = (bool_inside, passed, opened, closed)
REPAIRABLE: tuple[Special, ...] = (wide_multipliers, narrow_operands)
"""What they make is not legal, but there are rules that repair it."""
