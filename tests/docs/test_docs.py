"""Every Python block and every console line of the documentation runs as it stands."""

import argparse
import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import pytest

import rewrites
from tosakit.cli import main
from tosakit.cli.parser import build_parser
from tosakit.engine.contract import Exact, WithinLsb
from tosakit.engine.rule import Step

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def _blocks(page: Path) -> list[tuple[str, str]]:
    return [(kind, body) for kind, body in BLOCK.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(page)], ids=lambda page: page.name)
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "tests" / "corpus", tmp_path / "tests" / "corpus")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace: dict[str, object] = {"__name__": "example"}
    for kind, body in _blocks(page):
        if kind == "python":
            exec(compile(body, str(page), "exec"), namespace)  # the documentation is ours
            continue
        for line in body.splitlines():
            if line.startswith("$ "):
                words = shlex.split(line[2:].partition("  # ")[0])
                assert words[0] == "tosakit", f"{page.name}: cannot run {line}"
                if any("vela" in word for word in words) and importlib.util.find_spec("ethosu") is None:
                    continue  # the test extra does not bring Vela
                expected = int(re.search(r"exit (\d)", line).group(1)) if "# exit" in line else 0  # type: ignore[union-attr]
                assert main(words[1:]) == expected, f"{page.name}: {line}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_opens_with_two_commands() -> None:
    commands = re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(commands) == 2
    assert "rewrite" in commands[0]
    assert "pytest" in commands[1]


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """Every option of a parser and of its subcommands."""
    found: set[str] = set()
    for action in parser._actions:
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                found |= _options(subparser)
    return found


def test_the_page_of_the_command_line_has_every_option_and_no_other() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", page)) - {"-m"}  # python -m tosakit
    existing = _options(build_parser())
    assert documented <= existing
    assert existing - documented == {"--help", "-h", "--version"}


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    [commands] = [a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    assert all(f"$ tosakit {name} " in page or f"$ tosakit {name}\n" in page for name in commands)


def _derivations() -> dict[str, list[tuple[str, str]]]:
    """Contract and derivation of every row of the page of contracts, by the rules that it names."""
    page = (ROOT / "docs" / "numeric-contracts.md").read_text(encoding="utf-8")
    table = page.partition("| rule | contract | derivation |")[2].partition("\n\n")[0]
    found: dict[str, list[tuple[str, str]]] = {}
    for names, contract, derivation in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", table, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            found.setdefault(name, []).append((contract, derivation))
    return found


@pytest.mark.parametrize("step", rewrites.RULES, ids=lambda step: step.name)
def test_the_contract_of_every_rule_is_derived(step: Step) -> None:
    rows = _derivations().get(step.name)
    assert rows, f"{step.name} needs a row in docs/numeric-contracts.md: its contract, and why it holds"
    assert all(len(derivation.split()) >= 4 for _, derivation in rows)
    kind = "exact" if isinstance(step.contract, Exact) else "within"
    kind = kind if isinstance(step.contract, Exact | WithinLsb) else "changes precision"
    said = [contract.startswith(kind) for contract, _ in rows]
    assert all(said) if kind == "exact" else any(said), f"{step.name} promises {step.contract}"


def test_the_page_of_contracts_knows_no_other_rules() -> None:
    assert sorted(_derivations()) == sorted(step.name for step in rewrites.RULES)
