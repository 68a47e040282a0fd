"""Compile a TOSA file for an Ethos-U with the installed Vela, in a child process, and report what came of it.

Vela answers with all or nothing: it never leaves a TOSA operator to the CPU. What it refuses, how it crashes and what
the result costs are data here, never exceptions, because Vela's messages name no tensor and its native core can die of
a segmentation fault. The caller checks beforehand what Vela gets wrong silently.

Constants must be inside the flatbuffer: one that is stored by offset and size, or has no data, crashes Vela 5.2.
"""

import csv
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numpy as np

from tosakit._child import ChildResult, run_child
from tosakit._interface import TensorSpec, read_interface, read_producers
from tosakit.backend.costs import OperatorCost, read_costs
from tosakit.errors import InvalidArgument, ToolMissing
from tosakit.ir.types import numpy_dtype

ACCELERATORS = (
    "ethos-u55-32",
    "ethos-u55-64",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u65-512",
    "ethos-u85-128",
    "ethos-u85-256",
    "ethos-u85-512",
    "ethos-u85-1024",
    "ethos-u85-2048",
)
"""Accelerator configurations Vela compiles for."""

VELA_OP_TO_TOSA = {
    "Abs": "ABS",
    "Add": "ADD",
    "And": "BITWISE_AND",
    "ArgMax": "ARGMAX",
    "Asr": "ARITHMETIC_RIGHT_SHIFT",
    "AvgPool": "AVG_POOL2D",
    "CLZ": "CLZ",
    "Cast": "CAST",
    "Ceil": "CEIL",
    "Clamp": "CLAMP",
    "Concat": "CONCAT",
    "Const": "CONST",
    "Conv2D": "CONV2D",
    "Conv3D": "CONV3D",
    "Custom": "CUSTOM",
    "DepthwiseConv2D": "DEPTHWISE_CONV2D",
    "Div": "INTDIV",
    "Equal": "EQUAL",
    "Exp": "EXP",
    "Floor": "FLOOR",
    "Gather": "GATHER",
    "Greater": "GREATER",
    "GreaterEqual": "GREATER_EQUAL",
    "Identity": "IDENTITY",
    "If": "COND_IF",
    "Log": "LOG",
    "LogicalAnd": "LOGICAL_AND",
    "LogicalNot": "LOGICAL_NOT",
    "LogicalOr": "LOGICAL_OR",
    "LogicalXor": "LOGICAL_XOR",
    "MatMul": "MATMUL",
    "MaxPool": "MAX_POOL2D",
    "Maximum": "MAXIMUM",
    "Minimum": "MINIMUM",
    "Mul": "MUL",
    "Neg": "NEGATE",
    "Not": "BITWISE_NOT",
    "Or": "BITWISE_OR",
    "Pad": "PAD",
    "Pow": "POW",
    "Reciprocal": "RECIPROCAL",
    "ReduceAll": "REDUCE_ALL",
    "ReduceAny": "REDUCE_ANY",
    "ReduceMax": "REDUCE_MAX",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProduct": "REDUCE_PRODUCT",
    "ReduceSum": "REDUCE_SUM",
    "Rescale": "RESCALE",
    "Reshape": "RESHAPE",
    "Resize": "RESIZE",
    "Reverse": "REVERSE",
    "Rsqrt": "RSQRT",
    "SHL": "LOGICAL_LEFT_SHIFT",
    "SHR": "LOGICAL_RIGHT_SHIFT",
    "Scatter": "SCATTER",
    "Select": "SELECT",
    "Sigmoid": "SIGMOID",
    "Slice": "SLICE",
    "Sub": "SUB",
    "Table": "TABLE",
    "Tanh": "TANH",
    "Tile": "TILE",
    "Transpose": "TRANSPOSE",
    "TransposeConv2D": "TRANSPOSE_CONV2D",
    "Variable": "VARIABLE",
    "VariableRead": "VARIABLE_READ",
    "VariableWrite": "VARIABLE_WRITE",
    "While": "WHILE_LOOP",
    "Xor": "BITWISE_XOR",
}
"""What Vela calls an operator, and the TOSA operator it reads as that. Read off Vela's own graph dumps.

A refusal can also name a kind that Vela makes itself, such as NotEqual where it converts a BOOL tensor.
"""

_MADE_FROM = {
    "AvgPool": ("Resize",),
    "Conv2D": ("TransposeConv2D", "Conv3D"),
    "DepthwiseConv2D": ("TransposeConv2D",),
}
"""Kinds that Vela turns other operators into, so that a refusal naming the kind can be about these."""

_STRATEGIES = ("Performance", "Size")
_MEMORIES = ("sram", "dram", "on_chip_flash", "off_chip_flash")

