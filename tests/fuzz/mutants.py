"""Break the shipped rules one line at a time, and see whether their own tests and the harness notice.

Run ``python tests/fuzz/mutants.py``, which takes a while, or add names of rules or numbers of mutants. A mutant is a
file, a text that stands in it exactly once, and what takes its place; where the text is gone the run fails, so keep the
lists in step with the code. Each runs ``tests/rewrites/test_RULE.py``, up to the first failure, on a copy of the
checkout, and with ``--harness SECONDS`` a campaign of the rule alone up to the first finding. Exit code 1 where a
mutant survives its tests.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.mutant import Mutant
from tests.fuzz.mutants_ethos_u import ETHOS_U
from tests.fuzz.mutants_numeric import NUMERIC

ROOT = Path(__file__).parents[2]
MUTANTS = (*NUMERIC, *ETHOS_U)
TIMEOUT = 600
"""Seconds until a mutant counts as caught: it made a rule endless."""

HUNT = """
import sys, time
from tosakit.testing.cases import Plan, run_case
plan, start, number = Plan(names=(sys.argv[1],)), time.monotonic(), 0
while time.monotonic() - start < float(sys.argv[2]):
    outcome = run_case(plan, number)
    number += 1
    if outcome is not None and outcome.found is not None:
        print(f"{outcome.found.kind} after {number} programs, {time.monotonic() - start:.1f} s")
        sys.exit(1)
print(f"nothing in {number} programs")
"""


def tests_notice(mutant: Mutant, checkout: Path) -> tuple[str, float]:
    """The first test that fails, "" where none does, and the seconds that took."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.paths]
    start = time.monotonic()
    try:
        done = in_checkout(command, checkout)
    except subprocess.TimeoutExpired:
        return "no end", time.monotonic() - start
    if done.returncode not in (0, 1):
        sys.exit(f"the tests of {mutant.rule} did not run:\n{done.stdout}{done.stderr}")
    failed = re.search(r"^FAILED .*?::(.*?)( - |$)", done.stdout, re.MULTILINE)
    return failed.group(1) if failed else "", time.monotonic() - start


def harness_notices(mutant: Mutant, checkout: Path, seconds: float) -> str:
    """What a campaign of the rule finds, and after how many programs."""
    try:
        done = in_checkout([sys.executable, "-c", HUNT, mutant.rule, str(seconds)], checkout)
    except subprocess.TimeoutExpired:
        return "no end"
    if done.returncode not in (0, 1) or not done.stdout:
        return f"stopped: {done.stderr.strip().splitlines()[-1:]}"
    return done.stdout.strip()


def in_checkout(command: list[str], checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run a command on the copy. Raises TimeoutExpired after :data:`TIMEOUT` seconds."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def main() -> int:
    """Run the chosen mutants, all without any; 1 where one survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("chosen", nargs="*", help="names of rules or numbers of mutants (default: all)")
    parser.add_argument("--harness", type=float, default=0, metavar="SECONDS", help="also a campaign, at most so long")
    options = parser.parse_args()
    wanted = [
        (number, mutant)
        for number, mutant in enumerate(MUTANTS, start=1)
        if not options.chosen or mutant.rule in options.chosen or str(number) in options.chosen
    ]
    survivors = 0
    with TemporaryDirectory() as scratch:
        checkout = Path(scratch, "checkout")
        leave = shutil.ignore_patterns(".git", "*.pyc", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
        shutil.copytree(ROOT, checkout, ignore=leave)
        for number, mutant in wanted:
            with mutant.applied(checkout):
                test, seconds = tests_notice(mutant, checkout)
                hunt = harness_notices(mutant, checkout, options.harness) if options.harness else ""
            survivors += not test
            found = f"{test} {seconds:.1f} s" if test else "SURVIVES"
            print(f"{number:>3}  {mutant.rule}: {mutant.what}: {found}{f'; {hunt}' if hunt else ''}", flush=True)
    print(f"{len(wanted) - survivors} of {len(wanted)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
