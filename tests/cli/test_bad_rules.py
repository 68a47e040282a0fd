"""Rules that lie, crash or never end: exit code 1 or 3, whose fault it is, and nothing written."""

from pathlib import Path

import pytest

from tests.cli.conftest import BAD, Ran, Run, files

pytestmark = pytest.mark.refmodel


def rewrite(run: Run, rules: str) -> Ran:
    return run("rewrite", "model.tosa", "-o", "out.tosa", "--rules-module", BAD, "--rules", rules, "--vectors", "4")


def test_a_lie_is_not_equivalent(run: Run, folder: Path) -> None:
    ran = rewrite(run, "lie")
    assert (ran.code, ran.no_traceback) == (1, True)
    assert "error: the result does not keep what its rewrites promise; nothing was written:" in ran.err
    assert 'lie at ADD -> "sum1": differs by 1 LSB, contract: exact' in ran.err
    assert files(folder) == ["model.tosa"]


def test_what_brings_no_check_is_not_kept(run: Run, folder: Path) -> None:
    ran = rewrite(run, "unchecked")
    assert (ran.code, ran.no_traceback) == (1, True)
    assert 'unchecked cannot be checked: it promises "changes precision (for a test)"' in ran.err
    assert files(folder) == ["model.tosa"]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("crash", 'rule crash failed at ADD -> "sum1": ZeroDivisionError: nothing to divide ADD by'),
        ("illegal", "the rewritten program is not legal TOSA, the original was (rules that fired: illegal)"),
        ("other_type", "rule other_type replaces %sum1: INT32[4] by"),
        ("ping,pong", 'block "main": rules chase each other without end; the last to fire: '),
        ("silent", "a transform changed the program but reports no rewrite"),
    ],
)
def test_faults_of_rules_end_with_3_and_are_blamed_on_them(run: Run, folder: Path, rules: str, message: str) -> None:
    ran = rewrite(run, rules)
    assert ran.code == 3
    assert f"error: {message}" in ran.err
    assert ran.last_line == "  this is a bug in the rule, not in your model"
    assert files(folder) == ["model.tosa"]


def test_the_traceback_of_a_crashing_rule_is_shown_to_its_author(run: Run) -> None:
    ran = rewrite(run, "crash")
    assert "Traceback" in ran.err
    assert "in _crash" in ran.err


def test_a_rules_module_that_fails_is_its_author_s_fault(run: Run, folder: Path) -> None:
    (folder / "rules_that_fail.py").write_text("1 / 0\n")
    ran = run("rewrite", "model.tosa", "--rules-module", "rules_that_fail", "-o", "out.tosa")
    assert ran.code == 3
    assert "error: the rules module rules_that_fail fails when imported: ZeroDivisionError" in ran.err
    assert not (folder / "out.tosa").exists()


def test_a_fault_of_ours_is_owned_up_to(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("tosakit.cli.rewrite.settle", broken)
    ran = rewrite(run, "good")
    assert ran.code == 3
    assert "Traceback" in ran.err
    assert "error: KeyError: 'a bug'\n  this is a fault of tosakit; please report it" in ran.err
    assert files(folder) == ["model.tosa"]


def test_an_interrupt_leaves_nothing_behind(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tosakit.cli.rewrite.settle", interrupted)
    ran = rewrite(run, "good")
    assert (ran.code, ran.last_line) == (130, "interrupted")
    assert files(folder) == ["model.tosa"]
