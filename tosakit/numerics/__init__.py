"""The arithmetic of quantised TOSA graphs: real scales as multiplier and shift, and exact RESCALE."""

from tosakit.numerics.rescale import Rescaled, required_range, rescale, rescale_error_bound
from tosakit.numerics.scale import (
    MAX_SHIFT,
    MIN_SHIFT,
    MultiplierShift,
    ScaleUnderflowWarning,
    effective_scale,
    max_scale,
    multiplier_and_shift,
    scale_error,
)

__all__ = [
    "MAX_SHIFT",
    "MIN_SHIFT",
    "MultiplierShift",
    "Rescaled",
    "ScaleUnderflowWarning",
    "effective_scale",
    "max_scale",
    "multiplier_and_shift",
    "required_range",
    "rescale",
    "rescale_error_bound",
    "scale_error",
]
