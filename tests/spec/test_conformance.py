"""The conformance sample and the corpus: nothing legal is rejected, everything illegal is, for its own reason."""

import csv
import tarfile
from pathlib import Path

import pytest

from tosakit.io.reader import load
from tosakit.spec.check import check, needs
from tosakit.spec.files import check_file
from tosakit.spec.target import Target

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


Sample = list[tuple[Path, dict[str, str]]]


def target_of(row: dict[str, str]) -> Target:
    """The least that the index says a test needs, under level 8K."""
    extensions = [] if row["extensions_all"] == "-" else row["extensions_all"].split("+")
    return Target.of(row["profiles_any"].split("+")[:1], extensions, "8k", row["spec"])


def errors_of(path: Path, target: Target) -> list[str]:
    """Codes of the errors of a file."""
    return [d.code for d in check_file(path, target).diagnostics if d.severity == "error"]


@pytest.mark.shared
def test_no_legal_file_is_rejected_under_its_own_profile_and_extensions(sample: Sample) -> None:
    legal = [(path, row) for path, row in sample if row["label"] == "positive"]
    assert len(legal) == 867
    rejected = [f"{path.parent.name}: {codes}" for path, row in legal if (codes := errors_of(path, target_of(row)))]
    assert rejected == []


@pytest.mark.shared
def test_every_illegal_file_is_rejected_for_its_own_reason(sample: Sample) -> None:
    illegal = [(path, row) for path, row in sample if row["label"] != "positive"]
    assert len(illegal) == 856
    missed = [
        f"{path.parent.name} ({row['label']}): {codes}"
        for path, row in illegal
        if row["label"] not in (codes := errors_of(path, target_of(row)))
    ]
    assert missed == []


@pytest.mark.shared
def test_only_the_level_makes_some_files_illegal(sample: Sample) -> None:
    level = [path for path, row in sample if "illegal_only_by_level_8K" in row["note"]]
    assert len(level) == 16
    for path in level:
        program = load(path)
        assert [d.code for d in check(program) if d.severity == "error"] == []
        assert needs(program).level == "none"


DIFFERENCES = {
    # The index takes profile and extensions from the test's description. Either profile has the operators.
    ("COND_IF", ("PRO-INT",), ("EXT-CONTROLFLOW",)): "PRO-INT + EXT-CONTROLFLOW or PRO-FP + EXT-CONTROLFLOW",
    # The loop counts in INT32 with GREATER, which is PRO-INT's.
    ("WHILE_LOOP", ("PRO-FP",), ("EXT-CONTROLFLOW",)): "PRO-INT + PRO-FP + EXT-CONTROLFLOW",
    ("WHILE_LOOP", ("PRO-FP",), ("EXT-BF16", "EXT-CONTROLFLOW")): "PRO-INT + PRO-FP + EXT-BF16 + EXT-CONTROLFLOW",
    # desc_overstates_ext_dynamic: scale, offset and border are constants.
    ("RESIZE", ("PRO-INT",), ("EXT-DYNAMIC",)): "PRO-INT",
    ("RESIZE", ("PRO-FP",), ("EXT-DYNAMIC",)): "PRO-FP",
    ("RESIZE", ("PRO-INT",), ("EXT-DYNAMIC", "EXT-INT16")): "PRO-INT + EXT-INT16",
    ("ROW_GATHER_BLOCK_SCALED", ("PRO-INT",), ("EXT-INT64",)): "PRO-INT + EXT-INT64 or PRO-FP + EXT-INT64",
    # FP8E4M3 values with scales of 1 may be read either way.
    ("RESHAPE_BLOCK_SCALED", ("PRO-FP",), ("EXT-MX-COMMON", "EXT-MX-FP8E4M3")): (
        "PRO-FP + EXT-FP8E4M3 + EXT-MX-COMMON or PRO-FP + EXT-MX-COMMON + EXT-MX-FP8E4M3"
    ),
    # EXT-MXFP-CONV is for CONV2D_BLOCK_SCALED; CONV2D of block-scaled tensors needs the formats only.
    ("CONV2D", ("PRO-FP",), ("EXT-BF16", "EXT-MX-COMMON", "EXT-MX-FP8E4M3", "EXT-MXFP-CONV")): (
        "PRO-FP + EXT-BF16 + EXT-MX-COMMON + EXT-MX-FP8E4M3"
    ),
}
"""Where what a legal file needs differs from the index, and why; the index also lists no EXT-SHAPE at all."""


@pytest.mark.shared
def test_what_legal_files_need_is_what_the_index_says(sample: Sample) -> None:
    differing: list[str] = []
    for path, row in sample:
        if row["label"] != "positive":
            continue
        profiles = tuple(name.upper() for name in sorted(row["profiles_any"].split("+"), reverse=True))
        extensions = tuple(name.upper() for name in row["extensions_all"].split("+") if name != "-")
        found = needs(load(path))
        text = str(found).partition(", level")[0]
        same = sorted({name for names in found.alternatives for name in names if name.startswith("PRO")}, reverse=True)
        added = [tuple(sorted(n for n in names if not n.startswith("PRO"))) for names in found.alternatives]
        agrees = tuple(same) == profiles and all(names in (extensions, (*extensions, "EXT-SHAPE")) for names in added)
        expected = DIFFERENCES.get((row["op"], profiles, extensions))
        if not (agrees or text == expected) or found.version != row["spec"] or found.level != "8K":
            differing.append(f"{path.parent.name}: {found}, the index says {profiles} {extensions} {row['spec']}")
    assert differing == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_models_have_no_errors(path: Path) -> None:
    assert [str(d) for d in check(load(path), level="8k") if d.severity == "error"] == []


@pytest.mark.shared
def test_corpus_models_have_no_errors() -> None:
    paths = [path for folder in ("models", "models_large") for path in sorted((CORPUS / folder).glob("*.tosa"))]
    if not paths:
        pytest.skip("the optional shared corpus is not beside this checkout")
    errors = [f"{path.stem}: {d}" for path in paths for d in check(load(path), level="8k") if d.severity == "error"]
    assert errors == []
