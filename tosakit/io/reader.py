"""Load a ``.tosa`` file into a :class:`~tosakit.ir.program.Program` without copying its constants."""

import mmap
import os
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any

from tosakit.errors import InvalidModel
from tosakit.io.flatbuffer import Buffer, Corrupt, Table
from tosakit.io.schema import TABLES
from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, DType
from tosakit.ir.graph import PLAIN, AnyOp, Data, Graph, Op, Tensor, TensorExtras
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Compatibility, Program, Region, SoftwareVersion, Version

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
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidModel(f"cannot read {path}: {reason}") from None
    return _read(view, str(path))


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
    graph = Table(buffer, "TosaGraph", buffer.follow(0))
    version = _version(graph)
    program = Program([], version, _software_version(graph.table("software_version")))
    compatibility = graph.table("compatibility")
    if compatibility is not None:
        reader = _software_version(compatibility.table("min_reader_version"))
        program.compatibility = Compatibility(reader, compatibility.scalar("features"))
    _refuse_unknown(graph)
    for table in graph.tables("regions"):
        _refuse_unknown(table)
        blocks = [_block(block, data, program.notes) for block in table.tables("blocks")]
        program.regions.append(Region(table.string("name"), blocks))
    return program


def _version(graph: Table) -> Version:
    table = graph.table("version")
    if table is None:
        raise Corrupt("the file states no TOSA version, which the format requires; is it corrupt?")
    major, minor, patch = (table.scalar(f"_{part}") for part in ("major", "minor", "patch"))
    version = Version(major, minor, patch, bool(table.scalar("_draft")))
    if version.major != 1 or version.minor not in (0, 1):
        raise InvalidModel(
            f"the file is TOSA {version}; tosakit reads 1.0 and 1.1. Export it again with a converter for TOSA 1.0"
        )
    return version


def _software_version(table: Table | None) -> SoftwareVersion | None:
    if table is None:
        return None
    major, minor, micro = (table.scalar(f"_{part}") for part in ("major", "minor", "micro"))
    return SoftwareVersion(major, minor, micro, table.string("_modifier"))


def _refuse_unknown(table: Table) -> None:
    if table.has_unknown_fields:
        raise InvalidModel(
            f"a {table.kind} table uses fields newer than this tosakit knows; they would be lost, so it is not read. "
            "Update tosakit, or export the file for TOSA 1.0"
        )


def _block(table: Table, data: memoryview, notes: list[str]) -> Graph:
    _refuse_unknown(table)
    graph = Graph(table.string("name"))
    tensors: dict[str, Tensor] = graph._tensors  # noqa: SLF001  the reader fills the table it owns
    for entry in table.tables("tensors"):
        _add(tensors, _tensor(entry, data), graph)
    for entry in table.tables("shapes"):
        _refuse_unknown(entry)
        shape = (entry.scalar("rank"),)
        _add(
            tensors,
            Tensor(entry.string("name") or "", DType.SHAPE, shape, entry.bytes("data"), table="shapes"),
            graph,
        )
    entries = list(table.tables("operators"))
    for entry in entries:
        op = _operator(entry, tensors, graph)
        graph._register(op)  # noqa: SLF001
    inputs = [_lookup(tensors, name) for name in table.strings("inputs")]
    for tensor in inputs:
        if tensor.producer is not None:
            raise InvalidModel(f'block "{graph.name}": input "{tensor.name}" is also made by {tensor.producer.name}')
    graph.set_inputs(inputs)
    graph.set_outputs([_lookup(tensors, name) for name in table.strings("outputs")])
    if any(op._position != index for index, op in enumerate(graph.ops)):  # noqa: SLF001
        notes.append(f'block "{graph.name}": operators stood in an illegal order and were sorted')
    return graph


def _add(tensors: dict[str, Tensor], tensor: Tensor, graph: Graph) -> None:
    if tensor.name in tensors:
        raise InvalidModel(f'block "{graph.name}": tensor "{tensor.name}" is declared twice')
    tensors[tensor.name] = tensor


