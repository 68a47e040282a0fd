"""Signatures of the operators, read from the generated tables on first use."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from tosakit.ir.enums import DType
from tosakit.spec.tables import OPERATORS


class BlockScaled(NamedTuple):
    """Element type of a tensor that carries its own scales: one FP8UE8M0 scale for every 32 values of the last axis."""

    value: DType

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"block-scaled {self.value.name}"


Element = DType | BlockScaled


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """An operand or a result of an operator.

    ``element`` is a type parameter (``in_t``), a fixed element type, or None where anything goes. ``sizes`` names the
    size of every axis where the rank is fixed (a number stands for itself), ``shape`` names the whole shape where it is
    not; equal names mean equal sizes. ``constant`` is "" (any value), "const" (must be a compile-time constant) or
    "static" (a constant, unless the file uses EXT-DYNAMIC). ``many`` marks a list of tensors, ``scales`` the scales of
    a block-scaled value.
    """

    name: str
    element: str | DType | None
    sizes: tuple[str, ...] | None = None
    shape: str = ""
    min_rank: int = 0
    constant: str = ""
    many: bool = False
    scales: bool = False


class TypeRow(NamedTuple):
    """One legal combination of element types: parameter -> type, the minor version that added it, what provides it."""

    types: dict[str, Element]
    since: int
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What the specification says about one operator; ``since`` is the minor version of 1.x that added it."""

    name: str
    since: int
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    rows: tuple[TypeRow, ...]
    limits: tuple[tuple[str, str], ...]
    """Sizes that a level limits, each with the name of the limit."""


_ELEMENTS: dict[str, DType] = {
    **{dtype.name.lower(): dtype for dtype in DType},
    **{dtype.name.lower().replace("int", "i"): dtype for dtype in DType if dtype.name.startswith("INT")},
    "tensor_size": DType.SHAPE,
}


def _element(token: str) -> Element:
    if token.startswith("mx_"):
        return BlockScaled(DType[token.removeprefix("mx_").upper()])
    return _ELEMENTS[token]


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _argument(words: list[str]) -> Argument:
    name, element, shape, *rest = words
    fixed = shape.startswith("[")
    return Argument(
        name,
        None if element == "any" else element if element.endswith("_t") else _ELEMENTS[element],
        tuple(shape[1:-1].split(",")) if fixed else None,
        "" if fixed or shape == "-" else shape,
        next((int(word.removeprefix("rank>=")) for word in rest if word.startswith("rank>=")), 0),
        next((word for word in rest if word in ("const", "static")), ""),
        "list" in rest,
        "optional" in rest,
    )


@cache
def _texts() -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in OPERATORS.splitlines():
        if not line.startswith(" "):
            name, version = line.split()
            lines = texts[name] = [version]
        else:
            lines.append(line)
    return texts


def _combinations(name: str) -> list[str]:
    """Lines of type combinations, "VERSION NEEDS: types; types", each on one line."""
    lines: list[str] = []
    for line in _texts()[name]:
        if line.startswith("    like "):
            lines += _combinations(line.split()[1])
        elif line.startswith(" " * 6):
            lines[-1] += line
        elif line.startswith(" " * 4):
            lines.append(line)
    return lines


def _rows(name: str, parameters: list[str]) -> Iterator[TypeRow]:
    for line in _combinations(name):
        head, _, combinations = line.partition(":")
        version, needs = head.split()
        for combination in combinations.split(";"):
            named = zip(parameters, combination.split(), strict=True)
            types = {parameter: _element(token) for parameter, token in named if token != "-" and not token.isdigit()}
            yield TypeRow(types, _minor(version), tuple(needs.split(",")))


@cache
def signature(name: str) -> Signature | None:
    """The signature of the operator of that name, None where the specification has no such operator."""
    text = _texts().get(name)
    if text is None:
        return None
    arguments: dict[str, list[Argument]] = {"in": [], "out": []}
    parameters: list[str] = []
    limits: list[tuple[str, str]] = []
    for line in text[1:]:
        words = line.split()
        if words[0] in arguments:
            arguments[words[0]].append(_argument(words[1:]))
        elif words[0] == "limit":
            limits += [(size, words[1]) for size in words[2:]]
        elif words[0] == "types":
            parameters = words[1:]
    rows = tuple(_rows(name, parameters))
    return Signature(name, _minor(text[0]), tuple(arguments["in"]), tuple(arguments["out"]), rows, tuple(limits))


@lru_cache(maxsize=1024)
def spread(arguments: tuple[Argument, ...], count: int, scaled: bool) -> tuple[Argument, ...] | None:
    """The argument that each of ``count`` tensors stands for, None where the operator does not take that many.

    A list takes what the other arguments leave; scales are there only where ``scaled``.
    """
    present = [argument for argument in arguments if scaled or not argument.scales]
    lists = sum(argument.many for argument in present)
    left = count - len(present) + lists
    if left < 0 or (left and not lists):
        return None
    result: list[Argument] = []
    for argument in present:
        result += [argument] * (left if argument.many else 1)
    return tuple(result)
