"""Saving replaces a file whole or not at all, whenever it is killed and whatever fails; loading maps files safely."""

import errno
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import CORPUS
from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.io import files
from tosakit.io.reader import load
from tosakit.io.writer import dumps, save
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.program import Program, Region

OLD = b"what stood here before"
SYSTEM_CALLS = (
    *("open", "close", "writev", "lseek", "ftruncate", "fchmod", "fsync", "copy_file_range", "fstat"),
    *("replace", "rename", "unlink", "stat"),
)


class Calls:
    """Stands in front of the system calls of :mod:`tosakit.io.files` and does something just before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, action: Callable[[], None]) -> None:
        self.seen: list[str] = []
        for name in SYSTEM_CALLS:
            if hasattr(os, name):
                monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name), at, action))

    def _wrapped(self, name: str, call: Callable[..., Any], at: int, action: Callable[[], None]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.seen.append(name)
            if len(self.seen) - 1 == at:
                action()
            return call(*args, **kwargs)

        return wrapper


def _in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked child; its wait status: 0 where it returned, 1 << 8 where it raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def big(tmp_path: Path) -> Program:
    """A mapped program with a constant that is copied from file to file."""
    graph = Graph("main")
    data = os.urandom(1 << 16) * 32
    weights = Tensor("weights", DType.INT8, (len(data),), data)
    graph.add_op(Op(ops.Const(), (), (weights,)))
    graph.set_outputs([weights])
    save(Program([Region("main", [graph])]), tmp_path / "big.tosa")
    return load(tmp_path / "big.tosa")


def _count_calls(program: Program, target: Path) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        calls = Calls(patch, -1, lambda: None)
        save(program, target)
    return calls.seen


def test_killed_at_any_system_call(tmp_path: Path, big: Program) -> None:
    """The target holds the old bytes until one moment, and the new ones from then on."""
    new, target = dumps(big), tmp_path / "out" / "model.tosa"
    target.parent.mkdir()
    target.write_bytes(OLD)
    calls = _count_calls(big, target)
    assert {"writev", "copy_file_range", "fsync"} <= set(calls)
    outcomes = []
    for at in range(len(calls)):
        target.write_bytes(OLD)

        def work(at: int = at) -> None:
            with pytest.MonkeyPatch.context() as patch:
                Calls(patch, at, _kill_self)
                save(big, target)

        assert _in_child(work) == signal.SIGKILL
        content = target.read_bytes()
        assert content in (OLD, new)
        outcomes.append(content == new)
    assert outcomes == sorted(outcomes)
    assert not outcomes[0]
    save(big, target)  # what killed runs leave behind is in nobody's way
    assert target.read_bytes() == new


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_failing_at_any_system_call(tmp_path: Path, big: Program, error: int) -> None:
    """A failure leaves the target as it was, nothing beside it, and says what went wrong, or it does no harm."""
    target = tmp_path / "out" / "model.tosa"
    target.parent.mkdir()
    target.write_bytes(OLD)
    new, calls, messages = dumps(big), _count_calls(big, target), list[str]()

    def fail() -> None:
        raise OSError(error, os.strerror(error))

    for at in range(len(calls)):
        target.write_bytes(OLD)
        with pytest.MonkeyPatch.context() as patch:
            Calls(patch, at, fail)
            try:
                save(big, target)
                expected = new
            except InvalidArgument as failure:
                messages.append(str(failure))
                expected = OLD
        assert target.read_bytes() == expected
        assert [path.name for path in target.parent.iterdir()] == ["model.tosa"]
    assert len(messages) > 10
    assert all(message.endswith(f"model.tosa: {os.strerror(error)}; nothing was changed") for message in messages)


def test_full_disk(tmp_path: Path) -> None:
    """A write that comes to an end half way, by the system itself."""
    target = tmp_path / "model.tosa"
    target.write_bytes(OLD)
    program = load(CORPUS[0])

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(InvalidArgument, match="nothing was changed"):
            save(program, target)

    assert _in_child(work) == 0
    assert target.read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["model.tosa"]


def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes seven bytes at a time."""
    program = load(CORPUS[0])
    writev = os.writev

    def stingy(descriptor: int, parts: list[memoryview]) -> int:
        assert all(len(part) for part in parts)
        return writev(descriptor, [parts[0][:7]])

    monkeypatch.setattr(os, "writev", stingy)
    save(program, tmp_path / "model.tosa")
    assert (tmp_path / "model.tosa").read_bytes() == dumps(program)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_directory(tmp_path: Path) -> None:
    target = tmp_path / "model.tosa"
    target.write_bytes(OLD)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InvalidArgument, match="Permission denied; nothing was changed"):
            save(load(CORPUS[0]), target)
        assert target.read_bytes() == OLD
    finally:
        tmp_path.chmod(0o700)


def test_two_runs_writing_one_file(tmp_path: Path) -> None:
    """Whoever is last wins; nobody ever sees a mixture."""
    programs = [load(path) for path in CORPUS[:2]]
    contents = [dumps(program) for program in programs]
    target = tmp_path / "model.tosa"
    save(programs[0], target)

    def write(program: Program) -> None:
        for _ in range(30):
            save(program, target)

    writers = [threading.Thread(target=write, args=(program,)) for program in programs]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert target.read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["model.tosa"]


