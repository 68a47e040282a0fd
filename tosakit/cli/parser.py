"""The options of every subcommand. Nothing heavy is imported before a subcommand runs."""

import argparse
import difflib
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tosakit._version import __version__
from tosakit.errors import InvalidArgument

if TYPE_CHECKING:
    from tosakit.catalogue import Catalogue

Run = Callable[[argparse.Namespace], int]

EXIT_CODES = (
    "exit codes: 0 done; 1 not equivalent or refused by Vela; 2 the input or options; 3 a fault of tosakit or a rule"
)


class _Parser(argparse.ArgumentParser):
    """An argument parser that answers in our form: what is wrong, and what may have been meant."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{**settings, "allow_abbrev": False})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Print the message, near names for what is unknown, and where to read more; exit code 2."""
        known = [*self._option_string_actions]
        for action in self._actions:
            known.extend(map(str, action.choices or ()))
        found = re.search(r"unrecognized arguments: (\S+)|invalid choice: '([^']*)'", message)
        wrong = next((group for group in found.groups() if group), "") if found else ""
        close = difflib.get_close_matches(wrong.partition("=")[0], known, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        self.exit(2, f"error: {message}{hint}\n  {self.prog} --help lists what there is\n")

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Let a subcommand speak about its own unknown arguments."""
        found, rest = super().parse_known_args(args, namespace)
        if rest and self.get_default("run") is not None:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def _lazy(module: str) -> Run:
    """The ``run`` function of a subcommand's module, imported when it is called."""

    def run(options: argparse.Namespace) -> int:
        return int(importlib.import_module(f"tosakit.cli.{module}").run(options))

    return run


def build_parser() -> argparse.ArgumentParser:
    """The whole command line as an argparse parser."""
    parser = _Parser(
        prog="tosakit", description="Rewrite TOSA graphs, and prove or measure that nothing broke.", epilog=EXIT_CODES
    )
    parser.add_argument("--version", action="version", version=f"tosakit {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _rewrite(commands.add_parser("rewrite", help="rewrite a file, check it, write it, perhaps compile it"))
    _check(commands.add_parser("check", help="say everything that is wrong with files, and what they need"))
    _ranges(commands.add_parser("ranges", help="say what every integer tensor can hold, and which operators are safe"))
    _rules(commands.add_parser("rules", help="list rules, transforms and pipelines"))
    _show(commands.add_parser("show", help="print a file as readable text"))
    _vela(commands.add_parser("vela", help="compile a file with Vela for Ethos-U"))
    _compare(commands.add_parser("compare", help="run two files on the same inputs and report how far they are apart"))
    _reduce(commands.add_parser("reduce", help="make a file that shows a fault small"))
    _bisect(commands.add_parser("bisect", help="find the first tensor at which two files part"))
    _fuzz(commands.add_parser("fuzz", help="attack rules with random and mutated programs, and keep what breaks them"))
    return parser


def _rewrite(parser: argparse.ArgumentParser) -> None:
    parser.description = "Rewrite .tosa files by a pipeline or by named rules."
    parser.epilog = f"{EXIT_CODES}; of many files the highest"
    parser.add_argument("inputs", nargs="+", metavar="IN", help="the .tosa file to rewrite (- for stdin), or many")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="where to write the result (- for stdout; default: nowhere); for many files a folder",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="rewrite N files at a time (default: 1)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--pipeline",
        metavar="NAME",
        help="int16 or ethos-u, or both with a comma (default: int16, and ethos-u for a target)",
    )
    what.add_argument("--rules", metavar="A,B", help="run these rules and transforms, in this order")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="RULE.OPTION=VALUE",
        help="set an option of a rule; may be repeated",
    )
    parser.add_argument(
        "--rules-module", action="append", default=[], metavar="MODULE", help="also load rules from here"
    )
    parser.add_argument("--target", metavar="NAME", help="accelerator the rules may assume, such as ethos-u55-128")
    parser.add_argument("--io", choices=("int8", "int16"), help="interface of a widened model (default: int16)")
    parser.add_argument(
        "--qparams", metavar="FILE", help="quantisation parameters (default: IN's .qparams.json, if any)"
    )
    parser.add_argument("--check", choices=("none", "end", "each"), default="end", help="what to check (default: end)")
    _vectors(parser)
    parser.add_argument("--stop-after", type=int, metavar="N", help="stop after N rewrites (for bisection)")
    parser.add_argument("--report", metavar="FILE.json", help="write a report (docs/report.md; - for stdout)")
    parser.add_argument("--trace", metavar="FILE", help="write every rewrite as a line of JSON (- for stdout)")
    parser.add_argument("--vela", metavar="ACCEL", help="compile the result with Vela for this accelerator")
    parser.add_argument("--compare-vela", action="store_true", help="compile the input too, and compare the two")
    _vela_options(parser)
    parser.set_defaults(run=_lazy("rewrite"))


