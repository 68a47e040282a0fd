"""For people who write rules: golden tests that a person can review."""

from tosakit.testing.golden import check_golden

__all__ = ["check_golden"]
