"""Zero points of int8 tensors, inferred by unification.

Tensors do not carry zero points, their readers and writers do. An operator that only moves data gives its operands and
results one zero point; RESCALE, convolutions and MATMUL name theirs; AVG_POOL2D fixes a difference only. The zero
points are unknowns of a union-find structure with offsets; what an operator names are facts about its classes.

A class whose facts disagree is no error in the int8 program: every reader may subtract what it likes. Its tensors get
zero points one by one, following the data, and readers that want another one get a conversion.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from rewrites._widen.families import (
    AVERAGE_POOLS,
    CONVOLUTIONS,
    MATMULS,
    data_operands,
    is_order_op,
    scalar,
)
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Graph, Tensor


class Offsets:
    """Union-find over tensors: ``zero point of t = zero point of root(t) + offset(t)``."""

    def __init__(self) -> None:
        self._parent: dict[Tensor, tuple[Tensor, int]] = {}

    def find(self, tensor: Tensor) -> tuple[Tensor, int]:
        """The root of a tensor's class and the tensor's offset to it."""
        path: list[tuple[Tensor, int]] = []
        node = tensor
        while (entry := self._parent.get(node)) is not None:
            path.append((node, entry[1]))
            node = entry[0]
        total = 0
        for member, step in reversed(path):
            total += step
            self._parent[member] = (node, total)
        return node, total

    def unite(self, tensor: Tensor, other: Tensor, difference: int = 0) -> None:
        """State that ``other`` has the zero point of ``tensor`` plus ``difference``."""
        root, offset = self.find(tensor)
        other_root, other_offset = self.find(other)
        if root is not other_root:
            self._parent[other_root] = (root, offset + difference - other_offset)


@dataclass
class ZeroPoints:
    """The zero point each int8 tensor is widened with.

    ``unknown`` are tensors whose zero point nothing fixes; they were given 0. ``averaging`` are RESIZE operators whose
    RESCALE readers only divide by the weights' sum.
    """

    values: dict[Tensor, int] = field(default_factory=dict)
    unknown: dict[Tensor, None] = field(default_factory=dict)
    averaging: dict[AnyOp, None] = field(default_factory=dict)
    classes: Offsets = field(default_factory=Offsets)
    common: dict[Tensor, int] = field(default_factory=dict)

    def __getitem__(self, tensor: Tensor) -> int:
        return self.values.get(tensor, 0)

    def at_border(self, tensor: Tensor) -> int:
        """The zero point of a tensor that crosses the border of a region: that of its class, whatever the tensor's."""
        root, offset = self.classes.find(tensor)
        return self.common.get(root, 0) + offset


@dataclass(frozen=True)
class Link:
    """Region operands and results that are one value: (caller's tensor, region's tensor)."""

    outer: Tensor
    inner: Tensor


def infer(blocks: Mapping[Graph, Sequence[AnyOp]], links: Iterable[Link]) -> ZeroPoints:
    """Infer the zero points of all int8 activations of blocks, whose operators on int8 are given. O(operators)."""
    result = ZeroPoints()
    facts: dict[Tensor, int] = {}
    fixed: list[tuple[Tensor, int]] = []
    hints: list[tuple[Tensor, int]] = []
    for involved in blocks.values():
        for op in involved:
            _unify(op, result)
            for tensor, zero_point, written in _facts(op, result):
                fixed.append((tensor, zero_point))
                if written:
                    facts[tensor] = zero_point
            if isinstance(op.attrs, ops.Pad) and len(op.inputs) > 2 and op.inputs[2].is_constant:
                hints.append((op.output, scalar(op.inputs[2])))
    for link in links:
        if link.outer.dtype == DType.INT8:
            result.classes.unite(link.outer, link.inner)
    votes = _votes(result.classes, fixed)
    annotated = [
        (t, t.quantization.zero_point)
        for block in blocks
        for t in block.tensors
        if t.dtype == DType.INT8 and t.quantization is not None and len(t.quantization.scale) == 1
    ]
    for more in (annotated, hints):
        for root, counter in _votes(result.classes, [h for h in more if _is_int8_activation(h[0])]).items():
            votes.setdefault(root, counter)
    for root, counter in votes.items():
        result.common[root] = counter.most_common(1)[0][0]
    for block, involved in blocks.items():
        _assign(block, involved, result, votes, facts)
    return result


def _is_int8_activation(tensor: Tensor) -> bool:
    return tensor.dtype == DType.INT8 and not tensor.is_constant


def _votes(classes: Offsets, facts: Iterable[tuple[Tensor, int]]) -> dict[Tensor, Counter[int]]:
    """How many facts speak for each zero point of each class's root, first spoken first."""
    votes: dict[Tensor, Counter[int]] = {}
    for tensor, zero_point in facts:
        root, offset = classes.find(tensor)
        votes.setdefault(root, Counter())[zero_point - offset] += 1
    return votes


def _unify(op: AnyOp, result: ZeroPoints) -> None:
    if not op.outputs or op.output.dtype != DType.INT8:
        return
    if is_order_op(op):
        for operand in data_operands(op):
            if _is_int8_activation(operand):
                result.classes.unite(operand, op.output)
    elif isinstance(op.attrs, AVERAGE_POOLS) and op.inputs[1].is_constant and op.inputs[2].is_constant:
        if _is_int8_activation(op.inputs[0]):
            result.classes.unite(op.inputs[0], op.output, scalar(op.inputs[2]) - scalar(op.inputs[1]))
    elif isinstance(op.attrs, ops.Rescale):
        source = averaging_resize(op)
        if source is not None:
            result.averaging[source] = None
            result.classes.unite(source.inputs[0], op.output, scalar(op.inputs[4]))


