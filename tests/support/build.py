"""Build small programs for tests: a block under construction, with one method for each thing a graph is made of."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, ResizeMode, RoundingMode
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program, Region
from tosakit.ir.types import encode


@dataclass(frozen=True)
class Zeros:
    """Zero points of a RESCALE's constants, to build illegal ones: dtype and value of each."""

    input_dtype: DType | None = None
    input_value: int = 0
    output_dtype: DType | None = None
    output_value: int = 0


class Net:
    """The main block of a program under construction. Tensors get the names given, or free ones."""

    def __init__(self, name: str = "main") -> None:
        self.graph = Graph(name)

    def input(self, name: str, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A block input."""
        tensor = self.graph.add_tensor(Tensor(name, dtype, tuple(shape)))
        self.graph.set_inputs([*self.graph.inputs, tensor])
        return tensor

    def take(self, builder: Builder) -> None:
        """Add everything a builder made."""
        for op in builder.ops:
            self.graph.add_op(op)

    def const(self, values: npt.ArrayLike, dtype: DType, name: str = "const") -> Tensor:
        """A constant of the values' shape."""
        tensor = Tensor(name, dtype, np.shape(values), encode(values, dtype))
        self.graph.add_op(Op(ops.Const(), (), (tensor,)))
        return tensor

    def op(self, attrs: Attributes, inputs: Sequence[Tensor], dtype: DType, shape: Sequence[int], name: str) -> Tensor:
        """An operator with one result."""
        tensor = Tensor(name, dtype, tuple(shape))
        self.graph.add_op(Op(attrs, inputs, (tensor,)))
        return tensor

    def rescale(
        self,
        x: Tensor,
        dtype: DType,
        multiplier: npt.ArrayLike,
        shift: npt.ArrayLike,
        name: str = "y",
        *,
        scale32: bool = False,
        multiplier_dtype: DType | None = None,
        shift_dtype: DType = DType.INT8,
        zeros: Zeros | None = None,
        rounding_mode: RoundingMode = RoundingMode.SINGLE_ROUND,
        per_channel: bool | None = None,
        output_unsigned: bool = False,
    ) -> Tensor:
        """A RESCALE, legal by default; the dtypes of its constants can be set to make an illegal one."""
        zeros = zeros or Zeros()
        multipliers, shifts = np.atleast_1d(np.asarray(multiplier)), np.atleast_1d(np.asarray(shift))
        operands = (
            x,
            self.const(
                multipliers, multiplier_dtype or (DType.INT32 if scale32 else DType.INT16), f"{name}_multiplier"
            ),
            self.const(shifts, shift_dtype, f"{name}_shift"),
            self.const(np.array([zeros.input_value]), zeros.input_dtype or x.dtype, f"{name}_input_zp"),
            self.const(np.array([zeros.output_value]), zeros.output_dtype or dtype, f"{name}_output_zp"),
        )
        attrs = ops.Rescale(
            scale32=scale32,
            rounding_mode=rounding_mode,
            per_channel=multipliers.size > 1 if per_channel is None else per_channel,
            output_unsigned=output_unsigned,
        )
        return self.op(attrs, operands, dtype, x.shape, name)

    def convolution(
        self,
        kind: type[ops.Conv2d] | type[ops.Conv3d] | type[ops.DepthwiseConv2d] | type[ops.TransposeConv2d],
        x: Tensor,
        weight: npt.NDArray[np.generic],
        bias: Tensor | npt.ArrayLike,
        name: str = "acc",
    ) -> Tensor:
        """An INT16 x INT8 convolution with stride one and no padding.

        Weights as the operator takes them: [OC, KH, KW, IC], [OC, KD, KH, KW, IC] or, depthwise, [KH, KW, C, M].
        """
        zero_points = (self.const([0], DType.INT16, f"{name}_x_zp"), self.const([0], DType.INT8, f"{name}_w_zp"))
        bias = bias if isinstance(bias, Tensor) else self.const(bias, DType.INT48, f"{name}_bias")
        operands = (x, self.const(weight, DType.INT8, f"{name}_weight"), bias, *zero_points)
        acc = DType.INT48
        attrs: Attributes
        if kind is ops.DepthwiseConv2d:
            kernel, channels = weight.shape[:2], weight.shape[2] * weight.shape[3]
            attrs = ops.DepthwiseConv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=acc)
        else:
            kernel, channels = weight.shape[1:-1], weight.shape[0]
            if kind is ops.Conv3d:
                attrs = ops.Conv3d(pad=(0,) * 6, stride=(1, 1, 1), dilation=(1, 1, 1), acc_type=acc)
            elif kind is ops.TransposeConv2d:
                attrs = ops.TransposeConv2d(out_pad=(0,) * 4, stride=(1, 1), acc_type=acc)
            else:
                attrs = ops.Conv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=acc)
        grow = 1 if kind is ops.TransposeConv2d else -1
        spatial = [size + grow * (k - 1) for size, k in zip(x.shape[1:-1], kernel, strict=True)]
        return self.op(attrs, operands, acc, (x.shape[0], *spatial, channels), name)

    def conv2d(self, x: Tensor, weight: npt.ArrayLike, bias: Tensor | npt.ArrayLike, name: str = "acc") -> Tensor:
        """A 1x1 CONV2D; ``weight`` is [OC, IC]."""
        array = np.asarray(weight)
        return self.convolution(ops.Conv2d, x, array.reshape(array.shape[0], 1, 1, array.shape[1]), bias, name)

    def matmul(self, a: Tensor, b: Tensor, name: str = "acc") -> Tensor:
        """An INT16 MATMUL of [N, H, C] and [N, C, W]."""
        zero_points = (self.const([0], DType.INT16, f"{name}_a_zp"), self.const([0], DType.INT16, f"{name}_b_zp"))
        return self.op(ops.MatMul(), (a, b, *zero_points), DType.INT48, (*a.shape[:2], b.shape[2]), name)

    def upsample(self, x: Tensor, name: str = "acc") -> Tensor:
        """A bilinear INT16 RESIZE to twice the size less one; its result is INT48, scaled by 4."""
        builder = Builder(name)
        sizes = [
            builder.const_shape(s, n) for s, n in (((2, 1, 2, 1), "scale"), ((0, 0), "offset"), ((0, 0), "border"))
        ]
        self.take(builder)
        n, h, w, c = x.shape
        return self.op(ops.Resize(ResizeMode.BILINEAR), (x, *sizes), DType.INT48, (n, 2 * h - 1, 2 * w - 1, c), name)

    def add(self, a: Tensor, b: Tensor, name: str = "sum") -> Tensor:
        """ADD of two tensors of one dtype and rank."""
        return self.op(ops.Add(), (a, b), a.dtype, np.broadcast_shapes(a.shape, b.shape), name)

    def identity(self, x: Tensor, name: str = "same") -> Tensor:
        """IDENTITY."""
        return self.op(ops.Identity(), (x,), x.dtype, x.shape, name)

    def program(self, *outputs: Tensor) -> Program:
        """The finished program with these outputs."""
        self.graph.set_outputs(outputs)
        return Program([Region(self.graph.name or "", [self.graph])])


def canonical(program: Program) -> list[tuple[list[str], list[str]]]:
    """What the blocks of a program compute, whatever the names, the file order and the sharing of constants.

    For each block a digest of every needed operator with all that is above it, sorted, and those of the outputs.
    """
    return [_canonical_block(block) for block in program.blocks]


def _canonical_block(block: Graph) -> tuple[list[str], list[str]]:
    digests = {tensor: f"input {index}" for index, tensor in enumerate(block.inputs)}
    for op in block.ops:
        for index, tensor in enumerate(op.outputs):
            above = [digests.get(operand, operand.name) for operand in op.inputs]
            text = repr((index, op.attrs, tensor.dtype, tensor.shape, bytes(tensor.data or b""), above))
            digests[tensor] = hashlib.sha256(text.encode()).hexdigest()
    needed, todo = dict[AnyOp, None](), [t.producer for t in block.outputs]
    while todo:
        if (op := todo.pop()) is not None and op not in needed and op is not block.entry:
            needed[op] = None
            todo.extend(t.producer for t in op.inputs)
    operators = sorted(digests[op.output] for op in needed if not op.output.is_constant)
    return operators, [digests[t] for t in block.outputs]
