# ruff: noqa: SLF001  (tensors, operators and graphs share their def-use storage; nobody else touches it)
"""The graph of one block: operators, tensors, and the one place where def-use is stored.

An operator holds the tuple of its operands and results; a tensor knows its producer and its users. That is the only
copy of the wiring. :class:`Graph` shows it to readers as a live ``networkx.MultiDiGraph`` (nodes are operators, an edge
is one use, its key the operand slot), so every networkx algorithm runs on it without conversion, and changes it through
a few methods that keep both ends of every use in step. This is the only module that imports networkx, and it does so
when somebody first asks a graph for what only networkx has.

Block inputs and outputs are the results of ``graph.entry`` and the operands of ``graph.exit``, so that "is a block
output" is nothing but "is used by exit".
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, NoReturn, TypeVar, cast

from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, DType
from tosakit.ir.operator import Attributes, Entry, Exit, Foreign
from tosakit.ir.types import Array, QuantParams, decode

A_co = TypeVar("A_co", bound=Attributes, covariant=True)
Data = memoryview | bytes
Table = Literal["tensors", "shapes", "undeclared"]

CYCLE_SHOWN = 12
"""Operators of a cycle that an error message spells out."""

STATE_KEY = "state"
"""Key of the edges that keep operators with state (VARIABLE*, control flow, CUSTOM) in file order."""

_STATEFUL: Final[dict[type[Attributes], None]] = dict.fromkeys(
    (ops.Variable, ops.VariableRead, ops.VariableWrite, ops.CondIf, ops.WhileLoop, ops.Custom, Foreign)
)


@dataclass(frozen=True, slots=True)
class TensorExtras:
    """Fields of a tensor that few tensors have: variables, unranked shapes and block-scaled data."""

    variable: bool = False
    variable_name: str | None = None
    is_unranked: bool = False
    scale_type: DType = DType.UNKNOWN
    scale_data: Data | None = None
    block_shape: BlockShape = BlockShape.UNKNOWN


PLAIN = TensorExtras()

_CONSTANTS: Final = (ops.Const, ops.ConstShape)


class Tensor:
    """A value of a block: the result of one operator, a block input, or a state cell (``extras.variable``).

    ``dtype`` and ``shape`` never change; another type means another tensor. ``data`` is the bytes of a constant as
    they stand in the file, usually a view into the mapped file; :meth:`values` decodes them on demand. A dimension
    of 0 or less is one that is known only at run time.
    """

    __slots__ = (
        "_data",
        "_dtype",
        "_extras",
        "_name",
        "_producer",
        "_quantization",
        "_shape",
        "_table",
        "_users",
    )

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: tuple[int, ...] | None,
        data: Data | None = None,
        *,
        quantization: QuantParams | None = None,
        extras: TensorExtras = PLAIN,
        table: Table = "tensors",
    ) -> None:
        self._name = name
        self._dtype = dtype
        self._shape = shape
        self._data = data
        self._extras = extras
        self._table = table
        self._quantization = quantization
        self._producer: AnyOp | None = None
        # None: unused; an operator: its only user; a dict: the users in the order they came (as keys).
        self._users: AnyOp | dict[AnyOp, None] | None = None

    @property
    def name(self) -> str:
        """The tensor's name, unique in its block; change it with ``Graph.rename``."""
        return self._name

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions; ``()`` for a scalar and for a tensor without a shape (see ``has_shape``)."""
        return self._shape or ()

    @property
    def has_shape(self) -> bool:
        """False where the file gives no shape at all."""
        return self._shape is not None

    @property
    def data(self) -> Data | None:
        """Bytes of a constant, or of a state cell's initial value, in the file's layout; None for every other tensor.

        Files keep empty vectors, and even left-over values, on tensors that are no constants; see :attr:`stored`.
        """
        if self._producer is None:
            return self._data or None
        return self._data if self.is_constant else None

    @property
    def stored(self) -> Data | None:
        """What the file stores with the tensor, whether or not it means anything; writers keep it."""
        return self._data

    @property
    def extras(self) -> TensorExtras:
        """Rare fields: state, unranked, block scales."""
        return self._extras

    @property
    def table(self) -> Table:
        """Where the file declares the tensor: its tensors, its shapes, or (a fault) nowhere."""
        return self._table

    @property
    def quantization(self) -> QuantParams | None:
        """Quantisation parameters, where known; set them with ``Graph.annotate``."""
        return self._quantization

    @property
    def producer(self) -> "AnyOp | None":
        """The operator whose result this is; ``graph.entry`` for a block input; None for a state cell."""
        return self._producer

    @property
    def users(self) -> "tuple[AnyOp, ...]":
        """Operators that read this tensor, each once, in the order the uses came to be. O(number of users)."""
        users = self._users
        if users is None:
            return ()
        return tuple(users) if isinstance(users, dict) else (users,)

    @property
    def uses(self) -> "Iterator[tuple[AnyOp, int]]":
        """Every use as (operator, operand slot); ``ADD(x, x)`` gives two."""
        for user in self.users:
            for slot, operand in enumerate(user._inputs):
                if operand is self:
                    yield user, slot

    @property
    def single_user(self) -> "AnyOp | None":
        """The only operator that reads this tensor, else None. O(1)."""
        users = self._users
        if isinstance(users, dict):
            return next(iter(users)) if len(users) == 1 else None
        return users

    @property
    def is_used(self) -> bool:
        """True where any operator or the block's outputs read this tensor."""
        return bool(self._users)

    @property
    def is_constant(self) -> bool:
        """True for the result of CONST or CONST_SHAPE."""
        return self._producer is not None and isinstance(self._producer._attrs, _CONSTANTS)

    def values(self) -> Array:
        """Values of a constant, decoded; see :func:`tosakit.ir.types.decode`. Raises InvalidModel without data."""
        if (data := self.data) is None:
            raise InvalidModel(f'tensor "{self._name}" has no constant data')
        try:
            return decode(data, self._dtype, self.shape)
        except InvalidModel as error:
            raise InvalidModel(f'tensor "{self._name}": {error}') from error

    def __repr__(self) -> str:
        return f"%{self._name}: {self._dtype.name}{list(self.shape)}"

    def __deepcopy__(self, memo: object) -> "Tensor":
        return self  # a handle into a graph, not a value: networkx deep-copies edge data

    def _is_used_by(self, op: "AnyOp") -> bool:
        return op in self._users if isinstance(self._users, dict) else self._users is op

    # Def-use, written by Op and Graph only.
    def _add_user(self, op: "AnyOp") -> None:
        users = self._users
        if users is None:
            self._users = op
        elif isinstance(users, dict):
            users[op] = None
        elif users is not op:
            self._users = {users: None, op: None}

    def _drop_user(self, op: "AnyOp") -> None:
        users = self._users
        if isinstance(users, dict):
            users.pop(op, None)
        elif users is op:
            self._users = None


