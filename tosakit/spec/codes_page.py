"""The table of codes in ``docs/check.md``, written from :data:`tosakit.spec.diagnostics.CODES` and one example each.

The examples are what programs with exactly one fault are told; the tests of the codes make them, check that the page is
up to date, and write it anew with ``pytest tests/spec/test_codes_page.py --update-golden``.
"""

from collections.abc import Mapping

from tosakit.spec.diagnostics import CODES, Diagnostic

BEGIN, END = "<!-- codes: generated, do not edit -->", "<!-- end of codes -->"


def render(examples: Mapping[str, Diagnostic]) -> str:
    """The table: every code, whether it is an error, what it says, and an example. Raises KeyError without one."""
    lines = ["| code | severity | what it says | example |", "|---|---|---|---|"]
    for code, text in CODES.items():
        example = examples[code]
        where = f"{example.op_type}: " if example.op_type else ""
        lines.append(f"| `{code}` | {example.severity} | {_cell(text)} | {_cell(where + example.message)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def replaced(page: str, table: str) -> str:
    """The page with its table replaced. Raises ValueError for a page without the marks around it."""
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:start]}\n\n{table}\n{page[end:]}"
