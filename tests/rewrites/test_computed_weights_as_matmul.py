"""Convolutions by computed weights and biases are identical, for every kernel, stride, dilation and padding."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrites.computed_weights_as_matmul import RULE
from tests.support.ethos_u import FAMILIES, accepted, hazards
from tests.support.programs import copied
from tests.support.rules import apply, kept, names, refusal
from tests.support.single_operators import FORMS, Types, build
from tosakit.ir.enums import DType
from tosakit.ir.program import Program

U55 = FAMILIES[0]
KINDS = ("CONV2D", "DEPTHWISE_CONV2D")


def _net(
    kind: str = "CONV2D",
    dynamic: tuple[str, ...] = ("weight", "bias"),
    wide: bool = False,
    bounded: bool = True,
    **form: object,
) -> Program:
    """A convolution; ``dynamic`` operands are inputs, an INT32 one the copy of an INT16 input where ``bounded``."""
    x, acc = (DType.INT16, DType.INT48) if wide else (DType.INT8, DType.INT32)
    types: Types = {"in_t": x, "in_zp_t": x, "out_t": acc, "acc_t": acc} | dict.fromkeys(
        ("weight_t", "weight_zp_t"), DType.INT8
    )
    program = build(kind, types, FORMS[kind](types, dynamic=dynamic, **form))
    return copied(program, [DType.INT16]) if bounded else program


def test_golden(golden: Callable[..., None]) -> None:
    golden(RULE, options={RULE.name: RULE.options("all")})


@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_kernel_with_dilation_and_zero_points(kind: str) -> None:
    form = {
        "kernel": (2, 3),
        "stride": (2, 3),
        "dilation": (1, 2),
        "pad": (1, 0, 2, 3),
        "out": (2, 3),
        "zeros": (5, -7),
    }
    kept(apply(RULE, _net(kind, ic=3, oc=2, n=2, **form), when="all"), vectors=3)


@settings(max_examples=16)
@given(st.data())
def test_every_kernel_stride_dilation_and_padding(data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.integers(low, high)), data.draw(st.integers(low, high))

    kernel, stride, dilation = pair(1, 3), pair(1, 3), pair(1, 2)
    pad = tuple(
        data.draw(st.integers(0, (size - 1) * step)) for size, step in zip(kernel, dilation, strict=True) for _ in "ab"
    )
    axes = zip(kernel, stride, dilation, pad[::2], pad[1::2], strict=True)
    least = [max(1, -(-(before + after - (k - 1) * d) // s) + 1) for k, s, d, before, after in axes]
    out = tuple(size + data.draw(st.integers(0, 2)) for size in least)
    program = _net(
        data.draw(st.sampled_from(KINDS)),
        data.draw(st.sampled_from([("weight",), ("bias",), ("weight", "bias")])),
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pad=pad,
        out=out,
        n=data.draw(st.integers(1, 2)),
        ic=data.draw(st.integers(1, 3)),
        oc=data.draw(st.integers(1, 3)),
        zeros=pair(-128, 127),
    )
    kept(apply(RULE, program, when="all"), vectors=3)


def test_a_bias_alone_is_added_behind() -> None:
    result = apply(RULE, _net(dynamic=("bias",)), target=U55)
    assert sorted(names(result.program)) == ["ADD", "CONV2D", "RESCALE", "RESHAPE"]
    again = apply(RULE, result.program, target=U55)
    assert not again.events


def test_it_acts_only_where_a_target_needs_it() -> None:
    for kind in KINDS:
        assert apply(RULE, _net(kind), target=U55).events
        assert not apply(RULE, _net(kind), target="ethos-u85-256").events
        assert not apply(RULE, _net(kind, ()), target=U55).events


def test_it_refuses_what_may_pass_int32() -> None:
    reason = refusal(apply(RULE, _net(bounded=False), target=U55))
    assert reason == "72 products reach 1179648 and the bias 2147483648, which may pass INT32 together"


def test_it_refuses_int16_and_computed_zero_points() -> None:
    assert "INT48 sums of INT16 values" in refusal(apply(RULE, _net(wide=True), target=U55))
    assert '"input_zp" is no constant' in refusal(apply(RULE, _net(dynamic=("weight", "input_zp")), target=U55))


@pytest.mark.vela
@pytest.mark.parametrize("kind", KINDS)
def test_vela_takes_the_form(kind: str) -> None:
    program = _net(kind, pad=(1, 1, 1, 1), stride=(2, 2), oc=2)
    assert accepted(program, U55) == []
    result = apply(RULE, program, target=U55).program
    assert [hazard for hazard in hazards(result, U55) if "readers" not in hazard.message] == []
    assert accepted(result, U55) == [U55]
