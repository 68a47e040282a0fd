"""``tosakit vela``, and the last stage of ``tosakit rewrite``: compile for Ethos-U and report what came out."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tosakit.backend.compile import Compilation, compile_program, require_vela
from tosakit.backend.vela import VelaRefusal, VelaReport, VelaTensor
from tosakit.cli.console import require_legal, say, say_some, table
from tosakit.cli.parser import source_of
from tosakit.engine.rule import Refused
from tosakit.io.reader import load
from tosakit.ir.program import Program

SEVERITIES = {"miscompiled": "refuse", "suspected": "warn"}
"""What the report calls the kinds of hazards."""

DEAREST = 12
"""Operators whose costs are printed; the report has all."""

SUSPECTS = 3
"""Results that a refusal's message names; the report has all."""


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 0 accepted, 1 refused or crashed. Raises InvalidModel for a file that is not legal TOSA."""
    require_vela(options.vela)
    program = load(source_of(options.input))
    require_legal(program, options.input)
    found = compile_with(options, program, options.input, beside=options.input)
    if options.json:
        print(json.dumps(vela_json(found), indent=1))
    elif found.report is not None:
        print_vela(found.report)
    return 0 if found.accepted else 1


def compile_with(
    options: argparse.Namespace, program: Program, model: str, *, beside: str | None, refused: Sequence[Refused] = ()
) -> Compilation:
    """Compile with the options of the command line, and say what Vela would get wrong, and which rules ``refused``.

    The result is named after ``model`` and goes to --vela-output, else next to the file ``beside``, else nowhere.
    """
    place = Path(options.vela_output) if options.vela_output else None if beside is None else Path(beside).parent
    name = "model" if model == "-" else Path(model).stem
    found = compile_program(program, options.vela, name=name, place=place, refused=refused, **_settings(options))
    fatal = "warning" if options.allow_miscompile else "error"
    say_some([f"{fatal if o.kind == 'miscompiled' else 'warning'}: {o}" for o in found.obstacles], "obstacles")
    if found.report is None:
        say(
            f"error: Vela would silently compile {len(found.of_kind('miscompiled'))} operators into something else for "
            f"{options.vela}, see above; it was not run. To run it all the same: --allow-miscompile"
        )
    return found


def compile_quietly(options: argparse.Namespace, program: Program) -> Compilation:
    """Compile with the options of the command line, for the figures alone: nothing is written or said."""
    return compile_program(program, options.vela, name="model", place=None, **_settings(options))


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "allow_miscompile": options.allow_miscompile,
        "settings": {
            "system_config": options.system_config,
            "memory_mode": options.memory_mode,
            "config": Path(options.vela_config) if options.vela_config else None,
            "optimise": options.optimise,
            "arena_cache_size": options.arena_cache_size,
            "extra_args": tuple(options.vela_arg),
        },
    }


def print_vela(report: VelaReport) -> None:
    """The compiler's answer as tables on stdout."""
    if report.crashed:
        print(f"Vela {report.vela_version} crashed on {report.accelerator}: {report.crashed}")
    for refusal in report.refused:
        print(f"Vela {report.vela_version} refuses it for {report.accelerator}: {_refusal(refusal)}")
    if not report.accepted:
        return
    cycles = (("NPU cycles", report.npu_cycles), ("total cycles", report.total_cycles))
    rows = [(name, "?" if count is None else f"{count:,.0f}") for name, count in cycles]
    rows.extend((f"{name} (KiB)", f"{size:,.1f}") for name, size in report.memory.items())
    if report.output_path is not None:
        rows.append(("written", str(report.output_path)))
    table(f"Vela {report.vela_version} for {report.accelerator}", ("", ""), rows)
    tensors = [("input", t) for t in report.inputs] + [("output", t) for t in report.outputs]
    if report.operators:
        dearest = sorted(report.operators, key=lambda cost: -cost.cycles)[:DEAREST]
        table(
            f"the {len(dearest)} dearest of {len(report.operators)} operators that take time",
            ("operator", "result", "cycles", "NPU cycles", "MACs", "memory (KiB)"),
            [(c.operator, c.tensor, int(c.cycles), int(c.npu_cycles), c.macs, c.memory_bytes / 1024) for c in dearest],
        )
    table(
        "interface",
        ("", "tensor", "dtype", "shape", "bytes", "offset"),
        [(kind, t.name or "?", t.dtype or "?", str(list(t.shape)), t.size_bytes, t.offset) for kind, t in tensors],
    )


def _refusal(refusal: VelaRefusal) -> str:
    """Vela's words, with the operator as TOSA calls it and the results it can be about."""
    text = refusal.message if refusal.count == 1 else f"{refusal.message} ({refusal.count} times)"
    kind = refusal.tosa_operator or refusal.operator
    if kind is None:
        return text
    where = " or ".join(f'"{name}"' for name in refusal.tensors[:SUSPECTS])
    more = f" or {len(refusal.tensors) - SUSPECTS} others" if len(refusal.tensors) > SUSPECTS else ""
    return f"{kind}{f' -> {where}{more}' if where else ''}: {text}"


def vela_json(found: Compilation) -> dict[str, Any]:
    """What Vela made of a program as JSON; most of it is null or empty where it was not run."""
    report = found.report or VelaReport(False, found.accelerator, "")
    return {
        "accepted": found.accepted,
        "accelerator": found.accelerator,
        "vela_version": report.vela_version or None,
        "hazards": [
            {"severity": severity, "operator": o.operator, "message": o.message, "helps": o.helps}
            for o in found.obstacles
            if (severity := SEVERITIES.get(o.kind))
        ],
        "expected_refusals": [
            {"operator": o.operator, "tensors": list(o.tensors), "message": o.message, "helps": o.helps}
            for o in found.of_kind("refused")
        ],
        "refused": [
            {
                "operator": refusal.tosa_operator,
                "vela_operator": refusal.operator,
                "tensors": list(refusal.tensors),
                "message": refusal.message,
                "count": refusal.count,
            }
            for refusal in report.refused
        ],
        "crashed": report.crashed,
        "npu_cycles": report.npu_cycles,
        "total_cycles": report.total_cycles,
        "memory_kib": dict(report.memory),
        "operators": [asdict(cost) for cost in report.operators],
        "output": str(report.output_path) if report.output_path else None,
        "inputs": [_tensor(t) for t in report.inputs],
        "outputs": [_tensor(t) for t in report.outputs],
    }


def _tensor(tensor: VelaTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "bytes": tensor.size_bytes,
        "region": tensor.region,
        "offset": tensor.offset,
    }
