"""Options and fixtures for the whole suite."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tosakit.engine.rule import Step
from tosakit.testing import check_golden

# The suite draws the same examples on every machine,
# so a red run can be repeated; ``--hypothesis-profile explore`` draws new ones.
settings.register_profile("tosakit", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("tosakit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``golden(step, ...)`` runs steps on the golden file beside the test: ``<test file without test_>.txt``."""

    def check(*steps: Step, **choices: Any) -> None:
        path = Path(request.path).with_name(request.path.stem.removeprefix("test_") + ".txt")
        check_golden(path, steps, update=request.config.getoption("--update-golden"), **choices)

    return check
