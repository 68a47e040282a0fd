"""Program order: file order where it is legal, made topological where it is not, without recursion."""

import random
import sys
from collections.abc import Sequence

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.programs import small_program
from tosakit.errors import InvalidModel
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor, TensorExtras
from tosakit.ir.text import parse_program

I32 = DType.INT32
CELL = TensorExtras(variable=True, variable_name="cell")


def in_file_order(tensors: Sequence[Tensor], inputs: Sequence[Tensor], listed: Sequence[AnyOp]) -> Graph:
    """A graph as the reader makes it: operators in the order given, legal or not."""
    graph = Graph("main")
    graph._tensors.update({tensor.name: tensor for tensor in tensors})
    for op in listed:
        graph._register(op)
    graph.set_inputs(inputs)
    return graph


def shuffled(seed: int) -> tuple[Graph, list[AnyOp]]:
    """A random graph whose file lists its operators in random order, and that list."""
    rng = random.Random(seed)
    source = small_program(rng).main
    listed = list(source.ops)
    rng.shuffle(listed)
    twins = {tensor: Tensor(tensor.name, tensor.dtype, tensor.shape, tensor.stored) for tensor in source.tensors}
    made: list[AnyOp] = [Op(op.attrs, [twins[t] for t in op.inputs], [twins[t] for t in op.outputs]) for op in listed]
    return in_file_order(list(twins.values()), [twins[t] for t in source.inputs], made), made


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_among_legal_orders_the_one_closest_to_the_file(seed: int) -> None:
    """At every place stands the operator first in the file among those whose operands are ready."""
    graph, listed = shuffled(seed)
    done: dict[AnyOp, None] = {}
    for op in graph.ops:
        ready = [
            candidate
            for candidate in listed
            if candidate not in done
            and all(t.producer in (None, graph.entry) or t.producer in done for t in candidate.inputs)
        ]
        legal = all(
            all(t.producer in (None, graph.entry) or t.producer in listed[:i] for t in candidate.inputs)
            for i, candidate in enumerate(listed)
        )
        assert op is (listed[len(done)] if legal else ready[0])
        done[op] = None
    assert len(done) == len(listed)


def careless_edit(graph: Graph, rng: random.Random) -> None:
    """One random step that asks nobody for the order, and may well close a cycle."""
    everyone, values = list(graph._ops), list(graph.tensors)
    kind = rng.choice(["add", "set_operand", "replace_uses", "splice"])
    if kind == "replace_uses":
        graph.replace_uses(rng.choice(values), rng.choice(values), keep=rng.sample(everyone, min(1, len(everyone))))
        return
    op = rng.choice(everyone) if everyone else None
    made = Op(ops.Sub(), rng.choices(values, k=2), [Tensor("new", I32, (2,))])
    if kind == "add" or op is None:
        graph.add_op(made, like=rng.choice([None, op]))
    elif kind == "set_operand" and op.inputs:
        graph.set_operand(op, rng.randrange(len(op.inputs)), rng.choice(values))
    elif kind == "splice":
        graph.splice(op, [made], {op.output: made.output})


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_the_order_holds_after_many_edits_without_a_question(seed: int) -> None:
    """The graph looks for operands from behind only where an edit may have made one; it must not miss any."""
    rng = random.Random(seed)
    graph = small_program(rng).main
    for _ in range(rng.randint(1, 4)):
        for _ in range(rng.randint(1, 4)):
            careless_edit(graph, rng)
        flow = nx.DiGraph((t.producer, op) for op in graph._ops for t in op.inputs if t.producer is not None)
        if not nx.is_directed_acyclic_graph(flow):
            with pytest.raises(InvalidModel, match="has a cycle"):
                _ = graph.ops
            return
        order = graph.ops
        place = {graph.entry: -1, **{op: index for index, op in enumerate(order)}}
        assert len(order) == len(graph._ops)
        assert all(place[t.producer] < place[op] for op in order for t in op.inputs if t.producer is not None)


def test_a_legal_file_order_is_kept() -> None:
    """Two interleaved chains: a textbook topological sort would shuffle them."""
    graph = Graph("main")
    ends = [graph.add_tensor(Tensor(name, I32, (2,))) for name in ("x", "y")]
    graph.set_inputs(ends)
    made: list[AnyOp] = []
    for number in range(8):
        made.append(graph.add_op(Op(ops.Abs(), [ends[number % 2]], [Tensor(f"t{number}", I32, (2,))])))
        ends[number % 2] = made[-1].output
    assert graph.ops == tuple(made)


def test_new_operators_take_the_place_of_old_ones() -> None:
    graph = parse_program("""
        block (%x: INT32[2]) -> (%c) {
          %a: INT32[2] = ABS(%x)
          %b: INT32[2] = ABS(%a)
          %c: INT32[2] = ABS(%b)
        }""").main
    a, b, c = graph.ops
    first = Op(ops.Identity(), [a.output], [Tensor("first", I32, (2,))])
    second = Op(ops.Clz(), [first.output], [Tensor("second", I32, (2,))])
    graph.splice(b, [first, second], {b.output: second.output})
    assert graph.ops == (a, first, second, c)


