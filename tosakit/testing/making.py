"""One operator with legal attributes and operands, drawn from the specification's own tables.

The signature says which operands there are, of which types and sizes; a recipe (:mod:`tosakit.testing.recipes`) adds
what only the prose of the specification says; the verifier's inference gives the results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidArgument
from tosakit.ir.enums import BlockSize, DType, NanPropagationMode
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import numpy_dtype
from tosakit.spec.inference import result_types
from tosakit.spec.signature import Argument, TypeRow, signature
from tosakit.testing import values
from tosakit.testing.sketch import Sketch, Unfit

Given = Mapping[int, Tensor]
"""Operands that are settled, by slot."""


class Making:
    """An operator being made: sizes, shapes and operands by their names in the specification."""

    def __init__(self, sketch: Sketch, kind: type[Attributes], given: Given, *, scaled: bool = False) -> None:
        sig = signature(kind.NAME)
        assert sig is not None, f"the tables have no operator {kind.NAME}"
        self.sketch, self.choices, self.kind, self.sig = sketch, sketch.choices, kind, sig
        self.scaled = scaled
        self.arguments = tuple(a for a in sig.inputs if scaled or not a.scales)
        self.given = _by_name(self.arguments, given)
        self.sizes: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.operands: dict[str, list[Tensor]] = {}
        self.row = self._row()

    def _row(self) -> TypeRow:
        rows = [row for row in self.sig.rows if self.sketch.space.allows(row) and self._fits(row)]
        if not rows:
            raise Unfit(f"{self.sig.name} takes none of these types")
        return self.choices.pick(rows)

    def _fits(self, row: TypeRow) -> bool:
        return ("scale_t" in row.types) == self.scaled and all(
            argument.element is None or _element(argument, row) == tensor.dtype
            for argument in self.arguments
            for tensor in self.given.get(argument.name, ())
        )

    # ---------------------------------------------------------------- reading
    def dtype(self, name: str) -> DType:
        """Element type of the operand or result of that name."""
        return _element(self.argument(name), self.row)

    def argument(self, name: str) -> Argument:
        """The operand or result of that name."""
        return next(a for a in (*self.arguments, *self.sig.outputs) if a.name == name)

    def size(self, name: str, low: int = 1, high: int = 4) -> int:
        """The size of that name, drawn where nothing has settled it yet."""
        if name.isdigit():
            return int(name)
        if name not in self.sizes:
            self.sizes[name] = self.choices.integer(low, high)
        return self.sizes[name]

    # ---------------------------------------------------------------- operands
    def take(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """The operand of that name: the one settled, or one of ``shape``, by default of any shape that fits."""
        if name in self.operands:
            return self.operands[name][0]
        argument = self.argument(name)
        if name in self.given:
            tensor = self.given[name][0]
            if argument.constant and not tensor.is_constant:
                raise Unfit(f"{name} of {self.sig.name} must be a constant")
        else:
            tensor = self._draw(argument, self._shape(argument) if shape is None else tuple(shape))
        return self.put(name, tensor)

    def put(self, name: str, tensor: Tensor) -> Tensor:
        """Settle an operand, and the sizes that its shape gives names to."""
        argument = self.argument(name)
        if argument.sizes is not None:
            if len(argument.sizes) != len(tensor.shape):
                raise Unfit(f"{name} of {self.sig.name} has rank {len(argument.sizes)}")
            for size, extent in zip(argument.sizes, tensor.shape, strict=True):
                if (int(size) if size.isdigit() else self.sizes.setdefault(size, extent)) != extent:
                    raise Unfit(f"{name} of {self.sig.name} does not go with the other operands")
        elif argument.shape and not argument.many:
            if self.shapes.setdefault(argument.shape, tensor.shape) != tensor.shape:
                raise Unfit(f"{name} of {self.sig.name} does not go with the other operands")
            self.sizes[f"rank({argument.shape})"] = len(tensor.shape)
            self.sizes[f"2*rank({argument.shape})"] = 2 * len(tensor.shape)
        if len(tensor.shape) < argument.min_rank:
            raise Unfit(f"{name} of {self.sig.name} has rank {argument.min_rank} or more")
        self.operands.setdefault(name, []).append(tensor)
        return tensor

    def constant(self, name: str, array: npt.ArrayLike) -> Tensor:
        """Settle an operand as a constant with these values."""
        if name in self.given:
            raise Unfit(f"{name} of {self.sig.name} must be a constant that suits it")
        return self.put(name, self.sketch.const(np.asarray(array), self.dtype(name)))

    def _draw(self, argument: Argument, shape: tuple[int, ...]) -> Tensor:
        dtype = self.dtype(argument.name)
        if argument.name.endswith("_zp"):
            zero = values.zero_point(self.choices, dtype)
            return self.sketch.const(np.full(shape, zero).astype(numpy_dtype(dtype)), dtype)
        if argument.constant or dtype == DType.SHAPE:
            return self.sketch.constant(dtype, shape)
        if argument.name in ("weight", "bias", "weight_data") and self.choices.flag(0.85):
            return self.sketch.constant(dtype, shape)
        return self.sketch.operand(dtype, shape)

    def _shape(self, argument: Argument) -> tuple[int, ...]:
        if argument.sizes is not None:
            return tuple(self.size(name) for name in argument.sizes)
        if argument.shape in self.shapes:
            return self.shapes[argument.shape]
        return self.sketch.shape(argument.min_rank)

    # ---------------------------------------------------------------- the end
    def attributes(self, **settled: Any) -> Attributes:
        """The operator's attributes: those settled, the others drawn by their meaning."""
        return self.kind(
            **{field.name: settled.get(field.name, self._attribute(field.name)) for field in fields(self.kind)}
        )

    def _attribute(self, name: str) -> Any:
        if name == "acc_type":
            return self.row.types["acc_t"]
        if name == "nan_mode":
            return self.choices.pick([NanPropagationMode.PROPAGATE, NanPropagationMode.IGNORE])
        if name == "axis":
            return self.choices.integer(0, len(self.take(self.arguments[0].name).shape) - 1)
        if name == "block_size":
            return BlockSize.BLOCK_SIZE_32 if self.scaled else BlockSize.BLOCK_SIZE_1
        if name in ("round", "inverse", "local_bound"):
            return self.choices.flag()
        return None

    def finish(self, **settled: Any) -> tuple[Tensor, ...]:
        """Draw what is not settled yet and add the operator; its results."""
        for argument in self.arguments:
            self.take(argument.name)
        attrs = self.attributes(**settled)
        operands = [tensor for argument in self.arguments for tensor in self.operands[argument.name]]
        try:
            found = result_types(attrs, operands, minor=max(self.sketch.space.minor, self.sig.since))
        except InvalidArgument as error:
            if not self.given:
                raise
            raise Unfit(str(error)) from error
        present = [argument for argument in self.sig.outputs if self.scaled or not argument.scales]
        types = []
        for argument, result in zip(present, found, strict=True):
            assert result.shape is not None
            shape = tuple(size or 0 for size in result.shape)
            if argument.element != DType.SHAPE and int(np.prod(shape)) > self.sketch.space.largest:
                raise Unfit(f"{self.sig.name} would give {list(shape)}, which is too large")
            types.append((_element(argument, self.row), shape))
        return self.sketch.emit(attrs, operands, types)


def _element(argument: Argument, row: TypeRow) -> DType:
    element = row.types[argument.element] if isinstance(argument.element, str) else argument.element
    assert isinstance(element, DType), f"{argument.name} has no plain type"
    return element


def _by_name(arguments: Sequence[Argument], given: Given) -> dict[str, list[Tensor]]:
    """Operands by the name of the slot they are for; a list takes all slots from its own on."""
    found: dict[str, list[Tensor]] = {}
    for slot, tensor in sorted(given.items()):
        if slot < len(arguments):
            argument = arguments[slot]
        elif arguments and arguments[-1].many:
            argument = arguments[-1]
        else:
            raise Unfit("the operator has fewer operands")
        found.setdefault(argument.name, []).append(tensor)
    return found
