"""``tosakit rules``: the catalogue for people."""

import argparse
import inspect
import json
import sys
from dataclasses import fields

from tosakit.catalogue import Catalogue, option_types, type_name
from tosakit.cli.console import table
from tosakit.cli.parser import catalogue_of
from tosakit.engine.rule import Rule, Step


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    catalogue = catalogue_of(options)
    if options.json:
        print(json.dumps(_step_json(catalogue.step(options.name)) if options.name else _as_json(catalogue), indent=1))
    elif options.name:
        _explain(catalogue.step(options.name))
    else:
        table(
            "rules and transforms",
            ("name", "kind", "contract", "what it does"),
            [(step.name, _kind(step), str(step.contract), step.summary) for step in catalogue.steps.values()],
        )
        print()
        rows = [(name, " -> ".join(step.name for step in steps)) for name, steps in catalogue.pipelines.items()]
        table("pipelines", ("name", "steps"), rows)
    return 0


def _kind(step: Step) -> str:
    return "rule" if isinstance(step, Rule) else "transform"


def _options(step: Step) -> list[dict[str, str]]:
    default, kinds = step.options(), option_types(step)
    return [
        {"name": f.name, "default": str(getattr(default, f.name)), "type": type_name(kinds[f.name])}
        for f in fields(step.options)
    ]


def _step_json(step: Step) -> dict[str, object]:
    return {
        "name": step.name,
        "kind": _kind(step),
        "contract": str(step.contract),
        "summary": step.summary,
        "options": _options(step),
    }


def _as_json(catalogue: Catalogue) -> dict[str, object]:
    pipelines = {name: [step.name for step in steps] for name, steps in catalogue.pipelines.items()}
    return {"rules": [_step_json(step) for step in catalogue.steps.values()], "pipelines": pipelines}


def _explain(step: Step) -> None:
    print(f"{step.name} ({_kind(step)}): {step.summary}\n\ncontract: {step.contract!s}\n")
    home = step.precondition if isinstance(step, Rule) else step.run
    module = sys.modules.get(getattr(home, "__module__", ""))
    print(inspect.getdoc(module) or "" if module else "")
    rows = [(o["name"], o["default"], o["type"]) for o in _options(step)]
    if rows:
        print()
        table("options (--set NAME.OPTION=VALUE)", ("option", "default", "type"), rows)
        print(inspect.getdoc(step.options) or "")
