"""Where the generators of graphs get their decisions: from a seed, or from Hypothesis (``strategies.Drawn``)."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Choices(ABC):
    """Decisions, one after the other. Small numbers and early options are the simple ones."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""

    def flag(self, share: float = 0.5) -> bool:
        """True in about ``share`` of all cases."""
        return self.integer(1, 100) > 100 - round(100 * share)

    def pick(self, options: Sequence[T]) -> T:
        """One of ``options``, of which there is at least one."""
        return options[self.integer(0, len(options) - 1)]

    def rng(self) -> np.random.Generator:
        """A generator for values in bulk."""
        return np.random.default_rng(self.integer(0, (1 << 32) - 1))


class Seeded(Choices):
    """Decisions that follow from a seed alone, the same on every machine."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included, all equally likely."""
        return self._random.randint(low, high)
