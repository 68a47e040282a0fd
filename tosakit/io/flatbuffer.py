"""Bounds-checked access to the tables of a flatbuffer whose bytes nobody vouches for, many tables at a time.

:class:`Tables` reads one field of many tables of one kind as one column, so that Python's cost is per column, not per
value. What makes hostile bytes harmless:

- Every byte is fetched by :meth:`Buffer.numbers`, :meth:`Buffer.pieces` or :meth:`Buffer.strings`, which check all
  positions against the file first (numpy would let negative ones wrap).
- Whatever becomes an object of its own, or work of its own, *claims* the bytes that it takes in an honest file.
  Together the claims may not exceed the file, so overlapping or much shared pieces cannot make a reader do work, or
  hold memory, out of proportion to the file's size.
- What a count announces is read in chunks of :data:`CHUNK` elements; nonsense stops at the first.
- The schema has no recursion, so nothing here can loop.

Whatever does not fit raises :class:`Corrupt` with the position. The layout of each table comes from
:mod:`tosakit.io.schema`.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidModel
from tosakit.io.schema import TABLES, Field

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]

CHUNK: Final = 1 << 14
"""Tables or vector elements handled at once: enough to make numpy's overhead vanish, few enough for the caches."""

SHORT: Final = 128
"""Bytes up to which strings and constants are fetched many at a time and held as ``bytes``, not as views."""

SLACK: Final = 1 << 16
"""Bytes that may be claimed beyond the file's size: a small file may be odd."""

LEAST: Final = {"TosaOperator": 24, "TosaTensor": 20, "TosaShape": 16, "TosaBasicBlock": 36, "TosaRegion": 12}
"""Bytes that an honest table of each kind takes at least, with its name and the counts of its vectors."""

MANY_INTS: Final = 8
"""Integers above which a vector claims its bytes even where many tables share it."""

MAX_INTS: Final = 64
"""Longest vector of integers, by far: they hold shapes, permutations and window sizes, and no array has more axes."""

_NUMBERS: Final = {"u8": "u1", "bool": "u1", "u16": "<u2", "i32": "<i4", "u32": "<u4", "u64": "<u8"}


T = TypeVar("T")
D = TypeVar("D")
_Raw = npt.NDArray[np.void]


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


class _Interned(dict[bytes, bytes]):
    """Short byte strings by content, each held once."""

    def __missing__(self, raw: bytes) -> bytes:
        self[raw] = raw
        return raw


class _Tuples(dict[bytes, tuple[int, ...]]):
    """Vectors of int32 by their bytes, each decoded once and shared."""

    def __missing__(self, raw: bytes) -> tuple[int, ...]:
        values = self[raw] = struct.unpack(f"<{len(raw) // 4}i", raw)
        return values


Rows = Mask | slice
"""A choice among rows, as numpy takes it."""


def spread(chosen: Mask, read: Callable[[Rows], list[Any]], default: Any = None) -> list[Any]:
    """What ``read`` gives for the chosen rows, in their places; ``default`` elsewhere."""
    count = np.count_nonzero(chosen)
    if count == len(chosen):
        return read(slice(None))
    values: list[Any] = [default] * len(chosen)
    if count:
        for row, value in zip(np.flatnonzero(chosen).tolist(), read(chosen), strict=True):
            values[row] = value
    return values


def ascending(numbers: Ints) -> Ints:
    """Rows in the order of their numbers, none of which is negative; quick where all are below 65536."""
    return np.argsort(numbers.astype(np.min_scalar_type(numbers.max(initial=0))), kind="stable")


def runs(numbers: Ints) -> Iterator[tuple[int, slice]]:
    """Stretches of equal numbers, which ascend."""
    if len(numbers):
        cuts = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
        for start, stop in pairwise([0, *cuts, len(numbers)]):
            yield int(numbers[start]), slice(start, stop)


def in_rows(rows: Ints, values: list[T]) -> list[T]:
    """The values, each in its row; there is one for every row."""
    if np.array_equal(rows, np.arange(len(rows))):
        return values
    placed = np.empty(len(rows), object)
    placed[rows] = np.fromiter(values, object, len(rows))
    found: list[T] = placed.tolist()
    return found


