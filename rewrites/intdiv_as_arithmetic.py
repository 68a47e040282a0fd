"""Divide by multiplication with the reciprocal and one correction, or bit by bit where the divisor is computed.

    a ─▶ INTDIV by d ─▶ y       n = -|a| ─▶ RESCALE by 1/|d| ─▶ q = min(it + 1, 0) ─▶ q - 1 where n - q*|d| <= -|d|
                                ─▶ times -sign(a) * sign(d) ─▶ y

    a, d ─▶ INTDIV ─▶ y         n = -|a|, q = 0; for k = 30 .. 0, and 0 again: where ceil(n / 2^k) <= -|d|
                                n + 2^k * |d| ─▶ n, q - 2^k ─▶ q; then as above

Magnitudes are negative, for -2^31 has no positive one. RESCALE is off by less than 1/4 before it rounds, since the
multiplier has 31 bits, so min(it + 1, 0) is the quotient towards zero or one more, q*|d| is no larger than |a|, and the
remainder tells which. With a computed divisor it is long division: 2^k times the divisor fits into what is left, as
n <= -|d| * 2^k. Bits that a quotient cannot have are left out. Every value is identical.

Ethos-U55 and U65 have no INTDIV. Long division takes eleven operators for each bit of the quotient.
"""

from dataclasses import dataclass

from rewrites._int8_tables import single_value
from rewrites._int32 import MAXIMUM, MINIMUM, binary, bounded, mul, number, sub, times
from rewrites._shifts import LOWEST, rounded_shift
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.numerics.intervals import Interval

INTDIV = Capture(ops.IntDiv, operands=(None, None))


@dataclass(frozen=True)
class Plan:
    """The divisor, None where it is no single number; then the bits that a quotient can have."""

    divisor: int | None
    bits: int


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A division of INT32."""
    a, d = match[INTDIV].inputs
    if a.dtype != DType.INT32 or not context.options.acts(context.target):
        return None
    shape = match[INTDIV].output.shape
    if min(shape, default=1) < 1:
        return Refusal(f'"{match[INTDIV].output.name}" has the shape {list(shape)}, which is not static')
    divisor = single_value(d)
    if divisor == 0:
        return Refusal("it divides by 0, which TOSA does not define")
    if divisor == LOWEST:
        divisor = None
    largest, least = _largest(context.intervals.of(a)), _least(context.intervals.of(d))
    return Plan(divisor, (largest // least).bit_length())


def _largest(interval: Interval) -> int:
    return max(abs(interval.lowest), abs(interval.highest))


def _least(interval: Interval) -> int:
    """The smallest magnitude of a divisor, which is not 0."""
    return max(interval.lowest, -interval.highest, 1)


def replacement(match: Match, plan: Plan) -> Replacement:
    """The quotient of magnitudes, and its sign."""
    division = match[INTDIV]
    a, d = division.inputs
    builder = Builder(division.output.name, location=division.location, origin=RULE.name)
    if plan.divisor is None:
        quotient = _by_bits(builder, _magnitude(builder, a), _magnitude(builder, d), plan.bits)
        sign = mul(builder, _minus_sign(builder, a), sub(builder, number(builder, 0, d), _minus_sign(builder, d)))
    else:
        quotient = _by_reciprocal(builder, _magnitude(builder, a), abs(plan.divisor))
        sign = times(builder, _minus_sign(builder, a), 1 if plan.divisor > 0 else -1)
    return Replacement(builder.ops, {division.output: mul(builder, quotient, sign)})


def _magnitude(builder: Builder, x: Tensor) -> Tensor:
    """-|x|."""
    raised = binary(builder, MAXIMUM, x, number(builder, LOWEST + 1, x))
    return binary(builder, MINIMUM, x, sub(builder, number(builder, 0, x), raised))


def _minus_sign(builder: Builder, x: Tensor) -> Tensor:
    """1 where x is negative, else -1."""
    return builder.add(times(builder, bounded(builder, x, -1, 0), -2), number(builder, -1, x))


def _by_reciprocal(builder: Builder, n: Tensor, divisor: int) -> Tensor:
    """``n`` / ``divisor`` rounded up, for n up to 0."""
    if divisor == 1:
        return n
    bits = divisor.bit_length()
    if divisor == 1 << (bits - 1):
        near = builder.rescale(n, DType.INT32, 1 << 14, 13 + bits, scale32=False, name="near")
    else:
        multiplier = ((1 << (31 + bits)) // divisor + 1) // 2
        near = builder.rescale(n, DType.INT32, multiplier, 30 + bits, scale32=True, name="near")
    quotient = binary(builder, MINIMUM, builder.add(near, number(builder, 1, n)), number(builder, 0, n))
    rest = sub(builder, n, times(builder, quotient, divisor))
    fits = bounded(builder, builder.add(rest, number(builder, divisor, n)), 0, 1)
    return builder.add(quotient, sub(builder, fits, number(builder, 1, n)))


def _by_bits(builder: Builder, n: Tensor, divisor: Tensor, bits: int) -> Tensor:
    """``n`` / -``divisor`` rounded up, for n and divisor up to 0.

    Each step takes what it can, so the last one is needed twice for a quotient of 2^31, which has 32 bits.
    """
    quotient = number(builder, 0, n)
    for place in [*range(min(bits, 31) - 1, -1, -1), *([0] if bits > 31 else [])]:
        shifted = _rounded_up(builder, n, place)
        takes = bounded(builder, sub(builder, divisor, shifted), -1, 0)
        takes = builder.add(takes, number(builder, 1, takes))
        n = sub(builder, n, times(builder, mul(builder, takes, divisor), 1 << place))
        quotient = sub(builder, quotient, times(builder, takes, 1 << place))
    return quotient


def _rounded_up(builder: Builder, n: Tensor, place: int) -> Tensor:
    """``n`` / 2^place rounded up, for n up to 0: floor((n + 2^place - 1) / 2^place)."""
    if place == 0:
        return n
    moved = builder.add(n, number(builder, (1 << (place - 1)) - 1, n))
    return rounded_shift(builder, moved, number(builder, place, n))


RULE = Rule(
    name="intdiv_as_arithmetic",
    pattern=INTDIV,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Divide by multiplication with the reciprocal and one correction, or bit by bit where the divisor is "
    "computed.",
    options=ForSmallEthosU,
)
