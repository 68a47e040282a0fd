"""The widening as a whole: golden texts, options, the interface, real models, and the accuracy it is there for."""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrites.widen_int8_activations import TRANSFORM
from tests.support.int8 import MODEL, ONE, Int8Net, values, widen
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program
from tosakit.ir.types import Array
from tosakit.oracle.refmodel import Status
from tosakit.spec.verify import verify

CORPUS = Path(__file__).parents[1] / "corpus"
SHARED = Path(__file__).parents[3] / "shared" / "corpus"


def test_golden(golden: Callable[..., None]) -> None:
    golden(TRANSFORM)


@pytest.mark.refmodel
@pytest.mark.parametrize("options", [{}, {"smooth": True}, {"io": "int8"}], ids=str)
@pytest.mark.parametrize("name", ["dscnn_kws_a8w8", "resblock_a8w8"])
def test_real_models(name: str, options: dict[str, Any]) -> None:
    made = widen(load(CORPUS / f"{name}.tosa"), **options)
    assert not made.result.refusals
    assert bool(made.result.boundary) == (options.get("io") != "int8")
    weights = [op.inputs[1].dtype for op in made.program.main.ops if op.name in ("CONV2D", "DEPTHWISE_CONV2D")]
    assert set(weights) == {DType.INT8}


@pytest.mark.refmodel
def test_the_version_stays() -> None:
    before = load(CORPUS / "resblock_a8w8.tosa")
    assert widen(before).program.version == before.version


def _relu(net: Int8Net, x: Tensor, name: str) -> Tensor:
    return net.requantize(x, DType.INT8, (1518500250, 31), name, input_zp=4, output_zp=-128)


@pytest.mark.refmodel
def test_names_order_and_multiplicity_of_the_interface() -> None:
    """An input that is an output, one tensor twice, an unused input, a constant output."""
    net = Int8Net()
    x, unused = net.int8("x"), net.int8("unused", (1, 2))
    constant = net.const([[1, -2]], DType.INT8, "constant")
    y = _relu(net, x, "y")
    made = widen(net.outputs(y, x, y, constant))
    assert [t.name for t in made.program.main.outputs] == ["y", "x", "y", "constant"]
    assert [t.dtype for t in made.program.main.outputs] == [DType.INT16] * 4
    assert made.program.main.outputs[0] is made.program.main.outputs[2]
    assert made.program.main.outputs[3].values().tolist() == [[128, -256]]
    assert made.program.main.inputs[1].name == unused.name
    assert made.same.max_difference <= 0.51


@pytest.mark.refmodel
def test_a_tensor_that_is_an_output_and_read_on() -> None:
    net = Int8Net()
    y = _relu(net, net.int8(), "y")
    z = net.requantize(y, DType.INT8, ONE, "z", input_zp=-128, output_zp=0)
    made = widen(net.outputs(y, z))
    assert [t.name for t in made.program.main.outputs] == ["y", "z"]
    assert made.same.max_difference <= 0.51


@pytest.mark.refmodel
def test_dead_code_is_no_obstacle() -> None:
    net = Int8Net()
    x = net.int8()
    net.table(net.reshape(x, (2, 16)), np.arange(-128, 128), "dead")
    made = widen(net.outputs(_relu(net, x, "y")))
    assert made.program.main.outputs[0].dtype == DType.INT16


def test_dynamic_shapes_are_kept() -> None:
    net = Int8Net()
    x = net.int8("x", (-1, 4, 4, 2))
    acc = net.conv2d_int8(x, [[[[2, 3]]]], [5], zero_point=4)
    made = widen(net.outputs(net.narrowing(acc, -3, "y", (1518500250, 37))), runs=False)
    assert made.program.main.outputs[0].shape == (-1, 4, 4, 1)
    assert made.program.main.outputs[0].dtype == DType.INT16


@pytest.mark.refmodel
def test_an_int8_interface_is_exact_on_the_way_in_and_rounds_once_on_the_way_out() -> None:
    net = Int8Net()
    x = net.int8("x", (1, 16, 16, 1))
    made = widen(net.outputs(net.table(net.reshape(x, (256,)), np.arange(-128, 128)[::-1], "y")), io="int8")
    assert made.same.max_difference == 0
    assert made.of("TABLE")[0].inputs[1].shape == (513,)
    assert not made.result.boundary


@pytest.mark.refmodel
def test_mixed_int16_and_int8() -> None:
    """int16 data that is there already keeps its scale."""
    net = Int8Net()
    x = net.input("x", DType.INT16, (1, 8))
    y = net.requantize(x, DType.INT8, (1 << 30, 38), "y", output_zp=-3)
    z = net.requantize(net.table(y, np.arange(-128, 128)), DType.INT16, (1 << 30, 22), "z", input_zp=-3)
    made = widen(net.outputs(z))
    data = np.linspace(-32768, 32767, 8).astype(np.int16).reshape(1, 8)
    [old], [new] = values(made.before, data), values(made.program, data)
    assert np.abs(old.astype(int) - new).max() <= 129  # half an old int8 step of 256, which the old graph rounded off


