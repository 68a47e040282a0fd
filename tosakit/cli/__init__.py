"""The command line: stdout carries the result, stderr the story, the exit code the verdict."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from tosakit.errors import RuleBug, TosakitError

DONE, NOT_EQUIVALENT, USER, FAULT = 0, 1, 2, 3
INTERRUPTED, NOBODY_READS = 130, 141
"""What shells report for a program ended by SIGINT and by SIGPIPE."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code.

    0 done; 1 not equivalent, or refused by Vela; 2 the user's input or options; 3 a fault of tosakit or of a rule.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names may hold what the terminal cannot show
    return answer(lambda: _run(arguments))


def answer(work: Callable[[], int]) -> int:
    """Do some work and return its exit code; where it raises, say why and return the code for that."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except RuleBug as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(f"error: {error}\n  this is a bug in the rule, not in your model", file=sys.stderr)
        return exit_code_of(error)
    except BrokenPipeError:
        _let_go_of_stdout()
        return NOBODY_READS
    except (TosakitError, OSError) as error:
        if isinstance(error, OSError):
            _let_go_of_stdout()
        print(f"error: {error}", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        print(
            f"error: {type(error).__name__}: {error}\n  this is a fault of tosakit; please report it, with the above",
            file=sys.stderr,
        )
        return exit_code_of(error)


def exit_code_of(error: Exception) -> int:
    """What the command line ends with where this was raised."""
    if isinstance(error, TosakitError):
        return error.exit_code
    return USER if isinstance(error, OSError) else FAULT


def _run(arguments: Sequence[str] | None) -> int:
    from tosakit.cli.parser import build_parser

    try:
        options = build_parser().parse_args(arguments)
    except SystemExit as end:  # argparse has said why, or printed what it was asked for
        return end.code if isinstance(end.code, int) else USER
    return int(options.run(options))


def _let_go_of_stdout() -> None:
    """What is still buffered cannot be written; Python would try again at exit, and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
