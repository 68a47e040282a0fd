"""Intervals against the TOSA reference model: random graphs, and convolutions that reach their bounds."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Tensor
from tosakit.ir.program import Program, Region
from tosakit.ir.types import INTEGER_RANGES, numpy_dtype
from tosakit.numerics import required_range
from tosakit.numerics._interval_sums import CONVOLUTIONS as CONVOLUTION_OPS
from tosakit.numerics.intervals import Intervals
from tosakit.numerics.program_intervals import program_intervals
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.testing.choices import Seeded
from tosakit.testing.programs import grow, readers
from tosakit.testing.sketch import INTEGER, INTEGERS, Sketch

pytestmark = pytest.mark.refmodel

BATCH = 12
I8, I16, I32, I48 = DType.INT8, DType.INT16, DType.INT32, DType.INT48
ACCUMULATOR = {I8: I32, I16: I48}
INT32 = INTEGER_RANGES[I32]
CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "models"


def program(inputs, made, outputs):
    graph = Graph("main")
    for x in inputs:
        graph.add_tensor(x)
    graph.set_inputs(inputs)
    for op in made:
        graph.add_op(op)
    graph.set_outputs(outputs)
    return Program([Region("main", [graph])])


def is_integer(tensor):
    return tensor.dtype in INTEGER_RANGES and tensor.dtype != DType.SHAPE


def has_interval(tensor):
    return is_integer(tensor) or tensor.dtype == DType.BOOL


def assert_inside(interval, tensor, values):
    """Every channel of the values is inside the interval of its channel."""
    rows = values.reshape(-1, values.shape[-1] if values.ndim else 1).astype(np.int64)
    assert np.all(rows.min(axis=0) >= interval.low), (tensor, tensor.producer, interval, rows.min(axis=0))
    assert np.all(rows.max(axis=0) <= interval.high), (tensor, tensor.producer, interval, rows.max(axis=0))


def is_predictable(op, intervals):
    """Whether the intervals prove that the operator satisfies every REQUIRE of the specification."""
    if isinstance(op.attrs, ops.Add | ops.Sub | ops.Mul | ops.Abs | ops.ReduceSum | ops.Negate | ops.IntDiv):
        return op.output.dtype != I32 or intervals.unclipped(op).within(*INT32)
    if isinstance(op.attrs, ops.CondIf | ops.WhileLoop):
        return False
    if isinstance(op.attrs, ops.Rescale):
        m, s, input_zp, output_zp = (op.inputs[i].values() for i in (1, 2, 3, 4))
        mask = 0xFF if op.inputs[0].dtype == I8 else 0xFFFF
        if op.attrs.output_unsigned:
            output_zp = output_zp.astype(np.int64) & (0xFF if op.output.dtype == I8 else 0xFFFF)
        first, final = required_range(m, s, scale32=op.attrs.scale32, output_zp=output_zp)
        x = intervals.of(op.inputs[0])
        v = (0, mask) if op.attrs.input_unsigned else (x.low, x.high)
        zero_point = int(input_zp[0]) & mask if op.attrs.input_unsigned else int(input_zp[0])
        return bool(np.all(v[0] - zero_point >= first) and np.all(v[1] - zero_point <= final))
    return True


def may_wrap(op, intervals):
    """Whether the model may take a sum or product modulo 2^32 where it should call the graph unpredictable."""
    summing = isinstance(op.attrs, (ops.Mul, ops.MatMul, *CONVOLUTION_OPS)) and op.output.dtype == I32
    return summing and not intervals.partial(op).within(*INT32)


def test_random_graphs_never_leave_their_intervals():
    """Graphs are of two kinds: anything goes, and every operator proved predictable, which then has to come true."""
    status, exercised, narrower = Counter(), Counter(), Counter()

    @given(seed=st.integers(0, 2**32), length=st.integers(1, 20), proved=st.booleans())
    @settings(max_examples=240, deadline=None, derandomize=True)
    def check(seed, length, proved):
        rng = np.random.default_rng(seed)
        sketch = Sketch(choices := Seeded(seed))
        ranges = {}
        for _ in range(choices.integer(1, 3)):
            dtype = choices.pick([I8, I16, I8, I16, DType.BOOL])
            x = sketch.input(dtype, (BATCH, *(choices.integer(1, 4) for _ in range(3))))
            sketch.values.append(clamp_channels(sketch, x) if dtype != DType.BOOL and choices.flag() else x)
            if dtype != DType.BOOL and choices.flag():
                ranges[x] = tuple(sorted(rng.integers(*INTEGER_RANGES[dtype], 2, endpoint=True).tolist()))
        intervals = Intervals(ranges)
        grow(sketch, length, lambda op: is_predictable(op, intervals) if proved else not may_wrap(op, intervals))
        made = [(op, t) for op in sketch.builder.ops for t in op.outputs if op.inputs and has_interval(t)]
        if not made:
            return
        arrays = [vectors(rng, x, *ranges.get(x, INTEGER_RANGES.get(x.dtype, (0, 1)))) for x in sketch.inputs]
        model = sketch.program([t for _, t in made])
        whole = program_intervals(model, ranges)
        run = ReferenceModel().run(dumps(model), arrays)
        status[run.status, proved] += 1
        assert run.status == Status.VALID or (run.status == Status.UNPREDICTABLE and not proved), run.message
        for (op, tensor), values in zip(made, run.outputs, strict=run.status == Status.VALID):
            assert_inside(intervals.of(tensor), tensor, values)
            assert_inside(whole.of(tensor), tensor, values)
            assert whole.of(tensor).within(intervals.of(tensor).lowest, intervals.of(tensor).highest)
            narrower[op.name] += whole.of(tensor) != intervals.of(tensor)
            exercised[op.name] += 1

    check()
    total = status.total()
    assert status[Status.VALID, True] > total / 4, status
    assert status[Status.VALID, False] > total / 6, status
    assert narrower["COND_IF"] + narrower["WHILE_LOOP"] > 5, narrower
    every = {kind.NAME for dtype in INTEGERS for kind, _ in readers(dtype, INTEGER)}
    assert every - exercised.keys() == set()
    assert len(every) == 54  # all of PRO-INT and EXT-INT16 but constants, variables and CUSTOM


def clamp_channels(sketch, x):
    """``x`` with a CLAMP of its own for each channel, most of them narrow."""
    sides, builder, choices = [], sketch.builder, sketch.choices
    for c in range(x.shape[3]):
        side = builder.slice(x, (0, 0, 0, c), (*x.shape[:-1], 1))
        low, high = INTEGER_RANGES[x.dtype]
        low = choices.integer(low, high - 1)
        sides.append(builder.clamp(side, low, min(high, low + choices.integer(0, 39))))
    return builder.concat(sides, 3)


def vectors(rng, x, low, high):
    """Values of an input in [low, high]; along axis 0 all low, all high, either of them at random, then anything."""
    values = rng.integers(low, high, x.shape, endpoint=True)
    for row in range(x.shape[0] if x.shape else 0):
        if row < 2:
            values[row] = (low, high)[row]
        elif row % 3 == 0:
            values[row] = rng.choice([low, high], x.shape[1:])
    return np.asarray(values, numpy_dtype(x.dtype))


# Every case: operator, weight shape, result shape, attributes. The input is [N, 4, 4, 2], for CONV3D [N, 4, 4, 1, 2].
CONVOLUTIONS = {
    "conv2d": (ops.Conv2d(pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1)), (3, 2, 3, 2), (3, 2, 3)),
    "conv2d padded": (ops.Conv2d(pad=(1, 0, 1, 1), stride=(1, 1), dilation=(1, 1)), (3, 2, 3, 2), (4, 4, 3)),
    "conv2d strided": (ops.Conv2d(pad=(0, 0, 0, 0), stride=(2, 2), dilation=(1, 1)), (3, 2, 2, 2), (2, 2, 3)),
    "conv3d": (ops.Conv3d(pad=(0,) * 6, stride=(1, 1, 1), dilation=(1, 1, 1)), (3, 2, 2, 1, 2), (3, 3, 1, 3)),
    "depthwise": (ops.DepthwiseConv2d(pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1)), (2, 3, 2, 2), (3, 2, 4)),
    "transpose_conv2d": (ops.TransposeConv2d(out_pad=(0, 0, 0, 0), stride=(1, 1)), (3, 2, 3, 2), (5, 6, 3)),
    "transpose_conv2d strided": (ops.TransposeConv2d(out_pad=(0, 1, -1, 0), stride=(2, 3)), (3, 3, 2, 2), (10, 10, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [I8, I16])
@pytest.mark.parametrize("seed", range(3))
def test_convolutions_reach_their_bounds(name, dtype, seed):
    """From the response to single inputs comes the input that drives each output to an end; the model confirms it."""
    rng = np.random.default_rng(seed)
    attrs, weight_shape, result_shape = CONVOLUTIONS[name]
    attrs = replace(attrs, acc_type=ACCUMULATOR[dtype])
    space = (4, 4, 1, 2) if name == "conv3d" else (4, 4, 2)
    count, channels = int(np.prod(space)), result_shape[-1]
    input_zp = int(rng.integers(-128, 128)) if dtype == I8 else 0
    # Per input channel an interval that holds the zero point, or none needs to where no output lacks a tap.
    whole = name in ("conv2d", "conv2d strided", "conv3d", "depthwise")
    low, high = np.sort(rng.integers(*INTEGER_RANGES[dtype], (2, 2), endpoint=True), axis=0)
    if not whole:
        low, high = np.minimum(low, input_zp), np.maximum(high, input_zp)

    weights = rng.integers(-128, 128, weight_shape)
    bias = rng.integers(-(1 << 20), 1 << 20, channels)

    def convolution(rows, *, clamped):
        b = Builder("t")
        x = y = Tensor("x", dtype, (rows, *space))
        if clamped:
            sides = [
                b.op(
                    ops.Slice(),
                    (x, b.const_shape([0] * len(space) + [c]), b.const_shape([rows, *space[:-1], 1])),
                    dtype,
                    (rows, *space[:-1], 1),
                )
                for c in (0, 1)
            ]
            sides = [b.clamp(side, int(low[c]), int(high[c])) for c, side in enumerate(sides)]
            y = b.op(ops.Concat(axis=len(space)), sides, dtype, x.shape)
        operands = (
            y,
            b.const(weights, I8),
            b.const(bias, attrs.acc_type),
            b.const([input_zp], dtype),
            b.const([7], I8),
        )
        y = b.op(attrs, operands, attrs.acc_type, (rows, *result_shape))
        return program([x], b.ops, [y]), y

    def run(values, *, clamped):
        model, result = convolution(len(values), clamped=clamped)
        done = ReferenceModel().run(dumps(model), [values.astype(numpy_dtype(dtype))])
        assert done.status == Status.VALID, done.message
        return done.outputs[0].astype(np.int64), result

    step = -1 if input_zp == 127 else 1
    impulses = np.full((count + 1, count), input_zp)
    impulses[np.arange(count), np.arange(count)] += step
    response, _ = run(impulses.reshape(-1, *space), clamped=False)
    gain = ((response[:-1] - response[-1]) * step).reshape(count, -1, channels)  # [input, position, channel]
    lows, highs = (np.resize(bound, count) for bound in (low, high))  # channels are the last axis

    reach = np.einsum("ipc,i->pc", np.maximum(gain, 0), highs - input_zp)
    reach += np.einsum("ipc,i->pc", np.minimum(gain, 0), lows - input_zp)
    fall = np.einsum("ipc,i->pc", np.maximum(gain, 0), lows - input_zp)
    fall += np.einsum("ipc,i->pc", np.minimum(gain, 0), highs - input_zp)
    drive = [
        np.where(gain[:, extreme[c], c] * sign > 0, highs, lows)
        for extreme, sign in ((reach.argmax(axis=0), 1), (fall.argmin(axis=0), -1))
        for c in range(channels)
    ]
    reached, result = run(np.array(drive).reshape(-1, *space), clamped=True)
    flat = reached.reshape(-1, channels)
    intervals = Intervals()
    interval, accumulator = intervals.of(result), intervals.without_bias(result.producer)
    assert np.array_equal(flat.max(axis=0), np.broadcast_to(interval.high, channels))
    assert np.array_equal(flat.min(axis=0), np.broadcast_to(interval.low, channels))
    assert np.array_equal(flat.max(axis=0) - bias, np.broadcast_to(accumulator.high, channels))
    assert np.array_equal(flat.min(axis=0) - bias, np.broadcast_to(accumulator.low, channels))


NETS = ("dscnn_kws", "resblock", "lstm", "layernorm", "softmax", "transpose_conv", "upsample_bilinear", "se_block")


@pytest.mark.shared
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside the checkout")
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("form", ["a8w8", "a16w8"])
def test_intermediate_values_of_real_nets_stay_inside(net, form):
    graph = (model := load(CORPUS / f"{net}_{form}.tosa")).main
    rng = np.random.default_rng(len(net))
    inside = [t for t in graph.tensors if is_integer(t) and not t.is_constant and t.producer is not graph.entry]
    graph.set_outputs(inside)
    batches = []
    for kind in range(6):
        arrays = []
        for x in graph.inputs:
            low, high = INTEGER_RANGES[x.dtype]
            ends = [(low, low), (high, high), (low, high), (low, high), (low // 4, high // 4), (0, 1)][kind]
            values = rng.integers(*ends, x.shape, endpoint=True) if kind != 3 else rng.choice(ends, x.shape)
            arrays.append(values.astype(numpy_dtype(x.dtype)))
        batches.append(arrays)
    valid = 0
    intervals = Intervals()
    for run in ReferenceModel().run_many(dumps(model), batches):
        valid += run.status == Status.VALID
        for tensor, values in zip(inside, run.outputs, strict=run.status == Status.VALID):
            assert_inside(intervals.of(tensor), tensor, values)
    assert valid >= 3
