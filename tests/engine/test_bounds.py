"""Bounds carried from rewrites to outputs: what they are in small graphs, and that no measurement exceeds them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.build import Net
from tests.support.steps import rule
from tosakit.engine.bounds import output_bounds
from tosakit.engine.contract import PER_MATCH, ChangesPrecision, Exact, WithinLsb
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Event, Outcome, Transform
from tosakit.errors import RuleBug
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES, numpy_dtype
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.testing.choices import Seeded
from tosakit.testing.programs import grow
from tosakit.testing.sketch import Sketch

I8, I16, I32, BOOL = DType.INT8, DType.INT16, DType.INT32, DType.BOOL
BATCH = 12


def coarse(bits, *, kind=ops.Clamp, contract=None):
    """Round every CLAMP's result to a multiple of ``2**bits``: off by half of that."""

    def make(builder, op):
        x = builder.op(op.attrs, op.inputs, op.output.dtype, op.output.shape)
        short = builder.rescale(x, I32, 1 << 30, 30 + bits, scale32=True)
        return builder.rescale(short, op.output.dtype, 1 << 30, 30 - bits, scale32=True)

    small = rule(kind, make, contract or WithinLsb(float(1 << bits >> 1), "rounded"), name="coarse")
    return small


def bounds(program, *steps):
    done = run_steps(program, steps or [coarse(3)])
    assert done.events
    return [(bound.lsb, bound.because) for bound in output_bounds(program, done.events)]


def start(dtype=I16, shape=(1, 2, 2, 2)):
    """A net whose first value is rounded to multiples of 8: off by 4."""
    net = Net()
    x = net.input("x", dtype, shape)
    b = np.array([-100], numpy_dtype(dtype)).tobytes(), np.array([100], numpy_dtype(dtype)).tobytes()
    return net, net.op(ops.Clamp(*b), (x,), dtype, shape, "c")


def test_a_convolution_adds_up_its_weights_and_a_rescale_divides():
    net, x = start()
    acc = net.conv2d(x, [[3, -2], [1, 0]], [7, 8])
    y = net.rescale(acc, I16, 1 << 14, 16)
    assert bounds(net.program(acc, y)) == [(20, ""), (5, "")]


def test_an_error_no_longer_than_a_step_still_costs_a_rounding():
    net, x = start()
    assert bounds(net.program(net.rescale(x, I16, 1 << 14, 22))) == [(1, "")]


def test_sums_and_differences_add():
    net, x = start(I16)
    wide = net.rescale(x, I32, 1 << 14, 14)
    same = net.identity(wide)
    differences = [net.op(ops.Sub(), (wide, other), I32, x.shape, f"d{other.name}") for other in (same, wide)]
    assert bounds(net.program(net.add(wide, wide), *differences)) == [(8, ""), (8, ""), (0, "")]


def test_products_take_the_other_side_by_its_interval():
    """The operands are -100 to 100; off by 4 they may have been up to 104, and 4 * 104 + 4 * 104 is the bound."""
    net, x = start()
    y = net.op(ops.Mul(), (x, x, net.const([0], I8)), I32, x.shape, "y")
    assert bounds(net.program(y)) == [(2 * 4 * 108, "")]


def test_a_matmul_is_off_by_both_sides():
    net, x = start(I16, (1, 2, 3))
    b = net.const(np.array([[[1], [-2], [3]]]), I16)
    assert bounds(net.program(net.matmul(x, b))) == [(4 * 6, "")]
    net, x = start(I16, (1, 3, 3))
    assert bounds(net.program(net.matmul(x, x))) == [(3 * 2 * 4 * 108, "")]


@pytest.mark.parametrize(("reach", "bound"), [(100, 128 * 4 * 5), (20, 0)])
def test_a_table_goes_by_its_slope_where_the_operand_can_be(reach, bound):
    """Flat around 0, steep by 5 from 128 on: entries are 128 codes apart, so a code there is worth 5."""
    net = Net()
    x = net.input("x", I16, (1, 4))
    low, high = (np.array([end], np.int16).tobytes() for end in (-reach, 150 if reach == 100 else reach))
    y = net.op(ops.Clamp(low, high), (x,), I16, x.shape, "c")
    entries = np.maximum(np.arange(513) - 257, 0) * 640
    entries = np.minimum(entries, 32767)
    table = net.const(entries, I16)
    [(found, because)] = bounds(net.program(net.op(ops.Table(), (y, table), I32, x.shape, "t")))
    assert because == ""
    assert found == (4 * 640 if bound else 0)


def test_saturation_caps_what_can_be_seen():
    net, x = start()
    narrow = np.array([-1], np.int16).tobytes(), np.array([1], np.int16).tobytes()
    y = net.op(ops.Clamp(*narrow), (net.identity(x),), I16, x.shape, "y")
    program = net.program(y)
    done = run_steps(program, [coarse(3)])
    assert len(done.events) == 2
    assert output_bounds(program, done.events)[0].lsb == 2 + 4


