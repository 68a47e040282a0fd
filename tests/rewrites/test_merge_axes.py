"""Operators on more than six axes compute the same on fewer, between inputs and outputs that have few."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.merge_axes import RULE
from rewrites.remove_dead_code import TRANSFORM as REMOVE_DEAD_CODE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES
from tests.support.rules import apply, names, refusal, run
from tests.support.vela_pool import Job, compile_all
from tosakit.engine.driver import run_steps
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program

Arrays = Sequence[npt.NDArray[np.int32]]
Made = tuple[Tensor, npt.NDArray[np.int32]]
Make = Callable[[Builder, Sequence[Tensor], Arrays, st.DataObject], Made]
"""One operator on two tensors of many axes, and its result in numpy; the second has ones where the first has more."""


def _add(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    first = data.draw(st.integers(0, 1))
    return builder.add(tensors[first], tensors[1 - first]), arrays[0] + arrays[1]


def _per_channel(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    factors = np.arange(tensors[0].shape[-1]) + 1
    y = builder.rescale(tensors[0], DType.INT32, factors << 20, [20] * factors.size, scale32=True, per_channel=True)
    return y, arrays[0] * factors


def _axis(tensors: Sequence[Tensor], data: st.DataObject) -> int:
    return data.draw(st.integers(0, len(tensors[0].shape) - 1))


def _concat(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    axis = _axis(tensors, data)
    return builder.concat([tensors[0], tensors[0]], axis), np.concatenate([arrays[0]] * 2, axis)


def _reverse(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    x, axis = tensors[0], _axis(tensors, data)
    return builder.op(ops.Reverse(axis=axis), (x,), x.dtype, x.shape), np.flip(arrays[0], axis)


def _reduce(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    axis = _axis(tensors, data)
    y = arrays[0].max(axis, keepdims=True)
    attrs = ops.ReduceMax(axis=axis, nan_mode=NanPropagationMode.PROPAGATE)
    return builder.op(attrs, tensors[:1], tensors[0].dtype, y.shape), y


def _argmax(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    axis = _axis(tensors, data)
    y = arrays[0].argmax(axis).astype(np.int32)
    small = builder.rescale(tensors[0], DType.INT8, 1 << 30, 30, scale32=True)
    attrs = ops.ArgMax(axis=axis, nan_mode=NanPropagationMode.PROPAGATE)
    return builder.op(attrs, (small,), DType.INT32, y.shape), y


def _transpose(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    perms = data.draw(st.permutations(range(len(tensors[0].shape))))
    return builder.transpose(tensors[0], perms), arrays[0].transpose(perms)


def _pad(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    amounts = [data.draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 2)])) for _ in tensors[0].shape]
    return builder.pad(tensors[0], amounts, 7), np.pad(arrays[0], amounts, constant_values=7)


def _slice(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    start = [data.draw(st.integers(0, size - 1)) for size in tensors[0].shape]
    size = [data.draw(st.integers(1, size - first)) for size, first in zip(tensors[0].shape, start, strict=True)]
    taken = arrays[0][tuple(slice(a, a + b) for a, b in zip(start, size, strict=True))]
    return builder.slice(tensors[0], start, size), taken


def _tile(builder: Builder, tensors: Sequence[Tensor], arrays: Arrays, data: st.DataObject) -> Made:
    multiples = [data.draw(st.sampled_from([1, 1, 2])) for _ in tensors[0].shape]
    y = np.tile(arrays[0], multiples)
    return builder.op(ops.Tile(), (tensors[0], builder.const_shape(multiples)), tensors[0].dtype, y.shape), y


MAKES = (_add, _per_channel, _concat, _reverse, _reduce, _argmax, _transpose, _pad, _slice, _tile)


def _ranks(program: Program) -> list[int]:
    return [len(t.shape) for op in program.main.ops for t in op.outputs if t.dtype != DType.SHAPE]


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__[1:])
@settings(max_examples=5)
@given(st.data())
def test_every_operator_is_what_numpy_makes_of_it(make: Make, data: st.DataObject) -> None:
    """The reference model runs what comes out only: it has no more than six axes itself."""
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=7, max_size=8)))
    repeated = data.draw(st.integers(0, len(shape)))
    other = tuple(size if axis < repeated else 1 for axis, size in enumerate(shape))
    arrays = [(np.arange(math.prod(size), dtype=np.int32) * 37 % 101).reshape(size) for size in (shape, other)]
    net, builder = Net(), Builder("t")
    inputs = [net.input(name, DType.INT32, (each.size,)) for name, each in zip("ab", arrays, strict=True)]
    wide = [builder.reshape(x, each.shape) for x, each in zip(inputs, arrays, strict=True)]
    y, expected = make(builder, wide, arrays, data)
    flat = builder.reshape(y, (expected.size,))
    net.take(builder)
    program = run_steps(net.program(flat), [REMOVE_DEAD_CODE]).program  # an operand that was not asked for
    result = apply(RULE, program, when="all")
    assert max(_ranks(result.program)) <= 6
    [found] = run(result.program, *(each.reshape(-1) for each in arrays)).outputs
    assert found.tolist() == expected.reshape(-1).tolist()


def test_axes_that_move_together_are_one_transpose() -> None:
    """The windows of a video transformer."""
    net, builder = Net(), Builder("t")
    x = net.input("x", DType.INT8, (4, 4, 6, 5))
    windows = builder.transpose(builder.reshape(x, (1, 2, 2, 2, 2, 3, 2, 5)), (0, 1, 3, 5, 2, 4, 6, 7))
    y = builder.reshape(windows, (12, 8, 5))
    net.take(builder)
    program = net.program(y)
    result = apply(RULE, program, target=FAMILIES[0])
    assert names(result.program) == ["RESHAPE", "TRANSPOSE", "RESHAPE"]
    array = np.arange(480).astype(np.int8).reshape(4, 4, 6, 5)
    moved = array.reshape(1, 2, 2, 2, 2, 3, 2, 5).transpose(0, 1, 3, 5, 2, 4, 6, 7)
    [found] = run(result.program, array).outputs
    assert found.tolist() == moved.reshape(12, 8, 5).tolist()


def test_constants_and_what_has_few_axes() -> None:
    net = Net()
    x = net.input("x", DType.INT32, (2,) * 7)
    constant = net.const(np.arange(128).reshape((2,) * 7), DType.INT32)
    program = net.program(net.add(x, constant))
    result = apply(RULE, program, when="all")
    assert names(result.program) == ["RESHAPE", "ADD", "RESHAPE"]
    assert not apply(RULE, program).events
    few = Net()
    assert not apply(RULE, few.program(few.identity(few.input("x", DType.INT8, (2,) * 6))), when="all").events


def test_it_refuses_axes_that_are_repeated_in_turn() -> None:
    net = Net()
    x, y = net.input("x", DType.INT32, (2, 1) * 4), net.input("y", DType.INT32, (1, 2) * 4)
    assert "along 8 runs of axes, the target takes 6" in refusal(apply(RULE, net.program(net.add(x, y)), when="all"))


@pytest.mark.vela
def test_vela_takes_the_form() -> None:
    programs = []
    for make in (_concat, _reduce, _transpose):
        net, builder = Net(), Builder("t")
        x = builder.reshape(net.input("x", DType.INT8, (4, 4, 6)), (2, 2, 1, 2, 2, 3, 2))
        if make is _transpose:
            y = builder.transpose(x, (6, 4, 2, 0, 5, 3, 1))
        elif make is _concat:
            y = builder.concat([x, x], 3)
        else:
            attrs = ops.ReduceMax(axis=3, nan_mode=NanPropagationMode.PROPAGATE)
            y = builder.op(attrs, (x,), x.dtype, (2, 2, 1, 1, 2, 3, 2))
        flat = builder.reshape(y, (math.prod(y.shape),))
        net.take(builder)
        programs.append(net.program(flat))
    jobs = [
        Job("m", dumps(each), accelerator)
        for program in programs
        for each in (program, apply(RULE, program, target=FAMILIES[0]).program)
        for accelerator in FAMILIES
    ]
    assert [verdict.accepted for verdict in compile_all(jobs)] == [*[False] * 3, *[True] * 3] * 3
