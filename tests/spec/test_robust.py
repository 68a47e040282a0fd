"""The verifier raises for nothing that loads. What it must not reject is in tests/testing/test_generators.py."""

import random
import sys
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spec.cases import CASES, Case
from tests.spec.nets import Block, Net
from tosakit.errors import TosakitError
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import BlockSize, DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import byte_size
from tosakit.spec.check import check
from tosakit.spec.diagnostics import CODES
from tosakit.spec.files import check_file
from tosakit.spec.target import Target
from tosakit.spec.verify import verify

SIZES = st.integers(-3, 5)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-2, 6),
    tuple[int, ...]: st.lists(st.integers(-2, 3), max_size=6).map(tuple),
    bytes: st.binary(max_size=9),
    str: st.sampled_from(["main", "other", ""]),
    **{
        enum: st.one_of(st.sampled_from(list(enum)), st.integers(0, 40))
        for enum in (DType, BlockSize, NanPropagationMode, ResizeMode, RoundingMode)
    },
}


@st.composite
def attributes(draw: st.DrawFn) -> Attributes:
    """Any operator with any attributes, sensible or not."""
    cls = draw(st.sampled_from(ops.OPERATORS))
    return cls(*[draw(VALUES[field.type]) for field in fields(cls)])


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Two regions of operators on tensors of any type and shape."""
    net = Net(Block(), {}, draw(st.integers(0, 1)))
    for block in (net.main, net.region("other")):
        tensors: list[Tensor] = []
        for _ in range(draw(st.integers(1, 5))):
            dtype = draw(st.sampled_from(DType))
            shape = draw(st.lists(SIZES, max_size=5))
            if draw(st.booleans()):
                size = max(0, byte_size(dtype, tuple(shape)))
                data = draw(st.one_of(st.none(), st.binary(min_size=size, max_size=size + 1)))
                tensors.append(block.raw(dtype, shape, data))
            else:
                tensors.append(block.input(dtype, *shape))
        for _ in range(draw(st.integers(1, 4))):
            operands = draw(st.lists(st.sampled_from(tensors), max_size=5))
            results = draw(st.lists(st.tuples(st.sampled_from(DType), st.lists(SIZES, max_size=5)), max_size=3))
            tensors += block.op(draw(attributes()), operands, *results)
    return net.program()


@settings(max_examples=150, deadline=None)
@given(programs())
def test_nonsense_gives_diagnostics_and_no_exception(program: Program) -> None:
    found = verify(program)
    assert all(d.code in CODES and str(d) for d in found)
    assert [str(d) for d in verify(program)] == [str(d) for d in found]
    for target in ({}, {"profiles": ["pro-int"], "level": "8k", "spec": "1.0"}):
        found = check(program, **target)
        assert all(d.code in CODES and str(d) for d in found)
        assert [str(d) for d in check(program, **target)] == [str(d) for d in found]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_flipped_bytes_of_a_file_give_diagnostics_and_no_exception(case: Case) -> None:
    try:
        original = dumps(case.program(broken=False))
    except TosakitError:
        pytest.skip("this program cannot be written to a file")
    rng = random.Random(case.code)
    loaded = 0
    for _ in range(60):
        data = bytearray(original)
        for _ in range(rng.choice((1, 2, 4))):
            data[rng.randrange(8, len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        report = check_file(bytes(data), Target())
        assert all(d.code in CODES and str(d) for d in report.diagnostics)
        program = report.program
        if program is None:
            assert report.has_errors
            continue
        loaded += 1
        assert all(d.code in CODES and str(d) for d in check(program, level="8k"))
    assert loaded


def chain(length: int) -> Program:
    """ADDs in a row that share one constant, a tensor nobody declares before each, and as many regions in a row."""
    net = Net(Block(), {})
    x = net.main.input(DType.FP32, 2)
    shared = net.main.const([1.0, 2.0], DType.FP32)
    for number in range(length):
        ghost = net.main.declare(DType.UNKNOWN, (), "ghost", table="undeclared")
        (y,) = net.main.op(ops.Add(), [x, ghost], (DType.FP32, [2]))
        (x,) = net.main.op(ops.Add(), [y, shared], (DType.FP32, [2]))
        region = net.region(f"region{number}")
        z = region.input(DType.FP32, 2)
        following = f"region{min(number + 1, length - 1)}"
        region.op(ops.CondIf(following, following), [region.const([True], DType.BOOL), z], (DType.FP32, [2]))
    return net.program()


def test_work_is_linear_in_the_number_of_operators() -> None:
    """Counted in function calls, so that the clock plays no part."""

    def calls(program: Program) -> int:
        count = 0

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            verify(program)
        finally:
            sys.setprofile(None)
        return count

    calls(chain(1))  # reads the tables
    one, two, four = (calls(chain(n)) for n in (100, 200, 400))
    assert four - two == pytest.approx(2 * (two - one), rel=0.05)
