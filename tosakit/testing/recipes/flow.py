"""Constants, state, CUSTOM, and control flow with regions of its own."""

from collections.abc import Sequence

from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.testing.making import Making
from tosakit.testing.sketch import Sketch, Unfit

KEEPS_TYPE: tuple[type[Attributes], ...] = (ops.Identity, ops.Negate, ops.Reverse, ops.BitwiseNot, ops.Clamp)
"""Operators on one operand whose result has its type."""


def const(m: Making) -> tuple[Tensor, ...]:
    """CONST."""
    return (m.sketch.constant(m.dtype("output"), m.sketch.shape(0)),)


def const_shape(m: Making) -> tuple[Tensor, ...]:
    """CONST_SHAPE."""
    return (m.sketch.const([m.choices.integer(1, 4) for _ in range(m.choices.integer(1, 4))], DType.SHAPE),)


def custom(m: Making) -> tuple[Tensor, ...]:
    """CUSTOM with one or two operands and results, of any types: it knows its own."""
    operands = m.given.get("input_list") or _some(m.sketch)
    types = [(t.dtype, t.shape) for t in operands[: m.choices.integer(1, 2)]]
    return m.sketch.emit(ops.Custom("any", "tosakit.testing", b"\x01"), operands, types)


def variable(m: Making) -> tuple[Tensor, ...]:
    """VARIABLE declares a cell, which VARIABLE_READ reads."""
    dtype = next(iter(m.row.types.values()))
    assert isinstance(dtype, DType)
    return _read(m.sketch, dtype, declare=True)


def variable_read(m: Making) -> tuple[Tensor, ...]:
    """VARIABLE_READ of a cell that has an initial value."""
    return _read(m.sketch, m.dtype("output1"), declare=False)


def _read(sketch: Sketch, dtype: DType, *, declare: bool) -> tuple[Tensor, ...]:
    cell = sketch.cell(dtype, sketch.shape())
    if declare:
        sketch.builder.ops.append(Op(ops.Variable(), (), (cell,)))
    return sketch.emit(ops.VariableRead(), [cell], [(cell.dtype, cell.shape)])


def variable_write(m: Making) -> tuple[Tensor, ...]:
    """VARIABLE_WRITE to a cell, which is read again."""
    value = m.take("input1")
    cell = m.sketch.cell(value.dtype, value.shape)
    m.sketch.builder.ops.append(Op(ops.VariableWrite(), (value,), (cell,)))
    return m.sketch.emit(ops.VariableRead(), [cell], [(cell.dtype, cell.shape)])


def _some(sketch: Sketch) -> list[Tensor]:
    dtypes = [dtype for dtype in (DType.INT8, DType.INT16, DType.INT32) if dtype in sketch.space.dtypes]
    if not dtypes:
        raise Unfit("there are no integers to pass on")
    return [sketch.operand(sketch.choices.pick(dtypes), sketch.shape()) for _ in range(sketch.choices.integer(1, 2))]


def _passing(inner: Sketch, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors after up to three operators that keep their types, or another input of the same type."""
    from tosakit.testing.recipes import make

    results = []
    for tensor in tensors:
        value = tensor
        for _ in range(inner.choices.integer(0, 3)):
            try:
                (value,) = make(inner, inner.choices.pick(KEEPS_TYPE), {0: value})
            except Unfit:
                continue
        results.append(value)
    return results


def cond_if(m: Making) -> tuple[Tensor, ...]:
    """COND_IF with two regions that compute on all operands."""
    sketch = m.sketch
    condition = m.given["condition"][0] if "condition" in m.given else sketch.operand(DType.BOOL, [1])
    if condition.shape not in ((1,), ()):
        raise Unfit("the condition has more than one element")
    operands = m.given.get("input_list") or _some(sketch)
    names = []
    for _ in range(2):
        inner = sketch.inner()
        inputs = [inner.input(t.dtype, t.shape) for t in operands]
        names.append(sketch.region(inner, inputs, _passing(inner, inputs)))
    return sketch.emit(ops.CondIf(*names), [condition, *operands], [(t.dtype, t.shape) for t in operands])


def while_loop(m: Making) -> tuple[Tensor, ...]:
    """WHILE_LOOP that counts to at most three and computes on its other operands."""
    sketch = m.sketch
    operands = [sketch.const([0], DType.INT32), *(m.given.get("input_list") or _some(sketch))]
    cond, body = sketch.inner(), sketch.inner()
    inputs = [[inner.input(t.dtype, t.shape) for t in operands] for inner in (cond, body)]
    limit = cond.const([sketch.choices.integer(0, 3)], DType.INT32)
    going = cond.emit(ops.Greater(), [limit, inputs[0][0]], [(DType.BOOL, (1,))])
    (count,) = body.emit(ops.Add(), [inputs[1][0], body.const([1], DType.INT32)], [(DType.INT32, (1,))])
    names = (
        sketch.region(cond, inputs[0], going),
        sketch.region(body, inputs[1], [count, *_passing(body, inputs[1][1:])]),
    )
    return sketch.emit(ops.WhileLoop(*names), operands, [(t.dtype, t.shape) for t in operands])
