"""The cases of a campaign: each follows from its number alone, and can be run again anywhere."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from tosakit.catalogue import Catalogue, load_catalogue, option_types
from tosakit.engine.driver import run_steps
from tosakit.engine.rule import Rule, Step
from tosakit.errors import InvalidModel, TosakitError
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.program import Program
from tosakit.testing import programs
from tosakit.testing.choices import Choices, Seeded
from tosakit.testing.holds import qparams_of
from tosakit.testing.mutation import mutated
from tosakit.testing.properties import Fault, Setting, Trial, examine
from tosakit.testing.reduction import reduce_program
from tosakit.testing.sketch import Unfit
from tosakit.testing.special import LEGAL, REPAIRABLE, stateful
from tosakit.testing.wishes import Wish, nearest, variants

TARGETS = ("", "ethos-u55-128", "ethos-u85-256")
LARGEST_FILE = 1 << 20
"""Bytes of the largest file that is mutated."""
REDUCTIONS = 150
MUTANTS = 2
"""Mutations of one model that are looked at for one case."""


@dataclass(frozen=True)
class Plan:
    """What a campaign tries. ``names`` are rules and pipelines, none for all; ``files`` are models to mutate.

    ``rules_modules`` are loaded from ``search_path`` too, in whatever process a case runs.
    """

    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    seed: int = 0
    vectors: int = 4
    rules_modules: tuple[str, ...] = ()
    search_path: str = ""

    def catalogue(self) -> Catalogue:
        """The rules at hand. Raises as :func:`tosakit.catalogue.load_catalogue`."""
        if self.search_path and self.search_path not in sys.path:
            sys.path.insert(0, self.search_path)
        return _catalogue(self.rules_modules)

    def subjects(self) -> tuple[tuple[str, tuple[Step, ...]], ...]:
        """What is tried in turn: rules by themselves, then pipelines. Raises InvalidArgument for an unknown name."""
        known = self.catalogue()
        every = {**{name: (step,) for name, step in known.steps.items()}, **known.pipelines}
        if not self.names:
            return tuple(every.items())
        return tuple((name, every[name] if name in every else (known.step(name),)) for name in self.names)


@lru_cache(maxsize=4)
def _catalogue(modules: tuple[str, ...]) -> Catalogue:
    return load_catalogue(modules)


@dataclass(frozen=True)
class Case:
    """A program and how it is tried. ``source`` is the file it was made from, "" for a random program."""

    number: int
    subject: str
    steps: tuple[Step, ...]
    program: Program
    setting: Setting
    source: str


@dataclass(frozen=True)
class Found:
    """A fault that a case shows: ``key`` is that of its kind, ``model`` and ``qparams`` are contents of files."""

    key: str
    case: int
    subject: str
    kind: str
    message: str
    source: str
    target: str
    options: Mapping[str, Mapping[str, Any]]
    model: bytes = field(repr=False)
    qparams: str = field(repr=False)
    operators: int


@dataclass(frozen=True)
class Outcome:
    """What one case came to: the steps that fired, and those that gave a reason why they did not."""

    number: int
    subject: str
    fired: tuple[str, ...]
    refused: tuple[str, ...]
    unchecked: bool
    vectors: int
    found: Found | None = None


def make_case(plan: Plan, number: int) -> Case:
    """The case of that number. Raises Unfit where nothing could be drawn.

    Four in five are drawn until one of the steps does what is wished for: fires, or leaves the program alone.
    """
    choices = Seeded(f"{plan.seed}/{number}")
    subjects = plan.subjects()
    subject, steps = subjects[number % len(subjects)]
    wish = Wish(choices.pick(steps).name, choices.flag(0.6)) if choices.flag(0.8) else None

    def draw() -> Iterator[Case]:
        options = {step.name: _options(choices, step) for step in steps}
        setting = Setting(options, choices.pick(TARGETS), plan.vectors, choices.integer(0, 1 << 16))
        for program, source in _programs(choices, plan, steps):
            yield Case(number, subject, steps, program, setting, source)

    return nearest(wish, draw, lambda case, wanted: wanted.granted(case.program, case.steps, case.setting))


def _programs(choices: Choices, plan: Plan, steps: Sequence[Step]) -> Iterator[tuple[Program, str]]:
    """A piece of a model, mutated, or a random program with the variants of it, each with the file it came from."""
    if plan.files and choices.flag(0.4):
        name = choices.pick(plan.files)
        try:
            model = load(Path(name))
            for _ in range(MUTANTS):
                yield mutated(choices, model), name
        except TosakitError:
            return  # it cannot be mutated
    else:
        rules = [step for step in steps if isinstance(step, Rule)]
        if rules and choices.flag(0.7):
            program = programs.from_pattern(choices, choices.pick(rules))
        else:
            program = programs.program(choices)
        earlier = choices.pick(list(plan.catalogue().steps.values()))
        prepared = partial(_after, earlier, _options(choices, earlier))
        for variant in variants(choices, program, (mutated, prepared, stateful, *LEGAL, *REPAIRABLE)):
            yield variant, ""


def _after(step: Step, options: Any, choices: Choices, program: Program) -> Program | None:
    """The program after another step; a fault of that one is a case of its own."""
    try:
        return run_steps(program.clone(), [step], options={step.name: options}, target=choices.pick(TARGETS)).program
    except TosakitError:
        return None


def _options(choices: Choices, step: Step) -> Any:
    """Options of a step: a rule acts wherever it can in most cases, and other choices vary."""
    chosen: dict[str, Any] = {}
    for name, kind in option_types(step).items():
        if get_origin(kind) is Literal:
            among = get_args(kind)
            chosen[name] = "all" if "all" in among and choices.flag(0.7) else choices.pick(among)
        elif kind is bool:
            chosen[name] = choices.flag()
    return step.options(**chosen)


def run_case(plan: Plan, number: int) -> Outcome | None:
    """Run the case of that number; None where nothing could be drawn. Raises ToolMissing without the model."""
    try:
        case = make_case(plan, number)
    except Unfit:
        return None
    trial = _trial(case, case.program)
    found = None if trial.fault is None else _found(case, case.program, trial.fault)
    fired = tuple(trial.fired)
    refused = tuple(dict.fromkeys(refused.rule for refused in trial.refusals if refused.rule not in fired))
    return Outcome(number, case.subject, fired, refused, bool(trial.unchecked), trial.vectors, found)


def _found(case: Case, program: Program, fault: Fault) -> Found:
    options = {
        name: {f.name: getattr(chosen, f.name) for f in fields(chosen)} for name, chosen in case.setting.options.items()
    }
    return Found(
        key=f"{case.subject}: {fault.kind}: {_without_names(fault.message)}",
        case=case.number,
        subject=case.subject,
        kind=fault.kind,
        message=fault.message,
        source=case.source,
        target=case.setting.target,
        options=options,
        model=dumps(program),
        qparams=qparams_of(program),
        operators=program.operator_count,
    )


def _trial(case: Case, program: Program, *, contracts: bool = True) -> Trial:
    return examine(program, case.steps, case.setting, contracts=contracts)


_NAMES = re.compile(r'"[^"]*"|-?\d+(\.\d+)?(e[+-]?\d+)?|\[[^\]]*\]')


def _without_names(message: str) -> str:
    return _NAMES.sub("#", message.partition("\n")[0])[:160]


def reduce_found(plan: Plan, found: Found) -> Found:
    """The same fault on a smaller program."""
    case = make_case(plan, found.case)
    contracts = found.kind in ("contract", "raised", "order")

    def fails(candidate: Program) -> bool:
        fault = _trial(case, candidate, contracts=contracts).fault
        return fault is not None and fault.kind == found.kind

    reduced = reduce_program(case.program, fails, attempts=REDUCTIONS)
    fault = _trial(case, reduced.program).fault or Fault(found.kind, found.message)
    return replace(_found(case, reduced.program, fault), key=found.key)


def corpus_files(folder: Path) -> tuple[str, ...]:
    """Models of a folder that can be mutated, in order. Raises InvalidModel where there is none."""
    found = tuple(str(path) for path in sorted(folder.rglob("*.tosa")) if path.stat().st_size <= LARGEST_FILE)
    if not found:
        raise InvalidModel(f"{folder} holds no .tosa file of at most {LARGEST_FILE:,} bytes to mutate")
    return found
