"""Run the TOSA reference model: every run is a process of its own, so a crash or an endless loop is a result.

The executable of tosa-tools is used rather than its Python binding (``tosa_reference_model.run``). Both are the same
code, but the executable also takes and returns INT4 and INT48 tensors, which the binding refuses as inputs and returns
as empty arrays; it starts in 3 ms; and it cannot take the caller's process down with it.

Arrays are in :func:`tosakit.ir.types.numpy_dtype` of the tensor's dtype, in the order of the graph's inputs and
outputs: BOOL as bool, INT4 and INT8 as int8, INT48 as int64, BF16, FP8, FP6 and FP4 as the ml_dtypes types. Shapes are
exactly the declared ones, also rank 0.

State starts from its initial values in every run; nothing is carried from one run to the next. What tosa-tools 2026.8
does on its own account: it has no VARIABLE, VARIABLE_READ and VARIABLE_WRITE operators (status ERROR; files that spell
them IDENTITY run); it leaves a WHILE_LOOP after 10,000 turns and calls the run valid; an input that the graph lists
twice has the second array's values.
"""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from tosakit._child import MEMORY_LIMIT, ChildResult, run_child
from tosakit._interface import Interface, Model, TensorSpec, read_block_name, read_interface
from tosakit.errors import InvalidArgument, ToolMissing, Unsupported
from tosakit.io.reader import load
from tosakit.io.writer import save
from tosakit.ir.enums import DType
from tosakit.ir.types import INTEGER_RANGES, decode, encode, numpy_dtype

Array = npt.NDArray[Any]

_PACKED = (DType.FP4E2M1, DType.FP6E2M3, DType.FP6E3M2)
"""Types whose .npy files hold packed bytes along the last axis."""
_AS_BYTES = (DType.FP8E5M2, DType.MXINT8)
"""Types whose .npy files hold one unsigned byte per element."""

_READING = threading.Lock()
"""numpy parses a header with ast.literal_eval, which CPython 3.11 sometimes fails to do in two threads at once."""

_ENTRY = "main"
_MESSAGE_LINES = 12
_NOISE = re.compile(
    r"Backtrace generation|Attaching debugger|Caught signal|Graph result:|"
    r"WARNING: Different TOSA spec|(WARNING|INFO): TOSA file created"
)


