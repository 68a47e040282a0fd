"""Data layout: CONCAT, PAD, RESHAPE, SLICE, TILE, TRANSPOSE, and gathering by index."""

from collections.abc import Mapping

import numpy as np

from tosakit.ir import ops
from tosakit.spec.call import AnyCall, Call, Codes, Harmless, Shape, element_count, shape_of, show
from tosakit.spec.operators.reductions import check_axis
from tosakit.spec.tables import MAX_RANK

CONCAT = Codes(result="ConcatInputDimMismatch")
PAD = Codes(sizes={"padding": "RankMismatch"}, result="PadOutputShapeMismatch")
RESHAPE = Codes(result="ReshapeNewShapeOutputMismatch", result_rank="ReshapeNewShapeOutputMismatch")
SLICE = Codes(
    sizes={"start": "InputSizeStartLengthMismatch", "size": "InputSizeStartLengthMismatch"},
    result="SizeOutputShapeMismatch",
)
TILE = Codes(sizes={"multiples": "RankMismatch"}, result="TileMultiplesOutputShapeMismatch")
TRANSPOSE = Codes(result="TransposePermsOutputShapeMismatch")


def concat(call: Call[ops.Concat]) -> None:
    """CONCAT: extents on the axis add up, all others are equal."""
    axis = call.attrs.axis
    shapes = [shape for tensor in call.operands["input1"] if (shape := shape_of(tensor)) is not None]
    if not shapes or len(shapes) < len(call.operands["input1"]):
        return
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        ranks = [len(shape) for shape in shapes]
        call.error("ConcatInputRankMismatch", f"operands have ranks {ranks}, they must be equal", "input1")
        return
    if not check_axis(call, axis, shapes[0]):
        return
    result: list[int | None] = []
    for index, sizes in enumerate(zip(*shapes, strict=True)):
        known = [size for size in sizes if size is not None]
        if index == axis:
            result.append(sum(known) if len(known) == len(sizes) else None)
            continue
        if len(dict.fromkeys(known)) > 1:
            message = f"operands have sizes {known} on axis {index}, which is not the joined axis {axis}"
            call.error("ConcatInputDimMismatch", message, "input1")
            return
        result.append(known[0] if known else None)
    call.bind_shape("shape", result, {axis: "ConcatShapeSumMismatch"})


HARMLESS_PAD: Mapping[str, Harmless] = {"pad_const": lambda *_: True}


def pad(call: Call[ops.Pad]) -> None:
    """PAD: padding holds the pads before and after every axis in turn."""
    shape, padding = call.shape("shape1"), call.integers("padding")
    if shape is None:
        return
    if padding is None or len(padding) != 2 * len(shape):
        call.bind_shape("shape", [None] * len(shape))
        return
    if padding and min(padding) < 0:
        call.error("PadSmallerZero", f"padding is {list(padding)}, it must not be negative", "padding")
        return
    pairs = zip(shape, padding[::2], padding[1::2], strict=True)
    call.bind_shape("shape", [None if size is None else size + before + after for size, before, after in pairs])


def reshape(call: Call[ops.Reshape]) -> None:
    """RESHAPE: the new shape, with as many elements as before."""
    check_new_shape(call, "shape", call.shape("shape1"), "shape")


def check_new_shape(call: AnyCall, operand: str, old: Shape | None, result: str) -> None:
    """Bind the shape named ``result`` to what ``operand`` holds; it and the declared result keep the element count."""
    _check_element_count(call, old, call.declared("output"), "output")
    sizes = call.integers(operand)
    if sizes is None:
        length = shape_of(call.tensor(operand))
        rank = length[0] if length else None
        if rank is not None and rank <= MAX_RANK:
            call.bind_shape(result, [None] * rank)
        elif rank is not None:
            call.error("WrongRank", f"{operand} has length {rank}, the largest rank is {MAX_RANK}", operand)
        return
    new: Shape = tuple(size if size > 0 else None for size in sizes)
    call.bind_shape(result, new)
    _check_element_count(call, old, new, operand)


