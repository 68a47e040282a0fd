"""The checks of one operator: its signature, its types, and what is particular to it."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import fields
from enum import IntEnum
from typing import NamedTuple

from tosakit.ir import ops
from tosakit.ir.bulk import OpColumns, op_columns
from tosakit.ir.enums import BlockSize, DType
from tosakit.ir.graph import AnyOp, Tensor
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.program import Version
from tosakit.ir.types import INTEGER_RANGES
from tosakit.spec.call import AnyCall, Call, Finding, Harmless
from tosakit.spec.constants import check_constant
from tosakit.spec.control_flow import Regions, check_control_flow, region_names
from tosakit.spec.diagnostics import Severity
from tosakit.spec.dtypes import element_of, type_faults, type_needs
from tosakit.spec.levels import Excess, nesting_excesses, operator_excesses, tensor_excesses
from tosakit.spec.memory import KEPT_BYTES, Key, Memory, Place, Tokens
from tosakit.spec.operators import CHECKS, DEFAULT, Checks
from tosakit.spec.signature import Argument, Signature, signature, spread
from tosakit.spec.tables import ENUM_NEEDS
from tosakit.spec.target import Alternatives, Target, describe
from tosakit.spec.variables import VARIABLE_OPERATORS, check_variable_operator, check_variable_use, meaning


class _Plan(NamedTuple):
    """What the checks need to know of an operator class, looked up once."""

    number: int
    signature: Signature
    checks: Checks
    enumerations: tuple[str, ...]
    needy: tuple[str, ...]
    has_accumulator: bool
    runs_regions: bool
    is_constant: bool
    is_special: bool
    value_names: tuple[str, ...]
    value_slots: tuple[tuple[int, Harmless | None, bool], ...]
    last_value_slot: int


def _plan(cls: type[Attributes]) -> _Plan | None:
    """The plan of an operator, None for one that the specification does not define."""
    sig = signature(cls.NAME)
    if sig is None:
        return None
    enumerations = tuple(  # acc_type and block_size have codes of their own
        f.name
        for f in fields(cls)
        if isinstance(f.type, type) and issubclass(f.type, IntEnum) and f.type not in (DType, BlockSize)
    )
    accumulates = any(f.name == "acc_type" for f in fields(cls))
    needy = tuple(f.name for f in fields(cls) if f.name in ("rounding_mode", "block_size"))
    runs_regions, is_constant = cls in (ops.CondIf, ops.WhileLoop), cls in (ops.Const, ops.ConstShape)
    checks = CHECKS.get(cls.NAME, DEFAULT)
    valued = [(s, a) for s, a in enumerate(sig.inputs) if a.constant or a.name in checks.values]
    return _Plan(
        cls.NUMBER,
        sig,
        checks,
        enumerations,
        needy,
        accumulates,
        runs_regions,
        is_constant,
        runs_regions or cls in VARIABLE_OPERATORS or (not is_constant and _gives_shape(sig)),
        tuple(a.name for _, a in valued),
        tuple((s, checks.harmless.get(a.name), bool(a.constant)) for s, a in valued),
        valued[-1][0] if valued else -1,
    )


class _Plans(dict[type[Attributes], _Plan | None]):
    """Plans by operator class, each made when it is first needed."""

    def __missing__(self, cls: type[Attributes]) -> _Plan | None:
        plan = self[cls] = _plan(cls)
        return plan


_PLANS = _Plans()


def _gives_shape(sig: Signature) -> bool:
    """True for operators on shape values, whose results are computed and remembered each time."""
    return any(argument.element == DType.SHAPE for argument in sig.outputs)


_UNUSUAL = (Foreign, *VARIABLE_OPERATORS)


class OperatorCheck:
    """Checks the operators of one block, in program order.

    ``recursive`` names the regions that must not be run from here, ``depth`` is the number of control flow operators
    that run around the block, ``facts`` what :meth:`Memory.facts` says of it. Values that shape operators compute from
    constants are remembered for the operators behind them. ``places`` fills with the operators that are no constants.
    """

    def __init__(
        self,
        version: Version,
        regions: Regions,
        recursive: Container[str],
        depth: int,
        facts: dict[Tensor, int],
        target: Target,
        memory: Memory,
    ) -> None:
        self.version = version
        self.minor = version.minor if target.minor is None else min(version.minor, target.minor)
        self.regions = regions
        self.recursive = recursive
        self.target = target
        self.memory = memory
        self.depth = depth
        self._known: dict[Tensor, tuple[int, ...]] = {}
        self.facts = facts
        self.places: list[Place] = []

    def findings(self, operators: Sequence[AnyOp]) -> Iterator[tuple[int, AnyOp, Finding]]:
        """Everything wrong with the operators of the block, in program order, with their places."""
        memory, places, facts = self.memory, self.places, self.facts
        numbers, clean = memory.numbers, memory.clean
        fact_of, number_of = facts.__getitem__, numbers.get
        columns = op_columns(operators)
        attributes = memory.all_numbers(columns.attrs)
        wrong_constants = self._constants(operators, columns)
        rows = zip(operators, columns.attrs, attributes, columns.inputs, columns.outputs, strict=True)
        for index, (op, attrs, attributes_number, operands, results) in enumerate(rows):
            plan = _PLANS[type(attrs)]
            if plan is not None and plan.is_constant and len(results) == 1:
                for finding in wrong_constants.get(op, ()):
                    yield index, op, finding
                continue
            # all that the checks read of the operator, None where it is checked every time
            key: Key | None = None
            number: int | None = None
            if plan is not None and len(results) == 1 and len(operands) > plan.last_value_slot and not plan.is_special:
                values: Sequence[int | None] = ()
                if plan.value_slots:
                    slots = memory.tokens.get(type(attrs)) or self._tokens(type(attrs), plan)
                    values = [tokens[number_of(operands[slot])] for slot, tokens in slots]
                if None not in values:
                    key = (attributes_number, facts[results[0]], *map(fact_of, operands), *values)
                    number = clean.get(key)
                    if number is not None:
                        places.append((index, op, number))
                        continue
            found, repeats = self._examine(op, plan)
            for finding in found:
                yield index, op, finding
            if key is not None and repeats and not found:
                number = clean[key] = len(clean)
            if operands:
                places.append((index, op, number))

    def _constants(self, operators: Sequence[AnyOp], columns: OpColumns) -> dict[AnyOp, Sequence[Finding]]:
        """Number the constants, all before what reads them, so that they can be measured together; what is wrong."""
        contents, numbers, facts = self.memory.constants.contents, self.memory.numbers, self.facts
        wrong: dict[AnyOp, Sequence[Finding]] = {}
        for op, attrs, operands, results in zip(operators, columns.attrs, columns.inputs, columns.outputs, strict=True):
            plan = _PLANS[type(attrs)]
            if plan is None or not plan.is_constant or len(results) != 1:
                continue
            output = results[0]
            data, known = output.stored, None
            if data is not None and not operands and len(data) <= KEPT_BYTES:
                known = contents.get((facts[output], bytes(data)))
            if known is not None:
                numbers[output] = known
            elif found := self._constant(op, plan):
                wrong[op] = found
        return wrong

    def _constant(self, op: AnyOp, plan: _Plan) -> Sequence[Finding]:
        """Everything wrong with a constant that is like no earlier one."""
        memory, output = self.memory, op.outputs[0]
        data, fact = output.stored, self.facts[output]
        key = None if data is None or op.inputs else ("constant", plan.number, fact, len(data))
        found = [] if key in memory.clean else self._examine(op, plan)[0]
        is_sound = key is not None and not found
        if key is not None and is_sound:
            memory.clean[key] = 0
        memory.numbers[output] = memory.constants.add(output, fact, is_sound=is_sound)
        return found

    def _tokens(self, kind: type[Attributes], plan: _Plan) -> tuple[tuple[int, Tokens], ...]:
        """What is known of the operands of an operator class whose values the checks look at, by slot."""
        found = [
            (slot, Tokens(self.memory.constants, harmless, must_be_constant))
            for slot, harmless, must_be_constant in plan.value_slots
        ]
        self.memory.tokens[kind] = tuple(found)
        return self.memory.tokens[kind]

    def _examine(self, op: AnyOp, plan: _Plan | None) -> tuple[list[Finding], bool]:
        """Everything wrong with an operator, and whether that can be said of every operator with the same key."""
        if isinstance(op.attrs, _UNUSUAL):
            return list(self._unusual(op)), False
        return ([], False) if plan is None else self._check(op, plan)

    def _unusual(self, op: AnyOp) -> Iterator[Finding]:
        attrs = meaning(op.attrs)
        if isinstance(op.attrs, Foreign):
            yield _foreign(op, op.attrs, attrs)
        if isinstance(attrs, VARIABLE_OPERATORS):
            yield from check_variable_operator(op, attrs, self.minor)
            tensors = (*op.inputs, *op.outputs)
            yield from self._level(tensor_excesses(tensors))
            elements = tuple(map(element_of, tensors[:1]))
            yield from self._require(op, type_needs("VARIABLE_READ", False, (), elements, None))

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
        block_size = getattr(attrs, "block_size", BlockSize.BLOCK_SIZE_1)
        scaled = block_size != BlockSize.BLOCK_SIZE_1
        if not isinstance(block_size, BlockSize) or not block_size:  # reported as such; the operands may be either way
            scaled = spread(sig.inputs, len(op.inputs), False) is None
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
            findings += self._level(nesting_excesses(op, self.depth))
            findings += self._require(op, type_needs(op.name, False, (), (), None))
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
        yield from self._require(op, type_needs(op.name, scaled, operands, results, accumulator))
        for field in plan.needy:
            value = getattr(op.attrs, field)
            if value == BlockSize.BLOCK_SIZE_1 and field == "block_size":
                continue  # no scales, so nothing of EXT-MX; the conformance tests have it so too
            if isinstance(value, IntEnum) and value.name in ENUM_NEEDS:
                yield from self._require(op, (0, (ENUM_NEEDS[value.name],)), value.name)

    def _require(self, op: AnyOp, needs: tuple[int, Alternatives] | None, because: str = "") -> Iterator[Finding]:
        """Note what an operator needs, for its types or for ``because``; a finding where the target has it not."""
        if needs is None:  # no legal types, which is reported as such
            return
        minor, alternatives = needs
        self.memory.minor = max(self.memory.minor, minor)
        self.memory.requirements[alternatives] = None
        if self.target.provides(alternatives):
            return
        extends = all(any(name.startswith("EXT-") for name in names) for names in alternatives)
        have = " + ".join(self.target.names or ()) or "nothing"
        operands, results = (
            ", ".join(element_of(t).name for t in side if t.dtype != DType.SHAPE) for side in (op.inputs, op.outputs)
        )
        because = because or (f"{operands} -> {results}" if operands else results)
        message = f"{op.name} with {because} needs {describe(alternatives)}, the target has {have}"
        severity: Severity = "error"
        if self.target.provides(alternatives + tuple(_settled(names) for names in alternatives)):
            message += "; the conformance tests of the draft do not ask for it"
            severity = "warning"
        elif self.depth and alternatives == INTEGERS and self.target.provides(CONTROL_FLOW):
            message += "; the conformance tests count loops with it all the same"
            severity = "warning"
        yield Finding("MissingExtension" if extends else "MissingProfile", message, op.outputs, severity)

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
CONTROL_FLOW: Alternatives = (("EXT-CONTROLFLOW",),)
INTEGERS: Alternatives = (("PRO-INT",),)

UNSETTLED = ("EXT-SHAPE",)
"""Extensions of the 1.1 draft that its conformance tests do without; a target that lacks one is warned only."""


def _settled(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in UNSETTLED)


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
