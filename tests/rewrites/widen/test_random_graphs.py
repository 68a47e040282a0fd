"""Random int8 graphs: zero points that agree or not, islands, mixed readers, several outputs, every option."""

from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from rewrites.widen_int8_activations import TRANSFORM
from tests.support.int8 import MODEL, ONE, Int8Net, widen
from tosakit.engine.driver import run_steps
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, ResizeMode, RoundingMode
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import encode
from tosakit.oracle.refmodel import Status

PROPAGATE = NanPropagationMode.PROPAGATE
ZERO_POINTS = (-128, -20, 0, 3, 127)


class Drawn:
    """A graph under construction: int8 values with the zero point they were made with, and int32 values."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.net = Int8Net()
        self.int8: dict[Tensor, int] = {}
        self.int32: list[Tensor] = []
        self.count = 0
        for i in range(random.randint(1, 3)):
            self.int8[self.net.int8(f"x{i}")] = random.choice(ZERO_POINTS)

    def name(self) -> str:
        """A fresh name."""
        self.count += 1
        return f"t{self.count}"

    def value(self, rank: int | None = None) -> Tensor:
        """Any int8 value (of that rank)."""
        return self.random.choice([t for t in self.int8 if rank is None or len(t.shape) == rank])

    def like(self, x: Tensor) -> Tensor:
        """An int8 value of the same shape."""
        return self.random.choice([t for t in self.int8 if t.shape == x.shape])

    def zero_point(self, x: Tensor) -> int:
        """The zero point a reader subtracts: mostly the writer's."""
        return self.int8[x] if self.random.random() < 0.85 else self.random.choice(ZERO_POINTS)

    def scale(self, first: int, last: int) -> tuple[int, int]:
        """A multiplier, and a shift of that range."""
        return self.random.randint(1 << 30, (1 << 31) - 1), self.random.randint(first, last)

    def narrow(self, x: Tensor, first: int, last: int) -> None:
        """RESCALE an int32 value to int8."""
        zero_point = self.random.choice(ZERO_POINTS)
        self.int8[self.net.narrowing(x, zero_point, self.name(), self.scale(first, last))] = zero_point

    def widened(self, x: Tensor) -> Tensor:
        """RESCALE an int8 value to int32, often by one."""
        scale = ONE if self.random.random() < 0.5 else self.scale(20, 33)
        return self.net.widening(x, self.zero_point(x), self.name(), scale)


def _rescale(d: Drawn) -> None:
    x, zero_point = d.value(), d.random.choice(ZERO_POINTS)
    mode = d.random.choice([RoundingMode.SINGLE_ROUND, RoundingMode.DOUBLE_ROUND])
    y = d.net.requantize(
        x,
        DType.INT8,
        d.scale(30, 33),
        d.name(),
        input_zp=d.zero_point(x),
        output_zp=zero_point,
        rounding_mode=mode,
    )
    d.int8[y] = zero_point


def _conv(d: Drawn) -> None:
    x = d.value(4)
    weight = np.array([[[[d.random.randint(-127, 127) for _ in range(x.shape[3])]]] for _ in range(2)])
    acc = d.net.conv2d_int8(x, weight, [d.random.randint(-5000, 5000)], d.zero_point(x), d.name())
    if d.random.random() < 0.3:
        acc = d.net.op(
            ops.Transpose(perms=(0, 3, 1, 2)), (acc,), DType.INT32, [acc.shape[i] for i in (0, 3, 1, 2)], "m"
        )
    d.narrow(acc, 36, 40)
    if d.random.random() < 0.3:
        d.int32.append(acc)


def _binary(d: Drawn) -> None:
    x = d.value()
    y = d.like(x)
    attrs = d.random.choice([ops.Add(), ops.Sub(), ops.Maximum(PROPAGATE), ops.Minimum(PROPAGATE)])
    a = d.widened(x)
    b = d.widened(y) if d.random.random() < 0.9 else a
    d.narrow(d.net.op(attrs, (a, b), DType.INT32, x.shape, d.name()), 31, 40)


def _mul(d: Drawn) -> None:
    x = d.value()
    shift = d.net.const([d.random.choice([0, 0, 3])], DType.INT8, "shift")
    a, b = (d.net.widening(t, d.zero_point(t), d.name()) for t in (x, d.like(x)))
    d.narrow(d.net.op(ops.Mul(), (a, b, shift), DType.INT32, x.shape, d.name()), 35, 38)


def _sum(d: Drawn) -> None:
    x = d.value()
    axis = d.random.randrange(len(x.shape))
    shape = [1 if i == axis else size for i, size in enumerate(x.shape)]
    d.narrow(d.net.op(ops.ReduceSum(axis=axis), (d.widened(x),), DType.INT32, shape, d.name()), 31, 40)


def _select(d: Drawn) -> None:
    x = d.value()
    y = d.like(x)
    a, b = (d.net.widening(t, d.zero_point(t), d.name()) for t in (x, y))
    greater = d.net.op(ops.Greater(), (a, b), DType.BOOL, x.shape, d.name())
    d.int8[d.net.op(ops.Select(), (greater, x, y), DType.INT8, x.shape, d.name())] = d.int8[x]


def _table(d: Drawn) -> None:
    entries = np.arange(-128, 128)
    d.random.shuffle(entries)  # type: ignore[arg-type]
    d.int8[d.net.table(d.value(), entries, d.name())] = d.random.choice(ZERO_POINTS)


