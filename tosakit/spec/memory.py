"""What was learnt about the operators of a program, so that an operator like an earlier one costs a look-up."""

from collections.abc import Hashable, Sequence
from typing import cast

import numpy as np

from tosakit.ir.bulk import type_columns
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES, byte_size, decode, numpy_dtype
from tosakit.spec.call import Harmless
from tosakit.spec.target import Alternatives

Key = tuple[Hashable, ...]
Range = tuple[int, int]

KEPT_BYTES = 4096
"""Constants that are longer than this are not compared with each other."""

_PACKED = (DType.INT4, DType.INT48)
"""Integers that numpy has no type for."""

Place = tuple[int, AnyOp, int | None]
"""An operator that is no constant: where it stands, itself, the number under which it was found clean, if it was."""


class Constants:
    """The constants of a program, numbered from -1 downwards: equal ones share a number, as far as they are compared.

    ``contents`` are those that nothing is wrong with, by facts and data.
    """

    def __init__(self) -> None:
        self.contents: dict[tuple[int, bytes], int] = {}
        self._samples: list[Tensor | None] = []
        self._bounds: dict[int, Range] = {}
        self._unmeasured: dict[int, dict[int, bytes]] = {}

    def add(self, tensor: Tensor, fact: int, *, is_sound: bool) -> int:
        """The number of a constant that is like no earlier one; data that is wrong, or long, is not looked at again."""
        data = tensor.stored
        number = -1 - len(self._samples)
        if not is_sound or data is None or len(data) > KEPT_BYTES:
            self._samples.append(None)
            return number
        self._samples.append(tensor)
        content = bytes(data)
        self.contents[fact, content] = number
        self._unmeasured.setdefault(fact, {})[number] = content
        return number

    def sample(self, number: int) -> Tensor | None:
        """A constant of that number; None where its data is not looked at."""
        return self._samples[-1 - number]

    def bounds(self, number: int) -> Range | None:
        """The smallest and the largest value of a constant.

        None where the type is no integer, there is no element, or the data is not looked at.
        """
        if self._unmeasured:
            for alike in self._unmeasured.values():
                self._measure(alike)
            self._unmeasured.clear()
        return self._bounds.get(number)

    def _measure(self, alike: dict[int, bytes]) -> None:
        """Keep the bounds of constants of one type and shape, by number."""
        tensor = self.sample(next(iter(alike)))
        if tensor is None or tensor.dtype not in INTEGER_RANGES or min(tensor.shape, default=1) < 1:
            return
        size = byte_size(tensor.dtype, tensor.shape)
        if tensor.dtype in _PACKED:
            rows = np.stack([decode(content, tensor.dtype, tensor.shape).ravel() for content in alike.values()])
        else:
            data = b"".join([content[:size] for content in alike.values()])
            rows = np.frombuffer(data, numpy_dtype(tensor.dtype)).reshape(len(alike), -1)
        bounds = zip(rows.min(axis=1).tolist(), rows.max(axis=1).tolist(), strict=True)
        self._bounds.update(zip(alike, bounds, strict=True))


class Tokens(dict[int | None, int | None]):
    """What the checks of an operator can tell of one operand, by the number of the constant there (None: computed).

    None where nothing can be said of other operators with such an operand, 0 for all constants that are harmless and
    for operands that may be computed, else the number itself.
    """

    def __init__(self, constants: Constants, harmless: Harmless | None, must_be_constant: bool) -> None:
        super().__init__()
        self._constants = constants
        self._harmless = harmless
        self._must_be_constant = must_be_constant

    def __missing__(self, number: int | None) -> int | None:
        token = self[number] = self._token(number)
        return token

    def _token(self, number: int | None) -> int | None:
        if number is None:
            return None if self._must_be_constant else 0
        sample, bounds = self._constants.sample(number), self._constants.bounds(number)
        if sample is None:
            return None
        return 0 if self._harmless and bounds and self._harmless(sample.dtype, *bounds) else number


class Memory:
    """What was learnt about the operators of a program.

    ``requirements`` are what they need of a target, ``minor`` the version that has them all, ``beyond`` whether one
    exceeds the strictest level. Operators with nothing wrong are remembered in ``clean`` by all that the checks read of
    them; ``places`` has the number there of every operator that was found clean. ``numbers`` has those of the results
    of CONST and CONST_SHAPE among the ``constants``, ``tokens`` those of operands by operator class and slot. ``odd``
    are the facts of tensors to look at more closely.
    """

    def __init__(self) -> None:
        self.clean: dict[Key, int] = {}
        self.places: dict[Graph, list[Place]] = {}
        self.constants = Constants()
        self.numbers: dict[Tensor, int] = {}
        self.tokens: dict[type[Attributes], tuple[tuple[int, Tokens], ...]] = {}
        self.requirements: dict[Alternatives, None] = {}
        self.minor = 0
        self.beyond = False
        self.odd: dict[int, None] = {}
        self._numbers: dict[Hashable, int] = {}
        self._by_identity: dict[Hashable, int] = {}
        self._kept: list[object] = []

    def number(self, value: Hashable) -> int:
        """A number that equal values share; quick for an object that was seen before, which it keeps alive."""
        known = self._by_identity.get(id(value))
        if known is None:
            known = self._by_identity[id(value)] = self._numbers.setdefault(value, len(self._numbers))
            self._kept.append(value)
        return known

    def all_numbers(self, values: Sequence[Hashable]) -> list[int]:
        """:meth:`number` of each value."""
        known, identities = self._by_identity, list(map(id, values))
        for identity, value in zip(identities, values, strict=True):
            if identity not in known:
                self.number(value)
        return list(map(known.__getitem__, identities))

    def facts(self, block: Graph) -> dict[Tensor, int]:
        """For every tensor of a block a number that tensors of one type, shape and rare fields share."""
        tensors, dtypes, shapes, extras = type_columns(block)
        known = self._by_identity
        identities = list(zip(map(id, dtypes), shapes, map(id, extras), strict=True))
        facts = list(map(known.get, identities))
        if None in facts:
            for identity, tensor, fact in zip(identities, tensors, facts, strict=True):
                if fact is None and identity not in known:
                    self._learn_fact(identity, tensor)
            facts = list(map(known.get, identities))
        return dict(zip(tensors, cast(list[int], facts), strict=True))

    def _learn_fact(self, identity: Hashable, tensor: Tensor) -> None:
        dtype, shape, extras = tensor.dtype, tensor.shape, tensor.extras
        self._kept.append(dtype)  # with the extras: their identities must not be given to others
        fact = self._numbers.setdefault((int(dtype), shape, self.number(extras)), len(self._numbers))
        self._by_identity[identity] = fact
        if dtype == DType.UNKNOWN or extras.variable or extras.scale_type or (shape and min(shape) < -1):
            self.odd[fact] = None
