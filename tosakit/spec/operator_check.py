"""The checks of one operator: its signature, its types, and what is particular to it."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import fields
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from tosakit.ir import ops
from tosakit.ir.enums import BlockSize, DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Version
from tosakit.ir.types import INTEGER_RANGES
from tosakit.spec.call import AnyCall, Call, Finding
from tosakit.spec.constants import check_constant, is_sound
from tosakit.spec.control_flow import Regions, check_control_flow, region_names
from tosakit.spec.dtypes import element_of, type_faults
from tosakit.spec.operators import CHECKS, DEFAULT, Checks
from tosakit.spec.signature import Argument, Signature, signature, spread
from tosakit.spec.variables import VARIABLE_OPERATORS, check_variable_operator, check_variable_use, meaning


class _Plan(NamedTuple):
    """What the checks need to know of an operator class, looked up once."""

    signature: Signature
    checks: Checks
    enumerations: tuple[str, ...]
    has_accumulator: bool
    runs_regions: bool


@cache
def _plan(name: str) -> _Plan | None:
    """The plan of an operator, None for one that the specification does not define."""
    sig, cls = signature(name), ops.BY_NAME.get(name)
    if sig is None or cls is None:
        return None
    enumerations = tuple(  # acc_type and block_size have codes of their own
        f.name
        for f in fields(cls)
        if isinstance(f.type, type) and issubclass(f.type, IntEnum) and f.type not in (DType, BlockSize)
    )
    accumulates = any(f.name == "acc_type" for f in fields(cls))
    return _Plan(sig, CHECKS.get(name, DEFAULT), enumerations, accumulates, cls in (ops.CondIf, ops.WhileLoop))


_UNUSUAL = (Foreign, *VARIABLE_OPERATORS)


class OperatorCheck:
    """Checks the operators of one block, in program order.

    ``recursive`` names the regions that must not be run from here. Values that shape operators compute from constants
    are remembered for the operators behind them.
    """

    def __init__(self, version: Version, regions: Regions, recursive: Container[str]) -> None:
        self.version = version
        self.regions = regions
        self.recursive = recursive
        self._known: dict[Tensor, tuple[int, ...]] = {}

    def findings(self, op: AnyOp) -> Sequence[Finding]:
        """Everything wrong with an operator."""
        attrs = op.attrs
        if isinstance(attrs, ops.Const) and is_sound(op, self.version.minor):
            return ()
        if isinstance(attrs, _UNUSUAL):
            return list(self._unusual(op))
        plan = _plan(attrs.NAME)
        return () if plan is None else self._check(op, plan)

    def _unusual(self, op: AnyOp) -> Iterator[Finding]:
        attrs = meaning(op.attrs)
        if isinstance(op.attrs, Foreign):
            yield _foreign(op, op.attrs, attrs)
        if isinstance(attrs, VARIABLE_OPERATORS):
            yield from check_variable_operator(op, attrs, self.version.minor)

    def _check(self, op: AnyOp, plan: _Plan) -> list[Finding]:
        attrs, sig = op.attrs, plan.signature
        findings: list[Finding] = []
        if op.is_stateful:
            findings += check_variable_use(op)
        if sig.since > self.version.minor:
            message = f"{op.name} is an operator of TOSA 1.{sig.since}, the file says {self.version}"
            findings.append(Finding("NeedsNewerVersion", message))
        if plan.enumerations:
            findings += _check_enumerations(op, plan.enumerations)
        scaled = getattr(attrs, "block_size", BlockSize.BLOCK_SIZE_1) != BlockSize.BLOCK_SIZE_1
        operands = spread(sig.inputs, len(op.inputs), scaled)
        results = spread(sig.outputs, len(op.outputs), scaled)
        is_empty_list = (
            not op.inputs and len(sig.inputs) == 1 and sig.inputs[0].many and sig.inputs[0].element is not None
        )
        if operands is None or results is None or is_empty_list:
            return [*findings, *_wrong_counts(op, sig, operands, results)]
        if len(dict.fromkeys(op.outputs)) < len(op.outputs):
            findings.append(Finding("WrongOutputList", f"{op.name} gives one tensor as two results", op.outputs))
        if plan.runs_regions:
            names = region_names(op)
            findings += check_control_flow(op, self.regions)
            for name in dict.fromkeys(names):
                if name in self.recursive:
                    findings.append(Finding("RecursiveRegion", f'region "{name}" runs itself through this operator'))
            return findings
        findings += self._check_types(op, plan, scaled)
        if isinstance(attrs, ops.Const | ops.ConstShape):
            return [*findings, *check_constant(op)]
        findings += _check_constness(op, operands)
        taken = list(zip(operands, op.inputs, strict=True))
        given = list(zip(results, op.outputs, strict=True))
        call: AnyCall = Call(attrs, taken, given, plan.checks.codes, self._known)
        if plan.checks.run is not None:
            plan.checks.run(call)
        call.check_results()
        if call.value is not None:
            self._known[op.output] = call.value
        return findings + call.findings

    def _check_types(self, op: AnyOp, plan: _Plan, scaled: bool) -> Iterator[Finding]:
        operands = tuple([element_of(tensor) for tensor in op.inputs])
        results = tuple([element_of(tensor) for tensor in op.outputs])
        accumulator: int | None = getattr(op.attrs, "acc_type", None) if plan.has_accumulator else None
        for fault in type_faults(op.name, self.version.minor, scaled, operands, results, accumulator):
            tensors = {"in": op.inputs, "out": op.outputs}.get(fault.side)
            yield Finding(fault.code, fault.message, () if tensors is None else (tensors[fault.at],))


def _foreign(op: AnyOp, foreign: Foreign, attrs: Attributes) -> Finding:
    if isinstance(attrs, VARIABLE_OPERATORS):
        message = f"IDENTITY carries the attributes of {attrs.NAME} and is taken as one"
        return Finding("VariableAsIdentity", message, op.inputs + op.outputs, "warning")
    known = ops.BY_NUMBER.get(foreign.number)
    name = f"number {foreign.number}" if known is None else f"{known.NAME} with attributes of another operator"
    message = f"operator {name} is unknown to TOSA 1.1; it is kept as it is and cannot be checked"
    return Finding("UnknownOperator", message, op.outputs, "warning")


def _check_enumerations(op: AnyOp, names: Sequence[str]) -> Iterator[Finding]:
    for name in names:
        value = getattr(op.attrs, name)
        if not isinstance(value, IntEnum) or not value:
            # Integers have no NaN, so that writers leave the mode out.
            harmless = name == "nan_mode" and not value and op.inputs and op.inputs[0].dtype in INTEGER_RANGES
            message = f"{name} is {int(value)}, which names no legal value"
            yield Finding("UnknownEnumValue", message, (), "warning" if harmless else "error")


def _wrong_counts(
    op: AnyOp, sig: Signature, operands: Sequence[Argument] | None, results: Sequence[Argument] | None
) -> Iterator[Finding]:
    takes, gives = (", ".join(argument.name for argument in side) or "none" for side in (sig.inputs, sig.outputs))
    if operands is not None and results is not None:
        yield Finding("ConcatNoInputList", f"{op.name} has no operands, it needs at least one")
    elif operands is None:
        message = f"{op.name} has {len(op.inputs)} operands, it takes {takes}"
        yield Finding("WrongInputList", message, op.inputs)
    if results is None:
        message = f"{op.name} has {len(op.outputs)} results, it gives {gives}"
        yield Finding("WrongOutputList", message, op.outputs)


def _check_constness(op: AnyOp, operands: Sequence[Argument]) -> Iterator[Finding]:
    for argument, tensor in zip(operands, op.inputs, strict=True):
        if not argument.constant or tensor.is_constant:
            continue
        producer = tensor.producer
        if tensor.dtype == DType.SHAPE and producer is not None and producer.inputs:
            continue  # the result of a shape operator, whose operands are constants in turn
        if argument.constant == "static":
            message = f"{argument.name} is no constant, which needs the extension EXT-DYNAMIC"
            yield Finding("NonConstantOperand", message, (tensor,), "warning")
        else:
            yield Finding("NonConstantOperand", f"{argument.name} must be a constant", (tensor,))
