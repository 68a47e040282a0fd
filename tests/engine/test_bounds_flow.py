"""Bounds across control flow and variables: what they are in small programs, and that no run exceeds them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_bounds import bounds, coarse
from tests.support.build import Net
from tosakit.engine.bounds import output_bounds
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import StateLink
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode
from tosakit.ir.graph import Op, Tensor, TensorExtras
from tosakit.ir.program import Region
from tosakit.ir.types import encode
from tosakit.numerics.program_intervals import program_intervals
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.oracle.state import one_step

I16, I32, BOOL = DType.INT16, DType.INT32, DType.BOOL
SHAPE = (1, 2)


def rounded(net, x, name="c", reach=100):
    """A CLAMP, which ``coarse(3)`` rounds to multiples of 8: off by 4."""
    low, high = (encode([end], x.dtype) for end in (-reach, reach))
    return net.op(ops.Clamp(low, high, NanPropagationMode.PROPAGATE), (x,), x.dtype, x.shape, name)


def wide(net, x, name="wide"):
    return net.rescale(x, I32, 1 << 14, 14, name)


def several(net, attrs, inputs, shapes):
    results = [Tensor(f"{attrs.NAME}{number}", dtype, shape) for number, (dtype, shape) in enumerate(shapes)]
    net.graph.add_op(Op(attrs, inputs, results))
    return results


def region(program, net, *outputs):
    net.graph.set_outputs(outputs)
    program.regions.append(Region(net.graph.name, [net.graph]))


def conditional(condition, before=False, inside=lambda net, x: x):
    """if condition: inside(x) else: x, doubled; ``before`` rounds x in front."""
    net = Net()
    x = net.input("x", I16, SHAPE)
    x = rounded(net, x) if before else x
    on = net.input("on", BOOL, (1,)) if condition is None else condition(net, x)
    [y] = several(net, ops.CondIf("then", "else"), (on, x), [(I32, SHAPE)])
    program = net.program(y)
    then, other = Net("then"), Net("else")
    region(program, then, wide(then, inside(then, then.input("a", I16, SHAPE))))
    b = wide(other, other.input("b", I16, SHAPE))
    region(program, other, other.add(b, b))
    return program


def test_a_branch_carries_what_goes_in_and_the_worse_one_counts():
    assert bounds(conditional(None, before=True)) == [(8, "")]


def test_what_is_rewritten_in_a_branch_counts_where_that_branch_can_be_taken():
    assert bounds(conditional(None, inside=rounded)) == [(4, "")]
    assert bounds(conditional(None, before=True, inside=lambda n, x: rounded(n, rounded(n, x, "d"), "e"))) == [(12, "")]
    never = bounds(conditional(lambda net, x: net.const([False], BOOL), inside=rounded))
    assert never == [(0, "")]


def test_a_condition_that_can_differ_leaves_no_bound():
    def compared(net, x):
        one = net.op(ops.ReduceMax(1, NanPropagationMode.PROPAGATE), (wide(net, x),), I32, (1, 1), "most")
        positive = net.op(ops.Greater(), (one, net.const([[0]], I32)), BOOL, (1, 1), "positive")
        shape = net.graph.add_op(Op(ops.ConstShape(), (), (Tensor("s", DType.SHAPE, (1,), encode([1], DType.SHAPE)),)))
        return net.op(ops.Reshape(), (positive, shape.output), BOOL, (1,), "on")

    [(lsb, told)] = bounds(conditional(compared, before=True))
    assert lsb is None
    assert told == "the condition of COND_IF can differ, and with it the branch"
    assert bounds(conditional(compared, inside=rounded)) == [(4, "")]


def loop(turns, inside, before=False):
    """``turns`` times: x = inside(x); None leaves the number of turns to an input."""
    net = Net()
    x = wide(net, rounded(net, net.input("x", I16, SHAPE), reach=10) if before else net.input("x", I16, SHAPE))
    limit = net.input("limit", I32, (1,)) if turns is None else net.const([turns], I32)
    start = net.const([0], I32)
    _, _, y = several(net, ops.WhileLoop("cond", "body"), (start, limit, x), [(I32, (1,)), (I32, (1,)), (I32, SHAPE)])
    program = net.program(y)
    cond, body = Net("cond"), Net("body")
    i, n = cond.input("ci", I32, (1,)), cond.input("cn", I32, (1,))
    cond.input("cx", I32, SHAPE)
    region(program, cond, cond.op(ops.Greater(), (n, i), BOOL, (1,), "more"))
    i, n, x = body.input("bi", I32, (1,)), body.input("bn", I32, (1,)), body.input("bx", I32, SHAPE)
    region(program, body, body.add(i, body.const([1], I32), "next"), n, inside(body, x))
    return program


def step(net, x):
    """One more turn rounds the sum once more."""
    return wide(net, rounded(net, net.rescale(x, I16, 1 << 14, 14, "narrow"), reach=5000), "again")


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_each_turn_of_a_counted_loop_adds_to_the_error(turns):
    assert bounds(loop(turns, step)) == [(4 * turns, "")]
    assert bounds(loop(turns, lambda net, x: net.add(x, x), before=True)) == [(4 * 2**turns, "")]


def test_an_error_that_no_turn_makes_worse_needs_no_count():
    def fading(net, x):
        """x/2, rounded: off by 4 it is off by at most 4 again."""
        return net.rescale(x, I32, 1 << 14, 15, "half")

    assert bounds(loop(None, fading, before=True)) == [(4, "")]


def test_an_error_that_grows_for_ever_is_told():
    [(lsb, because)] = bounds(loop(None, step))
    assert lsb is None
    assert because == "each turn of WHILE_LOOP adds to the error, and it is not proved to end within 256 turns"


def test_a_number_of_turns_that_can_differ_leaves_no_bound():
    net = Net()
    x = wide(net, rounded(net, net.input("x", I16, (1,))))
    [y] = several(net, ops.WhileLoop("cond", "body"), (x,), [(I32, (1,))])
    program = net.program(y)
    cond, body = Net("cond"), Net("body")
    c, b = cond.input("ci", I32, (1,)), body.input("bi", I32, (1,))
    region(program, cond, cond.op(ops.Greater(), (cond.const([9], I32), c), BOOL, (1,), "more"))
    region(program, body, body.add(b, body.const([1], I32)))
    assert bounds(program) == [(None, "the condition of WHILE_LOOP can differ, and with it the number of turns")]


# ------------------------------------------------------------------------------------------------ variables
def cell(net, name="s", dtype=I16):
    extras = TensorExtras(variable=True, variable_name=name)
    return net.graph.add_tensor(Tensor(name, dtype, SHAPE, encode(np.zeros(SHAPE, int), dtype), extras=extras))


def read(net, s, name="r"):
    return net.op(ops.VariableRead(), (s,), s.dtype, s.shape, name)


def write(net, value, s):
    twin = net.graph.add_tensor(Tensor(f"{s.name}_{value.name}", s.dtype, s.shape, s.data, extras=s.extras))
    net.graph.add_op(Op(ops.VariableWrite(), (value,), (twin,)))


def test_a_delay_line_gives_back_the_error_it_was_given():
    net = Net()
    first, second = cell(net, "first"), cell(net, "second")
    old, older = read(net, first, "old"), read(net, second, "older")
    write(net, rounded(net, net.input("x", I16, SHAPE)), first)
    write(net, old, second)
    assert bounds(net.program(older, net.add(wide(net, old, "w1"), wide(net, older, "w2")))) == [(4, ""), (8, "")]


def test_a_read_behind_a_write_is_of_this_run():
    net = Net()
    s = cell(net)
    before = read(net, s, "before")
    write(net, rounded(net, net.input("x", I16, SHAPE)), s)
    after = read(net, s, "after")
    write(net, net.input("z", I16, SHAPE), s)
    assert bounds(net.program(before, after)) == [(0, ""), (4, "")]


def test_what_is_added_to_a_variable_in_every_run_grows():
    net = Net()
    s = cell(net, dtype=I32)
    total = net.add(read(net, s), wide(net, rounded(net, net.input("x", I16, SHAPE))))
    write(net, total, s)
    kept = net.identity(net.input("k", I16, SHAPE))
    [grows, fine] = bounds(net.program(total, kept))
    assert grows == (None, 'the error in "s" grows from run to run; a run from the same state is within 4 LSB')
    assert fine == (0, "")


@pytest.mark.parametrize(("reach", "bound"), [(96, 16 + 4 + 4), (100, 16 + 4 + 4 + 16)])
def test_a_late_end_is_waited_for(reach, bound):
    """What is capped by a CLAMP stops growing: it adds up from run to run, to the width of the CLAMP.

    The CLAMP was rewritten before x was; only where rounding x leads to no new values does its proof hold as it stands.
    """
    net = Net()
    s = cell(net)
    moved = net.op(ops.Clamp(encode([-8], I16), encode([8], I16)), (read(net, s),), I16, SHAPE, "capped")
    both = net.add(wide(net, moved, "w1"), wide(net, rounded(net, net.input("x", I16, SHAPE), reach=reach), "w2"))
    write(net, net.rescale(both, I16, 1 << 14, 14, "narrow"), s)
    program = net.program(both)
    done = run_steps(program, [coarse(3)], for_check=True)
    assert [found.lsb for found in output_bounds(program, done.events)] == [bound]


def test_a_variable_of_a_region_is_off_by_the_worst_that_is_ever_written():
    net = Net()
    s, on = cell(net), net.input("on", BOOL, (1,))
    [y] = several(net, ops.CondIf("then", "else"), (on, net.input("x", I16, SHAPE)), [(I16, SHAPE)])
    program = net.program(y, read(net, s, "later"))
    then, other = Net("then"), Net("else")
    a, b = then.input("a", I16, SHAPE), other.input("b", I16, SHAPE)
    inner = cell(then)
    write(then, rounded(then, a), inner)
    region(program, then, then.identity(a))
    region(program, other, read(other, cell(other), "here"))
    assert b.producer is not None
    assert bounds(program) == [(4, ""), (4, "")]


def test_an_output_that_is_an_input_of_the_next_run_carries_its_error_over():
    net = Net()
    s, x = net.input("s", I16, SHAPE), rounded(net, net.input("x", I16, SHAPE))
    both = net.add(wide(net, s, "w1"), wide(net, x, "w2"))
    program = net.program(both, net.rescale(both, I16, 1 << 14, 15, "half"))
    done = run_steps(program, [coarse(3)])
    assert [bound.lsb for bound in output_bounds(program, done.events)] == [4, 2]
    link = StateLink("s", "s", "half", None)
    assert [bound.lsb for bound in output_bounds(program, done.events, [link])] == [8, 4]


@pytest.mark.refmodel
def test_no_run_exceeds_a_bound():
    """Programs with a variable, step by step: reads, a branch on the way, CLAMPs that are rounded, writes.

    Nor does any run leave the intervals of the program.
    """
    told = Counter()

    @given(seed=st.integers(0, 2**32))
    @settings(max_examples=12, deadline=None, derandomize=True)
    def check(seed):
        rng = np.random.default_rng(seed)
        net = Net()
        s = cell(net)
        x, old = net.input("x", I16, SHAPE), read(net, s)
        scale = int(rng.integers(1 << 12, 1 << 14))
        both = net.add(net.rescale(old, I32, scale, 14, "w1"), net.rescale(x, I32, scale, 14, "w2"))
        value = rounded(
            net, net.rescale(both, I16, 1 << 14, int(rng.integers(14, 16)), "n"), "v", int(rng.integers(9, 3000))
        )
        program_regions = []
        if seed % 2:
            on = net.input("on", BOOL, (1,))
            [value] = several(net, ops.CondIf("then", "else"), (on, value), [(I16, SHAPE)])
            for name, reach in (("then", 50), ("else", 700)):
                inner = Net(name)
                inner.graph.set_outputs([rounded(inner, inner.input(f"{name}_x", I16, SHAPE), f"{name}_c", reach)])
                program_regions.append(Region(name, [inner.graph]))
        write(net, value, s)
        before = net.program(value, both)
        before.regions.extend(program_regions)
        after = before.clone()
        found = output_bounds(after, run_steps(after, [coarse(int(rng.integers(1, 4)))], for_check=True).events)
        intervals = program_intervals(before)
        states = [{"s": np.zeros(SHAPE, np.int16)} for _ in range(2)]
        worst = np.zeros(2)
        for _ in range(4):
            arrays = [np.asarray(rng.choice([-32768, 32767, *rng.integers(-999, 999, 4)], SHAPE), np.int16)]
            arrays += [np.array([rng.random() < 0.5])] * (seed % 2)
            runs = [
                ReferenceModel().run(dumps(one_step(p, state)), arrays)
                for p, state in zip((before, after), states, strict=True)
            ]
            assert all(run.status is Status.VALID for run in runs), [run.message for run in runs]
            states = [{"s": run.outputs[2]} for run in runs]
            for tensor, array in zip((value, both, s), runs[0].outputs, strict=True):
                inside = (array >= intervals.of(tensor).low) & (array <= intervals.of(tensor).high)
                assert np.all(inside), (tensor, intervals.of(tensor), array)
            gaps = [np.abs(a.astype(int) - b).max() for a, b in zip(runs[0].outputs, runs[1].outputs, strict=True)]
            worst = np.maximum(worst, gaps[:2])
        for bound, gap in zip(found, worst, strict=True):
            told["none" if bound.lsb is None else "bounded"] += 1
            assert bound.lsb is None or gap <= bound.lsb, (bound, gap)
            told["seen"] += gap > 0

    check()
    assert told["bounded"] > 10
    assert told["seen"] > 10, told
