"""Programs that many tests run over: the files of the repository, those beside it, and random small graphs."""

import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.program import Program, Region
from tosakit.ir.types import encode

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.tosa"))
SHARED = sorted((Path(__file__).parents[3] / "shared" / "corpus").glob("models*/*.tosa"))

_SHAPE = (2,)


def small_program(rng: random.Random) -> Program:
    """A block of INT32 [2] with shared and equal constants, operands used twice, dead code, and odd outputs.

    Operators are ADD, SUB, MAXIMUM, IDENTITY and CONST; outputs may repeat, be inputs, or be constants.
    """
    graph = Graph("main")
    inputs = [graph.add_tensor(Tensor(f"x{i}", DType.INT32, _SHAPE)) for i in range(rng.randint(1, 3))]
    graph.set_inputs([*inputs, *rng.sample(inputs, rng.randint(0, 1))])
    values = list(inputs)
    for number in range(rng.randint(0, 16)):
        result = Tensor(f"t{number}", DType.INT32, _SHAPE)
        kind = rng.choice([ops.Const, ops.Const, ops.Add, ops.Sub, ops.Maximum, ops.Identity])
        if kind is ops.Const:
            result = Tensor(f"c{number}", DType.INT32, _SHAPE, encode([rng.randint(0, 1), 7], DType.INT32))
            graph.add_op(Op(ops.Const(), (), (result,)))
        else:
            operands = [rng.choice(values[-6:]) for _ in range(1 if kind is ops.Identity else 2)]
            graph.add_op(Op(kind(), operands, (result,)))
        values.append(result)
    graph.set_outputs([rng.choice(values[-3:] + inputs) for _ in range(rng.randint(1, 4))])
    return Program([Region("main", [graph])])


def small_programs() -> "st.SearchStrategy[Program]":
    """:func:`small_program` for Hypothesis."""
    return st.integers(0, 2**32).map(lambda seed: small_program(random.Random(seed)))


def copied(program: Program, dtypes: Sequence[DType] = (DType.INT16, DType.INT48)) -> Program:
    """The program with every INT32 input as the copy of one of another type, by turns."""
    graph = program.main
    wide = [t for t in graph.inputs if t.dtype == DType.INT32]
    for place, old in enumerate(wide):
        dtype = dtypes[place % len(dtypes)]
        new = graph.add_tensor(Tensor(f"{old.name}_{dtype.name.lower()}", dtype, old.shape))
        builder = Builder(old.name)
        copy = builder.rescale(new, DType.INT32, 1 << 14, 14, scale32=False)
        for op in builder.ops:
            graph.add_op(op)
        graph.replace_uses(old, copy)
        graph.set_inputs([new if t is old else t for t in graph.inputs])
        graph.drop_tensor(old)
    return program
