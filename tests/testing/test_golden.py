"""The golden runner notices everything it promises to notice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tosakit.engine.contract import Exact
from tosakit.engine.pattern import AnyValue, Capture, Match
from tosakit.engine.rule import Context, Event, Outcome, Refusal, Replacement, Rule, Step, Transform
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.program import Program
from tosakit.testing import check_golden

FIRES = """=== fires: a title
--- before
block "main" (%x: INT32[2]) -> (%y) {
  %y: INT32[2] = ABS(%x)
}
--- after
block "main" (%x: INT32[2]) -> (%y) {
  %y: INT32[2] = CLZ(%x)
}
--- rewrites
abs_to_clz: 1
--- refusals
none
"""
REFUSES = """=== refuses: another title
--- before
block "main" (%x: INT8[2]) -> (%y) {
  %y: INT8[2] = ABS(%x)
}
--- rewrites
none
--- refusals
abs_to_clz at ABS -> "y": INT8
"""
X = AnyValue()
ABS = Capture(ops.Abs, operands=(X,))


def precondition(match: Match, context: Context) -> bool | Refusal:
    return Refusal("INT8") if match[ABS].output.dtype.name == "INT8" else True


def replacement(match: Match, plan: bool) -> Replacement:
    old = match[ABS].output
    builder = Builder(old.name)
    return Replacement(builder.ops, {old: builder.op(ops.Clz(), [match.value(X)], old.dtype, old.shape)})


RULE = Rule("abs_to_clz", ABS, precondition, replacement, Exact(), "")


def silently(change: Callable[[Program], None]) -> Transform:
    """A transform that changes a program without an event."""

    def run(program: Program, context: Context) -> Outcome:
        change(program)
        return Outcome()

    return Transform("silent", run, Exact(), "")


def endless(program: Program, context: Context) -> Outcome:
    return Outcome([Event("endless", "main", (), Exact())])


def write(folder: Path, text: str) -> Path:
    path = folder / "rule.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_right_passes_and_is_not_written(tmp_path: Path) -> None:
    text = "A word in front.\n\n" + FIRES + "\n" + REFUSES
    path = write(tmp_path, text)
    check_golden(path, [RULE])
    check_golden(path, [RULE], update=True)
    assert path.read_text(encoding="utf-8") == text


def test_updating_needs_only_titles_and_graphs(tmp_path: Path) -> None:
    short = "".join(case.partition("\n--- after")[0].partition("\n--- rewrites")[0] + "\n" for case in (FIRES, REFUSES))
    path = write(tmp_path, short.replace("  %y", "%y"))
    with pytest.raises(AssertionError, match="--update-golden"):
        check_golden(path, [RULE])
    check_golden(path, [RULE], update=True)
    assert path.read_text(encoding="utf-8") == FIRES + "\n" + REFUSES


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CLZ(%x)", "ABS(%x)"),
        ("abs_to_clz: 1", "abs_to_clz: 2"),
        ("refusals\nnone", "refusals\nabs"),
        ("  %y", "   %y"),
    ],
)
def test_every_difference_is_shown(old: str, new: str, tmp_path: Path) -> None:
    path = write(tmp_path, FIRES.replace(old, new, 1))
    with pytest.raises(AssertionError) as caught:
        check_golden(path, [RULE])
    removed = [line[1:] for line in str(caught.value).splitlines() if line.startswith("-")]
    assert any(new.splitlines()[-1] in line for line in removed)


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize(
    ("text", "steps", "message"),
    [
        (REFUSES.replace("refuses", "fires"), [RULE], "0 rewrites in a case that fires"),
        (FIRES.replace("fires", "refuses"), [RULE], "1 rewrites in a case that refuses"),
        (REFUSES, [silently(lambda p: p.main.set_outputs(p.main.inputs))], "changed without a rewrite being counted"),
        (FIRES, [Transform("endless", endless, Exact(), "")], "running the steps again still changes the graph"),
        (FIRES, [RULE, silently(lambda p: p.main.set_inputs([]))], "the graph was legal and is not any more"),
    ],
)
def test_what_no_update_can_bless(text: str, steps: list[Step], message: str, update: bool, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(AssertionError, match=message):
        check_golden(path, steps, update=update)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no case; a case starts with"),
        ("=== flies: a title\n", "line 1: expected === fires: or === refuses: and a title"),
        ("=== fires: a title\nblock () -> () {}\n", "line 2: expected --- before"),
        (FIRES.replace("ABS(%x)", "ABBS(%x)"), "line 4: there is no operator ABBS"),
        ("\n\n" + FIRES.replace("ABS(%x)", "ABBS(%x)"), "line 6: there is no operator ABBS"),
    ],
)
def test_files_that_cannot_be_read(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_golden(write(tmp_path, text), [RULE])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot read the golden file"):
        check_golden(tmp_path / "nothing.txt", [RULE])


def test_versions_and_regions_are_shown_where_they_matter(tmp_path: Path) -> None:
    framed = FIRES.replace('block "main"', 'tosa 1.1.0 draft\nregion "main" {\n  block "main"')
    framed = framed.replace("  %y", "    %y").replace("\n}\n", "\n  }\n}\n")
    check_golden(write(tmp_path, framed), [RULE])
