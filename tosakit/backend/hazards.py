"""What Vela 5.2 is known to compile into something else without a word, found before it runs.

Each hazard was established by inspecting the bytes Vela emits, or is an open upstream report; see docs/known-issues.md.
A ``refuse`` hazard has a rewrite that helps or no correct form at all; a ``warn`` hazard is reported by others and could
not be confirmed without hardware.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tosakit.engine.rule import describe
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Op, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program
from tosakit.numerics.intervals import Intervals

CONVOLUTIONS = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d)
BIAS_BITS = 40
"""Bits of an INT48 bias that Ethos-U55 and U65 keep."""


@dataclass(frozen=True)
class Hazard:
    """One operator that Vela would compile wrongly, or may."""

    severity: Literal["refuse", "warn"]
    operator: str
    message: str
    helps: str

    def __str__(self) -> str:
        return f"{self.operator}: {self.message}. {self.helps}"


def family(accelerator: str) -> str:
    """``ethos-u55``, ``ethos-u65`` or ``ethos-u85`` from an accelerator configuration's name."""
    return accelerator.rpartition("-")[0]


def find_hazards(program: Program, accelerator: str) -> list[Hazard]:
    """Every known silent miscompile that Vela would make of this program on this accelerator. O(size of the program)."""
    kind = family(accelerator)
    intervals = Intervals()
    found: list[Hazard] = []
    for graph in program.blocks:
        for check in _CHECKS:
            found.extend(check(graph, kind, intervals))
    return found


def _bias_bits(graph: Graph, kind: str, _: Intervals) -> Iterator[Hazard]:
    if kind == "ethos-u85":
        return
    limit = 1 << (BIAS_BITS - 1)
    for op in graph.ops:
        if not isinstance(op.attrs, CONVOLUTIONS) or len(op.inputs) < 3:
            continue
        bias = op.inputs[2]
        if bias.dtype == DType.INT48 and bias.is_constant:
            values = bias.values()
            outside = values[(values < -limit) | (values >= limit)]
            if outside.size:
                yield Hazard(
                    "refuse",
                    describe(op),
                    f"bias value {outside[0]} is outside the {BIAS_BITS} bits that {kind} keeps of an INT48 bias",
                    "The rule split_int48_bias adds it in INT32 instead",
                )


def _is_one(op: Op[ops.Rescale]) -> bool:
    multiplier, shift = op.inputs[1], op.inputs[2]
    if op.attrs.scale32 or not (multiplier.is_constant and shift.is_constant):
        return False
    return bool(np.all(multiplier.values() == 1 << 14) and np.all(shift.values() == 14))


def _fused_rescales(graph: Graph, kind: str, _: Intervals) -> Iterator[Hazard]:
    if kind != "ethos-u85":
        return
    for op in graph.ops:
        if not isinstance(op.attrs, ops.Rescale) or len(op.inputs) < 5:
            continue
        if (op.inputs[0].dtype, op.output.dtype) != (DType.INT48, DType.INT32) or not _is_one(op):  # type: ignore[arg-type]
            continue
        for reader in op.output.users:
            attrs = reader.attrs
            if isinstance(attrs, ops.Rescale) and attrs.scale32 and reader.output.dtype == DType.INT16:
                yield Hazard(
                    "refuse",
                    describe(reader),
                    "it follows an INT48 to INT32 RESCALE of exactly one, and ethos-u85 keeps only the low 15 bits of its "
                    "31-bit multiplier",
                    "Run legalize_int48_rescale with form=one-step on the original, or use a shift other than 14 there",
                )


def _lost_state(graph: Graph, _kind: str, _: Intervals) -> Iterator[Hazard]:
    for op in graph.ops:
        if isinstance(op.attrs, Foreign) and any(t.extras.variable for t in op.inputs + op.outputs):
            yield Hazard(
                "refuse",
                describe(op),
                "it reads or writes a VARIABLE but is an IDENTITY in the file; Vela compiles it and loses the state",
                "No rewrite of this version helps; make the state a graph input and output in the converter",
            )


def _may_be_unpredictable(graph: Graph, _kind: str, intervals: Intervals) -> Iterator[Hazard]:
    for op in graph.ops:
        if not isinstance(op.attrs, ops.Rescale) or not op.attrs.scale32 or len(op.inputs) < 5:
            continue
        shift = op.inputs[2]
        if op.inputs[0].dtype != DType.INT32 or not shift.is_constant:
            continue
        limit = 1 << (int(shift.values().min()) - 1)
        value = intervals.of(op.inputs[0])
        if value.lowest < -limit or value.highest >= limit:
            yield Hazard(
                "warn",
                describe(op),
                f"its input may hold {value.lowest} to {value.highest}, outside the {-limit} to {limit - 1} that shift "
                f"{int(shift.values().min())} allows; TOSA calls the result unpredictable and Vela does not check",
                "Narrow the input with CLAMP, or use a larger shift",
            )


def _shared_rescale(graph: Graph, kind: str, _: Intervals) -> Iterator[Hazard]:
    if kind == "ethos-u85":
        return
    for op in graph.ops:
        if isinstance(op.attrs, ops.Rescale) and op.output.dtype == DType.INT32 and len(op.output.users) > 1:
            yield Hazard(
                "warn",
                describe(op),
                f"it has {len(op.output.users)} readers; a merged RESCALE was reported to give zeros on {kind}",
                "Give every reader a RESCALE of its own",
            )


def _reduce_sum(graph: Graph, kind: str, _: Intervals) -> Iterator[Hazard]:
    if kind != "ethos-u85":
        return
    for op in graph.ops:
        if isinstance(op.attrs, ops.ReduceSum) and op.inputs and _comes_from_int16(op.inputs[0]):
            yield Hazard(
                "warn",
                describe(op),
                "sums of int16 values were reported to give zeros on ethos-u85 (open upstream)",
                "Compare on the device before you rely on it",
            )


def _comes_from_int16(tensor: Tensor) -> bool:
    producer: AnyOp | None = tensor.producer
    return producer is not None and bool(producer.inputs) and producer.inputs[0].dtype == DType.INT16


def _doubled_input(graph: Graph, kind: str, _: Intervals) -> Iterator[Hazard]:
    if kind != "ethos-u55":
        return
    for op in graph.ops:
        if not isinstance(op.attrs, ops.Add) or len(op.inputs) != 2:
            continue
        sources = [t.producer.inputs[0] for t in op.inputs if t.producer is not None and t.producer.inputs]
        if (
            len(sources) == 2
            and sources[0] is sources[1]
            and all(isinstance(t.producer.attrs, ops.Rescale) for t in op.inputs if t.producer is not None)
        ):
            yield Hazard(
                "warn",
                describe(op),
                "x + x with one scale that is no power of two was reported to return x on ethos-u55 (open upstream)",
                "Multiply by two in the scale of a RESCALE instead",
            )


_CHECKS: tuple[Callable[[Graph, str, Intervals], Iterator[Hazard]], ...] = (
    _bias_bits,
    _fused_rescales,
    _lost_state,
    _may_be_unpredictable,
    _shared_rescale,
    _reduce_sum,
    _doubled_input,
)
