"""Load a ``.tosa`` file into a :class:`~tosakit.ir.program.Program` without copying its constants.

All tables of one kind are read column by column (:mod:`tosakit.io.flatbuffer` checks every byte before use), then the
objects are made in bulk (:mod:`tosakit.ir.bulk`). Invariants:

- Equal shapes, attributes and short constants are one object each; longer constants are views of the file.
- Names are resolved by the position of their string where the file writes each name once, else by content.
- An operand that no tensor of the block declares becomes a tensor of dtype UNKNOWN in the table ``undeclared``: a
  fault the verifier reports, kept so that it can say where.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from enum import IntEnum
from itertools import compress, islice, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tosakit._gc import collector_paused
from tosakit.errors import InvalidModel
from tosakit.io.files import map_file
from tosakit.io.flatbuffer import Buffer, Corrupt, Ints, Objects, Tables, ascending, in_rows, runs, spread
from tosakit.io.schema import TABLES
from tosakit.ir import ops
from tosakit.ir.bulk import make_graph, make_ops, make_tensors
from tosakit.ir.enums import BlockShape, DType
from tosakit.ir.graph import PLAIN, AnyOp, Data, Graph, Tensor, TensorExtras
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Compatibility, Program, Region, SoftwareVersion, Version

E = TypeVar("E", bound=IntEnum)

_DTYPES = {int(dtype): dtype for dtype in DType}
_BLOCK_SHAPES = {int(shape): shape for shape in BlockShape}


def load(source: str | os.PathLike[str] | bytes) -> Program:
    """Read a TOSA 1.x flatbuffer from a path, or from bytes.

    Constants are views into the (mapped) file, which must not be overwritten in place while the program is in use.
    Raises InvalidModel, naming the file, where it is missing, truncated, corrupt, of another version or inconsistent.
    """
    if isinstance(source, bytes):
        return _read(memoryview(source), "<bytes>")
    path = Path(source)
    return _read(map_file(path), str(path))


@collector_paused()
def _read(data: memoryview, name: str) -> Program:
    try:
        return _program(data)
    except InvalidModel as error:
        raise type(error)(f"{name}: {error}") from error.__cause__


def _program(data: memoryview) -> Program:
    if len(data) < 8:
        raise Corrupt(f"the file has {len(data)} bytes, too few for a TOSA flatbuffer; is it truncated?")
    identifier = bytes(data[4:8])
    if identifier != b"TOSA":
        raise InvalidModel(
            f"not a TOSA flatbuffer: identifier is {identifier!r}, not b'TOSA'; "
            "give a .tosa file (.tflite and MLIR files must be converted first)"
        )
    buffer = Buffer(data)
    root = Tables(buffer, "TosaGraph", buffer.follow(np.zeros(1, np.int64)))
    program = Program([], _version(root), _software_version(root, "software_version"), _compatibility(root))
    blocks = _Blocks(buffer, program.notes)
    for _, regions in root.children("regions"):
        first = len(program.regions)
        program.regions.extend(Region(name) for name in regions.strings("name", None))
        for owners, tables in regions.children("blocks"):
            for owner, graph in zip(owners.tolist(), blocks.read(tables), strict=True):
                program.regions[first + owner].blocks.append(graph)
    return program


def _version(root: Tables) -> Version:
    present, table = root.tables("version")
    if not present.all():
        raise Corrupt("the file states no TOSA version, which the format requires; is it corrupt?")
    major, minor, patch, draft = (int(table.scalars(f"_{part}")[0]) for part in ("major", "minor", "patch", "draft"))
    version = Version(major, minor, patch, bool(draft))
    if version.major != 1 or version.minor not in (0, 1):
        raise InvalidModel(
            f"the file is TOSA {version}; tosakit reads 1.0 and 1.1. Export it again with a converter for TOSA 1.0"
        )
    return version


def _software_version(owner: Tables, name: str) -> SoftwareVersion | None:
    present, table = owner.tables(name)
    if not present.all():
        return None
    major, minor, micro = (int(table.scalars(f"_{part}")[0]) for part in ("major", "minor", "micro"))
    return SoftwareVersion(major, minor, micro, table.strings("_modifier", None)[0])


def _compatibility(root: Tables) -> Compatibility | None:
    present, table = root.tables("compatibility")
    if not present.all():
        return None
    return Compatibility(_software_version(table, "min_reader_version"), int(table.scalars("features")[0]) % (1 << 64))


class _Blocks:
    """Reads blocks, many at a time."""

    def __init__(self, buffer: Buffer, notes: list[str]) -> None:
        self.buffer = buffer
        self.notes = notes
        self.attributes = _AttributeReader(buffer)

    def read(self, blocks: Tables) -> list[Graph]:
        """The graphs of some blocks."""
        names = blocks.strings("name", None)
        tensors = _TensorTable(self.buffer, names)
        for owners, tables in blocks.children("tensors"):
            tensors.declare(owners, tables, _tensors)
        for owners, tables in blocks.children("shapes"):
            tensors.declare(owners, tables, _shapes)
        operators: list[list[AnyOp]] = [[] for _ in names]
        for owners, tables in blocks.children("operators"):
            made = self._operators(owners, tables, tensors)
            for owner, span in runs(owners):
                operators[owner].extend(made[span])
        (inputs,), (outputs,) = (
            tensors.lists(np.arange(len(names)), blocks.vectors(field, 4)) for field in ("inputs", "outputs")
        )
        graphs = []
        for name, table, made, starts, ends in zip(names, tensors.tables, operators, inputs, outputs, strict=True):
            graph = make_graph(name, table, made, starts, ends)
            if graph.ops != tuple(made):
                self.notes.append(f'block "{graph.name}": operators stood in an illegal order and were sorted')
            graphs.append(graph)
        return graphs

    def _operators(self, blocks: Ints, tables: Tables, tensors: "_TensorTable") -> list[AnyOp]:
        """The operators of ``tables``, each in the block given by ``blocks``."""
        inputs, outputs = tensors.lists(blocks, tables.vectors("inputs", 4), tables.vectors("outputs", 4))
        return make_ops(self.attributes.read(tables), inputs, outputs, _locations(tables))


class _TensorTable:
    """The tensors of some blocks by name, and by the position of the name's string in the file."""

    def __init__(self, buffer: Buffer, blocks: list[str | None]) -> None:
        self.buffer = buffer
        self.blocks = blocks
        self.tables: list[dict[str, Tensor]] = [{} for _ in blocks]
        self._tensors: list[Tensor] = []
        self._keys: list[Ints] = []
        self._index: tuple[Ints, Objects] | None = None
        self._names_are_shared = True

    def declare(self, owners: Ints, tables: Tables, read: "Callable[[Tables, list[str]], list[Tensor]]") -> None:
        """Read tensors and declare them in the blocks given by ``owners``."""
        names = tables.strings("name", "")
        tensors = read(tables, names)
        for owner, span in runs(owners):
            table, added = self.tables[owner], names[span]
            size = len(table)
            table.update(zip(added, tensors[span], strict=True))
            if len(table) != size + len(added):
                seen = dict.fromkeys(islice(table, size))
                name = next(name for name in added if name in seen or seen.setdefault(name))
                raise InvalidModel(f'block "{self.blocks[owner]}": tensor "{name}" is declared twice')
        self._tensors.extend(tensors)
        self._keys.append(self._key(owners, tables.targets("name")))

    def _key(self, blocks: Ints, positions: Ints) -> Ints:
        return blocks * (self.buffer.size + 1) + positions

    def lists(self, blocks: Ints, *vectors: tuple[Ints, Ints]) -> list[list[tuple[Tensor, ...]]]:
        """The tensors named by columns of vectors of strings, given by starts and counts; each row has its block."""
        width = len(vectors)
        starts, counts = (np.stack(columns, axis=1).reshape(-1) for columns in zip(*vectors, strict=True))
        blocks = np.repeat(blocks, width)
        chunks = [
            self._resolve(blocks[owners], self.buffer.follow(positions))
            for owners, positions in self.buffer.chunks(starts, counts)
        ]
        found = np.concatenate(chunks) if chunks else np.empty(0, object)
        firsts = np.cumsum(counts) - counts
        return [_tuples(found, firsts[column::width], counts[column::width]) for column in range(width)]

    def _resolve(self, blocks: Ints, strings: Ints) -> Objects:
        if self._names_are_shared and self._tensors:
            if self._index is None:
                keys = np.concatenate(self._keys)
                order = np.argsort(keys, kind="stable")
                self._index = keys[order], np.fromiter(self._tensors, object, len(order))[order]
            keys, tensors = self._index
            wanted = self._key(blocks, strings)
            places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            known = keys[places] == wanted
            if known.all():
                found: Objects = tensors[places]
                return found
            if not known.any():  # this file writes a name wherever it is used, so do not look again
                self._names_are_shared = False
        names = self.buffer.strings(strings)
        table = self.tables[blocks[0]]
        if blocks[0] == blocks[-1]:
            with suppress(KeyError):
                return np.fromiter(map(table.__getitem__, names), object, len(names))
        tables = map(self.tables.__getitem__, blocks.tolist())
        return np.fromiter(map(_declared, tables, names), object, len(names))


