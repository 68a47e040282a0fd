"""Shapes and element types of an operator's results from its attributes and operands, by the verifier's own checks."""

from collections.abc import Sequence
from typing import NamedTuple

from tosakit.errors import InvalidArgument
from tosakit.ir.enums import BlockSize, DType
from tosakit.ir.graph import Tensor
from tosakit.ir.operator import Attributes
from tosakit.spec.call import AnyCall, Call, Shape
from tosakit.spec.dtypes import element_of, result_elements, type_faults
from tosakit.spec.operators import CHECKS, DEFAULT
from tosakit.spec.signature import signature, spread


class ResultType(NamedTuple):
    """What is known of one result: the element type where the operands leave no choice, the shape where it follows."""

    dtype: DType | None
    shape: Shape | None


def result_types(attrs: Attributes, operands: Sequence[Tensor], *, minor: int = 0) -> tuple[ResultType, ...]:
    """Element type and shape of every result of an operator with these operands under TOSA 1.``minor``.

    The element type is None where the operands leave a choice (CAST, RESIZE) or the result is block-scaled. A size is
    None where it depends on run time. Raises InvalidArgument with everything the verifier finds wrong, and for
    operators whose results no specification fixes (CONST, CUSTOM, control flow, variables).
    """
    sig = signature(attrs.NAME)
    if sig is None or not sig.inputs or not sig.outputs or any(argument.many for argument in sig.outputs):
        raise InvalidArgument(f"the results of {attrs.NAME} do not follow from its operands")
    scaled = getattr(attrs, "block_size", BlockSize.BLOCK_SIZE_1) != BlockSize.BLOCK_SIZE_1
    taken = spread(sig.inputs, len(operands), scaled)
    if not taken:
        names = ", ".join(argument.name for argument in sig.inputs)
        raise InvalidArgument(f"{attrs.NAME} takes {names}; {len(operands)} operands are given")
    elements = tuple(map(element_of, operands))
    faults = [f.message for f in type_faults(sig.name, minor, scaled, elements, (), getattr(attrs, "acc_type", None))]
    checks = CHECKS.get(sig.name, DEFAULT)
    call: AnyCall = Call(attrs, list(zip(taken, operands, strict=True)), (), checks.codes, {})
    if checks.run is not None:
        checks.run(call)
    faults += [finding.message for finding in call.findings if finding.severity == "error"]
    if faults:
        raise InvalidArgument(f"{attrs.NAME} with these operands is not legal: {'; '.join(faults)}")
    present = [argument for argument in sig.outputs if scaled or not argument.scales]
    dtypes = dict(zip(sig.outputs, result_elements(sig.name, minor, scaled, elements), strict=True))
    return tuple(
        ResultType(dtype if isinstance(dtype := dtypes[argument], DType) else None, call.expected(argument))
        for argument in present
    )
