"""Damage small files in a way that anyone can repeat: case number N is the same on every machine.

A case damages a file in one to four places: half of them anywhere, half where the loader reads a number (an offset, a
count, an enumeration).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.hostile import seeds
from tosakit.io import flatbuffer
from tosakit.io.reader import load

HUGE = (
    *(0, 1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 255, 256, 1000, 65535, 1 << 20, (1 << 30) - 1, 1 << 30),
    *((1 << 31) - 1, 1 << 31, (1 << 31) + 4, (1 << 32) - 4, (1 << 32) - 1),
)
TEXTS = (b"\0", b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80", b"%s", b"\n", b'"')


@dataclass(frozen=True)
class Seed:
    """A file to damage, and the positions at which the loader reads numbers of it, with their widths."""

    name: str
    data: bytes
    places: tuple[tuple[int, int], ...]


def read_places(data: bytes) -> tuple[tuple[int, int], ...]:
    """Where loading ``data`` reads numbers: position and width of each."""
    widths = {"u8": 1, "bool": 1, "u16": 2, "i32": 4, "u32": 4, "u64": 8}
    places: dict[tuple[int, int], None] = {}
    numbers = flatbuffer.Buffer.numbers

    def recording(self: flatbuffer.Buffer, positions: flatbuffer.Ints, kind: str) -> flatbuffer.Ints:
        places.update(dict.fromkeys((position, widths[kind]) for position in positions.tolist()))
        return numbers(self, positions, kind)

    flatbuffer.Buffer.numbers = recording  # type: ignore[method-assign]
    try:
        load(data)
    finally:
        flatbuffer.Buffer.numbers = numbers  # type: ignore[method-assign]
    return tuple(places)


def all_seeds(directories: Sequence[str], largest: int) -> list[Seed]:
    """Every seed, in a fixed order: those made on the spot, then files of the directories, up to ``largest`` bytes."""
    files = [path for directory in directories for path in sorted(Path(directory).rglob("*.tosa"))]
    found = [*seeds(), *((path.name, path.read_bytes()) for path in files if path.stat().st_size <= largest)]
    return [Seed(name, data, read_places(data)) for name, data in found]


def _put(data: bytearray, position: int, width: int, value: int) -> None:
    if 0 <= position <= len(data) - width:
        data[position : position + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def _get(data: bytearray, position: int, width: int) -> int:
    return int.from_bytes(data[position : position + width], "little")


def _span(rng: random.Random, data: bytes | bytearray) -> slice:
    start = rng.randrange(len(data) + 1)
    return slice(start, min(start + rng.choice((1, 2, 4, 8, 16, 64, 256)), len(data)))


def _bits(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _number(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    """A huge, tiny or neighbouring value where a number is read."""
    position, width = rng.choice(seed.places)
    near = _get(data, position, width) + rng.choice((-4, -2, -1, 1, 2, 4, 256, 65536))
    end = len(data) - position
    _put(data, position, width, rng.choice((rng.choice(HUGE), near, end + rng.randint(-8, 8), -rng.randrange(1 << 16))))


def _offset(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    """An offset that points to another item, or half into one: tables overlap, close circles, pose as others."""
    (position, _), (target, _) = rng.choice(seed.places), rng.choice(seed.places)
    sign = rng.choice((1, 1, 1, -1))  # the offset to a vtable is subtracted
    _put(data, position, 4, sign * (target - position + rng.choice((0, 0, 0, 4, -4, 1, 2))))


def _copy_number(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    (position, width), (source, _) = rng.choice(seed.places), rng.choice(seed.places)
    _put(data, position, width, _get(data, source, width))


def _truncate(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    del data[rng.randrange(8, len(data) + 1) :]


def _extend(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    data += rng.choice((bytes(rng.randrange(1 << 12)), other.data, rng.randbytes(64)))


def _splice(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    """A piece of another file over, or between, our own bytes."""
    piece = other.data[_span(rng, other.data)]
    start = rng.randrange(len(data))
    data[start : start + rng.choice((0, len(piece)))] = piece


def _move(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    piece = data[_span(rng, data)]
    start = rng.randrange(len(data))
    data[start : start + len(piece)] = piece


def _fill(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    span = _span(rng, data)
    data[span] = bytes([rng.choice((0, 255, 1, 4, 65))]) * (span.stop - span.start)


def _text(rng: random.Random, data: bytearray, seed: Seed, other: Seed) -> None:
    """Zeros, broken UTF-8 and the like into what may be a name."""
    start, text = rng.randrange(len(data)), rng.choice(TEXTS)
    data[start : start + len(text)] = text


MUTATIONS: tuple[Callable[[random.Random, bytearray, Seed, Seed], None], ...] = (
    *(_bits, _truncate, _extend, _splice, _move, _fill, _text),
    *(_number, _number, _number, _offset, _offset, _offset, _copy_number),
)


def damaged(number: int, seeds: Sequence[Seed]) -> bytes:
    """The file of case ``number``."""
    rng = random.Random(f"tosakit {number}")
    seed, other = rng.choice(seeds), rng.choice(seeds)
    data = bytearray(seed.data)
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        rng.choice(MUTATIONS)(rng, data, seed, other)
        data = data or bytearray(8)
    if rng.random() < 0.98:
        data[4:8] = b"TOSA"
    return bytes(data)
