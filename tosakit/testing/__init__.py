"""For people who write rules: random legal programs, properties every rule must keep, and golden tests.

Strategies and :func:`assert_rule_holds` need Hypothesis (``pip install "tosakit[testing]"``), which is imported when
they are first used; the generators themselves, golden tests and the reduction of programs do without.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tosakit.testing import strategies
    from tosakit.testing.choices import Choices, Seeded
    from tosakit.testing.golden import check_golden
    from tosakit.testing.holds import Tally, assert_rule_holds
    from tosakit.testing.properties import Fault, Setting, Trial, examine
    from tosakit.testing.reduction import Reduction, reduce_program
    from tosakit.testing.sketch import EVERYTHING, INTEGER, Space

__all__ = [
    "EVERYTHING",
    "INTEGER",
    "Choices",
    "Fault",
    "Reduction",
    "Seeded",
    "Setting",
    "Space",
    "Tally",
    "Trial",
    "assert_rule_holds",
    "check_golden",
    "examine",
    "reduce_program",
    "strategies",
]

_HOMES = {
    "EVERYTHING": "sketch",
    "INTEGER": "sketch",
    "Choices": "choices",
    "Fault": "properties",
    "Reduction": "reduction",
    "Seeded": "choices",
    "Setting": "properties",
    "Space": "sketch",
    "Tally": "holds",
    "Trial": "properties",
    "assert_rule_holds": "holds",
    "check_golden": "golden",
    "examine": "properties",
    "reduce_program": "reduction",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used. Raises ToolMissing for strategies without Hypothesis."""
    if name == "strategies":
        return _strategies()
    if name not in _HOMES:
        raise AttributeError(f"module 'tosakit.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tosakit.testing.{_HOMES[name]}"), name)


def _strategies() -> Any:
    from tosakit.errors import ToolMissing

    try:
        return importlib.import_module("tosakit.testing.strategies")
    except ModuleNotFoundError as missing:
        if missing.name != "hypothesis":
            raise
        raise ToolMissing('strategies need Hypothesis; run: pip install "tosakit[testing]"') from missing


def __dir__() -> list[str]:
    return sorted(__all__)
