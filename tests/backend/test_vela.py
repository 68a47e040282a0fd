"""Vela in a child process: what it accepts with figures and tensors, what it refuses and where, how it crashes."""

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.support.flatc import Table, block, const, op, rescale, save, tensor
from tosakit._interface import TensorSpec
from tosakit.backend import vela
from tosakit.backend.vela import ACCELERATORS, VELA_OP_TO_TOSA, VelaReport, compile_for_ethos_u, vela_version
from tosakit.errors import InvalidArgument, InvalidModel, ToolMissing
from tosakit.ir.enums import DType

CORPUS = Path(__file__).parents[1] / "corpus"
KWS = CORPUS / "dscnn_kws_a8w8.tosa"
U55, U85 = "ethos-u55-128", "ethos-u85-256"

pytestmark = pytest.mark.vela


def _clamp(source: str, result: str, dtype: type[np.signedinteger]) -> Table:
    limits = {name: list(np.array([value], dtype).tobytes()) for name, value in (("min_val", -5), ("max_val", 5))}
    return op("CLAMP", [source], [result], **limits)


def _compile(path: Path, accelerator: str, tensors: list[Table], operators: list[Table], *io: str) -> VelaReport:
    inputs, outputs = (names.split() for names in io)
    file = save(path / "m.tosa", block("main", tensors, operators, inputs, outputs))
    return compile_for_ethos_u(file, accelerator, output_dir=path / "out")


def test_accelerators_are_those_of_the_installed_vela() -> None:
    from ethosu.vela.architecture_features import Accelerator

    assert list(ACCELERATORS) == Accelerator.member_list()


def test_accepts_a_real_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cwd, out = tmp_path / "cwd", tmp_path / "new" / "out"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    report = compile_for_ethos_u(KWS, U85, output_dir=out)
    assert (report.accepted, report.refused, report.crashed) == (True, (), None)
    assert (report.accelerator, report.vela_version) == (U85, vela_version())
    assert report.npu_cycles is not None
    assert report.total_cycles is not None
    assert 0 < report.npu_cycles <= report.total_cycles
    assert list(report.memory) == ["sram", "dram", "on_chip_flash", "off_chip_flash"]
    printed = dict(re.findall(r"Total (\w+) used +([\d.]+) KiB", report.log))
    assert printed == {name.upper(): f"{report.memory[name]:.2f}" for name in ("sram", "dram")}
    [source], [result] = report.inputs, report.outputs
    assert (source.name, source.dtype, source.shape, source.size_bytes) == (
        "quantized_decomposed_quantize_per_tensor_default",
        "INT8",
        (1, 1, 49, 10),
        490,
    )
    assert (result.dtype, result.shape, result.element_size, result.size_bytes) == ("INT8", (1, 12), 1, 12)
    assert report.output_path == out / "dscnn_kws_a8w8_vela.npz"
    with np.load(report.output_path) as stream:
        assert stream["cmd_data"].size > 0
        assert stream["input_offset"].tolist() == [source.offset]
    assert [path.name for path in out.iterdir()] == ["dscnn_kws_a8w8_vela.npz"]
    assert list(cwd.iterdir()) == []


def test_compiling_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first = compile_for_ethos_u(KWS, U55, output_dir=tmp_path / "a").output_path
    second = compile_for_ethos_u(KWS, U55, output_dir=tmp_path / "b").output_path
    assert first is not None
    assert second is not None
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("accelerator", [U55, U85])
def test_tensors_are_named_in_graph_order(accelerator: str, tmp_path: Path) -> None:
    """Inputs and outputs stand in neither alphabetic nor operator order; inputs that reach no output are not there."""
    tensors = [
        tensor("a", [1, 2, 2, 16], "INT8"),
        tensor("b", [1, 2, 2, 3], "INT16"),
        tensor("c", [1, 5], "INT32"),
        tensor("dead", [1, 7], "INT8"),
        tensor("unread", [1, 9], "INT8"),
        tensor("ya", [1, 2, 2, 16], "INT8"),
        tensor("yb", [1, 2, 2, 3], "INT16"),
        tensor("yc", [1, 5], "INT32"),
        tensor("ydead", [1, 7], "INT8"),
    ]
    operators = [
        _clamp("dead", "ydead", np.int8),
        op("ADD", ["c", "c"], ["yc"]),
        _clamp("a", "ya", np.int8),
        _clamp("b", "yb", np.int16),
    ]
    report = _compile(tmp_path, accelerator, tensors, operators, "b unread c dead a", "yc ya yb ya")
    assert report.accepted, report.log
    assert [(t.name, t.dtype, t.shape, t.size_bytes) for t in report.inputs] == [
        ("b", "INT16", (1, 2, 2, 3), 24),
        ("c", "INT32", (1, 5), 20),
        ("a", "INT8", (1, 2, 2, 16), 64),
    ]
    assert [(t.name, t.dtype, t.element_size) for t in report.outputs] == [
        ("yc", "INT32", 4),
        ("ya", "INT8", 1),
        ("yb", "INT16", 2),
        ("ya", "INT8", 1),
    ]
    assert report.outputs[1].offset == report.outputs[3].offset
    assert len({(t.region, t.offset) for t in report.inputs}) == 3


