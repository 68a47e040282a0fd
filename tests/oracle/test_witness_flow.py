"""Inputs that show what is not proved inside and behind control flow, on a way that the input really takes."""

import numpy as np
import pytest

import tosakit
from tests.engine.test_bounds_flow import cell, read, region, several, write
from tests.support.build import Net
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.types import INTEGER_RANGES, encode, numpy_dtype
from tosakit.numerics.intervals import Intervals
from tosakit.oracle.flatten import MOST_WAYS, ways
from tosakit.oracle.ranges import Safety
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.oracle.steering import pulled

pytestmark = pytest.mark.refmodel

I8, I16, I32, I48, BOOL = DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.BOOL
SHAPE = (1, 2)
TOP = INTEGER_RANGES[I32][1]


def unsafe(program, **inputs):
    """The operators shown unsafe, by block, with their witnesses."""
    found = tosakit.ranges(program, search=True, **inputs).operators
    return {(op.block, op.operator.split()[0]): op.witness for op in found if op.safety is Safety.UNSAFE}


def whole(program, witness):
    """What the reference model says of the whole program for this input."""
    arrays = [np.asarray(witness.inputs[t.name], numpy_dtype(t.dtype)) for t in program.main.inputs]
    return ReferenceModel().run(dumps(program), arrays).status


@pytest.mark.parametrize("wanted", [True, False])
def test_an_operator_of_a_branch_is_shown_with_an_input_that_takes_the_branch(wanted):
    net = Net()
    x, on = net.input("x", I32, SHAPE), net.input("on", BOOL, (1,))
    [y] = several(net, ops.CondIf("then", "else"), (on, x), [(I32, SHAPE)])
    program = net.program(y)
    for name, overflows in (("then", wanted), ("else", not wanted)):
        inner = Net(name)
        a = inner.input(f"{name}_a", I32, SHAPE)
        region(program, inner, inner.add(a, a, f"{name}_twice") if overflows else inner.identity(a, f"{name}_same"))
    found = unsafe(program)
    assert list(found) == [("then" if wanted else "else", "ADD")]
    [witness] = found.values()
    assert bool(witness.inputs["on"][0]) is wanted
    assert whole(program, witness) is not Status.VALID


def test_a_computed_condition_is_steered_too():
    """x + x overflows upwards only where z - 9 is more than 100; z is no random number that large."""
    net = Net()
    x, z = net.input("x", I32, (1,)), net.input("z", I32, (1,))
    large = net.op(
        ops.Greater(),
        (net.op(ops.Sub(), (z, net.const([9], I32)), I32, (1,), "d"), net.const([TOP - 99], I32)),
        BOOL,
        (1,),
        "large",
    )
    [y] = several(net, ops.CondIf("then", "else"), (large, x), [(I32, (1,))])
    program = net.program(y)
    then, other = Net("then"), Net("else")
    a = then.input("a", I32, (1,))
    region(program, then, then.add(a, a, "twice"))
    region(program, other, other.identity(other.input("b", I32, (1,)), "same"))
    found = unsafe(program, inputs={"z": (-1000, TOP)})
    assert [key for key in found if key[0] == "then"] == [("then", "ADD")]
    assert found["then", "ADD"].inputs["z"][0] > TOP - 90
    assert whole(program, found["then", "ADD"]) is not Status.VALID


def counted(turns, added):
    """total = 0; ``turns`` times: total += x."""
    net = Net()
    x = net.input("x", I32, SHAPE)
    start, total = net.const([0], I32, "zero"), net.const(np.zeros(SHAPE, int), I32, "nothing")
    shapes = [(I32, (1,)), (I32, SHAPE), (I32, SHAPE)]
    _, y, _ = several(net, ops.WhileLoop("cond", "body"), (start, total, x), shapes)
    program = net.program(y)
    cond, body = Net("cond"), Net("body")
    i = cond.input("ci", I32, (1,))
    cond.input("ct", I32, SHAPE), cond.input("cx", I32, SHAPE)
    region(program, cond, cond.op(ops.Greater(), (cond.const([turns], I32), i), BOOL, (1,), "more"))
    i, total, x = body.input("bi", I32, (1,)), body.input("bt", I32, SHAPE), body.input("bx", I32, SHAPE)
    region(program, body, body.add(i, body.const([1], I32), "next"), body.add(total, x, "more_total"), x)
    return program, {"x": (0, added)}