_NOT_ON_NPU = re.compile(r"Non-passthrough operation \((\w+)\) could not run on NPU")
_BAD_OPTION = re.compile(
    r"^ethosu\.vela\.errors\.(?:CliOption|ConfigOption|InputFile)Error: ['\"]Error: (.*)['\"]$|^\S+: error: (.*)$",
    re.MULTILINE,
)
_COMPILATION_FAILED = re.compile(r"^RuntimeError: (?:Compilation failed: )?(.*)", re.MULTILINE | re.DOTALL)
_EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception)\b.*", re.MULTILINE)
_LAST_GRAPH = "[ Graph With Tensor Quantization ]"


@dataclass(frozen=True)
class VelaRefusal:
    """Something Vela would not compile.

    ``operator`` is Vela's name for the kind of operator, or None where the message is about the whole file;
    ``tosa_operator`` the TOSA operator behind it, or None where that is not known. ``message`` is Vela's own, said
    ``count`` times. ``tensors`` are results, by their names in the model, of the operators the refusal can be about,
    likeliest first (of a pair that Vela has merged, the second one's). Vela itself names none: they are read off the
    last graph it printed before it gave up.
    """

    operator: str | None
    tosa_operator: str | None
    message: str
    tensors: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True)
class VelaTensor:
    """Where the command stream expects an input or leaves an output.

    ``name``, ``dtype`` and ``shape`` are those of the TOSA file. Where Vela's list could not be matched with it, name
    and dtype are None and the shape is Vela's, of rank 6. ``offset`` is in bytes from the start of memory ``region``.
    An INT48 element takes 8 bytes, INT4 and BOOL one.
    """

    name: str | None
    dtype: str | None
    shape: tuple[int, ...]
    element_size: int
    size_bytes: int
    region: int
    offset: int


@dataclass(frozen=True)
class VelaReport:
    """What Vela made of one file.

    ``accepted`` says whether there is a command stream at ``output_path``; otherwise ``refused`` says what Vela would
    not compile, or ``crashed`` how it ended instead (the signal, the exception, or the timeout).

    ``npu_cycles`` are the cycles the NPU computes, ``total_cycles`` those of the whole inference with memory transfers,
    both as estimated by Vela. ``memory`` is what it uses of each memory, in KiB: ``sram``, ``dram``,
    ``on_chip_flash``, ``off_chip_flash``. ``inputs`` and ``outputs`` are in graph order; inputs that no output depends
    on are not there, Vela drops them. ``operators`` has the cost of every TOSA operator that takes time, in file order;
    empty where Vela does not tell (control flow). ``log`` is all it printed.
    """

    accepted: bool
    accelerator: str
    vela_version: str
    refused: tuple[VelaRefusal, ...] = ()
    crashed: str | None = None
    npu_cycles: float | None = None
    total_cycles: float | None = None
    memory: dict[str, float] = field(default_factory=dict)
    inputs: tuple[VelaTensor, ...] = ()
    outputs: tuple[VelaTensor, ...] = ()
    operators: tuple[OperatorCost, ...] = ()
    output_path: Path | None = None
    log: str = ""


def vela_version() -> str:
    """The version of the installed Vela; raises ToolMissing with the pip command where there is none."""
    try:
        found = importlib.util.find_spec("ethosu.vela") is not None
        version = metadata.version("ethos-u-vela")
    except (ModuleNotFoundError, metadata.PackageNotFoundError):
        found = False
    if not found:
        raise ToolMissing('Vela is not installed; run: pip install "tosakit[vela]"')
    return version


