"""The graph as a live networkx graph, and its door."""

import copy
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.build import Net
from tests.support.programs import small_program
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import STATE_KEY, AnyOp, Graph, Op, Tensor, TensorExtras
from tosakit.ir.program import Program, Region
from tosakit.ir.types import QuantParams

I32 = DType.INT32
CELL = TensorExtras(variable=True, variable_name="cell")


def from_scratch(graph: Graph) -> "nx.MultiDiGraph[AnyOp]":
    """The block as an ordinary networkx graph, made from operand tuples alone."""
    made: nx.MultiDiGraph[AnyOp] = nx.MultiDiGraph()
    everyone = [graph.entry, *graph.ops, graph.exit]
    made.add_nodes_from((op, {"op": op.name}) for op in everyone)
    producers = {t: op for op in reversed(everyone) for t in op.outputs if not t.extras.variable}
    for op in everyone:
        for slot, tensor in enumerate(op.inputs):
            if (producer := producers.get(tensor)) is not None:
                result = producer.outputs.index(tensor)
                made.add_edge(producer, op, key=slot, tensor=tensor, result=result)
    stateful = [op for op in graph.ops if op.is_stateful]
    for first, second in pairwise(stateful):
        made.add_edge(first, second, key=STATE_KEY)
    return made


def edges(graph: "nx.MultiDiGraph[AnyOp]") -> dict[tuple[int, int, Any], tuple[Any, ...]]:
    found = graph.edges(keys=True, data=True)
    return {(id(u), id(v), key): tuple(sorted(data.items(), key=str)) for u, v, key, data in found}


def assert_live(graph: Graph) -> None:
    """Everything networkx sees is what the operands say."""
    other = from_scratch(graph)
    assert list(graph) == list(other) == list(graph.nodes)
    assert graph.number_of_nodes() == len(graph) == len(graph.ops) + 2
    assert edges(graph) == edges(other)
    assert graph.number_of_edges() == other.number_of_edges()
    assert {(id(u), id(v), key) for u, v, key in graph.in_edges(keys=True)} == set(edges(other))
    assert dict(graph.in_degree()) == dict(other.in_degree())
    assert dict(graph.out_degree()) == dict(other.out_degree())
    assert nx.is_directed_acyclic_graph(graph)
    assert nx.dag_longest_path_length(graph) == nx.dag_longest_path_length(other)
    for op in graph:
        assert nx.descendants(graph, op) == nx.descendants(other, op)
        assert nx.ancestors(graph, op) == nx.ancestors(other, op)
    seen = {op: index for index, op in enumerate(graph.ops)}
    assert all(seen[u] < seen[v] for u, v, _ in graph.edges(keys=True) if u in seen and v in seen)
    for tensor in graph.tensors:
        assert graph.tensor(tensor.name) is tensor
        slots = [(op, slot) for op in tensor.users for slot, operand in enumerate(op.inputs) if operand is tensor]
        assert list(tensor.uses) == slots
        assert tensor.single_user is (tensor.users[0] if len(tensor.users) == 1 else None)
        assert tensor.is_used == bool(tensor.users)
        readers = [op for op in other if tensor in op.inputs]
        assert sorted(map(id, readers)) == sorted(map(id, tensor.users))


def random_edit(graph: Graph, rng: random.Random) -> str:
    """One random step through the door that leaves the graph acyclic; which one it was."""
    kinds = "add set_operand replace_uses erase outputs inputs output input rename splice prune"
    kind = rng.choice(kinds.split())
    position = {op: index for index, op in enumerate(graph.ops)}
    ops_now = list(graph.ops)
    values = list(graph.tensors)

    def above(op: AnyOp) -> list[Tensor]:
        """Tensors whose producer stands before ``op``."""
        limit = position.get(op, len(ops_now))
        return [t for t in values if t.producer is None or position.get(t.producer, -1) < limit]

    if kind == "add":
        attrs, count = rng.choice([(ops.Add(), 2), (ops.Abs(), 1), (ops.Concat(axis=0), 3)])
        graph.add_op(Op(attrs, [rng.choice(values) for _ in range(count)], [Tensor("new", I32, (2,))]))
    elif kind == "set_operand":
        op = rng.choice([*ops_now, graph.exit])
        if op.inputs:
            graph.set_operand(op, rng.randrange(len(op.inputs)), rng.choice(above(op)))
    elif kind == "replace_uses":
        old = rng.choice(values)
        first = min((position.get(user, len(ops_now)) for user in old.users), default=0)
        candidates = [t for t in values if t.producer is None or position.get(t.producer, -1) < first]
        if candidates:
            graph.replace_uses(old, rng.choice(candidates))
    elif kind == "erase":
        dead = [op for op in ops_now if not any(t.is_used for t in op.outputs)]
        if dead:
            graph.erase(rng.choice(dead))
    elif kind == "outputs":
        graph.set_outputs([rng.choice(values) for _ in range(rng.randint(0, 3))])
    elif kind == "output":
        graph.add_output(rng.choice(values))
    elif kind == "input":
        graph.add_input(graph.add_tensor(Tensor("x", I32, (2,))))
    elif kind == "inputs":
        graph.set_inputs([*graph.inputs, graph.add_tensor(Tensor("x", I32, (2,)))])
    elif kind == "rename":
        graph.rename(rng.choice(values), f"name{rng.random()}")
    elif kind == "splice" and ops_now:
        op = rng.choice(ops_now)
        made = Op(ops.Sub(), [rng.choice(above(op)) for _ in range(2)], [Tensor("spliced", I32, (2,))])
        graph.splice(op, [made], {op.output: made.output})
    elif kind == "prune":
        graph.prune(ops_now)
    return kind


