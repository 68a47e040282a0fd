"""What Vela 5.2 refuses, operator by operator, beside what :data:`tosakit.backend.targets.OPERATORS` leaves out.

Every limit was probed: Vela was run on both sides of it. tests/backend/compare_vela.py regenerates the comparison.
"""

from collections.abc import Callable

from tosakit.backend import int48_limits as int48
from tosakit.backend import value_limits as values
from tosakit.backend.obstacle import ANY, Entry
from tosakit.backend.targets import FAMILIES, OPERATORS, SMALL, TENSORS, U85, Taken, is_fixed
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp
from tosakit.numerics.intervals import Intervals
from tosakit.spec.signature import signature, spread

Find = Callable[[AnyOp, Intervals], str | None]

ARGMAX_RULE = ("argmax_as_maximum",)
BOOL_RULES = ("bool_interface_as_int8", "bool_as_int32")
COMPUTED_RULE = ("computed_weights_as_matmul",)
CONV3D_RULE = ("conv3d_as_conv2d",)
BILINEAR_RULE = ("resize_bilinear_as_conv2d",)
NEAREST_RULE = ("resize_nearest_as_movement",)
INDICES_RULE = ("constant_indices_as_movement",)
REVERSE_RULE = ("reverse_last_axis",)
POOL_RULE = ("avg_pool2d_as_depthwise",)
SHIFT_RULE = ("shift_by_rounding_shift",)
STRIDE_RULE = ("shorten_long_strides",)
SUBPIXEL_RULE = ("transpose_conv2d_as_conv2d",)

INTEGERS = (DType.INT8, DType.INT16, DType.INT32)

