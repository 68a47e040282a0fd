"""The Vela stage of the command line: refused before it runs, refused by it, missing, and what it leaves behind."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import CORPUS, Run, files
from tests.support.build import Net
from tosakit.io.writer import save
from tosakit.ir.enums import DType

pytestmark = pytest.mark.vela

U55, U85 = "ethos-u55-128", "ethos-u85-256"


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    if "without_vela" not in request.fixturenames:
        pytest.importorskip("ethosu.vela")


@pytest.fixture
def without_vela(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Vela were not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "ethosu"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ethosu", None)


@pytest.fixture
def int16_matmul(folder: Path) -> Path:
    """A model that Ethos-U55 has no operator for."""
    net = Net()
    x = net.input("x", DType.INT16, (1, 4, 4))
    y = net.rescale(net.matmul(x, x), DType.INT16, 1 << 14, 30, "y")
    save(net.program(y), folder / "matmul.tosa")
    return folder / "matmul.tosa"


@pytest.fixture
def wide_bias(folder: Path) -> Path:
    """A model whose bias Ethos-U55 silently cuts to 40 bits."""
    net = Net()
    acc = net.conv2d(net.input("x", DType.INT16, (1, 4, 4, 1)), np.ones((1, 1), np.int8), [2**41])
    save(net.program(net.rescale(acc, DType.INT16, 1 << 14, 40, "y")), folder / "bias.tosa")
    return folder / "bias.tosa"


# ---------------------------------------------------------------- tosakit vela
def test_an_accepted_model(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("vela", "int8.tosa", "--accelerator", U85)
    assert (ran.code, ran.err) == (0, "")
    for told in ("NPU cycles", "sram (KiB)", "int8_vela.npz", "offset", "INT8", "[1, 16, 12, 12]"):
        assert told in ran.out
    assert files(folder) == ["int8.tosa", "int8_vela.npz", "model.tosa"]


def test_its_figures_as_json(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("vela", "int8.tosa", "--json", "--vela-output", "new/folder")
    found = json.loads(ran.out)
    assert (ran.code, found["accepted"], found["output"]) == (0, True, "new/folder/int8_vela.npz")
    assert (folder / "new/folder/int8_vela.npz").exists()


def test_a_refused_model_names_the_operator(run: Run, folder: Path, int16_matmul: Path) -> None:
    ran = run("vela", "matmul.tosa", "--accelerator", U55)
    assert (ran.code, ran.no_traceback) == (1, True)
    assert f'refuses it for {U55}: MATMUL -> "acc"' in ran.out
    found = json.loads(run("vela", "matmul.tosa", "--accelerator", U55, "--json").out)
    assert (found["accepted"], found["output"]) == (False, None)
    assert [(r["operator"], r["tensors"]) for r in found["refused"]] == [("MATMUL", ["acc"])]
    assert files(folder) == ["matmul.tosa", "model.tosa"]


def test_what_vela_would_get_wrong_is_refused_unless_it_is_wanted(run: Run, folder: Path, wide_bias: Path) -> None:
    ran = run("vela", "bias.tosa", "--accelerator", U55, "--json")
    assert (ran.code, ran.no_traceback) == (1, True)
    assert ran.err.startswith(f'error: CONV2D -> "acc": bias value {2**41} is outside the 40 bits')
    assert "error: Vela would silently compile 1 operators into something else for ethos-u55-128, see above" in ran.err
    found = json.loads(ran.out)
    assert (found["accepted"], found["vela_version"]) == (False, None)
    assert [(h["severity"], h["operator"]) for h in found["hazards"]] == [("refuse", 'CONV2D -> "acc"')]
    assert files(folder) == ["bias.tosa", "model.tosa"]

    ran = run("vela", "bias.tosa", "--accelerator", U55, "--allow-miscompile")
    assert ran.code == 0
    assert ran.err.startswith('warning: CONV2D -> "acc": bias value')
    assert run("vela", "bias.tosa", "--accelerator", U85).code == 0


def test_options_of_vela_are_passed_through_and_its_words_on_wrong_ones_come_back(run: Run, int8_model: Path) -> None:
    assert (
        run("vela", "int8.tosa", "--vela-arg=--verbose-config", "--optimise", "Size", "--memory-mode", "Sram_Only").code
        == 0
    )
    ran = run("vela", "int8.tosa", "--memory-mode", "Nowhere")
    assert (ran.code, ran.no_traceback) == (2, True)
    assert ran.err.startswith("error: Vela does not take these options: ")


def test_a_place_that_cannot_be_written(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("vela", "int8.tosa", "--vela-output", "model.tosa")
    assert (ran.code, ran.no_traceback) == (2, True)
    assert ran.err.startswith("error: cannot write Vela's result to model.tosa: ")
    assert "choose a folder with --vela-output" in ran.err


# ---------------------------------------------------------------- tosakit rewrite --vela
def test_a_result_that_vela_accepts_is_written_beside_its_command_stream(
    run: Run, folder: Path, int8_model: Path
) -> None:
    ran = run("rewrite", "int8.tosa", "-o", "out.tosa", "--vectors", "2", "--vela", U85)
    assert ran.code == 0
    assert files(folder) == ["int8.tosa", "model.tosa", "out.tosa", "out_vela.npz"]
    assert "NPU cycles" in ran.out
    assert ran.last_line.endswith("2 vectors, seed 0")


def test_without_an_output_the_command_stream_is_not_kept_either(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("rewrite", "int8.tosa", "--vectors", "2", "--vela", U85)
    assert (ran.code, files(folder)) == (0, ["int8.tosa", "model.tosa"])
    run("rewrite", "int8.tosa", "--check", "none", "--vela", U85, "--vela-output", "streams")
    assert files(folder / "streams") == ["int8_vela.npz"]


def test_the_result_beside_the_input(run: Run, folder: Path, int16_matmul: Path) -> None:
    command = ["rewrite", "matmul.tosa", "--pipeline", "ethos-u", "--check", "none", "--compare-vela"]
    ran = run(*command, "--vela", U55, "--report", "r.json")
    assert ran.code == 0
    lines = [re.split(r"\s{2,}", line.strip()) for line in ran.out.partition(f"Vela for {U55}")[2].splitlines()]
    assert ["accepted", "no", "yes"] in lines
    [[_, before, after]] = [cells for cells in lines if cells[0] == "cycles: int16_matmul_as_int8, 1 times"]
    assert (before, int(after.replace(",", "")) > 0) == ("-", True)
    found = json.loads((folder / "r.json").read_text())
    comparison, vela = found["vela_comparison"], found["vela"]
    assert (comparison["before"]["accepted"], vela["accepted"]) == (False, True)
    assert [rule["rule"] for rule in comparison["rules"]] == [
        *dict.fromkeys(r["rule"] for r in found["rewrites"]),
        None,
    ]
    assert sum(rule["after"] for rule in comparison["rules"]) == vela["total_cycles"]
    assert sum(cost["cycles"] for cost in vela["operators"]) == vela["total_cycles"]
    assert files(folder) == ["matmul.tosa", "model.tosa", "r.json"]

    ran = run(*command)
    assert (ran.code, ran.err) == (2, "error: --compare-vela needs --vela ACCEL, such as --vela ethos-u85-256\n")


def test_show_adds_what_operators_cost(run: Run, folder: Path, int16_matmul: Path) -> None:
    ran = run("show", "matmul.tosa", "--vela", U85)
    [line] = [line for line in ran.out.splitlines() if "cycles" in line]
    assert re.search(r"= MATMUL\(.*\)  // [\d,]+ cycles, [\d.]+ KiB$", line)
    ran = run("show", "matmul.tosa", "--vela", U55)
    assert (ran.code, "cycles" in ran.out) == (1, False)
    assert 'warning: MATMUL -> "acc"' in ran.err
    assert run("show", "matmul.tosa", "--vela", "ethos-u9").code == 2


def test_nothing_is_written_where_vela_refuses(run: Run, folder: Path, int16_matmul: Path) -> None:
    ran = run("rewrite", "matmul.tosa", "-o", "out.tosa", "--pipeline", "int16", "--vela", U55, "--report", "r.json")
    assert (ran.code, ran.no_traceback) == (1, True)
    assert "refuses it for ethos-u55-128: MATMUL" in ran.out
    assert ran.last_line.endswith("; refused by Vela; nothing written")
    found = json.loads((folder / "r.json").read_text())
    assert (found["output"], found["error"], found["vela"]["accepted"]) == (None, None, False)
    assert files(folder) == ["matmul.tosa", "model.tosa", "r.json"]


def test_nothing_is_written_where_vela_would_be_wrong(run: Run, folder: Path, wide_bias: Path) -> None:
    kept = ["rewrite", "bias.tosa", "-o", "out.tosa", "--check", "none", "--vela", U55, "--report", "r.json"]
    ran = run(*kept, "--pipeline", "int16")  # which leaves the bias as it is
    assert (ran.code, ran.no_traceback) == (1, True)
    assert ran.last_line.endswith("; refused for Vela; nothing written")
    assert json.loads((folder / "r.json").read_text())["vela"]["hazards"]
    assert files(folder) == ["bias.tosa", "model.tosa", "r.json"]

    ran = run(*kept, "--pipeline", "ethos-u")  # which splits it
    assert ran.code == 0
    assert files(folder) == ["bias.tosa", "model.tosa", "out.tosa", "out_vela.npz", "r.json"]


def test_a_stateful_model_is_compiled_with_its_state_outside_only(run: Run, folder: Path) -> None:
    shared = CORPUS.parents[2] / "shared" / "corpus" / "models" / "wakeword_alexa_a8w8.tosa"
    if not shared.exists():
        pytest.skip("the shared corpus is not there")
    shutil.copy(shared, folder / "wakeword.tosa")
    command = ["rewrite", "wakeword.tosa", "-o", "out.tosa", "--check", "none", "--vela", U85]
    ran = run(*command, "--pipeline", "int16")
    assert (ran.code, ran.no_traceback) == (1, True)
    assert 'error: IDENTITY with VARIABLE_READ attributes -> "layer_66": it reads or writes a VARIABLE' in ran.err
    assert not (folder / "out.tosa").exists()
    ran = run(*command, "--pipeline", "ethos-u")
    assert ran.code == 0
    assert 'feeds input "stream_10/states" of the next run' in ran.err


# ---------------------------------------------------------------- Vela is not there
@pytest.mark.usefixtures("without_vela")
@pytest.mark.parametrize("command", [["vela", "missing.tosa"], ["rewrite", "missing.tosa", "--vela", U85]])
def test_without_vela_the_way_to_it_is_told_before_any_work(run: Run, command: list[str]) -> None:
    ran = run(*command)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == 'error: Vela is not installed; run: pip install "tosakit[vela]"\n'


@pytest.mark.usefixtures("without_vela")
def test_a_target_needs_no_vela(run: Run) -> None:
    assert run("rewrite", "model.tosa", "--target", U85).code == 0
