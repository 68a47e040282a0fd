"""A legal and a broken form for the faults of whole programs: control flow, structure, constants, targets, levels."""

from collections.abc import Sequence

import numpy as np

from tests.spec.nets import (
    BOOL,
    F32,
    I8,
    I16,
    I32,
    I48,
    LEVEL_8K,
    PROPAGATE,
    SHAPE,
    Block,
    Net,
    Result,
    case,
    conv,
    rescale,
    resize,
    unary,
)
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import Op, Tensor, TensorExtras
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program, Version
from tosakit.ir.types import encode
from tosakit.spec.target import Target


# -------------------------------------------------------------------- control flow
def branch(b: Block, shape: Sequence[int] = (2,), result: Sequence[int] | None = None) -> None:
    """A region that negates its input."""
    unary(b, ops.Abs(), F32, shape, (F32, shape if result is None else result))


def cond_if(n: Net, condition: Result = (BOOL, [1])) -> None:
    """COND_IF of an FP32 [2]."""
    operands = [n.main.input(condition[0], *condition[1]), n.main.input(F32, 2)]
    n.main.op(ops.CondIf("then", "else"), operands, (F32, [2]))


@case("UnknownRegion")
def _(n: Net, broken: bool) -> None:
    cond_if(n)
    branch(n.region("then"))
    if not broken:
        branch(n.region("else"))


@case("RecursiveRegion")
def _(n: Net, broken: bool) -> None:
    cond_if(n)
    branch(n.region("then"))
    inner = n.region("else")
    x = inner.input(F32, 2)
    target = "else" if broken else "then"
    inner.op(ops.CondIf("then", target), [inner.const([True], BOOL), x], (F32, [2]))


@case("CondIfCondNotMatchingBool")
def _(n: Net, broken: bool) -> None:
    cond_if(n, (I8 if broken else BOOL, [1]))
    branch(n.region("then"))
    branch(n.region("else"))


@case("CondIfCondShapeNotSizeOne")
def _(n: Net, broken: bool) -> None:
    cond_if(n, (BOOL, [2 if broken else 1]))
    branch(n.region("then"))
    branch(n.region("else"))


def _branches(code: str, region: str, slot: str) -> None:
    @case(code)
    def _(n: Net, broken: bool) -> None:
        cond_if(n)
        for name in ("then", "else"):
            block = n.region(name)
            if not broken or name != region:
                branch(block)
            elif slot == "input":
                block.input(F32, 2)
                branch(block)
            else:
                block.op(ops.Cast(), [block.input(F32, 2)], (I32, [2]))


_branches("CondIfInputListThenGraphMismatch", "then", "input")
_branches("CondIfInputListElseGraphMismatch", "else", "input")
_branches("CondIfOutputListThenGraphMismatch", "then", "output")
_branches("CondIfOutputListElseGraphMismatch", "else", "output")


def while_loop(
    n: Net,
    *,
    result: Sequence[int] = (2,),
    cond_input: Sequence[int] = (2,),
    condition: Result = (BOOL, [1]),
    body_input: Sequence[int] = (2,),
    body_output: Sequence[int] = (2,),
) -> None:
    """WHILE_LOOP that carries one FP32 [2]."""
    n.main.op(ops.WhileLoop("cond", "body"), [n.main.input(F32, 2)], (F32, result))
    cond, body = n.region("cond"), n.region("body")
    cond.input(F32, *cond_input)
    cond.const(np.ones(condition[1], np.int64), condition[0])
    x = body.input(F32, *body_input)
    if tuple(body_output) == tuple(body_input):
        body.op(ops.Abs(), [x], (F32, body_output))
    else:
        body.const(np.ones(body_output, np.float32), F32)


@case("InputListOutputListMismatch")
def _(n: Net, broken: bool) -> None:
    while_loop(n, result=[3 if broken else 2])


@case("InputListCondGraphMismatch")
def _(n: Net, broken: bool) -> None:
    while_loop(n, cond_input=[3 if broken else 2])


@case("InputListBodyGraphInputMismatch")
def _(n: Net, broken: bool) -> None:
    while_loop(n, body_input=[3 if broken else 2], body_output=[2])


