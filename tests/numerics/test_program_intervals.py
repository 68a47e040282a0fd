"""Intervals across regions, loops and variables; the reference model runs what it can."""

import numpy as np
import pytest

from tests.support.build import Net
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import Op, Tensor, TensorExtras
from tosakit.ir.program import Program, Region
from tosakit.numerics.program_intervals import assumptions, program_intervals
from tosakit.oracle.refmodel import ReferenceModel, Status

I32, BOOL = DType.INT32, DType.BOOL
FULL = (-(1 << 31), (1 << 31) - 1)


def several(net, attrs, inputs, results):
    net.graph.add_op(Op(attrs, inputs, results))
    return results


def clamp(net, x, low, high, name):
    low, high = net.const([low], I32), net.const([high], I32)
    nan = NanPropagationMode.PROPAGATE
    x = net.op(ops.Maximum(nan), (x, low), I32, x.shape, f"{name}_low")
    return net.op(ops.Minimum(nan), (x, high), I32, x.shape, name)


def region(net, *outputs):
    net.graph.set_outputs(outputs)
    return Region(net.graph.name, [net.graph])


def bounds(program, tensor, **inputs):
    found = program_intervals(program, inputs.get("inputs")).of(tensor)
    return found.lowest, found.highest


def conditional(known=None):
    """if condition: x + 5 else -x, for x clamped to 1 ... 9."""
    net = Net()
    x = clamp(net, net.input("x", I32, (1,)), 1, 9, "c")
    condition = net.input("condition", BOOL, (1,)) if known is None else net.const([known], BOOL)
    result = Tensor("result", I32, (1,))
    several(net, ops.CondIf(then_graph="then", else_graph="else"), (condition, x), (result,))
    program = net.program(result)
    then, other = Net("then"), Net("else")
    a = then.input("a", I32, (1,))
    program.regions.append(region(then, then.add(a, then.const([5], I32), "plus")))
    d = other.input("d", I32, (1,))
    zero = [other.const([0], I32), other.const([0], I32)]
    program.regions.append(region(other, other.op(ops.Negate(), (d, *zero), I32, (1,), "minus")))
    return program, result, a


def test_branches_are_joined_or_chosen():
    program, result, a = conditional()
    assert bounds(program, result) == (-9, 14)
    assert bounds(program, a) == (1, 9)
    for known, want in ((True, (6, 14)), (False, (-9, -1))):
        program, result, a = conditional(known)
        assert bounds(program, result) == want
        assert bounds(program, a) == ((1, 9) if known else FULL)  # nothing is known of a region that never runs


def test_a_branch_knows_what_its_condition_says():
    net = Net()
    x = net.input("x", I32, (1,))
    condition = net.op(ops.Greater(), (net.const([10], I32), x), BOOL, (1,), "small")
    result = Tensor("result", I32, (1,))
    several(net, ops.CondIf(then_graph="then", else_graph="else"), (condition, x), (result,))
    program = net.program(result)
    inputs = []
    for name in ("then", "else"):
        inner = Net(name)
        inputs.append(inner.input(f"{name}_x", I32, (1,)))
        program.regions.append(region(inner, inner.identity(inputs[-1], f"{name}_y")))
    assert bounds(program, inputs[0]) == (FULL[0], 9)
    assert bounds(program, inputs[1]) == (10, FULL[1])


def counting(limit, step, *, strict=True, others=None):
    """i = 0, total = t; while limit > i: i += step, total = max(total - 1, -3); gives i and total."""
    net = Net()
    start = net.input("t", I32, (1, 2))
    count = net.const([0], I32, "zero")
    results = Tensor("i_end", I32, (1,)), Tensor("t_end", I32, (1, 2))
    several(net, ops.WhileLoop(cond_graph="cond", body_graph="body"), (count, start), results)
    program = net.program(*results)
    cond = Net("cond")
    i = cond.input("ci", I32, (1,))
    cond.input("ct", I32, (1, 2))
    kind = ops.Greater() if strict else ops.GreaterEqual()
    program.regions.append(region(cond, cond.op(kind, (cond.const([limit], I32), i), BOOL, (1,), "more")))
    body = Net("body")
    i, total = body.input("bi", I32, (1,)), body.input("bt", I32, (1, 2))
    less = body.op(ops.Sub(), (total, body.const([[1, 0]], I32)), I32, (1, 2), "less")
    floor = body.op(
        ops.Maximum(NanPropagationMode.PROPAGATE), (less, body.const([[-3, -3]], I32)), I32, (1, 2), "floor"
    )
    program.regions.append(region(body, body.add(i, body.const([step], I32), "next"), floor))
    return program, start, results, i


@pytest.mark.parametrize(
    ("limit", "step", "strict", "end", "inside"),
    [(10, 1, True, (10, 10), (0, 9)), (10, 1, False, (11, 11), (0, 10)), (1000, 7, True, (1000, 1006), (0, 999))],
)
def test_a_counter_has_the_range_it_is_counted_through(limit, step, strict, end, inside):
    program, start, (i_end, t_end), i = counting(limit, step, strict=strict)
    assert bounds(program, i_end) == end
    assert bounds(program, i) == inside
    found = program_intervals(program, {start: (0, 5)}).of(t_end)
    assert (found.lowest, found.highest) == (-3, 5)


def test_a_loop_that_never_turns_gives_what_it_got():
    program, start, (i_end, t_end), _ = counting(0, 1)
    assert bounds(program, i_end) == (0, 0)
    assert bounds(program, t_end, inputs={start: (7, 9)}) == (7, 9)


