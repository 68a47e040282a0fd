"""``tosakit fuzz``: attack rules and pipelines with random and mutated programs, and keep what breaks them."""

import argparse
import re
from pathlib import Path

from tosakit.cli.console import progress_bars, say, table
from tosakit.errors import InvalidArgument
from tosakit.testing.campaign import Campaign, findings_of, run_campaign
from tosakit.testing.cases import Plan, corpus_files

FOUND = 1
"""Exit code where the folder holds findings."""
EXAMPLES = 1000
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 0 where nothing was found, else 1."""
    if options.seed < 0:
        raise InvalidArgument(f"seed {options.seed} is negative; give a number, 0 or more")
    plan = Plan(
        tuple(options.rule),
        corpus_files(Path(options.corpus)) if options.corpus else (),
        options.seed,
        options.vectors,
        tuple(options.rules_module),
        str(Path.cwd()) if options.rules_module else "",
    )
    seconds = seconds_of(options.time) if options.time else None
    examples = options.examples if options.examples is not None or seconds is not None else EXAMPLES
    folder = Path(options.output)
    with progress_bars() as progress:
        campaign = run_campaign(
            plan, folder, examples=examples, seconds=seconds, jobs=options.jobs, progress=progress("fuzzing")
        )
    _tables(campaign)
    for key, file, times in findings_of(campaign):
        say(f"{key}\n  {times} times; {folder / file}")
    totals = campaign.totals
    say(
        f"{totals['programs']} programs, {totals['fired']} rewritten, {totals['vectors']} input vectors compared, "
        f"{len(campaign.findings)} kinds of faults; {campaign.seconds:.0f} s, seed {plan.seed}; to go on, run it again"
    )
    return FOUND if campaign.findings else 0


def _tables(campaign: Campaign) -> None:
    """What each rule and pipeline did, and which rules did nothing."""
    columns = ("programs", "fired", "refused", "passed_over", "unchecked", "faults")
    rows = [(name, *(counts[column] for column in columns)) for name, counts in campaign.subjects.items()]
    table("cases", ("rule or pipeline", *(column.replace("_", " ") for column in columns)), rows)
    steps = [
        (name, step, counts["fired"], counts["refused"])
        for name, inside in campaign.steps.items()
        for step, counts in inside.items()
    ]
    if steps:
        table("in pipelines", ("pipeline", "rule", "fired", "refused"), steps)
    if campaign.never_fired:
        say(f"never fired, so nothing is known of them: {', '.join(campaign.never_fired)}; try more programs")


def seconds_of(text: str) -> float:
    """``90``, ``90s``, ``15m`` or ``2h`` in seconds. Raises InvalidArgument for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise InvalidArgument(f'--time "{text}": give a time such as 90s, 15m or 2h')
    return float(found.group(1)) * _UNITS[found.group(2)]