def averaging_resize(rescale: AnyOp) -> AnyOp | None:
    """The RESIZE that a RESCALE to int8 divides by exactly the sum of its weights: together they only move data."""
    producer = rescale.inputs[0].producer
    if producer is None or not isinstance(producer.attrs, ops.Resize) or producer.attrs.mode != ResizeMode.BILINEAR:
        return None
    if not _is_int8_activation(producer.inputs[0]) or not producer.inputs[1].is_constant:
        return None
    total = resize_weight(producer)
    readers = producer.output.users
    return producer if all(_divides_by(total, reader) for reader in readers) else None


def resize_weight(op: AnyOp) -> int:
    """Sum of the weights of a BILINEAR RESIZE: the product of both scales' numerators."""
    scale = op.inputs[1].values()
    return int(scale[0]) * int(scale[2])


def _divides_by(total: int, reader: AnyOp) -> bool:
    if not isinstance(reader.attrs, ops.Rescale) or reader.output.dtype != DType.INT8 or reader.attrs.output_unsigned:
        return False
    if not all(t.is_constant for t in reader.inputs[1:5]):
        return False
    multiplier, shift = reader.inputs[1].values().reshape(-1), reader.inputs[2].values().reshape(-1)
    pairs = zip(multiplier.tolist(), shift.tolist(), strict=True)
    return scalar(reader.inputs[4]) == 0 and all(Fraction(m, 1 << max(s, 0)) == Fraction(1, total) for m, s in pairs)


_NAMING = (ops.Rescale, *CONVOLUTIONS, *MATMULS, ops.Negate, ops.Mul, ops.Resize)


def _facts(op: AnyOp, result: ZeroPoints) -> Iterator[tuple[Tensor, int, bool]]:
    """Zero points an operator names: (tensor, zero point, whether the operator writes the tensor)."""
    attrs = op.attrs
    if not isinstance(attrs, _NAMING):
        return
    named: list[tuple[Tensor, Tensor, bool]] = []
    if isinstance(attrs, ops.Rescale) and len(op.inputs) > 4:
        named.append((op.inputs[0], op.inputs[3], False))
        if averaging_resize(op) is None:
            named.append((op.output, op.inputs[4], True))
    elif isinstance(attrs, CONVOLUTIONS) and len(op.inputs) > 3:
        named.append((op.inputs[0], op.inputs[3], False))
    elif isinstance(attrs, MATMULS) and len(op.inputs) > 3:
        named += [(op.inputs[0], op.inputs[2], False), (op.inputs[1], op.inputs[3], False)]
    elif isinstance(attrs, ops.Negate) and len(op.inputs) > 2:
        named += [(op.inputs[0], op.inputs[1], False), (op.output, op.inputs[2], True)]
    for tensor, zero_point, written in named:
        if _is_int8_activation(tensor) and zero_point.is_constant:
            yield tensor, scalar(zero_point), written
    if isinstance(attrs, ops.Mul) and op.inputs[0].dtype == DType.INT8:
        yield from ((t, 0, False) for t in op.inputs[:2] if _is_int8_activation(t))
    if (
        isinstance(attrs, ops.Resize)
        and attrs.mode == ResizeMode.BILINEAR
        and op not in result.averaging
        and _is_int8_activation(op.inputs[0])
        and not any(isinstance(r.attrs, ops.Rescale) and averaging_resize(r) is op for r in op.output.users)
    ):
        yield op.inputs[0], 0, False


def _assign(
    block: Graph,
    involved: Sequence[AnyOp],
    result: ZeroPoints,
    votes: dict[Tensor, Counter[int]],
    facts: dict[Tensor, int],
) -> None:
    """Give every int8 activation of a block its zero point, in program order."""
    for tensor in block.inputs:
        if tensor.dtype == DType.INT8:
            _assign_one(tensor, result, votes, result.at_border(tensor))
    for op in involved:
        for tensor in op.outputs:
            if _is_int8_activation(tensor):
                _assign_one(tensor, result, votes, _follow(op, tensor, result, facts))


def _assign_one(tensor: Tensor, result: ZeroPoints, votes: dict[Tensor, Counter[int]], followed: int) -> None:
    root, offset = result.classes.find(tensor)
    counter = votes.get(root)
    if counter is None:
        result.unknown[tensor] = None
        value = offset
    else:
        value = followed if len(counter) > 1 else result.common[root] + offset
    # Offsets may lead out of int8; a zero point there would not fit (q - z) * 128 into int16.
    result.values[tensor] = min(max(value, -128), 127)


def _follow(op: AnyOp, tensor: Tensor, result: ZeroPoints, facts: dict[Tensor, int]) -> int:
    """The zero point of a result in a class whose facts disagree: its writer's, else that of the data it is made of."""
    if tensor in facts:
        return facts[tensor]
    if isinstance(op.attrs, AVERAGE_POOLS) or is_order_op(op):
        for operand in data_operands(op):
            if operand in result.values:
                difference = 0
                if isinstance(op.attrs, AVERAGE_POOLS):
                    difference = scalar(op.inputs[2]) - scalar(op.inputs[1])
                return result.values[operand] + difference
    return result.at_border(tensor)
