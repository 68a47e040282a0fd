"""Write a :class:`~tosakit.ir.program.Program` as a ``.tosa`` flatbuffer, deterministically and never half.

The program is taken apart into columns (:mod:`tosakit.ir.bulk`), whose distinct strings, integer vectors, attributes
and constants are numbered; then :mod:`tosakit.io.assembler` lays everything out, from the leaves up. Invariants:

- Each distinct string, vector of integers, attribute table, location and short constant is written once.
- Long constants are never copied in memory: their views of the input file go to the output file as they are.
- What a file left out and what it gave as empty stay apart; scalars equal to the schema's default are left out.
- The same program gives the same bytes.
"""

import os
from collections.abc import Iterable, Iterator, KeysView, Sequence
from itertools import chain, compress, count
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import numpy as np

from tosakit._gc import collector_paused
from tosakit.errors import InvalidModel
from tosakit.io.assembler import Assembler, Ints
from tosakit.io.files import MappedFile, check_unchanged, replace_file
from tosakit.io.flatbuffer import SHORT
from tosakit.io.schema import TABLES
from tosakit.ir.bulk import op_columns, tensor_columns, tensor_names
from tosakit.ir.graph import PLAIN, Data, Tensor
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Program, SoftwareVersion

T = TypeVar("T")

INLINE_LIMIT: Final = 1 << 30
"""Constants of more bytes than this in all are written behind the flatbuffer, whose own limit is 2 GiB."""

ALIGNMENT: Final = 64
"""Alignment of constants written behind the flatbuffer; those of no more bytes than this stay inside."""


@collector_paused()
def dumps(program: Program) -> bytes:
    """The program as the bytes of a ``.tosa`` file with all constants inline.

    Raises InvalidModel where its constants exceed the 2 GiB that a flatbuffer can hold (use :func:`save`).
    """
    writer = _Writer(program)
    size = writer.constants.size
    if size > INLINE_LIMIT:
        raise InvalidModel(f"constants take {size} bytes, more than the {INLINE_LIMIT} that are written inline")
    return b"".join(writer.parts())


