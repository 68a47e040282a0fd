"""The command line: stdout carries the result, stderr the story, the exit code the verdict."""

import os
import sys
import traceback
from collections.abc import Sequence

from tosakit.errors import RuleBug, TosakitError

DONE, NOT_EQUIVALENT, USER, FAULT = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code.

    0 done; 1 not equivalent, or refused by Vela; 2 the user's input or options; 3 a fault of tosakit or of a rule.
    """
    from tosakit.cli.parser import build_parser

    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except RuleBug as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(f"error: {error}\n  this is a bug in the rule, not in your model", file=sys.stderr)
        return error.exit_code
    except TosakitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return 130
    except Exception as error:
        traceback.print_exc()
        print(
            f"error: {type(error).__name__}: {error}\n  this is a fault of tosakit; please report it, with the above",
            file=sys.stderr,
        )
        return FAULT
