"""The checks of one operator: its signature, its types, and what is particular to it."""

from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields
from enum import IntEnum
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from tosakit.ir import ops
from tosakit.ir.enums import BlockSize, DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Version
from tosakit.ir.types import INTEGER_RANGES
from tosakit.spec.call import AnyCall, Call, Finding
from tosakit.spec.constants import check_constant
from tosakit.spec.control_flow import Regions, check_control_flow, region_names
from tosakit.spec.dtypes import element_of, type_faults, type_needs
from tosakit.spec.levels import Excess, operator_excesses, tensor_excesses
from tosakit.spec.operators import CHECKS, DEFAULT, Checks
from tosakit.spec.signature import Argument, Signature, signature, spread
from tosakit.spec.tables import ENUM_NEEDS
from tosakit.spec.target import Alternatives, Target, describe
from tosakit.spec.variables import VARIABLE_OPERATORS, check_variable_operator, check_variable_use, meaning


class _Plan(NamedTuple):
    """What the checks need to know of an operator class, looked up once."""

    signature: Signature
    checks: Checks
    enumerations: tuple[str, ...]
    needy: tuple[str, ...]
    has_accumulator: bool
    runs_regions: bool
    is_constant: bool
    is_special: bool
    value_names: tuple[str, ...]
    value_slots: tuple[int, ...]


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
    needy = tuple(f.name for f in fields(cls) if f.name in ("rounding_mode", "block_size"))
    runs_regions, is_constant = cls in (ops.CondIf, ops.WhileLoop), cls in (ops.Const, ops.ConstShape)
    slots = tuple(slot for slot, argument in enumerate(sig.inputs) if argument.constant)
    return _Plan(
        sig,
        CHECKS.get(name, DEFAULT),
        enumerations,
        needy,
        accumulates,
        runs_regions,
        is_constant,
        runs_regions or cls in VARIABLE_OPERATORS or (not is_constant and _gives_shape(sig)),
        tuple(sig.inputs[slot].name for slot in slots),
        slots,
    )


def _gives_shape(sig: Signature) -> bool:
    """True for operators on shape values, whose results are computed and remembered each time."""
    return any(argument.element == DType.SHAPE for argument in sig.outputs)


_UNUSUAL = (Foreign, *VARIABLE_OPERATORS)

Key = tuple[Hashable, ...]

KEPT_BYTES = 4096
"""Constants that are longer than this are not compared with those of other operators."""

_FACTS = attrgetter("dtype", "shape", "extras")


class Memory:
    """What was learnt about the operators of a program.

    ``requirements`` are what they need of a target, ``minor`` the version that has them all, ``beyond`` whether one
    exceeds the strictest level. Operators with nothing wrong are remembered by all that the checks read of them, so
    that the next one like it costs a look-up.
    """

    def __init__(self) -> None:
        self.clean: dict[Key, None] = {}
        self.requirements: dict[Alternatives, None] = {}
        self.minor = 0
        self.beyond = False
        self._numbers: dict[Hashable, int] = {}
        self._by_identity: dict[int, tuple[int, object]] = {}

    def number(self, value: Hashable) -> int:
        """A number that equal values share; quick for the same object again, which it keeps alive."""
        known = self._by_identity.get(id(value))
        if known is None:
            known = self._by_identity[id(value)] = self._numbers.setdefault(value, len(self._numbers)), value
        return known[0]