class Buffer:
    """The bytes of a file, fetched by arrays of positions."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.size = len(data)
        self._views: dict[str, npt.NDArray[Any]] = {}
        # the same, for numpy reads aligned numbers twice as fast
        self._words = {dtype: np.frombuffer(data, dtype, self.size // 4) for dtype in ("<i4", "<u4")}
        self._claimed = 0
        self._vtables: dict[int, tuple[int, ...]] = {}
        self._long_strings: dict[int, str] = {}
        self._interned = _Interned()
        self._tuples = _Tuples()

    def numbers(self, positions: Ints, kind: str) -> Ints:
        """The little-endian numbers of a kind (``u8``, ``u16``, ``i32``, ``u32``, ``u64``) at ``positions``.

        Numbers of 2**63 and more, which only ``u64`` has, come out 2**64 too small.
        """
        return self._fetch(positions, _NUMBERS[kind]).astype(np.int64)

    def _fetch(self, positions: Ints, dtype: str) -> npt.NDArray[Any]:
        """Items of ``dtype`` at ``positions``, from a view of the file with one item at every byte."""
        view = self._views.get(dtype)
        if view is None:
            shape = (max(self.size - np.dtype(dtype).itemsize + 1, 0),)
            view = self._views[dtype] = np.ndarray(shape, dtype, self.data, strides=(1,))
        if not len(positions):
            return np.empty(0, dtype)
        # seen as unsigned, a negative position is one far behind the end
        if np.maximum.reduce(positions.view(np.uint64)) >= len(view):
            bad = positions[(positions < 0) | (positions >= len(view))]
            raise Corrupt(f"byte {bad[0]} is outside the file's {self.size} bytes")
        if dtype in self._words and not np.bitwise_or.reduce(positions) % 4:
            view, positions = self._words[dtype], positions >> 2
        found: npt.NDArray[Any] = view[positions]
        return found

    def follow(self, positions: Ints) -> Ints:
        """Positions that the offsets stored at ``positions`` point to, each with at least 4 bytes behind it."""
        offsets = self.numbers(positions, "u32")
        targets = positions + offsets
        _require(
            (offsets > 0) & (targets <= self.size - 4),
            lambda i: f"offset {offsets[i]} at byte {positions[i]} leaves the file's {self.size} bytes",
        )
        return targets

    def vtable(self, start: int) -> tuple[int, ...]:
        """What the vtable at ``start`` says: size of the table, then the offset of each field (0: absent)."""
        offsets = self._vtables.get(start)
        if offsets is None:
            length = int(self.numbers(np.array([start]), "u16")[0])
            if length < 4 or length % 2 or start + length > self.size:
                raise Corrupt(f"vtable at byte {start} has the impossible length {length}")
            self.claim(length)
            offsets = self._vtables[start] = struct.unpack_from(f"<{length // 2}H", self.data, start)[1:]
        return offsets

    def vectors(self, positions: Ints, width: int, what: str = "vector") -> tuple[Ints, Ints]:
        """Starts of the elements and counts of the vectors at ``positions``, whose elements take ``width`` bytes."""
        counts = self.numbers(positions, "u32")
        starts = positions + 4
        _require(
            starts + counts * width <= self.size,
            lambda i: (
                f"{what} at byte {positions[i]} with {counts[i]} elements of {width} bytes "
                f"leaves the file's {self.size} bytes"
            ),
        )
        return starts, counts

    def claim(self, size: int) -> None:
        """Count ``size`` bytes as taken; raises Corrupt where more than the file has are taken."""
        self._claimed += size
        if self._claimed > self.size + SLACK:
            raise Corrupt(f"its tables and vectors claim more than the {self.size} bytes of the file: they overlap")

    def chunks(self, starts: Ints, counts: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Owner and position of each 4-byte element of many vectors, one vector after the other, chunk by chunk."""
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        self.claim(4 * total)
        offsets = starts - 4 * (ends - counts)
        for low in range(0, total, CHUNK):
            high = min(low + CHUNK, total)
            first, last = np.searchsorted(ends, (low, high - 1), "right")
            span = slice(first, last + 1)
            inside = np.minimum(ends[span], high) - np.maximum(ends[span] - counts[span], low)
            owners = np.repeat(np.arange(first, last + 1), inside)
            yield owners, offsets[owners] + 4 * np.arange(low, high)

    def pieces(self, starts: Ints, lengths: Ints) -> list[bytes]:
        """The ``lengths`` (none above :data:`SHORT`) bytes at each of ``starts``; equal ones are one object."""
        intern = self._interned.__getitem__
        return self._grouped(starts, lengths, lambda raw: map(intern, raw.tolist()), b"")

    def tuples(self, starts: Ints, counts: Ints) -> list[tuple[int, ...]]:
        """The vectors of ``counts`` int32 at ``starts``; equal ones are one object."""
        _require(
            counts <= MAX_INTS,
            lambda i: f"vector of integers at byte {starts[i] - 4} has {counts[i]} elements; TOSA has none so long",
        )
        self.claim(4 * int(counts[counts > MANY_INTS].sum()))
        decode = self._tuples.__getitem__
        return self._grouped(starts, 4 * counts, lambda raw: map(decode, raw.tolist()), ())

    def _grouped(self, starts: Ints, lengths: Ints, convert: Callable[[_Raw], Iterable[T]], empty: T) -> list[T]:
        """Fetch pieces of equal length at once, convert what was fetched, and put the results in order."""
        order = ascending(lengths)
        starts, lengths = starts[order], lengths[order]
        found: list[T] = []
        for length, span in runs(lengths):
            pieces = starts[span]
            found.extend(convert(self._fetch(pieces, f"V{length}")) if length else [empty] * len(pieces))
        return in_rows(order, found)

    def contents(self, starts: Ints, lengths: Ints) -> list[memoryview | bytes | None]:
        """The ``lengths`` bytes at ``starts``: short ones as ``bytes``, longer ones as views; None where start is 0."""
        found: list[memoryview | bytes | None] = spread(
            (starts > 0) & (lengths <= SHORT), lambda rows: self.pieces(starts[rows], lengths[rows])
        )
        for row in np.flatnonzero(lengths > SHORT).tolist():
            found[row] = self.data[starts[row] : starts[row] + lengths[row]]
        return found

    def strings(self, positions: Ints) -> list[str]:
        """The strings whose length fields stand at ``positions``."""
        starts, lengths = self.vectors(positions, 1, "string")
        _require(
            starts + lengths < self.size,
            lambda i: f"string at byte {positions[i]} with {lengths[i]} bytes does not end inside the file",
        )
        found: list[str] = spread(lengths < SHORT, lambda rows: self._short_strings(starts[rows], lengths[rows]))
        for row in np.flatnonzero(lengths >= SHORT).tolist():
            found[row] = self._long_string(int(starts[row]), int(lengths[row]))
        return found

    def _short_strings(self, starts: Ints, lengths: Ints) -> list[str]:
        ends = starts + lengths
        _require(
            self.numbers(ends, "u8") == 0,
            lambda i: f"string at byte {starts[i] - 4} does not end with a zero byte after its {lengths[i]} bytes",
        )

        def convert(raw: _Raw) -> list[str]:
            try:
                texts = str(raw.data, "utf-8").split("\0")
            except UnicodeDecodeError:
                texts = []
            if len(texts) != len(raw) + 1:  # embedded zeros, or one string is not UTF-8
                return [_decode(piece[:-1]) for piece in raw.tolist()]
            del texts[-1]
            return texts

        return self._grouped(starts, lengths + 1, convert, "")

    def _long_string(self, start: int, length: int) -> str:
        text = self._long_strings.get(start)
        if text is None:
            self.claim(length)
            text = self._long_strings[start] = _decode(bytes(self.data[start : start + length]))
        return text


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"the string {raw[:40]!r} is not UTF-8: {error.reason} at its byte {error.start}") from None


