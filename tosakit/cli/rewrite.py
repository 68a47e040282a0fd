"""``tosakit rewrite``: load, rewrite, check, write, perhaps compile, and say what happened."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tosakit.backend.vela import VelaReport
from tosakit.catalogue import load_catalogue
from tosakit.cli.console import progress_bars, say, table
from tosakit.cli.parser import parse_settings, source_of
from tosakit.cli.report import build_report, write_text
from tosakit.cli.vela import compile_program, print_vela
from tosakit.engine.rule import Event
from tosakit.errors import InvalidArgument
from tosakit.io.qparams import apply_qparams, load_qparams, save_qparams, sidecar_path
from tosakit.io.reader import load
from tosakit.io.writer import dumps, save
from tosakit.ir.program import Program
from tosakit.rewriting import BrokenPromise, Rewriting, rewrite
from tosakit.spec.diagnostics import Diagnostic

DEFAULT_PIPELINE = "int16"
TARGET_PIPELINE = "ethos-u"
SHOWN = 10
"""Refusals and diagnostics that are printed; the report holds all."""


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    _refuse_impossible(options)
    source = source_of(options.input)
    program = load(source)
    annotated = _annotate(program, options, source)
    for note in program.notes:
        say(f"note: {note}")
    try:
        done = _rewrite(program, options)
    except BrokenPromise as broken:
        if options.report and broken.rewriting is not None:
            _report(options, source, broken.rewriting, None)
        raise
    _say_diagnostics(done.diagnostics)
    for refusal in done.result.refusals[:SHOWN]:
        say(f"{refusal.rule} refused at {refusal.operator}: {refusal.reason}")
    if len(done.result.refusals) > SHOWN:
        say(f"... and {len(done.result.refusals) - SHOWN} more refusals")
    if done.check is not None:
        for remark in done.check.remarks:
            say(f"note: {remark}")
    vela = compile_program(done.program, options.vela, options) if options.vela else None
    accepted = vela is None or vela.accepted
    if accepted:
        _write(done, options, annotated)
    if options.output != "-":
        _print(done)
        if vela is not None:
            print_vela(vela)
    if options.report:
        _report(options, source, done, vela)
    say(_last_line(done, options, accepted))
    return 0 if accepted else 1


def _report(options: argparse.Namespace, source: Path | bytes, done: Rewriting, vela: VelaReport | None) -> None:
    write_text(options.report, json.dumps(build_report(options, source, done, vela), indent=1) + "\n")


def _say_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """Errors in full, warnings as one line per kind."""
    errors = [finding for finding in diagnostics if finding.severity == "error"]
    for finding in errors[:SHOWN]:
        say(str(finding))
    if len(errors) > SHOWN:
        say(f"... and {len(errors) - SHOWN} more errors")
    kinds = Counter(finding.code for finding in diagnostics if finding.severity != "error")
    for code, count in kinds.items():
        say(f"warning: {code}, {count} times" if count > 1 else f"warning: {code}")


def _refuse_impossible(options: argparse.Namespace) -> None:
    if options.vectors < 1:
        raise InvalidArgument(
            f"--vectors {options.vectors}: at least one vector is needed; to skip the check type --check none"
        )
    if options.stop_after is not None and options.stop_after < 0:
        raise InvalidArgument(f"--stop-after {options.stop_after}: give a number of rewrites, 0 or more")
    if options.seed < 0:
        raise InvalidArgument(f"--seed {options.seed}: give a number, 0 or more")
    for option in ("output", "report", "trace"):
        place = getattr(options, option)
        if place not in (None, "-") and not Path(place).absolute().parent.is_dir():
            raise InvalidArgument(f"--{option} {place}: the folder {Path(place).absolute().parent} does not exist")


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


def _rewrite(program: Program, options: argparse.Namespace) -> Rewriting:
    catalogue = load_catalogue(options.rules_module)
    settings: dict[str, Any] = dict(parse_settings(options.set))
    if options.io is not None:
        settings["widen_int8_activations.io"] = options.io
    target = options.target or options.vela or ""
    rules = [name.strip() for name in options.rules.split(",")] if options.rules else None
    if rules is None:
        default = f"{DEFAULT_PIPELINE},{TARGET_PIPELINE}" if target else DEFAULT_PIPELINE
        names = (options.pipeline or default).split(",")
        steps = [step.name for name in names for step in catalogue.choose(name.strip(), None)]
        rules = list(dict.fromkeys(reversed(steps)))[::-1]  # a clean-up that both end with runs once, at the end
    with progress_bars() as progress:
        trace = _Trace(options.trace)
        try:
            return rewrite(
                program,
                rules=rules,
                options=settings,
                target=target,
                check=options.check,
                vectors=options.vectors,
                seed=options.seed,
                stop_after=options.stop_after,
                trace=trace,
                progress=progress,
                catalogue=catalogue,
            )
        finally:
            trace.close()


class _Trace:
    """Writes every rewrite as a line of JSON, where a file is given."""

    def __init__(self, path: str | None) -> None:
        self.count = 0
        try:
            self.file: IO[str] | None = Path(path).open("w", encoding="utf-8") if path else None  # noqa: SIM115
        except OSError as error:
            raise InvalidArgument(f"--trace {path}: {error.strerror}") from None

    def __call__(self, event: Event) -> None:
        self.count += 1
        if self.file is not None:
            line = {
                "number": self.count,
                "rule": event.rule,
                "block": event.block,
                "operators": event.operators,
                "contract": str(event.contract),
                "detail": event.detail,
            }
            self.file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()


def _write(done: Rewriting, options: argparse.Namespace, annotated: bool) -> None:
    if options.output == "-":
        sys.stdout.buffer.write(dumps(done.program))
        sys.stdout.buffer.flush()
    elif options.output:
        save(done.program, options.output)
        if annotated:
            save_qparams(done.program, sidecar_path(Path(options.output)))


def _print(done: Rewriting) -> None:
    fired = done.result.rules_fired
    contracts: dict[str, str] = {}
    for event in done.result.events:
        text = str(event.contract)
        contracts[event.rule] = (
            text if contracts.get(event.rule, text) == text else f"{contracts[event.rule]} and others"
        )
    if fired:
        table(
            "rewrites",
            ("rule", "rewrites", "contract"),
            [(name, count, contracts[name]) for name, count in fired.items()],
        )
    if done.check is not None and done.check.equivalence is not None:
        rows = [
            (o.name, o.max_difference, f"{100 * o.fraction_different:.2f} %", f"{o.sqnr_db:.1f}")
            for o in done.check.equivalence.outputs
        ]
        table("against the original", ("output", "max difference (LSB)", "different", "SQNR (dB)"), rows)


def _last_line(done: Rewriting, options: argparse.Namespace, accepted: bool) -> str:
    before, after = done.before.operator_count, done.program.operator_count
    events = len(done.result.events)
    parts = [f"{before} ops -> {after} ops", f"{events} rewrites by {len(done.result.rules_fired)} rules"]
    parts.append(str(done.check) if done.check is not None else "not checked")
    if done.result.stopped:
        parts.append(f"stopped after {options.stop_after}")
    if not accepted:
        parts.append("refused by Vela; nothing written")
    elif not options.output:
        parts.append("nothing written (no -o)")
    return "; ".join(parts)
