"""Element types: which operand, result or accumulator type breaks an operator's table, and what would be legal."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.spec.signature import Argument, BlockScaled, Element, Signature, TypeRow, signature, spread
from tosakit.spec.target import Alternatives


class TypeFault(NamedTuple):
    """One wrong type: code, sentence, and where: operand ("in") or result ("out") ``at``, or acc_type ("acc")."""

    code: str
    message: str
    side: str
    at: int


class _Slot(NamedTuple):
    side: str
    at: int
    argument: str
    parameter: str
    actual: Element
    is_data: bool

    @property
    def code(self) -> str:
        if self.side == "acc":
            return "WrongAccumulatorType"
        if self.argument == "bias":
            return "WrongBiasType"
        return "WrongInputType" if self.side == "in" else "WrongOutputType"

    def fault(self, message: str, code: str = "") -> TypeFault:
        return TypeFault(code or self.code, message, self.side, self.at)


def element_of(tensor: Tensor) -> Element:
    """The tensor's element type as the type tables see it."""
    return BlockScaled(tensor.dtype) if tensor.extras.scale_type else tensor.dtype


def _listing(elements: Sequence[Element]) -> str:
    names = list(dict.fromkeys(element.name for element in elements))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _hint(actual: Element) -> str:
    return "; RESCALE it to INT32 or less first" if actual == DType.INT48 else ""


def _mismatches(row: TypeRow, slots: Sequence[_Slot]) -> list[_Slot]:
    """Slots whose type the row contradicts; a parameter the row does not name contradicts nothing."""
    return [slot for slot in slots if row.types.get(slot.parameter, slot.actual) != slot.actual]


def _fixed_faults(side: str, pairs: Sequence[tuple[Argument, Element]]) -> list[TypeFault]:
    faults: list[TypeFault] = []
    for index, (argument, actual) in enumerate(pairs):
        expected = argument.element
        if not isinstance(expected, DType) or actual in (expected, DType.UNKNOWN):
            continue
        kind = "ShapeType" if expected == DType.SHAPE else "Type"
        message = f"{argument.name} is {actual.name}, it must be {expected.name}{_hint(actual)}"
        faults.append(TypeFault(f"Wrong{'Input' if side == 'in' else 'Output'}{kind}", message, side, index))
    return faults


def _row_faults(sig: Signature, minor: int, slots: Sequence[_Slot]) -> list[TypeFault]:
    since = max(
        minor, sig.since
    )  # an operator newer than the file is reported as such, its types are judged by its own
    legal = [row for row in sig.rows if row.since <= since]
    if any(not _mismatches(row, slots) for row in legal):
        return []
    newer = [row.since for row in sig.rows if row.since > since and not _mismatches(row, slots)]
    if newer:
        types = ", ".join(f"{slot.argument} {slot.actual.name}" for slot in slots)
        message = f"{sig.name} with {types} is TOSA 1.{min(newer)}, the file says 1.{minor}"
        return [slots[0].fault(message, "NeedsNewerVersion")]
    data = [slot for slot in slots if slot.is_data]

    def fit(row: TypeRow) -> tuple[int, int]:
        return -len(_mismatches(row, data)), -len(_mismatches(row, slots))

    best = max(map(fit, legal))
    closest = [row for row in legal if fit(row) == best]
    wrong = _mismatches(closest[0], slots)
    if data and -best[0] == len(data):
        first = data[0]
        takes = _listing([row.types[first.parameter] for row in legal if first.parameter in row.types])
        message = f"{first.argument} is {first.actual.name}, {sig.name} takes {takes}{_hint(first.actual)}"
        return [first.fault(message)]
    faults: list[TypeFault] = []
    for slot in wrong:
        expected = _listing([row.types[slot.parameter] for row in closest])
        others = ", ".join(dict.fromkeys(f"{o.argument} {o.actual.name}" for o in data if o not in wrong))
        message = f"{slot.argument} is {slot.actual.name}, it must be {expected}"
        hint = _hint(slot.actual) if slot.side == "in" else ""
        faults.append(slot.fault(message + (f" with {others}" if others else "") + hint))
    return faults


