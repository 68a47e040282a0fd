"""Every Python block and every console line of the documentation runs as it stands."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tosakit.cli import main

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
