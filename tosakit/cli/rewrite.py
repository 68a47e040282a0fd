"""``tosakit rewrite``: load, rewrite, check, write, perhaps compile, and say what happened."""

import argparse
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tosakit.backend.compile import require_vela
from tosakit.catalogue import Catalogue
from tosakit.cli.compare import DIFFERENCE_COLUMNS, difference_rows
from tosakit.cli.console import progress_bars, say, say_diagnostics, say_some, state_text, table
from tosakit.cli.parser import catalogue_of, parse_settings, source_of
from tosakit.cli.report import FileJson, Story, build_report, file_json, write_report
from tosakit.cli.trace import TraceFile
from tosakit.cli.vela import compile_quietly, compile_with, print_vela
from tosakit.cli.vela_comparison import compare, print_comparison
from tosakit.engine.bounds import OutputBound
from tosakit.engine.contract import ChangesPrecision, Contract, Exact, WithinLsb
from tosakit.engine.rule import Step
from tosakit.errors import InvalidArgument, TosakitError
from tosakit.io.qparams import apply_qparams, load_qparams, save_qparams, sidecar_path
from tosakit.io.reader import load
from tosakit.io.writer import dumps, save
from tosakit.ir.program import Program
from tosakit.rewriting import Rewriting, require_target, settle
from tosakit.rewriting import run as run_steps

DEFAULT_PIPELINE = "int16"
TARGET_PIPELINE = "ethos-u"

MOST_TABLES = 1_000_000
"""Tables that the flatbuffer verifier of the C++ tools counts at most: an operator, its attributes, and each tensor."""


@dataclass(frozen=True)
class Plan:
    """What the options ask for, whatever the file."""

    steps: tuple[Step, ...]
    values: dict[str, Any]
    target: str


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    if len(options.inputs) > 1 or (options.output not in (None, "-") and Path(options.output).is_dir()):
        from tosakit.cli.rewrite_many import run_many

        return run_many(options)
    options.input = options.inputs[0]
    refuse_impossible(options)
    refuse_places(options)
    plan = plan_of(options)
    warn(plan)
    story = Story({"path": options.input, "sha256": None}, plan.target, [step.name for step in plan.steps])
    try:
        code = rewrite_file(options, plan, story)
    except TosakitError:
        if options.report and story.input["sha256"]:
            write_report(options.report, build_report(story))
        raise
    if options.report:
        write_report(options.report, build_report(story))
    if "-" not in _places(options).values() and story.done is not None:
        _print(story.done)
        if story.vela is not None and story.vela.report is not None:
            print_vela(story.vela.report)
        if story.comparison is not None:
            print_comparison(story.comparison)
    say(last_line(story, options))
    return code


def plan_of(options: argparse.Namespace) -> Plan:
    """Rules, their options, and the target. Raises InvalidArgument for wrong names, ToolMissing without Vela."""
    catalogue = catalogue_of(options)
    steps = _steps(catalogue, options)
    values = catalogue.options(_settings(options), steps)
    if options.vela:
        require_vela(options.vela)
    target = options.target or options.vela or ""
    require_target(target)
    return Plan(steps, values, target)


def warn(plan: Plan) -> None:
    """Say what may disappoint, whatever the file."""
    if getattr(plan.values.get("widen_int8_activations"), "io", "") == "int8":
        say(
            "warning: with an int8 interface its own rounding is the floor: 0 dB gained in the median over real nets, "
            "against 9 dB with --io int16"
        )


def rewrite_file(options: argparse.Namespace, plan: Plan, story: Story) -> int:
    """Load, rewrite, check, write and compile one file; fills in the story and returns the exit code.

    Raises what goes wrong, and leaves it in the story too.
    """
    try:
        source = source_of(options.input)
        program = load(source)
        story.input = file_json(options.input, source)
        annotated = _annotate(program, options, source)
        _work(program, plan, options, story, annotated)
    except Exception as error:
        story.error = error
        raise
    return 0 if story.vela is None or story.vela.accepted else 1


def _work(program: Program, plan: Plan, options: argparse.Namespace, story: Story, annotated: bool) -> None:
    for note in program.notes:
        say(f"note: {note}")
    with TraceFile(options.trace) as trace:
        done = run_steps(
            program,
            plan.steps,
            options=plan.values,
            target=plan.target,
            check=options.check,
            stop_after=options.stop_after,
            trace=trace,
        )
    story.done = done
    say_diagnostics(done.diagnostics)
    say_some([f"{r.rule} refused at {r.operator}: {r.reason}" for r in done.result.refusals], "refusals")
    say_some([state_text(link) for link in done.result.state], "variables")
    with progress_bars() as progress:
        settle(done, check=options.check, vectors=options.vectors, seed=options.seed, progress=progress)
    if done.check is not None:
        say_some([f"note: {remark}" for remark in done.check.remarks], "notes")
    if options.vela:
        beside = options.output if options.output not in (None, "-") else None
        refused = done.result.refusals
        story.vela = compile_with(options, done.program, beside or options.input, beside=beside, refused=refused)
        if options.compare_vela:
            before = compile_quietly(options, done.before)
            story.comparison = compare(before, story.vela, done)
        if not story.vela.accepted:
            return
    if options.output:
        story.output = _write(done.program, options.output, annotated)


def _write(program: Program, place: str, annotated: bool) -> FileJson:
    tables = sum(2 * len(block.ops) + len(block.tensors) for block in program.blocks)
    if tables > MOST_TABLES:
        say(
            f"warning: the result has {tables:,} tables; tosa_serializer, tosa-opt and the reference model refuse "
            f"files with more than {MOST_TABLES:,}"
        )
    if place == "-":
        data = dumps(program)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return file_json(place, data)
    save(program, place)
    if annotated:
        save_qparams(program, sidecar_path(Path(place)))
    return file_json(place, Path(place))