@case("InputListBodyGraphOutputMismatch")
def _(n: Net, broken: bool) -> None:
    while_loop(n, body_output=[3 if broken else 2])


@case("CondGraphOutputNotMatchingBool")
def _(n: Net, broken: bool) -> None:
    while_loop(n, condition=(I8 if broken else BOOL, [1]))


@case("CondGraphOutputShapeNotSizeOne")
def _(n: Net, broken: bool) -> None:
    while_loop(n, condition=(BOOL, [2 if broken else 1]))


# -------------------------------------------------------------------- graph structure
@case("NoOutputs")
def _(n: Net, broken: bool) -> None:
    n.main.has_outputs = not broken
    branch(n.main)


@case("UndeclaredTensor")
def _(n: Net, broken: bool) -> None:
    x = n.main.declare(DType.UNKNOWN, (), table="undeclared") if broken else n.main.input(F32, 2)
    n.main.op(ops.Abs(), [x], (F32, [2]))


@case("UnknownDType")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.Abs(), [n.main.input(DType.UNKNOWN if broken else F32, 2)], (F32, [2]))


@case("NoProducer")
def _(n: Net, broken: bool) -> None:
    x = n.main.declare(F32, [2]) if broken else n.main.input(F32, 2)
    n.main.op(ops.Abs(), [x], (F32, [2]))


@case("UnusedTensor", "warning")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    if broken:
        n.main.declare(F32, [2])


@case("ShapeAtBoundary", "warning")
def _(n: Net, broken: bool) -> None:
    shape = n.main.shape(2)
    branch(n.main)
    if broken:
        n.main.graph.set_outputs([shape])


@case("UnknownOperator", "warning")
def _(n: Net, broken: bool) -> None:
    x = n.main.input(F32, 2)
    n.main.op(Foreign(number=999) if broken else ops.Abs(), [x], (F32, [2]))


@case("EmptyProgram")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    if broken:
        n.change = lambda program: program.regions[0].blocks.clear()


@case("DuplicateRegion")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    branch(n.region("other"))

    def change(program: Program) -> None:
        program.regions[1].name = "main" if broken else "other"

    n.change = change


@case("Cycle")
def _(n: Net, broken: bool) -> None:
    x = n.main.input(F32, 2)
    (y,) = n.main.op(ops.Abs(), [x], (F32, [2]))
    (z,) = n.main.op(ops.Ceil(), [y], (F32, [2]))
    n.main.graph.set_outputs([z])
    if broken and y.producer is not None:
        n.main.graph.set_operand(y.producer, 0, z)


# -------------------------------------------------------------------- constants and variables
@case("ConstantWithoutData")
def _(n: Net, broken: bool) -> None:
    n.main.raw(I8, [2], None if broken else b"\0\1")


@case("ConstantDataTooShort")
def _(n: Net, broken: bool) -> None:
    n.main.raw(I48, [2], b"\0" * (11 if broken else 12))


@case("ConstantDataTooLong", "warning")
def _(n: Net, broken: bool) -> None:
    n.main.raw(I8, [1], b"\0" * (9 if broken else 8))


@case("ConstantShapeUnknown")
def _(n: Net, broken: bool) -> None:
    n.main.raw(I8, [-1 if broken else 2], b"\0\1")


def cell(b: Block, *, variable: bool = True, name: str | None = "state", shape: Sequence[int] = (2,)) -> Tensor:
    """A state cell of INT8."""
    return b.declare(I8, shape, "cell", extras=TensorExtras(variable=variable, variable_name=name))


@case("NotAVariable")
def _(n: Net, broken: bool) -> None:
    x = n.main.input(I8, 2) if broken else cell(n.main)
    n.main.op(ops.VariableRead(), [x], (I8, [2]))


@case("VariableUse")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.Identity() if broken else ops.VariableRead(), [cell(n.main)], (I8, [2]))


@case("VariableTypeMismatch")
def _(n: Net, broken: bool) -> None:
    target = cell(n.main)
    n.main.graph.add_op(Op(ops.VariableWrite(), [n.main.input(I8, 3 if broken else 2)], [target]))


@case("VariableName", "warning")
def _(n: Net, broken: bool) -> None:
    n.main.op(ops.VariableRead(), [cell(n.main, name="" if broken else "state")], (I8, [2]))


