"""Files that leave open the shape of one result and give that of the next: rules refuse them, and never fail."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewrites
from tosakit.engine.rule import Rule
from tosakit.errors import InvalidModel, RuleBug
from tosakit.ir.program import Program
from tosakit.ir.text import parse_program
from tosakit.rewriting import run
from tosakit.testing.golden import read_cases

RESULT = re.compile(r"^ *%\w+: \w+\[([\d,]+)\] = (?!CONST)", re.MULTILINE)
RULES = [step for step in rewrites.RULES if isinstance(step, Rule)]


def half_open(rule: Rule) -> Iterator[Program]:  # type: ignore[type-arg]
    """The golden programs on which a rule fires, each with one size of one result unknown."""
    text = (Path(__file__).parent / f"{rule.name}.txt").read_text(encoding="utf-8")
    for case in read_cases(text, rule.name)[1]:
        for found in RESULT.finditer(case.before) if case.fires else ():
            sizes = found.group(1).split(",")
            for axis in (0, len(sizes) - 1):
                changed = [*sizes[:axis], "-1", *sizes[axis + 1 :]]
                yield parse_program(case.before[: found.start(1)] + ",".join(changed) + case.before[found.end(1) :])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_size_that_is_left_open_is_no_fault_of_the_rule(rule: Rule) -> None:  # type: ignore[type-arg]
    options = rule.options(when="all") if hasattr(rule.options(), "when") else rule.options()
    for program in half_open(rule):
        try:
            run(program, [rule], options={rule.name: options}, target="ethos-u55-128", check="none")
        except InvalidModel as error:  # no legal program any more
            if isinstance(error.__cause__, RuleBug):
                raise error.__cause__ from error


def test_the_refusal_names_the_shape() -> None:
    program = parse_program(
        """
        block "main" (%x: INT8[1,8,8,2]) -> (%y) {
          %z: INT8[1] = CONST() [0]
          %y: INT8[1,-1,1,2] = AVG_POOL2D(%x, %z, %z) {kernel=[9, 9], stride=[1, 1], pad=[1, 0, 1, 0], acc_type=INT32}
        }"""
    )
    done = run(program, [rewrites.AVG_POOL2D_AS_DEPTHWISE], options={}, target="ethos-u55-128", check="none")
    [reason] = [refused.reason for refused in done.result.refusals]
    assert reason.startswith(
        '"y" has the shape [1, -1, 1, 2], which is not static, and the rule cannot go on without ('
    )
    assert "ValueError: " in reason
