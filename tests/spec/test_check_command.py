"""``tosakit check`` on the command line, and what ``check`` says about neighbourhoods and needs."""

import json
from pathlib import Path

import pytest

import tosakit
from tests.spec.broken_files import chain, written
from tests.support.build import Net
from tosakit.cli import main
from tosakit.errors import InvalidArgument
from tosakit.io.writer import save
from tosakit.ir.enums import DType
from tosakit.spec.check import needs, neighbourhood
from tosakit.spec.target import Target, least

CORPUS = Path(__file__).parents[1] / "corpus"
INT16 = str(CORPUS / "dscnn_kws_a16w8.tosa")
INT8 = str(CORPUS / "dscnn_kws_a8w8.tosa")


def test_a_legal_file_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", INT16, "--profile", "pro-int", "--extension", "int16", "--level", "8k", "--spec", "1.0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{INT16}: 0 errors, 10 warnings; needs PRO-INT + EXT-INT16, level 8K, TOSA 1.0\n")


def test_a_broken_file_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, missing = tmp_path / "broken.tosa", str(tmp_path / "missing.tosa")
    broken.write_bytes(written(chain()[0])[:60])
    assert main(["check", str(broken), missing, INT8, "--json"]) == 2
    captured = capsys.readouterr()
    files = json.loads(captured.out)["files"]
    assert [f["valid"] for f in files] == [False, False, True]
    assert [f["diagnostics"][0]["code"] for f in files] == ["InvalidFile", "UnreadableFile", "ConstantDataTooLong"]
    assert files[0]["needs"] is None
    assert files[2]["needs"] == {"any_of": [["PRO-INT"]], "level": "8K", "version": "1.0"}
    assert captured.err == "3 files, 2 with errors\n"