def _tuples(values: Objects, firsts: Ints, counts: Ints) -> list[tuple[Any, ...]]:
    """Stretches of the values as tuples; those of equal length are made at once."""
    order = ascending(counts)
    firsts, counts = firsts[order], counts[order]
    made: list[tuple[Any, ...]] = []
    for count, span in runs(counts):
        members = iter(values[firsts[span, np.newaxis] + np.arange(count)].reshape(-1).tolist())
        made.extend(zip(*repeat(members, count), strict=True) if count else repeat((), span.stop - span.start))
    return in_rows(order, made)


def _declared(table: dict[str, Tensor], name: str) -> Tensor:
    tensor = table.get(name)
    if tensor is None:
        tensor = table[name] = Tensor(name, DType.UNKNOWN, None, table="undeclared")
    return tensor


def _tensors(tables: Tables, names: list[str]) -> list[Tensor]:
    dtypes = _members(_DTYPES, tables.scalars("type"), names, "dtype")
    data = _content(tables, "data", "offset", "size", names)
    return make_tensors(names, dtypes, tables.ints("shape"), data, _extras(tables, names), "tensors")


def _shapes(tables: Tables, names: list[str]) -> list[Tensor]:
    ranks = [(rank,) for rank in tables.scalars("rank").tolist()]
    return make_tensors(names, repeat(DType.SHAPE), ranks, tables.contents("data"), repeat(PLAIN), "shapes")