def compile_for_ethos_u(
    model: Path,
    accelerator: str,
    *,
    output_dir: Path,
    system_config: str | None = None,
    memory_mode: str | None = None,
    config: str | Path | None = None,
    optimise: str | None = None,
    arena_cache_size: int | None = None,
    extra_args: Sequence[str] = (),
    timeout: float = 600.0,
) -> VelaReport:
    """Compile ``model`` for ``accelerator``; where Vela accepts it, ``output_dir/<model>_vela.npz`` is the result.

    The options are Vela's own and are passed through, ``extra_args`` last (they cannot change what is written where);
    ``arena_cache_size`` is in bytes, ``timeout`` in seconds. Nothing is left in ``output_dir`` but a finished ``.npz``,
    which appears at once; nothing at all where Vela does not accept.

    Raises InvalidArgument for an accelerator or option Vela does not know (its own words are quoted) or a file that
    cannot be read, InvalidModel for a file that is no TOSA flatbuffer, ToolMissing where Vela is not installed.
    """
    if accelerator not in ACCELERATORS:
        raise InvalidArgument(f'Vela has no accelerator "{accelerator}"; it knows {", ".join(ACCELERATORS)}')
    if optimise not in (None, *_STRATEGIES):
        raise InvalidArgument(f'Vela cannot optimise for "{optimise}"; it can for {" or ".join(_STRATEGIES)}')
    version = vela_version()
    interface = read_interface(model)
    arguments = [f"--accelerator-config={accelerator}"]
    for option, value in (
        ("--system-config", system_config),
        ("--memory-mode", memory_mode),
        ("--config", _absolute(config)),
        ("--optimise", optimise),
        ("--arena-cache-size", arena_cache_size),
    ):
        if value is not None:
            arguments.append(f"{option}={value}")
    arguments += extra_args
    with tempfile.TemporaryDirectory(prefix="tosakit-") as scratch:
        runner = _Runner(model, Path(scratch), arguments, timeout)
        child = runner.run()
        log = child.stdout + child.stderr
        npz = runner.result("*_vela.npz")
        summary = runner.result("*_summary_*.csv")
        if child.returncode != 0 or npz is None or summary is None:
            _raise_for_bad_option(child)
            refused = _refusals(child, runner)
            crashed = None if refused else _crash(child, timeout)
            return VelaReport(False, accelerator, version, refused=refused, crashed=crashed, log=log)
        with np.load(npz, allow_pickle=False) as stream:
            used_inputs = read_interface(model, used_only=True).inputs
            inputs = _tensors(stream, "input", interface.inputs, used_inputs)
            outputs = _tensors(stream, "output", interface.outputs)
        with summary.open(newline="", encoding="utf-8") as file:
            figures = next(csv.DictReader(file))
        return VelaReport(
            accepted=True,
            accelerator=accelerator,
            vela_version=version,
            npu_cycles=float(figures["cycles_npu"]),
            total_cycles=float(figures["cycles_total"]),
            memory={name: float(figures[f"{name}_memory_used"]) for name in _MEMORIES},
            inputs=inputs,
            outputs=outputs,
            operators=read_costs(runner.scratch / f"{model.stem}_debug.xml", model, VELA_OP_TO_TOSA),
            output_path=_publish(npz, output_dir / f"{model.stem}_vela.npz"),
            log=log,
        )


@dataclass(frozen=True)
class _Runner:
    """Vela on one file, in a scratch directory that also receives whatever it writes."""

    model: Path
    scratch: Path
    arguments: Sequence[str]
    timeout: float

    def run(self, *extra: str) -> ChildResult:
        """Run Vela; the options that decide what it writes, and where, come last and so win."""
        network = self.scratch / f"{self.model.stem}.tosa"
        if not network.exists():
            shutil.copyfile(self.model, network)
        fixed = ["--enable-debug-db", "--output-format=raw", f"--output-dir={self.scratch}", str(network)]
        command = [sys.executable, "-m", "ethosu.vela", *self.arguments, *extra, *fixed]
        return run_child(command, directory=self.scratch, timeout=self.timeout)

    def result(self, pattern: str) -> Path | None:
        return next(iter(sorted(self.scratch.glob(pattern))), None)


def _absolute(config: str | Path | None) -> str | None:
    """A configuration file that exists by its absolute path (Vela runs elsewhere); other names are Vela's to find."""
    if config is None:
        return None
    path = Path(config)
    return str(path.absolute() if path.exists() else config)


def _publish(source: Path, target: Path) -> Path:
    """Move ``source`` to ``target`` so that nobody ever sees a half-written file there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _tensors(stream: "np.lib.npyio.NpzFile", side: str, *candidates: Sequence[TensorSpec]) -> tuple[VelaTensor, ...]:
    """Vela's list of inputs or outputs, named after the first candidate list that agrees with it in every entry."""
    shapes = [tuple(int(size) for size in shape) for shape in stream[f"{side}_shape"]]
    sizes, regions, offsets = (
        [int(value) for value in stream[f"{side}_{name}"]] for name in ("elem_size", "region", "offset")
    )
    counts = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
    specs: Sequence[TensorSpec | None] = next((c for c in candidates if _agree(c, counts, sizes)), [None] * len(shapes))
    return tuple(
        VelaTensor(
            name=spec.name if spec else None,
            dtype=spec.dtype.name if spec else None,
            shape=spec.shape if spec else shape,
            element_size=size,
            size_bytes=count * size,
            region=region,
            offset=offset,
        )
        for spec, shape, count, size, region, offset in zip(specs, shapes, counts, sizes, regions, offsets, strict=True)
    )


