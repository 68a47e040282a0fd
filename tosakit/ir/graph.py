# ruff: noqa: SLF001  (tensors, operators and graphs share their def-use storage; nobody else touches it)
"""The graph of one block, and the one place where def-use is changed.

Operators and tensors hold the only copy of the wiring (:mod:`tosakit.ir.node`). :class:`Graph` shows it to readers as a
live ``networkx.MultiDiGraph`` (nodes are operators, an edge is one use, its key the operand slot), so every networkx
algorithm runs on it without conversion, and changes it through a few methods that keep both ends of every use in step.

Block inputs and outputs are the results of ``graph.entry`` and the operands of ``graph.exit``, so that "is a block
output" is nothing but "is used by exit".
"""

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from tosakit.errors import InvalidArgument
from tosakit.ir import ops
from tosakit.ir.networkx_view import STATE_KEY, Adjacency, NetworkxLater, Nodes, multi_di_graph
from tosakit.ir.node import PLAIN, STATEFUL, AnyOp, Data, Op, OpRecord, Table, Tensor, TensorExtras
from tosakit.ir.operator import Attributes, Entry, Exit
from tosakit.ir.order import is_topological, topological
from tosakit.ir.types import QuantParams

__all__ = ["PLAIN", "STATE_KEY", "AnyOp", "Data", "Graph", "Op", "OpRecord", "Table", "Tensor", "TensorExtras"]

A_co = TypeVar("A_co", bound=Attributes, covariant=True)
_POSITION = attrgetter("_position")


def _replaced(tensors: tuple[Tensor, ...], old: Tensor, new: Tensor) -> tuple[Tensor, ...]:
    """``new`` for ``old``; a block may have very many outputs, and most of them stay."""
    if tensors.count(old) == 1:
        at = tensors.index(old)
        return (*tensors[:at], new, *tensors[at + 1 :])
    return tuple([new if tensor is old else tensor for tensor in tensors])


def _place(tensor: Tensor) -> int:
    """Position of the operator that makes a tensor; -1 where none does."""
    return -1 if tensor._producer is None else tensor._producer._position


if TYPE_CHECKING:
    from networkx import MultiDiGraph

    _Base = MultiDiGraph[AnyOp]
else:
    _Base = NetworkxLater


