"""What is computed from constants alone is folded to what the reference model computes, or stays and says why."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.fold_constants import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import apply, kept, names, refusal
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES

INTEGERS = (DType.INT8, DType.INT16, DType.INT32)


def made(build: Callable[[Builder, Tensor], Tensor], values: np.ndarray, dtype: DType) -> Program:
    """An operator on a constant, whose result is an output."""
    builder = Builder("y")
    result = build(builder, builder.const(values, dtype, "c"))
    net = Net()
    net.take(builder)
    return net.program(result)


def shapes(attrs: Attributes, *operands: Sequence[int], size: int) -> Program:
    """A shape operator whose result is the shape that a RESHAPE asks for."""
    builder = Builder("s")
    tensors = [builder.const_shape(operand) for operand in operands]
    result = Tensor("sizes", DType.SHAPE, (size,), table="shapes")
    builder.ops.append(Op(attrs, tensors, (result,)))
    net = Net()
    x = net.input("x", DType.INT8, (24,))
    net.take(builder)
    return net.program(net.op(ops.Reshape(), (x, result), DType.INT8, (-1,) * size, "y"))


def folded(program: Program) -> list[int]:
    """The values of the only output, which is a constant now."""
    [output] = program.main.outputs
    assert output.is_constant
    return list(output.values().reshape(-1).tolist())


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE)


MOVES: list[Callable[[Builder, Tensor], Tensor]] = [
    lambda b, x: b.reshape(x, (x.shape[1], x.shape[0])),
    lambda b, x: b.transpose(x, (1, 0)),
    lambda b, x: b.slice(x, (x.shape[0] - 1, 0), (1, x.shape[1])),
    lambda b, x: b.concat([x, x], 1),
    lambda b, x: b.pad(x, ((1, 0), (0, 2)), 3),
    lambda b, x: b.op(ops.Reverse(axis=1), (x,), x.dtype, x.shape),
    lambda b, x: b.op(ops.Tile(), (x, b.const_shape((2, 3))), x.dtype, (x.shape[0] * 2, x.shape[1] * 3)),
    lambda b, x: b.identity(x),
]


@settings(max_examples=30)
@given(st.data())
def test_moved_and_cast_constants_are_identical(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    low, high = INTEGER_RANGES[dtype]
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    values = np.random.default_rng(data.draw(st.integers(0, 99))).integers(low, high, shape, endpoint=True)
    chain = data.draw(st.lists(st.sampled_from(MOVES), min_size=1, max_size=3))
    target = data.draw(st.sampled_from(INTEGERS))

    def build(builder: Builder, x: Tensor) -> Tensor:
        for move in chain:
            x = move(builder, x)
        return x if target == dtype else builder.op(ops.Cast(), (x,), target, x.shape)

    result = kept(apply(RULE, made(build, values, dtype)))
    assert names(result.program) == []


@settings(max_examples=30)
@given(st.integers(1, (1 << 15) - 1), st.integers(8, 40), st.booleans(), st.integers(-128, 127))
def test_rescaled_constants_are_identical(multiplier: int, shift: int, double: bool, zero_point: int) -> None:
    mode = RoundingMode.DOUBLE_ROUND if double else RoundingMode.SINGLE_ROUND

    def build(builder: Builder, x: Tensor) -> Tensor:
        return builder.rescale(
            x, DType.INT8, multiplier, shift, scale32=double, output_zp=zero_point, rounding_mode=mode
        )

    result = kept(apply(RULE, made(build, np.arange(-8, 8) * 7, DType.INT32)))
    assert names(result.program) == []


def test_it_refuses_a_rounding_that_is_open() -> None:
    def build(builder: Builder, x: Tensor) -> Tensor:
        return builder.rescale(x, DType.INT8, 5, 8, scale32=True, rounding_mode=RoundingMode.INEXACT_ROUND)

    assert "INEXACT_ROUND" in refusal(apply(RULE, made(build, np.arange(4), DType.INT32)))


def test_a_cast_keeps_the_low_bits() -> None:
    def build(builder: Builder, x: Tensor) -> Tensor:
        return builder.op(ops.Cast(), (x,), DType.INT8, x.shape)

    result = kept(apply(RULE, made(build, np.array([127, 128, -129, 1 << 20]), DType.INT32)))
    assert folded(result.program) == [127, -128, 127, 0]


@pytest.mark.parametrize(
    ("source", "values", "target", "wanted"),
    [
        (DType.INT8, [0, 1, -1, 5], DType.BOOL, [False, True, True, True]),
        (DType.BOOL, [True, False], DType.INT8, [1, 0]),
        (DType.BOOL, [True, False], DType.BOOL, [True, False]),
        (DType.FP16, [0.5, -3.0], DType.FP32, [0.5, -3.0]),
        (DType.BF16, [0.5, -3.0], DType.FP32, [0.5, -3.0]),
        (DType.FP32, [0.5, -3.0], DType.INT8, None),
        (DType.FP32, [0.5, -3.0], DType.FP16, None),
        (DType.INT8, [0, 5], DType.FP32, None),
    ],
)
def test_a_cast_is_folded_where_nothing_is_rounded(
    source: DType, values: list[float], target: DType, wanted: list[float] | None
) -> None:
    def build(builder: Builder, x: Tensor) -> Tensor:
        return builder.op(ops.Cast(), (x,), target, x.shape)

    program = made(build, np.array(values), source)
    result = apply(RULE, program)
    assert (folded(result.program) if result.events else None) == wanted


def test_a_cast_to_64_bits_keeps_the_value() -> None:
    def build(builder: Builder, x: Tensor) -> Tensor:
        return builder.op(ops.Cast(), (x,), DType.INT64, x.shape)

    assert folded(apply(RULE, made(build, np.array([-5, 1 << 30]), DType.INT32)).program) == [-5, 1 << 30]


@pytest.mark.parametrize(
    ("attrs", "operands", "wanted"),
    [
        (ops.AddShape(), ([2, 3], [4, 1]), [6, 4]),
        (ops.SubShape(), ([8, 4], [2, 0]), [6, 4]),
        (ops.MulShape(), ([2, 2], [3, 2]), [6, 4]),
        (ops.MaxShape(), ([6, 1], [2, 4]), [6, 4]),
        (ops.MinShape(), ([6, 9], [8, 4]), [6, 4]),
        (ops.ModShape(), ([16, 9], [10, 5]), [6, 4]),
        (ops.DivCeilShape(), ([11, 7], [2, 2]), [6, 4]),
        (ops.DivFloorShape(), ([13, 9], [2, 2]), [6, 4]),
        (ops.Exp2Shape(), ([3, 0],), [8, 1]),
        (ops.Log2CeilShape(), ([5, 8],), [3, 3]),
        (ops.Log2FloorShape(), ([7, 8],), [2, 3]),
        (ops.Log2CeilShape(), ([0, 1],), [0, 0]),
        (ops.ConcatShape(), ([6], [4]), [6, 4]),
        (ops.SliceShape(), ([1, 6, 4], [1], [2]), [6, 4]),
    ],
    ids=lambda value: value.NAME if isinstance(value, Attributes) else "",
)
def test_shapes(attrs: Attributes, operands: tuple[list[int], ...], wanted: list[int]) -> None:
    result = apply(RULE, shapes(attrs, *operands, size=2))
    assert names(result.program) == ["RESHAPE"]
    [reshape] = (op for op in result.program.main.ops if isinstance(op.attrs, ops.Reshape))
    assert reshape.inputs[1].values().tolist() == wanted


def test_it_refuses_what_tosa_leaves_open() -> None:
    program = made(
        lambda b, x: b.rescale(x, DType.INT32, 1 << 30, 2, scale32=True), np.array([1, 1 << 20]), DType.INT32
    )
    assert "TOSA does not say what it makes of 1048576" in refusal(apply(RULE, program))


@pytest.mark.parametrize(
    ("attrs", "operands", "reason"),
    [
        (ops.SubShape(), ([1], [2]), "a size would be -1"),
        (ops.MulShape(), ([1 << 62], [2]), f"a size would be {1 << 63}"),
        (ops.Exp2Shape(), ([100],), f"a size would be {1 << 63}"),
        (ops.DivFloorShape(), ([4], [0]), "it divides a size by 0"),
        (ops.ModShape(), ([4], [0]), "it divides a size by 0"),
    ],
    ids=lambda value: value.NAME if isinstance(value, Attributes) else "",
)
def test_it_refuses_what_is_no_size(attrs: Attributes, operands: tuple[list[int], ...], reason: str) -> None:
    assert refusal(apply(RULE, shapes(attrs, *operands, size=1))) == reason


def test_it_refuses_to_make_a_file_larger_than_asked() -> None:
    program = made(MOVES[6], np.zeros((4, 4), np.int64), DType.INT8)
    assert "its result has 96 bytes, its operands 32: over 63 more" in refusal(apply(RULE, program, growth=63))
    assert apply(RULE, program, growth=64).events


def test_floats_are_moved_and_widened_but_not_computed() -> None:
    def cast(target: DType) -> Callable[[Builder, Tensor], Tensor]:
        return lambda b, x: b.op(ops.Cast(), (x,), target, x.shape)

    values = np.array([1.5, -0.0, 65504.0], np.float16)
    assert kept(apply(RULE, made(cast(DType.FP32), values, DType.FP16))).events
    assert not apply(RULE, made(cast(DType.INT8), values, DType.FP16)).events
    assert not apply(RULE, made(cast(DType.FP16), values.astype(np.float32), DType.FP32)).events


def weights(lead: Callable[[Builder, Tensor], Tensor]) -> Program:
    """A 1x1 CONV2D whose weights [4, 1, 1, 2] are made of a constant."""
    net = Net()
    x = net.input("x", DType.INT8, (1, 3, 3, 2))
    builder = Builder("w")
    weight = lead(builder, builder.const(np.arange(8).reshape(1, 1, 2, 4), DType.INT8))
    net.take(builder)
    zeros = [net.const(np.array([0]), DType.INT8, f"zp{i}") for i in range(2)]
    bias = net.const(np.zeros(4, np.int64), DType.INT32, "bias")
    attrs = ops.Conv2d(pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), local_bound=False, acc_type=DType.INT32)
    return net.program(net.op(attrs, (x, weight, bias, *zeros), DType.INT32, (1, 3, 3, 4), "y"))


def test_for_a_target_only_what_it_demands_to_be_constant() -> None:
    chain = weights(lambda b, x: b.identity(b.transpose(x, (3, 0, 1, 2))))
    assert names(kept(apply(RULE, chain, target="ethos-u55-128")).program) == ["CONV2D"]
    addend = made(
        lambda b, x: b.add(x, b.rescale(x, DType.INT32, 1 << 30, 29, scale32=True)), np.arange(4), DType.INT32
    )
    assert names(apply(RULE, addend).program) == ["ADD"]
    assert not apply(RULE, addend, target="ethos-u55-128").events


@pytest.mark.vela
def test_vela_takes_the_weights() -> None:
    program = weights(lambda b, x: b.transpose(x, (3, 0, 1, 2)))
    assert accepted(program, "ethos-u55-128") == []
    assert accepted(apply(RULE, program, target="ethos-u55-128").program) == list(FAMILIES)
