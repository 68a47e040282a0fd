"""Reduced programs still fail, are legal, small, and the same every time; commands are told by how they end."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tosakit
from tests.support.build import Net
from tosakit.cli import main
from tosakit.errors import InvalidArgument
from tosakit.io.qparams import apply_qparams, save_qparams, sidecar_path
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.text import parse_program
from tosakit.testing import Seeded, reduce_program
from tosakit.testing.command import TIMED_OUT, FailingCommand
from tosakit.testing.programs import program
from tosakit.testing.properties import new_errors


def holds(*kinds: type[Attributes]) -> Callable[[Program], bool]:
    """True for a program with an operator of each kind."""

    def fails(candidate: Program) -> bool:
        found = {type(op.attrs) for block in candidate.blocks for op in block.ops}
        return found.issuperset(kinds)

    return fails


def kinds_of(drawn: Program) -> list[type[Attributes]]:
    return [type(op.attrs) for op in drawn.main.ops if op.inputs]


@pytest.mark.parametrize("seed", range(6))
def test_one_operator_of_many_is_left_alone_with_its_constants(seed: int) -> None:
    drawn = program(Seeded(seed), most=15)
    kind = kinds_of(drawn)[len(kinds_of(drawn)) // 2]
    found = reduce_program(drawn, holds(kind))
    assert found.complete
    left = kinds_of(found.program)
    assert kind in left
    assert len(left) <= 3  # it, what gives it a constant type, what reads an accumulator
    assert not new_errors(drawn, found.program)
    assert all(tensor.is_used for tensor in found.program.main.inputs)
    assert dumps(reduce_program(drawn, holds(kind)).program) == dumps(found.program)


def test_what_comes_behind_goes_too() -> None:
    """The results of the net stay what they are until the program ends earlier."""
    net = tosakit.load(Path(__file__).parents[1] / "corpus" / "dscnn_kws_a16w8.tosa")
    found = reduce_program(net, holds(ops.Table))
    assert kinds_of(found.program) == [ops.Table]
    assert found.tried < 20


def test_two_operators_that_need_each_other_stay() -> None:
    def fails(candidate: Program) -> bool:
        return any(
            op.name == "ADD" and any(t.producer is not None and t.producer.name == "ADD" for t in op.inputs)
            for op in candidate.main.ops
        )

    net = Net()
    x = net.input("x", DType.INT32, (2,))
    for number in range(12):
        x = net.add(x, net.const([number], DType.INT32), f"sum{number}")
        x = net.identity(x, f"same{number}") if number % 3 else x
    original = net.program(x)
    found = reduce_program(original, fails)
    assert kinds_of(found.program) == [ops.Add, ops.Add]
    assert {int(op.output.values()[0]) for op in found.program.main.ops if not op.inputs} == {0}


def test_regions_that_nothing_runs_go_and_bodies_shrink() -> None:
    seed = next(s for s in range(200) if ops.CondIf in kinds_of(program(Seeded(s))))
    drawn = program(Seeded(seed))
    found = reduce_program(drawn, holds(ops.CondIf))
    assert ops.CondIf in kinds_of(found.program)
    assert len(found.program.regions) == 3
    assert sum(len(r.blocks[0].ops) for r in found.program.regions[1:]) == 0
    other = next(kind for kind in kinds_of(drawn) if kind not in (ops.CondIf, ops.WhileLoop))
    alone = reduce_program(drawn, lambda candidate: other in kinds_of(candidate))
    assert len(alone.program.regions) == 1


def test_what_is_in_a_region_comes_out_of_it() -> None:
    nested = parse_program("""
        region "main" { block "main" (%c: BOOL[1], %x: INT8[4]) -> (%y) {
          %y: INT8[4] = COND_IF(%c, %x) {then_graph="then", else_graph="else"} } }
        region "then" { block "then" (%a: INT8[4]) -> (%b) { %n: INT8[4] = BITWISE_NOT(%a)
          %b: INT8[4] = ABS(%n) } }
        region "else" { block "else" (%d: INT8[4]) -> (%e) { %e: INT8[4] = IDENTITY(%d) } }""")
    found = reduce_program(nested, holds(ops.BitwiseNot))
    assert [(region.name, region.blocks[0].name) for region in found.program.regions] == [("main", "main")]
    assert kinds_of(found.program) == [ops.BitwiseNot]


def test_attempts_are_a_bound_and_progress_is_told() -> None:
    told: list[int] = []
    drawn = program(Seeded(5), most=15)
    found = reduce_program(drawn, lambda candidate: False, attempts=7, progress=lambda tried, left: told.append(tried))
    assert (found.tried, found.complete) == (7, False)
    assert told == list(range(1, 8))
    assert dumps(found.program) == dumps(drawn)


# ------------------------------------------------------------------------------------------------ commands
PYTHON = f"{sys.executable} -c"
HAS_ADD = f"{PYTHON} \"import sys; sys.exit(7 if b'sum\\0' in open(sys.argv[1], 'rb').read() else 0)\""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one ADD whose result is named sum, between two IDENTITYs."""
    monkeypatch.chdir(tmp_path)
    net = Net()
    x = net.identity(net.input("x", DType.INT32, (2,)), "first")
    total = net.add(x, net.const([3], DType.INT32), "sum")
    tosakit.save(net.program(net.identity(total, "last"), x), "fault.tosa")
    return tmp_path / "fault.tosa"


