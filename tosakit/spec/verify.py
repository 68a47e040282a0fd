"""The verifier: everything in a program that breaks the structure, type and shape rules of TOSA.

Signatures (operands, results, types, ranks, constants) come from the generated tables, conditions that relate values
from :mod:`tosakit.spec.operators`; this module walks the program and turns findings into diagnostics.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from tosakit._gc import collector_paused
from tosakit.errors import InvalidModel
from tosakit.ir.bulk import unproduced
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.program import Program
from tosakit.spec.call import Finding
from tosakit.spec.control_flow import Regions, recursive_regions, region_calls, region_depths
from tosakit.spec.diagnostics import Diagnostic
from tosakit.spec.memory import Memory
from tosakit.spec.operator_check import OperatorCheck
from tosakit.spec.target import DRAFTS, Target
from tosakit.spec.variables import check_cells


@collector_paused()
def verify(program: Program) -> list[Diagnostic]:
    """Everything wrong with ``program``, in program order. Linear in its size; raises for no program that loads.

    An error means that the specification forbids the program; a warning, that it is unusual, needs an extension, or
    cannot be judged. Levels, profiles and what values can be is the matter of :func:`tosakit.spec.check.check`.
    """
    return [located.diagnostic for located in walk(program, Target(), Memory())]


class Located(NamedTuple):
    """A diagnostic with the block it is about, None for one about the program."""

    diagnostic: Diagnostic
    block: Graph | None = None


def locate(block: Graph, index: int | None, op: AnyOp | None, finding: Finding) -> Located:
    """A finding as a diagnostic."""
    names = tuple(dict.fromkeys(tensor.name for tensor in finding.tensors))
    kind = None if op is None else op.name
    diagnostic = Diagnostic(finding.code, finding.severity, block.name or "", index, kind, names, finding.message)
    return Located(diagnostic, block)


def walk(program: Program, target: Target, memory: Memory) -> Iterator[Located]:
    """Everything wrong with ``program`` for a target; ``memory`` keeps what was learnt on the way."""
    yield from map(Located, _program_findings(program, target))
    context = _Context(program, memory)
    seen: dict[str, None] = {}
    for region in program.regions:
        name = region.name or ""
        if name in seen:
            message = f'two regions are named "{name}"; control flow reaches the first only'
            yield Located(Diagnostic("DuplicateRegion", "error", "", None, None, (), message))
        seen[name] = None
        is_first = region is program.regions[0]  # without a block it is reported as empty
        if len(region.blocks) > 1 or (not region.blocks and not is_first):
            message = f'region "{name}" has {len(region.blocks)} blocks, a region has one'
            yield Located(Diagnostic("RegionBlockCount", "error", "", None, None, (), message))
        for block in region.blocks:
            recursive = context.recursive if name in context.recursive else {}
            depth, facts = context.depths.get(name, 0), memory.facts(block)
            check = OperatorCheck(program.version, context.regions, recursive, depth, facts, target, memory)
            memory.places[block] = check.places
            for index, op, finding in _block_findings(context, block, check):
                yield locate(block, index, op, finding)


def _program_findings(program: Program, target: Target) -> Iterator[Diagnostic]:
    """What is wrong with a program as a whole: its version, and that it has nothing to run."""
    version = program.version
    if target.minor is not None and version.minor > target.minor:
        message = f"the file says TOSA {version}, the target is 1.{target.minor}"
        yield Diagnostic("NeedsNewerVersion", "error", "", None, None, (), message)
    if version.minor in DRAFTS and not version.draft:
        message = f"the file says TOSA {version} without the draft flag; 1.{version.minor} exists only as a draft"
        yield Diagnostic("DraftFlagMissing", "error", "", None, None, (), message)
    if not program.regions or not program.regions[0].blocks:
        message = "the file has no region with a block, so there is nothing to run"
        yield Diagnostic("EmptyProgram", "error", "", None, None, (), message)


class _Context:
    """What the checks of a block need to know of the program."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program = program
        self.memory = memory
        self.regions: Regions = {region.name or "": region for region in reversed(program.regions)}
        self.calls = region_calls(self.regions)
        self.recursive = recursive_regions(self.calls)

    @cached_property
    def depths(self) -> dict[str, int]:
        """How many control flow operators run around each region, at most."""
        return region_depths(self.calls, self.recursive)

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
    for finding in _declaration_findings(context, block, check.facts):
        yield None, None, finding
    try:
        operators = block.ops
    except InvalidModel as error:
        yield None, None, Finding("Cycle", str(error))
        return
    yield from check.findings(operators)
    if not block.outputs and not any(op.is_stateful for op in operators):
        message = "the block has no outputs and no operator with an effect, so it computes nothing"
        yield None, None, Finding("NoOutputs", message)


def _declaration_findings(context: _Context, block: Graph, facts: Mapping[Tensor, int]) -> Iterator[Finding]:
    odd, cells = context.memory.odd, []
    strange = (
        unproduced(block) + [tensor for tensor, fact in facts.items() if fact in odd] if odd else unproduced(block)
    )
    for tensor in dict.fromkeys(strange):
        yield from _check_declaration(context, tensor)
        if tensor.extras.variable:
            cells.append(tensor)
    yield from check_cells(cells)
    for what, tensors in (("input", block.inputs), ("output", block.outputs)):
        for tensor in tensors:
            if tensor.dtype == DType.SHAPE:
                message = f"a shape value is an {what} of the block; TOSA passes tensors only"
                yield Finding("ShapeAtBoundary", message, (tensor,), "warning")


def _check_block(tensor: Tensor) -> Iterator[Finding]:
    """A tensor with scales of its own whose rows are no whole blocks."""
    extras, last = tensor.extras, tensor.shape[-1] if tensor.shape else 1
    block = int(extras.block_shape)
    if extras.scale_type and block and last > 0 and last % block:
        message = f"the shape is {list(tensor.shape)}; the last size must be a multiple of the block of {block} values"
        yield Finding("WrongScaledBlockShapeDimension", message, (tensor,))


def _check_declaration(context: _Context, tensor: Tensor) -> Iterator[Finding]:
    """A tensor that is not declared, has no type, an impossible size, or comes from nowhere."""
    if min(tensor.shape, default=0) < -1:
        message = f"the shape is {list(tensor.shape)}; a size is at least 1, or -1 where only run time knows it"
        yield Finding("InvalidDimension", message, (tensor,))
    if tensor.table == "undeclared":
        message = "the tensor is declared nowhere in this block"
        if (owner := context.owners.get(tensor.name)) is not None:
            message += f'; block "{owner}" has it, but a region cannot reach tensors of another'
        yield Finding("UndeclaredTensor", message, (tensor,))
        return
    if tensor.dtype == DType.UNKNOWN:
        yield Finding("UnknownDType", "the tensor is declared without an element type", (tensor,))
    yield from _check_block(tensor)
    if tensor.producer is not None or tensor.extras.variable:
        return
    if tensor.is_used:
        hint = "; it has data, so a CONST must give it" if tensor.data else ""
        message = f"{tensor.users[0].name} reads a tensor that no operator gives and no input of the block is{hint}"
        yield Finding("NoProducer", message, (tensor,))
    else:
        message = "the tensor is declared, but nothing gives or reads it"
        yield Finding("UnusedTensor", message, (tensor,), "warning")
