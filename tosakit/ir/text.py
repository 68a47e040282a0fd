"""Programs as readable text, in TOSA's assembly-like form.

One operator stands on a line; ``//`` starts a comment::

    tosa 1.0.0
    region "main" {
      block "main" (%x: INT8[1,4]) -> (%y) {
        %m: INT32[1] = CONST() [1073741824]
        ...
        %y: INT8[1,4] = RESCALE(%x, %m, %s, %zi, %zo) {scale32=true, rounding_mode=SINGLE_ROUND}  // scale 0.5
      }
    }

A tensor is declared where it first appears: ``%name: DTYPE[shape]``, without brackets where the file gives no shape,
and with rare fields and quantisation parameters in ``<...>``. Names other than letters, digits, ``_``, ``.`` and
``$`` are quoted. Attributes that are false, empty or unknown are left out. The values of a constant follow its
operator in row-major order, or as ``x"..."`` (hexadecimal bytes) where numbers cannot say them. ``declare`` introduces
tensors that no operator makes. An operator whose attribute table is another operator's is printed
``OPERATOR:TABLE(...)``. Regions and blocks are called ``"main"`` where nothing is said, ``unnamed`` where the file has
no name at all.

:func:`tosakit.ir.text_parser.parse_program` reads this form.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import IntEnum

import numpy as np

from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, DType
from tosakit.ir.graph import AnyOp, Data, Graph, Tensor
from tosakit.ir.json_form import effective_scales, to_json
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Program, SoftwareVersion
from tosakit.ir.types import Array, decode, encode

__all__ = ["format_graph", "format_operator", "format_program", "parse_program", "to_json"]

PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$]+")


def format_program(
    program: Program,
    *,
    values: int | None = 8,
    scales: bool = True,
    exact: bool = False,
    header: bool = True,
    remarks: Mapping[AnyOp, str] | None = None,
) -> str:
    """The program as text, ending in a newline.

    Constants of more than ``values`` elements are given as their number and the start of their SHA-256; None prints
    all. ``scales`` adds the effective scale of each RESCALE as a comment, ``remarks`` what they hold for an operator.
    ``exact`` adds what matters only for identical bytes: padding, empty vectors and strings, and the order of the
    tensor table. ``header=False`` leaves out the versions. Raises InvalidModel where a block has a cycle.
    """
    printer = _Printer(values, scales, exact, remarks)
    lines = _header(program) if header else []
    for region in program.regions:
        lines.append(f"region {_label(region.name)} {{")
        for block in region.blocks:
            lines.extend(f"  {line}" for line in printer.block(block))
        lines.append("}")
    return "\n".join(lines) + "\n"


def parse_program(text: str) -> Program:
    """The program that a text describes; see :func:`tosakit.ir.text_parser.parse_program`."""
    from tosakit.ir import text_parser

    return text_parser.parse_program(text)


def format_graph(graph: Graph, *, values: int | None = 8, scales: bool = True, exact: bool = False) -> str:
    """One block as text, ending in a newline; the arguments are those of :func:`format_program`."""
    return "\n".join(_Printer(values, scales, exact).block(graph)) + "\n"


def format_operator(op: AnyOp, *, values: int | None = 8, scales: bool = True) -> str:
    """One operator as a line of text, its results with their types."""
    return _Printer(values, scales, exact=False).statement(op, {})


def quote(text: str) -> str:
    """A string in double quotes, with everything unprintable escaped as in JSON."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else json.dumps(c)[1:-1] for c in text) + '"'


def _label(name: str | None) -> str:
    return "unnamed" if name is None else quote(name)


def tensor_name(tensor: Tensor) -> str:
    """``%name``, quoted where the name holds other characters than letters, digits, ``_``, ``.`` and ``$``."""
    return "%" + (tensor.name if PLAIN_NAME.fullmatch(tensor.name) else quote(tensor.name))


def _header(program: Program) -> list[str]:
    version = program.version
    draft = " draft" if version.draft else ""
    lines = [f"tosa {version.major}.{version.minor}.{version.patch}{draft}"]
    if program.software_version is not None:
        lines.append(f"software {_software(program.software_version)}")
    if program.compatibility is not None:
        reader = program.compatibility.min_reader_version
        needs = "" if reader is None else f" reader {_software(reader)}"
        lines.append(f"compatibility {program.compatibility.features}{needs}")
    return lines


