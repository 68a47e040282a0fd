"""``tosakit rules``: the catalogue for people."""

import argparse
import inspect
import json
import sys
from dataclasses import fields

from tosakit.catalogue import Catalogue, load_catalogue
from tosakit.cli.console import table
from tosakit.engine.rule import Rule, Step


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    catalogue = load_catalogue(options.rules_module)
    if options.name:
        _explain(catalogue.step(options.name))
    elif options.json:
        print(json.dumps(_as_json(catalogue), indent=1))
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
    default = step.options()
    return [
        {"name": f.name, "default": str(getattr(default, f.name)), "type": str(f.type)} for f in fields(step.options)
    ]


def _as_json(catalogue: Catalogue) -> dict[str, object]:
    steps = [
        {
            "name": step.name,
            "kind": _kind(step),
            "contract": str(step.contract),
            "summary": step.summary,
            "options": _options(step),
        }
        for step in catalogue.steps.values()
    ]
    pipelines = {name: [step.name for step in steps] for name, steps in catalogue.pipelines.items()}
    return {"rules": steps, "pipelines": pipelines}


def _explain(step: Step) -> None:
    home = step.precondition if isinstance(step, Rule) else step.run
    module = sys.modules[home.__module__]
    print(f"{step.name} ({_kind(step)}): {step.summary}\n\ncontract: {step.contract}\n")
    print(inspect.getdoc(module) or "")
    rows = [(o["name"], o["default"], o["type"]) for o in _options(step)]
    if rows:
        print()
        table("options (--set NAME.OPTION=VALUE)", ("option", "default", "type"), rows)