def test_explain_shows_the_operators_around(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", INT16, "--profile", "pro-int", "--explain"]) == 2
    out = capsys.readouterr().out
    assert "> %tosa_conv2d_default: INT48" in out
    assert main(["check", INT16, "--profile", "pro-int", "--explain", "--json"]) == 2
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert all(d["neighbourhood"] for d in file["diagnostics"])


def test_neighbourhood_reaches_two_steps() -> None:
    main_block = tosakit.load(str(CORPUS / "resblock_a8w8.tosa")).main
    index = next(i for i, op in enumerate(main_block.ops) if op.name == "ADD")
    names = [line[2:].split(" = ")[1].split("(")[0] for line in neighbourhood(main_block, index)]
    assert names == ["RESCALE", "TRANSPOSE", "RESCALE", "ADD", "RESCALE", "CLAMP"]
    assert next(line for line in neighbourhood(main_block, index) if line.startswith("> ")).count("ADD(") == 1
    assert "CONST" not in names


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--profile", "pro-xyz"], 'profile "pro-xyz" does not exist'),
        (["--extension", "int17"], 'extension "int17" does not exist'),
        (["--level", "9k"], 'level "9k" does not exist'),
        (["--spec", "2.0"], 'TOSA version "2.0" is not known here'),
    ],
)
def test_unknown_names_are_the_users_fault(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", INT8, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_names_are_taken_as_people_write_them() -> None:
    assert Target.of(["PRO-INT", "fp"], ["EXT-INT16", "bf16"], "8K", "1.1") == Target(
        ("PRO-INT", "PRO-FP", "EXT-INT16", "EXT-BF16"), "8K", 1
    )
    assert Target.of(extensions=["int16"]).names == ("PRO-INT", "PRO-FP", "EXT-INT16")
    assert Target.of(profiles=["int"]).names == ("PRO-INT",)
    assert Target.of() == Target()
    with pytest.raises(InvalidArgument, match="there are int, fp"):
        Target.of(["int8"])


def test_least_sets() -> None:
    either = (("PRO-INT",), ("PRO-FP",))
    assert least([]) == ((),)
    assert least([either]) == (("PRO-INT",), ("PRO-FP",))
    assert least([either, (("PRO-FP",),)]) == (("PRO-FP",),)
    assert least([either, (("EXT-INT16",),)]) == (("PRO-INT", "EXT-INT16"),)
    assert least([(("EXT-SHAPE",),)]) == (("PRO-INT", "EXT-SHAPE"), ("PRO-FP", "EXT-SHAPE"))
    assert least([(("PRO-FP", "EXT-INT16"),)]) == (("PRO-INT", "PRO-FP", "EXT-INT16"),)


def test_needs_of_real_models() -> None:
    assert str(needs(tosakit.load(INT8))) == "PRO-INT, level 8K, TOSA 1.0"
    assert str(needs(tosakit.load(INT16))) == "PRO-INT + EXT-INT16, level 8K, TOSA 1.0"


def test_check_is_public() -> None:
    assert [d.severity for d in tosakit.check(tosakit.load(INT8), profiles=["pro-int"], level="8k")] == ["warning"] * 10


def refused_for_u55(folder: Path) -> Path:
    net = Net()
    both = net.input("a", DType.INT16, (1, 2, 3)), net.input("b", DType.INT16, (1, 3, 4))
    path = folder / "matmul.tosa"
    save(net.program(net.rescale(net.matmul(*both), DType.INT16, 1 << 14, 20)), path)
    return path


def test_what_a_target_refuses_by_operator_and_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(refused_for_u55(tmp_path))
    assert main(["check", path, "--target", "ethos-u55-128"]) == 1
    printed = capsys.readouterr().out
    assert "ethos-u55-128, Vela 5.2: 1 refused\n" in printed
    assert 'refused: MATMUL -> "acc": "a" is INT16; the target takes MATMUL of INT8 only. ' in printed
    assert "The rule int16_matmul_as_int8 helps (probed)\n" in printed
    after = "  after tosakit rewrite --pipeline ethos-u --target ethos-u55-128: nothing is known against it\n"
    assert printed.endswith(after)
    assert main(["check", path, INT8, "--target", "ethos-u85-256"]) == 0
    assert "nothing is known against it" in capsys.readouterr().out


def test_a_rule_that_would_refuse_is_not_said_to_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net()
    both = net.input("a", DType.INT16, (1, 2, 3)), net.input("b", DType.INT16, (1, 3, 4))
    acc = net.matmul(*both)
    path = tmp_path / "output.tosa"
    save(net.program(net.rescale(acc, DType.INT16, 1 << 14, 20), acc), path)
    assert main(["check", str(path), "--target", "ethos-u55-128"]) == 1
    printed = capsys.readouterr().out
    reason = 'the accumulator "acc" is a block output, so its value must stay as it is'
    assert f"The rule int16_matmul_as_int8 refuses: {reason} (probed)" in printed
    assert "after tosakit rewrite --pipeline ethos-u --target ethos-u55-128: 1 refused" in printed
    assert main(["check", str(path), "--target", "ethos-u55-128", "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)["files"]
    [obstacle] = found["obstacles_after_pipeline"]
    assert obstacle["refusals"] == [{"rule": "int16_matmul_as_int8", "reason": reason}]


def test_what_a_target_refuses_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.tosa"
    broken.write_bytes(b"no model")
    assert main(["check", str(refused_for_u55(tmp_path)), str(broken), "--target", "ethos-u65-256", "--json"]) == 2
    found, unread = json.loads(capsys.readouterr().out)["files"]
    [obstacle] = found["obstacles"]
    assert (found["target"], found["vela_version"]) == ("ethos-u65-256", "5.2")
    assert (obstacle["kind"], obstacle["operator_index"], obstacle["tensors"]) == ("refused", 2, ["acc"])
    assert (obstacle["rules"], obstacle["established"]) == (["int16_matmul_as_int8"], "probed")
    assert (found["obstacles_after_pipeline"], obstacle["refusals"]) == ([], [])
    assert unread["obstacles"] is None


def test_a_target_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", INT8, "--target", "ethos-u55"]) == 2
    assert 'unknown target "ethos-u55"; did you mean' in capsys.readouterr().err
