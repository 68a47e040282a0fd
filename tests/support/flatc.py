"""Build .tosa files with the schema compiler of tosa-tools, so that tools can be given what our writer never writes."""

import json
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Table = dict[str, Any]

_STORAGE = {"BOOL": "?", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "FP32": "<f4"}
_ATTRIBUTES = {"MATMUL": "MatMulAttribute"}


def tensor(name: str, shape: Sequence[int], dtype: str, data: bytes | None = None, **fields: Any) -> Table:
    """A tensor table; ``fields`` are further fields of the schema, such as ``offset``."""
    table: Table = {"name": name, "shape": list(shape), "type": dtype, **fields}
    return table if data is None else {**table, "data": list(data)}


def const(name: str, values: npt.ArrayLike, dtype: str) -> Table:
    """A tensor with data; :func:`save` adds its CONST operator."""
    array = np.asarray(values)
    if dtype == "INT48":
        data = b"".join(int(value).to_bytes(6, "little", signed=True) for value in array.reshape(-1))
    else:
        data = array.astype(_STORAGE[dtype]).tobytes()
    return tensor(name, array.shape, dtype, data)


def op(name: str, inputs: Sequence[str], outputs: Sequence[str], attribute_type: str = "", **attribute: Any) -> Table:
    """An operator table with the attribute table of its own kind, unless another is named."""
    table = attribute_type or _ATTRIBUTES.get(name) or "".join(w.capitalize() for w in name.split("_")) + "Attribute"
    return {
        "op": name,
        "inputs": list(inputs),
        "outputs": list(outputs),
        "attribute_type": table,
        "attribute": attribute,
    }


def block(
    name: str, tensors: Sequence[Table], operators: Sequence[Table], inputs: Sequence[str], outputs: Sequence[str]
) -> Table:
    """A block; every tensor with data that is no variable gets a CONST operator in front."""
    constants = [op("CONST", [], [t["name"]]) for t in tensors if "data" in t and not t.get("variable")]
    return {
        "name": name,
        "operators": [*constants, *operators],
        "tensors": list(tensors),
        "inputs": list(inputs),
        "outputs": list(outputs),
    }


def save(path: Path, *blocks: Table, version: tuple[int, int, int] = (1, 0, 0), draft: bool = False) -> Path:
    """Write ``path`` with one region per block, the first one being what runs."""
    major, minor, patch = version
    graph = {
        "version": {"_major": major, "_minor": minor, "_patch": patch, "_draft": draft},
        "regions": [{"name": b["name"], "blocks": [b]} for b in blocks],
    }
    source = path.with_suffix(".json")
    source.write_text(json.dumps(graph), encoding="utf-8")
    tools = metadata.distribution("tosa-tools")
    flatc, schema = tools.locate_file("bin/flatc"), tools.locate_file("bin/tosa.fbs")
    subprocess.run([str(flatc), "--binary", "-o", str(path.parent), str(schema), str(source)], check=True)
    assert path.exists()
    return path


def rescale(inputs: Sequence[str], output: str, **attribute: Any) -> Table:
    """A RESCALE, single rounding, per tensor, 32-bit multiplier unless said otherwise."""
    defaults = {"scale32": True, "rounding_mode": "SINGLE_ROUND", "per_channel": False}
    return op(
        "RESCALE", inputs, [output], **{**defaults, "input_unsigned": False, "output_unsigned": False, **attribute}
    )
