"""Draw programs until a step does what is wished for, since what a precondition asks for stands in no pattern."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Step
from tosakit.errors import RuleBug, TosakitError
from tosakit.ir.program import Program
from tosakit.testing.choices import Choices
from tosakit.testing.properties import Setting
from tosakit.testing.sketch import Unfit
from tosakit.testing.special import Special

T = TypeVar("T")

GRANTED, NEARLY, NOT = 2, 1, 0
ROUNDS = {True: 20, False: 4}
"""Draws until a wish is given up: that a step fires, and that it gives a reason why it does not."""


@dataclass(frozen=True)
class Wish:
    """That a step fires, or that it leaves the program alone, at best with a reason."""

    step: str
    fires: bool

    def granted(self, program: Program, steps: Sequence[Step], setting: Setting) -> int:
        """:data:`GRANTED`, :data:`NEARLY` (left alone without a reason) or :data:`NOT`; what raises is worth a look."""
        try:
            done = run_steps(program.clone(), steps, options=setting.options, target=setting.target)
        except RuleBug:
            return GRANTED
        except TosakitError:
            return NOT
        if self.step in done.rules_fired:
            return GRANTED if self.fires else NOT
        if self.fires:
            return NOT
        return GRANTED if any(refused.rule == self.step for refused in done.refusals) else NEARLY


def nearest(wish: Wish | None, draw: Callable[[], Iterable[T]], granted: Callable[[T, Wish], int]) -> T:
    """The first thing drawn that grants the wish, or comes nearest to it; without a wish the first of all.

    ``draw`` gives several that are alike, and may raise Unfit. Raises Unfit where it always does.
    """
    best: T | None = None
    most = -1
    for _ in range(ROUNDS[wish.fires] if wish else ROUNDS[True]):
        try:
            for found in draw():
                worth = granted(found, wish) if wish else GRANTED
                if worth > most:
                    best, most = found, worth
                if most == GRANTED:
                    break
        except Unfit:
            continue
        if most == GRANTED:
            break
    if best is None:
        raise Unfit("nothing could be drawn")
    return best


def variants(choices: Choices, program: Program, changes: Sequence[Special]) -> Iterator[Program]:
    """The program itself and what some of the changes make of it, in any order."""
    todo: list[Special] = [lambda choices, program: program, *(one for one in changes if choices.flag(0.4))]
    while todo:
        change = todo.pop(choices.integer(0, len(todo) - 1))
        if (found := change(choices, program)) is not None:
            yield found
