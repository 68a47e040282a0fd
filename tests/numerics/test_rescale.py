"""rescale against an oracle of Python integers, the cases of public bug reports, and the TOSA reference model."""

import itertools
import math
import pickle
import subprocess
import sys
from enum import IntEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tosakit.errors import InvalidArgument, Unsupported
from tosakit.numerics import (
    effective_scale,
    multiplier_and_shift,
    required_range,
    rescale,
    rescale_error_bound,
    scale_error,
)

INT32 = (-(1 << 31), (1 << 31) - 1)
INT48 = (-(1 << 47), (1 << 47) - 1)


def within(value, limits):
    return limits[0] <= value <= limits[1]


def oracle(value, m, s, scale32, double_round=False, input_zp=0, output_zp=0, limits=INT32):
    """Compute one element, in rational numbers where the code shifts; None if a requirement is broken."""
    v = value - input_zp
    if m < 0 or not 2 <= s <= 62 or not within(v, INT32 if scale32 else INT48):
        return None
    if scale32 and not -(2 ** (s - 1)) <= v < 2 ** (s - 1):
        return None
    half = Fraction(1, 2)
    if double_round and s > 31:
        half += Fraction(1 if v >= 0 else -1, 2 ** (s - 30))
    result = math.floor(Fraction(v * m, 2**s) + half)
    if not within(result, INT32) or not within(result + output_zp, INT32):
        return None
    return min(max(result + output_zp, limits[0]), limits[1])


def check(values, m, s, *, scale32, limits=INT32, out_bits=32, out_unsigned=False, double_round=False, **zero_points):
    found = rescale(
        values,
        m,
        s,
        scale32=scale32,
        out_bits=out_bits,
        out_unsigned=out_unsigned,
        rounding_mode="DOUBLE_ROUND" if double_round else "SINGLE_ROUND",
        **zero_points,
    )
    for value, got, unpredictable in zip(values, *(field.tolist() for field in found), strict=True):
        want = oracle(value, m, s, scale32, double_round, limits=limits, **zero_points)
        assert unpredictable == (want is None), value
        assert want is None or got == want, value


# --- cases of public bug reports ---


def test_rounds_halves_up():
    found = rescale(np.arange(-5, 6), 1 << 30, 31, scale32=True, out_bits=32)
    assert found.values.tolist() == [-2, -2, -1, -1, 0, 0, 1, 1, 2, 2, 3]
    assert not found.unpredictable.any()


def test_double_round_moves_away_from_zero():
    x = np.array([-6, -2, 2, 6], np.int32)
    for mode, want in [("SINGLE_ROUND", [-1, 0, 1, 2]), ("DOUBLE_ROUND", [-2, -1, 1, 2])]:
        found = rescale(x, 1 << 30, 32, scale32=True, out_bits=32, rounding_mode=mode)
        assert found.values.tolist() == want
    same = [
        rescale(x, 1 << 30, 31, scale32=True, out_bits=32, rounding_mode=mode).values.tolist()
        for mode in ("SINGLE_ROUND", "DOUBLE_ROUND")
    ]
    assert same[0] == same[1] == [-3, -1, 1, 3]  # shift 31 is not above 31


def test_scale_one_is_not_the_identity_of_int32_with_scale32():
    found = rescale([-536870913, -536870912, 536870911, 536870912], 1 << 30, 30, scale32=True, out_bits=32)
    assert found.unpredictable.tolist() == [True, False, False, True]
    assert found.values.tolist()[1:3] == [-536870912, 536870911]
    found = rescale([1 << 30, (1 << 30) - 1], 3 << 29, 31, scale32=True, out_bits=32)
    assert found.unpredictable.tolist() == [True, False]


def test_identity_of_int32_with_a_15_bit_multiplier():
    x = np.array([INT32[0], INT32[0] + 1, -1, 0, 1, INT32[1] - 1, INT32[1]])
    found = rescale(x, 1 << 14, 14, scale32=False, out_bits=32)
    assert found.values.tolist() == x.tolist()
    assert not found.unpredictable.any()


