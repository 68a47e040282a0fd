"""RESIZE: limits of scale, offset and border, and the size of the result."""

from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.spec.call import Call, Codes, Finding, Size

RESIZE = Codes(
    result="ResizeOutputShapeMismatch",
    result_sizes={"N": "BatchMismatch", "C": "ChannelMismatch"},
)
MAX_SIZE = 16384
MAX_NUMERATOR = 1 << 11


def resize(call: Call[ops.Resize]) -> None:
    """RESIZE: ((size - 1) * numerator - offset + border) / denominator + 1 on each axis, divided exactly."""
    _check_mode(call)
    scale, offset, border = call.integers("scale"), call.integers("offset"), call.integers("border")
    declared = call.declared("output") or ()
    for place, axis in enumerate("HW", 1):
        _check_size(call, f"I{axis}", call.size(f"I{axis}"))
        _check_size(call, f"O{axis}", declared[place] if len(declared) == 4 else None)
    if scale is None or offset is None or border is None or (len(scale), len(offset), len(border)) != (4, 2, 2):
        return
    if min(scale) < 1:
        call.error("ScaleSmallerEqualZero", f"scale is {list(scale)}, every term must be positive", "scale")
        return
    for index, axis in enumerate("HW"):
        numerator, denominator = scale[2 * index : 2 * index + 2]
        if _check_terms(call, axis, numerator, denominator, offset[index], border[index]):
            size = _resized(call, axis, numerator, denominator, border[index] - offset[index])
            call.bind(f"O{axis}", size)


_SUMS = {DType.INT8: DType.INT32, DType.INT16: DType.INT48}


def _check_mode(call: Call[ops.Resize]) -> None:
    """NEAREST passes integers on, BILINEAR gives their sums of products."""
    source = call.dtype("input")
    if source not in _SUMS or call.attrs.mode not in (ResizeMode.NEAREST, ResizeMode.BILINEAR):
        return
    wanted = source if call.attrs.mode == ResizeMode.NEAREST else _SUMS[source]
    for _, tensor in call.results:
        if tensor.dtype not in (wanted, DType.UNKNOWN):
            message = f"output is {tensor.dtype.name}, {call.attrs.mode.name} of {source.name} gives {wanted.name}"
            call.findings.append(Finding("WrongOutputType", message, (tensor,)))


def _check_size(call: Call[ops.Resize], name: str, size: Size) -> None:
    if size is not None and size >= MAX_SIZE:
        call.error("MaxDimExceeded", f"{name} is {size}, it must be below {MAX_SIZE}", "input")


def _check_terms(call: Call[ops.Resize], axis: str, numerator: int, denominator: int, offset: int, border: int) -> bool:
    faults = len(call.findings)
    if numerator > MAX_NUMERATOR:
        message = f"scale numerator on axis {axis} is {numerator}, the largest is {MAX_NUMERATOR}"
        call.error("ScaleNLargerMax", message, "scale")
    if denominator >= 16 * numerator:
        message = f"scale on axis {axis} is {numerator}/{denominator}, the denominator must be below {16 * numerator}"
        call.error("ScaleDLargerMax", message, "scale")
    for name, value, low, high, below, above in (
        ("offset", offset, -numerator, 16 * numerator, "OffsetSmallerMin", "OffsetLargerEqualMax"),
        ("border", border, -16 * numerator, numerator, "BorderSmallerMin", "BorderLargerEqualMax"),
    ):
        if not low <= value < high:
            message = f"{name} on axis {axis} is {value}, it must be {low} to {high - 1}"
            call.error(below if value < low else above, message, name)
    return len(call.findings) == faults


def _resized(call: Call[ops.Resize], axis: str, numerator: int, denominator: int, shift: int) -> Size:
    size = call.size(f"I{axis}")
    if size is None:
        return None
    span = (size - 1) * numerator + shift
    if span % denominator:
        message = (
            f"({size} - 1) * {numerator} + border - offset = {span} on axis {axis} is no multiple of {denominator}"
        )
        call.error("ResizeOutputShapeNonInteger", message, "scale", "offset", "border")
        return None
    return span // denominator + 1