class Status(Enum):
    """How a run ended; only VALID comes with outputs."""

    VALID = "valid"
    UNPREDICTABLE = "unpredictable"
    """A REQUIRE of the specification failed (its result is undefined for these inputs), or a limit of the level."""
    ERROR = "error"
    """An ERROR_IF of the specification holds: the graph is illegal."""
    REFUSED = "refused"
    """The model gave up on the file with a message of its own, for instance on a version it does not read."""
    CRASHED = "crashed"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class RunResult:
    """One run: ``outputs`` in graph order where the status is VALID, else empty; ``message`` is what the model said."""

    status: Status
    outputs: tuple[Array, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class ReferenceModel:
    """The installed TOSA reference model and how to run it.

    ``level`` is the TOSA level to enforce, ``NONE`` or ``EIGHTK``. ``memory_limit`` caps each run's address space in
    bytes. ``jobs`` bounds how many runs of :meth:`run_many` go on at once (default: one per core). ``executable``
    replaces the one that tosa-tools installed.
    """

    level: str = "NONE"
    memory_limit: int | None = MEMORY_LIMIT
    jobs: int | None = None
    executable: Path | None = None

    def run(self, model: Model, inputs: Sequence[Array], *, timeout: float = 60.0) -> RunResult:
        """Run ``model`` once on one array per graph input, for at most ``timeout`` seconds.

        What the model does is reported, never raised. Raises InvalidArgument for arrays that do not match the graph's
        inputs, InvalidModel for a file that is no TOSA flatbuffer, Unsupported for block-scaled inputs or outputs,
        ToolMissing where the model is not installed.
        """
        [result] = self.run_many(model, [inputs], timeout=timeout)
        return result

    def run_many(
        self, model: Model, batches: Sequence[Sequence[Array]], *, timeout: float = 60.0
    ) -> Iterator[RunResult]:
        """Run ``model`` on each batch of inputs; results come in the order of ``batches``, as they are ready.

        ``timeout`` is per run, in seconds. Closing the iterator early cancels the runs that have not started, so stop
        at the first TIMEOUT. Raises as :meth:`run`, before the first run starts.
        """
        if self.level not in ("NONE", "EIGHTK"):
            raise InvalidArgument(f'TOSA level "{self.level}" is unknown; use NONE or EIGHTK')
        executable = self.executable or _installed_executable()
        interface = read_interface(model)
        for spec in (*interface.inputs, *interface.outputs):
            if spec.block_scaled:
                raise Unsupported(f"input or output {spec} is block-scaled; the oracle passes plain tensors only")
            if spec.dtype in _PACKED:
                _packed_shape(spec)
        for batch in batches:
            _check_inputs(interface.inputs, batch)
        return self._results(executable, interface, model, batches, timeout)

    def _results(
        self, executable: Path, interface: Interface, model: Model, batches: Sequence[Sequence[Array]], timeout: float
    ) -> Iterator[RunResult]:
        jobs = min(self.jobs or os.cpu_count() or 1, max(len(batches), 1))
        with TemporaryDirectory(prefix="tosakit-") as scratch, ThreadPoolExecutor(jobs) as pool:
            file = Path(scratch, "model.tosa")
            _provide(model, file)
            futures: list[Future[RunResult]] = []
            for number, batch in enumerate(batches):
                place = Path(scratch, str(number))
                futures.append(pool.submit(self._run_once, executable, interface, file, place, batch, timeout))
            try:
                for future in futures:
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()

    def _run_once(
        self, executable: Path, interface: Interface, file: Path, place: Path, inputs: Sequence[Array], timeout: float
    ) -> RunResult:
        place.mkdir()
        input_files = [f"input{i}.npy" for i in range(len(interface.inputs))]
        for name, spec, array in zip(input_files, interface.inputs, inputs, strict=True):
            _save(place / name, spec, array)
        description = {
            "tosa_file": str(file),
            "ifm_name": [spec.name for spec in interface.inputs],
            "ifm_file": input_files,
            "ofm_name": [spec.name for spec in interface.outputs],
            "ofm_file": [f"output{i}.npy" for i in range(len(interface.outputs))],
            "expected_failure": False,
        }
        (place / "desc.json").write_text(json.dumps(description), encoding="utf-8")
        command = [str(executable), f"--test_desc={place / 'desc.json'}", f"--tosa_level={self.level}"]
        child = run_child(command, directory=place, timeout=timeout, memory_limit=self.memory_limit)
        result = _judge(child, interface.outputs, place, timeout)
        shutil.rmtree(place)
        return result


def _installed_executable() -> Path:
    install = 'pip install --force-reinstall "tosa-tools>=2026.8.0"'
    name = "tosa_reference_model.exe" if os.name == "nt" else "tosa_reference_model"
    try:
        path = Path(str(metadata.distribution("tosa-tools").locate_file(f"bin/{name}")))
    except metadata.PackageNotFoundError as missing:
        raise ToolMissing(f"the TOSA reference model is not installed; run: {install}") from missing
    if not os.access(path, os.X_OK):
        raise ToolMissing(f"tosa-tools is installed without its reference model, {path}; run: {install}")
    return path


def _provide(model: Model, file: Path) -> None:
    """Make ``model`` readable as ``file``, without copying a file that may be gigabytes where the system allows it.

    The executable crashes unless the first block is called "main"; one of another name gets a copy that says so.
    """
    if read_block_name(model) != _ENTRY:
        program = load(model)
        main = program.main
        for block in program.regions[0].blocks:
            block.name = f"{block.name}_" if block.name == _ENTRY else block.name
        main.name = _ENTRY
        save(program, file)
    elif isinstance(model, bytes):
        file.write_bytes(model)
    else:
        try:
            file.symlink_to(model.absolute())
        except OSError:
            shutil.copyfile(model, file)


def _check_inputs(specs: Sequence[TensorSpec], arrays: Sequence[Array]) -> None:
    if len(arrays) != len(specs):
        raise InvalidArgument(f"the graph has {len(specs)} inputs, {len(arrays)} arrays were given")
    for spec, array in zip(specs, arrays, strict=True):
        wanted = numpy_dtype(spec.dtype)
        if array.dtype != wanted or array.shape != spec.shape:
            got = f"{array.dtype} {list(array.shape)}"
            raise InvalidArgument(f"input {spec} needs {wanted} values in exactly that shape, got {got}")
        if spec.dtype in (DType.INT4, DType.INT48) and array.size:
            low, high = INTEGER_RANGES[spec.dtype]
            if array.min() < low or array.max() > high:
                raise InvalidArgument(f"input {spec} has values from {array.min()} to {array.max()}, outside its dtype")


def _save(path: Path, spec: TensorSpec, array: Array) -> None:
    """Write the .npy form the model reads; it takes C order only, and some types as plain bytes."""
    if spec.dtype in _PACKED:
        array = np.frombuffer(encode(array, spec.dtype), np.uint8).reshape(_packed_shape(spec))
    elif spec.dtype in _AS_BYTES:
        array = array.view(np.uint8)
    np.save(path, np.require(array, requirements="C"), allow_pickle=False)


def _load(path: Path, spec: TensorSpec) -> Array:
    with _READING:
        array: Array = np.load(path, allow_pickle=False)
    if spec.dtype in _PACKED:
        return decode(array.tobytes(), spec.dtype, spec.shape)
    wanted = numpy_dtype(spec.dtype)
    raw = array.dtype.kind == "V" or (spec.dtype in _AS_BYTES and array.dtype == np.uint8)
    return array.view(wanted) if raw and array.dtype.itemsize == wanted.itemsize else array


def _packed_shape(spec: TensorSpec) -> tuple[int, ...]:
    bits = 4 if spec.dtype == DType.FP4E2M1 else 6
    if not spec.shape or spec.shape[-1] * bits % 8:
        raise Unsupported(f"{spec}: the reference model passes this type only where rows fill whole bytes")
    return (*spec.shape[:-1], spec.shape[-1] * bits // 8)


def _judge(child: ChildResult, specs: Sequence[TensorSpec], place: Path, timeout: float) -> RunResult:
    message = _telling_lines(child)
    if child.returncode is None:
        return RunResult(Status.TIMEOUT, message=f"no result after {timeout:g} s\n{message}".rstrip())
    if child.returncode == 0:
        return _collect(specs, place)
    if child.returncode in (1, 2):
        return RunResult((Status.UNPREDICTABLE, Status.ERROR)[child.returncode - 1], message=message)
    if "FATAL ERROR AT" in child.stderr + child.stdout:
        return RunResult(Status.REFUSED, message=message)
    how = child.signal_name or f"exit status {child.returncode}"
    return RunResult(Status.CRASHED, message=f"{how}\n{message}".rstrip())


def _collect(specs: Sequence[TensorSpec], place: Path) -> RunResult:
    """The outputs of a run that called itself valid; one that is missing or of another type makes it a failure."""
    outputs = []
    for number, spec in enumerate(specs):
        path = place / f"output{number}.npy"
        if not path.exists():
            return RunResult(Status.ERROR, message=f"the model reported success but wrote no output {spec}")
        array = _load(path, spec)
        if array.dtype != numpy_dtype(spec.dtype) or array.shape != spec.shape:
            got = f"{array.dtype} {list(array.shape)}"
            return RunResult(Status.ERROR, message=f"the model reported success but output {spec} came back as {got}")
        outputs.append(array)
    return RunResult(Status.VALID, tuple(outputs))


def _telling_lines(child: ChildResult) -> str:
    """The first lines the model printed about what went wrong, without repeats and the noise of every run."""
    lines: dict[str, None] = {}
    for line in (child.stderr + "\n" + child.stdout).splitlines():
        text = " ".join(line.split())
        if text and not _NOISE.search(text):
            lines[text] = None
    return "\n".join(list(lines)[:_MESSAGE_LINES])