def test_int48_does_not_saturate_on_its_way_through_int32():
    accumulator = 1024 * 32767 * 127
    for out_bits in (32, 16, 8):
        assert rescale(accumulator, 1 << 14, 14, scale32=False, out_bits=out_bits).unpredictable
    found = rescale(accumulator, 1 << 14, 31, scale32=False, out_bits=16)
    assert (found.values, found.unpredictable) == (32511, False)


@pytest.mark.parametrize(("m", "s"), [(23272, 23), (16384, 14), (20000, 12)])
def test_the_same_pair_behind_an_identity_changes_nothing(m, s):
    accumulators = np.array([0, 1, -1, 1000, -77777, 9568945, 1 << 28, -(1 << 28), (1 << 29) + 1000])
    direct = rescale(accumulators, m, s, scale32=False, out_bits=16)
    copy = rescale(accumulators - 1000, 1 << 14, 14, scale32=False, out_bits=32)
    split = rescale(copy.values + 1000, m, s, scale32=False, out_bits=16)
    assert not copy.unpredictable.any()
    assert split.values.tolist() == direct.values.tolist()
    assert split.unpredictable.tolist() == direct.unpredictable.tolist()


def test_lifting_to_31_bits_loses_values_a_15_bit_multiplier_takes():
    for m, s, value in [(16384, 14, 1 << 29), (20000, 12, 1 << 28)]:
        assert not rescale(value, m, s, scale32=False, out_bits=16).unpredictable
        lifted = rescale(value, m << 16, s + 16, scale32=True, out_bits=16)
        assert lifted.unpredictable == (value >= 1 << (s + 15))
    assert rescale(1 << 29, 16384 << 16, 30, scale32=True, out_bits=16).unpredictable


def test_a_15_bit_multiplier_can_be_more_than_one_lsb_off():
    scale, accumulator = 0.0027741822493807726, 9568945
    m, s, error = multiplier_and_shift(scale, 16)
    assert (m, s) == (23272, 23)
    assert rescale(accumulator, m, s, scale32=False, out_bits=16).values == 26547
    exact = Fraction(scale) * accumulator
    assert float(exact) == pytest.approx(26545.997, abs=1e-3)
    assert error == scale_error(scale, m, s)
    bound = rescale_error_bound(scale, m, s, accumulator)
    assert 26547 - exact <= Fraction(float(bound))
    assert bound == pytest.approx(accumulator * scale * float(error) + 0.5)
    assert rescale_error_bound(scale, *multiplier_and_shift(scale, 32)[:2], accumulator) < 0.501


def test_two_rescales_are_not_one_with_the_product_of_the_scales():
    first = rescale(40000, 1 << 14, 14, scale32=False, out_bits=16)
    second = rescale(first.values, 1 << 14, 15, scale32=False, out_bits=16)
    assert second.values == 16384
    assert rescale(40000, 1 << 14, 15, scale32=False, out_bits=16).values == 20000


# --- against the oracle ---

m16, m32 = st.integers(0, (1 << 15) - 1), st.integers(0, (1 << 31) - 1)
legal_shift = st.integers(2, 62)


def spread(bits):
    """Integers of up to ``bits`` bits, of every magnitude, extremes included."""
    return st.integers(1, bits).flatmap(lambda b: st.integers(-(1 << (b - 1)), (1 << (b - 1)) - 1))


@given(st.lists(spread(48), min_size=1, max_size=6), m16 | st.integers(-(1 << 15), -1), legal_shift | spread(8))
@example([*INT48, 0], (1 << 15) - 1, 62)
@example([*INT48, 0, 1, -1], (1 << 15) - 1, 2)
@example([1, -1], 0, 127)
def test_any_16_bit_multiplier(values, m, s):
    check(values, m, s, scale32=False)