def _vectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vectors", type=int, metavar="N", help="input vectors to run (default: 64, fewer for large models)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the input vectors (default: 0)")


def _vela_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Vela")
    group.add_argument(
        "--vela-output", metavar="DIR", help="where Vela's .npz goes (default: beside OUT, or the file compiled)"
    )
    group.add_argument("--system-config", metavar="NAME", help="passed to Vela")
    group.add_argument("--memory-mode", metavar="NAME", help="passed to Vela")
    group.add_argument("--vela-config", metavar="FILE", help="passed to Vela as --config")
    group.add_argument("--optimise", choices=("Size", "Performance"), help="passed to Vela")
    group.add_argument("--arena-cache-size", type=int, metavar="BYTES", help="passed to Vela")
    group.add_argument(
        "--vela-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="any other argument for Vela, as --vela-arg=--flag",
    )
    group.add_argument(
        "--allow-miscompile", action="store_true", help="run Vela although it is known to compile this file wrongly"
    )


def _rules(parser: argparse.ArgumentParser) -> None:
    parser.description = "List rules, transforms and pipelines, or explain one."
    parser.add_argument("name", nargs="?", metavar="NAME", help="explain this rule: its picture, options and contract")
    parser.add_argument(
        "--rules-module", action="append", default=[], metavar="MODULE", help="also load rules from here"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_lazy("rules"))


def _check(parser: argparse.ArgumentParser) -> None:
    parser.description = "Check files against the TOSA specification, and against a target where one is given."
    parser.epilog = EXIT_CODES
    parser.add_argument("files", nargs="+", metavar="FILE", help=".tosa files (- for stdin)")
    parser.add_argument("--profile", metavar="A,B", help="what the target has: pro-int, pro-fp (default: any)")
    parser.add_argument("--extension", metavar="A,B", help="what it has besides: int16, dynamic, ... (default: any)")
    parser.add_argument("--level", metavar="NAME", help="8k or none (default: none)")
    parser.add_argument("--spec", metavar="VERSION", help="1.0 or 1.1 (default: the file's)")
    parser.add_argument(
        "--target",
        metavar="ACCEL",
        help="also list what Vela refuses or miscompiles for this one, such as ethos-u55-128",
    )
    parser.add_argument("--explain", action="store_true", help="show the operators around each finding")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_lazy("check"))


def _ranges(parser: argparse.ArgumentParser) -> None:
    parser.description = "Bound every integer tensor, and say which operators that proves safe from undefined results."
    parser.epilog = "exit codes: 0 done; 1 an operator is unsafe; 2 the input or options; 3 a fault of tosakit"
    parser.add_argument("input", metavar="FILE", help="the .tosa file (- for stdin)")
    parser.add_argument(
        "--inputs",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=LOW..HIGH",
        help="what inputs can be (default: all of their type)",
    )
    parser.add_argument("--search", action="store_true", help="look for inputs that show what is not proved safe")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_lazy("ranges"))


def _show(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print a .tosa file in TOSA's assembly-like form, with effective scales."
    parser.add_argument("input", metavar="IN", help="the .tosa file (- for stdin)")
    parser.add_argument(
        "--values", type=int, default=8, metavar="N", help="show constants of up to N values (default: 8)"
    )
    parser.add_argument("--vela", metavar="ACCEL", help="add the cycles and memory Vela estimates for each operator")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_lazy("show"))