def test_networkx_sees_every_edit_at_once() -> None:
    seen: dict[str, int] = {}

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        rng = random.Random(seed)
        graph = small_program(rng).main
        assert_live(graph)
        for _ in range(6):
            kind = random_edit(graph, rng)
            seen[kind] = seen.get(kind, 0) + 1
            assert_live(graph)

    check()
    assert len(seen) == 11
    assert min(seen.values()) >= 5


def test_edges_carry_slot_tensor_and_result() -> None:
    net = Net()
    x, y = net.input("x", I32, (2,)), net.input("y", I32, (2,))
    z = net.op(ops.Concat(axis=0), [x, y, x], I32, (6,), "z")
    double = net.add(z, z)
    graph = net.program(double).main
    concat, add = graph.ops
    assert graph[graph.entry][concat] == {
        0: {"tensor": x, "result": 0},
        1: {"tensor": y, "result": 1},
        2: {"tensor": x, "result": 0},
    }
    assert sorted(graph[concat][add]) == [0, 1]
    graph.set_operand(add, 1, z)
    graph.set_operand(concat, 2, y)
    assert concat.inputs == (x, y, y)
    assert sorted(graph[graph.entry][concat]) == [0, 1, 2]
    assert list(x.uses) == [(concat, 0)]
    assert list(y.uses) == [(concat, 1), (concat, 2)]


def test_one_of_two_equal_operands_moves_alone() -> None:
    net = Net()
    x, y = net.input("x", I32, (2,)), net.input("y", I32, (2,))
    add = net.add(x, x)
    graph = net.program(add).main
    [op] = graph.ops
    graph.set_operand(op, 1, y)
    assert op.inputs == (x, y)
    assert (x.users, y.users) == ((op,), (op,))
    assert_live(graph)


def test_boundaries_keep_multiplicity() -> None:
    """An input listed twice, an input that is an output, outputs listed twice, a constant output."""
    net = Net()
    x = net.input("x", I32, (2,))
    net.graph.set_inputs([x, x])
    c = net.const([1, 2], I32, "c")
    graph = net.program(x, c, c, x).main
    assert graph.inputs == (x, x)
    assert graph.outputs == (x, c, c, x)
    assert x.producer is graph.entry
    assert list(x.uses) == [(graph.exit, 0), (graph.exit, 3)]
    assert_live(graph)
    twin = graph.clone()
    assert [t.name for t in twin.inputs] == ["x", "x"]
    assert [t.name for t in twin.outputs] == ["x", "c", "c", "x"]
    assert_live(twin)


def test_stateful_operators_form_a_chain() -> None:
    graph = Graph("main")
    cell = graph.add_tensor(Tensor("cell", I32, (2,), extras=CELL))
    x = graph.add_tensor(Tensor("x", I32, (2,)))
    graph.set_inputs([x])
    read = graph.add_op(Op(ops.VariableRead(), [cell], [Tensor("r", I32, (2,))]))
    graph.add_op(Op(ops.Abs(), [x], [Tensor("a", I32, (2,))]))
    write = graph.add_op(Op(ops.VariableWrite(), [x], [cell]))
    graph.set_outputs([read.output])
    assert cell.producer is None
    assert dict(graph[read][write]) == {STATE_KEY: {}}
    assert_live(graph)


