"""Let one RESCALE read an INT48 accumulator, and the others read its INT32 result.

    acc ─┬▶ RESCALE(m1, s1) ─▶ y1                  acc ─▶ RESCALE(m0, s0) ─▶ INT32 ─┬▶ RESCALE(m1', s1') ─▶ y1
         └▶ RESCALE(m2, s2) ─▶ y2                                                   └▶ RESCALE(m2', s2') ─▶ y2

The first RESCALE is, in this order of preference, with R(x) = floor(x + 1/2) and d the difference before rounding:

- a copy, where the accumulator A is proved to fit INT32 or a reader copies it already: every (m, s) stays. Identical;
- a reader that gives INT32: it stays, and the others take 31-bit M / 2^S near r = m/2^s / (m0/2^s0) of its result v,
  so d <= r/2 + |v| * |M / 2^S - r| (counted up to saturation only);
- a copy of A / 2^j with the smallest j of each channel; the others take (m, s - j), so d <= m * 2^(j-1-s).

As |R(p) - R(q)| <= ceil(|p - q|), results differ by at most ceil(d). Ethos-U55 and U65 refuse a second RESCALE on an
accumulator. Ethos-U85 takes it, but reads back the 48 bits of a convolution for it: one RESCALE is cheaper in all that
was measured (docs/costs.md), so it is used there where nothing changes.
"""

from dataclasses import dataclass

from rewrites._accumulator import CONVOLUTIONS, Readers, is_ethos_u85, narrowed, readers_of, rescale_again
from rewrites._first_rescale import Form, closest_form, exact_form
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import PER_MATCH, WithinLsb
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType

PRODUCER = Capture(*CONVOLUTIONS, ops.MatMul, ops.MatMulT, ops.Resize)


class Options(ForSmallEthosU):
    """``when``: ``target`` acts for Ethos-U55 and U65, and exactly for convolutions on U85; ``all`` always."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Who reads the accumulator, and what the readers become."""

    readers: Readers
    form: Form


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """Several RESCALEs read the accumulator, and one of the forms is proved in range."""
    accumulator = match[PRODUCER].output
    needed = context.options.acts(context.target)
    cheaper = is_ethos_u85(context.target) and isinstance(match[PRODUCER].attrs, CONVOLUTIONS)
    if accumulator.dtype != DType.INT48 or not (needed or cheaper):
        return None
    readers = readers_of(accumulator)
    if isinstance(readers, Refusal) or len(readers.rescales) < 2:
        return readers if needed and isinstance(readers, Refusal) else None
    exact = exact_form(readers.rescales, accumulator, context.intervals)
    if exact is not None or not needed:
        return None if exact is None else Plan(readers, exact)
    form = closest_form(readers.rescales, context.intervals.of(accumulator))
    return form if isinstance(form, Refusal) else Plan(readers, form)


def replacement(match: Match, plan: Plan) -> Replacement:
    """The first RESCALE, and the others behind it."""
    producer, form = match[PRODUCER], plan.form
    accumulator = producer.output
    builder = Builder(accumulator.name, location=producer.location, origin=RULE.name)
    if form.first is None:
        values = {}
        x = narrowed(builder, accumulator, form.pre_shift)
    else:
        x = rescale_again(builder, form.first, accumulator)
        values = {form.first.op.output: x}
    for reader, pair in form.others:
        result = reader.op.output
        if pair.scale32:
            builder.location = reader.op.location
            values[result] = builder.rescale(
                x, result.dtype, pair.multiplier, pair.shift, scale32=True, output_zp=reader.output_zp
            )
        else:
            values[result] = rescale_again(builder, reader, x, form.pre_shift)
    return Replacement(builder.ops, values, form.contract, covers=plan.readers.covers)


RULE = Rule(
    name="single_rescale_per_accumulator",
    pattern=PRODUCER,
    precondition=precondition,
    replacement=replacement,
    contract=WithinLsb(PER_MATCH, because="exact, or one result is derived from another, or both from a shifted copy"),
    summary="Let one RESCALE read an INT48 accumulator, and the others read its INT32 result.",
    options=Options,
)
