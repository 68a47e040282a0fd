"""``tosakit bisect``: the first tensor at which two files part, with the operators on both sides."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tosakit.cli.compare import finite
from tosakit.cli.console import progress_bars, say
from tosakit.cli.parser import source_of
from tosakit.errors import InvalidArgument, NotEquivalent
from tosakit.io.reader import load
from tosakit.oracle.bisect import UNKNOWN, Parting, find_parting, origin_of

TOGETHER = 0
APART = 1


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 0 within the tolerance everywhere, 1 parted, invalid or not comparable."""
    if options.before == options.after == "-":
        raise InvalidArgument("only one of the two files can come from stdin")
    origin = origin_of(_report(options.report)) if options.report else UNKNOWN
    before, after = load(source_of(options.before)), load(source_of(options.after))
    try:
        with progress_bars() as progress:
            found = find_parting(
                before,
                after,
                tolerance=options.tolerance,
                vectors=options.vectors,
                seed=options.seed,
                origin=origin,
                progress=progress("comparing"),
            )
    except NotEquivalent as error:
        if options.report:
            raise
        raise NotEquivalent(
            f"{error}; where AFTER was rewritten from BEFORE, give the report of that: --report"
        ) from None
    if options.json:
        print(json.dumps({**asdict(found), "difference": finite(found.difference)}, indent=1))
    elif found.tensor:
        _print(found)
    say(_summary(found, options.tolerance))
    return TOGETHER if found.verdict == "together" else APART


def _report(name: str) -> dict[str, Any]:
    try:
        content = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"cannot read the report {name}: {error}") from None
    if not isinstance(content, dict):
        raise InvalidArgument(f"{name} is no report of tosakit rewrite: it holds no JSON object")
    return content


def _print(found: Parting) -> None:
    print(f'"{found.tensor}"')
    for side, operators in (("before", found.before), ("after", found.after)):
        print(f"  {side}:")
        for line in operators:
            print(f"    {line}")
    if found.rules:
        print(f"  rewritten by {', '.join(found.rules)}")
    if found.last_equal:
        print(f'  still within the tolerance in front of it: "{found.last_equal}"')


def _summary(found: Parting, tolerance: float) -> str:
    compared = f"{found.compared} tensors compared on {found.vectors} vectors, seed {found.seed}"
    if found.verdict == "together":
        return f"within {tolerance:g} LSB everywhere; {compared}"
    if found.verdict == "parted":
        return f'parted at "{found.tensor}": {found.difference:g} LSB, beyond {tolerance:g}; {compared}'
    if found.verdict == "invalid":
        return f'no valid result from "{found.tensor}" on: {found.message}; {compared}'
    return f"nothing could be compared: {found.message.removeprefix('nothing could be compared; ')}"
