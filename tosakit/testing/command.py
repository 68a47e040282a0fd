"""A fault told by the exit code of any command, for ``tosakit reduce``."""

import contextlib
import os
import shlex
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tosakit.errors import InvalidArgument
from tosakit.io.qparams import save_qparams, sidecar_path
from tosakit.io.writer import save
from tosakit.ir.program import Program

TIMED_OUT = "timed out"


class FailingCommand:
    """A command that is given a file, and how it ends: its exit code, or ``timed out``.

    ``{}`` in the command stands for the file's name, which is appended where there is none. Quantisation parameters of
    a program stand beside the file. ``timeout`` is in seconds, for each run; a run that takes longer is killed with all
    it started, and that is an end like any other. Raises InvalidArgument for no command.
    """

    def __init__(self, command: str, timeout: float) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise InvalidArgument(f"the command {command!r} cannot be read: {error}") from None
        if not self.words:
            raise InvalidArgument("the command is empty; give one that fails on the file, such as 'tosakit check {}'")
        if not timeout > 0:
            raise InvalidArgument(f"a time-out of {timeout:g} seconds; give a positive number")
        self.timeout = timeout

    def ends(self, program: Program) -> int | str:
        """How the command ends on a program. Raises InvalidArgument where it cannot be started."""
        with TemporaryDirectory(prefix="tosakit-") as folder:
            file = Path(folder, "model.tosa")
            save(program, file)
            if any(tensor.quantization for block in program.blocks for tensor in block.tensors):
                save_qparams(program, sidecar_path(file))
            return self._run(str(file))

    def _run(self, file: str) -> int | str:
        words = [word.replace("{}", file) for word in self.words]
        words += [] if words != self.words else [file]
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise InvalidArgument(f"cannot run {words[0]}: {error.strerror or error}") from None
        try:
            return process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