def test_a_sum_that_overflows_in_a_late_turn_is_shown():
    program, inputs = counted(20, (1 << 31) // 15)
    found = unsafe(program, inputs=inputs)
    assert list(found) == [("body", "ADD")]
    assert whole(program, found["body", "ADD"]) is not Status.VALID
    program, inputs = counted(20, (1 << 31) // 21)
    assert unsafe(program, inputs=inputs) == {}


def test_an_operator_behind_control_flow_is_reached_through_it():
    net = Net()
    x, on = net.input("x", I32, SHAPE), net.input("on", BOOL, (1,))
    [y] = several(net, ops.CondIf("then", "else"), (on, x), [(I32, SHAPE)])
    program = net.program(net.add(y, net.const([[TOP - 5] * 2], I32), "sum"))
    for name, value in (("then", 6), ("else", 5)):
        inner = Net(name)
        inner.input(f"{name}_a", I32, SHAPE)
        region(program, inner, inner.identity(inner.const([[value] * 2], I32, f"{name}_k"), f"{name}_y"))
    found = unsafe(program)
    assert bool(found["main", "ADD"].inputs["on"][0])
    assert whole(program, found["main", "ADD"]) is not Status.VALID


def test_a_variable_has_its_initial_value_in_a_first_run():
    net = Net()
    s, x = cell(net, dtype=I8), net.input("x", I32, SHAPE)
    state = read(net, s)
    write(net, net.input("z", I8, SHAPE), s)
    total = net.add(net.op(ops.Cast(), (state,), I32, SHAPE, "wide"), x)
    program = net.program(net.add(total, net.const([[1, 1]], I32), "more"))
    found = unsafe(program, inputs={"x": (0, TOP)})
    assert TOP in found["main", "ADD"].inputs["x"]


def test_ways_are_few_and_keep_their_conditions_apart():
    net = Net()
    x = net.input("x", I32, (1,))
    conditions = [net.input(f"on{n}", BOOL, (1,)) for n in range(6)]
    program = net.program(x)
    for n, on in enumerate(conditions):
        [x] = several(net, ops.CondIf(f"then{n}", f"else{n}"), (on, x), [(I32, (1,))])
        for name in (f"then{n}", f"else{n}"):
            inner = Net(name)
            region(program, inner, inner.identity(inner.input(f"{name}_x", I32, (1,)), f"{name}_y"))
    target = net.add(x, x)
    net.graph.set_outputs([target])
    found = list(ways(program, target.producer, {}))
    assert len(found) == MOST_WAYS
    assert len({tuple(way.conditions.values()) for way in found}) == MOST_WAYS
    assert all(way.op.name == "ADD" and not any(op.is_stateful for op in way.block.ops) for way in found)


# ------------------------------------------------------------------------------------------------ directions
def windows(kind):
    """A small operator of each kind: the net's input, and its result."""
    rng, net = np.random.default_rng(3), Net()
    small = lambda *shape: rng.integers(-9, 9, shape)  # noqa: E731
    zeros = net.const([0], I8), net.const([2], I8)
    if kind == "CONV3D":
        x = net.input("x", I8, (1, 2, 3, 3, 2))
        attrs = ops.Conv3d(pad=(1, 0, 0, 1, 1, 1), stride=(1, 2, 1), dilation=(1, 1, 2), acc_type=I32)
        operands = (x, net.const(small(3, 2, 2, 2, 2), I8), net.const([0, 0, 0], I32), *zeros)
        return net, x, net.op(attrs, operands, I32, (1, 2, 2, 3, 3), "y")
    if kind == "TRANSPOSE_CONV2D":
        x = net.input("x", I8, (1, 3, 2, 2))
        operands = (x, net.const(small(3, 3, 2, 2), I8), net.const([0, 0, 0], I32), *zeros)
        attrs = ops.TransposeConv2d(out_pad=(1, -1, -1, 2), stride=(2, 3), acc_type=I32)
        return net, x, net.op(attrs, operands, I32, (1, 7, 6, 3), "y")
    if kind == "GATHER":
        x = net.input("x", I8, (2, 4, 3))
        return net, x, net.op(ops.Gather(), (x, net.const([[1, 1, 3], [0, 2, 0]], I32)), I8, (2, 3, 3), "y")
    if kind == "SCATTER":
        x = net.input("x", I8, (1, 4, 3))
        rows = net.const(np.zeros((1, 2, 3), int), I8)
        return net, x, net.op(ops.Scatter(), (x, net.const([[2, 0]], I32), rows), I8, (1, 4, 3), "y")
    if kind == "TILE":
        x = net.input("x", I8, (2, 3))
        shape = net.graph.add_op(type(x.producer)(ops.ConstShape(), (), (tensor([2, 3]),))).output
        return net, x, net.op(ops.Tile(), (x, shape), I8, (4, 9), "y")
    x = net.input("x", I8, (1, 3, 4, 2))
    mode = ResizeMode.BILINEAR if "BILINEAR" in kind else ResizeMode.NEAREST
    sizes = [
        net.graph.add_op(type(x.producer)(ops.ConstShape(), (), (tensor(v),))).output
        for v in ([4, 2, 6, 4], [-1, 1], [1, 3])
    ]
    dtype = I32 if mode == ResizeMode.BILINEAR else I8
    return net, x, net.op(ops.Resize(mode), (x, *sizes), dtype, (1, 6, 6, 2), "y")


def tensor(values):
    from tosakit.ir.graph import Tensor

    return Tensor(f"shape{values}", DType.SHAPE, (len(values),), encode(values, DType.SHAPE), table="shapes")


@pytest.mark.parametrize(
    "kind", ["CONV3D", "TRANSPOSE_CONV2D", "GATHER", "SCATTER", "TILE", "RESIZE BILINEAR", "RESIZE NEAREST"]
)
def test_directions_are_what_single_values_do(kind):
    """The reference model answers to one input at a time being 1, which gives the weights of every element."""
    net, x, y = windows(kind)
    count = int(np.prod(x.shape))
    ones = np.eye(count, dtype=np.int8).reshape(count, *x.shape)
    runs = list(
        ReferenceModel().run_many(dumps(net.program(y)), [[one] for one in [np.zeros(x.shape, np.int8), *ones]])
    )
    assert all(run.status is Status.VALID for run in runs), runs[0].message
    answers = np.array([run.outputs[0].astype(int) for run in runs])
    answers = answers[1:] - answers[0]
    scale = 1 if kind != "RESIZE BILINEAR" else 4 * 6
    for element in [(0,) * len(y.shape), tuple(size - 1 for size in y.shape), tuple(size // 2 for size in y.shape)]:
        found = pulled(y.producer, element, 1, Intervals())[x]
        assert np.allclose(found.reshape(-1) * scale, answers[(slice(None), *element)]), (kind, element)


def test_a_transposed_convolution_is_steered_through():
    """Only one value of the sum overflows, by one."""
    net = Net()
    x = net.input("x", I16, (1, 2, 2, 4))
    weight = np.array([[[[60, -50, 3, 0]]]])
    acc = net.convolution(ops.TransposeConv2d, x, weight, [0])
    most = 32767 * 63 + 32768 * 50
    offset = net.const(np.full((1, 1, 1, 1), TOP - most + 1), I32)
    program = net.program(net.add(net.rescale(acc, I32, 1 << 14, 14), offset))
    assert ("main", "ADD") in unsafe(program)
