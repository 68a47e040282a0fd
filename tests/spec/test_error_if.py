"""Every kind of ERROR_IF for every operator it concerns: one legal program in which exactly that is broken."""

import itertools
from pathlib import Path

import pytest

from tests.spec.breaking import BREAKS, broken
from tests.spec.cases import CASES
from tosakit.spec.check import check
from tosakit.spec.diagnostics import CODES

HERE = Path(__file__).parent
SHARED = HERE.parents[1].parent / "shared" / "spec" / "error_if_kinds.tsv"

TABLE = {
    kind: names
    for kind, *names in map(str.split, (HERE / "error_if_kinds.txt").read_text(encoding="utf-8").splitlines())
    if kind != "#"
}
"""The operators that each kind concerns; none where the specification's own tests attach it to no operator."""

ALSO = {
    ("InputShapeRankMismatch", "ASSERT_EQUAL_SHAPE"): ["AssertShapesNotEqual"],
    ("WrongBlockSizeDimension", "RESHAPE_BLOCK_SCALED"): ["TensorSizeInputOutputMismatch"],
}
"""What else is wrong in a program with a kind of fault in an operator, and has to be."""

PAIRS = [pytest.param(kind, name, id=f"{kind}-{name}") for kind in BREAKS for name in TABLE[kind]]


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_exactly_the_broken_rule_is_reported(kind: str, name: str) -> None:
    programs = [program for how in BREAKS[kind] for program in itertools.islice(broken(name, how), 1)]
    assert programs, "no legal program can be broken this way"
    for program in programs:
        found = [d for d in check(program, level="8k") if d.severity == "error"]
        expected = [kind, *ALSO.get((kind, name), [])]
        assert list(dict.fromkeys(d.code for d in found)) == expected, "\n".join(map(str, found))
        assert {d.op_type for d in found} == {name}


def test_every_kind_and_operator_has_a_case() -> None:
    shown = {(kind, name) for kind in BREAKS for name in TABLE[kind]}
    for case in CASES:
        shown |= {(d.code, d.op_type or "") for d in case.diagnostics(broken=True)}
    assert [(kind, name) for kind, names in TABLE.items() for name in names if (kind, name) not in shown] == []
    codes = {code for code, _ in shown}
    assert [kind for kind in TABLE if kind not in codes] == []


def test_kinds_keep_their_names() -> None:
    assert [kind for kind in TABLE if kind not in CODES] == []
    assert len(TABLE) == 96


@pytest.mark.shared
def test_the_table_is_that_of_the_specification() -> None:
    if not SHARED.exists():
        pytest.skip("the optional shared material is not beside this checkout")
    lines = [line.split("\t") for line in SHARED.read_text(encoding="utf-8").splitlines()[1:]]
    expected = {
        kind: [name for names in (first, later) if names != "-" for name in names.split(",")]
        for kind, _, _, first, later, _ in lines
    }
    assert expected == TABLE
