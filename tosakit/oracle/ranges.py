"""What every integer tensor of a program can hold, and which operators that proves safe."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from tosakit.engine.rule import describe
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics.intervals import Interval, Intervals, Range
from tosakit.numerics.program_intervals import program_intervals
from tosakit.oracle.refmodel import ReferenceModel
from tosakit.oracle.witness import Witness, find_witness
from tosakit.spec.ranges import unproved
from tosakit.spec.variables import meaning
from tosakit.spec.verify import verify

_ANALYSED = {**INTEGER_RANGES, DType.BOOL: (0, 1)}


class Safety(Enum):
    """Whether an operator keeps every REQUIRE of the specification on its values."""

    SAFE = "safe"
    """Proved: in every execution that is predictable up to here."""
    UNSAFE = "unsafe"
    """Proved to break one in every execution, or shown by an input to do so."""
    UNKNOWN = "unknown"
    """Neither."""


@dataclass(frozen=True)
class TensorRange:
    """What a tensor can hold: integers, or one for each index of its last axis; both ends included."""

    block: str
    name: str
    dtype: DType
    shape: tuple[int, ...]
    low: int | tuple[int, ...]
    high: int | tuple[int, ...]

    @property
    def lowest(self) -> int:
        """Smallest value over all channels."""
        return self.low if isinstance(self.low, int) else min(self.low)

    @property
    def highest(self) -> int:
        """Largest value over all channels."""
        return self.high if isinstance(self.high, int) else max(self.high)


@dataclass(frozen=True)
class OperatorRange:
    """The verdict on an operator; ``reasons`` say with numbers what is not proved, or broken.

    ``index`` is its place in program order. ``operator`` is ``TYPE -> "first result"``. ``witness`` is an input for
    which the reference model finds it broken, where one was searched for and found.
    """

    block: str
    index: int
    operator: str
    safety: Safety
    reasons: tuple[str, ...] = ()
    witness: Witness | None = None


@dataclass(frozen=True)
class Ranges:
    """Outcome of :func:`ranges`: tensors that are no constants, and operators on integers, in program order."""

    tensors: tuple[TensorRange, ...]
    operators: tuple[OperatorRange, ...]

    def count(self, safety: Safety) -> int:
        """How many operators have this verdict."""
        return sum(op.safety is safety for op in self.operators)

    def __str__(self) -> str:
        counts = ", ".join(f"{self.count(safety)} {safety.value}" for safety in Safety)
        return f"{len(self.operators)} operators on integers: {counts}"


def ranges(
    program: Program, inputs: Mapping[str, Range] | None = None, *, search: bool = False, timeout: float = 60.0
) -> Ranges:
    """An interval for every tensor of integers or BOOL, and for every operator on them whether it is safe.

    ``inputs`` narrows inputs of the main block by name: smallest and largest value. Every predictable execution on
    such inputs stays inside the intervals. With ``search`` an input is looked for that shows what is not proved, and
    run in the reference model, for at most ``timeout`` seconds each. Raises InvalidArgument for names that are no
    inputs of the main block and for ranges outside their dtypes, InvalidModel for broken constants and cycles,
    ToolMissing where the search needs the reference model and it is not installed.
    """
    given = _by_tensor(program.main, inputs or {})
    intervals = program_intervals(program, given)
    tensors, operators = list[TensorRange](), list[OperatorRange]()
    illegal = _illegal(program) if search else {}
    for block in program.blocks:
        tensors.extend(_tensor_range(block, tensor, intervals.of(tensor)) for tensor in _computed(block))
        for index, op in enumerate(block.ops):
            if any(tensor.dtype in _ANALYSED for tensor in op.outputs) and op.inputs:
                judged = _judged(block, index, op, intervals)
                if search and judged.safety is not Safety.SAFE:
                    found = find_witness(program, block, op, intervals, given, ReferenceModel(), timeout, illegal)
                    judged = _shown(judged, found)
                operators.append(judged)
    return Ranges(tuple(tensors), tuple(operators))


def _illegal(program: Program) -> dict[AnyOp, None]:
    """Operators that break the rules of the specification by themselves, so that nothing can run them."""
    errors = [finding for finding in verify(program) if finding.severity == "error" and finding.op_index is not None]
    blocks = {block.name or "": block.ops for block in program.blocks}
    return {blocks[e.block][e.op_index]: None for e in errors if e.block in blocks and e.op_index is not None}


def _shown(judged: OperatorRange, witness: Witness | None) -> OperatorRange:
    return judged if witness is None else replace(judged, safety=Safety.UNSAFE, witness=witness)


def _by_tensor(main: Graph, inputs: Mapping[str, Range]) -> dict[Tensor, Range]:
    known = {tensor.name: tensor for tensor in main.inputs}
    for name in inputs:
        if name not in known:
            raise InvalidArgument(f'no input is named "{name}"; there are {", ".join(known) or "none"}')
    return {known[name]: limits for name, limits in inputs.items()}


def _computed(block: Graph) -> Iterator[Tensor]:
    """Inputs, and the results of operators other than constants."""
    yield from (tensor for tensor in block.inputs if tensor.dtype in _ANALYSED)
    for op in block.ops:
        yield from (t for t in op.outputs if t.dtype in _ANALYSED and t.dtype != DType.SHAPE and not t.is_constant)


def _tensor_range(block: Graph, tensor: Tensor, interval: Interval) -> TensorRange:
    low, high = (
        tuple(bound.tolist()) if isinstance(bound, np.ndarray) else bound for bound in (interval.low, interval.high)
    )
    return TensorRange(block.name or "", tensor.name, tensor.dtype, tensor.shape, low, high)


def _judged(block: Graph, index: int, op: AnyOp, intervals: Intervals) -> OperatorRange:
    where = block.name or "", index, describe(op)
    if isinstance(meaning(op.attrs), ops.Custom | Foreign):
        return OperatorRange(*where, Safety.UNKNOWN, ("TOSA does not say what this operator computes",))
    findings = unproved(op, intervals)
    reasons = tuple(finding.message for finding in findings)
    if any(finding.severity == "error" for finding in findings):
        return OperatorRange(*where, Safety.UNSAFE, reasons)
    return OperatorRange(*where, Safety.UNKNOWN if findings else Safety.SAFE, reasons)
