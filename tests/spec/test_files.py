"""Files: what cannot be loaded is reported with a code, and what can be read of it is read."""

from pathlib import Path

import pytest

from tests.spec.broken_files import FILES, Build, chain, written
from tosakit.ir.graph import Tensor
from tosakit.spec.files import check_file
from tosakit.spec.scan import scan
from tosakit.spec.target import Target

NAMED = [pytest.param(*entry, id=entry[0]) for entry in FILES]


@pytest.mark.parametrize(("code", "build", "words"), NAMED)
def test_a_broken_file_shows_exactly_its_code(code: str, build: Build, words: str) -> None:
    report = check_file(build(True), Target())
    errors = [d for d in report.diagnostics if d.severity == "error"]
    assert [d.code for d in errors] == [code]
    assert words in errors[0].message
    assert report.has_errors


@pytest.mark.parametrize(("code", "build", "words"), NAMED)
def test_its_legal_sibling_shows_nothing_like_it(code: str, build: Build, words: str) -> None:
    report = check_file(build(False), Target())
    assert report.program is not None
    assert code not in [d.code for d in report.diagnostics]
    assert not report.has_errors


def test_all_faults_of_wiring_are_reported_at_once() -> None:
    graph, first, second = chain()
    graph.add_tensor(Tensor("other", first.output.dtype, (2,)))._name = "s"
    graph.add_tensor(Tensor("another", first.output.dtype, (2,)))._name = "y"
    first._outputs = second._outputs
    found = [d.code for d in check_file(written(graph), Target()).diagnostics]
    assert found == ["DuplicateTensor", "NameClash", "DuplicateProducer"]


def test_a_truncated_file_is_reported() -> None:
    data = written(chain()[0])
    for cut in (0, 3, 8, len(data) // 4, len(data) // 2):
        report = check_file(data[:cut], Target())
        assert [d.code for d in report.diagnostics] == ["InvalidFile"]


def test_scan_raises_for_no_bytes() -> None:
    data = written(chain()[0])
    for cut in range(0, len(data), 7):
        scan(data[:cut])
        scan(data[:cut] + bytes(len(data) - cut))
    assert scan(data) == []


def test_a_legal_file_is_checked_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.tosa"
    path.write_bytes(written(chain()[0]))
    report = check_file(path, Target.of(profiles=["pro-int"]))
    assert [d.code for d in report.diagnostics] == ["MissingProfile", "MissingProfile"]
    assert report.report is not None
    assert str(report.report.needs) == "PRO-FP, level 8K, TOSA 1.0"
