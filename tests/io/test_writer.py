"""Writing files: whole or not at all, the same bytes every time, constants inline or behind the flatbuffer."""

import json
import os
import random
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.independent import flatc_json, serializer_bytes
from tests.support.programs import CORPUS, small_program
from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.io import files, writer
from tosakit.io.reader import load
from tosakit.io.writer import dumps, save
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor, TensorExtras
from tosakit.ir.program import Program, Region
from tosakit.ir.text import format_program, parse_program

MODEL = CORPUS[0]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def text_of(program: Program) -> str:
    return format_program(program, values=None, exact=True)


# ------------------------------------------------------------------------------------------------ atomic
def test_save_writes_what_dumps_gives(tmp_path: Path) -> None:
    program = load(MODEL)
    for target in (tmp_path / "a.tosa", str(tmp_path / "b.tosa")):
        save(program, target)
        assert Path(target).read_bytes() == dumps(program)
    assert names_in(tmp_path) == ["a.tosa", "b.tosa"]


def test_saving_over_the_file_that_is_loaded(tmp_path: Path) -> None:
    """Its constants are views of the old file, which lives on until nobody reads it any more."""
    path = tmp_path / "model.tosa"
    path.write_bytes(MODEL.read_bytes())
    program = load(path)
    before = text_of(program)
    for _ in range(3):
        save(program, path)
        assert text_of(program) == before
        assert text_of(load(path)) == before


