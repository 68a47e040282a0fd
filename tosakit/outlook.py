"""What a target has against a program, and what the rewrites for Ethos-U would leave of it."""

from dataclasses import dataclass

from tosakit.backend.obstacle import Obstacle
from tosakit.backend.obstacles import find_obstacles
from tosakit.catalogue import load_catalogue
from tosakit.ir.program import Program
from tosakit.rewriting import run

PIPELINE = "ethos-u"


@dataclass(frozen=True)
class Outlook:
    """The ``obstacles`` of a program, and those ``left`` by the pipeline; both say which rules refused, and why."""

    obstacles: tuple[Obstacle, ...]
    left: tuple[Obstacle, ...]


def outlook(program: Program, accelerator: str) -> Outlook:
    """Try the pipeline on a copy where there is an obstacle: a rule that exists may refuse the case at hand.

    Raises InvalidModel for a program that is not legal TOSA, RuleBug as :func:`tosakit.rewrite` does.
    """
    found = find_obstacles(program, accelerator)
    if not found:
        return Outlook((), ())
    done = run(program, load_catalogue().pipelines[PIPELINE], options={}, target=accelerator, check="none")
    refused = done.result.refusals
    left = find_obstacles(done.program, accelerator)
    return Outlook(*(tuple(each.after(refused) for each in one) for one in (found, left)))
