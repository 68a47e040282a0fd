"""``tosakit compare``: run two files on the same inputs and report how far they are apart."""

import argparse
import json
import math
from pathlib import Path

from tosakit.cli.console import progress_bars, say, table
from tosakit.oracle.equivalence import Equivalence, Verdict, check_equivalence


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 0 identical, 1 different, invalid or not comparable."""
    with progress_bars() as progress:
        found = check_equivalence(
            Path(options.before),
            Path(options.after),
            vectors=options.vectors,
            seed=options.seed,
            progress=progress("comparing"),
        )
    if options.json:
        print(json.dumps(equivalence_json(found), indent=1))
    else:
        rows = [
            (o.name, o.max_difference, f"{100 * o.fraction_different:.2f} %", f"{o.sqnr_db:.1f}") for o in found.outputs
        ]
        table(found.verdict.value, ("output", "max difference (LSB)", "different", "SQNR (dB)"), rows)
    say(str(found))
    return 0 if found.verdict is Verdict.EQUAL else 1


def equivalence_json(found: Equivalence) -> dict[str, object]:
    """A comparison as JSON: infinite SQNR is null."""
    return {
        "verdict": found.verdict.value,
        "vectors": found.vectors,
        "skipped": found.skipped,
        "seed": found.seed,
        "message": found.message,
        "outputs": [
            {
                "name": o.name,
                "max_lsb": o.max_difference if math.isfinite(o.max_difference) else None,
                "fraction_different": o.fraction_different,
                "sqnr_db": o.sqnr_db if math.isfinite(o.sqnr_db) else None,
            }
            for o in found.outputs
        ],
    }