@case("VariableName")
def _(n: Net, broken: bool) -> None:
    for size, name in ((2, "first"), (3, "first" if broken else "second")):
        n.main.op(ops.VariableRead(), [cell(n.main, name=name, shape=[size])], (I8, [size]))


@case("VariableAsIdentity", "warning")
def _(n: Net, broken: bool) -> None:
    written = Foreign(number=ops.Identity.NUMBER, attribute_type=ops.VariableRead.NUMBER, attributes=ops.VariableRead())
    n.main.op(written if broken else ops.VariableRead(), [cell(n.main)], (I8, [2]))


# -------------------------------------------------------------------- targets: profiles, extensions, versions
@case("MissingProfile", target=Target.of(profiles=["pro-int"]))
def _(n: Net, broken: bool) -> None:
    unary(n.main, ops.Reverse(0), F32 if broken else I8, [2], (F32 if broken else I8, [2]))


@case("MissingExtension", target=Target.of(profiles=["pro-int"], extensions=["int4"]))
def _(n: Net, broken: bool) -> None:
    dtype = I16 if broken else I8
    attrs = ops.MaxPool2d((2, 2), (1, 1), (0, 0, 0, 0), PROPAGATE)
    unary(n.main, attrs, dtype, [1, 4, 4, 1], (dtype, [1, 3, 3, 1]))


@case("MissingExtension", target=Target.of(profiles=["pro-int"]))
def _(n: Net, broken: bool) -> None:
    rescale(n.main, rounding=RoundingMode.DOUBLE_ROUND if broken else RoundingMode.SINGLE_ROUND)


@case("MissingExtension", "warning", minor=1, target=Target.of(profiles=["pro-int"]))
def _(n: Net, broken: bool) -> None:
    if broken:
        n.main.op(ops.Dim(0), [n.main.input(I8, 2, 3)], (SHAPE, [1]))
    unary(n.main, ops.Reverse(0), I8, [2], (I8, [2]))


@case("NonConstantOperand", target=Target.of(profiles=["pro-int"]))
def _(n: Net, broken: bool) -> None:
    table = n.main.input(I8, 256) if broken else n.main.const([1] * 256, I8)
    n.main.op(ops.Table(), [n.main.input(I8, 2), table], (I8, [2]))


@case("NeedsNewerVersion", target=Target.of(spec="1.0"))
def _(n: Net, broken: bool) -> None:
    n.minor = 1 if broken else 0
    branch(n.main)


@case("DraftFlagMissing")
def _(n: Net, broken: bool) -> None:
    branch(n.main)

    def change(program: Program) -> None:
        program.version = Version(1, 1, 0, not broken)

    n.change = change


