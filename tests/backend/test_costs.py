"""Vela's cycles and memory, tied back to the operators of the file and to the rules."""

from pathlib import Path

import pytest

from tests.support.single_operators import FORMS, Types, build
from tosakit import rewrite
from tosakit._interface import read_operators
from tosakit.backend.compile import compile_program
from tosakit.backend.costs import OperatorCost, costs_by_rule, read_costs
from tosakit.backend.vela import VELA_OP_TO_TOSA, VelaReport
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.enums import DType
from tosakit.ir.program import Program

KWS = Path(__file__).parents[1] / "corpus" / "dscnn_kws_a16w8.tosa"
U55, U85 = "ethos-u55-128", "ethos-u85-256"

pytestmark = pytest.mark.vela

INT16: Types = {"in_t": DType.INT16, "weight_t": DType.INT8, "out_t": DType.INT48} | dict(
    in_zp_t=DType.INT16, weight_zp_t=DType.INT8
)


def compiled(program: Program, accelerator: str) -> VelaReport:
    report = compile_program(program, accelerator, name="m", place=None).report
    assert report is not None
    return report


@pytest.mark.parametrize("accelerator", [U55, U85])
def test_the_cycles_of_all_operators_add_up_to_those_of_the_inference(accelerator: str) -> None:
    program = load(KWS)
    report = compiled(program, accelerator)
    assert sum(cost.cycles for cost in report.operators) == report.total_cycles
    assert report.npu_cycles == sum(cost.npu_cycles for cost in report.operators)
    operators = read_operators(dumps(program))
    for cost in report.operators:
        name, results = operators[cost.index]
        assert (cost.operator, cost.tensor) == (name, results[0])
    convolutions = [c for c in report.operators if c.operator in ("CONV2D", "DEPTHWISE_CONV2D")]
    assert len(convolutions) == sum(name in ("CONV2D", "DEPTHWISE_CONV2D") for name, _ in operators)
    assert all(c.macs > 0 and c.memory_bytes > 0 and c.access_cycles["sram"] > 0 for c in convolutions)


def test_what_is_refused_costs_nothing() -> None:
    report = compiled(build("ADD", {"in_out_t": DType.FP32}, FORMS["ADD"]({"in_out_t": DType.FP32})), U85)
    assert (report.accepted, report.operators) == (False, ())


def test_cycles_go_to_the_rule_that_replaced_or_made_an_operator() -> None:
    program = build("TRANSPOSE_CONV2D", INT16, FORMS["TRANSPOSE_CONV2D"](INT16, stride=(2, 2)), rescaled=True)
    rule = "transpose_conv2d_as_conv2d"
    done = rewrite(program, rules=[rule], options={f"{rule}.when": "all"}, target=U85, check="none")
    before, after = compiled(program, U85), compiled(done.program, U85)
    by_rule, rest = costs_by_rule(before.operators, after.operators, done.program, done.result.events)
    assert (by_rule.rule, by_rule.rewrites, by_rule.before, by_rule.after) == (
        rule,
        1,
        before.total_cycles,
        after.total_cycles,
    )
    assert (rest.rule, rest.before, rest.after) == (None, 0, 0)


def database(path: Path, source: str) -> Path:
    columns = (
        '"id","source_id","operator","staging_usage","op_cycles","npu_cycles","mac_count","Sram_ac","OffChipFlash_ac"'
    )
    perf = f'{columns}\n1,7,"Add",64,12,8,0,3,2\n'
    tables = {"source": f'"id","operator","ext_key"\n{source}\n', "perf": perf}
    text = "".join(f'<table name="{name}">\n<![CDATA[\n{rows}]]>\n</table>\n' for name, rows in tables.items())
    path.write_text(f"<debug>\n{text}</debug>\n")
    return path


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ('7,"Add",0', True),
        ('7,"Sub",0', False),  # another operator stands there: a row is about another block
        ('7,"Add",1', False),  # there is no such operator
        ('8,"Add",0', False),  # the cost is for nothing known
        ('7,"Add",""', False),
    ],
)
def test_a_database_about_something_else_gives_no_costs(source: str, known: bool, tmp_path: Path) -> None:
    types = {"in_out_t": DType.INT32}
    model = tmp_path / "m.tosa"
    model.write_bytes(dumps(build("ADD", types, FORMS["ADD"](types))))
    costs = read_costs(database(tmp_path / "m.xml", source), model, VELA_OP_TO_TOSA)
    assert costs == (
        (OperatorCost(0, "ADD", "output", 12, 8, 0, 64, {"sram": 3, "off_chip_flash": 2}),) if known else ()
    )
    assert read_costs(tmp_path / "missing.xml", model, VELA_OP_TO_TOSA) == ()
