"""Whole random programs that are legal by construction: fan-out, shared constants, several outputs, regions.

Everything follows from the :class:`~tosakit.testing.choices.Choices` given, so a seed gives the same program anywhere.
"""

import math
from collections.abc import Callable, Sequence

from tosakit.engine.pattern import AnyValue, Capture, match_at
from tosakit.engine.rule import Rule
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.spec.signature import signature
from tosakit.testing.choices import Choices
from tosakit.testing.idioms import IDIOMS, idioms_with
from tosakit.testing.recipes import make
from tosakit.testing.sketch import INTEGER, Sketch, Space, Unfit

ATTEMPTS = 400
"""Draws of a pattern before it is taken to be impossible."""

_NOT_IN_PROGRAMS = (ops.Const, ops.ConstShape, ops.Custom, ops.Variable, ops.VariableRead, ops.VariableWrite)
"""Operators that read nothing, and those the reference model has not."""

_ACCUMULATE = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d, ops.MatMul, ops.Resize)


def operator(choices: Choices, kind: type[Attributes], space: Space = INTEGER) -> Program:
    """A program of one operator of a kind, and the constants it reads. Raises Unfit where ``space`` has none."""
    sketch = Sketch(choices, space)
    return finish(sketch, make(sketch, kind))


def program(choices: Choices, space: Space = INTEGER, *, most: int = 12) -> Program:
    """A program of up to ``most`` operators besides constants and what reads accumulators."""
    sketch = Sketch(choices, space)
    begin(sketch)
    grow(sketch, choices.integer(1, most))
    return finish(sketch, sketch.values[-1:])


def from_pattern(choices: Choices, rule: Rule, space: Space = INTEGER, *, around: int = 4) -> Program:  # type: ignore[type-arg]
    """A program that holds the pattern of ``rule``, with up to ``around`` operators in front of it and behind it.

    Raises Unfit where no legal operators fit the pattern, as for a rule that repairs illegal ones.
    """
    sketch = Sketch(choices, space)
    begin(sketch)
    grow(sketch, choices.integer(0, around))
    reason = Unfit("nothing was tried")
    for _ in range(ATTEMPTS):
        before = sketch.state
        try:
            results = _holding(sketch, rule.pattern)
        except Unfit as error:
            sketch.forget(before)
            reason = error
            continue
        results += _accumulators_read(sketch, results)
        sketch.values += [t for t in results if t.dtype not in (DType.SHAPE, DType.INT48)]
        grow(sketch, choices.integer(0, around))
        return finish(sketch, sketch.values[-1:])
    raise Unfit(f"no operators fit the pattern of {rule.name}: {reason}")


def begin(sketch: Sketch) -> None:
    """One to three inputs to start from."""
    dtypes = [dtype for dtype in (DType.INT8, DType.INT16, DType.INT32, DType.FP32) if dtype in sketch.space.dtypes]
    for _ in range(sketch.choices.integer(1, 3)):
        shape = (1, *(sketch.choices.integer(1, 4) for _ in range(3))) if sketch.choices.flag(0.7) else sketch.shape()
        sketch.values.append(sketch.input(sketch.choices.pick(dtypes), shape))


def grow(sketch: Sketch, count: int, accept: Callable[[AnyOp], bool] = lambda op: True) -> None:
    """Add up to ``count`` operators, each of which reads a value at hand; ``accept`` must take all that comes along."""
    for _ in range(count):
        before = sketch.state
        try:
            results = sketch.choices.pick(IDIOMS).draw(sketch) if sketch.choices.flag(0.05) else _reader(sketch)
        except Unfit:
            sketch.forget(before)
            continue
        if all(map(accept, sketch.builder.ops[before[0] :])):
            sketch.values += [t for t in results if t.dtype not in (DType.SHAPE, DType.INT48)]
        else:
            sketch.forget(before)


def _reader(sketch: Sketch) -> tuple[Tensor, ...]:
    """An operator that reads a value at hand."""
    x = sketch.choices.pick(sketch.values[-3:] if sketch.choices.flag(0.6) else sketch.values)
    kind, slot = sketch.choices.pick(readers(x.dtype, sketch.space))
    results = make(sketch, kind, {slot: _of_rank(sketch, x, kind, slot)})
    return results + _accumulators_read(sketch, results)


