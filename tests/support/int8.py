"""Build int8 programs, widen them, and check everything that holds for every widened program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rewrites.widen_int8_activations import TRANSFORM, Options
from tests.support.build import Net
from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode, RoundingMode
from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program, Region
from tosakit.ir.types import Array, encode
from tosakit.oracle.equivalence import Equivalence, Verdict, check_equivalence
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.spec.verify import verify

MODEL = ReferenceModel()
ONE = (1 << 30, 30)
"""Multiplier and shift of scale 1."""


class Int8Net(Net):
    """A block with int8 activations under construction."""

    def int8(self, name: str = "x", shape: Sequence[int] = (1, 4, 4, 2)) -> Tensor:
        """An int8 block input."""
        return self.input(name, DType.INT8, shape)

    def widening(self, x: Tensor, zero_point: int, name: str, scale: tuple[int, int] = ONE) -> Tensor:
        """RESCALE int8 to int32 by multiplier and shift."""
        return self.requantize(x, DType.INT32, scale, name, input_zp=zero_point)

    def narrowing(self, x: Tensor, zero_point: int, name: str, scale: tuple[int, int]) -> Tensor:
        """RESCALE int32 to int8 by multiplier and shift."""
        return self.requantize(x, DType.INT8, scale, name, output_zp=zero_point)

    def requantize(
        self,
        x: Tensor,
        dtype: DType,
        scale: tuple[npt.ArrayLike, npt.ArrayLike],
        name: str,
        *,
        input_zp: int = 0,
        output_zp: int = 0,
        scale32: bool = True,
        rounding_mode: RoundingMode = RoundingMode.SINGLE_ROUND,
        input_unsigned: bool = False,
        output_unsigned: bool = False,
    ) -> Tensor:
        """Any legal RESCALE."""
        multiplier, shift = (np.atleast_1d(np.asarray(part)) for part in scale)
        operands = (
            x,
            self.const(multiplier, DType.INT32 if scale32 else DType.INT16, f"{name}_multiplier"),
            self.const(shift, DType.INT8, f"{name}_shift"),
            self.const([input_zp], x.dtype, f"{name}_input_zp"),
            self.const([output_zp], dtype, f"{name}_output_zp"),
        )
        attrs = ops.Rescale(
            scale32=scale32,
            rounding_mode=rounding_mode,
            per_channel=multiplier.size > 1,
            input_unsigned=input_unsigned,
            output_unsigned=output_unsigned,
        )
        return self.op(attrs, operands, dtype, x.shape, name)

    def conv2d_int8(
        self,
        x: Tensor,
        weight: npt.ArrayLike,
        bias: Sequence[int],
        zero_point: int = 0,
        name: str = "acc",
        *,
        weight_dtype: DType = DType.INT8,
        weight_zp: int = 0,
    ) -> Tensor:
        """CONV2D int8 to INT32 with weights [OC, KH, KW, IC]."""
        weights = np.asarray(weight)
        operands = (
            x,
            self.const(weights, weight_dtype, f"{name}_weight"),
            self.const(np.asarray(bias), DType.INT32, f"{name}_bias"),
            self.const([zero_point], DType.INT8, f"{name}_input_zp"),
            self.const([weight_zp], weight_dtype, f"{name}_weight_zp"),
        )
        attrs = ops.Conv2d(pad=(0,) * 4, stride=(1, 1), dilation=(1, 1), acc_type=DType.INT32)
        shape = (x.shape[0], x.shape[1] - weights.shape[1] + 1, x.shape[2] - weights.shape[2] + 1, weights.shape[0])
        return self.op(attrs, operands, DType.INT32, shape, name)

    def table(self, x: Tensor, entries: npt.ArrayLike, name: str = "table") -> Tensor:
        """TABLE of 256 int8 entries."""
        return self.op(ops.Table(), (x, self.const(entries, DType.INT8, f"{name}_entries")), DType.INT8, x.shape, name)

    def average(self, x: Tensor, input_zp: int, output_zp: int, name: str = "average") -> Tensor:
        """AVG_POOL2D with a 2x2 window."""
        zeros = [self.const([z], DType.INT8, f"{name}_zp{i}") for i, z in enumerate((input_zp, output_zp))]
        attrs = ops.AvgPool2d(kernel=(2, 2), stride=(1, 1), pad=(0,) * 4, acc_type=DType.INT32)
        n, h, w, c = x.shape
        return self.op(attrs, (x, *zeros), DType.INT8, (n, h - 1, w - 1, c), name)

    def reshape(self, x: Tensor, shape: Sequence[int], name: str = "reshaped") -> Tensor:
        """RESHAPE of any dtype."""
        return self.op(ops.Reshape(), (x, self.shape(shape, f"{name}_shape")), x.dtype, shape, name)

    def concat(self, parts: Sequence[Tensor], axis: int, name: str = "joined") -> Tensor:
        """CONCAT."""
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.op(ops.Concat(axis=axis), parts, parts[0].dtype, shape, name)

    def shape(self, sizes: Sequence[int], name: str) -> Tensor:
        """A CONST_SHAPE."""
        data = encode(np.asarray(sizes, np.int64), DType.SHAPE)
        tensor = Tensor(name, DType.SHAPE, (len(sizes),), data, table="shapes")
        self.graph.add_op(Op(ops.ConstShape(), (), (tensor,)))
        return tensor

    def resize(self, x: Tensor, mode: ResizeMode, name: str = "resized") -> Tensor:
        """RESIZE to twice the height and width."""
        operands = [
            self.shape(sizes, f"{name}_{part}")
            for part, sizes in (("scale", (4, 2, 4, 2)), ("offset", (-1, -1)), ("border", (1, 1)))
        ]
        dtype = DType.INT32 if mode == ResizeMode.BILINEAR else x.dtype
        n, h, w, c = x.shape
        return self.op(ops.Resize(mode=mode), (x, *operands), dtype, (n, 2 * h, 2 * w, c), name)

    def several(self, attrs: Attributes, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> AnyOp:
        """An operator with any number of results."""
        return self.graph.add_op(Op(attrs, inputs, results))

    def outputs(self, *tensors: Tensor) -> Program:
        """The finished program."""
        self.graph.set_outputs(tensors)
        return Program([Region("main", [self.graph])])


@dataclass(frozen=True)
class Widened:
    """A widened program beside the one it was made from."""

    before: Program
    program: Program
    result: RewriteResult
    same: Equivalence

    @property
    def names(self) -> list[str]:
        """Operators of the main block without constants."""
        return [op.name for op in self.program.main.ops if op.name not in ("CONST", "CONST_SHAPE")]

    def of(self, name: str) -> list[AnyOp]:
        """The main block's operators of one type."""
        return [op for op in self.program.main.ops if op.name == name]

    @property
    def reasons(self) -> list[str]:
        """Why operators or borders stayed int8."""
        return [refused.reason for refused in self.result.refusals]


