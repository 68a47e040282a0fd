"""Variables as inputs and outputs: every step computes what it did, whatever the order of reads and writes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites import PIPELINES
from rewrites.variables_as_inputs import TRANSFORM
from tests.support.build import Net
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tosakit.engine.driver import RewriteResult, run_steps
from tosakit.io.reader import load
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor, TensorExtras
from tosakit.ir.program import Program, Region
from tosakit.ir.text_parser import parse_program
from tosakit.ir.types import encode
from tosakit.oracle.equivalence import Equivalence, check_equivalence

SHARED = Path(__file__).parents[3] / "shared" / "corpus" / "models"
SHAPE = (2,)
LAST = """
block "main" (%x: INT32[2]) -> (%y) {
  declare %cell: INT32[2] <variable, variable_name="last"> [1, 2]
  %y: INT32[2] = VARIABLE_READ(%cell)
  %cell = VARIABLE_WRITE(%x)
}
"""


def _run(program: Program) -> RewriteResult:
    return run_steps(program.clone(), [TRANSFORM], options={TRANSFORM.name: TRANSFORM.options("all")})


def _steps(program: Program, result: RewriteResult, steps: int = 4) -> Equivalence:
    return check_equivalence(program, result.program, state=result.state, vectors=steps)


def test_golden(golden: Callable[..., None]) -> None:
    golden(TRANSFORM, options={TRANSFORM.name: TRANSFORM.options("all")})


@settings(max_examples=12)
@given(st.data())
def test_every_order_of_reads_and_writes_computes_the_same(data: st.DataObject) -> None:
    net = Net()
    values = [net.input("x", DType.INT32, SHAPE), net.const([7, -3], DType.INT32)]
    cells = [
        net.graph.add_tensor(
            Tensor(name, DType.INT32, SHAPE, encode([start, -start], DType.INT32), extras=TensorExtras(True, name))
        )
        for name, start in (("a", 0), ("b", 5), ("c", -9))
    ]
    for number in range(data.draw(st.integers(1, 10))):
        cell = data.draw(st.sampled_from(cells))
        kind = data.draw(st.sampled_from(["read", "write", "minimum"]))
        if kind == "read":
            values.append(net.op(ops.VariableRead(), (cell,), DType.INT32, SHAPE, f"read{number}"))
        elif kind == "write":
            net.graph.add_op(Op(ops.VariableWrite(), (data.draw(st.sampled_from(values)),), (cell,)))
        else:
            pair = data.draw(st.sampled_from(values)), data.draw(st.sampled_from(values))
            values.append(
                net.op(ops.LogicalLeftShift(), (pair[0], net.const([1], DType.INT32)), DType.INT32, SHAPE, "shifted")
            )
            values.append(net.op(ops.BitwiseXor(), (values[-1], pair[1]), DType.INT32, SHAPE, f"t{number}"))
    outputs = [values[-1], data.draw(st.sampled_from(values))]
    program = net.program(*(net.identity(t) for t in outputs))
    result = _run(program)
    assert not result.refusals
    assert not any(t.extras.variable for t in result.program.main.tensors)
    assert not any(op.is_stateful for op in result.program.main.ops)
    assert _steps(program, result).equal
    assert not _run(result.program).events


def test_an_output_that_is_read_from_a_variable_keeps_its_name() -> None:
    program = parse_program(LAST)
    result = _run(program)
    [link] = result.state
    assert [t.name for t in result.program.main.inputs] == ["x", "last"]
    assert [t.name for t in result.program.main.outputs] == ["y", "last_next"]
    assert (link.variable, link.input, link.output) == ("cell", "last", "last_next")
    assert link.initial is not None
    assert link.initial.tolist() == [1, 2]
    assert _steps(program, result).equal


def test_an_operator_that_only_declares_goes_too() -> None:
    net = Net()
    cell = net.graph.add_tensor(Tensor("cell", DType.INT8, SHAPE, extras=TensorExtras(True, "state")))
    net.graph.add_op(Op(ops.Variable(), (), (cell,)))
    net.graph.add_op(Op(ops.Variable(), (), ()))
    read = net.op(ops.VariableRead(), (cell,), DType.INT8, SHAPE, "read")
    net.graph.add_op(Op(ops.VariableWrite(), (net.input("x", DType.INT8, SHAPE),), (cell,)))
    result = _run(net.program(net.identity(read)))
    assert [op.name for op in result.program.main.ops] == ["IDENTITY", "IDENTITY"]
    [link] = result.state
    assert link.initial is None


def test_it_acts_only_for_ethos_u() -> None:
    program = parse_program(LAST)
    for target, count in (("", 0), ("ethos-u55-128", 1), ("ethos-u85-256", 1)):
        assert len(run_steps(program.clone(), [TRANSFORM], target=target).events) == count


def _refusal(program: Program) -> str:
    result = _run(program)
    assert not result.events
    assert not result.state
    return result.refusals[0].reason


def test_one_variable_that_must_stay_keeps_all() -> None:
    net = Net()
    extras = TensorExtras(True, "state")
    cell = net.graph.add_tensor(Tensor("cell", DType.INT8, SHAPE, extras=extras))
    other = net.graph.add_tensor(Tensor("other", DType.INT8, SHAPE, extras=TensorExtras(True, "other")))
    first = net.op(ops.VariableRead(), (cell,), DType.INT8, SHAPE, "read")
    net.graph.add_op(Op(ops.VariableWrite(), (first,), (other,)))
    assert "neither written nor given an initial value" in _refusal(net.program(first))


def test_a_read_that_names_no_variable_is_refused() -> None:
    net = Net()
    read = net.op(ops.VariableRead(), (), DType.INT8, SHAPE, "read")
    cell = net.graph.add_tensor(Tensor("cell", DType.INT8, SHAPE, extras=TensorExtras(True, "state")))
    net.graph.add_op(Op(ops.VariableWrite(), (read,), (cell,)))
    assert "it names no variable" in _refusal(net.program(read))


def test_a_variable_without_a_shape_is_refused() -> None:
    net = Net()
    cell = net.graph.add_tensor(Tensor("cell", DType.INT8, (0, 2), extras=TensorExtras(True, "state")))
    read = net.op(ops.VariableRead(), (cell,), DType.INT8, (0, 2), "read")
    assert "not static" in _refusal(net.program(read))


def test_a_variable_of_another_type_than_its_values_is_refused() -> None:
    net = Net()
    cell = net.graph.add_tensor(Tensor("cell", DType.INT8, SHAPE, extras=TensorExtras(True, "state")))
    read = net.op(ops.VariableRead(), (cell,), DType.INT8, (3,), "read")
    assert "another type than INT8 [2]" in _refusal(net.program(read))


def test_a_variable_of_an_inner_block_is_refused() -> None:
    program = Net().program()
    inner = Graph("body")
    inner.add_tensor(Tensor("cell", DType.INT8, SHAPE, extras=TensorExtras(True, "state")))
    program.regions.append(Region("body", [inner]))
    assert 'belongs to block "body"' in _refusal(program)


def test_a_variable_that_is_an_output_is_refused() -> None:
    net = Net()
    cell = net.graph.add_tensor(Tensor("cell", DType.INT8, SHAPE, b"12", extras=TensorExtras(True, "state")))
    assert "itself an input or output" in _refusal(net.program(cell))


@pytest.mark.shared
@pytest.mark.vela
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
@pytest.mark.parametrize("name", ["wakeword_alexa_a8w8", "wakeword_hey_jarvis_a8w8"])
def test_real_streaming_nets_keep_their_state_through_vela(name: str) -> None:
    program = load(SHARED / f"{name}.tosa")
    result = run_steps(program.clone(), PIPELINES["ethos-u"], target=FAMILIES[0])
    assert len(result.state) == 6
    assert all(np.all(link.initial == -128) for link in result.state if link.initial is not None)
    assert _steps(program, result, 8).equal
    assert [h for h in hazards(program, FAMILIES[0]) if h.kind == "miscompiled"]
    assert not [h for h in hazards(result.program, FAMILIES[0]) if h.kind == "miscompiled"]
    assert accepted(result.program, FAMILIES[0]) == [FAMILIES[0]]
