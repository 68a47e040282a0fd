"""Whatever is drawn is legal, runs in the reference model, follows from its seed, and has what was promised."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rewrites
from tosakit.engine.pattern import match_at
from tosakit.engine.rule import Rule
from tosakit.errors import ToolMissing
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Program
from tosakit.ir.types import INTEGER_RANGES, numpy_dtype
from tosakit.oracle.equivalence import input_specs, run_vectors
from tosakit.oracle.inputs import input_vectors
from tosakit.oracle.refmodel import ReferenceModel, Status
from tosakit.spec.check import check
from tosakit.spec.signature import signature
from tosakit.testing import EVERYTHING, INTEGER, Seeded, strategies
from tosakit.testing.idioms import IDIOMS, Idiom
from tosakit.testing.programs import begin, from_pattern, operator, program
from tosakit.testing.sketch import Sketch, Unfit

MAY_OVERFLOW = ("ADD", "SUB", "MUL", "ABS", "NEGATE", "REDUCE_SUM", "RESCALE", "COND_IF", "WHILE_LOOP")
"""Integer operators with a REQUIRE that some inputs break."""
NOT_IN_THE_MODEL = ("CUSTOM", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE")


def errors(drawn: Program) -> list[str]:
    return [str(d) for d in check(drawn) if d.severity == "error"]


def statuses(drawn: Program, vectors: int = 4) -> list[Status]:
    inputs = list(input_vectors(input_specs(drawn), vectors, 0))
    return [run.status for run in run_vectors(ReferenceModel(), drawn, inputs, 30.0)]


def has(kind: type[Attributes], drawn: Program) -> bool:
    return any(isinstance(op.attrs, kind) for block in drawn.blocks for op in block.ops)


@pytest.mark.parametrize("kind", ops.OPERATORS, ids=lambda kind: kind.NAME)
def test_every_operator_is_legal_in_every_space_that_has_it(kind: type[Attributes]) -> None:
    made = Counter[bool]()
    for seed in range(6):
        for space in (INTEGER, EVERYTHING):
            sig = signature(kind.NAME)
            assert sig is not None
            try:
                drawn = operator(Seeded(f"{kind.NAME} {seed}"), kind, space)
            except Unfit:
                made[False] += 1
                assert kind is ops.Resize or not any(map(space.allows, sig.rows)) or sig.since > space.minor
                continue
            made[True] += 1
            assert has(kind, drawn)
            assert errors(drawn) == []
    assert made[True] >= 5


@pytest.mark.refmodel
@pytest.mark.parametrize("kind", strategies.kinds(), ids=lambda kind: kind.NAME)
def test_every_integer_operator_runs(kind: type[Attributes]) -> None:
    found = Counter[Status]()
    for seed in range(3):
        try:
            found.update(statuses(operator(Seeded(f"run {seed}"), kind)))
        except Unfit:
            continue
    if kind.NAME in NOT_IN_THE_MODEL:
        assert found.keys() == {Status.ERROR}
    elif kind.NAME in MAY_OVERFLOW:
        assert Status.VALID in found
        assert found.keys() <= {Status.VALID, Status.UNPREDICTABLE}
    else:
        assert found.keys() == {Status.VALID}


@pytest.mark.refmodel
def test_operators_on_fp_run_where_the_model_has_them() -> None:
    """Everything of TOSA 1.0 runs; of 1.1 the model lacks some mixed FP types, and bounds EXP2_SHAPE at nothing."""
    for kind in strategies.kinds(EVERYTHING):
        if signature(kind.NAME).since or kind.NAME in (*MAY_OVERFLOW, *NOT_IN_THE_MODEL):  # type: ignore[union-attr]
            continue
        space = type(EVERYTHING)(0, (DType.FP32, DType.FP16, DType.BF16, DType.BOOL))
        try:
            assert set(statuses(operator(Seeded(1), kind, space), 2)) == {Status.VALID}, kind.NAME
        except Unfit:
            continue


@pytest.mark.refmodel
def test_programs_are_legal_and_have_all_that_makes_rewriting_hard() -> None:
    seen, runs = Counter[str](), Counter[Status]()
    for seed in range(100):
        drawn = program(Seeded(seed))
        assert errors(drawn) == [], seed
        main = drawn.main
        computed = [op for op in main.ops if op.inputs]
        seen["several outputs"] += len(main.outputs) > 1
        seen["fan-out"] += any(len(t.users) > 1 for op in computed for t in op.outputs)
        seen["shared constants"] += any(len(op.output.users) > 1 for op in main.ops if op.output.is_constant)
        seen["regions"] += len(drawn.regions) > 1
        seen["dead code"] += any(not t.is_used for op in computed for t in op.outputs)
        seen["accumulators"] += any(t.dtype == DType.INT48 for op in computed for t in op.outputs)
        if seed < 30:
            runs.update(statuses(drawn, 2))
    assert len(seen) == 6
    assert min(seen.values()) >= 15, seen
    assert runs.keys() <= {Status.VALID, Status.UNPREDICTABLE}
    assert runs[Status.VALID] >= runs.total() / 2


def test_every_operator_that_reads_a_tensor_comes_up_in_programs() -> None:
    seen = Counter(op.name for seed in range(400) for block in program(Seeded(seed)).blocks for op in block.ops)
    wanted = {kind.NAME for kind in strategies.kinds() if kind.NAME not in NOT_IN_THE_MODEL}
    assert wanted - seen.keys() == set()


def test_a_seed_gives_the_same_program_and_another_seed_another() -> None:
    files = [dumps(program(Seeded(seed))) for seed in range(20)]
    assert files == [dumps(program(Seeded(seed))) for seed in range(20)]
    assert len(set(files)) == 20


@pytest.mark.parametrize("rule", [s for s in rewrites.RULES if isinstance(s, Rule)], ids=lambda rule: rule.name)
def test_a_program_from_a_pattern_holds_the_pattern(rule: Rule) -> None:  # type: ignore[type-arg]
    for seed in range(25):
        drawn = from_pattern(Seeded(seed), rule)
        assert errors(drawn) == []
        assert any(match_at(rule.pattern, op) for op in drawn.main.ops)


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: idiom.draw.__name__)
def test_idioms_are_legal_and_hold_the_operators_they_say(idiom: Idiom) -> None:
    seen = Counter[type[Attributes]]()
    for seed in range(40):
        sketch = Sketch(Seeded(seed))
        begin(sketch)
        try:
            results = idiom.draw(sketch)
        except Unfit:
            continue
        drawn = sketch.program(results)
        assert errors(drawn) == []
        seen.update({type(op.attrs) for op in drawn.main.ops if op.inputs})
    assert set(seen) == set(idiom.kinds)
    assert seen[ops.Rescale] >= 30


@settings(max_examples=60)
@given(st.data())
def test_strategies_draw_what_they_say(data: st.DataObject) -> None:
    dtype = data.draw(strategies.dtypes())
    shape = data.draw(strategies.shapes(1))
    assert 1 <= len(shape) <= 5
    array = data.draw(strategies.constants(dtype, shape))
    assert (array.dtype, array.shape) == (numpy_dtype(dtype), shape)
    narrow = data.draw(strategies.constants(DType.INT8, shape, -3, 5))
    assert narrow.min() >= -3
    assert narrow.max() <= 5
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        assert low <= array.min()
        assert array.max() <= high
    assert data.draw(strategies.zero_points(DType.INT16)) == 0
    assert -128 <= data.draw(strategies.zero_points(DType.INT8)) <= 127
    multiplier, shift = data.draw(strategies.scale_pairs(DType.INT48, scale32=False))
    assert 0 <= multiplier < 1 << 15
    assert 2 <= shift <= 62


@settings(max_examples=25)
@given(st.data())
def test_strategies_draw_legal_programs_and_inputs(data: st.DataObject) -> None:
    space = data.draw(st.sampled_from([INTEGER, EVERYTHING]))
    assert errors(data.draw(strategies.operators(space=space))) == []
    drawn = data.draw(strategies.programs(space, most=5))
    assert errors(drawn) == []
    vectors = data.draw(strategies.inputs(drawn, 3))
    assert [len(vector) for vector in vectors] == [len(drawn.main.inputs)] * 3


def test_without_hypothesis_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import tosakit.testing

    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "tosakit.testing.strategies")
    monkeypatch.delattr(tosakit.testing, "strategies")
    with pytest.raises(ToolMissing, match=r"pip install .tosakit\[testing\]"):
        _ = tosakit.testing.strategies