class Op(Generic[A_co]):
    """An operator of a graph: frozen attributes, operands and results. Only its graph rewires it.

    ``location`` is the file's opaque location text. ``origin`` names the rewrites an operator came from. Raises
    InvalidArgument where a result already is the result of an operator, or a block input.
    """

    __slots__ = ("_attrs", "_id", "_inputs", "_outputs", "_position", "location", "origin")

    def __init__(
        self,
        attrs: A_co,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        location: str | None = None,
        origin: str | None = None,
    ) -> None:
        self._attrs = attrs
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._position = 0
        self._id = 0
        self.location = location
        self.origin = origin
        for tensor in self._outputs:
            if not tensor._extras.variable:
                if tensor._producer is not None:
                    raise InvalidArgument(f"{tensor!r} cannot be a result of {attrs.NAME}: it has a producer already")
                tensor._producer = self

    @property
    def attrs(self) -> A_co:
        """The operator's attributes: a frozen instance of a class of :mod:`tosakit.ir.ops`."""
        return self._attrs

    @property
    def name(self) -> str:
        """The TOSA name of the operator's type, such as ``CONV2D``; a foreign one is described by what is known."""
        return _foreign_name(self._attrs) if isinstance(self._attrs, Foreign) else self._attrs.NAME

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Operands by slot; change one with ``Graph.set_operand``."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Results by index."""
        return self._outputs

    @property
    def record(self) -> "OpRecord":
        """The operator as it stands now."""
        return OpRecord(self._attrs, self._inputs, self._outputs)

    @property
    def output(self) -> Tensor:
        """The first result. Raises IndexError for an operator without results."""
        return self._outputs[0]

    @property
    def is_stateful(self) -> bool:
        """True where the order among operators matters beyond data flow, or an effect outlives the graph."""
        if type(self._attrs) in _STATEFUL:
            return True
        # a converter writes IDENTITY on state cells; a loop, because this is asked of every operator
        for tensor in self._inputs + self._outputs:  # noqa: SIM110
            if tensor._extras.variable:
                return True
        return False

    def __repr__(self) -> str:
        results = ", ".join(f"%{t._name}" for t in self._outputs)
        return f"{results} = {self.name}({', '.join(f'%{t._name}' for t in self._inputs)})"

    def __deepcopy__(self, memo: object) -> "Op[A_co]":
        return self


