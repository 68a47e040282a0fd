"""Interval analysis: what an integer tensor can hold. (Being written.)"""

from collections.abc import Iterable

from tosakit.ir.graph import Tensor


class Intervals:
    """Intervals of tensors, worked out on demand and remembered."""

    def forget(self, tensors: Iterable[Tensor]) -> None:
        """Forget the intervals of these tensors and of all that depends on them."""
