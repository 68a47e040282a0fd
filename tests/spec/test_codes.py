"""Every code: a minimal program that shows exactly it, and a legal sibling that shows nothing."""

import pytest

from tests.spec.broken_files import FILES
from tests.spec.cases import CASES, Case
from tosakit.spec.diagnostics import CODES, Diagnostic
from tosakit.spec.memory import Memory
from tosakit.spec.verify import verify, walk

NAMED = [pytest.param(case, id=f"{case.code}-{number}") for number, case in enumerate(CASES)]


@pytest.mark.parametrize("case", NAMED)
def test_broken_program_shows_exactly_this_code(case: Case) -> None:
    found = case.diagnostics(broken=True)
    assert {(d.code, d.severity) for d in found} == {(case.code, case.severity)}, "\n".join(map(str, found))


@pytest.mark.parametrize("case", NAMED)
def test_legal_sibling_shows_nothing(case: Case) -> None:
    found = case.diagnostics(broken=False)
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("case", NAMED)
def test_what_was_found_clean_does_not_hide_a_fault(case: Case) -> None:
    memory, legal, broken = Memory(), case.program(broken=False), case.program(broken=True)
    if case.values or legal.version != broken.version:
        pytest.skip("a memory is for one version, and what values can be is worked out anew")
    assert [found.diagnostic.code for found in walk(legal, case.target, memory)] == []
    assert {found.diagnostic.code for found in walk(broken, case.target, memory)} == {case.code}
    assert [found.diagnostic.code for found in walk(legal, case.target, memory)] == []


def test_every_code_has_a_case() -> None:
    assert list(dict.fromkeys(case.code for case in CASES if case.code not in CODES)) == []
    shown = {case.code for case in CASES} | {code for code, _, _ in FILES}
    assert [code for code in CODES if code not in shown] == []


def test_diagnostic_reads_as_one_message() -> None:
    diagnostic = Diagnostic("WrongRank", "error", "main", 3, "ABS", ("x", "y"), "x has rank 3, it must be 2")
    expected = 'error: x has rank 3, it must be 2\n  WrongRank at block "main", operator #3 ABS ("x", "y")'
    assert str(diagnostic) == expected
    assert str(Diagnostic("NoOutputs", "warning", "b", None, None, (), "m")) == 'warning: m\n  NoOutputs at block "b"'


def test_places_are_named() -> None:
    case = next(case for case in CASES if case.code == "ConvBiasShapeMismatch")
    program = case.program(broken=True)
    (diagnostic,) = verify(program)
    assert (diagnostic.block, diagnostic.op_type) == ("main", "CONV2D")
    assert diagnostic.op_index is not None
    op = program.main.ops[diagnostic.op_index]
    assert diagnostic.tensors == (op.inputs[2].name,)
    assert "3 values" in diagnostic.message
    assert "2 output channels" in diagnostic.message
