"""What the user got wrong ends with exit code 2 and one message: what, where, and what to do. Nothing is written."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.cli.conftest import CORPUS, Run, files
from tosakit.io.writer import dumps
from tosakit.ir.program import Program, Region, Version


def put(content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / "bad.tosa").write_bytes(content)  # type: ignore[return-value]


def of_version(*version: int) -> bytes:
    return dumps(Program([Region("main", [])], Version(*version)))


REAL = (CORPUS / "add_a16w8.tosa").read_bytes()

FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda folder: None, "cannot read bad.tosa: No such file or directory"),
    "a folder": (lambda folder: (folder / "bad.tosa").mkdir(), "cannot read bad.tosa: Is a directory"),
    "empty": (put(b""), "bad.tosa: the file has 0 bytes, too few for a TOSA flatbuffer; is it truncated?"),
    "text": (put(b"not a flatbuffer at all"), "bad.tosa: not a TOSA flatbuffer: identifier is b'a fl', not b'TOSA'"),
    "truncated": (put(REAL[: len(REAL) // 2]), "bad.tosa: "),
    "TOSA 0.80": (put(of_version(0, 80, 0)), "bad.tosa: the file is TOSA 0.80.0; tosakit reads 1.0 and 1.1"),
    "TOSA 2.0": (put(of_version(2, 0, 0)), "bad.tosa: the file is TOSA 2.0.0; tosakit reads 1.0 and 1.1"),
}


@pytest.mark.parametrize("command", ["rewrite", "show", "compare", "vela"])
@pytest.mark.parametrize("kind", FILES)
def test_files_that_cannot_be_read(run: Run, folder: Path, command: str, kind: str) -> None:
    if command == "vela":
        pytest.importorskip("ethosu.vela")
    make, message = FILES[kind]
    make(folder)
    before = files(folder)
    others = {"compare": ["bad.tosa"], "rewrite": ["-o", "out.tosa"]}
    ran = run(command, "bad.tosa", *others.get(command, []))
    assert ran.code == 2
    assert ran.err.startswith(f"error: {message}"), ran.err
    assert ran.out == ""
    assert ran.no_traceback
    assert files(folder) == before


def test_a_file_without_a_block_has_nothing_to_rewrite(run: Run, folder: Path) -> None:
    put(of_version(1, 0, 0))(folder)
    ran = run("rewrite", "bad.tosa", "-o", "out.tosa")
    assert (ran.code, ran.no_traceback) == (2, True)
    assert "no region with a block" in ran.err
    assert not (folder / "out.tosa").exists()


OPTIONS: list[tuple[list[str], str]] = [
    (["--rules", "splt_int48_bias"], 'unknown rule "splt_int48_bias"; did you mean split_int48_bias'),
    (["--rules", ""], 'unknown rule ""; there are: widen_int8_activations, '),
    (["--rules", "split_int48_bias,"], 'unknown rule ""; there are: '),
    (["--pipeline", "int61"], 'unknown pipeline "int61"; did you mean int16?'),
    (["--pipeline", "everything"], 'unknown pipeline "everything"; there are: int16, ethos-u'),
    (["--set", "widen_int8_activations=1"], "--set widen_int8_activations=1: expected RULE.OPTION=VALUE"),
    (["--set", "nobody.x=1"], 'unknown rule "nobody"'),
    (
        ["--set", "widen_int8_activations.smoth=1"],
        'unknown option of widen_int8_activations "smoth"; did you mean smooth?',
    ),
    (
        ["--set", "widen_int8_activations.smooth=often"],
        '"often" is no value of widen_int8_activations.smooth; it takes bool',
    ),
    (
        ["--set", "widen_int8_activations.io=int4"],
        '"int4" is no value of widen_int8_activations.io; it takes one of int16, int8',
    ),
    (["--set", "split_int48_bias.when=all"], "split_int48_bias.when has no effect: split_int48_bias is not among"),
    (["--pipeline", "ethos-u", "--io", "int8"], "widen_int8_activations.io has no effect"),
    (["--io", "int4"], "argument --io: invalid choice: 'int4'"),
    (["--check", "nome"], "did you mean none?"),
    (["--target", "ethos-u55"], 'unknown target "ethos-u55"; did you mean ethos-u55-'),
    (["--vela", "ethos-85-256"], 'unknown accelerator "ethos-85-256"; did you mean ethos-u85-256'),
    (["--vectors", "0"], "--vectors 0: at least one vector is needed; to skip the check type --check none"),
    (["--vectors", "many"], "argument --vectors: invalid int value: 'many'"),
    (["--seed", "-1"], "--seed -1: give a number, 0 or more"),
    (["--stop-after", "-1"], "--stop-after -1: give a number of rewrites, 0 or more"),
    (["--pipline", "int16"], "unrecognized arguments: --pipline int16; did you mean --pipeline"),
    (["--pipe", "int16"], "unrecognized arguments: --pipe int16"),
    (["--rules", "a", "--pipeline", "b"], "argument --pipeline: not allowed with argument --rules"),
    (["--rules-module", "no_such_rules"], 'cannot import the rules module "no_such_rules"'),
    (["--qparams", "missing.json"], "cannot read missing.json: No such file or directory"),
    (["-o", "missing/out.tosa"], "--output missing/out.tosa: the folder"),
    (["--report", "missing/r.json"], "--report missing/r.json: the folder"),
    (["--trace", "missing/t.jsonl"], "--trace missing/t.jsonl: the folder"),
    (["--report", "."], "cannot write --report .: it is a folder"),
    (["--report", "model.tosa"], "--report model.tosa is also the input; they must be different files"),
    (["--trace", "./model.tosa"], "--trace ./model.tosa is also the input"),
    (["-o", "same", "--report", "same"], "--report same is also --output"),
    (["-o", "-", "--report", "-"], "--report - is also --output"),
    (["-o", "sub", "--qparams", "sub"], "--output sub is also --qparams"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    OPTIONS,
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "nothing",
)
def test_options_that_cannot_be(run: Run, folder: Path, arguments: list[str], message: str) -> None:
    before = files(folder)
    given = [] if "-o" in arguments else ["-o", "out.tosa"]
    ran = run("rewrite", "model.tosa", *given, *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.startswith("error: ")
    assert ran.out == ""
    assert ran.no_traceback
    assert files(folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: the following arguments are required: COMMAND\n  tosakit --help lists what there is"),
        (["rewirte", "x"], "did you mean rewrite?"),
        (["rewrite"], "error: the following arguments are required: IN\n  tosakit rewrite --help"),
        (["rules", "splt_int48_bias"], 'error: unknown rule "splt_int48_bias"; did you mean split_int48_bias'),
        (["show", "model.tosa", "--values", "-1"], "error: --values -1: give a number of values, 0 or more"),
        (["compare", "model.tosa", "model.tosa", "--vectors", "0"], "error: 0 vectors given"),
        (["compare", "model.tosa", "model.tosa", "--seed", "-1"], "error: seed -1 is negative"),
        (["compare", "-", "-"], "error: only one of the two files can come from stdin"),
        (["vela", "model.tosa", "--accelerator", "u85"], 'error: unknown accelerator "u85"; there are: ethos-u55-32'),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "nothing",
)
def test_commands_that_cannot_be(run: Run, arguments: list[str], message: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out, ran.no_traceback) == (2, "", True)
    assert message in ran.err


def test_a_folder_that_cannot_be_written(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "locked").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: "locked" not in str(path))  # root may write anywhere
    ran = run("rewrite", "model.tosa", "-o", "locked/out.tosa")
    assert ran.code == 2
    assert f"cannot write --output locked/out.tosa: the folder {folder / 'locked'} is not writable" in ran.err


def test_a_place_that_fails_in_the_end(run: Run, folder: Path) -> None:
    ran = run("rewrite", "model.tosa", "-o", "/proc/out.tosa", "--check", "none")
    assert (ran.code, ran.no_traceback) == (2, True)
    assert ran.last_line.startswith("error: cannot write /proc/out.tosa: ")
    assert files(folder) == ["model.tosa"]


def test_wrong_quantisation_parameters_name_the_file_and_the_tensor(run: Run, folder: Path) -> None:
    (folder / "model.qparams.json").write_text('{"tensors": {"x": {"scale": -1.0}}}')
    ran = run("rewrite", "model.tosa", "-o", "out.tosa")
    assert ran.code == 2
    assert ran.err.startswith('error: model.qparams.json: tensor "x": quantisation scale -1.0')


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_end_with_a_message(run: Run, folder: Path, seed: int) -> None:
    """Bytes of a real model changed at random: it is refused, or it happens to be a model all the same."""
    random, data = Random(seed), bytearray(REAL)
    for _ in range(random.choice([1, 2, 8])):
        data[random.randrange(len(data))] = random.choice([0, 1, 127, 128, 255])
    put(bytes(data))(folder)
    command = ["show", "bad.tosa"] if seed % 4 == 0 else ["rewrite", "bad.tosa", "-o", "out.tosa", "--check", "none"]
    ran = run(*command)
    assert ran.code in (0, 2), ran.err
    assert ran.no_traceback
    assert (ran.code == 0) or not (folder / "out.tosa").exists()
