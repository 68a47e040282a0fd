"""Read the text form of programs that :mod:`tosakit.ir.text` prints and describes."""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

import numpy as np

from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, DType
from tosakit.ir.graph import PLAIN, AnyOp, Data, Graph, Op, Table, Tensor, TensorExtras
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Compatibility, Program, Region, SoftwareVersion, Version
from tosakit.ir.types import QuantParams, encode

_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9_.$]+")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?(?:inf|nan|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")
_BYTES = re.compile(r'x"([0-9a-fA-F]*)"')
_VERSION = re.compile(r"(-?\d+)\.(-?\d+)\.(-?\d+)")
_OPERATOR = re.compile(r"[A-Za-z0-9_]+(?::[A-Za-z0-9_]+)?")
_FOUND = re.compile(r'"[^"\n]*"?|[A-Za-z0-9_.%$-]+|\S')

_TABLES: dict[str, Table] = {"tensors": "tensors", "shapes": "shapes", "undeclared": "undeclared"}
_TRUTH = {"true": True, "false": False}
T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)


def parse_program(text: str) -> Program:
    """The program that ``text`` describes.

    The exact inverse of printing with ``values=None``. The versions may be left out (TOSA 1.0.0), and so may the
    region around blocks (``"main"``). Raises InvalidArgument with the line number and what was expected.
    """
    scanner = _Scanner(text)
    program = Program()
    _parse_header(scanner, program)
    while not scanner.at_end():
        if scanner.take_word("region"):
            name = _label(scanner, "{", "the region's name")
            scanner.expect("{", "of the region")
            program.regions.append(Region(name))
            while not scanner.take("}"):
                program.regions[-1].blocks.append(_parse_block(scanner))
        else:
            if not program.regions:
                program.regions.append(Region("main"))
            program.regions[-1].blocks.append(_parse_block(scanner))
    return program


class _Scanner:
    """Walks through a text; every failure names the line and what was expected there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self.position)
        self.position = found.end() if found else self.position

    def at_end(self) -> bool:
        """True where nothing but space and comments is left."""
        return self.position == len(self.text)

    def sees(self, literal: str) -> bool:
        """True where ``literal`` comes next."""
        return self.text.startswith(literal, self.position)

    def take(self, literal: str) -> bool:
        """Pass over ``literal`` where it comes next."""
        if not self.sees(literal):
            return False
        self.position += len(literal)
        self._skip()
        return True

    def take_word(self, word: str) -> bool:
        """Pass over a whole word where it comes next."""
        found = _WORD.match(self.text, self.position)
        return bool(found and found.group() == word and self.take(word))

    def expect(self, literal: str, where: str) -> None:
        """Pass over ``literal``, which must come next."""
        if not self.take(literal):
            self.fail(f'expected "{literal}" {where}')

    def match(self, pattern: "re.Pattern[str]", what: str) -> "re.Match[str]":
        """What ``pattern`` matches here."""
        found = pattern.match(self.text, self.position)
        if found is None:
            self.fail(f"expected {what}")
        self.position = found.end()
        self._skip()
        return found

    def string(self, what: str) -> str:
        """A string in double quotes, with JSON's escapes."""
        found = self.match(_STRING, f"{what} in double quotes")
        try:
            return str(json.loads(found.group()))
        except ValueError:
            self.fail(f"{what} has an escape that JSON does not know: {found.group()}", at=found.start())

    def raw_bytes(self) -> bytes | None:
        """Bytes as ``x"..."``, or None where none come next."""
        if not self.sees('x"'):
            return None
        found = self.match(_BYTES, 'hexadecimal bytes such as x"00ff"')
        try:
            return bytes.fromhex(found.group(1))
        except ValueError:
            self.fail(f"an odd number of hexadecimal digits: {found.group()}", at=found.start())

    def integer(self, what: str) -> int:
        """A whole number."""
        return int(self.match(_INTEGER, what).group())

    def listed(self, read: Callable[[], T], opening: str, closing: str, where: str) -> Iterator[T]:
        """Items between brackets, separated by commas."""
        self.expect(opening, where)
        if self.take(closing):
            return
        while True:
            yield read()
            if self.take(closing):
                return
            self.expect(",", f'or "{closing}" {where}')

    def fail(self, what: str, *, at: int | None = None) -> NoReturn:
        """Raise InvalidArgument for the line of position ``at`` (by default this one)."""
        position = self.position if at is None else at
        line = self.text.count("\n", 0, position) + 1
        found = _FOUND.match(self.text, position)
        here = "the end of the text" if found is None else found.group()
        raise InvalidArgument(f"line {line}: {what}" + (f", found {here}" if at is None else ""))


