"""Graphs to measure tosakit on, and a rule that fires everywhere in them."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture, Match
from tosakit.engine.rule import Context, Replacement, Rule
from tosakit.io.files import map_file
from tosakit.ir import ops
from tosakit.ir.build import Builder
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.program import Program, Region

OPERATORS_PER_LINK = 12


def _block() -> tuple[Graph, Tensor]:
    graph = Graph("main")
    x = graph.add_tensor(Tensor("input", DType.INT16, (1, 8)))
    graph.set_inputs([x])
    return graph, x


def _program(graph: Graph, *outputs: Tensor) -> Program:
    graph.set_outputs(outputs)
    return Program([Region("main", [graph])])


def chain(operators: int) -> Program:
    """An int16 chain of about ``operators`` operators: RESCALE, ADD of a constant, RESCALE, with their constants."""
    graph, x = _block()
    for number in range(operators // OPERATORS_PER_LINK):
        builder = Builder(f"link{number}")
        wide = builder.rescale(x, DType.INT32, 1 << 30, 30, scale32=True, name="wide")
        total = builder.add(wide, builder.const(np.full((1, 8), number % 7), DType.INT32, "term"))
        x = builder.rescale(total, DType.INT16, 1 << 30, 30, scale32=True, name="narrow")
        for op in builder.ops:
            graph.add_op(op)
    return _program(graph, x)


def unshared(operators: int) -> Program:
    """The same chain with a multiplier, a shift and an addend for each of 8 channels, no constant like another."""
    graph, x = _block()
    channels = np.arange(8)
    for number in range(operators // OPERATORS_PER_LINK):
        builder = Builder(f"link{number}")
        multipliers, shifts = (1 << 30) + 8 * number + channels, 30 + channels % 3
        wide = builder.rescale(x, DType.INT32, multipliers, shifts, scale32=True, name="wide")
        addend = builder.const((8 * number + channels).reshape(1, 8), DType.INT32, "term")
        narrow = builder.add(wide, addend)
        x = builder.rescale(narrow, DType.INT16, multipliers + (1 << 29), shifts, scale32=True, name="narrow")
        for op in builder.ops:
            graph.add_op(op)
    return _program(graph, x)


def shared_constants(matches: int) -> Program:
    """A chain of ``matches`` ADDs that all read one constant, as after the de-duplication of constants."""
    graph, x = _block()
    builder = Builder("c")
    constant = builder.const(np.ones((1, 8)).astype(np.int16), DType.INT16)
    graph.add_op(builder.ops[0])
    for number in range(matches):
        x = graph.add_op(Op(ops.Add(), (x, constant), (Tensor(f"x{number}", DType.INT16, (1, 8)),))).output
    return _program(graph, x)


def fan_out(readers: int) -> Program:
    """One ADD read by ``readers`` operators, one after the other summed up."""
    graph, x = _block()
    total = root = graph.add_op(Op(ops.Add(), (x, x), (Tensor("root", DType.INT16, (1, 8)),))).output
    for number in range(readers):
        total = graph.add_op(Op(ops.Sub(), (total, root), (Tensor(f"y{number}", DType.INT16, (1, 8)),))).output
    return _program(graph, total)


def big_constants(directory: Path, count: int, size: int, *, holes: bool = False) -> Program:
    """``count`` constants of ``size`` bytes each, mapped from files made in ``directory``, with or without content."""
    graph, _ = _block()
    path = directory / "constants"
    with path.open("wb") as file:
        for _ in range(0 if holes else count):
            file.write(os.urandom(1 << 16) * (size >> 16))
        file.truncate(count * size)
    data = map_file(path)
    outputs = []
    for number in range(count):
        piece = data[number * size : (number + 1) * size]
        tensor = Tensor(f"weights{number}", DType.INT8, (size // 1024, 1024), piece)
        outputs.append(graph.add_op(Op(ops.Const(), (), (tensor,))).output)
    return _program(graph, *outputs)


_ADD = Capture(ops.Add)


def _plan(match: Match, _: Context) -> bool | None:
    return None if match[_ADD].origin else True


def _replace(match: Match, _: bool) -> Replacement:
    add = match[_ADD]
    builder = Builder("new", origin="benchmark")
    result = builder.add(builder.identity(add.inputs[0]), builder.identity(add.inputs[1]))
    return Replacement(builder.ops, {add.output: result})


RULE: Rule[bool] = Rule("benchmark", _ADD, _plan, _replace, Exact(), "Replace each ADD by three operators.")
"""In :func:`chain` it matches one operator in twelve."""


def status(*names: str) -> Iterator[int]:
    """Bytes of memory by their names in /proc/self/status, such as RssAnon (not pages of files) and VmHWM (peak)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return (int(lines[name].split()[0]) * 1024 for name in names)