@pytest.mark.parametrize(
    "question",
    [
        "len(graph)",
        "list(graph)",
        "str(graph)",
        "graph[graph.entry]",
        "graph.nodes",
        "list(__import__('networkx').topological_sort(graph))",
    ],
)
def test_networkx_is_imported_by_whatever_needs_it(question: str) -> None:
    """A graph made before networkx was there is a networkx graph like any other afterwards."""
    script = (
        "import sys\n"
        "from tosakit.ir.graph import Graph\n"
        "graph = Graph('main')\n"
        "assert (graph.name, graph.exit in graph, 'networkx' in sys.modules) == ('main', True, False)\n"
        f"{question}\n"
        "import networkx\n"
        "assert issubclass(Graph, networkx.MultiDiGraph)\n"
        "assert isinstance(graph, networkx.MultiDiGraph)\n"
        "assert list(graph.nodes) == [graph.entry, graph.exit]\n"
        "assert len(Graph('another').nodes) == 2\n"
        "graph.nonsense\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-1] == "AttributeError: 'Graph' object has no attribute 'nonsense'"


def test_networkx_copies_are_ordinary_graphs() -> None:
    graph = small_program(random.Random(1)).main
    for other in (graph.copy(), graph.reverse(), nx.MultiDiGraph(graph), graph.subgraph(list(graph.ops)).copy()):
        assert type(other) is nx.MultiDiGraph
        other.add_edge("anything", "goes")


def test_deep_copies_are_clones() -> None:
    program = small_program(random.Random(5))
    twin = copy.deepcopy(program)
    assert twin.main is not program.main
    assert not any(program.main.owns(tensor) for tensor in twin.main.tensors)
    assert_live(twin.main)


def test_networkx_mutators_are_shut() -> None:
    graph = small_program(random.Random(2)).main
    before = edges(graph)
    attempts: list[Callable[[], Any]] = [
        lambda: graph.add_node("typo"),
        lambda: graph.add_nodes_from(["typo"]),
        lambda: graph.add_edge(graph.entry, "typo"),
        lambda: graph.add_edges_from([(graph.entry, graph.exit)]),
        lambda: graph.add_weighted_edges_from([(graph.entry, graph.exit, 1)]),
        lambda: graph.remove_node(graph.exit),
        lambda: graph.remove_nodes_from([graph.exit]),
        lambda: graph.remove_edge(graph.entry, graph.exit),
        lambda: graph.remove_edges_from([(graph.entry, graph.exit)]),
        graph.clear,
        graph.clear_edges,
        lambda: graph.update(nodes=["typo"]),
    ]
    for attempt in attempts:
        with pytest.raises(TypeError, match="add_op, set_operand, replace_uses, splice and erase"):
            attempt()
    assert edges(graph) == before


def refusals() -> dict[str, Callable[[Graph, Graph], Any]]:
    """Uses of the door that would make an inconsistent graph: of a graph with x, c = ABS(x), and another such graph."""
    stranger = Tensor("stranger", I32, (2,))
    return {
        "operand of nobody": lambda g, o: g.add_op(Op(ops.Abs(), [stranger], [Tensor("y", I32, (2,))])),
        "operand of another graph": lambda g, o: g.add_op(Op(ops.Abs(), [o.tensor("x")], [Tensor("y", I32, (2,))])),
        "operator twice": lambda g, o: g.add_op(g.ops[0]),
        "operator of another graph": lambda g, o: g.add_op(o.ops[0]),
        "result that has a producer": lambda g, o: Op(ops.Abs(), [g.tensor("x")], [g.tensor("c")]),
        "result that is an input": lambda g, o: Op(ops.Abs(), [g.tensor("c")], [g.tensor("x")]),
        "one result twice": lambda g, o: Op(ops.Abs(), [g.tensor("x")], [stranger, stranger]),
        "set operand of another graph": lambda g, o: g.set_operand(g.ops[0], 0, o.tensor("x")),
        "set operand in another graph": lambda g, o: g.set_operand(o.ops[0], 0, g.tensor("x")),
        "set a slot that is not there": lambda g, o: g.set_operand(g.ops[0], 1, g.tensor("x")),
        "set a negative slot": lambda g, o: g.set_operand(g.ops[0], -1, g.tensor("x")),
        "replace by another graph's": lambda g, o: g.replace_uses(g.tensor("c"), o.tensor("c")),
        "replace another graph's": lambda g, o: g.replace_uses(o.tensor("c"), g.tensor("c")),
        "replace by another type": lambda g, o: g.replace_uses(g.tensor("c"), g.tensor("wide")),
        "erase what is read": lambda g, o: g.erase(g.ops[0]),
        "erase the entry": lambda g, o: g.erase(g.entry),
        "erase another graph's": lambda g, o: g.erase(o.ops[0]),
        "input with a producer": lambda g, o: g.set_inputs([g.tensor("c")]),
        "input of another graph": lambda g, o: g.set_inputs([o.tensor("x")]),
        "output of another graph": lambda g, o: g.set_outputs([o.tensor("c")]),
        "one more input with a producer": lambda g, o: g.add_input(g.tensor("c")),
        "one more input of another graph": lambda g, o: g.add_input(o.tensor("x")),
        "one more output of another graph": lambda g, o: g.add_output(o.tensor("c")),
        "rename to a taken name": lambda g, o: g.rename(g.tensor("c"), "x"),
        "rename another graph's": lambda g, o: g.rename(o.tensor("c"), "d"),
        "swap with another graph's": lambda g, o: g.swap_names(g.tensor("c"), o.tensor("x")),
        "annotate another graph's": lambda g, o: g.annotate(o.tensor("c"), None),
        "annotate with too few scales": lambda g, o: g.annotate(g.tensor("c"), QuantParams((1.0,), axis=0)),
        "annotate an axis that is not there": lambda g, o: g.annotate(g.tensor("c"), QuantParams((1.0, 2.0), axis=1)),
        "add a tensor twice": lambda g, o: g.add_tensor(g.tensor("x")),
        "add another graph's result": lambda g, o: g.add_tensor(o.tensor("c")),
        "drop what is read": lambda g, o: g.drop_tensor(g.tensor("x")),
        "drop another graph's": lambda g, o: g.drop_tensor(o.tensor("wide")),
        "a name that is not there": lambda g, o: g.tensor("nothing"),
    }


@pytest.mark.parametrize("name", refusals())
def test_the_door_refuses(name: str) -> None:
    graphs = []
    for _ in range(2):
        net = Net()
        c = net.op(ops.Abs(), [net.input("x", I32, (2,))], I32, (2,), "c")
        net.graph.add_tensor(Tensor("wide", DType.INT48, (2,)))
        graphs.append(net.program(c).main)
    before = [(edges(graph), graph.inputs, graph.outputs, [t.name for t in graph.tensors]) for graph in graphs]
    with pytest.raises(InvalidArgument):
        refusals()[name](*graphs)
    assert [(edges(graph), graph.inputs, graph.outputs, [t.name for t in graph.tensors]) for graph in graphs] == before
    for graph in graphs:
        assert_live(graph)


def test_an_erased_operator_can_come_back() -> None:
    net = Net()
    x = net.input("x", I32, (2,))
    net.op(ops.Abs(), [x], I32, (2,), "y")
    graph = net.program(x).main
    [op] = graph.ops
    graph.erase(op)
    assert op not in graph
    assert op.output.producer is None
    graph.add_op(op)
    assert op.output.producer is op
    assert_live(graph)


def test_names_of_new_tensors_are_free_and_stay() -> None:
    net = Net()
    x = net.input("x", I32, (2,))
    names = [net.op(ops.Abs(), [x], I32, (2,), "x").name for _ in range(4)]
    assert names == ["x_1", "x_2", "x_3", "x_4"]
    assert net.op(ops.Abs(), [x], I32, (2,), "x_3").name == "x_3_1"


def test_identical_names_in_different_regions() -> None:
    programs = [small_program(random.Random(3)).main for _ in range(2)]
    program = Program([Region(name, [block]) for name, block in zip(("a", "b"), programs, strict=True)])
    first, second = program.blocks
    assert [t.name for t in first.tensors] == [t.name for t in second.tensors]
    first.rename(first.tensors[0], "changed")
    assert "changed" not in [t.name for t in second.tensors]
    assert program.region("b").blocks == [second]
    assert_live(first)
    assert_live(second)


def test_many_readers_of_one_tensor() -> None:
    graph = Graph("main")
    x = graph.add_tensor(Tensor("x", I32, (2,)))
    y = graph.add_tensor(Tensor("y", I32, (2,)))
    graph.set_inputs([x, y])
    readers = [graph.add_op(Op(ops.Abs(), [x], [Tensor("t", I32, (2,))])) for _ in range(2000)]
    for reader in readers[1:]:
        graph.set_operand(reader, 0, y)
    assert x.single_user is readers[0]
    graph.replace_uses(x, y)
    assert y.users == (*readers[1:], readers[0])
    assert not x.is_used


def test_data_is_for_constants_and_cells_only() -> None:
    graph = Graph("main")
    leftover = graph.add_tensor(Tensor("x", I32, (2,), b"\0" * 8))
    graph.set_inputs([leftover])
    empty = Tensor("y", I32, (2,), b"")
    graph.add_op(Op(ops.Abs(), [leftover], [empty]))
    cell = graph.add_tensor(Tensor("cell", I32, (2,), b"\1" * 8, extras=CELL))
    constant = Tensor("c", I32, (0,), b"")
    graph.add_op(Op(ops.Const(), (), [constant]))
    assert (leftover.data, leftover.stored) == (None, b"\0" * 8)
    assert (empty.data, empty.stored) == (None, b"")
    assert cell.data == b"\1" * 8
    assert constant.data == b""
    assert constant.values().shape == (0,)