def test_an_input_is_named_though_vela_sees_another_shape(tmp_path: Path) -> None:
    """Vela hides a RESHAPE at the border and lists the reshaped form; the report keeps the file's shape."""
    tensors = [tensor("x", [4, 16], "INT8"), tensor("r", [1, 2, 2, 16], "INT8"), tensor("y", [1, 2, 2, 16], "INT8")]
    shape = {"name": "s", "rank": 4, "data": list(np.array([1, 2, 2, 16], "<i8").tobytes())}
    operators = [op("CONST_SHAPE", [], ["s"]), op("RESHAPE", ["x", "s"], ["r"]), _clamp("r", "y", np.int8)]
    graph = {**block("main", tensors, operators, ["x"], ["y"]), "shapes": [shape]}
    report = compile_for_ethos_u(save(tmp_path / "m.tosa", graph), U85, output_dir=tmp_path)
    assert [(t.name, t.shape, t.size_bytes) for t in report.inputs] == [("x", (4, 16), 64)]


def test_a_list_that_does_not_match_the_file_stays_without_names() -> None:
    """Two tensors of one size would be named by chance if a third, unknown one were not noticed."""
    listed = {
        "input_shape": [[1, 4], [1, 4]],
        "input_elem_size": [1, 1],
        "input_region": [1, 1],
        "input_offset": [0, 16],
    }
    stream = {name: np.array(value) for name, value in listed.items()}
    x, y, wide = (
        TensorSpec("x", DType.INT8, (4,)),
        TensorSpec("y", DType.INT8, (4,)),
        TensorSpec("w", DType.INT16, (4,)),
    )
    for specs in ([x], [x, y, y], [x, wide]):
        tensors = vela._tensors(stream, "input", specs)  # type: ignore[arg-type]
        assert [(t.name, t.dtype, t.shape) for t in tensors] == [(None, None, (1, 4))] * 2
    named = vela._tensors(stream, "input", [x], [y, x])  # type: ignore[arg-type]
    assert [(t.name, t.shape, t.offset) for t in named] == [("y", (4,), 0), ("x", (4,), 16)]


def _matmul(path: Path, accelerator: str) -> VelaReport:
    tensors = [
        tensor("a", [1, 4, 8], "INT16"),
        tensor("b", [1, 8, 4], "INT16"),
        tensor("product", [1, 4, 4], "INT48"),
        tensor("y", [1, 4, 4], "INT16"),
        const("za", [0], "INT16"),
        const("zb", [0], "INT16"),
        const("m", [20000], "INT16"),
        const("s", [28], "INT8"),
        const("zi", [0], "INT48"),
        const("zo", [0], "INT16"),
    ]
    operators = [
        op("MATMUL", ["a", "b", "za", "zb"], ["product"]),
        rescale(["product", "m", "s", "zi", "zo"], "y", scale32=False),
    ]
    return _compile(path, accelerator, tensors, operators, "a b", "y")


def test_int16_matmul_is_refused_on_u55_and_taken_on_u85(tmp_path: Path) -> None:
    report = _matmul(tmp_path, U55)
    assert (report.accepted, report.crashed, report.output_path, report.npu_cycles) == (False, None, None, None)
    [refusal] = report.refused
    assert refusal.operator == "MatMul"
    assert refusal.tosa_operator == "MATMUL"
    assert refusal.message == "Non-passthrough operation (MatMul) could not run on NPU"
    assert refusal.tensors == ("product",)
    assert refusal.message in report.log
    assert not (tmp_path / "out").exists()
    assert _matmul(tmp_path, U85).accepted


