"""Find the first tensor at which two programs part: tensors of one name become outputs, and both programs run.

Rewrites keep the names of the values they replace, so a value that both programs hold has one name in both. What a
report of ``tosakit rewrite`` says about replaced operators tells which rewrites made it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tosakit.engine.rule import BoundaryChange
from tosakit.errors import InvalidArgument, NotEquivalent, Unsupported
from tosakit.ir.enums import DType
from tosakit.ir.graph import Tensor
from tosakit.ir.program import Program
from tosakit.ir.text import format_operator
from tosakit.oracle.equivalence import Equivalence, Progress, Verdict, check_equivalence


@dataclass(frozen=True)
class Origin:
    """What is known of the rewrites between two programs.

    ``rules`` are those that replaced operators, by the names of the results; ``boundary`` are inputs and outputs whose
    dtype changed, ``rescaled`` names of values that stand for other numbers since precision was changed on purpose.
    """

    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    boundary: tuple[BoundaryChange, ...] = ()
    rescaled: tuple[str, ...] = ()


UNKNOWN = Origin()
"""Nothing is known."""


@dataclass(frozen=True)
class Parting:
    """Where two programs part. ``tensor`` is "" where they do not, or where nothing could be compared.

    ``verdict`` is ``together``, ``parted`` (``difference`` LSB apart, beyond the tolerance), ``invalid`` (the second
    program has no valid result from ``tensor`` on, where the first has one), or ``unknown``. ``before`` and ``after``
    are the operators that give the tensor, as text, with what feeds them; ``rules`` rewrote them. ``compared`` tensors
    were held against each other, ``last_equal`` is the last one in front of ``tensor`` that is within the tolerance.
    """

    verdict: str
    compared: int
    vectors: int
    seed: int
    tensor: str = ""
    difference: float = 0.0
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    last_equal: str = ""
    message: str = ""


def find_parting(
    before: Program,
    after: Program,
    *,
    tolerance: float = 0.0,
    vectors: int | None = None,
    seed: int = 0,
    origin: Origin = UNKNOWN,
    progress: Progress | None = None,
) -> Parting:
    """The first tensor, in the order of ``before``, at which the programs are more than ``tolerance`` LSB apart.

    Compared are the tensors of the main blocks that have one name, dtype and shape in both, and the outputs; for FP the
    tolerance is absolute. ``origin`` tells of the rewrites between them: what they gave other scales is compared at the
    outputs only. Where ``after`` has no
    valid result the first tensor is searched for that it cannot compute, in log2(compared) runs. Raises as
    :func:`~tosakit.oracle.equivalence.check_equivalence`, InvalidArgument for a negative tolerance, Unsupported for
    programs with variables, and NotEquivalent where ``after`` lacks a name that is an output of ``before``.
    """
    if not tolerance >= 0:
        raise InvalidArgument(f"a tolerance of {tolerance:g} LSB; give 0 or more")
    for which, program in (("first", before), ("second", after)):
        cell = next((t.name for block in program.blocks for t in block.tensors if t.extras.variable), None)
        if cell is not None:
            raise Unsupported(
                f'the {which} program has a variable, "{cell}", and what it computes depends on earlier runs; turn '
                "variables into inputs in both files first: tosakit rewrite IN --rules variables_as_inputs --set "
                "variables_as_inputs.when=all -o OUT"
            )
    if lost := [t.name for t in before.main.outputs if all(t.name != other.name for other in after.main.tensors)]:
        raise NotEquivalent(f'the second program has no tensor "{lost[0]}", which is an output of the first')
    names = _common(before, after, [*(change.name for change in origin.boundary), *origin.rescaled])

    def compare(count: int) -> Equivalence:
        one, other = _with_outputs(before, names[:count]), _with_outputs(after, names[:count])
        return check_equivalence(one, other, vectors=vectors, seed=seed, boundary=origin.boundary, progress=progress)

    if not names:
        return Parting("unknown", 0, 0, seed, message="no tensor has one name and type in both programs")
    found, count = compare(len(names)), len(names)
    if found.verdict is Verdict.INVALID:
        first = _first_invalid(compare, len(names))
        earlier = compare(first - 1) if first > 1 else None
        parted = _parted(earlier, tolerance) if earlier is not None else None
        if parted is None:
            return _at(before, after, names, first - 1, "invalid", found, origin)
        found, count = earlier or found, first - 1
    if found.verdict is Verdict.UNKNOWN:
        return Parting("unknown", count, 0, seed, message=found.message)
    parted = _parted(found, tolerance)
    if parted is None:
        return Parting("together", count, found.vectors, seed)
    return _at(before, after, names, parted, "parted", found, origin)


def origin_of(report: Mapping[str, Any]) -> Origin:
    """What a report of ``tosakit rewrite``, as JSON, says. Raises InvalidArgument where it is none."""
    rules: dict[str, tuple[str, ...]] = {}
    rescaled: list[str] = []
    try:
        for rewrite in report["rewrites"]:
            for operator in rewrite["operators"]:
                name = operator.partition(' -> "')[2].removesuffix('"')
                rules[name] = tuple(dict.fromkeys([*rules.get(name, ()), rewrite["rule"]]))
                if rewrite["contract"]["kind"] == "changes_precision":
                    rescaled.append(name)
        changes = [
            BoundaryChange(c["name"], DType[c["before"]], DType[c["after"]], c["zero_point"], c["factor"])
            for c in report["interface_changes"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"this is no report of tosakit rewrite: {type(error).__name__} {error}") from None
    return Origin(rules, tuple(changes), tuple(rescaled))


def _common(before: Program, after: Program, changed: Sequence[str]) -> list[str]:
    """Names of the tensors to compare, in the order of ``before``, the outputs last."""
    there = {t.name: t for t in after.main.tensors if t.producer is not None}
    outputs = [t.name for t in before.main.outputs]
    computed = [t for op in before.main.ops if op.inputs for t in op.outputs]
    found = [
        t.name
        for t in computed
        if (twin := there.get(t.name)) is not None
        and _comparable(t)
        and (t.dtype, t.shape) == (twin.dtype, twin.shape)
        and twin.producer is not after.main.entry
        and not twin.is_constant
    ]
    inner = [name for name in found if name not in changed]
    return list(dict.fromkeys([*inner, *outputs]))


def _comparable(tensor: Tensor) -> bool:
    extras = tensor.extras
    return tensor.dtype != DType.SHAPE and not extras.variable and not extras.scale_type and not extras.is_unranked


def _with_outputs(program: Program, names: Sequence[str]) -> Program:
    """The program with these tensors as outputs, and nothing that they do not need."""
    result = program.clone()
    graph = result.main
    graph.set_outputs([graph.tensor(name) for name in names])
    graph.prune(reversed(graph.ops))
    return result


def _parted(found: Equivalence, tolerance: float) -> int | None:
    """Position of the first output that is too far apart."""
    return next((at for at, output in enumerate(found.outputs) if output.max_difference > tolerance), None)


def _first_invalid(compare: Callable[[int], Equivalence], count: int) -> int:
    """The least number of tensors, in order, that the second program cannot compute."""
    low, high = 0, count  # low works, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if compare(middle).verdict is Verdict.INVALID:
            high = middle
        else:
            low = middle
    return high


def _at(
    before: Program,
    after: Program,
    names: Sequence[str],
    place: int,
    verdict: str,
    found: Equivalence,
    origin: Origin,
) -> Parting:
    name = names[place]
    return Parting(
        verdict,
        len(names),
        found.vectors,
        found.seed,
        name,
        found.outputs[place].max_difference if verdict == "parted" else 0.0,
        _producers(before, name),
        _producers(after, name),
        origin.rules.get(name, ()),
        names[place - 1] if place else "",
        found.message.partition("\n")[0],
    )


def _producers(program: Program, name: str) -> tuple[str, ...]:
    """The operator that gives a tensor, behind those that feed it, constants apart, as text."""
    producer = program.main.tensor(name).producer
    if producer is None:
        return ()
    feeding = dict.fromkeys(t.producer for t in producer.inputs if t.producer is not None)
    computed = [op for op in feeding if op.inputs and op is not program.main.entry]
    return tuple(format_operator(op, values=4) for op in (*computed, producer))
