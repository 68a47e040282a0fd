"""Bounds-checked access to the tables of a flatbuffer whose bytes nobody vouches for.

The layout of each table comes from :mod:`tosakit.io.schema`. Every offset, length and string is checked before use;
whatever does not fit raises :class:`Corrupt` with the position.
"""

import struct
from collections.abc import Iterator
from typing import Any

from tosakit.errors import InvalidModel
from tosakit.io.schema import TABLES, Field

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_SCALARS = {"bool": struct.Struct("<B"), "i32": _I32, "u32": _U32, "u64": struct.Struct("<Q")}


class Corrupt(InvalidModel):
    """The bytes of a file are not a well-formed TOSA flatbuffer."""


def _layout(fields: tuple[Field, ...]) -> dict[str, tuple[int, Field]]:
    slots: dict[str, tuple[int, Field]] = {}
    slot = 0
    for field in fields:
        slot += field.kind == "union"  # the type of a union takes the slot before its value
        slots[field.name] = (slot, field)
        slot += 1
    return slots


LAYOUTS = {name: _layout(fields) for name, fields in TABLES.items()}
SLOT_COUNTS = {name: max((slot for slot, _ in layout.values()), default=-1) + 1 for name, layout in LAYOUTS.items()}


class Buffer:
    """A flatbuffer as bytes, with the vtables read so far (they are shared by many tables)."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.size = len(data)
        self._vtables: dict[int, tuple[int, ...]] = {}

    def u32(self, position: int) -> int:
        """The 32-bit unsigned number at ``position``."""
        if not 0 <= position <= self.size - 4:
            raise Corrupt(f"byte {position} is outside the file's {self.size} bytes")
        return int(_U32.unpack_from(self.data, position)[0])

    def follow(self, position: int) -> int:
        """Position that the offset stored at ``position`` points to."""
        offset = self.u32(position)
        target = position + offset
        if not offset > 0 or target > self.size - 4:
            raise Corrupt(f"offset {offset} at byte {position} leaves the file's {self.size} bytes")
        return target

    def vtable(self, table: int) -> tuple[int, ...]:
        """Field offsets (0: absent) of the table at ``table``, checked to lie inside the table and the file."""
        if not 0 <= table <= self.size - 4:
            raise Corrupt(f"table at byte {table} is outside the file's {self.size} bytes")
        start = table - int(_I32.unpack_from(self.data, table)[0])
        entries = self._vtables.get(start)
        if entries is None:
            if not 0 <= start <= self.size - 4:
                raise Corrupt(f"table at byte {table} has its vtable at byte {start}, outside the file")
            length = int(_U16.unpack_from(self.data, start)[0])
            if length < 4 or length % 2 or start + length > self.size:
                raise Corrupt(f"vtable at byte {start} has the impossible length {length}")
            numbers = struct.unpack_from(f"<{length // 2}H", self.data, start)
            entries = self._vtables[start] = numbers[1:]
        if table + entries[0] > self.size:
            raise Corrupt(f"table at byte {table} with {entries[0]} bytes leaves the file")
        return entries[1:]

    def vector(self, position: int, element_size: int) -> tuple[int, int]:
        """Start and length of the vector that the offset at ``position`` points to."""
        start = self.follow(position)
        count = self.u32(start)
        if start + 4 + count * element_size > self.size:
            raise Corrupt(f"vector at byte {start} with {count} elements leaves the file's {self.size} bytes")
        return start + 4, count

    def string_at(self, start: int) -> str:
        """The string whose length field stands at ``start``."""
        count = self.u32(start)
        if start + 4 + count > self.size:
            raise Corrupt(f"string at byte {start} with {count} bytes leaves the file's {self.size} bytes")
        try:
            return str(self.data[start + 4 : start + 4 + count], "utf-8")
        except UnicodeDecodeError as error:
            raise Corrupt(f"string at byte {start} is not UTF-8: {error.reason}") from None


class Table:
    """One table of a buffer, read field by field."""

    __slots__ = ("_fields", "buffer", "kind", "position")

    def __init__(self, buffer: Buffer, kind: str, position: int) -> None:
        self.buffer = buffer
        self.kind = kind
        self.position = position
        self._fields = buffer.vtable(position)

    @property
    def has_unknown_fields(self) -> bool:
        """True where the table uses fields that this schema does not have."""
        return any(self._fields[SLOT_COUNTS[self.kind] :])

    def _place(self, slot: int, size: int) -> int:
        offset = self._fields[slot] if slot < len(self._fields) else 0
        if offset and self.position + offset + size > self.buffer.size:
            raise Corrupt(f"{self.kind} at byte {self.position}: field {slot} leaves the file")
        return self.position + offset if offset else 0

    def scalar(self, name: str) -> int:
        """A number, truth value or enumeration number."""
        slot, field = LAYOUTS[self.kind][name]
        packer = _SCALARS[field.kind]
        place = self._place(slot, packer.size)
        return int(packer.unpack_from(self.buffer.data, place)[0]) if place else field.default

    def string(self, name: str) -> str | None:
        """A string, or None where the field is absent."""
        place = self._place(LAYOUTS[self.kind][name][0], 4)
        return self.buffer.string_at(self.buffer.follow(place)) if place else None

    def strings(self, name: str) -> list[str]:
        """A vector of strings; absent counts as empty."""
        buffer = self.buffer
        place = self._place(LAYOUTS[self.kind][name][0], 4)
        if not place:
            return []
        start, count = buffer.vector(place, 4)
        return [buffer.string_at(buffer.follow(start + 4 * i)) for i in range(count)]

    def ints(self, name: str) -> tuple[int, ...] | None:
        """A vector of int32, or None where the field is absent."""
        place = self._place(LAYOUTS[self.kind][name][0], 4)
        if not place:
            return None
        start, count = self.buffer.vector(place, 4)
        return struct.unpack_from(f"<{count}i", self.buffer.data, start)

    def bytes(self, name: str) -> memoryview | None:
        """A byte vector as a view, or None where the field is absent."""
        place = self._place(LAYOUTS[self.kind][name][0], 4)
        if not place:
            return None
        start, count = self.buffer.vector(place, 1)
        return self.buffer.data[start : start + count]

    def table(self, name: str) -> "Table | None":
        """A child table, or None where the field is absent."""
        slot, field = LAYOUTS[self.kind][name]
        place = self._place(slot, 4)
        return Table(self.buffer, field.kind.removeprefix("table:"), self.buffer.follow(place)) if place else None

    def tables(self, name: str) -> Iterator["Table"]:
        """A vector of child tables; absent counts as empty."""
        slot, field = LAYOUTS[self.kind][name]
        place = self._place(slot, 4)
        if place:
            kind = field.kind.removeprefix("tables:")
            start, count = self.buffer.vector(place, 4)
            for position in range(start, start + 4 * count, 4):
                yield Table(self.buffer, kind, self.buffer.follow(position))

    def union(self, name: str) -> tuple[int, int]:
        """Type number of a union and position of its table (0 where absent)."""
        slot, _ = LAYOUTS[self.kind][name]
        type_place = self._place(slot - 1, 1)
        place = self._place(slot, 4)
        number = int(self.buffer.data[type_place]) if type_place else 0
        return number, self.buffer.follow(place) if place else 0

    def value(self, field: Field) -> Any:
        """The field's value by its kind; absent vectors and strings read as empty."""
        if field.kind in _SCALARS:
            number = self.scalar(field.name)
            return bool(number) if field.kind == "bool" else number
        if field.kind == "ints":
            return self.ints(field.name) or ()
        if field.kind == "bytes":
            return bytes(self.bytes(field.name) or b"")
        return self.string(field.name) or ""
