"""The reference model in a child process: every way a run can end, and arrays of every dtype in and out."""

import time
from importlib import metadata
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.support.build import Net
from tests.support.flatc import Table, block, const, op, rescale, save, tensor
from tosakit._child import MEMORY_LIMIT
from tosakit.errors import InvalidArgument, InvalidModel, ToolMissing, Unsupported
from tosakit.io.writer import dumps
from tosakit.ir.enums import DType
from tosakit.ir.types import numpy_dtype
from tosakit.oracle.refmodel import Array, ReferenceModel, Status

CORPUS = Path(__file__).parents[1] / "corpus"
MODEL = ReferenceModel()

pytestmark = pytest.mark.refmodel


def _identity(path: Path, dtype: str, shape: tuple[int, ...], version: tuple[int, int, int] = (1, 0, 0)) -> Path:
    tensors = [tensor("x", shape, dtype), tensor("y", shape, dtype)]
    return save(path, block("main", tensors, [op("IDENTITY", ["x"], ["y"])], ["x"], ["y"]), version=version)


def _one_rescale(path: Path, constants: list[Table], in_dtype: str, out_dtype: str, scale32: bool) -> Path:
    tensors = [tensor("x", [1], in_dtype), *constants, tensor("y", [1], out_dtype)]
    operands = ["x", *(constant["name"] for constant in constants)]
    return save(path, block("main", tensors, [rescale(operands, "y", scale32=scale32)], ["x"], ["y"]))


