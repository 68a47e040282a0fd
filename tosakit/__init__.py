"""tosakit: rewrite TOSA graphs, and prove or measure that nothing broke.

The names below are the public API; each is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tosakit._version import __version__

if TYPE_CHECKING:
    from tosakit.engine.contract import ChangesPrecision, Exact, WithinLsb
    from tosakit.engine.rule import Rule, Transform
    from tosakit.errors import TosakitError
    from tosakit.io.qparams import apply_qparams, load_qparams
    from tosakit.io.reader import load
    from tosakit.io.writer import dumps, save
    from tosakit.ir.program import Program
    from tosakit.ir.types import QuantParams
    from tosakit.oracle.equivalence import check_equivalence
    from tosakit.oracle.ranges import ranges
    from tosakit.rewriting import rewrite
    from tosakit.spec.check import check
    from tosakit.spec.verify import verify

__all__ = [
    "ChangesPrecision",
    "Exact",
    "Program",
    "QuantParams",
    "Rule",
    "TosakitError",
    "Transform",
    "WithinLsb",
    "__version__",
    "apply_qparams",
    "check",
    "check_equivalence",
    "dumps",
    "load",
    "load_qparams",
    "ranges",
    "rewrite",
    "save",
    "verify",
]

_HOMES = {
    "ChangesPrecision": "tosakit.engine.contract",
    "Exact": "tosakit.engine.contract",
    "Program": "tosakit.ir.program",
    "QuantParams": "tosakit.ir.types",
    "Rule": "tosakit.engine.rule",
    "TosakitError": "tosakit.errors",
    "Transform": "tosakit.engine.rule",
    "WithinLsb": "tosakit.engine.contract",
    "apply_qparams": "tosakit.io.qparams",
    "check": "tosakit.spec.check",
    "check_equivalence": "tosakit.oracle.equivalence",
    "dumps": "tosakit.io.writer",
    "load": "tosakit.io.reader",
    "load_qparams": "tosakit.io.qparams",
    "ranges": "tosakit.oracle.ranges",
    "rewrite": "tosakit.rewriting",
    "save": "tosakit.io.writer",
    "verify": "tosakit.spec.verify",
}

_PACKAGES = ("errors", "io", "ir", "numerics", "testing")


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first used; start-up stays quick."""
    if name in _PACKAGES:
        return importlib.import_module(f"tosakit.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tosakit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