def refuse_impossible(options: argparse.Namespace) -> None:
    """Raises InvalidArgument for numbers that make no sense, and for options that lack another."""
    if options.vectors is not None and options.vectors < 1:
        raise InvalidArgument(
            f"--vectors {options.vectors}: at least one vector is needed; to skip the check type --check none"
        )
    if options.stop_after is not None and options.stop_after < 0:
        raise InvalidArgument(f"--stop-after {options.stop_after}: give a number of rewrites, 0 or more")
    if options.compare_vela and not options.vela:
        raise InvalidArgument("--compare-vela needs --vela ACCEL, such as --vela ethos-u85-256")
    if options.seed < 0:
        raise InvalidArgument(f"--seed {options.seed}: give a number, 0 or more")


def _places(options: argparse.Namespace) -> dict[str, str]:
    """Where this run writes, by option."""
    return {option: place for option in ("output", "report", "trace") if (place := getattr(options, option))}


def refuse_places(options: argparse.Namespace) -> None:
    """Nothing may be written where it cannot be, or where the input or something else of this run stands."""
    taken = {_real(options.input): "the input"} if options.input != "-" else {}
    if options.qparams:
        taken[_real(options.qparams)] = "--qparams"
    for option, place in _places(options).items():
        name = f"--{option} {place}"
        folder = Path(place).absolute().parent
        if place != "-" and not folder.is_dir():
            raise InvalidArgument(f"{name}: the folder {folder} does not exist")
        if place != "-" and (Path(place).is_dir() or not os.access(folder, os.W_OK)):
            why = "it is a folder" if Path(place).is_dir() else f"the folder {folder} is not writable"
            raise InvalidArgument(f"cannot write {name}: {why}")
        key = "-" if place == "-" else _real(place)
        other = taken.setdefault(key, f"--{option}")
        if other != f"--{option}" and (option, other) != ("output", "the input"):
            raise InvalidArgument(f"{name} is also {other}; they must be different files")


def _real(place: str) -> str:
    return os.path.realpath(place)


def _steps(catalogue: Catalogue, options: argparse.Namespace) -> tuple[Step, ...]:
    if options.rules is not None:
        return catalogue.choose(None, [name.strip() for name in options.rules.split(",")])
    targets = options.target or options.vela
    default = f"{DEFAULT_PIPELINE},{TARGET_PIPELINE}" if targets else DEFAULT_PIPELINE
    names = (default if options.pipeline is None else options.pipeline).split(",")
    steps = [step for name in names for step in catalogue.choose(name.strip(), None)]
    last_first = dict.fromkeys(reversed([step.name for step in steps]))  # a clean-up that both end with runs once
    return catalogue.choose(None, list(last_first)[::-1])


def _settings(options: argparse.Namespace) -> dict[str, str]:
    settings = parse_settings(options.set)
    if options.io is not None:
        settings["widen_int8_activations.io"] = options.io
    return settings


def _annotate(program: Program, options: argparse.Namespace, source: Path | bytes) -> bool:
    """Apply the quantisation parameters given or found beside the model; True where there are any."""
    path = Path(options.qparams) if options.qparams else None
    if path is None and isinstance(source, Path) and sidecar_path(source).exists():
        path = sidecar_path(source)
    if path is None:
        return False
    apply_qparams(program, load_qparams(path))
    say(f"quantisation parameters from {path}")
    return True


def _weakest(contracts: list[Contract]) -> str:
    """The contract that promises least, with the word that others promise more."""

    def looseness(contract: Contract) -> tuple[bool, float]:
        if isinstance(contract, Exact):
            return False, -1.0
        lsb = contract.lsb if isinstance(contract, WithinLsb | ChangesPrecision) else None
        return not isinstance(contract, WithinLsb), math.inf if lsb is None else lsb

    weakest = max(contracts, key=looseness)
    better = any(looseness(contract) < looseness(weakest) for contract in contracts)
    return f"{weakest}{', or better' if better else ''}"


def _print(done: Rewriting) -> None:
    contracts: dict[str, list[Contract]] = {}
    for event in done.result.events:
        contracts.setdefault(event.rule, []).append(event.contract)
    rows = [(name, len(given), _weakest(given)) for name, given in contracts.items()]
    if rows:
        table("rewrites", ("rule", "rewrites", "contract"), rows)
    if done.check is not None and done.check.equivalence is not None:
        proved = {bound.name: bound for bound in done.bounds}
        measured = [(*row, _bound(proved.get(str(row[0])))) for row in difference_rows(done.check.equivalence)]
        table("against the original", (*DIFFERENCE_COLUMNS, "proved bound (LSB)"), measured)


def _bound(bound: OutputBound | None) -> str:
    if bound is None or bound.lsb is not None:
        return "" if bound is None else str(bound.lsb)
    if bound.real is not None:
        return f"{bound.real:.4g} from real arithmetic"
    return f"none: {bound.real_because or bound.because}"


def last_line(story: Story, options: argparse.Namespace) -> str:
    """One line that scripts can read: its wording does not depend on the numbers."""
    done = story.done
    assert done is not None
    parts = [
        f"{done.before.operator_count} ops -> {done.program.operator_count} ops",
        f"{len(done.result.events)} rewrites by {len(done.result.rules_fired)} rules",
        "not checked" if done.check is None else str(done.check),
    ]
    if done.result.stopped:
        parts.append(f"stopped after {options.stop_after}")
    if story.vela is not None and not story.vela.accepted:
        parts.append("refused for Vela" if story.vela.report is None else "refused by Vela")
    if story.output is None:
        parts.append("nothing written" if options.output else "nothing written (no -o)")
    return "; ".join(parts)
