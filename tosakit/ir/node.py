# ruff: noqa: SLF001  (tensors and operators share their def-use storage with tosakit.ir.graph; nobody else touches it)
"""Operators and tensors: the two handles that a block is made of.

An operator holds the tuple of its operands and results; a tensor knows its producer and its users. That is the only
copy of the wiring, and :class:`tosakit.ir.graph.Graph` alone changes it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from tosakit.errors import InvalidArgument, InvalidModel
from tosakit.ir import ops
from tosakit.ir.enums import BlockShape, DType
from tosakit.ir.operator import Attributes, Foreign
from tosakit.ir.types import Array, QuantParams, decode

A_co = TypeVar("A_co", bound=Attributes, covariant=True)
Data = memoryview | bytes
Table = Literal["tensors", "shapes", "undeclared"]

STATEFUL: Final[dict[type[Attributes], None]] = dict.fromkeys(
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
        if type(self._attrs) in STATEFUL:
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


class OpRecord(NamedTuple):
    """An operator as it stood at one moment; stays true when the graph goes on changing."""

    attrs: Attributes
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
