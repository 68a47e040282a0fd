"""The sidecar: what is read, what is refused with which words, and that writing and reading it loses nothing."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosakit.errors import InvalidArgument
from tosakit.io.qparams import apply_qparams, dump_qparams, load_qparams, save_qparams, sidecar_path
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import Graph, Op, Tensor
from tosakit.ir.program import Program, Region
from tosakit.ir.types import QuantParams


def block(name: str, *tensors: tuple[str, DType, tuple[int, ...]]) -> Graph:
    graph = Graph(name)
    graph.set_inputs([graph.add_tensor(Tensor(n, dtype, shape)) for n, dtype, shape in tensors])
    for tensor in graph.inputs:
        graph.add_op(Op(ops.Identity(), (tensor,), (Tensor(f"{tensor.name}_copy", tensor.dtype, tensor.shape),)))
    graph.set_outputs([op.output for op in graph.ops])
    return graph


def program() -> Program:
    main = block(
        "main",
        ("x", DType.INT16, (2, 3)),
        ("q", DType.INT8, (2, 3)),
        ("w", DType.INT8, (4, 1)),
        ("f", DType.FP32, (2,)),
        ("acc", DType.INT32, (2,)),
    )
    other, third = block("then", ("x", DType.INT16, (2,)), ("inner", DType.INT16, (2,))), block("else")
    third.add_tensor(Tensor("twice", DType.INT16, (1,)))
    other.add_tensor(Tensor("twice", DType.INT16, (1,)))
    return Program([Region("main", [main]), Region("then", [other]), Region("else", [third])])


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "model.qparams.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_reads_per_tensor_and_per_axis_parameters(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "comment": "fields beside tensors are not ours",
            "tensors": {
                "x": {"scale": 0.0123, "zero_point": 0},
                "q": {"scale": 1, "zero_point": -3},
                "w": {"scale": [0.1, 0.2, 0.3, 0.4], "axis": 0},
            },
        },
    )
    assert load_qparams(path) == {
        "x": QuantParams((0.0123,)),
        "q": QuantParams((1.0,), -3),
        "w": QuantParams((0.1, 0.2, 0.3, 0.4), 0, 0),
    }


def test_sidecar_stands_beside_the_model() -> None:
    assert sidecar_path("a/model.tosa") == Path("a/model.qparams.json")
    assert sidecar_path(Path("v1.2.tosa")) == Path("v1.2.qparams.json")
    assert sidecar_path("model.bin") == Path("model.bin.qparams.json")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"scale": 0.0}, ["0.0", "finite positive"]),
        ({"scale": -1}, ["-1", "finite positive"]),
        ({"scale": [0.5, float("nan")], "axis": 0}, ["nan", "index 1", "finite positive"]),
        ({"scale": float("inf")}, ["inf", "finite positive"]),
        ({"scale": 10**400}, ["1000", "not finite"]),
        ({"scale": "0.5"}, ['"0.5"', "not a number"]),
        ({"scale": True}, ["true", "not a number"]),
        ({"scale": None}, ["null", "not a number"]),
        ({"scale": []}, ["0 scales"]),
        ({"scale": [0.1, 0.2]}, ["2 scales", "axis"]),
        ({"scale": 0.5, "zero_point": 1.5}, ["1.5", "zero_point"]),
        ({"scale": 0.5, "zero_point": [0, 0]}, ["[0, 0]", "zero_point"]),
        ({"scale": 0.5, "zero_point": False}, ["false", "zero_point"]),
        ({"scale": [0.5], "axis": "0"}, ['"0"', "axis"]),
        ({"zero_point": 0}, ["scale"]),
        ({"scale": 0.5, "zeropoint": 0}, ["zeropoint", "zero_point"]),
        ([0.5], ["[0.5]", "not an object"]),
    ],
)
def test_a_bad_entry_names_file_tensor_and_value(tmp_path: Path, entry: object, words: list[str]) -> None:
    path = written(tmp_path, {"tensors": {"good": {"scale": 1.0}, "bad one": entry}})
    with pytest.raises(InvalidArgument) as caught:
        load_qparams(path)
    for word in (str(path), '"bad one"', *words):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ["not JSON", "line 1"]),
        ("", ["not JSON"]),
        ("[]", ['"tensors"']),
        ('{"tensor": {}}', ['"tensors"']),
        ('{"tensors": []}', ['"tensors"']),
        ('{"tensors": {"x": {"scale": 1}, "x": {"scale": 2}}}', ['"x"', "twice"]),
        ('{"tensors": ' + "[" * 100_000, []),
        ('{"tensors": {"x": {"scale": ' + "9" * 5000 + "}}}", []),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str, words: list[str]) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InvalidArgument) as caught:
        load_qparams(path)
    for word in (str(path), *words):
        assert word in str(caught.value)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "missing.json", tmp_path, binary):
        with pytest.raises(InvalidArgument) as caught:
            load_qparams(path)
        assert str(path) in str(caught.value)


def test_annotates_the_main_block_first_and_other_blocks_by_unique_name() -> None:
    target = program()
    apply_qparams(target, {"x": QuantParams((0.5,)), "inner": QuantParams((0.25,)), "q": QuantParams((1.0,), 200)})
    then = target.region("then").blocks[0]
    assert target.main.tensor("x").quantization == QuantParams((0.5,))
    assert target.main.tensor("q").quantization == QuantParams((1.0,), 200)
    assert then.tensor("inner").quantization == QuantParams((0.25,))
    assert then.tensor("x").quantization is None


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("xx", QuantParams((0.5,)), ["'x'"]),
        ("twice", QuantParams((0.5,)), ['"then"', '"else"']),
        ("w", QuantParams((0.1, 0.2), 0, 0), ["2 scales", "axis 0", "size 4"]),
        ("w", QuantParams((0.1,), 0, 2), ["axis 2", "[4, 1]"]),
        ("w", QuantParams((0.1,), 0, -1), ["axis -1"]),
        ("x", QuantParams((0.5,), 5), ["zero_point is 5", "INT16", "symmetrically"]),
        ("acc", QuantParams((0.5,), -1), ["zero_point is -1", "INT32"]),
        ("q", QuantParams((0.5,), 256), ["256", "INT8"]),
        ("f", QuantParams((0.5,)), ["FP32"]),
    ],
)
def test_what_does_not_fit_names_file_and_tensor_and_changes_nothing(
    tmp_path: Path, name: str, params: QuantParams, words: list[str]
) -> None:
    target = program()
    before = dump_qparams(target)
    entry: dict[str, object] = {"scale": list(params.scale), "zero_point": params.zero_point}
    if params.axis is not None:
        entry["axis"] = params.axis
    path = written(tmp_path, {"tensors": {"x": {"scale": 0.5}} | {name: entry}})
    with pytest.raises(InvalidArgument) as caught:
        apply_qparams(target, load_qparams(path))
    for word in (str(path), f'"{name}"', *words):
        assert word in str(caught.value)
    assert dump_qparams(target) == before
    with pytest.raises(InvalidArgument, match="quantisation parameters"):
        apply_qparams(target, {name: params})


scales = st.floats(5e-324, 1.7e308)
parameters = st.one_of(
    st.builds(lambda s, z: ("q", QuantParams((s,), z)), scales, st.integers(-128, 127)),
    st.builds(lambda s: ("w", QuantParams(tuple(s), 0, 0)), st.lists(scales, min_size=4, max_size=4)),
    st.builds(lambda s: ("inner", QuantParams((s,))), scales),
    st.builds(lambda s: ("x", QuantParams((s,))), scales),
)


@given(st.lists(parameters))
def test_writing_and_reading_loses_nothing_and_is_deterministic(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, QuantParams]]
) -> None:
    mapping, first, second = dict(pairs), program(), program()
    path = tmp_path_factory.mktemp("qparams") / "model.qparams.json"
    apply_qparams(first, mapping)
    apply_qparams(second, dict(reversed(mapping.items())))
    save_qparams(first, path)
    assert path.read_text() == dump_qparams(first) == dump_qparams(second)
    assert load_qparams(path) == mapping
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_written_form() -> None:
    target = program()
    assert dump_qparams(target) == '{\n  "tensors": {}\n}\n'
    apply_qparams(target, {"x": QuantParams((0.5,)), "w": QuantParams((1.0, 2.0, 3.0, 4.0), 0, 0)})
    assert dump_qparams(target) == (
        '{\n  "tensors": {\n'
        '    "w": {"scale": [1.0, 2.0, 3.0, 4.0], "zero_point": 0, "axis": 0},\n'
        '    "x": {"scale": 0.5, "zero_point": 0}\n'
        "  }\n}\n"
    )


def test_a_tensor_that_cannot_be_found_by_name_is_left_out() -> None:
    target = program()
    then = target.region("then").blocks[0]
    for name in ("x", "twice", "inner"):
        then.annotate(then.tensor(name), QuantParams((0.5,)))
    assert json.loads(dump_qparams(target)) == {"tensors": {"inner": {"scale": 0.5, "zero_point": 0}}}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "such" / "place.json"):
        with pytest.raises(InvalidArgument) as caught:
            save_qparams(program(), path)
        assert str(path) in str(caught.value)
