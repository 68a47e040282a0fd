"""What a rewrite promises about numbers, as data that the checks read."""

from dataclasses import dataclass


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

    ``because`` says where the difference comes from; it is not optional.
    """

    lsb: float
    because: str

    def __str__(self) -> str:
        return f"within {self.lsb:g} LSB ({self.because})"


@dataclass(frozen=True, slots=True)
class ChangesPrecision(Contract):
    """Values keep their real meaning but change dtype or scale; checked by the transform's own local contract."""

    because: str

    def __str__(self) -> str:
        return f"changes precision ({self.because})"