def _of_rank(sketch: Sketch, x: Tensor, kind: type[Attributes], slot: int) -> Tensor:
    """``x``, with a RESHAPE where the operator asks for another rank: axes joined, or new ones of 1."""
    sig = signature(kind.NAME)
    sizes = sig.inputs[slot].sizes if sig else None
    if sizes is None or len(sizes) == len(x.shape):
        return x
    first, last = x.shape[:1], x.shape[1:]
    while len(first) + len(last) > max(len(sizes), 1):
        last = (last[0] * last[1], *last[2:]) if len(last) > 1 else ()
        first = first if last else (math.prod(x.shape),)
    shape = (*first, *(1,) * (len(sizes) - len(first) - len(last)), *last)
    if x.dtype in (DType.INT4, DType.INT48):
        raise Unfit(f"{x.dtype.name} cannot be reshaped")
    (result,) = sketch.emit(ops.Reshape(), [x, sketch.const(shape, DType.SHAPE)], [(x.dtype, shape)])
    return result


def readers(dtype: DType, space: Space) -> list[tuple[type[Attributes], int]]:
    """Operators that may read a value of a dtype, each with the operand it can be."""
    key = dtype, space
    if key not in _KNOWN_READERS:
        _KNOWN_READERS[key] = [
            (kind, slot)
            for kind in ops.OPERATORS
            if kind not in _NOT_IN_PROGRAMS and (sig := signature(kind.NAME)) and sig.since <= space.minor
            for slot, argument in enumerate(sig.inputs)
            if not argument.constant
            and argument.element != DType.SHAPE
            and (
                argument.element in (None, dtype)
                or any(space.allows(row) and row.types.get(str(argument.element)) == dtype for row in sig.rows)
            )
        ]
    return _KNOWN_READERS[key]


_KNOWN_READERS: dict[tuple[DType, Space], list[tuple[type[Attributes], int]]] = {}


def _accumulators_read(sketch: Sketch, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """RESCALE what is INT48, once or twice, since hardly anything else may read it, and most other accumulators."""
    found: tuple[Tensor, ...] = ()
    for tensor in results:
        made_by = tensor.producer.attrs if tensor.producer is not None else None
        sum_of_products = tensor.dtype == DType.INT32 and isinstance(made_by, _ACCUMULATE)
        if tensor.dtype == DType.INT48 or (sum_of_products and sketch.choices.flag(0.7)):
            for _ in range(sketch.choices.pick([1, 1, 1, 2])):
                found += make(sketch, ops.Rescale, {0: tensor})
    return found


def _holding(sketch: Sketch, pattern: Capture[Attributes]) -> tuple[Tensor, ...]:
    """Operators that match a pattern: drawn to fit it, or an idiom that happens to."""
    idioms, before = idioms_with(pattern), len(sketch.builder.ops)
    if not idioms or sketch.choices.flag():
        return _embed(sketch, pattern, {}, {})
    results = sketch.choices.pick(idioms).draw(sketch)
    if not any(match_at(pattern, op) for op in sketch.builder.ops[before:]):
        raise Unfit("the idiom does not hold the pattern")
    return results


def _embed(
    sketch: Sketch,
    capture: Capture[Attributes],
    made: dict[Capture[Attributes], Tensor],
    known: dict[AnyValue, Tensor],
) -> tuple[Tensor, ...]:
    """Operators that match a capture; ``made`` and ``known`` are what captures and values stand for already."""
    given: dict[int, Tensor] = {}
    for slot, operand in enumerate(capture.operands):
        if isinstance(operand, Capture):
            if operand not in made:
                made[operand] = _embed(sketch, operand, made, known)[0]
            given[slot] = made[operand]
        elif isinstance(operand, AnyValue) and operand in known:
            given[slot] = known[operand]
    kind = sketch.choices.pick(capture.kinds)
    if not given and sketch.values and sketch.choices.flag(0.7):
        slots = [slot for reader, slot in readers(sketch.values[-1].dtype, sketch.space) if reader is kind]
        if slots:
            given[slots[0]] = sketch.values[-1]
    results = make(sketch, kind, given)
    inputs = sketch.builder.ops[-1].inputs
    known.update(
        (operand, inputs[slot])
        for slot, operand in enumerate(capture.operands)
        if isinstance(operand, AnyValue) and slot < len(inputs)
    )
    return results


def finish(sketch: Sketch, last: Sequence[Tensor]) -> Program:
    """The program: ``last`` are outputs, and of the other results most that nothing reads and a few more."""
    read = dict.fromkeys(t for op in sketch.builder.ops for t in op.inputs)
    results = [t for op in sketch.builder.ops for t in op.outputs if op.inputs and t.dtype != DType.SHAPE]
    outputs = dict.fromkeys(t for t in last if t.dtype != DType.SHAPE and not t.extras.variable)
    for tensor in results:
        if (
            tensor not in outputs
            and not tensor.extras.variable
            and sketch.choices.flag(0.05 if tensor in read else 0.8)
        ):
            outputs[tensor] = None
    if not outputs:
        outputs[sketch.input(DType.INT8, (1,))] = None
    return sketch.program(list(outputs))
