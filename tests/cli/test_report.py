"""The report has exactly the fields that docs/report.md promises, on success and on failure."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import BAD, Run
from tosakit import __version__
from tosakit.io.writer import save
from tosakit.ir.text_parser import parse_program

pytestmark = pytest.mark.refmodel

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
DOCUMENTED = set(re.findall(r"`([a-z][a-z0-9_]*)`", PAGE))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def report(folder: Path) -> dict[str, Any]:
    text = (folder / "r.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert keys(found) <= DOCUMENTED, "every field is described in docs/report.md"
    table = [name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert list(found) == table, "the fields stand in the order of docs/report.md"
    return found


def keys(value: object) -> set[str]:
    if isinstance(value, dict):
        inner = [keys(item) for name, item in value.items() if name != "memory_kib"]
        return set(value).union(*inner)
    return set().union(*(keys(item) for item in value)) if isinstance(value, list) else set()


def test_a_widened_model(run: Run, folder: Path, int8_model: Path) -> None:
    ran = run("rewrite", "int8.tosa", "-o", "out.tosa", "--vectors", "6", "--seed", "3", "--report", "r.json")
    assert ran.code == 0
    found = report(folder)
    assert (found["report_version"], found["tosakit_version"]) == (1, __version__)
    assert found["input"] == {"path": "int8.tosa", "sha256": sha256(int8_model)}
    assert found["output"] == {"path": "out.tosa", "sha256": sha256(folder / "out.tosa")}
    assert (found["error"], found["target"], found["stopped_early"], found["vela"]) == (None, "", False, None)
    assert found["steps"][0] == "widen_int8_activations"
    assert (
        f"{found['ops_before']} ops -> {found['ops_after']} ops; {len(found['rewrites'])} rewrites by" in ran.last_line
    )

    first = found["rewrites"][0]
    assert set(first) == {"rule", "block", "operators", "contract", "detail"}
    assert first["contract"]["kind"] == "changes_precision"
    assert first["contract"]["lsb"] is None
    assert first["contract"]["because"]

    change = found["interface_changes"][0]
    assert (change["before"], change["after"], change["factor"]) == ("INT8", "INT16", 128)

    check = found["check"]
    assert (check["promise"], check["kept"], check["reasons"]) == ("changes precision", True, [])
    outputs = check["outputs"]
    assert (outputs["verdict"], outputs["vectors"], outputs["skipped"], outputs["seed"]) == ("different", 6, 0, 3)
    [output] = outputs["outputs"]
    assert output["max_lsb"] > 0
    assert 0 < output["fraction_different"] <= 1
    assert output["sqnr_db"] > 20


def test_exact_rewrites(run: Run, folder: Path) -> None:
    run("rewrite", "model.tosa", "--rules-module", BAD, "--rules", "good", "--report", "r.json", "--vectors", "4")
    found = report(folder)
    assert found["output"] is None  # no -o
    assert [rewrite["operators"] for rewrite in found["rewrites"]] == [[f'ADD -> "sum{n}"'] for n in (1, 2, 3)]
    assert found["rewrites"][0]["contract"] == {"kind": "exact", "lsb": 0, "because": ""}
    local = found["check"]["rewrites"]
    assert [(r["kept"], r["observed_lsb"], r["message"]) for r in local] == [("kept", 0, "")] * 3
    [output] = found["check"]["outputs"]["outputs"]
    assert (output["max_lsb"], output["fraction_different"], output["sqnr_db"]) == (0, 0, None)


def test_bounds(run: Run, folder: Path) -> None:
    run("rewrite", "model.tosa", "--rules-module", BAD, "--rules", "bounded", "--report", "r.json", "--vectors", "4")
    found = report(folder)
    assert found["rewrites"][0]["contract"] == {"kind": "within_lsb", "lsb": 1, "because": "for a test"}
    assert [r["observed_lsb"] for r in found["check"]["rewrites"]] == [1.0] * 3


def test_refusals_and_diagnostics(run: Run, folder: Path) -> None:
    from tests.support.build import Net
    from tosakit.io.writer import save
    from tosakit.ir.enums import DType

    net = Net()
    x = net.input("x", DType.INT16, (4,))
    save(net.program(net.add(x, x, "y")), folder / "int16.tosa")  # TOSA has no such ADD
    ran = run("rewrite", "int16.tosa", "-o", "out.tosa", "--report", "r.json")
    assert ran.code == 2
    found = report(folder)
    [refusal] = found["refusals"]
    assert (refusal["rule"], refusal["block"], refusal["operator"]) == ("insert_int16_rescale", "main", 'ADD -> "y"')
    assert refusal["reason"]
    assert any("WrongInputType" in finding for finding in found["diagnostics"])
    assert (found["output"], found["check"]) == (None, None)
    assert (found["error"]["kind"], found["error"]["exit_code"]) == ("InvalidModel", 2)
    assert found["error"]["message"].startswith("the program is not legal TOSA and no rule repaired it")


@pytest.mark.parametrize("check", ["end", "each"])
def test_a_broken_promise(run: Run, folder: Path, check: str) -> None:
    ran = run(
        "rewrite", "model.tosa", "-o", "out.tosa", "--rules-module", BAD, "--rules", "lie", "--report", "r.json",
        "--check", check, "--vectors", "4",
    )  # fmt: skip
    assert ran.code == 1
    found = report(folder)
    assert found["output"] is None
    assert not (folder / "out.tosa").exists()
    assert (found["error"]["kind"], found["error"]["exit_code"]) == ("NotEquivalent", 1)
    assert found["check"]["kept"] is False
    assert len(found["check"]["reasons"]) == 4
    assert [r["kept"] for r in found["check"]["rewrites"]] == ["broken"] * 3
    assert len(found["rewrites"]) == 3


@pytest.mark.parametrize(
    ("rules", "kind", "rewrites"),
    [("crash", "RuleBug", 0), ("illegal", "RuleBug", 3), ("unchecked", "NotEquivalent", 3)],
)
def test_other_failures(run: Run, folder: Path, rules: str, kind: str, rewrites: int) -> None:
    ran = run("rewrite", "model.tosa", "-o", "o", "--rules-module", BAD, "--rules", rules, "--report", "r.json")
    found = report(folder)
    assert (found["error"]["kind"], found["error"]["exit_code"]) == (kind, ran.code)
    assert (found["output"], len(found["rewrites"])) == (None, rewrites)
    assert found["steps"] == [rules]


def test_no_report_where_the_input_cannot_be_read(run: Run, folder: Path) -> None:
    assert run("rewrite", "missing.tosa", "--report", "r.json").code == 2
    assert not (folder / "r.json").exists()


def test_check_none_is_null_and_no_rewrite_is_unchanged(run: Run, folder: Path) -> None:
    run("rewrite", "model.tosa", "--report", "r.json", "--check", "none")
    assert report(folder)["check"] is None
    run("rewrite", "model.tosa", "--report", "r.json")
    check = report(folder)["check"]
    assert (check["promise"], check["kept"], check["outputs"], check["rewrites"]) == ("exact", True, None, [])


@pytest.mark.vela
def test_what_vela_says(run: Run, folder: Path, int8_model: Path) -> None:
    pytest.importorskip("ethosu.vela")
    ran = run(
        "rewrite", "int8.tosa", "-o", "o.tosa", "--check", "none", "--vela", "ethos-u85-256", "--report", "r.json"
    )
    assert ran.code == 0
    vela = report(folder)["vela"]
    assert (vela["accepted"], vela["accelerator"], vela["output"]) == (True, "ethos-u85-256", "o_vela.npz")
    assert vela["npu_cycles"] > 0
    assert set(vela["memory_kib"]) == {"sram", "dram", "on_chip_flash", "off_chip_flash"}
    [source] = vela["inputs"]
    assert (source["dtype"], source["bytes"]) == ("INT16", 2 * 12 * 12 * 16)


def test_variables_that_became_inputs_and_outputs(run: Run, folder: Path) -> None:
    program = parse_program(
        """
block "main" (%x: INT8[2]) -> (%y) {
  declare %a: INT8[2] <variable, variable_name="last"> [3, 3]
  declare %b: INT8[2] <variable, variable_name="before"> [1, 2]
  %last: INT8[2] = VARIABLE_READ(%a)
  %y: INT8[2] = VARIABLE_READ(%b)
  %b = VARIABLE_WRITE(%last)
  %a = VARIABLE_WRITE(%x)
}
"""
    )
    save(program, folder / "stateful.tosa")
    ran = run(
        "rewrite",
        "stateful.tosa",
        "--target",
        "ethos-u55-128",
        "--pipeline",
        "ethos-u",
        "--report",
        "r.json",
        "--vectors",
        "5",
    )
    assert ran.code == 0
    assert 'state: output "last_next" feeds input "last" of the next run, which starts as 3 everywhere' in ran.err
    assert "starts with values from 1 to 2, see the report" in ran.err
    assert report(folder)["state"] == [
        {"variable": "a", "input": "last", "output": "last_next", "initial": 3},
        {"variable": "b", "input": "before", "output": "before_next", "initial": [1, 2]},
    ]
    assert report(folder)["check"]["outputs"]["verdict"] == "equal"
