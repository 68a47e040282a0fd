"""Give a RESCALE on INT48 the 16-bit multiplier, shift and constants that TOSA demands.

    INT48 ─▶ RESCALE(scale32, m, s) ─▶ y

    INT48 ─▶ RESCALE(m16, s16) ─▶ y                                              one-step
    INT48 ─▶ RESCALE(2^14, 14+j) ─▶ INT32 ─▶ RESCALE(scale32, m, s-j) ─▶ y       two-step

The original is illegal, so what counts is the number it stands for: v * m / 2^s + zero point, saturated. One step
rounds the scale to 16 bits, an error of |v| * |m16 / 2^s16 - m / 2^s|, at most the output's limit times the relative
error, since beyond that both saturate. Two steps keep the scale and round v to multiples of 2^j, half a unit. The last
rounding adds half an LSB. A 16-bit multiplier has no DOUBLE_ROUND; it becomes SINGLE_ROUND. Where results might leave
INT32, which RESCALE forbids, we refuse.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rewrites._accumulator import CONVOLUTIONS, fault, is_small_ethos_u, narrowed
from rewrites._legal_rescale import Form, Meaning, meaning_of, one_step, two_steps
from tosakit.engine.contract import PER_MATCH, WithinLsb
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.types import Array

RESCALE = Capture(ops.Rescale)


@dataclass(frozen=True)
class Options:
    """``form``: ``one-step``, ``two-step``, or ``auto``.

    ``auto`` is one-step, except on Ethos-U55 and U65 behind a convolution that only this RESCALE reads, where the
    accumulator is proved to fit INT32 and the output is INT16: there two steps cost nothing and keep all 31 bits.
    Two steps on Ethos-U85 never use j = 0, whose second multiplier the compiler would cut.
    """

    form: Literal["auto", "one-step", "two-step"] = "auto"


@dataclass(frozen=True, eq=False)
class Plan:
    """What the RESCALE means, and the legal form of it."""

    meaning: Meaning
    form: Form


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """Find out what the RESCALE means, then a legal form and its bound."""
    op = match[RESCALE]
    wrong = fault(op) if op.inputs and op.inputs[0].dtype == DType.INT48 else None
    if wrong is None:
        return None
    meaning = meaning_of(op, context.intervals.of(op.inputs[0]))
    if isinstance(meaning, Refusal):
        return Refusal(f"{wrong}, but {meaning.reason}")
    form: Form | Refusal | None = None
    if context.options.form == "two-step" or (context.options.form == "auto" and _two_steps_are_free(op, context)):
        form = two_steps(meaning, context.target)
    if context.options.form == "one-step" or (context.options.form == "auto" and not _is_exact(form)):
        form = one_step(meaning)
    if isinstance(form, Refusal):
        return Refusal(f"{wrong}, but {form.reason}")
    return None if form is None else Plan(meaning, form)


def _two_steps_are_free(op: Op[ops.Rescale], context: Context) -> bool:
    accumulator = op.inputs[0]
    return (
        is_small_ethos_u(context.target)
        and op.output.dtype == DType.INT16
        and accumulator.single_user is op
        and accumulator.producer is not None
        and isinstance(accumulator.producer.attrs, CONVOLUTIONS)
    )


def _is_exact(form: Form | Refusal | None) -> bool:
    return isinstance(form, Form) and form.pre_shift == 0


def replacement(match: Match, plan: Plan) -> Replacement:
    """One legal RESCALE, or two with INT32 between them."""
    op, form, meaning = match[RESCALE], plan.form, plan.meaning
    accumulator, result = op.inputs[0], op.output
    builder = Builder(result.name, location=op.location, origin=RULE.name)
    x = accumulator
    if form.pre_shift is not None:
        x = narrowed(builder, x, form.pre_shift)
    y = builder.rescale(
        x,
        result.dtype,
        form.multiplier,
        form.shift,
        scale32=form.pre_shift is not None,
        output_zp=meaning.output_zp,
        rounding_mode=form.rounding_mode,
        per_channel=op.attrs.per_channel,
    )

    def reference(values: Mapping[Tensor, Array]) -> Mapping[Tensor, Array]:
        accumulated = values[accumulator] if accumulator in values else accumulator.values()
        return {result: meaning.real_values(accumulated)}

    return Replacement(builder.ops, {result: y}, form.contract, reference=reference)


RULE = Rule(
    name="legalize_int48_rescale",
    pattern=RESCALE,
    precondition=precondition,
    replacement=replacement,
    contract=WithinLsb(PER_MATCH, because="the multiplier has 16 bits, or the accumulator is rounded first"),
    summary="Give a RESCALE on INT48 the 16-bit multiplier, shift and constants that TOSA demands.",
    options=Options,
)
