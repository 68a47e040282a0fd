"""Zero points: legal other than 0 for INT8 only; RESCALE has a rule of its own for unsigned INT16."""

from collections.abc import Mapping

import numpy as np

from tosakit.errors import InvalidModel
from tosakit.ir.enums import DType
from tosakit.ir.types import BITS
from tosakit.spec.call import AnyCall, Harmless


def check_zero_point(call: AnyCall, name: str, data: DType, code: str) -> None:
    """Report a constant zero point that is not 0 although ``data``, the type it belongs to, is not INT8."""
    tensor = call.tensor(name)
    call.consulted[name] = None
    if data == DType.INT8 or tensor.dtype not in BITS or not tensor.is_constant or not tensor.data:
        return
    try:
        values = tensor.values()
    except InvalidModel:  # too little data, reported at the constant
        return
    if np.any(values != 0):
        call.error(code, f"{name} is {values.reshape(-1)[0]}, it must be 0 for {data.name}", name)


def is_harmless(dtype: DType, low: int, high: int) -> bool:
    """True for a zero point that no rule objects to: of INT8, or 0."""
    return dtype == DType.INT8 or low == high == 0


def of(*names: str) -> Mapping[str, Harmless]:
    """When the zero points of these operands are harmless."""
    return {f"{name}_zp": is_harmless for name in names}
