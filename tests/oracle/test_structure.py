"""Programs that are the same computation as they stand, and programs that are not."""

from collections.abc import Callable

import pytest

from tests.support.build import Net
from tosakit.engine.rule import BoundaryChange
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor, TensorExtras
from tosakit.ir.program import Program, Region
from tosakit.oracle.structure import same_computation

I32 = DType.INT32


def difference(swapped: bool = False, constant: int = 5, name: str = "y") -> Program:
    """y = x - c - c, with the constant held twice."""
    net = Net()
    x = net.input("x", I32, (4,))
    left, right = net.const([constant], I32), net.const([5], I32)
    first = net.op(ops.Sub(), (left, x) if swapped else (x, left), I32, (4,), "first")
    return net.program(net.op(ops.Sub(), (first, right), I32, (4,), name))


def shared() -> Program:
    """The same, with one constant, other inner names and dead code."""
    net = Net()
    x = net.input("x", I32, (4,))
    net.op(ops.Abs(), (x,), I32, (4,), "dead")
    constant = net.const([5], I32, "five")
    first = net.op(ops.Sub(), (x, constant), I32, (4,), "difference")
    return net.program(net.op(ops.Sub(), (first, constant), I32, (4,), "y"))


def test_names_dead_code_and_shared_constants_make_no_difference() -> None:
    assert same_computation(difference(), shared())
    assert same_computation(shared(), difference())


def test_a_clone_is_the_same_computation() -> None:
    assert same_computation(difference(), difference().clone())


@pytest.mark.parametrize(
    "other",
    [
        lambda: difference(swapped=True),
        lambda: difference(constant=6),
        lambda: difference(name="z"),
        lambda: two_outputs("a", "b"),
    ],
    ids=["operand order", "a constant", "an output's name", "another graph"],
)
def test_anything_else_does(other: Callable[[], Program]) -> None:
    assert not same_computation(difference(), other())


def two_outputs(*names: str) -> Program:
    net = Net()
    x = net.input("x", I32, (4,))
    made = {
        "a": net.op(ops.Abs(), (x,), I32, (4,), "a"),
        "b": net.op(ops.BitwiseNot(), (x,), I32, (4,), "b"),
    }
    return net.program(*(made[name] for name in names))


def test_the_order_and_number_of_outputs_matters() -> None:
    assert same_computation(two_outputs("a", "b"), two_outputs("a", "b"))
    assert not same_computation(two_outputs("a", "b"), two_outputs("b", "a"))
    assert not same_computation(two_outputs("a", "b"), two_outputs("a", "b", "b"))


def test_the_inputs_matter_even_where_nothing_reads_them() -> None:
    with_two, with_one = Net(), Net()
    for net in (with_two, with_one):
        net.input("x", I32, (4,))
    with_two.input("unused", I32, (4,))
    assert not same_computation(with_two.program(with_two.graph.inputs[0]), with_one.program(with_one.graph.inputs[0]))


def state(*order: str) -> Program:
    """Reads and writes of one variable, in the given order; the output is what is read."""
    graph = Graph("main")
    cell = graph.add_tensor(Tensor("cell", I32, (4,), extras=TensorExtras(variable=True, variable_name="v")))
    x = graph.add_tensor(Tensor("x", I32, (4,)))
    graph.set_inputs([x])
    read = Tensor("read", I32, (4,))
    for step in order:
        if step == "read":
            graph.add_op(Op(ops.VariableRead(), (cell,), (read,)))
        else:
            graph.add_op(Op(ops.VariableWrite(), (x,), (cell,)))
    graph.set_outputs([read])
    return Program([Region("main", [graph])])


def test_the_order_of_effects_matters() -> None:
    assert same_computation(state("read", "write"), state("read", "write"))
    assert not same_computation(state("read", "write"), state("write", "read"))
    assert not same_computation(state("read", "write"), state("read"))


def read_around_a_write(which: int) -> Program:
    """Reads of one variable before and after a write; the output is one of them."""
    graph = Graph("main")
    cell = graph.add_tensor(Tensor("cell", I32, (4,), extras=TensorExtras(variable=True, variable_name="v")))
    x = graph.add_tensor(Tensor("x", I32, (4,)))
    graph.set_inputs([x])
    reads = [Tensor(f"read{number}", I32, (4,)) for number in range(2)]
    graph.add_op(Op(ops.VariableRead(), (cell,), (reads[0],)))
    graph.add_op(Op(ops.VariableWrite(), (x,), (cell,)))
    graph.add_op(Op(ops.VariableRead(), (cell,), (reads[1],)))
    graph.set_outputs([graph.add_op(Op(ops.Identity(), (reads[which],), (Tensor("y", I32, (4,)),))).output])
    return Program([Region("main", [graph])])


def test_what_is_read_before_a_write_is_not_what_is_read_after_it() -> None:
    assert same_computation(read_around_a_write(0), read_around_a_write(0))
    assert not same_computation(read_around_a_write(0), read_around_a_write(1))


def test_attributes_matter() -> None:
    def shifted(*, rounds: bool) -> Program:
        net = Net()
        x = net.input("x", I32, (4,))
        return net.program(net.op(ops.ArithmeticRightShift(rounds), (x, net.const([1], I32)), I32, (4,), "y"))

    assert same_computation(shifted(rounds=True), shifted(rounds=True))
    assert not same_computation(shifted(rounds=True), shifted(rounds=False))


def test_blocks_of_other_regions_matter() -> None:
    first, second = difference(), difference()
    first.regions.append(Region("branch", [difference().main]))
    second.regions.append(Region("branch", [difference(constant=6).main]))
    assert not same_computation(first, second)
    assert not same_computation(first, difference())


def negated(dtype: DType, casts: int = 1) -> Program:
    """NOT of an input and the input itself as outputs; INT8 behind and before CASTs where it is not BOOL."""
    net = Net()
    p = net.input("p", dtype, (2,))
    if dtype == DType.BOOL:
        return net.program(net.op(ops.LogicalNot(), (p,), dtype, (2,), "q"), p)
    x = p
    for count in range(2 * casts - 1):
        x = net.op(ops.Cast(), (x,), (DType.BOOL, DType.INT8)[count % 2], (2,), f"cast{count}")
    q = net.op(ops.LogicalNot(), (x,), DType.BOOL, (2,), "inner")
    return net.program(net.op(ops.Cast(), (q,), dtype, (2,), "q"), p)


def test_int8_may_stand_for_bool_at_the_border_only() -> None:
    changes = [BoundaryChange(name, DType.BOOL, DType.INT8, 0, 1) for name in ("p", "q")]
    assert same_computation(negated(DType.BOOL), negated(DType.INT8), changes)
    assert not same_computation(negated(DType.BOOL), negated(DType.INT8))
    assert not same_computation(negated(DType.BOOL), negated(DType.INT8), changes[:1])
    assert not same_computation(negated(DType.BOOL), negated(DType.INT8, casts=2), changes)
