"""Variables: state cells, and the operators that declare, read and write them.

A file has no table of variables: a tensor marked ``variable`` is one. VARIABLE_READ takes it as operand, VARIABLE_WRITE
gives it as result; a converter in wide use writes both as IDENTITY with the attributes of the variable operator.
"""

from collections.abc import Iterable, Iterator

from tosakit.ir import ops
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes, Foreign
from tosakit.spec.call import Finding, show
from tosakit.spec.constants import check_data
from tosakit.spec.dtypes import element_of, type_faults

VARIABLE_OPERATORS = (ops.Variable, ops.VariableRead, ops.VariableWrite)


def meaning(attrs: Attributes) -> Attributes:
    """The attributes an operator acts by: those of VARIABLE_READ or VARIABLE_WRITE where IDENTITY carries them."""
    if not isinstance(attrs, Foreign) or attrs.number != ops.Identity.NUMBER:
        return attrs
    return attrs.attributes if isinstance(attrs.attributes, VARIABLE_OPERATORS) else attrs


def check_variable_operator(op: AnyOp, attrs: Attributes, minor: int) -> Iterator[Finding]:
    """What is wrong with a VARIABLE, VARIABLE_READ or VARIABLE_WRITE."""
    takes, gives = {
        ops.Variable: ((), (0, 1)),
        ops.VariableRead: ((0, 1), (1,)),
        ops.VariableWrite: ((1,), (0, 1)),
    }[type(attrs)]
    if len(op.inputs) not in (takes or (0,)):
        yield Finding("WrongInputList", f"{attrs.NAME} has {len(op.inputs)} operands")
        return
    if len(op.outputs) not in gives:
        yield Finding("WrongOutputList", f"{attrs.NAME} has {len(op.outputs)} results")
        return
    cells = op.inputs if isinstance(attrs, ops.VariableRead) else op.outputs
    values = op.outputs if isinstance(attrs, ops.VariableRead) else op.inputs
    for cell in cells:
        if not cell.extras.variable:
            message = f"{attrs.NAME} accesses a tensor that is not marked as a variable"
            yield Finding("NotAVariable", message, (cell,))
        for value in values:
            if element_of(cell) != element_of(value) or cell.shape != value.shape:
                message = (
                    f"the variable is {cell.dtype.name} {show(cell.shape)}, "
                    f"{attrs.NAME} passes {value.dtype.name} {show(value.shape)}"
                )
                yield Finding("VariableTypeMismatch", message, (cell, value))
    elements = tuple(map(element_of, values or cells))
    for fault in type_faults("VARIABLE_READ", minor, False, (), elements, None):
        code = "WrongOutputType" if isinstance(attrs, ops.VariableRead) else "WrongInputType"
        message = fault.message.replace("output1", "the variable's type")
        yield Finding(code if fault.code == "WrongOutputType" else fault.code, message, tuple(values or cells))


def check_variable_use(op: AnyOp) -> Iterator[Finding]:
    """A finding where an operator that is no variable operator reads or writes a variable."""
    for tensor in dict.fromkeys(op.inputs + op.outputs):
        if tensor.extras.variable:
            message = f"{op.name} accesses a variable; only VARIABLE_READ and VARIABLE_WRITE may"
            yield Finding("VariableUse", message, (tensor,))


def check_cells(cells: Iterable[Tensor]) -> Iterator[Finding]:
    """What is wrong with the variables of a block: names and initial data."""
    named: dict[str, Tensor] = {}
    for tensor in cells:
        name = tensor.extras.variable_name
        if not name:
            yield Finding("VariableName", "a variable has no variable_name", (tensor,), "warning")
        else:
            first = named.setdefault(name, tensor)
            if (first.dtype, first.shape) != (tensor.dtype, tensor.shape):
                message = f'variable "{name}" is declared with two types'
                yield Finding("VariableName", message, (first, tensor))
        if tensor.data:
            yield from check_data(tensor, tensor.data, "variable")