@given(
    st.lists(spread(48) | spread(32), min_size=1, max_size=6),
    m32 | st.integers(-(1 << 31), -1),
    legal_shift | spread(8),
    st.booleans(),
)
@example([*INT32, 0, 1, -1], (1 << 31) - 1, 62, True)
@example([*INT32, 0, 1, -1, *INT48], (1 << 31) - 1, 32, True)
@example([-3, -2, -1, 0, 1, 2], (1 << 31) - 1, 2, False)
def test_any_32_bit_multiplier(values, m, s, double_round):
    check(values, m, s, scale32=True, double_round=double_round)


@given(
    st.lists(spread(18), min_size=1, max_size=8),
    m16,
    st.integers(2, 20),
    st.sampled_from([(8, False), (8, True), (16, False), (16, True), (32, False)]),
    st.integers(-128, 255) | st.sampled_from([32768, -32768]),
    st.integers(-128, 255) | st.sampled_from([32768, -32768]),
)
def test_zero_points_and_saturation(values, m, s, out, input_zp, output_zp):
    bits, unsigned = out
    limits = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    check(
        values,
        m,
        s,
        scale32=False,
        limits=limits,
        out_bits=bits,
        out_unsigned=unsigned,
        input_zp=input_zp,
        output_zp=output_zp,
    )


@pytest.mark.parametrize(("value", "output_zp"), [(INT32[1], 1), (INT32[1] - 1, 1), (INT32[0], -1), (INT32[0] + 1, -1)])
def test_the_sum_with_the_output_zero_point_has_to_fit_int32(value, output_zp):
    found = rescale(value, 1 << 14, 14, scale32=False, out_bits=8, output_zp=output_zp)
    assert found.unpredictable == (value in INT32)


def test_an_input_zero_point_can_take_a_value_out_of_range():
    found = rescale([INT48[0], INT48[0] + 1], 1, 40, scale32=False, out_bits=32, input_zp=1)
    assert found.unpredictable.tolist() == [True, False]
    found = rescale([INT32[0], INT32[0] + 1], 1, 40, scale32=True, out_bits=32, input_zp=1)
    assert found.unpredictable.tolist() == [True, False]


def test_per_channel_follows_the_last_axis():
    values = np.arange(-12, 12, dtype=np.int32).reshape(2, 4, 3)
    m, s = np.array([16384, 20000, -1], np.int16), np.array([14, 16, 14], np.int8)
    found = rescale(values, m, s, scale32=False, out_bits=16, per_channel=True)
    assert found.unpredictable.any(axis=(0, 1)).tolist() == [False, False, True]
    assert found.unpredictable.all(axis=(0, 1)).tolist() == [False, False, True]
    for channel in (0, 1):
        alone = rescale(values[..., channel], m[channel], s[channel], scale32=False, out_bits=16)
        assert found.values[..., channel].tolist() == alone.values.tolist()


def test_shapes_and_dtypes():
    for values in (5, [5], [[5, 6]], np.zeros((0, 3), np.int8), np.array(5, np.uint8)):
        for multiplier, shift in [(16384, 14), ([16384], [14])]:
            found = rescale(values, multiplier, shift, scale32=False, out_bits=16, input_zp=[0], output_zp=[0])
            assert found.values.shape == found.unpredictable.shape == np.shape(values)
            assert (found.values.dtype, found.unpredictable.dtype) == (np.int64, np.bool_)
    assert (
        rescale(np.zeros((0, 3), np.int8), [1] * 3, [2] * 3, scale32=True, out_bits=8, per_channel=True).values.size
        == 0
    )


class Rounding(IntEnum):
    SINGLE_ROUND = 1
    INEXACT_ROUND = 2
    DOUBLE_ROUND = 3