@lru_cache(maxsize=4096)
def type_faults(
    operator: str,
    minor: int,
    scaled: bool,
    operands: tuple[Element, ...],
    results: tuple[Element, ...],
    accumulator: int | None,
) -> tuple[TypeFault, ...]:
    """Every type of one use of an operator that TOSA 1.``minor`` does not allow; cached.

    The number of operands and results must be right; ``scaled`` says whether optional block scales are among them.
    """
    sig = signature(operator)
    if sig is None:
        return ()
    taken = list(zip(spread(sig.inputs, len(operands), scaled) or (), operands, strict=False))
    given = list(zip(spread(sig.outputs, len(results), scaled) or (), results, strict=False))
    faults = [*_fixed_faults("in", taken), *_fixed_faults("out", given)]
    if accumulator is not None and not isinstance(accumulator, DType):
        message = f"acc_type is number {accumulator}, which is no element type"
        faults.append(TypeFault("WrongAccumulatorType", message, "acc", 0))
    slots = _slots(taken, given, accumulator)
    if slots:
        faults += _row_faults(sig, minor, slots)
    return tuple(faults)


@lru_cache(maxsize=4096)
def type_needs(
    operator: str,
    scaled: bool,
    operands: tuple[Element, ...],
    results: tuple[Element, ...],
    accumulator: int | None,
) -> tuple[int, Alternatives] | None:
    """What one use of an operator needs for its types: the minor version, and profiles and extensions; cached.

    None where the types are not legal in any version.
    """
    sig = signature(operator)
    if sig is None:
        return None
    taken = zip(spread(sig.inputs, len(operands), scaled) or (), operands, strict=False)
    given = zip(spread(sig.outputs, len(results), scaled) or (), results, strict=False)
    slots = _slots(list(taken), list(given), accumulator)
    fitting = [row for row in sig.rows if not _mismatches(row, slots)]
    if not fitting:
        return None
    since = min(row.since for row in fitting)
    needs = [_alternative(row, each) for row in fitting if row.since == since for each in row.needs]
    return max(since, sig.since), tuple(dict.fromkeys(needs))


def _alternative(row: TypeRow, needs: str) -> tuple[str, ...]:
    """Names of profiles and extensions. Some combinations of FP16 and FP32 name none; they are PRO-FP's."""
    if needs != "-":
        return tuple(needs.split("+"))
    return ("PRO-FP",) if any(element in (DType.FP16, DType.FP32) for element in row.types.values()) else ()


def _slots(
    taken: Sequence[tuple[Argument, Element]], given: Sequence[tuple[Argument, Element]], accumulator: int | None
) -> list[_Slot]:
    """The types of one use that the rows of the type table speak about."""
    slots = [
        _Slot("in", index, a.name, a.element, actual, not a.constant and a.name != "bias")
        for index, (a, actual) in enumerate(taken)
        if isinstance(a.element, str) and actual != DType.UNKNOWN
    ]
    if isinstance(accumulator, DType):
        slots.append(_Slot("acc", 0, "acc_type", "acc_t", accumulator, False))
    return slots + [
        _Slot("out", index, a.name, a.element, actual, False)
        for index, (a, actual) in enumerate(given)
        if isinstance(a.element, str) and actual != DType.UNKNOWN
    ]


def result_elements(
    operator: str, minor: int, scaled: bool, operands: tuple[Element, ...]
) -> tuple[Element | None, ...]:
    """The element type of each result, None where the operand types leave a choice (CAST, RESIZE)."""
    sig = signature(operator)
    if sig is None:
        return ()
    taken = list(zip(spread(sig.inputs, len(operands), scaled) or (), operands, strict=False))
    legal = [
        row.types
        for row in sig.rows
        if row.since <= minor and all(row.types.get(str(a.element), actual) == actual for a, actual in taken)
    ]
    elements: list[Element | None] = []
    for argument in sig.outputs:
        if isinstance(argument.element, DType):
            elements.append(argument.element)
            continue
        choices = dict.fromkeys(types[argument.element] for types in legal if argument.element in types)
        elements.append(next(iter(choices)) if len(choices) == 1 else None)
    return tuple(elements)