def _parse_header(scanner: _Scanner, program: Program) -> None:
    if scanner.take_word("tosa"):
        major, minor, patch = _numbers_of_version(scanner)
        program.version = Version(major, minor, patch, scanner.take_word("draft"))
    if scanner.take_word("software"):
        program.software_version = _software(scanner)
    if scanner.take_word("compatibility"):
        features = scanner.integer("the number of the features")
        program.compatibility = Compatibility(_software(scanner) if scanner.take_word("reader") else None, features)


def _label(scanner: _Scanner, behind: str, what: str) -> str | None:
    """The name of a region or block, which may be left out."""
    if scanner.sees(behind):
        return "main"
    return None if scanner.take_word("unnamed") else scanner.string(what)


def _numbers_of_version(scanner: _Scanner) -> tuple[int, int, int]:
    found = scanner.match(_VERSION, "a version such as 1.0.0")
    return int(found.group(1)), int(found.group(2)), int(found.group(3))


def _software(scanner: _Scanner) -> SoftwareVersion:
    major, minor, micro = _numbers_of_version(scanner)
    return SoftwareVersion(major, minor, micro, scanner.string("the modifier") if scanner.sees('"') else None)


def _parse_block(scanner: _Scanner) -> Graph:
    if not scanner.take_word("block"):
        scanner.fail('expected "block"')
    return _BlockParser(scanner).parse()