def test_rounding_mode_is_a_name_or_an_enum_member():
    for mode in Rounding.SINGLE_ROUND, Rounding.DOUBLE_ROUND:
        found = [rescale(-2, 1 << 30, 32, scale32=True, out_bits=32, rounding_mode=m).values for m in (mode, mode.name)]
        assert found[0] == found[1] == {1: 0, 3: -1}[mode]
    for mode in (Rounding.INEXACT_ROUND, "INEXACT_ROUND"):
        with pytest.raises(Unsupported, match="no single right result"):
            rescale(1, 1, 2, scale32=True, out_bits=32, rounding_mode=mode)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounding_mode": "UNKNOWN"}, "'UNKNOWN' is no rounding mode"),
        ({"rounding_mode": "DOUBLE_ROUND"}, "DOUBLE_ROUND needs scale32"),
        ({"out_bits": 48}, "no signed output of 48 bits"),
        ({"out_bits": 32, "out_unsigned": True}, "no unsigned output of 32 bits"),
        ({"multiplier": 1 << 15}, r"a multiplier, 32768, is outside its dtype, INT16 \(\[-32768, 32767\]\)"),
        ({"multiplier": 1 << 31, "scale32": True}, "a multiplier, 2147483648, is outside its dtype, INT32"),
        ({"shift": 128}, "a shift, 128, is outside its dtype, INT8"),
        ({"multiplier": [1, 2], "shift": [2, 2]}, r"shape \[2\] though per_channel is false"),
        ({"multiplier": [1, 2], "shift": [2]}, r"multiplier has shape \[2\], shift \[1\]"),
        ({"multiplier": [1, 2], "shift": [2, 2], "per_channel": True}, r"shape \[2\].*values of shape \[3\]"),
        ({"values": 5, "per_channel": True}, "rank 0"),
        ({"values": [1 << 47]}, "a value, 140737488355328, is outside INT48"),
        ({"values": [1.5]}, "values must hold integers"),
        ({"values": [1 << 64]}, "values must hold integers"),
        ({"values": [True]}, "values must hold integers"),
        ({"values": [[1], [2, 3]]}, "values is a ragged list"),
        ({"multiplier": 0.5}, "multiplier must hold integers"),
        ({"input_zp": 65536}, "what input_zp can be"),
        ({"output_zp": -32769}, "what output_zp can be"),
        ({"output_zp": [1, 2]}, "output_zp has 2 values"),
        ({"output_zp": []}, "output_zp has 0 values"),
    ],
)
def test_what_no_rescale_has_is_an_error(change, message):
    arguments = {"values": [1, 2, 3], "multiplier": 1, "shift": 2, "scale32": False, "out_bits": 16, **change}
    with pytest.raises(InvalidArgument, match=message):
        rescale(**arguments)


# --- required_range ---


@given(m16 | m32, legal_shift, st.booleans(), st.integers(-128, 255) | st.sampled_from([-32768, 32768]))
@example(1, 62, False, 0)
@example(0, 2, False, 0)
@example(32767, 2, False, 0)
@example(16384, 14, False, 255)
@example((1 << 31) - 1, 62, True, 32768)
def test_required_range_ends_where_the_mask_begins(m, s, scale32, output_zp):
    assume(scale32 or m < 1 << 15)
    ends = [int(end) for end in required_range(m, s, scale32=scale32, output_zp=output_zp)]
    outside = [value for value in (ends[0] - 1, ends[1] + 1) if within(value, INT48)]
    values = [*ends, 0, *outside]
    found = rescale(values, m, s, scale32=scale32, out_bits=32, output_zp=output_zp)
    assert ends[0] <= 0 <= ends[1]
    assert found.unpredictable.tolist() == [False, False, False] + [True] * len(outside)


def test_required_range_of_known_pairs():
    def ends(*args, **kwargs):
        return tuple(end.tolist() for end in required_range(*args, **kwargs))

    assert ends(1 << 30, 30, scale32=True) == (-(1 << 29), (1 << 29) - 1)
    assert ends(1 << 30, 40, scale32=True) == INT32
    assert ends(1 << 14, 14, scale32=False) == INT32
    assert ends(1, 62, scale32=False) == INT48
    assert ends([1 << 14, 1], [14, 62], scale32=False) == ([INT32[0], INT48[0]], [INT32[1], INT48[1]])
    for m, s in [(-1, 2), (1, 1), (1, 63)]:
        with pytest.raises(InvalidArgument, match=f"multiplier {m}, shift {s} is not a legal RESCALE pair"):
            required_range([1, m], [2, s], scale32=False)


# --- rescale_error_bound ---


