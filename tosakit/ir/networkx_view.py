# ruff: noqa: SLF001  (the view reads the def-use storage of the operators; see tosakit.ir.graph)
"""A block as networkx sees it: mappings that read the operators instead of storing anything.

At run time this is the only module that imports networkx, and it does so when somebody first asks a graph for what only
networkx has.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tosakit.ir.node import AnyOp

if TYPE_CHECKING:
    from tosakit.ir.graph import Graph


STATE_KEY = "state"
"""Key of the edges that keep operators with state (VARIABLE*, control flow, CUSTOM) in file order."""
V_co = TypeVar("V_co", covariant=True)


class _OpMapping(Mapping[AnyOp, V_co]):
    """A mapping whose keys are the operators of a graph, entry and exit included."""

    def __init__(self, graph: "Graph") -> None:
        self._owner = graph

    def __contains__(self, op: object) -> bool:
        return op in self._owner

    def __iter__(self) -> Iterator[AnyOp]:
        yield self._owner.entry
        yield from self._owner.ops
        yield self._owner.exit

    def __len__(self) -> int:
        return len(self._owner._ops) + 2


class Nodes(_OpMapping[dict[str, Any]]):
    """``graph._node`` of networkx: every operator with an attribute dict made on demand."""

    def __getitem__(self, op: AnyOp) -> dict[str, Any]:
        if op not in self:
            raise KeyError(op)
        return {"op": op.name}


_Neighbours = dict[AnyOp, dict[Any, dict[str, Any]]]


class Adjacency(_OpMapping[_Neighbours]):
    """``graph._succ`` or ``graph._pred`` of networkx, read from the operators' operand tuples at every look-up."""

    def __init__(self, graph: "Graph", *, forward: bool) -> None:
        super().__init__(graph)
        self._forward = forward

    def __getitem__(self, op: AnyOp) -> _Neighbours:
        if op not in self:
            raise KeyError(op)
        neighbours: _Neighbours = {}
        if self._forward:
            for result, tensor in enumerate(op._outputs):
                if tensor._producer is op:
                    for user, slot in tensor.uses:
                        # an input listed twice counts as its first occurrence, as in the other direction
                        neighbours.setdefault(user, {}).setdefault(slot, {"tensor": tensor, "result": result})
        else:
            for slot, tensor in enumerate(op._inputs):
                if (producer := tensor._producer) is not None:
                    data = {"tensor": tensor, "result": producer._outputs.index(tensor)}
                    neighbours.setdefault(producer, {})[slot] = data
        other = self._owner._state_neighbour(op, forward=self._forward)
        if other is not None:
            neighbours.setdefault(other, {})[STATE_KEY] = {}
        return neighbours


class NetworkxLater:
    """What :class:`Graph` inherits from until someone asks for what only networkx has; then that becomes its base.

    Importing networkx takes longer than loading, rewriting and saving a small file, which need none of it.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(_with_networkx(self), name)

    def __getitem__(self, op: AnyOp) -> Any:
        return _with_networkx(self)[op]

    def __iter__(self) -> Iterator[AnyOp]:
        return iter(_with_networkx(self))

    def __len__(self) -> int:
        return len(_with_networkx(self))

    def __str__(self) -> str:
        return str(_with_networkx(self))


def _with_networkx(graph: Any) -> Any:
    """The same graph; it and every other one is a ``networkx.MultiDiGraph`` from now on."""
    type(graph).__bases__ = (multi_di_graph(),)
    return graph


def multi_di_graph() -> type:
    """The class that every graph turns out to be."""
    from networkx import MultiDiGraph

    return MultiDiGraph
