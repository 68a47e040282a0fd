"""Element types of TOSA tensors and the bytes that hold them.

Layouts (TOSA flatbuffer form): little-endian; BOOL one byte; INT48 six bytes, sign-extended; INT4 and FP4 two to a
byte, low nibble first; FP6 four to three bytes, low bits first; SHAPE values are 64-bit integers.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.ir.enums import DType

Array = npt.NDArray[Any]

BITS: dict[DType, int] = {
    DType.BOOL: 8,
    DType.INT4: 4,
    DType.INT8: 8,
    DType.INT16: 16,
    DType.INT32: 32,
    DType.INT48: 48,
    DType.INT64: 64,
    DType.FP32: 32,
    DType.FP16: 16,
    DType.BF16: 16,
    DType.SHAPE: 64,
    DType.FP8E4M3: 8,
    DType.FP8E5M2: 8,
    DType.FP8UE8M0: 8,
    DType.FP6E2M3: 6,
    DType.FP6E3M2: 6,
    DType.FP4E2M1: 4,
    DType.MXINT8: 8,
}
"""Bits one element takes in a file."""

INTEGER_RANGES: dict[DType, tuple[int, int]] = {
    dtype: (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    for dtype, bits in (
        (DType.INT4, 4),
        (DType.INT8, 8),
        (DType.INT16, 16),
        (DType.INT32, 32),
        (DType.INT48, 48),
        (DType.INT64, 64),
        (DType.SHAPE, 64),
    )
}
"""Smallest and largest value of every signed integer type."""

_ENCODABLE: dict[DType, tuple[int, int]] = {**INTEGER_RANGES, DType.MXINT8: (-128, 127), DType.BOOL: (0, 1)}

_PLAIN: dict[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype("bool"),
    DType.INT8: np.dtype("int8"),
    DType.INT16: np.dtype("<i2"),
    DType.INT32: np.dtype("<i4"),
    DType.INT48: np.dtype("<i8"),
    DType.INT64: np.dtype("<i8"),
    DType.SHAPE: np.dtype("<i8"),
    DType.FP32: np.dtype("<f4"),
    DType.FP16: np.dtype("<f2"),
    DType.MXINT8: np.dtype("int8"),
}
_ML: dict[DType, str] = {
    DType.BF16: "bfloat16",
    DType.FP8E4M3: "float8_e4m3fn",
    DType.FP8E5M2: "float8_e5m2",
    DType.FP8UE8M0: "float8_e8m0fnu",
    DType.FP6E2M3: "float6_e2m3fn",
    DType.FP6E3M2: "float6_e3m2fn",
    DType.FP4E2M1: "float4_e2m1fn",
}


SHORT: Final = 128
"""Bytes up to which constants, mostly scales and zero points, are decoded once and remembered."""

_MAX_RANK = 32
_MAX_ELEMENTS = 1 << 59
"""What numpy can address, also where another dimension is 0."""


@dataclass(frozen=True, slots=True)
class QuantParams:
    """Affine quantisation of a tensor: real value = scale * (q - zero_point).

    ``scale`` has one entry, or one per index of ``axis``. Scales are finite and positive.
    """

    scale: tuple[float, ...]
    zero_point: int = 0
    axis: int | None = None

    def __post_init__(self) -> None:
        for index, scale in enumerate(self.scale):
            if not (0.0 < scale < float("inf")):
                raise InvalidArgument(f"quantisation scale {scale} at index {index} is not a finite positive number")
        if not self.scale or (self.axis is None and len(self.scale) != 1):
            raise InvalidArgument(f"{len(self.scale)} scales without an axis; per-tensor parameters have exactly one")


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type that holds values of ``dtype`` (INT4: int8, INT48: int64, small floats: ml_dtypes).

    Raises InvalidArgument for UNKNOWN.
    """
    if dtype in _PLAIN:
        return _PLAIN[dtype]
    if dtype in _ML:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _ML[dtype]))
    if dtype == DType.INT4:
        return np.dtype(np.int8)
    raise InvalidArgument(f"no numpy type holds elements of dtype {dtype.name}")