def widen(program: Program, *, vectors: int = 8, runs: bool = True, target: str = "", **options: Any) -> Widened:
    """Widen a copy of ``program`` and check what every result has to be.

    Legal, the same interface but for dtypes, valid wherever the original is, its local contract kept, left alone by a
    second run, and the same bytes again. ``runs=False`` for programs that the reference model cannot run.
    """
    chosen = {TRANSFORM.name: Options(**options)}
    before = dumps(program)
    result = run_steps(program.clone(), [TRANSFORM], target=target, options=chosen, for_check=True)
    assert dumps(program) == before
    after = result.program
    errors = [str(finding) for finding in verify(after) if finding.severity == "error"]
    assert errors == [], errors
    for old, new in zip(
        (program.main.inputs, program.main.outputs), (after.main.inputs, after.main.outputs), strict=True
    ):
        assert [(t.name, t.shape) for t in old] == [(t.name, t.shape) for t in new]
    for _, start, check in result.local_checks:
        breaches = list(check(start, after))
        assert breaches == [], breaches
    again = run_steps(program.clone(), [TRANSFORM], target=target, options=chosen)
    assert dumps(again.program) == dumps(after)
    once_more = run_steps(after.clone(), [TRANSFORM], target=target, options=chosen)
    assert not once_more.events
    assert dumps(once_more.program) == dumps(after)
    same = Equivalence(Verdict.UNKNOWN, 0, 0, 0, ())
    if runs:
        same = check_equivalence(program, after, vectors=vectors, boundary=result.boundary, model=MODEL)
        assert same.verdict in (Verdict.EQUAL, Verdict.DIFFERENT), same.message
    return Widened(program, after, result, same)


def values(program: Program, *inputs: npt.ArrayLike) -> tuple[Array, ...]:
    """Outputs of a program that is valid for these inputs."""
    run = MODEL.run(dumps(program), [np.asarray(array) for array in inputs])
    assert run.status is Status.VALID, run.message
    return run.outputs


EVERY_INT8: npt.NDArray[np.int8] = np.arange(-128, 128, dtype=np.int8).reshape(1, 16, 16, 1)
"""Every int8 value once."""
