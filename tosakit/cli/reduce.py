"""``tosakit reduce``: make a file that shows a fault small."""

import argparse
import shlex

from tosakit.cli.console import progress_bars, say
from tosakit.cli.parser import source_of
from tosakit.errors import InvalidArgument
from tosakit.io.qparams import apply_qparams, load_qparams, save_qparams, sidecar_path
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.ir.program import Program
from tosakit.ir.text import format_program
from tosakit.testing.command import FailingCommand
from tosakit.testing.reduction import reduce_program


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 0 done, 2 where the command does not fail on the file."""
    if options.attempts < 1:
        raise InvalidArgument(f"--attempts {options.attempts}: give a number of runs, 1 or more")
    command = FailingCommand(options.failing, options.timeout)
    program = load(source_of(options.input))
    quantized = _annotate(program, options.input)
    fault = command.ends(program)
    if fault == 0:
        raise InvalidArgument(
            f"the command ends with 0 on {options.input}, so there is no fault to keep: {shlex.join(command.words)}"
        )
    with progress_bars() as progress:
        show = progress("reducing")
        found = reduce_program(
            program,
            lambda candidate: command.ends(candidate) == fault,
            attempts=options.attempts,
            progress=(lambda tried, operators: show(tried, options.attempts))
            if show
            else lambda tried, operators: None,
        )
    if options.output:
        save(found.program, options.output)
        if quantized:
            save_qparams(found.program, sidecar_path(options.output))
    else:
        print(format_program(found.program, values=None))
    ending = "nothing more can go" if found.complete else "stopped at the number of attempts"
    say(
        f"{program.operator_count} ops -> {found.program.operator_count} ops; "
        f"still {fault if isinstance(fault, str) else f'exit code {fault}'}; {found.tried} runs, {ending}"
    )
    if not found.program.operator_count:
        say("the command fails without any operator too, so perhaps it never looks at the file; run it by hand to see")
    return 0


def _annotate(program: Program, name: str) -> bool:
    """Take the quantisation parameters beside the file, if there are any."""
    if name == "-" or not sidecar_path(name).exists():
        return False
    apply_qparams(program, load_qparams(sidecar_path(name)))
    return True