class OperatorCheck:
    """Checks the operators of one block, in program order.

    ``recursive`` names the regions that must not be run from here. Values that shape operators compute from constants
    are remembered for the operators behind them.
    """

    def __init__(
        self, version: Version, regions: Regions, recursive: Container[str], target: Target, memory: Memory
    ) -> None:
        self.version = version
        self.minor = version.minor if target.minor is None else min(version.minor, target.minor)
        self.regions = regions
        self.recursive = recursive
        self.target = target
        self.memory = memory
        self._known: dict[Tensor, tuple[int, ...]] = {}

    def findings(self, op: AnyOp) -> Sequence[Finding]:
        """Everything wrong with an operator."""
        plan = _plan(op.attrs.NAME)
        key = None if plan is None else self._key(op, plan)
        if key is not None and key in self.memory.clean:
            return ()
        if isinstance(op.attrs, _UNUSUAL):
            return list(self._unusual(op))
        if plan is None:
            return ()
        findings, repeats = self._check(op, plan)
        if not findings and repeats and key is not None:
            self.memory.clean[key] = None
        return findings

    def _key(self, op: AnyOp, plan: _Plan) -> Key | None:
        """All that the checks read of an operator; None for one that is checked every time."""
        if plan.is_special:
            return None
        inputs, outputs = op.inputs, op.outputs
        if len(outputs) != 1:
            return None
        number = self.memory.number
        key: list[Hashable] = [number(op.attrs), len(inputs)]
        for tensor in (*inputs, outputs[0]):
            dtype, shape, extras = _FACTS(tensor)
            key += (id(dtype), shape, number(extras))
        if plan.is_constant:
            data = outputs[0].data
            return None if data is None else (*key, len(data))
        for slot in plan.value_slots:
            data = inputs[slot].data if slot < len(inputs) else None
            if data is None or len(data) > KEPT_BYTES:
                return None
            key.append(bytes(data))
        return tuple(key)

    def _unusual(self, op: AnyOp) -> Iterator[Finding]:
        attrs = meaning(op.attrs)
        if isinstance(op.attrs, Foreign):
            yield _foreign(op, op.attrs, attrs)
        if isinstance(attrs, VARIABLE_OPERATORS):
            yield from check_variable_operator(op, attrs, self.minor)
            tensors = (*op.inputs, *op.outputs)
            yield from self._level(tensor_excesses(tensors))
            elements = tuple(map(element_of, tensors[:1]))
            yield from self._require(attrs.NAME, type_needs("VARIABLE_READ", False, (), elements, None))

    def _check(self, op: AnyOp, plan: _Plan) -> tuple[list[Finding], bool]:
        """Everything wrong with an operator, and whether that can be said of every operator with the same key."""
        attrs, sig = op.attrs, plan.signature
        findings: list[Finding] = []
        if op.is_stateful:
            findings += check_variable_use(op)
        if sig.since > self.minor:
            allowed = f"the file says {self.version}" if self.minor == self.version.minor else f"not of 1.{self.minor}"
            message = f"{op.name} is an operator of TOSA 1.{sig.since}, {allowed}"
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
            return [*findings, *_wrong_counts(op, sig, operands, results)], False
        if len(dict.fromkeys(op.outputs)) < len(op.outputs):
            findings.append(Finding("WrongOutputList", f"{op.name} gives one tensor as two results", op.outputs))
        findings += self._level(tensor_excesses((*op.inputs, *op.outputs)))
        arguments = (*operands, *results)
        if plan.runs_regions:
            findings += self._level(operator_excesses(op, sig, arguments, None))
            findings += self._require(op.name, type_needs(op.name, False, (), (), None))
            findings += self._check_regions(op)
            return findings, False
        findings += self._check_types(op, plan, scaled)
        if plan.is_constant:
            return [*findings, *check_constant(op)], True
        findings += self._check_constness(op, operands)
        taken = list(zip(operands, op.inputs, strict=True))
        given = list(zip(results, op.outputs, strict=True))
        call: AnyCall = Call(attrs, taken, given, plan.checks.codes, self._known)
        if plan.checks.run is not None:
            plan.checks.run(call)
        call.check_results()
        findings += self._level(operator_excesses(op, sig, arguments, call))
        if call.value is not None:
            self._known[op.output] = call.value
        return findings + call.findings, all(name in plan.value_names for name in call.consulted)

    def _check_regions(self, op: AnyOp) -> Iterator[Finding]:
        yield from check_control_flow(op, self.regions)
        for name in dict.fromkeys(region_names(op)):
            if name in self.recursive:
                yield Finding("RecursiveRegion", f'region "{name}" runs itself through this operator')

    def _check_types(self, op: AnyOp, plan: _Plan, scaled: bool) -> Iterator[Finding]:
        operands = tuple([element_of(tensor) for tensor in op.inputs])
        results = tuple([element_of(tensor) for tensor in op.outputs])
        accumulator: int | None = getattr(op.attrs, "acc_type", None) if plan.has_accumulator else None
        for fault in type_faults(op.name, self.minor, scaled, operands, results, accumulator):
            tensors = {"in": op.inputs, "out": op.outputs}.get(fault.side)
            yield Finding(fault.code, fault.message, () if tensors is None else (tensors[fault.at],))
        yield from self._require(op.name, type_needs(op.name, scaled, operands, results, accumulator))
        for field in plan.needy:
            value = getattr(op.attrs, field)
            if isinstance(value, IntEnum) and value.name in ENUM_NEEDS:
                yield from self._require(f"{op.name} with {value.name}", (0, (ENUM_NEEDS[value.name],)))

    def _require(self, what: str, needs: tuple[int, Alternatives] | None) -> Iterator[Finding]:
        """Note what an operator needs; a finding where the target does not have it."""
        if needs is None:  # no legal types, which is reported as such
            return
        minor, alternatives = needs
        self.memory.minor = max(self.memory.minor, minor)
        self.memory.requirements[alternatives] = None
        if not self.target.provides(alternatives):
            extends = all(any(name.startswith("EXT-") for name in names) for names in alternatives)
            have = " + ".join(self.target.names or ()) or "nothing"
            message = f"{what} with these types needs {describe(alternatives)}, the target has {have}"
            yield Finding("MissingExtension" if extends else "MissingProfile", message)

    def _level(self, excesses: Iterable[Excess]) -> Iterator[Finding]:
        for excess in excesses:
            self.memory.beyond = True
            if excess.exceeds(self.target.level):
                yield excess.finding(self.target.level)

    def _check_constness(self, op: AnyOp, operands: Sequence[Argument]) -> Iterator[Finding]:
        for argument, tensor in zip(operands, op.inputs, strict=True):
            if not argument.constant or tensor.is_constant:
                continue
            producer = tensor.producer
            if tensor.dtype == DType.SHAPE and producer is not None and producer.inputs:
                continue  # the result of a shape operator, whose operands are constants in turn
            if argument.constant == "const":
                yield Finding("NonConstantOperand", f"{argument.name} must be a constant", (tensor,))
                continue
            self.memory.requirements[DYNAMIC] = None
            if self.target.names is None:
                message = f"{argument.name} is no constant, which needs the extension EXT-DYNAMIC"
                yield Finding("NonConstantOperand", message, (tensor,), "warning")
            elif not self.target.provides(DYNAMIC):
                message = f"{argument.name} must be a constant, as the target does not have EXT-DYNAMIC"
                yield Finding("NonConstantOperand", message, (tensor,))


DYNAMIC: Alternatives = (("EXT-DYNAMIC",),)


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
