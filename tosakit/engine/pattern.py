"""Patterns: what a rule looks for, as typed data that mirrors the left half of its picture."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from tosakit.ir.graph import AnyOp, Op, Tensor
from tosakit.ir.operator import Attributes, Foreign

A_co = TypeVar("A_co", bound=Attributes, covariant=True)


class AnyValue:
    """Matches any tensor; the match gives it back: ``match.value(X)``."""


class Capture(Generic[A_co]):
    """Matches an operator of one of ``kinds`` whose operands match ``operands`` slot by slot.

    ``None`` among the operands matches anything, as do slots beyond those given. ``single_reader`` demands that nothing
    else reads the operator's first result. The object is the key of the match: ``match[CONV]`` is an ``Op[Conv2d]``.
    """

    def __init__(
        self,
        *kinds: type[A_co],
        operands: Iterable["Capture[Attributes] | AnyValue | None"] = (),
        single_reader: bool = False,
    ) -> None:
        self.kinds = kinds
        self._types = dict.fromkeys(kinds)
        self.operands = tuple(operands)
        self.single_reader = single_reader

    def fits(self, op: AnyOp) -> bool:
        """True where the operator is of one of the kinds and, if demanded, has a single reader; operands aside.

        Nothing fits a foreign operator, which no rule may touch.
        """
        attrs = op.attrs
        if type(attrs) not in self._types and not isinstance(attrs, self.kinds):
            return False
        if isinstance(attrs, Foreign):
            return False
        return not self.single_reader or bool(op.outputs and op.output.single_user)

    def __iter__(self) -> Iterator["Capture[Attributes]"]:
        """This capture and every one below it, root first."""
        yield self
        for operand in self.operands:
            if isinstance(operand, Capture):
                yield from operand


@dataclass(slots=True)
class Match:
    """The operators and values a pattern found. ``match[CAPTURE]`` is typed by the capture."""

    root: AnyOp
    found_ops: dict[Capture[Attributes], AnyOp]
    found_values: dict[AnyValue, Tensor]

    def __getitem__(self, capture: Capture[A_co]) -> Op[A_co]:
        return self.found_ops[capture]  # type: ignore[return-value]

    def value(self, handle: AnyValue) -> Tensor:
        """The tensor that a value handle of the pattern stands for."""
        return self.found_values[handle]

    @property
    def ops(self) -> tuple[AnyOp, ...]:
        """All matched operators, root first."""
        return tuple(self.found_ops.values())


def match_at(pattern: Capture[Attributes], op: AnyOp) -> Match | None:
    """Match ``pattern`` with its root at ``op``; None where it does not fit. O(size of the pattern)."""
    if not pattern.operands:
        return Match(op, {pattern: op}, {}) if pattern.fits(op) else None
    found_ops: dict[Capture[Attributes], AnyOp] = {}
    found_values: dict[AnyValue, Tensor] = {}
    todo: list[tuple[Capture[Attributes], AnyOp]] = [(pattern, op)]
    while todo:
        capture, candidate = todo.pop()
        if not capture.fits(candidate):
            return None
        if found_ops.setdefault(capture, candidate) is not candidate:
            return None
        if not capture.operands:
            continue
        inputs = candidate.inputs
        if len(inputs) < len(capture.operands):
            return None
        for operand, tensor in zip(capture.operands, inputs, strict=False):
            if isinstance(operand, AnyValue):
                if found_values.setdefault(operand, tensor) is not tensor:
                    return None
            elif operand is not None:
                if tensor.producer is None:
                    return None
                todo.append((operand, tensor.producer))
    return Match(op, found_ops, found_values)