def _lookup(tensors: dict[str, Tensor], name: str) -> Tensor:
    tensor = tensors.get(name)
    if tensor is None:  # a fault the verifier reports; kept so that it can say where
        tensor = tensors[name] = Tensor(name, DType.UNKNOWN, None, table="undeclared")
    return tensor


def _tensor(table: Table, data: memoryview) -> Tensor:
    _refuse_unknown(table)
    name = table.string("name") or ""
    number = table.scalar("type")
    if number not in _DTYPES:
        raise InvalidModel(f'tensor "{name}" has dtype number {number}, which this tosakit does not know')
    content = _content(table, data, "data", "offset", "size", name)
    return Tensor(name, _DTYPES[number], table.ints("shape"), content, extras=_extras(table, data, name))


def _content(table: Table, data: memoryview, inline: str, offset: str, size: str, name: str) -> Data | None:
    """Constant bytes, inline or behind the flatbuffer (an offset above 1 counts)."""
    start = table.scalar(offset)
    if start <= 1:
        return table.bytes(inline)
    length = table.scalar(size)
    if start + length > len(data):
        raise Corrupt(
            f'tensor "{name}" has its data at bytes {start} to {start + length}, the file ends at {len(data)}'
        )
    return data[start : start + length]


def _extras(table: Table, data: memoryview, name: str) -> TensorExtras:
    shape = table.scalar("block_shape")
    scale_type = table.scalar("scale_type")
    if shape not in _BLOCK_SHAPES or scale_type not in _DTYPES:
        raise InvalidModel(
            f'tensor "{name}" has block_shape {shape}, scale_type {scale_type}, not known to this tosakit'
        )
    extras = TensorExtras(
        bool(table.scalar("variable")),
        table.string("variable_name"),
        bool(table.scalar("is_unranked")),
        _DTYPES[scale_type],
        _content(table, data, "scale_data", "scale_offset", "scale_size", name),
        _BLOCK_SHAPES[shape],
    )
    return PLAIN if extras == PLAIN else extras


def _operator(table: Table, tensors: dict[str, Tensor], graph: Graph) -> AnyOp:
    _refuse_unknown(table)
    attrs = _attributes(table)
    inputs = [_lookup(tensors, name) for name in table.strings("inputs")]
    outputs = [_lookup(tensors, name) for name in table.strings("outputs")]
    for index, tensor in enumerate(outputs):
        if tensor.producer is not None or tensor in outputs[:index]:
            raise InvalidModel(f'block "{graph.name}": tensor "{tensor.name}" is the result of two operators')
    location = table.table("location")
    return Op(attrs, inputs, outputs, location=None if location is None else location.string("text") or "")


def _attributes(table: Table) -> Attributes:
    number = table.scalar("op")
    union_type, position = table.union("attribute")
    cls = ops.BY_NUMBER.get(union_type)
    known: Attributes | None = None
    if cls is not None and position:
        attribute = Table(table.buffer, f"{cls.__name__}Attribute", position)
        if not attribute.has_unknown_fields:
            known = _decode_attributes(cls, attribute)
    if known is not None and number == union_type:
        return known
    if known is not None:
        return Foreign(number, union_type, known)
    return Foreign(number, union_type, None, position, table.buffer.data) if position else Foreign(number, union_type)


def _enum_members(cls: type[Attributes]) -> dict[str, dict[int, IntEnum]]:
    """Fields of an operator class that hold an enumeration, with its members by number."""
    return {
        f.name: {int(member): member for member in f.type}
        for f in fields(cls)
        if isinstance(f.type, type) and issubclass(f.type, IntEnum)
    }


_ENUMS = {cls: _enum_members(cls) for cls in ops.OPERATORS}


def _decode_attributes(cls: type[Attributes], table: Table) -> Attributes:
    enums = _ENUMS[cls]
    values: list[Any] = []
    for field in TABLES[table.kind]:
        value = table.value(field)
        if field.name in enums:
            value = enums[field.name].get(value, value)  # an unknown number stays a number; the verifier reports it
        values.append(value)
    return cls(*values)