class Graph(_Base):
    """One block: to a reader a live ``networkx.MultiDiGraph`` of operators, to a writer a door with typed methods.

    Edges run from producer to reader, keyed by operand slot, with ``tensor`` and ``result`` (index) as data; edges with
    key ``"state"`` keep stateful operators in order. Copies, subgraphs and reversals made by networkx are plain
    networkx graphs; :meth:`clone` copies the block itself.
    """

    def __init__(self, name: str | None = "") -> None:
        # networkx keeps its storage in these attributes; ours read the operators instead of storing anything.
        self.graph = {"name": name}
        self._node = cast(Any, Nodes(self))
        self._adj = self._succ = cast(Any, Adjacency(self, forward=True))
        self._pred = cast(Any, Adjacency(self, forward=False))
        # networkx would keep conversions of a graph here, which go stale unseen
        self.__networkx_cache__ = cast(Any, None)
        self._ops: dict[AnyOp, None] = {}
        self._tensors: dict[str, Tensor] = {}
        self._suffixes: dict[str, int] = {}
        self._next_id = 0
        self._sorted: tuple[AnyOp, ...] | None = None
        self._in_order = True  # every producer is known to come before its readers, by position and then by age
        self._state: tuple[list[AnyOp], dict[AnyOp, int]] | None = None
        self.entry: AnyOp = Op(Entry(), (), ())
        self.exit: AnyOp = Op(Exit(), (), ())
        self.entry._position, self.exit._position = -1, sys.maxsize

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # networkx makes its copies with G.__class__(): they are plain, mutable graphs
        return multi_di_graph()

    # ---------------------------------------------------------------- reading
    @property
    def name(self) -> str:
        """The block's name; None where the file gives none."""
        return cast(str, self.graph["name"])

    @name.setter
    def name(self, name: str) -> None:
        self.graph["name"] = name

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Block inputs in file order; a tensor listed twice appears twice."""
        return self.entry._outputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Block outputs in file order; a tensor listed twice appears twice."""
        return self.exit._inputs

    @property
    def ops(self) -> tuple[AnyOp, ...]:
        """Operators in program order: topological, in file order where legal. Cached; O(n log n) after a change.

        Raises InvalidModel naming a cycle.
        """
        if self._sorted is None:
            self._sort()
        return cast(tuple[AnyOp, ...], self._sorted)

    @property
    def stateful(self) -> tuple[AnyOp, ...]:
        """The operators among :attr:`ops` that are stateful: control flow, variables, and what nobody knows."""
        return tuple(self._stateful()[0])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the block, used or not, in the order they were added."""
        return tuple(self._tensors.values())

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name. Raises InvalidArgument where there is none."""
        try:
            return self._tensors[name]
        except KeyError:
            raise InvalidArgument(f'block "{self.name}" has no tensor "{name}"') from None

    def __contains__(self, item: object) -> bool:
        """True for an operator of this graph."""
        return isinstance(item, Op) and (item in self._ops or item is self.entry or item is self.exit)

    def owns(self, tensor: Tensor) -> bool:
        """True where the tensor belongs to this block."""
        return self._tensors.get(tensor._name) is tensor

    # ---------------------------------------------------------------- the door
    def add_tensor(self, tensor: Tensor) -> Tensor:
        """Add a tensor that no operator produces yet (a block input, a state cell), giving it a free name.

        Raises InvalidArgument where the tensor is used or produced already.
        """
        if tensor._producer is not None or tensor._users or self.owns(tensor):
            raise InvalidArgument(f"{tensor!r} cannot be added to block {self.name!r}: it is in use already")
        return self._declare(tensor)

    def _declare(self, tensor: Tensor) -> Tensor:
        if self._tensors.setdefault(tensor._name, tensor) is not tensor:
            tensor._name = self._free_name(tensor._name)
            self._tensors[tensor._name] = tensor
        return tensor

    def add_op(self, op: Op[A_co], *, like: AnyOp | None = None) -> Op[A_co]:
        """Add an operator whose operands belong to this graph; its results get free names. O(operands).

        ``like`` gives the new operator the place of an existing one in program order; without it, it goes to the end.
        Raises InvalidArgument where an operand is no tensor of this graph, a result is another operator's or read by
        one already, or the operator is already in a graph.
        """
        if op in self._ops:
            raise InvalidArgument(f"operator {op!r} is already in block {self.name!r}")
        tensors = self._tensors
        for operand in op._inputs:
            if tensors.get(operand._name) is not operand:
                raise InvalidArgument(f"operand {operand!r} of {op.name} does not belong to block {self.name!r}")
        for tensor in op._outputs:
            if (tensor._users or tensor._producer not in (None, op)) and not tensor._extras.variable:
                raise InvalidArgument(f"result {tensor!r} of {op.name} is in use already")
        for tensor in op._outputs:
            if tensors.setdefault(tensor._name, tensor) is not tensor:
                self._declare(tensor)
            if not tensor._extras.variable:
                tensor._producer = op
        op._id = self._next_id
        op._position = self._next_id if like is None else like._position
        self._next_id += 1
        self._ops[op] = None
        for operand in op._inputs:
            if operand._users is None:
                operand._users = op
            else:
                operand._add_user(op)
            producer = operand._producer
            if producer is not None and producer._position > op._position:
                self._in_order = False
        self._sorted = None
        return op

    def erase(self, op: AnyOp) -> None:
        """Remove an operator none of whose results is used, and its results. Raises InvalidArgument otherwise."""
        if op not in self._ops:
            raise InvalidArgument(f"operator {op!r} is not in block {self.name!r}")
        for tensor in op._outputs:
            if tensor._producer is op and tensor._users:
                raise InvalidArgument(f"{op!r} cannot be erased: {tensor!r} is read by {tensor.users[0].name}")
        self._remove(op)

    def _remove(self, op: AnyOp) -> None:
        for operand in op._inputs:
            operand._drop_user(op)
        for tensor in op._outputs:
            if tensor._producer is op:
                tensor._producer = None
                del self._tensors[tensor._name]
        del self._ops[op]
        self._sorted = None

    def prune(self, candidates: Iterable[AnyOp]) -> list[AnyOp]:
        """Erase those of ``candidates`` that nothing needs, then what only they read; the erased ones, in order.

        Stateful operators are always needed, and so are those without results, which exist for their effect.
        """
        erased: list[AnyOp] = []
        stack = list(candidates)[::-1]
        while stack:
            op = stack.pop()
            outputs = op._outputs
            is_used = not outputs or outputs[0]._users or any([t._users for t in outputs])
            if is_used or op not in self._ops or op.is_stateful:
                continue
            self._remove(op)
            erased.append(op)
            stack.extend([p for t in reversed(op._inputs) if (p := t._producer) is not None])
        return erased

    def set_operand(self, op: AnyOp, slot: int, tensor: Tensor) -> None:
        """Make ``tensor`` the operand of ``op`` at ``slot``; both ends of the use change together.

        Raises InvalidArgument where the operator, the slot or the tensor is none of this graph's.
        """
        if op not in self:
            raise InvalidArgument(f"operator {op!r} is not in block {self.name!r}")
        if not 0 <= slot < len(op._inputs):
            raise InvalidArgument(f"{op.name} has {len(op._inputs)} operands, none at slot {slot}")
        self._require_own(tensor)
        old = op._inputs[slot]
        op._inputs = (*op._inputs[:slot], tensor, *op._inputs[slot + 1 :])
        if old not in op._inputs:
            old._drop_user(op)
        tensor._add_user(op)
        self._in_order &= _place(tensor) < op._position
        self._sorted = None

    def replace_uses(self, old: Tensor, new: Tensor, *, keep: Container[AnyOp] = ()) -> None:
        """Let every reader of ``old``, except the operators in ``keep``, read ``new`` instead. O(readers).

        The block's output list counts as a reader; use :meth:`splice` to keep output names too. Raises InvalidArgument
        where dtype or shape differ.
        """
        if old is new:
            return
        if (old._dtype, old._shape) != (new._dtype, new._shape):
            raise InvalidArgument(f"{new!r} cannot stand for {old!r}: dtype or shape differ")
        self._require_own(old, new)
        place = _place(new)
        for user in old.users:
            if user not in keep:
                self._in_order &= place < user._position
                user._inputs = _replaced(user._inputs, old, new)
                old._drop_user(user)
                new._add_user(user)
        self._sorted = None

    def splice(self, at: AnyOp, new_ops: Sequence[AnyOp], values: Mapping[Tensor, Tensor]) -> list[AnyOp]:
        """Put ``new_ops`` in the place of ``at``, let ``values`` (old -> new) be read instead, drop what became dead.

        A new result takes over the name of the value it replaces. Block outputs keep their names: an older tensor that
        becomes an output is renamed too, and where its own name is part of the block's interface, or it stands for two
        outputs, an IDENTITY gives the output its name. Returns the erased operators.
        """
        added = dict.fromkeys([self.add_op(op, like=at) for op in new_ops])
        named: dict[Tensor, None] = {}
        for old, new in values.items():
            if old is new:
                continue
            needs_name = old._is_used_by(self.exit)
            can_rename = new not in named and (new._producer in added or (needs_name and self._is_internal(new)))
            if needs_name and not can_rename:
                alias = Tensor(old._name, new._dtype, new._shape, quantization=old._quantization)
                identity = self.add_op(Op(ops.Identity(), (new,), (alias,), location=at.location), like=at)
                for slot, tensor in enumerate(self.exit._inputs):
                    if tensor is old:
                        self.set_operand(self.exit, slot, alias)
                self.swap_names(old, identity.output)
            self.replace_uses(old, new, keep=added)
            if can_rename:
                named[new] = None
                self.swap_names(old, new)
            if new._quantization is None:
                new._quantization = old._quantization
        return self.prune([p for old in values if (p := old._producer) is not None])

    def _is_internal(self, tensor: Tensor) -> bool:
        """True where the tensor's name is of no concern to anyone outside the block."""
        return tensor._producer not in (None, self.entry) and not tensor._is_used_by(self.exit)

    def swap_names(self, first: Tensor, second: Tensor) -> None:
        """Exchange the names of two tensors. Raises InvalidArgument where one is not of this block."""
        self._require_own(first, second)
        first._name, second._name = second._name, first._name
        self._tensors[first._name] = first
        self._tensors[second._name] = second

    def rename(self, tensor: Tensor, name: str) -> None:
        """Give a tensor of this block another name. Raises InvalidArgument where the name is taken."""
        self._require_own(tensor)
        if name == tensor._name:
            return
        if name in self._tensors:
            raise InvalidArgument(f'name "{name}" is taken in block "{self.name}"')
        del self._tensors[tensor._name]
        tensor._name = name
        self._tensors[name] = tensor

    def annotate(self, tensor: Tensor, quantization: QuantParams | None) -> None:
        """Set a tensor's quantisation parameters. Raises InvalidArgument where their length does not fit its shape."""
        self._require_own(tensor)
        if quantization is not None and quantization.axis is not None:
            axis, size = quantization.axis, len(quantization.scale)
            if not 0 <= axis < len(tensor.shape) or tensor.shape[axis] != size:
                raise InvalidArgument(f"{size} scales on axis {axis} do not fit {tensor!r}")
        tensor._quantization = quantization

    def set_inputs(self, tensors: Sequence[Tensor]) -> None:
        """Make ``tensors``, which no operator produces, the block's inputs, in this order."""
        self._require_inputs(tensors)
        for tensor in self.entry._outputs:
            tensor._producer = None
        self.entry._outputs = ()
        self._add_inputs(tensors)

    def add_input(self, tensor: Tensor) -> None:
        """Make ``tensor``, which no operator produces, one more input of the block, its last."""
        self._require_inputs((tensor,))
        self._add_inputs((tensor,))

    def _require_inputs(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if tensor._producer not in (None, self.entry) or not self.owns(tensor):
                raise InvalidArgument(f"{tensor!r} cannot be an input of block {self.name!r}")

    def _add_inputs(self, tensors: Sequence[Tensor]) -> None:
        self.entry._outputs += tuple(tensors)
        for tensor in tensors:
            tensor._producer = self.entry
        self._sorted = None

    def set_outputs(self, tensors: Sequence[Tensor]) -> None:
        """Make ``tensors`` of this block its outputs, in this order and multiplicity."""
        self._require_own(*tensors)
        for tensor in self.exit._inputs:
            tensor._drop_user(self.exit)
        self.exit._inputs = ()
        self._add_outputs(tensors)

    def add_output(self, tensor: Tensor) -> None:
        """Make ``tensor`` of this block one more of its outputs, its last."""
        self._require_own(tensor)
        self._add_outputs((tensor,))

    def _add_outputs(self, tensors: Sequence[Tensor]) -> None:
        self.exit._inputs += tuple(tensors)
        for tensor in tensors:
            tensor._add_user(self.exit)

    def drop_tensor(self, tensor: Tensor) -> None:
        """Remove a tensor that nothing produces or reads. Raises InvalidArgument otherwise."""
        if tensor._producer is not None or tensor._users or not self.owns(tensor):
            raise InvalidArgument(f"{tensor!r} is in use or not of block {self.name!r}")
        del self._tensors[tensor._name]

    def clone(self) -> "Graph":
        """An independent copy of the block that shares attributes, constant data and annotations. O(n)."""
        from tosakit.ir.bulk import copy_graph

        return copy_graph(self)

    def __deepcopy__(self, memo: object) -> "Graph":
        return self.clone()

    def _require_own(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            if self._tensors.get(tensor._name) is not tensor:
                raise InvalidArgument(f"{tensor!r} does not belong to block {self.name!r}")

    def _register(self, op: AnyOp) -> None:
        """Add an operator whose tensors are all in the table already (reader and clone)."""
        op._id = op._position = self._next_id
        self._next_id += 1
        self._ops[op] = None
        for operand in op._inputs:
            operand._add_user(op)
        self._in_order = False
        self._sorted = None

    # ---------------------------------------------------------------- order
    def _sort(self) -> None:
        ops = sorted(self._ops, key=_POSITION)  # stable: among those of one position the older stays first
        for position, op in enumerate(ops):
            op._position = position
        if not (self._in_order or is_topological(ops)):
            ops = topological(ops, self.exit, self.name)
            for position, op in enumerate(ops):
                op._position = position
        self._set_order(ops)

    def _set_order(self, ops: Sequence[AnyOp]) -> None:
        """Declare ``ops``, all of the block's, to be in program order."""
        self._sorted = tuple(ops)
        self._in_order = True
        self._state = None

    def _stateful(self) -> tuple[list[AnyOp], dict[AnyOp, int]]:
        """The stateful operators in program order, and their places in that list. Cached like the order."""
        ops = self.ops
        if self._state is None:
            has_cells = any([tensor._extras.variable for tensor in self._tensors.values()])
            stateful = [op for op in ops if type(op._attrs) in STATEFUL or (has_cells and op.is_stateful)]
            self._state = stateful, {op: index for index, op in enumerate(stateful)}
        return self._state

    def _state_neighbour(self, op: AnyOp, *, forward: bool) -> AnyOp | None:
        stateful, places = self._stateful()
        index = places.get(op)
        if index is None:
            return None
        index += 1 if forward else -1
        return stateful[index] if 0 <= index < len(stateful) else None

    def _free_name(self, name: str) -> str:
        number = self._suffixes.get(name, 0)
        while True:
            number += 1
            if (free := f"{name}_{number}") not in self._tensors:
                self._suffixes[name] = number
                return free

    # ---------------------------------------------------------------- doors that are shut
    def _shut(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            "a tosakit Graph is changed through add_op, set_operand, replace_uses, splice and erase only; "
            "call copy() for a plain networkx graph"
        )

    add_node = add_nodes_from = add_edge = add_edges_from = add_weighted_edges_from = _shut
    remove_node = remove_nodes_from = remove_edge = remove_edges_from = clear = clear_edges = update = _shut