class _BlockParser:
    """Reads one block into tensors and operators, then makes a graph of them."""

    def __init__(self, scanner: _Scanner) -> None:
        self.scanner = scanner
        self.tensors: dict[str, Tensor] = {}

    def parse(self) -> Graph:
        """The block whose keyword was just read."""
        scanner = self.scanner
        name = _label(scanner, "(", "the block's name")
        graph = Graph(name)
        graph._tensors = self.tensors  # noqa: SLF001  the table is new and nobody else's, as with the file reader
        graph.set_inputs(list(scanner.listed(self._mention, "(", ")", "of the block's inputs")))
        scanner.expect("->", "and the block's outputs")
        at = scanner.position
        outputs = list(scanner.listed(self._name, "(", ")", "of the block's outputs"))
        scanner.expect("{", "of the block")
        parsed: list[AnyOp] = []
        order: list[Tensor] | None = None
        while not scanner.take("}"):
            if scanner.take_word("declare"):
                self._values(self._mention())
            elif scanner.take_word("tensors"):
                order = list(scanner.listed(self._known, "(", ")", "of the tensor table"))
                if sorted(t.name for t in order) != sorted(self.tensors):
                    scanner.fail("the tensor table must name every tensor of the block once")
            else:
                parsed.append(self._statement())
        for output in outputs:
            if output not in self.tensors:
                scanner.fail(f'the block\'s output "{output}" is declared nowhere in it', at=at)
        graph._tensors = {t.name: t for t in order or self.tensors.values()}  # noqa: SLF001
        for op in parsed:
            graph._register(op)  # noqa: SLF001
        graph.set_outputs([self.tensors[output] for output in outputs])
        return graph

    def _name(self) -> str:
        scanner = self.scanner
        scanner.expect("%", "and a tensor's name")
        return scanner.string("the tensor's name") if scanner.sees('"') else scanner.match(_NAME, "a name").group()

    def _known(self) -> Tensor:
        at = self.scanner.position
        name = self._name()
        if name not in self.tensors:
            self.scanner.fail(f'tensor "{name}" is declared nowhere above', at=at)
        return self.tensors[name]

    def _mention(self) -> Tensor:
        """A tensor with its type where it is declared here, else one declared above."""
        scanner = self.scanner
        at = scanner.position
        name = self._name()
        if not scanner.take(":"):
            if name not in self.tensors:
                scanner.fail(f'tensor "{name}" has no type here and is declared nowhere above', at=at)
            return self.tensors[name]
        if name in self.tensors:
            scanner.fail(f'tensor "{name}" is declared twice', at=at)
        dtype = self._enum(DType)
        shape = None
        if scanner.sees("["):
            shape = tuple(scanner.listed(lambda: scanner.integer("a dimension"), "[", "]", "of the shape"))
        notes: dict[str, Any] = {}
        if scanner.sees("<"):
            for key, value in scanner.listed(self._note, "<", ">", "of the tensor's notes"):
                notes[key] = value
        tensor = self.tensors[name] = _make_tensor(scanner, at, name, dtype, shape, notes)
        return tensor

    def _note(self) -> tuple[str, Any]:
        scanner = self.scanner
        key = scanner.match(_WORD, "a note such as scale=0.5").group()
        if key in ("variable", "unranked"):
            return key, True
        if key not in _NOTES:
            scanner.fail(f"there is no note {key}; there are {', '.join(_NOTES)}")
        scanner.expect("=", f"after {key}")
        return key, _NOTES[key](self)

    def _enum(self, kind: type[E]) -> E:
        scanner = self.scanner
        at = scanner.position
        word = scanner.match(_WORD, f"a {kind.__name__}").group()
        if word not in kind.__members__:
            scanner.fail(f"{word} is no {kind.__name__}{_closest(word, kind.__members__)}", at=at)
        return kind[word]

    def _statement(self) -> AnyOp:
        scanner = self.scanner
        start = scanner.position
        results: list[Tensor] = []
        if scanner.sees("%"):
            results.append(self._mention())
            while scanner.take(","):
                results.append(self._mention())
            scanner.expect("=", "and the operator")
        at = scanner.position
        operator = scanner.match(_OPERATOR, "an operator such as ADD").group()
        operands = list(scanner.listed(self._known, "(", ")", "of the operands"))
        attrs = self._attributes(operator, at, operands)
        if isinstance(attrs, ops.Const | ops.ConstShape) and len(results) == 1:
            self._values(results[0])
        location = scanner.string("the location") if scanner.take_word("loc") else None
        try:
            return Op(attrs, operands, results, location=location)
        except InvalidArgument as error:
            scanner.fail(str(error), at=start)

    def _attributes(self, operator: str, at: int, operands: Sequence[Tensor]) -> Attributes:
        name, _, table = operator.partition(":")
        if table:
            number = self._number_of(name, "OP", at)
            attribute_type = 0 if table == "NONE" else self._number_of(table, "ATTRIBUTE", at)
            known = ops.BY_NAME.get(table)
            if known is None and self.scanner.sees("{"):
                self.scanner.fail(f"the attribute table {table} is unknown to tosakit, so text cannot hold it")
            return Foreign(number, attribute_type, self._fields(known, operands) if known else None)
        if name not in ops.BY_NAME:
            self.scanner.fail(f"there is no operator {name}{_closest(name, ops.BY_NAME)}", at=at)
        return self._fields(ops.BY_NAME[name], operands)

    def _number_of(self, name: str, prefix: str, at: int) -> int:
        digits = name.removeprefix(prefix)
        if name in ops.BY_NAME:
            return ops.BY_NAME[name].NUMBER
        if digits == name or not digits.isdecimal():
            self.scanner.fail(f"{name} is neither an operator nor {prefix} with a number", at=at)
        return int(digits)

    def _fields(self, cls: type[Attributes], operands: Sequence[Tensor]) -> Attributes:
        scanner = self.scanner
        kinds: dict[str, Any] = {field.name: field.type for field in fields(cls)}
        dtype = operands[0].dtype if operands else DType.UNKNOWN
        values: dict[str, Any] = {}

        def read() -> None:
            at = scanner.position
            key = scanner.match(_WORD, f"an attribute of {cls.NAME}").group()
            if key == "opaque":
                scanner.fail("the attribute table is unknown to tosakit, so text cannot hold it", at=at)
            if key not in kinds:
                known = f"; it has {', '.join(kinds)}" if kinds else "; it has none"
                scanner.fail(f"{cls.NAME} has no attribute {key}{known}", at=at)
            scanner.expect("=", f"after {key}")
            values[key] = self._attribute(kinds[key], dtype)

        if scanner.sees("{"):
            for _ in scanner.listed(read, "{", "}", "of the attributes"):
                pass
        return cls(**values)

    def _attribute(self, kind: Any, dtype: DType) -> Any:
        scanner = self.scanner
        if kind is bool:
            return self._truth()
        if kind is int:
            return scanner.integer("a whole number")
        if kind is str:
            return scanner.string("the attribute")
        if kind is bytes:
            return self._attribute_bytes(dtype)
        if isinstance(kind, type) and issubclass(kind, IntEnum):
            # a number that the schema does not name stays a number
            return scanner.integer("a number") if _INTEGER.match(scanner.text, scanner.position) else self._enum(kind)
        return tuple(scanner.listed(lambda: scanner.integer("a whole number"), "[", "]", "of the attribute"))

    def _truth(self) -> bool:
        word = self.scanner.match(_WORD, "true or false").group()
        if word not in _TRUTH:
            self.scanner.fail("expected true or false")
        return _TRUTH[word]

    def _attribute_bytes(self, dtype: DType) -> bytes:
        found = self.scanner.raw_bytes()
        if found is not None:
            return found
        at = self.scanner.position
        return self._padded(self._encoded([self._literal()], dtype, at))

    def _literal(self) -> str:
        scanner = self.scanner
        return scanner.match(_WORD if scanner.sees("true") or scanner.sees("false") else _NUMBER, "a number").group()

    def _padded(self, data: bytes) -> bytes:
        return data + bytes(self.scanner.integer("a number of bytes")) if self.scanner.take_word("pad") else data

    def _encoded(self, literals: Sequence[str], dtype: DType, at: int) -> bytes:
        """Values as the bytes of a constant."""
        try:
            return encode(_as_numbers(literals, dtype), dtype)
        except KeyError as error:
            self.scanner.fail(f"{error.args[0]} is neither true nor false", at=at)
        except (ValueError, OverflowError) as error:
            self.scanner.fail(f"values that are no numbers of {dtype.name}: {error}", at=at)
        except InvalidArgument as error:
            self.scanner.fail(str(error), at=at)

    def _values(self, tensor: Tensor) -> None:
        """The constant values that may stand behind a tensor."""
        scanner = self.scanner
        at = scanner.position
        data: Data | None = scanner.raw_bytes()
        if scanner.sees("["):
            literals = self._value_list()
            count = int(np.prod(tensor.shape, dtype=np.int64))
            if len(literals) != count:
                scanner.fail(f"{len(literals)} values for {tensor!r}, which has {count}", at=at)
            data = self._padded(self._encoded(literals, tensor.dtype, at))
        if data is not None:
            tensor._data = data  # noqa: SLF001  still being made

    def _value_list(self) -> list[str]:
        """The texts between square brackets; cut at once, since constants can be long."""
        scanner = self.scanner
        at = scanner.position
        end = scanner.text.find("]", at)
        if end < 0:
            scanner.fail('expected "]" after the values', at=at)
        inside = scanner.text[at + 1 : end].strip()
        if inside.startswith("<"):
            scanner.fail("the values were left out when this was printed; print all with values=None", at=at)
        scanner.position = end
        scanner.expect("]", "after the values")
        return [part.strip() for part in inside.split(",")] if inside else []

    def note_scale(self) -> tuple[float, ...]:
        """One scale, or a list of them."""
        if self.scanner.sees("["):
            at = self.scanner.position
            try:
                return tuple(float(part) for part in self._value_list())
            except ValueError as error:
                self.scanner.fail(f"a scale is no number: {error}", at=at)
        return (float(self.scanner.match(_NUMBER, "a scale").group()),)

    def note_bytes(self) -> bytes:
        """Raw bytes."""
        found = self.scanner.raw_bytes()
        if found is None:
            if self.scanner.sees("[<"):
                self._value_list()
            self.scanner.fail('expected bytes such as x"00ff"')
        return found

    def note_table(self) -> Table:
        """The file's table that declares a tensor."""
        word = self.scanner.match(_WORD, "the table").group()
        if word not in _TABLES:
            self.scanner.fail(f"{word} is no table of a block; there are {', '.join(_TABLES)}")
        return _TABLES[word]


