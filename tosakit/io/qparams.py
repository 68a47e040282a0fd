"""Quantisation parameters beside a model: ``model.qparams.json`` holds what ``model.tosa`` has no field for.

The file is one JSON object::

    {"tensors": {"<activation>": {"scale": 0.0123, "zero_point": 0},
                 "<weight>": {"scale": [0.01, 0.02], "zero_point": 0, "axis": 0}}}

A scale is one number, or a list with one number per index of ``axis``. Tensors are found by name: in the main block,
else in the one other block that has the name.
"""

import difflib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tosakit.errors import InvalidArgument
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES, QuantParams

_FIELDS = ("scale", "zero_point", "axis")
_UINT16_ZERO_POINT = 1 << 15
"""What an INT16 tensor of unsigned numbers may have, the one exception to zero (TOSA 1.0, RESCALE)."""


class LoadedParams(dict[str, QuantParams]):
    """Parameters by tensor name that know the file they came from, for messages."""

    source: str = ""


def sidecar_path(model_path: str | os.PathLike[str]) -> Path:
    """Where the parameters of a model stand: ``model.qparams.json`` beside ``model.tosa``."""
    path = Path(model_path)
    stem = path.stem if path.suffix == ".tosa" else path.name
    return path.with_name(f"{stem}.qparams.json")


def load_qparams(path: str | os.PathLike[str]) -> dict[str, QuantParams]:
    """Read a sidecar; parameters by tensor name, in file order.

    Raises InvalidArgument naming the file, the tensor and the value where the file cannot be read, is not JSON of this
    form, or a scale is not finite and positive.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    try:
        content = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{file} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except (InvalidArgument, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{file}: {error}") from None
    tensors = content.get("tensors") if isinstance(content, dict) else None
    if not isinstance(tensors, dict):
        raise InvalidArgument(
            f'{file} has no object "tensors"; it must look like {{"tensors": {{"x": {{"scale": 0.5}}}}}}'
        )
    loaded = LoadedParams()
    loaded.source = str(file)
    for name, entry in tensors.items():
        try:
            loaded[name] = _params(entry)
        except InvalidArgument as error:
            raise InvalidArgument(f'{file}: tensor "{name}": {error}') from None
    return loaded


def apply_qparams(program: Program, mapping: Mapping[str, QuantParams]) -> None:
    """Annotate the tensors named in ``mapping``. All of them are checked first: on an error, none is annotated.

    Raises InvalidArgument naming the tensor (and the file, where :func:`load_qparams` read one) for a name that no
    tensor has or several blocks share, scales that do not fit the axis, a tensor that is not of an integer type, and a
    zero point that TOSA does not allow: any value of its range on INT4 and INT8, on other types only 0.
    """
    source = mapping.source if isinstance(mapping, LoadedParams) else "quantisation parameters"
    places = _by_name(program)
    found: list[tuple[Graph, Tensor, QuantParams]] = []
    for name, params in mapping.items():
        try:
            block, tensor = _place(places, name)
            _require_fit(tensor, params)
        except InvalidArgument as error:
            raise InvalidArgument(f'{source}: tensor "{name}": {error}') from None
        found.append((block, tensor, params))
    for block, tensor, params in found:
        block.annotate(tensor, params)


def dump_qparams(program: Program) -> str:
    """Return the annotations of ``program`` as the text of a sidecar, sorted by tensor name, one tensor to a line.

    What cannot be found by its name is left out: a tensor outside the main block whose name another block has too.
    """
    lines = []
    for name, candidates in sorted(_by_name(program).items()):
        params = candidates[0][1].quantization
        if params is not None and len(candidates) == 1:
            lines.append(f"    {json.dumps(name)}: {json.dumps(_entry(params))}")
    body = "\n" + ",\n".join(lines) + "\n  " if lines else ""
    return f'{{\n  "tensors": {{{body}}}\n}}\n'


def save_qparams(program: Program, path: str | os.PathLike[str]) -> None:
    """Write :func:`dump_qparams` to ``path``, by a temporary file beside it that takes its name when complete.

    Raises InvalidArgument where the place cannot be written.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise InvalidArgument(f"cannot write {target}: it is a directory")
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(dump_qparams(program))
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidArgument(f"cannot write {target}: {error.strerror or error}") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for name, value in pairs:
        if name in names:
            raise InvalidArgument(f'"{name}" stands twice in one object; keep one of them')
        names[name] = value
    return names


