"""Names, dtypes and shapes of a TOSA file's inputs and outputs, read with the decoder that tosa-tools ships.

Tools are told what a file says by a reader other than ours, so a fault of our reader cannot hide behind itself.
"""

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tosakit.errors import InvalidArgument, InvalidModel, ToolMissing
from tosakit.ir.enums import DType

Model = bytes | Path
"""A TOSA flatbuffer: its bytes, or the file that holds them."""

_UNREADABLE = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError)
"""What flatbuffers accessors raise on bytes that are not the table they expect."""


@dataclass(frozen=True)
class TensorSpec:
    """One input or output; ``block_scaled`` where a scale tensor belongs to it (microscaling formats)."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    block_scaled: bool = False

    def __str__(self) -> str:
        return f'"{self.name}" {self.dtype.name} {list(self.shape)}'


@dataclass(frozen=True)
class Interface:
    """Inputs and outputs of a file's first block, in file order, repeated where the file repeats them."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def read_interface(model: Model, *, used_only: bool = False) -> Interface:
    """The interface of the first block of the first region; with ``used_only`` without inputs no output depends on.

    Cost: one pass over the block's tensors, about 40 µs each; with ``used_only`` also over its operators. Raises
    InvalidArgument where there is no such file, InvalidModel where it is not a TOSA flatbuffer, ToolMissing where
    tosa-tools is not installed.
    """
    with _first_block(model) as block:
        return _read_block(block, used_only)


def read_producers(model: Model) -> dict[str, str]:
    """The TOSA operator that makes each tensor of the first block; empty for one that no operator makes.

    Cost and errors as :func:`read_interface`.
    """
    with _first_block(model) as block:
        producers = {block.Tensors(i).Name().decode(): "" for i in range(block.TensorsLength())}
        for name, results in _read_operators(block):
            producers.update(dict.fromkeys(results, name))
        return producers


def read_operators(model: Model) -> list[tuple[str, tuple[str, ...]]]:
    """Name and results of every operator of the first block, in file order; a name is empty where TOSA has none.

    Cost and errors as :func:`read_interface`.
    """
    with _first_block(model) as block:
        return list(_read_operators(block))


def _read_operators(block: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    from tosa.Op import Op  # type: ignore[import-untyped]

    names = {number: name for name, number in vars(Op).items() if isinstance(number, int)}
    for i in range(block.OperatorsLength()):
        operator = block.Operators(i)
        results = tuple(operator.Outputs(j).decode() for j in range(operator.OutputsLength()))
        yield names.get(operator.Op(), ""), results


def read_block_name(model: Model) -> str:
    """The name of the first block; empty where it has none. Errors as :func:`read_interface`."""
    with _first_block(model) as block:
        return (block.Name() or b"").decode()


@contextmanager
def _first_block(model: Model) -> Iterator[Any]:
    """The block's accessor; what goes wrong while it is read is a fault of the file."""
    try:
        from tosa.TosaGraph import TosaGraph  # type: ignore[import-untyped]
    except ImportError as missing:
        raise ToolMissing('tosa-tools is not installed; run: pip install "tosa-tools>=2026.8.0"') from missing
    with _buffer(model) as data:
        if bytes(data[4:8]) != b"TOSA":
            raise InvalidModel(f"{_origin(model)} is not a TOSA flatbuffer: no TOSA identifier at byte 4")
        try:
            yield TosaGraph.GetRootAs(data, 0).Regions(0).Blocks(0)
        except _UNREADABLE as broken:
            raise InvalidModel(f"{_origin(model)} is damaged, or of a format this version does not know") from broken


def _origin(model: Model) -> str:
    return str(model) if isinstance(model, Path) else "the model"


@contextmanager
def _buffer(model: Model) -> Iterator[bytes | mmap.mmap]:
    if isinstance(model, bytes):
        yield model
        return
    try:
        file = model.open("rb")
    except OSError as error:
        raise InvalidArgument(f"cannot read {model}: {error.strerror}") from error
    with file:
        if model.stat().st_size == 0:
            raise InvalidModel(f"{model} is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _read_block(block: Any, used_only: bool) -> Interface:
    inputs = [block.Inputs(i).decode() for i in range(block.InputsLength())]
    outputs = [block.Outputs(i).decode() for i in range(block.OutputsLength())]
    wanted = {*inputs, *outputs}
    specs: dict[str, TensorSpec] = {}
    for i in range(block.TensorsLength()):
        tensor = block.Tensors(i)
        name = tensor.Name().decode()
        if name in wanted:
            shape = tuple(tensor.Shape(d) for d in range(tensor.ShapeLength()))
            specs[name] = TensorSpec(name, DType(tensor.Type()), shape, tensor.ScaleType() != DType.UNKNOWN)
    for i in range(block.ShapesLength()):
        shape_value = block.Shapes(i)
        name = shape_value.Name().decode()
        if name in wanted:
            specs[name] = TensorSpec(name, DType.SHAPE, (shape_value.Rank(),))
    for name in (*inputs, *outputs):
        if name not in specs:
            raise InvalidModel(f'input or output "{name}" is in no tensor of the block; the file is inconsistent')
    if used_only:
        live = _live_tensors(block, outputs)
        inputs = [name for name in inputs if name in live]
    return Interface(tuple(specs[name] for name in inputs), tuple(specs[name] for name in outputs))


def _live_tensors(block: Any, outputs: list[str]) -> set[str]:
    """Names of the tensors that an output depends on, the outputs included; operators may stand in any order."""
    reads: dict[str, list[str]] = {}
    for i in range(block.OperatorsLength()):
        operator = block.Operators(i)
        operands = [operator.Inputs(j).decode() for j in range(operator.InputsLength())]
        for j in range(operator.OutputsLength()):
            reads.setdefault(operator.Outputs(j).decode(), []).extend(operands)
    live: set[str] = set()
    pending = list(outputs)
    while pending:
        name = pending.pop()
        if name not in live:
            live.add(name)
            pending.extend(reads.get(name, ()))
    return live
