"""What others do with the same file: tosa_serializer (C++), the flatbuffers accessors (Python), tosa-opt, onnx."""

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ONNX_PER_BLOCK = 12


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing that C++ prints is seen."""
    saved = [(number, os.dup(number)) for number in (1, 2)]
    with open(os.devnull, "w") as nowhere:
        for number, _ in saved:
            os.dup2(nowhere.fileno(), number)
    try:
        yield
    finally:
        for number, copy in saved:
            os.dup2(copy, number)
            os.close(copy)


def serializer_load(path: Path) -> Any:
    """Load a file with tosa_serializer."""
    from tosa_serializer import TosaSerializer

    serializer = TosaSerializer()
    with quiet():
        if not serializer.loadTosaFlatbuffer(str(path)):
            raise RuntimeError(f"tosa_serializer cannot load {path}; it refuses more than a million tables")
    return serializer


def serializer_save(serializer: Any, path: Path) -> None:
    """Save what tosa_serializer has loaded."""
    with quiet():
        serializer.saveFileTosaFlatbuffer(str(path))


def accessors() -> Any:
    """The Python module that flatc makes for the root table of the TOSA schema."""
    tools = metadata.distribution("tosa-tools")
    directory = tempfile.mkdtemp()
    flatc, schema = tools.locate_file("bin/flatc"), tools.locate_file("bin/tosa.fbs")
    subprocess.run([str(flatc), "--python", "-o", directory, str(schema)], check=True)
    sys.path.insert(0, directory)
    return importlib.import_module("tosa.TosaGraph")


def walk(module: Any, data: bytes) -> int:
    """Read operators with their operands and results, and tensors with their shapes, through the accessors."""
    block = module.TosaGraph.GetRootAs(data, 0).Regions(0).Blocks(0)
    count = 0
    for index in range(block.OperatorsLength()):
        op = block.Operators(index)
        names = [op.Inputs(i) for i in range(op.InputsLength())] + [op.Outputs(i) for i in range(op.OutputsLength())]
        count += op.Op() + op.AttributeType() + len(names)
    for index in range(block.TensorsLength()):
        tensor = block.Tensors(index)
        shape = [tensor.Shape(i) for i in range(tensor.ShapeLength())]
        count += len(tensor.Name()) + tensor.Type() + len(shape) + tensor.DataLength()
    return count


def tosa_opt_seconds(path: Path) -> float:
    """CPU seconds that a bare round trip through tosa-opt takes, as a child process."""
    command = ["tosa-opt", "-", "-o", os.devnull, "--tosa-deserialize", f"--tosa-deserialize-filename={path}"]
    command += ["--tosa-serialize", f"--tosa-flatbuffer-filename={path.with_suffix('.opt')}"]
    return child_seconds(command, stdin=b"module {}")


def child_seconds(command: list[str], *, stdin: bytes = b"", cwd: Path | None = None) -> float:
    """CPU seconds that a command takes."""
    before = os.times()
    subprocess.run(command, input=stdin, check=True, capture_output=True, cwd=cwd)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def onnx_model(operators: int, directory: Path) -> Path:
    """A file with as many nodes as asked for, of which a rule of one Add matches one in twelve. Needs onnx."""
    import numpy as np
    import onnx

    nodes = []
    value = "x"
    for number in range(operators // ONNX_PER_BLOCK):
        for constant in range(9):
            tensor = onnx.numpy_helper.from_array(np.full(8, number % 7, np.int32))
            nodes.append(onnx.helper.make_node("Constant", [], [f"c{number}_{constant}"], value=tensor))
        nodes.append(onnx.helper.make_node("Cast", [value], [f"w{number}"], to=onnx.TensorProto.INT32))
        nodes.append(onnx.helper.make_node("Add", [f"w{number}", f"c{number}_0"], [f"a{number}"]))
        value = f"n{number}"
        nodes.append(onnx.helper.make_node("Cast", [f"a{number}"], [value], to=onnx.TensorProto.INT16))
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT16, [8]) for name in ("x", value)]
    graph = onnx.helper.make_graph(nodes, "g", info[:1], info[1:])
    path = directory / f"chain{operators}.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), str(path))
    return path


def onnx_rewrite(path: Path) -> None:
    """Load with onnx-ir, rewrite every Add with onnxscript, save. Needs both."""
    import onnx_ir
    from onnxscript.rewriter import pattern, rewrite

    def before(op: Any, x: Any, y: Any) -> Any:
        return op.Add(x, y, _outputs=["sum"])

    def after(op: Any, x: Any, y: Any, **_: Any) -> Any:
        return op.Sum(op.Identity(x), op.Identity(y))

    rule = pattern.RewriteRule(before, after)
    model = rewrite(onnx_ir.load(path), pattern_rewrite_rules=[rule])
    onnx_ir.save(model, path.with_name("out.onnx"))