@pytest.mark.parametrize("failing", ["_write", "os.fsync", "Path.replace"])
def test_a_failure_leaves_everything_as_it_was(failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.tosa"
    path.write_bytes(b"precious")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    place, _, name = failing.rpartition(".")
    monkeypatch.setattr({"": files, "os": os, "Path": Path}[place], name, fail)
    with pytest.raises(InvalidArgument, match=r"cannot write .*model.tosa: No space left on device; nothing was ch"):
        save(load(MODEL), path)
    assert names_in(tmp_path) == ["model.tosa"]
    assert path.read_bytes() == b"precious"


def test_a_fault_of_the_program_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "model.tosa"
    path.write_bytes(b"precious")
    graph = Graph("main")
    r = Tensor("r", DType.INT8, (1,))
    graph._tensors["r"] = r
    graph._register(Op(ops.Abs(), [r], [r]))
    with pytest.raises(InvalidModel, match="has a cycle"):
        save(Program([Region("main", [graph])]), path)
    assert names_in(tmp_path) == ["model.tosa"]
    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize("target", ["nowhere/model.tosa", "."])
def test_places_that_cannot_be_written(target: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot write"):
        save(load(MODEL), tmp_path / target)
    assert names_in(tmp_path) == []


def test_permissions_follow_the_file_that_is_replaced(tmp_path: Path) -> None:
    old, new = tmp_path / "old.tosa", tmp_path / "new.tosa"
    old.touch()
    old.chmod(0o640)
    mask = os.umask(0o027)
    try:
        for path in (old, new):
            save(load(MODEL), path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.tosa", tmp_path / "link.tosa"
    target.write_bytes(b"old")
    link.symlink_to(target)
    save(load(MODEL), link)
    assert link.is_symlink()
    assert target.read_bytes() == dumps(load(MODEL))


# ------------------------------------------------------------------------------------------------ deterministic
def test_the_same_program_gives_the_same_bytes() -> None:
    for seed in range(20):
        first, second = (small_program(random.Random(seed)) for _ in range(2))
        assert dumps(first) == dumps(second) == dumps(first.clone())


def test_the_bytes_do_not_depend_on_when_an_undeclared_name_is_met() -> None:
    """Sorting operators that stood in an illegal order changes which undeclared name the next reader meets first."""
    graph = Graph("main")
    x, y, z = (Tensor(name, DType.INT32, (2,)) for name in "xyz")
    lost = [Tensor(name, DType.UNKNOWN, None, table="undeclared") for name in ("a", "b")]
    for tensor in (x, *lost):
        graph.add_tensor(tensor)
    graph.set_inputs([x])
    first, second = (graph.add_op(Op(ops.Add(), pair, (r,))) for pair, r in (((x, lost[0]), y), ((y, lost[1]), z)))
    graph.set_outputs([z])
    _ = graph.ops
    graph._sorted = (second, first)
    program = load(dumps(Program([Region("main", [graph])])))
    assert program.notes == ['block "main": operators stood in an illegal order and were sorted']
    assert dumps(load(dumps(program))) == dumps(program)


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_string_is_written_once(blocks: int) -> None:
    """Whether tensors of two blocks, a state cell and a shape, a place in the source, or a region are called so."""
    regions = []
    for name in ("theta", "iota")[:blocks]:
        graph = Graph(name)
        graph.set_inputs([graph.add_tensor(Tensor("theta", DType.INT8, (2,)))])
        graph.add_tensor(Tensor("cell", DType.INT8, (2,), extras=TensorExtras(variable=True, variable_name="sigma")))
        copy = Op(ops.Identity(), graph.inputs, (Tensor("kappa", DType.INT8, (2,)),), location="kappa")
        graph.set_outputs(graph.add_op(copy).outputs)
        graph.add_op(Op(ops.ConstShape(), (), (Tensor("sigma", DType.SHAPE, (1,), bytes(8), table="shapes"),)))
        regions.append(Region(name, [graph]))
    raw = dumps(Program(regions))
    for text in (b"theta", b"kappa", b"sigma", b"iota")[: blocks + 2]:
        assert raw.count(text + b"\0") == 1
    assert dumps(load(raw)) == raw
    assert text_of(load(raw)) == text_of(Program(regions))


@pytest.mark.parametrize("odd", ["", "a\0b", "\0", "größe", "日本", "x" * 300])
def test_names_of_every_length_and_script(odd: str) -> None:
    names = [odd, "b", "cc", "ddd", "eeee", "fffff", "h" * 200]
    graph = Graph("main")
    graph.set_inputs([graph.add_tensor(Tensor(name, DType.INT8, (2,))) for name in names])
    raw = dumps(Program([Region("main", [graph])]))
    assert [tensor.name for tensor in load(raw).main.inputs] == names
    for name in names:
        assert raw.count(len(name.encode()).to_bytes(4, "little") + name.encode() + b"\0") >= 1


def test_an_operand_of_no_block_is_our_fault() -> None:
    """The numbers of names are found by the addresses of tensors: a wrong one would name another tensor."""
    program = small_program(random.Random(1))
    stray = Tensor("stray", DType.INT32, (2,))
    program.main.exit._inputs = (*program.main.exit._inputs, stray)
    with pytest.raises(RuntimeError, match="of no block"):
        dumps(program)


def test_no_tensor_at_all() -> None:
    program = Program([Region("main", [Graph("main")])])
    assert text_of(load(dumps(program))) == text_of(program)


# ------------------------------------------------------------------------------------------------ behind the flatbuffer
def external_program() -> Program:
    """Constants of 65 and more bytes, which go outside, of 64 and less, which stay, and a shape."""
    body = []
    for name, count in (("big", 1000), ("odd", 67), ("small", 64)):
        values = ", ".join(str((index * 7) % 256 - 128) for index in range(count))
        body.append(f"%{name}: INT8[{count}] = CONST() [{values}]")
    wide = ", ".join(str(3**index) for index in range(20))
    body.append(f"%wide: INT48[20] = CONST() [{wide}]")
    body.append("%s: SHAPE[12] = CONST_SHAPE() [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]")
    return parse_program("block (%x: INT8[1]) -> (%x, %big, %odd, %small, %wide) {" + "\n".join(body) + "}")


@pytest.fixture
def external(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file of the form that models over 1 GiB get."""
    monkeypatch.setattr(writer, "INLINE_LIMIT", 100)
    path = tmp_path / "external.tosa"
    save(external_program(), path)
    monkeypatch.undo()
    return path


def test_large_constants_stand_behind_the_flatbuffer(external: Path, tmp_path: Path) -> None:
    content = external.read_bytes()
    [text] = flatc_json([content], tmp_path / "flatc")
    assert text.count('"offset"') == text.count('"size"') == 3
    tensors = {tensor["name"]: tensor for tensor in json.loads(text)["regions"][0]["blocks"][0]["tensors"]}
    for name, kind in (("big", "i1"), ("odd", "i1")):
        place, size = tensors[name]["offset"], tensors[name]["size"]
        assert place % writer.ALIGNMENT == 0
        assert "data" not in tensors[name]
        values = np.frombuffer(content[place : place + size], kind)
        assert values.tolist() == external_program().main.tensor(name).values().tolist()
    assert "offset" not in tensors["small"]
    assert len(tensors["small"]["data"]) == 64


def test_they_are_read_back(external: Path, tmp_path: Path) -> None:
    for source in (external, external.read_bytes()):
        assert text_of(load(source)) == text_of(external_program())
    assert dumps(load(external)) == dumps(external_program())
    inline = serializer_bytes(dumps(load(external)), tmp_path / "inline")
    assert serializer_bytes(external.read_bytes(), tmp_path / "external") == inline


def test_dumps_refuses_what_needs_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "INLINE_LIMIT", 100)
    with pytest.raises(InvalidModel, match=r"constants take \d+ bytes, more than the 100 that are written inline"):
        dumps(external_program())


def test_writing_twice_gives_the_same_file(external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = external.read_bytes()
    monkeypatch.setattr(writer, "INLINE_LIMIT", 100)
    save(load(external), external)
    assert external.read_bytes() == before
