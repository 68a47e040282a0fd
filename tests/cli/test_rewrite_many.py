"""Many files in one run: each as it would be alone, whatever becomes of the others."""

import json
import os
import shutil
from pathlib import Path

import pytest
from joblib import Parallel, delayed

from tests.cli.conftest import BAD, Run, files, sums
from tosakit.io.qparams import sidecar_path
from tosakit.io.writer import save

QUICK = ("--check", "none")
KILLER = """
import os
from tests.support.steps import add_again, rule
from tosakit.ir import ops

def die(builder, op):
    if op.output.name == "sum5":
        os._exit(9)
    return add_again(0)(builder, op)

RULES = (rule(ops.Add, die, name="killer"),)
"""
"""A rule that ends its process at the fifth sum."""


@pytest.fixture
def models(folder: Path, int8_model: Path) -> list[str]:
    """Three good files and a bad one, in the order in which they are given."""
    (folder / "bad.tosa").write_bytes(b"no model")
    save(sums(4), folder / "four.tosa")
    return ["model.tosa", "bad.tosa", "int8.tosa", "four.tosa"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_file_as_alone(run: Run, folder: Path, models: list[str], jobs: int) -> None:
    ran = run("rewrite", *models, "-o", "many", "--jobs", jobs, *QUICK, "--report", "r.json")
    assert (ran.code, ran.no_traceback) == (2, True)
    assert ran.last_line == "4 files, 1 failed: bad.tosa"
    assert "bad.tosa: error: bad.tosa: not a TOSA flatbuffer" in ran.err
    assert "four.tosa: 8 ops -> " in ran.err
    assert files(folder / "many") == ["four.tosa", "int8.tosa", "model.tosa"]
    report = json.loads((folder / "r.json").read_text())
    assert list(report) == ["report_version", "tosakit_version", "exit_code", "files"]
    assert report["exit_code"] == 2
    for name, found in zip(models, report["files"], strict=True):
        alone = run("rewrite", name, "-o", "alone.tosa", *QUICK, "--report", "alone.json")
        if name == "bad.tosa":
            assert found["input"] == {"path": "bad.tosa", "sha256": None}
            assert found["output"] is None
            assert (found["error"]["exit_code"], alone.code) == (2, 2)
        else:
            assert (folder / "many" / name).read_bytes() == (folder / "alone.tosa").read_bytes()
            expected = json.loads((folder / "alone.json").read_text())
            assert found == {**expected, "output": {**expected["output"], "path": f"many/{name}"}}


def test_workers_left_over_from_another_folder_find_the_files(
    run: Run, models: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        Parallel(n_jobs=2)(delayed(os.getcwd)() for _ in range(2))
    assert run("rewrite", models[0], models[2], "-o", "many", "--jobs", 2, *QUICK).code == 0


def test_the_worst_exit_code_counts(run: Run, folder: Path, models: list[str]) -> None:
    rules = ("--rules-module", BAD, "--rules", "crash")
    ran = run("rewrite", *models, "-o", "many", *rules, *QUICK, "--report", "-")
    assert ran.code == 3
    codes = [found["error"]["exit_code"] if found["error"] else 0 for found in json.loads(ran.out)["files"]]
    assert codes == [3, 2, 3, 3]
    assert "model.tosa: error: rule crash failed" in ran.err


def test_a_process_that_dies(run: Run, folder: Path) -> None:
    (folder / "killer.py").write_text(KILLER)
    names = ["model.tosa"]
    for count in (2, 5, 3):
        save(sums(count), folder / f"m{count}.tosa")
        names.append(f"m{count}.tosa")
    ran = run("rewrite", *names, "-o", "many", "--jobs", 2, "--rules-module", "killer", "--rules", "killer", *QUICK)
    assert (ran.code, ran.no_traceback) == (3, True)
    assert "m5.tosa: error: a process was killed while this file or another was rewritten" in ran.err
    assert not (folder / "many" / "m5.tosa").exists()


def test_sidecars_go_along(run: Run, folder: Path) -> None:
    (folder / "model.qparams.json").write_text('{"tensors": {"x": {"scale": 0.5}}}')
    save(sums(), folder / "other.tosa")
    assert run("rewrite", "model.tosa", "other.tosa", "-o", "many", *QUICK).code == 0
    assert sidecar_path(folder / "many" / "model.tosa").exists()
    assert not sidecar_path(folder / "many" / "other.tosa").exists()


def test_one_file_into_a_folder(run: Run, folder: Path) -> None:
    (folder / "many").mkdir()
    assert run("rewrite", "model.tosa", "-o", "many", *QUICK).code == 0
    assert files(folder / "many") == ["model.tosa"]


def test_in_place(run: Run, folder: Path) -> None:
    save(sums(4), folder / "four.tosa")
    ran = run("rewrite", "model.tosa", "four.tosa", "-o", ".", "--rules", "remove_dead_code", *QUICK)
    assert ran.code == 0
    assert files(folder) == ["four.tosa", "model.tosa"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.tosa", "sub/model.tosa", "-o", "many"], "model.tosa and sub/model.tosa would be written to one place"),
        (["model.tosa", "./model.tosa"], "model.tosa and ./model.tosa would be written to one place"),
        (["model.tosa", "model.tosa"], "model.tosa and model.tosa would be written to one place"),
        (["other.tosa", "sub/model.tosa", "-o", "."], "sub/model.tosa would be written over"),
        (["model.tosa", "other.tosa", "-o", "model.tosa"], "--output model.tosa is a file; 2 files need a folder"),
        (["model.tosa", "other.tosa", "-o", "no/where"], "cannot make the folder no/where: No such file"),
        (["model.tosa", "other.tosa", "-o", "-"], "stdin and stdout hold one file"),
        (["model.tosa", "-"], "stdin and stdout hold one file"),
        (["model.tosa", "other.tosa", "--trace", "t"], "--trace is about one file, 2 are given"),
        (["model.tosa", "other.tosa", "--qparams", "q"], "--qparams is about one file, 2 are given"),
        (["model.tosa", "other.tosa", "--jobs", "0"], "--jobs 0: give a number of files, 1 or more"),
        (["model.tosa", "other.tosa", "--report", "other.tosa"], "--report other.tosa is also the input"),
        (["model.tosa", "other.tosa", "--vectors", "0"], "--vectors 0: at least one vector is needed"),
        (["model.tosa", "other.tosa", "--rules", "nobody"], 'unknown rule "nobody"'),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_cannot_be_is_refused_first(run: Run, folder: Path, arguments: list[str], message: str) -> None:
    (folder / "sub").mkdir()
    shutil.copy("model.tosa", "sub/model.tosa")
    shutil.copy("model.tosa", "other.tosa")
    if "." in arguments:
        (folder / "model.tosa").unlink()
        (folder / "model.tosa").symlink_to("other.tosa")
    before = files(folder)
    ran = run("rewrite", *arguments)
    assert (ran.code, ran.out, ran.no_traceback) == (2, "", True)
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert files(folder) == before
