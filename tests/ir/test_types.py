"""Constants as bytes: every dtype, packing, and what is refused."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.ir.enums import DType
from tosakit.ir.types import BITS, INTEGER_RANGES, QuantParams, byte_size, decode, encode, numpy_dtype

KNOWN = [dtype for dtype in DType if dtype != DType.UNKNOWN]


@pytest.mark.parametrize(
    ("dtype", "values", "data"),
    [
        (DType.INT48, [0], "000000000000"),
        (DType.INT48, [-1], "ffffffffffff"),
        (DType.INT48, [1 << 31], "000000800000"),
        (DType.INT48, [-(1 << 47)], "000000000080"),
        (DType.INT48, [(1 << 47) - 1], "ffffffffff7f"),
        (DType.INT48, [1, -2, 3], "010000000000feffffffffff030000000000"),
        (DType.INT4, [1, -2, 3], "e103"),
        (DType.INT4, [-8, 7], "78"),
        (DType.INT8, [-128, 127], "807f"),
        (DType.INT16, [-2], "feff"),
        (DType.INT32, [1 << 24], "00000001"),
        (DType.INT64, [-1], "ffffffffffffffff"),
        (DType.SHAPE, [3, 4], "03000000000000000400000000000000"),
        (DType.BOOL, [True, False], "0100"),
        (DType.FP32, [1.0], "0000803f"),
        (DType.FP16, [1.0], "003c"),
        (DType.BF16, [1.0], "803f"),
        (DType.FP8E4M3, [1.0], "38"),
        (DType.FP8E5M2, [1.0], "3c"),
        (DType.FP8UE8M0, [2.0], "80"),
        (DType.FP4E2M1, [0.5, 6.0, -1.0], "710a"),
        (DType.MXINT8, [-3], "fd"),
    ],
)
def test_known_bytes(dtype: DType, values: list[Any], data: str) -> None:
    assert encode(values, dtype).hex() == data
    assert decode(bytes.fromhex(data), dtype, (len(values),)).tolist() == values


@pytest.mark.parametrize(
    ("dtype", "kind"), [(DType.FP6E2M3, ml_dtypes.float6_e2m3fn), (DType.FP6E3M2, ml_dtypes.float6_e3m2fn)]
)
def test_six_bits_are_packed_from_the_lowest_up(dtype: DType, kind: type[Any]) -> None:
    """Against one long integer that holds all codes."""
    values = [1.0, -2.0, 0.25, 7.0, -0.5]
    codes = [int(np.array(value, kind).view(np.uint8)) & 0x3F for value in values]
    number = sum(code << 6 * index for index, code in enumerate(codes))
    data = number.to_bytes(4, "little")
    assert encode(values, dtype) == data
    assert decode(data, dtype, (5,)).tolist() == values


@pytest.mark.parametrize("dtype", INTEGER_RANGES)
@given(data=st.data())
def test_integers_come_back(dtype: DType, data: st.DataObject) -> None:
    low, high = INTEGER_RANGES[dtype]
    values = data.draw(st.lists(st.integers(low, high) | st.sampled_from([low, high, 0, -1]), max_size=9))
    array = np.array(values, np.int64)
    encoded = encode(array, dtype)
    assert len(encoded) == byte_size(dtype, array.shape)
    back = decode(encoded, dtype, array.shape)
    assert back.dtype == numpy_dtype(dtype)
    assert back.tolist() == values


@pytest.mark.parametrize("dtype", KNOWN)
def test_every_pattern_of_bytes_comes_back(dtype: DType) -> None:
    """All byte patterns of a few elements: what decode reads, encode writes (BOOL: 0 and 1 only)."""
    count = 24
    rng = np.random.default_rng(int(dtype))
    raw = rng.integers(0, 256, byte_size(dtype, (count,)), np.uint8)
    if dtype == DType.BOOL:
        raw &= 1
    values = decode(raw.tobytes(), dtype, (2, 12))
    assert values.shape == (2, 12)
    assert not values.flags.writeable
    assert encode(values, dtype) == raw.tobytes()


@pytest.mark.parametrize("dtype", KNOWN)
def test_short_padded_and_empty_data(dtype: DType) -> None:
    size = byte_size(dtype, (3,))
    assert size == (3 * BITS[dtype] + 7) // 8
    with pytest.raises(InvalidModel, match=f"has {size - 1} bytes, {dtype.name} .3. needs {size}"):
        decode(bytes(size - 1), dtype, (3,))
    assert decode(bytes(size + 5), dtype, (3,)).shape == (3,)
    assert decode(b"", dtype, (2, 0)).shape == (2, 0)
    assert decode(bytes(size), dtype, ()).shape == ()


def test_huge_and_negative_shapes_are_refused() -> None:
    with pytest.raises(InvalidModel, match="needs"):
        decode(bytes(8), DType.INT32, (1 << 20, 1 << 20))
    with pytest.raises(InvalidModel, match="negative"):
        decode(bytes(8), DType.INT32, (-1, 2))
    for shape in ((0, 1 << 31, 1 << 31), (0,) + (1,) * 40):
        with pytest.raises(InvalidModel, match="larger than any array"):
            decode(b"", DType.INT32, shape)
    assert decode(b"", DType.INT32, (0, 1 << 20)).shape == (0, 1 << 20)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1 << 47], DType.INT48),
        ([-(1 << 47) - 1], DType.INT48),
        ([1 << 31], DType.INT32),
        ([8], DType.INT4),
        ([-129], DType.INT8),
        ([300], DType.MXINT8),
        ([0.5], DType.INT8),
        ([1 << 70], DType.INT64),
        (["a"], DType.INT32),
        ([1], DType.UNKNOWN),
        ([2], DType.BOOL),
    ],
)
def test_values_outside_a_dtype_are_refused(values: npt.ArrayLike, dtype: DType) -> None:
    with pytest.raises(InvalidArgument):
        encode(values, dtype)


def test_int48_views_copy_nothing_else() -> None:
    """All other whole-byte types are views of the file."""
    data = np.arange(64, dtype=np.uint8)
    values = decode(memoryview(data.tobytes()), DType.INT16, (32,))
    assert values.base is not None
    unaligned = decode(memoryview(data.tobytes())[1:], DType.INT32, (3,))
    assert unaligned.tolist() == [0x04030201, 0x08070605, 0x0C0B0A09]


@pytest.mark.parametrize(
    ("scale", "axis"), [((), None), ((0.0,), None), ((-1.0,), None), ((float("nan"),), None), ((1.0, 2.0), None)]
)
def test_impossible_quantisation_parameters(scale: tuple[float, ...], axis: int | None) -> None:
    with pytest.raises(InvalidArgument):
        QuantParams(scale, 0, axis)