def test_of_two_convolutions_the_one_with_two_rescales_is_named(tmp_path: Path) -> None:
    """Both are INT16 with an INT48 accumulator; Vela's message says Conv2D and no more."""
    tensors = [tensor("x", [1, 4, 4, 2], "INT16"), tensor("middle", [1, 4, 4, 2], "INT16")]
    for number in (1, 2):
        tensors.append(const(f"w{number}", np.ones((2, 1, 1, 2)), "INT8"))
        tensors.append(tensor(f"acc{number}", [1, 4, 4, 2], "INT48"))
    tensors += [const("bias", [1, 2], "INT48"), const("zx", [0], "INT16"), const("zw", [0], "INT8")]
    tensors += [const("m", [20000], "INT16"), const("s", [20], "INT8"), const("zi", [0], "INT48")]
    tensors += [const("z32", [0], "INT32"), tensor("y16", [1, 4, 4, 2], "INT16"), tensor("y32", [1, 4, 4, 2], "INT32")]
    attribute = {"pad": [0] * 4, "stride": [1, 1], "dilation": [1, 1], "acc_type": "INT48"}
    operators = [
        op("CONV2D", ["x", "w1", "bias", "zx", "zw"], ["acc1"], **attribute),
        rescale(["acc1", "m", "s", "zi", "zx"], "middle", scale32=False),
        op("CONV2D", ["middle", "w2", "bias", "zx", "zw"], ["acc2"], **attribute),
        rescale(["acc2", "m", "s", "zi", "zx"], "y16", scale32=False),
        rescale(["acc2", "m", "s", "zi", "z32"], "y32", scale32=False),
    ]
    report = _compile(tmp_path, U55, tensors, operators, "x", "y16 y32")
    [refusal] = report.refused
    assert (refusal.operator, refusal.tosa_operator, refusal.tensors) == ("Conv2D", "CONV2D", ("acc2",))


def test_a_transposed_convolution_is_found_behind_the_convolution_it_becomes(tmp_path: Path) -> None:
    tensors = [
        tensor("x", [1, 4, 4, 2], "INT16"),
        const("w", np.ones((2, 2, 2, 2)), "INT8"),
        const("bias", [0, 0], "INT48"),
        const("zx", [0], "INT16"),
        const("zw", [0], "INT8"),
        const("m", [20000], "INT16"),
        const("s", [20], "INT8"),
        const("zi", [0], "INT48"),
        tensor("acc", [1, 8, 8, 2], "INT48"),
        tensor("y", [1, 8, 8, 2], "INT16"),
    ]
    attribute = {"out_pad": [0] * 4, "stride": [2, 2], "acc_type": "INT48"}
    operators = [
        op("TRANSPOSE_CONV2D", ["x", "w", "bias", "zx", "zw"], ["acc"], **attribute),
        rescale(["acc", "m", "s", "zi", "zx"], "y", scale32=False),
    ]
    report = _compile(tmp_path, U55, tensors, operators, "x", "y")
    [refusal] = report.refused
    assert (refusal.operator, refusal.tosa_operator, refusal.tensors) == ("Conv2D", "TRANSPOSE_CONV2D", ("acc",))


def test_a_resize_is_found_behind_the_pooling_it_becomes(tmp_path: Path) -> None:
    shapes = {"scale": [3, 1, 4, 1], "offset": [0, 0], "border": [2, 0]}
    tables = [
        {"name": name, "rank": len(values), "data": list(np.array(values, "<i8").tobytes())}
        for name, values in shapes.items()
    ]
    tensors = [tensor("x", [2, 7, 4, 9], "INT8"), tensor("y", [2, 21, 13, 9], "INT8")]
    operators = [op("CONST_SHAPE", [], [name]) for name in shapes]
    operators.append(op("RESIZE", ["x", *shapes], ["y"], mode="NEAREST"))
    graph = {**block("main", tensors, operators, ["x"], ["y"]), "shapes": tables}
    report = compile_for_ethos_u(save(tmp_path / "m.tosa", graph), U55, output_dir=tmp_path / "out")
    [refusal] = report.refused
    assert (refusal.operator, refusal.tosa_operator, refusal.tensors) == ("AvgPool", "RESIZE", ("y",))


def test_a_volume_convolution_is_found_behind_the_convolution_it_becomes(tmp_path: Path) -> None:
    """A kernel of depth 1 becomes CONV2D, and an INT48 result without a RESCALE is then refused."""
    tensors = [
        tensor("x", [1, 2, 4, 4, 2], "INT16"),
        const("w", np.ones((2, 1, 1, 1, 2)), "INT8"),
        const("bias", [0, 0], "INT48"),
        const("zx", [0], "INT16"),
        const("zw", [0], "INT8"),
        tensor("acc", [1, 2, 4, 4, 2], "INT48"),
    ]
    attribute = {"pad": [0] * 6, "stride": [1] * 3, "dilation": [1] * 3, "acc_type": "INT48"}
    operators = [op("CONV3D", ["x", "w", "bias", "zx", "zw"], ["acc"], **attribute)]
    [refusal] = _compile(tmp_path, U55, tensors, operators, "x", "acc").refused
    assert (refusal.operator, refusal.tosa_operator, refusal.tensors) == ("Conv2D", "CONV3D", ("acc",))