def _members(members: dict[int, E], numbers: Ints, names: list[str], what: str) -> list[E]:
    """Members of an enumeration by number. Raises InvalidModel, with the tensor's name, for an unknown number."""
    try:
        return list(map(members.__getitem__, numbers.tolist()))
    except KeyError:
        row = next(row for row, number in enumerate(numbers.tolist()) if number not in members)
        raise InvalidModel(
            f'tensor "{names[row]}" has {what} number {numbers[row]}, which this tosakit does not know'
        ) from None


def _content(tables: Tables, inline: str, offset: str, size: str, names: list[str]) -> list[Data | None]:
    """Constant bytes, inline or behind the flatbuffer (an offset above 1 counts)."""
    starts, lengths = tables.vectors(inline, 1)
    offsets = tables.scalars(offset)
    outside = (offsets > 1) | (offsets < 0)  # 2**63 and more come out negative
    if outside.any():
        sizes, end = tables.scalars(size), tables.buffer.size
        bad = outside & ((offsets < 0) | (sizes < 0) | (offsets > end - sizes))
        if bad.any():
            row = int(np.argmax(bad))
            start, length = (int(column[row]) % (1 << 64) for column in (offsets, sizes))
            raise Corrupt(
                f'tensor "{names[row]}" has its data at bytes {start} to {start + length}, the file ends at {end}'
            )
        starts, lengths = np.where(outside, offsets, starts), np.where(outside, sizes, lengths)
    return tables.buffer.contents(starts, lengths)


