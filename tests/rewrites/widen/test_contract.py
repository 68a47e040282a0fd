"""The local contract notices what it is there to notice."""

from dataclasses import replace

import numpy as np
import pytest

from rewrites._widen.contract import local_contract
from rewrites._widen.convert import convert
from rewrites._widen.plan import make_plan
from rewrites._widen.writer import BlockWriter, Settings
from tests.support.int8 import ONE, Int8Net
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import encode

SETTINGS = Settings(smooth=False, clamp_all=True, rescale_form="one-step", fuses_identity=True)


def _written(program: Program, settings: Settings = SETTINGS) -> BlockWriter:
    writer = BlockWriter(make_plan(program, keeps_interface=False), program.main, settings)
    writer.begin()
    for op in program.main.ops:
        convert(writer, op)
    writer.finish()
    return writer


def _breaches(writer: BlockWriter, program: Program) -> list[str]:
    return list(local_contract([writer])(program, program))


def _replace_constant(writer: BlockWriter, old: Tensor, change: int) -> None:
    """Add ``change`` to a constant of the new graph."""
    new = Tensor(old.name, old.dtype, old.shape, encode(old.values().astype(np.int64) + change, old.dtype))
    from tosakit.ir.graph import Op

    writer.graph.add_op(Op(ops.Const(), (), (new,)), like=writer.graph.ops[0])
    writer.graph.replace_uses(old, new)


def _sum(scale: tuple[int, int] = ONE) -> Program:
    net = Int8Net()
    a, b = net.int8("a"), net.int8("b")
    wide = (net.widening(a, 3, "left", scale), net.widening(b, 4, "right", scale))
    total = net.op(ops.Add(), wide, DType.INT32, a.shape, "sum")
    return net.outputs(net.narrowing(total, 0, "y", (1 << 30, 31)))


def _convolution() -> Program:
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), [[[[2, 30]]]], [77], zero_point=8)
    return net.outputs(net.narrowing(acc, 4, "y", (1518500250, 37)))


def _table() -> Program:
    net = Int8Net()
    return net.outputs(net.table(net.int8(), np.arange(-128, 128), "y"))


@pytest.mark.refmodel
@pytest.mark.parametrize("make", [_sum, _convolution, _table])
def test_kept(make: "type[Program]") -> None:
    program = make()
    assert _breaches(_written(program), program) == []


@pytest.mark.refmodel
@pytest.mark.parametrize(
    ("make", "operator", "slot", "change"),
    [
        (_sum, "RESCALE", 2, 1),  # a widening shift: one operand halved
        (_convolution, "CONV2D", 2, 128),  # a bias one old unit too large
        (_convolution, "RESCALE", 1, 7),  # a multiplier 0.03 % too large
        (_table, "TABLE", 1, 1),  # entries one int16 step too large
    ],
)
def test_broken(make: "type[Program]", operator: str, slot: int, change: int) -> None:
    program = make()
    writer = _written(program)
    op = next(op for op in writer.graph.ops if op.name == operator)
    _replace_constant(writer, op.inputs[slot], change)
    assert len(_breaches(writer, program)) >= 1


@pytest.mark.refmodel
def test_a_lost_saturation_is_a_breach() -> None:
    net = Int8Net()
    program = net.outputs(net.requantize(net.int8(), DType.INT8, (1 << 30, 29), "y", input_zp=-5, output_zp=-5))
    writer = _written(program)
    [clamp] = [op for op in writer.graph.ops if op.name == "CLAMP"]
    native = writer.natives[program.main.outputs[0]]
    writer.natives[program.main.outputs[0]] = replace(native, tensor=clamp.inputs[0])
    assert len(_breaches(writer, program)) == 1


@pytest.mark.refmodel
@pytest.mark.parametrize(("bias", "breaches"), [(-(1 << 31), 0), (-(1 << 31) + (1 << 13), 1)])
def test_nothing_is_promised_where_an_accumulator_may_wrap_around(bias: int, breaches: int) -> None:
    """The reference model does not tell it, and goes on with the wrong sign; a channel that cannot is held to it."""
    net = Int8Net()
    acc = net.conv2d_int8(net.int8(), [[[[2, 30]]]], [bias], zero_point=8)
    program = net.outputs(net.narrowing(acc, 4, "y", (1518500250, 62)))
    writer = _written(program)
    assert _breaches(writer, program) == []
    bias_made = next(op for op in writer.graph.ops if op.name == "CONV2D").inputs[2]
    _replace_constant(writer, bias_made, 1 << 40)
    assert len(_breaches(writer, program)) == breaches


@pytest.mark.refmodel
def test_rounding_inside_a_piece_is_allowed_for_and_no_more() -> None:
    """Scale 1/3 rounds each operand: in the old graph by half an old unit, far more than one int16 LSB."""
    program = _sum((1431655765, 32))
    assert _breaches(_written(program), program) == []
    writer = _written(program)
    op = next(op for op in writer.graph.ops if op.name == "ADD")
    offset = writer.const(np.full((1, 1, 1, 1), 1 << 10), DType.INT32, "offset")
    moved = writer.emit(ops.Add(), (op.inputs[0], offset), DType.INT32, op.inputs[0], suffix="_moved")
    writer.graph.set_operand(op, 0, moved)
    assert len(_breaches(writer, program)) == 1