_NOTES: dict[str, Callable[[_BlockParser], Any]] = {
    "scale": _BlockParser.note_scale,
    "zero_point": lambda parser: parser.scanner.integer("the zero point"),
    "axis": lambda parser: parser.scanner.integer("the axis"),
    "table": _BlockParser.note_table,
    "variable_name": lambda parser: parser.scanner.string("the variable's name"),
    "scale_type": lambda parser: parser._enum(DType),  # noqa: SLF001
    "block_shape": lambda parser: parser._enum(BlockShape),  # noqa: SLF001
    "scale_data": _BlockParser.note_bytes,
    "data": _BlockParser.note_bytes,
}


def _make_tensor(
    scanner: _Scanner, at: int, name: str, dtype: DType, shape: tuple[int, ...] | None, notes: dict[str, Any]
) -> Tensor:
    extras = TensorExtras(
        "variable" in notes,
        notes.get("variable_name"),
        "unranked" in notes,
        notes.get("scale_type", DType.UNKNOWN),
        notes.get("scale_data"),
        notes.get("block_shape", BlockShape.UNKNOWN),
    )
    table: Table = notes.get("table", "shapes" if dtype == DType.SHAPE else "tensors")
    if table == "shapes" and len(shape or ()) != 1:
        scanner.fail(f'tensor "{name}" of the shapes table needs a shape of one dimension, its rank', at=at)
    quantization = None
    if "scale" in notes:
        try:
            quantization = QuantParams(notes["scale"], notes.get("zero_point", 0), notes.get("axis"))
        except InvalidArgument as error:
            scanner.fail(f'tensor "{name}": {error}', at=at)
    extras = PLAIN if extras == PLAIN else extras
    return Tensor(name, dtype, shape, notes.get("data"), quantization=quantization, extras=extras, table=table)


def _as_numbers(literals: Sequence[str], dtype: DType) -> "np.typing.NDArray[Any]":
    if dtype == DType.BOOL:
        return np.array([_TRUTH[literal] for literal in literals], np.bool_)
    if dtype.name.startswith(("INT", "SHAPE", "MXINT")):
        return np.array([int(literal) for literal in literals], np.int64)
    return np.array([float(literal) for literal in literals], np.float64)


def _closest(word: str, known: Sequence[str] | Any) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
