"""What people see: messages and progress on stderr, tables on stdout."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tosakit.errors import InvalidModel

if TYPE_CHECKING:
    from tosakit.engine.rule import StateLink
    from tosakit.ir.program import Program
    from tosakit.spec.diagnostics import Diagnostic

Progress = Callable[[int, int], None]

SHOWN = 10
"""Diagnostics, refusals and remarks that are printed; the report holds all."""


def say(text: str) -> None:
    """Tell the story: one line on stderr."""
    print(text, file=sys.stderr)


def say_some(lines: Sequence[str], what: str) -> None:
    """The first lines, and how many more there are."""
    for line in lines[:SHOWN]:
        say(line)
    if len(lines) > SHOWN:
        say(f"... and {len(lines) - SHOWN} more {what}")


def say_diagnostics(diagnostics: "Sequence[Diagnostic]") -> None:
    """Errors of the input in full, warnings as one line per kind."""
    say_some([f"in the input: {finding}" for finding in diagnostics if finding.severity == "error"], "errors")
    for code, count in Counter(finding.code for finding in diagnostics if finding.severity != "error").items():
        say(f"warning: {code}, {count} times" if count > 1 else f"warning: {code}")


def state_text(link: "StateLink") -> str:
    """What to feed back from run to run, and what to start with."""
    start = "with anything: the variable has no initial value"
    if link.initial is not None:
        low, high = link.initial.min(), link.initial.max()
        start = f"as {low} everywhere" if low == high else f"with values from {low} to {high}, see the report"
    return f'state: output "{link.output}" feeds input "{link.input}" of the next run, which starts {start}'


def require_legal(program: "Program", name: str) -> None:
    """Raises InvalidModel where the verifier finds an error: native tools may crash on such a file, or worse."""
    from tosakit.spec.verify import verify

    errors = [str(finding) for finding in verify(program) if finding.severity == "error"]
    if errors:
        more = [f"... and {len(errors) - SHOWN} more"] if len(errors) > SHOWN else []
        text = "\n  ".join([*errors[:SHOWN], *more])
        raise InvalidModel(f"{name} is not legal TOSA, so no other tool is run on it:\n  {text}")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on stdout; columns whose every cell is a number are set right."""
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        drawn.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(_cell(value) for value in row))
    width = None if sys.stdout.isatty() else 160
    Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False).print(drawn)


def _cell(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


@contextmanager
def progress_bars() -> Iterator[Callable[[str], Progress | None]]:
    """Makes progress bars on stderr by description; none where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda description: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(file=sys.stderr), transient=True) as bars:

        def start(description: str) -> Progress:
            task = bars.add_task(description, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield start
