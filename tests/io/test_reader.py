"""Reading files: every form of constants, what is unknown, and files that are damaged."""

import contextlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from tests.support.independent import flatc_json
from tests.support.programs import CORPUS
from tosakit.errors import InvalidModel, TosakitError
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Program, Version
from tosakit.ir.text import format_program, parse_program, to_json

SMALL = """
region "main" {
  block "main" (%x: INT8[2], %c: BOOL[]) -> (%y) {
    declare %cell: INT8[2] <variable, variable_name="state"> [1, 2]
    %b: INT8[2] = CONST() [3, -4]
    %wide: INT48[2] = CONST() [3, -4]
    %s: SHAPE[1] = CONST_SHAPE() [2]
    %r: INT8[2] = RESHAPE(%x, %s) loc "model.py:3"
    %m: INT8[2] = CLAMP(%r) {min_val=-3, max_val=7, nan_mode=PROPAGATE}
    %y: INT8[2] = COND_IF(%c, %m) {then_graph="yes", else_graph="yes"}
  }
}
region "yes" {
  block "yes" (%x: INT8[2]) -> (%x) {
  }
}
"""


def small_file() -> bytes:
    return dumps(parse_program(SMALL))


class Raw:
    """Builds a flatbuffer table by table, without knowing the schema."""

    def __init__(self) -> None:
        self.b = flatbuffers.Builder(0)
        self.b.ForceDefaults(True)

    def string(self, text: str) -> int:
        return int(self.b.CreateString(text))

    def offsets(self, offsets: list[int]) -> int:
        self.b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.b.PrependUOffsetTRelative(offset)
        return int(self.b.EndVector())

    def data(self, content: bytes) -> int:
        return int(self.b.CreateByteVector(content))

    def table(self, size: int, **slots: tuple[str, int]) -> int:
        """A table of ``size`` slots; each ``s<number>`` is (kind, value)."""
        self.b.StartObject(size)
        for name, (kind, value) in slots.items():
            slot = int(name[1:])
            if kind == "ref":
                self.b.PrependUOffsetTRelativeSlot(slot, value, 0)
            else:
                getattr(self.b, f"Prepend{kind}Slot")(slot, value, 0)
        return int(self.b.EndObject())

    def finish(self, operators: list[int], tensors: list[int], **extra: Any) -> bytes:
        """A file of one block with inputs and outputs ``x``."""
        names = self.offsets([self.string("x")])
        block = self.table(
            extra.get("block_size", 6),
            s0=("ref", self.string("main")),
            s1=("ref", self.offsets(operators)),
            s2=("ref", self.offsets(tensors)),
            s3=("ref", names),
            s4=("ref", names),
            **extra.get("block", {}),
        )
        region = self.table(2, s0=("ref", self.string("main")), s1=("ref", self.offsets([block])))
        major, minor, patch, draft = extra.get("version", (1, 0, 0, False))
        version = self.table(4, s0=("Int32", major), s1=("Int32", minor), s2=("Int32", patch), s3=("Bool", int(draft)))
        regions = self.offsets([region])
        slots = {} if extra.get("no_version") else {"s0": ("ref", version)}
        graph = self.table(extra.get("graph_size", 4), **slots, s1=("ref", regions), **extra.get("graph", {}))
        self.b.Finish(graph, b"TOSA")
        return bytes(self.b.Output())

    def tensor(self, name: str, dtype: DType = DType.INT8, size: int = 14, **slots: tuple[str, int]) -> int:
        label = self.string(name)
        self.b.StartVector(4, 1, 4)
        self.b.PrependInt32(2)
        shape = int(self.b.EndVector())
        return self.table(size, s0=("ref", label), s1=("ref", shape), s2=("Uint32", int(dtype)), **slots)

    def operator(self, number: int, union: int, attribute: int, reads: str, writes: str, size: int = 6) -> int:
        inputs, outputs = self.offsets([self.string(reads)]), self.offsets([self.string(writes)])
        slots = {"s2": ("ref", attribute)} if attribute else {}
        return self.table(
            size, s0=("Uint32", number), s1=("Uint8", union), s3=("ref", inputs), s4=("ref", outputs), **slots
        )


