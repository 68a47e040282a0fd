# ruff: noqa: E501  (text in the form under test)
"""The text form: what it looks like, and that it is read back."""

import contextlib
import hashlib
import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.programs import CORPUS, SHARED, small_program
from tosakit.errors import InvalidArgument
from tosakit.io.reader import load
from tosakit.io.writer import dumps
from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, DType, RoundingMode
from tosakit.ir.graph import Graph, Op, Tensor, TensorExtras
from tosakit.ir.operator import Foreign
from tosakit.ir.program import Compatibility, Program, Region, SoftwareVersion, Version
from tosakit.ir.text import format_graph, format_operator, format_program, parse_program, to_json
from tosakit.ir.types import QuantParams, encode

EVERYTHING = r"""tosa 1.1.0 draft
software 2026.8.0 "rc\u00001"
compatibility 1 reader 2026.1.0
region "main" {
  block "main" (%x: INT16[1,2,3] <scale=0.001, zero_point=0>, %x, %"odd name:0": FP32[-1,0]) -> (%y, %c, %x, %c) {
    declare %cell: INT8[2] <variable, variable_name="state"> [1, -2]
    declare %unknown: UNKNOWN <table=undeclared>
    %c: INT48[2] = CONST() [-140737488355328, 5]
    %m: INT16[3] = CONST() [16384, 20000, 3]
    %s: INT8[3] = CONST() [14, 20, 62]
    %zi: INT16[1] = CONST() [0]
    %zo: INT16[1] = CONST() [0]
    %y: INT16[1,2,3] <scale=[0.1, 0.25, 3.0], zero_point=0, axis=2> = RESCALE(%x, %m, %s, %zi, %zo) {rounding_mode=SINGLE_ROUND, per_channel=true} loc "model.py:7 \"y\""  // scale 6.50521e-19..1
    %b: BOOL[3] = CONST() [true, false, true]
    %odd_bool: BOOL[1] = CONST() x"07"
    %f: FP32[4] = CONST() [0.1, -inf, nan, -0.0]
    %bf: BF16[2] = CONST() [0.100097656, -1.5]
    %i4: INT4[3] = CONST() [-8, 7, 1]
    %empty: INT8[0] = CONST() []
    %missing: INT8[3] = CONST()
    %scalar: INT32[] = CONST() [7]
    %shape: SHAPE[2] = CONST_SHAPE() [3, 4]
    %mx: MXINT8[2] <unranked, scale_type=FP8UE8M0, block_shape=BLOCK_SHAPE_32, scale_data=x"7f"> = CONST() [1, -1]
    %clamped: INT16[1,2,3] = CLAMP(%x) {min_val=-5, max_val=32767, nan_mode=PROPAGATE}
    %odd_clamp: INT16[1,2,3] = CLAMP(%x) {min_val=x"05", max_val=x"0102030405", nan_mode=7}
    %read: INT8[2] = IDENTITY:VARIABLE_READ(%cell)
    %cell = IDENTITY:VARIABLE_WRITE(%read)
    %p: INT8[1], %q: INT8[1] = CUSTOM() {operator_name="two", domain_name="a\"b", implementation_attrs=x"00ff"}
    %alien: INT8[1] = OP999:ATTRIBUTE120(%p)
    %bare: INT8[1] = ADD:NONE(%p, %q)
    ASSERT_EQUAL_SHAPE(%shape, %shape) {allow_broadcast=true}
    %reduced: INT16[1,2,1] = REDUCE_MAX(%x) {axis=0, nan_mode=PROPAGATE}
  }
}
region unnamed {
  block unnamed (%x: INT8) -> () {
  }
}
region "" {
}
"""


def test_everything_the_form_can_say() -> None:
    program = parse_program(EVERYTHING)
    assert format_program(program, values=None) == EVERYTHING
    assert program.version == Version(1, 1, 0, True)
    assert program.software_version == SoftwareVersion(2026, 8, 0, "rc\x001")
    assert program.compatibility == Compatibility(SoftwareVersion(2026, 1, 0), 1)
    graph = program.main
    x = graph.tensor("x")
    assert graph.inputs == (x, x, graph.tensor("odd name:0"))
    assert graph.tensor("odd name:0").shape == (-1, 0)
    assert [t.name for t in graph.outputs] == ["y", "c", "x", "c"]
    assert x.quantization == QuantParams((0.001,))
    y = graph.tensor("y")
    assert y.quantization == QuantParams((0.1, 0.25, 3.0), 0, 2)
    assert y.producer is not None
    assert y.producer.attrs == ops.Rescale(rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=True)
    assert y.producer.location == 'model.py:7 "y"'
    assert graph.tensor("c").data == bytes.fromhex("000000000080050000000000")
    assert graph.tensor("cell").extras == TensorExtras(variable=True, variable_name="state")
    assert graph.tensor("cell").data == b"\x01\xfe"
    assert graph.tensor("missing").data is None
    assert graph.tensor("empty").data == b""
    assert graph.tensor("unknown").table == "undeclared"
    extras = graph.tensor("mx").extras
    assert (extras.is_unranked, extras.block_shape, extras.scale_data) == (True, BlockShape.BLOCK_SHAPE_32, b"\x7f")
    producers = {name: graph.tensor(name).producer for name in ("clamped", "read", "alien", "bare", "q")}
    attrs = {name: op.attrs for name, op in producers.items() if op is not None}
    assert attrs["clamped"].min_val == encode([-5], DType.INT16)  # type: ignore[attr-defined]
    assert attrs["read"] == Foreign(ops.Identity.NUMBER, ops.VariableRead.NUMBER, ops.VariableRead())
    assert attrs["alien"] == Foreign(999, 120, None)
    assert attrs["bare"] == Foreign(ops.Add.NUMBER, 0, None)
    assert attrs["q"] == ops.Custom("two", 'a"b', b"\x00\xff")
    assert [region.name for region in program.regions] == ["main", None, ""]
    assert not program.regions[1].blocks[0].inputs[0].has_shape