@given(
    st.floats(2**-40, 100),
    st.sampled_from([(16, False), (32, False), (32, True)]),
    spread(40),
    st.integers(-2, 2),
)
def test_the_error_bound_holds(scale, kind, value, nudge):
    width, double_round = kind
    m, s, _ = multiplier_and_shift(scale, width)
    m = np.clip(m + nudge, 0, (1 << (width - 1)) - 1)  # the pair may be any, not only the best
    mode = "DOUBLE_ROUND" if double_round else "SINGLE_ROUND"
    found = rescale(value, m, s, scale32=width == 32, out_bits=32, rounding_mode=mode)
    assume(not found.unpredictable)
    error = abs(int(found.values) - Fraction(scale) * value)
    assert error <= Fraction(float(rescale_error_bound(scale, m, s, abs(value), rounding_mode=mode)))


def test_the_error_bound_is_reached():
    found = rescale(3, 1 << 14, 15, scale32=False, out_bits=16)  # 1.5 rounds to 2
    assert rescale_error_bound(0.5, 1 << 14, 15, 3) == found.values - 1.5 == 0.5
    bound = rescale_error_bound(0.25, 1 << 30, 32, 1, rounding_mode="DOUBLE_ROUND")
    found = rescale(1, 1 << 30, 32, scale32=True, out_bits=16, rounding_mode="DOUBLE_ROUND")  # 0.25 rounds to 1
    assert bound == found.values - 0.25 == 0.75


def test_the_error_bound_is_rounded_up_and_broadcasts():
    scales = [1 / 3, Fraction(1, 3), 1e300]
    bounds = rescale_error_bound(scales, 21845, 16, [10**9, 10**9, (1 << 47)])
    for scale, bound, largest in zip(scales[:2], bounds.tolist(), [10**9] * 2, strict=False):
        exact = largest * abs(Fraction(21845, 1 << 16) - Fraction(scale)) + Fraction(1, 2)
        assert Fraction(math.nextafter(bound, 0)) < exact <= Fraction(bound)
    assert rescale_error_bound(1e300, 1, 2, 1 << 47).shape == ()
    assert rescale_error_bound(1.7e308, 1, 2, 1 << 47) == math.inf
    for arguments, message in [
        ((0.5, 1, 2, -1), "max_abs_value -1 is negative"),
        ((0.5, 1, 1, 1), "a shift, 1, is outside what RESCALE takes"),
        ((-0.5, 1, 2, 1), "not a finite positive"),
        (([0.5, 0.5], [1, 1, 1], 2, 1), "shapes do not fit"),
    ]:
        with pytest.raises(InvalidArgument, match=message):
            rescale_error_bound(*arguments)


def test_the_error_bound_agrees_with_the_relative_error():
    scales = np.array([0.001, 0.7, 3.3])
    m, s, error = multiplier_and_shift(scales, 16)
    assert effective_scale(m, s) == pytest.approx(scales, rel=2**-15)
    assert rescale_error_bound(scales, m, s, 10**6) == pytest.approx(10**6 * scales * error + 0.5)


# --- against the TOSA reference model ---

BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT48": 48}

# Runs in a child process, because the model can take its process down. A pipe brings the cases and takes the answers.
RUN_MODEL = """
import pickle, sys, tosa_reference_model
answers = []
for graph, inputs in pickle.load(sys.stdin.buffer):
    outputs, status = tosa_reference_model.run(graph, inputs)
    answers.append((status.name, outputs[0]))
pickle.dump(answers, sys.stdout.buffer)
"""


class Case(NamedTuple):
    in_type: str
    out_type: str
    scale32: bool
    per_channel: bool
    mode: str
    input_unsigned: bool
    output_unsigned: bool
    values: np.ndarray  # numbers, not bit patterns
    multiplier: list[int]
    shift: list[int]
    input_zp: int
    output_zp: int


