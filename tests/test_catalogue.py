"""Finding rules by name: shipped ones, those of packages and modules, their options, and what is wrong with them."""

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import pytest

import rewrites
import tosakit.catalogue
from tests.support.steps import EXACT, add_again, rule, transform
from tosakit.catalogue import ENTRY_POINT_GROUP, Catalogue, load_catalogue
from tosakit.engine.rule import Rule, Step, Transform
from tosakit.errors import InvalidArgument, RuleBug
from tosakit.ir import ops
from tosakit.ir.program import Program


@dataclass(frozen=True)
class Options:
    """One option of every type."""

    mode: Literal["slow", "fast"] = "slow"
    width: Literal[8, 16] = 8
    deep: bool = False
    count: int = 3
    ratio: float = 0.5
    name: str = "x"
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.count > 100:
            raise ValueError("count is at most 100")


def step(name: str = "mine", options: Any = Options) -> Step:
    def unchanged(program: Program) -> list[str]:
        return []

    made = transform(unchanged, name=name)
    return Transform(made.name, made.run, EXACT, "For a test.", options)


@pytest.fixture
def module() -> Iterator[Callable[..., str]]:
    """Make a module with the given contents; it is gone after the test."""
    names: list[str] = []

    def make(name: str = "extra_rules", **contents: object) -> str:
        made = ModuleType(name)
        vars(made).update(contents)
        sys.modules[name] = made
        names.append(name)
        return name

    yield make
    for name in names:
        sys.modules.pop(name, None)


# ---------------------------------------------------------------- what there is
def test_the_shipped_rules_stand_in_their_listed_order() -> None:
    catalogue = load_catalogue()
    assert tuple(catalogue.steps.values()) == rewrites.RULES
    assert catalogue.pipelines == dict(rewrites.PIPELINES)
    assert [s.name for s in catalogue.choose("int16", None)] == [s.name for s in rewrites.PIPELINES["int16"]]


def test_rules_are_chosen_by_name_in_the_order_given() -> None:
    chosen = load_catalogue().choose(None, ["split_int48_bias", "widen_int8_activations"])
    assert [s.name for s in chosen] == ["split_int48_bias", "widen_int8_activations"]


@pytest.mark.parametrize(
    ("pipeline", "rules", "message"),
    [
        ("inti16", None, 'unknown pipeline "inti16"; did you mean int16\\?'),
        ("xyz", None, 'unknown pipeline "xyz"; there are: int16, ethos-u'),
        (None, ["widen_int8_activation"], "did you mean widen_int8_activations"),
        (None, [""], 'unknown rule ""; there are: widen_int8_activations, '),
        (None, None, r"name a pipeline \(int16, ethos-u\) or rules"),
        ("int16", ["split_int48_bias"], "give a pipeline or rules, not both"),
    ],
)
def test_wrong_names_are_told_with_what_was_meant(pipeline: str | None, rules: list[str] | None, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        load_catalogue().choose(pipeline, rules)


# ---------------------------------------------------------------- other packages
def test_a_module_adds_rules_and_pipelines(module: Callable[..., str]) -> None:
    mine = step()
    name = module(RULES=(mine,), PIPELINES={"all mine": (mine, *rewrites.CLEAN_UP)})
    catalogue = load_catalogue([name, name])
    assert catalogue.step("mine") is mine
    assert catalogue.choose("all mine", None)[0] is mine


def test_installed_packages_announce_modules(module: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    module("package_b", RULES=(step("b"),))
    module("package_a", RULES=(step("a"),))
    points = [
        importlib.metadata.EntryPoint("second", "package_b", ENTRY_POINT_GROUP),
        importlib.metadata.EntryPoint("first", "package_a", ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == ENTRY_POINT_GROUP else [])
    monkeypatch.setattr(tosakit.catalogue, "_announced", tosakit.catalogue._announced.__wrapped__)
    assert list(load_catalogue().steps)[-2:] == ["a", "b"]  # by name, whatever the order of installation

    broken = importlib.metadata.EntryPoint("third", "package_c.rules", ENTRY_POINT_GROUP)
    points.append(broken)
    with pytest.raises(
        InvalidArgument, match=r'"package_c.rules", announced as "third" by an installed package: No module'
    ):
        load_catalogue()


def test_the_same_name_twice_is_told_with_both_homes(module: Callable[..., str]) -> None:
    name = module(RULES=(step("split_int48_bias"),))
    message = 'two rules are called "split_int48_bias", one in rewrites, one in extra_rules; rename one'
    with pytest.raises(InvalidArgument, match=message):
        load_catalogue([name])
    other = step()
    name = module("more_rules", RULES=(other,), PIPELINES={"int16": (other,)})
    with pytest.raises(InvalidArgument, match='two pipelines are called "int16", one in rewrites, one in more_rules'):
        load_catalogue([name])


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({}, "module extra_rules must define RULES, a tuple of Rule and Transform values"),
        ({"RULES": [step()]}, "must define RULES, a tuple"),
        ({"RULES": ("mine",)}, "must define RULES, a tuple"),
        ({"RULES": (step(),), "PIPELINES": ["p"]}, "PIPELINES of module extra_rules must map names to steps"),
        ({"RULES": (step(),), "PIPELINES": {"p": ["mine"]}}, 'pipeline "p" of module extra_rules must be a tuple'),
        (
            {"RULES": (), "PIPELINES": {"p": (step("lost"),)}},
            'pipeline "p" of module extra_rules has "lost", which is not',
        ),
        ({"RULES": (step(options=dict),)}, "rule mine of module extra_rules: its options must be a dataclass, not"),
        ({"RULES": (step(options=None),)}, "its options must be a dataclass, not None"),
    ],
)
def test_ill_formed_modules_are_their_author_s_fault(
    module: Callable[..., str], contents: dict[str, object], message: str
) -> None:
    with pytest.raises(RuleBug, match=message):
        load_catalogue([module(**contents)])


def test_options_need_defaults_and_types_that_can_be_read(module: Callable[..., str]) -> None:
    @dataclass(frozen=True)
    class NoDefault:
        count: int

    @dataclass(frozen=True)
    class Unknown:
        count: "Nonsense" = 1  # type: ignore[name-defined]  # noqa: F821

    for options in (NoDefault, Unknown):
        with pytest.raises(RuleBug, match="rule mine of module extra_rules: its options need defaults and types"):
            load_catalogue([module(RULES=(step(options=options),))])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module", "cannot import the rules module \"no_such_module\": No module named 'no_such_module'"),
        ("no_such_module.py", "give the name of the module, no_such_module"),
        ("folder/rules.py", '"folder/rules.py" is no name of a module'),
        ("", '"" is no name of a module'),
    ],
)
def test_a_module_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        load_catalogue([name])


