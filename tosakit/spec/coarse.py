"""Which operators keep what is required of their values, without an analysis of the whole graph.

One range for each tensor, in whole bits, is followed through the operators; what depends on nothing but ranges is
remembered, so that operators that repeat cost a look-up. For that a constant counts as any value within its range, and
the multipliers and shifts of a RESCALE as the pair that scales most. Only what this does not settle is worth the exact
analysis (:class:`tosakit.numerics.intervals.Intervals`), channel by channel.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.types import INTEGER_RANGES, encode
from tosakit.numerics.intervals import Interval, Intervals
from tosakit.numerics.scale import MIN_SHIFT
from tosakit.spec.call import Finding
from tosakit.spec.memory import Constants, Memory, Place, Range
from tosakit.spec.operators import CHECKS, DEFAULT
from tosakit.spec.ranges import RULES, Rule, suspicions
from tosakit.spec.signature import signature


def widened(low: int, high: int) -> Range:
    """The range of all numbers with as many bits, 0 among them: repeating operators then have few between them."""
    limit = 1 << max(high.bit_length(), (~low).bit_length())
    return (0 if low >= 0 else -limit), limit - 1


class _Ranges(dict[int, Range | None]):
    """Ranges of constants by number, each worked out when it is first needed; None where the type says it all."""

    def __init__(self, constants: Constants) -> None:
        super().__init__()
        self._constants = constants

    def __missing__(self, number: int) -> Range | None:
        bounds = self._constants.bounds(number)
        found = self[number] = None if bounds is None else widened(*bounds)
        return found


def _told(interval: Interval, dtype: DType) -> Range | None:
    """An interval as a range to go on with; None where the type says as much."""
    smallest, largest = INTEGER_RANGES[dtype]
    wide = widened(interval.lowest, interval.highest)
    return wide if wide[0] > smallest or wide[1] < largest else None


class RangeCheck:
    """Checks what the operators of a block, in program order, ask of values; ``assumed`` says more of some tensors."""

    def __init__(self, memory: Memory, assumed: Mapping[Tensor, Interval]) -> None:
        self._memory = memory
        self._whole = Intervals(assumed=assumed)
        constants = _Ranges(memory.constants)
        self._ranges = {tensor: constants[number] for tensor, number in memory.numbers.items()}
        for tensor, interval in assumed.items():
            if tensor.dtype in INTEGER_RANGES:
                self._ranges[tensor] = _told(interval, tensor.dtype)
        self._steps: dict[Hashable, tuple[Range | None, bool]] = {}

    def findings(self, places: Sequence[Place]) -> Iterator[tuple[int, AnyOp, Finding]]:
        """What is wrong or suspicious about values, with the operators and their places."""
        for index, op, number in places:
            for finding in self._check(op, number):
                yield index, op, finding

    def _check(self, op: AnyOp, number: int | None) -> Sequence[Finding]:
        kind, outputs = type(op.attrs), op.outputs
        rule = RULES.get(kind)
        if len(outputs) != 1 or (rule is None and outputs[0].dtype not in INTEGER_RANGES):
            return ()
        if number is None:
            return self._exactly(op, rule)
        inputs, ranges = op.inputs, self._ranges
        key: Hashable = (number, *map(ranges.get, inputs))
        if kind is ops.Rescale:
            key = key, self._least_shift(op)
        elif len(dict.fromkeys(inputs)) < len(inputs):  # a square is more than a product
            key = key, tuple(map(inputs.index, inputs))
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._step(op, rule)
        found, settled = step
        if not settled:
            return self._exactly(op, rule)
        if found is not None:
            ranges[outputs[0]] = found
        return ()

    def _exactly(self, op: AnyOp, rule: Rule | None) -> Sequence[Finding]:
        """What the analysis of all that stands above an operator finds; it also says what range to go on with."""
        if rule is None:
            return ()
        output = op.outputs[0]
        try:
            found = suspicions(rule, op, self._whole)
            if output.dtype in INTEGER_RANGES:
                self._ranges[output] = _told(self._whole.of(output), output.dtype)
        except TosakitError:  # broken constants further up, which are reported there
            return ()
        return found

    def _step(self, op: AnyOp, rule: Rule | None) -> tuple[Range | None, bool]:
        """The range of the result, None where its type says it all, and whether the rule is kept."""
        twin, given = self._twin(op)
        try:
            here = Intervals(given)
            if rule is not None and suspicions(rule, twin, here):
                return None, False
            return (
                _told(here.of(twin.output), twin.output.dtype) if twin.output.dtype in INTEGER_RANGES else None
            ), True
        except TosakitError:
            return None, rule is None

    def _twin(self, op: AnyOp) -> tuple[AnyOp, dict[Tensor, Range]]:
        """The operator on operands of which only ranges are known, and these."""
        given: dict[Tensor, Range] = {}
        twins: dict[Tensor, Tensor] = {}
        exact = _exact_slots(op.attrs.NAME)
        for slot, tensor in enumerate(op.inputs):
            if slot in exact and tensor.is_constant:
                twins[tensor] = tensor
            elif tensor not in twins:
                twin = twins[tensor] = Tensor(tensor.name, tensor.dtype, tensor.shape)
                if tensor.dtype in INTEGER_RANGES:
                    given[twin] = self._ranges.get(tensor) or INTEGER_RANGES[tensor.dtype]
        operands = [twins[tensor] for tensor in op.inputs]
        attrs = op.attrs
        if isinstance(attrs, ops.Rescale):
            attrs = replace(attrs, per_channel=False)
            for slot, value in ((1, given.pop(operands[1])[1]), (2, self._least_shift(op))):
                operands[slot] = _constant(operands[slot].dtype, value)
        output = op.outputs[0]
        return Op(attrs, operands, (Tensor(output.name, output.dtype, output.shape),)), given

    def _least_shift(self, op: AnyOp) -> int:
        """The smallest shift of a RESCALE that was found clean."""
        bounds = self._memory.constants.bounds(self._memory.numbers[op.inputs[2]])
        return MIN_SHIFT if bounds is None else bounds[0]


def _constant(dtype: DType, value: int) -> Tensor:
    return Op(ops.Const(), (), (Tensor("constant", dtype, (1,), encode([value], dtype)),)).output


@cache
def _exact_slots(name: str) -> tuple[int, ...]:
    """Operands of which the number of a clean operator tells the very values, where they are constants."""
    sig, checks = signature(name), CHECKS.get(name, DEFAULT)
    arguments = () if sig is None else sig.inputs
    return tuple(slot for slot, argument in enumerate(arguments) if checks.knows(argument))
