"""Map files for reading, and replace files so that readers see the old content or the new one, never a part.

A replacement is written to a new file in the same directory, brought to the disk, and renamed over the old one; that
rename is the only moment at which the target changes. A process killed before it leaves the target as it was (and a
``.part`` file beside it).
"""

import contextlib
import errno
import itertools
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from tosakit.errors import InvalidArgument, InvalidModel

_CANNOT_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""What the system says where it cannot copy between two files, or knows nothing of holes."""

_BATCH = min(os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16, 1024)
_COPIED_BY_KERNEL = 1 << 20
"""Bytes from which a stretch of a mapped file is copied from file to file, holes and all, not through the map."""

_numbers = itertools.count()


class MappedFile(mmap.mmap):
    """A file mapped for reading, which remembers where it came from."""

    path: Path
    identity: tuple[int, int]


def map_file(path: Path) -> memoryview:
    """The content of a file, mapped. Raises InvalidModel where it cannot be read."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not status.st_size:
                return memoryview(b"")
            mapped = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidModel(f"cannot read {path}: {reason}") from None
    mapped.path = path.absolute()
    mapped.identity = (status.st_dev, status.st_ino)
    return memoryview(mapped)


def replace_file(path: Path, parts: Iterable[memoryview]) -> None:
    """Make ``parts``, one after the other, the content of a file, or leave it as it is.

    The file keeps its permissions; a symbolic link keeps pointing to it. What is no regular file (a pipe,
    /dev/stdout) is written in place. Raises InvalidArgument where the place cannot be written.
    """
    try:
        target = path.resolve()
        mode = target.stat().st_mode if target.exists() else None
        if mode is None or stat.S_ISREG(mode):
            _replace(target, mode, parts)
        elif stat.S_ISDIR(mode):
            raise InvalidArgument(f"cannot write {path}: it is a directory")
        else:
            with _opened(target, os.O_WRONLY) as descriptor:
                _write(descriptor, parts, in_place=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a symbolic link that leads to itself
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument(f"cannot write {path}: {reason}; nothing was changed") from None


def _replace(target: Path, mode: int | None, parts: Iterable[memoryview]) -> None:
    while True:
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{next(_numbers)}.part")
        try:
            with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
                _write(descriptor, parts)
                if mode is not None:
                    os.fchmod(descriptor, stat.S_IMODE(mode))
                os.fsync(descriptor)
            temporary.replace(target)
            return
        except FileExistsError:
            continue  # left by a process that was killed
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """An open descriptor; a file that is created gets the permissions that the umask leaves."""
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, parts: Iterable[memoryview], *, in_place: bool = False) -> None:
    batch: list[memoryview] = []
    for part in parts:
        if len(part) >= _COPIED_BY_KERNEL and isinstance(part.obj, MappedFile) and not in_place:
            _write_batch(descriptor, batch)
            batch = []
            _copy(descriptor, part, part.obj)
        else:
            batch.append(part)
            if len(batch) == _BATCH:
                _write_batch(descriptor, batch)
                batch = []
    _write_batch(descriptor, batch)
    if not in_place:  # a hole at the end
        os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR))


def _write_batch(descriptor: int, batch: Iterable[memoryview]) -> None:
    left = [part for part in batch if len(part)]
    while left:
        written = os.writev(descriptor, left)
        done = 0
        while done < len(left) and written >= len(left[done]):
            written -= len(left[done])
            done += 1
        left = left[done:]
        if written:
            left[0] = left[0][written:]


def _copy(descriptor: int, part: memoryview, mapped: MappedFile) -> None:
    """Write a stretch of a mapped file: from file to file where the system can do it, else from the map."""
    start = _address(part) - _address(memoryview(mapped))
    done = 0
    with contextlib.suppress(FileNotFoundError, PermissionError), _opened(mapped.path, os.O_RDONLY) as source:
        status = os.fstat(source)
        if (status.st_dev, status.st_ino) == mapped.identity:
            done = _copy_extents(source, descriptor, start, start + len(part)) - start
    _write_batch(descriptor, [part[done:]])


def _copy_extents(source: int, descriptor: int, start: int, end: int) -> int:
    """Copy bytes ``start`` to ``end`` of one file to another, skipping holes; returns how far it came."""
    position = start
    try:
        while position < end:
            try:
                data = min(os.lseek(source, position, os.SEEK_DATA), end)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                data = end  # nothing but a hole behind
            os.lseek(descriptor, data - position, os.SEEK_CUR)
            position = data
            hole = min(os.lseek(source, position, os.SEEK_HOLE), end) if position < end else end
            while position < hole:
                position += os.copy_file_range(source, descriptor, hole - position, position)
    except OSError as error:
        if error.errno not in _CANNOT_COPY:
            raise
    return position


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


def check_unchanged(mapped: MappedFile) -> None:
    """Raise InvalidModel where a mapped file has become shorter: to touch what is missing would end the process."""
    if mapped.size() < len(mapped):
        raise InvalidModel(f"{mapped.path} was changed while in use; load it again")
