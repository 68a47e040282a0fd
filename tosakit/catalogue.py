"""Find rules, transforms and pipelines by name: the shipped ones, those of installed packages, and a given module's."""

import difflib
import importlib
import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any, get_args

from tosakit.engine.rule import Rule, Step, Transform
from tosakit.errors import InvalidArgument, RuleBug

ENTRY_POINT_GROUP = "tosakit.rules"
"""Packages announce a module with ``RULES`` (and perhaps ``PIPELINES``) under this entry point group."""

SHIPPED = "rewrites"


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
            raise InvalidArgument(_unknown("pipeline", pipeline, self.pipelines))
        return self.pipelines[pipeline]

    def step(self, name: str) -> Step:
        """The rule or transform of that name. Raises InvalidArgument for an unknown name."""
        if name not in self.steps:
            raise InvalidArgument(_unknown("rule", name, self.steps))
        return self.steps[name]

    def options(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Option values by step from settings such as ``{"widen_int8_activations.io": "int8"}``.

        Text is converted to the option's type. Raises InvalidArgument for an unknown rule, option or value.
        """
        values: dict[str, Any] = {}
        for key, value in settings.items():
            name, dot, option = key.partition(".")
            if not dot:
                raise InvalidArgument(f'setting "{key}" must read RULE.OPTION=VALUE')
            step = self.step(name)
            known = {f.name: f.type for f in fields(step.options)}
            if option not in known:
                raise InvalidArgument(_unknown(f"option of {name}", option, known))
            base = values.get(name) or step.options()
            values[name] = replace(base, **{option: _convert(key, value, getattr(base, option), known[option])})
        return values


def _convert(key: str, value: Any, current: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if choices and all(isinstance(choice, str) for choice in choices):
        if value not in choices:
            raise InvalidArgument(f'"{value}" is no value of {key}; it takes {", ".join(choices)}')
        return value
    if not isinstance(value, str) or isinstance(current, str):
        return value
    try:
        if isinstance(current, bool):
            return {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}[value.lower()]
        return type(current)(value)
    except (KeyError, ValueError):
        raise InvalidArgument(f'"{value}" is no {type(current).__name__} for {key} (now {current})') from None


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else f"; there are: {', '.join(known) or 'none'}"
    return f'unknown {kind} "{name}"{hint}'


def load_catalogue(modules: Sequence[str] = ()) -> Catalogue:
    """All rules at hand: shipped, of installed packages, then of ``modules``.

    Raises InvalidArgument where a module cannot be imported or two rules share a name, RuleBug where it is ill-formed.
    """
    steps: dict[str, Step] = {}
    pipelines: dict[str, tuple[Step, ...]] = {}
    sources: list[ModuleType] = [importlib.import_module(SHIPPED)]
    for point in sorted(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda p: p.name):
        sources.append(_import(point.value))
    sources.extend(_import(name) for name in modules)
    for module in sources:
        rules = getattr(module, "RULES", None)
        if not isinstance(rules, tuple) or not all(isinstance(step, Rule | Transform) for step in rules):
            raise RuleBug(f"module {module.__name__} must define RULES, a tuple of Rule and Transform values")
        for step in rules:
            if steps.setdefault(step.name, step) is not step:
                raise InvalidArgument(f'two rules are called "{step.name}", one of them in {module.__name__}')
        pipelines.update(getattr(module, "PIPELINES", {}))
    return Catalogue(steps, pipelines)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidArgument(f'cannot import the rules module "{name}": {error}') from None
