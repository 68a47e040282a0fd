"""Convolutions by the size of their result, for tests of what depends on strides."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.support.build import Net
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program

Pair = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """A convolution by the size of its result; the size of its operand follows."""

    out: Pair = (2, 2)
    kernel: Pair = (3, 3)
    stride: Pair = (4, 4)
    dilation: Pair = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    channels: Pair = (2, 3)
    batch: int = 1
    depthwise: bool = False
    wide: bool = False

    def size(self, axis: int) -> int:
        """Rows (0) or columns (1) of the operand; TOSA demands that the last window ends at the last one."""
        around = self.pad[2 * axis] + self.pad[2 * axis + 1]
        return (self.out[axis] - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1 - around


def convolution(case: Case, *, rescaled: bool = True, loose: bool = False) -> Program:
    """The convolution and a RESCALE behind it; with ``loose`` its weights are an input."""
    net, rng = Net(), np.random.default_rng(3)
    dtype, acc = (DType.INT16, DType.INT48) if case.wide else (DType.INT8, DType.INT32)
    inputs, outputs = case.channels
    x = net.input("x", dtype, (case.batch, case.size(0), case.size(1), inputs))
    shape = (*case.kernel, inputs, 1) if case.depthwise else (outputs, *case.kernel, inputs)
    weight = net.input("w", DType.INT8, shape) if loose else net.const(rng.integers(-127, 128, shape), DType.INT8, "w")
    outputs = inputs if case.depthwise else outputs
    constants = (
        net.const(rng.integers(-900, 900, outputs), acc, "bias"),
        net.const([0 if case.wide else -7], dtype, "x_zp"),
        net.const([0 if case.wide else 3], DType.INT8, "w_zp"),
    )
    kind = ops.DepthwiseConv2d if case.depthwise else ops.Conv2d
    attrs = kind(pad=case.pad, stride=case.stride, dilation=case.dilation, acc_type=acc)
    y = net.op(attrs, (x, weight, *constants), acc, (case.batch, *case.out, outputs), "acc")
    return net.program(net.rescale(y, dtype, 21000, 24) if rescaled else y)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Convolutions of every stride, dilation and padding, some depthwise."""
    kernel, dilation = draw(st.tuples(*[st.integers(1, 5)] * 2)), draw(st.tuples(*[st.sampled_from([1, 1, 2, 3])] * 2))
    pad = draw(st.tuples(*[st.integers(0, 2)] * 4))
    case = Case(
        out=draw(st.tuples(*[st.integers(1, 3)] * 2)),
        kernel=kernel,
        stride=draw(st.tuples(*[st.sampled_from([1, 2, 4, 5, 6, 7, 9])] * 2)),
        dilation=dilation,
        channels=(draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 40]))),
        batch=draw(st.integers(1, 2)),
        depthwise=draw(st.booleans()),
        wide=draw(st.booleans()),
    )
    padded = Case(**{**vars(case), "pad": pad})
    return padded if min(padded.size(0), padded.size(1)) > 0 else case