def test_the_form_survives_a_file() -> None:
    program = parse_program(EVERYTHING)
    graph = program.main
    for tensor in graph.tensors:  # quantisation parameters stand in a file of their own
        graph.annotate(tensor, None)
    graph.drop_tensor(graph.tensor("unknown"))
    again = load(dumps(program))
    assert format_program(again, values=None) == format_program(program, values=None)
    assert dumps(again) == dumps(program)


def check_file(path: Path) -> None:
    """Text in full gives back the very bytes; text without the trimmings gives back itself."""
    program = load(path)
    exact = format_program(program, values=None, exact=True)
    assert dumps(parse_program(exact)) == dumps(program)
    plain = format_program(program, values=None)
    assert format_program(parse_program(plain), values=None) == plain
    json.dumps(to_json(program), allow_nan=False)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_files_are_read_back(path: Path) -> None:
    check_file(path)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED, reason="no ../shared beside the checkout")
def test_shared_files_are_read_back() -> None:
    for path in SHARED:
        if path.stat().st_size < 5_000:
            check_file(path)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_random_programs_are_read_back(seed: int) -> None:
    program = small_program(random.Random(seed))
    assert dumps(parse_program(format_program(program, values=None, exact=True))) == dumps(program)


@settings(max_examples=50, deadline=None)
@given(st.text(), st.text(), st.text())
def test_any_text_can_be_a_name(name: str, location: str, region: str) -> None:
    graph = Graph(name)
    x = graph.add_tensor(Tensor(name, DType.INT8, (1,)))
    graph.set_inputs([x])
    graph.add_op(Op(ops.Abs(), [x], [Tensor(location, DType.INT8, (1,))], location=location))
    graph.set_outputs([x])
    text = format_program(Program([Region(region, [graph])]), exact=True)
    assert format_program(parse_program(text), exact=True) == text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert parse_program(text).main.inputs[0].name == name


def test_long_constants_are_given_by_count_and_hash() -> None:
    text = 'block "b" (%x: INT8[1]) -> (%x) {\n  %c: INT8[9] = CONST() [1, 2, 3, 4, 5, 6, 7, 8, 9]\n}\n'
    program = parse_program(text)
    assert format_graph(program.main, values=9) == text
    short = format_graph(program.main)
    digest = hashlib.sha256(bytes(range(1, 10))).hexdigest()
    assert f"CONST() [<9 values, sha256 {digest[:16]}>]\n" in short
    with pytest.raises(InvalidArgument, match=r"line 2: the values were left out .* print all with values=None"):
        parse_program(short)


def test_effective_scales() -> None:
    graph = parse_program(EVERYTHING).main
    y = graph.tensor("y").producer
    assert y is not None
    assert format_operator(y).endswith("// scale 6.50521e-19..1")
    assert "//" not in format_operator(y, scales=False)
    block = to_json(Program([Region("main", [graph])]))["regions"][0]["blocks"][0]
    [found] = [entry for entry in block["operators"] if "effective_scales" in entry]
    assert found["results"] == ["y"]
    assert found["effective_scales"] == [1.0, 20000 / 2**20, 3 / 2**62]