def _params(entry: object) -> QuantParams:
    if not isinstance(entry, dict):
        raise InvalidArgument(f'{_show(entry)} is not an object with a "scale"')
    unknown = [key for key in entry if key not in _FIELDS]
    if unknown:
        raise InvalidArgument(f'unknown field "{unknown[0]}"; the fields are {", ".join(_FIELDS)}')
    if "scale" not in entry:
        raise InvalidArgument('it has no "scale"')
    scale, zero_point, axis = entry["scale"], entry.get("zero_point", 0), entry.get("axis")
    scales = tuple(_number(value) for value in scale) if isinstance(scale, list) else (_number(scale),)
    if not _is_integer(zero_point):
        raise InvalidArgument(f"zero_point {_show(zero_point)} is not an integer")
    if axis is not None and not _is_integer(axis):
        raise InvalidArgument(f"axis {_show(axis)} is not an integer")
    return QuantParams(scales, zero_point, axis)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"scale {_show(value)} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgument(f"scale {_show(value)} is not finite") from None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _show(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


_Places = dict[str, list[tuple[Graph, Tensor]]]


def _by_name(program: Program) -> _Places:
    """The tensors each name may mean: that of the main block alone, or those of the other blocks."""
    places: _Places = {}
    for block in program.blocks:
        for tensor in block.tensors:
            places.setdefault(tensor.name, []).append((block, tensor))
    main = program.main
    return {name: found[:1] if found[0][0] is main else found for name, found in places.items()}


def _place(places: _Places, name: str) -> tuple[Graph, Tensor]:
    found = places.get(name, [])
    if not found:
        near = difflib.get_close_matches(name, places, n=3)
        hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        raise InvalidArgument(f"the model has no tensor of that name{hint}")
    if len(found) > 1:
        blocks = ", ".join(f'"{block.name}"' for block, _ in found[:5])
        raise InvalidArgument(f"blocks {blocks} each have a tensor of that name; rename it in all but one")
    return found[0]


def _require_fit(tensor: Tensor, params: QuantParams) -> None:
    if tensor.dtype not in INTEGER_RANGES or tensor.dtype == DType.SHAPE:
        raise InvalidArgument(f"it is {tensor.dtype.name}, and only integer tensors are quantised")
    axis, shape, zero_point = params.axis, tensor.shape, params.zero_point
    if axis is not None and not 0 <= axis < len(shape):
        raise InvalidArgument(f"axis {axis} does not exist in its shape {list(shape)}")
    if axis is not None and shape[axis] != len(params.scale):
        raise InvalidArgument(f"{len(params.scale)} scales on axis {axis}, which has size {shape[axis]}")
    low, high = INTEGER_RANGES[tensor.dtype]
    if tensor.dtype in (DType.INT4, DType.INT8):
        if not low <= zero_point <= 2 * high + 1:  # up to the largest unsigned value: RESCALE reads such tensors
            raise InvalidArgument(f"zero_point {zero_point} is outside {tensor.dtype.name}")
    elif zero_point != 0 and (tensor.dtype, zero_point) != (DType.INT16, _UINT16_ZERO_POINT):
        raise InvalidArgument(
            f"zero_point is {zero_point}, but TOSA knows no zero point other than 0 on {tensor.dtype.name}; "
            "quantise it symmetrically"
        )


def _entry(params: QuantParams) -> dict[str, object]:
    entry: dict[str, object] = {"scale": list(params.scale), "zero_point": params.zero_point, "axis": params.axis}
    if params.axis is None:
        entry["scale"] = params.scale[0]
        del entry["axis"]
    return entry
