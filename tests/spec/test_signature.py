"""The generated tables and what is read from them."""

import json
import re
from pathlib import Path

import pytest

from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.spec import tables
from tosakit.spec.generate_tables import check_agreement, render
from tosakit.spec.operators import CHECKS
from tosakit.spec.signature import BlockScaled, signature, spread

SHARED = Path(__file__).parents[2].parent / "shared" / "spec"


def test_every_operator_has_a_signature_with_its_operands() -> None:
    for cls in ops.OPERATORS:
        found = signature(cls.NAME)
        assert found is not None, cls.NAME
        names = [argument.name for argument in found.inputs if not argument.scales]
        assert tuple(names) == cls.OPERANDS, cls.NAME
    assert signature("NO_SUCH_OPERATOR") is None
    assert all(name in ops.BY_NAME for name in CHECKS)


def test_convolution() -> None:
    conv = signature("CONV2D")
    assert conv is not None
    assert conv.since == 0
    assert conv.inputs[0].sizes == ("N", "IH", "IW", "IC")
    assert [argument.constant for argument in conv.inputs] == ["", "", "", "static", "static"]
    int16 = [row for row in conv.rows if row.types["in_t"] == DType.INT16]
    assert [(row.types["out_t"], row.since, row.needs) for row in int16] == [(DType.INT48, 0, ("EXT-INT16",))]
    assert sum(row.since == 0 for row in conv.rows) == 9
    assert any(row.types["weight_t"] == BlockScaled(DType.FP4E2M1) for row in conv.rows)


def test_shared_combinations_are_read_under_their_own_parameters() -> None:
    transposed = signature("REDUCE_MIN")
    original = signature("REDUCE_MAX")
    assert transposed is not None
    assert original is not None
    assert transposed.rows == original.rows
    assert "like REDUCE_MAX" in tables.OPERATORS


def test_lists_and_scales_spread_over_the_tensors() -> None:
    concat, reshape, branch = signature("CONCAT"), signature("RESHAPE_BLOCK_SCALED"), signature("COND_IF")
    assert concat is not None
    assert reshape is not None
    assert branch is not None
    assert [a.name for a in spread(concat.inputs, 3, False) or ()] == ["input1"] * 3
    assert [a.name for a in spread(reshape.inputs, 3, True) or ()] == ["input", "input_scale", "new_value_shape"]
    assert [a.name for a in spread(reshape.inputs, 2, False) or ()] == ["input", "new_value_shape"]
    assert [a.name for a in spread(branch.inputs, 3, False) or ()] == ["condition", "input_list", "input_list"]
    assert spread(branch.inputs, 0, False) is None
    assert spread(reshape.inputs, 2, True) is None
    assert spread(reshape.inputs, 4, True) is None


def _operator(added: str, rank: int = 1) -> dict[str, object]:
    argument = {"name": "input", "kind": "tensor_t", "shape": "[N]", "rank": [rank, rank], "element_type": "in_t"}
    row = {"types": {"in_t": "i8_t"}, "added": added, "any_of": ["PRO-INT"]}
    return {"inputs": [argument], "outputs": [], "type_params": ["in_t"], "typesupport": [row], "first_version": "1.0"}


def test_the_generator_stops_where_the_versions_disagree() -> None:
    check_agreement({"A": _operator("1.0")}, {"A": _operator("1.0")})
    with pytest.raises(SystemExit, match=r"A: type combinations of 1\.0 differ"):
        check_agreement({"A": _operator("1.0")}, {"A": _operator("1.1")})
    with pytest.raises(SystemExit, match="A: operands or results"):
        check_agreement({"A": _operator("1.0")}, {"A": _operator("1.0", rank=2)})
    with pytest.raises(SystemExit, match=r"operators of 1\.0 differ"):
        check_agreement({}, {"A": _operator("1.0")})


@pytest.mark.shared
def test_tables_are_what_the_generator_writes() -> None:
    if not SHARED.exists():
        pytest.skip("the optional shared specification data is not beside this checkout")
    documents = [json.loads((SHARED / f"operators_{v}.json").read_text(encoding="utf-8")) for v in ("1.0", "1.1")]
    assert Path(str(tables.__file__)).read_text(encoding="utf-8") == render(*documents)


@pytest.mark.shared
def test_every_kind_of_error_has_a_code() -> None:
    from tosakit.spec.diagnostics import CODES

    if not SHARED.exists():
        pytest.skip("the optional shared specification data is not beside this checkout")
    lines = (SHARED / "error_if_kinds.tsv").read_text(encoding="utf-8").splitlines()[1:]
    kinds = [re.split(r"\t", line)[0] for line in lines]
    assert [kind for kind in kinds if kind not in CODES] == []
