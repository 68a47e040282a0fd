"""Decide, before anything is built: which blocks take part, which tensors stay int8, which forms are needed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

from rewrites._widen.families import CONVOLUTIONS, MOVEMENT, REGION_OPS, data_operands, int8_operands, is_order_op
from rewrites._widen.islands import reason_to_stay
from rewrites._widen.zero_points import Link, ZeroPoints, infer
from tosakit.errors import InvalidModel
from tosakit.ir import ops
from tosakit.ir.enums import DType
from tosakit.ir.graph import AnyOp, Graph, Tensor
from tosakit.ir.program import Program


class Form(Enum):
    """How an int8 activation exists in the new graph."""

    INT8 = "int8"
    """As it was."""
    INT16 = "int16"
    """(q - zero point) * 128."""


@dataclass
class Plan:
    """Everything that is decided about a program beforehand."""

    main: Graph
    involved: dict[Graph, list[AnyOp]]
    """The operators of each block that something is decided about, in order; all others stay as they are."""
    regions: dict[str, Graph]
    zero_points: ZeroPoints
    keeps_interface: bool
    islands: dict[AnyOp, str] = field(default_factory=dict)
    kept: dict[Tensor, str] = field(default_factory=dict)
    """Roots of zero-point classes that stay int8 as a whole, with the reason."""
    native: dict[Tensor, Form] = field(default_factory=dict)
    """The form in which a tensor comes into being."""
    needs: dict[Tensor, dict[Form, None]] = field(default_factory=dict)

    @property
    def blocks(self) -> tuple[Graph, ...]:
        """The blocks that take part, the main block first."""
        return tuple(self.involved)

    def reason_kept(self, tensor: Tensor) -> str | None:
        """Why a tensor's whole class stays int8, or None."""
        return self.kept.get(self.zero_points.classes.find(tensor)[0])

    def form(self, tensor: Tensor) -> Form:
        """The form in which the tensor comes into being."""
        return self.native.get(tensor, Form.INT16)

    def border_form(self, graph: Graph, tensor: Tensor) -> Form:
        """The form in which an int8 tensor crosses a block's border, inward or outward."""
        if self.reason_kept(tensor) is not None:
            return Form.INT8
        if graph is not self.main:
            return Form.INT16
        return Form.INT8 if self.keeps_interface else self.form(tensor)

    @property
    def widens(self) -> bool:
        """True where at least one activation that something reads becomes int16."""
        made = (t for block, found in self.involved.items() for t in (*block.inputs, *_results(found)))
        return any(Form.INT16 in self.needs.get(t, ()) for t in made if not t.extras.variable)


def _results(ops_: Iterable[AnyOp]) -> Iterator[Tensor]:
    """The results of operators that are int8."""
    return (t for t in chain.from_iterable(op.outputs for op in ops_) if t.dtype == DType.INT8)


def make_plan(program: Program, *, keeps_interface: bool) -> Plan:
    """Plan the widening of a program. O(operators)."""
    islands: dict[AnyOp, str] = {}
    regions: dict[str, Graph] = {}
    blocks = [program.main]
    involved: dict[Graph, list[AnyOp]] = {}
    links: list[Link] = []
    for block in blocks:  # grows while it is read
        involved[block] = [op for op in block.ops if is_involved(op)]
        for op in involved[block]:
            if isinstance(op.attrs, REGION_OPS):
                _enter(program, op, blocks, regions, links, islands)
            elif touches_int8(op):
                reason = reason_to_stay(op)
                if reason is not None:
                    islands[op] = reason
    plan = Plan(program.main, involved, regions, infer(involved, links), keeps_interface, islands)
    for block in blocks:
        _keep(block, plan)
    for block in blocks:
        _native(block, plan)
    for block in blocks:
        _needs(block, plan)
    if not keeps_interface:
        for tensor in dict.fromkeys(program.main.inputs):
            if tensor.dtype == DType.INT8 and list(plan.needs.get(tensor, ())) == [Form.INT8]:
                plan.native[tensor] = Form.INT8
    return plan