def _check_element_count(call: AnyCall, old: Shape | None, new: Shape | None, name: str) -> None:
    if old is None or new is None:
        return
    before, after = element_count(old), element_count(new)
    if before is not None and after is not None and before != after:
        message = f"the operand {show(old)} has {before} elements, {name} {show(new)} has {after}"
        call.error("TensorSizeInputOutputMismatch", message, name)


def slice_(call: Call[ops.Slice]) -> None:
    """SLICE: size elements from start on every axis."""
    shape = call.shape("shape1")
    start, size = call.integers("start"), call.integers("size")
    if shape is None:
        return
    if start is not None and len(start) == len(shape) and min(start, default=0) < 0:
        call.error("StartSmallerZero", f"start is {list(start)}, it must not be negative", "start")
        start = None
    if size is None or len(size) != len(shape):
        call.bind_shape("shape", [None] * len(shape))
        return
    if min(size, default=1) < 1:
        call.error("SizeSmallerEqualZero", f"size is {list(size)}, it must be positive", "size")
        return
    call.bind_shape("shape", size)
    if start is None or len(start) != len(shape):
        return
    for axis, (first, count, extent) in enumerate(zip(start, size, shape, strict=True)):
        if extent is not None and first + count > extent:
            message = f"{count} elements from {first} pass the end of axis {axis}, which has {extent}"
            call.error("StartSizeOutsideBounds", message, "start", "size")


def tile(call: Call[ops.Tile]) -> None:
    """TILE: every axis repeated."""
    shape, multiples = call.shape("shape1"), call.integers("multiples")
    if shape is None:
        return
    if multiples is None or len(multiples) != len(shape):
        call.bind_shape("shape", [None] * len(shape))
        return
    pairs = zip(shape, multiples, strict=True)
    call.bind_shape("shape", [None if size is None else size * count for size, count in pairs])


def transpose(call: Call[ops.Transpose]) -> None:
    """TRANSPOSE: result axis i is operand axis perms[i]."""
    shape = call.shape("shape1")
    perms = call.vector("perms", len(shape)) if shape is not None else None
    if shape is None or perms is None:
        return
    if not all(0 <= axis < len(shape) for axis in perms):
        message = f"perms is {list(perms)}, every entry must be 0 to {len(shape) - 1}"
        call.error("IndexOutsideBounds", message)
    elif len(dict.fromkeys(perms)) < len(perms):
        call.error("IndexUsedTwice", f"perms is {list(perms)}, every axis must stand there once")
    else:
        call.bind_shape("shape", [shape[axis] for axis in perms])


def check_indices(call: AnyCall) -> None:
    """Report constant indices outside the K rows they choose from (GATHER, SCATTER)."""
    indices, rows = call.array("indices"), call.size("K")
    if indices is None or not indices.size or rows is None:
        return
    if not (indices.min() >= 0 and indices.max() < rows):
        message = f"indices reach from {indices.min()} to {indices.max()}, there are {rows} rows"
        call.error("GatherIndexOutOfRange", message, "indices")


def scatter(call: Call[ops.Scatter]) -> None:
    """SCATTER: no row of a batch is written twice."""
    check_indices(call)
    indices = call.array("indices")
    if indices is None or indices.ndim != 2:
        return
    repeats = np.argwhere(np.diff(np.sort(indices, axis=1), axis=1) == 0)
    if len(repeats):
        message = f"indices of batch {repeats[0][0]} name a row twice, the result would be undefined"
        call.error("ScatterIndexRepeated", message, "indices")


def row_gather(call: Call[ops.RowGather]) -> None:
    """ROW_GATHER: row_count rows from every index."""
    check_indices(call)
    count, width = call.integers("row_count"), call.size("W")
    call.bind("W*row_count", None if not count or width is None else width * count[0])
