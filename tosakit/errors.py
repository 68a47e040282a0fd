"""Every error tosakit raises on purpose, on one screen.

A message says what is wrong (with the value), where, whose problem it is and what to do. The command line prints it
without a traceback and ends with ``exit_code``; only :class:`RuleBug` and unexpected exceptions, which are faults of
ours or of a rule's author, show a traceback.
"""


class TosakitError(Exception):
    """Base of all errors tosakit raises on purpose; ``exit_code`` is what the command line ends with."""

    exit_code = 2


class InvalidModel(TosakitError):
    """The user's file or graph is wrong: truncated, of another version, inconsistent, or not legal TOSA."""


class InvalidArgument(TosakitError):
    """The caller passed a value that cannot be used (option, name, scale, shape, quantisation parameter)."""


class Unsupported(TosakitError):
    """The input is legal, but this operation has no sound answer for it; the message says why."""


class NotEquivalent(TosakitError):
    """A check found that a rewritten graph does not compute what its rules promise; nothing is written."""

    exit_code = 1


class ToolMissing(TosakitError):
    """An optional tool (Vela, the reference model) is not installed; the message holds the pip command."""


class ToolFailed(TosakitError):
    """A native tool refused the file, crashed or ran out of time; the message quotes what it said."""

    exit_code = 1


class RuleBug(TosakitError):
    """A rule or transform broke the engine's promises (its author's fault, never the user's)."""

    exit_code = 3
