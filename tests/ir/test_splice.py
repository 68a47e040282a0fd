"""Splicing: names of outputs, readers that stay, and what goes."""

from collections.abc import Sequence

import pytest

from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.text import format_graph, parse_program
from tosakit.ir.types import QuantParams

I32 = DType.INT32


def abs_of(x: Tensor, name: str = "new") -> AnyOp:
    return Op(ops.Abs(), [x], [Tensor(name, x.dtype, x.shape)])


def lines(graph: Graph) -> list[str]:
    return [line.strip() for line in format_graph(graph).splitlines()[1:-1]]


def read(*statements: str, outputs: Sequence[str] = ("y",)) -> Graph:
    names = ", ".join(f"%{name}" for name in outputs)
    return parse_program(f"block (%x: INT32[2]) -> ({names}) {{" + "\n".join(statements) + "}").main


def test_a_value_that_is_read_and_an_output_too() -> None:
    """Inserting behind y: the output keeps name and place, the inner reader moves, nothing reads itself."""
    graph = read("%y: INT32[2] = CLZ(%x)", "%z: INT32[2] = ABS(%y)", outputs=["y", "z", "y"])
    clz, reader = graph.ops
    new = abs_of(clz.output)
    graph.splice(clz, [new], {clz.output: new.output})
    assert [t.name for t in graph.outputs] == ["y", "z", "y"]
    assert graph.outputs[0] is new.output
    assert reader.inputs == (new.output,)
    assert new.inputs == (clz.output,)
    assert lines(graph) == ["%new: INT32[2] = CLZ(%x)", "%y: INT32[2] = ABS(%new)", "%z: INT32[2] = ABS(%y)"]


def test_uses_can_be_kept() -> None:
    graph = read("%y: INT32[2] = CLZ(%x)", "%z: INT32[2] = ABS(%y)", "%w: INT32[2] = ABS(%y)", outputs=["z", "w"])
    clz, z, w = graph.ops
    new = graph.add_op(abs_of(clz.output), like=z)
    graph.replace_uses(clz.output, new.output, keep=[new, w])
    assert (z.inputs, w.inputs, new.inputs) == ((new.output,), (clz.output,), (clz.output,))


def test_replacing_a_value_by_itself_changes_nothing() -> None:
    graph = read("%y: INT32[2] = CLZ(%x)")
    before = lines(graph)
    y = graph.tensor("y")
    graph.replace_uses(y, y)
    graph.splice(graph.ops[0], [], {y: y})
    assert lines(graph) == before


def test_an_older_value_takes_over_an_output_name() -> None:
    graph = read("%a: INT32[2] = CLZ(%x)", "%y: INT32[2] = ABS(%a)", "%z: INT32[2] = ABS(%a)", outputs=["y", "z"])
    a, y = graph.tensor("a"), graph.tensor("y")
    graph.splice(graph.ops[1], [], {y: a})
    assert lines(graph) == ["%y: INT32[2] = CLZ(%x)", "%z: INT32[2] = ABS(%y)"]
    assert graph.outputs[0] is a


def test_an_older_value_keeps_its_name_where_no_output_is_replaced() -> None:
    graph = read("%a: INT32[2] = CLZ(%x)", "%b: INT32[2] = ABS(%a)", "%y: INT32[2] = ABS(%b)")
    graph.splice(graph.ops[1], [], {graph.tensor("b"): graph.tensor("a")})
    assert lines(graph) == ["%a: INT32[2] = CLZ(%x)", "%y: INT32[2] = ABS(%a)"]


@pytest.mark.parametrize("outputs", [["y"], ["y", "x"], ["y", "y"]])
def test_an_input_cannot_lend_its_name_to_an_output(outputs: list[str]) -> None:
    graph = read("%y: INT32[2] = CLZ(%x)", outputs=outputs)
    graph.splice(graph.ops[0], [], {graph.tensor("y"): graph.tensor("x")})
    assert lines(graph) == ["%y: INT32[2] = IDENTITY(%x)"]
    assert [t.name for t in graph.outputs] == outputs


def test_one_new_value_under_two_output_names() -> None:
    graph = read("%y: INT32[2] = CLZ(%x)", "%z: INT32[2] = CLZ(%x)", outputs=["y", "z"])
    y, z = graph.ops
    new = abs_of(graph.tensor("x"))
    erased = graph.splice(y, [new], {y.output: new.output, z.output: new.output})
    assert lines(graph) == ["%y: INT32[2] = ABS(%x)", "%z: INT32[2] = IDENTITY(%y)"]
    assert erased == [y, z]


def test_an_output_that_is_an_output_already() -> None:
    graph = read("%y: INT32[2] = CLZ(%x)", "%z: INT32[2] = ABS(%x)", outputs=["y", "z"])
    graph.splice(graph.ops[0], [], {graph.tensor("y"): graph.tensor("z")})
    assert [t.name for t in graph.outputs] == ["y", "z"]
    assert lines(graph) == ["%z: INT32[2] = ABS(%x)", "%y: INT32[2] = IDENTITY(%z)"]


def test_dead_operators_go_and_shared_ones_stay() -> None:
    graph = read(
        "%c: INT32[2] = CONST() [1, 2]",
        "%d: INT32[2] = CONST() [3, 4]",
        "%a: INT32[2] = ADD(%x, %c)",
        "%b: INT32[2] = ADD(%a, %d)",
        "%y: INT32[2] = SUB(%b, %d)",
    )
    add = graph.ops[3]
    new = abs_of(graph.tensor("x"))
    erased = graph.splice(add, [new], {add.output: new.output})
    assert [op.name for op in erased] == ["ADD", "ADD", "CONST"]
    assert lines(graph) == ["%d: INT32[2] = CONST() [3, 4]", "%b: INT32[2] = ABS(%x)", "%y: INT32[2] = SUB(%b, %d)"]


def test_quantisation_parameters_follow_the_value() -> None:
    graph = read("%y: INT32[2] <scale=0.5, zero_point=0> = CLZ(%x)")
    new = abs_of(graph.tensor("x"))
    graph.splice(graph.ops[0], [new], {graph.tensor("y"): new.output})
    assert new.output.quantization == QuantParams((0.5,))


def test_another_type_is_refused() -> None:
    graph = read("%y: INT32[2] = CLZ(%x)")
    new = Op(ops.Abs(), [graph.tensor("x")], [Tensor("new", I32, (3,))])
    with pytest.raises(InvalidArgument, match="dtype or shape differ"):
        graph.splice(graph.ops[0], [new], {graph.tensor("y"): new.output})


def test_pruning_spares_state_and_effects() -> None:
    graph = parse_program("""
        block (%x: INT32[2]) -> (%x) {
          declare %cell: INT32[2] <variable>
          %r: INT32[2] = VARIABLE_READ(%cell)
          %a: INT32[2] = ABS(%r)
          %dead: INT32[2] = ABS(%a)
          %s: SHAPE[1] = CONST_SHAPE() [2]
          ASSERT_EQUAL_SHAPE(%s, %s)
          %custom: INT32[2] = CUSTOM(%a) {operator_name="send"}
        }""").main
    erased = graph.prune(graph.ops)
    assert [op.output.name for op in erased] == ["dead"]
    assert [op.name for op in graph.ops] == ["VARIABLE_READ", "ABS", "CONST_SHAPE", "ASSERT_EQUAL_SHAPE", "CUSTOM"]
