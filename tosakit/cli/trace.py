"""``tosakit rewrite --trace``: every rewrite as a line of JSON, as it happens."""

import json
import sys
from pathlib import Path
from typing import IO

from tosakit.cli.report import contract_json
from tosakit.engine.rule import Event
from tosakit.errors import InvalidArgument


class TraceFile:
    """Writes every rewrite as a line of JSON, where a file is given."""

    def __init__(self, place: str | None) -> None:
        self.count = 0
        self.file: IO[str] | None = sys.stdout if place == "-" else None
        if place not in (None, "-"):
            try:
                self.file = Path(str(place)).open("w", encoding="utf-8")  # noqa: SIM115
            except OSError as error:
                raise InvalidArgument(f"cannot write --trace {place}: {error.strerror or error}") from None

    def __enter__(self) -> "TraceFile":
        return self

    def __exit__(self, *problem: object) -> None:
        if self.file is not None and self.file is not sys.stdout:
            self.file.close()

    def __call__(self, event: Event) -> None:
        """Write one rewrite."""
        self.count += 1
        if self.file is not None:
            line = {
                "number": self.count,
                "rule": event.rule,
                "block": event.block,
                "operators": event.operators,
                "contract": contract_json(event.contract),
                "detail": event.detail,
            }
            self.file.write(json.dumps(line) + "\n")