def _concat(d: Drawn) -> None:
    x = d.value()
    if x.shape[0] > 4:
        return
    constant = d.net.const(np.full(x.shape, d.random.randint(-128, 127)), DType.INT8, "k")
    d.int8[d.net.concat([x, d.like(x), constant, x], 0, d.name())] = d.int8[x]


def _pool(d: Drawn) -> None:
    x = d.value(4)
    if min(x.shape[1:3]) < 2:
        return
    zero_points = d.random.choice([(d.int8[x],) * 2, (-128, -128), (-100, 20), (100, -5)])
    d.int8[d.net.average(x, *zero_points, d.name())] = max(-128, min(127, d.int8[x] + zero_points[1] - zero_points[0]))


def _resize(d: Drawn) -> None:
    x = d.value(4)
    if np.prod(x.shape) > 64 or min(x.shape[1:3]) < 2:
        return
    if d.random.random() < 0.5:
        d.int8[d.net.resize(x, ResizeMode.NEAREST, d.name())] = d.int8[x]
    else:
        acc = d.net.resize(x, ResizeMode.BILINEAR, d.name())
        scale, zero_point = d.random.choice([((1 << 30, 34), 0), ((1518500250, 36), -128)])
        d.int8[d.net.narrowing(acc, zero_point, d.name(), scale)] = d.int8[x]


def _clamp(d: Drawn) -> None:
    x = d.value()
    low, high = (encode(np.array([v]), DType.INT8) for v in (d.random.randint(-128, 0), d.random.randint(1, 127)))
    d.int8[d.net.op(ops.Clamp(low, high, PROPAGATE), (x,), DType.INT8, x.shape, d.name())] = d.int8[x]


def _reshape(d: Drawn) -> None:
    x = d.value()
    d.int8[d.net.reshape(x, (1, int(np.prod(x.shape)), 1, 1), d.name())] = d.int8[x]


def _island(d: Drawn) -> None:
    x = d.value()
    d.int8[d.net.op(ops.BitwiseNot(), (x,), DType.INT8, x.shape, d.name())] = d.random.choice(ZERO_POINTS)


def _negate(d: Drawn) -> None:
    x, zero_point = d.value(), d.random.choice(ZERO_POINTS)
    zeros = [d.net.const([z], DType.INT8, "zp") for z in (d.zero_point(x), zero_point)]
    d.int8[d.net.op(ops.Negate(), (x, *zeros), DType.INT8, x.shape, d.name())] = zero_point


def _int32(d: Drawn) -> None:
    d.int32.append(d.widened(d.value()))


STEPS: tuple[Callable[[Drawn], None], ...] = (
    _rescale,
    _rescale,
    _conv,
    _binary,
    _mul,
    _sum,
    _select,
    _table,
    _concat,
    _pool,
    _resize,
    _clamp,
    _reshape,
    _island,
    _negate,
    _int32,
)


def draw(seed: int) -> Program:
    """The random program of a seed."""
    drawn = Drawn(Random(seed))
    for _ in range(drawn.random.randint(3, 14)):
        drawn.random.choice(STEPS)(drawn)
    values = list(drawn.int8)
    outputs = [values[-1], *drawn.random.sample(values, min(2, len(values))), *drawn.int32[:2]]
    return drawn.net.outputs(*outputs)


def _any_int16(program: Program, seed: int) -> list[np.ndarray]:
    """Inputs that reach both ends of int16, which no int8 value maps to."""
    rng = np.random.default_rng(seed)
    arrays = []
    for tensor in program.main.inputs:
        ends = (-128, 127) if tensor.dtype == DType.INT8 else (-(1 << 15), (1 << 15) - 1)
        dtype = np.int8 if tensor.dtype == DType.INT8 else np.int16
        arrays.append(rng.choice(ends, tensor.shape).astype(dtype))
    return arrays


@pytest.mark.refmodel
@pytest.mark.parametrize("seed", range(24))
def test_random_graph(seed: int) -> None:
    """All that ``widen`` checks, and validity beyond the old grid. ``draw(seed)`` makes the graph again."""
    random = Random(seed)
    options = {
        "io": random.choice(["int16", "int16", "int8"]),
        "smooth": random.random() < 0.2,
        "rescale_form": random.choice(["one-step", "two-step"]),
        "clamp": random.choice(["all", "all", "saturating-ends"]),
    }
    made = widen(draw(seed), vectors=4, **options)
    run = MODEL.run(dumps(made.program), _any_int16(made.program, seed))
    assert run.status is Status.VALID, run.message


def test_the_graphs_are_worth_it() -> None:
    """Every step occurs, most graphs are widened, some zero points disagree and some operators stay int8."""
    seen: Counter[str] = Counter()
    for seed in range(24):
        program = draw(seed)
        result = run_steps(program.clone(), [TRANSFORM])
        seen["widened"] += bool(result.events)
        seen["islands"] += bool(result.refusals)
        seen["conversions"] += any("is read with zero point" in event.detail for event in result.events)
        seen.update({op.name for op in program.main.ops})
    assert seen["widened"] >= 20
    assert seen["islands"] >= 4
    assert seen["conversions"] >= 4
    assert min(seen[name] for name in ("CONV2D", "MUL", "TABLE", "CONCAT", "RESIZE", "AVG_POOL2D", "SELECT")) >= 2
