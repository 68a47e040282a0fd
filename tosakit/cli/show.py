"""``tosakit show``: a file as readable text."""

import argparse
import json

from tosakit.cli.console import say
from tosakit.cli.parser import source_of
from tosakit.errors import InvalidArgument
from tosakit.io.reader import load
from tosakit.ir.text import format_program, to_json


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    if options.values < 0:
        raise InvalidArgument(f"--values {options.values}: give a number of values, 0 or more")
    program = load(source_of(options.input))
    for note in program.notes:
        say(f"note: {note}")
    if options.json:
        print(json.dumps(to_json(program), indent=1))
    else:
        print(format_program(program, values=options.values))
    return 0
