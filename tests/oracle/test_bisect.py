"""``bisect`` finds the first tensor that differs or cannot be computed, and nothing where there is nothing."""

import json
from pathlib import Path

import pytest

import tosakit
from tests.support.build import Net
from tests.support.programs import CORPUS
from tosakit.cli import main
from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.program import Program
from tosakit.oracle.bisect import Origin, find_parting, origin_of
from tosakit.testing import Seeded
from tosakit.testing.programs import operator

pytestmark = pytest.mark.refmodel
KWS = next(path for path in CORPUS if path.stem == "dscnn_kws_a8w8")


def chain(*addends: int, extra: bool = False) -> Program:
    """ADDs of these numbers to an INT8 input in a row, results t0, t1, ...; ``extra``: with an IDENTITY in front."""
    net = Net()
    x = net.op(ops.Cast(), (net.input("x", DType.INT8, (1, 2)),), DType.INT32, (1, 2), "wide")
    x = net.identity(x, "other") if extra else x
    for number, addend in enumerate(addends):
        x = net.add(x, net.const([[addend]], DType.INT32), f"t{number}")
    return net.program(x)


def test_the_first_tensor_that_differs_is_named_with_both_operators() -> None:
    found = find_parting(chain(1, 2, 3, 4), chain(1, 2, 5, 4, extra=True), origin=Origin({"t2": ("a_rule",)}))
    assert (found.verdict, found.tensor, found.difference, found.last_equal) == ("parted", "t2", 2.0, "t1")
    assert found.compared == 5  # the CAST too
    assert "%t2" in found.before[-1]
    assert "%t1" in found.before[0]
    assert found.after[-1] == found.before[-1]
    assert found.rules == ("a_rule",)


def test_a_difference_that_goes_away_again_is_found_too() -> None:
    found = find_parting(chain(1, 2, 3, 4), chain(1, 3, 2, 4))
    assert (found.tensor, found.difference) == ("t1", 1.0)


def test_the_tolerance_is_a_limit_and_not_a_default() -> None:
    assert find_parting(chain(1, 2), chain(1, 5), tolerance=3).verdict == "together"
    assert find_parting(chain(1, 2), chain(1, 5), tolerance=2.9).tensor == "t1"
    for wrong in (-1.0, float("nan")):
        with pytest.raises(InvalidArgument, match="a tolerance of"):
            find_parting(chain(1), chain(1), tolerance=wrong)


def test_the_first_tensor_that_cannot_be_computed_is_found_by_halves() -> None:
    """INT32 rescaled by S32 must be below 2^(s-1); the second program asks that of a value that is not."""

    def program(shift: int) -> Program:
        net = Net()
        x = net.input("x", DType.INT8, (1, 2))
        wide = net.rescale(x, DType.INT32, 1 << 30, 20, "wide", scale32=True)
        t0 = net.add(wide, net.const([[1]], DType.INT32), "t0")
        t1 = net.rescale(t0, DType.INT32, 1 << 15, shift, "t1", scale32=True)
        return net.program(net.identity(net.add(t1, t1, "t2"), "y"))

    found = find_parting(program(40), program(15), vectors=8)
    assert (found.verdict, found.tensor, found.last_equal) == ("invalid", "t1", "t0")
    assert "unpredictable" in found.message
    assert "RESCALE" in found.after[-1]


def test_programs_without_common_tensors_or_valid_runs_say_so() -> None:
    assert find_parting(chain(1, 2), chain(1, 2)).verdict == "together"
    overflowing = chain((1 << 31) - 1, (1 << 31) - 1, (1 << 31) - 1)
    found = find_parting(overflowing, chain(1, 1, 1), vectors=4)
    assert found.verdict == "unknown"
    assert "the first program is unpredictable" in found.message


def test_a_rewritten_model_parts_where_its_report_says_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["rewrite", str(KWS), "-o", "wide.tosa", "--rules", "widen_int8_activations", "--report", "r.json"]
    assert main([*words, "--vectors", "2"]) == 0
    assert main(["bisect", str(KWS), "wide.tosa", "--report", "r.json", "--vectors", "2", "--tolerance", "100"]) == 0
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    found = find_parting(tosakit.load(KWS), tosakit.load("wide.tosa"), vectors=2, origin=origin_of(report))
    assert found.verdict == "parted"
    assert found.difference > 0


def test_the_command_line_prints_both_sides_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tosakit.save(chain(1, 2, 3), "a.tosa")
    tosakit.save(chain(1, 2, 4), "b.tosa")
    assert main(["bisect", "a.tosa", "b.tosa"]) == 1
    said = capsys.readouterr()
    assert 'parted at "t2": 1 LSB, beyond 0; 4 tensors compared on 64 vectors, seed 0' in said.err
    assert "before:" in said.out
    assert "after:" in said.out
    assert main(["bisect", "a.tosa", "b.tosa", "--json", "--vectors", "4"]) == 1
    assert json.loads(capsys.readouterr().out)["tensor"] == "t2"
    assert main(["bisect", "a.tosa", "a.tosa", "--vectors", "4"]) == 0
    assert "within 0 LSB everywhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"), [("{", "cannot read the report"), ("[]", "no JSON object"), ("{}", "is no")]
)
def test_a_report_that_is_none_is_the_user_s_fault(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tosakit.save(chain(1), "a.tosa")
    Path("r.json").write_text(text, encoding="utf-8")
    assert main(["bisect", "a.tosa", "a.tosa", "--report", "r.json"]) == 2
    assert message in capsys.readouterr().err


def test_variables_and_other_interfaces_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tosakit.save(chain(1), "a.tosa")
    assert main(["bisect", "a.tosa", str(KWS)]) == 1
    said = capsys.readouterr().err
    assert 'the second program has no tensor "t0", which is an output of the first' in said
    assert "where AFTER was rewritten from BEFORE, give the report of that: --report" in said
    tosakit.save(operator(Seeded(0), ops.VariableRead), "state.tosa")
    assert main(["bisect", "a.tosa", "state.tosa"]) == 2
    assert 'the second program has a variable, "state0"' in capsys.readouterr().err