def signed(value, bits):
    """Return the two's complement reading of an unsigned number, as constants and inputs store it."""
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def model_input(case):
    """Return a graph of one RESCALE and its inputs. The binding takes no INT48 input, so those values are a CONST."""
    ts = pytest.importorskip("tosa_serializer")
    in_type, out_type = ts.DType.__members__[case.in_type], ts.DType.__members__[case.out_type]
    stored = np.vectorize(lambda v: signed(v, BITS[case.in_type]), otypes=[np.int64])(case.values)
    builder = ts.TosaSerializer("")
    if case.in_type == "INT48":
        builder.addConst(stored.shape, in_type, stored, "x")
        inputs = []
    else:
        builder.addInputTensor(ts.TosaSerializerTensor("x", stored.shape, in_type))
        inputs = [stored.astype(f"int{BITS[case.in_type]}")]
    multiplier_type = ts.DType.INT32 if case.scale32 else ts.DType.INT16
    builder.addConst([len(case.multiplier)], multiplier_type, case.multiplier, "multiplier")
    builder.addConst([len(case.shift)], ts.DType.INT8, case.shift, "shift")
    builder.addConst([1], in_type, [signed(case.input_zp, BITS[case.in_type])], "input_zp")
    builder.addConst([1], out_type, [signed(case.output_zp, BITS[case.out_type])], "output_zp")
    output = builder.addOutput(stored.shape, out_type)
    attribute = ts.TosaSerializerAttribute()
    rounding = ts.RoundingMode.__members__[case.mode]
    attribute.RescaleAttribute(case.scale32, rounding, case.per_channel, case.input_unsigned, case.output_unsigned)
    names = ["x", "multiplier", "shift", "input_zp", "output_zp"]
    builder.addOperator(ts.Op.RESCALE, names, [output.name], attribute)
    return bytes(builder.serialize()), inputs