def _vela(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compile a .tosa file with the installed Vela and report what came out."
    parser.epilog = EXIT_CODES
    parser.add_argument("input", metavar="IN", help="the .tosa file (- for stdin)")
    parser.add_argument(
        "--accelerator", "--vela", dest="vela", metavar="ACCEL", default="ethos-u85-256", help="for this one"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _vela_options(parser)
    parser.set_defaults(run=_lazy("vela"))


def _compare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run two files in the reference model on the same inputs; exit 0 only where they are identical."
    )
    parser.epilog = EXIT_CODES
    parser.add_argument("before", metavar="A", help="the first .tosa file (- for stdin)")
    parser.add_argument("after", metavar="B", help="the second .tosa file (- for stdin)")
    _vectors(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_lazy("compare"))


def _reduce(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make a .tosa file that shows a fault small, and keep it legal."
    parser.epilog = EXIT_CODES
    parser.add_argument("input", metavar="FILE", help="the .tosa file (- for stdin)")
    parser.add_argument(
        "--failing",
        required=True,
        metavar="COMMAND",
        help="ends in the same exit code, not 0, where the fault shows; {} stands for the file, else it is appended",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="where the small file goes (default: printed as text)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds of a run (default: 60)")
    parser.add_argument("--attempts", type=int, default=500, metavar="N", help="runs at most (default: 500)")
    parser.set_defaults(run=_lazy("reduce"))


def _bisect(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run two files with their common tensors as outputs, and find the first that differs."
    parser.epilog = EXIT_CODES
    parser.add_argument("before", metavar="BEFORE", help="the first .tosa file (- for stdin)")
    parser.add_argument("after", metavar="AFTER", help="the second .tosa file (- for stdin)")
    parser.add_argument(
        "--tolerance", type=float, default=0.0, metavar="LSB", help="difference that is no parting (default: 0)"
    )
    parser.add_argument(
        "--report", metavar="FILE.json", help="report of the rewrite that made AFTER: which rules, which new dtypes"
    )
    _vectors(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_lazy("bisect"))


def _fuzz(parser: argparse.ArgumentParser) -> None:
    parser.description = "Attack rules and pipelines with random and mutated programs; findings go to a folder."
    parser.epilog = "exit codes: 0 nothing found; 1 the folder holds findings; 2 the options; 3 a fault of tosakit"
    parser.add_argument(
        "--rule", action="append", default=[], metavar="NAME", help="a rule or pipeline; may be repeated (default: all)"
    )
    parser.add_argument("--examples", type=int, metavar="N", help="programs to try (default: 1000, or until --time)")
    parser.add_argument("--time", metavar="T", help="stop after this time, such as 90s, 15m or 2h")
    parser.add_argument("--jobs", type=int, metavar="J", help="worker processes (default: 1)")
    parser.add_argument("--corpus", metavar="DIR", help="also mutate the .tosa files of this folder")
    parser.add_argument(
        "-o", "--output", default="fuzz-findings", metavar="DIR", help="findings and state (default: fuzz-findings)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the programs (default: 0)")
    parser.add_argument("--vectors", type=int, default=4, metavar="N", help="input vectors per program (default: 4)")
    parser.add_argument(
        "--rules-module", action="append", default=[], metavar="MODULE", help="also load rules from here"
    )
    parser.set_defaults(run=_lazy("fuzz"))


def parse_settings(entries: list[str]) -> dict[str, str]:
    """``["RULE.OPTION=VALUE"]`` as a mapping. Raises InvalidArgument for anything else."""
    settings: dict[str, str] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or "." not in key:
            raise InvalidArgument(
                f'--set {entry}: expected RULE.OPTION=VALUE, such as "widen_int8_activations.io=int8"'
            )
        settings[key] = value
    return settings


def source_of(argument: str) -> Path | bytes:
    """A file argument: a path, or the bytes of stdin for ``-`` and of a pipe, neither of which can be mapped."""
    if argument == "-":
        return sys.stdin.buffer.read()
    path = Path(argument)
    return path.read_bytes() if path.is_fifo() else path


def catalogue_of(options: argparse.Namespace) -> "Catalogue":
    """All rules at hand, those of --rules-module too, which may stand in the current folder."""
    from tosakit.catalogue import load_catalogue

    if options.rules_module and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return load_catalogue(options.rules_module)