AnyOp = Op[Attributes]


def _foreign_name(attrs: Foreign) -> str:
    """``IDENTITY with VARIABLE_READ attributes``, or ``operator 200``."""
    known = ops.BY_NUMBER.get(attrs.number)
    name = known.NAME if known else f"operator {attrs.number}"
    return f"{name} with {attrs.attributes.NAME} attributes" if attrs.attributes else name


def _replaced(tensors: tuple[Tensor, ...], old: Tensor, new: Tensor) -> tuple[Tensor, ...]:
    """``new`` for ``old``; a block may have very many outputs, and most of them stay."""
    if tensors.count(old) == 1:
        at = tensors.index(old)
        return (*tensors[:at], new, *tensors[at + 1 :])
    return tuple([new if tensor is old else tensor for tensor in tensors])


class OpRecord(NamedTuple):
    """An operator as it stood at one moment; stays true when the graph goes on changing."""

    attrs: Attributes
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


_POSITION = attrgetter("_position")

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


class _Nodes(_OpMapping[dict[str, Any]]):
    """``graph._node`` of networkx: every operator with an attribute dict made on demand."""

    def __getitem__(self, op: AnyOp) -> dict[str, Any]:
        if op not in self:
            raise KeyError(op)
        return {"op": op.name}


_Neighbours = dict[AnyOp, dict[Any, dict[str, Any]]]


class _Adjacency(_OpMapping[_Neighbours]):
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


class _NetworkxLater:
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
    Graph.__bases__ = (_multi_di_graph(),)
    return graph


def _multi_di_graph() -> type:
    from networkx import MultiDiGraph

    return MultiDiGraph


if TYPE_CHECKING:
    from networkx import MultiDiGraph

    _Base = MultiDiGraph[AnyOp]
else:
    _Base = _NetworkxLater


