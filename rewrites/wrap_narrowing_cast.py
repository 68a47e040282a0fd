"""Take a value modulo 2^w before a CAST to a type of w bits that may not hold it.

    x ─▶ CAST to INT8 ─▶ y     x - 2^w * floor(x / 2^w), less 2^w where that is 2^(w-1) or more ─▶ RESCALE to INT8 ─▶ y

A CAST keeps the low w bits. That is the number from -2^(w-1) to 2^(w-1) - 1 which differs from x by a multiple of 2^w;
the RESCALE of scale one has nothing to saturate. Every value is identical.

Vela compiles a narrowing CAST for Ethos-U55 and U65 into one that saturates.
"""

from dataclasses import dataclass

from rewrites._shifts import widened, wrapped
from rewrites._when import ForSmallEthosU
from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Refusal, Replacement, Rule
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.types import BITS, INTEGER_RANGES

CAST = Capture(ops.Cast, operands=(None,))
INTEGERS = (DType.INT8, DType.INT16, DType.INT32)


@dataclass(frozen=True)
class Plan:
    """The least value."""

    low: int


def precondition(match: Match, context: Context) -> Plan | Refusal | None:
    """A CAST between integers whose value may not fit the result."""
    cast = match[CAST]
    x, dtype = cast.inputs[0], cast.output.dtype
    if not context.options.acts(context.target) or x.dtype not in INTEGERS or dtype not in INTEGERS:
        return None
    interval, (least, most) = context.intervals.of(x), INTEGER_RANGES[dtype]
    if BITS[dtype] >= BITS[x.dtype] or (least <= interval.lowest and interval.highest <= most):
        return None
    if min(x.shape, default=1) < 1:
        return Refusal(f'"{x.name}" has the shape {list(x.shape)}, which is not static')
    return Plan(interval.lowest)


def replacement(match: Match, plan: Plan) -> Replacement:
    """The value modulo 2^w."""
    cast = match[CAST]
    builder = Builder(cast.output.name, location=cast.location, origin=RULE.name)
    y = wrapped(builder, widened(builder, cast.inputs[0]), cast.output.dtype, plan.low)
    return Replacement(builder.ops, {cast.output: y})


RULE = Rule(
    name="wrap_narrowing_cast",
    pattern=CAST,
    precondition=precondition,
    replacement=replacement,
    contract=Exact(),
    summary="Take a value modulo 2^w before a CAST to a type of w bits that may not hold it.",
    options=ForSmallEthosU,
)
