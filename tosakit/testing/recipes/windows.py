"""Convolutions, pooling, matrix multiplication, RESIZE and FFT: sizes that divide exactly."""

from typing import NamedTuple

from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import Tensor
from tosakit.testing.making import Making
from tosakit.testing.sketch import Unfit


class Axis(NamedTuple):
    """How a window slides along one axis."""

    kernel: int
    dilation: int
    pad: tuple[int, int]
    stride: int


def _axis(m: Making, size: int, kernel: int | None) -> Axis:
    """A window on an axis of ``size`` that comes out even; ``kernel`` is None where it may be drawn."""
    c = m.choices
    kernel = kernel or c.integer(1, 3)
    dilation = c.integer(1, 2)
    before, after = (c.integer(0, 2), c.integer(0, 2)) if c.flag() else (0, 0)
    if size + before + after < (kernel - 1) * dilation + 1:
        dilation = 1
        after += max(kernel - size - before - after, 0)
    span = size + before + after - ((kernel - 1) * dilation + 1)
    return Axis(kernel, dilation, (before, after), _stride(m, span))


def _stride(m: Making, span: int) -> int:
    """A stride that comes out even; where the window does not move, any will do, and some are tried."""
    return m.choices.pick([1, *(stride for stride in range(2, 8) if span % stride == 0 and (span or stride in (2, 5)))])


def _axes(m: Making, names: str) -> list[Axis]:
    found = [_axis(m, m.size(f"I{name}"), m.sizes.get(f"K{name}")) for name in names]
    m.sizes.update({f"K{name}": axis.kernel for name, axis in zip(names, found, strict=True)})
    return found


def _pads(axes: list[Axis]) -> tuple[int, ...]:
    return tuple(amount for axis in axes for amount in axis.pad)


def _bias(m: Making, channels: int) -> None:
    """The bias has a value for every channel, or one for all."""
    if "bias" not in m.given:
        m.sizes.setdefault("BC", m.choices.pick([channels, channels, 1]))


def conv(m: Making) -> tuple[Tensor, ...]:
    """CONV2D, CONV3D, DEPTHWISE_CONV2D."""
    m.take("input")
    if "weight" in m.given:
        m.take("weight")
    axes = _axes(m, "DHW" if "ID" in m.sizes else "HW")
    depthwise = m.sig.name == "DEPTHWISE_CONV2D"
    _bias(m, m.size("C") * m.size("M", 1, 2) if depthwise else m.size("OC", 1, 3))
    return m.finish(pad=_pads(axes), stride=tuple(a.stride for a in axes), dilation=tuple(a.dilation for a in axes))


def transpose_conv2d(m: Making) -> tuple[Tensor, ...]:
    """TRANSPOSE_CONV2D, whose pads may be negative."""
    m.take("input")
    if "weight" in m.given:
        m.take("weight")
    pads: list[int] = []
    strides = []
    for axis in "HW":
        kernel, stride = m.size(f"K{axis}", 1, 3), m.choices.integer(1, 3)
        pair = [m.choices.integer(1 - kernel, 1), m.choices.integer(1 - kernel, 1)]
        if (m.size(f"I{axis}") - 1) * stride + sum(pair) + kernel < 1:
            pair = [0, 0]
        pads += pair
        strides.append(stride)
    _bias(m, m.size("OC", 1, 3))
    return m.finish(out_pad=tuple(pads), stride=tuple(strides))


def conv2d_block_scaled(m: Making) -> tuple[Tensor, ...]:
    """CONV2D_BLOCK_SCALED: pad, stride and dilation are operands."""
    blocks(m, "IC")
    m.take("input_data")
    axes = _axes(m, "HW")
    _bias(m, m.size("OC", 1, 3))
    m.constant("pad", _pads(axes))
    m.constant("stride", [axis.stride for axis in axes])
    m.constant("dilation", [axis.dilation for axis in axes])
    return m.finish()


def blocks(m: Making, name: str) -> None:
    """Bind a size to one block of 32 values, and the number of blocks."""
    m.sizes[name] = 32
    m.sizes[f"{name}/block_size"] = 1


def _pool_axes(m: Making) -> list[Axis]:
    """Windows without dilation, whose pads are smaller than they are."""
    m.take("input")
    axes = []
    for name in "HW":
        size, kernel = m.size(f"I{name}"), m.choices.integer(1, 3)
        pad = (m.choices.integer(0, kernel - 1), m.choices.integer(0, kernel - 1))
        if size + sum(pad) < kernel:
            kernel, pad = 1, (0, 0)
        span = size + sum(pad) - kernel
        axes.append(Axis(kernel, 1, pad, _stride(m, span)))
    return axes


def pool(m: Making) -> tuple[Tensor, ...]:
    """AVG_POOL2D, MAX_POOL2D."""
    axes = _pool_axes(m)
    return m.finish(kernel=tuple(a.kernel for a in axes), stride=tuple(a.stride for a in axes), pad=_pads(axes))


def adaptive_pool(m: Making) -> tuple[Tensor, ...]:
    """AVG_POOL2D_ADAPTIVE, MAX_POOL2D_ADAPTIVE: kernel, stride and pad are operands."""
    axes = _pool_axes(m)
    m.constant("kernel", [axis.kernel for axis in axes])
    m.constant("stride", [axis.stride for axis in axes])
    m.constant("pad", _pads(axes))
    return m.finish()


def matmul_t(m: Making) -> tuple[Tensor, ...]:
    """MATMUL_T: the right operand has the same batch, or one."""
    m.take("A")
    if "B" not in m.given:
        m.sizes["D"] = m.choices.pick([m.size("N"), 1])
    return m.finish()


def matmul_t_block_scaled(m: Making) -> tuple[Tensor, ...]:
    """MATMUL_T_BLOCK_SCALED."""
    blocks(m, "C")
    m.take("A_data")
    m.sizes["D"] = m.choices.pick([m.size("N"), 1])
    return m.finish()


def fft2d(m: Making) -> tuple[Tensor, ...]:
    """FFT2D, RFFT2D: sizes are powers of two."""
    if not m.given:
        m.sizes.update({name: m.choices.pick([1, 2, 4, 8]) for name in "HW"})
    return m.finish()


def resize(m: Making) -> tuple[Tensor, ...]:
    """RESIZE: the result's type says the mode for integers."""
    m.take("input")
    terms = [_resize_axis(m, m.size(f"I{axis}")) for axis in "HW"]
    m.constant("scale", [term for axis in terms for term in axis[:2]])
    m.constant("offset", [axis[2] for axis in terms])
    m.constant("border", [axis[3] for axis in terms])
    modes = [ResizeMode.NEAREST, ResizeMode.BILINEAR]
    if m.dtype("input") in (DType.INT8, DType.INT16):
        modes = modes[:1] if m.dtype("output") == m.dtype("input") else modes[1:]
    return m.finish(mode=m.choices.pick(modes))


def _resize_axis(m: Making, size: int) -> tuple[int, int, int, int]:
    """Numerator, denominator, offset and border that give a whole number of results, at least one."""
    n, d, offset = m.choices.integer(1, 4), m.choices.pick([1, 1, 2, 3]), m.choices.integer(-1, 1)
    start = (size - 1) * n - offset
    borders = [border for border in range(-3, n) if start + border >= 0 and (start + border) % d == 0]
    if not borders:
        raise Unfit(f"no border makes {n}/{d} of {size} a whole number")
    return n, d, offset, m.choices.pick(sorted(borders, key=abs))
