"""Hypothesis strategies for what rules are tested on: types, constants, operators, whole programs, and inputs.

Everything drawn is legal TOSA. ``space`` says what may occur: :data:`tosakit.testing.INTEGER` (the default: all integer
operators of TOSA 1.0) or :data:`tosakit.testing.EVERYTHING` (FP and the draft of TOSA 1.1 too).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from tosakit.engine.rule import Rule, Step
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import Array
from tosakit.oracle.equivalence import input_specs
from tosakit.oracle.inputs import input_vectors
from tosakit.spec.signature import signature
from tosakit.testing import programs as made
from tosakit.testing import values
from tosakit.testing.choices import Choices, Seeded
from tosakit.testing.properties import Setting
from tosakit.testing.sketch import INTEGER, Sketch, Space, Unfit
from tosakit.testing.special import LEGAL
from tosakit.testing.wishes import Wish, nearest, variants


class Drawn(Choices):
    """Decisions that Hypothesis takes."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        return self._draw(st.integers(low, high))


def dtypes(space: Space = INTEGER) -> st.SearchStrategy[DType]:
    """Element types."""
    return st.sampled_from(space.dtypes)


@st.composite
def shapes(draw: st.DrawFn, least_rank: int = 0) -> tuple[int, ...]:
    """Small static shapes of rank ``least_rank`` to 5, half of them of rank 4."""
    return Sketch(Drawn(draw)).shape(least_rank)


@st.composite
def constants(
    draw: st.DrawFn, dtype: DType, shape: Sequence[int], low: int | None = None, high: int | None = None
) -> Array:
    """Values of a constant, as an array of ``numpy_dtype(dtype)``: limits, zeros, one value throughout, anything."""
    return values.values(Drawn(draw), dtype, shape, low, high)


@st.composite
def zero_points(draw: st.DrawFn, dtype: DType) -> int:
    """Legal zero points of a dtype."""
    return values.zero_point(Drawn(draw), dtype)


@st.composite
def scale_pairs(draw: st.DrawFn, dtype: DType, *, scale32: bool) -> tuple[int, int]:
    """Multiplier and shift of a RESCALE that reads ``dtype``; one in five stands for exactly one."""
    return values.scale_pair(Drawn(draw), dtype, scale32=scale32)


def kinds(space: Space = INTEGER) -> list[type[Attributes]]:
    """The operators that ``space`` has."""
    found = []
    for kind in ops.OPERATORS:
        sig = signature(kind.NAME)
        if sig is not None and sig.since <= space.minor and any(map(space.allows, sig.rows)):
            found.append(kind)
    return found


@st.composite
def operators(draw: st.DrawFn, kind: type[Attributes] | None = None, space: Space = INTEGER) -> Program:
    """Programs of one operator, of ``kind`` or of any that ``space`` has, with legal attributes and operands."""
    try:
        return made.operator(Drawn(draw), kind or draw(st.sampled_from(kinds(space))), space)
    except Unfit:
        reject()


@st.composite
def programs(draw: st.DrawFn, space: Space = INTEGER, *, most: int = 12) -> Program:
    """Programs with fan-out, shared constants, several outputs and regions, of up to ``most`` operators or so."""
    return made.program(Drawn(draw), space, most=most)


@st.composite
def from_pattern(draw: st.DrawFn, rule: Rule[Any], space: Space = INTEGER, *, around: int = 4) -> Program:
    """Programs that hold the pattern of ``rule``, with up to ``around`` operators in front of it and behind it.

    Whether its precondition takes it is left to chance. A rule that repairs illegal operators has a pattern that no
    legal program holds as the rule wants it: give such a rule programs of your own.
    """
    try:
        return made.from_pattern(Drawn(draw), rule, space, around=around)
    except Unfit:
        reject()


def seeded(step: Step, space: Space = INTEGER, *, options: Any = None, target: str = "") -> st.SearchStrategy[Program]:
    """Programs from a seed: those of :func:`from_pattern` for a rule, of :func:`programs` for a transform.

    Half of them are drawn again until the step, with these ``options`` and this ``target``, fires, the others until it
    leaves them alone; some are drawn in vain. Some have BOOL tensors inside, an output that is an input, or a RESCALE
    whose multiplier is no constant. Hypothesis varies the seed alone, so these are as varied as can be from the first
    on, but it cannot shrink them.
    """
    setting = Setting({step.name: step.options() if options is None else options}, target)

    def draw(seed: int) -> Program | None:
        choices = Seeded(seed)
        wish = Wish(step.name, choices.flag())

        def some() -> Iterator[Program]:
            if isinstance(step, Rule) and (wish.fires or choices.flag(0.8)):
                return variants(choices, made.from_pattern(choices, step, space), LEGAL)
            return variants(choices, made.program(choices, space), LEGAL)

        try:
            return nearest(wish, some, lambda program, wanted: wanted.granted(program, [step], setting))
        except Unfit:
            return None

    return st.integers(0, (1 << 64) - 1).map(draw).filter(lambda program: program is not None)  # type: ignore[return-value]


def inputs(program: Program, count: int = 16) -> st.SearchStrategy[list[list[Array]]]:
    """``count`` vectors for a program: zero, both limits, +-1, saturating, odd halves, and mixtures of them."""
    specs = input_specs(program)
    return st.integers(0, (1 << 32) - 1).map(lambda seed: list(input_vectors(specs, count, seed)))
