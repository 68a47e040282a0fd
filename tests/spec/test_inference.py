"""Result types for rule authors."""

import numpy as np
import pytest

from tests.spec.nets import F32, I8, I16, I32, I48, Block
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.spec.inference import ResultType, result_types


def test_convolution() -> None:
    b = Block()
    operands = [
        b.input(I16, 1, 8, 8, 3),
        b.const(np.zeros((4, 3, 3, 3), np.int64), I8),
        b.const([0] * 4, I48),
        b.const([0], I16),
        b.const([0], I8),
    ]
    attrs = ops.Conv2d((1, 1, 1, 1), (1, 1), (1, 1), False, I48)
    assert result_types(attrs, operands) == (ResultType(I48, (1, 8, 8, 4)),)
    with pytest.raises(InvalidArgument, match=r"acc_type is INT32, it must be INT48"):
        result_types(ops.Conv2d((1, 1, 1, 1), (1, 1), (1, 1), False, I32), operands)


def test_two_results() -> None:
    assert result_types(ops.RFFT2d(), [Block().input(F32, 1, 4, 8)]) == (ResultType(F32, (1, 4, 5)),) * 2


def test_broadcast_and_unknown_sizes() -> None:
    b = Block()
    assert result_types(ops.Add(), [b.input(I32, 1, -1, 1), b.input(I32, 2, 1, 3)]) == (ResultType(I32, (2, None, 3)),)
    with pytest.raises(InvalidArgument, match="different ranks"):
        result_types(ops.Add(), [b.input(I32, 1), b.input(I32, 1, 1)])


def test_layout() -> None:
    b = Block()
    x = b.input(I8, 2, 3)
    assert result_types(ops.Transpose((1, 0)), [x]) == (ResultType(I8, (3, 2)),)
    assert result_types(ops.Reshape(), [x, b.shape(6)]) == (ResultType(I8, (6,)),)
    assert result_types(ops.Concat(1), [x, x, x]) == (ResultType(I8, (2, 9)),)
    assert result_types(ops.Tile(), [x, b.shape(2, 2)]) == (ResultType(I8, (4, 6)),)
    assert result_types(ops.ArgMax(0, NanPropagationMode.PROPAGATE), [x]) == (ResultType(I32, (3,)),)
    assert result_types(ops.Cast(), [x]) == (ResultType(None, (2, 3)),)


def test_refusals() -> None:
    b = Block()
    with pytest.raises(InvalidArgument, match="ADD takes input1, input2; 1 operands are given"):
        result_types(ops.Add(), [b.input(I32, 2)])
    with pytest.raises(InvalidArgument, match="the results of CUSTOM do not follow"):
        result_types(ops.Custom(), [b.input(I32, 2)])
    with pytest.raises(InvalidArgument, match="the results of CONST do not follow"):
        result_types(ops.Const(), [])
    with pytest.raises(InvalidArgument, match=r"TOSA 1\.1, the file says 1\.0"):
        result_types(ops.Add(), [b.input(DType.INT64, 2), b.input(DType.INT64, 2)])
    assert result_types(ops.Add(), [b.input(DType.INT64, 2), b.input(DType.INT64, 2)], minor=1)[0].shape == (2,)