def test_state_keeps_its_order_among_itself() -> None:
    """Reads and writes that no data connects; the file is in an illegal order elsewhere."""
    cell = Tensor("cell", I32, (2,), extras=CELL)
    x, a, b, r1, r2 = (Tensor(name, I32, (2,)) for name in ("x", "a", "b", "r1", "r2"))
    late: AnyOp = Op(ops.Abs(), [x], [a])
    listed: list[AnyOp] = [
        Op(ops.VariableRead(), [cell], [r1]),
        Op(ops.VariableWrite(), [b], [cell]),  # b is made below
        Op(ops.VariableRead(), [cell], [r2]),
        Op(ops.Add(), [a, r1], [b]),
        late,
    ]
    graph = in_file_order([cell, x, a, b, r1, r2], [x], listed)
    read1, write, read2, add, _ = listed
    assert graph.ops == (read1, late, add, write, read2)
    assert [op for op in nx.topological_sort(graph) if op.is_stateful] == [read1, write, read2]


def test_a_cycle_is_named() -> None:
    x, a, b, c, d = (Tensor(name, I32, (2,)) for name in ("x", "a", "b", "c", "d"))
    made: list[AnyOp] = [
        Op(ops.Abs(), [x], [a]),
        Op(ops.Add(), [a, d], [b]),
        Op(ops.Clz(), [b], [c]),
        Op(ops.Identity(), [c], [d]),
        Op(ops.Abs(), [d], [Tensor("behind", I32, (2,))]),
    ]
    graph = in_file_order([x, a, b, c, d, made[-1].output], [x], made)
    with pytest.raises(InvalidModel) as caught:
        _ = graph.ops
    text = str(caught.value)
    assert text.startswith('block "main" has a cycle: ')
    loop = text.partition("cycle: ")[2].split(" -> ")
    assert loop[0] == loop[-1]
    assert sorted(loop[1:]) == sorted(map(repr, made[1:4]))


def test_state_can_close_a_cycle() -> None:
    """The write needs what the read gives, but stands in front of it."""
    cell, x, r = Tensor("cell", I32, (2,), extras=CELL), Tensor("x", I32, (2,)), Tensor("r", I32, (2,))
    listed: list[AnyOp] = [Op(ops.VariableWrite(), [r], [cell]), Op(ops.VariableRead(), [cell], [r])]
    with pytest.raises(InvalidModel, match=r"has a cycle: .*(WRITE.*READ|READ.*WRITE)"):
        _ = in_file_order([cell, x, r], [x], listed).ops


def test_an_operator_that_reads_itself() -> None:
    r = Tensor("r", I32, (2,))
    with pytest.raises(InvalidModel, match="has a cycle: %r = ABS"):
        _ = in_file_order([r], [], [Op(ops.Abs(), [r], [r])]).ops


def test_long_cycles_are_cut_short() -> None:
    tensors = [Tensor(f"t{i}", I32, (2,)) for i in range(1000)]
    made: list[AnyOp] = [Op(ops.Abs(), [tensors[i - 1]], [tensors[i]]) for i in range(1000)]
    with pytest.raises(InvalidModel, match="988 more") as caught:
        _ = in_file_order(tensors, [], made).ops
    assert len(str(caught.value)) < 1000


def chain(length: int) -> Graph:
    """ABS behind ABS, with 24 layers of fully connected pairs at the end; the file lists it backwards."""
    tensors = [Tensor(f"t{i}", I32, (2,)) for i in range(length + 1)]
    made: list[AnyOp] = [Op(ops.Abs(), [tensors[i]], [tensors[i + 1]]) for i in range(length)]
    pair = (tensors[-1], tensors[-1])
    for layer in range(24):
        results = tuple(Tensor(f"p{layer}_{i}", I32, (2,)) for i in range(2))
        made += [Op(ops.Add(), pair, [result]) for result in results]
        tensors += results
        pair = results
    return in_file_order(tensors, tensors[:1], made[::-1])


def steps_to_sort(length: int) -> int:
    """Python function calls and C calls that sorting a backwards chain takes."""
    graph = chain(length)
    count = 0

    def profile(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(profile)
    try:
        assert len(graph.ops) == length + 48
    finally:
        sys.setprofile(None)
    return count


def test_sorting_is_linear() -> None:
    """Counted, not timed: ten times the operators take about ten times the calls."""
    few, many = steps_to_sort(1000), steps_to_sort(10_000)
    assert many < 11 * few


def test_very_deep_graphs_need_no_recursion() -> None:
    graph = chain(100_000)
    assert len(graph.ops) == 100_048
    assert graph.ops[0].inputs == graph.inputs
    assert len(nx.descendants(graph, graph.ops[0])) == 100_047
    twin = graph.clone()
    assert [op.output.name for op in twin.ops] == [op.output.name for op in graph.ops]
    assert len(graph.prune(graph.ops[::-1])) == 100_048