def is_involved(op: AnyOp) -> bool:
    """True for control flow, and for what reads or makes int8 values other than constants that are its parameters."""
    attrs = op.attrs
    if isinstance(attrs, ops.Const):
        return False
    if isinstance(attrs, REGION_OPS) or touches_int8(op):
        return True
    return any([t.dtype == DType.INT8 and not t.is_constant for t in op.inputs])


def touches_int8(op: AnyOp) -> bool:
    """True where an operator that is no constant reads or makes int8 activations."""
    return DType.INT8 in [t.dtype for t in (*op.outputs, *data_operands(op))]


def _enter(
    program: Program,
    op: AnyOp,
    blocks: list[Graph],
    regions: dict[str, Graph],
    links: list[Link],
    islands: dict[AnyOp, str],
) -> None:
    """Take the regions of a control flow operator into the plan, or make the operator an island."""
    found: dict[str, Graph] = {}
    for name in region_names(op):
        try:
            region = program.region(name)
        except InvalidModel as error:
            islands[op] = str(error)
            return
        if len(region.blocks) != 1 or region.blocks[0] is program.main:
            islands[op] = f'region "{name}" is not one block of its own'
            return
        found[name] = region.blocks[0]
    new_links = list(_links(op, found))
    if any((link.outer.dtype, link.outer.shape) != (link.inner.dtype, link.inner.shape) for link in new_links):
        islands[op] = "the tensors of its regions differ from its own in dtype or shape"
        return
    links.extend(new_links)
    for name, block in found.items():
        regions[name] = block
        if block not in blocks:
            blocks.append(block)


def region_names(op: AnyOp) -> tuple[str, ...]:
    """Names of the regions of a COND_IF or WHILE_LOOP."""
    if isinstance(op.attrs, ops.CondIf):
        return op.attrs.then_graph, op.attrs.else_graph
    if isinstance(op.attrs, ops.WhileLoop):
        return op.attrs.cond_graph, op.attrs.body_graph
    return ()


def region_operands(op: AnyOp) -> tuple[Tensor, ...]:
    """The operands that become the inputs of the regions."""
    return op.inputs[1:] if isinstance(op.attrs, ops.CondIf) else op.inputs


def _links(op: AnyOp, regions: dict[str, Graph]) -> Iterator[Link]:
    for name, block in regions.items():
        yield from map(Link, region_operands(op), block.inputs)
        if not (isinstance(op.attrs, ops.WhileLoop) and name == op.attrs.cond_graph):
            yield from (Link(outer, inner) for outer, inner in zip(op.outputs, block.outputs, strict=False))
    if isinstance(op.attrs, ops.WhileLoop):
        yield from map(Link, op.inputs, op.outputs)


def _keep(block: Graph, plan: Plan) -> None:
    """Find classes of tensors that have to stay int8 wherever they go."""

    def keep(tensor: Tensor, reason: str) -> None:
        plan.kept.setdefault(plan.zero_points.classes.find(tensor)[0], reason)

    for op in plan.involved[block]:
        attrs = op.attrs
        if isinstance(attrs, ops.Rescale):
            if attrs.input_unsigned and op.inputs[0].dtype == DType.INT8 and not op.inputs[0].is_constant:
                keep(op.inputs[0], "it holds unsigned values")
            if attrs.output_unsigned and op.output.dtype == DType.INT8:
                keep(op.output, "it holds unsigned values")
        elif isinstance(attrs, CONVOLUTIONS) and len(op.inputs) > 1 and op.inputs[1].dtype == DType.INT8:
            source = _origin(op.inputs[1])
            if source.producer is block.entry:
                keep(source, f"it holds weights of {op.name}, which stay int8")


def _origin(tensor: Tensor) -> Tensor:
    while (producer := tensor.producer) is not None and is_order_op(producer) and producer.inputs:
        tensor = producer.inputs[0]
    return tensor