def test_the_command_line_writes_the_small_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()
    assert main(["reduce", "fault.tosa", "--failing", HAS_ADD, "-o", "small.tosa"]) == 0
    small = tosakit.load("small.tosa")
    assert [op.name for op in small.main.ops] == ["CONST", "ADD"]
    assert "4 ops -> 2 ops; still exit code 7" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert main(["reduce", "fault.tosa", "--failing", f"{HAS_ADD} {{}}"]) == 0
    assert "ADD" in capsys.readouterr().out


def test_quantisation_parameters_go_along(file: Path) -> None:
    loaded = tosakit.load(file)
    apply_qparams(loaded, {"sum": tosakit.QuantParams((0.5,))})
    save_qparams(loaded, sidecar_path(file))
    wants = f"{PYTHON} \"import sys, os; sys.exit(3 if os.path.exists(sys.argv[1][:-5] + '.qparams.json') else 0)\""
    assert main(["reduce", "fault.tosa", "--failing", wants, "-o", "small.tosa"]) == 0
    assert Path("small.qparams.json").exists()


def test_a_command_that_fails_on_anything_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reduce", "fault.tosa", "--failing", f"{PYTHON} 'raise SystemExit(2)'", "-o", "small.tosa"]) == 0
    assert "perhaps it never looks at the file" in capsys.readouterr().err
    assert main(["reduce", "fault.tosa", "--failing", HAS_ADD, "-o", "small.tosa"]) == 0
    assert "perhaps it never looks at the file" not in capsys.readouterr().err


def test_a_command_is_told_by_how_it_ends(file: Path) -> None:
    loaded = tosakit.load(file)
    assert FailingCommand(HAS_ADD, 60).ends(loaded) == 7
    assert FailingCommand(f"{PYTHON} pass", 60).ends(loaded) == 0
    assert FailingCommand(f"{PYTHON} 'import os; os.abort()'", 60).ends(loaded) == -6
    assert FailingCommand(f"{PYTHON} 'import time; time.sleep(60)'", 0.2).ends(loaded) == TIMED_OUT


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--failing", f"{PYTHON} pass"], "the command ends with 0 on fault.tosa, so there is no fault to keep"),
        (["--failing", ""], "the command is empty"),
        (["--failing", "'"], "cannot be read: No closing quotation"),
        (["--failing", "no-such-program {}"], "cannot run no-such-program: No such file"),
        (["--failing", "true", "--timeout", "0"], "a time-out of 0 seconds"),
        (["--failing", "true", "--attempts", "0"], "--attempts 0: give a number of runs"),
    ],
)
def test_bad_commands_are_the_user_s_fault(
    words: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reduce", "fault.tosa", *words, "-o", "small.tosa"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("small.tosa").exists()


def test_an_unreadable_command_raises_before_anything_runs() -> None:
    with pytest.raises(InvalidArgument, match="the command is empty"):
        FailingCommand("  ", 1)