def test_what_vela_makes_itself_is_put_down_to_a_tensor_of_the_model(tmp_path: Path) -> None:
    """BOOL is converted with an operator TOSA does not have, on a tensor x_int8 the model does not have."""
    tensors = [tensor("x", [1, 4], "BOOL"), tensor("z", [1, 4], "BOOL"), tensor("y", [1, 4], "BOOL")]
    report = _compile(tmp_path, U55, tensors, [op("LOGICAL_OR", ["x", "z"], ["y"])], "x z", "y")
    [refusal] = report.refused
    assert (refusal.operator, refusal.tosa_operator) == ("NotEqual", None)
    assert sorted(refusal.tensors) == ["x", "z"]


def test_names_of_velas_file_reader_are_tosas_own(tmp_path: Path) -> None:
    tensors = [tensor("x", [1, 4], "INT8"), tensor("y", [1, 4], "INT8")]
    report = _compile(tmp_path, U85, tensors, [{**_clamp("x", "y", np.int8), "inputs": []}], "x", "y")
    [refusal] = report.refused
    assert (refusal.operator, refusal.tosa_operator) == ("CLAMP", "CLAMP")


def test_findings_of_the_validation_are_counted(tmp_path: Path) -> None:
    tensors = [tensor(name, [1, 4], "FP32") for name in ("x", "a", "b", "y")]
    operators = [op("ADD", ["x", "x"], ["a"]), op("ADD", ["a", "x"], ["b"]), op("EXP", ["b"], ["y"])]
    report = _compile(tmp_path, U85, tensors, operators, "x", "y")
    assert [(r.operator, r.tosa_operator, r.count) for r in report.refused] == [("Add", "ADD", 2), ("Exp", "EXP", 1)]
    assert "Input data type not supported" in report.refused[0].message


def test_findings_about_the_file_have_no_operator(tmp_path: Path) -> None:
    """An input that is also an output."""
    tensors = [tensor("x", [1, 4], "INT8"), tensor("y", [1, 4], "INT8")]
    report = _compile(tmp_path, U85, tensors, [_clamp("x", "y", np.int8)], "x", "y x")
    [refusal] = report.refused
    assert (refusal.operator, refusal.tosa_operator) == (None, None)
    assert "Output tensor x does not have any writers" in refusal.message


def test_a_constant_without_data_crashes_vela_and_is_reported(tmp_path: Path) -> None:
    tensors = [tensor(name, [1, 4], "INT32") for name in ("x", "k", "y")]
    report = _compile(tmp_path, U85, tensors, [op("CONST", [], ["k"]), op("ADD", ["x", "k"], ["y"])], "x", "y")
    assert (report.accepted, report.refused, report.output_path) == (False, (), None)
    assert report.crashed is not None
    assert report.crashed.startswith("SIGSEGV")
    assert not (tmp_path / "out").exists()


def test_a_constant_by_offset_crashes_vela_and_is_reported(tmp_path: Path) -> None:
    """The form of files over 2 GB, which the caller has to bring inside before."""
    values = np.array([[1, 2, 3, 4]], "<i4").tobytes()
    operators = [op("CONST", [], ["k"]), op("ADD", ["x", "k"], ["y"])]

    def write(offset: int) -> Path:
        tensors = [tensor("x", [1, 4], "INT32"), tensor("y", [1, 4], "INT32")]
        tensors.append(tensor("k", [1, 4], "INT32", offset=offset, size=len(values)))
        return save(tmp_path / "m.tosa", block("main", tensors, operators, ["x"], ["y"]))

    end = (write(1 << 20).stat().st_size + 63) // 64 * 64
    file = write(end)
    file.write_bytes(file.read_bytes().ljust(end, b"\0") + values)
    report = compile_for_ethos_u(file, U85, output_dir=tmp_path / "out")
    assert report.crashed is not None
    assert report.crashed.startswith("SIGSEGV")


def test_running_out_of_time_is_reported(tmp_path: Path) -> None:
    report = compile_for_ethos_u(KWS, U85, output_dir=tmp_path / "out", timeout=0.02)
    assert (report.accepted, report.refused, report.crashed) == (False, (), "no result after 0.02 s")
    assert not (tmp_path / "out").exists()


