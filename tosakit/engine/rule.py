"""Rules and transforms: the two forms a rewrite can take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tosakit.engine.contract import Contract
from tosakit.engine.pattern import Capture, Match
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, OpRecord, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import Array
from tosakit.numerics.intervals import Interval, Intervals
from tosakit.numerics.real_deviation import RealArithmetic

P = TypeVar("P")
O_contra = TypeVar("O_contra", contravariant=True)


@dataclass(frozen=True)
class NoOptions:
    """For a rule that has no options."""


@dataclass(frozen=True)
class Refusal:
    """A rule that should have fired says why it cannot, in one sentence with the numbers in it."""

    reason: str


@dataclass(frozen=True)
class Replacement:
    """New operators, which old value each new value stands for, and what is promised about it.

    ``covers`` are the operators whose joint function is replaced, where they are not just the matched ones; the check
    runs them against ``ops``. ``contract`` is the bound for this very match where the rule's own is not precise.
    ``reference`` gives the real-valued meaning of the replaced values (float64 or exact Python numbers, in units of one
    LSB, before rounding and saturation) from the arrays that the covered operators read; a rule whose originals are
    illegal TOSA gives it, since nothing can run them.
    """

    ops: Sequence[AnyOp]
    values: Mapping[Tensor, Tensor]
    contract: Contract | None = None
    covers: Sequence[AnyOp] | None = None
    reference: "Reference | None" = None


Reference = Callable[[Mapping[Tensor, Array]], Mapping[Tensor, Array]]
"""From the values of the cut tensors to the real meaning of each replaced (old) value."""


@dataclass(frozen=True)
class Context:
    """What a rule may know beside its match: the target (``""``: none), its own options, and value intervals.

    ``options`` is an instance of the rule's option class.
    """

    target: str
    options: Any
    intervals: Intervals


@dataclass(frozen=True)
class Rule(Generic[P]):
    """A local rewrite. ``name`` equals its file's name.

    ``precondition`` answers None (nothing to do here), a :class:`Refusal`, or a plan: a small frozen value holding what
    ``replacement`` needs. ``replacement`` is pure: it builds detached operators and may be called twice.
    """

    name: str
    pattern: Capture[Attributes]
    precondition: Callable[[Match, Context], P | Refusal | None]
    replacement: Callable[[Match, P], Replacement]
    contract: Contract
    summary: str
    options: type[Any] = NoOptions


@dataclass(slots=True)
class Event:
    """One rewrite that happened."""

    rule: str
    block: str
    operators: tuple[str, ...]
    """The replaced operators as ``TYPE -> "first result"``."""
    contract: Contract
    detail: str = ""
    before: tuple[OpRecord, ...] = field(default=(), repr=False, compare=False)
    after: tuple[OpRecord, ...] = field(default=(), repr=False, compare=False)
    values: Mapping[Tensor, Tensor] = field(default_factory=dict, repr=False, compare=False)
    ranges: Mapping[Tensor, Interval] = field(default_factory=dict, repr=False, compare=False)
    """What the integer tensors that the replaced operators read were proved to hold at that moment."""
    reference: Reference | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Refused:
    """One place where a rule would have applied but refused."""

    rule: str
    block: str
    operator: str
    reason: str


@dataclass(frozen=True)
class BoundaryChange:
    """A program input or output that changed its dtype: new value = (old value - ``zero_point``) * ``factor``."""

    name: str
    before: DType
    after: DType
    zero_point: int
    factor: int


@dataclass(frozen=True, eq=False)
class StateLink:
    """A variable that became an input and an output: ``output`` of each run is ``input`` of the next.

    ``initial`` is ``input`` of the first run; None where the variable has no initial value, so that what TOSA reads
    there is undefined. ``variable`` is the tensor's name in the original.
    """

    variable: str
    input: str
    output: str
    initial: Array | None


@dataclass(frozen=True)
class RenamedOutput:
    """An output of the program that has another name now, in the same place."""

    name: str
    new_name: str


@dataclass(frozen=True)
class Outcome:
    """What a transform did to the program it was given.

    ``local_check`` is the transform's own local contract: called with the program before and after, it answers with one
    sentence per breach (none: kept). ``boundary`` lists inputs and outputs whose dtype changed, ``state`` the variables
    that became inputs and outputs, ``renamed`` the outputs that have another name. ``meaning``, of a change of
    precision, is the real arithmetic that the new program stands for; what it computes is then bounded against that.
    """

    events: Sequence[Event] = ()
    refusals: Sequence[Refused] = ()
    boundary: Sequence[BoundaryChange] = ()
    local_check: "LocalCheck | None" = None
    state: Sequence[StateLink] = ()
    renamed: Sequence[RenamedOutput] = ()
    meaning: RealArithmetic | None = None


LocalCheck = Callable[[Program, Program], Sequence[str]]


@dataclass(frozen=True)
class Transform:
    """A rewrite of the whole program. ``run`` changes the program it is given (the engine's own copy)."""

    name: str
    run: Callable[[Program, Context], Outcome]
    contract: Contract
    summary: str
    options: type[Any] = NoOptions


Step = Rule[Any] | Transform


def describe(op: AnyOp) -> str:
    """``CONV2D -> "conv_12"``: an operator for people."""
    return f'{op.name} -> "{op.outputs[0].name}"' if op.outputs else op.name
