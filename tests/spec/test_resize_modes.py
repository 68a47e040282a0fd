"""RESIZE: the mode and the operand's type say the result's type; the reference model agrees on every pair."""

import itertools

import numpy as np
import pytest

from tests.support.build import Net
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.types import numpy_dtype
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.spec.verify import verify

LEGAL = {
    (ResizeMode.NEAREST, DType.INT8, DType.INT8),
    (ResizeMode.NEAREST, DType.INT16, DType.INT16),
    (ResizeMode.BILINEAR, DType.INT8, DType.INT32),
    (ResizeMode.BILINEAR, DType.INT16, DType.INT48),
}
PAIRS = [(DType.INT8, DType.INT8), (DType.INT8, DType.INT32), (DType.INT16, DType.INT16), (DType.INT16, DType.INT48)]


@pytest.mark.refmodel
@pytest.mark.parametrize(
    ("mode", "pair"), list(itertools.product((ResizeMode.NEAREST, ResizeMode.BILINEAR), PAIRS)), ids=str
)
def test_the_mode_says_the_type(mode: ResizeMode, pair: tuple[DType, DType]) -> None:
    net, builder = Net(), Builder("c")
    x = net.input("x", pair[0], (1, 2, 2, 1))
    sizes = [builder.const_shape(values) for values in ([2, 1, 2, 1], [0, 0], [1, 1])]
    net.take(builder)
    program = net.program(net.op(ops.Resize(mode), (x, *sizes), pair[1], (1, 4, 4, 1), "y"))
    legal = (mode, *pair) in LEGAL
    assert [d.code for d in verify(program) if d.severity == "error"] == ([] if legal else ["WrongOutputType"])
    run = ReferenceModel().run(dumps(program), [np.ones(x.shape, numpy_dtype(pair[0]))])
    assert (run.status is Status.VALID) == legal
