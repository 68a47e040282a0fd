"""``tosakit compare``: run two files on the same inputs and report how far they are apart."""

import argparse
import json
import math

from tosakit.cli.console import progress_bars, require_legal, say, table
from tosakit.cli.parser import source_of
from tosakit.errors import InvalidArgument
from tosakit.io.reader import load
from tosakit.oracle.cost import default_vectors, state_remark
from tosakit.oracle.equivalence import Equivalence, Verdict, check_equivalence


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 0 identical, 1 different or not comparable. Raises InvalidModel for illegal TOSA."""
    if options.before == options.after == "-":
        raise InvalidArgument("only one of the two files can come from stdin")
    before, after = load(source_of(options.before)), load(source_of(options.after))
    require_legal(before, options.before)
    require_legal(after, options.after)
    vectors, remark = default_vectors(before) if options.vectors is None else (options.vectors, "")
    for text in (remark, state_remark(before)):
        if text:
            say(f"note: {text}")
    with progress_bars() as progress:
        found = check_equivalence(before, after, vectors=vectors, seed=options.seed, progress=progress("comparing"))
    if options.json:
        print(json.dumps(equivalence_json(found), indent=1))
    else:
        table(found.verdict.value, DIFFERENCE_COLUMNS, difference_rows(found))
    say(str(found))
    return 0 if found.verdict is Verdict.EQUAL else 1


DIFFERENCE_COLUMNS = ("output", "max difference (LSB)", "different", "SQNR (dB)")


def difference_rows(found: Equivalence) -> list[tuple[object, ...]]:
    """A row per output under :data:`DIFFERENCE_COLUMNS`."""
    return [
        (o.name, o.max_difference, f"{100 * o.fraction_different:.2f} %", f"{o.sqnr_db:.1f}") for o in found.outputs
    ]


def equivalence_json(found: Equivalence) -> dict[str, object]:
    """A comparison as JSON; what is infinite is null."""
    return {
        "verdict": found.verdict.value,
        "vectors": found.vectors,
        "skipped": found.skipped,
        "seed": found.seed,
        "message": found.message,
        "outputs": [
            {
                "name": o.name,
                "max_lsb": finite(o.max_difference),
                "fraction_different": o.fraction_different,
                "sqnr_db": finite(o.sqnr_db),
            }
            for o in found.outputs
        ],
    }


def finite(value: float) -> float | None:
    """The number, or None (null in JSON) where it is infinite."""
    return value if math.isfinite(value) else None
