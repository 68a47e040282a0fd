"""Feed damaged files to tosakit, very many: each must end in a Program or a TosakitError, in time and in little memory.

``python tests/fuzz/campaign.py --cases 1000000 --log campaign.jsonl [--jobs 2] [--corpus DIRECTORY ...]``. The log
has a line for every batch of cases; run the same command again to go on where it was stopped, or only to add up.
Batches run in forked processes, so that even a crash of the interpreter or an endless loop is one failure, with its
number.
"""

import argparse
import json
import multiprocessing
import sys
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.mutate import Seed, all_seeds, damaged
from tests.fuzz.promise import check

BATCH = 1000
STUCK = 60.0
"""Seconds without a finished case after which a process is killed."""

Outcome = tuple[Counter[str], list[str]]
"""How often each outcome came, and a report of each failure."""

_CONTEXT: Any = multiprocessing.get_context("fork")


def run_cases(numbers: range, seeds: Sequence[Seed], keep: str = "", current: Any = None) -> Outcome:
    """Run some cases in this process; ``current.value`` tells which one it is at."""
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for number in numbers:
        if current is not None:
            current.value = number
        data = damaged(number, seeds)
        try:
            outcomes[check(data)] += 1
        except Exception:
            failures.append(f"case {number}: {traceback.format_exc()}")
            if keep:
                (Path(keep) / f"case{number}.tosa").write_bytes(data)
    return outcomes, failures


class _Batch:
    """Some cases in a process of their own."""

    def __init__(self, numbers: range, seeds: Sequence[Seed], keep: str) -> None:
        self.numbers = numbers
        self.current = _CONTEXT.Value("q", numbers.start, lock=False)
        self.seen = -1
        self.receiver, sender = _CONTEXT.Pipe(duplex=False)
        self.process = _CONTEXT.Process(
            target=lambda: sender.send(run_cases(numbers, seeds, keep, self.current)), daemon=True
        )
        self.process.start()
        sender.close()

    def kill_if_stuck(self) -> None:
        """To be called every :data:`STUCK` seconds."""
        if self.current.value == self.seen:
            self.process.kill()
        self.seen = self.current.value

    def outcome(self) -> Outcome | None:
        """The result; None where the process died of case ``current``."""
        found = None
        with suppress(EOFError):
            found = self.receiver.recv()
        self.process.join()
        return found


def campaign(
    todo: Sequence[range], seeds: Sequence[Seed], jobs: int = 1, keep: str = ""
) -> Iterator[tuple[range, Outcome]]:
    """Run batches of cases, ``jobs`` at a time; each with its outcome, as they end."""
    waiting, running = deque(todo), dict[Any, _Batch]()
    while waiting or running:
        while waiting and len(running) < jobs:
            batch = _Batch(waiting.popleft(), seeds, keep)
            running[batch.receiver] = batch
        ready = wait(list(running), timeout=STUCK)
        for batch in () if ready else running.values():
            batch.kill_if_stuck()
        for receiver in ready:
            batch = running.pop(receiver)
            outcome, numbers, culprit = batch.outcome(), batch.numbers, batch.current.value
            if outcome is not None:
                yield numbers, outcome
                continue
            failure = f"case {culprit}: the process ended with {batch.process.exitcode}"
            yield range(culprit, culprit + 1), (Counter(), [failure])
            waiting.extend(part for part in (range(numbers.start, culprit), range(culprit + 1, numbers.stop)) if part)


def left_to_do(cases: int, log: Path | None) -> tuple[list[range], Outcome]:
    """Batches that the log does not have yet, and what it has."""
    done: set[int] = set()
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    if log is not None and log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            done.update(range(*entry["cases"]))
            outcomes.update(entry["outcomes"])
            failures += entry["failures"]
    starts = range(0, cases, BATCH)
    ranges = [range(start, min(start + BATCH, cases)) for start in starts]
    return [numbers for numbers in ranges if not done.issuperset(numbers)], (outcomes, failures)


def main() -> int:
    """Run the campaign; returns the number of failures, at most 100."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cases", type=int, default=20_000, help="number of cases in all, those of the log included")
    parser.add_argument("--log", type=Path, help="file that takes a line for every batch, and is read to go on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--corpus", nargs="*", default=[], help="directories with more files to damage")
    parser.add_argument("--largest", type=int, default=1 << 16, help="bytes of the largest file to take from them")
    parser.add_argument("--keep", default="", help="directory for the files of failing cases")
    options = parser.parse_args()
    if options.keep:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
    todo, (outcomes, failures) = left_to_do(options.cases, options.log)
    seeds = all_seeds(options.corpus, options.largest)
    for numbers, (counts, failed) in campaign(todo, seeds, options.jobs, options.keep):
        outcomes += counts
        failures += failed
        for report in failed:
            print(report, flush=True)
        if options.log is not None:
            entry = {"cases": [numbers.start, numbers.stop], "outcomes": counts, "failures": failed}
            with options.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
    for outcome, times in outcomes.most_common(40):
        print(f"{times:10,}  {outcome}")
    print(f"{outcomes.total() + len(failures):10,}  cases, {len(failures)} failures")
    return min(len(failures), 100)


if __name__ == "__main__":
    sys.exit(main())
