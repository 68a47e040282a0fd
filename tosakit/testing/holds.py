"""``assert_rule_holds``: fire-and-refuse properties of a rule on random programs, with a small counterexample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tosakit.engine.rule import Step
from tosakit.errors import InvalidArgument
from tosakit.io.qparams import dump_qparams
from tosakit.ir.program import Program
from tosakit.ir.text import format_program
from tosakit.testing.properties import Fault, Setting, Trial, examine
from tosakit.testing.reduction import reduce_program

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

REDUCTIONS = 120
"""Candidates tried to make a counterexample small."""


@dataclass
class Tally:
    """What :func:`assert_rule_holds` saw: programs that the rule rewrote, and left alone, with a reason or without."""

    fired: int = 0
    refused: int = 0
    passed_over: int = 0
    unchecked: int = 0
    """Programs rewritten whose contracts could not be checked: the original is valid for none of the inputs."""
    vectors: int = 0
    """Input vectors on which a result was compared with its original."""

    @property
    def examples(self) -> int:
        """All programs."""
        return self.fired + self.refused + self.passed_over

    def add(self, trial: Trial) -> None:
        """Count one program."""
        self.fired += bool(trial.fired)
        self.refused += bool(not trial.fired and trial.refusals)
        self.passed_over += not trial.fired and not trial.refusals
        self.unchecked += bool(trial.unchecked)
        self.vectors += trial.vectors


class _Broken(Exception):
    """A program that shows a fault, on its way out of Hypothesis."""

    def __init__(self, program: Program, fault: Fault, other: Step | None) -> None:
        super().__init__(fault.message)
        self.program, self.fault, self.other = program, fault, other


def assert_rule_holds(
    step: Step,
    programs: "SearchStrategy[Program] | None" = None,
    *,
    options: Any = None,
    target: str = "",
    others: Sequence[Step] = (),
    examples: int = 60,
    vectors: int = 4,
    seed: int = 0,
    fires: float = 0.1,
    leaves: float = 0.1,
    checked: float = 0.5,
) -> Tally:
    """Check a rule or transform on random programs; raises AssertionError with a small one that it breaks.

    ``programs`` draws them: by default :func:`~tosakit.testing.strategies.seeded`, which holds the pattern of a rule
    and looks for programs on which it fires. On each of ``examples`` programs the rule must keep
    everything of :data:`tosakit.testing.properties.KINDS`: contracts in the reference model (``vectors`` inputs of a
    ``seed``), no new verifier error, a fixed point, the same bytes again, and results that hold in either order with
    ``others``, one of which is tried on each program. ``options`` is an instance of the rule's option class.

    At least the share ``fires`` of the programs must be rewritten, the share ``leaves`` left alone, and of those
    rewritten the share ``checked`` must be valid for some input, so that a contract was checked at all.

    Raises ToolMissing without the reference model.
    """
    from hypothesis import HealthCheck, Phase, given, settings

    from tosakit.testing import strategies

    if programs is None:
        programs = strategies.seeded(step, options=options, target=target)
    setting = Setting({step.name: step.options() if options is None else options}, target, vectors, seed)
    tally = Tally()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # the counterexample is reduced as a graph
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(programs)
    def check(program: Program) -> None:
        other = others[tally.examples % len(others)] if others else None
        trial = examine(program, [step], setting, other=other)
        tally.add(trial)
        if trial.fault is not None:
            raise _Broken(program, trial.fault, other)

    broken: _Broken | None = None
    try:
        check()
    except _Broken as error:
        broken = error
    if broken is not None:
        raise AssertionError(_report(step, setting, broken))
    _require_shares(step, tally, fires, leaves, checked)
    return tally


def _require_shares(step: Step, tally: Tally, fires: float, leaves: float, checked: float) -> None:
    left = tally.refused + tally.passed_over
    for count, total, share, what in (
        (tally.fired, tally.examples, fires, "fires on"),
        (left, tally.examples, leaves, "leaves alone"),
        (tally.fired - tally.unchecked, tally.fired, checked, "is checked on"),
    ):
        if count < share * total:
            raise AssertionError(
                f"{step.name} {what} {count} of {total} programs, fewer than the share {share:g} asked for, so the "
                f"property says little; draw other programs, or ask for less. All: {tally}"
            )


def _report(step: Step, setting: Setting, broken: _Broken) -> str:
    contracts = broken.fault.kind in ("contract", "order", "raised")

    def fails(candidate: Program) -> bool:
        fault = examine(candidate, [step], setting, other=broken.other, contracts=contracts).fault
        return fault is not None and fault.kind == broken.fault.kind

    found = reduce_program(broken.program, fails, attempts=REDUCTIONS)
    fault = examine(found.program, [step], setting, other=broken.other).fault or broken.fault
    text = format_program(found.program, values=None)
    size = f"{found.program.operator_count} operators, reduced from {broken.program.operator_count}"
    return (
        f"{step.name}: {fault.kind}: {fault.message}\n"
        f"on this program of {size}:\n\n"
        f"{text}\n"
        f"To save it:\n\n{reproducer(text, step, setting, qparams_of(found.program))}"
    )


def qparams_of(program: Program) -> str:
    """The file of quantisation parameters beside a program, "" where there are none."""
    quantized = any(tensor.quantization for block in program.blocks for tensor in block.tensors)
    return dump_qparams(program) if quantized else ""


def reproducer(text: str, step: Step, setting: Setting, qparams: str = "") -> str:
    """Python that saves a program given as text, and the command that runs the step on it.

    ``qparams`` is the content of the file of quantisation parameters beside it, "" for none.
    """
    if '"""' in text + qparams:
        raise InvalidArgument('the text holds """, which ends the string it is pasted as')
    options = setting.options.get(step.name)
    chosen = (
        [f"--set {step.name}.{name}={value}" for name, value in vars(options).items()]
        if hasattr(options, "__dict__")
        else []
    )
    target = [f"--target {setting.target}"] if setting.target else []
    command = " ".join(
        [
            "tosakit rewrite fault.tosa",
            f"--rules {step.name}",
            *chosen,
            *target,
            f"--vectors {setting.vectors}",
            f"--seed {setting.seed}",
        ]
    )
    beside = f'Path("fault.qparams.json").write_text(r"""{qparams}""")\n' if qparams else ""
    imports = ["from pathlib import Path\n"] * bool(qparams) + [
        "import tosakit",
        "from tosakit.ir.text import parse_program",
    ]
    return "\n".join(imports) + f'\n\ntosakit.save(parse_program(r"""\n{text}"""), "fault.tosa")\n{beside}# {command}\n'
