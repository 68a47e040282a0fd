"""Islands of BOOL tensors in INT32 are bit-identical, also where differences overflow, and refused as a whole."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites import PIPELINES
from rewrites.bool_as_int32 import RULE
from rewrites.remove_dead_code import TRANSFORM as REMOVE_DEAD_CODE
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted
from tests.support.rules import apply, kept, names, refusal, run
from tosakit.engine.driver import run_steps
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import check_equivalence

COMPARISONS = (ops.Greater(), ops.GreaterEqual(), ops.Equal())
LOGIC = (ops.LogicalAnd(), ops.LogicalOr(), ops.LogicalXor())
SHAPE = (2, 3)
CORNERS = (-(1 << 31), 1 - (1 << 31), -(1 << 30), -2, -1, 0, 1, 2, 1 << 30, (1 << 31) - 2, (1 << 31) - 1)


def _select(net: Net, condition: Tensor, x: Tensor, y: Tensor, name: str = "z") -> Tensor:
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    return net.op(ops.Select(), (condition, x, y), x.dtype, shape, name)


def _compared(kind: Attributes, dtype: DType = DType.INT8, shape: tuple[int, ...] = SHAPE) -> Program:
    net = Net()
    a, b = (net.input(name, DType.INT32, shape) for name in "ab")
    x, y = (net.input(name, dtype, shape) for name in "xy")
    return net.program(_select(net, net.op(kind, (a, b), DType.BOOL, shape, "p"), x, y))


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("kind", COMPARISONS, ids=lambda kind: kind.NAME)
def test_corner_values_compare_alike(kind: Attributes) -> None:
    count = len(CORNERS) ** 2
    program = _compared(kind, shape=(count,))
    pairs = np.array(np.meshgrid(CORNERS, CORNERS), np.int32).reshape(2, count)
    arrays = (*pairs, np.full(count, 127, np.int8), np.full(count, -128, np.int8))
    result = apply(RULE, program, when="all")
    before, after = (run(p, *arrays).outputs[0] for p in (program, result.program))
    assert 0 < np.count_nonzero(before == 127) < count
    assert np.array_equal(before, after)


class _Drawn:
    """A random island: integers narrow and wide, comparisons, logic, movement, reductions, and ways back."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.net = Net()
        narrow = self.net.input("narrow", DType.INT8, SHAPE)
        widened = self.net.rescale(narrow, DType.INT32, 1 << 30, 30, "widened", scale32=True)
        self.integers = [self.net.input("a", DType.INT32, SHAPE), self.net.input("b", DType.INT32, (1, 3)), widened]
        self.bools: list[Tensor] = []
        self.compare()

    def name(self) -> str:
        return f"t{len(self.net.graph.ops)}"

    def one_of(self, tensors: list[Tensor]) -> Tensor:
        return self.data.draw(st.sampled_from(tensors))

    def compare(self) -> None:
        a, b = self.one_of(self.integers), self.one_of(self.integers)
        shape = np.broadcast_shapes(a.shape, b.shape)
        self.bools.append(
            self.net.op(self.data.draw(st.sampled_from(COMPARISONS)), (a, b), DType.BOOL, shape, self.name())
        )

    def logic(self) -> None:
        p, q = self.one_of(self.bools), self.one_of(self.bools)
        shape = np.broadcast_shapes(p.shape, q.shape)
        self.bools.append(self.net.op(self.data.draw(st.sampled_from(LOGIC)), (p, q), DType.BOOL, shape, self.name()))

    def change(self) -> None:
        p, axis = self.one_of(self.bools), self.data.draw(st.integers(0, 1))
        reduced = tuple(1 if a == axis else size for a, size in enumerate(p.shape))
        attrs, shape = self.data.draw(
            st.sampled_from(
                [
                    (ops.LogicalNot(), p.shape),
                    (ops.ReduceAny(axis=axis), reduced),
                    (ops.ReduceAll(axis=axis), reduced),
                    (ops.Reverse(axis=axis), p.shape),
                    (ops.Identity(), p.shape),
                ]
            )
        )
        self.bools.append(self.net.op(attrs, (p,), DType.BOOL, shape, self.name()))

    def cast(self) -> None:
        x = self.one_of(self.integers)
        self.bools.append(self.net.op(ops.Cast(), (x,), DType.BOOL, x.shape, self.name()))

    def select(self) -> None:
        x, y = self.one_of(self.integers), self.one_of(self.integers)
        self.integers.append(_select(self.net, self.one_of(self.bools), x, y, self.name()))

    def constant(self) -> None:
        value = self.data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
        self.bools.append(self.net.const(np.array([value]), DType.BOOL, self.name()))

    def choose(self) -> None:
        p, q, r = (self.one_of(self.bools) for _ in range(3))
        self.bools.append(_select(self.net, p, q, r, self.name()))

    def program(self) -> Program:
        steps = [self.compare, self.logic, self.change, self.cast, self.select, self.constant, self.choose]
        for _ in range(self.data.draw(st.integers(2, 9))):
            self.data.draw(st.sampled_from(steps))()
        dtype = self.data.draw(st.sampled_from([DType.INT8, DType.INT16, DType.INT32]))
        x = self.net.input("x", dtype, SHAPE)
        chosen = _select(self.net, self.bools[-1], x, self.net.const(np.full((1, 3), -7), dtype), "chosen")
        p = self.one_of(self.bools)
        outputs = [chosen, self.net.op(ops.Cast(), (p,), dtype, p.shape, "cast"), self.net.identity(self.integers[-1])]
        return self.net.program(*outputs)


