"""Programs as plain dictionaries, for ``tosakit show --json`` and other tools."""

import math
from dataclasses import fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Program


def to_json(program: Program, *, values: int = 8) -> dict[str, Any]:
    """The program as a dictionary that ``json.dumps`` takes: regions, blocks, tensors, operators.

    Operators carry index, type, attributes, operand and result names, and a RESCALE its effective scales (one, or one
    per channel). Constants of at most ``values`` elements carry their values in row-major order. Attributes that are
    bytes are hexadecimal. Raises InvalidModel where a block has a cycle.
    """
    regions = [
        {"name": region.name, "blocks": [_block(block, values) for block in region.blocks]}
        for region in program.regions
    ]
    software = program.software_version
    return {
        "version": str(program.version),
        "software_version": None if software is None else f"{software.major}.{software.minor}.{software.micro}",
        "notes": list(program.notes),
        "regions": regions,
    }


def effective_scales(op: AnyOp) -> npt.NDArray[np.float64] | None:
    """``multiplier * 2**-shift`` of a RESCALE with constant multiplier and shift, shape [1] or [C]; else None."""
    if not isinstance(op.attrs, ops.Rescale) or len(op.inputs) < 3:
        return None
    try:
        multiplier, shift = op.inputs[1].values().ravel(), op.inputs[2].values().ravel()
        return np.asarray(np.ldexp(multiplier.astype(np.float64), -shift.astype(np.int64)), np.float64)
    except (TosakitError, TypeError, ValueError):  # no constants, or constants that no RESCALE has
        return None


def _block(graph: Graph, limit: int) -> dict[str, Any]:
    return {
        "name": graph.graph["name"],
        "inputs": [tensor.name for tensor in graph.inputs],
        "outputs": [tensor.name for tensor in graph.outputs],
        "tensors": [_tensor(tensor, limit) for tensor in graph.tensors],
        "operators": [_operator(op, index) for index, op in enumerate(graph.ops)],
    }


def _tensor(tensor: Tensor, limit: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": tensor.name,
        "dtype": tensor.dtype.name,
        "shape": list(tensor.shape) if tensor.has_shape else None,
    }
    if tensor.extras.variable:
        entry["variable"] = tensor.extras.variable_name or True
    if tensor.quantization is not None:
        parameters = tensor.quantization
        scale = list(parameters.scale) if parameters.axis is not None else parameters.scale[0]
        entry["quantization"] = {"scale": scale, "zero_point": parameters.zero_point, "axis": parameters.axis}
    if tensor.data is not None:
        entry["constant_bytes"] = len(tensor.data)
        if math.prod(tensor.shape) <= limit and (found := _values(tensor)) is not None:
            entry["values"] = found
    return entry


def _values(tensor: Tensor) -> list[Any] | None:
    try:
        array = tensor.values()
    except TosakitError:
        return None
    if array.dtype.kind not in "biu":
        array = array.astype(np.float32)
    # JSON has no NaN and no infinity
    return [v if not isinstance(v, float) or math.isfinite(v) else str(v) for v in array.ravel().tolist()]


def _operator(op: AnyOp, index: int) -> dict[str, Any]:
    attrs = op.attrs
    entry: dict[str, Any] = {
        "index": index,
        "type": attrs.NAME,
        "attributes": _attributes(attrs),
        "operands": [tensor.name for tensor in op.inputs],
        "results": [tensor.name for tensor in op.outputs],
    }
    if isinstance(attrs, Foreign):
        known = None if attrs.attributes is None else _attributes(attrs.attributes)
        entry["attributes"] = {"number": attrs.number, "attribute_type": attrs.attribute_type, "attributes": known}
    scales = effective_scales(op)
    if scales is not None:
        entry["effective_scales"] = scales.tolist()
    if op.location is not None:
        entry["location"] = op.location
    return entry


def _attributes(attrs: Attributes) -> dict[str, Any]:
    return {} if isinstance(attrs, Foreign) else {f.name: _plain(getattr(attrs, f.name)) for f in fields(attrs)}


def _plain(value: Any) -> Any:
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value