def test_input_replaced_or_removed_while_open(tmp_path: Path, big: Program) -> None:
    """A program keeps the file it was loaded from, whatever takes that file's name."""
    expected = dumps(big)
    save(load(CORPUS[0]), tmp_path / "big.tosa")
    assert dumps(big) == expected
    save(big, tmp_path / "other.tosa")
    assert (tmp_path / "other.tosa").read_bytes() == expected
    (tmp_path / "big.tosa").unlink()
    save(big, tmp_path / "other.tosa")
    assert (tmp_path / "other.tosa").read_bytes() == expected


def test_saving_over_the_input(tmp_path: Path, big: Program) -> None:
    expected = dumps(big)
    for _ in range(2):
        save(big, tmp_path / "big.tosa")
        assert (tmp_path / "big.tosa").read_bytes() == expected


def test_input_truncated_in_place(tmp_path: Path, big: Program) -> None:
    """Not a crash: touching pages that are gone would end the process with SIGBUS."""
    os.truncate(tmp_path / "big.tosa", 4096)

    def work() -> None:
        with pytest.raises(InvalidModel, match=r"big\.tosa was changed while in use"):
            save(big, tmp_path / "other.tosa")

    assert _in_child(work) == 0
    assert not (tmp_path / "other.tosa").exists()


def _without_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EXDEV, "not from here to there")

    monkeypatch.setattr(os, "copy_file_range", refuse)


def _with_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = os.copy_file_range
    steps: Iterator[int] = iter(range(3))

    def step(source: int, target: int, count: int, offset: int) -> int:
        if next(steps, None) is None:
            raise OSError(errno.EINVAL, "no more")
        return copy(source, target, min(count, 99_999), offset)

    monkeypatch.setattr(os, "copy_file_range", step)


@pytest.mark.parametrize("system", [_without_copying, _with_small_steps])
def test_systems_that_copy_badly(
    tmp_path: Path, big: Program, monkeypatch: pytest.MonkeyPatch, system: Callable[[pytest.MonkeyPatch], None]
) -> None:
    expected = dumps(big)
    system(monkeypatch)
    save(big, tmp_path / "other.tosa")
    assert (tmp_path / "other.tosa").read_bytes() == expected


def test_permissions_links_and_pipes(tmp_path: Path) -> None:
    program = load(CORPUS[0])
    target, link, pipe = tmp_path / "model.tosa", tmp_path / "link.tosa", tmp_path / "pipe"
    target.write_bytes(OLD)
    target.chmod(0o640)
    link.symlink_to(target)
    save(program, link)
    assert link.is_symlink()
    assert target.read_bytes() == dumps(program)
    assert target.stat().st_mode & 0o777 == 0o640
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    save(program, pipe)
    reader.join()
    assert received == [dumps(program)]
    assert pipe.is_fifo()


def _holes_work(directory: Path) -> bool:
    """Whether this file system keeps holes and tells where they are."""
    path = directory / "probe"
    with path.open("wb") as file:
        file.truncate(1 << 24)
    with path.open("rb") as file:
        try:
            hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        except OSError:
            hole = -1
    return hole == 0 and path.stat().st_blocks == 0


def _anonymous() -> int:
    """Bytes of memory that are the process's own, not pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon in /proc/self/status")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_six_gigabytes_with_holes(tmp_path: Path) -> None:
    """A constant of 6 GB by offset and size: loaded, rewritten, saved and loaded again in little memory and disk."""
    if not _holes_work(tmp_path):
        pytest.skip("the file system has no holes")
    size = 6 * 10**9
    with (tmp_path / "data").open("wb") as file:
        file.truncate(size)
        for position in (0, 3 * 10**9, size - 3):
            file.seek(position)
            file.write(b"abc")
    graph = Graph("main")
    huge = Tensor("huge", DType.INT8, (size // 1000, 1000), files.map_file(tmp_path / "data"))
    graph.add_op(Op(ops.Const(), (), (huge,)))
    graph.set_outputs([huge])
    before = _anonymous()
    save(Program([Region("main", [graph])]), tmp_path / "first.tosa")
    program = load(tmp_path / "first.tosa")
    for op in program.main.ops:
        renamed = Tensor("twin", op.output.dtype, op.output.shape)
        program.main.splice(op, [Op(ops.Identity(), (op.output,), (renamed,))], {op.output: renamed})
    save(program, tmp_path / "second.tosa")
    again = load(tmp_path / "second.tosa")
    (constant,) = [op.output for op in again.main.ops if isinstance(op.attrs, ops.Const)]
    assert constant.data is not None
    assert len(constant.data) == size
    for position in (0, 3 * 10**9, size - 3):
        assert bytes(constant.data[position : position + 3]) == b"abc"
    assert _anonymous() - before < 40 << 20
    assert (tmp_path / "second.tosa").stat().st_size > size
    assert (tmp_path / "second.tosa").stat().st_blocks * 512 < 1 << 20