# ---------------------------------------------------------------- all int8 files of the corpus
def _files() -> Iterator[Path]:
    for folder in ("models", "models_large"):
        yield from sorted((SHARED / folder).glob("*a8w*.tosa"))


def _qparams() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for folder in ("models", "models_large"):
        path = SHARED / folder / "qparams.json"
        if path.exists():
            found.update(json.loads(path.read_text()))
    return found


QPARAMS = _qparams()


def _evaluation(name: str) -> Path:
    return SHARED / "eval_io" / f"{re.sub('_(u55_)?a8w8(_u55)?$', '', name)}_eval.npz"


class Float:
    """The float inputs and outputs of a net, and the quantisation of its int8 file."""

    def __init__(self, name: str, vectors: int) -> None:
        data = np.load(_evaluation(name))
        described = QPARAMS[name]["delegate"]
        sources = [entry["src"] for entry in described["inputs"]]
        indices = [int(source[2:]) if source.startswith("a_") else 0 for source in sources]
        self.inputs = [[data[f"in{i}_{j}"] for j in indices] for i in range(vectors)]
        self.outputs = [[data[f"out{i}_{j}"] for j in range(len(described["outputs"]))] for i in range(vectors)]
        self.input_q = [(entry["q"]["scale"], entry["q"]["zero_point"]) for entry in described["inputs"]]
        self.output_q = [(entry["q"]["scale"], entry["q"]["zero_point"]) for entry in described["outputs"]]

    def sqnr(self, program: Program, zero_points: dict[str, int]) -> float:
        """SQNR in dB of a program; ``zero_points`` are those its int16 inputs and outputs were widened with."""
        batches = []
        for arrays in self.inputs:
            batch: list[Array] = []
            for tensor, array, (scale, zero_point) in zip(program.main.inputs, arrays, self.input_q, strict=True):
                real = array.astype(np.float64).reshape(tensor.shape) / scale
                if tensor.dtype == DType.INT16:
                    codes = np.rint(real * 128) + (zero_point - zero_points[tensor.name]) * 128
                    batch.append(np.clip(codes, -(1 << 15), (1 << 15) - 1).astype(np.int16))
                else:
                    batch.append(np.clip(np.rint(real) + zero_point, -128, 127).astype(np.int8))
            batches.append(batch)
        signal = noise = 0.0
        for run, wanted in zip(MODEL.run_many(dumps(program), batches), self.outputs, strict=True):
            assert run.status is Status.VALID, run.message
            rows = zip(program.main.outputs, run.outputs, wanted, self.output_q, strict=True)
            for tensor, codes, real, (scale, zero_point) in rows:
                steps = codes.astype(np.float64)
                if tensor.dtype == DType.INT16:
                    steps = steps / 128 + zero_points[tensor.name]
                got = (steps - zero_point) * scale
                signal += float(np.square(real).sum())
                noise += float(np.square(got - real.reshape(got.shape)).sum())
        return float(10 * np.log10(signal / noise))


VECTORS = 2


@lru_cache
def _int8_sqnr(path: Path) -> float:
    return Float(path.stem, VECTORS).sqnr(load(path), {})


def _gain(path: Path, **options: Any) -> float:
    result = run_steps(load(path), [TRANSFORM], options={TRANSFORM.name: TRANSFORM.options(**options)})
    zero_points = {change.name: change.zero_point for change in result.boundary}
    return Float(path.stem, VECTORS).sqnr(result.program, zero_points) - _int8_sqnr(path)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
@pytest.mark.parametrize("path", list(_files()), ids=lambda path: path.stem)
def test_every_int8_file_of_the_corpus(path: Path) -> None:
    """Legal, valid, deterministic, left alone by a second run; state is all that stays int8."""
    before = load(path)
    result = run_steps(before.clone(), [TRANSFORM])
    assert result.events
    assert [finding for finding in verify(result.program) if finding.severity == "error"] == []
    assert all(re.search("VARIABLE|unsigned|schema", refused.reason) for refused in result.refusals)
    data = dumps(result.program)
    again = run_steps(result.program.clone(), [TRANSFORM])
    assert not again.events
    assert dumps(again.program) == data
    rng = np.random.default_rng(0)
    ranges = {DType.INT8: (-128, 128, np.int8), DType.INT16: (-(1 << 15), 1 << 15, np.int16)}
    inputs = [
        rng.integers(*ranges[t.dtype][:2], t.shape).astype(ranges[t.dtype][2]) for t in result.program.main.inputs
    ]
    run = MODEL.run(data, inputs, timeout=120)
    assert run.status is Status.VALID, run.message


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
@pytest.mark.parametrize(("smooth", "target"), [(False, 8.0), (True, 10.0)])
def test_accuracy_over_the_corpus(smooth: bool, target: float) -> None:
    """Never more than 0.5 dB below the int8 file, and the median gain that the widening exists for."""
    paths = [path for path in _files() if _evaluation(path.stem).exists() and path.stem in QPARAMS]
    gains = {path.stem: _gain(path, smooth=smooth) for path in paths}
    assert len(gains) > 40
    assert {name: gain for name, gain in gains.items() if gain < -0.5} == {}
    assert np.median(list(gains.values())) >= target
