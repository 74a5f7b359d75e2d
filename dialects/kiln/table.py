# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of ops: one `OpDef` per op of the dialect, beside the op's class.

Passes and emitters ask `opdef(op)` for what they need to know of an op; no other place lists ops by name.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar, cast

from torch_mlir import ir

from kiln.dialects.kiln.family import Family, name_of

_T = TypeVar("_T")


class Role(Enum):
    """What fusion may do with an op."""

    POINTWISE = "pointwise"
    """An element of the result is computed from the elements at its position."""
    REDUCTION = "reduction"
    """An element of the result is computed from many of the operand, each of which is read a few times."""
    CONTRACTION = "contraction"
    """Sums of products. The kernel reads its operands in memory, many times over."""
    MOVEMENT = "movement"
    """Elements are handed on as they are, at positions that are affine in those of the result."""
    GATHER = "gather"
    """Elements are handed on from positions that an operand says."""
    SCATTER = "scatter"
    """Elements are written to positions that an operand says."""
    SCAN = "scan"
    """An element of the result is computed from all before it along one dim."""
    OPAQUE = "opaque"
    """Fusion leaves it as it is: calls, kernels, steps of the host."""


class Shapes(Protocol):
    """What a shape rule may ask: `kiln.dialects.shapes.SymbolicShapes`."""

    def dims(self, value: ir.Value) -> Sequence[ir.AffineExpr]:
        """The sizes of a tensor, over the function's symbols."""
        ...

    def expr(self, value: ir.Value) -> ir.AffineExpr:
        """A scalar of type `index` as an expression over the function's symbols."""
        ...

    def map_results(self, op: ir.Operation, map_: ir.AffineMap) -> Sequence[ir.AffineExpr]:
        """The results of a map whose symbols are the index operands of `op`."""
        ...


Sizes = Sequence[ir.AffineExpr | None] | None
ShapeRule = Callable[[Any, ir.Operation, int], Sizes]
"""From the analysis (`Shapes`), the op and the number of a result: an expression, or None, per dim of that result."""

Reference = Callable[[Any, Any], Sequence[ir.Value] | ir.Value]
"""From the op and a `kiln.dialects.reference.Builder`: the op's results, in `linalg.generic` and data movement."""

Flops = Callable[[ir.Operation, Callable[[ir.Value], Sequence[int]]], int]
"""From the op and what tells the sizes of a tensor: its floating-point operations, a multiply-add as two."""


@dataclass(frozen=True)
class OpDef:
    """What the compiler knows of one op."""

    op: type[Any]
    """The class, with the operands, the attributes, the verifier and the documentation."""
    role: Role
    shape: ShapeRule | None = None
    """Sizes of the results; None for an op without tensors as results."""
    reference: Reference | str | None = None
    """The meaning of the op in simpler ops, into which `expand-named-ops` takes it apart; "module:function" is imported
    on first use. None for ops that are not taken apart."""
    flops: Flops | None = None
    """None: what the op computes is counted in the loops that it is taken apart into."""
    has_kernel: bool = False
    """Whether a target may have kernels of a kind of their own for the op: fusion puts at most one into a kernel, and
    the fusion's `kind` is the op's name without the dialect."""
    is_free: bool = False
    """Whether the op costs nothing to repeat in every kernel that reads its result."""
    takes_any_sizes: bool = False
    """Whether the type of an operand may know more or fewer sizes while the type of the result stays as it is."""

    @property
    def name(self) -> str:
        """As `name_of` gives it: "kiln.matmul"."""
        return str(self.op.OPERATION_NAME)

    @property
    def kind(self) -> str:
        """The name without the dialect: "matmul"."""
        return self.name.partition(".")[2]

    @property
    def is_guarded(self) -> bool:
        """Whether an operand is read only where an index is inside of it: padding, concatenation."""
        return self.role is Role.MOVEMENT and not self.is_free

    def expand(self, op: Any, builder: Any) -> Sequence[ir.Value] | ir.Value:
        """Build the results of `op` in simpler ops. Raises KeyError for an op that is not taken apart."""
        if self.reference is None:
            raise KeyError(self.name)
        if isinstance(self.reference, str):
            module, _, function = self.reference.partition(":")
            return getattr(importlib.import_module(module), function)(op, builder)
        return self.reference(op, builder)


_FOREIGN = OpDef(Family, Role.OPAQUE)
"""Of ops of other dialects."""

_OPDEFS: dict[str, OpDef] = {}


def define(op: type[Any], role: Role, **fields: Any) -> OpDef:
    """Put an op into the table; `fields` as in `OpDef`. Raises ValueError for an op that is there already."""
    found = OpDef(op, role, **fields)
    if found.name in _OPDEFS:
        raise ValueError(f"{found.name} is defined twice")
    _OPDEFS[found.name] = found
    return found


def opdef(op: Any) -> OpDef:
    """The record of an op (`ir.Operation` or `ir.OpView`); one without a role in fusion for other dialects' ops."""
    return _OPDEFS.get(name_of(op), _FOREIGN)


def opdef_of_kind(kind: str) -> OpDef:
    """The record of the op that gives a fusion its `kind`; that of other dialects' ops for "pointwise" and the like."""
    return next((entry for entry in _OPDEFS.values() if entry.has_kernel and entry.kind == kind), _FOREIGN)


def static_flops(op: ir.Operation) -> int:
    """Floating-point operations of a product of static sizes, a multiply-add as two; 0 for ops that are none."""
    flops = opdef(op).flops
    return 0 if flops is None else flops(op, lambda value: ir.RankedTensorType(value.type).shape)


def opdefs() -> Iterator[OpDef]:
    """The whole table, by name."""
    return iter(sorted(_OPDEFS.values(), key=lambda entry: entry.name))


def op_names(chosen: Callable[[OpDef], bool]) -> tuple[str, ...]:
    """Names of the ops for which `chosen` holds, sorted."""
    return tuple(entry.name for entry in opdefs() if chosen(entry))


def by_name(rules: Mapping[type[Any], _T]) -> dict[str, _T]:
    """A table with a value for some op classes, by the names of the ops."""
    return {str(op.OPERATION_NAME): rule for op, rule in cast("Mapping[Any, _T]", rules).items()}


# ------------------------------------------------------------------------------------------- shape rules of several ops


def same_as_first(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    """Each result has the sizes of the first operand."""
    return shapes.dims(op.operands[0])


def same_as_second(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    """Each result has the sizes of the second operand."""
    return shapes.dims(op.operands[1])


def shape_attribute(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    """The attribute `shape` gives the result's sizes."""
    return shapes.map_results(op, ir.AffineMapAttr(op.attributes["shape"]).value)
