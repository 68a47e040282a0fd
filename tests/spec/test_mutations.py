"""Real models with one thing broken: exactly the code of that fault is reported, and nothing else becomes an error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tosakit.io.reader import load
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor, TensorExtras
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program, Region, Version
from tosakit.ir.types import encode
from tosakit.spec.check import check

CORPUS = Path(__file__).parents[1] / "corpus"
INT8, INT16, RESBLOCK = "dscnn_kws_a8w8", "dscnn_kws_a16w8", "resblock_a8w8"
PROPAGATE = NanPropagationMode.PROPAGATE


class Model:
    """A model to break, its main block and short ways to it."""

    def __init__(self, name: str) -> None:
        self.program: Program = load(CORPUS / f"{name}.tosa")
        self.main: Graph = self.program.main

    def find(self, kind: type[Attributes], number: int = 0) -> AnyOp:
        """The operator of a class, in program order."""
        return [op for op in self.main.ops if isinstance(op.attrs, kind)][number]

    def attributes(self, kind: type[Attributes], **changes: Any) -> None:
        """Change attributes of the first operator of a class."""
        op = self.find(kind)
        op._attrs = replace(op.attrs, **changes)  # type: ignore[type-var]

    def constant(self, values: Any, dtype: DType, like: str = "new") -> Tensor:
        """A new constant."""
        array = np.asarray(values)
        table = "shapes" if dtype == DType.SHAPE else "tensors"
        tensor = Tensor(like, dtype, array.shape, encode(array, dtype), table=table)  # type: ignore[arg-type]
        attrs = ops.ConstShape() if dtype == DType.SHAPE else ops.Const()
        return self.main.add_op(Op(attrs, (), (tensor,))).output

    def operand(self, op: AnyOp, slot: int, values: Any) -> None:
        """Put a constant of the same type into the place of an operand."""
        self.main.set_operand(op, slot, self.constant(values, op.inputs[slot].dtype))

    def append(self, attrs: Attributes, operands: Sequence[Tensor], dtype: DType, shape: Sequence[int]) -> Tensor:
        """A new operator whose result becomes an output."""
        result = self.main.add_op(Op(attrs, tuple(operands), (Tensor("new", dtype, tuple(shape)),))).output
        self.main.set_outputs([*self.main.outputs, result])
        return result

    def region(self, name: str) -> Graph:
        """A new region that gives back its FP32 [2]."""
        graph = Graph(name)
        x = graph.add_tensor(Tensor("x", DType.FP32, (2,)))
        graph.set_inputs([x])
        graph.set_outputs(graph.add_op(Op(ops.Abs(), (x,), (Tensor("y", DType.FP32, (2,)),))).outputs)
        self.program.regions.append(Region(name, [graph]))
        return graph

    def branch(self, then: str = "then", otherwise: str = "else") -> None:
        """A COND_IF of an FP32 [2] at the end."""
        condition, value = self.constant([True], DType.BOOL), self.constant([1.0, 2.0], DType.FP32)
        self.append(ops.CondIf(then, otherwise), [condition, value], DType.FP32, [2])


Break = Callable[[Model], None]


@dataclass(frozen=True)
class Mutation:
    """A fault, the model it is put into, and the target it takes to see it."""

    code: str
    model: str
    apply: Break
    target: dict[str, Any]


MUTATIONS: list[Mutation] = []


def mutation(code: str, model: str = INT8, **target: Any) -> Callable[[Break], Break]:
    """Register a mutation under the only code that it must show."""

    def register(apply: Break) -> Break:
        MUTATIONS.append(Mutation(code, model, apply, target))
        return apply

    return register


def _retype(tensor: Tensor, dtype: DType | None = None, shape: Sequence[int] | None = None) -> None:
    tensor._dtype = dtype or tensor.dtype
    tensor._shape = tensor.shape if shape is None else tuple(shape)


# -------------------------------------------------------------------- operands, results, types
@mutation("WrongInputList")
def _(m: Model) -> None:
    op = m.find(ops.Rescale)
    op._inputs = op.inputs[:-1]


@mutation("WrongInputList")
def _(m: Model) -> None:
    op = m.find(ops.Conv2d)
    op._inputs = (*op.inputs, op.inputs[-1])


@mutation("WrongOutputList")
def _(m: Model) -> None:
    op = m.find(ops.Reshape)
    op._outputs = (*op.outputs, m.main._declare(Tensor("surplus", DType.INT8, (1,))))
    op._outputs[1]._producer = op


@mutation("WrongInputType")
def _(m: Model) -> None:
    op = m.find(ops.Rescale)
    m.main.set_operand(op, 2, m.constant([30], DType.INT16))


@mutation("WrongOutputType", RESBLOCK)
def _(m: Model) -> None:
    _retype(m.main.outputs[0], DType.INT16)


@mutation("WrongAccumulatorType")
def _(m: Model) -> None:
    m.attributes(ops.Conv2d, acc_type=DType.INT48)


@mutation("WrongBiasType", INT16)
def _(m: Model) -> None:
    op = m.find(ops.Conv2d)
    m.main.set_operand(op, 2, m.constant(np.zeros(op.inputs[2].shape, np.int64), DType.INT32))


@mutation("NonConstantOperand", profiles=["pro-int"])
def _(m: Model) -> None:
    op = m.find(ops.Rescale)
    zero = m.main.add_tensor(Tensor("zero", op.inputs[3].dtype, (1,)))
    m.main.set_inputs([*m.main.inputs, zero])
    m.main.set_operand(op, 3, zero)


@mutation("MissingExtension", INT16, profiles=["pro-int"])
def _(m: Model) -> None:
    pass


@mutation("MissingProfile", profiles=["pro-fp"])
def _(m: Model) -> None:
    pass


@mutation("MissingExtension", profiles=["pro-int"])
def _(m: Model) -> None:
    op = m.find(ops.Rescale)
    op._attrs = replace(op.attrs, rounding_mode=RoundingMode.INEXACT_ROUND)  # type: ignore[type-var]


@mutation("UnknownEnumValue")
def _(m: Model) -> None:
    m.attributes(ops.Rescale, rounding_mode=RoundingMode.UNKNOWN)


@mutation("AttributeLength")
def _(m: Model) -> None:
    m.attributes(ops.Conv2d, stride=(1,))


# -------------------------------------------------------------------- sizes
@mutation("ConvOutputShapeMismatch")
def _(m: Model) -> None:
    m.attributes(ops.Conv2d, pad=(1, 1, 1, 1))


@mutation("ConvBiasShapeMismatch")
def _(m: Model) -> None:
    m.operand(m.find(ops.Conv2d), 2, [0, 0, 0])


@mutation("TransposePermsOutputShapeMismatch", RESBLOCK)
def _(m: Model) -> None:
    m.attributes(ops.Transpose, perms=(0, 1, 2, 3))


@mutation("IndexUsedTwice", RESBLOCK)
def _(m: Model) -> None:
    m.attributes(ops.Transpose, perms=(0, 1, 1, 2))


@mutation("AxisLargerRank")
def _(m: Model) -> None:
    m.attributes(ops.ReduceSum, axis=9)


# -------------------------------------------------------------------- what constants prove
@mutation("RescaleShiftOutOfRange")
def _(m: Model) -> None:
    op = m.find(ops.Rescale)
    m.operand(op, 2, [1] * op.inputs[2].shape[0])


@mutation("RescaleMultiplierNegative")
def _(m: Model) -> None:
    op = m.find(ops.Rescale)
    m.operand(op, 1, [-5] * op.inputs[1].shape[0])


@mutation("InputZeroPointNotZero", INT16)
def _(m: Model) -> None:
    m.operand(m.find(ops.Conv2d), 3, [3])


@mutation("MulShiftInvalid")
def _(m: Model) -> None:
    m.operand(m.find(ops.Mul), 2, [64])


@mutation("TableSlope", INT16)
def _(m: Model) -> None:
    m.operand(m.find(ops.Table), 1, np.resize([-32768, 32767], 513))


@mutation("TableLength")
def _(m: Model) -> None:
    m.operand(m.find(ops.Table), 1, [0] * 255)


@mutation("ScaleNLargerMax")
def _(m: Model) -> None:
    x = m.constant(np.zeros((1, 1, 1, 1), np.int64), DType.INT8)
    shapes = [m.constant(v, DType.SHAPE) for v in ([2049, 1, 1, 1], [0, 0], [0, 0])]
    m.append(ops.Resize(ResizeMode.NEAREST), [x, *shapes], DType.INT8, [1, 1, 1, 1])


# -------------------------------------------------------------------- levels
@mutation("WrongRank", level="8k")
def _(m: Model) -> None:
    shape = (1,) * 7
    m.append(ops.Reverse(0), [m.constant(np.zeros(shape, np.int64), DType.INT8)], DType.INT8, shape)


@mutation("LevelKernel", level="8k")
def _(m: Model) -> None:
    x = m.constant(np.zeros((1, 8193, 1, 1), np.int64), DType.INT8)
    m.append(ops.MaxPool2d((8193, 1), (1, 1), (0, 0, 0, 0), PROPAGATE), [x], DType.INT8, [1, 1, 1, 1])


@mutation("LevelStride", level="8k")
def _(m: Model) -> None:
    x = m.constant(np.zeros((1, 1, 1, 1), np.int64), DType.INT8)
    m.append(ops.MaxPool2d((1, 1), (8193, 1), (0, 0, 0, 0), PROPAGATE), [x], DType.INT8, [1, 1, 1, 1])


@mutation("LevelScale", level="8k")
def _(m: Model) -> None:
    x = m.constant(np.zeros((1, 1, 1, 1), np.int64), DType.INT8)
    shapes = [m.constant(v, DType.SHAPE) for v in ([257, 1, 1, 1], [0, 0], [0, 0])]
    m.append(ops.Resize(ResizeMode.NEAREST), [x, *shapes], DType.INT8, [1, 1, 1, 1])


@mutation("LevelTensorSize", level="8k")
def _(m: Model) -> None:
    x = m.main.add_tensor(Tensor("large", DType.INT32, (1 << 29,)))
    m.main.set_inputs([*m.main.inputs, x])
    m.append(ops.Reverse(0), [x], DType.INT32, [1 << 29])


@mutation("LevelListSize", level="8k")
def _(m: Model) -> None:
    m.append(ops.Concat(0), [m.constant([1], DType.INT8)] * 65, DType.INT8, [65])


@mutation("LevelNesting", level="8k")
def _(m: Model) -> None:
    m.branch("n1", "leaf")
    for number in range(1, 6):
        graph = m.region(f"n{number}")
        condition = graph.add_op(Op(ops.Const(), (), (Tensor("c", DType.BOOL, (1,), b"\1"),))).output
        inside = f"n{number + 1}" if number < 5 else "leaf"
        result = Tensor("r", DType.FP32, (2,))
        graph.set_outputs(graph.add_op(Op(ops.CondIf(inside, "leaf"), (condition, graph.inputs[0]), (result,))).outputs)
    m.region("leaf")


# -------------------------------------------------------------------- versions
@mutation("NeedsNewerVersion")
def _(m: Model) -> None:
    x = m.constant([1, 2], DType.INT64)
    m.append(ops.Identity(), [x], DType.INT64, [2])


@mutation("DraftFlagMissing")
def _(m: Model) -> None:
    m.program.version = Version(1, 1, 0, False)


@mutation("NeedsNewerVersion", spec="1.0")
def _(m: Model) -> None:
    m.program.version = Version(1, 1, 0, True)


# -------------------------------------------------------------------- structure, control flow, variables, data
@mutation("UndeclaredTensor")
def _(m: Model) -> None:
    ghost = m.main.add_tensor(Tensor("ghost", DType.UNKNOWN, (), table="undeclared"))
    m.main.set_operand(m.find(ops.Reshape), 0, ghost)


@mutation("NoProducer")
def _(m: Model) -> None:
    old = m.find(ops.Reshape).inputs[0]
    m.main.set_operand(m.find(ops.Reshape), 0, m.main.add_tensor(Tensor("nowhere", old.dtype, old.shape)))


@mutation("Cycle")
def _(m: Model) -> None:
    first = m.find(ops.Rescale, 1)
    m.main.set_operand(first, 0, m.find(ops.Rescale, 5).inputs[0])


@mutation("UnknownRegion")
def _(m: Model) -> None:
    m.branch()
    m.region("then")


@mutation("UndeclaredTensor")
def _(m: Model) -> None:  # a region reaches for a tensor of the main block
    m.branch()
    m.region("then")
    graph = m.region("else")
    ghost = graph.add_tensor(Tensor(m.main.inputs[0].name, DType.UNKNOWN, (), table="undeclared"))
    graph.set_operand(graph.ops[0], 0, ghost)


@mutation("CondIfOutputListThenGraphMismatch")
def _(m: Model) -> None:
    m.branch()
    graph = m.region("then")
    graph.set_outputs([*graph.outputs, *graph.outputs])
    m.region("else")


@mutation("InputListOutputListMismatch")
def _(m: Model) -> None:
    x = m.constant([1.0, 2.0], DType.FP32)
    m.append(ops.WhileLoop("cond", "body"), [x], DType.FP32, [3])
    cond = m.region("cond")
    cond.set_outputs(cond.add_op(Op(ops.Const(), (), (Tensor("c", DType.BOOL, (1,), b"\1"),))).outputs)
    m.region("body")


@mutation("RecursiveRegion")
def _(m: Model) -> None:
    m.branch("then", "then")
    graph = m.region("then")
    condition = graph.add_op(Op(ops.Const(), (), (Tensor("c", DType.BOOL, (1,), b"\1"),))).output
    graph.add_op(Op(ops.CondIf("then", "then"), (condition, graph.inputs[0]), (Tensor("r", DType.FP32, (2,)),)))


@mutation("RegionBlockCount")
def _(m: Model) -> None:
    m.program.regions[0].blocks.append(m.region("other"))


@mutation("DuplicateRegion")
def _(m: Model) -> None:
    m.region(m.program.regions[0].name or "")


@mutation("NotAVariable")
def _(m: Model) -> None:
    x = m.main.inputs[0]
    m.append(ops.VariableRead(), [x], x.dtype, x.shape)


@mutation("VariableTypeMismatch")
def _(m: Model) -> None:
    extras = TensorExtras(variable=True, variable_name="state")
    m.append(ops.VariableRead(), [m.main.add_tensor(Tensor("cell", DType.INT8, (2,), extras=extras))], DType.INT8, [3])


@mutation("VariableUse")
def _(m: Model) -> None:
    extras = TensorExtras(variable=True, variable_name="state")
    m.append(ops.Reverse(0), [m.main.add_tensor(Tensor("cell", DType.INT8, (2,), extras=extras))], DType.INT8, [2])


@mutation("ConstantDataTooShort")
def _(m: Model) -> None:
    bias = m.find(ops.Conv2d).inputs[2]
    bias._data = bytes(bias.data or b"")[:-1]


@mutation("ConstantWithoutData")
def _(m: Model) -> None:
    m.find(ops.Conv2d).inputs[1]._data = None


NAMED = [pytest.param(each, id=f"{each.code}-{number}") for number, each in enumerate(MUTATIONS)]


@pytest.mark.parametrize("mutated", NAMED)
def test_exactly_the_broken_rule_is_reported(mutated: Mutation) -> None:
    model = Model(mutated.model)
    before = check(model.program)
    assert [d.code for d in before if d.severity == "error"] == []
    mutated.apply(model)
    errors = [d for d in check(model.program, **mutated.target) if d.severity == "error"]
    assert list(dict.fromkeys(d.code for d in errors)) == [mutated.code], "\n".join(map(str, errors[:5]))