def test_the_raw_builder_makes_a_plain_file() -> None:
    raw = Raw()
    attribute = raw.table(0)
    tensors = [raw.tensor("x"), raw.tensor("y")]
    operator = raw.operator(ops.Abs.NUMBER, ops.Abs.NUMBER, attribute, "x", "y")
    [op] = load(raw.finish([operator], tensors)).main.ops
    assert repr(op) == "%y = ABS(%x)"


# ------------------------------------------------------------------------------------------------ versions
@pytest.mark.parametrize("version", [(1, 0, 0, False), (1, 0, 2, True), (1, 1, 0, True), (1, 1, 9, False)])
def test_versions_that_are_read_are_kept(version: tuple[int, int, int, bool]) -> None:
    raw = Raw()
    program = load(raw.finish([], [raw.tensor("x")], version=version))
    assert program.version == Version(*version)
    assert load(dumps(program)).version == Version(*version)


@pytest.mark.parametrize("version", [(0, 80, 1, False), (2, 0, 0, False), (1, 2, 0, False), (-1, -1, -1, True)])
def test_other_versions_are_refused(version: tuple[int, int, int, bool]) -> None:
    raw = Raw()
    content = raw.finish([], [raw.tensor("x")], version=version)
    with pytest.raises(InvalidModel, match=f"the file is TOSA {Version(*version)}; tosakit reads 1.0 and 1.1"):
        load(content)


def test_a_file_without_a_version() -> None:
    raw = Raw()
    content = raw.finish([], [raw.tensor("x")], no_version=True)
    with pytest.raises(InvalidModel, match="states no TOSA version"):
        load(content)


# ------------------------------------------------------------------------------------------------ not TOSA
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "too few for a TOSA flatbuffer"),
        (b"TOSA", "too few for a TOSA flatbuffer"),
        (b"\x1c\0\0\0TFL3" + bytes(100), r"identifier is b'TFL3', not b'TOSA'"),
        (b"func.func @main() {}", "not a TOSA flatbuffer"),
        (b"\xff\xff\xff\x7fTOSA", "leaves the file"),
        (b"\0\0\0\0TOSA" + bytes(100), "offset 0 at byte 0"),
    ],
)
def test_what_is_no_tosa_file(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tosa"
    path.write_bytes(content)
    for source in (content, path, str(path)):
        with pytest.raises(InvalidModel, match=message) as caught:
            load(source)
        assert str(caught.value).startswith("<bytes>: " if isinstance(source, bytes) else f"{path}: ")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"cannot read .*nothing.tosa: No such file"):
        load(tmp_path / "nothing.tosa")
    with pytest.raises(InvalidModel, match=r"cannot read .*: Is a directory"):
        load(tmp_path)


# ------------------------------------------------------------------------------------------------ constants
def test_constants_are_views_of_the_file(tmp_path: Path) -> None:
    """Long ones are; of short ones, equal ones are one object."""
    path = tmp_path / "model.tosa"
    raw = Raw()
    tensors = [raw.tensor("x"), raw.tensor("long", s3=("ref", raw.data(bytes(range(200)))))]
    path.write_bytes(raw.finish([], tensors))
    for source in (path, path.read_bytes()):
        tensor = load(source).main.tensor("long")
        assert isinstance(tensor.data, memoryview)
        assert bytes(tensor.data) == bytes(range(200))
    path.write_bytes(small_file())
    for source in (path, small_file()):
        graph = load(source).main
        values = graph.tensor("b").values()
        assert values is load(source).main.tensor("b").values(), "decoded once, whoever asks"
        assert values.tolist() == [3, -4]
        assert not values.flags.writeable
        assert graph.tensor("wide").values().tolist() == [3, -4]
        assert graph.tensor("s").values().tolist() == [2]
        assert graph.tensor("cell").values().tolist() == [1, 2]