@collector_paused()
def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write the program to ``path``: to a temporary file beside it first, which then takes its name.

    Constants stand inline while they take less than 1 GiB in all, else behind the flatbuffer by offset and size. The
    same program gives the same bytes. Raises InvalidArgument where the place cannot be written.
    """
    replace_file(Path(path), _parts(program, INLINE_LIMIT))


def _parts(program: Program, inline_limit: int) -> list[memoryview]:
    """The file, with long constants behind the flatbuffer where they have more bytes in all than the limit."""
    writer = _Writer(program)
    if writer.constants.size <= inline_limit:
        return writer.parts()
    # offsets above 0 are numbers of fixed width, so the flatbuffer's size does not depend on them: lay it out twice
    end = sum(map(len, writer.parts(end=ALIGNMENT)))
    parts = writer.parts(end)
    if sum(map(len, parts)) != end:
        raise RuntimeError("the flatbuffer's size changed between two layouts; please report this fault of tosakit")
    return [*parts, *writer.constants.behind(end)]


class _Pool(Generic[T]):
    """Distinct values, numbered in the order they came; None has the number -1 and the depth 0: absent.

    ``names`` are values that :meth:`add_names` gives, each once. They get no index until one of them is added again.
    """

    def __init__(self, names: KeysView[T] | None = None) -> None:
        self.values: list[T] = []
        self._numbers: dict[T | None, int] = {None: -1}
        self._unindexed = names
        self._depths = np.zeros(1, np.int64)

    def add(self, values: Sequence[T | None]) -> Ints:
        """The number of each value."""
        if self._unindexed is not None and not self._unindexed.isdisjoint(values):
            self._numbers.update(zip(self.values, count()))
            self._unindexed = None
        first, size = len(self.values), len(values)
        found = np.fromiter(map(self._numbers.setdefault, values, count(first)), np.int64, size)
        rows = np.flatnonzero(found == np.arange(first, first + size))  # where a value comes for the first time
        if len(rows) < size:
            found = np.where(found < first, found, first + np.searchsorted(rows, found - first))
            values = [values[row] for row in rows.tolist()]
            self._numbers.update(zip(values, count(first)))
        self.values += cast(Sequence[T], values)
        return found

    def add_column(self, entries: Sequence[T | None]) -> Ints:
        """The number of each entry of a column in which many are the same object."""
        distinct = _Distinct(entries)
        numbers: Ints = self.add(distinct.objects)[distinct.rows]
        return numbers

    def add_names(self, names: Sequence[T]) -> Ints:
        """The number of each name."""
        if self._unindexed is None or not self._numbers.keys().isdisjoint(names):
            return self.add(names)
        self.values += names
        return np.arange(len(self.values) - len(names), len(self.values))

    def place(self, depths: Ints) -> None:
        """Say where the values are laid out."""
        self._depths = np.append(depths, 0)

    def at(self, numbers: Ints) -> Ints:
        """Depths of the values with these numbers."""
        return self._depths[numbers]

    def depth(self, value: T | None) -> int:
        """Depth of one value."""
        return int(self._depths[self._numbers[value]])


def _addresses(objects: Iterable[Any], size: int) -> Ints:
    """The ``id`` of each object: the pointers that an array of objects consists of."""
    found: Ints = np.frombuffer(np.fromiter(objects, object, size), np.intp)
    return found


class _Distinct(Generic[T]):
    """The distinct objects of a list in the order they came, and for each entry which one it is."""

    def __init__(self, entries: Sequence[T]) -> None:
        _, first, which = np.unique(_addresses(entries, len(entries)), return_index=True, return_inverse=True)
        order = np.argsort(first)
        self.rows = np.argsort(order)[which]
        self.objects = [entries[row] for row in first[order].tolist()]

    def column(self, values: Iterable[int]) -> Ints:
        """A number per entry, from a number per distinct object."""
        found: Ints = np.fromiter(values, np.int64, len(self.objects))[self.rows]
        return found


class _Constants:
    """Contents of byte vectors, numbered; equal short ones are one. None has the number -1."""

    def __init__(self) -> None:
        self.size = 0
        self._contents: list[Data] = []
        self._short: dict[bytes, int] = {}
        self._mapped: dict[int, MappedFile] = {}
        self._depths = self._offsets = self._sizes = np.zeros(1, np.int64)

    def add(self, values: Sequence[Data | None]) -> Ints:
        """The number of each content."""
        distinct = _Distinct(values)
        return distinct.column(map(self._number, distinct.objects))

    def _number(self, content: Data | None) -> int:
        if content is None:
            return -1
        number = len(self._contents)
        if len(content) <= SHORT:
            number = self._short.setdefault(bytes(content), number)
        elif isinstance(content, memoryview) and isinstance(content.obj, MappedFile):
            self._mapped[id(content.obj)] = content.obj
        if number == len(self._contents):
            self._contents.append(content)
            self.size += len(content)
        return number

    def place(self, assembler: Assembler, end: int | None = None) -> None:
        """Lay the contents out; where the flatbuffer's ``end`` is given, only the short ones: the others follow it."""
        for mapped in self._mapped.values():
            check_unchanged(mapped)
        sizes = np.array([*map(len, self._contents), 0], np.int64)
        if end is None:
            self._sizes = np.zeros_like(sizes)
        else:
            self._sizes = np.where(sizes > ALIGNMENT, sizes, 0)
        inline = self._sizes == 0
        self._depths = np.zeros_like(sizes)
        self._depths[:-1][inline[:-1]] = assembler.blobs(compress(self._contents, inline))
        room = _aligned(self._sizes)
        self._offsets = np.where(inline, 0, _aligned(end or 0) + np.cumsum(room) - room)

    def behind(self, end: int) -> Iterator[memoryview]:
        """What follows the flatbuffer, from its ``end`` on."""
        yield memoryview(bytes(_aligned(end) - end))
        for content in compress(self._contents, self._sizes):
            yield memoryview(content)
            yield memoryview(bytes(_aligned(len(content)) - len(content)))

    def columns(self, numbers: Ints) -> tuple[Ints, Ints, Ints]:
        """Depths, offsets and sizes of the contents with these numbers; depth or offset is 0."""
        return self._depths[numbers], self._offsets[numbers], self._sizes[numbers]

    def at(self, numbers: Ints) -> Ints:
        """Depths of the contents with these numbers."""
        return self._depths[numbers]


