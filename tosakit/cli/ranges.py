"""``tosakit ranges``: what every integer tensor can hold, and which operators that proves safe."""

import argparse
import json
import re

from tosakit.cli.console import say, table
from tosakit.cli.parser import source_of
from tosakit.errors import InvalidArgument
from tosakit.io.reader import load
from tosakit.ir.types import Array
from tosakit.oracle.ranges import OperatorRange, Ranges, Safety, TensorRange, ranges
from tosakit.spec.verify import verify

UNSAFE = 1
"""Exit code where an operator is unsafe."""


def run(options: argparse.Namespace) -> int:
    """Run the subcommand: 1 where an operator is unsafe, else 0."""
    program = load(source_of(options.input))
    found = ranges(program, parse_inputs(options.inputs), search=options.search)
    if options.json:
        print(json.dumps(_as_json(found), indent=1))
    else:
        _print(found)
    if errors := sum(finding.severity == "error" for finding in verify(program)):
        say(f"the file is not legal TOSA (errors: {errors}), so take its numbers with care; tosakit check tells more")
    say(str(found))
    return UNSAFE if found.count(Safety.UNSAFE) else 0


def parse_inputs(entries: list[str]) -> dict[str, tuple[int, int]]:
    """``["NAME=LOW..HIGH"]`` as a mapping. Raises InvalidArgument for anything else."""
    inputs: dict[str, tuple[int, int]] = {}
    for entry in entries:
        parts = re.fullmatch(r"(.+)=([+-]?\d+)\.\.([+-]?\d+)", entry)
        if parts is None:
            raise InvalidArgument(f'--inputs {entry}: expected NAME=LOW..HIGH, such as "x=-100..100"')
        inputs[parts[1]] = int(parts[2]), int(parts[3])
    return inputs


def _print(found: Ranges) -> None:
    rows = [
        (t.block, t.name, f"{t.dtype.name} {list(t.shape)}", t.lowest, t.highest, _channels(t)) for t in found.tensors
    ]
    table("tensors", ("block", "tensor", "type", "lowest", "highest", ""), rows)
    open_ones = [op for op in found.operators if op.safety is not Safety.SAFE]
    if open_ones:
        print()
        table(
            "operators that are not proved safe",
            ("block", "operator", "verdict", "because"),
            [(op.block, op.operator, op.safety.value, "; ".join((*op.reasons, *_shown(op)))) for op in open_ones],
        )


def _shown(op: OperatorRange) -> list[str]:
    """What an input does to the operator, where one was found; JSON has the input itself."""
    if op.witness is None:
        return []
    values = ", ".join(_values(name, array) for name, array in op.witness.inputs.items())
    message = re.sub(r" AT \S*/", " at ", op.witness.message.partition("\n")[0])  # of the model's own source
    return [f"shown with {values}: {message}"]


def _values(name: str, array: Array) -> str:
    if not array.size:
        return f"{name} empty"
    low, high = array.min(), array.max()
    return f"{name} = {low}" if low == high else f"{name} from {low} to {high}"


def _channels(tensor: TensorRange) -> str:
    return "" if isinstance(tensor.low, int) and isinstance(tensor.high, int) else "by channel"


def _as_json(found: Ranges) -> dict[str, object]:
    return {
        "tensors": [
            {
                "block": t.block,
                "name": t.name,
                "dtype": t.dtype.name,
                "shape": list(t.shape),
                "low": t.low,
                "high": t.high,
            }
            for t in found.tensors
        ],
        "operators": [_operator_json(op) for op in found.operators],
        "summary": {safety.value: found.count(safety) for safety in Safety},
    }


def _operator_json(op: OperatorRange) -> dict[str, object]:
    return {
        "block": op.block,
        "index": op.index,
        "operator": op.operator,
        "verdict": op.safety.value,
        "reasons": list(op.reasons),
        "witness": None if op.witness is None else {name: array.tolist() for name, array in op.witness.inputs.items()},
    }
