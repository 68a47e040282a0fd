"""Compute an int16 MATMUL as four int8 ones, on the high and the low bytes.

    a, b: int16 ─▶ MATMUL ─▶ int48 ─▶ RESCALE S16 (m, s) ─▶ y

    a = 256*ah + al ─┐    ah.bh ─▶ RESCALE m/2^s * 2^(16+g) ─┐
    b = 256*bh + bl ─┴─▶  ah.bl, al.bh ─▶ RESCALE 2^(8+g) ───┼─▶ ADD ─▶ RESCALE 2^-g ─▶ y
                          al.bl ─▶ RESCALE 2^g ──────────────┘

The high byte is floor(a/256) = R((a - 128)/256), the low byte a - 256*ah in [0, 255] is kept as int8 with zero point
-128, so the four INT32 products are exact and 2^16 ah.bh + 2^8 (ah.bl + al.bh) + al.bl = a.b. Each is scaled by
m/2^s exactly and rounded in units of 2^-g: the sum is off by four half units, 2^(1-g), before the last rounding. As
|R(p) - R(q)| <= ceil(|p - q|), results differ by at most ceil(2^(1-g)). g is the largest for which all sums are proved
to fit INT32.

Ethos-U55 and U65 have no int16 MATMUL.
"""

import math
from dataclasses import dataclass
from functools import reduce
from itertools import product

from rewrites._accumulator import Reader, readers_of
from rewrites._bytes import Digit, digits_of
from rewrites._channels import columns
from rewrites._when import ForSmallEthosU
from tosakit.backend.targets import takes
from tosakit.engine.contract import WithinLsb
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.numerics.intervals import Interval
from tosakit.numerics.scale import MAX_SHIFT, MIN_SHIFT

MATMUL = Capture(ops.MatMul)
GUARD_BITS = 13
"""More guard bits g than these gain nothing: the sum is then off by less than 2^-12 of y."""

HIGH, CROSS, LOW = 16, 8, 0
"""Bits that a product of two high bytes, of a high and a low byte, and of two low bytes stand above the result."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The RESCALEs that read the product, and the guard bits of each."""

    readers: tuple[tuple[Reader, int], ...]


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """An int16 MATMUL that only RESCALEs read, whose partial sums are proved to fit INT32."""
    matmul = match[MATMUL]
    wanted = context.options.when == "all" or not takes(matmul.name, matmul.inputs[0].dtype, context.target)
    if matmul.output.dtype != DType.INT48 or not wanted:
        return None
    a, b = matmul.inputs[:2]
    for tensor in (a, b):
        if min(tensor.shape) < 1:
            return Refusal(f'"{tensor.name}" has the shape {list(tensor.shape)}, which is not static')
    readers = readers_of(matmul.output)
    if isinstance(readers, Refusal):
        return readers
    if not readers.rescales:
        return None
    if readers.identities:
        return Refusal("an IDENTITY reads the product, which no longer exists in INT48")
    products = _products(context.intervals.of(a), context.intervals.of(b), a.shape[2])
    if max(products.values()) >= 1 << 31:
        return Refusal(f"a product of bytes can reach {max(products.values())} over {a.shape[2]} terms, past INT32")
    guarded: list[tuple[Reader, int]] = []
    for reader in readers.rescales:
        bits = _guard_bits(reader, products)
        if bits is None:
            return Refusal(
                f"{reader.name}: no guard bit is left, its multiplier and shift let a sum of bytes pass INT32"
            )
        guarded.append((reader, bits))
    return Plan(tuple(guarded))


def _products(a: Interval, b: Interval, terms: int) -> dict[int, int]:
    """Largest magnitude of the sums of byte products, by their place: cross products singly."""
    high = [max(abs(x.lowest >> 8), abs(x.highest >> 8)) for x in (a, b)]
    return {
        HIGH: terms * high[0] * high[1],
        CROSS: terms * 255 * max(high),
        LOW: terms * 255 * 255,
    }


def _lifted(reader: Reader, up: int) -> list[tuple[int, int]]:
    """The reader's scales times 2^up, exactly, as 31-bit multipliers and shifts: as large as shift 62 allows.

    The larger both are, the larger the values that TOSA lets them scale.
    """
    pairs = []
    for m, s in columns(reader.multiplier, reader.shift):
        lift = min(31 - m.bit_length(), MAX_SHIFT - s + up)
        pairs.append((m << lift, s - up + lift))
    return pairs


def _guard_bits(reader: Reader, products: dict[int, int]) -> int | None:
    """The most guard bits for which every scaled sum fits INT32 and every shift is legal; None below one."""
    total = products[HIGH] * 2**HIGH + 2 * products[CROSS] * 2**CROSS + products[LOW]
    for bits in range(GUARD_BITS, 0, -1):
        scaled = max(total * m * 2**bits >> s for m, s in columns(reader.multiplier, reader.shift))
        worst = scaled + len(products) + 1
        shifts = {place: [shift for _, shift in _lifted(reader, place + bits)] for place in products}
        legal = all(min(shift) >= MIN_SHIFT and max(shift) <= MAX_SHIFT for shift in shifts.values())
        in_range = legal and all(products[place] < 1 << (min(shift) - 1) for place, shift in shifts.items())
        if in_range and worst < 1 << 29:  # the last RESCALE's (2^30, 30 + g) takes all of these
            return bits
    return None


def replacement(match: Match, plan: Plan) -> Replacement:
    """Both operands in bytes, four products, and per reader the scaled sum."""
    matmul = match[MATMUL]
    a, b = matmul.inputs[:2]
    builder = Builder(matmul.output.name, location=matmul.location, origin=RULE.name)
    pairs = product(digits_of(builder, a), digits_of(builder, b))
    products = [(x.place + y.place, _product(builder, x, y)) for x, y in pairs]
    values: dict[Tensor, Tensor] = {}
    bound = 0
    for reader, bits in plan.readers:
        builder.location = reader.op.location
        parts = [
            builder.rescale(
                part,
                DType.INT32,
                *zip(*_lifted(reader, place + bits), strict=True),
                scale32=True,
                per_channel=reader.op.attrs.per_channel,
            )
            for place, part in products
        ]
        total = reduce(builder.add, parts)
        old = reader.op.output
        values[old] = builder.rescale(total, old.dtype, 1 << 30, 30 + bits, scale32=True, output_zp=reader.output_zp)
        bound = max(bound, math.ceil(2.0 ** (1 - bits)))
    contract = WithinLsb(bound, because="byte products are scaled and rounded one by one before they are added")
    return Replacement(builder.ops, values, contract, covers=(matmul, *(reader.op for reader, _ in plan.readers)))


def _product(builder: Builder, a: Digit, b: Digit) -> Tensor:
    """An int8 MATMUL with INT32 result."""
    zero_points = [builder.number(digit.zero_point, DType.INT8, name="zp") for digit in (a, b)]
    shape = (*a.value.shape[:2], b.value.shape[2])
    return builder.op(ops.MatMul(), (a.value, b.value, *zero_points), DType.INT32, shape, "product")


RULE = Rule(
    name="int16_matmul_as_int8",
    pattern=MATMUL,
    precondition=precondition,
    replacement=replacement,
    contract=WithinLsb(1, because="byte products are scaled and rounded one by one before they are added"),
    summary="Compute an int16 MATMUL as four int8 ones, on the high and the low bytes.",
    options=ForSmallEthosU,
)