class Graph(_Base):
    """One block: to a reader a live ``networkx.MultiDiGraph`` of operators, to a writer a door with typed methods.

    Edges run from producer to reader, keyed by operand slot, with ``tensor`` and ``result`` (index) as data; edges with
    key ``"state"`` keep stateful operators in order. Copies, subgraphs and reversals made by networkx are plain
    networkx graphs; :meth:`clone` copies the block itself.
    """

    def __init__(self, name: str | None = "") -> None:
        # networkx keeps its storage in these attributes; ours read the operators instead of storing anything.
        self.graph = {"name": name}
        self._node = cast(Any, _Nodes(self))
        self._adj = self._succ = cast(Any, _Adjacency(self, forward=True))
        self._pred = cast(Any, _Adjacency(self, forward=False))
        # networkx would keep conversions of a graph here, which go stale unseen
        self.__networkx_cache__ = cast(Any, None)
        self._ops: dict[AnyOp, None] = {}
        self._tensors: dict[str, Tensor] = {}
        self._suffixes: dict[str, int] = {}
        self._next_id = 0
        self._sorted: tuple[AnyOp, ...] | None = None
        self._state_order: list[AnyOp] = []
        self._state_index: dict[AnyOp, int] = {}
        self.entry: AnyOp = Op(Entry(), (), ())
        self.exit: AnyOp = Op(Exit(), (), ())

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # networkx makes its copies with G.__class__(): they are plain, mutable graphs
        return _multi_di_graph()

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
        if self._sorted is None:
            self._sort()
        return tuple(self._state_order)

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
        self._sorted = None

    def replace_uses(self, old: Tensor, new: Tensor, *, keep: Iterable[AnyOp] = ()) -> None:
        """Let every reader of ``old``, except the operators in ``keep``, read ``new`` instead. O(readers).

        The block's output list counts as a reader; use :meth:`splice` to keep output names too. Raises InvalidArgument
        where dtype or shape differ.
        """
        if old is new:
            return
        if (old._dtype, old._shape) != (new._dtype, new._shape):
            raise InvalidArgument(f"{new!r} cannot stand for {old!r}: dtype or shape differ")
        self._require_own(old, new)
        kept = dict.fromkeys(keep)
        for user in old.users:
            if user not in kept:
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
        for op in new_ops:
            self.add_op(op, like=at)
        made: dict[Tensor, None] = {tensor: None for op in new_ops for tensor in op._outputs}
        named: dict[Tensor, None] = {}
        for old, new in values.items():
            if old is new:
                continue
            needs_name = old._is_used_by(self.exit)
            can_rename = new not in named and (new in made or (needs_name and self._is_internal(new)))
            if needs_name and not can_rename:
                alias = Tensor(old._name, new._dtype, new._shape, quantization=old._quantization)
                identity = self.add_op(Op(ops.Identity(), (new,), (alias,), location=at.location), like=at)
                for slot, tensor in enumerate(self.exit._inputs):
                    if tensor is old:
                        self.set_operand(self.exit, slot, alias)
                self.swap_names(old, identity.output)
            self.replace_uses(old, new, keep=new_ops)
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
        self._sorted = None

    # ---------------------------------------------------------------- order
    def _sort(self) -> None:
        ops = sorted(self._ops, key=_POSITION)  # stable: among those of one position the older stays first
        for position, op in enumerate(ops):
            op._position = position
        if not self._is_topological(ops):
            ops = self._topological(ops)
            for position, op in enumerate(ops):
                op._position = position
        self._set_order(ops)

    def _is_topological(self, ops: list[AnyOp]) -> bool:
        """Whether every operator comes after the producers of its operands, going by their positions."""
        entry = self.entry
        for op in ops:
            position = op._position
            for operand in op._inputs:
                producer = operand._producer
                if producer is not None and producer._position >= position and producer is not entry:
                    return False
        return True

    def _set_order(self, ops: Sequence[AnyOp]) -> None:
        """Declare ``ops``, all of the block's, to be in program order."""
        self._sorted = tuple(ops)
        has_cells = any([tensor._extras.variable for tensor in self._tensors.values()])
        self._state_order = [op for op in ops if type(op._attrs) in _STATEFUL or (has_cells and op.is_stateful)]
        self._state_index = {op: index for index, op in enumerate(self._state_order)}

    def _topological(self, in_file_order: list[AnyOp]) -> list[AnyOp]:
        """Kahn's algorithm, earliest in file order first; stateful operators keep their order among themselves."""
        rank = {op: index for index, op in enumerate(in_file_order)}
        waiting: dict[AnyOp, int] = {}
        followers: dict[AnyOp, AnyOp] = {}
        previous: AnyOp | None = None
        for op in in_file_order:
            waiting[op] = len({id(p) for t in op._inputs if (p := t._producer) in rank})
            if op.is_stateful:
                if previous is not None:
                    followers[previous] = op
                    waiting[op] += 1
                previous = op
        ready = [rank[op] for op in in_file_order if not waiting[op]]
        result: list[AnyOp] = []
        while ready:
            op = in_file_order[heapq.heappop(ready)]
            result.append(op)
            readers = dict.fromkeys(u for t in op._outputs if t._producer is op for u in t.users if u is not self.exit)
            for reader in (*readers, *((followers[op],) if op in followers else ())):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, rank[reader])
        if len(result) != len(in_file_order):
            raise InvalidModel(f'block "{self.name}" has a cycle: {self._cycle(waiting, followers)}')
        return result

    def _cycle(self, waiting: dict[AnyOp, int], followers: dict[AnyOp, AnyOp]) -> str:
        """One cycle among the operators that never became ready, as text."""
        before = {after: first for first, after in followers.items()}
        op = next(op for op, count in waiting.items() if count)
        path: dict[AnyOp, None] = {}
        while op not in path:
            path[op] = None
            candidates = [p for t in op._inputs if (p := t._producer) is not None and waiting.get(p)]
            if op in before and waiting.get(before[op]):
                candidates.append(before[op])
            op = candidates[0]
        walked = list(path)
        loop = walked[walked.index(op) :][::-1]
        shown = [repr(o) for o in loop[:CYCLE_SHOWN]] + [f"... {len(loop) - CYCLE_SHOWN} more"] * (
            len(loop) > CYCLE_SHOWN
        )
        return " -> ".join([*shown, repr(loop[0])])

    def _state_neighbour(self, op: AnyOp, *, forward: bool) -> AnyOp | None:
        if self._sorted is None:
            self._sort()
        index = self._state_index.get(op)
        if index is None:
            return None
        index += 1 if forward else -1
        return self._state_order[index] if 0 <= index < len(self._state_order) else None

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
