"""What a program may use (a target) and what it needs: profiles, extensions, level and version."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tosakit.errors import InvalidArgument
from tosakit.spec.tables import EXTENSIONS, LEVELS, PROFILES

Alternatives = tuple[tuple[str, ...], ...]
"""Sets of profiles and extensions, each of which is enough; the empty set where nothing is needed."""

VERSIONS = ("1.0", "1.1")
"""Versions of the specification, by minor version."""

DRAFTS = (1,)
"""Minor versions that exist only as a draft."""

LEVEL_NAMES = tuple(LEVELS)

_NAMES = (*PROFILES, *EXTENSIONS)
_BITS = {name: 1 << place for place, name in enumerate(_NAMES)}


@dataclass(frozen=True, slots=True)
class Target:
    """What a program may use.

    ``names`` are profiles and extensions, None for any; ``level`` is a key of ``LEVELS``; ``minor`` is the newest minor
    version of the specification, None for that of the file.
    """

    names: tuple[str, ...] | None = None
    level: str = "none"
    minor: int | None = None

    @staticmethod
    def of(
        profiles: Iterable[str] | None = None,
        extensions: Iterable[str] | None = None,
        level: str | None = None,
        spec: str | None = None,
    ) -> "Target":
        """A target from names as people write them ("pro-int", "INT", "int16", "8k", "1.0").

        Without profiles and extensions anything is allowed. With one of them, only what is given is: extensions alone
        go with every profile, profiles alone with no extension. Raises InvalidArgument for an unknown name.
        """
        names: tuple[str, ...] | None = None
        if profiles is not None or extensions is not None:
            chosen = PROFILES if profiles is None else [_find(name, "PRO-", PROFILES, "profile") for name in profiles]
            added = [_find(name, "EXT-", tuple(EXTENSIONS), "extension") for name in extensions or ()]
            names = tuple(dict.fromkeys((*chosen, *added)))
        levels = {name.lower(): name for name in LEVEL_NAMES}
        if level is not None and level.lower() not in levels:
            raise InvalidArgument(f'level "{level}" does not exist; there are {", ".join(LEVEL_NAMES)}')
        if spec is not None and spec not in VERSIONS:
            raise InvalidArgument(f'TOSA version "{spec}" is not known here; choose {" or ".join(VERSIONS)}')
        minor = None if spec is None else VERSIONS.index(spec)
        return Target(names, levels[(level or "none").lower()], minor)

    def provides(self, alternatives: Alternatives) -> bool:
        """True where the target has all of one of the alternatives."""
        names = self.names
        return names is None or any(all(name in names for name in needed) for needed in alternatives)


def _find(name: str, prefix: str, known: Sequence[str], what: str) -> str:
    upper = name.strip().upper()
    full = upper if upper.startswith(prefix) else prefix + upper
    if full not in known:
        short = ", ".join(each.removeprefix(prefix).lower() for each in known)
        raise InvalidArgument(f'{what} "{name}" does not exist; there are {short}')
    return full


@dataclass(frozen=True, slots=True)
class Needs:
    """The least that a program needs.

    ``alternatives`` are the smallest sets of profiles and extensions (profiles first), any of which is enough;
    ``level`` is "8K" or "none"; ``version`` is the oldest version of the specification that has all that is used.
    """

    alternatives: Alternatives
    level: str
    version: str

    def __str__(self) -> str:
        names = " or ".join(" + ".join(names) or "no profile" for names in self.alternatives)
        return f"{names}, level {self.level}, TOSA {self.version}"


def describe(alternatives: Alternatives) -> str:
    """Alternatives as words: "PRO-INT or PRO-FP + EXT-BF16"."""
    return " or ".join(" + ".join(names) for names in alternatives)


def least(requirements: Iterable[Alternatives]) -> Alternatives:
    """The smallest sets of profiles and extensions that meet every requirement, and what extensions need themselves."""
    sets = [0]
    for alternatives in requirements:
        sets = _combined(sets, alternatives)
    for name, profiles in EXTENSIONS.items():
        with_it = [chosen for chosen in sets if chosen & _BITS[name]]
        without = [chosen for chosen in sets if not chosen & _BITS[name]]
        sets = _minimal(without + _combined(with_it, tuple((profile,) for profile in profiles)))
    return tuple(tuple(name for name in _NAMES if chosen & _BITS[name]) for chosen in sorted(sets))


def _combined(sets: Sequence[int], alternatives: Alternatives) -> list[int]:
    return _minimal(
        [chosen | sum(_BITS[name] for name in dict.fromkeys(names)) for chosen in sets for names in alternatives]
    )


def _minimal(sets: Sequence[int]) -> list[int]:
    """The sets that contain no other one."""
    distinct = list(dict.fromkeys(sets))
    return [a for a in distinct if not any(b != a and a & b == b for b in distinct)]
