# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which 16-bit values of a fusion's body become f32."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from torch_mlir import ir

from kiln.dialects.kiln import PadOp, Role, ViewOp, name_of, opdef
from kiln.dialects.rounding import is_implicit, is_narrow
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import reduction_dims
from kiln.lowering.tile.dataflow import Dataflow, scalar_ops, yielded
from kiln.passes.roundings.decisions import decided

__all__ = ["CHOICES", "ROUNDS_SUMS", "adds_to_sums", "element_type", "widened"]

CHOICES = {"arith.negf", "arith.select", "math.absf", "math.copysign"}
"""Ops that give an operand, or its negative: exact in any type."""

_ADDING = ("adds_to_product", "conv_bias")
"""Attributes of loops that add what eager's op adds to a product before it rounds."""

ROUNDS_SUMS = "rounds_sums"
"""Attribute of loops whose results are a product's: its sums, added up from parts, rounded."""


def adds_to_sums(op: ir.Operation) -> bool:
    """Whether a loop adds what the program's op adds to a product, its first operand, before that rounds."""
    return any(name in op.attributes for name in _ADDING)


def element_type(value: ir.Value) -> ir.Type:
    """The type of a scalar, or of a tensor's elements."""
    return value.type.element_type if isinstance(value.type, ir.RankedTensorType) else value.type


def widened(
    flow: Dataflow,
    wanted: Sequence[ir.Value] = (),
    sums_only: bool = False,
    rounded: Collection[ir.Value] = (),
) -> set[ir.Value]:
    """The 16-bit scalars and tensors that hold an implicit rounding's result and need not.

    wanted: results of the fusion with which other kernels decide. sums_only: nothing but the sums of products to which
    the same op of the program adds something; eager does not round these, so that what decides has them, too. rounded:
    values that another kernel has with their roundings.

    Values that are one number are one class: a tensor,
    its views, the arguments of loops that it is read by, the scalar that is yielded for it. A class stays if a member
    is stored, read by a product or decides, or is a cast that the program asks for; then every reader sees the same
    rounded number.
    """
    classes = _Classes(flow)
    sums = {classes.find(v) for v in _unrounded_sums(flow)}
    kept = {classes.find(v) for v in _needed(flow)} | ({classes.find(v) for v in decided(flow, wanted)} - sums)
    kept.update(classes.find(v) for v in rounded)
    cats = [op for op in flow.ops if name_of(op) == "kiln.cat"]
    for op in reversed(cats):  # operands have the type of the result
        if classes.find(op.results[0]) in kept:
            kept.update(classes.find(v) for v in op.operands if is_narrow(element_type(v)))
    wide = (sums if sums_only else {classes.find(v) for v in _rounded(flow)}) - kept
    derived = [
        (op.results[0], list(op.operands))
        for op in [*cats, *(op for g in flow.generics for op in scalar_ops(g) if op.name in CHOICES)]
        if is_narrow(element_type(op.results[0]))
    ]
    size = -1
    while size != len(wide):
        size = len(wide)
        for result, operands in derived:
            if classes.find(result) not in kept and any(classes.find(v) in wide for v in operands):
                wide.add(classes.find(result))
    return {v for v in classes.members() if classes.find(v) in wide}


def _rounded(flow: Dataflow) -> Iterator[ir.Value]:
    """Results of implicit roundings, and products, whose sums are f32."""
    for op in flow.ops:
        if opdef(op).role is Role.CONTRACTION and is_narrow(element_type(op.results[0])):
            yield op.results[0]
    for generic in flow.generics:
        yield from (op.results[0] for op in scalar_ops(generic) if is_implicit(op))


def _unrounded_sums(flow: Dataflow) -> Iterator[ir.Value]:
    """Results of products that are read only to add what the program's op adds to its sums (`addmm`, a bias)."""
    for op in flow.ops:
        is_product = opdef(op).role is Role.CONTRACTION or ROUNDS_SUMS in op.attributes
        if is_product and is_narrow(element_type(op.results[0])) and _is_added_to(op.results[0]):
            yield op.results[0]


def _is_added_to(value: ir.Value) -> bool:
    """Whether all that read a product's result add to it as its own op of the program does."""
    for use in value.uses:
        op = use.owner.operation
        if name_of(op) == "kiln.view":
            if not _is_added_to(op.results[0]):
                return False
        elif use.operand_number != 0 or not adds_to_sums(op):
            return False
    return True


def _needed(flow: Dataflow) -> Iterator[ir.Value]:
    """16-bit values that cannot become f32, whether something decides or not."""
    yield from flow.block.arguments
    yield from flow.roots
    for op in flow.ops:
        if op.name == "linalg.generic":
            yield from _needed_by_loops(op)
        elif opdef(op).role is not Role.MOVEMENT:
            yield from op.operands
            if opdef(op).role is not Role.CONTRACTION:
                yield from op.results


def _needed_by_loops(generic: ir.Operation) -> Iterator[ir.Value]:
    outs = list(generic.operands)[len(generic.operands) - len(generic.results) :]
    carries = bool(reduction_dims(generic.opview))
    for out, result, argument in zip(outs, generic.results, _carried(generic), strict=True):
        maker = defining_op(out)
        if carries or list(argument.uses) or maker is None or name_of(maker) != "kiln.empty":
            yield from (out, result)
    for op in scalar_ops(generic):
        known = is_implicit(op) or op.name in CHOICES or op.name == "arith.constant"
        if not known:
            yield from op.results
        if op.name == "tensor.extract":
            yield op.operands[0]


def _carried(generic: ir.Operation) -> list[ir.Value]:
    arguments: list[ir.Value] = list(generic.regions[0].blocks[0].arguments)
    return arguments[len(generic.operands) - len(generic.results) :]


class _Classes:
    """16-bit values that are one number, as disjoint sets."""

    def __init__(self, flow: Dataflow) -> None:
        self._parent: dict[ir.Value, ir.Value] = {}
        for op in flow.ops:
            if op.name == "linalg.generic":
                block = op.regions[0].blocks[0]
                inputs = len(op.operands) - len(op.results)
                self._join(zip(list(op.operands)[:inputs], list(block.arguments)[:inputs], strict=True))
                self._join(zip(yielded(op), op.results, strict=True))
            elif isinstance(op.opview, ViewOp | PadOp):
                self._join([(op.operands[0], op.results[0])])

    def find(self, value: ir.Value) -> ir.Value:
        """The member that stands for the class of `value`."""
        parent = self._parent.setdefault(value, value)
        while parent != value:
            value, parent = parent, self._parent[parent]
        return value

    def members(self) -> list[ir.Value]:
        """Every value that was asked for or joined."""
        return list(self._parent)

    def _join(self, pairs: Iterable[tuple[ir.Value, ir.Value]]) -> None:
        for x, y in pairs:
            if is_narrow(element_type(x)):
                self._parent[self.find(x)] = self.find(y)
