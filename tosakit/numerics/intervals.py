"""Interval analysis: what an integer tensor can hold in any execution that the specification calls predictable.

From the block inputs (any value of their dtype, unless the caller narrows it) and the constants, bounds go through each
operator in exact integer arithmetic; where constants allow it every index of the last axis, the channel, has bounds of
its own. What is not understood (CUSTOM, operators unknown to this version) holds any value of its dtype; so do control
flow and state, unless their intervals are handed in (:mod:`tosakit.numerics.program_intervals` works them out). A
result that the specification does not allow to leave its dtype is taken not to: that is what makes other executions
unpredictable. To prove that none does, ask :meth:`Intervals.unclipped`.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.ir import ops
from tosakit.ir.enums import DType, ResizeMode
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import INTEGER_RANGES
from tosakit.numerics import _interval_logic, _interval_movement, _interval_ops, _interval_sums
from tosakit.numerics._interval import UNBOUNDED, Bound, Handler, Interval, add, clip, fit, hull, last, of_constant
from tosakit.numerics._interval_ops import rescale_unclipped
from tosakit.numerics._interval_sums import CONVOLUTIONS, accumulator

__all__ = ["Interval", "Intervals", "Range"]

Range: TypeAlias = tuple[int, int]

_RANGES: Mapping[DType, Range] = {**INTEGER_RANGES, DType.BOOL: (0, 1)}

_WHOLE: Mapping[DType, Interval] = {dtype: Interval(*limits) for dtype, limits in _RANGES.items()}

_HANDLERS: Mapping[type[Attributes], Handler] = {
    **_interval_ops.HANDLERS,
    **_interval_logic.HANDLERS,
    **_interval_movement.HANDLERS,
    **_interval_sums.HANDLERS,
    **{kind: accumulator for kind in CONVOLUTIONS},
}

_LONG = (DType.INT64, DType.SHAPE)
_NARROW = (DType.INT8, DType.INT16)

_WIDE_RESULTS = (
    *CONVOLUTIONS,
    ops.MatMul,
    ops.Add,
    ops.Sub,
    ops.Mul,
    ops.Maximum,
    ops.Minimum,
    ops.Abs,
    ops.IntDiv,
    ops.ReduceSum,
)
"""Operators whose legal integer results are INT32 or wider."""


class Intervals:
    """Intervals of tensors, worked out on demand and remembered: each tensor's is computed once.

    ``inputs`` narrows what tensors hold, both ends included; meant for block inputs, but any integer tensor will do.
    ``assumed`` are intervals that were worked out elsewhere, such as those of a region's inputs. Tensors of any number
    of graphs may be asked for. Whoever changes a graph calls :meth:`forget` for the tensors that took the place of
    others, also where the values stay the same: it keeps track through what is remembered.

    Raises InvalidArgument for a range that is empty, outside the tensor's dtype, or of a tensor that holds no integers.
    """

    def __init__(
        self, inputs: Mapping[Tensor, Range] | None = None, assumed: Mapping[Tensor, Interval] | None = None
    ) -> None:
        self._known: dict[Tensor, Interval] = {}
        self._sums: dict[Tensor, Interval] = {}
        self._given: dict[Tensor, Interval] = dict(assumed or {})
        self._assumed = dict.fromkeys(self._given)
        for tensor, (low, high) in (inputs or {}).items():
            whole = _whole(tensor)
            if not whole.low <= low <= high <= whole.high:
                raise InvalidArgument(
                    f'range [{low}, {high}] given for tensor "{tensor.name}" is not within [{whole.low}, '
                    f"{whole.high}], the range of {tensor.dtype.name}"
                )
            self._given[tensor] = Interval(int(low), int(high))
            self._assumed.pop(tensor, None)

    @property
    def given(self) -> Mapping[Tensor, Interval]:
        """What was handed in."""
        return self._given

    def of(self, tensor: Tensor) -> Interval:
        """What a tensor can hold. INT8 and INT16 that a RESCALE reads or writes as unsigned count as signed here too.

        Where channels differ the bounds are int64 arrays of shape [C], C being the length of the last axis, else
        integers. Takes time in proportion to the operators and constants above the tensor that nobody asked for yet.

        Raises InvalidArgument for a tensor that holds no integers, InvalidModel for a constant with too little data and
        for a cycle of operators.
        """
        known = self._known
        if (found := known.get(tensor)) is not None:
            return found
        if (handler := self._handler(tensor)) is None:
            known[tensor] = found = self._compute(tensor, None)
            return found
        stack, opened = [tensor], dict[Tensor, list[Tensor]]()
        while stack:
            top = stack[-1]
            if top in known:
                stack.pop()
                continue
            handler = self._handler(top)
            reads = opened[top] if top in opened else [] if handler is None else self._reads(top)
            missing = [operand for operand in reads if operand not in known]
            if not missing:
                known[stack.pop()] = self._compute(top, handler)
            elif top in opened:
                raise InvalidModel(f'tensor "{top.name}" depends on itself; the graph has a cycle')
            else:
                opened[top] = missing
                stack.extend(missing)
        return known[tensor]

    def without_bias(self, conv: AnyOp) -> Interval:
        """What the accumulator of a convolution holds before the bias is added, for each output channel.

        In exact arithmetic, not clipped to the accumulator's dtype. Attained by every channel whose weights are
        constant and whose inputs are independent and hold their own zero point, if some output has all its taps inside
        the input. It bounds the whole sum; a partial one can lie outside where 0 is not between the bounds.

        Raises InvalidArgument for an operator that is no convolution.
        """
        if not isinstance(conv.attrs, CONVOLUTIONS):
            raise InvalidArgument(f"{conv!r} is no convolution, so it has no accumulator without a bias")
        _whole(conv.output)
        for operand in self._reads(conv.output):
            self.of(operand)
        return self._sum(conv) or UNBOUNDED

    def unclipped(self, op: AnyOp) -> Interval:
        """What the first result of an operator would hold in exact arithmetic, from what its operands can hold.

        Neither clipped to the dtype's range nor narrowed to executions in which this operator is predictable, so the
        operator cannot overflow where this is ``within`` the range that the specification demands of its result. For
        RESCALE it is the scaled value plus output_zp, before the clip; for an unsigned output it is the unsigned
        number. Sums are bounded as a whole, as in :meth:`without_bias`. Operators that cannot overflow answer as
        :meth:`of` does.

        Raises InvalidArgument for an operator whose first result holds no integers, or that has none.
        """
        if not op.outputs:
            raise InvalidArgument(f"{op!r} has no result, so it has no interval")
        _whole(op.output)
        if isinstance(op.attrs, CONVOLUTIONS):
            total = self.without_bias(op)
            if len(op.inputs) <= 2:
                return total
            return _settled(add(total, fit(self._look_up(op.inputs[2]), last(op.output))), op.output)
        handler = rescale_unclipped if isinstance(op.attrs, ops.Rescale) else _HANDLERS.get(type(op.attrs))
        exact = None if handler is None else self._apply(op, handler)
        return self.of(op.output) if exact is None else _settled(exact, op.output)

    def partial(self, op: AnyOp) -> Interval:
        """What the sum of any of an operator's terms can be, in whatever order they are added, before the bias.

        As :meth:`unclipped`, but for CONV2D and its kin, MATMUL and REDUCE_SUM no term has to be there. Raises as
        :meth:`unclipped`.
        """
        is_convolution = isinstance(op.attrs, CONVOLUTIONS)
        summing = is_convolution or isinstance(op.attrs, ops.MatMul | ops.MatMulT | ops.ReduceSum)
        handler = _HANDLERS.get(type(op.attrs))
        if not summing or handler is None or len(op.inputs) < len(op.attrs.OPERANDS):
            return self.unclipped(op)
        whole, zero_points = self._look_up(op.inputs[0]), op.inputs[3:4] if is_convolution else op.inputs[2:3]
        nothing = self._look_up(zero_points[0]).overall if zero_points else Interval(0, 0)
        some = hull(whole, nothing)
        if some == whole:  # then so are the terms
            return self.without_bias(op) if is_convolution else self.unclipped(op)
        return handler(op, lambda tensor: some if tensor is op.inputs[0] else self._look_up(tensor)) or UNBOUNDED

    def assume(self, tensor: Tensor, interval: Interval) -> None:
        """Take ``interval`` for what a tensor holds; nothing that depends on it may have been asked for yet."""
        self._given[tensor] = interval
        self._assumed[tensor] = None
        self._known.pop(tensor, None)

    def forget_assumed(self) -> None:
        """Forget what was assumed, and all that was worked out so far; ``inputs`` stay as they are."""
        if self._assumed:
            for tensor in self._assumed:
                self._given.pop(tensor, None)
            self._assumed, self._known, self._sums = {}, {}, {}

    def forget(self, tensors: Iterable[Tensor]) -> None:
        """Forget the intervals of these tensors and of all that was worked out from them or what they replaced.

        Follows the readers of each of ``tensors``, and from there on only tensors whose interval is remembered: what is
        not remembered has no readers that are, as long as every replacement is reported here.
        """
        if not self._known and not self._sums:
            return
        todo = list(tensors)
        for tensor in todo:
            self._known.pop(tensor, None)
            self._sums.pop(tensor, None)
        while todo:
            for reader in todo.pop().users:
                for result in reader.outputs:
                    was_known = self._known.pop(result, None) is not None
                    if self._sums.pop(result, None) is not None or was_known:
                        todo.append(result)

    def _handler(self, tensor: Tensor) -> Handler | None:
        """What works out the tensor's interval from those of operands; None where nothing or something else does."""
        op = tensor.producer
        handler = None if op is None else _HANDLERS.get(type(op.attrs))
        if handler is None or op is None or tensor in self._given:
            return None
        if tensor.extras.variable or op.outputs[0] is not tensor or _is_illegally_narrow(op):
            return None
        return handler

    def _reads(self, tensor: Tensor) -> list[Tensor]:
        """The operands whose intervals go into that of ``tensor``, but for constants, which are looked up directly."""
        operands = tensor.producer.inputs if tensor.producer else ()
        return [operand for operand in operands if operand.dtype in _RANGES and not operand.is_constant]

    def _compute(self, tensor: Tensor, handler: Handler | None) -> Interval:
        whole = _whole(tensor)
        op, interval = tensor.producer, self._given.get(tensor)
        if handler is not None and op is not None:
            interval = self._sum(op) if handler is accumulator else self._apply(op, handler)
            if interval is not None and handler is accumulator:
                interval = add(interval, fit(self._look_up(op.inputs[2]), last(tensor)))
        elif interval is None and tensor.is_constant:
            interval = of_constant(tensor)
        if interval is None:
            return whole
        return _settled(clip(interval, whole.lowest, whole.highest), tensor)

    def _sum(self, conv: AnyOp) -> Interval | None:
        """What a convolution sums up before the bias, remembered; None for one with too few operands."""
        known = self._sums.get(conv.output)
        if known is None and (known := self._apply(conv, accumulator)) is not None:
            self._sums[conv.output] = known = _settled(known, conv.output) if self._handler(conv.output) else known
        return known

    def _apply(self, op: AnyOp, handler: Handler) -> Interval | None:
        """Call a handler, with the intervals of the operands worked out; None for an operator with too few operands."""
        return handler(op, self._look_up) if len(op.inputs) >= len(op.attrs.OPERANDS) else None

    def _look_up(self, tensor: Tensor) -> Interval:
        """The interval of an operand; where a faulty graph has no integers there, one that promises nothing."""
        if (known := self._known.get(tensor)) is not None:
            return known
        return self.of(tensor) if tensor.dtype in _RANGES else Interval(*INTEGER_RANGES[DType.INT64])


