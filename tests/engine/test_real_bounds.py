"""Bounds against real arithmetic, held to exact rational numbers: random graphs, and random int8 graphs widened."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.widen_int8_activations import TRANSFORM, Options
from tests.rewrites.widen.test_random_graphs import draw
from tests.support import exact
from tests.support.build import Net
from tests.support.int8 import MODEL, Int8Net
from tosakit.engine.bounds import output_bounds, real_bounds
from tosakit.engine.contract import ChangesPrecision
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Event
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, RoundingMode
from tosakit.ir.types import INTEGER_RANGES, numpy_dtype
from tosakit.numerics.deviation import Unbounded
from tosakit.numerics.program_intervals import program_intervals
from tosakit.numerics.real_deviation import Meaning, RealArithmetic
from tosakit.oracle.refmodel import Status
from tosakit.testing.choices import Seeded
from tosakit.testing.programs import grow
from tosakit.testing.sketch import Sketch

I8, I16, I32, I48 = DType.INT8, DType.INT16, DType.INT32, DType.INT48
EVENT = Event("", "main", ("x",), ChangesPrecision("for a test"))


def found(program, meaning=None):
    """The bound of each output, or why there is none."""
    real = RealArithmetic(program_intervals(program), meaning or Meaning())
    bounds = real_bounds(program, real, EVENT).outputs
    return [bound.because if isinstance(bound, Unbounded) else bound for bound in bounds]


def test_a_rescale_is_off_by_half_a_unit_unless_it_multiplies_by_an_integer():
    net = Net()
    x = net.input("x", I16, (2,))
    outputs = [net.rescale(x, I32, *pair, f"y{pair}") for pair in ((1 << 14, 14), (1 << 14, 12), (1 << 14, 15), (3, 2))]
    assert found(net.program(*outputs)) == [0, 0, 0.5, 0.5]
    net = Net()
    x = net.input("x", I32, (2,))
    twice = RoundingMode.DOUBLE_ROUND
    y = net.rescale(x, I16, 1 << 30, 33, scale32=True, rounding_mode=twice)
    assert found(net.program(y)) == [0.5 + 2**-3]


def test_a_multiplier_counts_by_its_distance_from_what_it_stands_for_up_to_saturation():
    net = Net()
    x = net.input("x", I16, (1, 2))
    y = net.rescale(x, I32, 21845, 16)
    third = Meaning({y: [Fraction(1, 3)]})
    assert found(net.program(y), third) == [pytest.approx(0.5 + 32768 * (1 / 3 - 21845 / 65536), abs=2**-12)]
    net = Net()
    y = net.rescale(net.input("x", I48, (1, 2)), I16, 21845, 16)
    saturated = Meaning({y: [Fraction(1, 3)]})
    value = 65536 / (21845 / 65536)  # from here on the result saturates at either scale
    assert found(net.program(y), saturated)[0] <= 0.5 + value * (1 / 3 - 21845 / 65536) + 2**-11


def test_errors_are_carried_by_channel():
    net = Net()
    x = net.input("x", I16, (1, 1, 1, 2))
    half = net.rescale(x, I16, [1 << 14, 1 << 14], [14, 15], "half")
    program = net.program(net.conv2d(half, [[9, 1], [9, -3]], [0, 0]), net.conv2d(half, [[5, 0], [7, 0]], [0, 0], "a2"))
    assert found(program) == [1.5, 0]


def test_a_table_passes_errors_on_by_its_slope():
    net = Int8Net()
    x = net.requantize(net.int8("x", (1, 2)), I8, (1 << 30, 31), "half")
    entries = np.where(np.arange(-128, 128) > 0, 3 * np.arange(-128, 128) % 128, 0)
    steps = int(np.abs(np.diff(entries)).max())
    assert found(net.outputs(net.table(x, entries))) == [steps / 2]


def test_what_has_no_bound_says_so():
    net = Int8Net()
    x = net.requantize(net.int8("x", (1, 2)), I8, (1 << 30, 31), "half")
    y = net.op(ops.BitwiseNot(), (x,), I8, (1, 2), "y")
    exactly = net.op(ops.BitwiseNot(), (net.int8("z", (1, 2)),), I8, (1, 2), "e")
    assert found(net.outputs(y, exactly)) == ["BITWISE_NOT can turn any difference into another", 0]


def test_later_rewrites_are_added_to_a_change_of_precision():
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), [[[[2, 30]]]], [77], zero_point=8)
    program = net.outputs(net.narrowing(acc, 4, "y", (1518500250, 37)))
    done = run_steps(program, [TRANSFORM])
    [bound] = output_bounds(program, done.events, (), done.real)
    assert bound.lsb is None
    assert bound.because.startswith("widen_int8_activations: changes precision (int8 activations become int16")
    assert 0.5 <= bound.real < 1.5
    assert bound.real == max(event.contract.lsb for event in done.events if event.contract.lsb is not None)
    [unknown] = output_bounds(program, done.events)
    assert (unknown.real, unknown.real_because) == (None, "the change of precision does not say what it means")
    [twice] = output_bounds(program, done.events, (), done.real * 2)
    assert twice.real_because == "precision changed more than once"


def drawn(rng, x):
    low, high = INTEGER_RANGES.get(x.dtype, (0, 1))
    values = rng.integers(low, high, x.shape, endpoint=True)
    return np.where(rng.random(x.shape) < 0.2, rng.choice([low, high], x.shape), values).astype(numpy_dtype(x.dtype))


@pytest.mark.refmodel
def test_no_operator_is_further_from_exact_arithmetic_than_its_bound():
    told, exercised, worst = Counter(), Counter(), []

    @given(seed=st.integers(0, 2**32), length=st.integers(5, 16))
    @settings(max_examples=80, deadline=None, derandomize=True)
    def check(seed, length):
        sketch = Sketch(choices := Seeded(seed))
        for dtype in (I8, I16):
            x = sketch.input(dtype, (2, 3, 3, 2))
            low = choices.integer(-120, 60)
            sketch.values.append(sketch.builder.clamp(x, low, low + choices.integer(1, 60)))
        grow(sketch, length, lambda op: not op.inputs or (type(op.attrs) in exact.HANDLERS and not unsigned(op)))
        results = [t for op in sketch.builder.ops for t in op.outputs if op.inputs and t.dtype in INTEGER_RANGES]
        results = [t for t in results if t.dtype != DType.SHAPE]
        program = sketch.program(results)
        arrays = [drawn(np.random.default_rng(seed), x) for x in sketch.inputs]
        run = MODEL.run(dumps(program), arrays)
        if run.status is not Status.VALID:
            told["invalid"] += 1
            return
        given = {
            x: a if a.dtype == bool else exact.fractions(a) for x, a in zip(program.main.inputs, arrays, strict=True)
        }
        real = exact.run(program.main, given)
        if any(overflows(tensor, real[tensor]) for tensor in results):  # unpredictable, but not for the model
            told["invalid"] += 1
            return
        for tensor, bound, whole in zip(results, found(program), run.outputs, strict=True):
            told["none" if isinstance(bound, str) else "bounded"] += 1
            if isinstance(bound, str) or real[tensor] is None:
                continue
            gap = max(abs(exact.fractions(whole) - real[tensor]).flat, default=0)
            assert gap <= bound, (tensor.producer, float(gap), bound)
            exercised[tensor.producer.name] += 1
            if bound:
                worst.append(float(gap) / bound)

    check()
    assert told["bounded"] > 2 * told["none"], told
    assert len(worst) > 100, (told, exercised)
    assert np.mean(worst) > 0.3, "bounds are far from what is measured"
    assert len(exercised) > 22, exercised
    assert exercised["RESCALE"] > 20


def overflows(tensor, values):
    low, high = INTEGER_RANGES[tensor.dtype]
    return values is not None and (min(values.flat) < low - 1 or max(values.flat) > high + 1)


def unsigned(op):
    return isinstance(op.attrs, ops.Rescale) and (op.attrs.input_unsigned or op.attrs.output_unsigned)


@pytest.mark.refmodel
def test_a_widened_program_is_within_its_bound_of_what_the_int8_program_means():
    """Inputs are on the finer grid between the int8 values; what the int8 program means there is computed exactly."""
    told, worst = Counter(), []
    for seed in range(24):
        before = draw(seed)
        after = before.clone()
        options = Options(smooth=seed % 5 == 0, rescale_form="two-step" if seed % 3 == 0 else "one-step")
        done = run_steps(after, [TRANSFORM], options={TRANSFORM.name: options})
        if not done.events:
            continue
        rng = np.random.default_rng(seed)
        zero_points = {change.name: change.zero_point for change in done.boundary}
        arrays, meant = [], {}
        for old, new in zip(before.main.inputs, after.main.inputs, strict=True):
            z = zero_points.get(old.name)
            ends = (-128, 127) if z is None else ((-128 - z) * 128, (127 - z) * 128)
            array = np.where(rng.random(old.shape) < 0.3, rng.choice(ends, old.shape), rng.integers(*ends, old.shape))
            arrays.append(array.astype(numpy_dtype(new.dtype)))
            meant[old] = exact.fractions(array) if z is None else exact.fractions(array) / 128 + z
        run = MODEL.run(dumps(after), arrays)
        assert run.status is Status.VALID, run.message
        real = exact.run(before.main, meant)
        bounds = output_bounds(after, done.events, (), done.real)
        for old, bound, whole in zip(before.main.outputs, bounds, run.outputs, strict=True):
            told["none" if bound.real is None else "bounded"] += 1
            if bound.real is None or real[old] is None:
                continue
            z = zero_points.get(old.name)
            want = real[old] if z is None else (real[old] - z) * 128
            gap = max(abs(exact.fractions(whole) - want).flat)
            assert gap <= bound.real, (seed, old, float(gap), bound)
            told["seen"] += 1
            if bound.real:
                worst.append(float(gap) / bound.real)
    assert told["seen"] > 20, told
    assert told["bounded"] > told["none"], told
    assert max(worst) > 0.8, worst