@settings(max_examples=25)
@given(st.data())
def test_every_island_is_identical(data: st.DataObject) -> None:
    program = _Drawn(data).program()
    result = apply(RULE, program, when="all")
    assert result.events
    cleaned = run_steps(result.program, [REMOVE_DEAD_CODE]).program
    assert not [t for t in cleaned.main.tensors if t.dtype == DType.BOOL]
    assert check_equivalence(program, cleaned, vectors=6).equal


def test_the_greater_of_what_is_compared_is_a_maximum() -> None:
    net = Net()
    a, b = (net.input(name, DType.INT32, SHAPE) for name in "ab")
    p = net.op(ops.GreaterEqual(), (a, b), DType.BOOL, SHAPE, "p")
    program = net.program(_select(net, p, a, b, "most"), _select(net, p, b, a, "least"))
    result = kept(apply(RULE, program, when="all"))
    assert sorted(names(result.program)) == ["MAXIMUM", "MINIMUM"]


def test_movement_and_padding_stay_movement_and_padding() -> None:
    net = Net()
    a, b = (net.input(name, DType.INT32, SHAPE) for name in "ab")
    builder = Builder("m")
    p = net.op(ops.Equal(), (a, b), DType.BOOL, SHAPE, "p")
    sizes = [builder.const_shape(sizes) for sizes in ([1, 0, 0, 2], [5, 3], [1, 0], [3, 2], [2, 1])]
    net.take(builder)
    padded = net.op(ops.Pad(), (p, sizes[0], net.const([True], DType.BOOL)), DType.BOOL, (3, 5), "padded")
    turned = net.op(ops.Transpose(perms=(1, 0)), (padded,), DType.BOOL, (5, 3), "turned")
    shaped = net.op(ops.Reshape(), (turned, sizes[1]), DType.BOOL, (5, 3), "shaped")
    part = net.op(ops.Slice(), (shaped, sizes[2], sizes[3]), DType.BOOL, (3, 2), "part")
    tiled = net.op(ops.Tile(), (part, sizes[4]), DType.BOOL, (6, 2), "tiled")
    joined = net.op(ops.Concat(axis=1), (tiled, tiled), DType.BOOL, (6, 4), "joined")
    program = net.program(net.op(ops.Cast(), (joined,), DType.INT8, (6, 4), "y"))
    result = kept(apply(RULE, program, when="all"))
    moves = ["PAD", "TRANSPOSE", "RESHAPE", "SLICE", "TILE", "CONCAT", "RESCALE"]
    assert names(result.program)[-len(moves) :] == moves
    assert check_equivalence(program, result.program, vectors=8).equal


def test_it_acts_only_where_a_target_needs_it() -> None:
    for target in ("", "ethos-u85-256"):
        result = apply(RULE, _compared(ops.Greater()), target=target)
        assert not result.events
        assert not result.refusals
    assert apply(RULE, _compared(ops.Greater()), target="ethos-u55-128").events


def test_a_bool_output_keeps_the_whole_island() -> None:
    program = _compared(ops.Greater())
    program.main.set_outputs([*program.main.outputs, program.main.tensor("p")])
    assert '"p" is an output of the graph and BOOL' in refusal(apply(RULE, program, when="all"))


def test_a_bool_input_keeps_the_whole_island() -> None:
    net = Net()
    p = net.input("p", DType.BOOL, SHAPE)
    program = net.program(net.op(ops.Cast(), (p,), DType.INT8, SHAPE, "y"))
    assert '"p" is an input of the graph and BOOL' in refusal(apply(RULE, program, when="all"))


def test_floating_point_is_refused() -> None:
    net = Net()
    a, b = (net.input(name, DType.FP32, SHAPE) for name in "ab")
    program = net.program(_select(net, net.op(ops.Greater(), (a, b), DType.BOOL, SHAPE, "p"), a, b))
    assert "holds FP32 values" in refusal(apply(RULE, program, when="all"))


def test_nothing_that_reads_it_is_nothing_to_do() -> None:
    net = Net()
    a, b = (net.input(name, DType.INT32, SHAPE) for name in "ab")
    net.op(ops.Equal(), (a, b), DType.BOOL, SHAPE, "p")
    result = apply(RULE, net.program(net.identity(a)), when="all")
    assert not result.events
    assert not result.refusals


@pytest.mark.vela
def test_vela_takes_the_forms_of_every_type() -> None:
    net = Net()
    shape = (1, 4, 4, 8)
    a, b = (net.input(name, DType.INT32, shape) for name in "ab")
    p = net.op(ops.Equal(), (a, b), DType.BOOL, shape, "p")
    chosen = []
    for dtype in (DType.INT8, DType.INT16, DType.INT32):
        x, y = (net.input(f"{name}_{dtype.name}", dtype, shape) for name in "xy")
        chosen.append(_select(net, p, x, y))
    program = net.program(*chosen)
    assert accepted(program, "ethos-u55-128") == []
    result = run_steps(program.clone(), PIPELINES["ethos-u"], target="ethos-u55-128")
    assert accepted(result.program) == list(FAMILIES)
