"""What Vela 5.2 takes for each Ethos-U family: operators and element types as data.

Regenerate the comparison with the installed Vela by ``python -m tests.backend.compare_vela`` (docs/ethos-u.md).
"""

from collections.abc import Mapping
from typing import NamedTuple

from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.movement import RENAMES, source_of

VELA_VERSION = "5.2"
"""The version that everything here was established with."""

U55, U65, U85 = "ethos-u55", "ethos-u65", "ethos-u85"
FAMILIES = (U55, U65, U85)
SMALL = (U55, U65)
"""Families without BOOL, int16 MATMUL and free use of INT48 accumulators."""

BIAS_BITS = 40
"""Bits of an INT48 bias that the small families keep."""

LARGEST_PADDED_POOL = 8
"""The largest kernel of an AVG_POOL2D with padding that the small families take."""


def family(accelerator: str) -> str:
    """``ethos-u55``, ``ethos-u65`` or ``ethos-u85`` from an accelerator configuration's name."""
    return accelerator.rpartition("-")[0]


def is_fixed(tensor: Tensor) -> bool:
    """Weights that Vela can read: a constant, or one behind IDENTITY and RESHAPE."""
    return source_of(tensor, RENAMES).is_constant


def is_small(accelerator: str) -> bool:
    """True for an Ethos-U55 or U65."""
    return family(accelerator) in SMALL


class Taken(NamedTuple):
    """Element types of an operator's values that compile: on Ethos-U55 and U65, and on U85."""

    small: tuple[DType, ...]
    u85: tuple[DType, ...]


def _types(names: str) -> tuple[DType, ...]:
    return tuple(DType[name] for name in names.split())


_MOVED = Taken(_types("INT8 INT16 INT32"), _types("BOOL INT8 INT16 INT32"))
_INT32 = Taken(_types("INT32"), _types("INT32"))
_NARROW = Taken(_types("INT8 INT16"), _types("INT8 INT16"))
_BITS = Taken((), _types("INT8 INT16 INT32"))
_LOGIC = Taken((), _types("BOOL"))
_SUMS = Taken(_types("INT8 INT16"), _types("INT8 INT16"))
_SHIFTS = Taken(_types("INT32"), _types("INT8 INT16 INT32"))

OPERATORS: Mapping[str, Taken] = {
    "ABS": _INT32,
    "ADD": _INT32,
    "ARGMAX": Taken(_types("INT8"), _types("INT8 INT16")),
    "ARITHMETIC_RIGHT_SHIFT": _SHIFTS,
    "AVG_POOL2D": _NARROW,
    "BITWISE_AND": _BITS,
    "BITWISE_NOT": _BITS,
    "BITWISE_OR": _BITS,
    "BITWISE_XOR": _BITS,
    "CAST": _MOVED,
    "CLAMP": _NARROW,
    "CLZ": _INT32,
    "CONCAT": _MOVED,
    "COND_IF": Taken((), _types("BOOL")),
    "CONV2D": _SUMS,
    "CONV3D": _SUMS,
    "DEPTHWISE_CONV2D": _SUMS,
    "EQUAL": Taken((), _types("INT32")),
    "GATHER": _BITS,
    "GREATER": Taken((), _types("INT32")),
    "GREATER_EQUAL": Taken((), _types("INT32")),
    "IDENTITY": Taken(_types("INT4 INT8 INT16 INT32 INT48"), _types("BOOL INT4 INT8 INT16 INT32 INT48")),
    "INTDIV": Taken((), _types("INT32")),
    "LOGICAL_AND": _LOGIC,
    "LOGICAL_LEFT_SHIFT": _SHIFTS,
    "LOGICAL_NOT": _LOGIC,
    "LOGICAL_OR": _LOGIC,
    "LOGICAL_RIGHT_SHIFT": _BITS,
    "LOGICAL_XOR": _LOGIC,
    "MATMUL": Taken(_types("INT8"), _types("INT8 INT16")),
    "MAXIMUM": _INT32,
    "MAX_POOL2D": _NARROW,
    "MINIMUM": _INT32,
    "MUL": Taken(_types("INT8 INT16 INT32"), _types("INT8 INT16 INT32")),
    "NEGATE": Taken(_types("INT8 INT16 INT32"), _types("INT8 INT16 INT32")),
    "PAD": _MOVED,
    "REDUCE_ALL": _LOGIC,
    "REDUCE_ANY": _LOGIC,
    "REDUCE_MAX": Taken(_types("INT8 INT16"), _types("INT8 INT16 INT32")),
    "REDUCE_MIN": Taken(_types("INT8 INT16"), _types("INT8 INT16 INT32")),
    "REDUCE_SUM": _INT32,
    "RESCALE": Taken(_types("INT8 INT16 INT32 INT48"), _types("INT8 INT16 INT32 INT48")),
    "RESHAPE": _MOVED,
    "RESIZE": _NARROW,
    "REVERSE": _MOVED,
    "SCATTER": _BITS,
    "SELECT": _LOGIC,
    "SLICE": _MOVED,
    "SUB": _INT32,
    "TABLE": _NARROW,
    "TILE": _MOVED,
    "TRANSPOSE": _MOVED,
    "TRANSPOSE_CONV2D": Taken(_types("INT8"), _types("INT8 INT16")),
    "WHILE_LOOP": Taken((), _types("BOOL INT8 INT16 INT32")),
}
"""Element types of the first operand, by operator; what is not here is taken nowhere.

Those of the results follow from the specification, but for BOOL and floating point, which :data:`TENSORS` leaves out.
"""

TENSORS = Taken(
    _types("INT4 INT8 INT16 INT32 INT48 SHAPE"),
    _types("BOOL INT4 INT8 INT16 INT32 INT48 SHAPE"),
)
"""Element types that a tensor may have at all."""


def takes(operator: str, dtype: DType, accelerator: str) -> bool:
    """Whether an accelerator has an operator on values of an element type; where none is given ("") it is taken."""
    row = OPERATORS.get(operator)
    return not accelerator or (row is not None and dtype in taken(row, accelerator))


def taken(table: Taken, accelerator: str) -> tuple[DType, ...]:
    """The element types of a row for an accelerator."""
    return table.small if is_small(accelerator) else table.u85
