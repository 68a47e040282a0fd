"""A campaign finds what is broken, keeps it once and small, goes on where it stopped, and is the same anywhere."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import rewrites
import tosakit
from tests.support.programs import CORPUS
from tosakit.cli import main
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Step
from tosakit.errors import InvalidArgument
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.graph import Op, Tensor
from tosakit.ir.text import format_program
from tosakit.ir.text_parser import parse_program
from tosakit.testing import Seeded
from tosakit.testing.campaign import run_campaign
from tosakit.testing.cases import Plan, corpus_files, make_case, run_case
from tosakit.testing.mutation import MUTATIONS, mutated, piece
from tosakit.testing.programs import program
from tosakit.testing.properties import new_errors
from tosakit.testing.special import LEGAL, REPAIRABLE, stateful

pytestmark = pytest.mark.refmodel

BROKEN = '''
"""A rule that takes BITWISE_NOT for IDENTITY."""

from tosakit.engine.contract import Exact
from tosakit.engine.pattern import Capture
from tosakit.engine.rule import Replacement, Rule
from tosakit.ir import ops

NOT = Capture(ops.BitwiseNot)

RULE = Rule(
    "not_is_identity",
    NOT,
    lambda match, context: True,
    lambda match, plan: Replacement((), {match[NOT].output: match[NOT].inputs[0]}),
    Exact(),
    "For a test.",
)
RULES = (RULE,)
'''


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with a broken rule."""
    (tmp_path / "rules_under_attack.py").write_text(BROKEN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "rules_under_attack"


def state(folder: str | Path) -> dict[str, object]:
    """The state in a folder, without what the clock says."""
    found = json.loads(Path(folder, "campaign.json").read_text(encoding="utf-8"))
    del found["seconds"]
    return found  # type: ignore[no-any-return]


def test_a_broken_rule_is_found_kept_once_and_made_small(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fuzz", "--rule", "not_is_identity", "--rules-module", broken, "--examples", "12", "-o", "found"]
    assert main(words) == 1
    said = capsys.readouterr()
    assert "contract: only exact rewrites were made, but outputs differ" in said.err
    assert "12 programs" in said.err
    entry = next(iter(state("found")["findings"].values()))  # type: ignore[attr-defined]
    assert entry["times"] > 1
    finding = json.loads(Path("found", entry["file"]).with_suffix(".json").read_text(encoding="utf-8"))
    assert (finding["finding_version"], finding["rule"], finding["kind"]) == (1, "not_is_identity", "contract")
    small = tosakit.load(Path("found", finding["file"]))
    assert small.operator_count == finding["operators"] <= 2
    assert [op.name for op in small.main.ops if op.inputs] == ["BITWISE_NOT"]


def test_it_goes_on_where_it_stopped_and_ends_where_one_run_does(tmp_path: Path) -> None:
    plan = Plan(names=("remove_dead_code",))
    for _ in range(2):
        run_campaign(plan, tmp_path / "twice", examples=3)
    run_campaign(plan, tmp_path / "once", examples=6)
    assert state(tmp_path / "twice") == state(tmp_path / "once")
    assert state(tmp_path / "once")["next_case"] == 6


def test_worker_processes_find_the_same(broken: str) -> None:
    plan = Plan(names=("not_is_identity",), rules_modules=(broken,), search_path=str(Path.cwd()))
    for jobs in (1, 2):
        run_campaign(plan, Path(f"with{jobs}"), examples=10, jobs=jobs)
    assert state("with1") == state("with2")
    files = [sorted(path.name for path in Path(f"with{jobs}").iterdir()) for jobs in (1, 2)]
    assert files[0] == files[1]
    assert len(files[0]) >= 3


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs dask[distributed]")
def test_the_documentation_s_dask_cluster_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "fuzzing.md"
    [code] = re.findall(r"^```python dask\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "example"})  # the documentation is ours
    assert state("dask-findings")["next_case"] == 8


def test_a_time_ends_it_too(tmp_path: Path) -> None:
    campaign = run_campaign(Plan(names=("remove_dead_code",)), tmp_path, seconds=0.01)
    assert campaign.next_case == 8


def test_a_case_is_the_same_program_and_setting_again() -> None:
    plan = Plan(files=tuple(map(str, CORPUS)))
    for number in range(12):
        one, other = make_case(plan, number), make_case(plan, number)
        assert (one.subject, one.setting, one.source) == (other.subject, other.setting, other.source)
        assert dumps(one.program) == dumps(other.program)
    assert run_case(Plan(seed=1), 3) == run_case(Plan(seed=1), 3)


FIRING = [step for step in rewrites.RULES if step is not rewrites.MERGE_AXES]
"""All but the one for more than six axes, which neither the programs drawn nor the reference model have."""


@pytest.mark.parametrize("step", FIRING, ids=lambda step: step.name)
def test_every_shipped_rule_fires_and_leaves_alone_within_a_few_cases(step: Step) -> None:
    plan = Plan(names=(step.name,))
    seen: set[bool] = set()
    for number in range(12):
        case = make_case(plan, number)
        done = run_steps(case.program, case.steps, options=case.setting.options, target=case.setting.target)
        seen.add(bool(done.events))
        if len(seen) == 2:
            return
    pytest.fail(f"{step.name} always or never fires: {seen}")


def test_a_rule_that_never_fires_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "idle_rules.py").write_text(
        BROKEN.replace("lambda match, context: True", "lambda match, context: None").replace("not_is_", "idle_"),
        encoding="utf-8",
    )
    words = ["fuzz", "--rule", "idle_identity", "--rules-module", "idle_rules", "--examples", "3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.syspath_prepend(str(tmp_path))
        assert main(words) == 0
    assert "never fired, so nothing is known of them: idle_identity" in capsys.readouterr().err
    counts = state(tmp_path / "fuzz-findings")["subjects"]["idle_identity"]  # type: ignore[index]
    assert (counts["programs"], counts["fired"], counts["passed_over"]) == (3, 0, 3)


def test_the_state_counts_every_step_of_a_pipeline(tmp_path: Path) -> None:
    campaign = run_campaign(Plan(names=("int16",)), tmp_path, examples=8)
    steps = state(tmp_path)["steps"]["int16"]  # type: ignore[index]
    assert list(steps) == list(dict.fromkeys(step.name for step in rewrites.PIPELINES["int16"]))
    assert sum(counts["fired"] > 0 for counts in steps.values()) >= 3
    idle = [f"int16: {name}" for name, counts in steps.items() if not counts["fired"]]
    assert campaign.never_fired == idle


def test_files_that_are_not_legal_tosa_do_not_end_it(tmp_path: Path) -> None:
    illegal = parse_program(format_program(program(Seeded(3)), values=None))
    graph = illegal.main
    graph.add_op(
        Op(ops.Reverse(axis=9), graph.inputs[:1], (Tensor("r", graph.inputs[0].dtype, graph.inputs[0].shape),))
    )
    (tmp_path / "models").mkdir()
    tosakit.save(illegal, tmp_path / "models" / "illegal.tosa")
    plan = Plan(("remove_dead_code",), corpus_files(tmp_path / "models"))
    assert run_campaign(plan, tmp_path / "found", examples=8).totals["programs"] == 8


def test_mutations_stay_legal_and_all_of_them_work() -> None:
    worked: dict[str, int] = {}
    for seed in range(40):
        choices = Seeded(seed)
        original = program(choices)
        data = dumps(original)
        changed = mutated(choices, original)
        assert dumps(original) == data
        assert not new_errors(original, changed)
        for mutation in dict.fromkeys(MUTATIONS):
            try:
                one = mutation(choices, original)
            except tosakit.TosakitError:
                continue
            if one is None or new_errors(original, one):
                continue
            if dumps(one) != data or any(t.quantization for t in one.main.tensors):
                worked[mutation.__name__] = worked.get(mutation.__name__, 0) + 1
    assert len(worked) == len(dict.fromkeys(MUTATIONS)), worked
    assert min(worked.values()) >= 5, worked


def test_special_mutations_make_what_they_say() -> None:
    made: dict[str, int] = {}
    for seed in range(60):
        choices = Seeded(seed)
        original = program(choices)
        for mutation in (stateful, *LEGAL, *REPAIRABLE):
            one = mutation(choices, original)
            if one is None:
                continue
            name = mutation.__name__
            made[name] = made.get(name, 0) + 1
            assert bool(new_errors(original, one)) == (mutation in REPAIRABLE), (seed, name)
            tosakit.load(dumps(one))
    assert len(made) == 1 + len(LEGAL) + len(REPAIRABLE)
    assert min(made.values()) >= 5, made


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_piece_of_a_model_is_legal_and_small(path: Path) -> None:
    model = tosakit.load(path)
    for seed in range(5):
        cut = piece(Seeded(seed), model)
        assert cut is not None
        assert not new_errors(model, cut)
        assert len([op for op in cut.main.ops if op.inputs]) <= 16  # with an IDENTITY or two
        run_steps(cut, [])


def test_a_piece_never_takes_control_flow_along() -> None:
    cut = [
        (piece(Seeded(seed), drawn), drawn) for seed in range(60) if len((drawn := program(Seeded(seed))).regions) > 1
    ]
    assert any(one is None for one, _ in cut)
    assert all(len(one.regions) == 1 for one, _ in cut if one is not None)


def test_programs_with_state_are_mutated_without_a_fault() -> None:
    held = [one for seed in range(60) if (one := stateful(Seeded(seed), program(Seeded(seed)))) is not None]
    assert len(held) >= 5
    for seed, one in enumerate(held):
        assert not new_errors(one, mutated(Seeded(seed), one, most=8))


def test_another_campaign_or_something_else_in_the_folder_is_refused(tmp_path: Path) -> None:
    run_campaign(Plan(names=("remove_dead_code",)), tmp_path, examples=1)
    with pytest.raises(InvalidArgument, match="holds a campaign with other rules"):
        run_campaign(Plan(names=("ethos-u",)), tmp_path, examples=1)
    (tmp_path / "campaign.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InvalidArgument, match="is no state of a campaign"):
        run_campaign(Plan(names=("remove_dead_code",)), tmp_path, examples=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rule", "remove_ded_code"], 'unknown rule "remove_ded_code"; did you mean remove_dead_code'),
        (["--examples", "0"], "examples is 0; give a positive number"),
        (["--jobs", "-1"], "jobs is -1; give a positive number"),
        (["--vectors", "0"], "vectors is 0; give a positive number"),
        (["--seed", "-1"], "seed -1 is negative"),
        (["--time", "soon"], "give a time such as 90s, 15m or 2h"),
        (["--corpus", "nowhere"], "nowhere holds no .tosa file"),
        (["-o", "taken"], "cannot use the folder taken"),
    ],
)
def test_bad_options_are_the_user_s_fault_and_write_nothing(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file", encoding="utf-8")
    assert main(["fuzz", "--examples", "1", *words]) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]