def behind(offset_from_end: int, size: int, *, scale: bool = False) -> bytes:
    """A file whose constant stands behind the flatbuffer by offset and size, or its block scales do."""
    content = b""
    for _ in range(2):  # the offset is a scalar of fixed size, so the second time it is right
        raw = Raw()
        where = {"s12": ("Uint64", len(content) + offset_from_end), "s13": ("Uint64", size)}
        if not scale:
            where = {"s7": ("Uint64", len(content) + offset_from_end), "s8": ("Uint64", size)}
        tensors = [raw.tensor("x"), raw.tensor("c", **where)]
        attribute = raw.table(0)
        names = raw.offsets([raw.string("c")])
        const = raw.table(
            6, s0=("Uint32", ops.Const.NUMBER), s1=("Uint8", ops.Const.NUMBER), s2=("ref", attribute), s4=("ref", names)
        )
        content = raw.finish([const], tensors)
    return content


def test_constants_behind_the_flatbuffer(tmp_path: Path) -> None:
    """They are read as any other, and written inline again."""
    content = behind(3, 2) + b"...\x05\xfb"
    graph = load(content).main
    assert graph.tensor("c").values().tolist() == [5, -5]
    path = tmp_path / "model.tosa"
    path.write_bytes(content)
    program = load(path)
    assert program.main.tensor("c").values().tolist() == [5, -5]
    again = dumps(program)
    assert load(again).main.tensor("c").values().tolist() == [5, -5]
    [text] = flatc_json([again], tmp_path / "flatc")
    assert "offset" not in text
    assert '"data": [' in text


def test_block_scales_behind_the_flatbuffer() -> None:
    extras = load(behind(0, 1, scale=True) + b"\x7f").main.tensor("c").extras
    assert bytes(extras.scale_data or b"") == b"\x7f"


@pytest.mark.parametrize(("offset", "size"), [(0, 3), (3, 1), (1 << 40, 1), (0, (1 << 64) - 1)])
def test_constants_that_leave_the_file(offset: int, size: int) -> None:
    with pytest.raises(InvalidModel, match=r'tensor "c" has its data at bytes \d+ to \d+, the file ends at'):
        load(behind(offset, size) + b"\x05\xfb")


# ------------------------------------------------------------------------------------------------ the unknown
def unknown_file(*, number: int = 200, union: int = 150, known: bool = False) -> bytes:
    """An operator with a table that the schema does not have: numbers, a string, a vector, and a table within."""
    raw = Raw()
    text, numbers = raw.string("a text"), raw.data(bytes(range(9)))
    inner = raw.table(1, s0=("ref", raw.string("inner")))
    attribute = raw.table(
        5, s0=("Int32", 7), s1=("ref", text), s2=("ref", numbers), s3=("ref", inner), s4=("Uint64", 1 << 60)
    )
    tensors = [raw.tensor("x"), raw.tensor("y")]
    operator = raw.operator(ops.Reverse.NUMBER if known else number, union, attribute, "x", "y")
    return raw.finish([operator], tensors)


def read_unknown(content: bytes) -> tuple[int, str, bytes, str, int]:
    """The unknown table's fields, read with flatbuffers alone."""
    from flatbuffers import encode, number_types, packer
    from flatbuffers.table import Table

    foreign = load(content).main.ops[0].attrs
    assert isinstance(foreign, Foreign)
    table = Table(bytearray(foreign.source), foreign.table)
    places = [table.Offset(4 + 2 * slot) + foreign.table for slot in range(5)]
    first = encode.Get(packer.int32, table.Bytes, places[0])
    inner = Table(table.Bytes, table.Indirect(places[3]))
    vector = table.Vector(places[2] - foreign.table)
    numbers = bytes(table.Bytes[vector : vector + table.VectorLen(places[2] - foreign.table)])
    inner_text = inner.String(inner.Pos + inner.Offset(4))
    last = table.Get(number_types.Uint64Flags, places[4])
    return int(first), table.String(places[1]).decode(), numbers, inner_text.decode(), int(last)


