"""Write a :class:`~tosakit.ir.program.Program` as a ``.tosa`` flatbuffer, deterministically and never half."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import flatbuffers

from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.io.flatbuffer import LAYOUTS, SLOT_COUNTS
from tosakit.io.schema import TABLES
from tosakit.ir.graph import AnyOp, Data, Graph, Tensor
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Program, SoftwareVersion

INLINE_LIMIT = 1 << 30
"""Constants of more bytes than this in all are written behind the flatbuffer, whose own limit is 2 GiB."""

ALIGNMENT = 64
"""Alignment of constants written behind the flatbuffer."""

_PREPEND = {
    "bool": "PrependBoolSlot",
    "i32": "PrependInt32Slot",
    "u32": "PrependUint32Slot",
    "u64": "PrependUint64Slot",
}


def dumps(program: Program) -> bytes:
    """The program as the bytes of a ``.tosa`` file with all constants inline.

    Raises InvalidModel where its constants exceed the 2 GiB that a flatbuffer can hold (use :func:`save`).
    """
    size = _constant_bytes(program)
    if size > INLINE_LIMIT:
        raise InvalidModel(f"constants take {size} bytes, more than the {INLINE_LIMIT} that are written inline")
    return bytes(_Writer(program, external=None).finish())


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write the program to ``path``: to a temporary file beside it first, which then takes its name.

    Constants stand inline while they take less than 1 GiB in all, else behind the flatbuffer by offset and size. The
    same program gives the same bytes. Raises InvalidArgument where the place cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    try:
        if target.is_dir():
            raise InvalidArgument(f"cannot write {target}: it is a directory")
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent or ".")
    except OSError as error:
        raise InvalidArgument(f"cannot write {target}: {error.strerror or error}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(program, file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask)
        temporary.replace(target)
    except OSError as error:
        raise InvalidArgument(f"cannot write {target}: {error.strerror or error}; nothing was changed") from None
    finally:
        temporary.unlink(missing_ok=True)


def _constant_bytes(program: Program) -> int:
    return sum(len(t.stored or b"") for block in program.blocks for t in block.tensors)


def _write(program: Program, file: IO[bytes]) -> None:
    if _constant_bytes(program) <= INLINE_LIMIT:
        file.write(_Writer(program, external=None).finish())
        return
    # Offsets are 64-bit scalars, so the flatbuffer's size does not depend on their values: lay out twice.
    blobs = list(dict.fromkeys(t for block in program.blocks for t in block.tensors if _goes_outside(t)))
    start = len(_Writer(program, external=_places(blobs, 1 << 40)).finish())
    places = _places(blobs, start)
    buffer = _Writer(program, external=places).finish()
    if len(buffer) != start:
        raise InvalidModel(
            "the size of the flatbuffer changed between two layouts; please report this fault of tosakit"
        )
    file.write(buffer)
    for tensor in blobs:
        file.seek(places[tensor][0])
        file.write(tensor.stored or b"")


def _goes_outside(tensor: Tensor) -> bool:
    return tensor.stored is not None and len(tensor.stored) > ALIGNMENT and tensor.table == "tensors"


def _places(tensors: Iterable[Tensor], start: int) -> dict[Tensor, tuple[int, int]]:
    places: dict[Tensor, tuple[int, int]] = {}
    for tensor in tensors:
        start = -(-start // ALIGNMENT) * ALIGNMENT
        places[tensor] = (start, len(tensor.stored or b""))
        start += len(tensor.stored or b"")
    return places


class _Writer:
    """Builds one flatbuffer back to front, as the format demands; strings and equal attributes are written once."""

    def __init__(self, program: Program, external: dict[Tensor, tuple[int, int]] | None) -> None:
        self.program = program
        self.external = external or {}
        self.builder = flatbuffers.Builder(1 << 16)
        self._strings: dict[str, int] = {}
        self._ints: dict[tuple[int, ...], int] = {}
        self._attributes: dict[Attributes, int] = {}
        self._sources: dict[int, int] = {}

    def finish(self) -> bytearray:
        """Write everything and return the finished bytes."""
        program = self.program
        self._embed_sources()
        regions = []
        for region in program.regions:
            blocks = [self._block(block) for block in region.blocks]
            regions.append(self._table("TosaRegion", name=self._string(region.name), blocks=self._offsets(blocks)))
        version = self._table(
            "Version",
            _major=program.version.major,
            _minor=program.version.minor,
            _patch=program.version.patch,
            _draft=int(program.version.draft),
        )
        compatibility = None
        if program.compatibility is not None:
            compatibility = self._table(
                "SerializationCompatibility",
                min_reader_version=self._software_version(program.compatibility.min_reader_version),
                features=program.compatibility.features,
            )
        root = self._table(
            "TosaGraph",
            version=version,
            regions=self._offsets(regions),
            software_version=self._software_version(program.software_version),
            compatibility=compatibility,
        )
        self.builder.Finish(root, b"TOSA")
        output: bytearray = self.builder.Output()
        return output

    def _embed_sources(self) -> None:
        """Put files that hold tables we cannot read behind everything else, whole: offsets inside them stay right."""
        for block in self.program.blocks:
            for op in block.ops:
                attrs = op.attrs
                if isinstance(attrs, Foreign) and attrs.table and id(attrs.source.obj) not in self._sources:
                    self._vector(attrs.source, 1, 16)
                    self._sources[id(attrs.source.obj)] = self.builder.Offset() - 4

    def _table(self, kind: str, **values: int | tuple[int, int] | None) -> int:
        """Write a table from scalars and the offsets of what it refers to; absent and default values take no room."""
        builder = self.builder
        builder.StartObject(SLOT_COUNTS[kind])
        for name, value in values.items():
            slot, field = LAYOUTS[kind][name]
            if field.kind in _PREPEND:
                getattr(builder, _PREPEND[field.kind])(slot, value, field.default)
            elif field.kind == "union" and isinstance(value, tuple):
                builder.PrependUint8Slot(slot - 1, value[0], 0)
                builder.PrependUOffsetTRelativeSlot(slot, value[1], 0)
            elif value is not None:
                builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        return int(builder.EndObject())

    def _string(self, text: str | None) -> int | None:
        if text is None:
            return None
        offset = self._strings.get(text)
        if offset is None:
            offset = self._strings[text] = self.builder.CreateString(text)
        return offset

    def _vector(self, data: Data, element_size: int, alignment: int) -> int:
        builder = self.builder
        count = len(data)
        builder.StartVector(element_size, count, alignment)
        builder.head -= count
        builder.Bytes[builder.head : builder.head + count] = data
        return int(builder.EndVector())

    def _bytes(self, data: Data | None) -> int | None:
        return None if data is None else self._vector(data, 1, 8)

    def _int_vector(self, values: tuple[int, ...] | None) -> int | None:
        if values is None:
            return None
        offset = self._ints.get(values)
        if offset is None:
            builder = self.builder
            builder.StartVector(4, len(values), 4)
            for value in reversed(values):
                builder.PrependInt32(value)
            offset = self._ints[values] = builder.EndVector()
        return offset

    def _offsets(self, offsets: Sequence[int]) -> int:
        builder = self.builder
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    def _names(self, tensors: Sequence[Tensor]) -> int:
        return self._offsets([self._string(tensor.name) or 0 for tensor in tensors])

    def _software_version(self, version: SoftwareVersion | None) -> int | None:
        if version is None:
            return None
        return self._table(
            "SoftwareVersion",
            _major=version.major,
            _minor=version.minor,
            _micro=version.micro,
            _modifier=self._string(version.modifier),
        )

    def _block(self, block: Graph) -> int:
        operators = [self._operator(op) for op in block.ops]
        tensors = [self._tensor(t) for t in block.tensors if t.table == "tensors"]
        shapes = [
            self._table("TosaShape", name=self._string(t.name), rank=t.shape[0], data=self._bytes(t.stored))
            for t in block.tensors
            if t.table == "shapes"
        ]
        return self._table(
            "TosaBasicBlock",
            name=self._string(block.graph["name"]),
            operators=self._offsets(operators),
            tensors=self._offsets(tensors),
            inputs=self._names(block.inputs),
            outputs=self._names(block.outputs),
            shapes=self._offsets(shapes),
        )

    def _tensor(self, tensor: Tensor) -> int:
        extras = tensor.extras
        place, size = self.external.get(tensor, (0, 0))
        return self._table(
            "TosaTensor",
            name=self._string(tensor.name),
            shape=self._int_vector(tensor.shape if tensor.has_shape else None),
            type=int(tensor.dtype),
            data=self._bytes(None if place else tensor.stored),
            variable=int(extras.variable),
            is_unranked=int(extras.is_unranked),
            variable_name=self._string(extras.variable_name),
            offset=place,
            size=size,
            scale_type=int(extras.scale_type),
            scale_data=self._bytes(extras.scale_data),
            block_shape=int(extras.block_shape),
        )

    def _operator(self, op: AnyOp) -> int:
        attrs = op.attrs
        if isinstance(attrs, Foreign):
            number, union = attrs.number, (attrs.attribute_type, self._foreign_table(attrs))
        else:
            number, union = attrs.NUMBER, (attrs.NUMBER, self._attribute_table(attrs))
        location = None
        if op.location is not None:
            location = self._table("OpLocation", text=self._string(op.location))
        return self._table(
            "TosaOperator",
            op=number,
            attribute=union,
            inputs=self._names(op.inputs),
            outputs=self._names(op.outputs),
            location=location,
        )

    def _foreign_table(self, attrs: Foreign) -> int:
        if attrs.attributes is not None:
            return self._attribute_table(attrs.attributes)
        return self._sources[id(attrs.source.obj)] - attrs.table if attrs.table else 0

    def _attribute_table(self, attrs: Attributes) -> int:
        offset = self._attributes.get(attrs)
        if offset is None:
            kind = f"{type(attrs).__name__}Attribute"
            values: dict[str, Any] = {}
            for field in TABLES[kind]:
                value = getattr(attrs, field.name)
                if field.kind == "ints":
                    value = self._int_vector(value)
                elif field.kind == "bytes":
                    value = self._bytes(value)
                elif field.kind == "string":
                    value = self._string(value)
                values[field.name] = value
            offset = self._attributes[attrs] = self._table(kind, **values)
        return offset
