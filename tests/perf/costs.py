"""What the forms of a rewrite cost on each accelerator, as Vela estimates: ``python -m tests.perf.costs``.

Writes the table of docs/costs.md (``--check`` only compares) from the corpus beside the checkout and from small
graphs, and says where the default is not the cheapest form and where the ethos-u pipeline makes a model slower that
Vela takes as it is.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.backend.compare_vela import CORPUS, quantised
from tests.support.indices import drawn_indices, indexed
from tests.support.strides import Case, convolution
from tests.support.vela_pool import FAMILIES, Job, Verdict, compile_all
from tosakit import rewrite
from tosakit.backend.obstacles import find_obstacles
from tosakit.errors import TosakitError
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.program import Program

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"
BEGIN, END = "<!-- begin of costs -->", "<!-- end of costs -->"


@dataclass(frozen=True)
class Form:
    """One form of a rewrite: rules or a pipeline with options; neither: the file as it is."""

    name: str
    rules: tuple[str, ...] = ()
    pipeline: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """Forms to choose from, the models to measure them on, and the run that shows which one is the default."""

    what: str
    models: tuple[str, ...]
    forms: tuple[Form, ...]
    default: Form


def against_native(what: str, rule: str, *models: str) -> Choice:
    """Vela's own form beside a rule's."""
    forms = (Form("as it is"), Form(f"`{rule}`", (rule,), options={f"{rule}.when": "all"}))
    return Choice(what, models, forms, Form("", (rule,)))


def _widened(form: str) -> Form:
    return Form(form, pipeline="int16", options={"widen_int8_activations.rescale_form": form})


STEM = Case(out=(14, 14), kernel=(16, 16), stride=(16, 16), channels=(3, 192))
GRAPHS: dict[str, Callable[[], Program]] = {
    "16x16 patches of 224x224x3": lambda: convolution(STEM),
    "4x4 patches of 224x224x3": lambda: convolution(Case(out=(56, 56), kernel=(4, 4), channels=(3, 96))),
    "7x7, stride 4, padded, 223x223x3": lambda: convolution(
        Case(out=(56, 56), kernel=(7, 7), pad=(3, 3, 3, 3), channels=(3, 64))
    ),
    "3x3 depthwise, stride 4, padded, 63x63x64": lambda: convolution(
        Case(out=(16, 16), pad=(1, 1, 1, 1), channels=(64, 64), depthwise=True)
    ),
    "10 of 100 rows of 64": lambda: indexed((1, 100, 64), drawn_indices(np.random.default_rng(0), 1, 100, 10)),
    "64 of 64 rows of 8": lambda: indexed((1, 64, 8), drawn_indices(np.random.default_rng(0), 1, 64, 64)),
}
"""INT8 graphs of one operator, for what no model of the corpus has."""

CHOICES = (
    against_native("int16 TRANSPOSE_CONV2D", "transpose_conv2d_as_conv2d", "transpose_conv_a16w8", "unet_a16w8"),
    against_native("CONV3D", "conv3d_as_conv2d", "conv3d_a8w8", "conv3d_a16w8"),
    against_native("int16 MATMUL", "int16_matmul_as_int8", "matmul_a16w8", "transformer_block_a16w8"),
    against_native("bilinear RESIZE", "resize_bilinear_as_conv2d", "upsample_bilinear_a8w8", "upsample_bilinear_a16w8"),
    against_native("INT48 accumulator with two readers", "single_rescale_per_accumulator", "mobilenet_v2_a16w8"),
    against_native(
        "int16 REDUCE_SUM", "keep_rescale_apart", "mean_hw_a16w8", "dscnn_kws_a16w8", "transformer_block_a16w8"
    ),
    against_native("INT48 bias", "split_int48_bias", "conv3x3_s1_a16w8", "dscnn_kws_a16w8", "resblock_a16w8"),
    against_native("stride above 3", "shorten_long_strides", *list(GRAPHS)[:4]),
    against_native("GATHER by constants", "constant_indices_as_movement", *list(GRAPHS)[4:]),
    Choice(
        "INT48 to int16 after widening",
        ("conv3x3_s1_a8w8", "dscnn_kws_a8w8", "resblock_a8w8"),
        (_widened("one-step"), _widened("two-step")),
        Form("", pipeline="int16"),
    ),
)


def rewritten(program: Program, form: Form, accelerator: str) -> bytes | None:
    """The program in one form for one accelerator; None where the rules refuse."""
    if not form.rules and not form.pipeline:
        return dumps(program)
    try:
        how: dict[str, Any] = {"rules": form.rules} if form.rules else {"pipeline": form.pipeline}
        return dumps(rewrite(program, **how, options=form.options, target=accelerator, check="none").program)
    except TosakitError:
        return None


Cells = dict[tuple[str, str, str], dict[str, tuple[Verdict | None, bool]]]
"""By choice, model and form: each accelerator's verdict, and whether the form is the default there."""