@pytest.mark.parametrize("kind", ["ARGMAX", "GREATER", "BITWISE_AND"])
def test_what_has_no_bound_says_so(kind):
    net, x = start()
    wide = net.rescale(x, I32, 1 << 14, 14)
    y = {
        "ARGMAX": lambda: net.op(ops.ArgMax(axis=3), (x,), I32, (1, 2, 2), "y"),
        "GREATER": lambda: net.op(ops.Greater(), (wide, wide), BOOL, x.shape, "y"),
        "BITWISE_AND": lambda: net.op(ops.BitwiseAnd(), (x, x), I16, x.shape, "y"),
    }[kind]()
    kept = net.rescale(net.input("other", I16, (1, 2)), I16, 1 << 14, 14, "kept")
    assert bounds(net.program(y, kept)) == [(None, f"{kind} can turn any difference into another"), (0, "")]


def test_a_bound_of_the_whole_type_is_none():
    net, x = start(I16, (1, 2))
    y = net.rescale(x, I16, 32767, 2)
    assert bounds(net.program(y), coarse(5)) == [(None, "it grows to the whole range of INT16 on the way")]


def test_rewrites_of_rewrites_add_their_bounds():
    """CLAMP by a first rule, then the result's last RESCALE by a second one."""
    net, x = start(I16, (1, 2))
    program = net.program(net.identity(x))

    def again(builder, op):
        y = builder.op(op.attrs, op.inputs, op.output.dtype, op.output.shape)
        half = builder.rescale(y, I32, 1 << 14, 15, scale32=False)
        return builder.rescale(half, I16, 1 << 14, 13, scale32=False)

    second = rule(ops.Rescale, again, WithinLsb(1.0, "halved"), name="second", when=lambda op: op.output.dtype == I16)
    assert bounds(program, coarse(3), second) == [(5, "")]


def test_exact_rewrites_prove_identity_and_changes_of_precision_nothing():
    net, x = start()
    program = net.program(net.identity(x))
    assert bounds(program, coarse(0, contract=Exact())) == [(0, "")]
    net, x = start()
    program = net.program(net.identity(x))
    change = Transform(
        "widen",
        lambda p, c: Outcome([Event("widen", "main", ("x",), ChangesPrecision("wider"))]),
        Exact(),
        "For a test.",
    )
    assert bounds(program, change) == [(None, "widen: changes precision (wider)")]


def test_a_rewrite_must_state_its_bound_where_its_rule_has_none():
    net, x = start()
    with pytest.raises(RuleBug, match='coarse at CLAMP -> "c" states no bound'):
        run_steps(net.program(x), [coarse(3, contract=WithinLsb(PER_MATCH, "it depends"))])
    assert str(WithinLsb(PER_MATCH, "it depends")) == "within a bound computed per match (it depends)"


def values(rng, x):
    """Small values of an input, and its limits; BOOL too."""
    low, high = INTEGER_RANGES.get(x.dtype, (0, 1))
    drawn = rng.integers(max(low, -200), min(high, 200), x.shape, endpoint=True)
    return np.asarray(
        np.where(rng.random(x.shape) < 0.1, rng.choice([low, high], x.shape), drawn), numpy_dtype(x.dtype)
    )


@pytest.mark.refmodel
def test_no_measurement_exceeds_a_bound():
    """Random graphs in which some values are rounded; every result of every operator is an output."""
    told, exercised, worst = Counter(), Counter(), []

    @given(seed=st.integers(0, 2**32), length=st.integers(2, 14), bits=st.integers(1, 5))
    @settings(max_examples=90, deadline=None, derandomize=True)
    def check(seed, length, bits):
        sketch = Sketch(choices := Seeded(seed))
        for dtype in (I8, I16):
            x = sketch.input(dtype, (BATCH, 3, 3, 2))
            low = choices.integer(-120, 60)
            sketch.values.append(sketch.builder.clamp(x, low, low + choices.integer(1, 60)))
        grow(sketch, length, lambda op: not any(t.extras.variable for t in (*op.inputs, *op.outputs)))
        results = [t for op in sketch.builder.ops for t in op.outputs if op.inputs and t.dtype in INTEGER_RANGES]
        before = sketch.program([t for t in results if t.dtype != DType.SHAPE])
        after = before.clone()
        done = run_steps(after, [coarse(bits)], for_check=True)
        arrays = [values(np.random.default_rng(seed), x) for x in sketch.inputs]
        one, other = (ReferenceModel().run(dumps(p), arrays) for p in (before, after))
        if one.status is not Status.VALID or other.status is not Status.VALID:
            told["invalid"] += 1
            return
        exercised.update(op.name for op in sketch.builder.ops)
        found = zip(results, output_bounds(after, done.events), one.outputs, other.outputs, strict=True)
        for tensor, bound, left, right in found:
            gap = int(np.abs(left.astype(np.int64) - right.astype(np.int64)).max())
            told["none" if bound.lsb is None else "bounded"] += 1
            if bound.lsb is not None:
                assert gap <= bound.lsb, (bound, gap)
                if bound.lsb:
                    worst.append(gap / bound.lsb)
                    told["through control flow"] += isinstance(tensor.producer.attrs, ops.CondIf | ops.WhileLoop)

    check()
    assert told["bounded"] > 2 * told["none"], told
    assert told["through control flow"] >= 3, told
    assert len(worst) > 100
    assert np.mean(worst) > 0.2, "bounds are far from what is measured"
    assert len(exercised) > 25