def test_a_loop_without_a_bound_is_widened():
    """Doubling has no bound but that of the type; what does not change keeps its interval."""
    net = Net()
    x, kept = net.input("x", I32, (1,)), clamp(net, net.input("k", I32, (1,)), 2, 3, "c")
    more = net.input("more", BOOL, (1,))
    results = Tensor("x_end", I32, (1,)), Tensor("k_end", I32, (1,)), Tensor("m_end", BOOL, (1,))
    several(net, ops.WhileLoop(cond_graph="cond", body_graph="body"), (clamp(net, x, 1, 2, "s"), kept, more), results)
    program = net.program(*results)
    cond, body = Net("cond"), Net("body")
    cond.input("cx", I32, (1,)), cond.input("ck", I32, (1,))
    program.regions.append(region(cond, cond.identity(cond.input("cm", BOOL, (1,)), "same")))
    a, k, m = body.input("bx", I32, (1,)), body.input("bk", I32, (1,)), body.input("bm", BOOL, (1,))
    program.regions.append(region(body, body.add(a, a, "double"), k, m))
    assert bounds(program, results[0]) == (1, FULL[1])
    assert bounds(program, results[1]) == (2, 3)


@pytest.mark.parametrize("spelling", ["operators", "identity"])
def test_a_variable_holds_what_is_ever_written(spelling):
    """state starts at 4; each run reads it, adds x in 0 ... 1 and writes at most 100."""
    net = Net()
    x = clamp(net, net.input("x", I32, (1,)), 0, 1, "c")
    extras = TensorExtras(variable=True, variable_name="state")
    data = np.array([4], "<i4").tobytes()
    cell, again = (net.graph.add_tensor(Tensor(n, I32, (1,), data, extras=extras)) for n in ("cell", "cell2"))
    reading = ops.VariableRead() if spelling == "operators" else ops.Identity()
    read = net.op(reading, (cell,), I32, (1,), "read")
    value = clamp(net, net.add(read, x), -100, 100, "value")
    net.graph.add_op(Op(ops.VariableWrite() if spelling == "operators" else ops.Identity(), (value,), (again,)))
    program = net.program(read)
    assert bounds(program, read) == (4, 100)
    assert bounds(program, value) == (4, 100)


def test_plain_programs_need_no_assumptions():
    net = Net()
    assert assumptions(net.program(net.identity(net.input("x", I32, (1,))))) == {}


@pytest.mark.parametrize("fault", ["missing region", "recursion", "operands"])
def test_nothing_is_assumed_of_faulty_control_flow(fault):
    program, result, _ = conditional()
    if fault == "missing region":
        del program.regions[2]
    elif fault == "recursion":
        block = program.regions[1].blocks[0]
        condition = block.add_op(Op(ops.Const(), (), (Tensor("t", BOOL, (1,), b"\1"),))).output
        inner = ops.CondIf(then_graph="then", else_graph="else")
        block.add_op(Op(inner, (condition, block.inputs[0]), (Tensor("again", I32, (1,)),)))
    else:
        program.regions[1].blocks[0].set_inputs([])
    assert assumptions(program) == {}
    assert bounds(program, result) == FULL


@pytest.mark.refmodel
@pytest.mark.parametrize("seed", range(4))
def test_nothing_leaves_its_interval_in_the_reference_model(seed):
    """Random loops around random branches; the model runs them on the ends of the inputs and between."""
    rng = np.random.default_rng(seed)
    net = Net()
    x = net.input("x", I32, (1,))
    low, high = sorted(rng.integers(-50, 50, 2).tolist())
    limit, step, a, b = (int(rng.integers(1, 12)) for _ in range(4))
    results = Tensor("i_end", I32, (1,)), Tensor("x_end", I32, (1,))
    loop = ops.WhileLoop(cond_graph="cond", body_graph="body")
    several(net, loop, (net.const([0], I32), clamp(net, x, low, high, "c")), results)
    program: Program = net.program(*results)
    cond, body, then, other = Net("cond"), Net("body"), Net("then"), Net("else")
    i = cond.input("ci", I32, (1,))
    cond.input("cx", I32, (1,))
    program.regions.append(region(cond, cond.op(ops.Greater(), (cond.const([limit], I32), i), BOOL, (1,), "more")))
    i, value = body.input("bi", I32, (1,)), body.input("bx", I32, (1,))
    positive = body.op(ops.Greater(), (value, body.const([a], I32)), BOOL, (1,), "positive")
    changed = Tensor("changed", I32, (1,))
    several(body, ops.CondIf(then_graph="then", else_graph="else"), (positive, value), (changed,))
    program.regions.append(region(body, body.add(i, body.const([step], I32), "next"), changed))
    v = then.input("tv", I32, (1,))
    program.regions.append(region(then, then.op(ops.Sub(), (v, then.const([b], I32)), I32, (1,), "down")))
    v = other.input("ev", I32, (1,))
    program.regions.append(region(other, other.add(v, other.const([a], I32), "up")))
    found = program_intervals(program)
    values = [low - 1, low, (low + high) // 2, high, high + 1]
    seen = []
    for run in ReferenceModel().run_many(dumps(program), [[np.array([value], np.int32)] for value in values]):
        assert run.status is Status.VALID, run.message
        seen.append([int(array[0]) for array in run.outputs])
    for tensor, reached in zip(results, np.array(seen).T, strict=True):
        assert found.of(tensor).within(*FULL)
        assert found.of(tensor).lowest <= reached.min() <= reached.max() <= found.of(tensor).highest
    assert found.of(results[0]).highest - found.of(results[0]).lowest < step
    assert found.of(results[1]).highest < 1000
