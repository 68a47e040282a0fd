"""One use of an operator as its checks see it: attributes, operands by name, sizes by name, and what is wrong."""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from tosakit.errors import InvalidModel
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES, Array, byte_size
from tosakit.spec.diagnostics import Severity
from tosakit.spec.signature import Argument

Size = int | None
Shape = tuple[Size, ...]
"""Sizes of a tensor, None for one that only run time knows."""

A = TypeVar("A", bound=Attributes)

Harmless = Callable[[DType, int, int], bool]
"""Whether a constant is legal whatever the other operands hold: from its type, and its smallest and largest value."""


class Finding(NamedTuple):
    """Something wrong with one use of an operator; becomes a Diagnostic."""

    code: str
    message: str
    tensors: tuple[Tensor, ...] = ()
    severity: Severity = "error"


@dataclass(frozen=True)
class Codes:
    """The codes of an operator's size and rank faults, where the specification names its own.

    ``rank`` and ``sizes`` are by operand name; ``result`` is for sizes of the results, ``result_sizes`` for single
    ones by the name of the size, ``result_rank`` for their rank.
    """

    rank: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    result: str = "DimensionMismatch"
    result_sizes: Mapping[str, str] = field(default_factory=dict)
    result_rank: str = ""


_STRUCT = {DType.INT8: "b", DType.INT16: "h", DType.INT32: "i", DType.INT64: "q", DType.SHAPE: "q"}
"""Codes of the struct module, which decodes few values faster than numpy."""


def shape_of(tensor: Tensor) -> Shape | None:
    """The tensor's shape with None for unknown sizes; None where even the rank is unknown."""
    shape = tensor.shape
    if tensor.extras.is_unranked or tensor.dtype == DType.UNKNOWN:
        return None
    if shape and min(shape) < 1 and tensor.dtype != DType.SHAPE:
        return tuple(size if size > 0 else None for size in shape)
    return shape


def constant_integers(tensor: Tensor) -> tuple[int, ...] | None:
    """Values of a constant of an integer type in row-major order; None for anything else and for broken data."""
    code = _STRUCT.get(tensor.dtype)
    if code is None:
        array = constant_array(tensor)
        return None if array is None else tuple(array.reshape(-1).tolist())
    data, shape = tensor.data, tensor.shape
    if data is None or not tensor.is_constant or (shape and min(shape) < 0):
        return None
    if byte_size(tensor.dtype, shape) > len(data):
        return None
    return struct.unpack_from(f"<{math.prod(shape)}{code}", data)


def constant_array(tensor: Tensor) -> Array | None:
    """Values of a constant of an integer type; None for anything else and for broken data."""
    if not tensor.is_constant or tensor.data is None or tensor.dtype not in INTEGER_RANGES:
        return None
    try:
        return tensor.values()
    except InvalidModel:
        return None


