"""tosakit ranges on the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.build import Net
from tosakit.io.writer import save
from tosakit.ir.enums import DType


@pytest.fixture
def summing(tmp_path: Path) -> str:
    net = Net()
    x = net.input("x", DType.INT32, (2,))
    save(net.program(net.add(x, net.const([5, 5], DType.INT32))), tmp_path / "sum.tosa")
    return str(tmp_path / "sum.tosa")


def test_it_lists_tensors_and_what_is_not_proved(run: Run, summing: str) -> None:
    ran = run("ranges", summing)
    assert ran.code == 0
    assert "unknown" in ran.out
    assert "-2147483643 to 2147483652" in ran.out
    assert ran.last_line == "1 operators on integers: 0 safe, 0 unsafe, 1 unknown"


@pytest.mark.parametrize(("limits", "code"), [("0..7", 0), ("2147483643..2147483647", 1)])
def test_inputs_decide(run: Run, summing: str, limits: str, code: int) -> None:
    ran = run("ranges", summing, "--inputs", f"x={limits}", "--json")
    assert ran.code == code
    low, high = map(int, limits.split(".."))
    found = json.loads(ran.out)
    assert found["tensors"][0] == {
        "block": "main",
        "name": "x",
        "dtype": "INT32",
        "shape": [2],
        "low": low,
        "high": high,
    }
    assert found["operators"][0]["verdict"] == ("unsafe" if code else "safe")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x=1", "--inputs x=1: expected NAME=LOW..HIGH"),
        ("y=0..1", 'no input is named "y"; there are x'),
        ("x=1..0", "range [1, 0] given"),
    ],
)
def test_wrong_inputs_are_the_users(run: Run, summing: str, entry: str, message: str) -> None:
    ran = run("ranges", summing, "--inputs", entry)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.no_traceback


@pytest.mark.refmodel
def test_a_witness_is_told_in_one_line(run: Run, summing: str) -> None:
    ran = run("ranges", summing, "--search")
    assert ran.code == 1
    told = " ".join(ran.out.split())
    assert "shown with x from 0 to 2147483647: REQUIRE() fails at " in told
    assert "/" not in told.partition("REQUIRE()")[2]


def test_an_illegal_file_is_said_to_be_one(run: Run, tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", DType.INT16, (2,))
    save(net.program(net.add(x, x)), tmp_path / "illegal.tosa")
    ran = run("ranges", str(tmp_path / "illegal.tosa"), "--search")
    assert ran.code == 0
    assert "the file is not legal TOSA (errors: 1)" in ran.err
    assert ran.no_traceback
