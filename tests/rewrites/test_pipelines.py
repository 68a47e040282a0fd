"""A pipeline reaches a fixed point: on its own result, saved and loaded, it changes nothing."""

from pathlib import Path
from typing import Any

import pytest

from rewrites import PIPELINES
from tests.support.programs import CORPUS
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Rule
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.program import Program
from tosakit.ir.text_parser import parse_program
from tosakit.testing import Seeded
from tosakit.testing.programs import from_pattern, program
from tosakit.testing.sketch import Unfit
from tosakit.testing.special import LEGAL, REPAIRABLE, stateful
from tosakit.testing.wishes import variants

RUNS = [("int16", "", 5), ("ethos-u", "ethos-u55-128", 10), ("ethos-u", "ethos-u85-256", 5)]
"""A pipeline, a target, and how many different steps fire at least on the programs drawn."""


EVERYWHERE = {step.name: step.options(when="all") for step in PIPELINES["ethos-u"] if hasattr(step.options(), "when")}
"""Options with which rules act without a target."""

CONSTANT_ROWS = """
block "main" (%x: INT8[1,1,2,1]) -> (%y) {
  %v: INT8[1,2,1] = CONST() [7, 8]
  %i: INT32[1,2] = CONST() [1, 0]
  %g: INT8[1,2,1] = GATHER(%v, %i)
  %n: SHAPE[4] = CONST_SHAPE() [1, 1, 2, 1]
  %r: INT8[1,1,2,1] = RESHAPE(%g, %n)
  %s: INT8[1] = CONST() [0]
  %y: INT32[1,1,2,1] = MUL(%x, %r, %s)
}
"""


def assert_nothing_is_left_to_do(
    name: str, target: str, drawn: Program, options: dict[str, Any] | None = None
) -> list[str]:
    """Run a pipeline twice; returns the rules that fired the first time."""
    steps = PIPELINES[name]
    first = run_steps(drawn, steps, target=target, options=options)
    data = dumps(first.program)
    second = run_steps(load(data), steps, target=target, options=options)
    assert second.rules_fired == {}
    assert dumps(second.program) == data
    return list(first.rules_fired)


@pytest.mark.parametrize(("name", "target", "least"), RUNS)
def test_random_programs_come_to_rest(name: str, target: str, least: int) -> None:
    rules = [step for step in PIPELINES[name] if isinstance(step, Rule)]
    seen: set[str] = set()
    for seed in range(24):
        choices = Seeded(f"{name} {seed}")
        try:
            drawn = from_pattern(choices, rules[seed % len(rules)]) if choices.flag(0.8) else program(choices)
        except Unfit:
            continue
        for variant in variants(choices, drawn, (stateful, *LEGAL, *REPAIRABLE)):
            seen.update(assert_nothing_is_left_to_do(name, target, variant))
    assert len(seen) >= least, seen


@pytest.mark.parametrize(("name", "target", "least"), RUNS)
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_models_come_to_rest(path: Path, name: str, target: str, least: int) -> None:
    assert_nothing_is_left_to_do(name, target, load(path))


def test_constants_that_rules_make_are_folded_at_once() -> None:
    fired = assert_nothing_is_left_to_do("ethos-u", "", parse_program(CONSTANT_ROWS), EVERYWHERE)
    assert "constant_indices_as_movement" in fired
    assert "fold_constants" in fired
