"""A block under construction: what may be drawn, what can be read so far, and the operators made."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tosakit.errors import TosakitError
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor, TensorExtras
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program, Region, Version
from tosakit.ir.types import encode
from tosakit.spec.signature import TypeRow, signature
from tosakit.testing import values
from tosakit.testing.choices import Choices

INTEGERS = (DType.BOOL, DType.INT4, DType.INT8, DType.INT16, DType.INT32, DType.INT48)


class Unfit(TosakitError):
    """The operands at hand do not suit the operator: draw another one."""


@dataclass(frozen=True)
class Space:
    """What may be drawn: TOSA 1.``minor``, element types, and how many elements a tensor may have."""

    minor: int = 0
    dtypes: tuple[DType, ...] = INTEGERS
    largest: int = 2000

    def allows(self, row: TypeRow) -> bool:
        """True for a combination of element types that may be drawn."""
        return row.since <= self.minor and all(element in self.dtypes for element in row.types.values())


INTEGER = Space()
"""All integer operators of TOSA 1.0: PRO-INT, EXT-INT16 and EXT-INT4."""

EVERYTHING = Space(1, tuple(dtype for dtype in DType if dtype not in (DType.UNKNOWN, DType.SHAPE)))
"""Every operator and element type of the tables, the draft of TOSA 1.1 included."""


class Sketch:
    """Makes tensors and operators; ``values`` are the results so far that operators may read."""

    def __init__(self, choices: Choices, space: Space = INTEGER, regions: list[Region] | None = None) -> None:
        self.choices = choices
        self.space = space
        self.builder = Builder("t")
        self.inputs: list[Tensor] = []
        self.values: list[Tensor] = []
        self.cells: list[Tensor] = []
        self.regions: list[Region] = [] if regions is None else regions
        self._constants: dict[tuple[DType, tuple[int, ...]], Tensor] = {}
        self._equal: dict[tuple[DType, tuple[int, ...], bytes], Tensor] = {}

    # ---------------------------------------------------------------- tensors
    def input(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A new input of the block."""
        self.inputs.append(Tensor(f"x{len(self.inputs)}", dtype, tuple(shape)))
        return self.inputs[-1]

    def const(self, array: npt.ArrayLike, dtype: DType) -> Tensor:
        """A constant with these values: a new one, or in half of the cases an equal one that others read."""
        key = dtype, np.shape(array), encode(array, dtype)
        if key not in self._equal or not self.choices.flag():
            if dtype == DType.SHAPE:
                self._equal[key] = self.builder.const_shape([int(size) for size in np.asarray(array).reshape(-1)])
            else:
                self._equal[key] = self.builder.const(array, dtype)
        return self._equal[key]

    def constant(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A constant of any values, sometimes one that others read already."""
        key = dtype, tuple(shape)
        if key not in self._constants or not self.choices.flag(0.3):
            self._constants[key] = self.const(values.values(self.choices, dtype, shape), dtype)
        return self._constants[key]

    def operand(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """Something to read: a value at hand, a constant, or a new input."""
        at_hand = [t for t in self.values if t.dtype == dtype and t.shape == tuple(shape)]
        if at_hand and self.choices.flag(0.7):
            return self.choices.pick(at_hand)
        if dtype in (DType.INT4, DType.INT48) or self.choices.flag(0.4):
            return self.constant(dtype, shape)
        return self.input(dtype, shape)

    def shape(self, least_rank: int = 1) -> tuple[int, ...]:
        """A small shape, of rank four in half of the cases."""
        rank = 4 if self.choices.flag() else self.choices.integer(least_rank, 5)
        return tuple(self.choices.integer(1, 4 if rank < 5 else 3) for _ in range(rank))

    def cell(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A new state cell with an initial value."""
        name = f"state{len(self.cells)}"
        data = encode(values.values(self.choices, dtype, shape), dtype)
        extras = TensorExtras(variable=True, variable_name=name)
        self.cells.append(Tensor(name, dtype, tuple(shape), data, extras=extras))
        return self.cells[-1]

    # ---------------------------------------------------------------- operators
    def emit(
        self, attrs: Attributes, operands: Sequence[Tensor], types: Sequence[tuple[DType, Sequence[int]]]
    ) -> tuple[Tensor, ...]:
        """Add an operator with results of these types; a result of SHAPE stands in the file's table of shapes."""
        name = f"{self.builder.hint}_{attrs.NAME.lower()}"
        results = [
            Tensor(name, dtype, tuple(shape), table="shapes" if dtype == DType.SHAPE else "tensors")
            for dtype, shape in types
        ]
        self.builder.ops.append(Op(attrs, tuple(operands), results))
        return tuple(results)

    @property
    def state(self) -> tuple[int, int, int, int]:
        """How many operators, inputs, cells and regions there are, for :meth:`forget`."""
        return len(self.builder.ops), len(self.inputs), len(self.cells), len(self.regions)

    def forget(self, state: tuple[int, int, int, int]) -> None:
        """Go back to an earlier state."""
        operators, inputs, cells, regions = state
        del self.builder.ops[operators:], self.inputs[inputs:], self.cells[cells:], self.regions[regions:]
        made = dict.fromkeys(t for op in self.builder.ops for t in op.outputs)
        self._constants = {key: tensor for key, tensor in self._constants.items() if tensor in made}
        self._equal = {key: tensor for key, tensor in self._equal.items() if tensor in made}

    def inner(self) -> "Sketch":
        """A sketch of the block of another region of the program."""
        return Sketch(self.choices, self.space, self.regions)

    def region(self, inner: "Sketch", inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
        """Make a region of a sketch; returns its name."""
        name = f"region{len(self.regions)}"
        self.regions.append(Region(name, [inner.graph(name, outputs, inputs)]))
        return name

    def graph(self, name: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor] | None = None) -> Graph:
        """The block with these outputs."""
        graph = Graph(name)
        for tensor in (*self.inputs, *self.cells):
            graph.add_tensor(tensor)
        graph.set_inputs(self.inputs if inputs is None else inputs)
        for op in self.builder.ops:
            graph.add_op(op)
        graph.set_outputs(outputs)
        return graph

    def program(self, outputs: Sequence[Tensor]) -> Program:
        """The program with these outputs; an output that is an input or a constant is copied where IDENTITY can."""
        made = dict.fromkeys(t for op in self.builder.ops for t in op.outputs if not isinstance(op.attrs, ops.Const))
        sig = signature("IDENTITY")
        copies = [row.types["in_out_t"] for row in sig.rows] if sig else []
        copied = [
            t if t in made or t.dtype not in copies else self.emit(ops.Identity(), [t], [(t.dtype, t.shape)])[0]
            for t in outputs
        ]
        version = Version(1, self.space.minor, 0, draft=self.space.minor > 0)
        return Program([Region("main", [self.graph("main", copied)]), *self.regions], version)
