"""Find rules, transforms and pipelines by name: the shipped ones, those of installed packages, and a given module's."""

import difflib
import importlib
import importlib.metadata
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tosakit.engine.rule import Rule, Step, Transform
from tosakit.errors import InvalidArgument, RuleBug, TosakitError

ENTRY_POINT_GROUP = "tosakit.rules"
"""Packages announce a module with ``RULES`` (and perhaps ``PIPELINES``) under this entry point group."""

SHIPPED = "rewrites"

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Catalogue:
    """Steps and pipelines by name, in the order they were found."""

    steps: Mapping[str, Step]
    pipelines: Mapping[str, tuple[Step, ...]]

    def choose(self, pipeline: str | None, rules: Sequence[str] | None) -> tuple[Step, ...]:
        """The steps of a pipeline, or the named rules in the given order. Raises InvalidArgument for a wrong name."""
        if pipeline is not None and rules:
            raise InvalidArgument("give a pipeline or rules, not both")
        if rules:
            return tuple(self.step(name) for name in rules)
        if pipeline is None:
            raise InvalidArgument(f"name a pipeline ({', '.join(self.pipelines)}) or rules")
        if pipeline not in self.pipelines:
            raise InvalidArgument(unknown("pipeline", pipeline, self.pipelines))
        return self.pipelines[pipeline]

    def step(self, name: str) -> Step:
        """The rule or transform of that name. Raises InvalidArgument for an unknown name."""
        if name not in self.steps:
            raise InvalidArgument(unknown("rule", name, self.steps))
        return self.steps[name]

    def options(self, settings: Mapping[str, Any], steps: Iterable[Step] | None = None) -> dict[str, Any]:
        """Option values by step from settings such as ``{"widen_int8_activations.io": "int8"}``.

        Text is converted to the option's type. Raises InvalidArgument for an unknown rule, option or value, and for a
        rule that is not among ``steps``, on which the setting would have no effect.
        """
        values: dict[str, Any] = {}
        running = None if steps is None else [step.name for step in steps]
        for key, value in settings.items():
            name, dot, option = key.partition(".")
            if not dot:
                raise InvalidArgument(f'setting "{key}" must read RULE.OPTION=VALUE')
            step = self.step(name)
            if running is not None and name not in running:
                raise InvalidArgument(f"{key} has no effect: {name} is not among the steps, {', '.join(running)}")
            kinds = option_types(step)
            if option not in kinds:
                raise InvalidArgument(unknown(f"option of {name}", option, kinds))
            converted = _convert(key, value, kinds[option])
            try:
                values[name] = replace(values.get(name) or step.options(), **{option: converted})
            except (TosakitError, ValueError) as error:
                raise InvalidArgument(f'"{value}" is no value of {key}: {error}') from None
        return values


def option_types(step: Step) -> dict[str, Any]:
    """The options of a rule or transform with their types."""
    return _types_of(step.options)  # type: ignore[arg-type]  # mypy takes no class for hashable