def _aligned(size: Any) -> Any:
    return -(-size // ALIGNMENT) * ALIGNMENT


Column = tuple["_Pool[Any] | _Constants | None", Ints]
"""Numbers of pooled values, or plain numbers."""


class _Writer:
    """One program, taken apart; :meth:`parts` lays it out."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.constants = _Constants()
        self.bytes = _Constants()  # byte vectors that must be inline
        self.ints: _Pool[tuple[int, ...]] = _Pool()
        self.attributes: _Pool[Attributes] = _Pool()
        self.locations: _Pool[str] = _Pool()
        self.blocks = list(program.blocks)
        self.strings: _Pool[str] = _Pool(tensor_names(self.blocks[0]) if len(self.blocks) == 1 else None)
        self.named: list[tuple[Ints, Ints]] = []  # addresses of tensors, numbers of their names
        self.tensors = self._take_tensors()
        self.shapes = self._take_shapes()
        # in an order of their own: a reader meets them as operators use them, which may be another order next time
        undeclared = sorted(tensor_columns(self.blocks, "undeclared").tensors, key=attrgetter("name"))
        self._name(undeclared, [tensor.name for tensor in undeclared])
        self._take_operators()
        self.attribute_tables = self._take_attributes()
        self.location_texts = self.strings.add(self.locations.values)
        self.block_names = self.strings.add([block.graph["name"] for block in self.blocks])
        self.region_names = self.strings.add([region.name for region in program.regions])
        compatibility = program.compatibility
        reader = compatibility.min_reader_version if compatibility is not None else None
        for version in (program.software_version, reader):
            self.strings.add([version.modifier if version is not None else None])

    def _take_tensors(self) -> dict[str, Column]:
        """Columns of the TosaTensor tables, other than the places of constants."""
        counts, tensors, names, dtypes, shapes, data, extras = tensor_columns(self.blocks, "tensors")
        self.tensor_counts = np.array(counts, np.int64)
        name_numbers = self._name(tensors, names)
        self.data = self.constants.add(data)
        columns: dict[str, Column] = {
            "name": (self.strings, name_numbers),
            "type": (None, np.fromiter(dtypes, np.int64, len(dtypes))),
            "shape": (self.ints, self.ints.add_column(shapes)),
        }
        distinct = _Distinct(extras)
        self.scales = self.constants.add([e.scale_data for e in distinct.objects])[distinct.rows]
        if distinct.objects != [PLAIN]:
            variable_names = self.strings.add([e.variable_name for e in distinct.objects])[distinct.rows]
            columns["variable_name"] = self.strings, variable_names
            for name in ("variable", "is_unranked", "scale_type", "block_shape"):
                columns[name] = None, distinct.column(int(getattr(e, name)) for e in distinct.objects)
        return columns

    def _take_shapes(self) -> dict[str, Column]:
        """Columns of the TosaShape tables."""
        counts, tensors, names, _, shapes, data, _ = tensor_columns(self.blocks, "shapes")
        self.shape_counts = np.array(counts, np.int64)
        return {
            "name": (self.strings, self._name(tensors, names)),
            "rank": (None, np.array([shape[0] if shape else 0 for shape in shapes], np.int64)),
            "data": (self.bytes, self.bytes.add(data)),
        }

    def _name(self, tensors: list[Tensor], names: list[str]) -> Ints:
        """Numbers of the tensors' names, remembered for the operators that use them."""
        numbers = self.strings.add_names(names)
        self.named.append((_addresses(tensors, len(tensors)), numbers))
        return numbers

    def _names_of(self, tensors: Iterable[Tensor], size: int) -> Ints:
        """Numbers of the names of tensors, which may come more than once."""
        addresses, numbers = map(np.concatenate, zip(*self.named, strict=True))
        order = np.argsort(addresses, kind="stable")  # quick where they ascend: most were made one after the other
        addresses, wanted = addresses[order], _addresses(tensors, size)
        places = np.searchsorted(addresses, wanted)
        if not np.array_equal(addresses.take(places, mode="clip"), wanted):
            raise RuntimeError("an operator uses a tensor of no block; please report this fault of tosakit")
        found: Ints = numbers[order[places]]
        return found

    def _take_operators(self) -> None:
        blocks = self.blocks
        self.op_counts = _lengths([block.ops for block in blocks])
        attrs, inputs, outputs, locations = op_columns(list(chain.from_iterable(block.ops for block in blocks)))
        vectors = [*inputs, *outputs, *(block.inputs for block in blocks), *(block.outputs for block in blocks)]
        self.vector_counts = _lengths(vectors)
        self.vector_names = self._names_of(chain.from_iterable(vectors), int(self.vector_counts.sum()))
        self.op_locations = self.locations.add_column(locations)
        self.op_attrs = _Distinct(attrs)
        self.op_tables = self.attributes.add(
            [attrs.attributes if isinstance(attrs, Foreign) else attrs for attrs in self.op_attrs.objects]
        )

    def _take_attributes(self) -> list[tuple[str, Ints, dict[str, Column]]]:
        """Kind, numbers and columns of the attribute tables, class by class."""
        by_class: dict[type[Attributes], list[tuple[int, Attributes]]] = {}
        for number, attrs in enumerate(self.attributes.values):
            by_class.setdefault(type(attrs), []).append((number, attrs))
        tables = []
        for cls, members in by_class.items():
            kind = f"{cls.__name__}Attribute"
            columns = {
                field.name: self._column(field.kind, [getattr(attrs, field.name) for _, attrs in members])
                for field in TABLES[kind]
            }
            tables.append((kind, np.array([number for number, _ in members], np.int64), columns))
        return tables

    def _column(self, kind: str, values: list[Any]) -> Column:
        if kind == "ints":
            return self.ints, self.ints.add(values)
        if kind == "string":
            return self.strings, self.strings.add(values)
        if kind == "bytes":
            return self.bytes, self.bytes.add(values)
        try:
            return None, np.fromiter(values, np.int64, len(values))
        except OverflowError:
            raise InvalidModel("an attribute of an operator does not fit into 32 bits") from None

    def parts(self, end: int | None = None) -> list[memoryview]:
        """The flatbuffer. With ``end``, which must be its size, long constants stand behind it."""
        assembler = Assembler()
        sources = self._embed_sources(assembler)
        self.bytes.place(assembler)
        self.constants.place(assembler, end)
        self.strings.place(assembler.strings(self.strings.values))
        self.ints.place(assembler.int_vectors(self.ints.values))
        self._place_attributes(assembler)
        texts = self.strings.at(self.location_texts)
        self.locations.place(assembler.tables("OpLocation", len(texts), {"text": texts}))
        vectors = assembler.offset_vectors(self.vector_counts, self.strings.at(self.vector_names))
        count, blocks = len(self.op_locations), len(self.blocks)
        inputs, outputs, block_inputs, block_outputs = np.split(vectors, (count, 2 * count, 2 * count + blocks))
        operators = assembler.tables(
            "TosaOperator",
            count,
            {
                **self._attribute_columns(sources),
                "inputs": inputs,
                "outputs": outputs,
                "location": self.locations.at(self.op_locations),
            },
        )
        data, offset, size = self.constants.columns(self.data)
        scale_data, scale_offset, scale_size = self.constants.columns(self.scales)
        tensors = assembler.tables(
            "TosaTensor",
            len(self.data),
            {
                **_columns(self.tensors),
                "data": data,
                "offset": offset,
                "size": size,
                "scale_data": scale_data,
                "scale_offset": scale_offset,
                "scale_size": scale_size,
            },
        )
        shapes = assembler.tables("TosaShape", int(self.shape_counts.sum()), _columns(self.shapes))
        tables = assembler.tables(
            "TosaBasicBlock",
            blocks,
            {
                "name": self.strings.at(self.block_names),
                "operators": assembler.offset_vectors(self.op_counts, operators),
                "tensors": assembler.offset_vectors(self.tensor_counts, tensors),
                "inputs": block_inputs,
                "outputs": block_outputs,
                "shapes": assembler.offset_vectors(self.shape_counts, shapes),
            },
        )
        return assembler.finish(self._root(assembler, tables), b"TOSA")

    def _embed_sources(self, assembler: Assembler) -> dict[int, int]:
        """Lay out, whole, the files that hold tables we cannot read: offsets inside them stay right."""
        sources: dict[int, int] = {}
        for attrs in self.op_attrs.objects:
            if isinstance(attrs, Foreign) and attrs.table and id(attrs.source.obj) not in sources:
                sources[id(attrs.source.obj)] = assembler.embed(attrs.source)
        return sources

    def _place_attributes(self, assembler: Assembler) -> None:
        depths = np.zeros(len(self.attributes.values), np.int64)
        for kind, numbers, columns in self.attribute_tables:
            depths[numbers] = assembler.tables(kind, len(numbers), _columns(columns))
        self.attributes.place(depths)

    def _attribute_columns(self, sources: dict[int, int]) -> dict[str, Any]:
        """Numbers and attribute unions of all operators."""
        numbers, types, depths = [], [], self.attributes.at(self.op_tables).tolist()
        for row, attrs in enumerate(self.op_attrs.objects):
            if isinstance(attrs, Foreign):
                numbers.append(attrs.number)
                types.append(attrs.attribute_type)
                if attrs.table:
                    depths[row] = sources[id(attrs.source.obj)] - attrs.table
            else:
                numbers.append(attrs.NUMBER)
                types.append(attrs.NUMBER)
        column = self.op_attrs.column
        return {"op": column(numbers), "attribute": (column(types), column(depths))}

    def _root(self, assembler: Assembler, blocks: Ints) -> int:
        program = self.program
        counts = _lengths([region.blocks for region in program.regions])
        regions = assembler.tables(
            "TosaRegion",
            len(counts),
            {"name": self.strings.at(self.region_names), "blocks": assembler.offset_vectors(counts, blocks)},
        )
        compatibility = 0
        if program.compatibility is not None:
            compatibility = assembler.table(
                "SerializationCompatibility",
                min_reader_version=self._software_version(assembler, program.compatibility.min_reader_version),
                features=program.compatibility.features,
            )
        version = program.version
        return assembler.table(
            "TosaGraph",
            version=assembler.table(
                "Version", _major=version.major, _minor=version.minor, _patch=version.patch, _draft=int(version.draft)
            ),
            regions=int(assembler.offset_vectors(np.array([len(regions)]), regions)[0]),
            software_version=self._software_version(assembler, program.software_version),
            compatibility=compatibility,
        )

    def _software_version(self, assembler: Assembler, version: SoftwareVersion | None) -> int:
        if version is None:
            return 0
        return assembler.table(
            "SoftwareVersion",
            _major=version.major,
            _minor=version.minor,
            _micro=version.micro,
            _modifier=self.strings.depth(version.modifier),
        )


def _lengths(lists: Sequence[Sequence[Any]]) -> Ints:
    return np.fromiter(map(len, lists), np.int64, len(lists))


def _columns(columns: dict[str, Column]) -> dict[str, Ints]:
    return {name: numbers if pool is None else pool.at(numbers) for name, (pool, numbers) in columns.items()}
