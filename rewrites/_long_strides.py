"""Ways around the long stride of one axis of a convolution, and what a convolution costs with each."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from tosakit.ir.build import Builder
from tosakit.ir.graph import Tensor

LONGEST = 3
"""The longest stride that Ethos-U55 and U65 have."""

Way = Literal["keep", "fold", "pick"]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a convolution: its operand, kernel, padding and result."""

    size: int
    taps: int
    stride: int
    dilation: int
    pad: tuple[int, int]
    out: int

    @property
    def is_long(self) -> bool:
        """A stride that is too long, and used."""
        return self.stride > LONGEST and self.out > 1

    @property
    def phases(self) -> int:
        """Elements of a group of ``stride`` that a folded axis needs: up to the last one that a tap reads."""
        return max(tap * self.dilation % self.stride for tap in range(self.taps)) + 1

    @property
    def group_taps(self) -> int:
        """Groups of ``stride`` elements that the kernel reaches over."""
        return -(-((self.taps - 1) * self.dilation + 1) // self.stride)

    @property
    def folded_size(self) -> int:
        """Elements in whole groups, for a folded axis."""
        return (self.out + self.group_taps - 1) * self.stride

    @property
    def short(self) -> int:
        """The longest stride that divides this one."""
        return max(stride for stride in range(1, LONGEST + 1) if self.stride % stride == 0)

    @property
    def step(self) -> int:
        """One of so many results of the short stride is wanted."""
        return self.stride // self.short

    def by(self, way: Way) -> "Axis":
        """The axis of the convolution that is left: of groups, or of the short stride, with whole groups of results."""
        if way == "fold":
            return Axis(self.out + self.group_taps - 1, self.group_taps, 1, 1, (0, 0), self.out)
        if way == "pick":
            pad = (self.pad[0], self.pad[1] + (self.step - 1) * self.short)
            return replace(self, stride=self.short, pad=pad, out=self.out * self.step)
        return self


Axes = tuple[Axis, Axis]
"""Rows and columns."""

Ways = tuple[Way, Way]


def ways_of(axes: Axes, *, foldable: bool, pickable: bool) -> Iterator[Ways]:
    """Every way to get rid of the long strides."""
    choices: tuple[Way, ...] = (*(("fold",) if foldable else ()), *(("pick",) if pickable else ()))
    rows, columns = (choices if axis.is_long else ("keep",) for axis in axes)
    yield from product(rows, columns)


# ------------------------------------------------------------------------------------------ costs
MACS = 128
"""Products a cycle; channels come by eight."""

PER_BYTE = 2
"""Cycles to move a byte; a byte of weights takes one. Measured on Ethos-U55-128, as are all of these."""


def products(batch: int, axes: Axes, channels: tuple[int, int]) -> int:
    """Products of weights and values."""
    rows, columns = axes
    return batch * rows.out * columns.out * rows.taps * columns.taps * math.prod(channels)


def estimate(batch: int, axes: Axes, ways: Ways, channels: tuple[int, int], width: int) -> int:
    """Cycles of a CONV2D with all that moves around it, roughly. ``width`` is that of a value, in bytes."""
    inputs, outputs = channels
    (rows, columns), (left_rows, left_columns) = axes, (axis.by(way) for axis, way in zip(axes, ways, strict=True))
    sizes = [axis.folded_size if way == "fold" else axis.size for axis, way in zip(axes, ways, strict=True)]
    folded = inputs
    moved = math.prod(sizes) * inputs if sizes != [rows.size, columns.size] else 0
    if ways[1] == "fold":
        folded *= columns.phases
        moved += sizes[0] * left_columns.size * folded if columns.phases < columns.stride else 0
    if ways[0] == "fold":
        folded *= rows.phases
        moved += left_rows.size * left_columns.size * folded
    if ways[0] == "pick":
        moved += rows.out * left_columns.out * outputs
    if ways[1] == "pick":
        moved += rows.out * columns.out * outputs
    padded = (-(-folded // 8) * 8, -(-outputs // 8) * 8)
    weights = left_rows.taps * left_columns.taps * folded * outputs
    work = products(batch, (left_rows, left_columns), padded) * width // MACS
    return work + weights + PER_BYTE * width * batch * moved


# ------------------------------------------------------------------------------------------ movement
def fold_input(builder: Builder, x: Tensor, axes: Axes, ways: Ways, zero: int) -> Tensor:
    """``x`` [N,H,W,C] padded along the axes to fold, and these in groups, their phases on the channels."""
    around, wanted = [(0, 0)], [x.shape[0]]
    for axis, way in zip(axes, ways, strict=True):
        total = axis.folded_size if way == "fold" else axis.size
        before = axis.pad[0] if way == "fold" else 0
        around.append((before, max(total - before - axis.size, 0)))
        wanted.append(total)
    if any(map(any, around)):
        x = builder.pad(x, [*around, (0, 0)], zero)
    x = _cut(builder, x, (*wanted, x.shape[3]))
    if ways[1] == "fold":
        batch, height, width, channels = x.shape
        stride, phases = axes[1].stride, axes[1].phases
        x = builder.reshape(x, (batch, height, width // stride, stride * channels))
        x = _cut(builder, x, (*x.shape[:3], phases * channels))
    return _fold_rows(builder, x, axes[0]) if ways[0] == "fold" else x


def _fold_rows(builder: Builder, x: Tensor, rows: Axis) -> Tensor:
    batch, height, width, channels = x.shape
    groups = height // rows.stride
    x = builder.reshape(x, (batch * groups, rows.stride, width, channels))
    x = _cut(builder, x, (batch * groups, rows.phases, width, channels))
    if rows.phases > 1:
        x = builder.transpose(x, (0, 2, 1, 3))
    return builder.reshape(x, (batch, groups, width, rows.phases * channels))


def _cut(builder: Builder, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else builder.slice(x, (0,) * len(shape), shape)


def fold_weight(weight: Integers, axes: Axes, ways: Ways, zero: int) -> Integers:
    """``weight`` [OC,KH,KW,C] for the folded input: weights by group and phase, ``zero`` where no tap is."""
    if ways[1] == "fold":
        spread = _spread(weight, 2, axes[1], zero)
        weight = spread.reshape(*spread.shape[:3], -1)
    if ways[0] == "fold":
        spread = _spread(weight, 1, axes[0], zero).transpose(0, 1, 3, 2, 4)
        weight = spread.reshape(*spread.shape[:3], -1)
    return np.ascontiguousarray(weight)


def _spread(weight: Integers, position: int, axis: Axis, zero: int) -> Integers:
    """The taps of one axis as two axes, groups and phases."""
    shape = list(weight.shape)
    shape[position] = axis.group_taps * axis.stride
    spread = np.full(shape, zero, np.int64)
    spread[(slice(None),) * position + (np.arange(axis.taps) * axis.dilation,)] = weight
    grouped = spread.reshape(*shape[:position], axis.group_taps, axis.stride, *shape[position + 1 :])
    return grouped[(slice(None),) * (position + 1) + (slice(axis.phases),)]


def pick(builder: Builder, y: Tensor, axes: Axes, ways: Ways) -> Tensor:
    """Of ``y`` [N,OH,OW,OC] every ``step``-th row and column of the axes to pick from."""
    for position, (axis, way) in enumerate(zip(axes, ways, strict=True), start=1):
        if way == "pick":
            y = _pick(builder, y, position, axis)
    return y


def _pick(builder: Builder, y: Tensor, position: int, axis: Axis) -> Tensor:
    shape: Sequence[int] = (*y.shape[:position], axis.out, *y.shape[position + 1 :])
    outer, inner = math.prod(shape[: position + 1]), math.prod(shape[position + 1 :])
    grouped = builder.reshape(y, (outer, axis.step * inner))
    return builder.reshape(_cut(builder, grouped, (outer, inner)), shape)
