"""The verifier: everything in a program that breaks the structure, type and shape rules of TOSA.

Signatures (operands, results, types, ranks, constants) come from the generated tables, conditions that relate values
from :mod:`tosakit.spec.operators`; this module walks the program and turns findings into diagnostics.
"""

from collections.abc import Iterator
from functools import cached_property

from tosakit.errors import InvalidModel
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.program import Program
from tosakit.spec.call import Finding
from tosakit.spec.control_flow import Regions, recursive_regions
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.operator_check import OperatorCheck
from tosakit.spec.variables import check_cells


def verify(program: Program) -> list[Diagnostic]:
    """Everything wrong with ``program``, in program order. Linear in its size; raises for no program that loads.

    An error means that the specification forbids the program; a warning, that it is unusual, needs an extension, or
    cannot be judged.
    """
    return list(_program(program))


def _program(program: Program) -> Iterator[Diagnostic]:
    if not program.regions or not program.regions[0].blocks:
        message = "the file has no region with a block, so there is nothing to run"
        yield Diagnostic("EmptyProgram", "error", "", None, None, (), message)
    context = _Context(program)
    seen: dict[str, None] = {}
    for region in program.regions:
        name = region.name or ""
        if name in seen:
            message = f'two regions are named "{name}"; control flow reaches the first only'
            yield Diagnostic("DuplicateRegion", "error", "", None, None, (), message)
        seen[name] = None
        for block in region.blocks:
            recursive = context.recursive if name in context.recursive else {}
            check = OperatorCheck(program.version, context.regions, recursive)
            for index, op, finding in _block_findings(context, block, check):
                names = tuple(dict.fromkeys(tensor.name for tensor in finding.tensors))
                kind = None if op is None else op.name
                yield Diagnostic(finding.code, finding.severity, block.name or "", index, kind, names, finding.message)


class _Context:
    """What the checks of a block need to know of the program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.version = program.version
        self.regions: Regions = {region.name or "": region for region in reversed(program.regions)}
        self.recursive = recursive_regions(self.regions)

    @cached_property
    def owners(self) -> dict[str, str]:
        """A block that declares a tensor of each name."""
        return {
            tensor.name: block.name
            for block in self.program.blocks
            for tensor in block.tensors
            if tensor.table != "undeclared"
        }


_Located = tuple[int | None, AnyOp | None, Finding]


def _block_findings(context: _Context, block: Graph, check: OperatorCheck) -> Iterator[_Located]:
    """Findings about a block, then about each of its operators."""
    for finding in _declaration_findings(context, block):
        yield None, None, finding
    try:
        operators = block.ops
    except InvalidModel as error:
        yield None, None, Finding("Cycle", str(error))
        return
    for index, op in enumerate(operators):
        for finding in check.findings(op):
            yield index, op, finding
    if not block.outputs and not any(op.is_stateful for op in operators):
        message = "the block has no outputs and no operator with an effect, so it computes nothing"
        yield None, None, Finding("NoOutputs", message)


def _declaration_findings(context: _Context, block: Graph) -> Iterator[Finding]:
    for tensor in block.tensors:
        if tensor.dtype == DType.UNKNOWN or tensor.producer is None:
            yield from _check_declaration(context, tensor)
        if tensor.shape and min(tensor.shape) < -1:
            message = f"the shape is {list(tensor.shape)}; a size is at least 1, or -1 where only run time knows it"
            yield Finding("InvalidDimension", message, (tensor,))
    yield from check_cells(block)
    for what, tensors in (("input", block.inputs), ("output", block.outputs)):
        for tensor in tensors:
            if tensor.dtype == DType.SHAPE:
                message = f"a shape value is an {what} of the block; TOSA passes tensors only"
                yield Finding("ShapeAtBoundary", message, (tensor,), "warning")


def _check_declaration(context: _Context, tensor: Tensor) -> Iterator[Finding]:
    """A tensor that is not declared, has no type, or comes from nowhere."""
    if tensor.table == "undeclared":
        message = "the tensor is declared nowhere in this block"
        if (owner := context.owners.get(tensor.name)) is not None:
            message += f'; block "{owner}" has it, but a region cannot reach tensors of another'
        yield Finding("UndeclaredTensor", message, (tensor,))
        return
    if tensor.dtype == DType.UNKNOWN:
        yield Finding("UnknownDType", "the tensor is declared without an element type", (tensor,))
    if tensor.producer is not None or tensor.extras.variable:
        return
    if tensor.is_used:
        hint = "; it has data, so a CONST must give it" if tensor.data else ""
        message = f"{tensor.users[0].name} reads a tensor that no operator gives and no input of the block is{hint}"
        yield Finding("NoProducer", message, (tensor,))
    else:
        message = "the tensor is declared, but nothing gives or reads it"
        yield Finding("UnusedTensor", message, (tensor,), "warning")