def test_options_reach_vela(tmp_path: Path) -> None:
    fast = compile_for_ethos_u(KWS, U85, output_dir=tmp_path)
    small = compile_for_ethos_u(
        KWS,
        U85,
        output_dir=tmp_path,
        config="Arm/vela.ini",
        system_config="Ethos_U85_SYS_DRAM_Low",
        memory_mode="Sram_Only",
        optimise="Size",
        arena_cache_size=200_000,
        extra_args=["--verbose-config", "--output-format=tflite", "--output-dir=elsewhere"],
    )
    assert small.accepted, small.log
    assert "Ethos_U85_SYS_DRAM_Low" in small.log
    assert re.search(r"arena_cache_size = 200000 from CLI", small.log)
    assert small.memory["dram"] == 0 < fast.memory["dram"]
    assert [path.name for path in tmp_path.iterdir()] == ["dscnn_kws_a8w8_vela.npz"]


def test_a_configuration_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given relative to where the user is, which is not where Vela runs."""
    spec = importlib.util.find_spec("ethosu.vela")
    assert spec is not None
    assert spec.origin is not None
    original = Path(spec.origin).parents[1] / "config_files" / "Arm" / "vela.ini"
    (tmp_path / "own.ini").write_text(
        original.read_text().replace("System_Config.Ethos_U85_SYS_DRAM_Low", "System_Config.Own")
    )
    monkeypatch.chdir(tmp_path)
    report = compile_for_ethos_u(
        KWS, U85, output_dir=tmp_path / "out", config="own.ini", system_config="Own", memory_mode="Sram_Only"
    )
    assert report.accepted, report.log


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_mode": "Foo"}, r"--memory-mode=Foo: Section Memory_Mode\.Foo not found in Vela config file$"),
        ({"system_config": "Foo"}, r"--system-config=Foo: Section System_Config\.Foo not found"),
        ({"config": "Arm/vela.ini"}, "is not allowed when using a default system configuration$"),
        ({"config": "absent/vela.ini"}, "File not found or is not readable"),
        ({"arena_cache_size": -1}, "arena_cache_size=-1"),
        ({"optimise": "Fast"}, '^Vela cannot optimise for "Fast"; it can for Performance or Size$'),
        ({"extra_args": ["--fast"]}, "unrecognized arguments: --fast"),
        ({"timeout": 0.0}, "timeout is 0.0 seconds"),
    ],
)
def test_wrong_options_are_the_callers_fault(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=message):
        compile_for_ethos_u(KWS, U85, output_dir=tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_wrong_accelerators_and_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r'no accelerator "ethos-u99"; it knows ethos-u55-32, .*ethos-u85-2048$'):
        compile_for_ethos_u(KWS, "ethos-u99", output_dir=tmp_path)
    with pytest.raises(InvalidArgument, match=r"cannot read .*absent\.tosa"):
        compile_for_ethos_u(tmp_path / "absent.tosa", U85, output_dir=tmp_path)
    (tmp_path / "bad.tosa").write_bytes(KWS.read_bytes()[:300])
    with pytest.raises(InvalidModel, match=r"bad\.tosa is damaged"):
        compile_for_ethos_u(tmp_path / "bad.tosa", U85, output_dir=tmp_path)


def test_a_missing_vela_comes_with_the_pip_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(ToolMissing, match=r'pip install "tosakit\[vela\]"'):
        compile_for_ethos_u(KWS, U85, output_dir=tmp_path)


@pytest.mark.parametrize("name", ["dscnn_kws_a8w8", "resblock_a8w8", "add_a16w8"])
def test_operator_names_are_those_of_velas_dump(name: str, tmp_path: Path) -> None:
    """The first graph Vela prints is the file's, operator for operator, though not always in its order."""
    from tosa.Op import Op
    from tosa.TosaGraph import TosaGraph

    file = CORPUS / f"{name}.tosa"
    main = TosaGraph.GetRootAs(file.read_bytes(), 0).Regions(0).Blocks(0)
    numbers = {number: op_name for op_name, number in vars(Op).items() if isinstance(number, int)}
    expected = [numbers[main.Operators(i).Op()] for i in range(main.OperatorsLength())]
    command = [sys.executable, "-m", "ethosu.vela", str(file), f"--accelerator-config={U85}", "--verbose-graph"]
    done = subprocess.run([*command, f"--output-dir={tmp_path}"], capture_output=True, text=True, check=False)
    listed = done.stdout.partition("[ Before Graph Optimisation ]\n")[2].partition("\n\n")[0].splitlines()
    names = [line.split()[1] for line in listed]
    found = Counter(VELA_OP_TO_TOSA[n] for n in names if n != "Const")
    assert found == Counter(n for n in expected if n not in ("CONST", "CONST_SHAPE"))
    assert len(found) > 1
