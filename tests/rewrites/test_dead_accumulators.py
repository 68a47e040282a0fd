"""What nobody reads is no accumulator to work on: every rule leaves it, and what a dead IDENTITY reads, alone."""

import pytest

import rewrites
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Rule, Step
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.testing import Seeded
from tosakit.testing.recipes import make
from tosakit.testing.sketch import Sketch

PRODUCERS = (ops.Conv2d, ops.Conv3d, ops.DepthwiseConv2d, ops.TransposeConv2d, ops.MatMul, ops.Resize)
RULES = [step for step in rewrites.RULES if isinstance(step, Rule)]


def options(step: Step) -> dict[str, object]:
    """The rule's options, acting always where it can."""
    chosen = step.options()
    return {step.name: type(chosen)(when="all") if hasattr(chosen, "when") else chosen}


@pytest.mark.parametrize("step", RULES, ids=lambda step: step.name)
def test_dead_accumulators_are_left_alone(step: Step) -> None:
    wide = 0
    for kind in PRODUCERS:
        for seed in range(12):
            sketch = Sketch(Seeded(seed))
            (accumulator,) = make(sketch, kind)
            wide += accumulator.dtype == DType.INT48
            if seed % 2 and accumulator.dtype == DType.INT48:
                make(sketch, ops.Identity, {0: accumulator})
            program = sketch.program([sketch.input(DType.INT8, (1,))])
            assert not run_steps(program, [step], options=options(step)).events
    assert wide >= 10
