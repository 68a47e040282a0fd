"""Values that cross the border of a region are int16 on both sides; regions have constants of their own."""

import numpy as np
import pytest

from tests.support.int8 import ONE, Int8Net, widen
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program, Region


def _branch(name: str, scale: tuple[int, int], zero_point: int = 4) -> Int8Net:
    net = Int8Net(name)
    x = net.int8(f"{name}_x", (1, 3))
    net.outputs(net.requantize(x, DType.INT8, scale, f"{name}_y", input_zp=4, output_zp=zero_point))
    return net


def _conditional(zero_points: tuple[int, int]) -> Program:
    net = Int8Net()
    x = net.requantize(net.int8("x", (1, 3)), DType.INT8, ONE, "in", input_zp=-7, output_zp=4)
    result = Tensor("result", DType.INT8, (1, 3))
    condition = net.input("condition", DType.BOOL, (1,))
    net.several(ops.CondIf(then_graph="then", else_graph="else"), (condition, x), (result,))
    program = net.outputs(net.requantize(result, DType.INT8, (1518500250, 31), "y", input_zp=4, output_zp=1))
    branches = (
        _branch("then", (1518500250, 31), zero_points[0]),
        _branch("else", (1 << 30, 30), zero_points[1]),
    )
    for branch in branches:
        program.regions.append(Region(branch.graph.graph["name"], [branch.graph]))
    return program


@pytest.mark.refmodel
@pytest.mark.parametrize("zero_points", [(4, 4), (4, -50)])
def test_cond_if(zero_points: tuple[int, int]) -> None:
    made = widen(_conditional(zero_points))
    for region in made.program.regions[1:]:
        assert {t.dtype for t in (*region.blocks[0].inputs, *region.blocks[0].outputs)} == {DType.INT16}
    [conditional] = made.of("COND_IF")
    assert (conditional.inputs[1].dtype, conditional.output.dtype) == (DType.INT16, DType.INT16)
    other = made.program.regions[2].blocks[0]
    assert ("ADD" in [op.name for op in other.ops]) == (zero_points[1] != 4)
    assert made.same.max_difference <= 1.01
    assert not made.result.refusals


@pytest.mark.refmodel
def test_while_loop_keeps_loop_carried_dtypes() -> None:
    """for i in 3 to 0: x = requantize(x)."""
    net = Int8Net()
    x = net.requantize(net.int8("x", (1, 3)), DType.INT8, ONE, "in", input_zp=-7, output_zp=4)
    count = net.const([3], DType.INT32, "three")
    results = (Tensor("left", DType.INT32, (1,)), Tensor("result", DType.INT8, (1, 3)))
    net.several(ops.WhileLoop(cond_graph="cond", body_graph="body"), (count, x), results)
    program = net.outputs(results[1], results[0])
    cond = Int8Net("cond")
    left = cond.input("cond_left", DType.INT32, (1,))
    cond.int8("cond_x", (1, 3))
    cond.outputs(cond.op(ops.Greater(), (left, cond.const([0], DType.INT32, "zero")), DType.BOOL, (1,), "go_on"))
    body = Int8Net("body")
    left, value = body.input("body_left", DType.INT32, (1,)), body.int8("body_x", (1, 3))
    less = body.op(ops.Sub(), (left, body.const([1], DType.INT32, "one")), DType.INT32, (1,), "less")
    body.outputs(less, body.requantize(value, DType.INT8, (1518500250, 31), "body_y", input_zp=4, output_zp=4))
    for region in (cond, body):
        program.regions.append(Region(region.graph.graph["name"], [region.graph]))
    made = widen(program)
    for region in made.program.regions[1:]:
        assert [t.dtype for t in region.blocks[0].inputs] == [DType.INT32, DType.INT16]
    assert [t.dtype for t in made.program.main.outputs] == [DType.INT16, DType.INT32]
    assert made.same.max_difference <= 1.51


@pytest.mark.refmodel
def test_an_island_inside_a_region_only_concerns_the_region() -> None:
    program = _conditional((4, 4))
    inner = Int8Net("then")
    x = inner.int8("then_x", (1, 3))
    inner.outputs(inner.op(ops.BitwiseNot(), (x,), DType.INT8, (1, 3), "then_y"))
    program.regions[1] = Region("then", [inner.graph])
    made = widen(program)
    assert made.reasons == ["TOSA has no BITWISE_NOT on int16 that means the same"]
    names = [op.name for op in made.program.regions[1].blocks[0].ops if op.name != "CONST"]
    assert names == ["RESCALE", "BITWISE_NOT", "RESCALE"]
    assert made.same.max_difference <= 1.01


def test_a_missing_region_makes_an_island() -> None:
    net = Int8Net()
    x = net.requantize(net.int8("x", (1, 3)), DType.INT8, ONE, "in", input_zp=-7, output_zp=4)
    result = Tensor("result", DType.INT8, (1, 3))
    condition = net.const(np.array([True]), DType.BOOL, "condition")
    net.several(ops.CondIf(then_graph="nowhere", else_graph="else"), (condition, x), (result,))
    program = net.outputs(net.requantize(result, DType.INT8, ONE, "y", input_zp=4, output_zp=1))
    from tests.support.int8 import TRANSFORM
    from tosakit.engine.driver import run_steps

    made = run_steps(program, [TRANSFORM])
    assert any('no region "nowhere"' in refused.reason for refused in made.refusals)