def _native(block: Graph, plan: Plan) -> None:
    """In which form every int8 tensor comes into being."""
    native = plan.native
    for tensor in dict.fromkeys(block.inputs):
        if tensor.dtype == DType.INT8:
            stays = plan.reason_kept(tensor) is not None or (plan.keeps_interface and block is plan.main)
            native[tensor] = Form.INT8 if stays else Form.INT16
    for op in plan.involved[block]:
        for tensor in op.outputs:
            if tensor.dtype == DType.INT8:
                native[tensor] = _native_form(op, tensor, plan)


def _native_form(op: AnyOp, tensor: Tensor, plan: Plan) -> Form:
    if op in plan.islands or plan.reason_kept(tensor) is not None:
        return Form.INT8
    if is_order_op(op):
        computed = [t for t in int8_operands(op) if not t.is_constant]
        if computed and all(plan.form(t) is Form.INT8 for t in computed):
            return Form.INT8
    return Form.INT16


def _needs(block: Graph, plan: Plan) -> None:
    """In which forms every int8 tensor is read; results nobody reads count as needed in their own form."""

    def need(tensor: Tensor, form: Form) -> None:
        if tensor.dtype == DType.INT8:
            plan.needs.setdefault(tensor, {})[form] = None

    for tensor in block.outputs:
        if tensor.dtype == DType.INT8:
            need(tensor, plan.border_form(block, tensor))
    for op in reversed(plan.involved[block]):
        if isinstance(op.attrs, REGION_OPS) and op not in plan.islands:
            for tensor in op.inputs:
                need(tensor, Form.INT8 if tensor.dtype == DType.INT8 and plan.reason_kept(tensor) else Form.INT16)
            continue
        if op in plan.islands or not touches_int8(op):
            for tensor in op.inputs:
                need(tensor, Form.INT8)
            continue
        form = operand_form(op, plan)
        data = data_operands(op)
        for tensor in op.inputs:
            if tensor not in data:
                need(tensor, Form.INT8)
        for tensor in data:
            if isinstance(op.attrs, ops.Rescale | ops.ArgMax) and plan.form(tensor) is Form.INT8:
                need(tensor, Form.INT8)
            else:
                need(tensor, form)
        if isinstance(op.attrs, CONVOLUTIONS):
            need(op.inputs[1], Form.INT8)


def operand_form(op: AnyOp, plan: Plan) -> Form:
    """The form in which an operator that is no island reads its int8 operands."""
    results = [t for t in op.outputs if t.dtype == DType.INT8]
    if not results or not is_order_op(op):
        return Form.INT16
    wanted = plan.needs.get(results[0]) or {plan.form(results[0]): None}
    if plan.form(results[0]) is Form.INT8 or Form.INT16 not in wanted:
        return Form.INT8
    return Form.INT16


def saturated_by_readers(graph: Graph, *, clamps_saturate: bool) -> dict[Tensor, None]:
    """The int8 values each of whose readers saturates by itself, perhaps behind operators that only place elements.

    A TABLE does (its first and last entries go on for ever), and a CLAMP does, which stays within the int8 range.
    """
    found: dict[Tensor, None] = {}
    for op in reversed(graph.ops):
        for tensor in op.outputs:
            users = tensor.users
            if (
                tensor.dtype == DType.INT8
                and users
                and all(_saturates(u, tensor, found, clamps_saturate) for u in users)
            ):
                found[tensor] = None
    return found


def _saturates(reader: AnyOp, tensor: Tensor, found: dict[Tensor, None], clamps_saturate: bool) -> bool:
    if isinstance(reader.attrs, ops.Table):
        return reader.inputs[0] is tensor
    if isinstance(reader.attrs, ops.Clamp):
        return clamps_saturate
    return isinstance(reader.attrs, MOVEMENT) and all(result in found for result in reader.outputs)
