"""What the builder works out by itself."""

import pytest

from tosakit.ir.build import LONGEST_LIST, Builder
from tosakit.ir.enums import DType
from tosakit.spec.tables import LEVELS


def test_the_longest_list_is_that_of_level_8k() -> None:
    assert LEVELS["8K"]["MAX_TENSOR_LIST_SIZE"] == LONGEST_LIST


@pytest.mark.parametrize("count", [1, 64, 65, 306, 64 * 64 + 1])
def test_concat_keeps_to_the_level_and_to_the_order_of_its_tensors(count: int) -> None:
    builder = Builder("b")
    parts = [builder.const([[number]], DType.INT32) for number in range(count)]
    joined = builder.concat(parts, 1)
    assert joined.shape == (1, count)
    concats = [op for op in builder.ops if op.name == "CONCAT"]
    assert all(len(op.inputs) <= LONGEST_LIST for op in concats)
    assert all(len(op.inputs) > 1 for op in concats)
    order = [joined]
    while any(tensor.producer is not None and tensor.producer.inputs for tensor in order):
        order = [t for tensor in order for t in (tensor.producer.inputs if tensor.producer else ()) or (tensor,)]
    assert order == parts
