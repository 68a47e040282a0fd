"""What a mutant is: a file, a text that stands in it exactly once, and what takes its place."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One way to break a rule. ``tests`` are relative to tests/rewrites; by default those of the rule."""

    rule: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The tests to run."""
        return [f"tests/rewrites/{name}" for name in self.tests or (f"test_{self.rule}.py",)]

    @contextmanager
    def applied(self, checkout: Path) -> Iterator[None]:
        """The file in a checkout, broken for a while. Raises ValueError where the text does not stand there once."""
        path = checkout / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times, not once: {self.old!r}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")