def test_json() -> None:
    document = to_json(parse_program(EVERYTHING))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["version"] == "1.1.0 draft"
    block = document["regions"][0]["blocks"][0]
    assert block["inputs"] == ["x", "x", "odd name:0"]
    tensors = {tensor["name"]: tensor for tensor in block["tensors"]}
    assert tensors["x"] == {
        "name": "x",
        "dtype": "INT16",
        "shape": [1, 2, 3],
        "quantization": {"scale": 0.001, "zero_point": 0, "axis": None},
    }
    assert tensors["f"]["values"][1:3] == ["-inf", "nan"]
    assert tensors["cell"]["variable"] == "state"
    operators = block["operators"]
    assert [op["index"] for op in operators] == list(range(len(operators)))
    clamp = next(op for op in operators if op["type"] == "CLAMP")
    assert clamp["attributes"] == {"min_val": "fbff", "max_val": "ff7f", "nan_mode": "PROPAGATE"}
    foreign = next(op for op in operators if op["type"] == "FOREIGN")
    table = ops.VariableRead.NUMBER
    assert foreign["attributes"] == {"number": ops.Identity.NUMBER, "attribute_type": table, "attributes": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blok", 'line 1: expected "block", found blok'),
        ("\n\nblock () -> () {\n %y: INT8[1] = ABBS()\n}", "line 4: there is no operator ABBS; did you mean ABS?"),
        ("block (%x: INT9[1]) -> () {}", "line 1: INT9 is no DType; did you mean INT8?"),
        ("block (%x: INT8[1]) -> (%y) {}", 'line 1: the block\'s output "y" is declared nowhere in it'),
        ("block (%x) -> () {}", 'line 1: tensor "x" has no type here and is declared nowhere above'),
        ("block (%x: INT8[1], %x: INT8[1]) -> () {}", 'line 1: tensor "x" is declared twice'),
        ("block () -> () {\n%y: INT8[1] = ABS(%x)}", 'line 2: tensor "x" is declared nowhere above'),
        ("block (%x: INT8[1]) -> () {\n%x = ABS(%x)}", "line 2: %x: INT8[1] cannot be a result of ABS"),
        ("block () -> () {\n%y: INT8[2] = CONST() [1]}", "line 2: 1 values for %y: INT8[2], which has 2"),
        ("block () -> () {\n%y: INT8[1] = CONST() [300]}", "line 2: constant values reach from 300 to 300"),
        ("block () -> () {\n%y: INT8[1] = CONST() [a]}", "line 2: values that are no numbers of INT8"),
        ("block () -> () {\n%y: BOOL[1] = CONST() [2]}", "line 2: 2 is neither true nor false"),
        ("block () -> () {\n%y: INT8[1] = CONST() [1", 'line 2: expected "]" after the values'),
        ('block () -> () {\n%y: INT8[1] = CONST() x"123"}', "line 2: an odd number of hexadecimal digits"),
        (
            "block (%x: INT8[1]) -> () {\n%y: INT8[1] = ABS(%x) {axis=1}}",
            "line 2: ABS has no attribute axis; it has none",
        ),
        ("block (%x: INT8[1]) -> () {\n%y: INT8[1] = REVERSE(%x) {axes=1}}", "no attribute axes; it has axis"),
        (
            "block (%x: INT8[1]) -> () {\n%y: INT8[1] = REVERSE(%x) {axis=a}}",
            "line 2: expected a whole number, found a",
        ),
        ("block (%x: INT8[1]) -> () {\n%y: INT8[1] = CLAMP(%x) {min_val=999}}", "line 2: constant values reach"),
        ("block (%x: INT8[1]) -> () {\n%y: INT8[1] = CLAMP(%x) {nan_mode=MAYBE}}", "MAYBE is no NanPropagationMode"),
        ("block (%x: INT8[1]) -> () {\n%y: INT8[1] = RESCALE(%x) {scale32=yes}}", "line 2: expected true or false"),
        ("block (%x: INT8[1]) -> () {\n%y: INT8[1] = OPX:NONE(%x)}", "line 2: OPX is neither an operator nor OP with"),
        ("block (%x: INT8[1]) -> () {\n%y: INT8[1] = OP999:ATTRIBUTE99(%x) {opaque}}", "unknown to tosakit"),
        ("block (%x: INT8[1] <scale=-1>) -> () {}", 'line 1: tensor "x": quantisation scale -1.0 at index 0'),
        ("block (%x: INT8[1] <skale=1>) -> () {}", "line 1: there is no note skale; there are scale"),
        ("block (%x: INT8[1] <table=chairs>) -> () {}", "chairs is no table of a block"),
        ("block (%x: INT8[1] <scale=[1, b], axis=0>) -> () {}", "line 1: a scale is no number"),
        ("block (%x: INT8[1) -> () {}", 'line 1: expected "," or "]" of the shape, found )'),
        ("block (%x: SHAPE[1,2]) -> () {}", "needs a shape of one dimension"),
        ("block (%x: INT8[1]) -> () {\ntensors ()}", "line 2: the tensor table must name every tensor"),
        ('block "a\\q" () -> () {}', "line 1: the block's name has an escape that JSON does not know"),
        ("block () -> () {", "line 1: expected an operator such as ADD, found the end of the text"),
        ("tosa 1\nblock () -> () {}", "line 1: expected a version such as 1.0.0, found 1"),
    ],
)
def test_mistakes_are_located(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_program(text)
    assert message in str(caught.value)
    assert re.match(r"line \d+: ", str(caught.value))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_text_never_escapes(data: st.DataObject) -> None:
    """Whatever is cut out, doubled or replaced: a program, or an error of ours."""
    start = data.draw(st.integers(0, len(EVERYTHING)))
    end = data.draw(st.integers(start, min(start + 8, len(EVERYTHING))))
    damaged = EVERYTHING[:start] + data.draw(st.text('%x"[]{}()<>=,:-0 a\n', max_size=3)) + EVERYTHING[end:]
    with contextlib.suppress(InvalidArgument):
        parse_program(damaged)
