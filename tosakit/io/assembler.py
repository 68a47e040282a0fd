"""Lay out a flatbuffer whole columns at a time, from its end to its start.

An offset in a flatbuffer points forward, so what is pointed to is laid out first, behind what points to it. A place is
a *depth*: the distance in bytes from the start of an item to the end of the flatbuffer; 0 stands for "absent". Since
the finished size is a multiple of :data:`ALIGNMENT`, a depth is aligned as its address will be.

Tables of one kind with the same fields present share one vtable and have their fields at the same places; they are
laid out together as one numpy record array. Values equal to the schema's default, and absent offsets, take no room.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidModel
from tosakit.io.flatbuffer import LAYOUTS, ascending, runs

Ints = npt.NDArray[np.int64]

ALIGNMENT: Final = 16
"""Alignment of the finished flatbuffer, and the largest that anything in it can ask for."""

DATA_ALIGNMENT: Final = 8
"""Alignment of constants (``force_align`` in the schema)."""

JOINED: Final = 1024
"""Constants of fewer bytes are joined with their neighbours; longer ones are handed on uncopied."""

LIMIT: Final = (1 << 31) - 1
"""Largest flatbuffer."""

_FORMATS: Final = {"bool": "u1", "u8": "u1", "i32": "<i4", "u32": "<u4", "u64": "<u8"}


class Assembler:
    """Collects the parts of one flatbuffer."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[memoryview] = []  # last one first
        self._vtables: dict[bytes, int] = {}

    def _prepend(self, *parts: bytes | memoryview | npt.NDArray[Any]) -> None:
        """Put parts, in reading order, in front of everything so far."""
        for part in reversed(parts):
            view = part.view(np.uint8).data if isinstance(part, np.ndarray) else memoryview(part)
            self._parts.append(view)
            self.size += len(view)

    def _align(self, upcoming: int, alignment: int) -> None:
        """Pad so that a part of ``upcoming`` bytes, put in front, will start aligned."""
        padding = -(self.size + upcoming) % alignment
        if padding:
            self._prepend(bytes(padding))

    def finish(self, root: int, identifier: bytes) -> list[memoryview]:
        """The parts in reading order, once everything that ``root`` refers to is laid out."""
        self._align(8, ALIGNMENT)
        size = self.size + 8
        if size > LIMIT:
            raise InvalidModel(f"the flatbuffer would take {size} bytes; the format ends at {LIMIT}")
        self._prepend((size - root).to_bytes(4, "little") + identifier)
        return self._parts[::-1]

    def tables(self, kind: str, count: int, columns: Mapping[str, Ints | int | tuple[Ints, Ints]]) -> Ints:
        """Lay out ``count`` tables; returns their depths.

        A column has one entry per table: numbers for a scalar field, depths for a field that is an offset, a pair of
        columns (type numbers, depths) for a union. A single table may have plain numbers. Fields not given are absent.
        """
        fields: list[tuple[int, str, Ints, npt.NDArray[np.bool_]]] = []  # slot, storage, values, present
        for name, column in columns.items():
            slot, field = LAYOUTS[kind][name]
            if isinstance(column, tuple):
                types, depths = column
                fields.append((slot - 1, "u8", types, types > 0))
                fields.append((slot, "offset", depths, depths > 0))
            else:
                values = np.array([column]) if isinstance(column, int) else column
                storage = field.kind if field.kind in _FORMATS else "offset"
                present = values > 0 if storage == "offset" else values != field.default
                if np.count_nonzero(present):
                    _require_range(values, storage, f"{kind}.{name}")
                    fields.append((slot, storage, values, present))
        # fields by presence: the bits of a table's pattern say which of them it has
        pattern = np.zeros(count, np.int64)
        for index, (_, _, _, present) in enumerate(fields):
            pattern |= present.astype(np.int64) << index
        depths = np.empty(count, np.int64)
        for bits in np.flatnonzero(np.bincount(pattern, minlength=1)).tolist():
            rows = np.flatnonzero(pattern == bits)
            if len(rows):
                chosen = [field for index, field in enumerate(fields) if bits >> index & 1]
                depths[rows] = self._records(
                    [(slot, storage, values[rows]) for slot, storage, values, _ in chosen], len(rows)
                )
        return depths

    def _records(self, fields: Sequence[tuple[int, str, Ints]], count: int) -> Ints:
        """Lay out tables that all have the same fields."""
        places: dict[int, int] = {}
        end = 4  # the offset to the vtable comes first
        formats = {slot: _FORMATS.get(storage, "<u4") for slot, storage, _ in fields}
        for slot in sorted(formats, key=lambda slot: (-np.dtype(formats[slot]).itemsize, slot)):
            places[slot] = end
            end += np.dtype(formats[slot]).itemsize
        alignment = 8 if any(storage == "u64" for _, storage, _ in fields) else 4
        width = -(-end // alignment) * alignment
        vtable = self._vtable(places, end)
        if alignment == 8:  # 8-byte numbers start 4 bytes into the table
            self._prepend(bytes(-(self.size + 4) % 8))
        depths = self.size + width * np.arange(count, 0, -1, dtype=np.int64)
        records = np.zeros(
            count,
            np.dtype(
                {
                    "names": ["vtable", *(str(slot) for slot in places)],
                    "formats": ["<i4", *(formats[slot] for slot in places)],
                    "offsets": [0, *places.values()],
                    "itemsize": width,
                }
            ),
        )
        records["vtable"] = vtable - depths
        for slot, storage, values in fields:
            records[str(slot)] = depths - places[slot] - values if storage == "offset" else values
        self._prepend(records)
        return depths

    def _vtable(self, places: Mapping[int, int], table_size: int) -> int:
        slots = max(places, default=-1) + 1
        numbers = [4 + 2 * slots, table_size, *(places.get(slot, 0) for slot in range(slots))]
        raw = np.array(numbers, "<u2").tobytes()
        depth = self._vtables.get(raw)
        if depth is None:
            self._align(len(raw), 4)
            self._prepend(raw)
            depth = self._vtables[raw] = self.size
        return depth

    def table(self, kind: str, **columns: int) -> int:
        """Lay out one table; returns its depth."""
        return int(self.tables(kind, 1, columns)[0])

    def offset_vectors(self, counts: Ints, depths: Ints) -> Ints:
        """Lay out vectors of offsets: of ``counts`` elements each, ``depths`` being all their targets in turn."""
        return self._word_vectors(counts, depths, relative=True)

    def int_vectors(self, vectors: Sequence[tuple[int, ...]]) -> Ints:
        """Lay out vectors of int32."""
        counts = np.fromiter(map(len, vectors), np.int64, len(vectors))
        try:
            values = np.fromiter(chain.from_iterable(vectors), np.int64, int(counts.sum()))
        except OverflowError:
            raise InvalidModel("a dimension or attribute of the graph does not fit into 32 bits") from None
        _require_range(values, "i32", "a dimension or attribute")
        return self._word_vectors(counts, values, relative=False)

    def _word_vectors(self, counts: Ints, elements: Ints, *, relative: bool) -> Ints:
        owners = np.arange(len(counts))
        heads = owners + np.cumsum(counts) - counts
        places = np.arange(1, len(elements) + 1) + np.repeat(owners, counts)
        words = np.empty(len(counts) + len(elements), "<u4")
        end = self.size + 4 * len(words)
        words[heads] = counts
        words[places] = end - 4 * places - elements if relative else elements
        self._prepend(words)
        found: Ints = end - 4 * heads
        return found

    def strings(self, texts: Sequence[str]) -> Ints:
        """Lay out strings."""
        if not texts:
            return np.zeros(0, np.int64)
        try:
            raw = np.frombuffer(("\0".join(texts) + "\0").encode("utf-8"), np.uint8)
            ends = np.flatnonzero(raw == 0)
            if len(ends) > len(texts):  # there are zeros within texts
                ends = np.cumsum([len(text.encode("utf-8")) + 1 for text in texts]) - 1
        except UnicodeEncodeError as error:
            raise InvalidModel(f"the name {error.object[:40]!r} cannot be written as UTF-8") from None
        lengths = np.diff(ends, prepend=-1) - 1
        sizes = (lengths + 8) // 4 * 4  # length, text, zero byte, padding
        starts = np.cumsum(sizes) - sizes
        words = np.zeros(int(sizes.sum()), np.uint8)
        words.view("<u4")[starts // 4] = lengths
        order = ascending(lengths)
        for length, span in runs(lengths[order]):  # texts of equal length at once
            rows = order[span]
            views: list[npt.NDArray[np.void]] = [
                np.ndarray(len(of) - length, f"V{length + 1}", of, strides=(1,)) for of in (words, raw)
            ]
            views[0][starts[rows] + 4] = views[1][ends[rows] - length]
        self._prepend(words)
        found: Ints = self.size - starts
        return found

    def blobs(self, contents: Iterable[bytes | memoryview]) -> Ints:
        """Lay out vectors of bytes, each aligned to :data:`DATA_ALIGNMENT`; long ones are handed on uncopied."""
        parts: list[bytes | memoryview] = []
        pending: list[bytes | memoryview] = []
        starts: list[int] = []
        size = 0
        for content in contents:
            length = len(content)
            starts.append(size)
            pending.append(length.to_bytes(4, "little"))
            if length < JOINED:
                pending.append(content)
            else:
                parts += (b"".join(pending), content)
                pending = []
            padding = -(length + 4) % DATA_ALIGNMENT
            pending.append(bytes(padding))
            size += 4 + length + padding
        # elements begin 4 bytes into each vector and are what must be aligned
        self._align(0, DATA_ALIGNMENT)
        self._prepend(bytes(4))
        parts.append(b"".join(pending))
        self._prepend(*parts)
        return self.size - np.array(starts, np.int64)

    def embed(self, content: memoryview) -> int:
        """Lay out bytes at the largest alignment, uncopied; returns the depth of their first byte."""
        self._align(len(content), ALIGNMENT)
        self._prepend(content)
        return self.size


def _require_range(values: Ints, storage: str, what: str) -> None:
    if storage in ("i32", "u32") and len(values):
        limits = np.iinfo(_FORMATS[storage])
        if values.min() < limits.min or values.max() > limits.max:
            raise InvalidModel(f"{what} does not fit into 32 bits; it reaches from {values.min()} to {values.max()}")
