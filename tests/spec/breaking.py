"""Ways to break a legal program of one operator, one for every kind of ERROR_IF that concerns several operators."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tosakit.ir import ops
from tosakit.ir.enums import BlockSize, DType
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import encode
from tosakit.spec.check import check
from tosakit.spec.signature import signature
from tosakit.testing.choices import Seeded
from tosakit.testing.programs import operator
from tosakit.testing.sketch import EVERYTHING, Space, Unfit

_REDUCTIONS = ("ALL", "ANY", "MAX", "MIN", "PRODUCT", "SUM")

BASES = 60
"""Legal programs of an operator that are tried until a break fits one."""

OLD = Space(0, EVERYTHING.dtypes)


class Bench:
    """A legal program, the operator under test in it, and short ways to break it."""

    def __init__(self, program: Program, kind: str) -> None:
        self.program = program
        self.graph: Graph = program.main
        self.op: AnyOp = next(op for op in self.graph.ops if op.name == kind)
        self.inputs: list[str] = []
        sig = signature(kind)
        for argument in sig.inputs if sig is not None else ():
            self.inputs.append(argument.name)

    def slot(self, *names: str) -> int | None:
        """The slot of the first operand of these names that the operator has."""
        found = (self.inputs.index(name) for name in names if name in self.inputs)
        return next((slot for slot in found if slot < len(self.op.inputs)), None)

    def operand(self, slot: int, values: Any, dtype: DType | None = None) -> bool:
        """Put a constant into a slot."""
        dtype = dtype or self.op.inputs[slot].dtype
        array = np.asarray(values)
        is_shape = dtype == DType.SHAPE
        tensor = Tensor("new", dtype, array.shape, encode(array, dtype), table="shapes" if is_shape else "tensors")
        made = Op(ops.ConstShape() if is_shape else ops.Const(), (), (tensor,))
        self.graph.set_operand(self.op, slot, self.graph.add_op(made, like=self.op).output)
        return True

    def entry(self, slot: int, shape: Sequence[int]) -> bool:
        """Put a new input of another shape into a slot; a shape value becomes a constant of another length."""
        old = self.op.inputs[slot]
        if old.dtype == DType.SHAPE:
            return self.operand(slot, [1] * shape[0])
        tensor = self.graph.add_tensor(Tensor("other", old.dtype, tuple(shape), extras=old.extras))
        self.graph.set_inputs([*self.graph.inputs, tensor])
        self.graph.set_operand(self.op, slot, tensor)
        return True

    def result(self, shape: Sequence[int], index: int = 0) -> bool:
        """Declare a result with another shape."""
        tensor = self.op.outputs[index]
        changed = tensor.shape != tuple(shape)
        tensor._shape = tuple(shape)
        return changed

    def attributes(self, **changes: Any) -> bool:
        """Change attributes."""
        self.op._attrs = replace(self.op.attrs, **changes)  # type: ignore[type-var]
        return True

    def has(self, name: str) -> bool:
        """True where the operator has an attribute of that name."""
        return any(field.name == name for field in fields(self.op.attrs))  # type: ignore[arg-type]

    def vector(self, name: str) -> list[int] | None:
        """An attribute, or a constant operand, that is a vector."""
        if self.has(name):
            return list(getattr(self.op.attrs, name))
        slot = self.slot(name)
        return None if slot is None else self.op.inputs[slot].values().reshape(-1).tolist()

    def set_vector(self, name: str, values: Sequence[int]) -> bool:
        """Change what :meth:`vector` gives."""
        if self.has(name):
            return self.attributes(**{name: tuple(values)})
        slot = self.slot(name)
        return slot is not None and self.operand(slot, list(values))


Break = Callable[[Bench], bool]
BREAKS: dict[str, list[Break]] = {}


def breaks(*kinds: str) -> Callable[[Break], Break]:
    """Register a way to break the rules of these kinds; False where it does not fit the program."""

    def register(how: Break) -> Break:
        for kind in kinds:
            BREAKS.setdefault(kind, []).append(how)
        return how

    return register


def broken(name: str, how: Break) -> Iterator[Program]:
    """Programs of the operator ``name`` that ``how`` broke."""
    cls = next(each for each in ops.OPERATORS if name == each.NAME)
    sig = signature(name)
    space = OLD if sig is not None and sig.since == 0 else EVERYTHING
    for seed in range(BASES):
        try:
            program = operator(Seeded(f"{name}{seed}"), cls, space)
        except Unfit:
            continue
        if any(d.severity == "error" for d in check(program, level="8k")):
            continue
        bench = Bench(program, name)
        if how(bench):
            yield program


# -------------------------------------------------------------------- operands and results
@breaks("WrongInputList")
def _(b: Bench) -> bool:
    b.op._inputs = b.op.inputs[:-1]
    return True


@breaks("WrongInputList")
def _(b: Bench) -> bool:
    b.op._inputs = (*b.op.inputs, b.op.inputs[-1])
    return True


@breaks("WrongOutputList")
def _(b: Bench) -> bool:
    last = b.op.outputs[-1]
    extra = b.graph._declare(Tensor("surplus", last.dtype, last.shape, table=last.table))
    extra._producer = b.op
    b.op._outputs = (*b.op.outputs, extra)
    return True


@breaks("WrongInputShapeType")
def _(b: Bench) -> bool:
    return b.operand(0, b.op.inputs[0].values(), DType.INT32)


@breaks("WrongOutputShapeType")
def _(b: Bench) -> bool:
    b.op.outputs[0]._dtype = DType.INT32
    b.op.outputs[0]._table = "tensors"
    return True


# -------------------------------------------------------------------- ranks and sizes
@breaks("WrongRank")
def _(b: Bench) -> bool:
    if b.op.name == "SLICE_SHAPE":
        return b.operand(1, [[0]])
    if b.op.name in _ANY_RANK:
        return _rank_seven(b)
    scales = b.slot("input_scale", "A_scale", "values_scale")
    for slot in (0, *(() if scales is None else (scales,))):
        b.entry(slot, (1, *b.op.inputs[slot].shape))
    return True


_ANY_RANK = {"ARGMAX", "PAD", "SLICE", "TILE", "TRANSPOSE", *(f"REDUCE_{how}" for how in _REDUCTIONS)}


def _rank_seven(b: Bench) -> bool:
    """Level 8K allows six axes."""
    ones = [1] * 7
    for name, values in (("padding", [0] * 14), ("start", [0] * 7), ("size", ones), ("multiples", ones)):
        slot = b.slot(name)
        if slot is not None:
            b.operand(slot, values)
    if b.has("perms"):
        b.attributes(perms=tuple(range(7)))
    return b.entry(0, ones) and b.result(ones[:6] if b.op.name == "ARGMAX" else ones)


@breaks("RankMismatch")
def _(b: Bench) -> bool:
    return len(b.op.outputs[0].shape) < 6 and b.result((*b.op.outputs[0].shape, 1))


@breaks("DimensionMismatch", "PadOutputShapeMismatch", "SizeOutputShapeMismatch", "TileMultiplesOutputShapeMismatch")
def _(b: Bench) -> bool:
    shape = b.op.outputs[0].shape
    return bool(shape) and b.result((*shape[:-1], shape[-1] + 1))


@breaks("BatchMismatch")
def _(b: Bench) -> bool:
    first, *rest = b.op.outputs[0].shape
    return all([b.result((first + 1, *rest), index) for index in range(len(b.op.outputs))])


@breaks("BroadcastShapesMismatch")
def _(b: Bench) -> bool:
    shape = list(b.op.inputs[1].shape)
    if not shape or b.op.inputs[0].shape[-1] < 2:
        return False
    return b.entry(1, (*shape[:-1], b.op.inputs[0].shape[-1] + 1))


@breaks("InputShapeRankMismatch")
def _(b: Bench) -> bool:
    return b.operand(1, [1] * (b.op.inputs[0].shape[0] + 1))


@breaks("OutputShapeRankMismatch")
def _(b: Bench) -> bool:
    return b.result((b.op.outputs[0].shape[0] + 1,))


# -------------------------------------------------------------------- zero points
def _zero_point(*names: str) -> Break:
    def how(b: Bench) -> bool:
        slot = b.slot(*names)
        if slot is None:
            return False
        dtype = b.op.inputs[slot].dtype
        unsigned = [getattr(b.op.attrs, name, False) for name in ("input_unsigned", "output_unsigned")]
        if dtype == DType.INT8 or (dtype == DType.INT16 and any(unsigned)):
            return False
        return b.operand(slot, np.asarray([2], "f4" if dtype.name[0] in "FB" else "i8"))

    return how


breaks("InputZeroPointNotZero")(_zero_point("input_zp", "A_zp", "input1_zp"))
breaks("InputZeroPointNotZero")(_zero_point("B_zp", "input_zp", "input1_zp"))
breaks("WeightZeroPointNotZero")(_zero_point("weight_zp"))
breaks("OutputZeroPointNotZero")(_zero_point("output_zp"))


# -------------------------------------------------------------------- axes
@breaks("AxisSmallerZero")
def _(b: Bench) -> bool:
    return b.attributes(axis=-1)


@breaks("AxisLargerRank")
def _(b: Bench) -> bool:
    return b.attributes(axis=len(b.op.inputs[0].shape))


@breaks("ShapeOfAxisNotOne")
def _(b: Bench) -> bool:
    shape = list(b.op.outputs[0].shape)
    shape[b.op.attrs.axis] = 2  # type: ignore[attr-defined]
    return b.result(shape)


# -------------------------------------------------------------------- windows
def _entry_of(name: str, value: int) -> Break:
    def how(b: Bench) -> bool:
        values = b.vector(name)
        return values is not None and b.set_vector(name, [value, *values[1:]])

    return how


breaks("KernelSmallerOne")(_entry_of("kernel", 0))
breaks("StrideSmallerOne")(_entry_of("stride", 0))
breaks("DilationSmallerOne")(_entry_of("dilation", 0))
breaks("PadSmallerZero")(_entry_of("pad", -1))
breaks("PadSmallerZero")(_entry_of("padding", -1))


@breaks("PadLargerEqualKernel")
def _(b: Bench) -> bool:
    if b.op.name == "TRANSPOSE_CONV2D":
        return _entry_of("out_pad", -b.op.inputs[1].shape[1])(b)
    kernel = b.vector("kernel")
    return kernel is not None and b.set_vector("pad", [kernel[0], 0, 0, 0])


@breaks("PoolingOutputShapeMismatch", "ConvOutputShapeMismatch")
def _(b: Bench) -> bool:
    batch, height, *rest = b.op.outputs[0].shape
    return b.result((batch, height + 1, *rest))


@breaks("PoolingOutputShapeNonInteger", "ConvOutputShapeNonInteger")
def _(b: Bench) -> bool:
    stride = b.vector("stride")
    if stride is None:
        return False
    stride[0] = 20  # more than the window can move, which leaves a remainder
    return b.op.outputs[0].shape[1] > 1 and b.set_vector("stride", stride)


@breaks("ConvBiasShapeMismatch")
def _(b: Bench) -> bool:
    slot = b.slot("bias")
    return slot is not None and b.entry(slot, [b.op.outputs[0].shape[-1] + 2])


@breaks("KernelNotPowerOfTwo")
def _(b: Bench) -> bool:
    batch, _, width = b.op.inputs[0].shape
    for slot in range(len(b.op.inputs)):
        b.entry(slot, (batch, 3, width))
    return all([b.result((batch, 3, tensor.shape[2]), index) for index, tensor in enumerate(b.op.outputs)])


@breaks("FFTOutputShapeMismatch")
def _(b: Bench) -> bool:
    batch, height, width = b.op.outputs[0].shape
    return all([b.result((batch, height + 1, width), index) for index in range(len(b.op.outputs))])


# -------------------------------------------------------------------- shapes and slices
@breaks("TensorSizeInputOutputMismatch")
def _(b: Bench) -> bool:
    shape = b.op.inputs[0].shape
    return bool(shape) and len(b.op.outputs) == 1 and b.entry(0, (shape[0] + 1, *shape[1:]))


@breaks("ReshapeNewShapeOutputMismatch")
def _(b: Bench) -> bool:
    return b.result((*b.op.outputs[0].shape, 1)) and len(b.op.outputs[0].shape) < 7


@breaks("StartSmallerZero")
def _(b: Bench) -> bool:
    return _entry_of("start", -1)(b)


@breaks("SizeSmallerEqualZero")
def _(b: Bench) -> bool:
    return _entry_of("size", 0)(b)


@breaks("StartSizeOutsideBounds")
def _(b: Bench) -> bool:
    return _entry_of("start", 100)(b)


@breaks("ConcatNoInputList")
def _(b: Bench) -> bool:
    b.op._inputs = ()
    return True


# -------------------------------------------------------------------- block scales
@breaks("UnknownBlockSizeEnum")
def _(b: Bench) -> bool:
    return b.attributes(block_size=BlockSize.UNKNOWN)


@breaks("WrongBlockSizeDimension")
def _(b: Bench) -> bool:
    if b.op.attrs.block_size != BlockSize.BLOCK_SIZE_32:  # type: ignore[attr-defined]
        return False
    pairs = {"CAST_FROM_BLOCK_SCALED": (0,), "CAST_TO_BLOCK_SCALED": (0,), "CONV2D_BLOCK_SCALED": (0, 2)}
    for slot in pairs.get(b.op.name, (0, 2) if b.op.name == "MATMUL_T_BLOCK_SCALED" else (0,)):
        *rest, last = b.op.inputs[slot].shape
        b.entry(slot, (*rest, last - 8))
    return b.op.name not in _SAME_WIDTH or b.result((*b.op.outputs[0].shape[:-1], last - 8))


_SAME_WIDTH = ("CAST_FROM_BLOCK_SCALED", "CAST_TO_BLOCK_SCALED", "ROW_GATHER_BLOCK_SCALED")
