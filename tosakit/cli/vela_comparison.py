"""``tosakit rewrite --compare-vela``: input and result as Vela compiles them, and what each rule cost or saved."""

from dataclasses import asdict, dataclass
from typing import Any

from tosakit.backend.compile import Compilation
from tosakit.backend.costs import RuleCost, costs_by_rule
from tosakit.backend.vela import VelaReport
from tosakit.cli.console import table
from tosakit.cli.vela import vela_json
from tosakit.rewriting import Rewriting


@dataclass(frozen=True)
class Comparison:
    """Vela's answers before and after, and cycles by rule where it tells the cost of operators."""

    before: Compilation
    after: Compilation
    rules: tuple[RuleCost, ...]


def compare(before: Compilation, after: Compilation, done: Rewriting) -> Comparison:
    """Put the two answers beside each other."""
    old, new = (found.report.operators if found.report else () for found in (before, after))
    rules = costs_by_rule(old, new, done.program, done.result.events) if old or new else []
    return Comparison(before, after, tuple(rules))


def print_comparison(found: Comparison) -> None:
    """One table: what Vela says of the whole, then the cycles of the operators by rule."""
    before, after = found.before.report, found.after.report
    rows: list[tuple[str, str, str, str]] = [("accepted", _accepted(found.before), _accepted(found.after), "")]
    for name in ("npu_cycles", "total_cycles"):
        rows.append(_row(name.replace("_", " ").replace("npu", "NPU"), _figure(before, name), _figure(after, name)))
    memories = dict.fromkeys([*(before.memory if before else {}), *(after.memory if after else {})])
    for memory in memories:
        old, new = (report.memory.get(memory) if report else None for report in (before, after))
        if old or new:
            rows.append(_row(f"{memory} (KiB)", old, new))
    told = [bool(report and report.operators) for report in (before, after)]
    for rule in found.rules:
        name = "cycles of all other operators" if rule.rule is None else f"cycles: {rule.rule}, {rule.rewrites} times"
        if rule.before or rule.after or rule.rule is None:
            rows.append(_row(name, rule.before if told[0] else None, rule.after if told[1] else None))
    table(f"Vela for {found.after.accelerator}", ("", "before", "after", "change"), rows)


def _accepted(found: Compilation) -> str:
    if found.report is None:
        return "would be miscompiled"
    return "yes" if found.accepted else "no"


def _figure(report: VelaReport | None, name: str) -> float | None:
    value: float | None = getattr(report, name, None)
    return value


def _row(name: str, before: float | None, after: float | None) -> tuple[str, str, str, str]:
    change = ""
    if before is not None and after is not None:
        change = f"{after - before:+,.0f}" + (f" ({(after / before - 1) * 100:+.1f} %)" if before else "")
    old, new = ("-" if value is None else f"{value:,.0f}" for value in (before, after))
    return name, old, new, change


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Both answers in full, and the cycles by rule; rule null: all operators that no rule replaced or made."""
    return {
        "before": vela_json(found.before),
        "rules": [asdict(rule) for rule in found.rules],
    }
