"""What is promised for any bytes whatever, as a function that fuzzers call."""

import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tosakit.errors import TosakitError
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.program import Program
from tosakit.ir.text import format_program
from tosakit.spec.verify import verify

SECONDS = 1.0
"""CPU time that loading a file may take."""

EXTRA_BYTES = 64 << 20
"""Memory that loading a file may take beyond the file's size."""

_PAGE = resource.getpagesize()
_NUMBERS_AND_NAMES = re.compile(r"-?[0-9]+|\"[^\"]*\"|b'.*'", re.DOTALL)


class TooSlow(Exception):
    """The CPU time is used up."""


@contextmanager
def limits(seconds: float, extra_bytes: int) -> Iterator[None]:
    """TooSlow after ``seconds`` of CPU time, MemoryError beyond ``extra_bytes`` more than is mapped now."""

    def stop(*_: object) -> None:
        raise TooSlow(f"more than {seconds} s of CPU time")

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + extra_bytes, hard))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, handler)


def check(data: bytes) -> str:
    """Load ``data`` within the limits, and use what loads; answers how that ended.

    Raises AssertionError, or what must never be raised, where a promise is broken.
    """
    try:
        with limits(SECONDS, EXTRA_BYTES + len(data)):
            program = load(data)
    except TosakitError as error:
        file, _, message = str(error).partition(": ")
        assert file == "<bytes>", f"the message does not name the file first: {file}"
        return f"{type(error).__name__}: {_NUMBERS_AND_NAMES.sub('#', message)[:50]}"
    verify(program)
    format_program(program)
    return _write(program)


def _write(program: Program) -> str:
    """What loads is written and loaded again, which must give the same bytes."""
    try:
        written = dumps(program)
    except TosakitError as error:
        return f"program that cannot be written: {error}"
    again = load(written)
    if not any(getattr(op.attrs, "table", 0) for block in program.blocks for op in block.ops):
        assert dumps(again) == written, "what was written and loaded again is written differently"
    return "program"
