"""tosakit rewrite: what it writes, what it prints, and how the last line reads."""

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import BAD, CORPUS, Run, files
from tests.support.build import Net
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.ir.enums import DType

pytestmark = pytest.mark.refmodel

LAST_LINE = re.compile(r"\d+ ops -> \d+ ops; \d+ rewrites by \d+ rules; .*\d+ vectors, seed \d+")


def test_the_main_job(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("rewrite", "int8.tosa", "-o", "out.tosa", "--vectors", "8", "--seed", "7")
    assert ran.code == 0
    program = load(folder / "out.tosa")
    assert [t.dtype for t in (*program.main.inputs, *program.main.outputs)] == [DType.INT16, DType.INT16]
    assert [t.name for t in program.main.inputs] == [t.name for t in load(int8_model).main.inputs]
    before, after = load(int8_model).operator_count, program.operator_count
    assert LAST_LINE.fullmatch(ran.last_line)
    assert ran.last_line.startswith(f"{before} ops -> {after} ops; ")
    assert re.search(
        r"changes precision; max [\d.]+ LSB; SQNR [\d.]+ dB against the original; 8 vectors, seed 7$", ran.err
    )
    assert "widen_int8_activations" in ran.out
    assert "against the original" in ran.out
    assert files(folder) == ["int8.tosa", "model.tosa", "out.tosa"]


def test_a_result_too_large_for_other_tools_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("rewrite", "model.tosa", "-o", "out.tosa", "--check", "none", "--rules", "remove_dead_code")
    assert "tables" not in run(*arguments).err
    monkeypatch.setattr("tosakit.cli.rewrite.MOST_TABLES", 18)
    ran = run(*arguments)
    assert (ran.code, "warning: the result has 19 tables; tosa_serializer" in ran.err) == (0, True), ran.err


def test_an_int8_interface_is_kept_with_a_warning(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("rewrite", "int8.tosa", "-o", "out.tosa", "--io", "int8", "--vectors", "2")
    assert ran.code == 0
    assert "warning: with an int8 interface" in ran.err
    main = load(folder / "out.tosa").main
    assert [t.dtype for t in (*main.inputs, *main.outputs)] == [DType.INT8, DType.INT8]


def test_exact_rewrites_say_so(run: Run) -> None:
    ran = run("rewrite", "model.tosa", "-o", "out.tosa", "--rules-module", BAD, "--rules", "good", "--seed", "7")
    assert re.fullmatch(
        r"6 ops -> 6 ops; 3 rewrites by 1 rules; exact; \d+ vectors, seed 7; "
        r"\d+ more skipped, where the original is not valid",
        ran.last_line,
    )


def test_of_several_contracts_of_a_rule_the_weakest_is_told(run: Run, folder: Path) -> None:
    net = Net()
    x = net.input("x", DType.INT16, (4,))
    doubled = net.add(x, x, "doubled")
    save(net.program(net.add(doubled, x, "tripled")), folder / "sums.tosa")
    scales = {name: {"scale": scale} for name, scale in (("x", 0.5), ("doubled", 0.5), ("tripled", 0.7))}
    (folder / "sums.qparams.json").write_text(json.dumps({"tensors": scales}))
    ran = run("rewrite", "sums.tosa", "--vectors", "4", "--report", "r.json")
    exact, bounded = (e["contract"]["lsb"] for e in json.loads((folder / "r.json").read_text())["rewrites"][:2])
    assert exact < bounded
    assert f"within {bounded:.3g}" in ran.out
    assert "or better" in ran.out


def test_nothing_to_do_says_so_and_writes_the_same_bytes(run: Run, folder: Path) -> None:
    ran = run("rewrite", "model.tosa", "-o", "out.tosa")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "6 ops -> 6 ops; 0 rewrites by 0 rules; exact; unchanged\n"
    assert (folder / "out.tosa").read_bytes() == (folder / "model.tosa").read_bytes()


def test_without_an_output_nothing_is_written(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("rewrite", "int8.tosa", "--vectors", "2")
    assert (ran.code, files(folder)) == (0, ["int8.tosa", "model.tosa"])
    assert ran.last_line.endswith("; 2 vectors, seed 0; nothing written (no -o)")


def test_the_output_may_take_the_place_of_the_input(run: Run, folder: Path, int8_model: Path) -> None:
    before = hashlib.sha256(int8_model.read_bytes()).hexdigest()
    ran = run("rewrite", "int8.tosa", "-o", "int8.tosa", "--vectors", "2", "--report", "r.json")
    assert ran.code == 0
    assert load(int8_model).main.inputs[0].dtype == DType.INT16
    report = json.loads((folder / "r.json").read_text())
    assert report["input"]["sha256"] == before
    assert report["output"]["sha256"] == hashlib.sha256(int8_model.read_bytes()).hexdigest()


def test_the_interface_stays_int8_where_that_is_asked_for(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("rewrite", "int8.tosa", "-o", "out.tosa", "--io", "int8", "--vectors", "4")
    assert ran.code == 0
    assert ran.err.startswith("warning: with an int8 interface its own rounding is the floor")
    program = load(folder / "out.tosa")
    assert [t.dtype for t in (*program.main.inputs, *program.main.outputs)] == [DType.INT8, DType.INT8]


def test_a_target_adds_its_pipeline_and_the_clean_up_runs_once(run: Run, folder: Path) -> None:
    run("rewrite", "model.tosa", "--target", "ethos-u55-128", "--report", "r.json", "--check", "none")
    steps = json.loads((folder / "r.json").read_text())["steps"]
    assert steps.index("widen_int8_activations") < steps.index("split_int48_bias") < steps.index("remove_dead_code")
    assert len(steps) == len(set(steps))
    run("rewrite", "model.tosa", "--target", "ethos-u55-128", "--pipeline", "int16", "--report", "r.json")
    assert "split_int48_bias" not in json.loads((folder / "r.json").read_text())["steps"]


# ---------------------------------------------------------------- checking
def test_no_check_must_be_asked_for_and_is_told(run: Run, folder: Path) -> None:
    lie = ["rewrite", "model.tosa", "-o", "out.tosa", "--rules-module", BAD, "--rules", "lie"]
    assert run(*lie).code == 1
    assert not (folder / "out.tosa").exists()
    ran = run(*lie, "--check", "none")
    assert (ran.code, ran.last_line) == (0, "6 ops -> 6 ops; 3 rewrites by 1 rules; not checked")
    assert (folder / "out.tosa").exists()


def test_each_checks_every_rule_set(run: Run, int8_model: Path) -> None:
    ran = run("rewrite", "int8.tosa", "--check", "each", "--vectors", "3")
    assert (ran.code, LAST_LINE.match(ran.last_line) is not None) == (0, True)


def test_a_large_model_gets_fewer_vectors_and_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, int8_model: Path
) -> None:
    monkeypatch.setattr("tosakit.oracle.cost.BUDGET", 15_000_000)
    ran = run("rewrite", "int8.tosa")
    count = int(re.search(r"(\d+) vectors, seed 0", ran.last_line).group(1))  # type: ignore[union-attr]
    assert 4 <= count < 64
    assert f"note: {count} input vectors instead of 64, because one run takes about" in ran.err
    assert "4 vectors, seed 0" in run("rewrite", "int8.tosa", "--vectors", "4").last_line


# ---------------------------------------------------------------- stop, trace, bisection
def test_stop_after_stops_and_says_so(run: Run, folder: Path) -> None:
    ran = run(
        "rewrite", "model.tosa", "--rules-module", BAD, "--rules", "good", "--stop-after", "2", "--trace", "t.jsonl"
    )
    assert ran.last_line.startswith("6 ops -> 6 ops; 2 rewrites by 1 rules; exact; ")
    assert "; stopped after 2; nothing written" in ran.last_line
    lines = [json.loads(line) for line in (folder / "t.jsonl").read_text().splitlines()]
    assert lines == [
        {
            "number": number,
            "rule": "good",
            "block": "main",
            "operators": [f'ADD -> "sum{number}"'],
            "contract": {"kind": "exact", "lsb": 0, "because": ""},
            "detail": "",
        }
        for number in (1, 2)
    ]


def test_the_first_bad_rewrite_is_found_by_bisection(run: Run) -> None:
    command = ["rewrite", "model.tosa", "--rules-module", BAD, "--rules", "good,lie", "--vectors", "2", "--stop-after"]
    codes = [run(*command, count).code for count in (0, 1, 2)]
    assert codes == [0, 0, 1]


# ---------------------------------------------------------------- sidecars, own rules, stdout
def test_quantisation_parameters_beside_the_model_are_used_and_written_again(run: Run, folder: Path) -> None:
    (folder / "model.qparams.json").write_text('{"tensors": {"sum3": {"scale": 0.5}}}')
    ran = run("rewrite", "model.tosa", "-o", "out.tosa", "--check", "none")
    assert "quantisation parameters from model.qparams.json" in ran.err
    assert json.loads((folder / "out.qparams.json").read_text()) == {
        "tensors": {"sum3": {"scale": 0.5, "zero_point": 0}}
    }


def test_rules_of_the_current_folder_are_found(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(folder))])
    (folder / "rules_of_this_folder.py").write_text("from tests.support.bad_rules import RULES\nRULES = RULES[:1]\n")
    ran = run("rewrite", "model.tosa", "--rules-module", "rules_of_this_folder", "--rules", "good", "--vectors", "1")
    assert ran.code == 0


def test_a_report_on_stdout_leaves_the_tables_away(run: Run, int8_model: Path) -> None:
    ran = run("rewrite", "int8.tosa", "--vectors", "2", "--report", "-")
    assert json.loads(ran.out)["report_version"] == 1


def test_a_trace_on_stdout_is_json_lines_alone(run: Run) -> None:
    ran = run("rewrite", "model.tosa", "--rules-module", BAD, "--rules", "good", "--check", "none", "--trace", "-")
    assert [json.loads(line)["number"] for line in ran.out.splitlines()] == [1, 2, 3]


# ---------------------------------------------------------------- models that are unlike others
SHARED = Path(__file__).parents[3] / "shared" / "corpus" / "models"


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpus is not there")
@pytest.mark.parametrize("pipeline", ["int16", "ethos-u"])
@pytest.mark.parametrize(
    "name", ["mp_selfie_segmentation", "mlp3_fp", "mlp3_bf16_bf16", "cond_fp_cf", "wakeword_hey_jarvis_a8w8"]
)
def test_models_with_foreign_operators_floats_control_flow_or_state(
    run: Run, folder: Path, name: str, pipeline: str
) -> None:
    ran = run(
        "rewrite", SHARED / f"{name}.tosa", "-o", "out.tosa", "--pipeline", pipeline, "--target", "ethos-u55-128",
        "--vectors", "2",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert load(folder / "out.tosa").operator_count > 0
    if name.startswith("wakeword"):
        assert ("variables: every run starts from their initial values" in ran.err) == (pipeline == "int16")
        assert ("goes on from the state of the one before" in ran.err) == (pipeline == "ethos-u")
        assert ("IDENTITY with VARIABLE_READ attributes" in ran.err) == (pipeline == "int16")


def test_operators_of_ordinary_models_have_ordinary_names(run: Run) -> None:
    ran = run("rewrite", CORPUS / "dscnn_kws_a8w8.tosa", "--check", "none")
    assert "FOREIGN" not in ran.err