def _is_illegally_narrow(op: AnyOp) -> bool:
    """True for an int8 or int16 result that TOSA does not define: its producer means scales unknown to the graph."""
    if op.output.dtype not in _NARROW:
        return False
    if isinstance(op.attrs, ops.Table):
        return op.output.dtype == DType.INT16
    if isinstance(op.attrs, ops.Resize):
        return op.attrs.mode == ResizeMode.BILINEAR
    return isinstance(op.attrs, _WIDE_RESULTS)


def _whole(tensor: Tensor) -> Interval:
    if (whole := _WHOLE.get(tensor.dtype)) is None:
        raise InvalidArgument(f'tensor "{tensor.name}" holds {tensor.dtype.name} values; only integers have intervals')
    return whole


def _settled(interval: Interval, tensor: Tensor) -> Interval:
    """The form in which intervals are kept: read-only arrays of the last axis' length, or integers where all agree."""
    channels = interval.channels
    if channels is None:
        return interval
    # arithmetic on channels needs numbers below 2**48
    if channels == 1 or channels != last(tensor) or tensor.dtype in _LONG:
        return interval.overall
    if _is_uniform(interval.low) and _is_uniform(interval.high):
        return interval.overall
    low, high = _for_each(interval.low, channels), _for_each(interval.high, channels)
    low.flags.writeable = high.flags.writeable = False
    return Interval(low, high)


def _is_uniform(bound: Bound) -> bool:
    """True where all channels have the same; the ends tell most others."""
    return not isinstance(bound, np.ndarray) or bool(bound[0] == bound[-1] and (bound == bound[0]).all())


def _for_each(bound: Bound, channels: int) -> NDArray[np.int64]:
    if isinstance(bound, np.ndarray) and bound.dtype == np.int64 and bound.shape == (channels,):
        return bound
    return np.full(channels, bound, np.int64)