def _fake(path: Path, script: str) -> ReferenceModel:
    """A stand-in for the model that behaves as the real one never does on demand."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return ReferenceModel(executable=path, jobs=1)


@pytest.mark.parametrize("name", ["", "forward", "main"])
def test_the_block_may_have_any_name(tmp_path: Path, name: str) -> None:
    tensors = [tensor("x", [3], "INT8"), tensor("y", [3], "INT8")]
    file = save(tmp_path / "named.tosa", block(name, tensors, [op("IDENTITY", ["x"], ["y"])], ["x"], ["y"]))
    values = np.array([1, -2, 3], np.int8)
    for model in (file, file.read_bytes()):
        result = MODEL.run(model, [values])
        assert (result.status, result.message) == (Status.VALID, "")
        np.testing.assert_array_equal(result.outputs[0], values, strict=True)


@pytest.mark.parametrize("name", ["dscnn_kws_a8w8", "resblock_a8w8", "add_a16w8"])
def test_agrees_with_the_python_binding(name: str) -> None:
    import tosa_reference_model

    file = CORPUS / f"{name}.tosa"
    shapes, dtype = {
        "dscnn_kws_a8w8": ([(1, 1, 49, 10)], np.int8),
        "resblock_a8w8": ([(1, 16, 12, 12)], np.int8),
        "add_a16w8": ([(1, 8, 8, 4)] * 2, np.int16),
    }[name]
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in shapes]
    expected, status = tosa_reference_model.run(file.read_bytes(), inputs)
    assert status == tosa_reference_model.GraphStatus.TOSA_VALID
    for model in (file, file.read_bytes()):
        result = MODEL.run(model, inputs)
        assert (result.status, result.message) == (Status.VALID, "")
        assert [o.dtype for o in result.outputs] == [dtype]
        np.testing.assert_array_equal(result.outputs[0], expected[0], strict=True)


VALUES: dict[str, list[object]] = {
    "BOOL": [True, False, False, True, True, False],
    "INT4": [-8, 7, 0, -1, 1, 5],
    "INT8": [-128, 127, 0, -1, 1, 5],
    "INT16": [-32768, 32767, 0, -1, 1, 5],
    "INT32": [-(2**31), 2**31 - 1, 0, -1, 1, 5],
    "INT48": [-(2**47), 2**47 - 1, 0, -1, 1, 2**40],
    "FP32": [0.0, -1.5, 2.0**100, 3.0, 4.0, 5.0],
    "FP16": [0.0, -1.5, 65504.0, 3.0, 4.0, 5.0],
    "BF16": [0.0, -1.5, 2.0**100, 3.0, 4.0, 5.0],
    "FP8E4M3": [0.0, -1.5, 448.0, 3.0, 4.0, 5.0],
    "FP8E5M2": [0.0, -1.5, 57344.0, 3.0, 4.0, 5.0],
}


@pytest.mark.parametrize("dtype", VALUES)
def test_every_dtype_goes_in_and_comes_out(dtype: str, tmp_path: Path) -> None:
    values = np.array(VALUES[dtype]).astype(numpy_dtype(DType[dtype])).reshape(2, 3)
    result = MODEL.run(_identity(tmp_path / "m.tosa", dtype, (2, 3)), [values])
    assert result.status is Status.VALID, result.message
    [output] = result.outputs
    assert (output.dtype, output.shape) == (values.dtype, values.shape)
    assert output.tobytes() == values.tobytes()


def test_packed_types_go_in_as_values(tmp_path: Path) -> None:
    """FP4 as an operand: its .npy file holds two values per byte, ours one value per element."""
    values = (np.arange(64) % 8).astype(np.uint8).view(ml_dtypes.float4_e2m1fn).reshape(2, 32)
    scales = np.ones((2, 1), ml_dtypes.float8_e8m0fnu)
    tensors = [tensor("x", [2, 32], "FP4E2M1"), tensor("s", [2, 1], "FP8UE8M0"), tensor("y", [2, 32], "FP32")]
    operator = op("CAST_FROM_BLOCK_SCALED", ["x", "s"], ["y"], block_size="BLOCK_SIZE_32")
    file = save(
        tmp_path / "m.tosa", block("main", tensors, [operator], ["x", "s"], ["y"]), version=(1, 1, 0), draft=True
    )
    result = MODEL.run(file, [values, scales])
    assert result.status is Status.VALID, result.message
    np.testing.assert_array_equal(result.outputs[0], values.astype(np.float32))


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=np.int16).reshape(3, 2).T,
        np.arange(12, dtype=np.int16).reshape(2, 6)[:, ::2],
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    ],
    ids=["transposed", "strided", "fortran"],
)
def test_memory_layout_does_not_matter(values: Array, tmp_path: Path) -> None:
    result = MODEL.run(_identity(tmp_path / "m.tosa", "INT16", (2, 3)), [values])
    np.testing.assert_array_equal(result.outputs[0], values, strict=True)


def test_rank_zero(tmp_path: Path) -> None:
    result = MODEL.run(_identity(tmp_path / "m.tosa", "BF16", ()), [np.array(1.5, ml_dtypes.bfloat16)])
    assert result.outputs[0].shape == ()
    assert float(result.outputs[0]) == 1.5


def test_outputs_keep_order_and_multiplicity(tmp_path: Path) -> None:
    """An output twice, an input that is an output, a constant output, and names that are awkward on a command line."""
    tensors = [
        tensor("a,b", [2], "INT8"),
        tensor("c d/é", [3], "INT16"),
        tensor("y", [2], "INT8"),
        tensor("z", [3], "INT16"),
        const("k", [5, 6], "INT32"),
    ]
    operators = [op("IDENTITY", ["c d/é"], ["z"]), op("IDENTITY", ["a,b"], ["y"])]
    graph = block("main", tensors, operators, ["c d/é", "a,b"], ["y", "z", "a,b", "k", "y"])
    result = MODEL.run(save(tmp_path / "m.tosa", graph), [np.array([3, 4, 5], np.int16), np.array([1, 2], np.int8)])
    assert [o.tolist() for o in result.outputs] == [[1, 2], [3, 4, 5], [1, 2], [5, 6], [1, 2]]


def test_unpredictable_says_which_requirement_failed(tmp_path: Path) -> None:
    constants = [const("m", [1 << 30], "INT32"), const("s", [30], "INT8"), const("zi", [0], "INT32")]
    file = _one_rescale(tmp_path / "m.tosa", [*constants, const("zo", [0], "INT32")], "INT32", "INT32", True)
    largest, too_large = (np.array([2**29 + i], np.int32) for i in (-1, 0))
    assert MODEL.run(file, [largest]).outputs[0].tolist() == [2**29 - 1]
    result = MODEL.run(file, [too_large])
    assert (result.status, result.outputs) == (Status.UNPREDICTABLE, ())
    fails, why = result.message.splitlines()
    assert "REQUIRE() fails AT" in fails
    assert "should stay within [-536870912, 536870911] but is 536870912" in why


def test_error_names_the_operator(tmp_path: Path) -> None:
    constants = [const("m", [5], "INT32"), const("s", [30], "INT8"), const("zi", [0], "INT48")]
    file = _one_rescale(tmp_path / "m.tosa", [*constants, const("zo", [0], "INT16")], "INT48", "INT16", True)
    result = MODEL.run(file, [np.array([5], np.int64)])
    assert (result.status, result.outputs) == (Status.ERROR, ())
    assert "Scale set to true but input type is INT48" in result.message
    assert "RESCALE" in result.message
    assert "Name: y" in result.message
    assert "gdb" not in result.message


def test_a_crash_is_a_result_and_the_next_run_is_not_touched(tmp_path: Path) -> None:
    """A multiplier of the wrong dtype is a segmentation fault inside the model."""
    constants = [const("m", [5], "INT32"), const("s", [30], "INT8"), const("zi", [0], "INT32")]
    file = _one_rescale(tmp_path / "m.tosa", [*constants, const("zo", [0], "INT32")], "INT32", "INT32", False)
    result = MODEL.run(file, [np.array([5], np.int32)])
    assert (result.status, result.outputs) == (Status.CRASHED, ())
    assert result.message.startswith("SIGSEGV")
    assert MODEL.run(_identity(tmp_path / "n.tosa", "INT8", (1,)), [np.array([5], np.int8)]).status is Status.VALID


def test_operators_out_of_order_are_a_crash(tmp_path: Path) -> None:
    tensors = [tensor("x", [2], "INT32"), tensor("k", [2], "INT32"), tensor("y", [2], "INT32")]
    operators = [op("IDENTITY", ["k"], ["y"]), op("IDENTITY", ["x"], ["k"])]
    file = save(tmp_path / "m.tosa", block("main", tensors, operators, ["x"], ["y"]))
    result = MODEL.run(file, [np.array([5, 6], np.int32)])
    assert result.status is Status.CRASHED
    assert result.message.startswith("SIGABRT")


def test_a_version_the_model_does_not_read_is_refused(tmp_path: Path) -> None:
    result = MODEL.run(_identity(tmp_path / "m.tosa", "INT8", (1,), (1, 9, 0)), [np.array([5], np.int8)])
    assert (result.status, result.outputs) == (Status.REFUSED, ())
    assert "1.9.0 is not compatible" in result.message


def _loop(path: Path, *bodies: str) -> Path:
    """Nested WHILE_LOOPs whose condition always holds, one per body; the innermost body hands its input on."""

    def nest(name: str, inner: str | None) -> Table:
        run = op("WHILE_LOOP", ["x"], ["y"], cond_graph="always", body_graph=inner) if inner else None
        tensors = [tensor("x", [1], "INT32"), tensor("y", [1], "INT32")]
        return block(name, tensors, [run or op("IDENTITY", ["x"], ["y"])], ["x"], ["y"])

    always = block(
        "always",
        [tensor("x", [1], "INT32"), tensor("c", [1], "BOOL")],
        [op("EQUAL", ["x", "x"], ["c"])],
        ["x"],
        ["c"],
    )
    names = ["main", *bodies]
    return save(path, *(nest(name, inner) for name, inner in zip(names, [*bodies, None], strict=True)), always)


def test_the_model_gives_up_a_loop_after_ten_thousand_turns(tmp_path: Path) -> None:
    """Documented in the module, because the run counts as valid all the same."""
    assert MODEL.run(_loop(tmp_path / "m.tosa", "body"), [np.array([1], np.int32)]).status is Status.VALID


def test_a_run_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    started = time.monotonic()
    result = MODEL.run(_loop(tmp_path / "m.tosa", "outer", "inner"), [np.array([1], np.int32)], timeout=0.5)
    assert (result.status, result.outputs) == (Status.TIMEOUT, ())
    assert result.message.startswith("no result after 0.5 s")
    assert time.monotonic() - started < 20


def test_state_starts_afresh_in_every_run(tmp_path: Path) -> None:
    """A variable as converters write it: IDENTITY operators with the attribute tables of VARIABLE_READ and _WRITE."""
    tensors = [
        tensor("x", [2], "INT8"),
        tensor("y", [2], "INT8"),
        tensor("state", [2], "INT8", bytes([10, 20]), variable=True, variable_name="state"),
    ]
    operators = [
        op("IDENTITY", ["state"], ["y"], "VariableReadAttribute"),
        op("IDENTITY", ["x"], ["state"], "VariableWriteAttribute"),
    ]
    file = save(tmp_path / "m.tosa", block("main", tensors, operators, ["x"], ["y"]))
    results = list(MODEL.run_many(file, [[np.array([1, 2], np.int8)]] * 2))
    assert [(r.status, [o.tolist() for o in r.outputs]) for r in results] == [(Status.VALID, [[10, 20]])] * 2


def test_success_without_an_output_is_no_success(tmp_path: Path) -> None:
    file = _identity(tmp_path / "m.tosa", "INT48", (2,))
    result = _fake(tmp_path / "model", "exit 0").run(file, [np.zeros(2, np.int64)])
    assert (result.status, result.outputs) == (Status.ERROR, ())
    assert 'wrote no output "y" INT48 [2]' in result.message


def test_success_with_an_empty_output_is_no_success(tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.empty(0))
    fake = _fake(tmp_path / "model", f"exec /bin/cp {tmp_path}/empty.npy output0.npy")
    result = fake.run(_identity(tmp_path / "m.tosa", "INT48", (2,)), [np.zeros(2, np.int64)])
    assert result.status is Status.ERROR
    assert 'output "y" INT48 [2] came back as float64 [0]' in result.message


def test_the_child_finds_no_debugger_and_leaves_no_core(tmp_path: Path) -> None:
    script = 'echo "PATH=$PATH core=$(ulimit -c) memory=$(ulimit -v)" >&2; command -v gdb >&2; exit 9'
    fake = _fake(tmp_path / "model", script)
    inputs = [np.array([1], np.int8)]
    file = _identity(tmp_path / "m.tosa", "INT8", (1,))
    result = fake.run(file, inputs)
    assert result.status is Status.CRASHED
    assert MEMORY_LIMIT is not None
    assert result.message == f"exit status 9\nPATH=/dev/null core=0 memory={MEMORY_LIMIT // 1024}"
    assert fake.executable is not None
    limited = ReferenceModel(executable=fake.executable, memory_limit=1 << 30).run(file, inputs)
    assert limited.message == "exit status 9\nPATH=/dev/null core=0 memory=1048576"


def test_run_many_keeps_the_order_of_its_batches(tmp_path: Path) -> None:
    file = _identity(tmp_path / "m.tosa", "INT32", (1,))
    batches = [[np.array([i], np.int32)] for i in range(20)]
    results = ReferenceModel(jobs=4).run_many(file, batches)
    assert [int(result.outputs[0][0]) for result in results] == list(range(20))
    assert list(MODEL.run_many(file, [])) == []


def test_closing_run_many_cancels_what_has_not_started(tmp_path: Path) -> None:
    fake = _fake(tmp_path / "model", f"echo run >> {tmp_path}/log; exit 9")
    file = _identity(tmp_path / "m.tosa", "INT8", (1,))
    results = iter(fake.run_many(file, [[np.array([1], np.int8)]] * 200))
    assert next(results).status is Status.CRASHED
    results.close()  # type: ignore[attr-defined]
    assert len((tmp_path / "log").read_text().splitlines()) < 200


def test_inputs_that_do_not_match_are_the_callers_fault(tmp_path: Path) -> None:
    file = _identity(tmp_path / "m.tosa", "INT48", (2,))
    good = np.zeros(2, np.int64)
    for arrays, message in (
        ([], "the graph has 1 inputs, 0 arrays were given"),
        ([good, good], "the graph has 1 inputs, 2 arrays were given"),
        ([good.astype(np.int32)], r'input "x" INT48 \[2\] needs int64 values in exactly that shape, got int32 \[2\]'),
        ([good.reshape(2, 1)], r"got int64 \[2, 1\]"),
        ([good + 2**47], "outside its dtype"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            MODEL.run(file, arrays)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(InvalidArgument, match="give a positive number"):
            MODEL.run(file, [good], timeout=wrong)
    with pytest.raises(InvalidArgument, match='level "8K" is unknown; use NONE or EIGHTK'):
        ReferenceModel(level="8K").run(file, [good])
    with pytest.raises(InvalidArgument, match=r"cannot read .*absent\.tosa"):
        MODEL.run(tmp_path / "absent.tosa", [good])


def test_level(tmp_path: Path) -> None:
    """The 8K level allows a stride of 8192 at most; without a level the same graph runs."""
    zero = [const("zi", [0], "INT8"), const("zo", [0], "INT8")]
    tensors = [tensor("x", [1, 1, 1, 1], "INT8"), *zero, tensor("y", [1, 1, 1, 1], "INT8")]
    attribute = {"kernel": [1, 1], "stride": [9000, 1], "pad": [0, 0, 0, 0]}
    operator = op("AVG_POOL2D", ["x", "zi", "zo"], ["y"], acc_type="INT32", **attribute)
    file = save(tmp_path / "m.tosa", block("main", tensors, [operator], ["x"], ["y"]))
    inputs = [np.ones((1, 1, 1, 1), np.int8)]
    assert MODEL.run(file, inputs).status is Status.VALID
    result = ReferenceModel(level="EIGHTK").run(file, inputs)
    assert result.status is Status.UNPREDICTABLE
    assert "stride_y <= tosa_level.MAX_STRIDE" in result.message


def test_a_file_that_is_no_flatbuffer(tmp_path: Path) -> None:
    good = (CORPUS / "add_a16w8.tosa").read_bytes()
    (tmp_path / "empty.tosa").touch()
    for model, message in (
        (b"", "is not a TOSA flatbuffer"),
        (b"PK\x03\x04 and so on", "is not a TOSA flatbuffer"),
        (good[:200], "is damaged"),
        (tmp_path / "empty.tosa", "is empty"),
    ):
        with pytest.raises(InvalidModel, match=message):
            MODEL.run(model, [])


def test_a_missing_model_comes_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(ToolMissing, match=r'pip install .*"tosa-tools>=2026.8.0"'):
        MODEL.run(CORPUS / "add_a16w8.tosa", [])


def test_small_floats_whose_rows_do_not_fill_bytes_are_refused_as_outputs_too() -> None:
    net = Net()
    program = net.program(net.const(np.zeros((1, 3), numpy_dtype(DType.FP6E2M3)), DType.FP6E2M3))
    with pytest.raises(Unsupported, match="only where rows fill whole bytes"):
        MODEL.run(dumps(program), [])
