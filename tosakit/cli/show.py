"""``tosakit show``: a file as readable text, on demand with what Vela estimates for each operator."""

import argparse
import json

from tosakit.cli.console import say, say_some
from tosakit.cli.parser import source_of
from tosakit.errors import InvalidArgument
from tosakit.io.reader import load
from tosakit.ir.graph import AnyOp
from tosakit.ir.program import Program
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
        return 0
    remarks, accepted = costs_as_remarks(program, options.vela) if options.vela else ({}, True)
    print(format_program(program, values=options.values, remarks=remarks))
    return 0 if accepted else 1


def costs_as_remarks(program: Program, accelerator: str) -> tuple[dict[AnyOp, str], bool]:
    """Vela's cycles and memory for each operator, and whether Vela takes the program; what it says goes to stderr."""
    from tosakit.backend.compile import compile_program

    found = compile_program(program, accelerator, name="model", place=None)
    say_some([f"warning: {obstacle}" for obstacle in found.obstacles], "obstacles")
    report = found.report
    if report is None or not report.accepted:
        say(f"Vela does not compile this for {accelerator}, so there are no cycles; see: tosakit vela")
        return {}, False
    if not report.operators:
        say("Vela does not say what single operators of this program cost")
    producers = {tensor.name: op for op in program.main.ops for tensor in op.outputs[:1]}
    costs = {producers[cost.tensor]: cost for cost in report.operators}
    return {op: f"{c.cycles:,.0f} cycles, {c.memory_bytes / 1024:,.1f} KiB" for op, c in costs.items()}, True
