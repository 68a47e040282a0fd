"""Patterns against small graphs."""

import pytest

from tosakit.engine.pattern import AnyValue, Capture, Match, match_at
from tosakit.ir import ops
from tosakit.ir.graph import Graph
from tosakit.ir.operator import Attributes
from tosakit.ir.text import parse_program

GRAPH = parse_program("""
block (%x: INT32[2], %z: INT32[2]) -> (%out, %b) {
  %a: INT32[2] = ABS(%x)
  %b: INT32[2] = ABS(%a)
  %same: INT32[2] = ADD(%a, %a)
  %mixed: INT32[2] = ADD(%b, %x)
  %once: INT32[2] = CLZ(%mixed)
  %out: INT32[2] = SUB(%once, %same)
  %custom: INT32[2] = CUSTOM() {operator_name="nothing in"}
  ASSERT_EQUAL_SHAPE()
}""").main

V, W = AnyValue(), AnyValue()


def match(pattern: Capture[Attributes], name: str, graph: Graph = GRAPH) -> Match | None:
    op = graph.tensor(name).producer
    assert op is not None
    return match_at(pattern, op)


def test_kinds_and_captures() -> None:
    inner = Capture(ops.Abs, ops.Clz, operands=(V,))
    root = Capture(ops.Abs, operands=(inner,))
    found = match(root, "b")
    assert found is not None
    assert found[inner] is GRAPH.tensor("a").producer
    assert found[root] is found.root is GRAPH.tensor("b").producer
    assert found.value(V) is GRAPH.tensor("x")
    assert found.ops == (found[root], found[inner])
    assert list(root) == [root, inner]
    assert match(root, "a") is None
    assert match(Capture(ops.Clz), "a") is None


@pytest.mark.parametrize(
    ("operands", "name", "fits"),
    [
        ((V, V), "same", True),
        ((V, V), "mixed", False),
        ((V, W), "same", True),
        ((V, W), "mixed", True),
        ((None, V), "mixed", True),
        ((V,), "mixed", True),
        ((V, W, None), "mixed", False),
    ],
)
def test_values(operands: tuple[AnyValue | None, ...], name: str, fits: bool) -> None:
    assert (match(Capture(ops.Add, operands=operands), name) is not None) == fits


def test_one_capture_twice_is_one_operator() -> None:
    one, two = Capture(ops.Abs), Capture(ops.Abs)
    assert match(Capture(ops.Add, operands=(one, one)), "same") is not None
    assert match(Capture(ops.Add, operands=(one, two)), "same") is not None
    assert match(Capture(ops.Sub, operands=(Capture(ops.Clz), Capture(ops.Add))), "out") is not None
    assert match(Capture(ops.Sub, operands=(Capture(ops.Add), Capture(ops.Clz))), "out") is None


def test_single_reader() -> None:
    """Reading twice is one reader; the block's outputs are a reader; inputs have no operator."""
    assert match(Capture(ops.Clz, operands=(Capture(ops.Add, single_reader=True),)), "once") is not None
    assert match(Capture(ops.Abs, operands=(Capture(ops.Abs, single_reader=True),)), "b") is None
    assert match(Capture(ops.Abs, single_reader=True), "b") is None
    assert match(Capture(ops.Add, single_reader=True), "same") is not None
    assert match(Capture(ops.Abs, operands=(Capture(ops.Abs),)), "a") is None


def test_operators_without_operands_or_results() -> None:
    custom, check = GRAPH.ops[-2:]
    assert match_at(Capture(ops.Custom, operands=(None,)), custom) is None
    assert match_at(Capture(ops.Custom), custom) is not None
    assert match_at(Capture(ops.AssertEqualShape, single_reader=True), check) is None
    assert match_at(Capture(ops.AssertEqualShape), check) is not None
