"""The option ``when`` of rules that exist for some accelerators only."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tosakit.backend.targets import FAMILIES, SMALL, U55, U85, family


@dataclass(frozen=True)
class ForEthosU:
    """``when``: ``target`` acts for Ethos-U only, where it is needed; ``all`` always."""

    when: Literal["target", "all"] = "target"

    families: ClassVar[tuple[str, ...]] = FAMILIES

    def acts(self, target: str) -> bool:
        """Whether the rule acts for ``target`` at all ("": none)."""
        return self.when == "all" or family(target) in self.families


class ForSmallEthosU(ForEthosU):
    """``when``: ``target`` acts for Ethos-U55 and U65 only, where it is needed; ``all`` always."""

    families = SMALL


class ForEthosU55(ForEthosU):
    """``when``: ``target`` acts for Ethos-U55 only, where it is needed; ``all`` always."""

    families = (U55,)


class ForEthosU85(ForEthosU):
    """``when``: ``target`` acts for Ethos-U85 only, where it is needed; ``all`` always."""

    families = (U85,)