@pytest.mark.parametrize("file", [{}, {"union": ops.Reverse.NUMBER, "known": True}, {"number": 4_000_000_000}])
def test_unknown_operators_and_tables_are_kept(file: dict[str, Any]) -> None:
    """Also a known operator whose table has more fields than ours: dropping them would change its meaning."""
    content = unknown_file(**file)
    expected = (7, "a text", bytes(range(9)), "inner", 1 << 60)
    assert read_unknown(content) == expected
    once = dumps(load(content))
    twice = dumps(load(once))
    for written in (once, twice):
        [op] = load(written).main.ops
        assert isinstance(op.attrs, Foreign)
        assert op.attrs.number == load(content).main.ops[0].attrs.number  # type: ignore[attr-defined]
        assert [t.name for t in (*op.inputs, *op.outputs)] == ["x", "y"]
        assert op.is_stateful
        assert read_unknown(written) == expected
    assert "{opaque}" in format_program(load(content))


def test_known_tables_of_other_operators_are_kept(tmp_path: Path) -> None:
    """As a converter writes VARIABLE_READ: operator IDENTITY, attribute table VARIABLE_READ."""
    raw = Raw()
    attribute = raw.table(0)
    tensors = [raw.tensor("x"), raw.tensor("y")]
    operator = raw.operator(ops.Identity.NUMBER, ops.VariableRead.NUMBER, attribute, "x", "y")
    content = raw.finish([operator], tensors)
    [op] = load(content).main.ops
    assert op.attrs == Foreign(ops.Identity.NUMBER, ops.VariableRead.NUMBER, ops.VariableRead())
    before, after = flatc_json([content, dumps(load(content))], tmp_path)
    assert same_json(before, after)


