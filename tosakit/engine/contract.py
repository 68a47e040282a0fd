"""What a rewrite promises about numbers, as data that the checks read."""

import math
from dataclasses import dataclass

PER_MATCH = math.inf
"""The bound of a rule that has none for all matches: no rewrite may make do with it."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Promise about the replaced values, given identical inputs to the replaced operators (not about model outputs)."""


@dataclass(frozen=True, slots=True)
class Exact(Contract):
    """Every replaced value is bit-identical wherever the original is predictable."""

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True, slots=True)
class WithinLsb(Contract):
    """Every replaced value is within ``lsb`` units in its last place, proved for the graph at hand.

    ``because`` says where the difference comes from; it is not optional. A rule whose every rewrite states a bound of
    its own has :data:`PER_MATCH` here.
    """

    lsb: float
    because: str

    def __str__(self) -> str:
        bound = "a bound computed per match" if self.lsb == PER_MATCH else f"{self.lsb:g} LSB"
        return f"within {bound} ({self.because})"


@dataclass(frozen=True, slots=True)
class ChangesPrecision(Contract):
    """Values keep their real meaning but change dtype or scale; checked by the transform's own local contract.

    ``lsb``, where it is known, is the largest distance of a new value, in units of its own last place, from what the
    replaced operators give in exact real arithmetic on the same operands.
    """

    because: str
    lsb: float | None = None

    def __str__(self) -> str:
        bound = "" if self.lsb is None else f", within {self.lsb:.4g} LSB of real arithmetic"
        return f"changes precision ({self.because}{bound})"