def _require(good: Mask, message: Callable[[int], str]) -> None:
    """Raise Corrupt for the first entry that is not good."""
    if np.count_nonzero(good) != len(good):
        raise Corrupt(message(int(np.argmin(good))))


class Tables:
    """Many tables of one kind, read one field at a time.

    Raises InvalidModel where a table uses fields this schema does not have, unless ``allow_unknown``; then ``unknown``
    tells which do.
    """

    def __init__(self, buffer: Buffer, kind: str, positions: Ints, *, allow_unknown: bool = False) -> None:
        self.buffer = buffer
        self.kind = kind
        self.positions = positions
        starts = positions - buffer.numbers(positions, "i32")
        if len(positions) and np.count_nonzero(starts == starts[0]) < len(positions):
            distinct, self._which = np.unique(starts, return_inverse=True)
        else:
            distinct, self._which = starts[:1], None
        vtables = [buffer.vtable(start) for start in distinct.tolist()]
        self._vtables = [vtable[1:] for vtable in vtables]
        sizes = self._by_vtable([vtable[0] for vtable in vtables])
        _require(
            positions + sizes <= buffer.size,
            lambda i: f"{kind} table at byte {positions[i]} with {sizes[i]} bytes leaves the file",
        )
        unknown = [any(vtable[SLOT_COUNTS[kind] :]) for vtable in self._vtables]
        self.unknown = self._by_vtable(unknown) != 0
        if not allow_unknown and any(unknown):
            raise InvalidModel(
                f"a {kind} table uses fields newer than this tosakit knows; they would be lost, so it is not read. "
                "Update tosakit, or export the file for TOSA 1.0"
            )

    def __len__(self) -> int:
        return len(self.positions)

    def _by_vtable(self, numbers: Sequence[int]) -> Ints:
        """A number per table from a number per distinct vtable."""
        if self._which is None:
            return np.full(len(self.positions), sum(numbers), np.int64)  # there is one, or no table
        return np.array(numbers, np.int64)[self._which]

    def _field(self, slot: int) -> tuple[Mask, Ints]:
        """Which tables have the field, and where those have it."""
        offsets = [vtable[slot] if slot < len(vtable) else 0 for vtable in self._vtables]
        if not any(offsets):
            return np.zeros(len(self.positions), np.bool_), self.positions[:0]
        if self._which is None:
            return np.ones(len(self.positions), np.bool_), self.positions + offsets[0]
        column = self._by_vtable(offsets)
        present = column > 0
        return present, (self.positions + column)[present]

    def select(self, rows: Mask) -> "Tables":
        """Some of the tables."""
        return Tables(self.buffer, self.kind, self.positions[rows], allow_unknown=True)

    def scalars(self, name: str) -> Ints:
        """Numbers, truth values or enumeration numbers, with the schema's default where the field is absent."""
        slot, field = LAYOUTS[self.kind][name]
        return self._scalars(slot, field.kind, field.default)

    def _scalars(self, slot: int, kind: str, default: int) -> Ints:
        present, places = self._field(slot)
        return self._fill(present, self.buffer.numbers(places, kind), default)

    def _fill(self, present: Mask, numbers: Ints, default: int) -> Ints:
        if len(numbers) == len(present):
            return numbers
        filled = np.full(len(present), default, np.int64)
        filled[present] = numbers
        return filled

    def targets(self, name: str) -> Ints:
        """Where the field's offset points to: position of a string, vector or table; 0 where the field is absent."""
        present, places = self._field(LAYOUTS[self.kind][name][0])
        return self._fill(present, self.buffer.follow(places), 0)

    def vectors(self, name: str, width: int) -> tuple[Ints, Ints]:
        """Starts of the elements and counts of a vector field; start 0 and count 0 where it is absent."""
        present, places = self._field(LAYOUTS[self.kind][name][0])
        starts, counts = self.buffer.vectors(self.buffer.follow(places), width)
        return self._fill(present, starts, 0), self._fill(present, counts, 0)

    def union(self, name: str) -> tuple[Ints, Ints]:
        """Type numbers of a union and positions of its tables (0 where absent)."""
        slot, _ = LAYOUTS[self.kind][name]
        return self._scalars(slot - 1, "u8", 0), self.targets(name)

    def strings(self, name: str, default: D) -> list[str | D]:
        """Strings, ``default`` where the field is absent."""
        targets = self.targets(name)
        return spread(targets > 0, lambda present: self.buffer.strings(targets[present]), default)

    def ints(self, name: str) -> list[tuple[int, ...] | None]:
        """Vectors of int32, None where the field is absent."""
        starts, counts = self.vectors(name, 4)
        return spread(starts > 0, lambda present: self.buffer.tuples(starts[present], counts[present]))

    def contents(self, name: str) -> list[memoryview | bytes | None]:
        """Byte vectors, None where the field is absent."""
        return self.buffer.contents(*self.vectors(name, 1))

    def tables(self, name: str) -> tuple[Mask, "Tables"]:
        """The child tables, and which tables have one."""
        _, field = LAYOUTS[self.kind][name]
        targets = self.targets(name)
        present = targets > 0
        return present, Tables(self.buffer, field.kind.removeprefix("table:"), targets[present])

    def children(self, name: str) -> Iterator[tuple[Ints, "Tables"]]:
        """The tables of a vector of child tables, chunk by chunk, with the row of each one's owner."""
        _, field = LAYOUTS[self.kind][name]
        kind = field.kind.removeprefix("tables:")
        for owners, positions in self.buffer.chunks(*self.vectors(name, 4)):
            self.buffer.claim(LEAST[kind] * len(positions))
            yield owners, Tables(self.buffer, kind, self.buffer.follow(positions))

    def values(self, field: Field) -> list[Any]:
        """One attribute field as Python values by its kind; absent vectors and strings read as empty."""
        if field.kind == "bool":
            return list((self.scalars(field.name) != 0).tolist())
        if field.kind == "ints":
            return [value or () for value in self.ints(field.name)]
        if field.kind == "bytes":
            return [self._owned(value) for value in self.contents(field.name)]
        if field.kind == "string":
            return self.strings(field.name, "")
        return list(self.scalars(field.name).tolist())

    def _owned(self, value: memoryview | bytes | None) -> bytes:
        if isinstance(value, memoryview):
            self.buffer.claim(len(value))
            return value.tobytes()
        return value or b""