def test_a_module_that_fails_is_its_author_s_fault(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "rules_with_a_fault.py").write_text("1 / 0\n")
    (tmp_path / "rules_that_do_not_parse.py").write_text("RULES = (\n")
    with pytest.raises(RuleBug, match="rules_with_a_fault fails when imported: ZeroDivisionError") as failed:
        load_catalogue(["rules_with_a_fault"])
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    with pytest.raises(RuleBug, match="rules_that_do_not_parse fails when imported: SyntaxError"):
        load_catalogue(["rules_that_do_not_parse"])


# ---------------------------------------------------------------- options
def catalogue(*steps: Step) -> Catalogue:
    return Catalogue({s.name: s for s in steps or (step(),)}, {})


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        ("mode", "fast", "fast"),
        ("width", "16", 16),
        ("width", 16, 16),
        ("deep", "true", True),
        ("deep", "No", False),
        ("deep", "1", True),
        ("deep", True, True),
        ("count", "-7", -7),
        ("count", 7, 7),
        ("ratio", "1e-3", 0.001),
        ("ratio", 2, 2.0),
        ("name", "", ""),
        ("name", "true", "true"),
        ("limit", "none", None),
        ("limit", "12", 12),
        ("limit", None, None),
    ],
)
def test_text_and_values_become_what_the_option_takes(option: str, given: object, value: object) -> None:
    made = catalogue().options({f"mine.{option}": given})["mine"]
    assert getattr(made, option) == value
    assert type(getattr(made, option)) is type(value)


@pytest.mark.parametrize(
    ("option", "given", "takes"),
    [
        ("mode", "medium", "one of slow, fast"),
        ("width", "12", "one of 8, 16"),
        ("width", True, "one of 8, 16"),
        ("deep", "maybe", "bool"),
        ("deep", 1, "bool"),
        ("count", "3.5", "int"),
        ("count", "", "int"),
        ("count", True, "int"),
        ("count", 3.0, "int"),
        ("ratio", "fast", "float"),
        ("ratio", "nan", "float"),
        ("ratio", "inf", "float"),
        ("name", 3, "str"),
        ("limit", "many", "int or none"),
    ],
)
def test_what_an_option_does_not_take_is_told_with_what_it_takes(option: str, given: object, takes: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        catalogue().options({f"mine.{option}": given})
    assert str(refused.value) == f'"{given}" is no value of mine.{option}; it takes {takes}'


def test_an_option_class_may_refuse_a_value_itself() -> None:
    with pytest.raises(InvalidArgument, match=r'"101" is no value of mine.count: count is at most 100'):
        catalogue().options({"mine.count": "101"})


def test_several_options_of_one_step_add_up() -> None:
    made = catalogue().options({"mine.count": "1", "mine.deep": "yes"})["mine"]
    assert (made.count, made.deep, made.mode) == (1, True, "slow")
    assert catalogue().options({}) == {}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("mine", 'setting "mine" must read RULE.OPTION=VALUE'),
        ("mind.count", 'unknown rule "mind"; did you mean mine?'),
        ("mine.counts", 'unknown option of mine "counts"; did you mean count?'),
        ("mine.xyz", 'unknown option of mine "xyz"; there are: mode, width, deep, count, ratio, name, limit'),
    ],
)
def test_wrong_settings_are_told_with_what_was_meant(setting: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        catalogue().options({setting: "1"})
    assert str(refused.value) == message


def test_a_setting_of_a_rule_that_does_not_run_is_refused() -> None:
    other = rule(ops.Add, add_again(0), name="other")
    assert isinstance(other, Rule)
    with pytest.raises(InvalidArgument, match=r"mine.count has no effect: mine is not among the steps, other"):
        catalogue(step(), other).options({"mine.count": "1"}, [other])
