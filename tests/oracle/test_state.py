"""Programs with variables are compared step by step, and state that goes wrong is seen."""

from collections.abc import Sequence

import numpy as np
import pytest

from tosakit.engine.rule import StateLink
from tosakit.errors import NotEquivalent, Unsupported
from tosakit.io.writer import dumps
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Tensor, TensorExtras
from tosakit.ir.program import Program, Region
from tosakit.ir.text_parser import parse_program
from tosakit.ir.types import Array
from tosakit.oracle.equivalence import Verdict, check_equivalence
from tosakit.oracle.refmodel import ReferenceModel, RunResult
from tosakit.oracle.state import initial_state, one_step, run_original

SUM = """
block "main" (%x: INT32[1]) -> (%y) {
  declare %cell: INT32[1] <variable, variable_name="sum"> [10]
  %old: INT32[1] = VARIABLE_READ(%cell)
  %y: INT32[1] = ADD(%x, %old)
  %cell = VARIABLE_WRITE(%y)
}
"""
FED = """
block "main" (%x: INT32[1], %old: INT32[1]) -> (%y, %next) {
  %y: INT32[1] = ADD(%x, %old)
  %next: INT32[1] = IDENTITY(%y)
}
"""
LINK = StateLink("cell", "old", "next", np.array([10], np.int32))
ONES = [[np.array([1], np.int32)]] * 3


def test_a_step_goes_on_from_the_one_before() -> None:
    results = run_original(parse_program(SUM), [LINK], ONES, _run)
    assert [[int(array[0]) for array in result.outputs] for result in results] == [[11, 11], [12, 12], [13, 13]]


def _run(program: Program, vector: Sequence[Array]) -> RunResult:
    return ReferenceModel().run(dumps(program), vector)


def test_fed_back_it_is_equal_step_by_step() -> None:
    found = check_equivalence(parse_program(SUM), parse_program(FED), state=[LINK], inputs=ONES)
    assert found.equal
    assert found.vectors == 3
    assert [output.name for output in found.outputs] == ["y", "next"]


@pytest.mark.parametrize(
    "wrong",
    [FED.replace("IDENTITY(%y)", "IDENTITY(%old)"), FED.replace("IDENTITY(%y)", "IDENTITY(%x)")],
    ids=["unchanged", "the input"],
)
def test_state_that_is_carried_wrongly_is_seen(wrong: str) -> None:
    found = check_equivalence(parse_program(SUM), parse_program(wrong), state=[LINK], inputs=ONES)
    assert found.verdict is Verdict.DIFFERENT


def test_another_start_is_seen() -> None:
    constant = SUM.replace("VARIABLE_WRITE(%y)", "VARIABLE_WRITE(%old)")
    fed = FED.replace("IDENTITY(%y)", "IDENTITY(%old)")
    assert check_equivalence(parse_program(constant), parse_program(fed), state=[LINK], inputs=ONES).equal
    other = StateLink("cell", "old", "next", np.array([11], np.int32))
    assert not check_equivalence(parse_program(constant), parse_program(fed), state=[other], inputs=ONES).equal


def test_without_an_initial_value_both_start_from_zeros() -> None:
    unset = parse_program(SUM.replace(" [10]", ""))
    start = StateLink("cell", "old", "next", None)
    assert initial_state(unset, [start])["cell"].tolist() == [0]
    assert check_equivalence(unset, parse_program(FED), state=[start], inputs=ONES).equal


def test_after_a_step_that_is_not_valid_both_start_again() -> None:
    largest = [np.array([(1 << 31) - 1], np.int32)]
    found = check_equivalence(parse_program(SUM), parse_program(FED), state=[LINK], inputs=[ONES[0], largest, ONES[0]])
    assert found.equal
    assert (found.vectors, found.skipped) == (2, 1)


def test_a_result_that_fails_where_the_original_is_valid_is_no_result() -> None:
    failing = FED.replace("IDENTITY(%y)", "ADD(%y, %x)")
    largest = [np.array([(1 << 31) - 20], np.int32)]
    found = check_equivalence(parse_program(SUM), parse_program(failing), state=[LINK], inputs=[largest])
    assert found.verdict is Verdict.INVALID


def test_an_input_that_is_in_no_link_is_a_changed_interface() -> None:
    with pytest.raises(NotEquivalent, match='"old" INT32'):
        check_equivalence(parse_program(SUM), parse_program(FED), inputs=ONES)


def test_variables_of_inner_blocks_cannot_be_followed() -> None:
    program = parse_program(SUM)
    inner = Graph("body")
    inner.add_tensor(Tensor("c", DType.INT8, (1,), extras=TensorExtras(True, "c")))
    program.regions.append(Region("body", [inner]))
    with pytest.raises(Unsupported, match='block "body" has variables'):
        one_step(program, {})


def test_without_links_variables_that_are_gone_start_anew_in_every_run() -> None:
    fixed = parse_program(SUM.replace("  %cell = VARIABLE_WRITE(%y)\n", ""))
    folded = parse_program(
        'block "main" (%x: INT32[1]) -> (%y) {\n  %c: INT32[1] = CONST() [10]\n  %y: INT32[1] = ADD(%x, %c)\n}\n'
    )
    assert check_equivalence(fixed, folded, inputs=ONES).equal
