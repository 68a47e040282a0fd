"""Element types: which one is blamed, and what the message offers instead."""

from tests.spec.nets import BOOL, F32, I8, I16, I32, I48, Block, Net, binary, conv, rescale, unary
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.dtypes import result_elements, type_faults
from tosakit.spec.signature import BlockScaled
from tosakit.spec.verify import verify


def found(net: Net) -> list[Diagnostic]:
    return verify(net.program())


def test_int16_convolution_with_int32_accumulator_breaks_three_types() -> None:
    net = Net(Block(), {})
    conv(net.main, dtype=I16, acc=I32)
    diagnostics = found(net)
    assert [d.code for d in diagnostics] == ["WrongBiasType", "WrongAccumulatorType", "WrongOutputType"]
    assert diagnostics[0].message == "bias is INT32, it must be INT48 with input INT16, weight INT8"
    assert diagnostics[1].message == "acc_type is INT32, it must be INT48 with input INT16, weight INT8"


def test_the_operand_that_differs_is_blamed() -> None:
    net = Net(Block(), {})
    binary(net.main, ops.Add(), (I32, [2]), (I16, [2]), (I32, [2]))
    (diagnostic,) = found(net)
    assert diagnostic.message == "input2 is INT16, it must be INT32 with input1 INT32"
    assert diagnostic.tensors == (net.main.graph.inputs[1].name,)


def test_an_undefined_type_lists_the_defined_ones() -> None:
    net = Net(Block(), {})
    binary(net.main, ops.Add(), (I16, [2]), (I16, [2]), (I16, [2]))
    (diagnostic,) = found(net)
    assert diagnostic.message == "input1 is INT16, ADD takes INT32, FP16, FP32 or BF16"


def test_int48_names_the_way_out() -> None:
    net = Net(Block(), {})
    unary(net.main, ops.Transpose((1, 0)), I48, [2, 3], (I48, [3, 2]))
    (diagnostic,) = found(net)
    assert diagnostic.message.endswith("; RESCALE it to INT32 or less first")


def test_int48_may_pass_identity_on_its_way_to_rescale() -> None:
    for dtype in (I8, I16, I32, I48):
        assert not type_faults("IDENTITY", 0, False, (dtype,), (dtype,), None)
    net = Net(Block(), {})
    rescale(net.main, source=I48, scale32=False)
    assert found(net) == []


def test_int48_may_be_read_by_identity_rescale_and_as_bias_only() -> None:
    readers: dict[str, list[int]] = {}
    for name, cls in ops.BY_NAME.items():
        for slot in range(len(cls.OPERANDS) if name not in ("CUSTOM", "COND_IF", "WHILE_LOOP") else 0):
            operands = [DType.UNKNOWN] * len(cls.OPERANDS)
            operands[slot] = I48
            if (name, slot) == ("RESCALE", 1):
                continue  # the multiplier's type depends on scale32, not on the table
            if not type_faults(name, 1, False, tuple(operands), (), None):
                readers.setdefault(name, []).append(slot)
    assert readers == {
        "CONV2D": [2],
        "CONV3D": [2],
        "DEPTHWISE_CONV2D": [2],
        "TRANSPOSE_CONV2D": [2],
        "IDENTITY": [0],
        "RESCALE": [0, 3],
    }


def test_a_condition_must_be_bool() -> None:
    net = Net(Block(), {})
    operands = [net.main.input(dtype, 2) for dtype in (I8, F32, F32)]
    net.main.op(ops.Select(), operands, (F32, [2]))
    (diagnostic,) = found(net)
    assert (diagnostic.code, diagnostic.message) == ("WrongInputType", "input1 is INT8, it must be BOOL")
    assert not type_faults("SELECT", 0, False, (BOOL, F32, F32), (F32,), None)


def test_an_operator_newer_than_the_file_is_judged_by_its_own_version() -> None:
    net = Net(Block(), {}, minor=0)
    operands = [net.main.input(I48, 1, 2, 4), net.main.input(F32, 1, 3, 4), net.main.const([0], I48)]
    net.main.op(ops.MatMulT(), [*operands, net.main.const([0.0], F32)], (F32, [1, 2, 3]))
    assert [d.code for d in found(net)] == ["NeedsNewerVersion", "WrongInputType", "WrongInputType"]


def test_accumulator_of_an_unknown_number() -> None:
    (fault,) = type_faults("AVG_POOL2D", 0, False, (I8, I8, I8), (I8,), 99)
    assert (fault.code, fault.message) == ("WrongAccumulatorType", "acc_type is number 99, which is no element type")


def test_block_scaled_weights_are_of_1_1() -> None:
    operands = (F32, BlockScaled(DType.FP8E4M3), F32, F32)
    assert not type_faults("MATMUL_T", 1, False, operands, (F32,), None)
    assert BlockScaled(DType.FP8E4M3).name == "block-scaled FP8E4M3"


def test_result_types_follow_where_they_are_unique() -> None:
    assert result_elements("ADD", 0, False, (I32, I32)) == (I32,)
    assert result_elements("CONV2D", 0, False, (I16, I8, I48, I16, I8)) == (I48,)
    assert result_elements("CAST", 0, False, (I8,)) == (None,)
    assert result_elements("EQUAL", 0, False, (F32, F32)) == (BOOL,)