def show(shape: Sequence[Size]) -> str:
    """A shape for messages, with ? for an unknown size."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def element_count(shape: Sequence[Size]) -> Size:
    """Number of elements, None where a size is unknown."""
    count = 1
    for size in shape:
        if size is None:
            return None
        count *= size
    return count


class Call(Generic[A]):
    """One use of an operator. Its checks read operands and sizes, report what is wrong, and bind result sizes.

    ``known`` gives the values of shapes that shape operators computed from constants, ``value`` what this one computes.
    ``consulted`` are the names of the operands whose values were looked at.
    """

    def __init__(
        self,
        attrs: A,
        operands: Sequence[tuple[Argument, Tensor]],
        results: Sequence[tuple[Argument, Tensor]],
        codes: Codes,
        known: Mapping[Tensor, tuple[int, ...]],
    ) -> None:
        self.attrs = attrs
        self.findings: list[Finding] = []
        self.operands: dict[str, list[Tensor]] = {}
        self.value: tuple[int, ...] | None = None
        self.consulted: dict[str, None] = {}
        self._codes = codes
        self._known = known
        self._sizes: dict[str, Size] = {}
        self._shapes: dict[str, Shape] = {}
        self._shape_codes: dict[str, Mapping[int, str]] = {}
        self._origins: dict[str, str] = {}
        self.results = results
        for argument, tensor in operands:
            self.operands.setdefault(argument.name, []).append(tensor)
            self._take(argument, tensor)

    # ---------------------------------------------------------------- reading
    def tensor(self, name: str) -> Tensor:
        """The operand of that name (the first of a list)."""
        return self.operands[name][0]

    def dtype(self, name: str) -> DType:
        """Element type of an operand."""
        return self.operands[name][0].dtype

    def size(self, name: str) -> Size:
        """The size of that name, such as IH; None where unknown."""
        return self._sizes.get(name)

    def shape(self, name: str) -> Shape | None:
        """The shape of that name, such as shape1; None where unknown."""
        return self._shapes.get(name)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Values of a constant integer or shape operand; None where it is no constant or has no usable data."""
        tensor = self.operands[name][0]
        self.consulted[name] = None
        values = self._known.get(tensor)
        return constant_integers(tensor) if values is None else values

    def array(self, name: str) -> Array | None:
        """Values of a constant integer operand that may be large; None where there are none."""
        self.consulted[name] = None
        return constant_array(self.operands[name][0])

    # ---------------------------------------------------------------- saying
    def error(self, code: str, message: str, *operands: str) -> None:
        """Report a fault, naming the operands concerned."""
        tensors = tuple(tensor for name in operands for tensor in self.operands.get(name, ()))
        self.findings.append(Finding(code, message, tensors))

    def warn(self, code: str, message: str, *operands: str) -> None:
        """Report what is legal but suspicious, naming the operands concerned."""
        self.error(code, message, *operands)
        self.findings[-1] = self.findings[-1]._replace(severity="warning")

    def bind(self, name: str, size: Size) -> None:
        """State the size of that name, for the results."""
        self._sizes[name] = size

    def bind_shape(self, name: str, shape: Sequence[Size], codes: Mapping[int, str] | None = None) -> None:
        """State the shape of that name, for the results; ``codes`` are for faults of single axes."""
        self._shapes[name] = tuple(shape)
        if codes:
            self._shape_codes[name] = codes

    def vector(self, name: str, length: int) -> tuple[int, ...] | None:
        """An attribute that must hold ``length`` numbers; None (and reported) where it does not."""
        values: tuple[int, ...] = getattr(self.attrs, name)
        if len(values) == length:
            return values
        self.error("AttributeLength", f"{name} has {len(values)} entries, {self.attrs.NAME} needs {length}")
        return None

    # ---------------------------------------------------------------- results
    def declared(self, name: str) -> Shape | None:
        """The declared shape of a result; None where unknown."""
        return next((shape_of(tensor) for argument, tensor in self.results if argument.name == name), None)

    def expected(self, argument: Argument) -> Shape | None:
        """The shape a result must have, as far as it is known."""
        if argument.sizes is not None:
            return tuple(self._sizes.get(name) for name in argument.sizes)
        return self._shapes.get(argument.shape)

    def check_results(self) -> None:
        """Report where a declared result differs from what the operands give."""
        for argument, tensor in self.results:
            self._check_result(argument, tensor)

    def _check_result(self, argument: Argument, tensor: Tensor) -> None:
        declared = shape_of(tensor)
        expected = self.expected(argument)
        if declared is None or declared == expected:
            return
        if expected is None:
            self._check_rank(argument, tensor, declared)
            return
        if len(declared) != len(expected):
            code = self._codes.result_rank or ("RankMismatch" if argument.sizes is None else "WrongRank")
            message = f"{argument.name} has rank {len(declared)} ({show(declared)}), it must have {len(expected)}"
            self.findings.append(Finding(code, message, (tensor,)))
            return
        wrong: dict[str, None] = {}
        codes = self._shape_codes.get(argument.shape, {})
        for axis, (has, must) in enumerate(zip(declared, expected, strict=True)):
            if has is not None and must is not None and has != must:
                name = argument.sizes[axis] if argument.sizes is not None else ""
                wrong[codes.get(axis) or self._codes.result_sizes.get(name) or self._codes.result] = None
        for code in wrong:
            message = f"{argument.name} is declared {show(declared)}, the operands give {show(expected)}"
            self.findings.append(Finding(code, message, (tensor,)))

    # ---------------------------------------------------------------- operands
    def _take(self, argument: Argument, tensor: Tensor) -> None:
        """Check an operand's rank and name its sizes; report a size that two operands disagree on."""
        shape = shape_of(tensor)
        if shape is None:
            return
        fits = self._check_rank(argument, tensor, shape)
        if argument.sizes is None:
            if argument.shape and not argument.many:
                self._shapes[argument.shape] = shape
                self._sizes[f"rank({argument.shape})"] = len(shape)
                self._sizes[f"2*rank({argument.shape})"] = 2 * len(shape)
            return
        if not fits:
            return
        for name, size in zip(argument.sizes, shape, strict=True):
            known_size = int(name) if name.isdigit() else self._sizes.get(name)
            if known_size is None:
                self._sizes[name] = size
                self._origins[name] = argument.name
            elif size is not None and size != known_size:
                code = self._codes.sizes.get(argument.name, "OperandShapeMismatch")
                because = f" (from {origin})" if (origin := self._origins.get(name)) else ""
                message = f"{argument.name} has shape {show(shape)}, {name} must be {known_size}{because}"
                if name.isdigit():
                    message = f"{argument.name} has shape {show(shape)}, it must be {show(_numbers(argument.sizes))}"
                self.findings.append(Finding(code, message, (tensor,)))

    def _check_rank(self, argument: Argument, tensor: Tensor, shape: Shape) -> bool:
        rank = len(shape)
        low, high = argument.min_rank, rank  # the largest rank is a matter of levels
        if argument.sizes is not None:
            low = high = len(argument.sizes)
        if low <= rank <= high or argument.element is None:
            return True
        code = self._codes.rank.get(argument.name, "WrongRank")
        needed = f"{low}" if argument.sizes is not None else f"{low} or more"
        message = f"{argument.name} has rank {rank} ({show(shape)}), it must have rank {needed}"
        self.findings.append(Finding(code, message, (tensor,)))
        return False


def _numbers(sizes: Sequence[str]) -> list[Size]:
    return [int(name) if name.isdigit() else None for name in sizes]


AnyCall = Call[Any]
