"""``tosakit vela``, and the last stage of ``tosakit rewrite``: compile for Ethos-U and report what came out."""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from tosakit.backend.hazards import find_hazards
from tosakit.backend.vela import VelaRefusal, VelaReport, VelaTensor, compile_for_ethos_u
from tosakit.cli.console import say, table
from tosakit.cli.parser import source_of
from tosakit.errors import ToolFailed
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.program import Program

SUSPECTS = 3
"""Results that a refusal's message names; the report has all."""


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 0 accepted, 1 refused or crashed."""
    program = load(source_of(options.input))
    options.output = options.input
    report = compile_program(program, options.vela, options)
    if options.json:
        print(json.dumps(vela_json(report), indent=1))
    else:
        print_vela(report)
    return 0 if report.accepted else 1


def compile_program(program: Program, accelerator: str, options: argparse.Namespace) -> VelaReport:
    """Refuse what Vela would silently get wrong, then compile; constants stand inline for Vela."""
    hazards = find_hazards(program, accelerator)
    for hazard in hazards:
        say(f"{'warning' if hazard.severity == 'warn' or options.allow_miscompile else 'error'}: {hazard}")
    refused = [hazard for hazard in hazards if hazard.severity == "refuse"]
    if refused and not options.allow_miscompile:
        raise ToolFailed(
            f"Vela would silently compile {len(refused)} operators into something else for {accelerator} (see above); "
            "not compiled, nothing written. To compile it all the same: --allow-miscompile"
        )
    name = Path(options.output if options.output not in (None, "-") else "model.tosa")
    place = Path(options.vela_output) if options.vela_output else name.parent
    with tempfile.TemporaryDirectory(prefix="tosakit-") as scratch:
        model = Path(scratch) / (name.stem + ".tosa")
        model.write_bytes(dumps(program))
        return compile_for_ethos_u(
            model,
            accelerator,
            output_dir=place,
            system_config=options.system_config,
            memory_mode=options.memory_mode,
            config=Path(options.vela_config) if options.vela_config else None,
            optimise=options.optimise,
            arena_cache_size=options.arena_cache_size,
            extra_args=tuple(options.vela_arg),
        )


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


def vela_json(report: VelaReport) -> dict[str, Any]:
    """The compiler's answer as JSON."""
    return {
        "accepted": report.accepted,
        "accelerator": report.accelerator,
        "vela_version": report.vela_version,
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
