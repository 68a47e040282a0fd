"""Run a native tool in a child process: bounded in time and memory, no debugger in reach, leaving no core file."""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tosakit.errors import InvalidArgument

_NOWHERE = os.devnull
"""The child's PATH: a tool that looks for gdb to attach to itself finds nothing."""


def _own_memory() -> int | None:
    """The machine's memory in bytes, but at least 4 GiB, since libraries map more than they use; None if unknown."""
    try:
        return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), 4 << 30)
    except (AttributeError, OSError, ValueError):
        return None


MEMORY_LIMIT = _own_memory()
"""Address space in bytes that a native tool gets where nothing else is said: absurd demands fail at once."""


@dataclass(frozen=True)
class ChildResult:
    """How a child process ended and what it printed; ``returncode`` is None where it was killed for lack of time."""

    returncode: int | None
    stdout: str
    stderr: str

    @property
    def signal_name(self) -> str | None:
        """The signal that ended the child, such as ``SIGSEGV (Segmentation fault)``; None where none did."""
        if self.returncode is None or self.returncode >= 0:
            return None
        number = -self.returncode
        try:
            return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
        except ValueError:
            return f"signal {number}"


def run_child(
    command: Sequence[str], *, directory: Path, timeout: float, memory_limit: int | None = MEMORY_LIMIT
) -> ChildResult:
    """Run ``command`` (absolute path first) in ``directory`` for at most ``timeout`` seconds.

    ``memory_limit`` caps the child's address space, in bytes (POSIX only). Whatever the child does is reported, not
    raised; raises InvalidArgument for a timeout or limit that is not positive.
    """
    if not timeout > 0:
        raise InvalidArgument(f"timeout is {timeout} seconds; give a positive number")
    if memory_limit is not None and memory_limit < 1:
        raise InvalidArgument(f"memory limit is {memory_limit} bytes; give a positive number, or None for no limit")
    environment = {**os.environ, "PATH": _NOWHERE, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            _limited(command, memory_limit),
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return ChildResult(None, _text(expired.stdout), _text(expired.stderr))
    return ChildResult(done.returncode, _text(done.stdout), _text(done.stderr))


def _limited(command: Sequence[str], memory_limit: int | None) -> list[str]:
    """``command`` behind a shell that sets the limits and then becomes it, so that signals reach the tool itself."""
    if os.name != "posix":
        return list(command)
    limits = "ulimit -c 0"
    if memory_limit is not None:
        limits += f" && ulimit -v {max(memory_limit // 1024, 1)}"
    return ["/bin/sh", "-c", f'{limits} || exit 125; exec "$0" "$@"', *command]


def _text(captured: bytes | None) -> str:
    return (captured or b"").decode("utf-8", errors="replace")