RULES: dict[str, tuple[str, ...]] = {
    "ARGMAX": ARGMAX_RULE,
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN"), ("int32_reduction_as_halves",)),
    "COND_IF": ("cond_if_as_select",),
    "GATHER": ("gather_as_matmul",),
    "SCATTER": ("scatter_as_matmul",),
    **dict.fromkeys(("ARITHMETIC_RIGHT_SHIFT", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"), SHIFT_RULE),
    **dict.fromkeys(("BITWISE_AND", "BITWISE_NOT", "BITWISE_OR", "BITWISE_XOR"), ("bitwise_as_tables",)),
    "INTDIV": ("intdiv_as_arithmetic",),
    "MATMUL": ("int16_matmul_as_int8",),
    "TRANSPOSE_CONV2D": SUBPIXEL_RULE,
}
"""Rules that help where an operator is not taken with its element type."""


# ------------------------------------------------------------------------------------------ types
def _wrong_type(dtypes: tuple[DType, ...]) -> Find:
    def find(op: AnyOp, _: Intervals) -> str | None:
        if not op.inputs or op.inputs[0].dtype in dtypes:
            return None
        if not dtypes:
            return f"the target has no {op.name}"
        takes = ", ".join(dtype.name for dtype in dtypes)
        return f'"{op.inputs[0].name}" is {op.inputs[0].dtype.name}; the target takes {op.name} of {takes} only'

    return find


def _type_entries() -> list[Entry]:
    return [
        Entry(families, "refused", (name,), f"{name} of other element types", "probed", find, RULES.get(name, ()))
        for name, row in OPERATORS.items()
        for families, dtypes in ((SMALL, row.small), ((U85,), row.u85))
        for find in [_wrong_type(dtypes)]
    ]


def _unknown_operator(op: AnyOp, _: Intervals) -> str | None:
    known = op.name in OPERATORS or op.name in ("CONST", "CONST_SHAPE")
    return None if known or op.name.startswith("IDENTITY with ") else f"no target of Vela takes {op.name}"


def _wrong_tensor(dtypes: tuple[DType, ...]) -> Find:
    def find(op: AnyOp, _: Intervals) -> str | None:
        for tensor in (*op.outputs, *op.inputs):
            if tensor.dtype not in dtypes:
                return f'"{tensor.name}" is {tensor.dtype.name}, a type that the target does not have'
        return None

    return find


def _bool_tensor(op: AnyOp, _: Intervals) -> str | None:
    found = next((tensor for tensor in (*op.outputs, *op.inputs) if tensor.dtype == DType.BOOL), None)
    return None if found is None else f'"{found.name}" is BOOL, a type that the target does not have'


def _tensor_entries(row: Taken) -> list[Entry]:
    return [
        Entry(SMALL, "refused", ANY, "floating point", "probed", _wrong_tensor(row.small)),
        Entry((U85,), "refused", ANY, "floating point", "probed", _wrong_tensor(row.u85)),
    ]


def _named_rows(op: AnyOp, _: Intervals) -> str | None:
    """Rows that constants name; by computed indices is the business of the element types."""
    return f"the target has no {op.name}" if op.inputs[0].dtype in INTEGERS and op.inputs[1].is_constant else None


# ------------------------------------------------------------------------------------------ constants
def _not_constant(names: tuple[str, ...]) -> Find:
    """An operand that must be a constant itself."""

    def find(op: AnyOp, _: Intervals) -> str | None:
        found = signature(op.name)
        arguments = spread(found.inputs, len(op.inputs), False) if found else None
        for argument, tensor in zip(arguments or (), op.inputs, strict=False):
            if argument.name in names and not tensor.is_constant:
                return f'{argument.name} "{tensor.name}" is no constant'
        return None

    return find


def _loose_weights(op: AnyOp, _: Intervals) -> str | None:
    for name, tensor in zip(op.attrs.OPERANDS[1:3], op.inputs[1:3], strict=False):
        if not is_fixed(tensor):
            return f'{name} "{tensor.name}" is no constant'
    return None


def _loose_table(op: AnyOp, _: Intervals) -> str | None:
    table = op.inputs[1]
    return f'the table "{table.name}" is no constant' if table.dtype == DType.INT16 and not table.is_constant else None


UNWRITTEN_OUTPUT = Entry(
    FAMILIES,
    "refused",
    (),
    "an output that is an input of the graph, or a shape",
    "probed",
    lambda *_: None,
    ("identity_for_passed_outputs",),
)
"""Found by itself: it is about no operator."""

_ZERO_POINTS = ("input_zp", "output_zp", "weight_zp", "input1_zp", "A_zp", "B_zp")
_WINDOWS = ("AVG_POOL2D", "MAX_POOL2D", "CONV2D", "DEPTHWISE_CONV2D", "RESIZE")


def _refused(families: tuple[str, ...], operators: str, graph: str, find: Find, rules: tuple[str, ...] = ()) -> Entry:
    """An entry that was probed; ``operators`` are names, empty for every operator."""
    return Entry(families, "refused", tuple(operators.split()) or ANY, graph, "probed", find, rules)


LIMITS: tuple[Entry, ...] = (
    _refused(SMALL, " ".join((*OPERATORS, "CONST")), "BOOL", _bool_tensor, BOOL_RULES),
    _refused(SMALL, "GATHER SCATTER", "rows named by constants", _named_rows, INDICES_RULE),
    *_type_entries(),
    _refused(
        FAMILIES, "VARIABLE VARIABLE_READ VARIABLE_WRITE", "variables", _unknown_operator, ("variables_as_inputs",)
    ),
    _refused(FAMILIES, "", "operators that no target takes", _unknown_operator),
    *_tensor_entries(TENSORS),
    _refused(FAMILIES, "", "ranks above 6", values.rank, ("merge_axes",)),
    _refused(FAMILIES, " ".join(_WINDOWS), "more than 65536 channels", values.channels),
    _refused(
        SMALL, "ARGMAX", "another than the last axis, more than 127 elements, a batch", values.argmax, ARGMAX_RULE
    ),
    _refused(SMALL, "CONV3D", "depth in the kernel (INT16: in stride or padding)", values.conv3d_depth, CONV3D_RULE),
    _refused(SMALL, "AVG_POOL2D", "padding around a kernel beyond 8", values.padded_pool, POOL_RULE),
    _refused(
        SMALL, "CONV2D DEPTHWISE_CONV2D", "long strides with dilation or padding", values.long_stride, STRIDE_RULE
    ),
    _refused(SMALL, "TRANSPOSE_CONV2D", "strides other than [1, 1] and [2, 2]", values.transpose_stride, SUBPIXEL_RULE),
    _refused(SMALL, "REVERSE", "the last axis without a batch", values.reversed_channels, REVERSE_RULE),
    _refused(SMALL, "TRANSPOSE", "an axis above 65536, INT32 swaps of more than 16384 channels", values.transpose),
    _refused(SMALL, "MATMUL", "an axis of B above 65536", values.matmul),
    _refused(SMALL, "REDUCE_SUM", "an axis above 65536 that is to be moved", values.reduced_axis),
    _refused(SMALL, "RESIZE", "BILINEAR but for a copy", values.resize_bilinear, BILINEAR_RULE),
    _refused(SMALL, "RESIZE", "NEAREST but for 2, 4, 8 times with batch 1", values.resize_nearest, NEAREST_RULE),
    _refused(SMALL, "CONV2D DEPTHWISE_CONV2D", "weights or bias that are no constants", _loose_weights, COMPUTED_RULE),
    _refused(SMALL, "CONV3D", "weights or bias that are no constants", _loose_weights),
    _refused(FAMILIES, "TRANSPOSE_CONV2D", "weights or bias that are no constants", _loose_weights),
    _refused(
        SMALL,
        " ".join(int48.ACCUMULATING),
        "an INT48 accumulator that is an output or has several readers",
        int48.loose_accumulator,
        ("single_rescale_per_accumulator",),
    ),
    _refused(SMALL, "RESCALE", "INT48 that is no accumulator of a convolution", int48.free_int48),
    _refused(
        (U85,),
        " ".join(int48.ELEMENTWISE),
        "nothing but a scale-one copy of INT48 that the accumulating operator does not write alone",
        int48.copied_int48,
        ("keep_rescale_apart",),
    ),
    _refused(FAMILIES, "", "zero points that are no constants", _not_constant(_ZERO_POINTS)),
    _refused(
        FAMILIES, "MUL RESCALE", "shift or multiplier that are no constants", _not_constant(("shift", "multiplier"))
    ),
    _refused(FAMILIES, "PAD", "padding or pad_const that are no constants", _not_constant(("padding", "pad_const"))),
    _refused(FAMILIES, "TABLE", "an INT16 table that is no constant", _loose_table),
)
"""In the order they are asked; the first that refuses an operator is reported."""
