"""A campaign: cases in worker processes until a number or a time is reached, with findings kept and counted once.

Work goes through joblib, so ``with joblib.parallel_config(backend="dask"):`` around :func:`run_campaign` sends it to a
cluster. What was done stands in ``campaign.json`` of the output folder after every round; the next run goes on there.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tosakit._version import __version__
from tosakit.errors import InvalidArgument
from tosakit.io.files import replace_file
from tosakit.testing.cases import Found, Outcome, Plan, reduce_found, run_case

CAMPAIGN_VERSION = 2
FINDING_VERSION = 1
STATE = "campaign.json"
CHUNK = 8
"""Cases that one task runs."""

COUNTED = ("programs", "fired", "refused", "passed_over", "unchecked", "vectors")
"""What is counted of each rule and pipeline, beside faults; a program is ``fired``, ``refused`` or ``passed_over``."""

Progress = Callable[[int, int], None]
Counts = dict[str, int]


class Campaign:
    """The state of a campaign and its folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.next_case = 0
        self.seconds = 0.0
        self.subjects: dict[str, Counts] = {}
        self.steps: dict[str, dict[str, Counts]] = {}
        """By pipeline and step: the programs on which it ``fired`` and ``refused``."""
        self.findings: dict[str, dict[str, Any]] = {}

    @property
    def totals(self) -> Counts:
        """Counts over all subjects, by :data:`COUNTED`."""
        return {key: sum(counts[key] for counts in self.subjects.values()) for key in COUNTED}

    # ---------------------------------------------------------------- the folder
    @classmethod
    def open(cls, plan: Plan, folder: Path) -> "Campaign":
        """A new campaign, or the one that the folder holds. Raises InvalidArgument where that is another one."""
        campaign = cls(plan, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = (folder / STATE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return campaign
        except OSError as error:
            raise InvalidArgument(f"cannot use the folder {folder}: {error.strerror or error}") from None
        try:
            state = json.loads(text)
            same = (state["campaign_version"], state["plan"]) == (CAMPAIGN_VERSION, plan_json(plan))
            campaign.next_case, campaign.seconds = state["next_case"], state["seconds"]
            campaign.subjects, campaign.steps = state["subjects"], state["steps"]
            campaign.findings = state["findings"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"{folder / STATE} is no state of a campaign ({error}); use another folder") from None
        if not same:
            raise InvalidArgument(
                f"{folder} holds a campaign with other rules, files, vectors or seed; go on with those, or use another "
                "folder"
            )
        return campaign

    def save(self) -> None:
        """Write the state; a reader sees the old one or the new one, never half of it."""
        state = {
            "campaign_version": CAMPAIGN_VERSION,
            "tosakit_version": __version__,
            "plan": plan_json(self.plan),
            "next_case": self.next_case,
            "seconds": round(self.seconds, 1),
            "totals": self.totals,
            "subjects": self.subjects,
            "steps": self.steps,
            "findings": self.findings,
        }
        replace_file(self.folder / STATE, [memoryview(json.dumps(state, indent=1).encode())])

    # ---------------------------------------------------------------- results
    def count(self, outcome: Outcome) -> None:
        """Add one case to the counts."""
        counts = self.subjects.setdefault(outcome.subject, dict.fromkeys((*COUNTED, "faults"), 0))
        counts["programs"] += 1
        counts["vectors"] += outcome.vectors
        counts["fired"] += bool(outcome.fired)
        counts["refused"] += bool(outcome.refused and not outcome.fired)
        counts["passed_over"] += not outcome.fired and not outcome.refused
        counts["unchecked"] += outcome.unchecked
        counts["faults"] += outcome.found is not None
        known = self.steps.get(outcome.subject, {})
        for what in ("fired", "refused"):
            for name in getattr(outcome, what):
                if name in known:
                    known[name][what] += 1

    @property
    def never_fired(self) -> list[str]:
        """Rules that were tried and fired on no program, and steps of pipelines, as ``pipeline: step``."""
        alone = [name for name, counts in self.subjects.items() if not counts["fired"]]
        inside = [
            f"{name}: {step}"
            for name, steps in self.steps.items()
            if self.subjects.get(name)
            for step, counts in steps.items()
            if not counts["fired"]
        ]
        return alone + inside

    def keep(self, found: Found) -> None:
        """Save a finding that is new: the file, and JSON beside it."""
        name = hashlib.sha256(found.key.encode()).hexdigest()[:12]
        replace_file(self.folder / f"{name}.tosa", [memoryview(found.model)])
        entry = finding_json(self.plan, found, f"{name}.tosa")
        replace_file(self.folder / f"{name}.json", [memoryview(json.dumps(entry, indent=1).encode())])
        if found.qparams:
            replace_file(self.folder / f"{name}.qparams.json", [memoryview(found.qparams.encode())])
        self.findings[found.key]["file"] = f"{name}.tosa"


def plan_json(plan: Plan) -> dict[str, Any]:
    """What makes two campaigns the same one."""
    return {
        "rules": list(plan.names),
        "files": [Path(name).name for name in plan.files],
        "seed": plan.seed,
        "vectors": plan.vectors,
        "rules_modules": list(plan.rules_modules),
    }


def finding_json(plan: Plan, found: Found, file: str) -> dict[str, Any]:
    """A finding as JSON, documented in docs/fuzzing.md."""
    return {
        "finding_version": FINDING_VERSION,
        "tosakit_version": __version__,
        "key": found.key,
        "rule": found.subject,
        "kind": found.kind,
        "message": found.message,
        "file": file,
        "operators": found.operators,
        "target": found.target,
        "options": {name: dict(values) for name, values in found.options.items()},
        "source": Path(found.source).name if found.source else None,
        "case": found.case,
        "seed": plan.seed,
        "vectors": plan.vectors,
    }


def run_campaign(
    plan: Plan,
    folder: Path,
    *,
    examples: int | None = None,
    seconds: float | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Campaign:
    """Run rounds of cases until ``examples`` were tried or ``seconds`` have passed, at least one.

    One of the two must be given. ``jobs`` worker processes share them; None leaves the number to joblib's configuration
    (one, without any). Findings are reduced and written to ``folder``, each kind once. Raises InvalidArgument for
    impossible numbers, an unknown rule, and a folder that holds another campaign; ToolMissing without the reference
    model.
    """
    from joblib import Parallel, delayed

    if examples is None and seconds is None:
        raise InvalidArgument("a campaign needs an end: give a number of examples, or a time")
    for name, number in (("examples", examples), ("time", seconds), ("jobs", jobs), ("vectors", plan.vectors)):
        if number is not None and number <= 0:
            raise InvalidArgument(f"{name} is {number}; give a positive number")
    subjects = plan.subjects()
    campaign = Campaign.open(plan, folder)
    for name, steps in subjects:
        if len(steps) > 1:
            campaign.steps.setdefault(name, {step.name: {"fired": 0, "refused": 0} for step in steps})
    start, first, spent = time.monotonic(), campaign.next_case, campaign.seconds
    with Parallel(n_jobs=jobs) as parallel:
        width = CHUNK * max(_workers(parallel), 1)
        done, elapsed = 0, 0.0
        while True:
            if progress is not None:
                progress(*_position(done, examples, elapsed, seconds))
            end = campaign.next_case + (width if examples is None else min(width, examples - done))
            numbers = range(campaign.next_case, end)
            chunks = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
            outcomes = [o for chunk in parallel(delayed(_run_chunk)(plan, chunk) for chunk in chunks) for o in chunk]
            new = _take(campaign, outcomes)
            for found in parallel(delayed(reduce_found)(plan, found) for found in new):
                campaign.keep(found)
            done, elapsed = end - first, time.monotonic() - start
            campaign.next_case, campaign.seconds = end, spent + elapsed
            campaign.save()
            if (examples is not None and done >= examples) or (seconds is not None and elapsed >= seconds):
                return campaign


def _workers(parallel: Any) -> int:
    return int(parallel._effective_n_jobs()) if parallel.n_jobs != 1 else 1  # noqa: SLF001


def _position(done: int, examples: int | None, elapsed: float, seconds: float | None) -> tuple[int, int]:
    """How far a campaign is, by whichever end comes first."""
    shares = [(done, examples)] if examples is not None else []
    shares += [(int(elapsed), int(seconds))] if seconds is not None else []
    return max(shares, key=lambda share: share[0] / max(share[1], 1))


def _run_chunk(plan: Plan, numbers: Sequence[int]) -> list[Outcome]:
    return [outcome for number in numbers if (outcome := run_case(plan, number)) is not None]


def _take(campaign: Campaign, outcomes: Sequence[Outcome]) -> list[Found]:
    """Count outcomes; the findings that are new, one of each kind."""
    new: dict[str, Found] = {}
    for outcome in outcomes:
        campaign.count(outcome)
        found = outcome.found
        if found is not None:
            entry = campaign.findings.setdefault(found.key, {"file": "", "case": found.case, "times": 0})
            entry["times"] += 1
            if not entry["file"]:
                new.setdefault(found.key, found)
    return list(new.values())


def findings_of(campaign: Campaign) -> Iterator[tuple[str, str, int]]:
    """Every kind of fault found so far: its key, its file, and how often it was seen."""
    for key, entry in campaign.findings.items():
        yield key, entry["file"], entry["times"]
