"""The conformance sample and the corpus: nothing legal is rejected, everything illegal is, for its own reason."""

import csv
import tarfile
from pathlib import Path

import pytest

from tosakit.io.reader import load
from tosakit.spec.verify import verify

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"
SHIPPED = sorted((Path(__file__).parents[1] / "corpus").glob("*.tosa"))


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, dict[str, str]]]:
    """Every file of the sample with its row of the index."""
    archive = CORPUS / "conformance.tar.xz"
    if not archive.exists():
        pytest.skip("the optional shared corpus is not beside this checkout")
    folder = tmp_path_factory.mktemp("conformance")
    with tarfile.open(archive) as packed:
        wanted = [member for member in packed if member.name.endswith((".tosa", "index.tsv"))]
        packed.extractall(folder, wanted, filter="data")
    (index,) = folder.rglob("index.tsv")
    with index.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    return [(index.parent / row["path"] / "test.tosa", row) for row in rows]


@pytest.mark.shared
def test_no_legal_file_is_rejected(sample: list[tuple[Path, dict[str, str]]]) -> None:
    legal = [path for path, row in sample if row["label"] == "positive"]
    assert len(legal) == 867
    errors = [f"{path.parent.name}: {d}" for path in legal for d in verify(load(path)) if d.severity == "error"]
    assert errors == []


@pytest.mark.shared
def test_every_illegal_file_is_rejected_for_its_own_reason(sample: list[tuple[Path, dict[str, str]]]) -> None:
    # Some files break nothing but a limit of level 8K; the verifier checks no level.
    illegal = [
        (path, row["label"])
        for path, row in sample
        if row["label"] != "positive" and "illegal_only_by_level_8K" not in row["note"]
    ]
    assert len(illegal) == 840
    missed: list[str] = []
    for path, kind in illegal:
        codes = [d.code for d in verify(load(path)) if d.severity == "error"]
        if kind not in codes:
            missed.append(f"{path.parent.name} ({kind}): {codes}")
    assert missed == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_models_have_no_errors(path: Path) -> None:
    assert [str(d) for d in verify(load(path)) if d.severity == "error"] == []


@pytest.mark.shared
def test_corpus_models_have_no_errors() -> None:
    paths = [path for folder in ("models", "models_large") for path in sorted((CORPUS / folder).glob("*.tosa"))]
    if not paths:
        pytest.skip("the optional shared corpus is not beside this checkout")
    errors = [f"{path.stem}: {d}" for path in paths for d in verify(load(path)) if d.severity == "error"]
    assert errors == []
