"""tosakit rules, show and compare; the help."""

import importlib.util
import json
from pathlib import Path

import pytest

import rewrites
from tests.cli.conftest import BAD, Run, sums
from tests.support.build import Net
from tosakit import __version__
from tosakit.io.writer import save
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor


# ---------------------------------------------------------------- rules
def test_rules_lists_every_rule_and_pipeline(run: Run) -> None:
    ran = run("rules")
    assert (ran.code, ran.err) == (0, "")
    for step in rewrites.RULES:
        assert step.name in ran.out
    for name in rewrites.PIPELINES:
        assert f"\n{name} " in ran.out
    assert " inf " not in ran.out


@pytest.mark.parametrize("step", rewrites.RULES, ids=lambda step: step.name)
def test_rules_explains_one_with_picture_contract_and_options(run: Run, step: rewrites.Step) -> None:
    ran = run("rules", step.name)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{step.name} (")
    assert step.summary in ran.out
    assert "\ncontract: " in ran.out
    assert "▶" in ran.out, "the picture"


def test_rules_as_json(run: Run) -> None:
    found = json.loads(run("rules", "--json").out)
    assert [entry["name"] for entry in found["rules"]] == [step.name for step in rewrites.RULES]
    assert {name: tuple(steps) for name, steps in found["pipelines"].items()} == {
        name: tuple(step.name for step in steps) for name, steps in rewrites.PIPELINES.items()
    }
    one = json.loads(run("rules", "split_int48_bias", "--json").out)
    assert one in found["rules"]
    assert one["options"] == [{"name": "when", "default": "target", "type": "one of target, all"}]


def test_rules_of_other_modules_are_listed_too(run: Run) -> None:
    ran = run("rules", "--rules-module", BAD)
    assert "chase" not in ran.out
    assert "\nlie " in ran.out
    assert run("rules", "lie", "--rules-module", BAD).out.startswith("lie (rule): For a test.")


# ---------------------------------------------------------------- show
def test_show_prints_the_text_form(run: Run) -> None:
    ran = run("show", "model.tosa")
    assert (ran.code, ran.err) == (0, "")
    assert "%sum1: INT32[4] = ADD(%x, %const)" in ran.out
    assert run("show", "model.tosa", "--values", "0").out != ran.out


def test_show_as_json(run: Run) -> None:
    assert json.loads(run("show", "model.tosa", "--json").out)["regions"]


def test_names_that_the_terminal_cannot_show_are_no_fault(run: Run, folder: Path) -> None:
    net = Net()
    save(net.program(net.identity(net.input("größe", DType.INT8, (1,)), "\N{SNOWMAN}")), folder / "names.tosa")
    assert "größe" in run("show", "names.tosa").out


# ---------------------------------------------------------------- compare
@pytest.mark.refmodel
def test_compare_equal_files(run: Run) -> None:
    ran = run("compare", "model.tosa", "model.tosa", "--vectors", "5", "--seed", "2")
    assert ran.code == 0
    assert ran.out.splitlines()[0].strip() == "equal"
    assert ran.last_line.startswith("equal; ")
    assert ran.last_line.endswith("seed 2")


@pytest.mark.refmodel
def test_compare_different_files(run: Run, folder: Path) -> None:
    other = sums(3)
    block = other.main
    last = block.ops[-1]
    block.set_operand(last, 1, block.ops[0].output)  # + 1 instead of + 3
    save(other, folder / "other.tosa")
    ran = run("compare", "model.tosa", "other.tosa", "--vectors", "1", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["verdict"], found["vectors"]) == (1, "different", 1)
    assert found["outputs"] == [
        {"name": "sum3", "max_lsb": 2.0, "fraction_different": 1.0, "sqnr_db": pytest.approx(9.54, abs=0.01)}
    ]
    assert ran.last_line == "different; 1 vectors, 0 skipped, seed 0; at most 2 LSB apart, SQNR 9.5 dB"


@pytest.mark.refmodel
def test_compare_files_with_other_interfaces(run: Run, folder: Path) -> None:
    net = Net()
    save(net.program(net.identity(net.input("x", DType.INT16, (4,)), "sum3")), folder / "other.tosa")
    ran = run("compare", "model.tosa", "other.tosa")
    assert (ran.code, ran.out, ran.no_traceback) == (1, "", True)
    assert ran.err == (
        'error: the programs have different inputs, so nothing can be compared: "x" INT32 [4] against "x" INT16 [4]\n'
    )


def test_nothing_but_the_verifier_sees_an_illegal_file(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sums(3)
    first = other.main.ops[1]
    other.main.set_operand(first, 1, other.main.add_tensor(Tensor("nothing", DType.INT8, (4,))))
    save(other, folder / "illegal.tosa")
    monkeypatch.setattr("tosakit.oracle.refmodel.run_child", lambda *_, **__: pytest.fail("a native tool was run"))
    monkeypatch.setattr("tosakit.backend.vela.run_child", lambda *_, **__: pytest.fail("a native tool was run"))
    commands = [["compare", "model.tosa", "illegal.tosa"], ["compare", "illegal.tosa", "model.tosa"]]
    commands += [["rewrite", "illegal.tosa"]]
    if importlib.util.find_spec("ethosu") is not None:
        commands += [["vela", "illegal.tosa"], ["rewrite", "illegal.tosa", "--vela", "ethos-u85-256"]]
    for command in commands:
        ran = run(*command)
        assert (ran.code, ran.out, ran.no_traceback) == (2, "", True), command
        assert "illegal.tosa is not legal TOSA" in ran.err or "the program is not legal TOSA" in ran.err
        assert "nothing" in ran.err


# ---------------------------------------------------------------- help
@pytest.mark.parametrize("command", [[], ["rewrite"], ["rules"], ["show"], ["compare"], ["vela"]])
def test_help_says_what_there_is(run: Run, command: list[str]) -> None:
    ran = run(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: tosakit{' ' if command else ''}{' '.join(command)} ")
    assert command in (["rules"], ["show"]) or "exit codes: 0 done" in ran.out.replace("\n", " ")


def test_version(run: Run) -> None:
    assert run("--version").out == f"tosakit {__version__}\n"