def byte_size(dtype: DType, shape: tuple[int, ...]) -> int:
    """Bytes that constant data of this dtype and shape takes in a file (without padding)."""
    return (math.prod(shape) * BITS.get(dtype, 0) + 7) // 8


def _unpack_bits(data: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    unpacked = np.unpackbits(data, bitorder="little")[: count * bits].reshape(count, bits)
    return np.packbits(unpacked, axis=1, bitorder="little").reshape(count)


def _pack_bits(codes: npt.NDArray[np.uint8], bits: int) -> bytes:
    unpacked = np.unpackbits(codes.reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    return np.packbits(unpacked.reshape(-1), bitorder="little").tobytes()


def decode(data: "memoryview | bytes", dtype: DType, shape: tuple[int, ...]) -> Array:
    """Values of constant ``data`` as a read-only array of :func:`numpy_dtype`; a view where the layout allows one.

    Trailing padding bytes are ignored. Raises InvalidModel where the data is too short for the shape, or the shape is
    impossible: a negative dimension, or more elements than an array can have.
    """
    if isinstance(data, bytes) and len(data) <= SHORT:
        return _decode_short(data, dtype, shape)
    return _decode(data, dtype, shape)


def _decode(data: "memoryview | bytes", dtype: DType, shape: tuple[int, ...]) -> Array:
    if min(shape, default=0) < 0:
        raise InvalidModel(f"constant of shape {list(shape)} has a negative dimension")
    count = math.prod(shape)
    if len(shape) > _MAX_RANK or (count or math.prod([size or 1 for size in shape])) > _MAX_ELEMENTS:
        raise InvalidModel(f"constant of shape {list(shape)} is larger than any array can be")
    need = byte_size(dtype, shape)
    if len(data) < need:
        raise InvalidModel(f"constant data has {len(data)} bytes, {dtype.name} {list(shape)} needs {need}")
    raw = np.frombuffer(data, np.uint8, count=need) if need else np.empty(0, np.uint8)
    bits = BITS.get(dtype, 0)
    if dtype == DType.INT48:
        wide = np.zeros((count, 8), np.uint8)
        wide[:, 2:] = raw.reshape(count, 6)
        values: Array = wide.view("<i8").reshape(shape)
        values >>= 16
    elif bits in (4, 6):
        codes = _unpack_bits(raw, bits, count)
        values = ((codes ^ 8).astype(np.int8) - 8) if dtype == DType.INT4 else codes.view(numpy_dtype(dtype))
        values = values.reshape(shape)
    elif dtype == DType.BOOL:
        values = (raw != 0).reshape(shape)
    else:
        values = raw.view(numpy_dtype(dtype)).reshape(shape)
    values.flags.writeable = False
    return values


_decode_short = lru_cache(maxsize=1 << 14)(_decode)


@lru_cache(maxsize=1 << 12)
def encode_number(value: int, dtype: DType) -> bytes:
    """:func:`encode` of one value, such as a zero point: few differ, so each is encoded once."""
    return encode(np.array([value]), dtype)


def encode(values: npt.ArrayLike, dtype: DType) -> bytes:
    """Bytes of constant ``values`` in the file's layout of ``dtype``.

    Raises InvalidArgument where an integer value is outside the dtype's range or is not integral.
    """
    array = np.asarray(values)
    if dtype in _ENCODABLE and array.size:
        low, high = _ENCODABLE[dtype]
        if array.dtype.kind not in "iub":
            raise InvalidArgument(f"values of numpy dtype {array.dtype} given for an {dtype.name} constant")
        smallest, largest = (array.item(),) * 2 if array.size == 1 else (int(array.min()), int(array.max()))
        if smallest < low or largest > high:
            raise InvalidArgument(
                f"constant values reach from {smallest} to {largest}, {dtype.name} holds {low} to {high}"
            )
    if dtype == DType.INT48:
        wide = np.ascontiguousarray(array, "<i8").reshape(-1, 1).view(np.uint8)
        return wide[:, :6].tobytes()
    bits = BITS.get(dtype, 0)
    if bits in (4, 6):
        codes = np.ascontiguousarray(array, numpy_dtype(dtype)).reshape(-1).view(np.uint8)
        return _pack_bits(codes, bits)
    return np.ascontiguousarray(array, numpy_dtype(dtype)).tobytes()