def same_json(before: str, after: str) -> bool:
    """Equal but for vectors that are absent in one file and empty in the other."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items() if item not in ([], {}, "")}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return bool(plain(json.loads(before)) == plain(json.loads(after)))


def test_an_operator_without_an_attribute_table() -> None:
    raw = Raw()
    tensors = [raw.tensor("x"), raw.tensor("y")]
    content = raw.finish([raw.operator(ops.Abs.NUMBER, 0, 0, "x", "y")], tensors)
    [op] = load(dumps(load(content))).main.ops
    assert op.attrs == Foreign(ops.Abs.NUMBER, 0, None)


def test_unknown_enumeration_numbers_are_kept() -> None:
    raw = Raw()
    attribute = raw.table(5, s0=("Bool", 1), s1=("Uint32", 9), s2=("Bool", 1))
    tensors = [raw.tensor("x"), raw.tensor("y")]
    operator = raw.operator(ops.Rescale.NUMBER, ops.Rescale.NUMBER, attribute, "x", "y")
    program = load(raw.finish([operator], tensors))
    for again in (program, load(dumps(program))):
        attrs = again.main.ops[0].attrs
        assert isinstance(attrs, ops.Rescale)
        assert (int(attrs.rounding_mode), attrs.scale32, attrs.per_channel) == (9, True, True)
    assert "rounding_mode=9" in format_program(program)


@pytest.mark.parametrize("where", ["tensor", "operator", "block", "graph"])
def test_unknown_fields_elsewhere_are_refused(where: str) -> None:
    """They would be lost, and nobody knows what they mean."""
    raw = Raw()
    tensors = [raw.tensor("x", size=15, s14=("Int32", 1)) if where == "tensor" else raw.tensor("x"), raw.tensor("y")]
    attribute = raw.table(0)
    operator = raw.operator(ops.Abs.NUMBER, ops.Abs.NUMBER, attribute, "x", "y")
    if where == "operator":
        names = raw.offsets([raw.string("x")])
        operator = raw.table(7, s0=("Uint32", 34), s3=("ref", names), s6=("Int32", 1))
    extra: dict[str, Any] = {}
    if where == "block":
        extra = {"block_size": 7, "block": {"s6": ("Int32", 1)}}
    if where == "graph":
        extra = {"graph_size": 5, "graph": {"s4": ("Int32", 1)}}
    content = raw.finish([operator], tensors, **extra)
    with pytest.raises(InvalidModel, match=r"a Tosa\w+ table uses fields newer than this tosakit knows"):
        load(content)


def test_unknown_dtypes_are_refused() -> None:
    raw = Raw()
    content = raw.finish([], [raw.tensor("x", 99)])  # type: ignore[arg-type]
    with pytest.raises(InvalidModel, match='tensor "x" has dtype number 99'):
        load(content)


# ------------------------------------------------------------------------------------------------ inconsistent files
def graph_of(*operators: tuple[str, str], tensors: tuple[str, ...] = ("x", "y", "z")) -> bytes:
    """A file of ABS operators, each (reads, writes)."""
    raw = Raw()
    attribute = raw.table(0)
    made = [raw.tensor(name) for name in tensors]
    listed = [raw.operator(ops.Abs.NUMBER, ops.Abs.NUMBER, attribute, *names) for names in operators]
    return raw.finish(listed, made)


def test_operators_out_of_order_are_sorted_and_noted() -> None:
    program = load(graph_of(("y", "z"), ("x", "y")))
    assert [op.output.name for op in program.main.ops] == ["y", "z"]
    assert program.notes == ['block "main": operators stood in an illegal order and were sorted']
    assert load(dumps(program)).notes == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (graph_of(("x", "y"), ("x", "y")), 'block "main": tensor "y" is the result of two operators'),
        (graph_of(("y", "x")), 'block "main": input "x" is also made by ABS'),
        (graph_of(tensors=("x", "x")), 'block "main": tensor "x" is declared twice'),
        (graph_of(("y", "z"), ("z", "y")), 'block "main" has a cycle: '),
    ],
)
def test_inconsistent_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        load(content)
    assert str(caught.value).startswith("<bytes>: ")
    assert message in str(caught.value)


def test_undeclared_tensors_are_kept_for_the_verifier() -> None:
    program = load(graph_of(("nowhere", "y")))
    tensor = program.main.tensor("nowhere")
    assert (tensor.table, tensor.dtype, tensor.has_shape) == ("undeclared", DType.UNKNOWN, False)
    assert load(dumps(program)).main.tensor("nowhere").table == "undeclared"


# ------------------------------------------------------------------------------------------------ damaged files
def outcome(content: bytes, *, use: bool = True) -> str:
    """``refused``, or ``read``; with ``use``, all that takes programs must bear with this one too."""
    try:
        program = load(content)
    except TosakitError as error:
        return "refused" if str(error).startswith("<bytes>: ") else "no place given"
    for function in (Program.clone, lambda p: load(dumps(p)), format_program, to_json) if use else ():
        with contextlib.suppress(TosakitError):
            function(program)
    return "read"


def test_files_cut_short_anywhere() -> None:
    content = small_file()
    found = Counter(outcome(content[:length], use=False) for length in range(len(content)))
    assert found["refused"] >= len(content) - 8  # the last bytes may be padding
    assert outcome(content) == "read"


@pytest.mark.parametrize("turn", [0, 3, 6])
def test_any_single_bit_wrong(turn: int) -> None:
    """Every byte in three runs, each time another bit of it."""
    content = bytearray(small_file())
    found = Counter[str]()
    for position in range(len(content)):
        bit = 1 << (position + turn) % 8
        content[position] ^= bit
        found[outcome(bytes(content), use=position % 4 == turn % 4)] += 1
        content[position] ^= bit
    assert min(found["refused"], found["read"]) > len(content) // 20, found


def test_random_damage() -> None:
    """Several bytes of a real file replaced by what offsets and lengths are made of."""
    content = CORPUS[0].read_bytes()
    rng = np.random.default_rng(1)
    found = Counter[str]()
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            position = 4 * int(rng.integers(0, len(content) // 4))
            damaged[position : position + 4] = rng.choice([0, 1, 4, 255, 2**31, 2**32 - 1]).astype("<u4").tobytes()
        found[outcome(bytes(damaged))] += 1
    assert min(found["refused"], found["read"]) > 20, found


def test_reading_is_linear() -> None:
    """Counted, not timed: calls grow with the number of operators, not faster."""

    def calls(count: int) -> int:
        body = "".join(f"%t{i + 1}: INT8[2] = ABS(%t{i})\n" for i in range(count))
        content = dumps(parse_program(f"block (%t0: INT8[2]) -> (%t{count}) {{ {body} }}"))
        total = 0

        def profile(*_: object) -> None:
            nonlocal total
            total += 1

        sys.setprofile(profile)
        try:
            assert len(load(content).main.ops) == count
        finally:
            sys.setprofile(None)
        return total

    assert calls(2000) < 11 * calls(200)
