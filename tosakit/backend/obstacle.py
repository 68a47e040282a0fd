"""What stands between an operator and a correct command stream: as an entry of a table, and as found in a program."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tosakit.engine.rule import Refused
from tosakit.ir.graph import AnyOp
from tosakit.numerics.intervals import Intervals

Kind = Literal["refused", "miscompiled", "suspected"]
"""Vela refuses it (or crashes), compiles it into something else without a word, or is reported to."""

Established = Literal["probed", "bytes inspected", "upstream report", "documented"]
"""How an entry is known: Vela was run on both sides of the limit, its output was read, others say so."""

ANY = ("",)
"""For an entry about every operator."""


@dataclass(frozen=True)
class Entry:
    """A limit or a known issue: of which families and operators, the graph in words, and how to find it there.

    ``find`` says what is wrong at an operator, with the values, or answers None. ``rules`` are the rewrites that help,
    ``advice`` what helps besides.
    """

    families: tuple[str, ...]
    kind: Kind
    operators: tuple[str, ...]
    graph: str
    established: Established
    find: Callable[[AnyOp, Intervals], str | None]
    rules: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Obstacle:
    """One operator, or one output of a block, that Vela refuses or compiles wrongly.

    ``index`` is the operator's place in its block, None for an output; ``operator`` describes it; ``tensors`` are the
    results, by name. ``refusals`` are of those rules of the entry that were tried here.
    """

    entry: Entry
    block: str
    index: int | None
    operator: str
    tensors: tuple[str, ...]
    message: str
    refusals: tuple[Refused, ...] = ()

    @property
    def kind(self) -> Kind:
        """Refused, miscompiled or suspected."""
        return self.entry.kind

    def after(self, refused: Iterable[Refused]) -> "Obstacle":
        """The same after rules were run, with what those said that would help elsewhere."""
        here = (r for r in refused if (r.block, r.operator) == (self.block, self.operator))
        return replace(self, refusals=tuple(r for r in here if r.rule in self.entry.rules))

    @property
    def helps(self) -> str:
        """What helps, as a sentence; a rule that refused says why."""
        refused = {r.rule: r.reason for r in self.refusals}
        rules = [name for name in self.entry.rules if name not in refused]
        several = len(rules) > 1
        by_rule = f"The rule{'s' * several} {' and '.join(rules)} help{'s' * (not several)}" if rules else ""
        reasons = [f"The rule {name} refuses: {reason}" for name, reason in refused.items()]
        return ". ".join(part for part in (by_rule, *reasons, self.entry.advice) if part) or "No rewrite is known"

    def __str__(self) -> str:
        return f"{self.operator}: {self.message}. {self.helps}"
