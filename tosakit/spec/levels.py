"""Level limits: what an operator and its tensors may not exceed.

A level bounds the rank of every tensor, its size in bytes (``2**MAX_LOG2_SIZE - 1``, elements of less than a byte
counting as one), and the sizes that the operator's signature names.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.types import BITS
from tosakit.spec.call import AnyCall, Finding, Size, element_count, shape_of, show
from tosakit.spec.signature import Argument, Signature
from tosakit.spec.tables import LEVELS

STRICTEST = "8K"
WIDEST = "none"

CODES = {
    "MAX_RANK": "WrongRank",  # the specification's own kind for a rank outside the range
    "MAX_KERNEL": "LevelKernel",
    "MAX_STRIDE": "LevelStride",
    "MAX_SCALE": "LevelScale",
    "MAX_LOG2_SIZE": "LevelTensorSize",
    "MAX_NESTING": "LevelNesting",
    "MAX_TENSOR_LIST_SIZE": "LevelListSize",
    "MAX_SHAPE_LEN": "LevelShapeLength",
}

_PLACES = {"d": 0, "y": -2, "x": -1, "d0": 0, "d1": 1, "top": -4, "bottom": -3, "left": -2, "right": -1}
"""Where the entry of an axis stands in a vector: depth, height, width; two for each in a pad."""

_SCALE_PLACES = {"scale_y_n": 0, "scale_y_d": 1, "scale_x_n": 2, "scale_x_d": 3}


class Excess(NamedTuple):
    """Something above the strictest level's limit: the limit's name, what exceeds it, by how much, and where."""

    limit: str
    what: str
    value: int
    tensors: tuple[Tensor, ...] = ()

    def exceeds(self, level: str) -> bool:
        """True where the level does not allow it."""
        return self.value > LEVELS[level][self.limit]

    def finding(self, level: str) -> Finding:
        """A finding under a level that does not allow it."""
        allowed = LEVELS[level][self.limit]
        if self.limit == "MAX_NESTING":
            allowed -= 1
        most = f"2**{allowed} - 1 bytes" if self.limit == "MAX_LOG2_SIZE" else str(allowed)
        return Finding(CODES[self.limit], f"{self.what}, level {level} allows {most}", self.tensors)


def tensor_excesses(tensors: Sequence[Tensor]) -> Iterator[Excess]:
    """Ranks and sizes of tensors."""
    limits = LEVELS[STRICTEST]
    for tensor in dict.fromkeys(tensors):
        shape, bits = shape_of(tensor), BITS.get(tensor.dtype)
        if shape is None or tensor.dtype == DType.SHAPE:
            continue
        if len(shape) > limits["MAX_RANK"]:
            yield Excess("MAX_RANK", f"the rank is {len(shape)} ({show(shape)})", len(shape), (tensor,))
        count = element_count(shape)
        if count is not None and bits is not None:
            size = count * max(1, bits // 8)
            if size >= 1 << limits["MAX_LOG2_SIZE"]:
                # the smallest limit that would hold it
                yield Excess("MAX_LOG2_SIZE", f"the tensor takes {size} bytes", size.bit_length(), (tensor,))


def operator_excesses(
    op: AnyOp, sig: Signature, arguments: Sequence[Argument], call: AnyCall | None
) -> Iterator[Excess]:
    """Sizes that the operator's signature limits; ``arguments`` are those of operands and results in turn."""
    for size, limit in sig.limits:
        value: Size = None
        if limit in ("MAX_TENSOR_LIST_SIZE", "MAX_SHAPE_LEN"):
            value = _list_length(size, limit, op, arguments)
        elif call is not None:
            value = _evaluate(size, call)
        if limit == "MAX_SCALE" and value is not None and value > LEVELS[WIDEST][limit]:
            continue  # more than any numerator, which RESIZE reports itself
        if value is not None and value > LEVELS[STRICTEST][limit]:
            yield Excess(limit, f"{size} is {value}", value)


def nesting_excesses(op: AnyOp, depth: int) -> Iterator[Excess]:
    """Nesting of a control flow operator that ``depth`` others run around it.

    The depth is counted from 1 for what runs in the outermost region; it must stay below MAX_NESTING, as tosa-opt
    has it.
    """
    nested = depth + 1
    if nested >= LEVELS[STRICTEST]["MAX_NESTING"]:
        yield Excess("MAX_NESTING", f"{op.name} is operator {nested} of nested control flow", nested + 1)


def _list_length(size: str, limit: str, op: AnyOp, arguments: Sequence[Argument]) -> Size:
    """Length of a list of tensors, or of a shape value: ``length(name)``."""
    name = size.removeprefix("length(").removesuffix(")")
    tensors = [t for argument, t in zip(arguments, op.inputs + op.outputs, strict=True) if argument.name == name]
    if limit == "MAX_TENSOR_LIST_SIZE":
        return len(tensors)
    shape = shape_of(tensors[0]) if tensors else None
    return shape[0] if shape else None


def _evaluate(size: str, call: AnyCall) -> Size:
    """A size by name: a size of an operand (KH), an entry of a vector (pad_top), a product or a quotient of two."""
    for sign in "*/":
        if sign in size:
            left, right = (_evaluate(part, call) for part in size.split(sign))
            if left is None or right is None:
                return None
            return left * right if sign == "*" else left // right if right > 0 else None
    if (known := call.size(size)) is not None:
        return known
    name, _, axis = size.rpartition("_")
    place = _PLACES.get(axis)
    if size in _SCALE_PLACES:
        name, place = "scale", _SCALE_PLACES[size]
    if place is None:
        return None
    vector: Sequence[int] | None = getattr(call.attrs, name, None)
    if vector is None and name in call.operands:
        vector = call.integers(name)
    if not vector or not -len(vector) <= place < len(vector):
        return None
    return vector[place]
