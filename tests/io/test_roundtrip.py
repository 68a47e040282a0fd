"""What is read and written again is the same to decoders that are not ours."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from tests.support.independent import flatc_binary, flatc_json, serializer_bytes
from tests.support.programs import CORPUS, SHARED
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, DType
from tosakit.ir.graph import Graph, Op, Tensor, TensorExtras
from tosakit.ir.operator import Attributes
from tosakit.ir.program import Compatibility, Program, Region, SoftwareVersion, Version
from tosakit.ir.text import format_program
from tosakit.ir.types import byte_size

ROOT = Path(__file__).parents[2]
CONFORMANCE = ROOT.parent / "shared" / "corpus" / "conformance.tar.xz"
BATCH = 100


def assert_same_json(files: Sequence[bytes], folder: Path) -> None:
    """flatc sees no difference between the files and what we write of them, field by field and in order."""
    written = [dumps(load(content)) for content in files]
    befores, afters = flatc_json(files, folder / "before"), flatc_json(written, folder / "after")
    for before, after in zip(befores, afters, strict=True):
        assert before == after


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_corpus(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    assert_same_json([content], tmp_path)
    written = dumps(load(path))
    assert serializer_bytes(content, tmp_path) == serializer_bytes(written, tmp_path)
    assert dumps(load(written)) == written


@pytest.mark.shared
@pytest.mark.skipif(not SHARED, reason="no ../shared beside the checkout")
def test_shared_corpus(tmp_path: Path) -> None:
    files = [path.read_bytes() for path in SHARED]
    small = [content for content in files if len(content) < 200_000]
    assert len(small) > 100
    for start in range(0, len(small), BATCH):
        assert_same_json(small[start : start + BATCH], tmp_path)
    for content in files:  # flatc takes long over large files
        assert serializer_bytes(content, tmp_path) == serializer_bytes(dumps(load(content)), tmp_path)


def conformance_files() -> Iterator[bytes]:
    with tarfile.open(CONFORMANCE) as archive:
        for member in archive:
            if member.name.endswith(".tosa") and (file := archive.extractfile(member)) is not None:
                yield file.read()


@pytest.mark.shared
@pytest.mark.skipif(not CONFORMANCE.exists(), reason="no ../shared beside the checkout")
def test_conformance_sample(tmp_path: Path) -> None:
    """Files that must be rejected by a verifier are read and written like others."""
    files = list(conformance_files())
    assert len(files) > 1000
    for start in range(0, len(files), BATCH):
        assert_same_json(files[start : start + BATCH], tmp_path)


def filled(cls: type[Attributes], number: int) -> Attributes:
    """Attributes of which none is at its default."""
    values: dict[str, Any] = {}
    for field in fields(cls):
        kind: Any = field.type
        if kind is bool:
            values[field.name] = True
        elif kind is int:
            values[field.name] = -number
        elif kind is str:
            values[field.name] = f"näme {number}"
        elif kind is bytes:
            values[field.name] = bytes([number, 0, 255])
        elif isinstance(kind, type) and issubclass(kind, IntEnum):
            values[field.name] = list(kind)[-1]
        else:
            values[field.name] = (number, -1, 2**31 - 1)
    return cls(**values)


def everything() -> Program:
    """Every operator with every attribute set, every dtype with data, and every field that a file can have."""
    graph = Graph("bl\u00f6ck")
    x = graph.add_tensor(Tensor("x", DType.INT8, (1, 0, -1)))
    bare = graph.add_tensor(Tensor("bare", DType.FP32, None, extras=TensorExtras(is_unranked=True)))
    cell = TensorExtras(variable=True, variable_name="state")
    state = graph.add_tensor(Tensor("cell", DType.INT8, (2,), b"\1\2", extras=cell))
    graph.set_inputs([x, bare, x])
    for dtype in DType:
        for count in (3, 0) if dtype != DType.UNKNOWN else ():
            data = bytes(range(7, 7 + byte_size(dtype, (count,))))
            scaled = TensorExtras(scale_type=dtype, scale_data=b"\x7f", block_shape=BlockShape.BLOCK_SHAPE_32)
            tensor = Tensor(f"{dtype.name}{count}", dtype, (count,), data, extras=scaled)
            graph.add_op(Op(ops.Const(), (), [tensor]))
    for number, cls in enumerate(ops.OPERATORS, start=1):
        result = Tensor(f"r{number}", DType.INT16, (number,))
        graph.add_op(Op(filled(cls, number), [x, bare, x], [result], location=f"line {number}\n"))
    graph.add_op(Op(ops.VariableWrite(), [x], [state], location=""))
    graph.add_op(Op(ops.ConstShape(), (), [Tensor("shape", DType.SHAPE, (2,), bytes(16), table="shapes")]))
    graph.set_outputs([x, graph.tensor("r1"), graph.tensor("r1"), graph.tensor("INT483")])
    other = Graph(None)
    regions = [Region("main", [graph, Graph("second")]), Region(None, [other]), Region("", [])]
    reader = SoftwareVersion(2026, 1, 0)
    return Program(regions, Version(1, 1, 7, True), SoftwareVersion(1, 2, 3, "x"), Compatibility(reader, 1))


def test_everything_survives_us_and_flatc(tmp_path: Path) -> None:
    program = everything()
    written = dumps(program)
    text = format_program(program, values=None, exact=True)
    assert format_program(load(written), values=None, exact=True) == text
    [json_text] = flatc_json([written], tmp_path)
    theirs = flatc_binary(json_text, tmp_path)
    assert format_program(load(theirs), values=None, exact=True) == text
    assert dumps(load(theirs)) == written


def test_flatc_knows_every_operator_and_attribute(tmp_path: Path) -> None:
    [text] = flatc_json([dumps(everything())], tmp_path)
    operators = json.loads(text)["regions"][0]["blocks"][0]["operators"][-len(ops.OPERATORS) - 2 : -2]
    for number, (cls, found) in enumerate(zip(ops.OPERATORS, operators, strict=True), start=1):
        assert (found["op"], found["attribute_type"]) == (cls.NAME, f"{cls.__name__}Attribute")
        expected = filled(cls, number)
        assert found["attribute"].keys() == {field.name for field in fields(cls)}
        for name, value in found["attribute"].items():
            ours: Any = getattr(expected, name)
            if isinstance(ours, IntEnum):
                ours = ours.name
            elif isinstance(ours, tuple | bytes):
                ours = list(ours)
            assert value == ours


PROGRAM = """
import hashlib, sys
from tosakit.engine.driver import run_steps
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from rewrites import deduplicate_constants, remove_dead_code, remove_identity_rescale
for path in sys.argv[1:]:
    program = load(path)
    plain = dumps(program)
    steps = [remove_identity_rescale.RULE, deduplicate_constants.TRANSFORM, remove_dead_code.TRANSFORM]
    run_steps(program, steps)
    print(hashlib.sha256(plain).hexdigest(), hashlib.sha256(dumps(program)).hexdigest())
"""


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    digests = []
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PROGRAM, *map(str, CORPUS)]
        digests.append(subprocess.run(command, check=True, capture_output=True, env=environment, text=True).stdout)
    assert len(digests[0].splitlines()) == len(CORPUS) > 0
    assert digests[0] == digests[1] == digests[2]
