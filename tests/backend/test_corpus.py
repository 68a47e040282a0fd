"""Every quantised real model compiles for every family after the ethos-u pipeline, and keeps its contracts."""

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.backend.compare_vela import CORPUS, quantised
from tests.support.vela_pool import FAMILIES, Job, Verdict, compile_one, import_vela
from tosakit.backend.obstacles import find_obstacles
from tosakit.catalogue import load_catalogue
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.rewriting import run, settle

SMALL = Path(__file__).parents[1] / "corpus"
MODELS = [*quantised(SMALL), *quantised(CORPUS)]
"""Those of this repository, and of the optional shared corpus."""

STEPS = load_catalogue().pipelines["ethos-u"]

Compile = Callable[[Job], Verdict]

pytestmark = [pytest.mark.vela, pytest.mark.refmodel]


@pytest.fixture(scope="module")
def compile_job() -> Iterator[Compile]:
    """Vela, in a process that keeps it imported."""
    with multiprocessing.get_context("spawn").Pool(1, initializer=import_vela) as pool:
        yield lambda job: pool.apply(compile_one, (job,))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_real_model_compiles_everywhere_and_computes_what_it_did(path: Path, compile_job: Compile) -> None:
    original = load(path)
    checked: dict[bytes, None] = {}
    for accelerator in FAMILIES:
        done = run(original, STEPS, options={}, target=accelerator)
        data = dumps(done.program)
        if data not in checked:
            checked[data] = None
            settle(done, vectors=1)
            assert done.check is not None
            assert done.check.kept
        verdict = compile_job(Job(path.stem, data, accelerator))
        assert verdict.accepted, f"{accelerator}: {verdict.reason}"
        if path.parent == SMALL and not find_obstacles(original, accelerator):
            before = compile_job(Job(path.stem, dumps(original), accelerator))
            assert before.accepted
            assert verdict.total_cycles <= before.total_cycles
        assert [o for o in find_obstacles(done.program, accelerator) if o.kind != "suspected"] == []