_COMMON_EXTRAS = np.array(
    [
        PLAIN,
        TensorExtras(variable_name=""),
        TensorExtras(scale_data=b""),
        TensorExtras(variable_name="", scale_data=b""),
    ]
)


def _extras(tables: Tables, names: list[str]) -> list[TensorExtras]:
    """The rare fields. Some writers give every tensor an empty variable name and empty scales; these share objects."""
    (name_starts, name_lengths), (scale_starts, scale_lengths) = (
        tables.vectors(field, 1) for field in ("variable_name", "scale_data")
    )
    rare = (name_lengths > 0) | (scale_lengths > 0)
    for field in ("variable", "is_unranked", "scale_type", "block_shape", "scale_offset"):
        rare |= tables.scalars(field) != 0
    common = (name_starts > 0) + 2 * (scale_starts > 0)
    found: list[TensorExtras] = _COMMON_EXTRAS[common].tolist()
    if rare.any():
        chosen, called = tables.select(rare), list(compress(names, rare))
        extras = map(
            TensorExtras,
            (chosen.scalars("variable") != 0).tolist(),
            chosen.strings("variable_name", None),
            (chosen.scalars("is_unranked") != 0).tolist(),
            _members(_DTYPES, chosen.scalars("scale_type"), called, "scale_type"),
            _content(chosen, "scale_data", "scale_offset", "scale_size", called),
            _members(_BLOCK_SHAPES, chosen.scalars("block_shape"), called, "block_shape"),
        )
        for row, entry in zip(np.flatnonzero(rare).tolist(), extras, strict=True):
            found[row] = entry
    return found


def _locations(tables: Tables) -> list[str | None]:
    present, locations = tables.tables("location")
    return spread(present, lambda _: locations.strings("text", ""))


class _Memo(dict[tuple[Any, ...], Attributes]):
    """Instances of one operator class by the field values as the file has them."""

    def __init__(self, cls: type[Attributes]) -> None:
        self._cls = cls
        self._enums = [
            {int(member): member for member in f.type}
            if isinstance(f.type, type) and issubclass(f.type, IntEnum)
            else {}
            for f in fields(cls)
        ]

    def __missing__(self, key: tuple[Any, ...]) -> Attributes:
        # an unknown enumeration number stays a number; the verifier reports it
        values = [enum.get(value, value) for enum, value in zip(self._enums, key, strict=True)]
        made = self[key] = self._cls(*values)
        return made


class _AttributeReader:
    """Reads the attributes of operators; equal ones become one object."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self._memos: dict[type[Attributes], _Memo] = {}

    def read(self, operators: Tables) -> list[Attributes]:
        """The attributes of each operator; those that do not fit its number, or this schema, as Foreign."""
        numbers = operators.scalars("op")
        types, positions = operators.union("attribute")
        found = np.empty(len(operators), object)
        known = np.zeros(len(operators), np.bool_)
        for union_type in np.flatnonzero(np.bincount(types)).tolist():
            cls = ops.BY_NUMBER.get(union_type)
            rows = np.flatnonzero((types == union_type) & (positions > 0))
            if cls is not None and len(rows):
                tables = Tables(self.buffer, f"{cls.__name__}Attribute", positions[rows], allow_unknown=True)
                found[rows] = self._decode(cls, tables)
                known[rows] = ~tables.unknown
        for row in np.flatnonzero(~known | (numbers != types)).tolist():
            number, union_type = int(numbers[row]), int(types[row])
            if known[row]:
                found[row] = Foreign(number, union_type, found[row])
            elif positions[row]:
                found[row] = Foreign(number, union_type, None, int(positions[row]), self.buffer.data)
            else:
                found[row] = Foreign(number, union_type)
        return list(found)

    def _decode(self, cls: type[Attributes], tables: Tables) -> Any:
        memo = self._memos.get(cls)
        if memo is None:
            memo = self._memos[cls] = _Memo(cls)
        columns = [tables.values(field) for field in TABLES[tables.kind]]
        if not columns:
            return memo[()]
        return np.fromiter(map(memo.__getitem__, zip(*columns, strict=True)), object, len(tables))
