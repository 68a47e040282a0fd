"""What Vela estimates for every TOSA operator, read from its debug database, and what rewrites cost or saved."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tosakit._interface import read_operators
from tosakit.engine.rule import Event, describe
from tosakit.ir.program import Program

_TABLE = re.compile(r'<table name="(\w+)">\s*<!\[CDATA\[\n(.*?)\]\]>', re.DOTALL)
_ACCESS = "_ac"


@dataclass(frozen=True)
class OperatorCost:
    """What one TOSA operator comes to, with what Vela has fused into it.

    ``index`` is its place among the operators of the file, ``tensor`` its first result. ``cycles`` include memory
    transfers and add up to the cycles of the inference; ``npu_cycles`` are those the NPU computes. ``memory_bytes`` is
    the most of the staging memory that is in use while it runs, ``access_cycles`` what each memory is busy for it.
    """

    index: int
    operator: str
    tensor: str
    cycles: float
    npu_cycles: float
    macs: int
    memory_bytes: int
    access_cycles: dict[str, float]


@dataclass(frozen=True)
class RuleCost:
    """Cycles of the operators that a rule replaced, and of those it put there. No rule: all other operators."""

    rule: str | None
    rewrites: int
    before: float
    after: float


def read_costs(database: Path, model: Path, kinds: dict[str, str]) -> tuple[OperatorCost, ...]:
    """The cost of every operator of ``model`` that takes time, in file order.

    ``kinds`` maps Vela's names of operators to TOSA's. Empty where the database does not say which operator of the file
    a cost is for: it has another form, or its operators are not those of the file's first block (control flow).
    """
    tables = {match[1]: list(csv.DictReader(match[2].splitlines())) for match in _TABLE.finditer(_text(database))}
    operators = read_operators(model)
    try:
        places = {row["id"]: (int(row["ext_key"]), kinds.get(row["operator"])) for row in tables["source"]}
        if any(not 0 <= at < len(operators) or operators[at][0] != kind for at, kind in places.values()):
            return ()
        found: dict[int, list[dict[str, str]]] = {}
        for row in tables["perf"]:
            found.setdefault(places[row["source_id"]][0], []).append(row)
        costs = [_cost(at, *operators[at], rows) for at, rows in sorted(found.items())]
    except (KeyError, ValueError):
        return ()
    return tuple(cost for cost in costs if cost.cycles)


def _text(database: Path) -> str:
    return database.read_text(encoding="utf-8", errors="replace") if database.exists() else ""


def _cost(index: int, operator: str, results: Sequence[str], rows: list[dict[str, str]]) -> OperatorCost:
    memories = [name for name in rows[0] if name and name.endswith(_ACCESS)]
    return OperatorCost(
        index=index,
        operator=operator,
        tensor=results[0] if results else "",
        cycles=sum(float(row["op_cycles"]) for row in rows),
        npu_cycles=sum(float(row["npu_cycles"]) for row in rows),
        macs=sum(int(row["mac_count"]) for row in rows),
        memory_bytes=max(int(row["staging_usage"]) for row in rows),
        access_cycles={_memory(name): sum(float(row[name]) for row in rows) for name in memories},
    )


def _memory(column: str) -> str:
    """``off_chip_flash`` for the column ``OffChipFlash_ac``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.removesuffix(_ACCESS)).lower()


def costs_by_rule(
    before: Iterable[OperatorCost], after: Iterable[OperatorCost], program: Program, events: Sequence[Event]
) -> list[RuleCost]:
    """Cycles by rule, in the order they first fired; ``program`` is the rewritten one.

    An operator of the original counts for the rule that replaced it first, one of the result for the rule that made it.
    """
    removed: dict[str, str] = {}
    for event in events:
        for operator in event.operators:
            removed.setdefault(operator, event.rule)
    made = {describe(op): op.origin.split()[0] for op in program.main.ops if op.origin}
    rewrites = Counter(event.rule for event in events)
    old, new = _summed(before, removed), _summed(after, made)
    rules: list[str | None] = [*rewrites, None]
    return [RuleCost(rule, rewrites[rule] if rule else 0, old[rule], new[rule]) for rule in rules]


def _summed(costs: Iterable[OperatorCost], rules: dict[str, str]) -> Counter[str | None]:
    total: Counter[str | None] = Counter()
    for cost in costs:
        total[rules.get(f'{cost.operator} -> "{cost.tensor}"')] += cost.cycles  # type: ignore[assignment]
    return total
