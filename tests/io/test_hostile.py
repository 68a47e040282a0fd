"""Files made to hurt: each ends in a Program or a TosakitError within the limits of tests/fuzz/promise.py."""

import os
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.campaign import campaign, left_to_do, run_cases
from tests.fuzz.mutate import all_seeds, damaged
from tests.fuzz.promise import TooSlow, check, limits
from tosakit.io.assembler import Assembler, Ints

MANY = 50_000


def test_damaged_files_short() -> None:
    """The first cases of the campaign. It must reach deep: some load, and errors are of many kinds."""
    outcomes, failures = run_cases(range(300), all_seeds((), 0))
    assert not failures, failures[0]
    assert outcomes["program"] > 30
    assert len(outcomes) > 12


def test_case_is_reproducible() -> None:
    found = all_seeds((), 0)
    assert damaged(7, found) == damaged(7, found)


def _endless() -> None:
    while True:
        pass


def test_limits_bite() -> None:
    with pytest.raises(MemoryError), limits(10, 1 << 20):
        bytes(1 << 30)
    with pytest.raises(TooSlow), limits(0.01, 64 << 20):
        _endless()


def test_the_campaign_survives_a_case_that_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deadly(data: bytes) -> str:
        if data == damaged(5, found):
            os._exit(9)
        return "fine"

    found = all_seeds((), 0)
    monkeypatch.setattr("tests.fuzz.campaign.check", deadly)
    ended = list(campaign([range(10)], found))
    assert {number for numbers, _ in ended for number in numbers} == set(range(10))
    assert [failures for _, (_, failures) in ended if failures] == [["case 5: the process ended with 9"]]
    assert sum(counts["fine"] for _, (counts, _) in ended) == 9


def test_the_campaign_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"cases": [0, 1000], "outcomes": {"program": 999}, "failures": ["case 7"]}\n')
    todo, (outcomes, failures) = left_to_do(2500, log)
    assert todo == [range(1000, 2000), range(2000, 2500)]
    assert (outcomes, failures) == ({"program": 999}, ["case 7"])


class File:
    """A file under construction, with everything given once and pointed to many times."""

    def __init__(self) -> None:
        self.assembler = Assembler()
        self.name = int(self.assembler.strings(["a"])[0])

    def repeated(self, depth: int, times: int = MANY) -> int:
        """A vector of offsets to one thing."""
        return self.vector(np.fromiter(repeat(depth, times), np.int64, times))

    def vector(self, depths: Ints) -> int:
        """A vector of offsets."""
        return int(self.assembler.offset_vectors(np.array([len(depths)]), depths)[0])

    def with_block(self, **block: int) -> bytes:
        """The file, with one block of these fields."""
        return self.with_blocks(self.repeated(self.assembler.table("TosaBasicBlock", **block), 1))

    def with_blocks(self, blocks: int) -> bytes:
        """The file, with one region of these blocks."""
        regions = self.repeated(self.assembler.table("TosaRegion", blocks=blocks), 1)
        version = self.assembler.table("Version", _major=1, _minor=0, _patch=0, _draft=0)
        root = self.assembler.table("TosaGraph", version=version, regions=regions)
        return b"".join(self.assembler.finish(root, b"TOSA"))


def _one_operator_many_times() -> bytes:
    file = File()
    return file.with_block(operators=file.repeated(file.assembler.table("TosaOperator", op=15)))


def _operands_shared_by_operators() -> bytes:
    file = File()
    operator = file.assembler.table("TosaOperator", op=15, inputs=file.repeated(file.name))
    return file.with_block(operators=file.repeated(operator, 2000))


def _one_tensor_many_times() -> bytes:
    file = File()
    return file.with_block(tensors=file.repeated(file.assembler.table("TosaTensor", name=file.name)))


def _one_block_many_times() -> bytes:
    file = File()
    return file.with_blocks(file.repeated(file.assembler.table("TosaBasicBlock")))


def _vectors_shared_by_blocks() -> bytes:
    file = File()
    block = file.assembler.table("TosaBasicBlock", inputs=file.repeated(file.name))
    return file.with_blocks(file.repeated(block, 1000))


def _overlapping(file: File, words: Ints) -> Ints:
    """Depths of the numbers of a vector, each of which can pose as the count of a vector or string."""
    start = int(file.assembler.int_vectors([tuple(words.tolist())])[0]) - 4
    depths: Ints = start - 4 * np.arange(len(words))
    return depths


def _overlapping_names() -> bytes:
    file = File()
    file.assembler.blobs([bytes(120)])
    words = np.random.default_rng(1).integers(16, 31, MANY) * 4 + 1
    return file.with_block(inputs=file.vector(_overlapping(file, words)))


def _overlapping_long_names() -> bytes:
    file = File()
    file.assembler.blobs([bytes(70_000)])
    return file.with_block(inputs=file.vector(_overlapping(file, np.full(MANY, 65_537))))


def _overlapping_shapes() -> bytes:
    file = File()
    file.assembler.blobs([bytes(400)])
    words = np.random.default_rng(1).integers(33, 64, MANY)
    count = MANY // 10
    names = file.assembler.strings([str(number) for number in range(count)])
    shapes = _overlapping(file, words)[:count]
    return file.with_block(
        tensors=file.vector(file.assembler.tables("TosaTensor", count, {"name": names, "shape": shapes}))
    )


def _huge_count(field: str) -> Callable[[], bytes]:
    """A vector that says it has as many elements as fit into the file, but they are random bytes."""

    def make() -> bytes:
        file = File()
        file.assembler.blobs([np.random.default_rng(1).bytes(20 << 20)])
        size = (file.assembler.size - 64) // 4
        count = int(file.assembler.int_vectors([(size,)])[0]) - 4
        if field in ("shape", "data"):
            tensor = file.assembler.table("TosaTensor", **{"name": file.name, field: count})
            return file.with_block(tensors=file.repeated(tensor, 1))
        return file.with_block(**{field: count})

    return make


FILES: dict[str, Callable[[], bytes]] = {
    "one operator many times": _one_operator_many_times,
    "operands shared by operators": _operands_shared_by_operators,
    "one tensor many times": _one_tensor_many_times,
    "one block many times": _one_block_many_times,
    "vectors shared by blocks": _vectors_shared_by_blocks,
    "overlapping names": _overlapping_names,
    "overlapping long names": _overlapping_long_names,
    "overlapping shapes": _overlapping_shapes,
    **{f"huge {field}": _huge_count(field) for field in ("operators", "tensors", "shapes", "inputs", "shape", "data")},
}


@pytest.mark.parametrize("name", FILES)
def test_amplification(name: str) -> None:
    """Little bytes that ask for much work."""
    print(name, check(FILES[name]()))