def run_model(cases):
    """Return (status name, output numbers) of each case, from one child process."""
    request = pickle.dumps([model_input(case) for case in cases])
    child = subprocess.run(
        [sys.executable, "-c", RUN_MODEL], input=request, capture_output=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stderr[-2000:]
    answers = []
    for case, (status, output) in zip(cases, pickle.loads(child.stdout), strict=True):
        numbers = output.view(f"uint{BITS[case.out_type]}") if case.output_unsigned else output
        answers.append((status, numbers.astype(np.int64)))
    return answers


def run_numpy(case):
    return rescale(
        case.values,
        case.multiplier,
        case.shift,
        scale32=case.scale32,
        out_bits=BITS[case.out_type],
        out_unsigned=case.output_unsigned,
        input_zp=case.input_zp,
        output_zp=case.output_zp,
        rounding_mode=case.mode,
        per_channel=case.per_channel,
    )


def zero_point(rng, dtype, unsigned):
    if dtype == "INT8":
        return int(rng.integers(0, 256) if unsigned else rng.integers(-128, 128))
    return int(rng.choice([0, 1 << 15])) if unsigned and dtype == "INT16" else 0


def legal_operators():
    """Yield every combination of dtypes, flags and rounding modes that a RESCALE can have."""
    flags = itertools.product([False, True], repeat=4)
    for (scale32, per_channel, input_unsigned, output_unsigned), mode, in_type, out_type in itertools.product(
        list(flags), ["SINGLE_ROUND", "DOUBLE_ROUND"], BITS, ["INT8", "INT16", "INT32"]
    ):
        wide_in, wide_out = in_type in ("INT32", "INT48"), out_type == "INT32"
        legal = (
            (scale32 or mode == "SINGLE_ROUND")
            and not (scale32 and in_type == "INT48")
            and not (input_unsigned and (output_unsigned or wide_in or wide_out))
            and not (output_unsigned and (wide_in or wide_out))
        )
        if legal:
            yield in_type, out_type, scale32, per_channel, mode, input_unsigned, output_unsigned


def output_range(case):
    bits = BITS[case.out_type]
    return (0, (1 << bits) - 1) if case.output_unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def draw_case(rng, operator):
    """Draw constants, and values at the ends of the dtype and of what the pair takes, at ties, around 0, and random."""
    in_type, out_type, scale32, per_channel, _, input_unsigned, output_unsigned = operator
    bits, channels = BITS[in_type], 3 if per_channel else 1
    # A scale that brings some of the input range to some of the output range, sometimes beyond it.
    scale = 2.0 ** (BITS[out_type] - bits + rng.uniform(-2, 4, channels))
    multiplier, shift, _ = multiplier_and_shift(np.minimum(scale, 8000), 32 if scale32 else 16)
    if rng.random() < 0.5:  # a power of two, for ties
        multiplier = np.full_like(multiplier, 1 << (30 if scale32 else 14))
    input_zp = zero_point(rng, in_type, input_unsigned)
    output_zp = zero_point(rng, out_type, output_unsigned)
    low, high = (0, (1 << bits) - 1) if input_unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    first, last = required_range(multiplier, shift, scale32=scale32, output_zp=output_zp)
    columns = []
    starts, ends = np.maximum(first + input_zp, low), np.minimum(last + input_zp, high)
    for m, s, start, end in zip(multiplier, shift, starts, ends, strict=True):
        tie = (1 << (int(s) - 1)) // max(int(m), 1)
        near = [start, start + 1, end - 1, end, input_zp, input_zp + 1, input_zp - 1]
        near += [input_zp + sign * k * tie for k in (1, 3, 5) for sign in (1, -1)]
        magnitudes = (2.0 ** rng.uniform(0, bits - 1, 11)).astype(np.int64) * rng.choice([-1, 1], 11)
        columns.append(np.clip(np.concatenate([near, magnitudes]), start, end))
    values = np.stack(columns, axis=-1) if per_channel else columns[0].reshape(2, 3, 4)
    return Case(*operator, values, multiplier.tolist(), shift.tolist(), input_zp, output_zp)


@pytest.mark.refmodel
def test_same_as_the_reference_model():
    rng = np.random.default_rng(7)
    cases = [draw_case(rng, operator) for operator in legal_operators() for _ in range(6)]
    saturated = ties = 0
    for case, (status, output) in zip(cases, run_model(cases), strict=True):
        found = run_numpy(case)
        assert not found.unpredictable.any(), case
        assert status == "TOSA_VALID", case
        assert found.values.tolist() == output.tolist(), case
        v = (case.values - case.input_zp).astype(object) * np.array(case.multiplier, object)
        shift = np.array(case.shift, object)
        saturated += np.any(found.values == output_range(case)[1])
        ties += np.any(v % 2**shift == 2 ** (shift - 1))
    assert len(cases) > 300
    assert min(saturated, ties) > len(cases) // 5  # the draw reaches what random data would miss


@pytest.mark.refmodel
def test_what_is_reported_as_unpredictable_is_so_in_the_reference_model():
    rng = np.random.default_rng(8)
    cases = []
    for operator in legal_operators():
        in_type, _, scale32, per_channel, _, input_unsigned, _ = operator
        if per_channel:
            continue
        bits = BITS[in_type]
        low, high = (0, (1 << bits) - 1) if input_unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        for _ in range(8):
            case = draw_case(rng, operator)
            kind = int(rng.integers(4))
            m = [-int(rng.integers(1, 1 << 15))] if kind == 0 else case.multiplier
            s = [int(rng.choice([-128, -1, 0, 1, 63, 127]))] if kind == 1 else case.shift
            value = int(rng.integers(low, high, endpoint=True))
            if kind >= 2:
                first, last = required_range(m, s, scale32=scale32, output_zp=case.output_zp)
                ends = [int(first[0]) + case.input_zp - 1, int(last[0]) + case.input_zp + 1]
                value = int(rng.choice([end for end in ends if low <= end <= high] or [value]))
            cases.append(case._replace(values=np.array([value]), multiplier=m, shift=s))
    seen = {"TOSA_VALID": 0, "TOSA_UNPREDICTABLE": 0}
    for case, (status, _) in zip(cases, run_model(cases), strict=True):
        assert (status == "TOSA_UNPREDICTABLE") == bool(run_numpy(case).unpredictable.item()), case
        seen[status] += 1
    assert min(seen.values()) > len(cases) // 10