def _agree(specs: Sequence[TensorSpec], counts: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether ``specs`` has these element counts and sizes; Vela may see a tensor in the shape its reader wants."""
    expected = [(int(np.prod(spec.shape, dtype=np.int64)), numpy_dtype(spec.dtype).itemsize) for spec in specs]
    return expected == list(zip(counts, sizes, strict=True))


def _raise_for_bad_option(child: ChildResult) -> None:
    wrong = _BAD_OPTION.search(child.stderr)
    if child.returncode in (1, 2) and wrong:
        raise InvalidArgument(f"Vela does not take these options: {wrong.group(1) or wrong.group(2)}")


def _crash(child: ChildResult, timeout: float) -> str:
    if child.returncode is None:
        return f"no result after {timeout:g} s"
    if child.signal_name:
        return child.signal_name
    said = _EXCEPTION.findall(child.stderr)
    return f"exit status {child.returncode}: {said[-1] if said else 'no command stream and no message'}"


def _refusals(child: ChildResult, runner: _Runner) -> tuple[VelaRefusal, ...]:
    failure = _COMPILATION_FAILED.search(child.stderr)
    if child.returncode != 1 or not failure:
        return ()
    text = failure.group(1).strip()
    operator = _NOT_ON_NPU.search(text)
    if operator:
        return (_locate(operator.group(1), text, runner),)
    return _parse_findings(text)


def _parse_findings(text: str) -> tuple[VelaRefusal, ...]:
    """Refusals in a text ``<stage> error:`` followed by ``<operator>:`` lines with indented reasons, or plain text."""
    stage, _, rest = text.partition("\n")
    findings: list[tuple[str | None, list[str]]] = []
    for line in rest.splitlines():
        reason = line.strip().removeprefix("- ")
        if re.fullmatch(r"\w+:", line):
            findings.append((line[:-1], []))
        elif reason:
            if not findings:
                findings.append((None, []))
            findings[-1][1].append(reason)
    if not findings:
        named = re.search(r"Failed to create (\w+) operation", stage)
        name = named.group(1) if named else None
        return (VelaRefusal(name, _tosa_name(name), stage),)
    counts: dict[tuple[str | None, str], int] = {}
    for operator, reasons in findings:
        key = (operator, "; ".join(reasons))
        counts[key] = counts.get(key, 0) + 1
    return tuple(VelaRefusal(name, _tosa_name(name), reason, count=count) for (name, reason), count in counts.items())


def _tosa_name(operator: str | None) -> str | None:
    """The TOSA operator of a name Vela used; its file reader already uses TOSA's own names."""
    if operator is None or operator in VELA_OP_TO_TOSA.values():
        return operator
    return VELA_OP_TO_TOSA.get(operator)


def _locate(operator: str, message: str, runner: _Runner) -> VelaRefusal:
    """Put a refusal that names only a kind of operator down to tensors of the model, and to a TOSA operator."""
    producers = read_producers(runner.model)
    suspects = [_model_name(name, producers) for name in _suspects(runner, operator)]
    tensors = dict.fromkeys(name for name in suspects if name)
    kinds = [VELA_OP_TO_TOSA.get(kind) for kind in (*_MADE_FROM.get(operator, ()), operator)]
    makers = [producers[name] for name in tensors if producers[name] in kinds]
    return VelaRefusal(operator, makers[0] if makers else _tosa_name(operator), message, tuple(tensors))


def _model_name(name: str, known: Mapping[str, str]) -> str:
    """The tensor that Vela named one of its own after, as in ``x_int8`` and ``x/Transpose``; empty if none is known."""
    while name and name not in known:
        name = name[: max(name.rfind("_"), name.rfind("/"), 0)]
    return name


def _suspects(runner: _Runner, operator: str) -> list[str]:
    """Results of the operators that a refusal naming only their kind can be about, as Vela calls them.

    Vela is asked again, with a dump of its graph. In the last one it has merged each accumulator it could with its
    RESCALE; a result that is still 48 or 64 bits wide marks an operator where it could not.
    """
    dump = runner.run("--verbose-graph", "--verbose-quantization").stdout.rpartition(_LAST_GRAPH)[2]
    kinds = (*_MADE_FROM.get(operator, ()), operator)
    found: list[tuple[str, str, str]] = []
    current: tuple[str, str] | None = None
    for line in dump.splitlines():
        head = re.match(r"\d+ (\w+) (\S.*)$", line)
        result = re.match(r"\s+Output 00 (\w+) ", line)
        if head:
            current = (head.group(1), head.group(2))
        elif result and current and current[0] in kinds:
            found.append((*current, result.group(1)))
    wide = [name for _, name, dtype in found if dtype in ("Int48", "Int64")]
    return wide or [name for kind in kinds for found_kind, name, _ in found if found_kind == kind]
