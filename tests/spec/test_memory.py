"""What was learnt about earlier operators hides no fault of later ones, of types and constants or of values."""

import random

import pytest

from tests.spec.nets import I8, I16, I32, Block, Net
from tosakit.ir import ops
from tosakit.ir.enums import RoundingMode
from tosakit.ir.program import Program
from tosakit.numerics.program_intervals import assumptions
from tosakit.spec.check import check
from tosakit.spec.coarse import RangeCheck
from tosakit.spec.memory import Memory, Place
from tosakit.spec.target import Target
from tosakit.spec.verify import walk
from tosakit.testing.choices import Seeded
from tosakit.testing.programs import program as draw
from tosakit.testing.sketch import Space

PROGRAMS = 60


def damage(program: Program, rng: random.Random) -> None:
    """Give some constants other values."""
    constants = [op.output for op in program.main.ops if isinstance(op.attrs, ops.Const | ops.ConstShape)]
    for tensor in rng.sample(constants, min(len(constants), rng.randint(0, 2))):
        data = bytearray(tensor.data or b"")
        if data:
            data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 63, 127, 128, 255))
            tensor._data = bytes(data)


def structure(program: Program, memory: Memory) -> list[str]:
    return [str(found.diagnostic) for found in walk(program, Target.of(level="8k"), memory)]


def suspicions(program: Program, memory: Memory, *, exactly: bool) -> list[str]:
    """What is said of values; ``exactly``: by the analysis of the whole graph for every operator."""
    places: list[Place] = memory.places[program.main]
    if exactly:
        places = [(at, op, None) for at, op, _ in places]
    found = RangeCheck(memory, assumptions(program)).findings(places)
    return [f"{at} {finding.code} {finding.severity} {finding.message}" for at, _, finding in found]


@pytest.mark.parametrize("space", [Space(), Space(minor=1)], ids=["1.0", "1.1"])
def test_a_memory_of_other_programs_changes_nothing(space: Space) -> None:
    memory, rng, told = Memory(), random.Random(1), 0
    for seed in range(PROGRAMS):
        program = draw(Seeded(seed), space)
        damage(program, rng)
        fresh = Memory()
        expected = structure(program, fresh)
        assert structure(program, memory) == expected
        if expected:
            told += 1
            continue
        exact = suspicions(program, fresh, exactly=True)
        assert suspicions(program, memory, exactly=False) == exact
        told += bool(exact)
    assert told >= PROGRAMS // 5


def test_a_square_says_nothing_of_a_product() -> None:
    net = Net(Block(), {}, 0)
    block = net.main
    x, y = block.input(I16, 4), block.input(I16, 4)
    shift, least = block.const([0], I8), block.const([-(1 << 31) + (1 << 29)] * 4, I32)
    for factor in (x, y):
        product = block.op(ops.Mul(), [x, factor, shift], (I32, [4]))[0]
        block.op(ops.Add(), [product, least], (I32, [4]))
    (found,) = check(net.program())
    assert (found.code, found.severity, found.op_index) == ("ResultOverflow", "warning", 5)


def test_values_are_not_judged_behind_a_shift_of_a_wrong_rank() -> None:
    net = Net(Block(), {}, 0)
    block = net.main
    operands = [block.input(I32, 2, 3), block.const([1 << 30] * 3, I32), block.const([[[30] * 4] * 2], I8)]
    zeros = [block.const([0], I32), block.const([0], I8)]
    attrs = ops.Rescale(True, RoundingMode.SINGLE_ROUND, True, False, False)
    block.op(attrs, [*operands, *zeros], (I8, [2, 3]))
    assert [d.code for d in check(net.program())] == ["WrongRank"]


def test_a_shift_without_values_ends_nothing() -> None:
    net = Net(Block(), {}, 0)
    block = net.main
    operands = [block.input(I32, 2, 3), block.const([1 << 30], I32), block.raw(I8, [0], b"")]
    zeros = [block.const([0], I32), block.const([0], I8)]
    attrs = ops.Rescale(True, RoundingMode.SINGLE_ROUND, False, False, False)
    block.op(attrs, [*operands, *zeros], (I8, [2, 3]))
    assert [d for d in check(net.program()) if d.severity == "error"] == []