@cache
def _types_of(options: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(options)
    return {option.name: hints[option.name] for option in fields(options)}


def type_name(kind: Any) -> str:
    """A type as people write it: ``int``, ``one of all, target``, ``int or none``."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(type_name(part) for part in get_args(kind))
    return "none" if kind is type(None) else str(getattr(kind, "__name__", kind))


def _convert(key: str, value: Any, kind: Any) -> Any:
    """``value`` as ``kind``, from text where it is text."""
    for candidate in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        try:
            return _parse(value, candidate) if isinstance(value, str) else _accept(value, candidate)
        except (KeyError, ValueError):
            continue
    raise InvalidArgument(f'"{value}" is no value of {key}; it takes {type_name(kind)}')


def _parse(text: str, kind: Any) -> Any:
    """Raises KeyError or ValueError where ``text`` does not stand for a value of ``kind``."""
    if get_origin(kind) is Literal:
        return {str(choice): choice for choice in get_args(kind)}[text]
    if kind is bool:
        return _TRUTH[text.lower()]
    if kind is type(None):
        return {"none": None}[text.lower()]
    if kind is float:
        return _finite(float(text))
    if kind in (int, str):
        return kind(text)
    raise ValueError


def _accept(value: Any, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return {choice: choice for choice in get_args(kind) if type(choice) is type(value)}[value]
    if kind is float and type(value) in (int, float):
        return _finite(float(value))
    if type(value) is not kind:
        raise ValueError
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return value


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """A message for a name that nobody knows, with the closest ones, or all."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else f"; there are: {', '.join(known) or 'none'}"
    return f'unknown {kind} "{name}"{hint}'


def load_catalogue(modules: Sequence[str] = ()) -> Catalogue:
    """All rules at hand: shipped, of installed packages, then of ``modules``.

    Raises InvalidArgument where a module cannot be imported or two rules or pipelines share a name, RuleBug where it is
    ill-formed.
    """
    found = _Found()
    found.take(importlib.import_module(SHIPPED))
    for point in _announced():
        found.take(_import(point.module, f'announced as "{point.name}" by an installed package'))
    for name in modules:
        found.take(_import(name))
    return Catalogue(found.steps, found.pipelines)


@cache
def _announced() -> Sequence[importlib.metadata.EntryPoint]:
    """What installed packages announce, by name: looked up once, for it takes the metadata of every package."""
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return sorted(points, key=lambda p: (p.name, p.value))


class _Found:
    """What the modules seen so far define, and which of them defines it."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self.pipelines: dict[str, tuple[Step, ...]] = {}
        self.homes: dict[str, str] = {}

    def take(self, module: ModuleType) -> None:
        """Add a module's rules and pipelines. Raises as :func:`load_catalogue`."""
        name = module.__name__
        for step in _steps(getattr(module, "RULES", None), f"module {name} must define RULES,"):
            _require_options(step, name)
            self._claim("rule", step.name, name, self.steps.setdefault(step.name, step) is step)
        pipelines = getattr(module, "PIPELINES", {})
        if not isinstance(pipelines, Mapping):
            raise RuleBug(f"PIPELINES of module {name} must map names to steps")
        for pipeline, value in pipelines.items():
            steps = _steps(value, f'pipeline "{pipeline}" of module {name} must be')
            strangers = [step.name for step in steps if self.steps.get(step.name) is not step]
            if strangers:
                raise RuleBug(f'pipeline "{pipeline}" of module {name} has "{strangers[0]}", which is not in RULES')
            self._claim("pipeline", pipeline, name, self.pipelines.setdefault(pipeline, steps) == steps)

    def _claim(self, kind: str, name: str, module: str, free: bool) -> None:
        home = self.homes.setdefault(f"{kind} {name}", module)
        if not free:
            raise InvalidArgument(f'two {kind}s are called "{name}", one in {home}, one in {module}; rename one')


def _steps(value: object, demand: str) -> tuple[Step, ...]:
    if not isinstance(value, tuple) or not all(isinstance(step, Rule | Transform) for step in value):
        raise RuleBug(f"{demand} a tuple of Rule and Transform values")
    return value


def _require_options(step: Step, module: str) -> None:
    if not isinstance(step.options, type) or not is_dataclass(step.options):
        raise RuleBug(f"rule {step.name} of module {module}: its options must be a dataclass, not {step.options!r}")
    try:
        step.options()
        option_types(step)
    except Exception as error:
        raise RuleBug(f"rule {step.name} of module {module}: its options need defaults and types: {error}") from None


def _import(name: str, why: str = "") -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidArgument(f'"{name}" is no name of a module; give one such as my_rules or package.my_rules')
    try:
        return importlib.import_module(name)
    except ImportError as error:
        which = f'"{name}", {why}' if why else f'"{name}"'
        hint = f"; give the name of the module, {name[:-3]}" if name.endswith(".py") else ""
        raise InvalidArgument(f"cannot import the rules module {which}: {error}{hint}") from None
    except Exception as error:
        raise RuleBug(f"the rules module {name} fails when imported: {type(error).__name__}: {error}") from error
