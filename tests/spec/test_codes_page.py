"""The page about ``check``: its table of codes is what the code says, with an example that was really given."""

import re
from pathlib import Path

import pytest

from tests.spec.broken_files import FILES
from tests.spec.cases import CASES
from tosakit.spec.codes_page import render, replaced
from tosakit.spec.diagnostics import CODES, Diagnostic
from tosakit.spec.files import check_file
from tosakit.spec.target import Target

PAGE = Path(__file__).parents[2] / "docs" / "check.md"


def examples() -> dict[str, Diagnostic]:
    """One diagnostic of every code, errors before warnings; names of files are left out."""
    found: dict[str, Diagnostic] = {}
    for case in sorted(CASES, key=lambda case: case.severity != "error"):
        if case.code not in found:
            found[case.code] = next(d for d in case.diagnostics(broken=True) if d.code == case.code)
    for code, build, _ in FILES:
        if code not in found:
            found[code] = next(d for d in check_file(build(True), Target()).diagnostics if d.code == code)
    return found


def test_the_table_is_up_to_date(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    expected = replaced(page, render(examples()))
    if request.config.getoption("--update-golden"):
        PAGE.write_text(expected, encoding="utf-8")
    assert page == expected, "run pytest tests/spec/test_codes_page.py --update-golden"


def test_every_code_has_one_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(CODES)
