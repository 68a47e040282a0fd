"""A whole TOSA file: regions of blocks, and what the file says about its version."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tosakit.errors import InvalidModel
from tosakit.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Version:
    """TOSA specification version of a file. Draft versions make no promise of compatibility."""

    major: int = 1
    minor: int = 0
    patch: int = 0
    draft: bool = False

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}{' draft' if self.draft else ''}"


@dataclass(frozen=True, slots=True)
class SoftwareVersion:
    """Version of the serialisation library that wrote a file."""

    major: int = -1
    minor: int = -1
    micro: int = -1
    modifier: str | None = None


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Forward compatibility metadata: the oldest reader a file needs, and a bitmap of features."""

    min_reader_version: SoftwareVersion | None = None
    features: int = 0


@dataclass(slots=True)
class Region:
    """A named list of blocks. Control flow operators refer to regions by name."""

    name: str | None
    blocks: list[Graph] = field(default_factory=list)


@dataclass(slots=True)
class Program:
    """A TOSA file in memory. ``notes`` holds what the reader had to tell (reordered operators and the like)."""

    regions: list[Region] = field(default_factory=list)
    version: Version = Version()
    software_version: SoftwareVersion | None = None
    compatibility: Compatibility | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def main(self) -> Graph:
        """The first region's first block; its inputs and outputs are the program's. Raises InvalidModel without one."""
        for region in self.regions:
            for block in region.blocks:
                return block
            break
        raise InvalidModel("the file has no region with a block, so there is nothing to run or rewrite")

    @property
    def blocks(self) -> Iterator[Graph]:
        """Every block of every region, in file order."""
        for region in self.regions:
            yield from region.blocks

    def region(self, name: str) -> Region:
        """The region of that name. Raises InvalidModel where there is none."""
        for region in self.regions:
            if region.name == name:
                return region
        raise InvalidModel(f'the file has no region "{name}"; it has {[r.name for r in self.regions]}')

    def clone(self) -> "Program":
        """An independent copy that shares attributes and constant data. O(n)."""
        regions = [Region(region.name, [block.clone() for block in region.blocks]) for region in self.regions]
        return Program(regions, self.version, self.software_version, self.compatibility, list(self.notes))

    @property
    def operator_count(self) -> int:
        """Number of operators in all blocks, constants included."""
        return sum(len(block._ops) for block in self.blocks)  # noqa: SLF001
