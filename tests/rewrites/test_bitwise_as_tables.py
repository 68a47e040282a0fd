"""Bits by tables are identical, for every pair of bytes and every type."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.bitwise_as_tables import RULE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tests.support.rules import apply, kept, names, run
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES, numpy_dtype

U55 = FAMILIES[0]
DTYPES = (DType.INT8, DType.INT16, DType.INT32)
BINARY: tuple[Attributes, ...] = (ops.BitwiseAnd(), ops.BitwiseOr(), ops.BitwiseXor())


def _net(attrs: Attributes, dtype: DType, shape: tuple[int, ...], other: tuple[int, ...] | None = None) -> Program:
    net = Net()
    x = net.input("a", dtype, shape)
    operands = (x,) if isinstance(attrs, ops.BitwiseNot) else (x, net.input("b", dtype, other or shape))
    return net.program(net.op(attrs, operands, dtype, np.broadcast_shapes(shape, other or shape), "y"))


def _with_constant(attrs: Attributes, dtype: DType, values: list[int], first: bool) -> Program:
    net = Net()
    x, constant = net.input("a", dtype, (2, 4)), net.const([values], dtype)
    return net.program(net.op(attrs, (constant, x) if first else (x, constant), dtype, (2, 4), "y"))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("attrs", BINARY, ids=str)
def test_every_pair_of_int8_values(attrs: Attributes) -> None:
    program = _net(attrs, DType.INT8, (256, 1), (1, 256))
    result = apply(RULE, program, when="all")
    values = np.arange(-128, 128).astype(np.int8)
    [before], [after] = (run(p, values[:, None], values[None, :]).outputs for p in (program, result.program))
    assert np.array_equal(before, after)


@settings(max_examples=16)
@given(st.data())
def test_every_type_and_shape(data: st.DataObject) -> None:
    attrs, dtype = data.draw(st.sampled_from((*BINARY, ops.BitwiseNot()))), data.draw(st.sampled_from(DTYPES))
    shape = data.draw(st.sampled_from([(5,), (2, 3), (1, 4, 3)]))
    other = data.draw(st.sampled_from([shape, (1,) * len(shape), (*shape[:-1], 1)]))
    result = kept(apply(RULE, _net(attrs, dtype, shape, other), when="all"), vectors=3)
    assert not [name for name in names(result.program) if name.startswith("BITWISE")]


@settings(max_examples=16)
@given(st.data())
def test_constants_of_every_type(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    number = st.integers(*INTEGER_RANGES[dtype])
    values = data.draw(st.one_of(number.map(lambda v: [v]), st.lists(number, min_size=4, max_size=4)))
    program = _with_constant(data.draw(st.sampled_from(BINARY)), dtype, values, data.draw(st.booleans()))
    result = kept(apply(RULE, program, when="all"), vectors=4)
    if len(set(values)) == 1 and dtype == DType.INT8:
        assert names(result.program) == ["TABLE"]


def test_limits_of_int32() -> None:
    low, high = INTEGER_RANGES[DType.INT32]
    values = np.array([low, low + 1, -(1 << 23), -129, -1, 0, 1, 0x12345678, high], numpy_dtype(DType.INT32))
    pairs = np.array(np.meshgrid(values, values), values.dtype).reshape(2, -1)
    for attrs in BINARY:
        program = _net(attrs, DType.INT32, pairs[0].shape)
        [before], [after] = (run(p, *pairs).outputs for p in (program, apply(RULE, program, when="all").program))
        assert before.tolist() == after.tolist()


def test_it_acts_only_where_a_target_needs_it() -> None:
    program = _net(BINARY[0], DType.INT16, (4,))
    assert apply(RULE, program, target=U55).events
    assert not apply(RULE, program, target="ethos-u85-256").events
    assert not apply(RULE, program).events


@pytest.mark.vela
def test_vela_takes_the_forms() -> None:
    net = Net()
    outputs = []
    for dtype in DTYPES:
        a, b = net.input("a", dtype, (2, 4)), net.input("b", dtype, (2, 4))
        outputs += [net.op(BINARY[2], (a, other), dtype, (2, 4), "y") for other in (b, net.const([[3]], dtype))]
        outputs.append(net.op(ops.BitwiseNot(), (a,), dtype, (2, 4), "not"))
    program = net.program(*outputs)
    assert accepted(program, U55) == []
    result = apply(RULE, program, target=U55).program
    assert [hazard for hazard in hazards(result, U55) if hazard.kind == "miscompiled"] == []
    assert accepted(result) == list(FAMILIES)