def _software(version: SoftwareVersion) -> str:
    modifier = "" if version.modifier is None else f" {quote(version.modifier)}"
    return f"{version.major}.{version.minor}.{version.micro}{modifier}"


class _Printer:
    """Prints blocks under one set of choices."""

    def __init__(
        self, values: int | None, scales: bool, exact: bool, remarks: Mapping[AnyOp, str] | None = None
    ) -> None:
        self.limit = values
        self.scales = scales
        self.exact = exact
        self.remarks = remarks or {}

    def block(self, graph: Graph) -> list[str]:
        """The lines of one block."""
        declared: dict[Tensor, None] = {}
        name = graph.graph["name"]
        inputs = ", ".join(self.mention(tensor, declared) for tensor in graph.inputs)
        outputs = ", ".join(tensor_name(tensor) for tensor in graph.outputs)
        lines = [f"block {_label(name)} ({inputs}) -> ({outputs}) {{"]
        for tensor in graph.tensors:
            if tensor.producer is None:
                text = self.mention(tensor, declared, with_data=False)
                lines.append(f"  declare {text}{self._values_suffix(tensor)}")
        lines.extend(f"  {self.statement(op, declared)}" for op in graph.ops)
        if self.exact and tuple(declared) != graph.tensors:
            lines.append(f"  tensors ({', '.join(tensor_name(tensor) for tensor in graph.tensors)})")
        lines.append("}")
        return lines

    def statement(self, op: AnyOp, declared: dict[Tensor, None]) -> str:
        """One operator; ``declared`` are the tensors whose type was printed before."""
        constant = isinstance(op.attrs, ops.Const | ops.ConstShape) and len(op.outputs) == 1
        results = ", ".join(self.mention(tensor, declared, with_data=not constant) for tensor in op.outputs)
        operands = ", ".join(tensor_name(tensor) for tensor in op.inputs)
        text = f"{results} = " if op.outputs else ""
        text += f"{_operator_name(op.attrs)}({operands}){self._attributes(op)}"
        if constant:
            text += self._values_suffix(op.output)
        if op.location or (self.exact and op.location is not None):
            text += f" loc {quote(op.location)}"
        found = effective_scales(op) if self.scales else None
        comments: list[str] = []
        if found is not None and found.size:
            low, high = float(found.min()), float(found.max())
            comments.append(f"scale {low:.6g}" + (f"..{high:.6g}" if high != low else ""))
        if op in self.remarks:
            comments.append(self.remarks[op])
        return text + (f"  // {', '.join(comments)}" if comments else "")

    def mention(self, tensor: Tensor, declared: dict[Tensor, None], *, with_data: bool = True) -> str:
        """A tensor's name, with its type where this is the first mention."""
        if tensor in declared:
            return tensor_name(tensor)
        declared[tensor] = None
        shape = f"[{','.join(map(str, tensor.shape))}]" if tensor.has_shape else ""
        notes = [*self._quantization(tensor), *self._extras(tensor)]
        if with_data and tensor.stored is not None and (self.exact or len(tensor.stored)):
            notes.append(f"data={self._hex(tensor.stored)}")
        return f"{tensor_name(tensor)}: {tensor.dtype.name}{shape}" + (f" <{', '.join(notes)}>" if notes else "")

    def _quantization(self, tensor: Tensor) -> list[str]:
        parameters = tensor.quantization
        if parameters is None:
            return []
        if parameters.axis is None:
            return [f"scale={parameters.scale[0]!r}", f"zero_point={parameters.zero_point}"]
        scales = self._elided(len(parameters.scale), np.asarray(parameters.scale).tobytes())
        scales = scales or f"[{', '.join(map(repr, parameters.scale))}]"
        return [f"scale={scales}", f"zero_point={parameters.zero_point}", f"axis={parameters.axis}"]

    def _extras(self, tensor: Tensor) -> list[str]:
        extras = tensor.extras
        notes = []
        if tensor.table != ("shapes" if tensor.dtype == DType.SHAPE else "tensors"):
            notes.append(f"table={tensor.table}")
        if extras.variable:
            notes.append("variable")
        if extras.variable_name or (self.exact and extras.variable_name is not None):
            notes.append(f"variable_name={quote(extras.variable_name)}")
        if extras.is_unranked:
            notes.append("unranked")
        if extras.scale_type != DType.UNKNOWN:
            notes.append(f"scale_type={extras.scale_type.name}")
        if extras.block_shape != BlockShape.UNKNOWN:
            notes.append(f"block_shape={extras.block_shape.name}")
        if extras.scale_data is not None and (self.exact or len(extras.scale_data)):
            notes.append(f"scale_data={self._hex(extras.scale_data)}")
        return notes

    def _attributes(self, op: AnyOp) -> str:
        attrs = op.attrs.attributes if isinstance(op.attrs, Foreign) else op.attrs
        if attrs is None:
            return " {opaque}" if isinstance(op.attrs, Foreign) and op.attrs.table else ""
        dtype = op.inputs[0].dtype if op.inputs else DType.UNKNOWN
        items = []
        for field in fields(attrs):
            value = getattr(attrs, field.name)
            if value != field.default or field.type is int:
                items.append(f"{field.name}={self._attribute(value, dtype)}")
        return f" {{{', '.join(items)}}}" if items else ""

    def _attribute(self, value: object, dtype: DType) -> str:
        """One attribute; bytes (CLAMP's limits) are a number of the operand's dtype where they hold one."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, IntEnum):
            return value.name
        if isinstance(value, bytes):
            return self._numbers(value, dtype, (1,), brackets=False) or self._hex(value)
        if isinstance(value, tuple):
            return f"[{', '.join(map(str, value))}]"
        return quote(value) if isinstance(value, str) else str(value)

    def _values_suffix(self, tensor: Tensor) -> str:
        data = tensor.stored
        if data is None or (not self.exact and not len(data) and tensor.producer is None):
            return ""
        elided = self._elided(math.prod(tensor.shape), data)
        return " " + (elided or self._numbers(data, tensor.dtype, tensor.shape) or self._hex(data))

    def _numbers(self, data: Data, dtype: DType, shape: tuple[int, ...], *, brackets: bool = True) -> str:
        """The values, with their padding, or nothing where numbers do not say exactly what the bytes hold."""
        try:
            values = decode(data, dtype, shape)
            encoded = encode(values, dtype)
        except TosakitError:
            return ""
        padding = bytes(data[len(encoded) :])
        if bytes(data[: len(encoded)]) != encoded or any(padding):
            return ""
        text = ", ".join(numbers_as_text(values, dtype))
        return (f"[{text}]" if brackets else text) + (f" pad {len(padding)}" if padding and self.exact else "")

    def _elided(self, count: int, data: Data) -> str:
        if self.limit is None or count <= self.limit:
            return ""
        from hashlib import sha256

        return f"[<{count} values, sha256 {sha256(data).hexdigest()[:16]}>]"

    def _hex(self, data: Data) -> str:
        return self._elided(len(data), data) or f'x"{bytes(data).hex()}"'


def _operator_name(attrs: Attributes) -> str:
    if not isinstance(attrs, Foreign):
        return attrs.NAME
    operator = ops.BY_NUMBER.get(attrs.number)
    table = ops.BY_NUMBER.get(attrs.attribute_type)
    table_name = table.NAME if table else f"ATTRIBUTE{attrs.attribute_type}" if attrs.attribute_type else "NONE"
    return f"{operator.NAME if operator else f'OP{attrs.number}'}:{table_name}"


def numbers_as_text(values: Array, dtype: DType) -> Iterable[str]:
    """The values in row-major order, each as the shortest text that gives it back."""
    if dtype == DType.BOOL:
        return ("true" if value else "false" for value in values.ravel().tolist())
    if values.dtype.kind in "iu":
        return map(str, values.ravel().tolist())
    # every small float type is exact in FP32
    return map(str, values.astype(np.float32).ravel())
