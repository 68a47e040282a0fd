"""A pack gives every vector the result of a run of its own, also where some copies are unpredictable."""

import numpy as np
import pytest

from tests.support.build import Net
from tosakit.io.writer import dumps
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.oracle.equivalence import input_specs
from tosakit.oracle.inputs import input_vectors
from tosakit.oracle.packing import pack, run_packed, width
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.spec.verify import verify

pytestmark = pytest.mark.refmodel
MODEL = ReferenceModel()
INT32 = DType.INT32


def _overflowing() -> Program:
    """Unpredictable where |x| > 2^30; the second output is an input, the third repeats the first."""
    net = Net()
    x = net.input("x", INT32, (2, 3))
    y = net.add(net.add(x, net.const([[1]], INT32), "z"), x, "y")
    return net.program(y, x, y)


def test_every_vector_has_the_result_of_a_run_of_its_own() -> None:
    program = _overflowing()
    vectors = list(input_vectors(input_specs(program), 40, 3))
    alone = list(MODEL.run_many(dumps(program), vectors))
    packed = list(run_packed(MODEL, program, vectors, 60.0))
    assert [one.status for one in packed] == [one.status for one in alone]
    assert {Status.VALID, Status.UNPREDICTABLE} == {one.status for one in alone}
    for one, other in zip(alone, packed, strict=True):
        assert all(map(np.array_equal, one.outputs, other.outputs))
        assert len(one.outputs) == len(other.outputs)


def test_many_vectors_need_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    x = net.input("x", INT32, (2,))
    program = net.program(net.identity(x))
    runs: list[int] = []
    run_many = ReferenceModel.run_many

    def counting(self, model, batches, *, timeout=60.0):  # type: ignore[no-untyped-def]
        runs.append(len(batches))
        return run_many(self, model, batches, timeout=timeout)

    monkeypatch.setattr(ReferenceModel, "run_many", counting)
    vectors = list(input_vectors(input_specs(program), 64, 0))
    results = list(run_packed(MODEL, program, vectors, 60.0))
    assert runs == [4]
    assert all(np.array_equal(one.outputs[0], vector[0]) for one, vector in zip(results, vectors, strict=True))


def test_a_pack_is_legal_and_has_each_constant_once() -> None:
    packed = pack(_overflowing(), 5)
    assert [d for d in verify(packed) if d.severity == "error"] == []
    names = [op.name for op in packed.main.ops]
    assert (names.count("ADD"), names.count("CONST")) == (10, 1)
    assert (len(packed.main.inputs), len(packed.main.outputs)) == (5, 15)


def test_what_cannot_stand_side_by_side_runs_alone() -> None:
    net = Net()
    x = net.input("x", INT32, (2,))
    net.graph.set_inputs([x, x])
    assert width(net.program(net.identity(x))) == 1
    net = Net()
    assert width(net.program(net.const([1], INT32))) == 1
    net = Net()
    assert width(net.program(net.identity(net.input("x", DType.INT8, (1, 512, 512, 1))))) == 1
