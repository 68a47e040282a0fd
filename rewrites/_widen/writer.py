"""Build the new graph of one block: every old tensor in the forms its new readers ask for, made once and on demand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from rewrites._widen.exponents import exponent_cap
from rewrites._widen.families import FACTOR, FACTOR_BITS
from rewrites._widen.plan import Form, Plan, saturated_by_readers
from tosakit.engine.rule import Refused, describe
from tosakit.errors import RuleBug
from tosakit.ir import ops
from tosakit.ir.enums import DType, NanPropagationMode, RoundingMode
from tosakit.ir.graph import AnyOp, Graph, Op, OpRecord, Tensor
from tosakit.ir.operator import Attributes
from tosakit.ir.types import decode, encode, encode_number
from tosakit.numerics.intervals import Intervals
from tosakit.numerics.real_deviation import Meaning

NAME = "widen_int8_activations"

UNKNOWN_BOUND = 1 << 31

_CONST = ops.Const()

Source = Callable[[int], Tensor]
"""Makes an int32 value at a given exponent."""


@dataclass(frozen=True)
class Settings:
    """The options that converters look at."""

    smooth: bool
    clamp_all: bool
    rescale_form: Literal["one-step", "two-step"]
    fuses_identity: bool
    """True where INT48 to INT32 by exactly one must not be followed by a RESCALE (Vela on Ethos-U85)."""


@dataclass(frozen=True)
class Accumulator:
    """An INT48 accumulator that holds the old INT32 one times ``2**bits``; ``bound`` limits the old one."""

    tensor: Tensor
    bits: int
    bound: int


@dataclass(frozen=True)
class Native:
    """The first form an old tensor takes in the new graph; ``zero_point`` is None where the values are as they were."""

    tensor: Tensor
    zero_point: int | None


@dataclass
class Converted:
    """One old operator and the new operators made for it."""

    before: OpRecord
    detail: list[str] = field(default_factory=list)
    after: list[AnyOp] = field(default_factory=list)


class BlockWriter:
    """The new graph of a block, and the forms of its old tensors in it.

    Converters call :meth:`int16`, :meth:`int8`, :meth:`int32` and :meth:`plain` for operands, :meth:`emit` for new
    operators, and the ``set_`` methods for results.
    """

    def __init__(self, plan: Plan, old: Graph, settings: Settings) -> None:
        self.plan = plan
        self.old = old
        self.settings = settings
        self.graph = Graph(old.graph["name"])
        self.converted: dict[AnyOp, Converted] = {}
        self.refused: list[Refused] = []
        self._reserved = dict.fromkeys(t.name for t in old.tensors)
        self._taken: dict[str, None] = {}
        self._plain: dict[Tensor, Tensor] = {}
        self._int16: dict[Tensor, dict[int, Tensor]] = {}
        self._int32: dict[Tensor, dict[int, Tensor]] = {}
        self._sources: dict[Tensor, Source] = {}
        self._preferred: dict[Tensor, int] = {}
        self._bounds: dict[Tensor, int] = {}
        self.accumulators: dict[Tensor, Accumulator] = {}
        self.natives: dict[Tensor, Native] = {}
        self.saturated_by_readers = saturated_by_readers(old, clamps_saturate=settings.clamp_all)
        self.proved: dict[Tensor, None] = {}
        """Old activations whose new value was proved to keep to the int8 range, so that it needs no CLAMP."""
        self.scales: dict[Tensor, Sequence[Fraction]] = {}
        """Exact scales of results of RESCALEs whose multiplier and shift approximate them."""
        self.off: dict[Tensor, int] = {}
        """How far results of TABLEs are from those of the exact entries, in LSB."""
        self._clamps: dict[AnyOp, Tensor] = {}
        self._op: AnyOp | None = None
        for tensor in old.tensors:
            if tensor.extras.variable and tensor.producer is None:
                self._plain[tensor] = self.graph.add_tensor(self._twin(tensor))

    # ---------------------------------------------------------------- making operators
    def at(self, op: AnyOp | None) -> AnyOp | None:
        """Make ``op`` the old operator that new operators are derived from; returns the one before."""
        previous, self._op = self._op, op
        return previous

    def note(self, text: str) -> None:
        """Add to the report of the current old operator."""
        if self._op is not None:
            self._record(self._op).detail.append(text)

    def refuse(self, op: AnyOp, reason: str) -> None:
        """Report an operator that stays as it is."""
        self.refused.append(Refused(NAME, self.old.name, describe(op), reason))

    def _record(self, op: AnyOp) -> Converted:
        if op not in self.converted:
            self.converted[op] = Converted(op.record)
        return self.converted[op]

    def emit(
        self,
        attrs: Attributes,
        inputs: Sequence[Tensor],
        dtype: DType,
        like: Tensor,
        name: str | None = None,
        *,
        suffix: str = "",
    ) -> Tensor:
        """Add an operator with one result: of ``dtype``, shaped like ``like``, called ``name`` or ``like`` + suffix."""
        shape = like.shape if like.has_shape else None
        result = Tensor(self._free(name or like.name + suffix, reserved=name is not None), dtype, shape)
        self._add(Op(attrs, inputs, (result,), location=self._location, origin=NAME))
        return result

    def const(self, values: npt.ArrayLike, dtype: DType, name: str) -> Tensor:
        """Add a CONST of the values' shape."""
        array = np.asarray(values)
        return self._constant(encode(array, dtype), dtype, array.shape, name)

    def number(self, value: int, dtype: DType, name: str) -> Tensor:
        """Add a CONST of one element."""
        return self._constant(encode_number(value, dtype), dtype, (1,), name)

    def _numbers(self, values: Sequence[int], dtype: DType, name: str) -> Tensor:
        return self.number(values[0], dtype, name) if len(values) == 1 else self.const(values, dtype, name)

    def _constant(self, data: bytes, dtype: DType, shape: tuple[int, ...], name: str) -> Tensor:
        result = Tensor(self._free(name, reserved=False), dtype, shape, data)
        self._add(Op(_CONST, (), (result,), location=self._location, origin=NAME))
        return result

    def rescale(
        self,
        x: Tensor,
        dtype: DType,
        multiplier: Sequence[int],
        shift: Sequence[int],
        like: Tensor,
        name: str | None = None,
        *,
        scale32: bool,
        input_zp: int = 0,
        output_zp: int = 0,
        per_channel: bool = False,
        scales: Sequence[Fraction] = (),
        suffix: str = "",
    ) -> Tensor:
        """Add a RESCALE with constants of its own, of the dtypes that its data demands.

        ``scales`` are the exact ones where multiplier and shift approximate them.
        """
        hint = name or like.name + suffix
        operands = (
            x,
            self._numbers(multiplier, DType.INT32 if scale32 else DType.INT16, f"{hint}_multiplier"),
            self._numbers(shift, DType.INT8, f"{hint}_shift"),
            self.number(input_zp, x.dtype, f"{hint}_input_zp"),
            self.number(output_zp, dtype, f"{hint}_output_zp"),
        )
        attrs = ops.Rescale(scale32=scale32, rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=per_channel)
        result = self.emit(attrs, operands, dtype, like, name, suffix=suffix)
        if scales:
            self.scales[result] = scales
        return result

    def clamp(
        self, x: Tensor, low: int, high: int, like: Tensor, name: str | None = None, *, suffix: str = ""
    ) -> Tensor:
        """Add a CLAMP to [low, high]."""
        attrs = ops.Clamp(
            min_val=encode_number(low, x.dtype),
            max_val=encode_number(high, x.dtype),
            nan_mode=NanPropagationMode.PROPAGATE,
        )
        return self.emit(attrs, (x,), x.dtype, like, name, suffix=suffix)

    def copy(self, op: AnyOp) -> None:
        """Add an operator as it was, on operands as they were."""
        operands = tuple(self.plain(t) for t in op.inputs)
        results: list[Tensor] = []
        for tensor in op.outputs:
            state = self._plain.get(tensor) if tensor.extras.variable else None
            results.append(state or self._twin(tensor))
            self.set_plain(tensor, results[-1])
        self.graph.add_op(Op(op.attrs, operands, results, location=op.location, origin=op.origin))

    def add_results(self, attrs: Attributes, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Add an operator with any number of results."""
        self._add(Op(attrs, inputs, results, location=self._location, origin=NAME))

    def _add(self, op: AnyOp) -> None:
        self.graph.add_op(op)
        if self._op is not None:
            self._record(self._op).after.append(op)

    @property
    def _location(self) -> str | None:
        return None if self._op is None else self._op.location

    def _free(self, name: str, *, reserved: bool) -> str:
        """A name no tensor of the new graph has; only a form of an old tensor may take that tensor's own name."""
        free, number = name, 0
        while free in self._taken or (not reserved and free in self._reserved):
            number += 1
            free = f"{name}_{number}"
        self._taken[free] = None
        return free

    def _twin(self, tensor: Tensor, dtype: DType | None = None, quantization: bool = True) -> Tensor:
        """A tensor of the new graph with the name of an old one."""
        return Tensor(
            self._free(tensor.name, reserved=True),
            dtype or tensor.dtype,
            tensor.shape if tensor.has_shape else None,
            tensor.data if dtype is None else None,
            quantization=tensor.quantization if quantization and dtype is None else None,
            extras=tensor.extras,
            table=tensor.table,
        )

    def result(self, old: Tensor, dtype: DType) -> Tensor:
        """A detached tensor of another dtype with the name of an old one, for :meth:`add_results`."""
        return self._twin(old, dtype)

    def own_name(self, tensor: Tensor) -> str | None:
        """The tensor's own name while no form has taken it."""
        return None if tensor.name in self._taken else tensor.name

    # ---------------------------------------------------------------- results
    def set_plain(self, old: Tensor, new: Tensor, bound: int = UNKNOWN_BOUND) -> None:
        """``new`` holds the values of ``old`` as they were."""
        self._plain[old] = new
        self.natives.setdefault(old, Native(new, None))
        if old.dtype == DType.INT32:
            self._int32.setdefault(old, {})[0] = new
            self._preferred[old] = 0
            self._bounds[old] = bound

    def set_int16(self, old: Tensor, new: Tensor, zero_point: int) -> None:
        """``new`` holds (old - zero_point) * 128."""
        self._int16.setdefault(old, {})[zero_point] = new
        self.natives.setdefault(old, Native(new, zero_point))

    def set_saturated(self, old: Tensor, unclamped: Tensor, zero_point: int, low: int, high: int) -> None:
        """``unclamped``, clamped to [low, high], holds (old - zero_point) * 128; see :meth:`drop_redundant_clamps`."""
        new = self.clamp(unclamped, low, high, old, old.name)
        if new.producer is not None:
            self._clamps[new.producer] = old
        self.set_int16(old, new, zero_point)

    def set_int32(self, old: Tensor, new: Tensor, exponent: int, bound: int) -> None:
        """``new`` holds old * 2**exponent; ``bound`` limits the absolute value of ``old``."""
        self._int32.setdefault(old, {})[exponent] = new
        self._preferred[old] = exponent
        self._bounds[old] = bound
        if exponent == 0:
            self._plain.setdefault(old, new)

    def set_source(self, old: Tensor, make: Source, exponent: int, bound: int) -> None:
        """``make`` makes ``old`` at any exponent, best at ``exponent``."""
        current = self._op

        def derived(wanted: int) -> Tensor:
            previous = self.at(current)
            try:
                return make(wanted)
            finally:
                self.at(previous)

        self._sources[old] = derived
        self._preferred[old] = exponent
        self._bounds[old] = bound

    # ---------------------------------------------------------------- operands
    def bound(self, old: Tensor) -> int:
        """Largest absolute value of an old int32 value, in its old units."""
        if old.is_constant:
            return int(np.abs(old.values().astype(np.int64)).max(initial=0))
        return self._bounds.get(old, UNKNOWN_BOUND)

    def preferred(self, old: Tensor) -> int | None:
        """The exponent an int32 value comes with; None for a constant, which takes any."""
        return None if old.is_constant else self._preferred.get(old, 0)

    def is_scaled(self, old: Tensor) -> bool:
        """True for an int32 value that carries, or can carry, more than the old bits."""
        return old in self._sources or old in self.accumulators or bool(self._preferred.get(old))

    def input_form(self, old: Tensor) -> Form:
        """The form an int8 value came into being with."""
        return Form.INT8 if self.natives[old].zero_point is None else Form.INT16

    def plain(self, old: Tensor) -> Tensor:
        """The old values in the old dtype."""
        if old in self._plain:
            return self._plain[old]
        if old.is_constant:
            return self._copied_constant(old)
        if old.dtype == DType.INT8 and old in self._int16:
            zero_point, wide = next(iter(self._int16[old].items()))
            new = self.rescale(
                wide, DType.INT8, [1 << 30], [30 + FACTOR_BITS], old, self.own_name(old),
                scale32=True, output_zp=zero_point, suffix="_int8",
            )  # fmt: skip
            self._plain[old] = new
            return new
        if old.dtype == DType.INT32 and (old in self._int32 or self.is_scaled(old)):
            new = self.int32(old, 0)
            self._plain[old] = new
            return new
        if old.producer is None:  # an undeclared tensor: the verifier reports it
            self._plain[old] = self.graph.add_tensor(self._twin(old))
            return self._plain[old]
        raise RuleBug(f"{NAME}: {old!r} is read before it is made")

    def _copied_constant(self, old: Tensor) -> Tensor:
        producer = old.producer
        assert producer is not None
        new = self._twin(old)
        self.graph.add_op(Op(producer.attrs, (), (new,), location=producer.location, origin=producer.origin))
        self._plain[old] = new
        return new

    def int16(self, old: Tensor, zero_point: int) -> Tensor:
        """The int8 value as (q - zero_point) * 128."""
        forms = self._int16.setdefault(old, {})
        if zero_point in forms:
            return forms[zero_point]
        if old.is_constant:
            values = (old.values().astype(np.int64) - zero_point) * FACTOR
            new = self.const(values, DType.INT16, f"{old.name}_z{zero_point}".replace("-", "m"))
        elif old in self.natives and self.input_form(old) is Form.INT8:
            new = self.rescale(
                self._plain[old], DType.INT16, [1 << 30], [30 - FACTOR_BITS], old, self.own_name(old),
                scale32=True, input_zp=zero_point, suffix="_int16",
            )  # fmt: skip
        elif forms:
            new = self._shifted(old, *next(iter(forms.items())), zero_point)
        else:
            raise RuleBug(f"{NAME}: {old!r} is read before it is made")
        forms[zero_point] = new
        return new

    def _shifted(self, old: Tensor, have: int, wide: Tensor, want: int) -> Tensor:
        """Another zero point: int16 has none, so the difference is added in int32."""
        suffix = f"_z{want}".replace("-", "m")
        wide32 = self.rescale(wide, DType.INT32, [1 << 30], [30], old, scale32=True, suffix=f"{suffix}_int32")
        shape = (1,) * len(old.shape)
        offset = self.const(np.full(shape, (have - want) * FACTOR), DType.INT32, f"{old.name}{suffix}_offset")
        moved = self.emit(ops.Add(), (wide32, offset), DType.INT32, old, suffix=f"{suffix}_add")
        self.note(f'"{old.name}" is read with zero point {want}, it has {have}')
        return self.rescale(moved, DType.INT16, [1 << 30], [30], old, scale32=True, suffix=suffix)

    def any_form(self, old: Tensor) -> Tensor:
        """The int8 value in whatever form exists, for readers that look at its shape only."""
        forms = self._int16.get(old)
        return self.plain(old) if not forms else next(iter(forms.values()))

    def int32(self, old: Tensor, exponent: int) -> Tensor:
        """The int32 value times ``2**exponent``."""
        forms = self._int32.setdefault(old, {})
        if exponent in forms:
            return forms[exponent]
        if old.is_constant:
            if exponent == 0:
                return self.plain(old)
            values = old.values().astype(np.int64) << exponent
            new = self.const(values, DType.INT32, f"{old.name}_times{1 << exponent}")
        elif old in self._sources:
            new = self._sources[old](exponent)
        elif old in self.accumulators:
            new = self._from_accumulator(old, exponent)
        elif old in self._plain or forms:
            if not forms:
                forms[0] = self._plain[old]
            have, value = next(iter(forms.items()))
            new = self.rescale(
                value, DType.INT32, [1 << 14], [14 + have - exponent], old, self.own_name(old),
                scale32=False, suffix=_exponent_suffix(exponent),
            )  # fmt: skip
        else:
            raise RuleBug(f"{NAME}: {old!r} is read before it is made")
        forms[exponent] = new
        return new

    def _from_accumulator(self, old: Tensor, exponent: int) -> Tensor:
        """An accumulator in int32: RESCALE by 2^-j, which never is by one (see Settings.fuses_identity)."""
        accumulator = self.accumulators[old]
        return self.rescale(
            accumulator.tensor, DType.INT32, [1 << 14], [14 + accumulator.bits - exponent], old, self.own_name(old),
            scale32=False, suffix=_exponent_suffix(exponent),
        )  # fmt: skip

    def set_accumulator(self, old: Tensor, new: Tensor, bits: int, bound: int) -> None:
        """``new`` is the INT48 accumulator that holds old * 2**bits."""
        self.accumulators[old] = Accumulator(new, bits, bound)
        headroom = bits - 1 if self.settings.fuses_identity else bits
        self._preferred[old] = max(0, min(headroom, exponent_cap(bound)))
        self._bounds[old] = bound

    # ---------------------------------------------------------------- borders
    def begin(self) -> None:
        """Make the block's inputs."""
        made: dict[Tensor, Tensor] = {}
        for old in self.old.inputs:
            if old in made:
                continue
            if old.dtype == DType.INT8 and self.plan.border_form(self.old, old) is Form.INT16:
                zero_point = self.border_zero_point(old)
                new = self.graph.add_tensor(self._twin(old, DType.INT16))
                self.set_int16(old, new, zero_point)
                self.annotate(old, new)
            else:
                new = self.graph.add_tensor(self._twin(old))
                self.set_plain(old, new)
            made[old] = new
        self.graph.set_inputs([made[old] for old in self.old.inputs])

    def border_zero_point(self, old: Tensor) -> int:
        """The zero point of a tensor that crosses the block's border."""
        zero_points = self.plan.zero_points
        return zero_points[old] if self.old is self.plan.main else zero_points.at_border(old)

    def drop_redundant_clamps(self, intervals: Intervals) -> None:
        """Remove every CLAMP made for saturation whose operand is proved to stay inside. O(operators).

        The last step: no form of a tensor may be asked for afterwards. ``intervals`` are those of the new program.
        """
        for clamp, old in self._clamps.items():
            low, high = (int(decode(bytes(end), DType.INT16, (1,))[0]) for end in _ends(clamp))
            value = clamp.inputs[0]
            interval = intervals.of(value)
            if low <= interval.lowest and interval.highest <= high:
                self.graph.annotate(value, clamp.output.quantization)
                self.graph.replace_uses(clamp.output, value)
                self.graph.swap_names(clamp.output, value)
                self.graph.erase(clamp)
                self.proved[old] = None
                self.natives[old] = replace(self.natives[old], tensor=value)
                self.at(old.producer)
                self.note("no CLAMP: the value cannot leave the int8 range")
        self.at(None)

    def finish(self) -> None:
        """Make the block's outputs, under their old names."""
        outputs: list[Tensor] = []
        for old in self.old.outputs:
            if old.dtype == DType.INT8 and self.plan.border_form(self.old, old) is Form.INT16:
                new = self.int16(old, self.border_zero_point(old))
                self.annotate(old, new)
            else:
                new = self.plain(old)
            outputs.append(new)
            if new.name != old.name:
                self._give_name(old.name, new)
        self.graph.set_outputs(outputs)

    def annotate(self, old: Tensor, new: Tensor) -> None:
        """Carry quantisation parameters over: the scale becomes 128 times finer, the zero point 0."""
        if old.quantization is not None:
            scale = tuple(value / FACTOR for value in old.quantization.scale)
            self.graph.annotate(new, replace(old.quantization, scale=scale, zero_point=0))

    def _give_name(self, name: str, tensor: Tensor) -> None:
        if name in self._taken:
            self.graph.swap_names(tensor, self.graph.tensor(name))
        else:
            self.graph.rename(tensor, name)


def meaning_of(writers: Sequence[BlockWriter]) -> Meaning:
    """What the new operators stand for that approximate something."""
    return Meaning(
        {tensor: scales for writer in writers for tensor, scales in writer.scales.items()},
        {tensor: off for writer in writers for tensor, off in writer.off.items()},
    )


def _ends(clamp: AnyOp) -> tuple[bytes, bytes]:
    assert isinstance(clamp.attrs, ops.Clamp)
    return clamp.attrs.min_val, clamp.attrs.max_val


def _exponent_suffix(exponent: int) -> str:
    return f"_times2e{exponent}".replace("-", "m")