def measure(corpus: Path) -> Cells:
    """Compile every form of every choice for every accelerator."""
    paths = {path.stem: path for path in quantised(corpus)}
    jobs: list[Job] = []
    keys: list[tuple[tuple[str, str, str], str, bool]] = []
    for choice, model, accelerator in _points():
        program = GRAPHS[model]() if model in GRAPHS else load(paths[model])
        default = rewritten(program, choice.default, accelerator)
        for form in choice.forms:
            data = rewritten(program, form, accelerator)
            if data is not None:
                jobs.append(Job(form.name, data, accelerator))
                keys.append(((choice.what, model, form.name), accelerator, data == default))
    cells: Cells = {(c.what, m, f.name): {} for c in CHOICES for m in c.models for f in c.forms}
    for (key, accelerator, is_default), verdict in zip(keys, compile_all(jobs), strict=True):
        cells[key][accelerator] = (verdict, is_default)
    return cells


def _points() -> Iterator[tuple[Choice, str, str]]:
    return ((choice, model, accelerator) for choice in CHOICES for model in choice.models for accelerator in FAMILIES)


def table(cells: Cells) -> list[str]:
    """Rows of Markdown: cycles of the inference, the default in bold, a dash where Vela refuses."""
    lines = [f"| what | model | form | {' | '.join(FAMILIES)} |", "|---|---|---|" + "--:|" * len(FAMILIES)]
    for (what, model, form), found in cells.items():
        shown = [_cell(*found[accelerator]) if accelerator in found else "" for accelerator in FAMILIES]
        lines.append(f"| {what} | {model} | {form} | {' | '.join(shown)} |")
    return lines


def _cell(verdict: Verdict | None, is_default: bool) -> str:
    if verdict is None or not verdict.accepted:
        return "–"
    return f"**{verdict.total_cycles:,.0f}**" if is_default else f"{verdict.total_cycles:,.0f}"


def dearer_defaults(cells: Cells) -> list[str]:
    """Where another form is cheaper than the default."""
    lines = []
    for choice, model, accelerator in _points():
        found = [
            (form.name, *cells[(choice.what, model, form.name)].get(accelerator, (None, False)))
            for form in choice.forms
        ]
        costs = {name: verdict.total_cycles for name, verdict, _ in found if verdict is not None and verdict.accepted}
        chosen = [name for name, _, is_default in found if is_default and name in costs]
        best = min(costs, key=lambda name: costs[name], default=None)
        if best is not None and chosen and costs[chosen[0]] > costs[best]:
            lines.append(
                f"{accelerator}, {choice.what}, {model}: {best} takes {costs[best]:,.0f} cycles, "
                f"the default, {chosen[0]}, {costs[chosen[0]]:,.0f}"
            )
    return lines


def slower(paths: list[Path]) -> tuple[list[str], int]:
    """Models that Vela takes, and takes rightly, and that the ethos-u pipeline makes slower; how many were compared."""
    jobs: list[Job] = []
    for path in paths:
        program = load(path)
        for accelerator in FAMILIES:
            if any(obstacle.kind == "miscompiled" for obstacle in find_obstacles(program, accelerator)):
                continue
            done = rewrite(program, pipeline="ethos-u", target=accelerator, check="none")
            jobs += [Job(path.stem, dumps(each), accelerator) for each in (program, done.program)]
    verdicts = compile_all(jobs)
    pairs = [(a, b) for a, b in zip(verdicts[::2], verdicts[1::2], strict=True) if a.accepted]
    lines = [
        f"{before.accelerator} {before.name}: {before.total_cycles:,.0f} cycles, rewritten {after.total_cycles:,.0f}"
        for before, after in pairs
        if not after.accepted or after.total_cycles > before.total_cycles
    ]
    return lines, len(pairs)


def main() -> int:
    """Measure, write or compare the page, and report; 1 where something is dearer or the page is not up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--check", action="store_true", help="compare the page instead of writing it")
    parser.add_argument("--table-only", action="store_true", help="do not look for models that become slower")
    options = parser.parse_args()
    cells = measure(options.corpus)
    old = PAGE.read_text(encoding="utf-8")
    text = "\n".join(["", *table(cells), ""])
    new = re.sub(f"({BEGIN}\n).*?({END})", lambda match: match[1] + text + match[2], old, flags=re.DOTALL)
    if not options.check:
        PAGE.write_text(new, encoding="utf-8")
    lines, compared = ([], 0) if options.table_only else slower(quantised(options.corpus))
    dearer = dearer_defaults(cells)
    print(*dearer, *lines, sep="\n")
    print(f"{len(dearer)} defaults are not the cheapest form; {len(lines)} of {compared} models became slower")
    return 1 if dearer or lines or (options.check and new != old) else 0


if __name__ == "__main__":
    sys.exit(main())
