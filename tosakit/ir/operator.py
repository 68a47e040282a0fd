"""What every operator class has in common, and the operators no schema describes."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Attributes:
    """Base of the operator classes: a frozen value holding one operator's attributes, free to be shared."""

    NAME: ClassVar[str] = "?"
    NUMBER: ClassVar[int] = 0
    OPERANDS: ClassVar[tuple[str, ...]] = ()

    def __hash__(self) -> int:
        return hash(type(self))  # for operators without attributes; the others get their own


@dataclass(frozen=True, slots=True)
class Entry(Attributes):
    """The start of a block: its results are the block inputs. Never written to a file."""

    NAME: ClassVar[str] = "INPUT"


@dataclass(frozen=True, slots=True)
class Exit(Attributes):
    """The end of a block: its operands are the block outputs. Never written to a file."""

    NAME: ClassVar[str] = "OUTPUT"


@dataclass(frozen=True, slots=True)
class Foreign(Attributes):
    """An operator kept as it stands in its file: unknown to this schema, or with another operator's attribute table.

    ``number`` is the operator enumeration in the file, ``attribute_type`` the union type beside it. ``table`` is the
    position of the attribute table inside ``source``, the bytes of the file it came from (0 and empty where there is no
    table, or where ``attributes`` holds a known table of another operator). No rule may rewrite a foreign operator.
    """

    NAME: ClassVar[str] = "FOREIGN"
    number: int = 0
    attribute_type: int = 0
    attributes: Attributes | None = None
    table: int = 0
    source: memoryview = field(default=memoryview(b""))
