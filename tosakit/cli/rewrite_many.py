"""``tosakit rewrite`` for many files: each as it would be alone, several at a time, with one report."""

import argparse
import io
import os
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tosakit._version import __version__
from tosakit.cli import FAULT, answer
from tosakit.cli.console import progress_bars, say, table
from tosakit.cli.report import REPORT_VERSION, Story, build_report, write_report
from tosakit.cli.rewrite import last_line, plan_of, refuse_impossible, refuse_places, rewrite_file, warn
from tosakit.errors import InvalidArgument, ToolFailed


@dataclass(frozen=True)
class Result:
    """What became of one file; ``said`` is what its run alone would print to stderr. Goes from process to process."""

    name: str
    code: int
    said: str
    report: dict[str, Any]


def run_many(options: argparse.Namespace) -> int:
    """Rewrite every file; returns the highest of their exit codes. Raises InvalidArgument where they cannot all be."""
    refuse_impossible(options)
    warn(plan_of(options))
    runs = _runs(options)
    folder = Path(options.output) if options.output else None
    created = folder is not None and not folder.exists()
    if folder is not None:
        _make(folder)
    results = []
    with progress_bars() as bars:
        progress = bars("rewriting")
        for result in _results(runs, options.jobs):
            results.append(result)
            if progress is not None:
                progress(len(results), len(runs))
            for line in result.said.splitlines():
                say(f"{result.name}: {line}")
    if folder is not None and created and not any(folder.iterdir()):
        folder.rmdir()
    code = max(result.code for result in results)
    if options.report:
        files = [result.report for result in results]
        write_report(
            options.report,
            {"report_version": REPORT_VERSION, "tosakit_version": __version__, "exit_code": code, "files": files},
        )
    if options.report != "-":
        table("rewrites", ("file", "operators", "after", "rewrites", "exit code"), [_row(result) for result in results])
    failed = [result.name for result in results if result.code]
    say(f"{len(results)} files, {len(failed)} failed{': ' * bool(failed)}{', '.join(failed)}")
    return code


def _row(result: Result) -> tuple[object, ...]:
    before, after = (result.report[field] for field in ("ops_before", "ops_after"))
    return result.name, before or "", after or "", len(result.report["rewrites"]), result.code


def _runs(options: argparse.Namespace) -> list[argparse.Namespace]:
    """The options of each file's own run. Raises InvalidArgument where the runs would be in each other's way."""
    if options.jobs < 1:
        raise InvalidArgument(f"--jobs {options.jobs}: give a number of files, 1 or more")
    for option in ("qparams", "trace"):
        if getattr(options, option):
            raise InvalidArgument(
                f"--{option} is about one file, {len(options.inputs)} are given; run them by themselves"
            )
    if "-" in options.inputs or options.output == "-":
        raise InvalidArgument("stdin and stdout hold one file; give many files by name, and a folder with -o")
    if options.output and Path(options.output).exists() and not Path(options.output).is_dir():
        raise InvalidArgument(f"--output {options.output} is a file; {len(options.inputs)} files need a folder")
    runs = []
    for name in options.inputs:
        output = str(Path(options.output) / Path(name).name) if options.output else None
        runs.append(_but(options, input=name, output=output, run=None))
    _refuse_clashes(runs)
    will_be_made = options.output and not Path(options.output).exists()
    for each in runs:
        refuse_places(_but(each, output=None) if will_be_made else each)
    return runs


def _but(options: argparse.Namespace, **others: object) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), **others})


def _refuse_clashes(runs: list[argparse.Namespace]) -> None:
    """No two files may be one, or go to one place: what Vela makes of them is named without the suffix."""
    taken: dict[str, argparse.Namespace] = {}
    for each in runs:
        for key in (os.path.realpath(each.input), Path(each.input).stem):
            other = taken.setdefault(key, each)
            if other is not each:
                raise InvalidArgument(
                    f"{other.input} and {each.input} would be written to one place; rename one, or leave it out"
                )
    for each in runs:
        other = taken.get(os.path.realpath(each.output), each) if each.output else each
        if other is not each:
            raise InvalidArgument(f"the result of {each.input} would be written over {other.input}; use another folder")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"cannot make the folder {folder}: {error.strerror or error}") from None


def _results(runs: list[argparse.Namespace], jobs: int) -> Iterator[Result]:
    """The result of each run, in order, as soon as it is there."""
    if jobs == 1 or len(runs) == 1:
        yield from map(_rewrite, runs)
        return
    from joblib import Parallel, delayed
    from joblib.externals.loky import get_reusable_executor

    done = 0
    try:
        work = delayed(_rewrite_elsewhere)
        for result in Parallel(n_jobs=jobs, return_as="generator")(work(Path.cwd(), each) for each in runs):
            done += 1
            yield result
    except BrokenProcessPool:
        yield from map(_lost, runs[done:])
    finally:
        get_reusable_executor().shutdown()


def _lost(options: argparse.Namespace) -> Result:
    """What is said of a file where a process that rewrote files died; whose fault it was cannot be told."""
    message = "a process was killed while this file or another was rewritten (out of memory?); try --jobs 1"
    story = Story({"path": options.input, "sha256": None}, "", [], error=ToolFailed(message))
    return Result(options.input, FAULT, f"error: {message}", build_report(story))


def _rewrite_elsewhere(folder: Path, options: argparse.Namespace) -> Result:
    """In a worker, which may be older than the current folder of the process that asks."""
    os.chdir(folder)
    return _rewrite(options)


def _rewrite(options: argparse.Namespace) -> Result:
    """Rewrite one file, as by itself, in whatever process."""
    said = io.StringIO()
    story = Story({"path": options.input, "sha256": None}, "", [])

    def work() -> int:
        plan = plan_of(options)
        story.target, story.steps = plan.target, [step.name for step in plan.steps]
        code = rewrite_file(options, plan, story)
        say(last_line(story, options))
        return code

    with redirect_stderr(said):
        code = answer(work)
    return Result(options.input, code, said.getvalue(), build_report(story))