# -------------------------------------------------------------------- levels
@case("WrongRank", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    shape = [1] * (7 if broken else 6)
    unary(n.main, ops.Abs(), F32, shape, (F32, shape))


@case("WrongRank")
def _(n: Net, broken: bool) -> None:
    shape = [1] * (33 if broken else 32)
    unary(n.main, ops.Abs(), F32, shape, (F32, shape))


@case("LevelKernel", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    size = 8193 if broken else 8192
    attrs = ops.MaxPool2d((size, 1), (1, 1), (0, 0, 0, 0), PROPAGATE)
    unary(n.main, attrs, I8, [1, size, 1, 1], (I8, [1, 1, 1, 1]))


@case("LevelKernel", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:  # a kernel of 2 rows dilated by more than half of what is allowed
    dilation = 4097 if broken else 4096
    conv(n.main, size=5, pad=(dilation, 0, 0, 0), dilation=(dilation, 1), result=(1, 5, 4, 2))


@case("LevelStride", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    attrs = ops.MaxPool2d((1, 1), (8193 if broken else 8192, 1), (0, 0, 0, 0), PROPAGATE)
    unary(n.main, attrs, I8, [1, 1, 1, 1], (I8, [1, 1, 1, 1]))


@case("LevelScale", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    scale = 257 if broken else 256
    resize(n.main, scale=(scale, 1, 2, 1), result=(1, 2 * scale + 1, 5, 2))


@case("LevelTensorSize", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    shape = [1 << 15, 1 << 16] if broken else [(1 << 31) - 1]
    unary(n.main, ops.Reverse(0), I8, shape, (I8, shape))


@case("LevelListSize", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    count = 65 if broken else 64
    n.main.op(ops.Concat(0), [n.main.input(I8, 1)] * count, (I8, [count]))


@case("LevelShapeLength", minor=1, target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    sizes = [2] * (17 if broken else 16)
    n.main.op(ops.AssertEqualShape(), [n.main.shape(*sizes), n.main.shape(*sizes)])
    n.main.op(ops.Abs(), [n.main.input(F32, 2)], (F32, [2]))


@case("LevelNesting", target=LEVEL_8K)
def _(n: Net, broken: bool) -> None:
    depth = 6 if broken else 5
    blocks = [n.main, *[n.region(f"level{number}") for number in range(1, depth)]]
    for number, block in enumerate(blocks, start=1):
        inside = f"level{number}" if number < depth else "leaf"
        operands = [block.const([True], BOOL), block.input(F32, 2)]
        block.op(ops.CondIf(inside, "leaf"), operands, (F32, [2]))
    branch(n.region("leaf"))


# -------------------------------------------------------------------- structure that only check asks for
@case("RegionBlockCount")
def _(n: Net, broken: bool) -> None:
    branch(n.main)
    branch(n.region("other"))
    if broken:
        n.change = lambda program: program.regions[1].blocks.append(program.regions[1].blocks[0].clone())


# -------------------------------------------------------------------- what values can be
@case("ResultOverflow", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    left = n.main.input(I32, 2)
    if not broken:
        (left,) = n.main.op(ops.ArithmeticRightShift(True), [left, n.main.const([1, 1], I32)], (I32, [2]))
    n.main.op(ops.Add(), [left, n.main.const([1, -1], I32)], (I32, [2]))


@case("ResultOverflow", values=True)
def _(n: Net, broken: bool) -> None:
    largest = n.main.const([(1 << 31) - 1], I32)
    n.main.op(ops.Add(), [largest, n.main.const([1 if broken else -1], I32)], (I32, [1]))


@case("RescaleInputRange", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    rescale(n.main, shift=(31 if broken else 32,))


@case("RescaleInputRange", values=True)
def _(n: Net, broken: bool) -> None:
    operands = [
        n.main.const([1 << 20], I32),
        n.main.const([1 << 30], I32),
        n.main.const([20 if broken else 22], I8),
        n.main.const([0], I32),
        n.main.const([0], I8),
    ]
    n.main.op(ops.Rescale(True, RoundingMode.SINGLE_ROUND), operands, (I8, [1]))


@case("RescaleResultRange", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    rescale(n.main, source=I48, scale32=False, target=I32, shift=(30 if broken else 31,))


@case("TableSlope", values=True)
def _(n: Net, broken: bool) -> None:
    entries = [-32768] * 256 + [0] * 257  # the step is between inputs -128 and 0
    x = n.main.input(I16, 2)
    if not broken:
        (x,) = n.main.op(ops.Clamp(encode(0, I16), encode(99, I16), PROPAGATE), [x], (I16, [2]))
    n.main.op(ops.Table(), [x, n.main.const(entries, I16)], (I32, [2]))


@case("DivisionByZero", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    low = encode(0 if broken else 1, I8)
    x = n.main.op(ops.Clamp(low, encode(9, I8), PROPAGATE), [n.main.input(I8, 2)], (I8, [2]))[0]
    wide = n.main.op(ops.Cast(), [x], (I32, [2]))[0]
    n.main.op(ops.IntDiv(), [n.main.input(I32, 2), wide], (I32, [2]))


@case("GatherIndexOutOfRange", "warning", values=True)
def _(n: Net, broken: bool) -> None:
    high = encode(4 if broken else 3, I8)
    x = n.main.op(ops.Clamp(encode(0, I8), high, PROPAGATE), [n.main.input(I8, 1, 2)], (I8, [1, 2]))[0]
    wide = n.main.op(ops.Cast(), [x], (I32, [1, 2]))[0]
    n.main.op(ops.Gather(), [n.main.input(I8, 1, 4, 3), wide], (I8, [1, 2, 3]))
