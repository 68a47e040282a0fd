"""Look up BITWISE_AND, BITWISE_OR and BITWISE_XOR in tables, half a byte at a time; compute BITWISE_NOT as -1 - x.

    a ─▶ bytes ─▶ halves h, l ─┬─ 16*ah + bh ─▶ TABLE ─┐
    b ─▶ bytes ─▶ halves h, l ─┴─ 16*al + bl ─▶ TABLE ─┴─▶ byte of the result ─▶ ADD of all, times 256^i ─▶ y

The operators treat every bit by itself, so every half of a byte too, and two halves make one of 256 codes. The highest
half is signed, -8..7, as the number is. With one constant operand the bytes themselves are looked up, and INT8 needs
nothing but that TABLE. -1 - x fits whatever x is. Every value is identical.

Ethos-U55 and U65 have no bitwise operators.
"""

from dataclasses import dataclass

import numpy as np

from rewrites._bytes import COUNT, WIDTH, Digit, digits_of, put_together
from rewrites._int8_tables import CODES, Function, single_value, table
from rewrites._int32 import UNIT, number, resized, sub, times
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Tensor

Bitwise = ops.BitwiseAnd | ops.BitwiseOr | ops.BitwiseXor | ops.BitwiseNot
BITWISE: Capture[Bitwise] = Capture(ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor, ops.BitwiseNot)

FUNCTIONS: dict[type, Function] = {
    ops.BitwiseAnd: np.bitwise_and,
    ops.BitwiseOr: np.bitwise_or,
    ops.BitwiseXor: np.bitwise_xor,
}


@dataclass(frozen=True)
class Plan:
    """The operand and the constant it is joined with, where one is a single number; else nothing."""

    constant: tuple[Tensor, int] | None


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A bitwise operator of static shape."""
    bitwise = match[BITWISE]
    if bitwise.output.dtype not in COUNT or not context.options.acts(context.target):
        return None
    if min(bitwise.output.shape, default=1) < 1:
        return Refusal(f'"{bitwise.output.name}" has the shape {list(bitwise.output.shape)}, which is not static')
    return Plan(_constant(bitwise))


def _constant(bitwise: AnyOp) -> tuple[Tensor, int] | None:
    if isinstance(bitwise.attrs, ops.BitwiseNot):
        return None
    for x, other in (bitwise.inputs, bitwise.inputs[::-1]):
        value = single_value(other) if other is not x else None
        if value is not None and x.shape == bitwise.output.shape:
            return x, value
    return None


def replacement(match: Match, plan: Plan) -> Replacement:
    """The number of each byte, put together again."""
    bitwise = match[BITWISE]
    builder = Builder(bitwise.output.name, location=bitwise.location, origin=RULE.name)
    if isinstance(bitwise.attrs, ops.BitwiseNot):
        return Replacement(builder.ops, {bitwise.output: _inverted(builder, bitwise.inputs[0])})
    function, dtype = FUNCTIONS[type(bitwise.attrs)], bitwise.output.dtype
    if plan.constant is not None:
        x, constant = plan.constant
        looked_up = [_with_constant(builder, digit, constant, function) for digit in digits_of(builder, x)]
        if dtype == DType.INT8:
            return Replacement(builder.ops, {bitwise.output: looked_up[0].value})
        parts = [(digit.place, _number(builder, digit)) for digit in looked_up]
    else:
        pairs = zip(*(digits_of(builder, tensor) for tensor in bitwise.inputs), strict=True)
        parts = [(a.place, _byte(builder, a, b, function)) for a, b in pairs]
    return Replacement(builder.ops, {bitwise.output: put_together(builder, parts, dtype)})


def _inverted(builder: Builder, x: Tensor) -> Tensor:
    """-1 - x; in INT8 a NEGATE of x less -1."""
    if x.dtype == DType.INT8:
        zero_points = (builder.number(-1, x.dtype, name="input1_zp"), builder.number(0, x.dtype, name="output_zp"))
        return builder.op(ops.Negate(), (x, *zero_points), x.dtype, x.shape)
    wide = resized(builder, x, DType.INT32)
    return resized(builder, sub(builder, number(builder, -1, wide), wide), x.dtype)


def _with_constant(builder: Builder, digit: Digit, constant: int, function: Function) -> Digit:
    """One byte, joined with the same byte of a constant."""
    other = constant >> digit.place
    if digit.zero_point:  # not the highest
        other %= 1 << WIDTH
    entries = function(CODES - digit.zero_point, np.array(other)) + digit.zero_point
    return Digit(table(builder, digit.value, entries), digit.zero_point, digit.place)


def _number(builder: Builder, digit: Digit) -> Tensor:
    """What a byte stands for in its place, as INT32."""
    return builder.rescale(digit.value, DType.INT32, *UNIT, scale32=True, input_zp=digit.zero_point)


def _byte(builder: Builder, a: Digit, b: Digit, function: Function) -> Tensor:
    """Two bytes joined, as INT32: the upper half, which is signed in the highest byte, and the lower half."""
    lowest = -8 if a.zero_point == 0 else 0
    upper_a, lower_a = _halves(builder, a)
    upper_b, lower_b = _halves(builder, b)
    upper = _joined(builder, upper_a, upper_b, lowest, function)
    lower = _joined(builder, lower_a, lower_b, 0, function)
    return builder.add(times(builder, upper, 16), lower)


def _halves(builder: Builder, digit: Digit) -> tuple[Tensor, Tensor]:
    """floor(d / 16) = R((d - 8) / 16) for the rounding R of RESCALE, and what is left."""
    if digit.value.is_constant:
        values = digit.value.values().astype(np.int64) - digit.zero_point
        return builder.const(values >> 4, DType.INT32), builder.const(values & 15, DType.INT32)
    multiplier, shift = UNIT
    upper = builder.rescale(
        digit.value, DType.INT32, multiplier, shift + 4, scale32=True, input_zp=digit.zero_point + 8, name="upper"
    )
    return upper, sub(builder, _number(builder, digit), times(builder, upper, 16))


def _joined(builder: Builder, a: Tensor, b: Tensor, lowest: int, function: Function) -> Tensor:
    """Halves of bytes from ``lowest`` to ``lowest`` + 15, joined, as INT32: a TABLE of 16*a + b less an offset."""
    sixteens = times(builder, a, 16)
    code = builder.rescale(
        builder.add(sixteens, b), DType.INT8, *UNIT, scale32=True, output_zp=-128 - 17 * lowest, name="code"
    )
    from_lowest = CODES + 128
    entries = function((from_lowest >> 4) + lowest, (from_lowest & 15) + lowest)
    return resized(builder, table(builder, code, entries), DType.INT32)


RULE = Rule(
    name="bitwise_as_tables",
    pattern=BITWISE,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Look up BITWISE_AND, BITWISE_OR and BITWISE_XOR in tables, half a byte at a time; "
    "compute BITWISE_NOT as -1 - x.",
    options=ForSmallEthosU,
)
